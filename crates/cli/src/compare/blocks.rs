//! Runs the blocks of a comparison: the job for [`RAMP`] + [`BLOCK`] in one completion mode.
//! Devices, queues and buffers stay open between blocks.
//!
//! ```text
//! warm-up block (not counted)
//! repeat × for each scene, in random order:
//!   polled block without rate   every 4th round, if the scene needs the capacity
//!   one block per mode, and the first mode again (A/A), in random order
//! then, per scene: blocks next to SCHED_IDLE loops, which measure stolen time
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use completion::Mode;
use hw::RunDelay;
use indicatif::ProgressBar;
use rand::Rng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::{Device, Measured, Nanos};
use workload::plan::Plan;
use workload::report::PathStats;
use workload::{Generator, Job, Latency, TargetSize};

use super::loops::{self, Background, IdleLoops};
use super::plan::{BLOCK, CAPACITY_EVERY, JobCpus, RAMP, STOLEN_BLOCKS, SceneJobs};
use super::statistics;
use crate::bench::{
    self, Counted, JobProgress, PathMark, Ran, Rig, ThreadControl, Worker, merge_spans,
};
use crate::machine;
use crate::output::say;

/// The load of the next round is a share of the median of this many recent capacity measurements.
const RECENT: usize = 3;

/// What one block measured, over all job threads.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// I/Os per second.
    pub iops: f64,
    /// CPU time, messages, doorbells and system calls.
    pub counted: Counted,
    /// Latencies in nanoseconds. They count until the completion was reaped: from the decision to
    /// issue, or, in jobs with a rate, from the intended start.
    pub latency: Latency,
    /// Elapsed time of the block, ramp included.
    pub took: Nanos,
    /// CPU time of the background threads during the block; `None` without `--background`.
    pub background: Option<Nanos>,
    /// Time in which job threads were runnable without a CPU, plus steal time of the hypervisor.
    /// `None` for embedded devices.
    pub away: Option<Nanos>,
    /// Statistics per path, of multipath devices.
    pub paths: Vec<PathStats>,
}

impl Sample {
    /// Joins blocks of one mode and equal length to one sample: IOPS are averaged, counts and
    /// latencies added. `None` if `blocks` is empty.
    pub fn in_turn(blocks: &[&Sample]) -> Option<Sample> {
        let (first, later) = blocks.split_first()?;
        let mut sum = (*first).clone();
        for block in later {
            sum.iops += block.iops;
            // `merge` is for threads that ran at the same time, and takes the maximum of these two.
            // Blocks ran one after the other, so they are added.
            let (wall, process) = (
                sum.counted.wall + block.counted.wall,
                sum.counted.process + block.counted.process,
            );
            sum.counted.merge(&block.counted);
            (sum.counted.wall, sum.counted.process) = (wall, process);
            sum.latency.merge(&block.latency);
            sum.took += block.took;
            sum.background = sum.background.zip(block.background).map(|(a, b)| a + b);
            sum.away = sum.away.zip(block.away).map(|(a, b)| a + b);
        }
        sum.iops /= blocks.len() as f64;
        sum.paths =
            merge_spans(&blocks.iter().map(|block| block.paths.as_slice()).collect::<Vec<_>>());
        Some(sum)
    }
}

/// The samples of one scene.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// By round, then by label: the modes in order, and last the first mode again (A/A).
    pub rounds: Vec<Vec<Option<Sample>>>,
    /// Blocks in mode `poll` without a rate, at this scene's queue depth. They show the capacity,
    /// and which share of its CPU a polling thread got. Empty if neither is needed.
    pub polled: Vec<Sample>,
    /// Stolen time by mode, in nanoseconds per I/O; empty if it was not measured.
    pub stolen: Vec<Option<f64>>,
}

impl Record {
    /// IOPS of `poll` without a rate, median; 0 if it was not measured.
    fn capacity(&self) -> f64 {
        statistics::median(&self.polled.iter().map(|sample| sample.iops).collect::<Vec<_>>())
            .unwrap_or(0.0)
    }
}

/// The job threads, and the scenes and modes to run on them.
pub struct Experiment<'a> {
    /// The modes to compare; never empty.
    pub modes: &'a [Mode],
    pub scenes: &'a [SceneJobs],
    pub plan: &'a Plan,
    pub cpus: &'a JobCpus,
    /// Rounds of each scene.
    pub repeat: usize,
    /// Once this flag is set, measuring ends, and complete rounds are returned.
    pub stop: &'a Arc<AtomicBool>,
    /// Progress, in blocks.
    pub bar: &'a ProgressBar,
    pub threads: JobThreads,
}

