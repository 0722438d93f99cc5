//! The arguments of `reap trace` as given, and as checked.

use crate::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `reap trace [MODE] [OPTIONS] [INTERVAL [COUNT]]`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    override_usage = "reap trace [MODE] [OPTIONS] [INTERVAL [COUNT]]",
    after_help = "Modes:\n  completions  block completions per interrupt, by interrupt line (the default)\n  delay        from the interrupt to the \
                  softirq or poller that handles it, and to the completion\n  rate         interrupts and completions per second, time in hard \
                  interrupt and softirq, by line and by CPU\n  latency      from issue to completion, by device, operation and \
                  size\n\nExamples:\n  reap trace                        every 2 s until Ctrl-C\n  reap trace -T 1 10                10 times 1 s, with \
                  the time of day\n  reap trace delay -Q --freq 100    by hardware queue, one interrupt in 100\n  reap trace latency -m -d vda      \
                  one device, in milliseconds\n\ndocs/trace.md says what each number means."
)]
pub struct TraceArgs {
    /// MODE: `completions`, `delay`, `rate` or `latency`; INTERVAL: seconds between outputs
    /// [default: 2]; COUNT: number of outputs [default: no limit]
    #[arg(value_name = "MODE | INTERVAL | COUNT", num_args = 0.., hide_possible_values = true)]
    pub words: Vec<String>,
    /// Print the time of day with each output
    #[arg(short = 'T', long)]
    pub timestamp: bool,
    /// Histograms of time in milliseconds instead of microseconds
    #[arg(short = 'm', long)]
    pub milliseconds: bool,
    /// By hardware queue instead of by interrupt line or device
    #[arg(short = 'Q', long)]
    pub queues: bool,
    /// Sample one interrupt in N, with all completions until the next interrupt of the line; in
    /// mode `latency`: one request in N
    #[arg(long, value_name = "N", value_parser = one_in)]
    pub freq: Option<u32>,
    /// Only this block device (may be given several times)
    #[arg(short = 'd', long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Only this interrupt line, by name or number (may be given several times)
    #[arg(short = 'l', long = "line", value_name = "LINE")]
    pub lines: Vec<String>,
    /// Also write all counts to this file; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
}

/// What to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Completions per interrupt.
    #[default]
    Completions,
    /// Time from the interrupt to softirq and completion.
    Delay,
    /// Interrupts and completions per second, and CPU time.
    Rate,
    /// Time from issue to completion.
    Latency,
}

impl Mode {
    /// All modes, in the order of `enum mode` in `bpf/shared.h`.
    pub const ALL: [Mode; 4] = [Mode::Completions, Mode::Delay, Mode::Rate, Mode::Latency];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Completions => "completions",
            Mode::Delay => "delay",
            Mode::Rate => "rate",
            Mode::Latency => "latency",
        }
    }
}

/// Checked arguments.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub mode: Mode,
    pub interval: Duration,
    pub count: u64,
    pub freq: u32,
    /// The remaining arguments, as given.
    pub args: TraceArgs,
}

/// The error for an invalid argument.
pub(crate) fn usage<T>(why: String) -> Result<T, Error> {
    Err(Error::Usage(why))
}

/// Parses N of `--freq N`.
fn one_in(word: &str) -> Result<u32, String> {
    let many = word.parse::<u32>().ok().filter(|many| *many > 0);
    many.ok_or_else(|| "give a whole number, 1 or more: 0 would sample nothing".to_owned())
}

/// Parses a duration in seconds, from a millisecond to a year.
pub(crate) fn seconds(word: &str) -> Result<Duration, String> {
    // `contains` is false for NaN.
    let seconds =
        word.parse::<f64>().ok().filter(|seconds| (0.001..=31_536_000.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a number of seconds between 0.001 and 31536000".to_owned())
}
