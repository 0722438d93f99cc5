//! Reap against fio on the same file: I/Os per second, CPU time of the process and system calls per
//! I/O.
//!
//!     cargo bench -p reap-nvme-cli --bench fio [-- --file PATH --size BYTES --rounds N --counted N --seconds S --depths 1,32,128 --latencies]
//!
//! 4 KiB random reads, and 70 % of them mixed with 30 % writes; fio as it is by default, and with
//! batches, in which Reap then has the same. Both read one job file: io_uring, direct, files and
//! buffers registered, one job thread, the file laid out without holes. There are two sections:
//! each program as it runs by default, its thread placed by the scheduler, and both pinned to one
//! CPU, that of the disk's interrupt. Latencies are measured by neither, or, with --latencies, by
//! both.
//!
//! Each round runs every program once in random order. CPU is that of the whole process as the
//! system accounts for it, less what a run of hardly any I/O takes in the same rounds: of fio 160
//! ms, most of which measure the clock, so that runs of less than half a second say little of its
//! CPU. A figure is the median over rounds of the ratio Reap ÷ fio, with its 95 % bootstrap
//! interval. System calls are counted in rounds of their own by `perf stat`. A goal (IOPS at least
//! × 1, CPU and system calls at most × 1) is met where the interval reaches 1 and its far end is
//! within 3 % of it. At last, `adaptive` against `interrupt` at 25 % load, by `reap compare`: the
//! goal is at most × 1.05 of its CPU.
//!
//! A program that is missing is named, and nothing is installed. It writes to the file, which it
//! makes if it is not there. With 30 rounds it takes half an hour.

#[path = "shared/pairs.rs"]
mod pairs;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pairs::{interval, median};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

/// What a run may be asked for.
struct Asked {
    file: PathBuf,
    size: u64,
    rounds: usize,
    /// Rounds in which system calls are counted.
    counted: usize,
    seconds: f64,
    depths: Vec<u32>,
    latencies: bool,
    /// The CPU of the job thread; `None`: where the scheduler places it.
    cpu: Option<usize>,
}

/// A program and how it is set up.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Fio { batched: bool },
    Reap { mode: &'static str, batched: bool },
}

use Program::{Fio, Reap};

/// Reap's rows, each with what it is compared with.
const PAIRS: [(Program, Program, &str); 4] = [
    (Reap { mode: "interrupt", batched: false }, Fio { batched: false }, "interrupt ÷ fio"),
    (Reap { mode: "adaptive", batched: false }, Fio { batched: false }, "adaptive ÷ fio"),
    (
        Reap { mode: "interrupt", batched: true },
        Fio { batched: true },
        "interrupt ÷ fio, batches of both",
    ),
    (
        Reap { mode: "adaptive", batched: true },
        Fio { batched: true },
        "adaptive ÷ fio, batches of both",
    ),
];
const PROGRAMS: [Program; 6] = [
    Fio { batched: false },
    Fio { batched: true },
    Reap { mode: "interrupt", batched: false },
    Reap { mode: "adaptive", batched: false },
    Reap { mode: "interrupt", batched: true },
    Reap { mode: "adaptive", batched: true },
];
const JOBS: [(&str, &str); 2] =
    [("randread", "rw=randread"), ("70/30 mix", "rw=randrw\nrwmixread=70")];

/// What a run came to.
#[derive(Clone, Copy, Debug)]
struct Figures {
    iops: f64,
    ios: f64,
    /// CPU of the process, in nanoseconds.
    cpu: f64,
}

