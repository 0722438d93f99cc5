//! Scenarios as people write them: TOML files, read with the place of every mistake. `docs/simulator.md` lists every key.

mod build;
mod error;
mod raw;
mod words;

use completion::Mode;
use serde::de::DeserializeOwned;
use workload::fio::Outside;

use crate::{Costs, Scenario};

pub use error::FileError;
use error::Source;

/// No scenario is this long.
const MOST_BYTES: usize = 1 << 20;

/// A scenario file that was read: what is simulated, under which modes, and how often.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    /// One line: what it shows.
    pub title: String,
    /// What is simulated, in the first of the modes and with the first seed.
    pub scenario: Scenario,
    /// The modes to compare; empty: all.
    pub modes: Vec<Mode>,
    /// How many seeds, from the scenario's own on.
    pub seeds: u32,
    /// What the reader of the jobs had to warn of.
    pub warnings: Vec<String>,
}

/// Reads the scenario `text`. Jobs that stand in files of their own come from `outside`, by a path relative to the
/// working directory or to `name`.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read(name: &str, text: &str, outside: &dyn Outside) -> Result<ScenarioFile, FileError> {
    let source = Source { name, text };
    build::scenario(source, parse(source)?, outside)
}

/// The price list of this name: `bare-metal` or `vm`.
pub fn costs_of(name: &str) -> Option<Costs> {
    COSTS.iter().find(|(known, _)| *known == name).map(|(_, costs)| *costs)
}

/// Reads a file that holds a price list: the table that a scenario has under `[machine.costs]`, such as `reap calibrate`
/// writes.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read_costs(name: &str, text: &str) -> Result<Costs, FileError> {
    build::price_list(Source { name, text })
}

/// The price lists by name.
pub const COSTS: [(&str, Costs); 2] = [("bare-metal", Costs::BARE_METAL), ("vm", Costs::VIRTUAL)];

fn parse<T: DeserializeOwned>(source: Source<'_>) -> Result<T, FileError> {
    if source.text.len() > MOST_BYTES {
        return Err(source.error(None, format!("it is longer than {} MiB: that is no scenario", MOST_BYTES >> 20)));
    }
    toml::from_str(source.text).map_err(|error| source.toml(&error))
}

#[cfg(test)]
mod tests;
