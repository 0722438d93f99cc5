use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use proptest::prelude::*;

use super::*;
use crate::testing::{MemDoorbells, words::Pages};
use crate::{QueuePair, QueueSizes};
use nvme::{RingIndex, SqSlots, Sqe};
use units::Nanos;

const QUEUE: QueueId = QueueId(1);

fn moved(shadow: &Shadow<Pages>, doorbells: &MemDoorbells, tail: u32) -> bool {
    let before = doorbells.sq_tail(QUEUE);
    doorbells.ring_sq(QUEUE, u32::MAX);
    shadow.ring_sq(doorbells, QUEUE, tail);
    let rung = doorbells.sq_tail(QUEUE) != u32::MAX;
    if !rung {
        doorbells.ring_sq(QUEUE, before);
    }
    rung
}

#[test]
fn eventidx_decides_register_writes() {
    let (shadow, doorbells) = (Shadow::new(Pages::new(2)), MemDoorbells::new(1));
    assert!(
        moved(&shadow, &doorbells, 1) && moved(&shadow, &doorbells, 2),
        "nobody reads memory yet"
    );
    assert_eq!((shadow.words().value(2), shadow.rung()), (0, 0));
    shadow.set_enabled(true);
    assert!(moved(&shadow, &doorbells, 1), "EventIdx 0 was passed");
    assert!(!moved(&shadow, &doorbells, 2) && !moved(&shadow, &doorbells, 3));
    assert_eq!((shadow.words().value(2), shadow.rung(), shadow.is_enabled()), (3, 1, true));
    shadow.words().arm(2, 3);
    assert!(moved(&shadow, &doorbells, 0), "round the end");
    shadow.set_enabled(false);
    assert!(moved(&shadow, &doorbells, 1) && moved(&shadow, &doorbells, 2));
    assert_eq!(shadow.words().value(2), 0);
}

#[test]
fn unmapped_doorbell_is_its_register() {
    let (shadow, doorbells) = (Shadow::new(Pages::new(1)), MemDoorbells::new(1));
    shadow.set_enabled(true);
    assert!(moved(&shadow, &doorbells, 1) && moved(&shadow, &doorbells, 2));
    shadow.ring_cq(&doorbells, QUEUE, 5);
    assert_eq!(doorbells.cq_head(QUEUE), 5);
}

/// A controller may read either the memory or the register.
#[test]
fn admin_doorbells_are_written_twice() {
    let (shadow, doorbells) = (Shadow::new(Pages::new(2)), MemDoorbells::new(1));
    for (kept, value) in [(false, 1), (false, 2), (true, 3), (true, 4)] {
        shadow.set_enabled(kept);
        shadow.ring_sq(&doorbells, QueueId::ADMIN, value);
        shadow.ring_cq(&doorbells, QueueId::ADMIN, value + 10);
        assert_eq!(
            (doorbells.sq_tail(QueueId::ADMIN), doorbells.cq_head(QueueId::ADMIN)),
            (value, value + 10)
        );
        assert_eq!((shadow.words().value(0), shadow.words().value(1)), (value, value + 10));
    }
    assert_eq!(shadow.rung(), 0, "they are no I/O queue's");
}

/// Operations of a queue pair's owner and a sleeping controller, in any order.
#[derive(Clone, Copy, Debug)]
enum Event {
    Post(u8),
    Commit,
    /// The controller is awake and fetches some commands.
    Fetch(u8),
    /// It sleeps if there are no commands.
    Sleep,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0u8..5).prop_map(Event::Post),
        4 => Just(Event::Commit),
        3 => (0u8..6).prop_map(Event::Fetch),
        2 => Just(Event::Sleep),
    ];
    prop::collection::vec(event, 0..400)
}

/// Registers that wake a controller.
struct Wakes(MemDoorbells, Arc<AtomicU32>);

impl Doorbells for Wakes {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.0.ring_sq(queue, tail);
        self.1.fetch_add(1, SeqCst);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.0.ring_cq(queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.0.sq_tail(queue)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.0.cq_head(queue)
    }
}

/// Doorbells of a queue pair, in memory and as registers.
struct Both<'a>(&'a Shadow<Pages>, &'a Wakes);

impl Doorbells for Both<'_> {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.0.ring_sq(self.1, queue, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.0.ring_cq(self.1, queue, head);
    }

    fn sq_tail(&self, queue: QueueId) -> u32 {
        self.1.sq_tail(queue)
    }

    fn cq_head(&self, queue: QueueId) -> u32 {
        self.1.cq_head(queue)
    }
}

proptest! {
    /// For any sequence and ring size: a sleeping controller is woken by a later announcement,
    /// finds all commands when it wakes, and is woken once for each time that it arms.
    #[test]
    fn only_sleeping_controller_is_notified(entries in 2u32..9, events in events()) {
        let (shadow, wakes) = (Shadow::new(Pages::new(2)), Wakes(MemDoorbells::new(1), Arc::default()));
        shadow.set_enabled(true);
        let (sq, cq) = (crate::testing::MemSq::new(entries), crate::testing::MemCq::new(entries));
        let sizes = QueueSizes { sq_entries: entries, cq_entries: entries, tags: entries - 1 };
        let pair = QueuePair::new(QUEUE, sizes, sq.clone(), cq.clone()).unwrap();
        let (mut fetch, mut post, mut out) = (RingIndex::new(entries), nvme::RingIndex::new(entries), Vec::with_capacity(16));
        let (mut asleep, mut told, mut arms, mut next) = (false, 0, 0, 0u64);
        for event in events {
            match event {
                Event::Post(n) => {
                    let mut sq = pair.lock_sq();
                    for _ in 0..n {
                        next += u64::from(sq.post(Sqe::default(), next, Nanos(next)).is_ok());
                    }
                }
                Event::Commit => {
                    let announced = pair.lock_sq().commit(&Both(&shadow, &wakes));
                    prop_assert!(!(asleep && announced > 0) || wakes.1.load(SeqCst) > told, "it sleeps on");
                }
                Event::Fetch(n) if !asleep => {
                    for _ in 0..n.min(fetch.available(shadow.words().value(2)).unwrap() as u8) {
                        let cid = SqSlots::load(&sq, fetch.slot()).cid;
                        fetch.advance();
                        let cqe = nvme::Cqe { cid, sq_id: 1, sq_head: fetch.slot() as u16, ..nvme::Cqe::default() };
                        nvme::CqSlots::store(&cq, post.slot(), &cqe.with_status(nvme::Status::SUCCESS, post.phase()));
                        post.advance();
                    }
                    out.clear();
                    prop_assert_eq!(pair.reap(&Both(&shadow, &wakes), 16, &mut out).violation, None);
                }
                Event::Sleep if !asleep => {
                    told = wakes.1.load(SeqCst);
                    let now = shadow.words().arm(2, fetch.slot());
                    asleep = now == fetch.slot();
                    arms += 1;
                }
                _ => {}
            }
            if asleep && wakes.1.load(SeqCst) > told {
                asleep = false;
                prop_assert!(fetch.available(shadow.words().value(2)).unwrap() > 0, "woken for nothing");
            }
        }
        // EventIdx starts at 0. One that was armed and not passed is passed again after 65,536
        // moves.
        prop_assert!(wakes.1.load(SeqCst) <= 2 * arms + 1 + next as u32 / entries, "{} wakes after {arms} arms", wakes.1.load(SeqCst));
    }
}
