use super::*;

#[test]
fn only_a_sleep_that_was_one_tells_what_sleeps_cost() {
    let bell = hw::EventFd::new().unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&bell, 0).unwrap();
    let mut events = Vec::new();
    let mut wait = |timeout| {
        let measured = Measured::begin();
        poller.wait(Some(timeout), &mut events).unwrap();
        measured.end()
    };
    bell.signal();
    assert_eq!(wait(Nanos::from_millis(1_000)), None, "told before it could sleep");
    assert!(wait(Nanos::from_millis(1)).is_some_and(|cpu| cpu > Nanos::ZERO));
}
