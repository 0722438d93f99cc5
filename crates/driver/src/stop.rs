//! Stops a controller: CC.EN = 0, then waits for CSTS.RDY = 0. Bring-up, recovery and shutdown all
//! do this, because only a controller that has provably stopped writes to no buffer any more.

use nvme::regs::{Cap, Cc, Crto, Csts};
use units::Nanos;

use crate::properties::{AccessError, Properties, Property, PropertyError, Round};

/// How long a change of CSTS.RDY may take: CAP.TO, or CRTO.CRWMT if that is longer and valid (Base
/// 3.1.4.21). Both count units of 500 ms.
pub(crate) fn ready_timeout(
    round: &mut Round<'_, impl Properties>,
    cap: Cap,
) -> Result<Nanos, AccessError> {
    let crto = if cap.crms() & 1 != 0 {
        u64::from(Crto::from_bits(round.get32(Property::Crto)?).crwmt()) * 500
    } else {
        0
    };
    // At least one unit: some controllers report CAP.TO = 0, which cannot be meant.
    Ok(Nanos::from_millis(cap.timeout_ms().max(crto).max(500)))
}

/// A step that comes later than requested by more than this counts as an overrun. Below it is
/// ordinary scheduling delay.
const OVERRUN_TOLERANCE: Nanos = Nanos::from_millis(20);

/// The longest wait that a machine requests while a reply is pending. An overrun within a longer
/// wait would go unnoticed.
const MAX_WAIT: Nanos = Nanos::from_millis(100);

/// How long a controller may take to clear CSTS.CFS once CSTS.RDY is 0. One that keeps it set is
/// enabled anyway.
const CFS_CLEAR_TIMEOUT: Nanos = Nanos::from_millis(500);

/// Measures whether the executor steps a machine when requested. The excess counts towards no
/// deadline: the machine could not have seen an answer in that time, and what delayed the executor
/// (a suspended VM, say) may have delayed the controller too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTimer(Option<Nanos>);

impl StepTimer {
    /// Called at each step. Returns by how much the step is late; zero within
    /// [`OVERRUN_TOLERANCE`].
    pub(crate) fn overrun(&mut self, now: Nanos) -> Nanos {
        let late = self.0.take().map_or(Nanos::ZERO, |due| now - due);
        if late > OVERRUN_TOLERANCE { late } else { Nanos::ZERO }
    }

    /// The executor was asked to step again at `until` at the latest.
    pub(crate) fn schedule(&mut self, until: Nanos) {
        self.0 = Some(until);
    }

    /// As [`StepTimer::schedule`], after shortening `until` to at most [`MAX_WAIT`] from now.
    pub(crate) fn schedule_within(&mut self, now: Nanos, until: &mut Nanos) {
        *until = (*until).min(now + MAX_WAIT);
        self.schedule(*until);
    }
}

/// Exponential back-off with a deadline, for polling a register.
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

    /// When to poll next. `Err`, with the time waited: the deadline has passed.
    pub(crate) fn next(&mut self, now: Nanos) -> Result<Nanos, Nanos> {
        if now >= self.deadline {
            return Err(now - self.since);
        }
        let until = (now + self.interval).min(self.deadline);
        // A fast controller is ready within microseconds; a slow one must not be polled a million
        // times.
        self.interval = (self.interval + self.interval).min(Backoff::MAX_INTERVAL);
        Ok(until)
    }

    /// Moves the deadline by an overrun of the executor.
    pub(crate) fn extend(&mut self, overrun: Nanos) {
        self.deadline += overrun;
    }
}

/// The sequence that stops a controller (Base 3.7.2): a controller reset by CC.EN, and if CSTS.RDY
/// stays 1, a reset of the PCI function.
///
/// ```text
///   read CSTS, CAP, CRTO    EN = 1 and RDY = 0: wait for RDY = 1 (or CFS, or time-out)
///   write CC.EN = 0         wait for RDY = 0      -> Stopped
///                           time-out: FLR, once   wait again   -> Stopped, or TimedOut
/// ```
///
/// An NVM subsystem reset is never tried. It would stop the controllers of other hosts too, and a
/// drive on the bus would lose its configuration space.
#[derive(Clone, Debug)]
pub(crate) enum StopSequence {
    /// The time-out has not been read yet.
    Start,
    Started {
        timeout: Nanos,
        backoff: Backoff,
        en_cleared: bool,
        /// A reset of the PCI function was tried.
        function_reset: bool,
    },
}

/// Result of [`StopSequence::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopStatus {
    /// Step again at once.
    Again,
    Wait(Nanos),
    /// CSTS.RDY is 0: the controller accesses no buffer and no ring any more.
    Stopped,
    /// RDY is still 1 after this time, and a reset of the PCI function was impossible or did not
    /// help.
    TimedOut(Nanos),
    /// The registers read as all ones.
    Gone,
    /// A property access failed: it is unknown whether the controller has stopped.
    Failed(PropertyError),
}

impl StopSequence {
    /// A sequence that knows its time-out already.
    pub(crate) fn started(now: Nanos, timeout: Nanos) -> StopSequence {
        StopSequence::Started {
            timeout,
            backoff: Backoff::new(now, timeout),
            en_cleared: false,
            function_reset: false,
        }
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

    fn advance(
        &mut self,
        round: &mut Round<'_, impl Properties>,
    ) -> Result<StopStatus, AccessError> {
        let csts = Csts::from_bits(round.get32(Property::Csts)?);
        // A controller that is gone may not have stopped: behind a failed link it may still run.
        if csts.is_gone() {
            return Ok(StopStatus::Gone);
        }
        let StopSequence::Started { timeout, backoff, en_cleared, function_reset } = self else {
            let cap = Cap::from_bits(round.get64(Property::Cap)?);
            *self = StopSequence::started(round.now, ready_timeout(round, cap)?);
            return Ok(StopStatus::Again);
        };
        // EN is known to be 0 then, and over fabrics the read would cost a command.
        let cc = if *en_cleared { Cc::new() } else { Cc::from_bits(round.get32(Property::Cc)?) };
        if cc.en() {
            // EN must not be cleared between EN = 1 and RDY = 1 (Base 3.1.4.5), unless RDY never
            // becomes 1.
            if !csts.rdy()
                && !csts.cfs()
                && let Ok(until) = backoff.next(round.now)
            {
                return Ok(StopStatus::Wait(until));
            }
            // SHN is cleared too, or the next enable would find a shutdown still requested.
            round.set(Property::Cc, cc.with_en(false).with_shn(Cc::SHN_NONE).into_bits())?;
            // The time for RDY = 0 counts from here, not from the wait for RDY = 1.
            (*backoff, *en_cleared) = (Backoff::new(round.now, *timeout), true);
            return Ok(StopStatus::Wait(round.now));
        }
        if !csts.rdy() {
            // A controller that failed while becoming ready has RDY = 0 before it has noticed EN =
            // 0. Enabled again at once, it would miss the reset. A controller reset clears CFS if
            // nothing else is wrong.
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
            // The function is reset at most once. `replace` records the attempt even if the
            // transport has no such reset.
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
