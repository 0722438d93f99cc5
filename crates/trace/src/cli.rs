//! The subcommand `reap trace`: its arguments, and [`run`].

use crate::Error;
pub use crate::settings::{Mode, TraceArgs};
use crate::settings::{Settings, seconds, usage};
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

/// Maximum number of `-d`: the filters of the eBPF program (`FILTERS` in `bpf/shared.h`).
const FILTERS: usize = 8;

impl Settings {
    pub(crate) fn of(args: &TraceArgs) -> Result<Settings, Error> {
        let mut words = args.words.iter().map(String::as_str).peekable();
        let named =
            words.peek().and_then(|word| Mode::ALL.into_iter().find(|mode| mode.name() == *word));
        if named.is_some() {
            words.next();
        }
        let mode = named.unwrap_or_default();
        // A single word that is not a number is probably a misspelt mode.
        let interval = match words.next() {
            None => Duration::from_secs(2),
            Some(word) => interval(word, args.words.len() == 1 && named.is_none())?,
        };
        let count = match words.next() {
            None => u64::MAX,
            Some(word) => match word.parse() {
                Ok(count) if count > 0 => count,
                _ => {
                    return usage(format!(
                        "COUNT is how many times to print, 1 or more, not `{word}`"
                    ));
                }
            },
        };
        if let Some(word) = words.next() {
            return usage(format!(
                "`{word}` is one argument too many: the arguments are MODE, INTERVAL and COUNT"
            ));
        }
        // `--freq N` traces one interrupt in N. A rate is a sum over all, so none may be left out.
        if mode == Mode::Rate && args.freq.is_some_and(|freq| freq > 1) {
            return usage("`rate` counts every interrupt: --freq goes with `completions`, `delay` and `latency`".into());
        }
        // `latency` selects requests when they are issued, when no interrupt line is known yet.
        if mode == Mode::Latency && !args.lines.is_empty() {
            return usage(
                "`latency` selects devices, not interrupt lines: use -d instead of --line".into(),
            );
        }
        if args.devices.len() > FILTERS {
            return usage(format!("at most {FILTERS} devices can be chosen with -d"));
        }
        Ok(Settings { mode, interval, count, freq: args.freq.unwrap_or(1), args: args.clone() })
    }
}

/// Parses INTERVAL, where the user may have meant a mode.
fn interval(word: &str, maybe_mode: bool) -> Result<Duration, Error> {
    seconds(word).or_else(|what| {
        let no_number = word.parse::<f64>().is_err();
        if no_number && (maybe_mode || word.chars().all(char::is_alphabetic)) {
            let modes = Mode::ALL.map(Mode::name).join(", ");
            return usage(format!("`{word}` is neither a mode ({modes}) nor a number of seconds"));
        }
        usage(format!("INTERVAL `{word}`: {what}"))
    })
}

/// Traces until COUNT, `--duration`, Ctrl-C or SIGTERM ends the run, and prints to `out`. Returns
/// the document for `--json`, which the caller writes. However the run ends, nothing stays attached
/// to the kernel.
///
/// # Errors
/// See [`Error`].
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<Value, Error> {
    let settings = Settings::of(args)?;
    #[cfg(feature = "ebpf")]
    return crate::ebpf::run(&settings, out);
    #[cfg(not(feature = "ebpf"))]
    {
        let _ = (settings, out);
        Err(Error::NotBuilt)
    }
}

#[cfg(test)]
mod tests;
