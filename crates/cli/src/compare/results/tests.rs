use rand::SeedableRng;
use reap::Counters;
use workload::Latency;

use super::*;
use crate::bench::Counted;
use crate::compare::contender::Contender;
use crate::compare::labels::{CURVE, SWEPT, USUAL};
use crate::rows::Estimate;

fn rng() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(9)
}

fn outcome(labels: &Labels, record: &Record, offered: Option<f64>) -> Option<Outcome> {
    // 100 % of 70 threads' CPUs are not what these blocks are about.
    let yardstick = Yardstick { cpus: 1, closed: false };
    Outcome::new(labels, record, (Scene { load_pct: 100.0, ..Scene::default() }, yardstick), offered, &mut rng())
}

/// The ratio of a figure of `b` to the first mode's.
fn against_first(all: &Outcome, b: &str, figure: &str) -> Estimate {
    all.pairs.iter().find(|p| p.figure == figure && p.a == all.rows[0].mode && p.b == b).unwrap().ratio
}

/// A block at `kiops`, 100 ms long, with latencies of 50 µs and some of 90 µs.
pub fn sample(kiops: u64) -> Sample {
    let ios = kiops * 100;
    let mut latency = Latency { histogram: Some(Histogram::default()), ..Latency::default() };
    latency.add_n(Nanos(50_000), ios - ios / 50);
    latency.add_n(Nanos(90_000), ios / 50);
    let host = Counters { wakeups: ios / 4, drain_max: kiops as u32 / 10, ..Counters::default() };
    let counted = Counted {
        ios,
        wall: Nanos::from_millis(100),
        cpu: Nanos(ios * 700),
        host,
        messages: ios as f64 / 2.0,
        notify_ns: ios as f64 * 30.0,
        ..Counted::default()
    };
    Sample { iops: kiops as f64 * 1e3, counted, latency, ..Sample::default() }
}

pub fn labels(names: &[&str]) -> Labels {
    Labels::new(&names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Contender>>(), false).unwrap()
}

/// Rounds of two modes and the first again: 100, 150 and 100 kIOPS, on a machine whose speed changes.
pub fn record(rounds: u64) -> Record {
    let round = |n: u64| [100, 150, 100].map(|kiops| Some(sample(kiops * (1 + n % 3)))).to_vec();
    Record { rounds: (0..rounds).map(round).collect(), stolen: vec![Some(900.0), None], ..Record::default() }
}

#[test]
fn rows_are_medians_and_pairs_are_paired() {
    let labels = labels(&["interrupt", "poll"]);
    let all = outcome(&labels, &record(30), None).unwrap();
    let [first, second] = all.rows.as_slice() else { panic!("two modes, {} rows", all.rows.len()) };
    assert_eq!((first.mode.as_str(), first.iops.unwrap().value), ("interrupt", 200_000.0));
    assert_eq!((second.mode.as_str(), second.iops.unwrap().value), ("poll", 300_000.0));
    assert_eq!((first.cpu.unwrap().value, first.notify, first.per_wakeup), (700.0, 30.0, 4.0));
    assert_eq!((first.stolen, second.stolen), (Some(900.0), None));
    assert_eq!((first.drain_max, second.drain_max), (30, 45));
    // A message for each other I/O, at 200 kIOPS.
    assert!((first.messages - 100_000.0).abs() < 1.0, "{}", first.messages);
    // The machine's speed varies threefold, the ratio not at all.
    let ratio = against_first(&all, "poll", IOPS);
    assert_eq!((ratio.value, ratio.interval), (1.5, Some([1.5, 1.5])));
    assert_eq!(against_first(&all, "interrupt (A/A)", CPU).value, 1.0);
    let named: Vec<String> = all.pairs.iter().filter(|p| p.figure == IOPS).map(|p| format!("{} {}", p.a, p.b)).collect();
    assert_eq!(named, ["interrupt poll", "interrupt interrupt (A/A)", "poll interrupt (A/A)"]);
    assert_eq!(all.scene.load_pct, 100.0);
}

#[test]
fn tails_need_samples() {
    let all = outcome(&labels(&["poll"]), &record(1), None).unwrap();
    // 10,000 I/Os: 100 above p99, 10 above p99.9.
    let latency = &all.rows[0].latency;
    assert!(latency.p50.is_some_and(|e| (e.value - 50_000.0).abs() < 1_000.0), "{latency:?}");
    assert!(latency.p99.is_some_and(|e| (e.value - 90_000.0).abs() < 1_500.0), "{latency:?}");
    let (percent, nanos) = *latency.curve.last().unwrap();
    assert!(percent == 99.75 && (nanos - 90_000.0).abs() < 1_500.0, "{latency:?}");
    assert!(latency.p999.is_none() && latency.p9999.is_none(), "{latency:?}");
}

/// A gap of the device's thread hits the block of any mode: medians pass it by, and no block is chosen by it.
#[test]
fn a_few_disturbed_blocks_move_no_median() {
    let labels = labels(&["interrupt", "poll"]);
    let mut record = record(40);
    for round in 0..5 {
        record.rounds[round][1] = Some(sample(10_000));
    }
    let all = outcome(&labels, &record, None).unwrap();
    assert_eq!(against_first(&all, "poll", IOPS).interval, Some([1.5, 1.5]));
    assert!(all.rows[1].iops.unwrap().interval.unwrap()[1] <= 450_000.0);
    assert_eq!((all.rounds, all.doubts), (40, vec![]));
}

