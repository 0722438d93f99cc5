//! Every interleaving of a host that posts with shadow doorbells, and a controller that sleeps
//! between commands (`--cfg loom`).

use sync::model::{EventFds, fails, holds};
use sync::shadow::passes;
use sync::{Arc, thread};

use super::*;
use crate::testing::words::Pages;
use crate::testing::{MemCq, MemSq};
use crate::{QueuePair, QueueSizes};
use nvme::{RingIndex, SqSlots, Sqe};
use units::Nanos;

const QUEUE: QueueId = QueueId(1);
/// Where the words of its tail are.
const TAIL: usize = 2;

/// What the host leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// EventIdx is read without a fence after the doorbell was written ...
    Fence,
    /// ... or before that.
    Order,
}

/// A register whose write wakes the controller.
struct Wakes(Arc<EventFds>);

/// The host's doorbells.
struct Host {
    shadow: Shadow<Pages>,
    register: Wakes,
    omit: Omit,
}

impl Doorbells for Wakes {
    fn ring_sq(&self, _: QueueId, _: u32) {
        self.0.signal(0);
    }

    fn ring_cq(&self, _: QueueId, _: u32) {}

    fn sq_tail(&self, _: QueueId) -> u32 {
        0
    }

    fn cq_head(&self, _: QueueId) -> u32 {
        0
    }
}

impl Doorbells for Host {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        let Some(doorbell) = self.shadow.words().doorbell(TAIL) else { return };
        let Ok(old) = doorbell.value();
        let rings = match self.omit {
            Omit::Nothing => return self.shadow.ring_sq(&self.register, queue, tail),
            Omit::Fence => {
                let Ok(()) = doorbell.set_value(tail);
                let Ok(event) = doorbell.event();
                passes(event, old, tail)
            }
            Omit::Order => {
                let Ok(event) = doorbell.event();
                let Ok(()) = doorbell.set_value(tail);
                passes(event, old, tail)
            }
        };
        if rings {
            self.register.ring_sq(queue, tail);
        }
    }

    fn ring_cq(&self, _: QueueId, _: u32) {}

    fn sq_tail(&self, _: QueueId) -> u32 {
        0
    }

    fn cq_head(&self, _: QueueId) -> u32 {
        0
    }
}

const COMMANDS: u32 = 2;

fn each_command_is_found(omit: Omit) -> bool {
    let fds = EventFds::new(1, 2);
    let (pages, sq) = (Pages::new(2), MemSq::new(4));
    let sizes = QueueSizes { sq_entries: 4, cq_entries: 4, tags: 3 };
    let pair = QueuePair::new(QUEUE, sizes, sq.clone(), MemCq::new(4)).unwrap();
    let host = {
        let host = Host { shadow: Shadow::new(pages.clone()), register: Wakes(fds.clone()), omit };
        host.shadow.set_enabled(true);
        thread::spawn(move || {
            for token in 0..COMMANDS.into() {
                let mut sq = pair.lock_sq();
                sq.post(Sqe { cdw10: 7, ..Sqe::default() }, token, Nanos(token)).unwrap();
                assert_eq!(sq.commit(&host), 1);
            }
            host.register.0.end();
        })
    };

    let (mut fetch, mut told) = (RingIndex::new(4), true);
    while told && fetch.slot() < COMMANDS {
        while fetch.available(pages.value(TAIL)).unwrap() > 0 {
            assert_eq!(SqSlots::load(&sq, fetch.slot()).cdw10, 7, "a doorbell before its command");
            fetch.advance();
        }
        if fetch.slot() < COMMANDS && pages.arm(TAIL, fetch.slot()) == fetch.slot() {
            told = fds.block(&[0]).is_ok();
        }
    }
    fds.end();
    host.join().unwrap();
    told
}

#[test]
fn sleeping_controller_finds_each_command() {
    holds(3, || each_command_is_found(Omit::Nothing));
}

#[test]
fn host_without_fence_is_caught() {
    fails(3, || each_command_is_found(Omit::Fence));
}

#[test]
fn reading_eventidx_first_is_caught() {
    fails(3, || each_command_is_found(Omit::Order));
}
