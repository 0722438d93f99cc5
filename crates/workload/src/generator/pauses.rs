//! `thinktime`: a job pauses after a number of I/Os.

use crate::job::Think;
use units::Nanos;

/// What has to happen before the next I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nothing: this many I/Os may be issued.
    Go(u64),
    /// All that is in flight has to complete.
    Drain,
    /// One I/O has to complete.
    Reap,
    /// This instant has to come.
    Until(Nanos),
}

/// `thinktime`.
#[derive(Debug)]
pub(super) struct Pauses {
    think: Think,
    /// I/Os until the next pause.
    pub left: u64,
    /// The pause under way: from and until.
    pause: Option<(Nanos, Nanos)>,
}

impl Pauses {
    pub fn new(think: Think) -> Pauses {
        Pauses { think, left: think.blocks, pause: None }
    }

    /// What has to happen before the next I/O, with `in_flight` of them out.
    pub fn before(&mut self, now: Nanos, in_flight: u32) -> Hold {
        if let Some((_, until)) = self.pause {
            if now < until {
                return Hold::Until(until);
            }
            (self.pause, self.left) = (None, self.think.blocks);
        }
        if self.left > 0 {
            return Hold::Go(self.left);
        }
        if in_flight > 0 {
            return Hold::Drain;
        }
        let until = now + self.think.time;
        self.pause = Some((now, until));
        Hold::Until(until)
    }

    /// Until when the thread computes, if it pauses.
    pub fn computes_until(&self) -> Option<Nanos> {
        self.pause.map(|(from, _)| from + self.think.spin).filter(|_| self.think.spin > Nanos::ZERO)
    }
}
