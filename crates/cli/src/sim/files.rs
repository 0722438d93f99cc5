//! The files that a simulation writes beside its table.

use std::path::Path;

use anyhow::Result;

use crate::args::SimArgs;
use crate::output::{self, Aside};

/// The files that `--json` and `--html` ask for, which are none of those that are read.
///
/// # Errors
/// One of them is, or cannot be created.
pub fn beside(args: &SimArgs) -> Result<(Aside, Aside)> {
    let (json, html) = (args.json.as_deref(), args.html.as_deref());
    let costs = args.costs.as_deref().filter(|costs| costs.ends_with(".toml")).map(Path::new);
    let read = [args.scenario.as_deref(), args.replay.as_deref(), costs];
    output::apart(read.into_iter().flatten(), &[("--json", json), ("--html", html)])?;
    Ok((Aside::open(json)?, Aside::open(html)?))
}