fn main() -> ExitCode {
    let asked = match asked(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(what) => return complain(&what),
    };
    // `cargo test --benches` wants to know only that it runs.
    if asked.rounds == 0 {
        return ExitCode::SUCCESS;
    }
    let missing: Vec<&str> =
        ["fio", "perf"].into_iter().filter(|program| !starts(program)).collect();
    if missing.contains(&"fio") {
        return complain("there is no fio here (Debian: apt-get install fio)");
    }
    if !missing.is_empty() {
        println!(
            "System calls are not counted: there is no perf here (Debian: apt-get install linux-perf)"
        );
    }
    let perf = missing.is_empty();
    let pinned = |by_default: Asked| {
        let cpu = hw::block::CompletionCpus::of(Path::new("/"), &by_default.file)
            .and_then(|disk| disk.cpus.first().copied())
            .unwrap_or(0);
        println!("\nBoth pinned to CPU {cpu}:");
        let asked = Asked { cpu: Some(cpu), ..by_default };
        compare(&asked, perf).map(|()| asked)
    };
    println!("Each as it runs by default:");
    match compare(&asked, perf).and_then(|()| pinned(asked)).and_then(|asked| quarter(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => complain(&what),
    }
}

fn complain(what: &str) -> ExitCode {
    eprintln!("error: {what}");
    ExitCode::FAILURE
}

fn starts(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fio-bench.img");
    let mut asked = Asked {
        file,
        size: 1 << 30,
        rounds: 30,
        counted: 8,
        seconds: 0.5,
        depths: vec![1, 32, 128],
        latencies: false,
        cpu: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let bad = |value: &str| format!("{word} {value}: that is no number");
        match word.as_str() {
            "--file" => asked.file = value()?.into(),
            "--size" => asked.size = value().and_then(|v| v.parse().map_err(|_| bad(&v)))?,
            "--rounds" => asked.rounds = value().and_then(|v| v.parse().map_err(|_| bad(&v)))?,
            "--counted" => asked.counted = value().and_then(|v| v.parse().map_err(|_| bad(&v)))?,
            "--seconds" => asked.seconds = value().and_then(|v| v.parse().map_err(|_| bad(&v)))?,
            "--depths" => {
                asked.depths = value()?
                    .split(',')
                    .map(|v| v.parse().map_err(|_| bad(v)))
                    .collect::<Result<_, _>>()?
            }
            "--latencies" => asked.latencies = true,
            "--bench" => {}
            "--test" => asked.rounds = 0,
            _ => {
                return Err(format!(
                    "there is no option {word}: --file, --size, --rounds, --counted, --seconds, --depths, --latencies"
                ));
            }
        }
    }
    Ok(asked)
}

/// One cell: a job at a depth.
#[derive(Clone, Copy)]
struct Cell<'a> {
    asked: &'a Asked,
    job: &'static str,
    depth: u32,
}

