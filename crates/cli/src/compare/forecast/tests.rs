use super::*;

/// Two hundred blocks of a tenth of a second.
fn planned() -> Forecast {
    let effort = Effort { blocks: 100, time: Nanos::from_secs(10) };
    let mut forecast = Forecast::new(&[effort, effort], Nanos::from_secs(1000));
    forecast.begin(Nanos::from_secs(1000));
    forecast
}

fn far(done: u64, left: u64) -> Far {
    Far { passes: PASSES, done, left }
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(1000 + seconds)
}

#[test]
fn what_goes_as_planned_is_not_told_again() {
    let mut forecast = planned();
    assert_eq!(forecast.news(at(5), far(50, 150)), None);
    // A quarter beyond the 20 s that were said holds.
    assert_eq!(forecast.news(at(12), far(100, 100)), None);
    // Once begun, it has begun.
    forecast.begin(at(10));
    assert!(forecast.news(at(13), far(100, 100)).is_some());
}

#[test]
fn blocks_that_take_longer_are_told_once_and_again_where_that_no_longer_holds() {
    let mut forecast = planned();
    let told = forecast.news(at(15), far(50, 150)).unwrap();
    assert_eq!(told, "After 15 s: about 45 s left. A block takes 300 ms, where 100 were planned, and 150 of them are left.");
    // 60 s in all were told: 75 hold, 76 do not.
    assert_eq!(forecast.news(at(30), far(80, 120)), None);
    assert!(forecast.news(at(38), far(100, 100)).unwrap().contains("about 38 s left"));
    // The other work is over: 76 s were told.
    assert!(forecast.news(at(42), far(150, 50)).unwrap().contains("about 14 s left"));
}

#[test]
fn what_comes_before_the_first_block_is_time_that_is_gone_and_makes_no_block_longer() {
    let effort = Effort { blocks: 200, time: Nanos::from_secs(20) };
    let mut forecast = Forecast::new(&[effort], Nanos::from_secs(1000));
    forecast.begin(at(30));
    let told = forecast.news(at(35), far(50, 150)).unwrap();
    assert_eq!(told, "After 35 s: about 15 s left. A block takes 100 ms, where 100 were planned, and 150 of them are left.");
    assert_eq!(forecast.news(at(40), far(100, 100)), None);
}

#[test]
fn too_few_blocks_tell_nothing_and_an_end_that_is_near_is_waited_for() {
    let mut forecast = planned();
    assert_eq!(forecast.news(at(60), Far { passes: PASSES - 1, ..far(50, 150) }), None);
    assert_eq!(forecast.news(at(60), far(19, 181)), None);
    assert_eq!(forecast.news(at(60), far(199, 1)), None);
    let mut not_begun = Forecast { began: None, ..planned() };
    assert_eq!(not_begun.news(at(60), far(50, 150)), None);
    assert_eq!(forecast.news(at(60), far(0, 0)), None);
}
