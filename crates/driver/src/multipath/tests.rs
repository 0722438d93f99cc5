use nvme::{AnaState, Nsid, Status};
use units::{Nanos, Op};

use super::*;

mod acknowledged;
mod invariants;
mod joining;
mod late_writes;

const MS: Nanos = Nanos::from_millis(1);

fn traits(volatile_cache: bool) -> PathTraits {
    let quiesce_after =
        PathTraits::quiesce_after(Nanos::from_millis(100), false, Nanos::from_millis(50));
    PathTraits { quiesce_after, ana_transition: Nanos::from_secs(10), volatile_cache }
}

/// Paths that are all up and optimized.
fn up(paths: usize, config: FailoverConfig) -> Failover {
    let marks = WriteMarks::new(1, paths);
    let mut failover = Failover::new(config, &vec![traits(true); paths], &marks, 0, 8).unwrap();
    (0..paths)
        .for_each(|path| failover.path_up(Nanos::ZERO, PathId(path as u8), AnaState::OPTIMIZED));
    failover
}

fn first(among: PathSet) -> PathId {
    among.first().unwrap()
}

fn poll(failover: &mut Failover, now: Nanos) -> Vec<Action> {
    std::iter::from_fn(|| failover.poll(now, |_, among| first(among))).collect()
}

fn send(failover: &mut Failover, now: Nanos, token: u64, op: Op) -> (RequestId, PathId) {
    match failover.submit(now, token, op, first) {
        Submitted::Send { request, path } => (request, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lost_write_waits_for_quiesce() {
    let mut failover = up(2, FailoverConfig::default());
    let (read, _) = send(&mut failover, MS, 1, Op::Read);
    let (write, path) = send(&mut failover, MS, 2, Op::Write);
    assert_eq!(path, PathId(0));
    failover.path_lost(MS, path);
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: read, token: 1, path: PathId(1) }]
    );
    // Two keep-alive time-outs and the quiesce time.
    assert_eq!(failover.next_deadline(), Nanos::from_millis(251));
    failover.tick(Nanos::from_millis(250));
    assert_eq!(poll(&mut failover, Nanos::from_millis(250)), []);
    failover.tick(Nanos::from_millis(251));
    assert_eq!(
        poll(&mut failover, Nanos::from_millis(251)),
        [Action::Send { request: write, token: 2, path: PathId(1) }]
    );
    assert_eq!(
        (failover.counters().held, failover.counters().longest_hold),
        (1, Nanos::from_millis(250))
    );
}

#[test]
fn acknowledged_reset_releases_held_write() {
    let mut failover = up(2, FailoverConfig::default());
    let (write, path) = send(&mut failover, MS, 2, Op::Write);
    failover.path_lost(MS, path);
    assert_eq!(poll(&mut failover, MS), []);
    failover.quiesced(MS, path);
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: write, token: 2, path: PathId(1) }]
    );
    let mut failover =
        up(2, FailoverConfig { unsafe_fast_failover: true, ..FailoverConfig::default() });
    let (write, path) = send(&mut failover, MS, 2, Op::Write);
    failover.path_lost(MS, path);
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: write, token: 2, path: PathId(1) }]
    );
    assert_eq!(failover.counters().unsafe_resends, 1);
}

fn done(token: u64, status: Status) -> CompletionOutcome {
    CompletionOutcome::Done { token, status }
}

/// Every known status: type 3h fails over, a few are transient, the rest are final.
#[test]
fn path_statuses_have_their_disposition() {
    let again = [0x007, 0x005, 0x008, 0x021, 0x022, 0x082];
    for bits in 0..0x800u16 {
        let expected = match bits {
            0 => Disposition::Complete,
            0x300..0x400 => Disposition::Failover,
            bits if again.contains(&bits) => Disposition::Retry,
            _ => Disposition::Complete,
        };
        assert_eq!(disposition(Status(bits)), expected, "{}", Status(bits));
        assert_eq!(
            disposition(Status(bits | 2 << 11).with_more()),
            expected,
            "hints do not matter"
        );
        assert_eq!(
            disposition(Status(bits).with_dnr()),
            Disposition::Complete,
            "{}",
            Status(bits).with_dnr()
        );
    }
}

