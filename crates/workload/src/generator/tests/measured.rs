//! What is measured, and when.

use super::*;

#[test]
fn clat_starts_at_the_doorbell() {
    let job = Job { iodepth: 4, batch_submit: 4, complete_min: 4, ..Job::default() };
    let (generator, _) = run(&job);
    let read = &generator.stats().read;
    assert_eq!(
        (read.slat.moments.min(), read.slat.moments.max(), read.slat.moments.n),
        (100, 100, 256)
    );
    assert_eq!((read.clat.moments.min(), read.clat.moments.max()), (10_000, 10_000));
    assert_eq!((read.lat.moments.min(), read.lat.moments.max()), (10_100, 10_100));
    assert_eq!(read.intended.moments.n, 0);
    assert_eq!(read.runtime, Nanos(64 * 10_100));
    assert_eq!((read.ios, read.bytes, read.issued), (256, 1 << 20, 256));
}

#[test]
fn overload_shows_in_intended_latency() {
    // The device takes 100 µs, one at a time; 20k IOPS would need 50 µs.
    let rate = PerOp::all(Some(Rate::Iops(20_000)));
    let job = Job {
        rate,
        number_ios: Some(1000),
        io_size: Some(Amount::Bytes(u64::MAX)),
        ..Job::default()
    };
    let mut device = Device { service: Nanos::from_micros(100), ..Device::new() };
    let (generator, _) = run_on(&mut device, &job);
    let read = &generator.stats().read;
    assert!(read.lat.moments.max() < 101_000, "the device itself is as fast as ever");
    assert!(
        read.intended.moments.max() > 49_000_000,
        "but the last I/O started 50 ms late: {}",
        read.intended.moments.max()
    );
    // A device that keeps up hides nothing.
    let mut fast = Device { service: Nanos::from_micros(10), ..Device::new() };
    let (generator, _) = run_on(&mut fast, &job);
    let read = &generator.stats().read;
    assert!(read.intended.moments.max() < 25_000);
    assert!((iops(read) - 20_000.0).abs() < 100.0, "{}", iops(read));
}

