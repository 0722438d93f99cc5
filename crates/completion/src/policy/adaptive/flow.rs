//! What goes through the device: how many complete in a span of time, lately and at most, and how long each takes until it is found.

use units::Nanos;

use super::forecast::{MEMORY, STRETCH};

/// What a command takes by itself is seen anew this often.
const DRAINS: Nanos = Nanos::from_millis(1_000);

/// A device that does so much of what it does without gathering is as quick.
const AS_QUICK: f32 = 0.99;

#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// How long a command takes until it is found.
    typical: f32,
    /// Completions in a nanosecond in the last stretches in which the thread stayed awake.
    awake: [f32; 3],
    /// The most while commands waited within the device.
    cap: f32,
    /// How much of what seems to be spare is used, as trial has shown.
    used: f32,
    stretch: Stretch,
    /// Stretches until one is spent awake.
    left: u32,
    drained: Nanos,
    /// How many entries the device is asked to hold back.
    holds: u16,
}

/// The stretch under way.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    since: Nanos,
    sent: u32,
    gathers: bool,
    /// The thread has napped or slept in it.
    slept: bool,
    /// In so many waits so many entries might have been held back, together.
    waits: u32,
    late: f32,
}

impl Flow {
    pub(super) fn new() -> Flow {
        Flow { used: 1.0, left: 1, ..Flow::default() }
    }

    /// Others have had the device meanwhile: the stretch under way tells nothing.
    pub(super) fn resumes(self) -> Flow {
        Flow { stretch: Stretch::default(), ..self }
    }

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
        self.stretch.sent += commands;
        if self.stretch.sent < in_flight.max(MEMORY) * STRETCH {
            return;
        }
        let over = std::mem::replace(&mut self.stretch, Stretch { since: now, ..Stretch::default() });
        // Nobody knows when the first began.
        if over.since > Nanos::ZERO {
            self.judge(&over, over.sent as f32 / ((now - over.since).0 as f32).max(1.0));
        }
        self.left = self.left.saturating_sub(1);
    }

    /// A stretch is over: whether gathering costs the device anything, and what it may hold back.
    fn judge(&mut self, over: &Stretch, rate: f32) {
        if self.compares() {
            // One that was slept in does not say what the device can do, and another is tried soon.
            self.left = if over.slept { STRETCH } else { MEMORY };
            if !over.slept {
                let [a, b, _] = self.awake;
                self.awake = if b > 0.0 { [rate, a, b] } else { [rate; 3] };
            }
        }
        // Soon less, slowly more: so that what was too much is seldom tried.
        let quick = !over.gathers || rate >= self.full() * AS_QUICK;
        let used = if quick { self.used + self.used / STRETCH as f32 } else { self.used - self.used / 4.0 };
        self.used = used.clamp(1.0 / MEMORY as f32, 1.0);
        let asked = (over.late / over.waits.max(1) as f32) as u16;
        // Within a factor of two nothing is changed: a change is a command to the controller.
        if asked < self.holds / 2 || asked >= self.holds * 2 {
            self.holds = if asked < 2 { 0 } else { asked };
        }
    }

    /// How much of what seems to be spare is gathered.
    pub(super) fn used(&self) -> f32 {
        self.used
    }

    /// Whether this stretch is spent awake, to see what the device can do.
    pub(super) fn compares(&self) -> bool {
        self.left == 0
    }

    /// The thread has napped or slept.
    pub(super) fn slept(&mut self) {
        self.stretch.slept = true;
    }

    /// What waited within the device did so at this rate: the device can do no more, as far as is known.
    pub(super) fn is_full(&mut self) {
        self.cap = self.cap.max(self.full());
        self.stretch.gathers = true;
    }

    /// So many may be found late. Half of them are asked for, and fewer if more than the other half complete while the thread wakes up.
    pub(super) fn spares(&mut self, spare: f32, delay: Nanos) {
        self.stretch.late += (spare - self.full() * delay.0 as f32).clamp(0.0, spare / 2.0);
        self.stretch.waits += 1;
    }

    /// How many entries the device is to hold back.
    pub(super) fn holds(&self) -> u16 {
        self.holds
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

    /// Completions in a nanosecond: of three stretches the middle one, because others may have had the machine in one of them.
    pub(super) fn full(&self) -> f32 {
        let [a, b, c] = self.awake;
        a.max(b).min(a.min(b).max(c))
    }
}

#[cfg(test)]
mod tests;
