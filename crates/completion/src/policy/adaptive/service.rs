//! How long the device takes, by class: a low quantile, the median, and the 99.9th percentile.
//!
//! Each is walked towards its place: a sample below it takes it down, one above takes it up, in steps whose ratio is the
//! quantile's (Robbins and Monro, 1951) and whose size is a fraction of the value itself. There is nothing to configure
//! and nothing to store, and a device that changes is followed.

use units::{Class, Nanos};

use crate::{Done, Found};

/// The low quantile: one completion in sixteen comes sooner.
const LOW_PART: u64 = 16;

/// Deadline over the 99.9th percentile: k of the design.
const LATE: u64 = 4;

/// What is known of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Nothing is known while it is 0.
    pub(super) low: u64,
    median: u64,
    p999: u64,
}

/// Device times by class.
#[derive(Clone, Debug)]
pub(super) struct Service(pub(super) [Times; Class::COUNT]);

impl Service {
    pub(super) fn new() -> Service {
        Service([Times::default(); Class::COUNT])
    }

    /// Before this a completion is unlikely; zero: nothing is known.
    #[inline]
    pub(super) fn low(&self, class: Class) -> Nanos {
        Nanos(self.0[class.index()].low)
    }

    /// Half of the commands have completed by then.
    #[inline]
    pub(super) fn median(&self, class: Class) -> Nanos {
        Nanos(self.0[class.index()].median)
    }

    /// A command of this age has most likely completed, whatever the notification says.
    pub(super) fn deadline(&self, class: Class) -> Nanos {
        Nanos(self.0[class.index()].p999.saturating_mul(LATE)).max(Nanos::from_millis(1))
    }

    /// A command of this class has completed. `overslept`: it was there when a nap ended that was to end before.
    #[inline]
    pub(super) fn learn(&mut self, done: &Done, overslept: bool) {
        let times = &mut self.0[done.class.index()];
        match done.found {
            Found::Looking => times.add(done.age.0),
            Found::AfterSleep { .. } if overslept => times.low -= times.step().min(times.low.saturating_sub(1)),
            // No more than an upper bound, so it can only take estimates down.
            Found::AfterSleep { at_most } => times.bound(at_most.0),
        }
    }
}

impl Times {
    /// By how much a sample below takes the low quantile down.
    fn step(&self) -> u64 {
        (self.low / 64).max(LOW_PART)
    }

    #[inline]
    fn add(&mut self, age: u64) {
        if self.low == 0 {
            (self.low, self.median, self.p999) = (age.max(1), age.max(1), age.max(1) * 2);
            return;
        }
        let step = self.step();
        self.low = if age >= self.low {
            self.low + step / LOW_PART
        } else if age < self.low / 2 {
            // Another device, or another phase of it.
            age.max(1)
        } else {
            self.low.saturating_sub(step).max(1)
        };
        let step = self.median / 32 + 1;
        self.median = if age >= self.median { self.median + step } else { self.median.saturating_sub(step).max(1) };
        let step = self.p999 / 8;
        self.p999 = if age >= self.p999 { self.p999 + step } else { self.p999 - step / 1_000 };
    }

    #[inline]
    fn bound(&mut self, at_most: u64) {
        if self.low == 0 {
            // Better than nothing, and the first wait that is looked at all the way corrects it.
            self.add(at_most);
        } else if at_most < self.low {
            self.add(at_most);
        }
    }
}
