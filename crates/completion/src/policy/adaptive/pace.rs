//! Whether a clock drives the caller: a rate, a timer. He then goes on by himself at instants that [`Seen::goes_on_at`]
//! names, unless all that he may have in flight is: then the instants pass, and a look that comes later finds several
//! of them gone by at once, which have cost no wake-up of their own.
//!
//! [`Seen::goes_on_at`]: crate::Seen::goes_on_at

use units::Nanos;

/// Waits in a row without an instant of his after which the caller is behind his clock, or has none.
const PATIENCE: u32 = 256;

/// Commands over which his rate is taken, at least; and those over which the average forgets.
const COMMANDS: u32 = 64;
const MEMORY: u64 = 256;

/// What may wait for room, in commands: when so few do, it is worth waiting for more, and when so many do, no longer.
const FEW: u64 = 8;
const MANY: u64 = 256;

/// A caller who is late by so many times what a command takes is no longer late because of a burst.
const LATE: u64 = 32;

/// A nap for room may last for one in so many commands more or less than there is room for: then it is certain that their number
/// changes, although his rate is not quite what it is believed to be.
const SPARE: u64 = 8;

/// So many times as fast as he goes on, a caller with a backlog is to catch up.
const CATCHES_UP: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Waits until he is believed to have no clock.
    patience: u32,
    /// When he was ahead of his clock last, as far as counting goes, and what he has sent since.
    ahead: Option<Nanos>,
    commands: u32,
    /// From one command to the next, on average; and over how many.
    gap: u64,
    over: u64,
    /// Since when the oldest of his commands waits for room, if he says so.
    due: Option<Nanos>,
    /// Until so many wait for room, waiting goes on.
    refills: bool,
    /// He has been late by so much since then that he does not catch up by himself.
    falls: bool,
    /// Sleeps since then, and naps in place of them.
    sleeps: u32,
}

impl Pace {
    /// The caller says when he goes on by himself: he is ahead of his clock. From one such instant to another he has sent as
    /// many as were to be sent, whatever held him up between the two.
    #[inline]
    pub(super) fn clocked(&mut self, now: Nanos) {
        self.patience = PATIENCE;
        (self.refills, self.falls, self.sleeps) = (true, false, 0);
        let Some(ahead) = self.ahead else {
            (self.ahead, self.commands) = (Some(now), 0);
            return;
        };
        if self.commands >= COMMANDS {
            let (span, commands) = ((now - ahead).0, u64::from(self.commands));
            self.gap = self.gap.saturating_mul(self.over).saturating_add(span) / (self.over + commands);
            self.over = (self.over + commands).min(MEMORY);
            (self.ahead, self.commands) = (Some(now), 0);
        }
    }

    /// A wait begins.
    #[inline]
    pub(super) fn waits(&mut self) {
        self.patience = self.patience.saturating_sub(1);
    }

    #[inline]
    pub(super) fn sent(&mut self, commands: u32) {
        self.commands = self.commands.saturating_add(commands);
    }

    /// He has a clock, or had one.
    pub(super) fn has_clock(&self) -> bool {
        self.ahead.is_some()
    }

    /// He has a clock, and has not been ahead of it for long.
    #[inline]
    pub(super) fn behind(&self) -> bool {
        self.patience == 0 && self.ahead.is_some()
    }

    /// The thread goes to sleep, or naps in place of it.
    pub(super) fn sleeps(&mut self) {
        self.sleeps = self.sleeps.saturating_add(1);
    }

    /// Whether he falls behind his clock for good, and each delay makes all that follows later. He has waited for room since `due`;
    /// a command takes `median`, and a sleep finds it later by `delay`. What is late by a few may be so because of a burst, and
    /// what the device has held up is no sooner for a thread that stays awake; but if half of it is the sleeps' it does not catch up
    /// by itself, and then it counts until he is ahead again.
    pub(super) fn falls_behind(&mut self, now: Nanos, due: Nanos, median: Nanos, delay: Nanos) -> bool {
        let late = now - due;
        self.falls |= late.0 > median.0.saturating_mul(LATE) && late.0 <= delay.0.saturating_mul(2 * u64::from(self.sleeps));
        self.falls
    }

