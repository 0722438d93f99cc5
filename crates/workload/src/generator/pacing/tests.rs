use super::*;
use crate::job::{Direction, Pattern};

fn pacing(rate: Rate, process: RateProcess) -> Pacing {
    let job = Job { rate: PerOp::both(Some(rate)), rate_process: process, ..Job::default() };
    let mut pacing = Pacing::new(&job, 7).unwrap();
    pacing.start(Nanos::from_secs(100));
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
fn poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential() {
    let starts = starts(&mut pacing(Rate::Iops(1000), RateProcess::Poisson), 100_001, 4096);
    let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
    assert!((deviation / 1e6 - 1.0).abs() < 0.03, "{deviation}");
    // The twin without randomness is told from it.
    let even = super::tests::starts(&mut pacing(Rate::Iops(1000), RateProcess::Linear), 1000, 4096);
    assert!(even.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
}

#[test]
fn only_what_is_issued_is_paced() {
    assert!(Pacing::new(&Job::default(), 1).is_none());
    let writes = PerOp { read: None, write: Some(Rate::Iops(5)) };
    assert!(Pacing::new(&Job { rate: writes, ..Job::default() }, 1).is_none());
    let pattern = Pattern { direction: Direction::Mixed, random: true, step: 1 };
    let mixed = Pacing::new(&Job { rate: writes, pattern, ..Job::default() }, 1).unwrap();
    assert_eq!((mixed.due(Op::Read), mixed.due(Op::Write)), (None, Some(Nanos::ZERO)));
}
