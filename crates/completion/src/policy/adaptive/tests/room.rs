//! A caller who waits for room, and a device whose slow phases take it from him.

use super::*;

const GAP: u64 = 2_000;
const ROOM: u32 = 32;
const DEVICE: Nanos = Nanos::from_micros(10);

/// Of a caller with a command every [`GAP`], who is ahead of his clock at that instant.
fn paced() -> (Pace, Nanos) {
    let (mut pace, start) = (Pace::default(), Nanos::from_secs(1));
    pace.clocked(start);
    pace.sent(64);
    let now = start + Nanos(64 * GAP);
    pace.clocked(now);
    (pace, now)
}

/// So long the oldest waits for room at most, if `burst` do at first and the naps end as `ends` says.
fn longest_wait(burst: u64, ends: impl Fn(&Pace, Nanos) -> Nanos) -> (Nanos, Nanos) {
    let (mut pace, start) = paced();
    let (mut now, mut sent, mut longest, mut last) = (start, 0, Nanos::ZERO, Nanos::ZERO);
    for _ in 0..1_000 {
        let due = burst + (now - start).0 / GAP;
        last = Nanos((due - sent) * GAP);
        longest = longest.max(last);
        let room = (due - sent).min(ROOM.into());
        sent += room;
        pace.sent(room as u32);
        now = ends(&pace, now) + Nanos(3_000);
    }
    (longest, last)
}

#[test]
fn naps_for_room_do_not_let_the_wait_for_it_grow() {
    let allowed = Nanos::from_micros(60);
    let wait = |burst, rule: bool| {
        longest_wait(burst, |pace, now| match rule {
            true => pace.allows(now, now, ROOM, now + DEVICE, allowed, allowed),
            false => now + DEVICE + allowed,
        })
    };
    assert!(wait(40, true).1 <= allowed, "{:?}", wait(40, true));
    // A backlog is caught up with.
    assert!(wait(600, true).1 <= allowed, "{:?}", wait(600, true));
    // The twin takes the allowance for each nap, whatever waits.
    assert!(wait(40, false).1 > Nanos::from_millis(1), "{:?}", wait(40, false));
}

/// His rate may be another one by now: what he says counts, and by the guess alone nobody would wait.
#[test]
fn how_late_he_is_need_not_be_guessed_where_he_says_so() {
    let (mut pace, start) = paced();
    let (now, allowed) = (start + Nanos::from_millis(5), Nanos::from_micros(100));
    pace.sent(5_000_000 / GAP as u32);
    assert!(!pace.lags(now, allowed), "the twin guesses");
    pace.wants_room(Some(now - Nanos(300 * GAP)));
    assert!(pace.lags(now, allowed));
    let room_by = |pace: &Pace| pace.allows(now, now, ROOM, now + DEVICE, allowed, allowed);
    let hurried = room_by(&pace);
    pace.wants_room(Some(now));
    assert!(hurried < room_by(&pace), "{hurried}");
}

#[test]
fn a_nap_that_keeps_up_with_the_caller_may_take_what_is_allowed() {
    let (pace, now) = paced();
    let short = Nanos::from_micros(20);
    assert_eq!(pace.allows(now, now, ROOM, now + DEVICE, short, short), now + DEVICE + short);
    let long = Nanos::from_micros(200);
    assert_eq!(pace.allows(now, now, ROOM, now + DEVICE, long, long), now + DEVICE + Nanos(long.0 / 2));
}

#[test]
fn who_is_late_by_more_than_a_burst_falls_behind_until_he_is_ahead_again() {
    let (mut pace, now) = paced();
    let delay = Nanos(DEVICE.0 / 4);
    let falls = |pace: &mut Pace, late: u64| pace.falls_behind(now, now - Nanos(DEVICE.0 * late), DEVICE, delay);
    (0..79).for_each(|_| pace.sleeps());
    assert!(!falls(&mut pace, 10), "a burst");
    assert!(!falls(&mut pace, 40), "most of it is the device's");
    pace.sleeps();
    assert!(falls(&mut pace, 40), "half of it is what 80 sleeps have taken");
    assert!(falls(&mut pace, 10), "he has not caught up");
    pace.clocked(now);
    assert!(!falls(&mut pace, 10));
}

/// When slow ones are believed to come, after many others were found when a nap ended, each three times as old as it took and
/// so old at the last look before.
fn slow_after_naps(reached: Nanos) -> Option<Nanos> {
    let mut service = Service::new(LatencySlack::per_mille(1_000));
    let done = |age: Nanos, found| Done { class: read(), age, found };
    let slow = Nanos::from_micros(500);
    for n in 0..200 {
        let age = if n % 4 == 0 { slow } else { DEVICE };
        service.learn(&done(age, Found::Looking), None, Nanos::ZERO, age);
    }
    let found = Nanos(DEVICE.0 * 3);
    for _ in 0..200 {
        service.learn(&done(found, Found::AfterSleep { at_most: found }), None, Nanos::ZERO, reached);
    }
    service.slow_due(read(), found)
}

