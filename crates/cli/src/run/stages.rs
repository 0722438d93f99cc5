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
use super::record::Recording;
use crate::bench::{Control, Progress, Ran, Rig, Worker};
use crate::machine::{self, Machine};

/// No application work in a run: only `compare` saturates hosts on purpose.
const NO_WORK: Nanos = Nanos::ZERO;

/// Runs all stages. One [`Ended`] for each thread of the plan, in its order; once `stop` is set, later stages end at
/// once.
///
/// # Errors
/// A thread cannot be set up or started, or the library lost an I/O.
pub fn run(
    jobs: &[Job],
    plan: &Plan,
    rig: &Rig,
    generators: Vec<Generator>,
    machine: &Machine,
    recording: Option<&Recording>,
    stop: &AtomicBool,
) -> Result<Vec<Ended>> {
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
        for (&(index, thread), &cpu) in threads.iter().zip(&cpus) {
            let mut worker = rig.worker(jobs, thread, NO_WORK)?;
            if let Some(recording) = recording {
                worker.record(recording.tap(index));
            }
            let generator = generators[index].take().ok_or_else(|| anyhow!("a thread is in two stages"))?;
            seats.push(Seat { index, thread, job: &jobs[thread.job], cpu, worker, generator });
        }
        let crowd = machine.oversubscribed(&cpus).then(|| (cpus.len(), distinct(&cpus)));
        let mut bar = Bar::new(stage + 1, plan.stages);
        for (index, generator, ran) in run_stage(seats, stop, &groups, &mut bar)? {
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
    cpu: usize,
    worker: Worker,
    generator: Generator,
}

type Outcome = (usize, Generator, Result<Ran>);

fn run_stage(seats: Vec<Seat<'_>>, stop: &AtomicBool, groups: &[AtomicBool], bar: &mut Bar) -> Result<Vec<(usize, Generator, Ran)>> {
    let progress: Vec<Progress> = seats.iter().map(|_| Progress::default()).collect();
    let count = seats.len();
    let (tell, told) = mpsc::channel::<Outcome>();
    // Held until all of them are there: they start together.
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        for (seat, progress) in seats.into_iter().zip(&progress) {
            let (tell, gate) = (tell.clone(), &gate);
            let name = format!("reap-job-{}", seat.thread.number);
            let spawned = thread::Builder::new().name(name).spawn_scoped(scope, move || {
                // Nobody listens only if the run has failed already.
                _ = tell.send(sit(seat, gate, stop, groups, progress));
            });
            spawned.inspect_err(|_| stop.store(true, Relaxed)).context("cannot start a job thread")?;
        }
        drop(tell);
        drop(closed);
        let mut outcomes = Vec::with_capacity(count);
        while outcomes.len() < count {
            match told.recv_timeout(progress::EVERY) {
                Ok((index, generator, ran)) => outcomes.push((index, generator, ran.inspect_err(|_| stop.store(true, Relaxed))?)),
                Err(mpsc::RecvTimeoutError::Timeout) => bar.show(progress.iter()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(anyhow!("a job thread ended without a result")),
            }
        }
        Ok(outcomes)
    })
}

/// One thread's life.
fn sit(seat: Seat<'_>, gate: &Mutex<()>, stop: &AtomicBool, groups: &[AtomicBool], progress: &Progress) -> Outcome {
    let Seat { index, thread, job, cpu, mut worker, mut generator } = seat;
    machine::settle(cpu);
    let group = &groups[thread.group as usize];
    drop(gate.lock());
    let ran = worker.run(&mut generator, &Control { stop: [stop, group], progress });
    if job.exitall {
        group.store(true, Relaxed);
    }
    (index, generator, ran)
}

fn distinct(cpus: &[usize]) -> usize {
    cpus.iter().collect::<std::collections::BTreeSet<_>>().len()
}
