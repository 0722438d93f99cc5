use super::*;

#[test]
fn most_urgent_plan_wins() {
    let (spin, nap, sleep) =
        (Plan::Spin { until: Nanos(9) }, Plan::nap(Nanos(5)), Plan::sleep(Nanos(7)));
    assert_eq!(combine([]), Plan::Idle);
    assert_eq!(combine([Plan::Idle, sleep]), sleep);
    assert_eq!(combine([sleep, nap, Plan::Idle]), nap);
    assert_eq!(combine([sleep, spin]), Plan::Spin { until: Nanos(7) });
    let [few, many] =
        [2, 5].map(|at_least| Plan::Sleep { until: Nanos::MAX, at_least, keep_armed: false });
    assert_eq!(combine([many, Plan::Idle, few]), few);
    assert_eq!(combine([many, sleep]), sleep);
    assert_eq!(combine([many, nap]), nap);
    assert_eq!(combine([spin, Plan::Poll { budget: 3 }, nap]), Plan::Poll { budget: 3 });
}

mod rounds;
