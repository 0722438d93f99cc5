//! What wake-ups bring: completions for each, and how long the notification waited for the first look.
//!
//! The histograms of post 002, for Reap's own queues. Kept only when asked for; the buckets are those of
//! `trace::histogram`, which draws them.

use units::Nanos;

/// Completions per wake-up that are told apart; the last bucket is for more.
const LINEAR: usize = 129;
/// Powers of two of microseconds.
const LOG2: usize = 40;

/// Counts by bucket, the sum and the largest of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally<const N: usize> {
    /// How many values fell into each bucket.
    pub counts: [u64; N],
    /// The values' sum.
    pub sum: u64,
    /// The largest value.
    pub max: u64,
}

impl<const N: usize> Tally<N> {
    const EMPTY: Tally<N> = Tally { counts: [0; N], sum: 0, max: 0 };

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
    /// Completions found from one notification that woke the thread to the next: a bucket per value, the last for more.
    pub completions: Tally<LINEAR>,
    /// Microseconds from the first message that was not seen yet to the thread's being awake: a bucket per power of two.
    pub delay: Tally<LOG2>,
    /// Completions since the last wake-up, if there was one.
    since_wakeup: Option<u64>,
    /// When counting began, or entries were taken last: what was sent before has been seen, and is none that is waited for.
    since: Nanos,
}

impl Default for Wakeups {
    fn default() -> Wakeups {
        Wakeups { completions: Tally::EMPTY, delay: Tally::EMPTY, since_wakeup: None, since: Nanos::ZERO }
    }
}

impl Wakeups {
    /// Counting begins at `now`.
    pub(crate) fn begun(now: Nanos) -> Wakeups {
        Wakeups { since: now, ..Wakeups::default() }
    }

    /// The thread was woken at `woke_at` by the notification. `sent`: its first message, where that is known; it may be left over from a
    /// time in which nobody slept, and counts from then on only when it was not seen yet.
    pub(crate) fn woken(&mut self, sent: Option<Nanos>, woke_at: Nanos) {
        let delay = sent.map_or(Nanos::ZERO, |sent| Nanos(woke_at.0.saturating_sub(sent.max(self.since).0)));
        if let Some(completions) = self.since_wakeup.replace(0) {
            self.completions.add(completions as usize, completions);
        }
        let micros = delay.0 / 1_000;
        self.delay.add(micros.max(1).ilog2() as usize, micros);
    }

    /// A look at `now` took this many entries.
    pub(crate) fn took(&mut self, entries: u32, now: Nanos) {
        self.since = now;
        if let Some(completions) = &mut self.since_wakeup {
            *completions += u64::from(entries);
        }
    }

    /// Adds what another queue has counted.
    pub fn merge(&mut self, other: &Wakeups) {
        self.completions.merge(&other.completions);
        self.delay.merge(&other.delay);
    }
}

#[cfg(test)]
mod tests;
