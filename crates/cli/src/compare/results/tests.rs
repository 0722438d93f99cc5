mod words;

use rand::SeedableRng;
use reap::{Counters, Nanos};
use workload::{Job, Latency};

use super::*;
use crate::bench::Counted;
use crate::rows::Estimate;

fn rng() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(9)
}

fn modes(names: &[&str]) -> Vec<Mode> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn scene(load: Option<f64>) -> SceneJobs {
    SceneJobs {
        scene: Scene { load_pct: load.unwrap_or(100.0), ..Scene::default() },
        jobs: vec![Job::default()],
        load,
    }
}

/// Wake-ups that take nothing from other work.
const FREE: WakeUp = WakeUp { notified: 0.0, timer: 0.0, source: String::new() };

/// Of a scene with a load, so that it does not matter here how much of its CPU poll had.
fn outcome(names: &[&str], record: &Record, offered: Option<f64>) -> Option<Outcome> {
    Outcome::new(&modes(names), record, &scene(Some(100.0)), 1, offered, &FREE, &mut rng())
}

/// The ratio of a figure of `b` to the first mode's.
fn against_first(all: &Outcome, b: &str, figure: &str) -> Estimate {
    all.pairs
        .iter()
        .find(|p| p.figure == figure && p.a == all.rows[0].mode && p.b == b)
        .unwrap()
        .ratio
}

/// A block at `kiops`, 100 ms long, with latencies of 50 µs and some of 90 µs.
fn sample(kiops: u64) -> Sample {
    let ios = kiops * 100;
    let mut latency = Latency { histogram: Some(Histogram::default()), ..Latency::default() };
    latency.add(Nanos(50_000), ios - ios / 50);
    latency.add(Nanos(90_000), ios / 50);
    let queues = Counters { wakeups: ios / 4, drain_max: kiops as u32 / 10, ..Counters::default() };
    let counted = Counted {
        ios,
        wall: Nanos::from_millis(100),
        cpu: Nanos(ios * 700),
        queues,
        messages: ios as f64 / 2.0,
        notify_ns: ios as f64 * 30.0,
        ..Counted::default()
    };
    Sample { iops: kiops as f64 * 1e3, counted, latency, ..Sample::default() }
}

/// Rounds of two modes and the first again: 100, 150 and 100 kIOPS, on a machine whose speed
/// changes.
fn record(rounds: u64) -> Record {
    let round = |n: u64| [100, 150, 100].map(|kiops| Some(sample(kiops * (1 + n % 3)))).to_vec();
    Record {
        rounds: (0..rounds).map(round).collect(),
        stolen: vec![Some(900.0), None],
        ..Record::default()
    }
}

#[test]
fn rows_are_medians_of_rounds() {
    let all = outcome(&["interrupt", "poll"], &record(30), None).unwrap();
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
    let named: Vec<String> =
        all.pairs.iter().filter(|p| p.figure == IOPS).map(|p| format!("{} {}", p.a, p.b)).collect();
    assert_eq!(named, ["interrupt poll", "interrupt interrupt (A/A)", "poll interrupt (A/A)"]);
    assert_eq!(all.scene.load_pct, 100.0);
}

/// A wake-up for four I/Os, and a nap for ten.
#[test]
fn wake_ups_are_part_of_cpu() {
    let mut record = record(30);
    for sample in record.rounds.iter_mut().flatten().flatten() {
        sample.counted.queues.naps = sample.counted.ios / 10;
    }
    let wake_up = WakeUp { notified: 12_000.0, timer: 20_000.0, ..FREE };
    let all = Outcome::new(
        &modes(&["interrupt", "poll"]),
        &record,
        &scene(None),
        1,
        None,
        &wake_up,
        &mut rng(),
    )
    .unwrap();
    let row = &all.rows[0];
    assert_eq!(
        (row.cpu.unwrap().value, row.thread_cpu.unwrap().value),
        (700.0 + 3_000.0 + 2_000.0, 700.0)
    );
    // As fast and as dear; half as many I/Os in the same latency.
    assert_eq!(against_first(&all, "poll", SCORE).value, 1.0);
    assert_eq!(score(Some(2.0), None, 1e8), score(Some(2.0), Some(10.0), 5.0));
    assert_eq!(score(Some(2.0), None, 0.0), None);
}

#[test]
fn tails_need_samples() {
    let all = outcome(&["poll"], &record(1), None).unwrap();
    // 10,000 I/Os: 100 above p99, 10 above p99.9.
    let latency = &all.rows[0].latency;
    assert!(latency.p50.is_some_and(|e| (e.value - 50_000.0).abs() < 1_000.0), "{latency:?}");
    assert!(latency.p99.is_some_and(|e| (e.value - 90_000.0).abs() < 1_500.0), "{latency:?}");
    let (percent, nanos) = *latency.curve.last().unwrap();
    assert!(percent == 99.75 && (nanos - 90_000.0).abs() < 1_500.0, "{latency:?}");
    assert!(latency.p999.is_none() && latency.p9999.is_none(), "{latency:?}");
}

