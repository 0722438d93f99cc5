//! `hybrid-mean` and `hybrid-min`: sleep for half of the service time, then spin.
//!
//! `hybrid-mean` follows Linux's hybrid polling, 4.10 until 2023 (`blk_mq_poll_hybrid`,
//! `io_poll_delay` 0): a mean per direction and power-of-two size, and once per request a sleep of
//! half of it on a high-resolution timer. There are three differences: the half is measured from
//! the submission rather than from the first poll; the mean is a moving one over [`MEMORY`]
//! completions rather than that of the last 100 ms; and completions found after a sleep do not
//! enter it, because their age is only an upper bound of the service time.
//!
//! `hybrid-min` takes half of the shortest time among the last completions instead, a minimum that
//! Linux recorded as well and that later work on hybrid polling uses: it oversleeps less where
//! service times vary, and spins longer.
//!
//! ```text
//!   submit            due = submit + T/2                  completion
//!     |------ nap -------|------------- spin ------------------|
//! ```

use std::collections::VecDeque;

use super::{at_once, spin};
use crate::{Batch, Class, Done, Nanos, Plan, Seen};

/// Time constant of the moving mean, in completions.
const MEMORY: u64 = 16;

/// Completions over which the minimum is taken: at least this many, at most twice as many.
const WINDOW: u32 = 128;

/// Most batches in flight that are recorded separately. Further ones are counted with the youngest.
const BATCHES: usize = 32;

/// Which service time is halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Estimate {
    /// The moving mean.
    Mean,
    /// The shortest of the last completions.
    Min,
}

/// Service times by class, and the batches in flight.
#[derive(Clone, Debug)]
pub(super) struct Hybrid {
    estimate: Estimate,
    times: [Times; Class::COUNT],
    /// Oldest first, at most [`BATCHES`].
    batches: VecDeque<Waiting>,
    /// Commands in them.
    commands: u64,
}

/// Service times of one class, in nanoseconds; 0: none yet.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    mean: u64,
    /// The shortest of the last full window, and of the one being filled.
    shortest: u64,
    filling: u64,
    filled: u32,
}

/// A batch of which some commands are in flight.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    class: usize,
    commands: u64,
    /// When half of its service time has passed; the submission itself where no time is known.
    due: Nanos,
}

impl Hybrid {
    pub(super) fn new(estimate: Estimate) -> Hybrid {
        Hybrid {
            estimate,
            times: [Times::default(); Class::COUNT],
            batches: VecDeque::with_capacity(BATCHES),
            commands: 0,
        }
    }

    #[inline(never)] // As `adaptive`.
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) {
        let Some(class) = batch.class else { return };
        if batch.commands == 0 {
            return;
        }
        let commands = u64::from(batch.commands);
        self.commands += commands;
        // Bounded, so that submission allocates nothing; merging makes the sleep for later batches
        // too short at worst.
        let full = self.batches.len() == BATCHES;
        match self.batches.back_mut() {
            Some(youngest) if full => youngest.commands += commands,
            _ => {
                let half = Nanos(self.times[class.index()].of(self.estimate) / 2);
                self.batches.push_back(Waiting { class: class.index(), commands, due: now + half });
            }
        }
    }

    pub(super) fn completed(&mut self, done: &[Done]) {
        for d in done {
            self.learn(d);
            self.forget(d.class.index());
        }
    }

    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.forget_beyond(u64::from(seen.in_flight));
        if let Some(plan) = at_once(seen) {
            return plan;
        }
        match self.batches.iter().map(|batch| batch.due).min() {
            // After a switch of mode, commands in flight that were not recorded may complete at any
            // time: spin.
            Some(due)
                if due > now && self.commands == u64::from(seen.in_flight) && !seen.leaving =>
            {
                Plan::nap(due)
            }
            _ => spin(now, seen),
        }
    }

    fn learn(&mut self, done: &Done) {
        let times = &mut self.times[done.class.index()];
        // After a sleep the age is only an upper bound of the service time. It is used if it is
        // below the estimate, which then must be too long.
        if !done.slept || done.age.0 < times.of(self.estimate) {
            times.add(done.age.0);
        }
    }

    /// Removes one command: from the oldest batch of this class, or from the oldest if there is
    /// none.
    fn forget(&mut self, class: usize) {
        let of_class = self.batches.iter().position(|w| w.class == class);
        self.take(of_class.unwrap_or(0), 1);
    }

    /// Removes the oldest commands that left without a completion here: reaped by another thread,
    /// or cancelled by a reset.
    fn forget_beyond(&mut self, in_flight: u64) {
        while self.commands > in_flight {
            self.take(0, self.commands - in_flight);
        }
    }

    /// Removes at most `commands` from batch `at`.
    fn take(&mut self, at: usize, commands: u64) {
        let Some(batch) = self.batches.get_mut(at) else { return };
        let taken = commands.min(batch.commands);
        batch.commands -= taken;
        self.commands -= taken;
        if batch.commands == 0 {
            self.batches.remove(at);
        }
    }
}

impl Times {
    fn of(&self, estimate: Estimate) -> u64 {
        match estimate {
            Estimate::Mean => self.mean,
            // Includes the window being filled, so that a shorter time takes effect at once.
            Estimate::Min
                if self.shortest == 0 || 0 < self.filling && self.filling < self.shortest =>
            {
                self.filling
            }
            Estimate::Min => self.shortest,
        }
    }

    fn add(&mut self, age: u64) {
        self.mean = match self.mean {
            0 => age,
            mean => (mean - mean / MEMORY).saturating_add(age / MEMORY),
        };
        self.filling = if self.filled == 0 { age } else { self.filling.min(age) };
        self.filled += 1;
        if self.filled == WINDOW {
            (self.shortest, self.filled) = (self.filling, 0);
        }
    }
}
