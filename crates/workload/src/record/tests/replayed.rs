//! A trace submitted again against a device of constant times.

use super::*;

/// What a replay did.
pub(super) struct Ran {
    /// Numbers of the trace's submissions, told by their offsets, as they were issued.
    pub(super) order: Vec<u64>,
    pub(super) batches: Vec<u32>,
    most: u32,
    broken: Option<String>,
}

/// Replays one thread; what is waited for takes `step` to come, the oldest first.
pub(super) fn run(trace: &Arc<Trace>, thread: usize, step: Nanos) -> Ran {
    let mut replayer = Replayer::new(trace.clone(), thread).unwrap();
    let mut ran = Ran { order: Vec::new(), batches: Vec::new(), most: 0, broken: None };
    let (mut now, mut flying, mut queued) = (Nanos(5_000), std::collections::VecDeque::new(), 0);
    loop {
        match replayer.next(now) {
            Next::Issue(io) => {
                ran.order.push(io.offset / u64::from(BLOCK));
                flying.push_back(io);
                queued += 1;
                replayer.issued(&io, now);
                ran.most = ran.most.max(replayer.in_flight());
            }
            Next::Commit => {
                ran.batches.push(std::mem::take(&mut queued));
                replayer.committed(now);
            }
            Next::Reap { min, .. } => {
                if queued > 0 || min == 0 || min as usize > flying.len() {
                    ran.broken = Some(format!("waits for {min} of {}, {queued} unannounced", flying.len()));
                }
                for io in flying.drain(..(min.max(1) as usize).min(flying.len())) {
                    now += step;
                    replayer.completed(io, now, Ok(()));
                }
            }
            Next::Wait { until } => {
                if until <= now {
                    ran.broken = Some(format!("waits at {now} until {until}"));
                }
                now = until;
            }
            Next::Done => break,
        }
        if ran.broken.is_some() {
            break;
        }
    }
    assert_eq!(ran.broken, None);
    ran
}

/// A trace of `ios` submissions whose offsets are their numbers; `wait` every so many, each after the one `depth` before.
fn closed(ios: u64, depth: u32, wait: u32, batch: u32) -> Arc<Trace> {
    let submission = |n: u64| {
        let before = n.checked_sub(depth.into());
        Submission {
            op: Op::Read,
            target: 0,
            offset: n * u64::from(BLOCK),
            len: BLOCK,
            cause: before.map_or(Cause::Start, Cause::After),
            wait: if before.is_some_and(|before| before.is_multiple_of(wait.into())) { wait } else { 0 },
            think: Nanos(0),
            ends_batch: (n + 1).is_multiple_of(wait.into()),
            service: Service::default(),
        }
    };
    parse(write(&header(1, depth, batch), &[(0..ios).map(submission).collect()]))
}

#[test]
fn a_closed_loop_keeps_its_depth_and_its_batches() {
    // The application waited for 4 at a time.
    for batch in [0, 4] {
        let ran = run(&closed(64, 16, 4, batch), 0, Nanos(10));
        assert_eq!((ran.order, ran.most), ((0..64).collect(), 16));
        assert_eq!(ran.batches, [4; 16], "{batch}");
    }
    // It took one as it came, and may put up to 4 into a batch.
    let ran = run(&closed(64, 16, 1, 4), 0, Nanos(10));
    assert_eq!((ran.batches.iter().sum::<u32>(), ran.most), (64, 16));
    assert_eq!(&ran.batches[..6], [4, 4, 4, 4, 1, 1]);
}

#[test]
fn a_rate_is_kept_and_the_depth_bounds_it() {
    let at = |n: u64| Submission {
        cause: Cause::At(Nanos(n * 1_000)),
        wait: 0,
        offset: n * 512,
        ends_batch: true,
        ..closed(1, 1, 1, 0).submissions(0).next().unwrap()
    };
    let trace = parse(write(&header(1, 2, 0), &[(0..20).map(at).collect()]));
    let mut replayer = Replayer::new(trace.clone(), 0).unwrap();
    let mut now = Nanos(77);
    for n in 0..2u64 {
        let Next::Issue(io) = replayer.next(now) else { panic!("{n}") };
        replayer.issued(&io, now);
        assert_eq!(replayer.next(now), Next::Commit);
        replayer.committed(now);
        if n == 0 {
            assert_eq!(replayer.next(now), Next::Wait { until: Nanos(1_077) });
            now = Nanos(1_077);
        }
    }
    assert_eq!(replayer.next(Nanos(9_000)), Next::Reap { min: 1, max: u32::MAX }, "two in flight is all that the thread had");
    assert_eq!(run(&trace, 0, Nanos(10)).order.len(), 20);
}

#[test]
fn a_failed_io_ends_the_replay() {
    let trace = closed(64, 4, 1, 1);
    let mut replayer = Replayer::new(trace, 0).unwrap();
    let Next::Issue(io) = replayer.next(Nanos(0)) else { panic!() };
    replayer.issued(&io, Nanos(0));
    assert_eq!(replayer.next(Nanos(0)), Next::Commit);
    replayer.committed(Nanos(0));
    replayer.completed(io, Nanos(5), Err(crate::ErrorCode::EIO));
    assert_eq!(replayer.next(Nanos(5)), Next::Done);
    assert_eq!(replayer.failure().map(|f| f.code), Some(crate::ErrorCode::EIO));
}

proptest! {
    /// Whatever a trace says: everything is submitted once, no more is in flight than there was, and it ends.
    #[test]
    fn a_replay_submits_everything_once(list in any_thread(), depth in 1..40u32, batch in 0..20u32) {
        let ios = list.len();
        let trace = parse(write(&header(1, depth, batch), &[list]));
        let ran = run(&trace, 0, Nanos(1_000));
        prop_assert_eq!(ran.order.len(), ios);
        prop_assert_eq!(ran.batches.iter().sum::<u32>() as usize, ios);
        prop_assert!(ran.most <= depth);
        prop_assert!(batch == 0 || ran.batches.iter().all(|n| *n <= batch));
    }
}