#[test]
fn optimized_paths_come_first() {
    let mut failover = up(3, FailoverConfig::default());
    let set = |paths: &[u8]| paths.iter().fold(PathSet::NONE, |set, &path| set.with(PathId(path)));
    assert_eq!(failover.candidates(), set(&[0, 1, 2]));
    failover.ana_changed(MS, PathId(0), AnaState::NON_OPTIMIZED);
    assert_eq!(failover.candidates(), set(&[1, 2]));
    failover.ana_changed(MS, PathId(1), AnaState::INACCESSIBLE);
    failover.ana_changed(MS, PathId(2), AnaState::PERSISTENT_LOSS);
    assert_eq!(failover.candidates(), set(&[0]));
    failover.path_resetting(MS, PathId(0));
    assert_eq!(failover.candidates(), PathSet::NONE);
    failover.quiesced(MS, PathId(0));
    assert_eq!(failover.status(PathId(0)).unwrap().to_string(), "connecting");
    failover.path_up(MS, PathId(0), AnaState::NON_OPTIMIZED);
    assert_eq!(failover.candidates(), set(&[0]));
    let shown: Vec<_> =
        (0..3).map(|path| failover.status(PathId(path)).unwrap().to_string()).collect();
    assert_eq!(shown, ["non-optimized", "inaccessible", "persistent-loss"]);
    assert_eq!(failover.status(PathId(3)), None);
}

/// Requests up to the capacity reuse the initial slots.
#[test]
fn slots_are_used_again() {
    let mut failover = up(2, FailoverConfig::default());
    let room = failover.slots.capacity();
    let mut open = std::collections::VecDeque::new();
    for token in 0..1_000 {
        open.push_back((token, send(&mut failover, MS, token, Op::Write)));
        if open.len() == room {
            let (token, (request, path)) = open.pop_front().unwrap();
            assert_eq!(
                failover.ended(MS, request, path, Status::SUCCESS),
                done(token, Status::SUCCESS)
            );
            assert_eq!(
                failover.ended(MS, request, path, Status::SUCCESS),
                CompletionOutcome::Stale
            );
        }
    }
    assert_eq!((failover.slots.capacity(), room), (8, 8));
}

/// A selector's invalid choice is ignored.
#[test]
fn only_candidates_are_used() {
    let mut failover = up(2, FailoverConfig::default());
    failover.path_lost(MS, PathId(0));
    let Submitted::Send { path, .. } = failover.submit(MS, 1, Op::Read, |_| PathId(0)) else {
        panic!()
    };
    assert_eq!(path, PathId(1));
}

#[test]
fn only_path_errors_fail_over() {
    let mut failover = up(2, FailoverConfig::default());
    let (request, path) = send(&mut failover, MS, 1, Op::Read);
    assert_eq!(
        failover.ended(MS, request, path, Status::INTERNAL_PATH_ERROR),
        CompletionOutcome::Continues
    );
    assert_eq!(poll(&mut failover, MS), [Action::Send { request, token: 1, path: PathId(1) }]);
    assert_eq!(
        failover.ended(MS, request, path, Status::SUCCESS),
        CompletionOutcome::Stale,
        "it is on another path now"
    );
    let media = Status::UNRECOVERED_READ_ERROR;
    assert_eq!(failover.ended(MS + MS, request, PathId(1), media), done(1, media));
    assert_eq!(
        (failover.counters().retried, failover.counters().stale, failover.counters().longest_stall),
        (1, 1, MS)
    );
    assert!(failover.is_idle());
    assert_eq!(
        failover.ended(MS, request, PathId(1), Status::SUCCESS),
        CompletionOutcome::Stale,
        "it is over"
    );
}

