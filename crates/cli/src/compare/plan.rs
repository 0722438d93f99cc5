//! What is compared: modes, scenes (load, depth, background), and the CPUs of the job threads.

use std::path::Path;

use anyhow::{Result, bail};
use completion::{DelayExponent, Mode};
use hw::block::CompletionCpus;
use reap::{KernelUri, Nanos};
use workload::plan::Plan;
use workload::{Job, PerOp, Rate, RateProcess};

use crate::args::{CompareArgs, once};
use crate::machine::{Machine, list};
use crate::rows::Scene;

/// A measured block.
pub const BLOCK: Nanos = Nanos::from_millis(100);
/// The time before it, in which caches and policies settle.
pub const RAMP: Nanos = Nanos::from_millis(10);
/// With what is around it: the ramp, and 5 ms in which threads are woken, generators made, counters
/// read.
pub const WHOLE_BLOCK: Nanos = Nanos::from_millis(115);
/// With a rate: rounds from one measurement of the capacity to the next.
pub const CAPACITY_EVERY: usize = 4;
/// Blocks of each mode in which stolen time is measured.
pub const STOLEN_BLOCKS: usize = 4;
/// I/Os that a block has to have for figures per I/O.
pub const FEW: u64 = 10;

/// The modes unless some are named.
const USUAL: [Mode; 7] = [
    Mode::INTERRUPT,
    Mode::INTERRUPT_CHECKED,
    Mode::IRQ_POLL,
    Mode::IRQ_POLL_CHECKED,
    Mode::HYBRID_MEAN,
    Mode::POLL,
    Mode::ADAPTIVE,
];
/// Those of several scenes: one of each family, and `adaptive` with more delay exponents (in
/// thousandths).
const SWEPT: [Mode; 6] =
    [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::HYBRID_MEAN, Mode::SUSPEND, Mode::POLL, Mode::ADAPTIVE];
const EXPONENTS: [u32; 3] = [0, 1_000, 10_000];

/// The modes of the command line; if none were named the usual ones.
pub fn modes(args: &CompareArgs) -> Result<Vec<Mode>> {
    once("--modes", &args.modes)?;
    let adaptive = |n| Mode::adaptive(DelayExponent::per_mille(n));
    Ok(match args.modes[..] {
        [] if is_sweep(args) => SWEPT.into_iter().chain(EXPONENTS.map(adaptive)).collect(),
        [] => USUAL.to_vec(),
        _ => args.modes.clone(),
    })
}

/// Whether the command line asks for more than one scene.
pub fn is_sweep(args: &CompareArgs) -> bool {
    !args.loads.is_empty() || !args.qd.is_empty() || args.background.is_some()
}

/// Those of `modes` that the devices have, and remarks: which are left out and why, and what the
/// device does otherwise than a mode's name says. `lacks` says why there is no such mode, `note`
/// what it does instead.
pub fn available(
    modes: &[Mode],
    lacks: impl Fn(Mode) -> Option<String>,
    note: impl Fn(Mode) -> Option<String>,
) -> (Vec<Mode>, Vec<String>) {
    let (mut kept, mut remarks) = (Vec::new(), Vec::new());
    for &mode in modes {
        match lacks(mode) {
            Some(why) => remarks.push(format!("Left out: {why}.")),
            None => {
                remarks.extend(note(mode).map(|note| format!("{mode}: {note}.")));
                kept.push(mode);
            }
        }
    }
    (kept, remarks)
}

/// A scene with its jobs.
#[derive(Clone, Debug)]
pub struct SceneJobs {
    /// As in the results.
    pub scene: Scene,
    /// At this scene's depth, without a rate of the scene's.
    pub jobs: Vec<Job>,
    /// I/Os arrive at random, at this share of the capacity in per cent. `None`: as the job says.
    pub load: Option<f64>,
}

impl SceneJobs {
    /// The jobs at this scene's pace, where polling reaches `capacity` I/Os per second over all
    /// `threads`.
    pub fn paced(&self, capacity: f64, threads: usize) -> Vec<Job> {
        let Some(load) = self.load else { return self.jobs.clone() };
        let each = capacity * load / 100.0 / threads.max(1) as f64;
        let pace = |job: &Job| {
            let read = match (job.pattern.reads(), job.pattern.writes()) {
                (true, true) => f64::from(job.read_percent.min(100)) / 100.0,
                (true, false) => 1.0,
                _ => 0.0,
            };
            // A rate is never 0: an operation that a mixed job has none of gets none from its
            // pattern.
            let rate = |part: f64| Some(Rate::Iops((each * part).round().max(1.0) as u64));
            let rate = PerOp { read: rate(read), write: rate(1.0 - read), trim: None };
            Job { rate, rate_process: RateProcess::Poisson, ..job.clone() }
        };
        self.jobs.iter().map(pace).collect()
    }

    /// No rate limits the I/Os: the device always has as many as the depth.
    pub fn is_closed(&self) -> bool {
        self.load.is_none()
            && self.jobs.iter().all(|job| job.rate.read.is_none() && job.rate.write.is_none())
    }
}

/// The jobs at a depth.
pub fn at_depth(jobs: &[Job], depth: u32) -> Vec<Job> {
    jobs.iter().map(|job| Job { iodepth: depth, ..job.clone() }).collect()
}

