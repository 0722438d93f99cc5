use proptest::prelude::*;

use super::*;

fn path(path: InterruptPath) -> SharedPath {
    SharedPath::new(path).expect("something is shared")
}

#[test]
fn nothing_is_shared_by_default() {
    assert!(SharedPath::new(InterruptPath::default()).is_none());
}

#[test]
fn interrupts_queue_at_the_unit() {
    let mut path = path(InterruptPath { notify: Nanos(100), ..InterruptPath::default() });
    let sent: Vec<_> = (0..3).map(|_| path.send(Nanos(1_000), false)).collect();
    assert_eq!(sent.iter().map(|sent| sent.arrives.0).collect::<Vec<_>>(), [1_100, 1_200, 1_300]);
    assert!(
        sent.iter().all(|sent| sent.accepted == sent.arrives),
        "what is written behind a message waits for it"
    );
    assert_eq!((path.counts.waited, path.counts.held), (Nanos(300), Nanos(600)));
}

#[test]
fn posted_interrupts_spare_notifications() {
    let mut path = path(InterruptPath { notify: Nanos(100), ..InterruptPath::default() });
    assert_eq!(path.send(Nanos(15), true).arrives, Nanos(15));
    assert_eq!(path.notify(Nanos(15)).arrives, Nanos(115));
    assert_eq!(path.send(Nanos(20), true).arrives, Nanos(115), "behind the notification");
    assert_eq!(path.send(Nanos(200), false).arrives, Nanos(300));
}

#[test]
fn injections_are_bounded_by_injectors() {
    let arrives = |injectors| {
        let mut path =
            path(InterruptPath { inject: Nanos(1_000), injectors, ..InterruptPath::default() });
        (0..4).map(|_| path.send(Nanos(0), false).arrives.0).collect::<Vec<_>>()
    };
    assert_eq!(arrives(1), [1_000, 2_000, 3_000, 4_000]);
    assert_eq!(arrives(2), [1_000, 1_000, 2_000, 2_000]);
    assert_eq!(arrives(0), [1_000; 4]);
}

proptest! {
    /// The unit serves at most one message at a time, in order, and none arrives before it was
    /// sent.
    #[test]
    fn service_time_bounds_a_unit(gaps in prop::collection::vec(0u64..300, 1..200), notify in 1u64..400) {
        let mut path = path(InterruptPath { notify: Nanos(notify), ..InterruptPath::default() });
        let (mut now, mut last) = (Nanos(0), Nanos(0));
        for gap in gaps {
            now += Nanos(gap);
            let sent = path.send(now, false);
            prop_assert!(sent.arrives >= now + Nanos(notify));
            prop_assert!(last == Nanos(0) || sent.arrives >= last + Nanos(notify));
            prop_assert!(now <= sent.accepted && sent.accepted <= sent.arrives);
            last = sent.arrives;
        }
    }
}