/// A path that fails without an ANA reason is tried last, and a limited number of times.
#[test]
fn retries_end_with_last_status() {
    let config = FailoverConfig { retries: 3, ..FailoverConfig::default() };
    let mut failover = up(2, config);
    failover.ana_changed(MS, PathId(1), AnaState::NON_OPTIMIZED);
    let (request, mut path) = send(&mut failover, MS, 1, Op::Write);
    let mut tried = vec![path];
    loop {
        match failover.ended(MS, request, path, Status::CONTROLLER_PATHING_ERROR) {
            CompletionOutcome::Continues => {
                let [Action::Send { path: next, .. }] = poll(&mut failover, MS)[..] else {
                    panic!()
                };
                path = next;
                tried.push(path);
            }
            ended => {
                assert_eq!(ended, done(1, Status::CONTROLLER_PATHING_ERROR));
                break;
            }
        }
    }
    assert_eq!(tried, [0, 1, 0, 0].map(PathId), "the other one first, even if it is not optimized");
}

#[test]
fn ana_status_holds_until_log_read() {
    let mut failover = up(2, FailoverConfig::default());
    let (request, path) = send(&mut failover, MS, 1, Op::Write);
    let (second, _) = send(&mut failover, MS, 2, Op::Write);
    assert_eq!(
        failover.ended(MS, request, path, Status::ANA_INACCESSIBLE),
        CompletionOutcome::Continues
    );
    assert_eq!(
        failover.ended(MS, second, path, Status::ANA_INACCESSIBLE),
        CompletionOutcome::Continues
    );
    assert_eq!(failover.candidates(), PathSet::of(PathId(1)));
    let told = poll(&mut failover, MS);
    assert_eq!(
        told.iter().filter(|action| **action == Action::ReadAna(path)).count(),
        1,
        "{told:?}"
    );
    assert_eq!(
        told.iter().filter(|action| matches!(action, Action::Send { path: PathId(1), .. })).count(),
        2
    );
    failover.ana_changed(MS, path, AnaState::OPTIMIZED);
    assert_eq!(failover.candidates().len(), 2);
}

#[test]
fn change_beyond_anatt_resets_path() {
    let mut failover = up(2, FailoverConfig::default());
    failover.ana_changed(MS, PathId(0), AnaState::CHANGE);
    let over = MS + Nanos::from_secs(10);
    assert_eq!(failover.next_deadline(), over);
    // A repeated report does not restart the time; another state ends it.
    failover.ana_changed(over - MS, PathId(0), AnaState::CHANGE);
    assert_eq!(failover.next_deadline(), over);
    failover.tick(over - Nanos(1));
    assert_eq!(poll(&mut failover, over), []);
    failover.tick(over);
    assert_eq!(poll(&mut failover, over), [Action::Reset(PathId(0))]);
    failover.tick(over + over);
    assert_eq!(poll(&mut failover, over), [], "once is enough");
    failover.ana_changed(over, PathId(1), AnaState::CHANGE);
    failover.ana_changed(over, PathId(1), AnaState::OPTIMIZED);
    assert_eq!(failover.next_deadline(), Nanos::MAX);
}

#[test]
fn requests_wait_for_a_path() {
    let config = FailoverConfig {
        no_path_limit: 2,
        no_path_timeout: Nanos::from_secs(3),
        ..FailoverConfig::default()
    };
    let mut failover = up(1, config);
    let path = PathId(0);
    failover.path_lost(MS, path);
    assert_eq!(failover.submit(MS, 1, Op::Read, first), Submitted::Queued);
    assert_eq!(failover.submit(MS + MS, 2, Op::Write, first), Submitted::Queued);
    let refused = failover.submit(MS, 3, Op::Read, first);
    assert_eq!(refused, Submitted::Refused(Failure::TooManyWaiting { waiting: 2 }));
    let over = MS + Nanos::from_secs(3);
    failover.tick(over);
    let failure = Failure::NoPath { waited: Nanos::from_secs(3) };
    assert_eq!(poll(&mut failover, over), [Action::Fail { token: 1, failure }]);
    assert_eq!(failure.to_string(), "no path was usable for 3000.0 ms");
    failover.quiesced(over, path);
    assert_eq!(poll(&mut failover, over), [], "stopped is not up");
    failover.path_up(over, path, AnaState::OPTIMIZED);
    let [Action::Send { request, token: 2, .. }] = poll(&mut failover, over)[..] else { panic!() };
    assert_eq!(failover.ended(over, request, path, Status::SUCCESS), done(2, Status::SUCCESS));
    assert_eq!((failover.counters().waited, failover.counters().failed), (2, 2));
    assert_eq!(failover.counters().longest_stall, Nanos::from_secs(3));
}

