//! Stage after stage (`stonewall`), the threads of each at the same time.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use reap::Nanos;
use workload::plan::{Plan, Thread};
use workload::{Generator, Job};

use crate::bench::{self, Control, Progress, Ran, Rig};
use crate::machine::{self, Machine};

/// No application work in a run: only `compare` saturates hosts on purpose.
const NO_WORK: Nanos = Nanos::ZERO;
/// From one update of the progress line to the next.
const REFRESH: Duration = Duration::from_millis(250);

/// What became of one thread.
pub struct Ended {
    /// With its statistics.
    pub generator: Generator,
    /// What it cost.
    pub ran: Ran,
    /// From the start of the run until it ended.
    pub elapsed: Nanos,
    /// It had to wait for other threads, because there are fewer CPUs: the number of threads, and of CPUs.
    pub oversubscribed: Option<(usize, usize)>,
}

/// Runs all stages. One [`Ended`] for each thread of the plan, in its order; once `stop` is set, later stages end at
/// once.
///
/// # Errors
/// A thread cannot be set up or started, or the library lost an I/O.
pub fn run(
    jobs: &[Job],
    plan: &Plan,
    rig: &Rig<'_>,
    generators: Vec<Generator>,
    machine: &Machine,
    stop: &AtomicBool,
) -> Result<Vec<Ended>> {
    let began = hw::now();
    let groups: Vec<AtomicBool> = (0..=plan.threads.iter().map(|t| t.group).max().unwrap_or(0)).map(|_| AtomicBool::new(false)).collect();
    let mut generators: Vec<Option<Generator>> = generators.into_iter().map(Some).collect();
    let mut ended: Vec<Option<Ended>> = generators.iter().map(|_| None).collect();
    // The device stays awake for as long as anything is measured.
    let _measured: Vec<_> =
        if machine.device.is_some() { rig.devices.iter().filter_map(|d| Some(d.embedded()?.measure())).collect() } else { Vec::new() };
    for stage in 0..plan.stages {
        let of_stage = plan.threads.iter().enumerate().zip(&mut generators).filter(|((_, thread), _)| thread.stage == stage);
        let threads: Vec<(usize, &Thread, Generator)> =
            of_stage.filter_map(|((index, thread), generator)| Some((index, thread, generator.take()?))).collect();
        let cpus = machine.place(&threads.iter().map(|(_, thread, _)| thread.cpus.clone()).collect::<Vec<_>>());
        let oversubscribed = machine.oversubscribed(&cpus).then(|| (cpus.len(), cpus.iter().collect::<BTreeSet<_>>().len()));
        let count = threads.len();
        let progress: Vec<Progress> = threads.iter().map(|_| Progress::default()).collect();
        let (ready, are_ready) = mpsc::channel();
        let (done, are_done) = mpsc::channel();
        // Held until all of them have what they need: they start together, or not at all.
        let gate = Mutex::new(());
        let before = hw::thread_cpu();
        let mut outcomes = thread::scope(|scope| {
            let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
            for ((index, thread, mut generator), progress) in threads.into_iter().zip(&progress) {
                let worker = rig.worker(jobs, thread, NO_WORK);
                // It runs on these alone, as fio has it (`fio_set_affinity`); none: the scheduler places it.
                let cpus = machine.named(&thread.cpus);
                let (exitall, group) = (jobs[thread.job].exitall, &groups[thread.group as usize]);
                // Its receivers are gone only if the run has failed already.
                let (ready, done, gate) = (ready.clone(), done.clone(), &gate);
                let body = move || {
                    machine::settle(&cpus);
                    let mut worker = match worker() {
                        Ok(worker) => worker,
                        Err(error) => {
                            _ = ready.send(Err(error));
                            return;
                        }
                    };
                    _ = ready.send(Ok(()));
                    drop(gate.lock());
                    let ran = worker.run(&mut generator, &Control { stop: [stop, group], progress });
                    if exitall {
                        group.store(true, Relaxed);
                    }
                    // Its queues are closed before those of the next stage are opened.
                    drop(worker);
                    _ = done.send((index, generator, ran));
                };
                let spawned = thread::Builder::new().name(format!("reap-job-{}", thread.number)).spawn_scoped(scope, body);
                spawned.inspect_err(|_| stop.store(true, Relaxed)).context("cannot start a job thread")?;
            }
            drop((ready, done));
            for _ in 0..count {
                let set_up: Result<()> = are_ready.recv().map_err(|_| anyhow!("a job thread ended before it began"))?;
                set_up.inspect_err(|_| stop.store(true, Relaxed))?;
            }
            drop(closed);
            let mut bar = Bar::new(stage + 1, plan.stages);
            let mut outcomes = Vec::with_capacity(count);
            while outcomes.len() < count {
                match are_done.recv_timeout(REFRESH) {
                    Ok((index, generator, ran)) => {
                        let ran: Result<Ran> = ran;
                        outcomes.push((index, generator, ran.inspect_err(|_| stop.store(true, Relaxed))?));
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => bar.show(&progress),
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Err(anyhow!("a job thread ended without a result")),
                }
            }
            bar.line.finish_and_clear();
            Ok(outcomes)
        })?;
        if machine.outside {
            bench::charge(outcomes.iter_mut().map(|(_, _, ran)| &mut ran.counted), hw::thread_cpu() - before);
        }
        for (index, generator, ran) in outcomes {
            ended[index] = Some(Ended { generator, ran, elapsed: hw::now() - began, oversubscribed });
        }
    }
    ended.into_iter().collect::<Option<Vec<_>>>().context("a thread of the plan was not run")
}

/// IOPS, MB/s and ETA of the threads of a stage. Invisible where stderr is no terminal.
struct Bar {
    line: ProgressBar,
    last: (Instant, u64, u64),
}

impl Bar {
    /// Of stage `stage` of `stages`, counted from 1.
    fn new(stage: u32, stages: u32) -> Bar {
        let line = ProgressBar::new(1_000_000);
        // The template is a constant: it parses.
        if let Ok(style) = ProgressStyle::with_template("{prefix}[{bar:24}] {percent:>3}%  {msg}  ETA {eta_precise}") {
            line.set_style(style.progress_chars("=> "));
        }
        if stages > 1 {
            line.set_prefix(format!("stage {stage}/{stages} "));
        }
        Bar { line, last: (Instant::now(), 0, 0) }
    }

    /// Shows what the threads have reported.
    fn show(&mut self, threads: &[Progress]) {
        if self.line.is_hidden() {
            return;
        }
        let sum = |of: fn(&Progress) -> u64| threads.iter().map(of).sum::<u64>();
        let (now, ios, bytes) = (Instant::now(), sum(|thread| thread.ios.load(Relaxed)), sum(|thread| thread.bytes.load(Relaxed)));
        let (then, ios_then, bytes_then) = std::mem::replace(&mut self.last, (now, ios, bytes));
        // What is forgotten at the end of the ramp makes a count fall: nothing is known of that stretch.
        let per_second = |to: u64, from: u64| to.saturating_sub(from) as f64 / (now - then).as_secs_f64().max(1e-3);
        let (kiops, mbytes) = (per_second(ios, ios_then) / 1e3, per_second(bytes, bytes_then) / 1e6);
        self.line.set_message(format!("{kiops:.1}k IOPS  {mbytes:.0} MB/s"));
        // The stage ends with the last of its threads.
        self.line.set_position(threads.iter().map(|thread| thread.millionths.load(Relaxed)).min().unwrap_or(0));
    }
}
