//! The data path allocates nothing: counted over thousands of I/Os, in every mode.

use std::alloc::System;

use reap::{Completion, Device, DmaBuf, ManualStepper, Mode, OpenOptions, Queue, Request};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DEPTH: usize = 32;

struct Load {
    queue: Queue,
    hand: ManualStepper,
    free: Vec<DmaBuf>,
    done: Vec<Completion>,
}

impl Load {
    /// One batch of reads, submitted and reaped; the device runs in between.
    fn batch(&mut self, bytes: u32) {
        let ns = self.queue.namespaces()[0];
        let batch = self
            .free
            .drain(..)
            .zip(0..)
            .map(|(buf, n)| Request::read(&ns, n * 8, buf).bytes(bytes));
        self.queue.submit(batch).map_err(|(why, _)| why).unwrap();
        while self.hand.step() {}
        while self.done.len() < DEPTH {
            self.queue.wait(DEPTH - self.done.len(), None).unwrap();
            self.queue.reap(&mut self.done);
        }
        for completion in self.done.drain(..) {
            completion.result.unwrap();
            self.free.extend(completion.buf);
        }
    }
}

#[test]
fn no_allocation_in_any_mode() {
    let device = Device::open_with("mem:64M?profile=null", &OpenOptions::default()).unwrap();
    let free = (0..DEPTH).map(|_| device.buffer(2 << 20).unwrap()).collect();
    let (queue, hand) =
        (device.queue().unwrap(), device.embedded().expect("an embedded controller").manual_step());
    let mut load = Load { queue, hand, free, done: Vec::with_capacity(DEPTH) };
    for mode in Mode::ALL {
        load.queue.set_mode(mode);
        (0..50).for_each(|_| load.batch(2 << 20));
        for bytes in [512, 4096, 64 << 10, 2 << 20] {
            let region = Region::new(GLOBAL);
            (0..100).for_each(|_| load.batch(bytes));
            let stats = region.change();
            // Less than one for each batch of 32. The housekeeping thread is counted, too: its
            // tables grow a few times, at the first check of time-outs and the first command of a
            // moderator.
            assert!(
                stats.allocations + stats.reallocations < 100,
                "{mode}, {bytes} bytes: {stats:?}"
            );
        }
    }
}