/// After closing, no request waits: neither those in flight nor new ones.
#[test]
fn closing_fails_waiting_requests() {
    let never = PathTraits { quiesce_after: None, ..traits(false) };
    let mut failover =
        Failover::new(FailoverConfig::default(), &[never; 2], &WriteMarks::new(1, 2), 0, 4)
            .unwrap();
    (0..2).for_each(|path| failover.path_up(MS, PathId(path), AnaState::OPTIMIZED));
    send(&mut failover, MS, 1, Op::Write);
    (0..2).for_each(|path| failover.path_lost(MS, PathId(path)));
    assert_eq!(failover.submit(MS, 2, Op::Read, first), Submitted::Queued);
    assert_eq!(poll(&mut failover, MS), []);
    let later = MS + MS;
    failover.fail_pending(later);
    let (no_path, unsettled) =
        (Failure::NoPath { waited: MS }, Failure::OutcomeUnknown { path: PathId(0), waited: MS });
    assert_eq!(
        poll(&mut failover, later),
        [
            Action::Fail { token: 2, failure: no_path },
            Action::Fail { token: 1, failure: unsettled }
        ]
    );
    assert_eq!(failover.submit(later, 3, Op::Read, first), Submitted::Queued);
    assert_eq!(failover.next_deadline(), later);
    failover.path_up(later, PathId(1), AnaState::OPTIMIZED);
    let [Action::Send { request, token: 3, path }] = poll(&mut failover, later)[..] else {
        panic!()
    };
    let status = Status::INTERNAL_PATH_ERROR;
    assert_eq!(failover.ended(later, request, path, status), done(3, status));
}

/// A held write's own completion decides it.
#[test]
fn late_completion_ends_held_write() {
    let mut failover = up(2, FailoverConfig::default());
    let (write, path) = send(&mut failover, MS, 1, Op::Write);
    let (other, _) = send(&mut failover, MS, 2, Op::Write);
    failover.path_lost(MS, path);
    assert_eq!(failover.ended(MS, write, path, Status::SUCCESS), done(1, Status::SUCCESS));
    assert_eq!(
        failover.ended(MS, other, path, Status::INTERNAL_PATH_ERROR),
        CompletionOutcome::Continues
    );
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: other, token: 2, path: PathId(1) }]
    );
    failover.quiesced(MS, path);
    assert_eq!(poll(&mut failover, MS), []);
}

/// Host-generated statuses say nothing about the controller.
#[test]
fn aborted_write_waits_for_reset() {
    for status in [Status::ABORTED_BY_HOST, Status::HOST_PATHING_ERROR] {
        let mut failover = up(2, FailoverConfig::default());
        let (write, path) = send(&mut failover, MS, 1, Op::Write);
        let (read, _) = send(&mut failover, MS, 2, Op::Read);
        assert_eq!(failover.ended(MS, write, path, status), CompletionOutcome::Continues);
        assert_eq!(failover.ended(MS, read, path, status), CompletionOutcome::Continues);
        let told = poll(&mut failover, MS);
        assert_eq!(
            told,
            [Action::Reset(path), Action::Send { request: read, token: 2, path: PathId(1) }]
        );
        failover.path_resetting(MS, path);
        assert_eq!(poll(&mut failover, MS), []);
        failover.quiesced(MS, path);
        assert_eq!(
            poll(&mut failover, MS),
            [Action::Send { request: write, token: 1, path: PathId(1) }]
        );
    }
}

