//! [`Nanos`], the type of instants and spans.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds: an instant since an arbitrary origin, or a span. Arithmetic saturates: "never"
/// ([`Nanos::MAX`]) plus a span stays "never", and a clock that steps back yields zero.
///
/// With the feature `serde` it is read and written as a plain number.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize), serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin; also the empty span.
    pub const ZERO: Nanos = Nanos(0);
    /// Never; an unbounded span.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of `n` microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000))
    }

    /// A span of `n` milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000))
    }

    /// A span of `n` seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000_000))
    }

    /// The span in seconds, for rates and reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Nanos {
    type Err = String;

    /// Parses a decimal number and its unit: `30s`, `1.5ms`, `50us`, `100ns`. A fraction of a
    /// nanosecond is an error.
    fn from_str(text: &str) -> Result<Nanos, String> {
        // "s" comes last: it is a suffix of all the others.
        const UNITS: [(&str, u64); 5] =
            [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let span = || {
            let (number, unit) = UNITS
                .into_iter()
                .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // Digits only, as `parse` would accept a sign. The fraction has at most nine digits: no
            // unit is longer than 10⁹ ns, and `scale` fits in 64 bits.
            if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
                return None;
            }
            let scale = 10u64.pow(fraction.len() as u32);
            let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
            let nanos = whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part / scale)?;
            // 0.5ns is an error rather than rounded.
            part.is_multiple_of(scale).then_some(Nanos(nanos))
        };
        span().ok_or_else(|| format!("`{text}` is not a duration: write a number and its unit, ns, us, ms or s, as in 1.5ms"))
    }
}

impl From<Duration> for Nanos {
    /// A span that does not fit (more than 584 years) becomes [`Nanos::MAX`].
    fn from(span: Duration) -> Nanos {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(rhs.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("never"),
            // Up to four digits of the smaller unit: 9999 ns rather than 10.0 µs.
            n if n < 10_000 => write!(f, "{n} ns"),
            n if n < 10_000_000 => write!(f, "{:.1} µs", n as f64 / 1e3),
            n if n < 10_000_000_000 => write!(f, "{:.1} ms", n as f64 / 1e6),
            n => write!(f, "{:.1} s", n as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests;
