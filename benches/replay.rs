//! Records a job for real under one completion mode, predicts another from the recording, and holds that against the
//! other for real: CPU per I/O and median latency.
//!
//!     cargo bench -p reap-nvme-cli --bench replay [-- --rounds N]
//!
//! Each round runs both modes without recording and both while recording, one after the other; the prices are measured
//! once before, by `reap calibrate`, for the length of sleeps that the depth brings about. CPU is that of the job
//! threads (CLOCK_THREAD_CPUTIME_ID; of the simulated machine, time in threads). Beside them, without a goal, what explains
//! them: messages and doorbells for each I/O, and completions for each wait that a message ended, be it at once. Medians over rounds with all their range; for a quiet machine.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const MODES: [&str; 2] = ["interrupt", "poll"];
/// Depth, and the sleeps that it makes, in microseconds.
const DEPTHS: [(u32, u32); 2] = [(1, 15), (32, 1)];
const DEVICE: &str = "mem:256M?profile=optane";

/// CPU in ns per I/O, and the median latency in ns; and what was counted.
#[derive(Clone, Copy)]
struct Figures {
    cpu: f64,
    p50: f64,
    messages: f64,
    doorbells: f64,
    brought: f64,
}

/// A figure's name, and where it stands.
type Column = (&'static str, fn(&Figures) -> f64);

const COLUMNS: [Column; 5] = [
    ("CPU ns/IO", |f| f.cpu),
    ("p50 ns", |f| f.p50),
    ("messages/IO", |f| f.messages),
    ("doorbells/IO", |f| f.doorbells),
    ("IO/wait", |f| f.brought),
];

fn reap(dir: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_reap")).current_dir(dir).args(arguments).output().expect("reap starts");
    assert!(output.status.success(), "reap {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// The job under `mode`, for real.
fn real(dir: &Path, mode: &str, record: Option<&str>) -> Figures {
    let mut arguments = vec!["run", "job.fio", "--device", DEVICE, "--completion", mode, "--output-format", "json"];
    arguments.extend(record.map(|file| ["--record", file]).into_iter().flatten());
    let json = reap(dir, &arguments);
    let job = &json["jobs"][0];
    let number = |value: &Value| value.as_f64().expect("a number");
    let (counted, ios) = (&job["reap"], number(&job["read"]["total_ios"]));
    Figures {
        cpu: number(&counted["cpu_ns_per_io"]),
        p50: number(&job["read"]["lat_ns"]["percentile"]["50.000000"]),
        messages: number(&counted["messages"]) / ios,
        doorbells: number(&counted["sq_doorbells"]) / ios,
        brought: counted["completions_per_wakeup"].as_f64().unwrap_or_default(),
    }
}

/// What the recording says of `mode`.
fn predicted(dir: &Path, trace: &str, mode: &str) -> Figures {
    reap(dir, &["sim", "--replay", trace, "--costs", "here.toml", "--modes", mode, "--json", "rows.json"]);
    let rows: Value = serde_json::from_slice(&std::fs::read(dir.join("rows.json")).expect("rows")).expect("JSON");
    let row = &rows["rows"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {row}"));
    let thread = number(&row["cpu_pct"]["thread"]) / 100.0 * 1e9 / number(&row["iops"]);
    let waits = number(&row["wakeups_per_s"]) + number(&row["waits_over_at_once_per_s"]);
    Figures {
        cpu: thread,
        p50: number(&row["lat_ns"]["p50"]),
        messages: number(&row["messages_per_s"]) / number(&row["iops"]),
        doorbells: number(&row["sq_doorbells_per_s"]) / number(&row["iops"]),
        brought: if waits > 0.0 { number(&row["iops"]) / waits } else { 0.0 },
    }
}

fn spread(of: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = of.collect();
    values.sort_unstable_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    // `cargo test --benches` passes no --bench: nothing is clocked then.
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let rounds = arguments.iter().position(|a| a == "--rounds").and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(5);
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    println!("depth  recorded   predicted            real           predicted    error   (medians of {rounds}, least–most)");
    for (depth, sleep) in DEPTHS {
        let job = format!("[job]\nrw=randread\nbs=4k\niodepth={depth}\nlat_percentiles=1\nramp_time=200ms\nruntime=1s\ntime_based\n");
        std::fs::write(dir.join("job.fio"), job).expect("a job file");
        reap(dir, &["calibrate", "--output", "here.toml", "--sleep-us", &sleep.to_string()]);
        let mut found: Vec<[Figures; 4]> = Vec::new();
        for _ in 0..rounds {
            let [a, b] = MODES.map(|mode| real(dir, mode, None));
            let traces = MODES.map(|mode| format!("{mode}.trace"));
            MODES.iter().zip(&traces).for_each(|(mode, trace)| _ = real(dir, mode, Some(trace)));
            found.push([a, b, predicted(dir, &traces[1], MODES[0]), predicted(dir, &traces[0], MODES[1])]);
        }
        for (real, predicted, from, to) in [(1, 3, MODES[0], MODES[1]), (0, 2, MODES[1], MODES[0])] {
            for (what, of) in COLUMNS {
                let (was, low, high) = spread(found.iter().map(|round| of(&round[real])));
                let (said, least, most) = spread(found.iter().map(|round| of(&round[predicted])));
                let digits = if was < 100.0 { 2 } else { 0 };
                let error = if was > 0.0 { format!("{:+.1} %", (said / was - 1.0) * 100.0) } else { String::new() };
                println!(
                    "{depth:>5}  {from:<9}  {to:<9} {what:<12} {was:>7.digits$} ({low:.digits$}–{high:.digits$})  {said:>7.digits$} \
                     ({least:.digits$}–{most:.digits$})  {error:>8}"
                );
            }
        }
    }
}
