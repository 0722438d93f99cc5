//! What is written, and whether it is what is read.

use reap::{Completion, Queue, Request};

/// The word at `i` of the block at `lba`, generation `g`.
fn word(lba: u64, i: usize, g: u64) -> u64 {
    (lba.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (i as u64).wrapping_mul(0xd6e8_feb8_6659_fd93)
        ^ g << 17)
        .rotate_left(23)
        | 1
}

/// Fills whole blocks from `lba` on.
pub fn fill(buf: &mut [u8], lba: u64, block: usize, g: u64) {
    for (lba, chunk) in (lba..).zip(buf.chunks_mut(block)) {
        chunk
            .chunks_exact_mut(8)
            .enumerate()
            .for_each(|(i, place)| place.copy_from_slice(&word(lba, i, g).to_le_bytes()));
    }
}

/// The first block that is not as [`fill`] has left it.
pub fn differs(buf: &[u8], lba: u64, block: usize, g: u64) -> Option<u64> {
    let is_whole = |lba: u64, chunk: &[u8]| {
        chunk.chunks_exact(8).enumerate().all(|(i, place)| place == word(lba, i, g).to_le_bytes())
    };
    (lba..).zip(buf.chunks(block)).find(|(lba, chunk)| !is_whole(*lba, chunk)).map(|(lba, _)| lba)
}

/// Writing, and reading back.
#[derive(Clone, Copy)]
pub struct Job {
    /// Whose fourth of the device.
    pub owner: u64,
    pub requests: u64,
    /// Of each.
    pub bytes: usize,
    /// At a time.
    pub depth: usize,
    /// Submitting waits for the thread to sleep, where that can be.
    pub fused: bool,
    pub generation: u64,
}

impl Job {
    /// More at a time than there are tags.
    pub fn of(owner: u64) -> Job {
        Job { owner, requests: 60, bytes: 4096, depth: 24, fused: false, generation: 1 }
    }

    /// Writes, reads back, and compares.
    pub fn run(self, queue: &Queue) {
        self.pass(queue, true);
        self.pass(queue, false);
    }

    /// One of the two.
    pub fn pass(self, queue: &Queue, write: bool) {
        let (ns, block) = (queue.namespaces()[0], queue.namespaces()[0].block_bytes() as usize);
        let (base, per) = (self.owner * (ns.blocks() / 4), (self.bytes / block) as u64);
        assert!(self.requests * per <= ns.blocks() / 4, "it stays in its fourth");
        let (mut next, mut finished, mut out) = (0, 0, Vec::with_capacity(self.depth));
        while finished < self.requests {
            // The last thread of the queue may have left some in flight.
            let room = self
                .depth
                .saturating_sub(queue.in_flight() as usize)
                .min((self.requests - next) as usize) as u64;
            let batch = (next..next + room).map(|i| {
                let (lba, mut buf) = (base + i * per, queue.buffer(self.bytes).unwrap());
                if write {
                    fill(&mut buf, lba, block, self.generation)
                } else {
                    buf.fill(0)
                }
                let request = if write {
                    Request::write(&ns, lba, buf)
                } else {
                    Request::read(&ns, lba, buf)
                };
                request.tag(lba)
            });
            let submitted = if self.fused { queue.post(batch) } else { queue.submit(batch) };
            submitted.map_err(|(why, _)| why).unwrap();
            next += room;
            let found = queue.wait(1, None).unwrap();
            assert!(
                found > 0 || next < self.requests,
                "nothing is in flight, and {finished} of {next} are done"
            );
            queue.reap(&mut out);
            for done in out.drain(..) {
                done.result.unwrap_or_else(|e| panic!("{e} (write: {write}, block {})", done.tag));
                let buf = done.buf.unwrap();
                let wrong =
                    if write { None } else { differs(&buf, done.tag, block, self.generation) };
                assert_eq!(wrong, None, "the first block that differs, of fourth {}", self.owner);
                finished += 1;
            }
        }
        assert_eq!((queue.in_flight(), queue.finished()), (0, 0));
    }
}

/// Submits all of them.
pub fn submit(queue: &Queue, requests: impl IntoIterator<Item = Request>) {
    queue.submit(requests).map_err(|(why, _)| why).unwrap();
}

/// This many writes of 4 KiB, which nobody waits for yet.
pub fn begin(queue: &Queue, n: u64) {
    let ns = queue.namespaces()[0];
    let per = 4096 / u64::from(ns.block_bytes());
    submit(queue, (0..n).map(|i| Request::write(&ns, i * per, queue.buffer(4096).unwrap())));
}

/// Waits for all that is in flight.
pub fn drain(queue: &Queue) -> Vec<Completion> {
    let mut out = Vec::with_capacity(64);
    while queue.in_flight() > 0 || queue.finished() > 0 {
        queue.wait(1, None).unwrap();
        out.reserve(queue.finished());
        queue.reap(&mut out);
    }
    out
}
