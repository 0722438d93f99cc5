//! StopStatus a controller: CC.EN = 0, then CSTS.RDY = 0. Bring-up, recovery and shutdown all pass through it, because
//! only a controller that has provably stopped writes to no buffer any more.

use nvme::regs::{Cap, Cc, Crto, Csts};
use units::Nanos;

use crate::properties::{AccessError, Properties, Property, PropertyError, Round};

/// How long a change of CSTS.RDY may take: CAP.TO, or CRTO.CRWMT where that is longer and valid (Base 3.1.4.21).
pub(crate) fn ready_timeout(round: &mut Round<'_, impl Properties>, cap: Cap) -> Result<Nanos, AccessError> {
    let crto = if cap.crms() & 1 != 0 { u64::from(Crto::from_bits(round.get32(Property::Crto)?).crwmt()) * 500 } else { 0 };
    Ok(Nanos::from_millis(cap.timeout_ms().max(crto).max(500)))
}

/// How much later than it asked for a state machine may be stepped before its executor counts as overrun.
const OVERRUN_TOLERANCE: Nanos = Nanos::from_millis(20);

/// A machine asks to be stepped after so long at the latest while it waits for an answer: an absence within a wait shows, too.
const MAX_WAIT: Nanos = Nanos::from_millis(100);

/// How long a reset controller may take to clear CSTS.CFS once CSTS.RDY is 0. One that keeps it is tried all the same.
const CFS_CLEAR_TIMEOUT: Nanos = Nanos::from_millis(500);

/// Whether the executor comes when it was asked to. Time in which it was away counts towards no deadline: it could not have seen an answer
/// meanwhile, and whatever kept it away, a machine that stands still for one, may have kept the controller from answering too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTimer(Option<Nanos>);

impl StepTimer {
    /// A step: for how long the executor was away before it.
    pub(crate) fn overrun(&mut self, now: Nanos) -> Nanos {
        let late = self.0.take().map_or(Nanos::ZERO, |due| now - due);
        if late > OVERRUN_TOLERANCE { late } else { Nanos::ZERO }
    }

    /// It was asked to come back then at the latest.
    pub(crate) fn schedule(&mut self, until: Nanos) {
        self.0 = Some(until);
    }

    /// It is asked to come back then, or sooner, so that an absence shows.
    pub(crate) fn schedule_within(&mut self, now: Nanos, until: &mut Nanos) {
        *until = (*until).min(now + MAX_WAIT);
        self.schedule(*until);
    }
}

/// Waits for a register: looks often at first, then ever more rarely, and until a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    since: Nanos,
    deadline: Nanos,
    interval: Nanos,
}

impl Backoff {
    const MIN_INTERVAL: Nanos = Nanos::from_micros(10);
    pub(crate) const MAX_INTERVAL: Nanos = Nanos::from_millis(10);

    pub(crate) fn new(now: Nanos, timeout: Nanos) -> Backoff {
        Backoff { since: now, deadline: now + timeout, interval: Backoff::MIN_INTERVAL }
    }

    /// When to look next; the time waited in vain once the deadline has passed.
    pub(crate) fn next(&mut self, now: Nanos) -> Result<Nanos, Nanos> {
        if now >= self.deadline {
            return Err(now - self.since);
        }
        let until = (now + self.interval).min(self.deadline);
        self.interval = (self.interval + self.interval).min(Backoff::MAX_INTERVAL);
        Ok(until)
    }

    /// It lasts so much longer: nobody looked for so long.
    pub(crate) fn extend(&mut self, overrun: Nanos) {
        self.deadline += overrun;
    }
}

/// The sequence that stops a controller (Base 3.7.2): a controller reset by CC.EN and, where that does not end, a reset of the function.
/// An NVM subsystem reset is never tried: it stops the controllers of other hosts too, and a drive on the bus loses its configuration space.
#[derive(Clone, Debug)]
pub(crate) enum StopSequence {
    /// How long it may take is to be read first.
    Start,
    Started {
        timeout: Nanos,
        backoff: Backoff,
        en_cleared: bool,
        /// The function was reset, or cannot be.
        function_reset: bool,
    },
}

/// What [`StopSequence::step`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopStatus {
    /// Step again at once.
    Again,
    Wait(Nanos),
    /// CSTS.RDY is 0: no buffer and no ring is touched any more.
    Stopped,
    /// RDY did not become 0 for so long, and a reset of the function was not possible or did not help.
    TimedOut(Nanos),
    /// The registers read as all ones.
    Gone,
    /// Nobody can say whether it has stopped.
    Failed(PropertyError),
}

impl StopSequence {
    /// Of a controller that may take this long.
    pub(crate) fn started(now: Nanos, timeout: Nanos) -> StopSequence {
        StopSequence::Started { timeout, backoff: Backoff::new(now, timeout), en_cleared: false, function_reset: false }
    }

    /// As [`Backoff::extend`].
    pub(crate) fn extend(&mut self, overrun: Nanos) {
        if let StopSequence::Started { backoff, .. } = self {
            backoff.extend(overrun);
        }
    }

    pub(crate) fn step(&mut self, round: &mut Round<'_, impl Properties>) -> StopStatus {
        let stopping = match self.advance(round) {
            Ok(stopping) => stopping,
            Err(AccessError::WouldBlock(until)) => return StopStatus::Wait(until),
            Err(AccessError::Failed(error)) => StopStatus::Failed(error),
        };
        round.end();
        stopping
    }

    fn advance(&mut self, round: &mut Round<'_, impl Properties>) -> Result<StopStatus, AccessError> {
        let csts = Csts::from_bits(round.get32(Property::Csts)?);
        if csts.is_gone() {
            return Ok(StopStatus::Gone);
        }
        let StopSequence::Started { timeout, backoff, en_cleared, function_reset } = self else {
            let cap = Cap::from_bits(round.get64(Property::Cap)?);
            *self = StopSequence::started(round.now, ready_timeout(round, cap)?);
            return Ok(StopStatus::Again);
        };
        let cc = if *en_cleared { Cc::new() } else { Cc::from_bits(round.get32(Property::Cc)?) };
        if cc.en() {
            // EN must not be en_cleared while RDY is still to follow its setting (Base 3.1.4.5), unless it never will.
            if !csts.rdy()
                && !csts.cfs()
                && let Ok(until) = backoff.next(round.now)
            {
                return Ok(StopStatus::Wait(until));
            }
            round.set(Property::Cc, cc.with_en(false).with_shn(Cc::SHN_NONE).into_bits())?;
            (*backoff, *en_cleared) = (Backoff::new(round.now, *timeout), true);
            return Ok(StopStatus::Wait(round.now));
        }
        if !csts.rdy() {
            // A fatal controller that was to become ready has RDY = 0 before it has seen EN = 0, and would not see that EN was 0 at all if
            // it was enabled again at once. The reset takes CFS away, where nothing else is wrong.
            if csts.cfs()
                && *en_cleared
                && round.now < backoff.since + CFS_CLEAR_TIMEOUT
                && let Ok(until) = backoff.next(round.now)
            {
                return Ok(StopStatus::Wait(until));
            }
            return Ok(StopStatus::Stopped);
        }
        Ok(match backoff.next(round.now) {
            Ok(until) => StopStatus::Wait(until),
            Err(_) if !std::mem::replace(function_reset, true) && round.reset_function() => {
                *backoff = Backoff::new(round.now, *timeout);
                StopStatus::Wait(round.now)
            }
            Err(waited) => StopStatus::TimedOut(waited),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