impl Cell<'_> {
    /// Whether a program means anything here: at depth 1 there are no batches.
    fn has(&self, program: Program) -> bool {
        self.depth > 1 || matches!(program, Fio { batched: false } | Reap { batched: false, .. })
    }

    /// The job file for `program`, for so long, or for so few I/Os that what is left is the start
    /// and the end of it.
    fn text(&self, program: Program, idle: bool) -> String {
        let Asked { file, size, seconds, latencies, .. } = self.asked;
        let (Fio { batched } | Reap { batched, .. }) = program;
        let batch = (self.depth / 4).max(1);
        let batches = match batched {
            true => {
                format!(
                    "iodepth_batch_submit={batch}\niodepth_batch_complete_min={batch}\niodepth_batch_complete_max={}\n",
                    self.depth
                )
            }
            false => String::new(),
        };
        let measured = if *latencies { "" } else { "gtod_reduce=1\n" };
        let length = match idle {
            true => format!("number_ios={}\n", self.depth),
            false => format!("time_based=1\nruntime={}us\n", (seconds * 1e6) as u64),
        };
        let cpu = self.asked.cpu.map_or(String::new(), |cpu| format!("cpus_allowed={cpu}\n"));
        format!(
            "[job]\nioengine=io_uring\ndirect=1\nregisterfiles=1\nfixedbufs=1\nthread=1\nfilename={}\nsize={size}\nbs=4k\n{}\n\
             iodepth={}\nnorandommap=1\nrandrepeat=0\n{cpu}{batches}{measured}{length}",
            file.display(),
            self.job,
            self.depth
        )
    }

    /// The command that runs `program`; its results go to `results`.
    fn command(
        &self,
        program: Program,
        idle: bool,
        dir: &Path,
    ) -> Result<(Vec<String>, PathBuf), String> {
        let (job, results) = (dir.join("job.fio"), dir.join("results.json"));
        std::fs::write(&job, self.text(program, idle))
            .map_err(|e| format!("cannot write a job file: {e}"))?;
        let path = |path: &Path| path.display().to_string();
        let words = match program {
            Fio { .. } => vec![
                "fio".into(),
                "--output-format=json".into(),
                format!("--output={}", path(&results)),
                path(&job),
            ],
            Reap { mode, .. } => {
                let options = [
                    "--device",
                    "kernel:",
                    "--completion",
                    mode,
                    "--output-format",
                    "json",
                    "--output",
                ]
                .map(str::to_owned);
                [
                    vec![env!("CARGO_BIN_EXE_reap").into(), "run".into(), path(&job)],
                    options.to_vec(),
                    vec![path(&results)],
                ]
                .concat()
            }
        };
        Ok((words, results))
    }

    fn run(&self, program: Program, idle: bool, dir: &Path) -> Result<Figures, String> {
        let (words, results) = self.command(program, idle, dir)?;
        let before = hw::children_cpu();
        let output = Command::new(&words[0])
            .args(&words[1..])
            .output()
            .map_err(|e| format!("{}: {e}", words[0]))?;
        let cpu = (hw::children_cpu() - before).0 as f64;
        if !output.status.success() {
            return Err(format!(
                "{}: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        let text =
            std::fs::read_to_string(&results).map_err(|e| format!("{}: {e}", results.display()))?;
        // fio may say something before its JSON.
        let text = text.get(text.find('{').unwrap_or(0)..).unwrap_or_default();
        let json: Value =
            serde_json::from_str(text).map_err(|e| format!("{}: {e}", words.join(" ")))?;
        let sum = |field: &str| {
            ["read", "write"]
                .iter()
                .filter_map(|op| json["jobs"][0][op][field].as_f64())
                .sum::<f64>()
        };
        let figures = Figures { iops: sum("iops"), ios: sum("total_ios"), cpu };
        if figures.ios > 0.0 {
            Ok(figures)
        } else {
            Err(format!("{}: it did no I/O", words.join(" ")))
        }
    }

    /// System calls of a run.
    fn calls(&self, program: Program, idle: bool, dir: &Path) -> Result<(f64, f64), String> {
        let (words, results) = self.command(program, idle, dir)?;
        let counted = dir.join("calls");
        let mut command = Command::new("perf");
        command
            .args(["stat", "-e", "raw_syscalls:sys_enter", "-x,", "-o"])
            .arg(&counted)
            .arg("--")
            .args(&words);
        let output = command.output().map_err(|e| format!("perf: {e}"))?;
        if !output.status.success() {
            return Err(format!("perf: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let count = read(&counted)?
            .lines()
            .filter(|line| !line.starts_with('#'))
            .find_map(|line| line.split(',').next()?.parse().ok());
        let json: Value = serde_json::from_str(&read(&results)?)
            .map_err(|e| format!("{}: {e}", words.join(" ")))?;
        let ios = ["read", "write"]
            .iter()
            .filter_map(|op| json["jobs"][0][op]["total_ios"].as_f64())
            .sum();
        Ok((count.ok_or("perf counts no system calls here: it needs root, and tracefs")?, ios))
    }
}

fn compare(asked: &Asked, perf: bool) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(hw::now().0);
    let cells: Vec<(&str, Cell<'_>)> = JOBS
        .iter()
        .flat_map(|&(name, job)| {
            asked.depths.iter().map(move |&depth| (name, Cell { asked, job, depth }))
        })
        .collect();
    let runs: Vec<(usize, usize)> = (0..cells.len())
        .flat_map(|cell| (0..PROGRAMS.len()).map(move |program| (cell, program)))
        .filter(|&(cell, program)| cells[cell].1.has(PROGRAMS[program]))
        .collect();
    lay_out(asked)?;
    // What starting takes, by program: it depends little on the cell, and much on what else the
    // machine does.
    let mut starts = [const { Vec::new() }; PROGRAMS.len()];
    let mut figures = vec![vec![Vec::<Figures>::new(); PROGRAMS.len()]; cells.len()];
    for round in 0..asked.rounds {
        let mut order = runs.clone();
        order.shuffle(&mut rng);
        for (cell, program) in order {
            figures[cell][program].push(cells[cell].1.run(PROGRAMS[program], false, dir.path())?);
        }
        for (program, starts) in PROGRAMS.into_iter().zip(&mut starts) {
            starts.push(cells[0].1.run(program, true, dir.path())?.cpu);
        }
        eprint!("\rround {} of {}", round + 1, asked.rounds);
    }
    eprintln!();
    for (start, runs) in figures.iter_mut().flat_map(|programs| starts.iter().zip(programs)) {
        runs.iter_mut().for_each(|run| run.cpu = (run.cpu - median(start)).max(0.0) / run.ios);
    }
    let mut calls = vec![vec![Vec::new(); PROGRAMS.len()]; cells.len()];
    for _ in 0..if perf { asked.counted } else { 0 } {
        for &(cell, program) in &runs {
            let (idle, few) = cells[cell].1.calls(PROGRAMS[program], true, dir.path())?;
            let (all, ios) = cells[cell].1.calls(PROGRAMS[program], false, dir.path())?;
            calls[cell][program].push((all - idle).max(0.0) / (ios - few).max(1.0));
        }
    }
    print(asked, &cells, &figures, &calls, &mut rng);
    Ok(())
}

/// `adaptive` against `interrupt` at 25 % load, as `reap compare` has it.
fn quarter(asked: &Asked) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let dir = dir.path();
    let (job, results) = (dir.join("quarter.fio"), dir.join("quarter.json"));
    let text = format!(
        "[job]\nrw=randread\nbs=4k\niodepth=32\nnorandommap=1\nsize={}\nfilename={}\n",
        asked.size,
        asked.file.display()
    );
    std::fs::write(&job, text).map_err(|e| format!("cannot write a job file: {e}"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_reap"));
    command.arg("compare").arg(&job).args([
        "--device",
        "kernel:",
        "--loads",
        "25",
        "--modes",
        "interrupt,adaptive",
        "--json",
    ]);
    command.arg(&results).arg("--repeat").arg(asked.rounds.to_string());
    let output = command.output().map_err(|e| format!("reap compare: {e}"))?;
    if !output.status.success() {
        return Err(format!("reap compare: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text =
        std::fs::read_to_string(&results).map_err(|e| format!("{}: {e}", results.display()))?;
    let json: Value = serde_json::from_str(&text).map_err(|e| format!("reap compare: {e}"))?;
    let is_cpu = |pair: &&Value| {
        pair["a"] == "interrupt" && pair["b"] == "adaptive" && pair["figure"] == "cpu_ns_per_io"
    };
    let pair = json["pairs"]
        .as_array()
        .and_then(|pairs| pairs.iter().find(is_cpu))
        .ok_or("reap compare has no such pair")?;
    let (ratio, ends) = (
        pair["ratio"].as_f64().unwrap_or(f64::NAN),
        [&pair["ci"][0], &pair["ci"][1]].map(Value::as_f64),
    );
    print!("\nAt 25 % load, depth 32: adaptive ÷ interrupt, CPU per I/O × {ratio:.3}");
    match ends {
        [Some(low), Some(high)] => println!(
            " ({low:.3}–{high:.3}): {}",
            if low <= 1.05 && high <= 1.08 { "met" } else { "missed" }
        ),
        _ => println!(" (too few rounds for an interval)"),
    }
    Ok(())
}

/// Whether a goal is met by a ratio with this interval: it reaches 1, and its far end is within 3
/// %.
fn verdict([low, high]: [f64; 2], at_least: bool) -> &'static str {
    let met = if at_least { high >= 1.0 && low >= 0.97 } else { low <= 1.0 && high <= 1.03 };
    if met { "met" } else { "missed" }
}

/// All of the file is written, so that each read reaches the disk.
fn lay_out(asked: &Asked) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let job = dir.path().join("fill.fio");
    let text = format!(
        "[fill]\nioengine=io_uring\ndirect=1\nrw=write\nbs=1m\niodepth=8\nfilename={}\nsize={}\n",
        asked.file.display(),
        asked.size
    );
    std::fs::write(&job, text).map_err(|e| format!("cannot write a job file: {e}"))?;
    let output = Command::new("fio").arg(&job).output().map_err(|e| format!("fio: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}: {}", asked.file.display(), String::from_utf8_lossy(&output.stderr)))
    }
}

fn print(
    asked: &Asked,
    cells: &[(&str, Cell<'_>)],
    figures: &[Vec<Vec<Figures>>],
    calls: &[Vec<Vec<f64>>],
    rng: &mut Xoshiro256PlusPlus,
) {
    let latencies =
        if asked.latencies { "both measure latencies" } else { "neither measures latencies" };
    println!(
        "Reap ÷ fio, medians of {} rounds of {} s with their 95 % intervals; {latencies}",
        asked.rounds, asked.seconds
    );
    println!(
        "{:<10} {:>4}  {:<33} {:<30} {:<30} {:<30} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "job",
        "QD",
        "",
        "IOPS",
        "CPU per I/O",
        "system calls per I/O",
        "Reap IOPS",
        "fio IOPS",
        "Reap ns",
        "fio ns",
        "Reap sys",
        "fio sys"
    );
    for (at, (name, cell)) in cells.iter().enumerate() {
        for (reap, fio, words) in PAIRS.iter().filter(|(reap, ..)| cell.has(*reap)) {
            let of =
                |program: &Program| PROGRAMS.iter().position(|other| other == program).unwrap_or(0);
            let (ours, theirs) = (&figures[at][of(reap)], &figures[at][of(fio)]);
            let mut ratio = |ours: &[f64], theirs: &[f64], at_least: bool| {
                let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
                if ratios.is_empty() {
                    return "–".to_owned();
                }
                let ends = interval(&ratios, rng);
                format!(
                    "× {:.3} ({:.3}–{:.3}) {}",
                    median(&ratios),
                    ends[0],
                    ends[1],
                    verdict(ends, at_least)
                )
            };
            let all = |runs: &[Figures], figure: fn(&Figures) -> f64| {
                runs.iter().map(figure).collect::<Vec<_>>()
            };
            let iops = [all(ours, |f| f.iops), all(theirs, |f| f.iops)];
            let cpu = [all(ours, |f| f.cpu), all(theirs, |f| f.cpu)];
            let sys = [&calls[at][of(reap)], &calls[at][of(fio)]];
            println!(
                "{name:<10} {:>4}  {words:<33} {:<30} {:<30} {:<30} {:>9.0} {:>9.0} {:>8.0} {:>8.0} {:>8.3} {:>8.3}",
                cell.depth,
                ratio(&iops[0], &iops[1], true),
                ratio(&cpu[0], &cpu[1], false),
                ratio(sys[0], sys[1], false),
                median(&iops[0]),
                median(&iops[1]),
                median(&cpu[0]),
                median(&cpu[1]),
                median(sys[0]),
                median(sys[1]),
            );
        }
    }
}
