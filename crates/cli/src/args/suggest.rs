//! What is said of an option that a command does not have: which option was meant, or where the option belongs.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use workload::fio;

/// Options that people look for in commands that call them otherwise, or cannot have them: the commands, the names, the tip.
const MEANT: [(&[&str], &[&str], &str); 6] = [
    (&["compare", "sim"], &["completion", "mode"], "--modes names the modes to compare, as --modes interrupt,poll"),
    (&["run"], &["modes", "mode"], "--completion names the mode of a run, as --completion poll; `reap compare` has several"),
    (
        &["sim"],
        &["latency-price", "price"],
        "a scenario says it, as latency_price = 0.5; `reap compare --modes adaptive@0.5` takes one on this machine",
    ),
    (
        &["trace"],
        &["secs", "sec", "seconds", "time", "timeout", "runtime"],
        "--duration says after how many seconds to stop, as --duration 10",
    ),
    (&["trace"], &["dev", "disk", "filename"], "-d names a block device, as -d vda"),
    (
        &["compare", "sim"],
        &["duration", "time", "secs", "seconds"],
        "--repeat or --seeds say how much is measured; Ctrl-C prints what there is",
    ),
];

/// Puts a useful tip into the error of an option that there is not. What clap says by itself is that the word might be no option, and the
/// nearest name of this command, however far.
pub fn suggest(error: &mut clap::Error, all: &clap::Command, command: &str) {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) = (error.kind(), error.get(ContextKind::InvalidArg)) else { return };
    let Some(name) = word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name).to_owned()) else { return };
    error.remove(ContextKind::Suggested);
    let tip = |error: &mut clap::Error, tip: String| {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    };
    let meant = MEANT.iter().find(|(commands, names, _)| commands.contains(&command) && names.contains(&name.as_str()));
    if let Some((_, _, words)) = meant {
        return tip(error, (*words).to_owned());
    }
    if error.get(ContextKind::SuggestedArg).is_some() {
        return;
    }
    let has = |sub: &&clap::Command| sub.get_arguments().any(|arg| arg.get_long() == Some(&name));
    let others: Vec<String> = all.get_subcommands().filter(has).map(|sub| format!("`reap {}`", sub.get_name())).collect();
    if !others.is_empty() {
        tip(error, format!("--{name} is an option of {}", others.join(", ")));
    } else if command == "run" {
        if let Some(near) = fio::nearest_option(&name) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
        }
    } else if fio::option(&name).is_some() {
        let file = if command == "compare" { ": reap compare job.fio" } else { "" };
        tip(error, format!("{name} is an option of jobs: `reap run` takes it on its command line, other commands in a job file{file}"));
    }
}
