//! Instructions, counted by callgrind (Debian's package `valgrind`): a bench runs itself under it, once for each case and
//! each function that is counted.

use std::process::{Command, ExitCode};

/// Tells the bench, run again, which case it is.
const CASE: &str = "REAP_COUNTED";

/// The case that this process is to run, because it is being counted; `None`: it is the one that counts.
pub fn case() -> Option<usize> {
    std::env::var(CASE).ok()?.parse().ok()
}

/// Instructions of this program's case `case` inside the functions whose names `part` matches, callees included.
pub fn count(case: usize, part: &str) -> Option<u64> {
    let out = std::env::temp_dir().join(format!("reap-callgrind-{}-{case}", std::process::id()));
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--quiet", "--log-file=/dev/null"])
        .arg(format!("--toggle-collect=*{part}*"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().ok()?)
        .env(CASE, case.to_string())
        .status();
    let text = std::fs::read_to_string(&out).ok();
    _ = std::fs::remove_file(&out);
    status.ok().filter(|status| status.success())?;
    text?.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: "))?.trim().parse().ok())
}

/// Nothing could be counted: says why, and fails.
pub fn missing() -> ExitCode {
    eprintln!("callgrind did not run; it is in Debian's package `valgrind`");
    ExitCode::FAILURE
}
