//! Stage after stage (`stonewall`), the threads of each at the same time.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
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
                // No application work in a run: only `compare` saturates hosts on purpose.
                let worker = rig.worker(jobs, thread, Nanos::ZERO);
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
            // IOPS, MB/s and ETA of the threads. Invisible where stderr is no terminal.
            let bar = ProgressBar::new(1_000_000);
            // The template is a constant: it parses.
            if let Ok(style) = ProgressStyle::with_template("{prefix}[{bar:24}] {percent:>3}%  {msg}  ETA {eta_precise}") {
                bar.set_style(style.progress_chars("=> "));
            }
            if plan.stages > 1 {
                bar.set_prefix(format!("stage {}/{} ", stage + 1, plan.stages));
            }
            let mut last = (Instant::now(), [0, 0]);
            let mut outcomes = Vec::with_capacity(count);
            while outcomes.len() < count {
                match are_done.recv_timeout(REFRESH) {
                    Ok((index, generator, ran)) => {
                        let ran: Result<Ran> = ran;
                        outcomes.push((index, generator, ran.inspect_err(|_| stop.store(true, Relaxed))?));
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        let sum = |of: fn(&Progress) -> &AtomicU64| progress.iter().map(|thread| of(thread).load(Relaxed)).sum::<u64>();
                        let now = (Instant::now(), [sum(|thread| &thread.ios), sum(|thread| &thread.bytes)]);
                        let seconds = (now.0 - last.0).as_secs_f64().max(1e-3);
                        // What is forgotten at the end of the ramp makes a count fall: nothing is known of that stretch.
                        let [iops, rate] = [0, 1].map(|at| now.1[at].saturating_sub(last.1[at]) as f64 / seconds);
                        last = now;
                        bar.set_message(format!("{:.1}k IOPS  {:.0} MB/s", iops / 1e3, rate / 1e6));
                        // The stage ends with the last of its threads.
                        bar.set_position(progress.iter().map(|thread| thread.millionths.load(Relaxed)).min().unwrap_or(0));
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Err(anyhow!("a job thread ended without a result")),
                }
            }
            bar.finish_and_clear();
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
