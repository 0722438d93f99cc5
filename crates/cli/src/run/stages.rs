//! Stage after stage (`stonewall`), the threads of each at the same time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, Result, anyhow};
use reap::Nanos;
use workload::plan::{Plan, Thread};
use workload::{Generator, Job};

use super::ended::Ended;
use super::progress::{self, Bar};
use crate::bench::{self, Control, Hired, Progress, Ran, Rig};
use crate::machine::{self, Machine};

/// No application work in a run: only `compare` saturates hosts on purpose.
const NO_WORK: Nanos = Nanos::ZERO;

/// Runs all stages. One [`Ended`] for each thread of the plan, in its order; once `stop` is set, later stages end at
/// once.
///
/// # Errors
/// A thread cannot be set up or started, or the library lost an I/O.
pub fn run(jobs: &[Job], plan: &Plan, rig: &Rig, generators: Vec<Generator>, machine: &Machine, stop: &AtomicBool) -> Result<Vec<Ended>> {
    let began = hw::now();
    let groups: Vec<AtomicBool> = (0..=plan.threads.iter().map(|t| t.group).max().unwrap_or(0)).map(|_| AtomicBool::new(false)).collect();
    let mut generators: Vec<Option<Generator>> = generators.into_iter().map(Some).collect();
    let mut ended: Vec<Option<Ended>> = generators.iter().map(|_| None).collect();
    // The device stays awake for as long as anything is measured.
    let _measured: Vec<_> =
        if machine.device.is_some() { rig.devices().iter().filter_map(|d| Some(d.embedded()?.measure())).collect() } else { Vec::new() };
    for stage in 0..plan.stages {
        let threads: Vec<(usize, &Thread)> = plan.threads.iter().enumerate().filter(|(_, t)| t.stage == stage).collect();
        let wishes: Vec<Vec<u32>> = threads.iter().map(|(_, t)| t.cpus.clone()).collect();
        let cpus = machine.place(&wishes);
        let mut seats = Vec::new();
        for &(index, thread) in &threads {
            let generator = generators[index].take().ok_or_else(|| anyhow!("a thread is in two stages"))?;
            let hired = rig.hire(jobs, thread, NO_WORK);
            let job = &jobs[thread.job];
            let cpus = machine.named(&thread.cpus);
            seats.push(Seat { index, thread, job, cpus, hired, generator });
        }
        let crowd = machine.oversubscribed(&cpus).then(|| (cpus.len(), distinct(&cpus)));
        let mut bar = Bar::new(stage + 1, plan.stages);
        let before = hw::thread_cpu();
        let mut outcomes = run_stage(seats, stop, &groups, &mut bar)?;
        if machine.outside {
            bench::charge(outcomes.iter_mut().map(|(_, _, ran)| &mut ran.counted), hw::thread_cpu() - before);
        }
        for (index, generator, ran) in outcomes {
            ended[index] = Some(Ended { generator, ran, elapsed: hw::now() - began, oversubscribed: crowd });
        }
        bar.clear();
    }
    ended.into_iter().collect::<Option<Vec<_>>>().context("a thread of the plan was not run")
}

/// A thread about to start.
struct Seat<'a> {
    index: usize,
    thread: &'a Thread,
    job: &'a Job,
    /// It runs on these alone, as fio has it (`fio_set_affinity`); none: the scheduler places it.
    cpus: Vec<usize>,
    hired: Hired,
    generator: Generator,
}

/// What a thread tells.
enum Told {
    /// It has its queues and buffers, or has not got them, and waits.
    Settled(Result<()>),
    /// It has ended.
    Ended(Box<Outcome>),
}

type Outcome = (usize, Generator, Result<Ran>);

fn run_stage(seats: Vec<Seat<'_>>, stop: &AtomicBool, groups: &[AtomicBool], bar: &mut Bar) -> Result<Vec<(usize, Generator, Ran)>> {
    let progress: Vec<Progress> = seats.iter().map(|_| Progress::default()).collect();
    let count = seats.len();
    let (tell, told) = mpsc::channel::<Told>();
    // Held until all of them have what they need: they start together, or not at all.
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        for (seat, progress) in seats.into_iter().zip(&progress) {
            let (tell, gate) = (tell.clone(), &gate);
            let name = format!("reap-job-{}", seat.thread.number);
            let spawned = thread::Builder::new().name(name).spawn_scoped(scope, move || {
                sit(seat, gate, stop, groups, progress, &tell);
            });
            spawned.inspect_err(|_| stop.store(true, Relaxed)).context("cannot start a job thread")?;
        }
        drop(tell);
        for _ in 0..count {
            let Ok(Told::Settled(settled)) = told.recv() else { return Err(anyhow!("a job thread ended before it began")) };
            settled.inspect_err(|_| stop.store(true, Relaxed))?;
        }
        drop(closed);
        let mut outcomes = Vec::with_capacity(count);
        while outcomes.len() < count {
            match told.recv_timeout(progress::EVERY) {
                Ok(Told::Ended(ended)) => {
                    let (index, generator, ran) = *ended;
                    outcomes.push((index, generator, ran.inspect_err(|_| stop.store(true, Relaxed))?));
                }
                Ok(Told::Settled(_)) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => bar.show(progress.iter()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(anyhow!("a job thread ended without a result")),
            }
        }
        Ok(outcomes)
    })
}

/// One thread's life. What it tells nobody hears only if the run has failed already.
fn sit(seat: Seat<'_>, gate: &Mutex<()>, stop: &AtomicBool, groups: &[AtomicBool], progress: &Progress, tell: &mpsc::Sender<Told>) {
    let Seat { index, thread, job, cpus, hired, mut generator } = seat;
    machine::settle(&cpus);
    let mut worker = match hired.settle() {
        Ok(worker) => worker,
        Err(error) => {
            _ = tell.send(Told::Settled(Err(error)));
            return;
        }
    };
    _ = tell.send(Told::Settled(Ok(())));
    drop(gate.lock());
    let group = &groups[thread.group as usize];
    let ran = worker.run(&mut generator, &Control { stop: [stop, group], progress });
    if job.exitall {
        group.store(true, Relaxed);
    }
    // Its queues are closed before anybody opens those of the next stage.
    drop(worker);
    _ = tell.send(Told::Ended(Box::new((index, generator, ran))));
}

fn distinct(cpus: &[usize]) -> usize {
    cpus.iter().collect::<std::collections::BTreeSet<_>>().len()
}