/// Without keep-alive only a reset ends the wait, unless `held_timeout` is set.
#[test]
fn held_timeout_fails_held_write() {
    let never = PathTraits { quiesce_after: None, ..traits(false) };
    for (held_timeout, expected) in [(Nanos::MAX, false), (Nanos::from_secs(5), true)] {
        let config = FailoverConfig { held_timeout, ..FailoverConfig::default() };
        let mut failover =
            Failover::new(config, &[never; 2], &WriteMarks::new(1, 2), 0, 4).unwrap();
        (0..2).for_each(|path| failover.path_up(MS, PathId(path), AnaState::OPTIMIZED));
        send(&mut failover, MS, 1, Op::Write);
        failover.path_lost(MS, PathId(0));
        assert_eq!(failover.next_deadline(), MS + held_timeout);
        let later = Nanos::from_secs(1_000);
        failover.tick(later);
        let failure = Failure::OutcomeUnknown { path: PathId(0), waited: later - MS };
        let failed = poll(&mut failover, later);
        assert_eq!(
            failed,
            if expected { vec![Action::Fail { token: 1, failure }] } else { vec![] }
        );
    }
}

/// The only path: a held write fails when requests without a path do, and after the end of the
/// fence its outcome is as unknown.
#[test]
fn only_path_fails_held_write() {
    for (no_path_timeout, at) in
        [(MS + MS, MS + MS + MS), (Nanos::from_secs(1), Nanos::from_secs(2))]
    {
        let mut failover = up(1, FailoverConfig { no_path_timeout, ..FailoverConfig::default() });
        send(&mut failover, MS, 1, Op::Write);
        failover.path_lost(MS, PathId(0));
        assert_eq!(failover.submit(MS, 2, Op::Write, first), Submitted::Queued);
        failover.tick(MS + MS);
        assert_eq!(poll(&mut failover, MS + MS), []);
        while failover.next_deadline() <= at {
            let now = failover.next_deadline();
            failover.tick(now);
            for action in poll(&mut failover, now) {
                let unknown = Failure::OutcomeUnknown { path: PathId(0), waited: now - MS };
                let unsent = Failure::NoPath { waited: now - MS };
                assert!(
                    [
                        Action::Fail { token: 1, failure: unknown },
                        Action::Fail { token: 2, failure: unsent }
                    ]
                    .contains(&action),
                    "{action:?}"
                );
            }
        }
        assert!(failover.is_idle());
    }
}

/// Writes on two paths, one of them flushed.
fn with_writes() -> Failover {
    let mut failover =
        up(2, FailoverConfig { no_path_timeout: Nanos::from_secs(3), ..FailoverConfig::default() });
    flush(&mut failover, 100, &[0, 1]);
    for (token, path) in [(1, 0), (2, 1)] {
        let Submitted::Send { request, path } =
            failover.submit(MS, token, Op::Write, |_| PathId(path))
        else {
            panic!()
        };
        assert_eq!(
            failover.ended(MS, request, path, Status::SUCCESS),
            done(token, Status::SUCCESS)
        );
    }
    failover
}

/// A Flush that is sent on these paths and succeeds.
fn flush(failover: &mut Failover, token: u64, expected: &[u8]) {
    let request = begin_flush(failover, token, expected);
    for (n, &path) in expected.iter().enumerate() {
        let ended = failover.ended(MS, request, PathId(path), Status::SUCCESS);
        assert_eq!(
            ended,
            if n + 1 == expected.len() {
                done(token, Status::SUCCESS)
            } else {
                CompletionOutcome::Continues
            }
        );
    }
}

