//! Stopping a controller: CC.EN = 0, then CSTS.RDY = 0. Bring-up, recovery and shutdown all pass through it, because
//! only a controller that has provably stopped writes to no buffer any more.

use nvme::regs::{Cap, Cc, Crto, Csts};
use units::Nanos;

use crate::properties::{Halt, Properties, Property, PropertyError, Round};

/// How long a change of CSTS.RDY may take: CAP.TO, or CRTO.CRWMT where that is longer and valid (Base 3.1.4.21).
pub(crate) fn ready_timeout(round: &mut Round<'_, impl Properties>, cap: Cap) -> Result<Nanos, Halt> {
    let crto = if cap.crms() & 1 != 0 { u64::from(Crto::from_bits(round.get32(Property::Crto)?).crwmt()) * 500 } else { 0 };
    Ok(Nanos::from_millis(cap.timeout_ms().max(crto).max(500)))
}

/// How much later than it asked for a state machine may be stepped before its executor counts as away.
const PUNCTUAL: Nanos = Nanos::from_millis(20);

/// A machine asks to be stepped after so long at the latest while it waits for an answer: an absence within a wait shows, too.
const PIECE: Nanos = Nanos::from_millis(100);

/// How long a reset controller may take to clear CSTS.CFS once CSTS.RDY is 0. One that keeps it is tried all the same.
const FATAL_CLEARS: Nanos = Nanos::from_millis(500);

/// Whether the executor comes when it was asked to. Time in which it was away counts towards no deadline: it could not have seen an answer
/// meanwhile, and whatever kept it away, a machine that stands still for one, may have kept the controller from answering too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attendance(Option<Nanos>);

impl Attendance {
    /// A step: for how long the executor was away before it.
    pub(crate) fn away(&mut self, now: Nanos) -> Nanos {
        let late = self.0.take().map_or(Nanos::ZERO, |due| now - due);
        if late > PUNCTUAL { late } else { Nanos::ZERO }
    }

    /// It was asked to come back then at the latest.
    pub(crate) fn asked(&mut self, until: Nanos) {
        self.0 = Some(until);
    }

    /// It is asked to come back then, or sooner, so that an absence shows.
    pub(crate) fn asked_within(&mut self, now: Nanos, until: &mut Nanos) {
        *until = (*until).min(now + PIECE);
        self.asked(*until);
    }
}

/// Waits for a register: looks often at first, then ever more rarely, and until a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    since: Nanos,
    deadline: Nanos,
    interval: Nanos,
}

impl Patience {
    const FIRST: Nanos = Nanos::from_micros(10);
    pub(crate) const LONGEST: Nanos = Nanos::from_millis(10);

    pub(crate) fn new(now: Nanos, timeout: Nanos) -> Patience {
        Patience { since: now, deadline: now + timeout, interval: Patience::FIRST }
    }

    /// When to look next; the time waited in vain once the deadline has passed.
    pub(crate) fn next(&mut self, now: Nanos) -> Result<Nanos, Nanos> {
        if now >= self.deadline {
            return Err(now - self.since);
        }
        let until = (now + self.interval).min(self.deadline);
        self.interval = (self.interval + self.interval).min(Patience::LONGEST);
        Ok(until)
    }

    /// It lasts so much longer: nobody looked for so long.
    pub(crate) fn extend(&mut self, away: Nanos) {
        self.deadline += away;
    }
}

/// The sequence that stops a controller (Base 3.7.2): a controller reset by CC.EN and, where that does not end, a reset of the function.
/// An NVM subsystem reset is never tried: it stops the controllers of other hosts too, and a drive on the bus loses its configuration space.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// How long it may take is to be read first.
    Unknown,
    Known {
        timeout: Nanos,
        patience: Patience,
        cleared: bool,
        /// The function was reset, or cannot be.
        function_reset: bool,
    },
}

/// What [`Stop::step`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// Step again at once.
    Again,
    Wait(Nanos),
    /// CSTS.RDY is 0: no buffer and no ring is touched any more.
    Stopped,
    /// RDY did not become 0 for so long, and a reset of the function was not possible or did not help.
    Stuck(Nanos),
    /// The registers read as all ones.
    Gone,
    /// Nobody can say whether it has stopped.
    Failed(PropertyError),
}

impl Stop {
    /// Of a controller that may take this long.
    pub(crate) fn within(now: Nanos, timeout: Nanos) -> Stop {
        Stop::Known { timeout, patience: Patience::new(now, timeout), cleared: false, function_reset: false }
    }

    /// As [`Patience::extend`].
    pub(crate) fn extend(&mut self, away: Nanos) {
        if let Stop::Known { patience, .. } = self {
            patience.extend(away);
        }
    }

    pub(crate) fn step(&mut self, round: &mut Round<'_, impl Properties>) -> Stopping {
        let stopping = match self.advance(round) {
            Ok(stopping) => stopping,
            Err(Halt::Wait(until)) => return Stopping::Wait(until),
            Err(Halt::Failed(error)) => Stopping::Failed(error),
        };
        round.end();
        stopping
    }

    fn advance(&mut self, round: &mut Round<'_, impl Properties>) -> Result<Stopping, Halt> {
        let csts = Csts::from_bits(round.get32(Property::Csts)?);
        if csts.is_gone() {
            return Ok(Stopping::Gone);
        }
        let Stop::Known { timeout, patience, cleared, function_reset } = self else {
            let cap = Cap::from_bits(round.get64(Property::Cap)?);
            *self = Stop::within(round.now, ready_timeout(round, cap)?);
            return Ok(Stopping::Again);
        };
        let cc = if *cleared { Cc::new() } else { Cc::from_bits(round.get32(Property::Cc)?) };
        if cc.en() {
            // EN must not be cleared while RDY is still to follow its setting (Base 3.1.4.5), unless it never will.
            if !csts.rdy()
                && !csts.cfs()
                && let Ok(until) = patience.next(round.now)
            {
                return Ok(Stopping::Wait(until));
            }
            round.set(Property::Cc, cc.with_en(false).with_shn(Cc::SHN_NONE).into_bits())?;
            (*patience, *cleared) = (Patience::new(round.now, *timeout), true);
            return Ok(Stopping::Wait(round.now));
        }
        if !csts.rdy() {
            // A fatal controller that was to become ready has RDY = 0 before it has seen EN = 0, and would not see that EN was 0 at all if
            // it was enabled again at once. The reset takes CFS away, where nothing else is wrong.
            if csts.cfs()
                && *cleared
                && round.now < patience.since + FATAL_CLEARS
                && let Ok(until) = patience.next(round.now)
            {
                return Ok(Stopping::Wait(until));
            }
            return Ok(Stopping::Stopped);
        }
        Ok(match patience.next(round.now) {
            Ok(until) => Stopping::Wait(until),
            Err(_) if !std::mem::replace(function_reset, true) && round.reset_function() => {
                *patience = Patience::new(round.now, *timeout);
                Stopping::Wait(round.now)
            }
            Err(waited) => Stopping::Stuck(waited),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
