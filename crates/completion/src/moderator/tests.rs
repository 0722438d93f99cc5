use proptest::prelude::*;

use super::*;

const ALL: [Moderation; 3] = [Moderation::Fixed, Moderation::Dim, Moderation::Vic];

/// A device at a queue depth: the load of a 10 ms interval under a setting. Each command takes 10
/// µs, and the host submits the next at its message.
fn stretch(setting: Coalesce, depth: u32) -> Rates {
    let batch = u64::from(depth.min(u32::from(setting.entries())));
    // A batch below the threshold waits for the aggregation time.
    let held =
        if batch < u64::from(setting.entries()) { u64::from(setting.time()) * 100_000 } else { 0 };
    let completions = u64::from(depth) * PACE.0 / (10_000 + held);
    Rates { elapsed: PACE, completions, messages: completions / batch, in_flight: depth }
}

/// Ticks for this long at a depth. Returns the last setting.
fn settle(moderator: &mut Moderator, from: u64, ticks: u64, depth: u32) -> Coalesce {
    for tick in from..from + ticks {
        let rates = stretch(moderator.in_force(), depth);
        if let Some(setting) = moderator.tick(Nanos(tick * PACE.0), &rates) {
            moderator.confirmed(setting);
        }
    }
    moderator.in_force()
}

/// At most one change per [`PACE`], however often it ticks.
fn paced(
    mut tick: impl FnMut(Nanos, &Rates) -> Option<Coalesce>,
    ticks: &[(u64, Rates)],
) -> Result<(), String> {
    let (mut now, mut last) = (Nanos::ZERO, None);
    for (pause, rates) in ticks {
        now += Nanos(*pause);
        if tick(now, rates).is_some() {
            if last.is_some_and(|last| now < last + PACE) {
                return Err(format!("changes at {last:?} and {now}"));
            }
            last = Some(now);
        }
    }
    Ok(())
}

fn any_ticks() -> impl Strategy<Value = Vec<(u64, Rates)>> {
    let rates = (0u64..20_000_000, 0u64..100_000, 0u64..100_000, 0u32..2_000).prop_map(
        |(elapsed, completions, messages, in_flight)| Rates {
            elapsed: Nanos(elapsed),
            completions,
            messages,
            in_flight,
        },
    );
    proptest::collection::vec((0u64..15_000_000, rates), 1..60)
}

proptest! {
    #[test]
    fn changes_are_ten_milliseconds_apart(ticks in any_ticks()) {
        for moderation in ALL {
            let mut moderator = Moderator::new(moderation);
            let tick = |now: Nanos, rates: &Rates| moderator.tick(now, rates).inspect(|&setting| moderator.confirmed(setting));
            prop_assert_eq!(paced(tick, &ticks), Ok(()));
        }
    }

    #[test]
    fn refusing_devices_are_left_alone(ticks in any_ticks()) {
        for moderation in ALL {
            let mut moderator = Moderator::new(moderation);
            moderator.refused();
            for (now, rates) in &ticks {
                prop_assert_eq!(moderator.tick(Nanos(*now), rates), None);
            }
        }
    }

    #[test]
    fn every_setting_fits_the_feature(entries: u16, steps: u8) {
        let setting = Coalesce::new(entries, steps);
        prop_assert_eq!(setting == Coalesce::OFF, entries < 2 || steps == 0);
        prop_assert_eq!(u16::from(setting.thr()) + 1, setting.entries());
        prop_assert!(setting == Coalesce::OFF || setting.entries() == entries.min(256) && setting.time() == steps);
    }
}

#[test]
fn no_pace_mutant_is_caught() {
    // A mutant that does not record when it last changed.
    let law = |ticks: Vec<(u64, Rates)>| {
        let mut moderator = Moderator::new(Moderation::Vic);
        let twin = |now: Nanos, rates: &Rates| {
            moderator.changed_at = None;
            moderator.tick(now, rates).inspect(|&setting| moderator.confirmed(setting))
        };
        paced(twin, &ticks).map_err(TestCaseError::fail)
    };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    assert!(runner.run(&any_ticks(), law).is_err());
}

#[test]
fn fixed_setting_returns_after_reset() {
    let mut moderator = Moderator::new(Moderation::Fixed);
    assert_eq!(moderator.tick(Nanos(1), &Rates::default()), Some(Coalesce::new(8, 1)));
    assert_eq!(moderator.tick(Nanos(2), &Rates::default()), None, "not confirmed, but too soon");
    moderator.confirmed(Coalesce::new(8, 1));
    assert_eq!(moderator.tick(PACE + Nanos(2), &Rates::default()), None);
    moderator.reset();
    assert_eq!(moderator.tick(PACE + PACE, &Rates::default()), Some(Coalesce::new(8, 1)));
}

#[test]
fn vic_coalesces_at_depth() {
    let setting = |in_flight, completions| {
        vic(&Rates { elapsed: PACE, completions, messages: completions, in_flight })
    };
    assert_eq!(setting(3, 10_000), Coalesce::OFF);
    assert_eq!(setting(64, 10), Coalesce::OFF);
    assert_eq!(setting(32, 10_000), Coalesce::new(4, 1));
    assert_eq!(setting(100_000, 10_000), Coalesce::new(256, 1));
}

#[test]
fn dim_climbs_at_depth() {
    let deep = settle(&mut Moderator::new(Moderation::Dim), 1, 40, 64);
    assert!(deep.entries() >= 8, "{deep:?}");
    // At depth 1 a threshold of two delays each command by 100 µs: the moderator tries it and
    // returns.
    let shallow = settle(&mut Moderator::new(Moderation::Dim), 1, 40, 1);
    assert_eq!(shallow, Coalesce::OFF);
}

#[test]
fn dim_follows_the_depth_down() {
    let mut moderator = Moderator::new(Moderation::Dim);
    assert!(settle(&mut moderator, 1, 40, 64).entries() >= 8);
    let after = settle(&mut moderator, 41, 60, 2);
    assert!(after.entries() <= 2, "{after:?}");
    // Idle turns coalescing off.
    assert_eq!(
        moderator
            .tick(Nanos(200 * PACE.0), &Rates { elapsed: PACE, ..Rates::default() })
            .unwrap_or(moderator.in_force()),
        Coalesce::OFF
    );
}