/// A gap of the device's thread hits the block of any mode: medians pass it by, and no block is
/// chosen by it.
#[test]
fn disturbed_blocks_move_no_median() {
    let mut record = record(40);
    for round in 0..5 {
        record.rounds[round][1] = Some(sample(10_000));
    }
    let all = outcome(&["interrupt", "poll"], &record, None).unwrap();
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
    let rounds = |n: u64| {
        (0..n)
            .map(|n| u64::from(n % 3 == 0))
            .map(|ios| vec![slept(ios), spun(ios), slept(ios)])
            .collect()
    };
    let all =
        outcome(&["interrupt", "poll"], &Record { rounds: rounds(180), ..Record::default() }, None)
            .unwrap();
    assert_eq!(all.together, 30);
    let figures: Vec<_> = all
        .rows
        .iter()
        .map(|row| (row.iops.unwrap().value.round(), row.cpu.unwrap().value))
        .collect();
    assert_eq!(figures, [(3.0, 5_000.0), (3.0, 300e6)]);
    assert_eq!(against_first(&all, "poll", CPU).value, 60_000.0);
    // Fewer in all than ten: one sum. None at all: nothing is known of what an I/O costs.
    let few =
        outcome(&["interrupt", "poll"], &Record { rounds: rounds(4), ..Record::default() }, None)
            .unwrap();
    assert_eq!((few.together, few.rows[1].cpu.unwrap().value), (4, 200e6));
    let none = outcome(
        &["interrupt", "poll"],
        &Record { rounds: vec![vec![slept(0), spun(0), slept(0)]; 4], ..Record::default() },
        None,
    )
    .unwrap();
    assert!(none.rows.iter().all(|row| row.cpu.is_none()) && none.pairs.is_empty(), "{none:?}");
    // Ten to a block are enough.
    let enough = outcome(
        &["interrupt", "poll"],
        &Record { rounds: vec![vec![slept(10), spun(10), slept(10)]; 4], ..Record::default() },
        None,
    )
    .unwrap();
    assert_eq!((enough.together, enough.rows[1].cpu.unwrap().value), (1, 10e6));
}

#[test]
fn load_is_share_of_capacity() {
    let mut record = record(30);
    record.polled = vec![sample(400), sample(500), sample(4000)];
    let all = outcome(&["interrupt", "poll"], &record, Some(50_000.0)).unwrap();
    assert_eq!((all.capacity, all.scene.load_pct), (Some(500_000.0), 10.0));
    assert!(
        all.rows.iter().all(|row| row.scene == all.scene)
            && all.pairs.iter().all(|pair| pair.scene == all.scene)
    );
}

#[test]
fn nothing_measured_is_no_comparison() {
    assert!(outcome(&["poll"], &Record::default(), None).is_none());
}

/// A block of 100 ms in which the thread had this share of its CPU.
fn spun(share: f64) -> Sample {
    let wall = Nanos::from_millis(100);
    let cpu = Nanos((wall.0 as f64 * share) as u64);
    Sample {
        counted: Counted { wall, cpu, ios: 100, ..Counted::default() },
        took: wall,
        ..Sample::default()
    }
}

fn rounds(block: impl Fn(usize) -> Sample) -> Record {
    Record {
        rounds: (0..30).map(|n| vec![Some(spun(0.3)), Some(block(n)), Some(spun(0.3))]).collect(),
        ..Record::default()
    }
}

/// What a figure of interrupt is against itself, and poll's against it.
fn pairs(figure: &'static str, itself: Option<[f64; 2]>, other: f64) -> [Pair; 2] {
    let pair = |b: &str, value, interval| Pair {
        scene: Scene::default(),
        a: "interrupt".into(),
        b: b.into(),
        figure,
        ratio: Estimate { value, interval },
    };
    [
        pair("poll", other, itself.map(|_| [other * 0.99, other * 1.01])),
        pair("interrupt (A/A)", 1.0, itself),
    ]
}

/// What is doubted of IOPS with such an interval of A/A, where polling has its CPU.
fn of_pairs(itself: Option<[f64; 2]>, other: f64) -> Vec<String> {
    let pairs = [pairs(IOPS, itself, other), pairs(CPU, Some([1.0, 1.0]), 1.0)].concat();
    doubts(&pairs, "interrupt", &[], 1)
}

