use completion::Mode;
use emu::{AbortOrder, FaultPlan, Fetch, Hidden, PendingBit, Profile, Service};
use proptest::prelude::*;
use units::Nanos;

use crate::*;

mod contexts;
mod faults;
mod figures;
mod invariants;
mod masks;
mod paths;
mod urgent;

/// Arming is a write and a read back over PCIe: there is time for entries between arming and
/// blocking.
const SLOW_MASK: Costs = Costs {
    library: LibraryCosts {
        mask: Nanos(500),
        arm: Nanos(1_500),
        look: Nanos(100),
        ..Costs::BARE_METAL.library
    },
    ..Costs::BARE_METAL
};

/// Random drives: service times of any length and spread, few channels, slow links, hidden
/// coalescing.
fn any_profile() -> impl Strategy<Value = Profile> {
    let service = (0u64..60_000, 0u64..20_000, 0u32..200_000, 0u64..300_000, 0u32..40);
    let limits = (
        0u32..20,
        prop::option::of(50_000_000u64..3_000_000_000),
        prop::option::of(20_000u64..2_000_000),
        1u32..64,
    );
    let hidden = prop::option::weighted(
        0.3,
        (
            1u32..32,
            1u64..200_000,
            prop::option::of(20_000u64..500_000),
            1u32..64,
            prop::option::of(5_000u64..200_000),
        ),
    );
    (prop::collection::vec(service, 3), limits, hidden).prop_map(
        |(services, (channels, bandwidth, iops, iops_burst), hidden)| {
            let mut services =
                services.into_iter().map(|(base, jitter, tail_ppm, tail, tail_run)| Service {
                    base: Nanos(base),
                    jitter: Nanos(jitter),
                    tail_ppm,
                    tail: Nanos(tail),
                    tail_run,
                    ..Service::default()
                });
            let [read, write, flush] = [(); 3].map(|()| services.next().unwrap_or_default());
            let hidden = hidden.map_or(
                Hidden::default(),
                |(entries, time, announced, announced_burst, messages)| Hidden {
                    entries,
                    time: Nanos(time),
                    announced_per_s: announced.unwrap_or(0),
                    announced_burst,
                    messages_per_s: messages.unwrap_or(0),
                },
            );
            let (bandwidth, iops) = (bandwidth.unwrap_or(0), iops.unwrap_or(0));
            Profile {
                name: "random".into(),
                read,
                write,
                flush,
                channels,
                bandwidth,
                iops,
                iops_burst,
                moves_data: true,
                hidden,
            }
        },
    )
}

/// Random scenarios: every mode, switches at any instant, depths and batches, few tags, several
/// queues, several price lists, shared vectors, an application that leaves to compute.
fn any_scenario() -> impl Strategy<Value = Scenario> {
    let mode = || prop::sample::select(Mode::ALL.to_vec());
    let shipped = prop::sample::select(vec![
        Profile::null(),
        Profile::optane(),
        Profile::tlc(),
        Profile::bimodal(),
        Profile::cloud(),
    ]);
    let profile = prop_oneof![2 => shipped, 1 => any_profile()];
    let switches = prop::collection::vec((0u64..400_000, mode()), 0..6);
    let shape = (
        1u32..80,
        1u32..40,
        1u32..20,
        prop::sample::select(vec![2u32, 8, 64, 256]),
        (1u16..4, 2u16..4),
    );
    let costs = prop::sample::select(vec![Costs::BARE_METAL, Costs::VIRTUAL, SLOW_MASK]);
    let ablation = (
        prop::option::weighted(0.3, 1_000u64..200_000),
        any::<[bool; 2]>(),
        costs,
        any::<u64>(),
        any_controller_timing(),
    );
    (mode(), profile, switches, shape, ablation).prop_map(
        |(mode, profile, switches, shape, ablation)| {
            let (depth, batch, reap_min, tags, (queues, vectors)) = shape;
            let (think, [open, cpu_wanted], costs, seed, controller_timing) = ablation;
            let mut job = if open { open_loop(40_000, 150) } else { closed_loop(depth, 300) };
            job.batch_submit = batch.min(job.iodepth);
            job.complete_min = reap_min.min(job.iodepth);
            let mut scenario = Scenario::new(mode, profile, job).with_costs(costs);
            let (device, spec) = (&mut scenario.devices[0], &mut scenario.jobs[0]);
            // Fewer vectors than queues: some share one.
            (device.config.vectors, device.queues, device.tags, device.bytes) =
                (vectors, queues, tags, 1 << 20);
            controller_timing.apply_to(device);
            (spec.queues, spec.think) = (queues, Nanos(think.unwrap_or(0)));
            if cpu_wanted {
                scenario.machine.hogs = vec![0];
            }
            let switches = switches.into_iter().map(|(at, mode)| (Nanos(at), mode)).collect();
            Scenario { switches, seed, limit: Nanos::from_secs(2), ..scenario }
        },
    )
}

