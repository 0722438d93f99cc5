//! What `latency` learns with: means that forget, and a line through latency and load. Values are learnt by plain loads and
//! stores: where two threads learn at once one of the two may be lost, and nothing is exact here anyway.

use handover::sync::atomic::AtomicU32;
use handover::sync::atomic::Ordering::Relaxed;

/// A number that threads share as its bits.
pub(super) struct Float(AtomicU32);

impl Float {
    pub(super) fn new(value: f32) -> Float {
        Float(AtomicU32::new(value.to_bits()))
    }

    #[inline]
    pub(super) fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Relaxed))
    }

    #[inline]
    pub(super) fn set(&self, value: f32) {
        self.0.store(value.to_bits(), Relaxed);
    }

    /// Goes a part of the way to `value`, and says where it is then.
    #[inline]
    fn approach(&self, value: f32, part: f32) -> f32 {
        let new = self.get() + part * (value - self.get());
        self.set(new);
        new
    }
}

/// Weight of a new value in a mean that is to follow what happens: one part in 2^9, so that times that scatter as widely as
/// exponential ones make the mean wander by a thirtieth. A latency that is many times the usual one still tells at once.
const SHORT: f32 = 1.0 / 512.0;

/// Weight of a new value in what is to be known for long, which is told of few requests only: how latency goes with load
/// shows only when the load changes.
const LONG: f32 = 1.0 / 8192.0;

/// The latencies of one class on one path, in nanoseconds: means of the last few hundred, and of the last many thousand.
pub(super) struct Latencies {
    usual: Float,
    long: Float,
    /// How many there were in each, up to the most that matters.
    count: AtomicU32,
    long_count: AtomicU32,
}

/// The weight of one more value where there were `count`, up to the most that matters: first that of a plain mean.
#[inline]
fn part(count: &AtomicU32, least: f32) -> f32 {
    let before = count.load(Relaxed);
    if before as f32 * least >= 1.0 {
        return least;
    }
    count.store(before + 1, Relaxed);
    1.0 / (before + 1) as f32
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies { usual: Float::new(0.0), long: Float::new(0.0), count: AtomicU32::new(0), long_count: AtomicU32::new(0) }
    }

    /// The usual latency; `None`: nothing is known.
    #[inline]
    pub(super) fn usual(&self) -> Option<f32> {
        let usual = self.usual.get();
        (usual > 0.0).then_some(usual)
    }

    /// One more.
    #[inline]
    pub(super) fn add(&self, latency: f32) {
        self.usual.approach(latency, part(&self.count, SHORT));
    }

    /// The same, for what is known for long. Its part of that.
    #[inline]
    pub(super) fn add_for_long(&self, latency: f32) -> f32 {
        let before = self.long.get();
        self.long.approach(latency, part(&self.long_count, LONG));
        if before > 0.0 { latency / before } else { 1.0 }
    }

    /// One more, after a long silence: it counts for half, and what was before it for not much more than it.
    #[cold]
    pub(super) fn add_after_silence(&self, latency: f32) {
        self.usual.approach(latency, 0.5);
        self.long.approach(latency, 0.5);
        self.count.store(2, Relaxed);
        self.long_count.store(2, Relaxed);
    }

    pub(super) fn forget(&self) {
        self.usual.set(0.0);
        self.long.set(0.0);
        self.count.store(0, Relaxed);
        self.long_count.store(0, Relaxed);
    }
}

/// How a path's latency goes with its load: a line through the points (load found, latency in terms of the usual one), and
/// the load of late.
pub(super) struct Fit {
    /// Load that requests have found of late.
    usual_load: Float,
    /// Over long: means of load and latency, their variances, their covariance.
    load: Float,
    latency: Float,
    variance: Float,
    scatter: Float,
    covariance: Float,
    /// How much longer a request takes for each unit of load, as a part of the usual latency: what follows from them.
    slope: Float,
    /// Points, up to the most that matters.
    count: AtomicU32,
    /// Requests that have ended.
    ended: AtomicU32,
}

/// A slope that is less than two standard errors is taken for noise, and one that is more is believed as far as it is more.
const ERRORS: f32 = 2.0;

/// Latencies beyond so many times the usual one count as so many: a line through a few outliers is no line.
const OUTLIER: f32 = 8.0;

impl Fit {
    /// One request in so many becomes a point.
    const ONE_IN: u32 = 4;

    pub(super) fn new() -> Fit {
        let [usual_load, load, latency, variance, scatter, covariance, slope] = std::array::from_fn(|_| Float::new(0.0));
        Fit { usual_load, load, latency, variance, scatter, covariance, slope, count: AtomicU32::new(0), ended: AtomicU32::new(0) }
    }

    /// Load that requests usually find.
    #[inline]
    pub(super) fn usual_load(&self) -> f32 {
        self.usual_load.get()
    }

    /// How much longer a request takes for each unit of load, as a part of its usual latency.
    #[inline]
    pub(super) fn slope(&self) -> f32 {
        self.slope.get()
    }

    /// A request that found `load` took `latency` times as long as usual.
    #[inline]
    pub(super) fn add(&self, load: f32, latency: f32) {
        let part = part(&self.count, LONG);
        let usual_load = self.usual_load.approach(load, part.max(SHORT * Fit::ONE_IN as f32));
        let latency = latency.min(OUTLIER);
        let (away, late) = (load - self.load.get(), latency - self.latency.get());
        let (load, latency) = (self.load.approach(load, part), self.latency.approach(latency, part));
        let variance = self.variance.approach(away * away, part);
        let scatter = self.scatter.approach(late * late, part);
        let covariance = self.covariance.approach(away * late, part);
        // No path gets faster with load.
        let error = ERRORS * ERRORS * part / 2.0;
        let slope = if covariance > 0.0 { (covariance / variance - error * scatter / covariance).max(0.0) } else { 0.0 };
        let here = latency + slope * (usual_load - load);
        // And none slower than in proportion.
        self.slope.set((slope / here.max(0.1)).min(1.0 / usual_load.max(1.0)));
    }

    /// A request has ended: whether it is to become a point.
    #[inline]
    pub(super) fn is_next(&self) -> bool {
        let ended = self.ended.load(Relaxed).wrapping_add(1);
        self.ended.store(ended, Relaxed);
        ended.is_multiple_of(Fit::ONE_IN)
    }

    pub(super) fn forget(&self) {
        for value in [&self.usual_load, &self.load, &self.latency, &self.variance, &self.scatter, &self.covariance, &self.slope] {
            value.set(0.0);
        }
        self.count.store(0, Relaxed);
    }
}
