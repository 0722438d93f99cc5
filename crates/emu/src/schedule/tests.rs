use super::*;

/// Service times of `n` commands, one at a time.
fn alone(profile: Profile, op: Op, bytes: u32, n: u64) -> Vec<u64> {
    let mut schedule = Schedule::new(&profile, 7);
    let mut now = Nanos(0);
    (0..n)
        .map(|_| {
            now += Nanos::from_secs(1);
            (schedule.start(now, op, bytes, None) - now).0
        })
        .collect()
}

fn mean(times: &[u64]) -> f64 {
    times.iter().sum::<u64>() as f64 / times.len() as f64
}

fn quantile(times: &[u64], q: f64) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() as f64 * q) as usize]
}

#[test]
fn null_takes_no_time() {
    for op in [Op::Read, Op::Write, Op::Flush] {
        assert_eq!(alone(Profile::null(), op, 1 << 20, 1000).iter().max(), Some(&0));
    }
}

#[test]
fn means_are_those_of_the_profile() {
    for name in Profile::NAMES {
        let profile: Profile = name.parse().unwrap();
        for op in [Op::Read, Op::Write, Op::Flush] {
            let times = alone(profile.clone(), op, 0, 200_000);
            let expected = profile.service(op).mean().0 as f64;
            assert!(
                (mean(&times) - expected).abs() <= expected * 0.02,
                "{name} {op:?}: {} for {expected}",
                mean(&times)
            );
        }
    }
}

#[test]
fn optane_is_steady_at_10_us() {
    let times = alone(Profile::optane(), Op::Read, 4096, 100_000);
    assert!((9_500..10_500).contains(&quantile(&times, 0.5)));
    assert!(quantile(&times, 0.999) < 15_000);
}

#[test]
fn tlc_has_80_us_and_tail() {
    let times = alone(Profile::tlc(), Op::Read, 4096, 100_000);
    assert!((70_000..85_000).contains(&quantile(&times, 0.5)));
    assert!((75_000.0..85_000.0).contains(&mean(&times)));
    assert!(quantile(&times, 0.999) > 900_000, "two in a thousand take 900 µs longer");
}

#[test]
fn bimodal_alternates_10_and_500_us() {
    let times = alone(Profile::bimodal(), Op::Read, 4096, 5_000);
    for (n, time) in times.iter().enumerate() {
        assert_eq!(*time, if n % 1000 < 900 { 10_000 } else { 500_000 }, "command {n}");
    }
}

#[test]
fn busy_channels_queue_commands() {
    let service = Service { base: Nanos(1_000), ..Service::default() };
    let mut schedule = Schedule::new(&Profile { read: service, channels: 3, ..Profile::null() }, 0);
    let done: Vec<_> = (0..7).map(|_| schedule.start(Nanos(500), Op::Read, 512, None).0).collect();
    assert_eq!(done, [1_500, 1_500, 1_500, 2_500, 2_500, 2_500, 3_500]);
    // After an idle period all channels are free.
    assert_eq!(schedule.start(Nanos(9_000), Op::Read, 512, None).0, 10_000);
}

/// Commands dropped by a reset do not occupy channels.
#[test]
fn reset_frees_channels_and_link() {
    let service = Service { base: Nanos(1_000_000), ..Service::default() };
    let profile = Profile { read: service, channels: 2, bandwidth: 1_000_000, ..Profile::null() };
    let mut schedule = Schedule::new(&profile, 0);
    let alone = schedule.start(Nanos(0), Op::Read, 1_000, None);
    for _ in 0..100 {
        schedule.start(Nanos(0), Op::Read, 1_000, None);
    }
    schedule.clear();
    let first = schedule.start(Nanos(10), Op::Read, 1_000, None);
    assert_eq!(first, alone + Nanos(10));
}

#[test]
fn bandwidth_limits_what_is_transferred() {
    let profile = Profile { bandwidth: 1_000_000_000, ..Profile::null() };
    let mut schedule = Schedule::new(&profile, 0);
    let last = (0..1_000).map(|_| schedule.start(Nanos(0), Op::Read, 1 << 20, None)).max();
    assert_eq!(last, Some(Nanos((1_000 << 20) as u64)), "1 byte per ns");
    assert_eq!(schedule.start(Nanos(0), Op::Flush, 0, None), Nanos(0), "a Flush transfers nothing");
}

#[test]
fn rate_limit_lets_bursts_pass() {
    let profile = Profile { iops: 400_000, iops_burst: 4, ..Profile::null() };
    let mut schedule = Schedule::new(&profile, 0);
    let begun: Vec<_> = (0..7)
        .map(|_| schedule.start(Nanos(1_000_000), Op::Read, 512, None).0 - 1_000_000)
        .collect();
    assert_eq!(begun, [0, 0, 0, 0, 2_500, 5_000, 7_500]);
    let mut schedule = Schedule::new(&profile, 0);
    let last = (0..400_000).map(|_| schedule.start(Nanos(0), Op::Read, 512, None)).max().unwrap();
    assert!((0.99..1.0).contains(&last.as_secs_f64()));
}

/// A given service time occupies a channel; the transfer follows it.
#[test]
fn known_time_replaces_the_random_one() {
    let service = Service { base: Nanos(9_999), ..Service::default() };
    let profile =
        Profile { read: service, channels: 1, bandwidth: 1_000_000_000, ..Profile::null() };
    let mut schedule = Schedule::new(&profile, 0);
    assert_eq!(schedule.start(Nanos(0), Op::Read, 512, Some(Nanos(1_488))), Nanos(2_000));
    assert_eq!(
        schedule.start(Nanos(0), Op::Read, 512, Some(Nanos(0))),
        Nanos(2_000),
        "never less than the transfer"
    );
    assert_eq!(schedule.start(Nanos(0), Op::Flush, 0, Some(Nanos(1_000))), Nanos(2_488));
}

#[test]
fn completions_sort_by_time_then_order() {
    let mut schedule = Schedule::new(&Profile::optane(), 0);
    for (at, order) in [(30, 1), (10, 2), (10, 3), (20, 4)] {
        schedule.push(Due { at: Nanos(at), order, slot: 0 });
    }
    assert_eq!(schedule.pop(Nanos(9)), None);
    assert_eq!(schedule.next(), Some(Nanos(10)));
    let order: Vec<_> =
        std::iter::from_fn(|| schedule.pop(Nanos(99))).map(|due| due.order).collect();
    assert_eq!(order, [2, 3, 4, 1]);
}

#[test]
fn the_logarithm_is_close_and_decreasing() {
    let mut last = u64::MAX;
    for n in 0..10_000u64 {
        let u = 1 + n * (u64::MAX / 10_000);
        let exact = -(u as f64 / 2f64.powi(64)).ln();
        let ours = neg_ln(u) as f64 / 2f64.powi(32);
        assert!((exact - ours).abs() < 1.0 / 4096.0, "{u}: {exact} and {ours}");
        assert!(neg_ln(u) <= last);
        last = neg_ln(u);
    }
    assert_eq!(neg_ln(0), neg_ln(1));
}
