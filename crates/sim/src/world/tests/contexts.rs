//! Competition for a CPU, and for the shared interrupt path.

use super::*;

/// A thread on each of `cpus` (one CPU may have several), each with `ios` 4 KiB reads, `depth` at a
/// time, from one drive whose queues are the machine's CPUs'.
fn threads(
    mode: &str,
    host: HostStack,
    machine: Machine,
    profile: Profile,
    cpus: &[usize],
    (depth, ios): (u32, u64),
) -> Scenario {
    let queues = machine.cpus as u16;
    let job = |cpu: usize| {
        let job = workload::Job {
            cpus_allowed: Some(vec![cpu as u32]),
            filenames: vec!["disk".into()],
            ..closed_loop(depth, ios)
        };
        JobSpec::new(job)
    };
    let base = Scenario::new(super::mode(mode), profile.clone(), closed_loop(1, 1));
    let devices = vec![DeviceSpec::new("disk", profile).with_queues(queues)];
    Scenario { machine, host, devices, jobs: cpus.iter().map(|&cpu| job(cpu)).collect(), ..base }
}

fn ran(scenario: &Scenario) -> Outcome {
    scenario.run().unwrap_or_else(|error| panic!("{error}: {scenario:?}"))
}

fn hogged(spin: Spin) -> Outcome {
    let mut scenario =
        Scenario { spin, ..Scenario::new(Mode::POLL, Profile::tlc(), closed_loop(1, 1_000)) };
    scenario.machine.hogs = vec![0];
    ran(&scenario)
}

/// A spinning thread that does not yield uses its slices, and the other thread waits for its own.
#[test]
fn spinner_gets_half_a_cpu() {
    let spins = hogged(Spin::Spins);
    let share = spins.thread.0 as f64 / spins.elapsed.0 as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
    let slice = Scheduler::default().slice;
    assert!(
        spins.read_latency().max >= slice.0,
        "what completes in the other's slice is found after it: {}",
        spins.read_latency().max
    );
    let switches = spins.elapsed.0 / (2 * slice.0);
    assert!(
        spins.all_cpus.context_switches <= 3 * switches,
        "two for each pair of slices: {} of {switches}",
        spins.all_cpus.context_switches
    );
}

/// One that yields gets the CPU time that the other leaves: it runs one poll at a time.
#[test]
fn yielding_thread_stays_runnable() {
    let (spins, yields, naps) = (hogged(Spin::Spins), hogged(Spin::Yields), hogged(Spin::Naps));
    assert!(yields.thread.0 * 20 < spins.thread.0, "{} {}", yields.thread, spins.thread);
    assert!(
        yields.elapsed > Nanos(2 * spins.elapsed.0),
        "each look costs a slice of the other's: {}",
        yields.elapsed
    );
    assert_eq!((yields.counts.wakeups, spins.counts.wakeups), (0, 0));
    assert!(naps.counts.wakeups > 0 && naps.elapsed < yields.elapsed);
}

/// Hybrid polling leaves the CPU to other threads for half of each wait. That is a gain only with
/// more threads than CPUs.
#[test]
fn hybrid_wins_when_oversubscribed() {
    let iops = |mode, cpus: &[usize]| {
        ran(&threads(mode, HostStack::Kernel, Machine::new(2, 1), Profile::tlc(), cpus, (1, 400)))
            .iops()
    };
    let crowded = [0, 1].repeat(4);
    let (poll, hybrid) = (iops("poll", &crowded), iops("hybrid-mean", &crowded));
    assert!(hybrid > 1.3 * poll, "eight threads on two CPUs: {hybrid} {poll}");
    let (poll, hybrid) = (iops("poll", &[0, 1]), iops("hybrid-mean", &[0, 1]));
    assert!(poll >= hybrid, "a thread on each: {poll} {hybrid}");
}

/// An interrupt thread that always has work leaves the job on its CPU what the quota permits.
#[test]
fn interrupt_threads_respect_quota() {
    let work_left = |runtime| {
        let mut machine = Machine::new(4, 1);
        machine.scheduler.rt_period = Nanos::from_micros(200);
        machine.scheduler.rt_runtime = Nanos::from_micros(runtime);
        // Completions cost more than submissions, so the one CPU that takes them all is saturated.
        machine.costs.block.complete = Nanos(3_000);
        let mut scenario = threads(
            "threaded",
            HostStack::Kernel,
            machine,
            Profile::null(),
            &[1, 2, 3],
            (32, u64::MAX),
        );
        scenario.devices[0].affinity = Affinity::Cpus(vec![0]);
        scenario.machine.hogs = vec![0];
        for spec in &mut scenario.jobs {
            (spec.job.runtime, spec.job.time_based) = (Some(Nanos::from_millis(4)), true);
        }
        let outcome = ran(&scenario);
        let threads: u64 =
            outcome.thread.0 - outcome.cpus[1..].iter().map(|cpu| cpu.thread.0).sum::<u64>();
        threads as f64 / outcome.elapsed.0 as f64
    };
    // The CPU time that the hog does not get goes to interrupts and interrupt threads.
    let (all, half) = (work_left(200), work_left(100));
    assert!(all > 0.8, "{all}");
    assert!((0.35..0.65).contains(&half), "{half}");
}

