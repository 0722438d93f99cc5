//! What a policy is told about its user and its machine.

use std::fmt;
use std::str::FromStr;

use units::Nanos;

/// What a policy is told when it is made. Only `adaptive` asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// What the user allows.
    pub slack: LatencySlack,
    /// What sleeping costs here, to begin with. [`crate::Seen::cycle`] and [`crate::Woke::late`] keep track of it.
    pub machine: Cycle,
}

/// What one sleep costs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// CPU time of arming, blocking, being notified and coming back: B of the ski rental.
    pub cpu: Nanos,
    /// CPU time of blocking on a timer and coming back.
    pub nap: Nanos,
    /// From the entry's being posted to the woken thread's first look.
    pub delay: Nanos,
    /// From a timer's instant to the same.
    pub late: Nanos,
    /// What each further notification costs the host's CPUs while the thread that the first one wakes is on its way.
    pub message: Nanos,
}

/// A server without hypervisor; an executor measures its own machine and says so.
impl Default for Cycle {
    fn default() -> Cycle {
        Cycle { cpu: Nanos(2_500), nap: Nanos(2_400), delay: Nanos(2_500), late: Nanos(2_000), message: Nanos(500) }
    }
}

/// How much later than if polled a command may be found, as a fraction of its predicted device time: 0 … ∞, 10 % unless
/// the user says otherwise. Kept in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencySlack(u32);

impl LatencySlack {
    /// As if polled, whatever it costs.
    pub const NONE: LatencySlack = LatencySlack(0);
    /// Whatever costs the least CPU time: what has come may wait until the caller has no room for more.
    pub const UNLIMITED: LatencySlack = LatencySlack(u32::MAX);

    /// The settings that a sweep tries, from the one that finds completions soonest to the one that costs least.
    pub const SETTINGS: [LatencySlack; 11] = [
        LatencySlack::NONE,
        LatencySlack::per_mille(20),
        LatencySlack::per_mille(50),
        LatencySlack::per_mille(100),
        LatencySlack::per_mille(200),
        LatencySlack::per_mille(500),
        LatencySlack::per_mille(1_000),
        LatencySlack::per_mille(2_500),
        LatencySlack::per_mille(5_000),
        LatencySlack::per_mille(10_000),
        LatencySlack::UNLIMITED,
    ];

    /// Grows from the settings that find completions soonest to those that cost least.
    pub const fn rank(self) -> u32 {
        self.0
    }

    /// The rate of exchange that this setting means: CPU time that may be spent to find a completion one unit of time sooner. `None`:
    /// the knob says nothing of the kind.
    pub fn exchange(self) -> Option<f64> {
        None
    }

    /// The setting that lies so far on the way from one to another: half-way at 0.5.
    pub fn between(self, other: LatencySlack, part: f64) -> LatencySlack {
        // In the logarithm, up to where a caller may be later than a run is long: any more is the same.
        let log = |slack: LatencySlack| f64::from(slack.0.clamp(1, 10_000_000)).ln();
        LatencySlack((log(self) + (log(other) - log(self)) * part).exp().round() as u32)
    }

    /// Of so many thousandths.
    pub const fn per_mille(thousandths: u32) -> LatencySlack {
        LatencySlack(thousandths)
    }

    /// In thousandths; `u32::MAX` is no limit.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// This fraction of a span; of any span [`Nanos::MAX`] if there is no limit.
    #[inline]
    pub fn of(self, span: Nanos) -> Nanos {
        match self.0 {
            u32::MAX => Nanos::MAX,
            thousandths => Nanos(span.0.saturating_mul(u64::from(thousandths)) / 1_000),
        }
    }
}

impl Default for LatencySlack {
    fn default() -> LatencySlack {
        LatencySlack(100)
    }
}

/// Why a text is no [`LatencySlack`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlackError {
    /// It cannot be read.
    #[error("'{0}' is no latency slack: a percentage like 10% or 2.5%, a fraction like 0.1, or inf")]
    Unreadable(String),
    /// A number without the sign that is a share of more than the whole: so many per cent may be meant, or a hundred times as many.
    #[error("'{0}' as a latency slack is {percent}: write {percent}, or {0}% if that is meant", percent = LatencySlack(*.1))]
    Ambiguous(String, u32),
}

impl fmt::Display for LatencySlack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u32::MAX => f.pad("inf"),
            n if n % 10 == 0 => f.pad(&format!("{}%", n / 10)),
            n => f.pad(&format!("{}.{}%", n / 10, n % 10)),
        }
    }
}

/// `10%`, `2.5%`, `0.1`, `inf`.
impl FromStr for LatencySlack {
    type Err = SlackError;

    fn from_str(text: &str) -> Result<LatencySlack, SlackError> {
        if text == "inf" {
            return Ok(LatencySlack::UNLIMITED);
        }
        let unreadable = || SlackError::Unreadable(text.to_owned());
        let (number, unit) = text.strip_suffix('%').map_or((text, 1_000.0), |number| (number, 10.0));
        let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let value = number.parse::<f64>().ok().filter(|_| plain).ok_or_else(unreadable)?;
        let thousandths = (value * unit).round();
        match thousandths {
            n if n >= f64::from(u32::MAX) => Err(unreadable()),
            n if value > 1.0 && number == text => Err(SlackError::Ambiguous(text.to_owned(), n as u32)),
            n => Ok(LatencySlack(n as u32)),
        }
    }
}

#[cfg(test)]
mod tests;
