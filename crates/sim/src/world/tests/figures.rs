//! What each mode costs, and why: relations between modes, not absolute values.

use super::*;

#[test]
fn poll_takes_no_interrupt() {
    for depth in [1, 32] {
        let poll = outcome(Mode::POLL, Profile::optane(), closed_loop(depth, 5_000), Nanos::ZERO);
        assert_eq!(
            (poll.messages, poll.all_cpus.interrupts, poll.counts.wakeups, poll.all_cpus.hard),
            (0, 0, 0, Nanos::ZERO)
        );
        assert_eq!(poll.suppressed, 5_000);
    }
}

#[test]
fn interrupt_sleeps_between_entries() {
    let idle = outcome(Mode::INTERRUPT, Profile::optane(), closed_loop(1, 5_000), Nanos::ZERO);
    assert_eq!(
        (idle.messages, idle.all_cpus.interrupts, idle.counts.wakeups),
        (5_000, 5_000, 5_000)
    );
    // Under load the number of messages stays, since the vector is never masked, but that of
    // wake-ups falls.
    let busy = outcome(Mode::INTERRUPT, Profile::optane(), closed_loop(32, 5_000), Nanos(3_000));
    assert_eq!(busy.messages, 5_000);
    assert!(busy.counts.wakeups < 50, "{}", busy.counts.wakeups);
}

/// The gain that blk-iopoll was made for, and the objection to it (SOURCES, 001): saturated, the
/// host takes a tenth of the interrupts; with one command per interrupt the same scheme costs more
/// CPU than it saves.
#[test]
fn irq_poll_pays_only_at_saturation() {
    let saturated = |mode| outcome(mode, Profile::optane(), closed_loop(32, 20_000), Nanos(3_000));
    let (irq, iopoll) = (saturated(Mode::INTERRUPT), saturated(Mode::IRQ_POLL));
    assert!(iopoll.messages * 10 <= irq.messages, "{} of {}", iopoll.messages, irq.messages);
    assert!(iopoll.cpu_ns_per_io() < irq.cpu_ns_per_io());
    assert!(iopoll.iops() > irq.iops());

    let sparse = |mode| outcome(mode, Profile::optane(), closed_loop(1, 20_000), Nanos::ZERO);
    let (irq, iopoll) = (sparse(Mode::INTERRUPT), sparse(Mode::IRQ_POLL));
    assert_eq!((irq.messages, iopoll.messages), (20_000, 20_000));
    assert!(
        iopoll.cpu_ns_per_io() > irq.cpu_ns_per_io(),
        "{} {}",
        iopoll.cpu_ns_per_io(),
        irq.cpu_ns_per_io()
    );
    assert!(iopoll.read_latency().mean >= irq.read_latency().mean);
}

/// Post 000's job on a device that coalesces: the poll after each commit finds entries whose
/// message was not sent yet.
#[test]
fn submit_check_finds_coalesced_entries() {
    let mut job = closed_loop(64, 30_000);
    (job.batch_submit, job.complete_min, job.complete_max) = (16, 16, 16);
    // The application takes 16 completions at a time, as in the post, and spends on each what a
    // libaio job on such a guest does.
    let run = |name| outcome(mode(name), Profile::cloud(), job.clone(), Nanos(1_500));
    let (without, with) = (run("interrupt"), run("interrupt+submit-check"));
    assert!((117e3..143e3).contains(&without.iops()), "{}", without.iops());
    assert!(with.iops() >= 2.0 * without.iops(), "{} {}", with.iops(), without.iops());
    assert!(
        with.counts.wakeups < without.counts.wakeups,
        "{} {}",
        with.counts.wakeups,
        without.counts.wakeups
    );
    assert!(with.messages < without.messages);
}

#[test]
fn hybrid_mean_matches_poll_latency() {
    let run = |mode| outcome(mode, Profile::tlc(), closed_loop(1, 5_000), Nanos::ZERO);
    let (poll, hybrid, irq) = (run(Mode::POLL), run(Mode::HYBRID_MEAN), run(Mode::INTERRUPT));
    assert_eq!(hybrid.messages, 0);
    assert!(hybrid.read_latency().p50 < irq.read_latency().p50);
    assert!(hybrid.read_latency().mean < 1.01 * poll.read_latency().mean);
    assert!(
        hybrid.cpu_ns_per_io() < 0.65 * poll.cpu_ns_per_io(),
        "{} {}",
        hybrid.cpu_ns_per_io(),
        poll.cpu_ns_per_io()
    );
}

