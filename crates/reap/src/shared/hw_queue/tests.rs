//! What tests of queues' threads ask of a hardware queue; and whom it tells.

use units::Nanos;

use super::{HwQueue, InLine, Patience};
use crate::{Device, OpenOptions};
use sync::TagWaiters;

impl HwQueue {
    /// Whether a thread that serves the line finds no tag on the lane that notifies.
    pub(crate) fn finds_no_tag(&self) -> bool {
        let line = InLine { queue: self, now: Nanos::ZERO, patience: Patience::Waits };
        line.is_exhausted(&&self.lane).unwrap_or(true)
    }
}

/// Where one thread has the queue it is that one which may have found the lock held; where several share it, the one that sleeps on it.
#[test]
fn leftover_entries_wake_only_the_waiter() {
    for threads in [1, 2] {
        let options = OpenOptions::new().software_queues(threads).hardware_queues(1);
        let device = Device::open_with("mem:1M?profile=null&queues=1", &options).unwrap();
        let queue = device.queue().unwrap();
        let hardware = &queue.lanes()[0].controller().queue;
        let bells = || hardware.softs.iter().map(|soft| soft.wake.bell());
        bells().for_each(sync::WakeFlag::arm);
        hardware.tell_of_entries();
        // Nobody has taken the role of sleeping on a shared one.
        assert!(bells().all(|bell| bell.is_armed() == (threads > 1)), "{threads}");
    }
}
