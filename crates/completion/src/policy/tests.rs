use super::*;

#[test]
fn nothing_in_flight_is_nothing_to_wait_for() {
    for mode in Mode::ALL {
        assert_eq!(Policy::new(mode).next(Nanos(1), &Seen::default()), Plan::Rest, "{mode}");
    }
}
