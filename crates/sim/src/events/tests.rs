use proptest::prelude::*;

use super::*;

#[test]
fn timers_fire_in_order() {
    let mut calendar = Calendar::new(5);
    for (source, at) in [(4, 30), (2, 10), (0, 30), (3, 20), (1, 10)] {
        calendar.set(source, Nanos(at));
    }
    calendar.set(3, Nanos::MAX);
    calendar.set_no_later(4, Nanos(40));
    let rung: Vec<_> = std::iter::from_fn(|| calendar.pop()).collect();
    assert_eq!(rung, [(Nanos(10), 2), (Nanos(10), 1), (Nanos(30), 4), (Nanos(30), 0)]);
    assert_eq!(calendar.nodes[WHEELS * SLOTS].at, Nanos::MAX);
}

#[test]
fn next_source_comes_first() {
    let mut calendar = Calendar::new(64);
    calendar.set(3, Nanos(10));
    calendar.set(63, Nanos(20));
    assert_eq!(calendar.pop(), Some((Nanos(10), 3)));
    assert!(
        calendar.clear_and_check_next(3, Nanos(19)) && !calendar.clear_and_check_next(3, Nanos(20))
    );
    calendar.set(4, Nanos(15));
    assert!(
        calendar.clear_and_check_next(3, Nanos(14)) && !calendar.clear_and_check_next(3, Nanos(15))
    );
    calendar.set(3, Nanos(16));
    assert!(calendar.clear_and_check_next(3, Nanos(14)), "its own alarm is not another's");
    assert_eq!(calendar.pop(), Some((Nanos(15), 4)));
}

#[test]
fn past_timer_fires_at_once() {
    let mut calendar = Calendar::new(2);
    calendar.set(0, Nanos(5_000));
    assert_eq!(calendar.pop(), Some((Nanos(5_000), 0)));
    calendar.set(0, Nanos(5_000));
    calendar.set(1, Nanos(10));
    assert_eq!(calendar.pop(), Some((Nanos(5_000), 0)));
    assert_eq!(calendar.pop(), Some((Nanos(5_000), 1)));
    assert_eq!(calendar.pop(), None);
}

proptest! {
    /// However timers are set and moved, the next one to fire is the earliest, and of those of one
    /// instant the one that was set first; checked against a plain list. Timers near and far, and
    /// far ones that become near.
    #[test]
    fn the_wheels_agree_with_a_list(
        sources in 1usize..40,
        moves in prop::collection::vec((0usize..40, prop_oneof![Just(0), 1u64..50, 1u64..300, 1u64..20_000, Just(1 << 40)]), 1..400),
    ) {
        let (mut calendar, mut list, mut now) = (Calendar::new(sources), vec![(u64::MAX, 0); sources], 1_000_000u64);
        calendar.set(0, Nanos(now));
        prop_assert_eq!(calendar.pop(), Some((Nanos(now), 0)));
        for (n, (source, ahead)) in moves.into_iter().enumerate() {
            if ahead == 0 {
                let next = list.iter().enumerate().min_by_key(|(_, key)| **key).filter(|(_, key)| key.0 < u64::MAX);
                let next = next.map(|(source, key)| (Nanos(key.0), source));
                prop_assert_eq!(calendar.pop(), next);
                if let Some((at, source)) = next {
                    list[source] = (u64::MAX, 0);
                    now = at.0;
                }
            } else {
                let (source, at) = (source % sources, now + ahead - 1);
                if calendar.clear_and_check_next(source, Nanos(at)) {
                    prop_assert!(list.iter().enumerate().all(|(other, key)| other == source || key.0 > at));
                }
                calendar.set(source, Nanos(at));
                list[source] = (at, n + 1);
            }
        }
    }
}