const NONE: [&str; 0] = [];
const FEW_ROUNDS: &str = "an interval takes 6 rounds with I/Os in all modes (--repeat)";

#[test]
fn difference_beyond_aa_is_conclusive() {
    // However wide the interval is: the difference is wider.
    assert_eq!(of_pairs(Some([0.8, 1.2]), 1.5), NONE);
    assert_eq!(of_pairs(Some([0.8, 1.2]), 0.6), NONE);
    // Modes that are equal within a few per cent, and so is the first and itself.
    assert_eq!(of_pairs(Some([0.96, 1.04]), 1.0), NONE);
}

#[test]
fn differences_within_a_a_are_inconclusive() {
    let noise = |itself: f64, others: f64| {
        [format!(
            "IOPS of interrupt differs from itself (A/A) by × {itself:.2}, and from other modes by × {others:.2} at most"
        )]
    };
    assert_eq!(of_pairs(Some([0.9, 1.2]), 1.1), noise(1.2, 1.1));
    // Down counts as up does.
    assert_eq!(of_pairs(Some([0.7, 1.2]), 1.3), noise(0.7, 1.3));
    assert_eq!(of_pairs(Some([0.7, 1.2]), 1.5), NONE);
    // A/A need not hold 1.
    assert_eq!(of_pairs(Some([1.1, 1.2]), 1.0), noise(1.2, 1.0));
    // Other figures are not judged by.
    assert_eq!(doubts(&pairs(P50, Some([0.1, 9.0]), 1.0), "interrupt", &[], 1), [FEW_ROUNDS]);
}

#[test]
fn few_rounds_and_one_mode() {
    assert_eq!(of_pairs(None, 1.5), [FEW_ROUNDS]);
    let alone = [pairs(IOPS, Some([0.5, 2.0]), 1.0), pairs(CPU, Some([0.5, 2.0]), 1.0)].concat();
    let alone: Vec<Pair> = alone.into_iter().filter(|pair| pair.b != "poll").collect();
    // Nothing is compared, and nothing is to be concluded.
    assert_eq!(doubts(&alone, "interrupt", &[], 1), NONE);
}

/// How much of its CPU `poll` had, where that is too little, in a closed loop or with a load.
fn starved(record: &Record, load: Option<f64>, cpus: usize) -> Vec<String> {
    let doubts = Outcome::new(
        &modes(&["interrupt", "poll"]),
        record,
        &scene(load),
        cpus,
        None,
        &FREE,
        &mut rng(),
    )
    .unwrap()
    .doubts;
    doubts.into_iter().filter(|text| text.contains("other work")).collect()
}

#[test]
fn poll_needs_its_cpu() {
    assert_eq!(starved(&rounds(|_| spun(0.97)), None, 1), NONE);
    let record = rounds(|_| spun(0.62));
    assert_eq!(starved(&record, None, 1), ["other work left only 62 % of its CPU to poll"]);
    let all = Outcome::new(
        &modes(&["interrupt", "poll"]),
        &record,
        &scene(None),
        1,
        None,
        &FREE,
        &mut rng(),
    )
    .unwrap();
    assert!(all.rows.iter().all(|row| row.extra["valid"] == false), "{:?}", all.rows);
    // A few blocks do not matter: the median decides, as it does of the figures.
    assert_eq!(starved(&rounds(|n| spun(if n < 10 { 0.2 } else { 1.0 })), None, 1), NONE);
    // Two threads on two CPUs have two of them.
    assert_eq!(starved(&rounds(|_| spun(1.9)), None, 2), NONE);
    assert_eq!(starved(&rounds(|_| spun(1.2)), None, 2).len(), 1);
}

#[test]
fn background_threads_starve_nothing() {
    let next_to = |had: u64| {
        rounds(move |_| Sample { background: Some(Nanos::from_millis(had)), ..spun(0.5) })
    };
    assert_eq!(
        (starved(&next_to(48), None, 1).len(), starved(&next_to(20), None, 1).len()),
        (0, 1)
    );
}

/// With a rate `poll` need not spin all the time; blocks without one decide.
#[test]
fn a_rate_is_judged_without_it() {
    let mut record = rounds(|_| spun(0.1));
    assert_eq!(starved(&record, Some(50.0), 1), NONE);
    record.polled = vec![spun(0.4); 8];
    assert_eq!(starved(&record, Some(50.0), 1), ["other work left only 40 % of its CPU to poll"]);
}

#[test]
fn run_delay_counts_outside() {
    let waited =
        |millis| rounds(move |_| Sample { away: Some(Nanos::from_millis(millis)), ..spun(0.5) });
    assert_eq!(starved(&waited(3), None, 1), NONE);
    assert_eq!(starved(&waited(30), None, 1), ["other work left only 70 % of its CPU to poll"]);
}
