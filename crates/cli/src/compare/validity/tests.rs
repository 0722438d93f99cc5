use super::super::results::Record;
use super::super::results::tests::labels;
use super::*;
use crate::bench::Counted;
use crate::rows::{Estimate, P50, Scene};
use reap::Nanos;

const CLOSED: Yardstick = Yardstick { cpus: 1, closed: true };

/// A block of 100 ms in which the thread had this share of its CPU.
fn spun(share: f64) -> Sample {
    let wall = Nanos::from_millis(100);
    let cpu = Nanos((wall.0 as f64 * share) as u64);
    Sample { counted: Counted { wall, cpu, ios: 100, ..Counted::default() }, took: wall, ..Sample::default() }
}

fn rounds(block: impl Fn(usize) -> Sample) -> Record {
    Record { rounds: (0..30).map(|n| vec![Some(spun(0.3)), Some(block(n)), Some(spun(0.3))]).collect(), ..Record::default() }
}

/// Pairs of a quiet machine.
const QUIET: [(&str, [f64; 2], f64); 2] = [(IOPS, [0.99, 1.01], 1.5), (CPU, [0.98, 1.01], 0.9)];

/// What a figure of interrupt is against itself, and poll's against it.
fn pairs(figure: &'static str, itself: Option<[f64; 2]>, other: f64) -> [Pair; 2] {
    let pair = |b: &str, value, interval| Pair {
        scene: Scene::default(),
        a: "interrupt".into(),
        b: b.into(),
        figure,
        ratio: Estimate { value, interval },
    };
    [pair("poll", other, itself.map(|_| [other * 0.99, other * 1.01])), pair("interrupt (A/A)", 1.0, itself)]
}

/// What is doubted of IOPS with such an interval of A/A, where polling has its CPU.
fn of_pairs(itself: Option<[f64; 2]>, other: f64) -> Vec<Doubt> {
    let pairs = [pairs(IOPS, itself, other), pairs(CPU, Some([1.0, 1.0]), 1.0)].concat();
    doubts(&labels(&["interrupt", "poll"]), &pairs, &[], CLOSED)
}

#[test]
fn a_difference_beyond_a_a_is_conclusive() {
    // However wide the interval is: the difference is wider.
    assert_eq!(of_pairs(Some([0.8, 1.2]), 1.5), []);
    assert_eq!(of_pairs(Some([0.8, 1.2]), 0.6), []);
    // Modes that are equal within a few per cent, and so is the first and itself.
    assert_eq!(of_pairs(Some([0.96, 1.04]), 1.0), []);
}

#[test]
fn differences_within_a_a_are_inconclusive() {
    let noise = |itself, others| [Doubt::Noise { first: "interrupt".into(), figure: IOPS, itself, others }];
    assert_eq!(of_pairs(Some([0.9, 1.2]), 1.1), noise(1.2, 1.1));
    // Down counts as up does.
    assert_eq!(of_pairs(Some([0.7, 1.2]), 1.3), noise(0.7, 1.3));
    assert_eq!(of_pairs(Some([0.7, 1.2]), 1.5), []);
    // A/A need not hold 1.
    assert_eq!(of_pairs(Some([1.1, 1.2]), 1.0), noise(1.2, 1.0));
    // Other figures are not judged by.
    assert_eq!(doubts(&labels(&["interrupt", "poll"]), &pairs(P50, Some([0.1, 9.0]), 1.0), &[], CLOSED), [Doubt::Few, Doubt::Few]);
}

#[test]
fn few_rounds_and_one_mode() {
    assert_eq!(of_pairs(None, 1.5), [Doubt::Few]);
    let alone = [pairs(IOPS, Some([0.5, 2.0]), 1.0), pairs(CPU, Some([0.5, 2.0]), 1.0)].concat();
    let alone: Vec<Pair> = alone.into_iter().filter(|pair| pair.b != "poll").collect();
    // Nothing is compared, and nothing is to be concluded.
    assert_eq!(doubts(&labels(&["interrupt"]), &alone, &[], CLOSED), []);
}

fn found(record: &Record, yardstick: Yardstick) -> Vec<Doubt> {
    let labels = labels(&["interrupt", "poll"]);
    doubts(
        &labels,
        &QUIET.map(|(figure, itself, other)| pairs(figure, Some(itself), other)).concat(),
        &record.spinning(&labels, yardstick.closed),
        yardstick,
    )
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
fn rows_of_a_doubtful_scene_say_so() {
    let record = rounds(|_| spun(0.5));
    let labels = labels(&["interrupt", "poll"]);
    let mut rng = rand::SeedableRng::seed_from_u64(1);
    let all = super::super::results::Outcome::new(&labels, &record, (Scene::default(), CLOSED), None, &mut rng).unwrap();
    assert!(all.doubts.contains(&Doubt::Starved(0.5)), "{:?}", all.doubts);
    assert!(all.rows.iter().all(|row| row.extra["valid"] == false), "{:?}", all.rows);
}

#[test]
fn the_banner_says_where_and_why() {
    let noise = |itself| Doubt::Noise { first: "interrupt".into(), figure: CPU, itself, others: 0.95 };
    assert_eq!(banner(&[&[], &[]], "reap sim"), None);
    let all = banner(&[&[Doubt::Starved(0.62)]], "reap sim").unwrap();
    assert_eq!(all, "Inconclusive: other work left poll 62 % of its CPU. Try: reap sim");
    let some = banner(&[&[Doubt::Starved(0.62), noise(1.1)], &[], &[Doubt::Starved(0.4), noise(0.8)]], "reap sim").unwrap();
    assert!(some.starts_with("Inconclusive in 2 of 3 scenes: other work"), "{some}");
    assert!(some.contains("40 %") && !some.contains("62 %"), "{some}");
    assert!(some.contains("CPU of interrupt differs from itself (A/A) by × 0.80, and from other modes by × 0.95 at most"), "{some}");
    assert!(!some.contains("1.10"), "{some}");
}