/// The scenes on a device with `profile`.
pub fn scenes(
    args: &CompareArgs,
    jobs: &[Job],
    plan: &Plan,
    profile: &str,
) -> Result<Vec<SceneJobs>> {
    once("--qd", &args.qd)?;
    once("--loads", &args.loads)?;
    let rated = jobs.iter().find(|job| job.rate.read.is_some() || job.rate.write.is_some());
    if let Some(job) = rated.filter(|_| !args.loads.is_empty()) {
        bail!(
            "job '{}' has a rate of its own; --loads sets the rate: take it out of the job",
            job.name
        );
    }
    let at_depths = match args.qd[..] {
        [] => vec![jobs.to_vec()],
        _ => args.qd.iter().map(|&depth| at_depth(jobs, depth)).collect(),
    };
    let mut loads = if args.loads.is_empty() { vec![100.0] } else { args.loads.clone() };
    loads.sort_unstable_by(f64::total_cmp);
    let mut scenes = Vec::new();
    for jobs in at_depths {
        let qd = plan.threads.iter().map(|thread| u64::from(jobs[thread.job].iodepth)).sum();
        for background_pct in
            std::iter::once(None).chain(args.background.map(|pct| Some(f64::from(pct))))
        {
            for &load_pct in &loads {
                let scene = Scene {
                    load_pct,
                    qd,
                    profile: profile.to_owned(),
                    background_pct,
                    arrivals: None,
                };
                scenes.push(SceneJobs {
                    scene,
                    jobs: jobs.clone(),
                    load: Some(load_pct).filter(|load| *load < 100.0),
                });
            }
        }
    }
    Ok(scenes)
}

/// How many blocks are run, with `labels` (modes and the A/A) in each round; those before and
/// between rounds are not counted.
pub fn blocks(scenes: &[SceneJobs], labels: usize, repeat: usize) -> u64 {
    // Stolen time: of each mode, and of none.
    let stolen = |scene: &&SceneJobs| scene.scene.background_pct.is_none();
    (labels * (repeat * scenes.len() + STOLEN_BLOCKS * scenes.iter().filter(stolen).count())) as u64
}

/// The CPUs of the job threads. Each is pinned, so that rounds do not differ by where threads ran,
/// and to where the device's completions arrive: of a disk of the kernel's, the CPU of its
/// interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCpus {
    /// For each thread of the plan those that it is pinned to; none: it is not pinned.
    pub threads: Vec<Vec<usize>>,
    /// All that job threads may be on, ascending.
    pub used: Vec<usize>,
    /// Those where they, or the device's interrupts, take time from others; ascending.
    pub disturbed: Vec<usize>,
    /// How many the threads need, at most one for each.
    pub needed: usize,
    /// The device is no thread of this process.
    pub outside: bool,
    /// More threads than CPUs.
    pub oversubscribed: bool,
}

impl JobCpus {
    /// For the threads of `plan`. The first of the devices, by their URIs, that is a disk's says
    /// which CPUs of `machine` are taken first, unless CPUs were `given`. `machine` says afterwards
    /// where the threads are, in words.
    pub fn new(
        root: &Path,
        plan: &Plan,
        machine: &mut Machine,
        devices: &[&str],
        given: bool,
    ) -> JobCpus {
        let mut known = None;
        if machine.outside && !given {
            known = devices
                .iter()
                .find_map(|uri| CompletionCpus::of(root, &uri.parse::<KernelUri>().ok()?.path));
            // This process may not be allowed on any of them.
            known = known.filter(|known| known.cpus.iter().any(|cpu| machine.host.contains(cpu)));
            known.iter().for_each(|known| machine.prefer(&known.cpus));
        }
        let ascending = |mut cpus: Vec<usize>| {
            cpus.sort_unstable();
            cpus.dedup();
            cpus
        };
        let wishes: Vec<Vec<u32>> = plan.threads.iter().map(|thread| thread.cpus.clone()).collect();
        let placed = machine.place(&wishes);
        let pinned = !machine.outside || given || known.is_some();
        let threads: Vec<Vec<usize>> = match pinned {
            true => placed.iter().map(|&cpu| vec![cpu]).collect(),
            false => wishes.iter().map(|wish| machine.named(wish)).collect(),
        };
        let used = ascending(if threads.iter().any(Vec::is_empty) {
            machine.host.clone()
        } else {
            threads.concat()
        });
        if machine.outside {
            let on = list(&used);
            machine.seated = Some(match &known {
                _ if given => format!("threads on CPU {on}, as --cpus says"),
                Some(known) => {
                    let what = if known.by_interrupt { "interrupts" } else { "hardware queues" };
                    format!(
                        "threads on CPU {on}; {}'s {what} are on CPU {}",
                        known.disk,
                        list(&ascending(known.cpus.clone()))
                    )
                }
                None => format!(
                    "threads not pinned: the CPU of the device's interrupt is not known (--cpus sets one); CPUs {on}"
                ),
            });
        }
        // A device outside this process may interrupt any CPU.
        let disturbed = ascending(if machine.outside {
            [machine.host.clone(), used.clone()].concat()
        } else {
            used.clone()
        });
        let oversubscribed = machine.oversubscribed(&placed);
        JobCpus {
            threads,
            used,
            disturbed,
            needed: ascending(placed).len(),
            outside: machine.outside,
            oversubscribed,
        }
    }
}

#[cfg(test)]
mod tests;
