use completion::Mode;
use device::{Config, Profile};
use proptest::prelude::*;
use units::Nanos;

use crate::*;

mod faults;
mod figures;
mod laws;

/// Random scenarios: every mode, switches at any instant, depths and batches, few tags, several queues, several price
/// lists, shared vectors, an application that leaves to compute.
fn any_scenario() -> impl Strategy<Value = Scenario> {
    let mode = || prop::sample::select(Mode::ALL.to_vec());
    let profile = prop::sample::select(vec![Profile::null(), Profile::optane(), Profile::tlc(), Profile::bimodal(), Profile::cloud()]);
    let switches = prop::collection::vec((0u64..400_000, mode()), 0..6);
    let shape = (1u32..80, 1u32..40, 1u32..20, prop::sample::select(vec![2u32, 8, 64, 256]), (1u16..4, 2u16..4));
    // The third: arming is a write and a read back over PCIe.
    let slow_mask = Costs { mask: Nanos(500), arm: Nanos(1_500), look: Nanos(100), ..Costs::BARE_METAL };
    let costs = prop::sample::select(vec![Costs::BARE_METAL, Costs::VIRTUAL, slow_mask]);
    let habits = (prop::option::weighted(0.3, 1_000u64..200_000), any::<[bool; 2]>(), costs, any::<u64>());
    (mode(), profile, switches, shape, habits).prop_map(|(mode, profile, switches, shape, habits)| {
        let (depth, batch, reap_min, tags, (queues, vectors)) = shape;
        let (think, [open, cpu_wanted], costs, seed) = habits;
        let mut job = if open { open_loop(40_000, 150) } else { closed_loop(depth, 300) };
        job.batch_submit = batch.min(job.iodepth);
        job.complete_min = reap_min.min(job.iodepth);
        let base = Scenario::new(mode, profile, job);
        Scenario {
            // Fewer vectors than queues: some share one.
            device: Config { vectors, ..base.device },
            switches: switches.into_iter().map(|(at, mode)| (Nanos(at), mode)).collect(),
            costs,
            tags,
            queues,
            think: Nanos(think.unwrap_or(0)),
            cpu_wanted,
            seed,
            bytes: 1 << 20,
            ..base
        }
    })
}

/// 4 KiB random reads on `profile`, with a host that has `work` to do for each.
fn outcome(mode: Mode, profile: Profile, job: workload::Job, work: Nanos) -> Outcome {
    let costs = Costs { host_work: work, ..Costs::BARE_METAL };
    Scenario { costs, ..Scenario::new(mode, profile, job) }.run().unwrap_or_else(|error| panic!("{mode}: {error}"))
}

fn mode(name: &str) -> Mode {
    name.parse().unwrap()
}
