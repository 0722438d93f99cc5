//! Notes of a thread and stamps of a device, in whatever order they arrive.

use super::*;

/// A thread with two places, each used again as it comes free, on a device whose time for submission `n` is 1000 + n.
/// Submission 3 is a long one, of two commands.
fn notes() -> (Vec<Event>, Vec<Stamp>) {
    let (mut events, mut stamps) = (vec![Event::Began(Nanos(100))], Vec::new());
    let offset = |n: u64| n % 5 * 8192;
    for n in 0..20u64 {
        if n >= 2 {
            events.push(Event::Wait(1));
            events.push(Event::Completed { place: (n % 2) as u32, at: Nanos(n * 600) });
        }
        let len = if n == 3 { 8192 } else { 4096 };
        events.push(Event::Submitted { place: (n % 2) as u32, op: Op::Read, target: 0, offset: offset(n), len, due: None });
        events.push(Event::Committed { at: Nanos(n * 600 + 50), think: Nanos(30) });
        let commands = if n == 3 { 2 } else { 1 };
        for part in (0..commands).rev() {
            let service = Service { queued: Nanos(5), service: Nanos(1_000 + n - part), late: Nanos(1), bound: false };
            stamps.push(Stamp { op: Op::Read, offset: offset(n) + part * 4096, bytes: 4096, fetched: Nanos(n * 600 + 60), service });
        }
    }
    (events, stamps)
}

/// The submissions that come of them, in pieces of these lengths.
fn joined(stamped: bool, events: &[Event], stamps: &[Stamp], host: usize, device: usize) -> Vec<Submission> {
    let mut header = header(1, 2, 0);
    header.devices[0].stamped = stamped;
    let mut join = Join::new(&header);
    let mut out = Vec::new();
    let (mut events, mut stamps) = (events.chunks(host), stamps.chunks(device));
    loop {
        let (noted, stamped) = (events.next(), stamps.next());
        stamped.into_iter().for_each(|stamps| join.stamped(0, stamps.iter().copied()));
        noted.into_iter().for_each(|events| join.noted(0, events));
        out.extend(std::iter::from_fn(|| join.pop(0, false)));
        if noted.is_none() && stamped.is_none() {
            break;
        }
    }
    out.extend(std::iter::from_fn(|| join.pop(0, true)));
    out
}

proptest! {
    #[test]
    fn stamps_find_their_submissions(host in 1..90usize, device in 1..25usize) {
        let (events, stamps) = notes();
        let found = joined(true, &events, &stamps, host, device);
        prop_assert_eq!(found.len(), 20);
        for (s, n) in found.iter().zip(0u64..) {
            prop_assert_eq!(s.service, Service { queued: Nanos(5), service: Nanos(1_000 + n), late: Nanos(1), bound: false });
            prop_assert_eq!(s.cause, if n < 2 { Cause::Start } else { Cause::After(n - 2) });
            prop_assert_eq!((s.wait, s.think, s.ends_batch), (u32::from(n >= 2), Nanos(30), true));
        }
    }
}

#[test]
fn without_stamps_there_are_bounds() {
    let (events, _) = notes();
    let found = joined(false, &events, &[], 7, 1);
    // The last two had not completed when the recording ended.
    for (s, n) in found.iter().zip(0u64..).take(18) {
        assert_eq!(s.service, Service { service: Nanos(1_200 - 50), bound: true, ..Service::default() }, "{n}");
    }
    assert!(found[18..].iter().all(|s| s.service.bound && s.service.service == Nanos(0)));
}

#[test]
fn a_lost_stamp_leaves_a_bound_and_holds_nothing_else_up() {
    let (events, mut stamps) = notes();
    stamps.remove(7);
    let found = joined(true, &events, &stamps, 4, 3);
    let bound: Vec<usize> = (0..20).filter(|&n| found[n].service.bound).collect();
    assert_eq!((found.len(), bound.len()), (20, 1));
}

/// What the application insisted on, not what it happened to get.
#[test]
fn a_wait_is_the_least_that_would_have_done() {
    let mut join = Join::new(&header(1, 8, 0));
    let submitted = |place| Event::Submitted { place, op: Op::Read, target: 0, offset: 0, len: 512, due: None };
    let done = |place| Event::Completed { place, at: Nanos(9) };
    let commit = Event::Committed { at: Nanos(1), think: Nanos(0) };
    let start: Vec<Event> = (0..8).map(submitted).chain([commit]).collect();
    join.noted(0, &start);
    // Down to a low-water mark: three, then for one more, of which two come.
    join.noted(0, &[Event::Wait(1), done(0), done(1), done(2), Event::Wait(1), done(3), done(4), submitted(4), submitted(3), commit]);
    let all: Vec<Submission> = std::iter::from_fn(|| join.pop(0, true)).collect();
    assert_eq!(all[8..].iter().map(|s| (s.wait, s.cause)).collect::<Vec<_>>(), [(4, Cause::After(4)), (0, Cause::After(3))]);
    assert_eq!(all.iter().map(|s| s.ends_batch).collect::<Vec<_>>(), [false, false, false, false, false, false, false, true, false, true]);
}
