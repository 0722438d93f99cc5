use proptest::prelude::*;
use units::Op;
use workload::record::{Cause, End, Header, Service as Times, Writer};

use super::*;
use crate::{Costs, Outcome};

/// A recording of 4 KiB reads: a closed loop of this depth, whose n-th command took `time(n)`.
fn closed(ios: u64, depth: u32, timing: Option<Timing>, think: Nanos, time: impl Fn(u64) -> u64) -> Arc<Trace> {
    let device = DeviceHead {
        uri: "mem:16M".into(),
        bytes: 16 << 20,
        block_bytes: 512,
        hardware_queues: 1,
        tags: depth.max(16),
        stamped: true,
        timing,
    };
    let thread = ThreadHead { job: "job".into(), targets: vec![0], depth, batch: 1, longest: 4096, ..ThreadHead::default() };
    let header = Header { cpus: 1, devices: vec![device], threads: vec![thread], ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for n in 0..ios {
        let submission = Submission {
            op: Op::Read,
            target: 0,
            offset: n * 4096 % (16 << 20),
            len: 4096,
            cause: n.checked_sub(depth.into()).map_or(Cause::Start, Cause::After),
            wait: u32::from(n >= depth.into()),
            think,
            ends_batch: true,
            service: Times { service: Nanos(time(n)), ..Times::default() },
        };
        writer.push(0, &submission).unwrap();
    }
    Arc::new(Trace::parse(writer.finish(End::default()).unwrap()).unwrap())
}

fn run(trace: &Arc<Trace>, mode: &str) -> Outcome {
    Scenario::replay(trace, 0, mode.parse().unwrap()).unwrap().with_costs(Costs::VIRTUAL).run().unwrap()
}

/// A link of 4 GB/s and four channels.
fn optane() -> Timing {
    let read = ServiceTimes { base_ns: 8_000, ..ServiceTimes::default() };
    Timing { profile: "optane".into(), channels: 4, bytes_per_second: 4_000_000_000, iops_burst: 1, read, ..Timing::default() }
}

#[test]
fn a_command_takes_the_time_that_the_trace_says() {
    for timing in [None, Some(optane())] {
        let trace = closed(1_000, 1, timing, Nanos(0), |n| if n % 10 == 0 { 90_000 } else { 20_000 });
        let poll = run(&trace, "poll");
        let latency = &poll.stats.read.clat.moments;
        assert_eq!((poll.completed, poll.failed), (1_000, 0));
        // The device's way there and back on top.
        assert!((20_000..21_500).contains(&poll.read_latency().p50), "{:?}", poll.read_latency());
        assert!(latency.max() >= 90_000 && (27_000.0..28_500.0).contains(&latency.mean()), "{}", latency.mean());
    }
}

#[test]
fn modes_differ_as_they_would_have() {
    let trace = closed(2_000, 1, Some(optane()), Nanos(0), |_| 20_000);
    let (interrupt, poll) = (run(&trace, "interrupt"), run(&trace, "poll"));
    assert_eq!((interrupt.messages, interrupt.wakeups, poll.messages), (2_000, 2_000, 0));
    assert!(interrupt.read_latency().p50 > poll.read_latency().p50 + 20_000, "the idle exit, at least");
    assert!(interrupt.elapsed > poll.elapsed, "a later completion lets a later submission go");
}

/// The dice are replaced; what commands wait for is not.
#[test]
fn commands_queue_as_the_profile_has_them_queue() {
    let trace = closed(4_000, 32, Some(optane()), Nanos(0), |_| 8_000);
    let poll = run(&trace, "poll");
    // Four channels, each 8 µs less the transfer of 1.
    assert!((0.98..1.01).contains(&(poll.iops() / (4e9 / 6_976.0))), "{}", poll.iops());
    let trace = closed(4_000, 32, None, Nanos(0), |_| 8_000);
    assert!(run(&trace, "poll").iops() > 2e6, "of an unknown device nothing is known to queue");
}

#[test]
fn think_time_is_cpu_time_of_the_thread() {
    let cost = |think| run(&closed(2_000, 1, None, Nanos(think), |_| 20_000), "interrupt").cpu_ns_per_io();
    assert!((cost(3_000) - cost(0) - 3_000.0).abs() < 5.0, "{} {}", cost(0), cost(3_000));
}

/// A path that was frozen, a device that hung: just what one records.
#[test]
fn a_command_may_take_hours() {
    for mode in ["interrupt", "poll", "adaptive"] {
        let trace = closed(3, 1, None, Nanos(0), |n| [20_000, 20_000_000_000, 4_000_000_000_000][n as usize]);
        let outcome = run(&trace, mode);
        let latency = &outcome.stats.read.clat.moments;
        assert_eq!((outcome.completed, outcome.failed, outcome.resets), (3, 0, 0));
        assert!(latency.max().abs_diff(4_000_000_000_000) < 1_000_000, "{mode}: {}", latency.max());
        assert!(latency.mean() > 4_020e9 / 3.0 - 1e6, "{mode}: {}", latency.mean());
    }
}

#[test]
fn a_stage_that_there_is_not_is_an_error() {
    let trace = closed(1, 1, None, Nanos(0), |_| 0);
    let error = Scenario::replay(&trace, 3, Mode::POLL).unwrap_err().to_string();
    assert!(error.contains("no stage 3"), "{error}");
}

proptest! {
    #[test]
    fn what_is_brought_arrives(service in any::<u32>(), late in 0..1u32 << 30, long in 1u64 << 32..1 << 44, held in 1u64 << 30..1 << 44) {
        let mut sqe = Sqe::default();
        prop_assert_eq!(brought(&sqe), None);
        let time = KnownTime { service: Nanos(service.into()), late: Nanos(late.into()) };
        bring(&mut sqe, time);
        prop_assert_eq!(brought(&sqe), Some(time));
        // To 16 µs, as soon as one has hours.
        for (service, late) in [(long, held), (long, u64::from(late)), (u64::from(service), held)] {
            bring(&mut sqe, KnownTime { service: Nanos(service), late: Nanos(late) });
            let time = brought(&sqe).unwrap();
            prop_assert!(service - time.service.0 < 1 << 14 && late - time.late.0 < 1 << 14, "{service} {late}: {time:?}");
        }
    }

    /// Whatever the times and the mode: everything is submitted once and completes.
    #[test]
    fn everything_is_submitted_once(
        times in prop::collection::vec(0..200_000u64, 1..50), ios in 1..400u64, depth in 1..20u32,
        mode in prop::sample::select(&["interrupt", "poll", "irq-poll", "hybrid-mean", "interrupt+submit-check"][..])
    ) {
        let trace = closed(ios, depth, None, Nanos(50), |n| times[n as usize % times.len()]);
        let outcome = run(&trace, mode);
        prop_assert_eq!((outcome.completed, outcome.stats.read.ios, outcome.sq_doorbells), (ios, ios, ios));
        prop_assert_eq!(run(&trace, mode).elapsed, outcome.elapsed, "the same again");
    }
}

/// The thread that an embedded controller is: a message to a sleeper takes its time, and interrupts nobody. Nothing is sent
/// to who polls.
#[test]
fn an_embedded_controller_posts_nothing_while_it_rouses_somebody() {
    let trace = closed(2_000, 8, Some(optane()), Nanos(0), |_| 8_000);
    let run = |mode: &str, rouse| {
        let costs = Costs { thread: crate::ThreadCosts { rouse, ..Costs::VIRTUAL.thread }, ..Costs::VIRTUAL };
        Scenario::replay(&trace, 0, mode.parse().unwrap()).unwrap().with_costs(costs).run().unwrap()
    };
    let (cheap, dear) = (run("interrupt", Nanos(0)), run("interrupt", Nanos(100_000)));
    assert!(dear.iops() < 0.6 * cheap.iops(), "{} and {}", cheap.iops(), dear.iops());
    assert_eq!((cheap.interrupts, dear.interrupts), (0, 0));
    assert_eq!(run("poll", Nanos(0)).elapsed, run("poll", Nanos(100_000)).elapsed);
}

/// Numbers that would ask for more memory than there is: refused by name, and nothing is built.
#[test]
fn a_device_beyond_all_measure_is_refused() {
    type Change = fn(&mut DeviceHead);
    let cases: [(Change, &str); 3] = [
        (|head| head.timing = Some(Timing { channels: u32::MAX, ..optane() }), "device 'device0': 4294967295 channels"),
        (|head| head.bytes = u64::MAX, "device 'device0': 18446744073709551615 bytes"),
        (|head| head.tags = u32::MAX, "device 'device0': 4294967295 tags"),
    ];
    for (change, words) in cases {
        let mut header = closed(1, 1, None, Nanos(0), |_| 1).header().clone();
        change(&mut header.devices[0]);
        let writer = Writer::new(Vec::new(), &header).unwrap();
        let trace = Arc::new(Trace::parse(writer.finish(End::default()).unwrap()).unwrap());
        let error = Scenario::replay(&trace, 0, Mode::POLL).unwrap().run().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
