use proptest::prelude::*;

use super::*;

#[test]
fn alarms_ring_in_order_of_time_and_then_of_setting() {
    let mut calendar = Calendar::new(5);
    for (source, at) in [(4, 30), (2, 10), (0, 30), (3, 20), (1, 10)] {
        calendar.set(source, Nanos(at));
    }
    calendar.set(3, Nanos::MAX);
    calendar.set_by(4, Nanos(40));
    let rung: Vec<_> = std::iter::from_fn(|| calendar.pop()).collect();
    assert_eq!(rung, [(Nanos(10), 2), (Nanos(10), 1), (Nanos(30), 4), (Nanos(30), 0)]);
    assert_eq!(calendar.at(0), Nanos::MAX);
}

#[test]
fn a_source_that_would_be_next_is_before_all_others() {
    let mut calendar = Calendar::new(64);
    calendar.set(3, Nanos(10));
    calendar.set(63, Nanos(20));
    assert_eq!(calendar.pop(), Some((Nanos(10), 3)));
    assert!(calendar.would_be_next(3, Nanos(19)) && !calendar.would_be_next(3, Nanos(20)));
    calendar.set(4, Nanos(15));
    assert!(calendar.would_be_next(3, Nanos(14)) && !calendar.would_be_next(3, Nanos(15)));
    calendar.set(3, Nanos(16));
    assert_eq!(calendar.pop(), Some((Nanos(15), 4)));
    assert!(calendar.would_be_next(4, Nanos(15)) && !calendar.would_be_next(4, Nanos(16)));
    let calendar = |sources| Calendar::new(sources).would_be_next(0, Nanos(1));
    assert!(calendar(64) && !calendar(65), "many are not asked");
}

proptest! {
    /// Whatever is set and moved, the next alarm is the earliest; checked against a plain list.
    #[test]
    fn the_tree_agrees_with_a_list(sources in 1usize..40, moves in prop::collection::vec((0usize..40, 0u64..50), 1..200)) {
        let (mut calendar, mut list) = (Calendar::new(sources), vec![(u64::MAX, 0); sources]);
        for (n, (source, at)) in moves.into_iter().enumerate() {
            if at == 0 {
                let next = list.iter().enumerate().min_by_key(|(_, key)| **key).filter(|(_, key)| key.0 < u64::MAX);
                let next = next.map(|(source, key)| (Nanos(key.0), source));
                prop_assert_eq!(calendar.pop(), next);
                if let Some((_, source)) = next {
                    list[source] = (u64::MAX, 0);
                }
            } else {
                let source = source % sources;
                if calendar.would_be_next(source, Nanos(at)) {
                    prop_assert!(list.iter().enumerate().all(|(other, key)| other == source || key.0 > at));
                }
                calendar.set(source, Nanos(at));
                list[source] = (at, n + 1);
            }
        }
    }
}

proptest! {
    /// The same as time passes: near alarms and far ones, and such as come near while they wait.
    #[test]
    fn near_and_far_alarms_ring_in_order(
        sources in 1usize..40,
        moves in prop::collection::vec((0usize..40, prop_oneof![Just(0), 1u64..300, 1u64..20_000]), 1..400),
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
                calendar.set(source % sources, Nanos(now + ahead - 1));
                list[source % sources] = (now + ahead - 1, n + 1);
            }
        }
    }
}