impl Experiment<'_> {
    /// Runs all rounds. Returns a record per scene, and the error if an I/O failed; the records
    /// then have the rounds before it.
    pub fn run(&mut self, rng: &mut Xoshiro256PlusPlus) -> (Vec<Record>, Result<()>) {
        let mut records = vec![Record::default(); self.scenes.len()];
        let mut polled = BTreeMap::new();
        let ended = self.rounds(&mut records, &mut polled, rng);
        for (scene, record) in self.scenes.iter().zip(&mut records) {
            record.polled = polled.get(&scene.scene.qd).cloned().unwrap_or_default();
        }
        // SCHED_IDLE threads may be forbidden. Stolen time is only an extra column, so this is a
        // warning.
        if ended.is_ok()
            && let Err(error) = self.stolen(&mut records, rng)
        {
            say(format_args!("warning: stolen time is not measured: {error:#}"));
        }
        (records, ended)
    }

    /// Runs the rounds of all scenes. A round that is interrupted is dropped: all modes need the
    /// same rounds.
    fn rounds(
        &mut self,
        records: &mut [Record],
        polled: &mut BTreeMap<u64, Vec<Sample>>,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Result<()> {
        let labels: Vec<Mode> = self.modes.iter().chain(self.modes.first()).copied().collect();
        let compares_poll = labels.contains(&Mode::POLL);
        if let (Some(scene), Some(&first)) = (self.scenes.first(), labels.first()) {
            // The first block runs with cold caches, so its result is discarded.
            self.threads.run(first, &prepared(&scene.jobs, RAMP), 0)?;
        }
        let mut scene_order: Vec<usize> = (0..self.scenes.len()).collect();
        // Rounds so far, by queue depth: scenes of the same depth have the same capacity.
        let mut rounds_at: BTreeMap<u64, usize> = BTreeMap::new();
        for _ in 0..self.repeat {
            scene_order.shuffle(rng);
            for &at in &scene_order {
                let scene = &self.scenes[at];
                let mut capacity = 0.0;
                // A polled block is needed to convert a load to a rate, and, if `poll` is not among
                // the modes, to detect other work on its CPU.
                if !scene.is_closed() || !compares_poll {
                    let (rounds, polled) = (
                        rounds_at.entry(scene.scene.qd).or_default(),
                        polled.entry(scene.scene.qd).or_default(),
                    );
                    if rounds.is_multiple_of(CAPACITY_EVERY) {
                        let without_rate =
                            |job: &Job| Job { rate: Default::default(), ..job.clone() };
                        let jobs: Vec<Job> = scene.jobs.iter().map(without_rate).collect();
                        let sample =
                            self.threads.run(Mode::POLL, &prepared(&jobs, RAMP), rng.next_u64())?;
                        // A block that a signal interrupted is too short to measure the capacity.
                        if !self.stop.load(Relaxed) {
                            polled.push(sample);
                        }
                    }
                    *rounds += 1;
                    let recent: Vec<f64> =
                        polled.iter().rev().take(RECENT).map(|sample| sample.iops).collect();
                    capacity = statistics::median(&recent).unwrap_or(0.0);
                }
                let jobs = prepared(&scene.paced(capacity, self.plan.threads.len()), RAMP);
                let mut round: Vec<Option<Sample>> = vec![None; labels.len()];
                let mut order: Vec<usize> = (0..labels.len()).collect();
                order.shuffle(rng);
                // With the same seed all modes of a round issue the same I/Os, so their ratio is
                // not affected by offsets.
                let seed = rng.next_u64();
                for label in order {
                    let background = scene
                        .scene
                        .background_pct
                        .map(|pct| Background::start(&self.cpus.used, pct as u8))
                        .transpose()?;
                    let mut sample = self.threads.run(labels[label], &jobs, seed)?;
                    sample.background = background.map(Background::stop);
                    if self.stop.load(Relaxed) {
                        return Ok(());
                    }
                    // Kernel workers (io-wq, SQPOLL) do I/O for job threads. Their CPU time is
                    // known as a total of the process, which includes the background threads.
                    if self.cpus.external_device {
                        // The background ran for the whole block, counters cover only the measured
                        // part: scale it.
                        let part =
                            (sample.counted.wall.0 as f64 / sample.took.0.max(1) as f64).min(1.0);
                        let others =
                            Nanos((sample.background.unwrap_or_default().0 as f64 * part) as u64);
                        bench::charge_kernel_workers(std::iter::once(&mut sample.counted), others);
                    }
                    round[label] = Some(sample);
                    self.bar.inc(1);
                }
                records[at].rounds.push(round);
            }
        }
        Ok(())
    }

    /// Measures what each mode takes from loops at SCHED_IDLE priority, in nanoseconds per I/O.
    /// Scenes with a background thread are skipped, since it leaves such loops no CPU time.
    fn stolen(&mut self, records: &mut [Record], rng: &mut Xoshiro256PlusPlus) -> Result<()> {
        let loops = IdleLoops::start(&self.cpus.disturbed)?;
        let (mut idle, mut readings) = (Vec::new(), Vec::new());
        let mut order: Vec<usize> = (0..self.modes.len()).collect();
        for _ in 0..STOLEN_BLOCKS {
            for (at, (scene, record)) in self.scenes.iter().zip(&*records).enumerate() {
                if scene.scene.background_pct.is_some() {
                    continue;
                }
                let jobs =
                    prepared(&scene.paced(record.capacity(), self.plan.threads.len()), Nanos::ZERO);
                let from = loops.read();
                hw::sleep_until(hw::now() + BLOCK);
                // The rate without the job is measured next to each group of blocks: the CPU
                // frequency changes over time.
                idle.push(from.rate(&loops.read()));
                self.bar.inc(1);
                order.shuffle(rng);
                for &mode in &order {
                    if self.stop.load(Relaxed) {
                        return Ok(());
                    }
                    let from = loops.read();
                    let sample = self.threads.run(self.modes[mode], &jobs, rng.next_u64())?;
                    readings.push((at, mode, from, loops.read(), sample.counted));
                    self.bar.inc(1);
                }
            }
        }
        // Losses are computed last, since they need the median of all idle rates.
        let idle = statistics::median(&idle).unwrap_or(0.0);
        let mut lost = vec![vec![Vec::new(); self.modes.len()]; self.scenes.len()];
        for (at, mode, from, to, counted) in readings {
            lost[at][mode].push((from.lost(&to, idle), counted.cpu, counted.ios));
        }
        for (record, lost) in records.iter_mut().zip(&lost) {
            record.stolen = lost.iter().map(|blocks| loops::per_io(blocks)).collect();
        }
        Ok(())
    }
}

