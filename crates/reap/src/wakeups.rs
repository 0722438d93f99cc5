//! Two histograms of a queue's wake-ups: completions per wake-up, and the delay from the interrupt
//! to the thread's running. Kept only on request. The buckets are those of `trace::histogram`,
//! which draws them.
use units::Nanos;

/// Buckets of completions per wake-up, one for each value; the last is for all larger ones.
const LINEAR: usize = 129;
/// Buckets of the delay: powers of two of microseconds.
const LOG2: usize = 40;

/// A histogram: counts by bucket, the sum and the largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeupHistogram<const N: usize> {
    /// The number of values in each bucket.
    pub counts: [u64; N],
    /// The values' sum.
    pub sum: u64,
    /// The largest value.
    pub max: u64,
}

impl<const N: usize> WakeupHistogram<N> {
    const EMPTY: WakeupHistogram<N> = WakeupHistogram { counts: [0; N], sum: 0, max: 0 };

    fn add(&mut self, bucket: usize, value: u64) {
        self.counts[bucket.min(N - 1)] += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

/// The two histograms of one queue, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeups {
    /// Completions from one notification that woke the thread to the next: a bucket for each value,
    /// the last for all larger ones.
    pub completions: WakeupHistogram<LINEAR>,
    /// Microseconds from the first message not seen yet until the thread ran: a bucket per power of
    /// two.
    pub delay: WakeupHistogram<LOG2>,
    /// Completions since the last wake-up, if there was one.
    since_wakeup: Option<u64>,
    /// When counting began, or completions were last reaped. Messages sent before are not waited
    /// for.
    since: Nanos,
}

impl Default for Wakeups {
    fn default() -> Wakeups {
        Wakeups {
            completions: WakeupHistogram::EMPTY,
            delay: WakeupHistogram::EMPTY,
            since_wakeup: None,
            since: Nanos::ZERO,
        }
    }
}

impl Wakeups {
    /// Starts counting at `now`.
    pub(crate) fn begun(now: Nanos) -> Wakeups {
        Wakeups { since: now, ..Wakeups::default() }
    }

    /// The notification woke the thread at `woke_at`. `sent`: when its first message was sent,
    /// where known. It may be left over from a time when the thread did not sleep, so only the part
    /// after `since` counts.
    pub(crate) fn woken(&mut self, sent: Option<Nanos>, woke_at: Nanos) {
        // A message from before `since` did not wait for this thread.
        let delay = sent
            .map_or(Nanos::ZERO, |sent| Nanos(woke_at.0.saturating_sub(sent.max(self.since).0)));
        // The first wake-up only begins the count.
        if let Some(completions) = self.since_wakeup.replace(0) {
            self.completions.add(completions as usize, completions);
        }
        let micros = delay.0 / 1_000;
        // 0 and 1 µs share the first bucket.
        self.delay.add(micros.max(1).ilog2() as usize, micros);
    }

    /// A poll at `now` reaped this many completions.
    pub(crate) fn took(&mut self, entries: u32, now: Nanos) {
        self.since = now;
        if let Some(completions) = &mut self.since_wakeup {
            *completions += u64::from(entries);
        }
    }

    /// Adds the counts of another queue.
    pub fn merge(&mut self, other: &Wakeups) {
        self.completions.merge(&other.completions);
        self.delay.merge(&other.delay);
    }
}

#[cfg(test)]
mod tests;
