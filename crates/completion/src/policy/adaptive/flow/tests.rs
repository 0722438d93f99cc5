use super::*;

const RATE: f32 = 0.0005;

/// Stretches on a device at its limit, which does so much where the thread gathers.
fn run(flow: &mut Flow, now: &mut Nanos, stretches: u32, gathering: f32) {
    for _ in 0..stretches {
        let compares = flow.compares();
        if !compares {
            flow.is_full();
        }
        *now += Nanos((512.0 / if compares { RATE } else { gathering }) as u64);
        flow.sent(*now, MEMORY * STRETCH, 32);
    }
}

#[test]
fn what_seems_spare_is_used_unless_the_device_becomes_slower() {
    let (mut flow, mut now) = (Flow::new(), Nanos(1));
    run(&mut flow, &mut now, 100, RATE * 0.995);
    assert!(flow.used() > 0.99, "{flow:?}");
    run(&mut flow, &mut now, 100, RATE * 0.9);
    assert!(flow.used() < 0.1, "{flow:?}");
    // And again as soon as it costs nothing.
    run(&mut flow, &mut now, 100, RATE);
    assert!(flow.used() > 0.99, "{flow:?}");
}

#[test]
fn one_slow_stretch_of_three_awake_is_not_believed() {
    let (mut flow, mut now) = (Flow::new(), Nanos(1));
    run(&mut flow, &mut now, 130, RATE);
    let before = flow.full();
    flow.awake[0] = RATE / 3.0;
    assert!((flow.full() - before).abs() < RATE / 100.0, "{flow:?}");
    flow.awake[1] = RATE / 3.0;
    assert!(flow.full() < RATE / 2.0, "{flow:?}");
}

/// A stretch that is slept in is none in which the device was seen to do what it can.
#[test]
fn a_stretch_that_was_slept_in_is_no_measure_of_the_device() {
    let (mut flow, mut now) = (Flow::new(), Nanos(1));
    run(&mut flow, &mut now, 2, RATE);
    let seen = flow.full();
    assert!(seen > 0.0);
    for _ in 0..2 {
        while !flow.compares() {
            run(&mut flow, &mut now, 1, RATE);
        }
        flow.slept();
        now += Nanos((512.0 / RATE) as u64 * 2);
        flow.sent(now, MEMORY * STRETCH, 32);
        assert!((1..MEMORY / 2).contains(&flow.left), "tried again soon: {flow:?}");
    }
    assert_eq!(flow.full(), seen, "{flow:?}");
}

#[test]
fn what_is_held_back_changes_by_a_factor_of_two_or_not_at_all() {
    let (mut flow, mut now) = (Flow::new(), Nanos(1));
    let mut stretch = |spare: f32| {
        (0..10).for_each(|_| flow.spares(spare, Nanos(2_500)));
        run(&mut flow, &mut now, 1, RATE);
        flow.holds()
    };
    stretch(0.0);
    assert_eq!(stretch(1.5), 0, "one alone is not held back");
    let held = stretch(40.0);
    assert!((10..=20).contains(&held), "{held}: at the end of one stretch");
    assert_eq!((stretch(30.0), stretch(40.0)), (held, held));
    assert_eq!(stretch(0.0), 0);
}
