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
    /// The posts' tables: what was published, what the simulator says, and how good its predictions
    /// are
    Published(published::PublishedArgs),
    /// What adaptive gives up against the best fixed mode, in 200 cells of the simulator
    Judge(judge::JudgeArgs),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Published(args) => published::run(&args),
        Task::Judge(args) => judge::run(&args),
    }
}
