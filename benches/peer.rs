//! Reap against SPDK's perf tool on the same vfio-user target: I/Os per second of polled 4 KiB
//! random reads, one core each.
//!
//!     cargo bench -p reap-nvme-cli --bench peer -- --perf PATH --target NAME=DIR=NQN [--target …] [--served NAME=DIR=NQN] [--spins NAME=PID] [--pairs N --seconds S --depths 1,32,128 --cpu N]
//!
//! `PATH` is a built `spdk_nvme_perf`, and `DIR` the address that a target listens at, whose socket
//! is `DIR/cntrl`; both run already, the target on a core of its own. The initiators run on
//! `--cpu`, CPU 1 by default, one after the other. Each pair is a run of both in random order, in
//! all cells before the next pair. `--served NAME=DIR=NQN` is a target of another kind: the perf
//! tool on it against the same tool on the first target. A target that spins without a client would
//! take half of that one's core: `--spins NAME=PID` has it stopped while others are driven. A
//! process with several targets stands there once for each.
//!
//! For `reap serve`, in the directory `/tmp/vu/reap`, whose memory of the perf tool is huge pages:
//!
//!     setsid taskset -c 0 reap serve 'mem:1G?profile=null&lba=4096&doorbells=mapped&trust=yes' --vfio-user /tmp/vu/reap/cntrl
//!
//! Each program that runs has a session of its own (`setsid`), as the kernel shares a CPU by
//! sessions.
//!
//! Both spin, ring a doorbell for what they post together, take memory of huge pages, and take two
//! clock reads for each I/O. Reap keeps histograms of them, the perf tool sums. A figure is the
//! median over pairs of the ratio, with its 95 % bootstrap interval. The goal, at least × 1, is met
//! where the interval reaches 1, and open where it reaches below 0.9 as well: the machine was busy.

#[path = "shared/pairs.rs"]
mod pairs;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pairs::{interval, median};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

/// A controller within reach of both programs.
#[derive(Clone)]
struct Target {
    name: String,
    dir: PathBuf,
    nqn: String,
}

struct Asked {
    perf: Option<PathBuf>,
    targets: Vec<Target>,
    served: Vec<Target>,
    /// Targets that use their core whether they have a client or not, by name.
    spins: Vec<(String, u32)>,
    pairs: usize,
    seconds: u32,
    depths: Vec<u32>,
    cpu: usize,
}

/// Who drives it.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Reap,
    Perf,
}

/// A row: a run, and what it is divided by.
struct Row<'a> {
    name: String,
    depth: u32,
    runs: [(Program, &'a Target); 2],
}

fn main() -> ExitCode {
    let asked = match asked(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(what) => return complain(&what),
    };
    // `cargo test --benches` wants to know only that it runs.
    if asked.pairs == 0 {
        return ExitCode::SUCCESS;
    }
    let Some(perf) = &asked.perf else {
        return complain(
            "name a built spdk_nvme_perf by --perf, and what it drives by --target NAME=DIR=NQN",
        );
    };
    match compare(&asked, perf) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => complain(&what),
    }
}

fn complain(what: &str) -> ExitCode {
    eprintln!("error: {what}");
    ExitCode::FAILURE
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked {
        perf: None,
        targets: Vec::new(),
        served: Vec::new(),
        spins: Vec::new(),
        pairs: 10,
        seconds: 1,
        depths: vec![1, 32, 128],
        cpu: 1,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number =
            |value: String| value.parse().map_err(|_| format!("{word} {value}: that is no number"));
        match word.as_str() {
            "--perf" => asked.perf = Some(value()?.into()),
            "--target" => asked.targets.push(target(&value()?)?),
            "--served" => asked.served.push(target(&value()?)?),
            "--spins" => {
                let value = value()?;
                let parsed = value
                    .split_once('=')
                    .and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok()?)));
                asked.spins.push(parsed.ok_or(format!("--spins {value}: expected NAME=PID"))?);
            }
            "--pairs" => asked.pairs = number(value()?)?,
            "--seconds" => asked.seconds = number(value()?)? as u32,
            "--depths" => {
                asked.depths = value()?
                    .split(',')
                    .map(|depth| number(depth.to_owned()).map(|depth| depth as u32))
                    .collect::<Result<_, _>>()?;
            }
            "--cpu" => asked.cpu = number(value()?)?,
            "--bench" => {}
            "--test" => asked.pairs = 0,
            _ => {
                return Err(format!(
                    "there is no option {word}: --perf, --target, --served, --spins, --pairs, --seconds, --depths, --cpu"
                ));
            }
        }
    }
    Ok(asked)
}

fn target(text: &str) -> Result<Target, String> {
    let mut parts = text.splitn(3, '=').map(str::to_owned);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(dir), Some(nqn)) => Ok(Target { name, dir: dir.into(), nqn }),
        _ => Err(format!(
            "{text}: expected NAME=DIR=NQN, as null=/tmp/null=nqn.2026-11.io.spdk:null"
        )),
    }
}

