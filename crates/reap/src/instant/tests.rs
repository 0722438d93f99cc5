use super::*;

#[test]
fn arithmetic_saturates() {
    let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(8));
    assert_eq!((late - early, early - late), (Duration::from_nanos(3), Duration::ZERO));
    assert_eq!(early - Duration::from_secs(1), Instant::from_nanos(0));
    assert_eq!(late + Duration::MAX, Instant::from_nanos(u64::MAX));
}

#[test]
fn instants_match_clock_monotonic() {
    let (before, shown, after) = (hw::now(), Instant::now().as_nanos(), hw::now());
    assert!((before.0..=after.0).contains(&shown), "{before} {shown} {after}");
}
