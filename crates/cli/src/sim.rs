//! `reap sim`: scenarios in virtual time, the posts' tables, and sweeps.
//!
//! [`scenario`] runs a file's scenario under several modes and makes of it the rows that `compare` prints too; [`sweep`] runs
//! a grid of cells; [`replay`] makes a scenario of a recording; [`pool`] spreads runs over the cores. What is simulated is the crate `sim`'s.

mod pool;
mod published;
mod replay;
mod scenario;
mod sweep;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::args::SimArgs;
use crate::output::{self, Aside};

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

/// The files that `--json` and `--html` ask for, which are none of those that are read.
///
/// # Errors
/// One of them is, or cannot be created.
fn files(args: &SimArgs) -> Result<(Aside, Aside)> {
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    let costs = args.costs.as_deref().filter(|costs| costs.ends_with(".toml")).map(Path::new);
    let read = [args.scenario.as_deref(), args.replay.as_deref(), costs];
    output::apart(read.into_iter().flatten(), &[("--json", json), ("--html", html)])?;
    Ok((Aside::open(json)?, Aside::open(html)?))
}