/// Work that the softirq hands to ksoftirqd waits until the scheduler runs it.
#[test]
fn softirqs_respect_waiting_ksoftirqd() {
    let runs = |hogs| {
        let mut machine = Machine::new(4, 1);
        machine.softirq.restarts = 1;
        // Completions cost more than submissions, so the one CPU that takes them all is saturated.
        machine.costs.block.complete = Nanos(3_000);
        machine.hogs = vec![0; hogs];
        let mut scenario = threads(
            "irq-poll",
            HostStack::Kernel,
            machine,
            Profile::optane(),
            &[1, 2],
            (32, 3_000),
        );
        // Scheduled queues are masked, so only another drive can interrupt.
        let other = workload::Job {
            cpus_allowed: Some(vec![3]),
            filenames: vec!["other".into()],
            ..open_loop(20_000, 1_000)
        };
        scenario.jobs.push(JobSpec::new(other));
        scenario.devices.push(DeviceSpec::new("other", Profile::optane()));
        scenario.devices.iter_mut().for_each(|device| device.affinity = Affinity::Cpus(vec![0]));
        let outcome = ran(&scenario);
        assert_eq!(outcome.counts.completed, 7_000);
        assert!(
            outcome.all_cpus.ksoftirqd_runs > 0
                && outcome.all_cpus.ksoftirqd_runs < outcome.all_cpus.softirqs
        );
        outcome.elapsed
    };
    assert!(runs(0) < runs(4), "ksoftirqd has to wait for the hogs");
}

/// The cost of a context switch depends on what ran in between.
#[test]
fn cold_caches_cost_the_thread() {
    let cost = |refill, cpus: &[usize]| {
        let mut machine = Machine::new(2, 1);
        (machine.costs.thread.refill, machine.costs.thread.refill_after) =
            (Nanos(refill), Nanos(5_000));
        let mut scenario =
            threads("interrupt", HostStack::Kernel, machine, Profile::optane(), cpus, (4, 2_000));
        scenario.jobs.iter_mut().for_each(|spec| spec.work = Nanos(2_000));
        ran(&scenario).cpu_ns_per_io()
    };
    let (alone, together) =
        (cost(2_000, &[0, 1]) - cost(0, &[0, 1]), cost(2_000, &[0, 0]) - cost(0, &[0, 0]));
    assert!(together > 200.0 && together > 3.0 * alone, "{together} {alone}");
}

#[test]
fn longer_idle_wakes_later() {
    let thread = ThreadCosts {
        deeper_after: Nanos(20_000),
        deeper_exit: Nanos(10_000),
        deepest_after: Nanos(600_000),
        deepest_exit: Nanos(133_000),
        ..Costs::BARE_METAL.thread
    };
    let latency = |base: u64, thread| {
        let mut profile = Profile::null();
        profile.read.base = Nanos(base);
        let mut scenario = Scenario::new(Mode::INTERRUPT, profile, closed_loop(1, 200));
        scenario.machine.costs.thread = thread;
        ran(&scenario).read_latency().p50 as i64
    };
    // Within about a microsecond: a histogram's bucket.
    let later = |base| latency(base, thread) - latency(base, Costs::BARE_METAL.thread);
    assert!(later(10_000).abs() < 500, "{}", later(10_000));
    assert!((9_000..10_500).contains(&later(100_000)), "{}", later(100_000));
    assert!((115_000..150_000).contains(&later(800_000)), "{}", later(800_000));
}

/// Waking a thread of another CPU costs more than waking one of the same CPU.
#[test]
fn remote_wakeup_has_its_price() {
    let hard = |affinity: usize, far| {
        let mut machine = Machine::new(2, 1);
        machine.costs.thread.wake_remote = Nanos(far);
        let mut scenario =
            threads("interrupt", HostStack::User, machine, Profile::optane(), &[1], (1, 1_000));
        scenario.devices[0].affinity = Affinity::Cpus(vec![affinity]);
        let outcome = ran(&scenario);
        (outcome.all_cpus.hard.0 / outcome.counts.wakeups.max(1)) as i64
    };
    assert_eq!(hard(1, 700), hard(1, 0));
    assert!((hard(0, 700) - hard(0, 0) - 700).abs() < 20, "{}", hard(0, 700) - hard(0, 0));
}

/// Timer lateness follows its distribution, and so does the latency of completions found by naps.
#[test]
fn timers_are_late_by_a_distribution() {
    let latency = |jitter| {
        let mut costs = Costs::BARE_METAL;
        costs.thread.timer_jitter = Nanos(jitter);
        let mut profile = Profile::null();
        // Half of the time is slept, so a sleep on time does not show in the latency.
        profile.read.base = Nanos(10_000);
        let scenario =
            Scenario::new(Mode::HYBRID_MEAN, profile, closed_loop(1, 5_000)).with_costs(costs);
        ran(&scenario).read_latency()
    };
    let (exact, late) = (latency(0), latency(6_000));
    assert_eq!(exact.p99, exact.p50, "{exact:?}");
    // The part of an exponential distribution with mean 6 beyond the 2 µs or so that the sleep ends
    // early.
    let mean = late.mean - exact.mean;
    assert!((1_500.0..6_000.0).contains(&mean), "{mean}");
}

