//! Which modes and scenes (load, queue depth, background) a comparison has, and on which CPUs its
//! job threads run.

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

/// Measured time of a block.
pub const BLOCK: Nanos = Nanos::from_millis(100);
/// Time before [`BLOCK`] that is not measured: caches fill, and policies adapt to the load.
pub const RAMP: Nanos = Nanos::from_millis(10);
/// Elapsed time of a block: [`RAMP`], [`BLOCK`], and 5 ms to create generators, wake threads and
/// read counters.
pub const WHOLE_BLOCK: Nanos = Nanos::from_millis(115);
/// Rounds between two measurements of the capacity, in scenes that need it.
pub const CAPACITY_EVERY: usize = 4;
/// Blocks per mode and scene for stolen time.
pub const STOLEN_BLOCKS: usize = 4;
/// Minimum I/Os of a block for figures per I/O; if blocks have fewer, rounds are joined.
pub const FEW: u64 = 10;

/// Default modes of a single scene.
const DEFAULT_MODES: [Mode; 7] = [
    Mode::INTERRUPT,
    Mode::INTERRUPT_CHECKED,
    Mode::IRQ_POLL,
    Mode::IRQ_POLL_CHECKED,
    Mode::HYBRID_MEAN,
    Mode::POLL,
    Mode::ADAPTIVE,
];
/// Default modes of a sweep: one of each kind, and `adaptive` with further delay exponents (in
/// thousandths).
const SWEPT: [Mode; 6] =
    [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::HYBRID_MEAN, Mode::SUSPEND, Mode::POLL, Mode::ADAPTIVE];
const EXPONENTS: [u32; 3] = [0, 1_000, 10_000];

/// The modes of the command line, or the defaults.
///
/// # Errors
/// A mode is named twice.
pub fn modes(args: &CompareArgs) -> Result<Vec<Mode>> {
    once("--modes", &args.modes)?;
    let adaptive = |n| Mode::adaptive(DelayExponent::per_mille(n));
    Ok(match args.modes[..] {
        [] if is_sweep(args) => SWEPT.into_iter().chain(EXPONENTS.map(adaptive)).collect(),
        [] => DEFAULT_MODES.to_vec(),
        _ => args.modes.clone(),
    })
}

/// Whether the command line selects more than one scene.
pub fn is_sweep(args: &CompareArgs) -> bool {
    !args.loads.is_empty() || !args.qd.is_empty() || args.background.is_some()
}

/// The modes that the devices support, and remarks for the report: the unsupported modes with their
/// reason, and the notes about supported ones. `lacks`: why a mode is not supported. `note`: how
/// the device differs from what the name of a mode implies.
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
    /// The conditions, as in the results.
    pub scene: Scene,
    /// The jobs at this queue depth, without the rate that `load` implies.
    pub jobs: Vec<Job>,
    /// Offered load in per cent of the capacity, as a Poisson process. `None`: the job determines
    /// the rate.
    pub load: Option<f64>,
}

impl SceneJobs {
    /// The jobs with the rate of this scene. `capacity`: I/Os per second of `poll` over all
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
            // A rate of 0 would mean no limit, so it is at least 1. An operation that the job does
            // not do is excluded by its pattern.
            let rate = |part: f64| Some(Rate::Iops((each * part).round().max(1.0) as u64));
            let rate = PerOp { read: rate(read), write: rate(1.0 - read), trim: None };
            Job { rate, rate_process: RateProcess::Poisson, ..job.clone() }
        };
        self.jobs.iter().map(pace).collect()
    }

    /// Closed loop: no rate is set, so the number of I/Os in flight is always the queue depth.
    pub fn is_closed(&self) -> bool {
        self.load.is_none()
            && self.jobs.iter().all(|job| job.rate.read.is_none() && job.rate.write.is_none())
    }
}

/// The jobs with another queue depth.
pub fn at_depth(jobs: &[Job], depth: u32) -> Vec<Job> {
    jobs.iter().map(|job| Job { iodepth: depth, ..job.clone() }).collect()
}

