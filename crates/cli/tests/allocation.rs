//! A job thread allocates nothing per I/O.

use std::alloc::System;
use std::sync::atomic::AtomicBool;

use cli::bench::{JobProgress, ThreadControl, Worker};
use reap::{Device, Mode, Nanos, OpenOptions};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use workload::fio::{self, Input};
use workload::{Generator, Job, TargetSize, ThreadId};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const IOS: u64 = 10_000;

fn job() -> Job {
    let text = format!("[job]\nrw=randread\nbs=4k\niodepth=16\nnumber_ios={IOS}\n");
    fio::parse(&[Input { name: "job.fio", text: text.as_bytes() }], &fio::Nothing)
        .unwrap()
        .jobs
        .remove(0)
}

/// Allocations of a run of [`IOS`] I/Os; the housekeeping thread's are counted, too.
fn allocations(mode: Mode) -> usize {
    let device = Device::open_with("mem:64M?profile=null", &OpenOptions::new().mode(mode)).unwrap();
    let target =
        TargetSize { bytes: device.namespaces()[0].bytes(), block: 512, size_at_setup: None };
    let job = job();
    let mut worker = Worker::new(&job, vec![device], mode, Nanos::ZERO).unwrap();
    let generator = || Generator::new(&job, ThreadId::default(), &[target]).unwrap();
    let (never, progress) = (AtomicBool::new(false), JobProgress::default());
    let control = ThreadControl { stop: [&never, &never], progress: &progress };
    worker.run(&mut generator(), &control).unwrap();
    let mut measured = generator();
    let region = Region::new(GLOBAL);
    worker.run(&mut measured, &control).unwrap();
    let change = region.change();
    assert_eq!(measured.stats().read.ios, IOS);
    change.allocations + change.reallocations
}

#[test]
fn job_thread_allocates_nothing() {
    for mode in [Mode::POLL, Mode::INTERRUPT] {
        let allocated = allocations(mode);
        assert!(allocated < 50, "{mode}: {allocated}");
    }
}
