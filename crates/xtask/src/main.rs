//! What only this project's authors run: `cargo xtask published`, `cargo xtask sweep`.
#![forbid(unsafe_code)]

mod output;
mod published;
mod sweep;

use anyhow::Result;
use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
enum Task {
    /// The posts' tables: what was published, what the simulator says, and how good its predictions are
    Published(published::PublishedArgs),
    /// All modes in many cells of the simulator, and where another mode dominates adaptive at its default
    Sweep(sweep::SweepArgs),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Published(args) => published::run(&args),
        Task::Sweep(args) => sweep::run(&args),
    }
}
