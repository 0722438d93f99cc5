//! When I/Os go: pauses, lists, verification between writes.

use super::super::job_logs::LogBuffer;
use super::*;

fn ordered(direction: Direction) -> Job {
    Job {
        pattern: pattern(direction, false),
        size: Some(Amount::Bytes(64 << 10)),
        ..Job::default()
    }
}

/// When a job issues each of its I/Os, in microseconds from the first.
fn starts(job: &Job) -> Vec<u64> {
    let (mut generator, mut starts) = (generator(job), Vec::new());
    Device::new().run(&mut generator, |next, device| {
        if let Next::Issue(_) = next {
            starts.push(device.now.0 / 1000);
        }
    });
    starts.iter().map(|start| start - starts[0]).collect()
}

#[test]
fn thinktime_pauses_after_completions() {
    let think = Some(Think { time: Nanos::from_millis(1), spin: Nanos::ZERO, blocks: 4 });
    let fours = starts(&Job { think, iodepth: 8, ..ordered(Direction::Read) });
    assert_eq!(fours.len(), 16);
    for (index, pair) in fours.windows(2).enumerate() {
        assert_eq!(pair[1] - pair[0] >= 1000, index % 4 == 3, "{fours:?}");
    }
    let spin = Nanos::from_micros(300);
    let spins = Job {
        think: Some(Think { time: Nanos::from_millis(1), spin, blocks: 1 }),
        ..ordered(Direction::Read)
    };
    let (mut generator, mut now) = (generator(&spins), Nanos(1_000));
    let until = loop {
        match generator.next(now) {
            Next::Issue(io) => {
                generator.committed(now);
                now += Nanos(500);
                generator.completed(io.slot, now, Ok(()), &[]);
            }
            Next::Wait { until } if generator.in_flight() == 0 && until > now => break until,
            _ => {}
        }
    };
    assert_eq!((until, generator.spins_until()), (now + Nanos::from_millis(1), Some(now + spin)));
}

#[test]
fn iolog_keeps_order_and_time() {
    let io = |op, offset, len, at: Option<u64>| IologStep::Io {
        op,
        file: 0,
        offset,
        len,
        at: at.map(Nanos::from_micros),
    };
    let list = |steps: &[IologStep]| {
        let mut job = Job::default();
        job.set_iolog(Iolog {
            name: "list".into(),
            steps: steps.to_vec(),
            files: vec!["/d".into()],
        });
        job
    };
    let steps = [
        io(Op::Write, 8192, 4096, Some(0)),
        io(Op::Read, 512, 512, Some(200)),
        io(Op::Flush, 0, 0, Some(300)),
        io(Op::Deallocate, 0, 65536, Some(900)),
    ];
    let job = list(&steps);
    let log: Vec<(Op, u64, u32)> =
        run(&job).1.iter().map(|io| (io.op, io.offset, io.len)).collect();
    assert_eq!(
        log,
        [
            (Op::Write, 8192, 4096),
            (Op::Read, 512, 512),
            (Op::Flush, 0, 0),
            (Op::Deallocate, 0, 65536)
        ]
    );
    let times = starts(&job);
    assert!(times[1] >= 200 && times[2] >= 300 && times[3] >= 900, "{times:?}");
    let waits = list(&[
        io(Op::Read, 0, 512, None),
        IologStep::Wait(Nanos::from_millis(2)),
        io(Op::Read, 512, 512, None),
    ]);
    assert!(starts(&waits)[1] >= 2_000);
    let beyond = list(&[io(Op::Read, TARGET.bytes, 512, None)]);
    assert!(
        Generator::new(&beyond, ThreadId::default(), &[TARGET])
            .unwrap_err()
            .to_string()
            .contains("less than one block")
    );
}

