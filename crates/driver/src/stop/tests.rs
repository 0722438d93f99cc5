use super::*;

/// A machine that stands still while an answer is waited for, and goes on before the deadline: what is left of the time is little, and most of
/// it was nobody's.
#[test]
fn an_absence_within_a_long_wait_shows() {
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