#[test]
fn blocks_with_few_ios_count_together() {
    // One I/O in each third block of 100 ms; the second mode spins all the time.
    let block = |ios: u64, cpu: Nanos| {
        let counted = Counted { ios, wall: Nanos::from_millis(100), cpu, ..Counted::default() };
        Some(Sample { iops: ios as f64 * 10.0, counted, ..Sample::default() })
    };
    let spun = |ios| block(ios, Nanos::from_millis(100));
    let slept = |ios| block(ios, Nanos(ios * 5_000));
    let rounds = |n: u64| (0..n).map(|n| u64::from(n % 3 == 0)).map(|ios| vec![slept(ios), spun(ios), slept(ios)]).collect();
    let labels = labels(&["interrupt", "poll"]);
    let all = outcome(&labels, &Record { rounds: rounds(180), ..Record::default() }, None).unwrap();
    assert_eq!(all.together, 30);
    let figures: Vec<_> = all.rows.iter().map(|row| (row.iops.unwrap().value.round(), row.cpu.unwrap().value)).collect();
    assert_eq!(figures, [(3.0, 5_000.0), (3.0, 300e6)]);
    assert_eq!(against_first(&all, "poll", CPU).value, 60_000.0);
    // Fewer in all than ten: one sum. None at all: nothing is known of what an I/O costs.
    let few = outcome(&labels, &Record { rounds: rounds(4), ..Record::default() }, None).unwrap();
    assert_eq!((few.together, few.rows[1].cpu.unwrap().value), (4, 200e6));
    let none = outcome(&labels, &Record { rounds: vec![vec![slept(0), spun(0), slept(0)]; 4], ..Record::default() }, None).unwrap();
    assert!(none.rows.iter().all(|row| row.cpu.is_none()) && none.pairs.is_empty(), "{none:?}");
    // Ten to a block are enough.
    let enough = outcome(&labels, &Record { rounds: vec![vec![slept(10), spun(10), slept(10)]; 4], ..Record::default() }, None).unwrap();
    assert_eq!((enough.together, enough.rows[1].cpu.unwrap().value), (1, 10e6));
}

#[test]
fn a_load_is_a_part_of_the_capacity() {
    let mut record = record(30);
    record.capacity = vec![sample(400), sample(500), sample(4000)];
    let all = outcome(&labels(&["interrupt", "poll"]), &record, Some(50_000.0)).unwrap();
    assert_eq!((all.capacity, all.scene.load_pct), (Some(500_000.0), 10.0));
    assert!(all.rows.iter().all(|row| row.scene == all.scene) && all.pairs.iter().all(|pair| pair.scene == all.scene));
}

#[test]
fn nothing_measured_is_no_comparison() {
    assert!(outcome(&labels(&["poll"]), &Record::default(), None).is_none());
}

#[test]
fn a_mode_is_named_once() {
    let plain = |modes: &[Mode]| modes.iter().copied().map(Contender::plain).collect::<Vec<_>>();
    let twice = Labels::new(&plain(&[Mode::POLL, Mode::INTERRUPT, Mode::POLL]), false);
    assert!(twice.unwrap_err().to_string().contains("poll twice"));
    let twice = Labels::new(&[Contender::adaptive(100), Contender::adaptive(100)], true);
    assert!(twice.unwrap_err().to_string().contains("adaptive@0.1 twice"));
    assert_eq!(Labels::new(&[], false).unwrap().len(), USUAL.len() + 1);
    assert_eq!(Labels::new(&[], true).unwrap().len(), SWEPT.len() + CURVE.len() + 1);
    let labels = labels(&["poll", "interrupt"]);
    assert_eq!((labels.mode(2), labels.name(2).as_str()), (Contender::plain(Mode::POLL), "poll (A/A)"));
}

/// On a device where `posted` and `dim` are `interrupt`, each of them is one row, the first.
#[test]
fn modes_that_coincide_are_compared_once() {
    let named: Vec<Contender> = ["posted", "poll", "dim", "interrupt", "posted+submit-check", "adaptive", "adaptive@0.5", "threaded"]
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    let names = |labels: &Labels| labels.modes().iter().map(ToString::to_string).collect::<Vec<_>>();
    let all = Labels::new(&named, false).unwrap();
    let (kept, same) = all.apart(|mode| super::super::contender::stands_for(mode, mode != Mode::INTERRUPT));
    assert_eq!(names(&kept), ["posted", "poll", "posted+submit-check", "adaptive", "adaptive@0.5"]);
    let same: Vec<String> = same.iter().map(|(a, b)| format!("{a} = {b}")).collect();
    assert_eq!(same, ["dim = posted", "interrupt = posted", "threaded = posted"]);
    // Where nothing is otherwise, everything stays.
    let (kept, same) = all.apart(|mode| super::super::contender::stands_for(mode, false));
    assert_eq!((kept, same), (all, Vec::new()));
}
