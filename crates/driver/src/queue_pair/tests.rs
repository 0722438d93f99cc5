use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::testing::pair;
use nvme::Cqe;

const SIZES: QueueSizes = QueueSizes { sq_entries: 8, cq_entries: 6, tags: 5 };

fn post(pair: &crate::testing::Pair, tokens: std::ops::Range<u64>) -> Vec<Result<Cid, NoTag>> {
    let mut sq = pair.lock_sq();
    tokens.map(|token| sq.post(Sqe { opcode: 2, ..Sqe::default() }, token, Nanos(token))).collect()
}

/// For any number of tags, the next fifteen commands of a tag have other CIDs: a repeated
/// completion ends none of them.
#[test]
fn repeated_completion_ends_no_other_command() {
    for tags in [1, 255, 4094, 4095, 4096, 16_384, 32_767, 32_768, 65_535] {
        let sizes = QueueSizes { sq_entries: 65_536, cq_entries: 65_536, tags };
        let made = QueuePair::new(
            QueueId(1),
            sizes,
            crate::testing::MemSq::new(65_536),
            crate::testing::MemCq::new(65_536),
        );
        let Ok(pair) = made else {
            let max = QueueSizes::MAX_TAGS;
            assert_eq!(made.unwrap_err(), QueueSizeError::Tags { id: QueueId(1), tags, max });
            assert!(tags > max);
            continue;
        };
        let cids: HashSet<_> = (0..16)
            .map(|n| pair.commands.begin(crate::tags::Tag(tags as u16 - 1), n, Nanos(n)))
            .collect();
        assert_eq!(cids.len(), 16, "{tags} tags");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Post(u8),
    Commit,
    /// The controller fetches all commands and completes the n-th, or none.
    Complete(prop::sample::Index),
    Reap(u32),
    Reset,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0u8..4).prop_map(Event::Post),
        4 => Just(Event::Commit),
        8 => any::<prop::sample::Index>().prop_map(Event::Complete),
        3 => (0u32..8).prop_map(Event::Reap),
        1 => Just(Event::Reset),
    ];
    prop::collection::vec(event, 0..300)
}

proptest! {
    /// For any sequence, resets included: every token is returned once, no budget is exceeded, each
    /// doorbell is rung at most once per batch, and no ring overruns (the device side panics if one
    /// does).
    #[test]
    fn every_token_returns_once_within_budget(events in events()) {
        let (pair, mut device, doorbells) = pair(SIZES);
        let (mut next, mut back, mut fetched) = (0u64, HashSet::new(), Vec::new());
        let (mut commits, mut reaps) = (0, 0);
        let mut out = Vec::with_capacity(16);
        for event in events {
            match event {
                Event::Post(n) => {
                    let posted = post(&pair, next..next + u64::from(n)).iter().filter(|r| r.is_ok()).count();
                    next += posted as u64;
                }
                Event::Commit => {
                    commits += u64::from(pair.lock_sq().commit(&doorbells) > 0);
                }
                Event::Complete(n) => {
                    fetched.extend(std::iter::from_fn(|| device.fetch()));
                    if !fetched.is_empty() {
                        device.complete(fetched.swap_remove(n.index(fetched.len())).cid);
                    }
                }
                Event::Reap(budget) => {
                    out.clear();
                    let before = pair.in_flight();
                    let reaped = pair.reap(&doorbells, budget, &mut out);
                    prop_assert_eq!(reaped.violation, None);
                    prop_assert!(reaped.found <= budget && reaped.found as usize == out.len());
                    prop_assert_eq!(reaped.budget_used_up, reaped.found == budget);
                    prop_assert!(reaped.budget_used_up || !reaped.more);
                    prop_assert_eq!(pair.in_flight(), before - reaped.found);
                    reaps += u64::from(reaped.found > 0);
                    for completed in &out {
                        prop_assert!(back.insert(completed.token));
                        prop_assert_eq!(completed.posted_at, Nanos(completed.token));
                    }
                }
                Event::Reset => {
                    pair.exclusive().close();
                    let abandoned = pair.exclusive().abandon();
                    for command in abandoned {
                        prop_assert!(back.insert(command.token));
                    }
                    prop_assert_eq!(pair.in_flight(), 0);
                    prop_assert!(!pair.pending());
                    prop_assert_eq!(post(&pair, 0..1), [Err(NoTag)]);
                    pair.exclusive().reopen();
                    device.reset();
                    fetched.clear();
                }
            }
        }
        back.extend(pair.exclusive().abandon().iter().map(|c| c.token));
        prop_assert_eq!(back.len() as u64, next);
        let counted = pair.counters();
        prop_assert_eq!((counted.sq_doorbells, counted.cq_doorbells), (commits, reaps));
    }
}