fn begin_flush(failover: &mut Failover, token: u64, expected: &[u8]) -> RequestId {
    assert_eq!(failover.submit(MS, token, Op::Flush, first), Submitted::Queued);
    let sent: Vec<_> = poll(failover, MS)
        .into_iter()
        .map(|action| match action {
            Action::Send { request, path, .. } => (request, path.0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent.iter().map(|&(_, path)| path).collect::<Vec<_>>(), expected);
    sent[0].0
}

#[test]
fn flush_covers_every_written_path() {
    let mut failover = with_writes();
    flush(&mut failover, 3, &[0, 1]);
    let Submitted::Send { request, path } = failover.submit(MS, 4, Op::Write, |_| PathId(1)) else {
        panic!()
    };
    failover.ended(MS, request, path, Status::SUCCESS);
    flush(&mut failover, 5, &[1]);
    // If no controller needs the Flush, one is enough.
    flush(&mut failover, 6, &[0]);
    assert_eq!(
        failover.counters(),
        MultipathCounters::default(),
        "nothing of this was out of the ordinary"
    );
    // A write that completes while a Flush is in flight is not covered.
    let open = begin_flush(&mut failover, 7, &[0]);
    let Submitted::Send { request, path } = failover.submit(MS, 8, Op::Write, |_| PathId(0)) else {
        panic!()
    };
    failover.ended(MS, request, path, Status::SUCCESS);
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), done(7, Status::SUCCESS));
    flush(&mut failover, 9, &[0]);
}

#[test]
fn flush_fails_if_path_stays_uncovered() {
    let mut failover = with_writes();
    failover.path_lost(MS, PathId(0));
    let open = begin_flush(&mut failover, 3, &[1]);
    assert_eq!(failover.ended(MS, open, PathId(1), Status::SUCCESS), CompletionOutcome::Continues);
    let over = MS + Nanos::from_secs(3);
    failover.tick(over - Nanos(1));
    assert_eq!(poll(&mut failover, over), []);
    failover.tick(over);
    let failure = Failure::FlushBlocked { path: PathId(0), waited: Nanos::from_secs(3) };
    assert_eq!(poll(&mut failover, over), [Action::Fail { token: 3, failure }]);
    // If the path returns in time it is flushed after all, and no path twice.
    let open = {
        assert_eq!(failover.submit(over, 4, Op::Flush, first), Submitted::Queued);
        assert_eq!(poll(&mut failover, over), []);
        failover.path_up(over, PathId(0), AnaState::OPTIMIZED);
        let [Action::Send { request, path: PathId(0), .. }] = poll(&mut failover, over)[..] else {
            panic!()
        };
        request
    };
    assert_eq!(failover.ended(over, open, PathId(0), Status::SUCCESS), done(4, Status::SUCCESS));
}

#[test]
fn failed_flush_waits_for_its_parts() {
    let mut failover = with_writes();
    let open = begin_flush(&mut failover, 3, &[0, 1]);
    assert_eq!(
        failover.ended(MS, open, PathId(0), Status::WRITE_FAULT),
        CompletionOutcome::Continues,
        "one part is out"
    );
    assert_eq!(failover.ended(MS, open, PathId(1), Status::SUCCESS), done(3, Status::WRITE_FAULT));
    // The failed path still needs a Flush.
    flush(&mut failover, 4, &[0]);
    // It also ends if the other path is lost.
    let mut failover = with_writes();
    let open = begin_flush(&mut failover, 3, &[0, 1]);
    assert_eq!(
        failover.ended(MS, open, PathId(0), Status::WRITE_FAULT),
        CompletionOutcome::Continues
    );
    failover.path_lost(MS, PathId(1));
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Complete { token: 3, status: Status::WRITE_FAULT }]
    );
    assert!(failover.is_idle());
}

