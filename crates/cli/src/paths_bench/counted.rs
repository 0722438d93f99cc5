//! Instructions of a choice, counted by callgrind: this program runs itself under valgrind, once, and every cell leaves a
//! dump of its own. Virtual machines seldom have a counter that could be asked instead; callgrind counts the same every time.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cells::{Cell, Submitter};
use reap::paths::Paths;

/// Set in the process that is counted.
const CHILD: &str = "REAP_PATHS_COUNTED";
/// Requests that are counted; as many before them fill the queues.
const COUNTED: usize = 256;

/// Whether this process is the one that is counted.
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// The cells of one thread, in order.
fn cells() -> impl Iterator<Item = Cell> {
    Cell::all(1).into_iter()
}

/// What the counted process does.
pub fn run_cells() {
    for cell in cells() {
        if let Ok(selector) = cell.selector() {
            dumped_cell(&selector);
        }
    }
}

/// After each call callgrind writes down what it has counted.
#[inline(never)]
fn dumped_cell(selector: &Paths) {
    let mut submitter = Submitter::new(selector, 0);
    submitter.submit(COUNTED);
    counted_choices(&mut submitter);
    submitter.drain();
}

/// By this name callgrind knows what to count.
#[inline(never)]
fn counted_choices(submitter: &mut Submitter<'_>) {
    submitter.submit(COUNTED);
    // Not the last thing that it does: a jump in place of the call would hide from callgrind that it has come back.
    std::hint::black_box(());
}

/// Instructions for one choose + start + end, loop included, of each cell of one thread.
///
/// # Errors
/// There is no valgrind, or it does not do what it should.
pub fn count() -> Result<Vec<f64>> {
    let dir = env::temp_dir().join(format!("reap-paths-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let counted = count_in(&dir);
    _ = fs::remove_dir_all(&dir);
    counted
}

fn count_in(dir: &Path) -> Result<Vec<f64>> {
    let name = "callgrind";
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--log-file=/dev/null"])
        .args(["--toggle-collect=*counted_choices*", "--dump-after=*dumped_cell*"])
        .arg(format!("--callgrind-out-file={}", dir.join(name).display()))
        .arg(env::current_exe().context("cannot tell where this program is")?)
        .arg("paths-bench")
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .status();
    let status = status.context("valgrind cannot be run; it is in most distributions' package `valgrind`")?;
    if !status.success() {
        bail!("valgrind ended with {status}");
    }
    (1..=cells().count()).map(|n| instructions(&dir.join(format!("{name}.{n}")))).collect()
}

/// What a dump sums up to, per request.
fn instructions(dump: &Path) -> Result<f64> {
    let text = fs::read_to_string(dump).with_context(|| format!("callgrind left no {}", dump.display()))?;
    let sum = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    let sum: u64 = sum.and_then(|sum| sum.trim().parse().ok()).with_context(|| format!("{} has no sum", dump.display()))?;
    Ok(sum as f64 / COUNTED as f64)
}