#[test]
fn one_doorbell_per_batch() {
    let (pair, mut device, doorbells) = pair(SIZES);
    assert_eq!(pair.lock_sq().commit(&doorbells), 0);
    assert_eq!(post(&pair, 0..7).iter().filter(|r| r.is_ok()).count(), 5);
    assert!(pair.lock_sq().exhausted());
    assert!(device.fetch().is_none(), "nothing is announced before the commit");
    assert_eq!(pair.lock_sq().commit(&doorbells), 5);
    std::iter::from_fn(|| device.fetch())
        .collect::<Vec<_>>()
        .iter()
        .for_each(|sqe| device.complete(sqe.cid));
    assert!(pair.pending());
    let mut out = Vec::with_capacity(5);
    let reaped = pair.try_reap(&doorbells, 3, &mut out).unwrap();
    assert_eq!(reaped, Reaped { found: 3, budget_used_up: true, more: true, violation: None });
    // The capacity of `out` is a budget too: it never grows.
    assert_eq!(pair.reap(&doorbells, 100, &mut out).found, 2);
    assert_eq!(
        (out.len(), out.capacity(), pair.reap(&doorbells, 9, &mut out).budget_used_up),
        (5, 5, true)
    );
    let counted = pair.counters();
    assert_eq!((counted.sq_doorbells, counted.cq_doorbells, counted.empty_polls), (1, 2, 1));
}

/// Linux ignores SQHD, and some controllers report it wrong.
#[test]
fn an_impossible_head_is_counted() {
    let (pair, mut device, doorbells) = pair(SIZES);
    post(&pair, 0..2);
    pair.lock_sq().commit(&doorbells);
    for head in [8, u16::MAX] {
        let cid = device.fetch().unwrap().cid;
        let entry = Cqe { sq_head: head, ..device.entry(cid) };
        device.post(entry, Status::SUCCESS);
    }
    let mut out = Vec::with_capacity(4);
    let reaped = pair.reap(&doorbells, 4, &mut out);
    assert_eq!(
        (reaped.found, reaped.violation, pair.in_flight(), pair.counters().bad_heads),
        (2, None, 0, 2)
    );
}

/// A violation is reported once, with its details; then the queue takes no entries until a reset.
#[test]
fn violations_stop_the_queue() {
    type Wrong = (fn(&mut Cqe), fn(u16) -> ProtocolViolation);
    let wrong: [Wrong; 3] = [
        (
            |e| e.cid ^= 0x100,
            |cid| ProtocolViolation::UnknownCommand {
                queue: QueueId(1),
                cid: cid ^ 0x100,
                last: cid,
            },
        ),
        (
            |e| e.cid |= 7,
            |cid| ProtocolViolation::UnknownCommand {
                queue: QueueId(1),
                cid: cid | 7,
                last: u16::MAX,
            },
        ),
        (|e| e.sq_id = 3, |cid| ProtocolViolation::WrongQueue { queue: QueueId(1), cid, named: 3 }),
    ];
    for (spoil, expected) in wrong {
        let (pair, mut device, doorbells) = pair(SIZES);
        post(&pair, 0..1);
        pair.lock_sq().commit(&doorbells);
        let cid = device.fetch().unwrap().cid;
        let mut entry = device.entry(cid);
        spoil(&mut entry);
        device.post(entry, Status::SUCCESS);
        let mut out = Vec::with_capacity(4);
        let reaped = pair.reap(&doorbells, 4, &mut out);
        assert_eq!(
            (reaped.found, reaped.more, reaped.violation),
            (0, false, Some(expected(cid).into()))
        );
        assert!(!pair.pending());
        assert_eq!(pair.reap(&doorbells, 4, &mut out), Reaped::default());
        assert_eq!(pair.in_flight(), 1);
        assert_eq!(pair.exclusive().abandon().len(), 1);
    }
}

#[test]
fn a_doubled_completion_is_a_violation() {
    let (pair, mut device, doorbells) = pair(SIZES);
    post(&pair, 0..2);
    pair.lock_sq().commit(&doorbells);
    let cid = device.fetch().unwrap().cid;
    device.complete(cid);
    device.complete(cid);
    let mut out = Vec::with_capacity(4);
    let reaped = pair.reap(&doorbells, 4, &mut out);
    assert_eq!(reaped.found, 1);
    assert!(
        matches!(reaped.violation.as_deref(), Some(ProtocolViolation::UnknownCommand { .. })),
        "{reaped:?}"
    );
}

/// A controller cannot complete a command before its doorbell, even if it guesses the CID.
#[test]
fn completion_before_doorbell_is_violation() {
    let (pair, mut device, doorbells) = pair(SIZES);
    let cid = post(&pair, 0..1)[0].unwrap();
    device.complete(cid.0);
    let mut out = Vec::with_capacity(4);
    assert_eq!(
        pair.reap(&doorbells, 4, &mut out).violation,
        Some(ProtocolViolation::Unannounced { queue: QueueId(1), cid: cid.0 }.into())
    );
}

