use super::super::results::Record;
use super::super::results::tests::{labels, sample};
use super::*;
use crate::bench::Counted;
use crate::rows::{Estimate, Latencies, Scene};

const CLOSED: Yardstick = Yardstick { cpus: 1, device: None, closed: true };

/// A block of 100 ms in which the thread had this share of its CPU.
fn spun(share: f64) -> Sample {
    let wall = Nanos::from_millis(100);
    let cpu = Nanos((wall.0 as f64 * share) as u64);
    Sample { counted: Counted { wall, cpu, ios: 100, ..Counted::default() }, took: wall, ..Sample::default() }
}

fn rounds(block: impl Fn(usize) -> Sample) -> Record {
    Record { rounds: (0..30).map(|n| vec![Some(spun(0.3)), Some(block(n)), Some(spun(0.3))]).collect(), ..Record::default() }
}

fn found(record: &Record, yardstick: Yardstick) -> Vec<Doubt> {
    doubts(&record.spinning(&labels(&["interrupt", "poll"]), yardstick.closed), &record.rounds, &[], yardstick)
}

#[test]
fn poll_has_its_cpu_or_nothing_is_decided() {
    assert_eq!(found(&rounds(|_| spun(0.97)), CLOSED), []);
    let Some(Doubt::Starved(share)) = found(&rounds(|_| spun(0.62)), CLOSED).pop() else { panic!("no doubt") };
    assert!((share - 0.62).abs() < 1e-6, "{share}");
    // A few blocks are no matter: the median decides, as it does of the figures.
    assert_eq!(found(&rounds(|n| spun(if n < 10 { 0.2 } else { 1.0 })), CLOSED), []);
    // Two threads on two CPUs have two of them.
    assert_eq!(found(&rounds(|_| spun(1.9)), Yardstick { cpus: 2, ..CLOSED }), []);
    assert_eq!(found(&rounds(|_| spun(1.2)), Yardstick { cpus: 2, ..CLOSED }).len(), 1);
}

#[test]
fn a_thread_that_is_meant_to_be_there_is_no_stranger() {
    let beside = |had: u64| rounds(move |_| Sample { background: Some(Nanos::from_millis(had)), ..spun(0.5) });
    assert_eq!((found(&beside(48), CLOSED).len(), found(&beside(20), CLOSED).len()), (0, 1));
}

/// With a rate `poll` need not spin all the time; what is asked then are blocks without one.
#[test]
fn with_a_rate_other_blocks_are_asked() {
    let open = Yardstick { closed: false, ..CLOSED };
    let mut record = rounds(|_| spun(0.1));
    assert_eq!(found(&record, open), []);
    record.polled = vec![spun(0.4); 8];
    assert_eq!(found(&record, open), [Doubt::Starved(0.4)]);
}

#[test]
fn outside_this_process_waiting_for_a_cpu_is_what_counts() {
    let waited = |millis| rounds(move |_| Sample { away: Some(Nanos::from_millis(millis)), ..spun(0.5) });
    assert_eq!((found(&waited(3), CLOSED), found(&waited(30), CLOSED)), (vec![], vec![Doubt::Starved(0.7)]));
}

#[test]
fn many_blocks_with_gaps_decide_nothing() {
    let gaps = |of: usize, each: u64| rounds(move |n| Sample { gaps: if n < of { each } else { 0 }, ..spun(1.0) });
    // One of three labels is disturbed: at most a third of the blocks is.
    assert_eq!(found(&gaps(30, 9), CLOSED), []);
    let mut all = gaps(30, 9);
    all.rounds.iter_mut().take(3).for_each(|round| round[0] = Some(Sample { gaps: 2, ..spun(0.3) }));
    assert_eq!(found(&all, CLOSED), [Doubt::Disturbed(33.0 / 90.0, Rule::Gaps)]);
    // One gap in a block is what a quiet machine has.
    all.rounds.iter_mut().flatten().flatten().for_each(|sample| sample.gaps = 1);
    assert_eq!(found(&all, CLOSED), []);
}

fn row(mode: &str, p50_us: f64) -> Row {
    let p50 = Some(Estimate { value: p50_us * 1e3, interval: Some([1.0, 2.0]) });
    Row { mode: mode.into(), latency: Latencies { p50, ..Latencies::default() }, ..Row::default() }
}

#[test]
fn what_no_device_takes_is_no_latency_of_it() {
    let rows = |fastest| [row("interrupt", 90_000.0), row("poll", fastest)];
    let at = Yardstick { device: Some(Nanos::from_micros(40)), ..CLOSED };
    let found = |fastest| doubts(&[], &rounds(|_| spun(1.0)).rounds, &rows(fastest), at);
    // One mode that is late is a finding; all of them are a machine.
    assert_eq!(found(3_900.0), []);
    assert_eq!(found(4_100.0), [Doubt::Late(Nanos::from_micros(4_100), Nanos::from_micros(40))]);
}

#[test]
fn a_deep_queue_makes_long_latencies_by_itself() {
    let job = Job::default();
    let optane = Profile::optane();
    let shallow = needed(&optane, &job, 1);
    assert!(shallow >= optane.read.mean() && shallow < Nanos::from_micros(100), "{shallow:?}");
    assert!(needed(&optane, &job, 4_096) > shallow + Nanos::from_micros(4_000));
    // An IOPS limit is the device's own.
    let cloud = Profile { iops: 1_000, ..Profile::optane() };
    assert!(needed(&cloud, &job, 32) >= Nanos::from_millis(32));
}

#[test]
fn doubtful_figures_have_no_intervals() {
    let record = rounds(|_| Sample { background: None, ..spun(0.5) });
    let labels = labels(&["interrupt", "poll"]);
    let mut rng = rand::SeedableRng::seed_from_u64(1);
    let all = super::super::results::Outcome::new(&labels, &record, (Scene::default(), CLOSED), None, &mut rng).unwrap();
    assert_eq!(all.doubts, [Doubt::Starved(0.5)]);
    assert!(all.rows.iter().all(|row| row.cpu.is_some_and(|cpu| cpu.interval.is_none()) && row.extra["valid"] == false), "{:?}", all.rows);
    assert!(!all.pairs.is_empty() && all.pairs.iter().all(|pair| pair.ratio.interval.is_none()));
}

#[test]
fn the_banner_says_where_and_why() {
    let starved = [Doubt::Starved(0.62)];
    let worse = [Doubt::Starved(0.4), Doubt::Disturbed(0.5, Rule::Gaps)];
    assert_eq!(banner(&[&[], &[]]), None);
    let all = banner(&[&starved]).unwrap();
    assert_eq!(
        all,
        "These figures decide nothing: other work took the CPU from poll, which got 62 % of it. Run it again with less beside it."
    );
    let some = banner(&[&starved, &[], &worse]).unwrap();
    assert!(some.starts_with("In 2 of 3 scenes the figures decide nothing: "), "{some}");
    assert!(some.contains("40 %") && !some.contains("62 %") && some.contains("in 50 % of the blocks"), "{some}");
}

/// The sample of the other tests is no block that polls.
#[test]
fn without_any_block_that_polls_nothing_is_known_of_its_cpu() {
    let record = Record { rounds: vec![vec![Some(sample(100, 0)); 2]; 30], ..Record::default() };
    let none = record.spinning(&labels(&["interrupt"]), true);
    assert_eq!((none.len(), doubts(&none, &record.rounds, &[], CLOSED)), (0, vec![]));
}
