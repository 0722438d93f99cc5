use nvme::{Registers, regs};

use super::*;
use crate::properties::Accesses;
use crate::testing::controller::MemRegisters;

/// Some controllers poll CC.EN: one that has not noticed EN = 0 would not notice the next EN = 1.
#[test]
fn fatal_status_is_cleared_before_stopped() {
    let registers = MemRegisters::default();
    registers.write32(regs::CC, Cc::new().with_en(true).into_bits());
    registers.write32(regs::CSTS, Csts::new().with_cfs(true).into_bits());
    let mut accesses = Accesses::default();
    let (start, mut stop) =
        (Nanos::from_secs(1), StopSequence::started(Nanos::from_secs(1), Nanos::from_secs(2)));
    let mut step = |now| stop.step(&mut accesses.round(now, Nanos::from_secs(1), &registers));
    assert_eq!(step(start), StopStatus::Wait(start));
    assert!(matches!(step(start), StopStatus::Wait(_)));
    assert!(matches!(step(start + CFS_CLEAR_TIMEOUT - Nanos(1)), StopStatus::Wait(_)));
    assert_eq!(step(start + CFS_CLEAR_TIMEOUT), StopStatus::Stopped, "not for ever");
    registers.write32(regs::CSTS, 0);
    assert_eq!(step(start), StopStatus::Stopped);
}

/// An executor suspended within a long wait, and resumed before its deadline: the time lost is
/// still found.
#[test]
fn absence_during_long_wait_is_seen() {
    let (began, deadline) = (Nanos::from_secs(1), Nanos::from_secs(11));
    let mut step_timer = StepTimer::default();
    let mut until = deadline;
    step_timer.schedule_within(began, &mut until);
    assert_eq!(until, began + MAX_WAIT);
    assert_eq!(step_timer.overrun(deadline - Nanos(1)), deadline - Nanos(1) - until);
    // A punctual step has no overrun, and a short wait is not shortened.
    step_timer.schedule_within(began, &mut until);
    assert_eq!(step_timer.overrun(until + OVERRUN_TOLERANCE), Nanos::ZERO);
    let mut soon = began + Nanos(1);
    step_timer.schedule_within(began, &mut soon);
    assert_eq!(soon, began + Nanos(1));
}
