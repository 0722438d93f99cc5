//! Instructions of a choice, counted by callgrind: this program runs itself under valgrind, once, and every cell leaves a
//! dump of its own. Virtual machines seldom have a counter that could be asked instead; callgrind counts the same every time.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cells::{Cell, IN_FLIGHT, Submitter};
use reap::paths::Paths;

/// Set in the process that is counted.
const CHILD: &str = "REAP_PATHS_COUNTED";
/// Requests that are counted, after those that fill the queue.
const COUNTED: usize = 256;

/// Between two looks at whether it is done.
const LOOK: Duration = Duration::from_millis(10);

/// Whether this process is the one that is counted.
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// The cells of one thread, in order.
fn cells() -> impl Iterator<Item = Cell> {
    Cell::all(1).into_iter()
}

/// How many requests each run of a cell submits: the first takes whatever went on before, and the difference of the other
/// two is the cost of so many more requests and of nothing else.
const RUNS: [usize; 3] = [0, COUNTED, 2 * COUNTED];

/// What the counted process does.
pub fn run_cells() {
    for cell in cells() {
        if let Ok(selector) = cell.selector() {
            RUNS.into_iter().for_each(|requests| dumped_run(&selector, requests));
        }
    }
}

/// After each call callgrind writes down what it has counted since the last.
#[inline(never)]
fn dumped_run(selector: &Paths, requests: usize) {
    let mut submitter = Submitter::new(selector, 0);
    submitter.submit(IN_FLIGHT);
    submitter.submit(requests);
    submitter.drain();
    // Not the last thing that it does: a jump in place of a call would hide from callgrind that it has come back.
    std::hint::black_box(());
}

/// Instructions for one choose + start + end, loop included, of each cell of one thread.
///
/// # Errors
/// There is no valgrind, it does not do what it should, or `stop` was set.
pub fn count(stop: &AtomicBool) -> Result<Vec<f64>> {
    let dir = env::temp_dir().join(format!("reap-paths-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let counted = count_in(&dir, stop);
    _ = fs::remove_dir_all(&dir);
    counted
}

fn count_in(dir: &Path, stop: &AtomicBool) -> Result<Vec<f64>> {
    let name = "callgrind";
    let mut counted = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--log-file=/dev/null", "--dump-after=*dumped_run*"])
        .arg(format!("--callgrind-out-file={}", dir.join(name).display()))
        .arg(env::current_exe().context("cannot tell where this program is")?)
        .arg("paths-bench")
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .spawn()
        .context("valgrind cannot be run; it is in most distributions' package `valgrind`")?;
    let status = loop {
        if let Some(status) = counted.try_wait().context("cannot wait for valgrind")? {
            break status;
        }
        if stop.load(Relaxed) {
            // It may have ended by itself, of the same signal.
            _ = counted.kill();
            _ = counted.wait();
            bail!("stopped");
        }
        thread::sleep(LOOK);
    };
    if !status.success() {
        bail!("valgrind ended with {status}");
    }
    let run = |n: usize| instructions(&dir.join(format!("{name}.{n}")));
    let cell = |n: usize| Ok((run(n * RUNS.len() + 3)? - run(n * RUNS.len() + 2)?) / COUNTED as f64);
    (0..cells().count()).map(cell).collect()
}

/// What a dump sums up to.
fn instructions(dump: &Path) -> Result<f64> {
    let text = fs::read_to_string(dump).with_context(|| format!("callgrind left no {}", dump.display()))?;
    let sum = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    let sum: u64 = sum.and_then(|sum| sum.trim().parse().ok()).with_context(|| format!("{} has no sum", dump.display()))?;
    Ok(sum as f64)
}
