mod json;

use super::*;

fn near(value: f64) -> Option<Estimate> {
    Some(Estimate { value, interval: Some([value * 0.99, value * 1.01]) })
}

fn row(mode: &str, scene: &Scene, kiops: f64) -> Row {
    Row {
        mode: mode.into(),
        scene: scene.clone(),
        iops: near(kiops * 1e3),
        cpu: near(700.0),
        thread_cpu: near(400.0),
        stolen: (mode != "poll").then_some(900.0),
        notify: 30.0,
        messages: kiops * 500.0,
        messages_unknown: false,
        system_calls: None,
        wakeups: kiops * 250.0,
        per_wakeup: 4.0,
        drain_max: 30,
        latency: Latencies {
            mean: Some(51e3),
            p50: near(50e3),
            p99: near(90e3),
            p999: near(120e3),
            p9999: None,
            max: Some(200_000),
            curve: vec![(50.0, 50e3), (99.0, 90e3), (99.9, 120e3)],
        },
        paths: Vec::new(),
        extra: Map::new(),
    }
}

/// The same on two paths.
pub fn with_paths() -> Results {
    let path = |n: u64| PathStats {
        path: format!("mem:1G?seed={n}"),
        state: "optimized".into(),
        ios: 1000 * n,
        failed: n,
        in_flight: 7.5,
        lat_ns: 51_000,
        ..PathStats::default()
    };
    let mut results = results();
    results.rows.iter_mut().for_each(|row| row.paths = vec![path(1), path(2)]);
    results
}

fn pair(scene: &Scene, a: &str, b: &str, figure: &'static str, ratio: f64) -> Pair {
    Pair {
        scene: scene.clone(),
        a: a.into(),
        b: b.into(),
        figure,
        ratio: Estimate { value: ratio, interval: Some([ratio - 0.01, ratio + 0.01]) },
    }
}

fn scene(load_pct: f64, qd: u64) -> Scene {
    Scene { load_pct, qd, profile: "optane".into(), ..Scene::default() }
}

/// Two modes in one scene.
pub fn results() -> Results {
    let scene = scene(100.0, 32);
    let (first, again) = ("interrupt+submit-check", "interrupt+submit-check (A/A)");
    Results {
        title: "randread 4 KiB, queue depth 32 on mem:1G?profile=optane".into(),
        device: "mem:1G?profile=optane".into(),
        rows: vec![row(first, &scene, 200.0), row("poll", &scene, 300.0)],
        pairs: vec![
            pair(&scene, first, "poll", IOPS, 1.5),
            pair(&scene, first, again, IOPS, 1.0),
            pair(&scene, first, "poll", CPU, 1.0),
            pair(&scene, first, again, CPU, 1.0),
        ],
        notes: vec!["30 rounds, 90 blocks kept".into()],
        ..Results::default()
    }
}

/// Two modes and a knob at three loads and two depths, and a time line.
pub fn sweep() -> Results {
    let mut all = Results { rows: Vec::new(), pairs: Vec::new(), ..results() };
    for qd in [1, 32] {
        for load in [5.0, 50.0, 100.0] {
            let scene = scene(load, qd);
            for mode in
                ["interrupt", "poll", "adaptive?delay-exponent=0.1", "adaptive?delay-exponent=1"]
            {
                all.rows.push(row(mode, &scene, load * 4.0));
            }
            all.pairs.push(pair(&scene, "interrupt", "poll", IOPS, 1.5));
        }
    }
    let tick = |at: u64| {
        json!({
            "offered": 1e5, "iops": 1e5, "cpu": 0.5, "p50": 2e4, "p99": 4e4, "polls": 1e4, "empty_polls": 0.0, "spins": 0.0, "naps": 0.0,
            "sleeps": at as f64, "gathered": 0.0, "tried": 0.0,
        })
    };
    let ticks: Vec<Value> = (0..200).map(tick).collect();
    let scene = Scene { arrivals: Some("steps".into()), ..scene(50.0, 32) };
    let line =
        json!({ "mode": "adaptive?delay-exponent=0.1", "tick_ns": 1_000_000, "ticks": ticks });
    all.timelines = vec![merged([line, json!(scene)])];
    all
}

#[test]
fn rows_of_one_scene_are_compared() {
    let all = sweep();
    assert_eq!(all.scenes().len(), 6);
    assert_eq!(all.first(&scene(5.0, 1)), Some("interrupt"));
    assert_eq!(all.against_first(&scene(5.0, 1), "poll", IOPS).map(|e| e.value), Some(1.5));
    assert_eq!(all.against_first(&scene(5.0, 2), "poll", IOPS), None);
    let again = "interrupt+submit-check (A/A)";
    assert_eq!(results().against_first(&scene(100.0, 32), again, CPU).map(|e| e.value), Some(1.0));
}

#[test]
fn sizes_are_readable() {
    let sizes = [0, 512, 4096, 4608, 1 << 20, 3 << 29, 1 << 34].map(bytes);
    assert_eq!(sizes, ["0 B", "512 B", "4 KiB", "4.5 KiB", "1 MiB", "1.5 GiB", "16 GiB"]);
}
