use nvme::{Registers, regs};

use super::*;
use crate::properties::Asking;
use crate::testing::controller::MemRegisters;

/// CC.EN and CSTS are memory to some controllers: one that has not seen EN = 0 would not see that it was enabled again.
#[test]
fn fatal_status_is_cleared_before_stopped() {
    let registers = MemRegisters::default();
    registers.write32(regs::CC, Cc::new().with_en(true).into_bits());
    registers.write32(regs::CSTS, Csts::new().with_cfs(true).into_bits());
    let mut asking = Asking::default();
    let (start, mut stop) = (Nanos::from_secs(1), Stop::within(Nanos::from_secs(1), Nanos::from_secs(2)));
    let mut step = |now| stop.step(&mut asking.round(now, Nanos::from_secs(1), &registers));
    assert_eq!(step(start), Stopping::Wait(start));
    assert!(matches!(step(start), Stopping::Wait(_)));
    assert!(matches!(step(start + FATAL_CLEARS - Nanos(1)), Stopping::Wait(_)));
    assert_eq!(step(start + FATAL_CLEARS), Stopping::Stopped, "not for ever");
    registers.write32(regs::CSTS, 0);
    assert_eq!(step(start), Stopping::Stopped);
}

/// A machine that stands still while an answer is waited for, and goes on before the deadline: what is left of the time is little, and most of
/// it was nobody's.
#[test]
fn absence_during_long_wait_is_seen() {
    let (began, deadline) = (Nanos::from_secs(1), Nanos::from_secs(11));
    let mut attendance = Attendance::default();
    let mut until = deadline;
    attendance.asked_within(began, &mut until);
    assert_eq!(until, began + PIECE);
    assert_eq!(attendance.away(deadline - Nanos(1)), deadline - Nanos(1) - until);
    // Who comes in time was never away; and a short wait is as it was asked for.
    attendance.asked_within(began, &mut until);
    assert_eq!(attendance.away(until + PUNCTUAL), Nanos::ZERO);
    let mut soon = began + Nanos(1);
    attendance.asked_within(began, &mut soon);
    assert_eq!(soon, began + Nanos(1));
}
