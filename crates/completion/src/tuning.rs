//! What a sleep costs on a machine, and the parameters of modes.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::Nanos;

/// What a sleep costs on a machine, in nanoseconds: the machine-dependent input of a policy. Later
/// measurements are in [`crate::Seen::cycle`] and [`crate::Woke::late`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepCosts {
    /// CPU time of the thread for arming, blocking, and returning after the notification: B of the
    /// ski-rental problem.
    pub cpu: Nanos,
    /// CPU time of the thread for blocking on a timer and returning.
    pub nap: Nanos,
    /// Delay from posting the entry to the first poll of the thread that it wakes.
    pub delay: Nanos,
    /// Delay from a timer's instant to the first poll of the thread that it wakes.
    pub late: Nanos,
    /// CPU time of each further message that arrives before the woken thread runs.
    pub message: Nanos,
    /// CPU time that a wake-up by a message takes from other work beyond `cpu`: interrupt and
    /// context switches, which the thread's clock does not count. W of `docs/adaptive.md`; that of
    /// [`SleepCosts::BARE_METAL`] or [`SleepCosts::VIRTUAL`] if it was not measured.
    pub wake: Nanos,
    /// The same for a wake-up by a timer (W′).
    pub timer_wake: Nanos,
}

impl SleepCosts {
    /// A bare-metal server.
    pub const BARE_METAL: SleepCosts = SleepCosts {
        cpu: Nanos(2_500),
        nap: Nanos(2_400),
        delay: Nanos(2_500),
        late: Nanos(2_000),
        message: Nanos(500),
        wake: Nanos(1_730),
        timer_wake: Nanos(1_800),
    };

    /// A virtual machine.
    pub const VIRTUAL: SleepCosts = SleepCosts {
        cpu: Nanos(3_000),
        nap: Nanos(5_000),
        delay: Nanos(20_000),
        late: Nanos(18_000),
        message: Nanos(4_000),
        wake: Nanos(12_000),
        timer_wake: Nanos(12_000),
    };
}

/// A bare-metal server. An executor measures its own machine instead.
impl Default for SleepCosts {
    fn default() -> SleepCosts {
        SleepCosts::BARE_METAL
    }
}

/// Most entries of one poll: the weight of NAPI and of irq_poll's users.
pub const WEIGHT: u32 = 64;

/// Largest weight that a mode accepts.
pub const MAX_WEIGHT: u32 = 256;

/// Limits of polling by one thread: its queues are polled round-robin, each for at most its weight,
/// and all together for at most the budget and the time of a round, so that the thread's other work
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollLimits {
    /// Most entries of one poll.
    pub weight: u32,
    /// Most entries of a round over all queues.
    pub budget: u32,
    /// Longest round, in nanoseconds. A poll under way is not interrupted.
    pub time: Nanos,
}

impl PollLimits {
    /// Linux's values: weight 64 and budget 256 of irq_poll, whose softirq ends at the next tick;
    /// the 2 ms are NAPI's limit.
    pub const DEFAULT: PollLimits =
        PollLimits { weight: WEIGHT, budget: 256, time: Nanos::from_millis(2) };

    /// The limits of a round over queues with different limits: the smaller of each.
    #[must_use]
    pub fn smallest(self, other: PollLimits) -> PollLimits {
        PollLimits {
            weight: self.weight.min(other.weight),
            budget: self.budget.min(other.budget),
            time: self.time.min(other.time),
        }
    }
}

/// n of C · Lⁿ, which `adaptive` minimises: C is the CPU time of an I/O, L its mean latency. 0
/// counts CPU time alone, infinity latency alone. Stored in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayExponent(u32);

impl DelayExponent {
    /// 3: chooses the fastest action where it is much faster, and otherwise the cheapest of those
    /// that are nearly as fast.
    pub const DEFAULT: DelayExponent = DelayExponent(3_000);
    /// Only CPU time counts.
    pub const CPU_ALONE: DelayExponent = DelayExponent(0);
    /// Only latency counts.
    pub const LATENCY_ALONE: DelayExponent = DelayExponent(u32::MAX);

    /// From thousandths.
    pub const fn per_mille(thousandths: u32) -> DelayExponent {
        DelayExponent(thousandths)
    }

    /// n; infinite for [`DelayExponent::LATENCY_ALONE`].
    pub fn get(self) -> f32 {
        if self == DelayExponent::LATENCY_ALONE { f32::INFINITY } else { self.0 as f32 / 1e3 }
    }

    /// The logarithm of the cost: (ln C + n · ln L) / (1 + n), for C and L in nanoseconds. The
    /// division keeps costs comparable: for any n a difference of 0.01 is about 1 % of the factor
    /// with the greater weight. For n = ∞ it is ln L, and C decides where latencies are within 1 %.
    pub fn cost(self, cpu: f32, latency: f32) -> f32 {
        let (cpu, latency) = (cpu.max(1.0).ln(), latency.max(1.0).ln());
        let n = self.get();
        if n.is_finite() { (cpu + n * latency) / (1.0 + n) } else { latency + 1e-3 * cpu }
    }

    pub(crate) fn thousandths(self) -> u32 {
        self.0
    }
}

impl Default for DelayExponent {
    fn default() -> DelayExponent {
        DelayExponent::DEFAULT
    }
}

/// Why a text is not a [`DelayExponent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExponentError(String);

impl fmt::Display for ExponentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a delay exponent: n of C · Lⁿ, a number like 3 or 0.5, 0 for CPU time alone, or inf for latency alone",
            self.0
        )
    }
}

impl Error for ExponentError {}

impl fmt::Display for DelayExponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u32::MAX => f.pad("inf"),
            n => f.pad(&format!("{}", f64::from(n) / 1e3)),
        }
    }
}

/// `3`, `0.5`, `inf`.
impl FromStr for DelayExponent {
    type Err = ExponentError;

    fn from_str(text: &str) -> Result<DelayExponent, ExponentError> {
        if text == "inf" {
            return Ok(DelayExponent::LATENCY_ALONE);
        }
        // `f64` would also parse `nan`, `1e9` and signs.
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let value = text.parse::<f64>().ok().filter(|_| plain).map(|value| (value * 1e3).round());
        let known = value.filter(|&thousandths| thousandths < f64::from(u32::MAX));
        known
            .map(|thousandths| DelayExponent(thousandths as u32))
            .ok_or_else(|| ExponentError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests;