/// Their time is part of what the writes cost.
#[test]
fn a_flush_is_no_io() {
    let run = |every| {
        let mut job = workload::Job { sync_every: every, ..closed_loop(1, 1_000) };
        job.pattern.direction = workload::Direction::Write;
        outcome(Mode::POLL, Profile::optane(), job, Nanos::ZERO)
    };
    let (without, with) = (run(0), run(1));
    assert_eq!((without.counts.completed, with.counts.completed), (1_000, 1_000));
    assert!(
        with.stats.sync.issued > 900
            && with.iops() < without.iops()
            && with.cpu_ns_per_io() > without.cpu_ns_per_io()
    );
}

#[test]
fn one_doorbell_per_batch_either_way() {
    let mut job = closed_loop(32, 3_200);
    (job.complete_min, job.complete_max) = (32, 32);
    let poll = outcome(Mode::POLL, Profile::null(), job, Nanos::ZERO);
    assert_eq!((poll.sq_doorbells, poll.cq_doorbells), (100, 100));
}

#[test]
fn overload_shows_in_intended_latency() {
    let run = |rate| outcome(Mode::POLL, Profile::optane(), open_loop(rate, 20_000), Nanos(5_000));
    let (below, above) = (run(100_000), run(400_000));
    assert!(below.intended_read_latency().p99 < 100_000);
    assert!(above.intended_read_latency().p99 > 10_000_000);
    assert!((90e3..110e3).contains(&below.iops()) && above.iops() < 210e3);
}

/// A switch between two threads of one CPU has its own cost. Only a thread on an idle CPU pays for
/// leaving the idle state.
#[test]
fn switch_from_idle_costs_more() {
    let run = |from_idle, hogs: Vec<usize>, idle_after| {
        let mut costs = Costs::BARE_METAL;
        (costs.thread.from_idle, costs.thread.idle_after) = (Nanos(from_idle), idle_after);
        let mut scenario = Scenario::new(Mode::INTERRUPT, Profile::optane(), closed_loop(1, 1_000))
            .with_costs(costs);
        scenario.machine.hogs = hogs;
        scenario.run().unwrap()
    };
    let shipped = Costs::BARE_METAL.thread.idle_after;
    // One read at a time: the CPU is idle before each completes.
    let (cheap, dear) = (run(0, vec![], shipped), run(5_000, vec![], shipped));
    let later = dear.read_latency().mean - cheap.read_latency().mean;
    assert!((later - 5_000.0).abs() < 50.0, "{later}");
    let more = (dear.cpus[0].thread - cheap.cpus[0].thread).0;
    assert!((999 * 5_000..=1_001 * 5_000).contains(&more), "{more}");
    // Never idle, or never long enough to halt, but for the start: no thread pays.
    for (hogs, idle_after) in [(vec![0], shipped), (vec![], Nanos::from_secs(1))] {
        let (cheap, dear) =
            (run(0, hogs.clone(), idle_after), run(5_000, hogs.clone(), idle_after));
        assert!(
            cheap.elapsed.0.abs_diff(dear.elapsed.0) <= 10_000,
            "{hogs:?}: {:?} {:?}",
            cheap.elapsed,
            dear.elapsed
        );
    }
}

/// I/Os begin only in phases with a rate, and at that rate.
#[test]
fn phases_bound_when_ios_begin() {
    let job = workload::Job {
        runtime: Some(Nanos::from_millis(50)),
        time_based: true,
        iodepth: 64,
        ..Default::default()
    };
    let mut scenario = Scenario::new(Mode::POLL, Profile::optane(), job);
    scenario.ticks = Some(Nanos::from_millis(2));
    let phase = |n: u64| {
        [(10 * n, 100_000), (10 * n + 2, 0)]
            .map(|(from, iops)| Phase { from: Nanos::from_millis(from), iops })
    };
    scenario.jobs[0].phases = (0..5).flat_map(phase).collect();
    let outcome = scenario.run().unwrap();
    assert!((995..=1_005).contains(&outcome.counts.completed), "{}", outcome.counts.completed);
    for (at, tick) in outcome.ticks.iter().enumerate() {
        let expected = if at % 5 == 0 { 195..=205 } else { 0..=5 };
        assert!(expected.contains(&tick.counts.completed), "tick {at}: {}", tick.counts.completed);
    }
    assert_eq!(scenario.jobs[0].phase_at(Nanos::from_millis(41)), 100_000);
    assert_eq!(scenario.jobs[0].phase_at(Nanos::from_millis(43)), 0);
}

#[test]
fn contended_thread_naps_instead() {
    let scenario = |wanted| {
        let mut scenario = Scenario::new(Mode::POLL, Profile::tlc(), closed_loop(1, 1_000));
        scenario.machine.hogs = if wanted { vec![0] } else { Vec::new() };
        Scenario { spin: Spin::Naps, ..scenario }
    };
    let (greedy, polite) = (scenario(false).run().unwrap(), scenario(true).run().unwrap());
    assert_eq!(polite.messages, 0);
    assert!(polite.thread.0 * 5 < greedy.thread.0, "{} {}", polite.thread, greedy.thread);
}

