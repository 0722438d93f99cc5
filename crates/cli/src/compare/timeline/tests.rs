use reap::Counters;

use super::super::scenes::Arrivals;
use super::*;
use crate::rows::Scene;

fn snapshot(millis: f64, ios: u64, latency_us: u64) -> Snapshot {
    let mut latency = Histogram::default();
    latency.add(latency_us * 1000);
    let host = Counters { sleeps: ios / 2, ..Counters::default() };
    Snapshot { at: Nanos((millis * 1e6) as u64), ios, cpu: Nanos(ios * 1000), host, latency }
}

fn line(threads: Vec<Vec<Snapshot>>) -> Option<Timeline> {
    let setting = Setting { scene: Scene::default(), jobs: Vec::new(), arrivals: Arrivals::Steps };
    timeline("poll".into(), &setting, 1e6, &[Sample { snapshots: threads, ..Sample::default() }])
}

#[test]
fn ticks_are_rates_and_what_lies_between_snapshots_is_spread() {
    // 100 I/Os in the first millisecond, then 300 over three.
    let line = line(vec![vec![snapshot(0.0, 0, 1), snapshot(1.0, 100, 10), snapshot(4.0, 400, 30)]]).unwrap();
    assert_eq!(line.ticks.len(), 100);
    for tick in &line.ticks[..4] {
        assert!((tick.iops - 1e5).abs() < 1.0 && (tick.cpu - 0.1).abs() < 1e-6 && (tick.sleeps - 5e4).abs() < 1.0, "{tick:?}");
    }
    assert_eq!(line.ticks[4].iops, 0.0);
    assert!((line.ticks[3].p50 - 30e3).abs() < 500.0 && line.ticks[2].p50 == 0.0);
    // 10 % of the capacity, and after the step 75 %.
    assert!((line.ticks[3].offered - 1e5).abs() < 1e3 && (line.ticks[30].offered - 7.5e5).abs() < 1e3);
}

#[test]
fn latencies_are_in_the_tick_that_ended_before_their_snapshot() {
    let line = line(vec![vec![snapshot(0.0, 0, 1), snapshot(25.01, 100, 10), snapshot(26.02, 200, 30)]]).unwrap();
    let known: Vec<usize> = (1..100).filter(|&at| line.ticks[at].p50 > 0.0).collect();
    assert_eq!(known, [24, 25]);
}

#[test]
fn threads_add_up_and_blocks_are_averaged() {
    let thread = || vec![snapshot(0.0, 0, 1), snapshot(2.0, 200, 10)];
    let two = line(vec![thread(), thread()]).unwrap();
    assert!((two.ticks[1].iops - 2e5).abs() < 1.0);
    assert!(line(Vec::new()).is_none() && line(vec![vec![snapshot(0.0, 0, 1)]]).is_none());
}
