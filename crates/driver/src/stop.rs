//! Stopping a controller: CC.EN = 0, then CSTS.RDY = 0. Bring-up, recovery and shutdown all pass through it, because
//! only a controller that has provably stopped writes to no buffer any more.

use nvme::Registers;
use nvme::regs::{self, Cap, Cc, Csts};
use units::Nanos;

/// The values of the registers when something went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterValues {
    /// CAP.
    pub cap: u64,
    /// CC.
    pub cc: u32,
    /// CSTS.
    pub csts: u32,
}

impl RegisterValues {
    /// Reads them.
    pub fn read(registers: &impl Registers) -> RegisterValues {
        let (cap, cc, csts) = (registers.read64(regs::CAP), registers.read32(regs::CC), registers.read32(regs::CSTS));
        RegisterValues { cap, cc, csts }
    }
}

impl std::fmt::Display for RegisterValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CAP {:#018x}, CC {:#010x}, CSTS {:#010x}", self.cap, self.cc, self.csts)
    }
}

/// How long a change of CSTS.RDY may take: CAP.TO, or CRTO.CRWMT where that is longer and valid (Base 3.1.4.21).
pub(crate) fn ready_timeout(registers: &impl Registers, cap: Cap) -> Nanos {
    let crto = if cap.crms() & 1 != 0 { u64::from(regs::Crto::from_bits(registers.read32(regs::CRTO)).crwmt()) * 500 } else { 0 };
    Nanos::from_millis(cap.timeout_ms().max(crto).max(500))
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
    const LONGEST: Nanos = Nanos::from_millis(10);

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
}

/// The sequence that stops a controller (Base 3.7.2, controller reset).
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    timeout: Nanos,
    patience: Patience,
    cleared: bool,
}

/// What [`Stop::step`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    Wait(Nanos),
    /// CSTS.RDY is 0: no buffer and no ring is touched any more.
    Stopped,
    /// RDY did not become 0 for so long.
    Stuck(Nanos),
    /// The registers read as all ones.
    Gone,
}

impl Stop {
    pub(crate) fn new(now: Nanos, timeout: Nanos) -> Stop {
        Stop { timeout, patience: Patience::new(now, timeout), cleared: false }
    }

    pub(crate) fn step(&mut self, now: Nanos, registers: &impl Registers) -> Stopping {
        let csts = Csts::from_bits(registers.read32(regs::CSTS));
        if csts.is_gone() {
            return Stopping::Gone;
        }
        let cc = Cc::from_bits(registers.read32(regs::CC));
        if cc.en() && !self.cleared {
            // EN must not be cleared while RDY is still to follow its setting (Base 3.1.4.5), unless it never will.
            if !csts.rdy()
                && !csts.cfs()
                && let Ok(until) = self.patience.next(now)
            {
                return Stopping::Wait(until);
            }
            registers.write32(regs::CC, cc.with_en(false).with_shn(Cc::SHN_NONE).into_bits());
            self.cleared = true;
            self.patience = Patience::new(now, self.timeout);
            return Stopping::Wait(now);
        }
        if !csts.rdy() {
            return Stopping::Stopped;
        }
        match self.patience.next(now) {
            Ok(until) => Stopping::Wait(until),
            Err(waited) => Stopping::Stuck(waited),
        }
    }
}
