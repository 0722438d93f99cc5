//! Instructions, counted by callgrind (Debian's package `valgrind`): a bench runs itself under it,
//! once for each case and each function that is counted; or another program.

use std::process::{Command, ExitCode, Stdio};

/// Tells the bench, run again, which case it is.
const CASE: &str = "REAP_COUNTED";

/// The case that this process is to run, because it is being counted; `None`: it is the one that
/// counts.
pub fn case() -> Option<usize> {
    std::env::var(CASE).ok()?.parse().ok()
}

/// Instructions of this program's case `case` inside the functions whose names `part` matches,
/// callees included.
pub fn count(case: usize, part: &str) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    counted(command.env(CASE, case.to_string()), Some(part))
}

/// Instructions of a whole program, or inside the functions whose names `part` matches, callees
/// included. What it prints is lost.
pub fn counted(command: &Command, part: Option<&str>) -> Option<u64> {
    let out = std::env::temp_dir().join(format!("reap-callgrind-{}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--log-file=/dev/null"]);
    if let Some(part) = part {
        valgrind.arg("--collect-atstart=no").arg(format!("--toggle-collect=*{part}*"));
    }
    valgrind
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(command.get_program())
        .args(command.get_args());
    valgrind.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let status = valgrind.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let text = std::fs::read_to_string(&out).ok();
    _ = std::fs::remove_file(&out);
    status.ok().filter(|status| status.success())?;
    text?.lines().find_map(|line| {
        line.strip_prefix("summary: ").or(line.strip_prefix("totals: "))?.trim().parse().ok()
    })
}

/// Nothing could be counted: says why, and fails.
pub fn missing() -> ExitCode {
    eprintln!("callgrind did not run; it is in Debian's package `valgrind`");
    ExitCode::FAILURE
}
