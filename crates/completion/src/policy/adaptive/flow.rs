//! What goes through the device: how many complete in a span of time, lately and at most, and how long each takes until it is found.

use units::Nanos;

use super::forecast::MEMORY;

/// A device that does so much less than it can has nothing to spare.
const SHORT: f32 = 0.9;

/// What a command takes by itself is seen anew this often.
const DRAINS: Nanos = Nanos::from_millis(1_000);

#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// How long a command takes until it is found.
    typical: f32,
    /// Completions in a nanosecond, and the most of late.
    rate: f32,
    most: f32,
    /// The most while commands waited within the device.
    cap: f32,
    sent: u32,
    gathers: bool,
    since: Nanos,
    drained: Nanos,
}

impl Flow {
    /// A command was found at this age.
    pub(super) fn took(&mut self, age: Nanos) {
        self.typical += (age.0 as f32 - self.typical) / MEMORY as f32;
    }

    /// How long a command takes until it is found.
    pub(super) fn typical(&self) -> f32 {
        self.typical
    }

    /// So many are sent, and so many are in flight then: in a closed loop as many have completed.
    pub(super) fn sent(&mut self, now: Nanos, commands: u32, in_flight: u32) {
        self.sent += commands;
        if self.sent < in_flight.max(MEMORY) {
            return;
        }
        let span = (now - self.since).0 as f32;
        // Nobody knows when the first began.
        if self.since > Nanos::ZERO {
            self.rate = self.sent as f32 / span.max(1.0);
            self.cap -= self.cap / (MEMORY * MEMORY) as f32;
            // What was gathered may be what made it slower; without, the device is as slow as that.
            let part = if std::mem::take(&mut self.gathers) { MEMORY } else { 4 };
            self.most = (self.most - self.most / part as f32).max(self.rate);
        }
        (self.sent, self.since) = (0, now);
    }

    /// What waited within the device did so at this rate: the device can do no more, as far as is known.
    pub(super) fn is_full(&mut self) {
        self.cap = self.cap.max(self.rate);
        self.gathers = true;
    }

    /// The most that complete in a nanosecond, as far as is known.
    pub(super) fn cap(&self) -> f32 {
        if self.cap > 0.0 { self.cap } else { f32::INFINITY }
    }

    /// Whether it is time to have the device idle once. The first commands of all have met it so.
    pub(super) fn drains(&mut self, now: Nanos) -> bool {
        if self.drained == Nanos::ZERO {
            self.drained = now;
        }
        let due = now > self.drained + DRAINS;
        if due {
            self.drained = now;
        }
        due
    }

    /// Completions in a nanosecond while the device does what it can; 0 while it does not.
    pub(super) fn full(&self) -> f32 {
        if self.rate > 0.0 && self.rate >= self.most * SHORT { self.rate } else { 0.0 }
    }
}