/// A controller that fills the ring endlessly is stopped by the first excess entry.
#[test]
fn a_flood_of_entries_ends() {
    let (pair, mut device, doorbells) = pair(SIZES);
    post(&pair, 0..1);
    pair.lock_sq().commit(&doorbells);
    let cid = device.fetch().unwrap().cid;
    (0..5).for_each(|_| device.complete(cid));
    let mut out = Vec::with_capacity(64);
    let first = pair.reap(&doorbells, 64, &mut out);
    assert_eq!((first.found, first.violation, first.more), (1, None, true));
    let second = pair.reap(&doorbells, 64, &mut out);
    assert!(
        matches!(second.violation.as_deref(), Some(ProtocolViolation::Unannounced { .. }))
            && !second.more
    );
    assert_eq!(out.len(), 1);
}

#[test]
fn impossible_sizes_are_refused() {
    let new = |sq_entries, cq_entries, tags| {
        let sizes = QueueSizes { sq_entries, cq_entries, tags };
        sizes.check(QueueId(7)).map_err(|e| e.to_string())
    };
    assert!(new(2, 2, 1).is_ok());
    assert!(new(65_536, 65_536, QueueSizes::MAX_TAGS).is_ok());
    assert_eq!(
        new(1, 8, 1).unwrap_err(),
        "submission queue of queue 7 with 1 entries: a ring has 2 to 65536"
    );
    assert_eq!(
        new(8, 8, 8).unwrap_err(),
        "queue 7 with 8 tags: it must have 1 to 7 (a ring of N entries holds N-1 commands, and a queue has at most 4095 tags)"
    );
    assert!(new(8, 65_537, 7).is_err());
    assert!(new(8, 8, 0).is_err());
}

/// While an Abort is in flight, its command's tag is not reused, even after the command has
/// completed.
#[test]
fn an_abort_holds_the_tag() {
    let (pair, mut device, doorbells) = pair(QueueSizes { tags: 1, ..SIZES });
    post(&pair, 0..1);
    pair.lock_sq().commit(&doorbells);
    let mut expired = Vec::new();
    pair.expired(Nanos(10), Nanos(10), &mut expired);
    assert!(pair.exclusive().begin_abort(&expired[0].command));
    let cid = device.fetch().unwrap().cid;
    device.post(device.entry(cid), Status::ABORT_REQUESTED);
    let mut out = Vec::with_capacity(4);
    assert_eq!(pair.reap(&doorbells, 4, &mut out).found, 1);
    assert_eq!(out[0].status, Status::ABORT_REQUESTED);
    assert_eq!(post(&pair, 1..2), [Err(NoTag)]);
    pair.exclusive().end_abort(Cid(cid));
    assert!(post(&pair, 1..2)[0].is_ok());
}

/// Three threads post and reap on one pair while a controller completes out of order: each token is
/// returned once, to any thread.
#[test]
fn threads_share_a_pair() {
    const EACH: u64 = 1_000;
    let (pair, mut device, doorbells) =
        pair(QueueSizes { sq_entries: 32, cq_entries: 24, tags: 23 });
    let found = AtomicU64::new(0);
    let mut tokens: Vec<u64> = std::thread::scope(|threads| {
        let host = |thread: u64| {
            let (pair, doorbells, found) = (&pair, &doorbells, &found);
            threads.spawn(move || {
                let (mut next, mut taken, mut out) = (0, Vec::new(), Vec::with_capacity(16));
                while found.load(Relaxed) < 3 * EACH {
                    let mut sq = pair.lock_sq();
                    while next < EACH
                        && sq.post(Sqe::default(), thread * EACH + next, Nanos(0)).is_ok()
                    {
                        next += 1;
                    }
                    sq.commit(doorbells);
                    drop(sq);
                    out.clear();
                    match pair.try_reap(doorbells, 16, &mut out) {
                        Some(reaped) => assert_eq!(reaped.violation, None),
                        None => std::thread::yield_now(),
                    }
                    found.fetch_add(out.len() as u64, Relaxed);
                    taken.extend(out.iter().map(|completed| completed.token));
                }
                taken
            })
        };
        let hosts = [host(0), host(1), host(2)];
        let mut held = Vec::new();
        while found.load(Relaxed) < 3 * EACH {
            held.extend(std::iter::from_fn(|| device.fetch()));
            match held.len() {
                0 => std::thread::yield_now(),
                n => device.complete(held.swap_remove(n / 2).cid),
            }
        }
        hosts.into_iter().flat_map(|host| host.join().unwrap()).collect()
    });
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..3 * EACH));
    assert_eq!(pair.in_flight(), 0);
}
