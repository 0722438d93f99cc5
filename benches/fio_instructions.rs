//! User instructions per I/O on a file, Reap's and fio's, counted by callgrind: `cargo bench -p
//! reap-nvme-cli --bench fio_instructions`.
//!
//! 4 KiB random reads with registered files and buffers, statistics at their least in both. A
//! program's figure is what more I/Os take more: starting and ending are in neither. The library's
//! part is what the job thread has it do (`JobQueues` of `cli::bench`); for fio there is no such
//! part to tell, because Debian's has no symbols. Programs are slower under callgrind and the disk
//! is not, so that more completions are found at a time. Needs valgrind and fio.

#[expect(dead_code, reason = "it counts other programs, none of its own cases")]
mod callgrind;

use std::path::Path;
use std::process::{Command, ExitCode};

/// Bytes of the file.
const BYTES: u64 = 64 << 20;
/// I/Os of the short and of the long run. A job ends when it has done its file's bytes, however
/// many I/Os it was to do.
const IOS: [u64; 2] = [4_000, 16_000];
const _: () = assert!(IOS[1] * 4096 <= BYTES);
/// Depth; I/Os that are submitted, and waited for, at once, or as each program does by itself.
const CASES: [(u32, Option<u32>); 4] = [(1, None), (32, None), (32, Some(8)), (128, Some(32))];
const MODES: [&str; 2] = ["interrupt", "adaptive"];

fn main() -> ExitCode {
    // `cargo test --benches` wants to know only that it runs.
    if std::env::args().any(|word| word == "--test") {
        return ExitCode::SUCCESS;
    }
    match count() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}

fn count() -> Result<(), String> {
    // Not below /tmp, which may be memory: direct I/O is meant.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let dir = tempfile::tempdir_in(target).map_err(|e| format!("no temporary directory: {e}"))?;
    std::fs::write(dir.path().join("disk"), vec![7; BYTES as usize])
        .map_err(|e| format!("cannot write the file: {e}"))?;
    println!(
        "{:>5} {:>12} {:>10} {:>14} {:>14} {:>14}",
        "depth", "batches", "", "Reap, all", "its library", "fio, all"
    );
    for (depth, batch) in CASES {
        let theirs = more(|ios| counted(&fio(dir.path(), (depth, batch, ios))?, None))?;
        for mode in MODES {
            let ours = more(|ios| counted(&reap(dir.path(), (depth, batch, ios), mode)?, None))?;
            let library = more(|ios| {
                counted(&reap(dir.path(), (depth, batch, ios), mode)?, Some("JobQueues"))
            })?;
            let batches = batch.map_or("its own".to_owned(), |batch| batch.to_string());
            println!(
                "{depth:>5} {batches:>12} {mode:>10} {ours:>14.0} {library:>14.0} {theirs:>14.0}"
            );
        }
    }
    Ok(())
}

/// What each of the I/Os takes that the long run has more.
fn more(count: impl Fn(u64) -> Result<u64, String>) -> Result<f64, String> {
    let [few, many] = IOS;
    Ok((count(many)? as f64 - count(few)? as f64) / (many - few) as f64)
}

fn counted(command: &Command, part: Option<&str>) -> Result<u64, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    callgrind::counted(command, part)
        .ok_or_else(|| format!("{name} cannot be counted: it takes valgrind, fio, and io_uring"))
}

fn job(
    dir: &Path,
    (depth, batch, ios): (u32, Option<u32>, u64),
) -> Result<std::path::PathBuf, String> {
    let batches = batch.map_or(String::new(), |n| {
        format!("iodepth_batch_submit={n}\niodepth_batch_complete_min={n}\niodepth_batch_complete_max={depth}\n")
    });
    let text = format!(
        "[job]\nioengine=io_uring\ndirect=1\nregisterfiles=1\nfixedbufs=1\nthread=1\nfilename={}\nsize={BYTES}\nbs=4k\nrw=randread\n\
         iodepth={depth}\nnorandommap=1\nrandrepeat=0\ngtod_reduce=1\nnumber_ios={ios}\n{batches}",
        dir.join("disk").display()
    );
    let job = dir.join("job.fio");
    std::fs::write(&job, text).map_err(|e| format!("cannot write a job file: {e}"))?;
    Ok(job)
}

fn fio(dir: &Path, case: (u32, Option<u32>, u64)) -> Result<Command, String> {
    let mut command = Command::new("fio");
    command
        .arg("--output-format=json")
        .arg(format!("--output={}", dir.join("out").display()))
        .arg(job(dir, case)?);
    Ok(command)
}

fn reap(dir: &Path, case: (u32, Option<u32>, u64), mode: &str) -> Result<Command, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reap"));
    command
        .arg("run")
        .arg(job(dir, case)?)
        .args(["--device", "kernel:", "--completion", mode, "--output"])
        .arg(dir.join("out"));
    Ok(command)
}
