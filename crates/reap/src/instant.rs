//! Instants: readings of one clock, with a type of their own so that no number or time span is
//! taken for one.

use std::ops::{Add, Sub};
use std::time::Duration;

use units::Nanos;

/// An instant of the clock that all of Reap reads, CLOCK_MONOTONIC (clock_gettime(2)). Arithmetic
/// saturates.
///
/// [`std::time::Instant`] reads the same clock, and does not show what it read. This one does
/// ([`Instant::as_nanos`]), so that it compares with what the kernel and its tracers note down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Nanos);

impl Instant {
    /// Reads the clock.
    #[inline]
    pub fn now() -> Instant {
        Instant(hw::now())
    }

    /// The instant at which CLOCK_MONOTONIC shows `nanos` nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(Nanos(nanos))
    }

    /// What CLOCK_MONOTONIC shows at this instant, in nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[inline]
    pub fn duration_since(self, earlier: Instant) -> Duration {
        (self.0 - earlier.0).into()
    }

    /// How long ago this instant was; zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        Instant::now().duration_since(self)
    }

    #[inline]
    pub(crate) const fn of(nanos: Nanos) -> Instant {
        Instant(nanos)
    }

    #[inline]
    pub(crate) const fn nanos(self) -> Nanos {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, span: Duration) -> Instant {
        Instant(self.0 + span.into())
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, span: Duration) -> Instant {
        Instant(self.0 - span.into())
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

/// The latest end of a wait, as the lower crates take it: `Nanos::MAX` if there is no limit.
#[inline]
pub(crate) fn deadline(until: Option<Instant>) -> Nanos {
    until.map_or(Nanos::MAX, Instant::nanos)
}

#[cfg(test)]
mod tests;