/// Changes the jobs so that they do I/O from start to end of a block, and measure total latency
/// only (or none, if the job measures none).
fn prepared(jobs: &[Job], ramp: Nanos) -> Vec<Job> {
    let prepare = |job: &Job| {
        let timed = job.measure.slat || job.measure.clat || job.measure.lat;
        let mut job = job.clone();
        (job.ramp_time, job.runtime, job.time_based) = (ramp, Some(BLOCK), true);
        (job.start_delay, job.number_ios, job.io_size, job.loops) =
            ((Nanos::ZERO, Nanos::ZERO), None, None, 1);
        job.verify = None;
        (job.measure.slat, job.measure.clat) = (false, false);
        (job.measure.lat, job.measure.lat_percentiles) = (timed, timed);
        job
    };
    jobs.iter().map(prepare).collect()
}

/// The job threads. Between blocks they wait on a channel.
pub struct JobThreads {
    threads: Vec<JobThread>,
    /// Keeps the threads of embedded devices from sleeping between blocks: a device that has to
    /// wake up would start the next block late.
    _measured: Option<Measured>,
    /// CPUs of the job threads; `None`: the device is embedded.
    cpus: Option<Vec<usize>>,
    devices: Vec<Device>,
    plan: Plan,
}

/// The main thread's side of one job thread.
struct JobThread {
    targets: Vec<TargetSize>,
    blocks: Sender<Block>,
    results: Receiver<(Generator, Result<Ran>, Nanos)>,
}

/// A generator to run in a completion mode.
struct Block {
    mode: Mode,
    generator: Generator,
}

