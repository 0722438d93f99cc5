//! Instructions per I/O of the whole of `reap run`, host side, and of the embedded device, counted
//! by callgrind: `cargo bench -p reap-nvme-cli --bench run_instructions`.
//!
//! The command's own job thread (`cli::bench::Worker`, the load generator and its statistics
//! included) runs a job in mode `poll` on the profile `null`. Everything is on one thread: the
//! device is stepped by hand between the worker's turns and counted apart, so that nobody spins
//! while it is away. Needs valgrind.

mod callgrind;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use cli::bench::{JobProgress, Rig, Run, Setup, TargetDevice, ThreadControl, Worker};
use cli::machine::Machine;
use completion::Spin;
use reap::{ManualStepper, Mode, Nanos};
use workload::fio::{self, Input};
use workload::plan::plan;
use workload::{Generator, Job, Next, TargetSize, ThreadId};

/// I/Os of each case.
const IOS: u64 = 64_000;

/// Depth, I/Os per doorbell, further options.
const CASES: [(u32, u32, &str); 6] = [
    (32, 32, "gtod_reduce=1"),
    (32, 32, ""),
    (128, 32, "gtod_reduce=1"),
    (128, 32, ""),
    (1, 1, "gtod_reduce=1"),
    (1, 1, ""),
];

/// What is counted: everything, what the worker has the library do, the load generator alone, the
/// device.
const PARTS: [&str; 4] = ["counted_turn", "JobQueues*", "counted_load", "counted_step"];

fn main() -> ExitCode {
    match callgrind::case() {
        Some(case) => {
            run(&job(CASES[case % CASES.len()]));
            ExitCode::SUCCESS
        }
        None => count(),
    }
}

fn count() -> ExitCode {
    println!(
        "{:>5} {:>5} {:>14} {:>8} {:>8} {:>10} {:>8} {:>8}",
        "depth", "batch", "options", "total", "library", "generator", "rest", "device"
    );
    for (n, (depth, batch, options)) in CASES.into_iter().enumerate() {
        let counts =
            PARTS.map(|part| callgrind::count(n, part).map(|count| count as f64 / IOS as f64));
        let [Some(total), Some(library), Some(generator), Some(device)] = counts else {
            return callgrind::missing();
        };
        let (rest, options) = (
            total - library - generator,
            if options.is_empty() { "all statistics" } else { options },
        );
        println!(
            "{depth:>5} {batch:>5} {options:>14} {total:>8.1} {library:>8.1} {generator:>10.1} {rest:>8.1} {device:>8.1}"
        );
    }
    ExitCode::SUCCESS
}

fn job((depth, batch, options): (u32, u32, &str)) -> Job {
    let text = format!(
        "[job]\nrw=randread\nbs=4k\nsize=256m\niodepth={depth}\niodepth_batch={batch}\nnumber_ios={IOS}\ntime_based=0\nnorandommap=1\n{options}\n"
    );
    let parsed = fio::parse(&[Input { name: "counted.fio", text: text.as_bytes() }], &fio::Nothing)
        .expect("a correct job");
    parsed.jobs.into_iter().next().expect("one job")
}

/// The job as the command runs it, then its load generator alone.
fn run(job: &Job) {
    let jobs = [job.clone()];
    let plan = plan(&jobs, &[0]);
    let devices = [TargetDevice {
        uri: "mem:256M?profile=null".into(),
        words: String::new(),
        laid_out: false,
    }];
    let setup = Setup {
        devices: &devices,
        mode: Mode::POLL,
        spin: Spin::Naps,
        queues: None,
        histograms: false,
    };
    let rig = Rig::open(
        &jobs,
        &plan,
        setup,
        &Machine { device: None, job_cpus: vec![0], external_device: false, placement_note: None },
    )
    .expect("the embedded device opens");
    let targets = rig.targets(&plan.threads[0]).expect("a namespace");
    let mut worker = rig.worker(&jobs, &plan.threads[0], Nanos::ZERO)().expect("a worker");
    let hand = rig.devices[0].embedded().expect("an embedded controller").manual_step();
    let (never, progress) = (AtomicBool::new(false), JobProgress::default());
    let control = ThreadControl { stop: [&never, &never], progress: &progress };
    let mut generator = generator(job, &targets);
    let mut run = worker.begin();
    while counted_turn(&mut worker, &mut run, &mut generator, &control) {
        while counted_step(&hand) {}
    }
    let ran = worker.end(run, &generator, &control);
    assert_eq!((ran.counted.ios, generator.error()), (IOS, 0), "every I/O is done");
    load(job, &targets);
}

fn generator(job: &Job, targets: &[TargetSize]) -> Generator {
    Generator::new(job, ThreadId::default(), targets).expect("the job fits the device")
}

#[inline(never)]
fn counted_turn(
    worker: &mut Worker,
    run: &mut Run,
    generator: &mut Generator,
    control: &ThreadControl<'_>,
) -> bool {
    worker.turn(run, generator, control).expect("no I/O is lost")
}

#[inline(never)]
fn counted_step(hand: &ManualStepper) -> bool {
    hand.step()
}

/// The same job on a device that takes a microsecond, and no instruction, for whatever it is given.
fn load(job: &Job, targets: &[TargetSize]) {
    let mut generator = generator(job, targets);
    let (mut now, mut posted) = (Nanos(1), Vec::with_capacity(job.iodepth as usize));
    loop {
        now += Nanos(1000);
        if !counted_load(&mut generator, &mut posted, now) {
            break;
        }
    }
    assert_eq!(generator.stats().read.ios, IOS, "every I/O is done");
}

/// One turn of the load generator: a batch, or its completions.
#[inline(never)]
fn counted_load(generator: &mut Generator, posted: &mut Vec<workload::Io>, now: Nanos) -> bool {
    loop {
        match generator.next(now) {
            Next::Issue(io) => {
                posted.push(io);
            }
            Next::Commit => {
                generator.committed(now);
                return true;
            }
            Next::Reap { .. } | Next::Wait { .. } => {
                for io in posted.drain(..) {
                    generator.completed(io.slot, now, Ok(()), &[]);
                }
                return true;
            }
            Next::Done => return false,
        }
    }
}
