use super::*;
use crate::job::{Direction, Pattern};

fn pacing(rate: Rate, process: RateProcess) -> Pacing {
    let job = Job { rate: PerOp::all(Some(rate)), rate_process: process, ..Job::default() };
    let mut pacing = Pacing::new(&job, 7).unwrap();
    pacing.start = Nanos::from_secs(100);
    pacing
}

/// Intended starts of `n` reads of `bytes`, from the start of the job.
fn starts(pacing: &mut Pacing, n: usize, bytes: u32) -> Vec<u64> {
    let due = |pacing: &mut Pacing| {
        let due = pacing.due(Op::Read).unwrap() - Nanos::from_secs(100);
        pacing.issued(Op::Read, bytes);
        due.0
    };
    (0..n).map(|_| due(pacing)).collect()
}

#[test]
fn linear_rates_do_not_drift() {
    let starts_iops = starts(&mut pacing(Rate::Iops(3), RateProcess::Linear), 3_000_001, 4096);
    assert_eq!(starts_iops[..4], [0, 333_333_333, 666_666_666, 1_000_000_000]);
    assert_eq!(starts_iops[3_000_000], 1_000_000 * 1_000_000_000);
    let starts_bytes = starts(&mut pacing(Rate::Bytes(1 << 20), RateProcess::Linear), 1025, 1024);
    assert_eq!(starts_bytes[1024], 1_000_000_000);
}

#[test]
fn poisson_gaps_are_exponential() {
    let starts = starts(&mut pacing(Rate::Iops(1000), RateProcess::Poisson), 100_001, 4096);
    let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation =
        (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
    assert!((deviation / 1e6 - 1.0).abs() < 0.03, "{deviation}");
    // A schedule without randomness must fail the check.
    let even = super::tests::starts(&mut pacing(Rate::Iops(1000), RateProcess::Linear), 1000, 4096);
    assert!(even.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
}

#[test]
fn only_what_is_issued_is_paced() {
    assert!(Pacing::new(&Job::default(), 1).is_none());
    let writes = PerOp { write: Some(Rate::Iops(5)), ..PerOp::default() };
    assert!(Pacing::new(&Job { rate: writes, ..Job::default() }, 1).is_none());
    let pattern = Pattern { direction: Direction::Mixed, random: true, step: 1 };
    let mixed = Pacing::new(&Job { rate: writes, pattern, ..Job::default() }, 1).unwrap();
    assert_eq!((mixed.due(Op::Read), mixed.due(Op::Write)), (None, Some(Nanos::ZERO)));
}

fn phase(millis: u64, share: f64) -> RatePhase {
    RatePhase { span: Nanos::from_millis(millis), share }
}

#[test]
fn rate_follows_its_stretches() {
    let job = Job {
        rate: PerOp::all(Some(Rate::Iops(1000))),
        rate_phases: vec![phase(10, 0.0), phase(20, 1.0), phase(10, 0.5)],
        ..Job::default()
    };
    let mut pacing = Pacing::new(&job, 7).unwrap();
    pacing.start = Nanos::from_secs(100);
    // 25 starts in each cycle of 40 ms: 20 a millisecond apart, then 5 two milliseconds apart, none
    // in the silence.
    let starts = starts(&mut pacing, 100, 4096);
    for cycle in 0..4 {
        let own: Vec<u64> = starts[cycle * 25..cycle * 25 + 25]
            .iter()
            .map(|at| at / 1_000_000 - cycle as u64 * 40)
            .collect();
        let expected: Vec<u64> = (10..30).chain((30..40).step_by(2)).collect();
        assert_eq!(own, expected);
    }
}

#[test]
fn idle_stretches_are_not_counted() {
    assert_eq!(elapsed_at(&[phase(10, 0.0)], Nanos(7)), Nanos(7));
    assert_eq!(elapsed_at(&[], Nanos(7)), Nanos(7));
}

proptest::proptest! {
    /// Over whole cycles the mean is the phases' mean, and time never goes back.
    #[test]
    fn stretches_keep_order_and_mean(parts in proptest::collection::vec((1u64..50, 0u32..=1000), 1..6), used in proptest::collection::vec(0u64..10_000_000_000, 2..20)) {
        let phases: Vec<RatePhase> = parts.iter().map(|&(millis, permille)| phase(millis, f64::from(permille) / 1000.0)).collect();
        let cycle: u64 = phases.iter().map(|s| (s.span.0 as f64 * s.share) as u64).sum();
        proptest::prop_assume!(cycle > 0);
        let mut used = used;
        used.sort_unstable();
        let at: Vec<Nanos> = used.iter().map(|&used| elapsed_at(&phases, Nanos(used))).collect();
        proptest::prop_assert!(at.windows(2).all(|pair| pair[0] <= pair[1]));
        proptest::prop_assert!(at.iter().zip(&used).all(|(at, used)| at.0 >= *used));
        let wall: u64 = phases.iter().map(|s| s.span.0).sum();
        let (one, two) = (elapsed_at(&phases, Nanos(1)), elapsed_at(&phases, Nanos(3 * cycle + 1)));
        proptest::prop_assert_eq!(two - one, Nanos(3 * wall));
    }
}

/// 1000 a second for 10 ms, nothing for 20 ms, 2000 a second from then on: steps that are not
/// repeated.
fn steps(process: RateProcess) -> Pacing {
    let last = RatePhase { span: Nanos::MAX, share: 1.0 };
    let phases = vec![phase(5, 0.0), phase(10, 0.5), phase(20, 0.0), last];
    let rate = PerOp::all(Some(Rate::Iops(2000)));
    let mut pacing =
        Pacing::new(&Job { rate, rate_phases: phases, rate_process: process, ..Job::default() }, 7)
            .unwrap();
    pacing.start = Nanos::from_secs(100);
    pacing
}

#[test]
fn the_rate_follows_its_steps() {
    let starts = starts(&mut steps(RateProcess::Linear), 14, 4096);
    let millis: Vec<f64> = starts.iter().map(|at| *at as f64 / 1e6).collect();
    assert_eq!(millis[..10], [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0]);
    assert_eq!(millis[10..], [35.0, 35.5, 36.0, 36.5]);
}

#[test]
fn poisson_follows_rate_steps() {
    let starts = starts(&mut steps(RateProcess::Poisson), 20_000, 4096);
    let between = |from: u64, to: u64| starts.iter().filter(|at| (from..to).contains(*at)).count();
    assert_eq!((between(0, 5_000_000), between(15_000_000, 35_000_000)), (0, 0));
    assert!((2..=25).contains(&between(5_000_000, 15_000_000)));
    let last = *starts.last().unwrap();
    let rate = between(35_000_000, last) as f64 / (last - 35_000_000) as f64 * 1e9;
    assert!((1_950.0..2_050.0).contains(&rate), "{rate}");
}

#[test]
fn steps_that_end_in_nothing_end() {
    let phases = [phase(2, 1.0), RatePhase { span: Nanos::MAX, share: 0.0 }];
    assert_eq!(elapsed_at(&phases, Nanos::from_millis(1)), Nanos::from_millis(1));
    assert_eq!(elapsed_at(&phases, Nanos::from_millis(2)), Nanos::MAX);
}
