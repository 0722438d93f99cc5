//! Expands jobs into threads: `numjobs`, `stonewall`, reporting groups, CPUs and targets (devices
//! and files). Threads are numbered as in fio, because random seeds and offsets depend on the
//! number.

use std::ops::Range;

use crate::generator::{Extent, ThreadId, extents};
use crate::job::Job;

/// One thread of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Index of its job.
    pub job: usize,
    /// Number among all threads, from 1.
    pub number: u32,
    /// Number among the job's threads, from 0.
    pub subjob: u32,
    /// The thread starts when all threads of lower stages have ended (`stonewall`).
    pub stage: u32,
    /// fio's groupid: `stonewall` and `new_group` start a new one; `exitall` stops a group.
    pub group: u32,
    /// Index of the thread's entry in the results.
    pub report: usize,
    /// CPUs that the thread may use, ascending; empty: any.
    pub cpus: Vec<u32>,
    /// Indices of its targets; never empty.
    pub targets: Vec<usize>,
    /// Size of each target in bytes when this thread is set up, if the run creates the targets. fio
    /// sets up threads one after the other, and each sees the files as earlier threads left them.
    pub sizes_at_setup: Vec<u64>,
}

impl Thread {
    /// The thread's identity for its [`Generator`](crate::Generator); `entropy` differs from run to
    /// run.
    pub fn id(&self, entropy: u64) -> ThreadId {
        ThreadId { number: self.number, subjob: self.subjob, entropy }
    }
}

/// The threads of a run, and what they share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All threads, in order.
    pub threads: Vec<Thread>,
    /// The distinct targets: each `filename` once; `None` is the device of jobs without `filename`.
    pub targets: Vec<Option<String>>,
    /// Size in bytes of each target if it has to be created: the largest end of any thread's
    /// extent, as in fio. `None`: no thread's extent is known.
    pub lengths: Vec<Option<u64>>,
    /// Number of entries in the results; with `group_reporting` a group has one.
    pub reports: usize,
    /// Number of stages.
    pub stages: u32,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Plans `jobs` on a machine with the CPUs `available`.
pub fn plan(jobs: &[Job], available: &[u32]) -> Plan {
    let mut plan = Plan::default();
    let mut missing = Vec::new();
    // For each thread: the targets that it uses, and the byte range of each.
    let mut uses: Vec<Vec<(usize, Range<u64>)>> = Vec::new();
    let (mut stage, mut group, mut in_group) = (0, 0, 0u32);
    for (index, job) in jobs.iter().enumerate() {
        // A stonewall before the first job has nothing to wait for.
        if job.stonewall && !plan.threads.is_empty() {
            stage += 1;
        }
        if (job.stonewall || job.new_group) && in_group > 0 {
            group += 1;
            in_group = 0;
        }
        let threads = job.numjobs.max(1);
        // fio numbers the threads of a job in this order: the first, then from the last one down.
        for subjob in std::iter::once(0).chain((1..threads).rev()) {
            let number = plan.threads.len() as u32 + 1;
            // As in fio, consecutive jobs of a group that have group_reporting share an entry.
            let joins =
                job.group_reporting && plan.threads.last().is_some_and(|last| last.group == group);
            if !joins {
                plan.reports += 1;
            }
            let targets = targets(job, subjob, &mut plan.targets);
            let cpus = cpus(job, number, available, &mut missing);
            plan.lengths.resize(plan.targets.len(), None);
            let sizes_at_setup: Vec<u64> =
                targets.iter().map(|target| plan.lengths[*target].unwrap_or(0)).collect();
            // An error is ignored here: `Generator::new` reports it, and knows the targets.
            uses.push(match extents(job, subjob, &sizes_at_setup, |_| true) {
                Ok((files, _)) => {
                    let used = |(target, file): (&usize, &Extent)| {
                        plan.lengths[*target] = plan.lengths[*target].max(Some(file.end));
                        (*target, file.first.min(file.start)..file.first.max(file.start) + file.len)
                    };
                    targets.iter().zip(&files).map(used).collect()
                }
                Err(_) => targets.iter().map(|target| (*target, 0..u64::MAX)).collect(),
            });
            let report = plan.reports - 1;
            plan.threads.push(Thread {
                job: index,
                number,
                subjob,
                stage,
                group,
                report,
                cpus,
                targets,
                sizes_at_setup,
            });
            in_group += 1;
        }
    }
    plan.stages = if plan.threads.is_empty() { 0 } else { stage + 1 };
    // One warning for all missing CPUs; several jobs may name the same one.
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        plan.warnings.push(format!(
            "cpus_allowed names {} that do not exist here: {}; mapped round-robin to {}",
            if missing.len() == 1 { "a CPU" } else { "CPUs" },
            units::cpu_ranges(&missing),
            units::cpu_ranges(available)
        ));
    }
    plan.warnings.extend(overwritten(jobs, &plan.threads, &uses));
    plan
}

