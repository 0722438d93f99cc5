//! Developer commands: `cargo xtask published` (simulator against published figures) and `cargo
//! xtask judge` (`adaptive` against the fixed modes).
#![forbid(unsafe_code)]

mod judge;
mod output;
mod published;

use anyhow::Result;
use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
enum Task {
    /// Compares figures published on mailing lists with the simulator's, and scores its predictions
    Published(published::PublishedArgs),
    /// Compares `adaptive` with the best fixed mode in about 200 combinations of machine, device
    /// and load in the simulator
    Judge(judge::JudgeArgs),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Published(args) => published::run(&args),
        Task::Judge(args) => judge::run(&args),
    }
}
