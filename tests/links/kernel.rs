//! What a mode comes to where the kernel decides.

use reap::Mode;

use super::table::{everywhere, skipped};
use super::work::Job;

#[test]
fn moderated_modes_are_interrupt_and_it_is_said() {
    everywhere(&[], |place| {
        if !place.is_kernel() {
            return skipped("where no kernel decides: tests/modes.rs has moderators");
        }
        let device = place.open(1, Mode::DIM);
        let queue = device.local_queue().unwrap();
        while queue.mode() != Mode::INTERRUPT {
            Job { requests: 1, ..Job::of(1) }.run(&queue);
        }
        assert!(device.health().coalescing_refused);
        assert!(device.mode_note(Mode::DIM).unwrap().contains("interrupt"));
        assert_eq!(device.mode_note(Mode::INTERRUPT), None);
    });
}
