use super::*;
use crate::counts::LineCpuCounts;
use std::time::Duration;

fn settings(mode: Mode) -> Settings {
    let args = crate::cli::TraceArgs { words: vec![mode.name().into()], ..Default::default() };
    Settings::of(&args).unwrap()
}

fn printed(settings: &Settings, counts: &Counts) -> String {
    let mut out = Vec::new();
    text(&mut out, settings, counts).unwrap();
    String::from_utf8(out).unwrap()
}

/// Two interrupt queues and one poll queue, in 2 s.
fn counts() -> Counts {
    let line = |irq, name: &str, interrupts| LineCounts {
        irq,
        name: name.into(),
        interrupts,
        per_interrupt: Linear::from_parts(&[1, 8, 1], 10, 2),
        to_softirq: Log2::from_parts(&[5, 1], 6_000, 2_500),
        to_completion: Log2::from_parts(&[0, 3], 9_000, 3_500),
        per_cpu: vec![
            LineCpuCounts { interrupts, hard_ns: 20_000_000, soft_ns: 0 },
            LineCpuCounts { interrupts: 0, hard_ns: 0, soft_ns: 40_000_000 },
        ],
    };
    let queue = |number, irq: Option<u32>, contexts: ContextCounts| QueueCounts {
        disk: "nvme0n1".into(),
        number,
        polled: irq.is_none(),
        irq,
        contexts,
        per_cpu: vec![contexts.iter().sum(), 0],
        ..QueueCounts::default()
    };
    Counts {
        time: Duration::from_secs(2),
        lines: vec![line(41, "nvme0q1", 10), line(42, "nvme0q2", 0)],
        queues: vec![
            queue(0, Some(41), [9, 0, 1, 0, 0]),
            queue(1, Some(42), [0; 5]),
            queue(2, None, [0, 0, 0, 77, 0]),
        ],
        latencies: vec![Latency {
            name: "nvme0n1".into(),
            op: 0,
            size: 3,
            time: Log2::from_parts(&[0, 4], 12_000, 4_000),
        }],
        lost: [0; 6],
    }
}

#[test]
fn completions_are_split_by_context() {
    let message = printed(&settings(Mode::Completions), &counts());
    assert!(
        message.starts_with("line = nvme0q1\n     completions   : count     distribution\n"),
        "{message}"
    );
    let row = message.lines().find(|line| line.starts_with("nvme0q1")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["nvme0q1", "10", "10", "1.00", "9", "0", "1", "0", "0"]
    );
    let polled = message.lines().find(|line| line.starts_with("nvme0n1 (poll queues)")).unwrap();
    assert!(polled.split_whitespace().any(|word| word == "77"));
    assert!(
        !message.lines().any(|line| line.starts_with("nvme0q2 ")),
        "a row without activity: {message}"
    );
    let last = message.lines().last().unwrap();
    assert_eq!(
        last,
        "total: 10 interrupts, 87 completions (9 in irq, 1 other CPU, 77 polled) in 2.00 s, 0 lost"
    );
}

#[test]
fn each_mode_prints_its_table() {
    let message = printed(&settings(Mode::Delay), &counts());
    assert!(
        message.contains("line = nvme0q1, interrupt -> softirq\n     usecs               : count"),
        "{message}"
    );
    assert!(message.contains("1.00           3        3.00"), "{message}");
    let message = printed(&settings(Mode::Rate), &counts());
    let row = message.lines().find(|line| line.starts_with("nvme0q1")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["nvme0q1", "5.0", "5.0", "1.00", "1.00", "2.00"]
    );
    let row = message.lines().find(|line| line.starts_with("0 ")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["0", "5.0", "43.5", "8.70", "2.00", "0.00"]
    );
    let message = printed(&settings(Mode::Latency), &counts());
    assert!(message.starts_with("device = nvme0n1, read, 4 KiB\n"), "{message}");
    assert!(message.ends_with("total: 4 requests in 2.00 s, 0 lost\n"), "{message}");
}

#[test]
fn lost_events_are_reported() {
    let mut counts = counts();
    counts.lost = [0, 3, 0, 0, 2, 0];
    let message = printed(&settings(Mode::Completions), &counts);
    assert!(
        message.ends_with("5 lost (3 program runs skipped by the kernel, 2 requests beyond the limit of requests in flight)\n"),
        "{message}"
    );
}

#[test]
fn idle_intervals_are_one_line() {
    for mode in Mode::ALL {
        let message =
            printed(&settings(mode), &Counts { time: Duration::from_secs(1), ..Counts::default() });
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn intervals_have_new_counts_only() {
    let before = counts();
    let mut after = counts();
    after.time = Duration::from_secs(5);
    after.lines[0].interrupts += 5;
    after.queues[2].contexts[3] += 23;
    after.lines.push(LineCounts { irq: 99, interrupts: 4, ..LineCounts::default() });
    let interval = after.since(&before);
    assert_eq!((interval.time, interval.interrupts()), (Duration::from_secs(3), 9));
    assert_eq!(interval.contexts(), [0, 0, 0, 23, 0]);
    assert!(interval.latencies[0].time.is_empty() && interval.lines[0].per_interrupt.is_empty());
}

#[test]
fn json_holds_intervals_and_total() {
    for mode in Mode::ALL {
        let document = document(&settings(mode), "6.1", &[counts()], &counts());
        assert_eq!(document["schema"], 1);
        assert_eq!(document["mode"], mode.name());
        assert_eq!(document["intervals"][0], document["total"]);
    }
    let document = document(&settings(Mode::Completions), "6.1", &[], &counts());
    assert_eq!(document["total"]["completions"]["total"], 87);
    assert_eq!(
        document["total"]["lines"][0]["per_interrupt"]["buckets"],
        serde_json::json!([1, 8, 1])
    );
    assert_eq!(document["total"]["queues"][2]["polled"], true);
}