impl Asked {
    fn rows(&self) -> Vec<Row<'_>> {
        let depths = self.depths.iter().copied();
        let own = depths.clone().flat_map(|depth| {
            self.targets.iter().map(move |target| Row {
                name: format!("Reap ÷ perf, {}", target.name),
                depth,
                runs: [(Program::Reap, target), (Program::Perf, target)],
            })
        });
        let served = depths.flat_map(|depth| {
            self.served.iter().zip(self.targets.iter().cycle()).map(move |(served, target)| Row {
                name: format!("perf on {} ÷ on {}", served.name, target.name),
                depth,
                runs: [(Program::Perf, served), (Program::Perf, target)],
            })
        });
        own.chain(served).collect()
    }

    /// I/Os per second of a run.
    fn run(
        &self,
        perf: &Path,
        (program, target): (Program, &Target),
        depth: u32,
        dir: &Path,
    ) -> Result<f64, String> {
        self.signal("-STOP", target)?;
        let done = match program {
            Program::Reap => self.reap(target, depth, dir),
            Program::Perf => self.perf(perf, target, depth),
        };
        self.signal("-CONT", target)?;
        done
    }

    /// To the processes that spin, but for the one of this target.
    fn signal(&self, signal: &str, but: &Target) -> Result<(), String> {
        let serves = |pid: u32| self.spins.iter().any(|(name, of)| *of == pid && *name == but.name);
        let mut others = self.spins.iter().filter(|(_, pid)| !serves(*pid));
        others.try_for_each(|(_, pid)| {
            finish(Command::new("kill").args([signal, &pid.to_string()])).map(drop)
        })
    }

    fn reap(&self, target: &Target, depth: u32, dir: &Path) -> Result<f64, String> {
        let (job, results) = (dir.join("job.fio"), dir.join("results.json"));
        let text = format!(
            "[job]\nrw=randread\nbs=4k\niodepth={depth}\niodepth_batch_submit={depth}\nnorandommap=1\ntime_based=1\nruntime={}\ncpus_allowed={}\n",
            self.seconds, self.cpu
        );
        std::fs::write(&job, text).map_err(|e| format!("cannot write a job file: {e}"))?;
        let mut command = Command::new("setsid");
        command
            .args([
                "--wait",
                "taskset",
                "-c",
                &self.cpu.to_string(),
                env!("CARGO_BIN_EXE_reap"),
                "run",
            ])
            .arg(&job)
            .arg("--device");
        command.arg(format!(
            "vfio-user:{}?hugepages=yes&trust=yes",
            target.dir.join("cntrl").display()
        ));
        command
            .args([
                "--completion",
                "poll",
                "--poll",
                "spins",
                "--output-format",
                "json",
                "--output",
            ])
            .arg(&results);
        finish(&mut command)?;
        let text =
            std::fs::read_to_string(&results).map_err(|e| format!("{}: {e}", results.display()))?;
        let json: Value = serde_json::from_str(&text).map_err(|e| format!("reap run: {e}"))?;
        json["jobs"][0]["read"]["iops"]
            .as_f64()
            .filter(|iops| *iops > 0.0)
            .ok_or("reap run: it did no I/O".to_owned())
    }

    fn perf(&self, perf: &Path, target: &Target, depth: u32) -> Result<f64, String> {
        let mut command = Command::new("setsid");
        command.args(["--wait"]).arg(perf);
        // One file for all memory: the target cannot map it otherwise.
        command.args([
            "-c",
            &format!("{:#x}", 1u64 << self.cpu),
            "-g",
            "-s",
            "256",
            "-o",
            "4096",
            "-w",
            "randread",
        ]);
        command.args(["-q", &depth.to_string(), "-t", &self.seconds.to_string(), "-r"]);
        command.arg(format!(
            "trtype:VFIOUSER traddr:{} subnqn:{}",
            target.dir.display(),
            target.nqn
        ));
        let said = finish(&mut command)?;
        let total = said
            .lines()
            .find(|line| line.starts_with("Total"))
            .and_then(|line| line.split(':').nth(1)?.split_whitespace().next());
        total
            .and_then(|iops| iops.parse().ok())
            .ok_or(format!("{}: it printed no total:\n{said}", perf.display()))
    }
}

/// Whether a ratio with this interval reaches 1, as far as that can be told.
fn goal([low, high]: [f64; 2]) -> &'static str {
    match (low >= 0.9, high >= 1.0) {
        (_, false) => "**missed**",
        (false, true) => "open: the interval is too wide",
        (true, true) => "met",
    }
}

/// What a program prints.
fn finish(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_owned();
    let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    let [said, complained] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if output.status.success() {
        Ok(said.into_owned())
    } else {
        Err(format!("{}: {said}{complained}", program.display()))
    }
}

fn compare(asked: &Asked, perf: &Path) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(hw::now().0);
    let rows = asked.rows();
    let mut figures = vec![[Vec::new(), Vec::new()]; rows.len()];
    for pair in 0..asked.pairs {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.shuffle(&mut rng);
        for at in order {
            let mut sides = [0, 1];
            sides.shuffle(&mut rng);
            for side in sides {
                figures[at][side].push(asked.run(
                    perf,
                    rows[at].runs[side],
                    rows[at].depth,
                    dir.path(),
                )?);
            }
        }
        eprint!("\rpair {} of {}", pair + 1, asked.pairs);
    }
    eprintln!();
    println!(
        "4 KiB random reads, medians of {} pairs of {} s; the goal is at least × 1",
        asked.pairs, asked.seconds
    );
    println!(
        "| row | depth | ratio of IOPS | its 95 % interval | kIOPS | of the other | goal |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for (row, [ours, theirs]) in rows.iter().zip(&figures) {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        let [low, high] = interval(&ratios, &mut rng);
        println!(
            "| {} | {} | {:.3} | {low:.3}–{high:.3} | {:.0} | {:.0} | {} |",
            row.name,
            row.depth,
            median(&ratios),
            median(ours) / 1e3,
            median(theirs) / 1e3,
            goal([low, high])
        );
    }
    Ok(())
}