/// Drives that share a remapping unit share its capacity. Posted vectors without a notification,
/// and coalesced messages, do not use it.
#[test]
fn shared_interrupt_rate_is_bounded() {
    let at = |mode: &str, drives: usize| {
        let mut machine = Machine::new(8, 1);
        // A million interrupts a second.
        machine.interrupts.notify = Nanos(1_000);
        let names: Vec<String> = (0..drives).map(|n| format!("disk{n}")).collect();
        let base = Scenario::new(super::mode(mode), Profile::null(), closed_loop(1, 1));
        let mut scenario = Scenario { machine, host: HostStack::Kernel, ..base };
        let device = |(n, name): (usize, &String)| {
            let cpu = n * 8 / drives;
            let mut profile = Profile::optane();
            profile.bandwidth = 0;
            DeviceSpec { affinity: Affinity::Cpus(vec![cpu]), ..DeviceSpec::new(name, profile) }
        };
        scenario.devices = names.iter().enumerate().map(device).collect();
        let job = |(n, name): (usize, &String)| {
            let (cpu, filenames) = ((n * 8 / drives) as u32, vec![name.clone()]);
            JobSpec::new(workload::Job {
                cpus_allowed: Some(vec![cpu]),
                filenames,
                ..closed_loop(32, 4_000)
            })
        };
        scenario.jobs = names.iter().enumerate().map(job).collect();
        ran(&scenario)
    };
    let (one, four, eight) = (at("interrupt", 1), at("interrupt", 4), at("interrupt", 8));
    let per_s = |outcome: &Outcome| outcome.per_second(outcome.messages);
    assert!(
        per_s(&one) < 1.0e6 && per_s(&four) < 1.01e6 && per_s(&eight) < 1.01e6,
        "{} {} {}",
        per_s(&one),
        per_s(&four),
        per_s(&eight)
    );
    assert!(
        eight.iops() < 1.15 * four.iops(),
        "nothing is gained by more drives: {} {}",
        four.iops(),
        eight.iops()
    );
    assert!(
        at("posted", 8).iops() > 1.1 * eight.iops(),
        "a notification stands for several messages"
    );
    assert!(at("coalesce", 8).iops() > 1.5 * eight.iops(), "and a message for several entries");
    assert!(
        eight.way.waited > Nanos::ZERO
            && eight.way.held > Nanos::ZERO
            && eight.way.messages >= eight.messages
    );
}

/// An in-process controller with posted messages signals only if no notification is outstanding. So
/// it signals less often and serves more, and no thread misses an entry posted while it goes to
/// sleep.
#[test]
fn embedded_controller_posts_found_entries() {
    let at = |mode: &str, costs, depth| {
        let mut scenario =
            Scenario::new(super::mode(mode), Profile::optane(), closed_loop(depth, 10_000))
                .with_costs(costs);
        scenario.devices[0].in_process = true;
        scenario.seed = 3;
        ran(&scenario)
    };
    for costs in [Costs::VIRTUAL, SLOW_LOOK, SLOW_MASK] {
        for depth in [1, 4, 32] {
            let (each, posted) = (at("interrupt", costs, depth), at("posted", costs, depth));
            assert_eq!(
                (posted.counts.completed, posted.messages, posted.all_cpus.interrupts),
                (10_000, each.messages, 0)
            );
            assert!(posted.iops() > 0.9 * each.iops(), "{} {}", posted.iops(), each.iops());
        }
    }
    let (each, posted) = (at("interrupt", Costs::VIRTUAL, 32), at("posted", Costs::VIRTUAL, 32));
    assert!(
        posted.cpu_ns_per_io() < 1.1 * each.cpu_ns_per_io(),
        "{} {}",
        posted.cpu_ns_per_io(),
        each.cpu_ns_per_io()
    );
    assert!(
        posted.counts.returned_at_once <= each.counts.returned_at_once,
        "{} {}",
        posted.counts.returned_at_once,
        each.counts.returned_at_once
    );
}

#[test]
fn rounds_stay_within_their_budget() {
    let most = |mode| {
        ran(&threads(mode, HostStack::User, Machine::new(2, 1), Profile::null(), &[0], (64, 5_000)))
            .counts
            .entries_per_drain_max
    };
    assert!(most("irq-poll?weight=4&budget=8") <= 8 && most("irq-poll") > 8);
    // Each run of the softirq has a fixed cost.
    let runs = |mode| {
        ran(&threads(
            mode,
            HostStack::Kernel,
            Machine::new(2, 1),
            Profile::null(),
            &[0],
            (64, 5_000),
        ))
        .all_cpus
        .softirqs
    };
    assert!(runs("irq-poll?weight=4&budget=8") > 2 * runs("irq-poll"));
}