#[test]
fn full_queue_reports_when_due() {
    // A device of 100 µs, one at a time, and an I/O each 50 µs: the second is due in the middle of
    // the first.
    let rate = PerOp::all(Some(Rate::Iops(20_000)));
    let job = Job { rate, number_ios: Some(3), ..Job::default() };
    let (mut generator, mut device) = (generator(&job), Device::new());
    let start = device.now;
    let mut due = Vec::new();
    for _ in 0..10 {
        match generator.next(device.now) {
            Next::Issue(io) => device.issue(&mut generator, io),
            Next::Commit => generator.committed(device.now),
            Next::Reap { .. } => {
                due.push(generator.next_due().map(|due| due - start));
                device.now += Nanos::from_micros(100);
                device.complete(&mut generator);
            }
            Next::Done => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        due,
        [Some(Nanos::from_micros(50)), Some(Nanos::from_micros(100)), None],
        "nothing follows the third"
    );
    assert_eq!(super::generator(&Job::default()).next_due(), None, "no rate");
}

#[test]
fn rate_processes_keep_the_mean() {
    for process in [RateProcess::Linear, RateProcess::Poisson] {
        let rate =
            PerOp { read: Some(Rate::Bytes(40 << 20)), write: Some(Rate::Iops(2_000)), trim: None };
        let job = Job {
            rate,
            rate_process: process,
            pattern: pattern(Direction::Mixed, true),
            read_percent: 84,
            iodepth: 64,
            runtime: Some(Nanos::from_secs(4)),
            time_based: true,
            ..Job::default()
        };
        let (generator, _) = run(&job);
        let (read, write) = (&generator.stats().read, &generator.stats().write);
        assert!((iops(read) / 10_240.0 - 1.0).abs() < 0.05, "{process:?} {}", iops(read));
        assert!((iops(write) / 2_000.0 - 1.0).abs() < 0.05, "{process:?} {}", iops(write));
    }
}

/// Reads and writes at two rates that are not as 84 to 16.
fn two_rates(process: RateProcess) -> Job {
    let rate =
        PerOp { read: Some(Rate::Iops(7_000)), write: Some(Rate::Bytes(3_000 * 4096)), trim: None };
    let pattern = pattern(Direction::Mixed, true);
    let job = Job {
        rate,
        rate_process: process,
        pattern,
        read_percent: 84,
        iodepth: 64,
        ..Job::default()
    };
    Job { number_ios: Some(20_000), io_size: Some(Amount::Bytes(u64::MAX)), ..job }
}

/// When each I/O was meant to start, and how many of them read.
fn starts(mut generator: Generator) -> (Vec<Nanos>, usize) {
    let (mut device, mut due, mut reads) = (Device::new(), Vec::new(), 0);
    loop {
        match generator.next(device.now) {
            Next::Issue(io) => {
                device.issue(&mut generator, io);
                due.push(generator.flight.extras[io.slot as usize].intended);
                reads += usize::from(io.op == Op::Read);
            }
            Next::Commit => generator.committed(device.now),
            Next::Wait { until } => {
                device.now = until;
                device.complete(&mut generator);
            }
            Next::Reap { .. } => device.complete(&mut generator),
            Next::Done => return (due, reads),
        }
    }
}

/// A job that waits for its time keeps no other waiting whose time has come.
#[test]
fn earlier_of_two_rates_is_next() {
    for process in [RateProcess::Linear, RateProcess::Poisson] {
        let (due, reads) = starts(generator(&two_rates(process)));
        assert!(due.len() == 20_000 && due.is_sorted(), "{process:?}");
        assert!(reads.abs_diff(14_000) < 300, "the mix is that of the rates: {reads} reads");
        // Negative test: the mix is drawn at random.
        let mut rng = generator(&two_rates(process));
        rng.stream.mix_pacing = None;
        assert!(!starts(rng).0.is_sorted());
    }
}

#[test]
fn unused_rate_changes_no_mix() {
    let job = Job { read_percent: 100, ..two_rates(RateProcess::Poisson) };
    assert_eq!(starts(generator(&job)).1, 20_000);
}

#[test]
fn two_rate_mix_is_verified() {
    let verify = Some(Verify::default());
    let job = Job { verify, io_size: None, ..two_rates(RateProcess::Poisson) };
    let (generator, log) = run(&job);
    assert_eq!((generator.bad_count(), generator.error()), (0, 0));
    let written = log.iter().filter(|io| io.op == Op::Write).count();
    assert!(
        log[log.len() - written..].iter().all(|io| io.op == Op::Read),
        "each write is read back"
    );
}

#[test]
fn runtime_starts_after_the_ramp() {
    let job = Job {
        ramp_time: Nanos::from_millis(500),
        runtime: Some(Nanos::from_secs(2)),
        time_based: true,
        start_delay: (Nanos::from_secs(1), Nanos::from_secs(1)),
        ..Job::default()
    };
    let mut device = Device::new();
    let (generator, log) = run_on(&mut device, &job);
    let read = &generator.stats().read;
    assert_eq!(read.runtime.0 / 1_000_000, 2000);
    assert_eq!(device.now.0 / 1_000_000, 3500);
    // One I/O per 10.1 µs.
    assert_eq!(read.ios / 1000, 198);
    assert_eq!(log.len() / 1000, 247);
    // Samples at 500 ms, three of them before the end.
    assert_eq!(read.iops.n, 3);
    assert!((read.iops.mean() - 99_009.0).abs() < 10.0);
    assert!((read.bw.mean() - 99_009.0 * 4.0).abs() < 40.0);
}

#[test]
fn a_job_within_its_ramp_counts() {
    // 256 I/Os of 10.1 us.
    let job = Job {
        ramp_time: Nanos::from_secs(1),
        start_delay: (Nanos::from_secs(1), Nanos::from_secs(1)),
        ..Job::default()
    };
    let (generator, _) = run(&job);
    let read = &generator.stats().read;
    assert_eq!((read.ios, read.bytes, read.runtime), (256, 1 << 20, Nanos(256 * 10_100)));
    assert_eq!((read.lat.moments.n, read.lat.moments.max()), (256, 10_100));
    // A job that is stopped before it began has nothing to count.
    let mut unborn = super::generator(&job);
    unborn.stop();
    assert_eq!(unborn.next(Nanos(5)), Next::Done);
    assert_eq!((unborn.stats().read.ios, unborn.stats().read.runtime), (0, Nanos::ZERO));
}

#[test]
fn size_or_runtime_ends_the_job() {
    let short = Job { runtime: Some(Nanos::from_millis(1)), ..Job::default() };
    assert!((95..=105).contains(&run(&short).1.len()));
    let long = Job { runtime: Some(Nanos::from_secs(9)), ..Job::default() };
    assert_eq!(run(&long).1.len(), 256);
    let twice = Job { loops: 2, ..Job::default() };
    assert_eq!(run(&twice).1.len(), 512);
    let few = Job { number_ios: Some(7), ..Job::default() };
    assert_eq!(run(&few).1.len(), 7);
}

#[test]
fn stop_drains_and_keeps_figures() {
    let job = Job { iodepth: 8, batch_submit: 4, ..Job::default() };
    let mut generator = generator(&job);
    let mut device = Device::new();
    for _ in 0..50 {
        match generator.next(device.now) {
            Next::Issue(io) => device.issue(&mut generator, io),
            Next::Commit => generator.committed(device.now),
            Next::Reap { .. } => device.complete(&mut generator),
            other => panic!("{other:?}"),
        }
    }
    let issued = device.ios + device.flying.len() as u64;
    generator.stop();
    device.run(&mut generator, |next, _| assert!(!matches!(next, Next::Issue(_))));
    assert_eq!(generator.stats().read.ios, issued);
    assert_eq!(generator.error(), 0);
    // Before it began, and after it ended.
    let mut unborn = super::generator(&job);
    unborn.stop();
    assert_eq!(unborn.next(Nanos(5)), Next::Done);
    unborn.stop();
    assert_eq!(unborn.next(Nanos(6)), Next::Done);
}

#[test]
fn the_first_error_ends_the_job() {
    let mut device = Device { fails: Some(20), ..Device::new() };
    let (generator, log) = run_on(&mut device, &Job { iodepth: 8, ..Job::default() });
    assert!(log.len() < 40);
    assert_eq!(generator.error(), 5);
    assert_eq!(generator.stats().read.ios, log.len() as u64 - 1);
    let failure = generator.failure().unwrap();
    assert!(failure.to_string().ends_with("length 4096: Input/output error"), "{failure}");
}

#[test]
fn unknown_completions_are_ignored() {
    let mut generator = generator(&Job::default());
    let io = Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 4096 };
    generator.completed(io.slot, Nanos(1), Ok(()), &[]);
    generator.completed(9999, Nanos(1), Ok(()), &[]);
    assert_eq!((generator.in_flight(), generator.stats().read.ios), (0, 0));
}