impl JobThreads {
    /// Starts a thread for each thread of the plan, which creates its queues and buffers. Threads
    /// end when this is dropped.
    ///
    /// # Errors
    /// A thread, queue or buffer cannot be created.
    pub fn new(
        jobs: &[Job],
        plan: &Plan,
        rig: &Rig<'_>,
        cpus: &JobCpus,
        host_work: Nanos,
        stop: &Arc<AtomicBool>,
    ) -> Result<JobThreads> {
        let Some(device) = rig.devices.first() else { bail!("the job uses no device") };
        let mut threads = Vec::new();
        for (thread, cpus) in plan.threads.iter().zip(&cpus.threads) {
            let worker = rig.worker(jobs, thread, host_work);
            let ((blocks, take), (give, results), (ready, started)) =
                (channel(), channel(), channel());
            let (stop, cpus) = (stop.clone(), cpus.clone());
            let body = move || {
                machine::prepare_job_thread(&cpus);
                match worker() {
                    Ok(worker) => {
                        _ = ready.send(Ok(()));
                        run_blocks(worker, &stop, &take, &give);
                    }
                    Err(error) => _ = ready.send(Err(error)),
                }
            };
            let spawned =
                thread::Builder::new().name(format!("reap-job-{}", thread.number)).spawn(body);
            spawned.context("cannot start a job thread")?;
            // One thread after the other, so that an error is reported before the next one
            // allocates.
            started.recv().map_err(|_| ended())??;
            threads.push(JobThread { targets: rig.targets(thread)?, blocks, results });
        }
        Ok(JobThreads {
            threads,
            _measured: device.embedded().map(|embedded| embedded.measure()),
            cpus: cpus.external_device.then(|| cpus.used.clone()),
            devices: rig.devices.clone(),
            plan: plan.clone(),
        })
    }

    /// Runs one block of `jobs`, which come from [`prepared`], on all threads.
    ///
    /// # Errors
    /// An I/O failed, or a thread has ended.
    fn run(&mut self, mode: Mode, jobs: &[Job], seed: u64) -> Result<Sample> {
        let mut generators = Vec::with_capacity(self.threads.len());
        for (thread, planned) in self.threads.iter().zip(&self.plan.threads) {
            let job = Job { seed: Some(seed), ..jobs[planned.job].clone() };
            generators.push(Generator::new(&job, planned.id(seed), &thread.targets)?);
        }
        let began = hw::now();
        let paths = PathMark::new(&self.devices);
        let hypervisor = self.cpus.as_ref().map(|cpus| hw::stolen_by_hypervisor(cpus));
        for (thread, generator) in self.threads.iter().zip(generators) {
            thread.blocks.send(Block { mode, generator }).map_err(|_| ended())?;
        }
        let (mut sample, mut delayed) = (Sample::default(), Nanos::ZERO);
        for (thread, planned) in self.threads.iter().zip(&self.plan.threads) {
            let (generator, ran, delay) = thread.results.recv().map_err(|_| ended())?;
            let mut ran = ran?;
            if let Some(failure) = generator.failure() {
                let error =
                    ran.first_error.take().map_or(String::new(), |error| format!(" ({error})"));
                bail!(
                    "job '{}', thread {}: {failure}{error}",
                    jobs[planned.job].name,
                    planned.number
                );
            }
            let stats = generator.stats();
            let span = stats.read.runtime.max(stats.write.runtime);
            if span > Nanos::ZERO {
                // Threads may stop at slightly different times, so each rate is relative to its own
                // runtime.
                sample.iops += (stats.read.ios + stats.write.ios) as f64 / span.as_secs_f64();
            }
            sample.counted.merge(&ran.counted);
            sample.latency.merge(stats.read.latency());
            sample.latency.merge(stats.write.latency());
            delayed += delay;
        }
        let since = |before| {
            self.cpus
                .as_ref()
                .map(|cpus| Nanos(hw::stolen_by_hypervisor(cpus).0.saturating_sub(before)))
        };
        sample.away = hypervisor.and_then(|before| Some(since(before.0)? + delayed));
        sample.took = hw::now() - began;
        sample.paths = paths.since(&self.devices, &self.plan.targets);
        Ok(sample)
    }
}

fn ended() -> anyhow::Error {
    anyhow!("a job thread has ended")
}

/// Body of a job thread: runs blocks until the channel is closed. Returns with each block the time
/// that the thread was runnable without a CPU.
fn run_blocks(
    mut worker: Worker,
    stop: &AtomicBool,
    blocks: &Receiver<Block>,
    results: &Sender<(Generator, Result<Ran>, Nanos)>,
) {
    // A kernel without CONFIG_SCHED_INFO does not report the run delay; 0 is used instead.
    let run_delay = RunDelay::of_current().ok();
    let delay = || run_delay.as_ref().map_or(Nanos::ZERO, RunDelay::read);
    let progress = JobProgress::default();
    while let Ok(Block { mode, mut generator }) = blocks.recv() {
        let before = delay();
        let ran = worker.set_mode(mode).and_then(|()| {
            worker.run(&mut generator, &ThreadControl { stop: [stop, stop], progress: &progress })
        });
        let delayed = Nanos(delay().0.saturating_sub(before.0));
        // The main thread has returned an error and dropped its end.
        if results.send((generator, ran, delayed)).is_err() {
            return;
        }
    }
}
