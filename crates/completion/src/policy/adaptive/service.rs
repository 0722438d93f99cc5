//! How long the device takes, by class: a low quantile, the median, and the 99.9th percentile.
//!
//! Each is walked towards its place: a sample below it takes it down, one above takes it up, in steps whose ratio is the
//! quantile's (Robbins and Monro, 1951) and whose size is a fraction of the value itself. There is nothing to configure
//! and nothing to store, and a device that changes is followed.

use units::{Class, Nanos};

use crate::{Done, Found, LatencySlack};

/// The low quantile: one completion in sixteen comes sooner.
const LOW_PART: u64 = 16;

/// A command that takes so many times the low quantile is slow: an erase in its way, another phase of the device.
const SLOW: u64 = 2;

/// The median goes by one part in so many with each sample: of several that were sent together the fastest are found first, and it
/// is not to follow them through their spread.
const MIDDLE: u64 = 128;

/// Deadline over the 99.9th percentile: k of the design.
const LATE: u64 = 4;

/// What is known of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Nothing is known while it is 0.
    pub(super) low: u64,
    /// The same of slow ones alone.
    slow: u64,
    /// Of those that are not slow.
    median: u64,
    p999: u64,
    /// Some of them were looked for all the while, and not only found after a sleep.
    looked: bool,
}

/// Device times by class.
#[derive(Clone, Debug)]
pub(super) struct Service {
    times: [Times; Class::COUNT],
    /// Where a nap is to end, from the low quantile to the median, in thousandths.
    pub(super) aim: u64,
    /// Most is all that are not slow, because waiting costs nothing.
    all: bool,
}

impl Service {
    /// Of a user who cares so much: the later a nap ends the more completions wait for it, and the less of it is spun.
    /// Where CPU time and earliness are worth the same, what is due in the middle of it is best (a newsvendor's choice).
    pub(super) fn new(slack: LatencySlack) -> Service {
        let usual = u64::from(LatencySlack::default().thousandths());
        let aim = (u64::from(slack.thousandths()) * 2_000 / usual).min(1_000);
        Service { times: [Times::default(); Class::COUNT], aim, all: slack == LatencySlack::UNLIMITED }
    }

    /// How far beyond the low quantile a nap is to end.
    pub(super) fn aimed(&self, class: Class) -> Nanos {
        let times = &self.times[class.index()];
        Nanos(times.median.saturating_sub(times.low).saturating_mul(self.aim) / 1_000)
    }

    /// Before this age a completion of a command that has reached `age` is unlikely. `None`: nothing is known.
    #[inline]
    pub(super) fn due(&self, class: Class, age: Nanos) -> Option<Nanos> {
        let low = self.times[class.index()].low;
        (low > 0).then(|| self.slow_due(class, age).unwrap_or(Nanos(low)))
    }

    /// The same, if a command of this age is a slow one.
    #[inline]
    pub(super) fn slow_due(&self, class: Class, age: Nanos) -> Option<Nanos> {
        let times = &self.times[class.index()];
        (times.low > 0 && age.0 >= times.low.saturating_mul(SLOW)).then_some(Nanos(times.slow))
    }

    /// Whether a command that took so long is as expected: neither sooner than most, nor slow.
    pub(super) fn foresaw(&self, class: Class, age: Nanos) -> bool {
        let low = self.times[class.index()].low;
        (low..low.saturating_mul(SLOW)).contains(&age.0)
    }

    /// From this age on a command is slow, and is looked for when slow ones come. `None`: there are none.
    pub(super) fn slow_from(&self, class: Class) -> Option<Nanos> {
        let times = &self.times[class.index()];
        (times.slow > 0).then(|| Nanos(times.low.saturating_mul(SLOW)))
    }

    /// Half of the commands that are not slow have completed by then.
    #[inline]
    pub(super) fn median(&self, class: Class) -> Nanos {
        Nanos(self.times[class.index()].median)
    }

