//! What sleeping costs on a machine, and the parameters of modes.

use std::fmt;
use std::str::FromStr;

use units::Nanos;

/// What one sleep costs on a machine: what a policy is made with. [`crate::Seen::cycle`] and
/// [`crate::Woke::late`] keep track of it.
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
    /// What each further notification costs the host's CPUs while the thread that the first one
    /// wakes is on its way.
    pub message: Nanos,
    /// CPU time that a wake-up by a notification takes from other work beyond `cpu`: interrupt and
    /// switches, which the thread's clock does not count. W of [`Cycle::BARE_METAL`] and
    /// [`Cycle::VIRTUAL`] where it was never measured.
    pub wake: Nanos,
    /// The same of a timer.
    pub timer_wake: Nanos,
}

impl Cycle {
    /// A server without hypervisor.
    pub const BARE_METAL: Cycle = Cycle {
        cpu: Nanos(2_500),
        nap: Nanos(2_400),
        delay: Nanos(2_500),
        late: Nanos(2_000),
        message: Nanos(500),
        wake: Nanos(1_730),
        timer_wake: Nanos(1_800),
    };

    /// A virtual machine.
    pub const VIRTUAL: Cycle = Cycle {
        cpu: Nanos(3_000),
        nap: Nanos(5_000),
        delay: Nanos(20_000),
        late: Nanos(18_000),
        message: Nanos(4_000),
        wake: Nanos(12_000),
        timer_wake: Nanos(12_000),
    };
}

/// A server without hypervisor; an executor measures its own machine and says so.
impl Default for Cycle {
    fn default() -> Cycle {
        Cycle::BARE_METAL
    }
}

/// Entries that one look takes at most: the weight of NAPI and of irq_poll's users.
pub const WEIGHT: u32 = 64;

/// Largest weight that a mode can be given.
pub const MAX_WEIGHT: u32 = 256;

/// How the queues of one thread share it: round-robin, none for longer than its weight, all of them
/// together for no longer than budget and time, so that whatever else the thread has to do gets its
/// turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollLimits {
    /// Most entries of one poll.
    pub weight: u32,
    /// Most entries of a round over all queues.
    pub budget: u32,
    /// Longest round. A poll under way is not cut short.
    pub time: Nanos,
}

impl PollLimits {
    /// The figures of irq_poll: weight 64, budget 256. Its softirq stops when the tick moves on; 2
    /// ms is what NAPI allows.
    pub const DEFAULT: PollLimits =
        PollLimits { weight: WEIGHT, budget: 256, time: Nanos::from_millis(2) };

    /// Of a round over queues with different limits: the smallest of each.
    #[must_use]
    pub fn smallest(self, other: PollLimits) -> PollLimits {
        PollLimits {
            weight: self.weight.min(other.weight),
            budget: self.budget.min(other.budget),
            time: self.time.min(other.time),
        }
    }
}

/// n of C · Lⁿ, what `adaptive` minimises: C is the CPU time of an I/O, L its mean latency. 0
/// counts CPU time alone, infinity latency alone. Kept in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayExponent(u32);

impl DelayExponent {
    /// 3, unless the user says otherwise: the fastest mode where it is much faster, and the
    /// cheapest of those that are nearly as fast.
    pub const DEFAULT: DelayExponent = DelayExponent(3_000);
    /// Only CPU time counts.
    pub const CPU_ALONE: DelayExponent = DelayExponent(0);
    /// Only latency counts.
    pub const LATENCY_ALONE: DelayExponent = DelayExponent(u32::MAX);

    /// Of this many thousandths.
    pub const fn per_mille(thousandths: u32) -> DelayExponent {
        DelayExponent(thousandths)
    }

    /// n; infinite for [`DelayExponent::LATENCY_ALONE`].
    pub fn get(self) -> f32 {
        if self == DelayExponent::LATENCY_ALONE { f32::INFINITY } else { self.0 as f32 / 1e3 }
    }

    /// (ln C + n · ln L) / (1 + n): a difference of 0.01 is 1 % of what n gives the greater weight
    /// to, whatever n is. Of n = ∞ it is ln L, and C decides where latencies are within 1 %.
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

/// Why a text is no [`DelayExponent`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no delay exponent: n of C · Lⁿ, a number like 3 or 0.5, 0 for CPU time alone, or inf for latency alone"
)]
pub struct ExponentError(String);

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
