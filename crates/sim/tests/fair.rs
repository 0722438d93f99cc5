//! Every thread of a crowded machine gets CPU time, also where step lengths divide the tick.

use completion::Mode;
use sim::{Costs, HostStack, Scenario, closed_loop};
use units::Nanos;

/// A machine with a tick, and threads that compute between their waits and share one queue.
fn crowded(
    mode: Mode,
    (cpus, threads): (usize, u32),
    (ios, work): (u64, u64),
    seed: u64,
) -> Scenario {
    let mut scenario = Scenario::new(mode, emu::Profile::optane(), closed_loop(1, ios))
        .with_costs(Costs::BARE_METAL);
    (scenario.host, scenario.seed, scenario.limit) =
        (HostStack::Kernel, seed, Nanos::from_secs(20));
    scenario.machine.cpus = cpus;
    scenario.machine.scheduler.tick = Nanos::from_millis(1);
    scenario.jobs[0].job.numjobs = threads;
    scenario.jobs[0].work = Nanos(work);
    scenario.devices[0].config.profile.moves_data = false;
    scenario
}

/// Seed 18: the steps of a thread while another one holds the queue's lock take 200 ns, which
/// divides the tick.
#[test]
fn aligned_steps_end_with_their_slice() {
    for seed in 1..=24 {
        let done = crowded(Mode::POLL, (1, 2), (5_000, 20_000), seed).run();
        assert_eq!(done.unwrap_or_else(|error| panic!("{seed}: {error}")).counts.completed, 10_000);
    }
}

#[test]
fn more_threads_than_cpus_all_finish() {
    for mode in Mode::ALL {
        for (seed, (cpus, threads)) in [(1, 2), (1, 4), (2, 5)].into_iter().enumerate() {
            for work in [0, 1_000, 20_000] {
                let done = crowded(mode, (cpus, threads), (2_000, work), seed as u64).run();
                let done = done.unwrap_or_else(|error| {
                    panic!("{mode}, {threads} threads on {cpus} CPUs, {work} ns of work: {error}")
                });
                assert_eq!(done.counts.completed, 2_000 * u64::from(threads));
            }
        }
    }
}