#[test]
fn what_a_nap_has_found_late_is_not_taken_for_slow() {
    assert!(slow_after_naps(Nanos::ZERO) > Some(Nanos::from_micros(400)));
    // What was late at the look before the nap already is; the twin takes all for that.
    assert!(slow_after_naps(Nanos(DEVICE.0 * 3)) < Some(Nanos::from_micros(50)));
}

/// Whether it looks when it wakes for the caller's next instant, from a nap that one in flight was overdue in, and with `seen`.
fn looks(slack: LatencySlack, seen: &Seen) -> bool {
    let mut policy = choices::taught(slack, DEVICE.0);
    let now = Nanos::from_secs(1);
    choices::submit(&mut policy, now, 1, 1);
    let his = now + Nanos(DEVICE.0 * 2);
    let plan = policy.next(now, &Seen { goes_on_at: Some(his), ..choices::waiting(1) });
    assert_eq!(plan, Plan::Nap { until: his }, "it wakes for him anyway");
    let woke = Some(Woke { cause: Cause::Timer, late: Nanos::ZERO });
    matches!(policy.next(his, &Seen { in_flight: 2, woke, ..*seen }), Plan::Look { .. })
}

/// Only so he comes to have no room, and his instants pass without a wake-up each.
#[test]
fn where_any_time_will_do_the_callers_own_instants_are_no_reason_to_look() {
    let next = Some(Nanos::from_secs(1) + Nanos(DEVICE.0 * 3));
    let (ahead, crowded) = (Seen { goes_on_at: next, ..Seen::default() }, Seen::default());
    assert!(!looks(LatencySlack::UNLIMITED, &ahead) && !looks(LatencySlack::UNLIMITED, &crowded));
    assert!(looks(LatencySlack::per_mille(50_000), &ahead), "it is late enough");
    assert!(looks(LatencySlack::UNLIMITED, &Seen { urgent_waiting: 1, ..ahead }), "somebody waits");
    assert!(looks(LatencySlack::UNLIMITED, &Seen { pending: true, ..ahead }), "it has looked");
    assert!(looks(LatencySlack::UNLIMITED, &Seen { leaving: true, ..ahead }), "nobody looks later");
}

/// A device that takes [`DEVICE`], or 50 times as long.
fn with_slow_ones() -> Service {
    let mut service = Service::new(LatencySlack::per_mille(1_000));
    for n in 0..400 {
        let age = if n % 4 == 0 { Nanos(DEVICE.0 * 50) } else { DEVICE };
        service.learn(&Done { class: read(), age, found: Found::Looking }, None, Nanos::ZERO, age);
    }
    service
}

#[test]
fn behind_many_that_look_slow_those_are_looked_for_that_do_not() {
    let (service, start) = (with_slow_ones(), Nanos::from_secs(1));
    let first = |young: u32| {
        let (mut flight, now) = (Flight::new(), start + Nanos(DEVICE.0 * 5));
        (0..8).for_each(|n| flight.sent(start + Nanos(n), 16, read()));
        (0..young).for_each(|n| flight.sent(now - Nanos(u64::from(n)), 16, read()));
        flight.first(now, &service, true).map_or(Nanos::ZERO, |first| first - now)
    };
    assert!(first(1) <= DEVICE, "{:?}", first(1));
    // The twin has none of them, and nothing to look for sooner.
    assert!(first(0) > Nanos(DEVICE.0 * 20), "{:?}", first(0));
}

/// A caller who is ahead of his clock sends one at a time.
#[test]
fn however_many_batches_there_are_the_youngest_is_told_apart_and_none_looks_older_than_it_is() {
    let (service, start) = (with_slow_ones(), Nanos::from_secs(1));
    let quick = |batches: u64| {
        let (mut flight, now) = (Flight::new(), start + Nanos(DEVICE.0 * 5));
        (0..batches).for_each(|n| flight.sent(start + Nanos(n), 1, read()));
        assert_eq!((flight.quick(now, &service), flight.gone(0)), (0, batches as u32));
        flight.sent(now, 1, read());
        flight.quick(now, &service)
    };
    assert_eq!([8, 32, 100, 1_000].map(quick), [1; 4]);
    let mut flight = Flight::new();
    (0..1_000).for_each(|n| flight.sent(start + Nanos(n), 1, read()));
    let by = |n: u64| flight.by(start, start + service.median(read()) + Nanos(n), &service);
    assert!((0..1_000).all(|n| by(n) <= n as u32 + 1) && by(999) == 1_000, "due when the last of those that count as one is");
    flight.keep(3, None, &service);
    assert_eq!((flight.gone(0), flight.latest()), (3, Some(read())));
}