/// Delays and orders that the specification permits a controller.
#[derive(Clone, Copy, Debug)]
struct ControllerTiming {
    pending: PendingBit,
    fetch: Fetch,
    aborts: AbortOrder,
    /// Longest delay of a doorbell write.
    late: Nanos,
}

impl ControllerTiming {
    fn apply_to(self, device: &mut DeviceSpec) {
        (device.config.pending, device.config.fetch, device.config.aborts) =
            (self.pending, self.fetch, self.aborts);
        if self.late > Nanos::ZERO {
            device.faults = FaultPlan::new().with_late_doorbells(self.late, 1);
        }
    }
}

fn any_controller_timing() -> impl Strategy<Value = ControllerTiming> {
    let pending = PendingBit::NAMES.map(|name| PendingBit::named(name).unwrap()).to_vec();
    let fetch = Fetch::NAMES.map(|name| Fetch::named(name).unwrap()).to_vec();
    let aborts = AbortOrder::NAMES.map(|name| AbortOrder::named(name).unwrap()).to_vec();
    let late = prop::option::weighted(0.2, 1u64..8_000);
    let choices = (
        prop::sample::select(pending),
        prop::sample::select(fetch),
        prop::sample::select(aborts),
        late,
    );
    choices.prop_map(|(pending, fetch, aborts, late)| ControllerTiming {
        pending,
        fetch,
        aborts,
        late: Nanos(late.unwrap_or(0)),
    })
}

/// Random machines in addition: CPUs on NUMA nodes, several devices and threads, hardware queues
/// that threads share, either host, either interface, posted vectors, interrupts on any CPU.
fn any_machine() -> impl Strategy<Value = Scenario> {
    (any_plain_machine(), any_sharing(), prop::bool::weighted(0.3)).prop_map(
        |(mut scenario, sharing, in_process)| {
            let machine = &mut scenario.machine;
            (machine.interrupts, machine.scheduler) = (sharing.path, sharing.scheduler);
            machine.scheduler.slice =
                machine.scheduler.slice.max(Nanos(10 * machine.costs.thread.switch.0));
            (machine.costs.thread.refill, machine.costs.thread.refill_after) =
                (Nanos(sharing.refill), Nanos(20_000));
            (machine.costs.thread.timer_jitter, machine.costs.thread.wake_remote) =
                (Nanos(sharing.refill / 2), Nanos(sharing.refill));
            let in_process = in_process && scenario.host == HostStack::User;
            for device in &mut scenario.devices {
                (device.in_process, device.inside) = (in_process, sharing.inside);
            }
            Scenario { spin: sharing.spin, ..scenario }
        },
    )
}

/// Random shared resources: CPUs, the interrupt path, dies.
#[derive(Clone, Copy, Debug)]
struct Sharing {
    path: InterruptPath,
    scheduler: Scheduler,
    inside: DieLayout,
    spin: Spin,
    refill: u64,
}

fn any_sharing() -> impl Strategy<Value = Sharing> {
    let path = prop::option::of((0u64..500, 0u64..2_000, 0u32..3));
    // The smallest quota is 60 µs: ten context switches of the more expensive price list, the least
    // that a scenario accepts.
    let scheduler = (
        prop::sample::select(vec![20_000u64, 100_000, 3_000_000]),
        prop::sample::select(vec![0u64, 50_000, 1_000_000]),
        30u64..100,
    );
    let inside = prop::option::weighted(0.3, 1u32..20);
    let spin = prop::sample::select(vec![Spin::Spins, Spin::Yields, Spin::Naps]);
    (path, scheduler, inside, spin, 0u64..3_000).prop_map(
        |(path, scheduler, inside, spin, refill)| {
            let path = path.map_or(InterruptPath::default(), |(notify, inject, injectors)| {
                InterruptPath { notify: Nanos(notify), inject: Nanos(inject), injectors }
            });
            let (slice, tick, part) = scheduler;
            let period = Nanos::from_micros(200);
            let rt_runtime = Nanos(period.0 * part / 99);
            let scheduler = Scheduler {
                slice: Nanos(slice),
                tick: Nanos(tick),
                rt_runtime,
                rt_period: period,
                ..Scheduler::default()
            };
            let inside =
                inside.map_or(DieLayout::default(), |dies| DieLayout { dies, stripe_unit: 4_096 });
            Sharing { path, scheduler, inside, spin, refill }
        },
    )
}