/// A failed Flush is retried on the same path only: that is where the writes are.
#[test]
fn flush_part_stays_on_its_path() {
    let mut failover = with_writes();
    let open = begin_flush(&mut failover, 3, &[0, 1]);
    assert_eq!(
        failover.ended(MS, open, PathId(1), Status::ANA_TRANSITION),
        CompletionOutcome::Continues
    );
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), CompletionOutcome::Continues);
    assert_eq!(poll(&mut failover, MS), [Action::ReadAna(PathId(1))]);
    failover.ana_changed(MS, PathId(1), AnaState::NON_OPTIMIZED);
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: open, token: 3, path: PathId(1) }]
    );
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), CompletionOutcome::Stale);
    assert_eq!(failover.ended(MS, open, PathId(1), Status::SUCCESS), done(3, Status::SUCCESS));
}

#[test]
fn lost_cache_fails_later_flushes() {
    let mut failover = with_writes();
    failover.path_lost(MS, PathId(1));
    let open = begin_flush(&mut failover, 3, &[0]);
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), CompletionOutcome::Continues);
    failover.marks.clone().cache_lost(PathId(1));
    failover.path_up(MS, PathId(1), AnaState::OPTIMIZED);
    let failure = Failure::CacheLost { path: PathId(1) };
    assert_eq!(poll(&mut failover, MS), [Action::Fail { token: 3, failure }]);
    assert_eq!(failover.submit(MS, 4, Op::Flush, first), Submitted::Refused(failure));
}

#[test]
fn flushed_cache_may_be_lost() {
    let mut failover = with_writes();
    flush(&mut failover, 3, &[0, 1]);
    failover.path_lost(MS, PathId(1));
    failover.marks.clone().cache_lost(PathId(1));
    failover.path_up(MS, PathId(1), AnaState::OPTIMIZED);
    flush(&mut failover, 4, &[0]);
    // Nor writes from before this process, which it did not acknowledge.
    let fresh = WriteMarks::new(1, 2);
    fresh.cache_lost(PathId(0));
    assert_eq!(fresh.lost_writes(), PathSet::NONE);
}

/// A Flush covers other queues' writes.
#[test]
fn queues_share_their_marks() {
    let marks = WriteMarks::new(3, 2);
    let queue = |queue| {
        let mut failover =
            Failover::new(FailoverConfig::default(), &[traits(true); 2], &marks, queue, 4).unwrap();
        (0..2).for_each(|path| failover.path_up(MS, PathId(path), AnaState::OPTIMIZED));
        failover
    };
    let (mut a, mut b) = (queue(0), queue(2));
    flush(&mut a, 1, &[0, 1]);
    flush(&mut b, 1, &[0]);
    let Submitted::Send { request, path } = b.submit(MS, 2, Op::Write, |_| PathId(1)) else {
        panic!()
    };
    b.ended(MS, request, path, Status::SUCCESS);
    flush(&mut a, 3, &[1]);
    flush(&mut b, 4, &[0]);
}

/// The first Flush of a process covers earlier writes where possible; it does not fail otherwise.
#[test]
fn first_flush_covers_usable_paths() {
    let mut failover = up(3, FailoverConfig::default());
    failover.path_lost(MS, PathId(1));
    let open = begin_flush(&mut failover, 1, &[0, 2]);
    failover.path_lost(MS, PathId(2));
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), done(1, Status::SUCCESS));
    // Unreachable paths are flushed next time. If no command succeeded, any other path will do.
    failover.path_up(MS, PathId(2), AnaState::OPTIMIZED);
    let open = begin_flush(&mut failover, 2, &[2]);
    failover.path_lost(MS, PathId(2));
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: open, token: 2, path: PathId(0) }]
    );
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), done(2, Status::SUCCESS));
    // The last command may be lost if another has succeeded.
    let mut failover = up(2, FailoverConfig::default());
    let open = begin_flush(&mut failover, 1, &[0, 1]);
    assert_eq!(failover.ended(MS, open, PathId(0), Status::SUCCESS), CompletionOutcome::Continues);
    failover.path_lost(MS, PathId(1));
    assert_eq!(poll(&mut failover, MS), [Action::Complete { token: 1, status: Status::SUCCESS }]);
}

