use nvme::Sqe;

use super::super::*;
use crate::QueueSizes;
use crate::testing::{Pair, pair};

const CONFIG: RecoveryConfig = RecoveryConfig {
    command_timeout: Nanos::from_secs(1),
    grace: Nanos::from_secs(1),
    attempts: 3,
    health_interval: Nanos::from_secs(1),
    lost_timeout: Nanos::ZERO,
};

fn sec(n: u64) -> Nanos {
    Nanos::from_secs(1_000 + n)
}

/// Numbers of commands past their time-out at `now`, and of those that cause a reset.
fn late(watch: &mut TimeoutScan, pair: &Pair, now: Nanos) -> (usize, bool) {
    watch.clear();
    watch.scan(pair, now, &CONFIG);
    (watch.late.len(), watch.overdue(now, &CONFIG).is_some())
}

/// A command with this `posted_at`, first seen at second 1, after a scan at second 0.
fn first_seen_at_one(posted_at: Nanos) -> (TimeoutScan, Pair) {
    let (pair, _device, doorbells) = pair(QueueSizes { sq_entries: 8, cq_entries: 8, tags: 4 });
    let mut watch = TimeoutScan::new();
    assert_eq!(late(&mut watch, &pair, sec(0)), (0, false));
    let mut sq = pair.lock_sq();
    sq.post(Sqe::default(), 7, posted_at).unwrap();
    sq.commit(&doorbells);
    drop(sq);
    (watch, pair)
}

#[test]
fn slow_clock_makes_no_command_late() {
    let (mut watch, pair) = first_seen_at_one(Nanos(1));
    let found = (1..=4).map(|n| late(&mut watch, &pair, sec(n))).collect::<Vec<_>>();
    assert_eq!(
        found,
        [(0, false), (1, false), (1, true), (1, true)],
        "it counts from the look that saw it first"
    );
}

/// The command table compares all fields: an Abort of another command would be refused and
/// requested again, for ever.
#[test]
fn aborts_keep_the_posted_time() {
    let (mut watch, pair) = first_seen_at_one(Nanos(1));
    late(&mut watch, &pair, sec(1));
    late(&mut watch, &pair, sec(2));
    let command = watch.to_abort().map(|late| late.expired.command).unwrap();
    assert_eq!(command.posted_at, Nanos(1));
    assert!(pair.exclusive().begin_abort(&command));
}

#[test]
fn fast_clock_still_times_out() {
    let (mut watch, pair) = first_seen_at_one(sec(3600));
    let found = (1..=3).map(|n| late(&mut watch, &pair, sec(n))).collect::<Vec<_>>();
    assert_eq!(found, [(0, false), (1, false), (1, true)]);
}

#[test]
fn agreeing_clock_is_exact() {
    let posted_at = sec(1) - Nanos::from_millis(1);
    let (mut watch, pair) = first_seen_at_one(posted_at);
    assert_eq!(late(&mut watch, &pair, sec(1)), (0, false));
    let due = posted_at + CONFIG.command_timeout;
    assert_eq!(late(&mut watch, &pair, due - Nanos(1)), (0, false));
    assert_eq!(late(&mut watch, &pair, due), (1, false));
}

#[test]
fn an_answered_abort_shortens_the_wait() {
    const PATIENT: RecoveryConfig = RecoveryConfig { grace: Nanos::from_secs(10), ..CONFIG };
    let (mut watch, pair) = first_seen_at_one(sec(1));
    let overdue = |watch: &mut TimeoutScan, now: Nanos| {
        watch.clear();
        watch.scan(&pair, now, &PATIENT);
        watch.overdue(now, &PATIENT).is_some()
    };
    assert!(!overdue(&mut watch, sec(3)));
    let command = watch.to_abort().map(|late| late.expired.command).unwrap();
    assert!(pair.exclusive().begin_abort(&command));
    assert!(!overdue(&mut watch, sec(5)), "the Abort itself has ten seconds");
    pair.exclusive().end_abort(command.cid);
    // Seen at second 6 for the first time.
    let found = [sec(6), sec(7) - Nanos(1), sec(7)].map(|now| overdue(&mut watch, now));
    assert_eq!(found, [false, false, true]);
    assert_eq!(watch.next_deadline(sec(6), &PATIENT), sec(7));
}