#[test]
fn progress_goes_from_nothing_to_all() {
    let job = Job { runtime: Some(Nanos::from_millis(1)), time_based: true, ..Job::default() };
    let mut generator = generator(&job);
    let mut device = Device::new();
    let mut last = 0.0;
    for _ in 0..1000 {
        let next = generator.next(device.now);
        let progress = generator.progress(device.now);
        assert!((last..=1.0).contains(&progress));
        last = progress;
        match next {
            Next::Issue(io) => device.issue(&mut generator, io),
            Next::Commit => generator.committed(device.now),
            Next::Reap { .. } => {
                device.now += device.service;
                device.complete(&mut generator);
            }
            _ => break,
        }
    }
    assert_eq!(last, 1.0);
}

/// What is left is known from what is done: delay and ramp are part of it.
#[test]
fn progress_is_even_over_phases() {
    let millis = Nanos::from_millis;
    let job = Job {
        start_delay: (millis(20), millis(20)),
        ramp_time: millis(30),
        runtime: Some(millis(50)),
        time_based: true,
        ..Job::default()
    };
    let mut generator = generator(&job);
    let mut seen = Vec::new();
    let begin = Nanos(1_000);
    assert_eq!(generator.progress(begin), 0.0);
    for at in 0..=100 {
        let now = begin + millis(at);
        // Until it waits for time to pass, or has ended.
        for _ in 0..64 {
            match generator.next(now) {
                Next::Issue(io) => {
                    generator.committed(now);
                    generator.completed(io.slot, now, Ok(()), &[]);
                }
                Next::Done => break,
                _ => generator.committed(now),
            }
        }
        seen.push((at, generator.progress(now)));
    }
    for (at, progress) in seen {
        assert!((progress - at as f64 / 100.0).abs() < 0.02, "{at} ms: {progress}");
    }
}

fn iops(stats: &crate::OpStats) -> f64 {
    stats.ios as f64 / stats.runtime.as_secs_f64()
}
