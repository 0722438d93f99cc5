//! From jobs to threads: `numjobs`, who waits for whom, who is reported with whom, on which CPUs, on which devices.

use std::ops::Range;

use crate::generator::{Extent, Seat, extents};
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
    /// It starts when all threads of lower stages are done (`stonewall`).
    pub stage: u32,
    /// fio's groupid: `stonewall` and `new_group` start a new one; `exitall` stops one's own.
    pub group: u32,
    /// Index of the entry in the results that it belongs to.
    pub report: usize,
    /// CPUs it may use, ascending; empty: any.
    pub cpus: Vec<u32>,
    /// Indices of the targets it uses; never empty.
    pub targets: Vec<usize>,
    /// Of each, the bytes that it has when the thread is set up, if all targets are files that are laid out for the run: fio sets up one
    /// thread after the other, and each goes by what the file has by then.
    pub found: Vec<u64>,
}

impl Thread {
    /// The thread's seat; `entropy` differs from run to run.
    pub fn seat(&self, entropy: u64) -> Seat {
        Seat { number: self.number, subjob: self.subjob, entropy }
    }
}

/// What the threads of a run are and how they belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All threads, in order.
    pub threads: Vec<Thread>,
    /// The distinct devices: each `filename` once; `None` is the one device of jobs without any.
    pub targets: Vec<Option<String>>,
    /// Of each, the bytes that a new file has to have, as fio lays it out: up to the farthest end of what any thread uses. `None`: no
    /// job says.
    pub lengths: Vec<Option<u64>>,
    /// Entries in the results: with `group_reporting` one for all threads of a group.
    pub reports: usize,
    /// Stages: one more than `stonewall`s that had something to wait for.
    pub stages: u32,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Plans `jobs` on a machine with these CPUs.
pub fn plan(jobs: &[Job], available: &[u32]) -> Plan {
    let mut plan = Plan::default();
    let mut missing = Vec::new();
    // Of each thread, the targets and the bytes of them that it uses.
    let mut uses: Vec<Vec<(usize, Range<u64>)>> = Vec::new();
    let (mut stage, mut group, mut in_group) = (0, 0, 0u32);
    for (index, job) in jobs.iter().enumerate() {
        if job.stonewall && !plan.threads.is_empty() {
            stage += 1;
        }
        if (job.stonewall || job.new_group) && in_group > 0 {
            group += 1;
            in_group = 0;
        }
        let threads = job.numjobs.max(1);
        // As fio numbers them: the first, and then from the last one down.
        for subjob in std::iter::once(0).chain((1..threads).rev()) {
            let number = plan.threads.len() as u32 + 1;
            // fio keeps an entry going for as long as the group does and jobs ask for it.
            let joins = job.group_reporting && plan.threads.last().is_some_and(|last| last.group == group);
            if !joins {
                plan.reports += 1;
            }
            let targets = targets(job, subjob, &mut plan.targets);
            let cpus = cpus(job, number, available, &mut missing);
            plan.lengths.resize(plan.targets.len(), None);
            let found: Vec<u64> = targets.iter().map(|target| plan.lengths[*target].unwrap_or(0)).collect();
            // What is wrong with it is said when the devices are known.
            uses.push(match extents(job, subjob, &found, |_| true) {
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
            plan.threads.push(Thread { job: index, number, subjob, stage, group, report, cpus, targets, found });
            in_group += 1;
        }
    }
    plan.stages = if plan.threads.is_empty() { 0 } else { stage + 1 };
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        plan.warnings.push(format!(
            "cpus_allowed names {} that this machine does not have: {}; mapped round-robin to {}",
            if missing.len() == 1 { "a CPU" } else { "CPUs" },
            units::cpu_ranges(&missing),
            units::cpu_ranges(available)
        ));
    }
    plan.warnings.extend(overwritten(jobs, &plan.threads, &uses));
    plan
}

/// Another thread may write over the blocks that one verifies: a warning, as in fio (`fixup_options` in its init.c). Each thread knows
/// only its own I/Os in flight.
fn overwritten(jobs: &[Job], threads: &[Thread], uses: &[Vec<(usize, Range<u64>)>]) -> Option<String> {
    for (thread, mine) in threads.iter().zip(uses).filter(|(thread, _)| jobs[thread.job].verify.is_some()) {
        for (other, theirs) in threads.iter().zip(uses).filter(|(other, _)| other.number != thread.number && other.stage == thread.stage) {
            let (name, writer) = (&jobs[thread.job].name, &jobs[other.job]);
            let writes = writer.pattern.changes() && !writer.verify.as_ref().is_some_and(|verify| verify.only);
            let meets = |(a, at): &(usize, Range<u64>)| theirs.iter().any(|(b, to)| a == b && at.start < to.end && to.start < at.end);
            if writes && mine.iter().any(meets) {
                let writer = if thread.job == other.job { "another thread of it".into() } else { format!("job '{}'", writer.name) };
                return Some(format!(
                    "job '{name}' verifies, and {writer} may write over the same blocks: that is reported as wrong data; \
                     give each thread blocks of its own with offset_increment= and size=, or a filename="
                ));
            }
        }
    }
    None
}

/// The indices of the targets of a job's thread; new ones are added to `known`.
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
        return (0..job.files.max(1)).map(|file| index_of(Some(&name(file)))).collect();
    }
    if job.filenames.is_empty() {
        return vec![index_of(None)];
    }
    job.filenames.iter().map(|name| index_of(Some(name))).collect()
}

/// The CPUs of thread `number`; those that the machine lacks are noted in `missing`.
fn cpus(job: &Job, number: u32, available: &[u32], missing: &mut Vec<u32>) -> Vec<u32> {
    let Some(allowed) = job.cpus_allowed.as_deref().filter(|cpus| !cpus.is_empty()) else { return Vec::new() };
    if available.is_empty() {
        return Vec::new();
    }
    // As fio: by the number among all threads, not among the job's.
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
