//! Memory use is constant over time: it depends on the machine and the jobs, not on the number of
//! I/Os.

use std::alloc::System;

use completion::Mode;
use emu::{Fault, FaultPlan, Profile};
use sim::{DeviceSpec, HostStack, Machine, Scenario, closed_loop, open_loop};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use workload::Job;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations and bytes of a run of `job`, bring-up included.
fn allocated(mode: Mode, host: HostStack, job: Job) -> (usize, usize) {
    let threads = job.numjobs as usize;
    let mut scenario = Scenario { host, ..Scenario::new(mode, Profile::optane(), job) };
    scenario.machine = Machine::new(threads, threads.min(2));
    // Two threads share each queue.
    scenario.devices =
        vec![DeviceSpec::new("disk", Profile::optane()).with_queues(threads.div_ceil(2) as u16)];
    counted(&scenario)
}

fn counted(scenario: &Scenario) -> (usize, usize) {
    let region = Region::new(COUNTED);
    scenario.run().expect("it runs");
    let change = region.change();
    (change.allocations + change.reallocations, change.bytes_allocated)
}

/// Vectors grow to the largest number in flight, which may be reached late: this many allocations
/// and bytes do not count as growth over time.
const LATE: (usize, usize) = (64, 256 << 10);

fn is_flat(what: &str, run: impl Fn(u64) -> (usize, usize), few: u64, many: u64) {
    let (before, after) = (run(few), run(many));
    let more = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    assert!(
        more.0 <= LATE.0 && more.1 <= LATE.1,
        "{what}: {before:?} for {few} I/Os, {after:?} for {many}"
    );
}

#[test]
fn memory_is_flat_over_time() {
    is_flat(
        "poll",
        |ios| allocated(Mode::POLL, HostStack::User, closed_loop(32, ios)),
        100_000,
        1_000_000,
    );
    for mode in Mode::ALL {
        for host in [HostStack::User, HostStack::Kernel] {
            let closed = |ios| Job { numjobs: 4, ..closed_loop(16, ios / 4) };
            is_flat(
                &format!("{mode} {host:?}"),
                |ios| allocated(mode, host, closed(ios)),
                4_000,
                40_000,
            );
        }
        is_flat(
            &format!("{mode} paced"),
            |ios| allocated(mode, HostStack::User, open_loop(100_000, ios)),
            4_000,
            40_000,
        );
    }
    // The negative test: a run that records something per I/O, namely what its bus did to messages.
    let keeps = |ios| {
        let mut scenario = Scenario::new(Mode::INTERRUPT, Profile::optane(), closed_loop(16, ios));
        scenario.devices[0].faults = FaultPlan::new().with_chance(1_000_000, Fault::DoubleMessage);
        counted(&scenario)
    };
    assert!(std::panic::catch_unwind(|| is_flat("mutant", keeps, 4_000, 40_000)).is_err());
}