/// Ticks do not change a run: it is the same without them.
#[test]
fn ticks_add_up_and_disturb_nothing() {
    for mode in Mode::ALL {
        for host in [HostStack::User, HostStack::Kernel] {
            let mut job = open_loop(1, 4_000);
            job.numjobs = 3;
            let mut scenario = Scenario { host, ..Scenario::new(mode, Profile::optane(), job) };
            scenario.machine = Machine { hogs: vec![1], ..Machine::new(2, 1) };
            scenario.devices = vec![DeviceSpec::new("device", Profile::optane()).with_queues(2)];
            scenario.jobs[0].phases = vec![
                Phase { from: Nanos::ZERO, iops: 5_000 },
                Phase { from: Nanos::from_millis(20), iops: 100_000 },
            ];
            let plain = scenario.run().unwrap();
            let ticked =
                Scenario { ticks: Some(Nanos::from_millis(1)), ..scenario.clone() }.run().unwrap();
            let ticks = &ticked.ticks;
            assert_eq!(ticks.len() as u64, ticked.elapsed.0 / 1_000_000, "{mode} {host:?}");
            let sum = |of: fn(&Tick) -> u64| ticks.iter().map(of).sum::<u64>();
            assert!(
                sum(|tick| tick.counts.completed) <= ticked.counts.completed
                    && sum(|tick| tick.counts.completed) > ticked.counts.completed * 9 / 10
            );
            assert!(
                sum(|tick| tick.cpu.0)
                    <= (ticked.all_cpus.hard
                        + ticked.all_cpus.soft
                        + ticked.thread
                        + ticked.counts.application)
                        .0
            );
            assert!(
                sum(|tick| tick.decisions.gathered)
                    <= ticked.decisions.map_or(0, |decisions| decisions.gathered)
            );
            // The step in load is visible.
            let rate = |ticks: &[Tick]| {
                ticks.iter().map(|tick| tick.counts.completed).sum::<u64>() / ticks.len() as u64
            };
            assert!(rate(&ticks[25..30]) > 10 * rate(&ticks[5..15]), "{mode} {host:?}: {ticks:?}");
            assert!(
                ticks[25..30].iter().all(|tick| tick.p50 >= 8_000 && tick.p99 >= tick.p50),
                "{mode} {host:?}"
            );
            let without =
                |outcome: Outcome| format!("{:?}", Outcome { ticks: Vec::new(), ..outcome });
            assert_eq!(without(plain), without(ticked), "{mode} {host:?}");
        }
    }
}

/// A closed loop, measured for this long after a ramp.
fn lasting(ramp: u64, runtime: u64) -> workload::Job {
    let millis = Nanos::from_millis;
    workload::Job {
        ramp_time: millis(ramp),
        runtime: Some(millis(runtime)),
        time_based: true,
        ..closed_loop(32, u64::MAX)
    }
}

/// Counters and times cover the same interval as latencies: with the first half of a run as ramp,
/// the outcome equals the second half as its ticks report it.
#[test]
fn the_ramp_is_in_no_figure() {
    for mode in Mode::ALL {
        for host in [HostStack::User, HostStack::Kernel] {
            let scenario = |ramp| {
                let mut job = lasting(ramp, 20 - ramp);
                (job.iodepth, job.numjobs) = (64, 2);
                let mut scenario = Scenario { host, ..Scenario::new(mode, Profile::optane(), job) };
                scenario.machine = Machine { hogs: vec![1], ..Machine::new(2, 1) };
                scenario.jobs[0].phases = vec![
                    Phase { from: Nanos::ZERO, iops: 4_000 },
                    Phase { from: Nanos::from_millis(10), iops: 80_000 },
                ];
                // A hog's slice is longer than the compared interval.
                Scenario { ticks: Some(Nanos::from_millis(10)), spin: Spin::Naps, ..scenario }
            };
            let (whole, half) = (scenario(0).run().unwrap(), scenario(10).run().unwrap());
            let second = whole.ticks[1];
            let near = |of: &str, a: u64, b: u64| {
                assert!(
                    a.abs_diff(b) <= b / 20 + 10,
                    "{mode} {host:?}: {of}: {a}, and {b} in the second half"
                );
            };
            near("time", half.elapsed.0, 10_000_000);
            near("I/Os", half.counts.completed, second.counts.completed);
            near(
                "CPU time",
                (half.all_cpus.hard + half.all_cpus.soft + half.thread).0,
                second.cpu.0,
            );
            near("looks", half.counts.polls, second.counts.polls);
            near("empty looks", half.counts.empty_polls, second.counts.empty_polls);
            near("latencies", half.stats.read.lat.moments.n, half.counts.completed);
            assert_eq!(half.ticks.len(), 2, "the time line is of the whole run");
            for cpu in &half.cpus {
                assert_eq!(
                    cpu.hard + cpu.soft + cpu.thread + cpu.idle,
                    half.elapsed,
                    "{mode} {host:?}"
                );
            }
            assert_eq!(
                half.devices.iter().map(|device| device.completed).sum::<u64>(),
                half.counts.completed
            );
        }
    }
}