    /// What not waking for the caller in this span is worth, if a wake-up costs `wake`: at most one. Nothing where no
    /// clock drives him.
    pub(super) fn spares(&self, span: Nanos, wake: Nanos) -> Nanos {
        match self.gap {
            _ if self.patience == 0 => Nanos::ZERO,
            0 => Nanos::ZERO,
            gap if gap <= span.0 => wake,
            gap => Nanos(wake.0.saturating_mul(span.0) / gap),
        }
    }

    /// From one of his commands to the next; nothing where no clock drives him.
    pub(super) fn gap(&self) -> Nanos {
        Nanos(self.gap)
    }

    /// Too few of his commands wait for room.
    pub(super) fn refills(&self) -> bool {
        self.refills
    }

    /// He says since when the oldest of his commands waits for room.
    #[inline]
    pub(super) fn wants_room(&mut self, due: Option<Nanos>) {
        self.due = due;
    }

    /// How many wait for room: as he says, or if his rate is what it was.
    pub(super) fn backlog(&self, now: Nanos) -> u64 {
        let Some(ahead) = self.ahead.filter(|_| self.gap > 0) else { return 0 };
        if let Some(due) = self.due {
            return (now - due).0 / self.gap;
        }
        ((now - ahead).0 / self.gap).saturating_sub(u64::from(self.commands))
    }

    /// So many wait for room that he is to catch up: they are late by more than is `tolerated`.
    pub(super) fn lags(&self, now: Nanos, tolerated: Nanos) -> bool {
        let backlog = self.backlog(now);
        backlog >= MANY && Nanos(backlog.saturating_mul(self.gap)) > tolerated
    }

    /// Until when a nap for room of so many may last, if what completes `first` may be found late by what is `allowed`, and he may
    /// be late by what is `tolerated`. The thread was `woke` last at that instant.
    ///
    /// What waits for room is late already. Unless such naps keep up with the caller, it will be so by a nap more when it gets
    /// some, and only then is it sent. Where it is late by more than is `tolerated`, because the device was slow or there was a
    /// burst, a nap makes little difference to it, and only the speed counts at which he catches up.
    pub(super) fn allows(&self, now: Nanos, woke: Nanos, room: u32, first: Nanos, allowed: Nanos, tolerated: Nanos) -> Nanos {
        let late = Nanos(self.backlog(now).saturating_mul(self.gap));
        let keeps_up = Nanos(self.gap.saturating_mul(u64::from(room)));
        let end = first + allowed;
        if late > tolerated {
            return first.max(end.min(woke + Nanos(keeps_up.0 / CATCHES_UP)));
        }
        let left = allowed.min(tolerated - late);
        first + if end <= woke + keeps_up { left } else { Nanos(left.0 / 2) }
    }

    /// Until when it is worth waiting for room of so many, if it is, until `end` at most; `batches` tells whether finding them
    /// together is. The thread was `woke` last at that instant.
    ///
    /// One wake-up in the time that he takes to go on as often as there is room, and he neither catches up nor falls further
    /// behind. Being ahead of his clock is what costs wake-ups: when only few of his commands wait for room, there shall be
    /// more, if the naps may be long enough for that.
    pub(super) fn fills(&mut self, now: Nanos, woke: Nanos, room: u32, batches: bool, end: Nanos) -> Option<Nanos> {
        let (backlog, room) = (self.backlog(now), u64::from(room));
        if backlog >= MANY {
            self.refills = false;
        } else if backlog < FEW {
            self.refills = true;
        }
        let spare = room / SPARE;
        let fit = woke + Nanos(self.gap.saturating_mul(room + spare)) < end;
        let commands = match backlog {
            _ if self.refills && fit => room + MANY,
            _ if !batches => return None,
            backlog if self.refills || backlog > 2 * MANY => room - spare,
            _ => room,
        };
        Some(woke + Nanos(self.gap.saturating_mul(commands)))
    }
}