/// All combinations of queue depth, background and load, on a device with `profile`.
///
/// # Errors
/// A value is given twice, or `--loads` is used with a job that has a rate.
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
                    // At 100 % the loop is closed: a rate equal to the capacity would only let a
                    // backlog grow.
                    load: Some(load_pct).filter(|load| *load < 100.0),
                });
            }
        }
    }
    Ok(scenes)
}

/// Number of blocks for the progress bar. `labels`: modes and the A/A. Warm-up and capacity blocks
/// are not included.
pub fn blocks(scenes: &[SceneJobs], labels: usize, repeat: usize) -> u64 {
    // Each mode, and once without the job.
    let stolen = |scene: &&SceneJobs| scene.scene.background_pct.is_none();
    (labels * (repeat * scenes.len() + STOLEN_BLOCKS * scenes.iter().filter(stolen).count())) as u64
}

/// The CPUs of the job threads. Threads are pinned, so that rounds do not differ by CPU. For a disk
/// of the kernel they are pinned to the CPU that handles its completion interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCpus {
    /// CPUs that each thread of the plan is pinned to; empty: it is not pinned.
    pub threads: Vec<Vec<usize>>,
    /// All CPUs that job threads may use, ascending.
    pub used: Vec<usize>,
    /// CPUs on which job threads or interrupts of the device take time from other threads,
    /// ascending.
    pub disturbed: Vec<usize>,
    /// Number of CPUs that the threads need, at most one per thread.
    pub needed: usize,
    /// The device is not embedded: it is a kernel device, a drive, or a remote controller.
    pub external_device: bool,
    /// There are more threads than CPUs.
    pub oversubscribed: bool,
}

impl JobCpus {
    /// Assigns CPUs to the threads of `plan`. The CPUs of the first disk among `devices` (URIs) are
    /// preferred, unless CPUs were `given` by `--cpus`. Sets the description of the assignment in
    /// `machine`.
    pub fn new(
        root: &Path,
        plan: &Plan,
        machine: &mut Machine,
        devices: &[&str],
        given: bool,
    ) -> JobCpus {
        let mut known = None;
        if machine.external_device && !given {
            known = devices
                .iter()
                .find_map(|uri| CompletionCpus::of(root, &uri.parse::<KernelUri>().ok()?.path));
            // The affinity mask or cpuset of this process may exclude all CPUs of the disk.
            known =
                known.filter(|known| known.cpus.iter().any(|cpu| machine.job_cpus.contains(cpu)));
            known.iter().for_each(|known| machine.prefer(&known.cpus));
        }
        let ascending = |mut cpus: Vec<usize>| {
            cpus.sort_unstable();
            cpus.dedup();
            cpus
        };
        let wishes: Vec<Vec<u32>> = plan.threads.iter().map(|thread| thread.cpus.clone()).collect();
        let placed = machine.place(&wishes);
        // With an unknown interrupt CPU any fixed CPU would be arbitrary, and might be the slower
        // one.
        let pinned = !machine.external_device || given || known.is_some();
        let threads: Vec<Vec<usize>> = match pinned {
            true => placed.iter().map(|&cpu| vec![cpu]).collect(),
            false => wishes.iter().map(|wish| machine.allowed_by(wish)).collect(),
        };
        let used = ascending(if threads.iter().any(Vec::is_empty) {
            machine.job_cpus.clone()
        } else {
            threads.concat()
        });
        if machine.external_device {
            let on = list(&used);
            machine.placement_note = Some(match &known {
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
        let disturbed = ascending(if machine.external_device {
            [machine.job_cpus.clone(), used.clone()].concat()
        } else {
            used.clone()
        });
        let oversubscribed = machine.oversubscribed(&placed);
        JobCpus {
            threads,
            used,
            disturbed,
            needed: ascending(placed).len(),
            external_device: machine.external_device,
            oversubscribed,
        }
    }
}

#[cfg(test)]
mod tests;
