use super::*;

/// Each guard keeps the device thread at rest, whatever becomes of the others.
#[test]
fn the_thread_rests_until_the_last_guard_is_gone() {
    let runner = Arc::new(Runner::new(None).unwrap());
    assert!(!runner.is_by_hand());
    let (first, second) = (ByHand::new(&runner), ByHand::new(&runner));
    drop(first);
    assert!(runner.is_by_hand(), "the second guard lives");
    drop(second);
    assert!(!runner.is_by_hand());
}
