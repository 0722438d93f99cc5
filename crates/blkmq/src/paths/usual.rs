//! Usual latencies: means that forget. Values are learnt by plain loads and stores: where two threads learn at once one of the
//! two may be lost, and nothing is exact here anyway.

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::Relaxed;

/// Weight of a new value: one part in 2^9, so that times that scatter as widely as exponential ones make the mean wander by a
/// thirtieth.
const SHORT: f32 = 1.0 / 512.0;

/// The usual latency of one class on one path, in nanoseconds.
pub(super) struct Usual {
    /// The bits of a number; 0: nothing is known.
    mean: AtomicU32,
    /// How many there were, up to the most that matters.
    count: AtomicU32,
}

impl Usual {
    pub(super) fn new() -> Usual {
        Usual { mean: AtomicU32::new(0), count: AtomicU32::new(0) }
    }

    /// The mean; `None`: nothing is known.
    #[inline]
    pub(super) fn get(&self) -> Option<f32> {
        let mean = f32::from_bits(self.mean.load(Relaxed));
        (mean > 0.0).then_some(mean)
    }

    fn approach(&self, latency: f32, part: f32) {
        let mean = f32::from_bits(self.mean.load(Relaxed));
        self.mean.store((mean + part * (latency - mean)).to_bits(), Relaxed);
    }

    /// One more: first with the weight that makes a plain mean.
    #[inline]
    pub(super) fn add(&self, latency: f32) {
        let count = self.count.load(Relaxed);
        if count as f32 * SHORT >= 1.0 {
            return self.approach(latency, SHORT);
        }
        self.count.store(count + 1, Relaxed);
        self.approach(latency, 1.0 / (count + 1) as f32);
    }

    /// One more, after a long silence: it counts for half, and what was before it for not much more than it.
    #[cold]
    pub(super) fn add_after_silence(&self, latency: f32) {
        self.approach(latency, 0.5);
        self.count.store(2, Relaxed);
    }

    pub(super) fn forget(&self) {
        self.mean.store(0, Relaxed);
        self.count.store(0, Relaxed);
    }
}