#[test]
fn mode_after_ramp_is_measured() {
    let mut scenario = Scenario::new(
        Mode::INTERRUPT,
        Profile::tlc(),
        workload::Job { iodepth: 4, ..lasting(20, 20) },
    );
    scenario.switches = vec![(Nanos::from_millis(19), Mode::POLL)];
    let outcome = scenario.run().unwrap();
    assert_eq!((outcome.all_cpus.interrupts, outcome.messages, outcome.counts.wakeups), (0, 0, 0));
    assert_eq!((outcome.thread, outcome.cpus[0].longest_away), (outcome.elapsed, Nanos::ZERO));
}

#[test]
fn start_delay_is_not_measured() {
    let millis = Nanos::from_millis;
    let mut scenario = Scenario::new(Mode::POLL, Profile::optane(), lasting(0, 20));
    scenario.jobs[0].job.start_delay = (millis(100), millis(100));
    let alone = scenario.run().unwrap();
    assert!((millis(20)..millis(21)).contains(&alone.elapsed), "{}", alone.elapsed);
    let early = scenario.jobs[0].clone();
    scenario.jobs.push(early);
    scenario.jobs[1].job.start_delay = (millis(90), millis(90));
    let both = scenario.run().unwrap();
    assert!((millis(30)..millis(31)).contains(&both.elapsed), "{}", both.elapsed);
    let counted: u64 = both.jobs.iter().map(|job| job.stats.read.ios).sum();
    assert_eq!(both.counts.completed, counted);
}

#[test]
fn run_inside_its_ramp_is_reported() {
    let scenario = Scenario::new(
        Mode::POLL,
        Profile::optane(),
        workload::Job { ramp_time: Nanos::from_millis(10), ..closed_loop(1, 20) },
    );
    let error = scenario.run().unwrap_err();
    assert!(matches!(error, SimError::Unmeasured(_)), "{error}");
    assert!(error.to_string().contains("shorten `ramp`"), "{error}");
}

/// Random I/Os at a sixth of the device's maximum rate, for half a second.
fn mixed_at(read: u64, write: u64) -> workload::Job {
    let direction = if write > 0 { workload::Direction::Mixed } else { workload::Direction::Read };
    let pattern = workload::Pattern { direction, ..closed_loop(1, 1).pattern };
    let rate = workload::PerOp {
        read: Some(workload::Rate::Iops(read)),
        write: Some(workload::Rate::Iops(write)),
        trim: None,
    };
    workload::Job { rate, pattern, read_percent: 70, iodepth: 32, ..open_loop(1, 50_000) }
}

/// A random choice of the next operation would drift from the two schedules, and each I/O of the
/// one that is behind would wait.
#[test]
fn two_rates_equal_one_rate() {
    let profile = || Profile { write: Profile::optane().read, ..Profile::optane() };
    let run =
        |read, write| outcome(Mode::POLL, profile(), mixed_at(read, write), Nanos::ZERO).latency;
    let (alone, mixed) = (run(100_000, 0), run(70_000, 30_000));
    let at = |latency: &workload::Latency| {
        latency.histogram.as_ref().unwrap().percentiles(&[50.0, 99.0])
    };
    for (a, b) in at(&alone).into_iter().zip(at(&mixed)) {
        assert!(a.abs_diff(b) * 10 <= a, "{a} and {b}");
    }
}

/// A job with a rate next to one without: the latencies of both are counted.
#[test]
fn latencies_are_of_all_threads() {
    let closed = workload::Job { iodepth: 64, ..lasting(0, 20) };
    let mut scenario = Scenario::new(Mode::POLL, Profile::optane(), closed.clone());
    let paced = workload::Job {
        rate: workload::PerOp::all(Some(workload::Rate::Iops(1_000))),
        iodepth: 1,
        ..closed
    };
    scenario.machine = Machine::new(2, 1);
    scenario.devices = vec![DeviceSpec::new("device", Profile::optane()).with_queues(2)];
    scenario.jobs.push(JobSpec::new(paced));
    let outcome = scenario.run().unwrap();
    let [closed, paced] = &outcome.jobs[..] else { panic!("{:?}", outcome.jobs.len()) };
    assert!(paced.stats.read.intended.moments.n > 15 && closed.stats.read.intended.moments.n == 0);
    assert_eq!(outcome.latency.moments.n, closed.stats.read.ios + paced.stats.read.ios);
    assert_eq!(outcome.latency.histogram.unwrap().total(), outcome.latency.moments.n);
}