/// As fio 3.33 does: observed with `--write_iolog`.
#[test]
fn verify_backlog_reads_between_writes() {
    let verify = Some(Verify { backlog: 4, backlog_batch: 4, ..Verify::default() });
    let (generator, log) = run(&Job { verify, ..ordered(Direction::Write) });
    let letters: String = log.iter().map(|io| if io.op == Op::Write { 'w' } else { 'r' }).collect();
    assert_eq!(letters, "wwwwrrrr".repeat(4));
    assert_eq!((generator.bad_count(), log[5].offset, log[12].offset), (0, 4096, 16384));
    // What is lost is found, whatever the depth and the order.
    let verify = Some(Verify { backlog: 3, backlog_batch: 2, ..Verify::default() });
    let job = Job {
        verify,
        iodepth: 8,
        pattern: pattern(Direction::Write, true),
        ..ordered(Direction::Write)
    };
    let (clean, log) = run(&job);
    assert_eq!((clean.bad_count(), log.iter().filter(|io| io.op == Op::Read).count()), (0, 16));
    let mut device = Device { loses_write: Some(9), ..Device::new() };
    assert_eq!(run_on(&mut device, &job).0.bad_count(), 1);
}

#[test]
fn continue_on_error_ends_no_job() {
    let goes_on = PerOp { read: true, ..PerOp::default() };
    let mut device = Device { fails: Some(3), ..Device::new() };
    let (generator, log) =
        run_on(&mut device, &Job { continue_on_error: goes_on, ..ordered(Direction::Read) });
    let stats = generator.stats();
    assert_eq!(
        (log.len(), stats.read.ios, stats.errors, stats.first_error, generator.error()),
        (16, 15, 1, 5, 0)
    );
}

#[test]
fn logs_hold_ios_or_averages() {
    let logs = Logs { latency: Some("l".into()), ..Logs::default() };
    let job = Job { logs, write_iolog: Some("w".into()), ..ordered(Direction::Read) };
    let (generator, log) = run(&job);
    let logs = generator.logs().unwrap();
    assert_eq!((logs.samples.len(), logs.ios.len(), logs.dropped), (16, 16, 0));
    assert!(
        logs.ios
            .iter()
            .zip(&log)
            .all(|(line, io)| (line.io.op, line.io.offset, line.io.len)
                == (io.op, io.offset, io.len))
    );
    assert!(logs.samples.iter().all(|line| line.ios == 1
        && line.bytes == 4096
        && line.mean[2] == line.mean[0] + line.mean[1]));
    let average = Nanos::from_micros(50);
    let logs = Logs { bandwidth: Some("b".into()), average, ..Logs::default() };
    let (generator, _) = run(&Job { logs, ..ordered(Direction::Read) });
    let lines = &generator.logs().unwrap().samples;
    assert!(lines.len() < 6 && lines.iter().map(|line| line.ios).sum::<u64>() == 16, "{lines:?}");
    assert!(lines.windows(2).all(|pair| pair[0].at < pair[1].at));
}

/// Each line is of the time in which its I/Os were counted: a whole one, but for the last.
#[test]
fn averaged_lines_end_where_windows_do() {
    let us = Nanos::from_micros;
    let logs = Logs { bandwidth: Some("b".into()), average: us(100), ..Logs::default() };
    let job = Job { logs, ..ordered(Direction::Read) };
    // Lines of a job from 1,000 us to `end`, with an I/O at each of `found`: end of the window, its
    // length, I/Os.
    let lines = |found: &[u64], end: u64| {
        let mut logs = LogBuffer::new(&job).unwrap();
        logs.begin(us(1_000));
        for at in found {
            logs.completed(Op::Read, 4096, [us(*at - 10), us(*at - 10), us(*at)]);
        }
        logs.end(us(end));
        logs.samples
            .iter()
            .map(|line| (line.at.0 / 1000, line.span.0 / 1000, line.ios))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&[1_010, 1_099, 1_100, 1_230], 1_240),
        [(100, 100, 2), (200, 100, 1), (240, 40, 1)]
    );
    // The last I/O comes long before the end.
    assert_eq!(lines(&[1_010, 1_120], 1_950), [(100, 100, 1), (200, 100, 1)]);
    // Nothing in the first windows, nor in one between.
    assert_eq!(lines(&[1_310, 1_510], 1_600), [(400, 100, 1), (600, 100, 1)]);
    // A run shorter than a window, and one without I/Os.
    assert_eq!(lines(&[1_010], 1_020), [(20, 20, 1)]);
    assert_eq!(lines(&[], 1_950), []);
}
