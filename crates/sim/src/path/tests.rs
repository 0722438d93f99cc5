use proptest::prelude::*;

use super::*;

fn way(path: InterruptPath, nodes: usize) -> Way {
    Way::new(path, nodes).expect("something is shared")
}

fn message(entry: u32, from: usize, to: usize) -> Message {
    Message { entry, from, to, posted: false }
}

#[test]
fn nothing_is_shared_by_default() {
    assert!(Way::new(InterruptPath::default(), 2).is_none());
}

#[test]
fn interrupts_queue_per_node() {
    let mut way = way(InterruptPath { remap: Nanos(40), notify: Nanos(60), ..InterruptPath::default() }, 2);
    let sent: Vec<_> = (0..3).map(|entry| way.send(Nanos(1_000), message(entry, 0, 0)).arrives.0).collect();
    assert_eq!(sent, [1_100, 1_200, 1_300]);
    assert_eq!(way.send(Nanos(1_000), message(3, 1, 1)).arrives, Nanos(1_100));
    assert_eq!(way.counts.waited, Nanos(300));
}

#[test]
fn message_buffer_spares_the_wait() {
    let path = InterruptPath { notify: Nanos(100), ..InterruptPath::default() };
    let accepted = |buffer| {
        let mut way = way(InterruptPath { buffer, ..path }, 1);
        (0..4).map(|entry| way.send(Nanos(0), message(entry, 0, 0)).accepted.0).collect::<Vec<_>>()
    };
    assert_eq!(accepted(0), [100, 200, 300, 400]);
    assert_eq!(accepted(1), [0, 100, 200, 300]);
    assert_eq!(accepted(4), [0, 0, 0, 0]);
}

#[test]
fn posted_interrupts_spare_notifications() {
    let path = InterruptPath { remap: Nanos(10), notify: Nanos(100), post: Nanos(5), ..InterruptPath::default() };
    let mut way = way(path, 1);
    let posted = Message { posted: true, ..message(0, 0, 0) };
    assert_eq!(way.send(Nanos(0), posted).arrives, Nanos(15));
    assert_eq!(way.notify(Nanos(15), 0, 0).arrives, Nanos(115));
    assert_eq!(way.send(Nanos(20), posted).arrives, Nanos(130), "behind the notification");
    assert_eq!(way.send(Nanos(200), message(0, 0, 0)).arrives, Nanos(310));
}

#[test]
fn vector_cache_misses_when_full() {
    let misses = |vectors: u32| {
        let path = InterruptPath { remap: Nanos(10), miss: Nanos(200), cache: 8, ..InterruptPath::default() };
        let mut way = way(path, 1);
        for n in 0..100u32 {
            way.send(Nanos(u64::from(n) * 1_000), message(n % vectors, 0, 0));
        }
        way.counts.misses
    };
    assert_eq!(misses(8), 8, "each once");
    assert_eq!(misses(9), 100, "round and round, one too many");
}

#[test]
fn remote_node_shares_its_link() {
    let path = InterruptPath { cross: Nanos(300), cross_link: Nanos(50), ..InterruptPath::default() };
    let mut way = way(path, 2);
    assert_eq!(way.send(Nanos(0), message(0, 0, 0)).arrives, Nanos(0));
    assert_eq!(way.send(Nanos(0), message(0, 0, 1)).arrives, Nanos(350));
    assert_eq!(way.send(Nanos(0), message(0, 0, 1)).arrives, Nanos(400));
    assert_eq!(way.send(Nanos(0), message(0, 1, 0)).arrives, Nanos(350), "the other direction");
}

#[test]
fn injections_are_bounded_by_injectors() {
    let arrives = |injectors| {
        let mut way = way(InterruptPath { inject: Nanos(1_000), injectors, ..InterruptPath::default() }, 2);
        (0..4).map(|n| way.send(Nanos(0), message(n, n as usize % 2, 0)).arrives.0).collect::<Vec<_>>()
    };
    assert_eq!(arrives(1), [1_000, 2_000, 3_000, 4_000]);
    assert_eq!(arrives(2), [1_000, 1_000, 2_000, 2_000]);
    assert_eq!(arrives(0), [1_000; 4]);
}

#[test]
fn only_bounded_caches_miss() {
    let path = InterruptPath { miss: Nanos(10), ..InterruptPath::default() };
    let error = path.check().unwrap_err().to_string();
    assert!(error.contains("machine.interrupts.cache"), "{error}");
}

proptest! {
    /// No unit serves more than one message at a time, in order, and nothing comes before it was sent.
    #[test]
    fn service_time_bounds_a_unit(
        gaps in prop::collection::vec(0u64..300, 1..200),
        (remap, notify, buffer) in (1u64..200, 0u64..200, 0u32..8),
    ) {
        let path = InterruptPath { remap: Nanos(remap), notify: Nanos(notify), buffer, ..InterruptPath::default() };
        let mut way = way(path, 1);
        let (mut now, mut last) = (Nanos(0), Nanos(0));
        for gap in gaps {
            now += Nanos(gap);
            let sent = way.send(now, message(0, 0, 0));
            prop_assert!(sent.arrives >= now + Nanos(remap + notify));
            prop_assert!(last == Nanos(0) || sent.arrives >= last + Nanos(remap + notify));
            prop_assert!(now <= sent.accepted && sent.accepted <= sent.arrives);
            last = sent.arrives;
        }
    }
}