/// ANA statuses do not count as retries, but are limited by time.
#[test]
fn ana_statuses_count_by_time() {
    let config = FailoverConfig {
        retries: 1,
        no_path_timeout: Nanos::from_secs(3),
        ..FailoverConfig::default()
    };
    let mut failover = up(1, config);
    let (request, path) = send(&mut failover, MS, 1, Op::Read);
    let mut now = MS;
    for _ in 0..20 {
        assert_eq!(
            failover.ended(now, request, path, Status::ANA_TRANSITION),
            CompletionOutcome::Continues
        );
        assert_eq!(poll(&mut failover, now), [Action::ReadAna(path)]);
        now += Nanos::from_millis(100);
        failover.ana_changed(now, path, AnaState::OPTIMIZED);
        assert_eq!(poll(&mut failover, now), [Action::Send { request, token: 1, path }]);
    }
    let over = MS + Nanos::from_secs(3);
    assert_eq!(
        failover.ended(over, request, path, Status::ANA_TRANSITION),
        done(1, Status::ANA_TRANSITION)
    );
}

#[test]
fn flush_needs_one_path_without_cache() {
    let mut failover =
        Failover::new(FailoverConfig::default(), &[traits(false); 3], &WriteMarks::new(1, 3), 0, 4)
            .unwrap();
    (0..3).for_each(|path| failover.path_up(MS, PathId(path), AnaState::OPTIMIZED));
    let Submitted::Send { request, path } = failover.submit(MS, 1, Op::Write, |_| PathId(2)) else {
        panic!()
    };
    failover.ended(MS, request, path, Status::SUCCESS);
    let open = begin_flush(&mut failover, 2, &[0]);
    failover.path_lost(MS, PathId(0));
    assert_eq!(
        poll(&mut failover, MS),
        [Action::Send { request: open, token: 2, path: PathId(1) }]
    );
    assert_eq!(failover.ended(MS, open, PathId(1), Status::SUCCESS), done(2, Status::SUCCESS));
}

#[test]
fn path_counts_have_limits() {
    let make = |paths: usize| {
        Failover::new(
            FailoverConfig::default(),
            &vec![traits(true); paths],
            &WriteMarks::new(2, paths),
            1,
            1,
        )
        .map(|mut failover| {
            (0..paths)
                .for_each(|path| failover.path_up(MS, PathId(path as u8), AnaState::OPTIMIZED));
            let last = PathId(paths as u8 - 1);
            let Submitted::Send { request, path } = failover.submit(MS, 1, Op::Write, |_| last)
            else {
                panic!()
            };
            failover.ended(MS, request, path, Status::SUCCESS);
            let all: Vec<_> = (0..paths as u8).collect();
            flush(&mut failover, 2, &all);
            failover.candidates().len()
        })
    };
    assert_eq!(
        [make(0), make(1), make(64), make(65)],
        [Err(TooManyPaths(0)), Ok(1), Ok(64), Err(TooManyPaths(65))]
    );
    assert_eq!(TooManyPaths(65).to_string(), "65 paths: there must be 1 to 64");
    let mut failover = up(1, FailoverConfig::default());
    failover.path_lost(MS, PathId(9));
    failover.ana_changed(MS, PathId(64), AnaState::CHANGE);
    assert_eq!(
        (failover.candidates().len(), failover.next_deadline()),
        (1, Nanos::MAX),
        "paths that there are not"
    );
}

#[test]
fn sets_are_sets() {
    let set = PathSet::NONE.with(PathId(63)).with(PathId(0)).with(PathId(7));
    assert_eq!(set.iter().map(|path| path.0).collect::<Vec<_>>(), [0, 7, 63]);
    assert_eq!(
        (set.len(), set.first(), set.contains(PathId(7)), set.contains(PathId(8))),
        (3, Some(PathId(0)), true, false)
    );
    assert_eq!(set.without(PathSet::of(PathId(0))).and(set).first(), Some(PathId(7)));
    assert!(PathSet::NONE.is_empty() && PathSet::NONE.first().is_none());
}