fn any_plain_machine() -> impl Strategy<Value = Scenario> {
    let shape = (1usize..9, 1usize..4, 1usize..3, 1u32..5, 1u16..4, 1u16..3);
    let kind = (
        any::<[bool; 3]>(),
        prop::collection::vec(0usize..8, 1..3),
        prop::option::weighted(0.2, 0usize..8),
    );
    (any_scenario(), shape, kind).prop_map(|(mut scenario, shape, kind)| {
        let (cpus, nodes, devices, threads, queues, sw_queues) = shape;
        let ([kernel, libaio, posted], list, hog) = kind;
        scenario.machine = Machine { cpus, nodes: nodes.min(cpus), posted, ..scenario.machine };
        scenario.machine.hogs = hog.into_iter().map(|cpu| cpu % cpus).collect();
        scenario.host = if kernel { HostStack::Kernel } else { HostStack::User };
        let first = scenario.devices[0].clone();
        let affinity = if list.len() == 1 {
            Affinity::Managed
        } else {
            Affinity::Cpus(list.iter().map(|cpu| cpu % cpus).collect())
        };
        let device = |n: usize| DeviceSpec {
            name: format!("disk{n}"),
            queues,
            affinity: affinity.clone(),
            ..first.clone()
        };
        scenario.devices = (0..devices).map(device).collect();
        let spec = &mut scenario.jobs[0];
        (spec.queues, spec.engine) =
            (sw_queues, if libaio { Engine::Libaio } else { Engine::IoUring });
        spec.job.filenames = (0..devices).map(|n| format!("disk{n}")).collect();
        spec.job.numjobs = threads;
        spec.job.number_ios = Some(60);
        scenario
    })
}

/// Long polls and handlers, so that many events fall between their steps.
const SLOW_LOOK: Costs = Costs {
    interrupt: InterruptCosts {
        handler: Nanos(1_500),
        demultiplex: Nanos(500),
        ..Costs::BARE_METAL.interrupt
    },
    library: LibraryCosts { reap: Nanos(3_000), ..Costs::BARE_METAL.library },
    ..Costs::BARE_METAL
};

/// Threads that share the queues of a few devices, submit a full batch once, and wait for all of
/// it: no later entry hides a lost wake-up.
fn any_burst() -> impl Strategy<Value = Scenario> {
    let mode = prop::sample::select(Mode::ALL.to_vec());
    let shape = (2u32..6, 1u32..6, 1usize..5, 1u16..4, 1u16..3);
    (mode, shape, any::<[bool; 3]>(), any::<u64>()).prop_map(
        |(mode, shape, [kernel, posted, one_cpu], seed)| {
            let (threads, depth, devices, queues, sw_queues) = shape;
            let depth = depth * devices as u32;
            let mut job = closed_loop(depth, depth.into());
            (job.complete_min, job.numjobs) = (depth, threads);
            job.filenames = (0..devices).map(|n| format!("disk{n}")).collect();
            let affinity = if one_cpu { Affinity::Cpus(vec![0]) } else { Affinity::Managed };
            let device = |name: &String| DeviceSpec {
                affinity: affinity.clone(),
                ..DeviceSpec::new(name, Profile::optane()).with_queues(queues)
            };
            let devices = job.filenames.iter().map(device).collect();
            let base = Scenario::new(mode, Profile::optane(), job);
            let mut jobs = base.jobs.clone();
            jobs[0].queues = sw_queues;
            let machine = Machine { posted, costs: SLOW_LOOK, ..Machine::new(threads as usize, 1) };
            let host = if kernel { HostStack::Kernel } else { HostStack::User };
            Scenario { machine, host, devices, jobs, seed, limit: Nanos::from_secs(2), ..base }
        },
    )
}

/// 4 KiB random reads on `profile`; the application spends `work` on each.
fn outcome(mode: Mode, profile: Profile, job: workload::Job, work: Nanos) -> Outcome {
    let mut scenario = Scenario::new(mode, profile, job);
    scenario.jobs[0].work = work;
    scenario.run().unwrap_or_else(|error| panic!("{mode}: {error}"))
}

fn mode(name: &str) -> Mode {
    name.parse().unwrap()
}
