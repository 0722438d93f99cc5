//! What is traced, and how it is shown: the arguments of `reap trace` once they make sense.

use std::time::Duration;

/// What is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Completions per interrupt.
    #[default]
    Completions,
    /// From the interrupt to softirq and completion.
    Delay,
    /// Interrupts and completions per second, and their time.
    Rate,
    /// From issue to completion.
    Latency,
}

impl Mode {
    /// All, in the order of the program's `enum mode`.
    pub const ALL: [Mode; 4] = [Mode::Completions, Mode::Delay, Mode::Rate, Mode::Latency];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Completions => "completions",
            Mode::Delay => "delay",
            Mode::Rate => "rate",
            Mode::Latency => "latency",
        }
    }
}

/// Arguments that make sense.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub mode: Mode,
    pub interval: Duration,
    pub count: u64,
    pub duration: Option<Duration>,
    pub timestamp: bool,
    pub milliseconds: bool,
    pub queues: bool,
    pub freq: u32,
    pub devices: Vec<String>,
    pub lines: Vec<String>,
}
