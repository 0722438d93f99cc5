//! Scenarios as people write them: TOML files, read with the place of every mistake. `docs/simulator.md` lists every key.

mod build;
mod error;
mod raw;
mod shared;
mod words;

use std::path::Path;

use emu::Profile;
use workload::fio::Outside;

use crate::Costs;

pub use crate::costs::{COSTS, costs_of};
pub use build::ScenarioFile;
pub use error::FileError;
use error::Source;

/// Reads the scenario `text`. Jobs that stand in files of their own come from `outside`, by a path relative to the
/// working directory or to `name`.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read(name: &str, text: &str, outside: &dyn Outside) -> Result<ScenarioFile, FileError> {
    let source = Source { name, text };
    build::scenario(source, build::parse(source)?, outside)
}

/// Reads a file that holds a price list: the table that a scenario has under `[machine.costs]`, such as `reap calibrate`
/// writes.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read_costs(name: &str, text: &str) -> Result<Costs, FileError> {
    build::price_list(Source { name, text })
}

/// Reads a file that holds a drive's profile, as a scenario's device has it under `profile`. It is called as the file is, without its
/// directory and its ending.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read_profile(name: &str, text: &str) -> Result<Profile, FileError> {
    let file: Profile = build::parse(Source { name, text })?;
    let stem = Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok(Profile { name: stem, ..file })
}

#[cfg(test)]
mod tests;