/// A warning, as in fio (`fixup_options` in its init.c), if a thread verifies blocks that another
/// thread may write at the same time: each thread orders only its own overlapping I/Os.
fn overwritten(
    jobs: &[Job],
    threads: &[Thread],
    uses: &[Vec<(usize, Range<u64>)>],
) -> Option<String> {
    // Only threads of one stage run at the same time. Only the first conflict is reported.
    for (thread, mine) in
        threads.iter().zip(uses).filter(|(thread, _)| jobs[thread.job].verify.is_some())
    {
        for (other, theirs) in threads
            .iter()
            .zip(uses)
            .filter(|(other, _)| other.number != thread.number && other.stage == thread.stage)
        {
            let (name, writer) = (&jobs[thread.job].name, &jobs[other.job]);
            let writes = writer.pattern.modifies()
                && !writer.verify.as_ref().is_some_and(|verify| verify.only);
            let meets = |(a, at): &(usize, Range<u64>)| {
                theirs.iter().any(|(b, to)| a == b && at.start < to.end && to.start < at.end)
            };
            if writes && mine.iter().any(meets) {
                let writer = if thread.job == other.job {
                    "another of its threads".into()
                } else {
                    format!("job '{}'", writer.name)
                };
                return Some(format!(
                    "job '{name}' verifies, and {writer} may write the same blocks, so that verification reports wrong data; \
                     give each thread blocks of its own with offset_increment= and size=, or a filename="
                ));
            }
        }
    }
    None
}

/// The indices in `known` of the targets of a job's thread; new targets are added to `known`.
fn targets(job: &Job, subjob: u32, known: &mut Vec<Option<String>>) -> Vec<usize> {
    let mut index_of = |name: Option<&String>| match known.iter().position(|k| k.as_ref() == name) {
        Some(index) => index,
        None => {
            known.push(name.cloned());
            known.len() - 1
        }
    };
    if let Some(format) = job.file_format.as_deref().filter(|_| job.filenames.is_empty()) {
        let name = |file: u32| {
            let named = format.replace("$jobname", &job.name).replace("$clientuid", "localhost");
            named.replace("$jobnum", &subjob.to_string()).replace("$filenum", &file.to_string())
        };
        // With file names each file of nrfiles= is a target.
        return (0..job.files.max(1)).map(|file| index_of(Some(&name(file)))).collect();
    }
    // Without filename= the job uses the device of the command line.
    if job.filenames.is_empty() {
        return vec![index_of(None)];
    }
    job.filenames.iter().map(|name| index_of(Some(name))).collect()
}

/// The CPUs of thread `number`. CPUs that the machine lacks are replaced and added to `missing`.
fn cpus(job: &Job, number: u32, available: &[u32], missing: &mut Vec<u32>) -> Vec<u32> {
    let Some(allowed) = job.cpus_allowed.as_deref().filter(|cpus| !cpus.is_empty()) else {
        return Vec::new();
    };
    if available.is_empty() {
        return Vec::new();
    }
    // As in fio, cpus_allowed_policy=split counts all threads of the run, not only the job's.
    let index = (number as usize - 1) % allowed.len();
    let chosen = if job.cpus_split { &allowed[index..=index] } else { allowed };
    let mut cpus: Vec<u32> = Vec::with_capacity(chosen.len());
    for cpu in chosen {
        cpus.push(match available.contains(cpu) {
            true => *cpu,
            false => {
                missing.push(*cpu);
                available[*cpu as usize % available.len()]
            }
        });
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[cfg(test)]
mod tests;
