//! What commands take that have met an idle device: so long the device itself takes, and what is more they wait within it.

use units::Nanos;

use super::forecast::{MEMORY, STRETCH};

#[derive(Clone, Debug)]
pub(super) struct Fresh {
    /// Over so many of late that were sent to an idle device: how long each took until it was found, and how many there were at a time.
    samples: u32,
    takes: f32,
    of: f32,
    /// The burst under way: when its last was sent, whether more may follow, how many there are, how many have not been found, and how long
    /// the others took.
    last: Nanos,
    open: bool,
    sent: u32,
    left: u32,
    sum: u64,
    /// How many were sent after them: one that is still not found then is lost, and the burst tells nothing.
    after: u32,
    /// When the device is to be idle once more, and whether that was waited for since the last burst.
    due: Nanos,
    waited: bool,
}

impl Fresh {
    /// The first commands of all meet an idle device.
    pub(super) fn new() -> Fresh {
        let never = Nanos::MAX;
        Fresh {
            samples: 0,
            takes: 0.0,
            of: 0.0,
            last: Nanos::ZERO,
            open: false,
            sent: 0,
            left: 0,
            sum: 0,
            after: 0,
            due: never,
            waited: true,
        }
    }

    /// Others have had the device meanwhile: the burst under way tells nothing.
    pub(super) fn resumes(self) -> Fresh {
        Fresh { open: false, left: 0, due: self.due.min(self.last), ..self }
    }

    /// So many are sent, and so many are in flight then, of `most` at most: a device that has few others is idle.
    #[inline]
    pub(super) fn sent(&mut self, now: Nanos, commands: u32, in_flight: u32, most: u32) {
        if self.waited && in_flight.saturating_sub(commands) * STRETCH <= most {
            *self = Fresh { last: now, open: true, sent: commands, left: commands, sum: 0, after: 0, waited: false, ..*self };
        } else if self.open {
            (self.last, self.sent, self.left) = (now, self.sent + commands, self.left + commands);
        } else if self.left > 0 {
            self.after += commands;
            if self.after > self.sent * STRETCH {
                (self.left, self.due) = (0, now + Nanos((now - self.last).0 * u64::from(MEMORY)));
            }
        }
    }

    /// One was found at this age.
    pub(super) fn found(&mut self, now: Nanos, age: Nanos) {
        if self.left == 0 {
            return;
        }
        self.open = false;
        if now - age > self.last {
            return;
        }
        (self.sum, self.left) = (self.sum + age.0, self.left - 1);
        if self.left == 0 {
            self.samples = (self.samples + self.sent).min(MEMORY.max(self.sent));
            let (part, takes) = (self.sent as f32 / self.samples as f32, self.sum as f32 / self.sent as f32);
            self.takes += (takes - self.takes) * part;
            self.of += (self.sent as f32 - self.of) * part;
            // What is lost meanwhile is a command's time in so many.
            let pause = if self.is_known() { MEMORY * STRETCH } else { STRETCH };
            self.due = now + Nanos(takes as u64 * u64::from(pause));
        }
    }

    fn is_known(&self) -> bool {
        self.samples >= MEMORY
    }

    /// Whether a burst is under way.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// Whether it is time to have the device idle once.
    pub(super) fn drains(&mut self, now: Nanos) -> bool {
        let due = now >= self.due;
        if due {
            (self.due, self.waited) = (Nanos::MAX, true);
        }
        due
    }

    /// How long a command takes by itself, of a device that does `full` in a nanosecond; endless while nobody knows. Of a burst of n the
    /// last takes n / full where they wait for each other, and half of that on average; and where they do not, all are alike.
    pub(super) fn alone(&self, full: f32) -> f32 {
        if self.is_known() && full > 0.0 { (2.0 * self.takes - self.of / full).max(1.0 / full) } else { f32::INFINITY }
    }
}

#[cfg(test)]
mod tests;