    /// Most of them have completed by then: as far beyond the median as the low quantile is below it.
    #[inline]
    pub(super) fn most(&self, class: Class) -> Nanos {
        let times = &self.times[class.index()];
        if self.all {
            return Nanos(times.low.saturating_mul(SLOW).min(times.p999));
        }
        Nanos(times.median.saturating_mul(2).saturating_sub(times.low).max(times.median))
    }

    /// A command of this age has most likely completed, whatever the notification says.
    pub(super) fn deadline(&self, class: Class) -> Nanos {
        Nanos(self.times[class.index()].p999.saturating_mul(LATE)).max(Nanos::from_millis(1))
    }

    /// A command of this class has completed. `overslept`: it was there when a nap ended that was to end before, so
    /// far beyond the low quantile. `delay`: from a completion to the first look of a thread that it has woken. `reached`: the
    /// age up to which it is certain not to have completed, if it was found after a sleep.
    #[inline]
    pub(super) fn learn(&mut self, done: &Done, overslept: Option<u64>, delay: Nanos, reached: Nanos) {
        let times = &mut self.times[done.class.index()];
        match (done.found, overslept) {
            (Found::Looking, _) => times.look(done.age.0),
            // Better than nothing, until it is looked for.
            (Found::AfterSleep { at_most }, _) if times.low == 0 => times.begin((at_most - delay).0),
            (Found::AfterSleep { at_most }, Some(aim)) => times.sooner(at_most.0, aim),
            // No more than an upper bound, so it can only take estimates down.
            (Found::AfterSleep { at_most }, None) => times.bound(at_most.0, reached.0),
        }
    }
}

impl Times {
    /// It was there when a nap ended, `aim` thousandths of the way from the low quantile to the median. So it came before
    /// the median; the later the nap ended the less this says of the low quantile.
    fn sooner(&mut self, age: u64, aim: u64) {
        if self.slow > 0 && age >= self.low.saturating_mul(SLOW) {
            self.slow = self.slow.saturating_sub(step(self.slow)).max(1);
            return;
        }
        self.low = self.low.saturating_sub(step(self.low) * 1_000 / (1_000 + (LOW_PART - 1) * aim)).max(1);
        self.median = self.median.saturating_sub(self.median / 32 + 1).max(self.low);
    }

    #[inline]
    fn look(&mut self, age: u64) {
        if self.looked {
            return self.add(age);
        }
        // Until now there were upper bounds at most.
        self.begin(age);
        self.looked = true;
    }

    fn begin(&mut self, age: u64) {
        let age = age.max(1);
        (self.low, self.median, self.p999) = (age, age, age.saturating_mul(2));
    }

    #[inline]
    fn add(&mut self, age: u64) {
        let slow = age >= self.low.saturating_mul(SLOW);
        if slow {
            walk_low(&mut self.slow, age);
        }
        walk_low(&mut self.low, age);
        if !slow {
            let step = self.median / MIDDLE + 1;
            let walked = if age >= self.median { self.median + step } else { self.median.saturating_sub(step).max(1) };
            self.median = walked.min(self.low.saturating_mul(SLOW));
        }
        let step = self.p999 / 8;
        self.p999 = if age >= self.p999 { self.p999 + step } else { self.p999 - step / 1_000 };
    }

    /// It was found after a sleep, which tells little of what comes soon; and that it is slow only what was so before.
    #[inline]
    fn bound(&mut self, at_most: u64, reached: u64) {
        if at_most < self.low {
            self.add(at_most);
        } else if reached >= self.low.saturating_mul(SLOW) && (self.slow == 0 || at_most < self.slow) {
            self.slow = at_most;
        }
    }
}

/// By how much a sample below takes a low quantile down.
fn step(low: u64) -> u64 {
    (low / 64).max(LOW_PART)
}

fn walk_low(low: &mut u64, age: u64) {
    let step = step(*low);
    *low = if age >= *low && *low > 0 {
        *low + step / LOW_PART
    } else if *low == 0 || age < *low / 2 {
        // Nothing was known; another device, or another phase of it.
        age.max(1)
    } else {
        low.saturating_sub(step).max(1)
    };
}
