use serde_json::json;

use super::super::Pair;
use super::*;

/// A mode with this speed, CPU and score, each ÷ that of `interrupt`; intervals reach 2 % to either
/// side.
type Mode = (&'static str, f64, f64, f64);

fn near(value: f64) -> Estimate {
    Estimate { value, interval: Some([value * 0.98, value * 1.02]) }
}

/// In one scene; p99 goes as the score.
fn scene_of(scene: &Scene, modes: &[Mode]) -> (Vec<Row>, Vec<Pair>) {
    let row = |&(mode, _, _, score): &Mode| {
        let mut row = Row { mode: mode.into(), scene: scene.clone(), ..Row::default() };
        row.latency.p99 = Some(near(score * 50e3));
        row
    };
    let mut pairs = Vec::new();
    for (at, a) in modes.iter().enumerate() {
        for b in &modes[at + 1..] {
            for (figure, ratio) in
                [(IOPS, b.1 / a.1), (P50, a.1 / b.1), (CPU, b.2 / a.2), (SCORE, b.3 / a.3)]
            {
                pairs.push(Pair {
                    scene: scene.clone(),
                    a: a.0.into(),
                    b: b.0.into(),
                    figure,
                    ratio: near(ratio),
                });
            }
        }
    }
    (modes.iter().map(row).collect(), pairs)
}

fn results(scenes: &[(Scene, &[Mode])]) -> Results {
    let mut all = Results { subject: "Here", ..Results::default() };
    for (scene, modes) in scenes {
        let (mut rows, mut pairs) = scene_of(scene, modes);
        all.rows.append(&mut rows);
        all.pairs.append(&mut pairs);
    }
    all
}

fn at(load_pct: f64) -> Scene {
    Scene { load_pct, qd: 32, ..Scene::default() }
}

fn said(load: f64, modes: &[Mode]) -> Vec<String> {
    results(&[(at(load), modes)]).verdict()
}

#[test]
fn best_mode_and_its_price() {
    let modes =
        [("interrupt", 1.0, 1.0, 1.0), ("suspend", 1.25, 1.1, 0.6), ("poll", 1.3, 2.2, 1.0)];
    for load in [100.0, 10.0] {
        assert_eq!(
            said(load, &modes),
            [
                "Here: suspend.",
                "poll is 4 % faster for 2.00 × the CPU; interrupt takes 9 % less CPU and is 20 % slower."
            ]
        );
    }
}

#[test]
fn overlapping_intervals_are_inconclusive() {
    let modes =
        [("interrupt", 1.0, 1.0, 1.0), ("poll", 1.005, 1.0, 0.99), ("suspend", 0.5, 1.0, 8.0)];
    let lines = said(100.0, &modes);
    assert_eq!(lines[0], "Here: poll, or interrupt: the intervals do not distinguish them.");
    assert_eq!(lines[1], "No other mode is faster or takes less CPU.");
}

#[test]
fn a_bad_tail_is_named() {
    let modes = [("interrupt", 1.0, 1.0, 1.0), ("poll", 3.0, 2.5, 1.2)];
    let mut all = results(&[(at(100.0), &modes)]);
    assert_eq!(all.verdict().len(), 2);
    all.rows[1].latency.p99 = Some(near(20e3));
    let lines = all.verdict();
    assert_eq!(
        lines[1..],
        ["poll is 3.00 × as fast for 2.50 × the CPU.", "Its p99 is 50.0 µs, that of poll 20.0 µs."]
    );
    // Within the intervals nothing is said.
    all.rows[1].latency.p99 = Some(near(46e3));
    assert_eq!(all.verdict().len(), 2);
}

#[test]
fn scenes_are_counted_by_mode() {
    let (sleeps, spins): (&[Mode], &[Mode]) = (
        &[("interrupt", 1.0, 1.0, 1.0), ("poll", 1.0, 3.0, 3.0)],
        &[("interrupt", 1.0, 1.0, 1.0), ("poll", 2.0, 1.0, 0.2)],
    );
    let mut all = results(&[(at(1.0), sleeps), (at(10.0), sleeps), (at(90.0), spins)]);
    assert_eq!(
        all.verdict(),
        ["Here: interrupt at load 1, 10 %; poll at load 90 % (* in the table)."]
    );
    // A scene that is inconclusive has no say.
    all.rows[5].extra.insert("valid".into(), json!(false));
    all.rows[4].extra.insert("valid".into(), json!(false));
    all.inconclusive = Some("Inconclusive in 1 of 3 scenes".into());
    assert_eq!(
        all.verdict(),
        ["Here: interrupt at load 1, 10 % (* in the table).", "Inconclusive in 1 of 3 scenes"]
    );
    // Depths differ as well: numbers of scenes.
    all.rows.iter_mut().filter(|row| row.scene.load_pct == 1.0).for_each(|row| row.scene.qd = 1);
    all.pairs
        .iter_mut()
        .filter(|pair| pair.scene.load_pct == 1.0)
        .for_each(|pair| pair.scene.qd = 1);
    assert_eq!(all.verdict()[0], "Here: interrupt in 2 of 3 scenes (* in the table).");
}

#[test]
fn one_mode_has_no_verdict() {
    assert_eq!(said(100.0, &[("poll", 1.0, 1.0, 1.0)]), Vec::<String>::new());
}