/// What it does with `late` commands waiting for room, all that are in flight due in `age`.
fn plan_with_backlog(late: u64, age: u64, slack: LatencySlack) -> Plan {
    let (pace, ahead) = paced();
    let mut policy = choices::taught(slack, age);
    policy.pace = pace;
    let now = ahead + Nanos((late + u64::from(ROOM)) * GAP);
    choices::submit(&mut policy, now, ROOM, ROOM);
    policy.next(now, &choices::waiting(ROOM))
}

#[test]
fn a_caller_who_lags_behind_is_spun_for_where_a_nap_takes_longer() {
    let spins = |late, age, slack| matches!(plan_with_backlog(late, age, slack), Plan::Spin { .. });
    let slack = LatencySlack::per_mille(10_000);
    assert!(spins(300, 2_000, slack), "a nap costs 2.4 µs");
    assert!(!spins(300, 20_000, slack), "spinning costs more");
    assert!(!spins(32, 2_000, slack), "he hardly lags behind");
    assert!(!spins(300, 2_000, LatencySlack::per_mille(1_000_000)), "he may");
}

#[test]
fn where_any_time_will_do_it_spins_if_that_finds_them_for_less() {
    let spins = |late, age| matches!(plan_with_backlog(late, age, LatencySlack::UNLIMITED), Plan::Spin { .. });
    assert!(spins(u64::from(ROOM) + 1, 2_000), "a nap costs 2.4 µs");
    assert!(!spins(u64::from(ROOM) + 1, 20_000), "spinning costs more");
    assert!(!spins(u64::from(ROOM) / 2, 2_000), "he would be ahead of his clock then");
}

/// What it does when it wakes for the caller's instant, `late` after the only one in flight was due; the caller goes on every
/// [`GAP`], and has no room with [`ROOM`] in flight.
fn woken_for_him(slack: LatencySlack, late: Nanos, urgent_waiting: u32) -> (Nanos, Plan) {
    let mut policy = choices::taught(slack, DEVICE.0);
    (policy.pace, _) = paced();
    policy.room.full(ROOM);
    let sent = Nanos::from_secs(2);
    choices::submit(&mut policy, sent, 1, 1);
    let now = sent + DEVICE + late;
    let woke = Some(Woke { cause: Cause::Timer, late: Nanos::ZERO });
    let his = now + Nanos(GAP);
    (his, policy.next(now, &Seen { goes_on_at: Some(his), woke, urgent_waiting, ..choices::waiting(1) }))
}

#[test]
fn what_has_come_is_left_where_it_is_if_the_caller_has_no_room_before_it_is_late() {
    // 32 commands take him 64 µs.
    let enough = LatencySlack::per_mille(10_000);
    let (his, plan) = woken_for_him(enough, Nanos::ZERO, 0);
    assert_eq!(plan, Plan::Nap { until: his });
    let looks = |(_, plan)| matches!(plan, Plan::Look { .. });
    // The twins: it would be late by then, it is late, and somebody waits.
    assert!(looks(woken_for_him(LatencySlack::per_mille(4_000), Nanos::ZERO, 0)));
    assert!(looks(woken_for_him(enough, Nanos::from_micros(60), 0)));
    assert!(looks(woken_for_him(enough, Nanos::ZERO, 1)));
}

#[test]
fn how_much_room_there_is_is_tried_until_it_was_seen() {
    let mut room = Room::default();
    room.left(8);
    let tried = room.clone();
    room.full(6);
    room.left(20);
    assert_eq!((tried.most, room.most), (11, 6));
}

#[test]
fn naps_that_cannot_let_a_backlog_grow_let_it_shrink() {
    let (mut pace, now) = paced();
    let (room, even) = (ROOM, Nanos(u64::from(ROOM) * GAP));
    // Hardly longer than he takes for as many as there is room for, if at all: his rate is not known so well.
    assert!(pace.fills(now, now, room, true, now + even + Nanos(GAP)) < Some(now + even));
    assert!(pace.fills(now, now, room, true, now + even + even) > Some(now + even));
}

/// A nap is not longer than the longest, but what waits for room may be late by more, if the slack is large: he is not hurried before.
#[test]
fn a_caller_may_be_later_than_a_nap_is_long() {
    let (mut pace, start) = paced();
    let (now, allowed, tolerated) = (start, Nanos::from_micros(30), Nanos::from_millis(5));
    pace.wants_room(Some(now - Nanos::from_millis(4)));
    assert_eq!(pace.allows(now, now, ROOM, now + DEVICE, allowed, tolerated), now + DEVICE + allowed);
    assert!(!pace.lags(now, tolerated));
    // The twin tolerates no more than a nap may take.
    assert!(pace.allows(now, now, ROOM, now + DEVICE, allowed, allowed) < now + DEVICE + allowed);
    assert!(pace.lags(now, allowed));
    pace.wants_room(Some(now - Nanos::from_millis(6)));
    assert!(pace.lags(now, tolerated));
}
