//! What goes through the device: what each stretch has shown, and what follows from that for the next.

mod trial;
mod ways;
mod window;

use units::Nanos;

use super::forecast::{MEMORY, STRETCH};
use trial::Shown;
use ways::Ways;
use window::Window;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// How long a command takes until it is found.
    pub(super) typical: f32,
    ways: Ways,
    stretch: Stretch,
    in_flight: InFlight,
    /// Since when there is nothing to wait for.
    rests: Option<Nanos>,
    /// What the device was seen to do where none was found late.
    full: Shown,
    /// This many may be found late.
    spare: f32,
    window: Window,
    /// A clock drives the caller.
    open: bool,
    /// How many entries the device is asked to hold back. A thread that stays awake does not notice, and the other way is tried as it would be.
    pub(super) holds: u16,
}

/// What is in flight, since when, and how long all commands have been until then, together.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    commands: u32,
    since: Nanos,
    waited: u64,
}

/// The stretch under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    since: Nanos,
    sent: u32,
    /// In flight when it began, and at most.
    first: u32,
    most: u32,
    /// CPU time that waiting had cost, and how long commands had been in flight together, when it began.
    spent: u64,
    waited: u64,
    /// How long the thread has left the CPU to others.
    asleep: u64,
}

/// What is so at the end of a stretch in a closed loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) in_flight: u32,
    /// CPU time that waiting has cost in all.
    pub(super) spent: u64,
    pub(super) lambda: f32,
    pub(super) delay: Nanos,
    /// A clock drives the caller: no lateness is to spare.
    pub(super) open: bool,
}

impl Flow {
    pub(super) fn new() -> Flow {
        Flow {
            typical: 0.0,
            ways: Ways::new(),
            stretch: Stretch::default(),
            in_flight: InFlight::default(),
            rests: None,
            full: Shown::default(),
            spare: 0.0,
            window: Window::new(),
            open: false,
            holds: 0,
        }
    }

    /// Others have had the device meanwhile: the stretch under way tells nothing. Those before it do.
    pub(super) fn resumes(self) -> Flow {
        Flow { stretch: Stretch::default(), rests: None, ..self }
    }

    /// A command was found at this age.
    pub(super) fn took(&mut self, age: Nanos) {
        self.typical += (age.0 as f32 - self.typical) / MEMORY as f32;
    }

    /// The thread has napped or slept for so long.
    pub(super) fn slept(&mut self, asleep: Nanos) {
        self.stretch.asleep += asleep.0;
    }

    /// There is nothing to wait for until the next is sent, and the thread leaves the CPU to others.
    pub(super) fn rests(&mut self, now: Nanos) {
        self.rests.get_or_insert(now);
    }

    /// This many are in flight from now on.
    #[inline]
    pub(super) fn in_flight(&mut self, now: Nanos, commands: u32) {
        let InFlight { commands: before, since, waited } = self.in_flight;
        self.in_flight = InFlight { commands, since: now, waited: waited + (now - since).0 * u64::from(before) };
    }

    /// This many are sent, and this many are in flight then: in a closed loop as many have completed. The stretch, if it is over.
    pub(super) fn sent(&mut self, now: Nanos, commands: u32, in_flight: u32, spent: u64) -> Option<Stretch> {
        self.in_flight(now, in_flight);
        let waited = self.in_flight.waited;
        let stretch = &mut self.stretch;
        stretch.asleep += self.rests.take().map_or(0, |since| (now - since).0);
        (stretch.sent, stretch.most) = (stretch.sent + commands, stretch.most.max(in_flight));
        let begins = stretch.since == Nanos::ZERO;
        if !begins && stretch.sent < stretch.most.max(MEMORY) * STRETCH {
            return None;
        }
        let next = Stretch { since: now, first: in_flight, most: in_flight, spent, waited, ..Stretch::default() };
        let over = std::mem::replace(stretch, next);
        (!begins).then_some(over)
    }

    /// A stretch is over: what it has shown, and at the end of a trial what is done in the next.
    pub(super) fn judge(&mut self, now: Nanos, over: &Stretch, around: &Around) {
        if around.open != self.open {
            // What a loop of the other kind has shown says nothing of this one.
            let (typical, stretch, in_flight) = (self.typical, self.stretch, self.in_flight);
            *self = Flow { typical, stretch, in_flight, open: around.open, ..Flow::new() };
            return;
        }
        let shown = self.shows(now, over, around);
        if !self.is_awake() && !self.open {
            self.window.judge(shown.rate, &self.full);
        }
        if self.ways.add(shown) {
            self.full = self.ways.full(&self.full, self.spare > 1.0);
        }
        self.spares(over.most as f32, around);
    }

    fn shows(&self, now: Nanos, over: &Stretch, around: &Around) -> Shown {
        // What was found and not made up for yet counts too: a thread that sends one at a time may be in the midst of that.
        let done = (over.sent + over.first).saturating_sub(around.in_flight).max(1) as f32;
        let rate = done / ((now - over.since).0 as f32).max(1.0);
        let cpu = around.spent.saturating_sub(over.spent) as f32 / done;
        // By Little's law each has taken so long.
        let took = self.in_flight.waited.saturating_sub(over.waited) as f32 / done;
        Shown { rate, busy: 1.0 / rate - over.asleep as f32 / done, cost: cpu + around.lambda * took, stretches: 1 }
    }

    /// This many of those in flight may be found late.
    fn spares(&mut self, in_flight: f32, around: &Around) {
        self.spare = if around.open { 0.0 } else { in_flight * self.window.part };
        // Half of them are asked for, and fewer if more than the other half complete while the thread wakes up.
        let asked = (self.spare - self.full.rate * around.delay.0 as f32).clamp(0.0, self.spare / 2.0) as u16;
        // Within a factor of two nothing is changed: a change is a command to the controller.
        if asked < self.holds / 2 || asked >= self.holds * 2 {
            self.holds = if asked < 2 { 0 } else { asked };
        }
    }

    /// Whether this trial is spent awake: because that is the cheaper way, or to see what it costs.
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.ways.is_awake()
    }

    /// This many may be found late, and nobody is later for it.
    #[inline]
    pub(super) fn spare(&self) -> f32 {
        if self.is_awake() { 0.0 } else { self.spare }
    }

    /// Completions in a nanosecond awake, or else where none is gathered, once that is known.
    pub(super) fn full(&self) -> f32 {
        self.full.rate
    }
}

#[cfg(test)]
mod tests;
