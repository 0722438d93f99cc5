//! `reap sim`: scenarios in virtual time, the posts' tables, and sweeps.
//!
//! [`scenario`] runs a file's scenario under several modes and makes of it the rows that `compare` prints too; [`sweep`] runs
//! a grid of cells; [`replay`] makes a scenario of a recording; [`pool`] spreads runs over the cores. What is simulated is the crate `sim`'s.

mod files;
mod pool;
mod published;
mod replay;
mod scenario;
mod sweep;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::SimArgs;

/// Simulates, and prints the table.
///
/// # Errors
/// Bad input, and a scenario that breaks a law.
pub fn sim(args: &SimArgs) -> Result<ExitCode> {
    match (args.sweep, args.published, args.calibrate) {
        (true, ..) => sweep::run(args),
        (_, _, true) => published::calibrate(),
        (_, true, _) => published::run(args),
        _ => scenario::run(args),
    }
}
