//! Scenario files in TOML; errors have line and column. `docs/simulator.md` lists every key.
//!
//! ```text
//! text --toml/serde--> raw::File (keys as written) --build--> ScenarioFile (checked)
//! ```

mod build;
mod raw;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use emu::Profile;
use workload::fio::{Environment, ParseErrors};

use crate::Costs;

pub use crate::costs::{COSTS, costs_of};
pub use build::ScenarioFile;

/// Reads the scenario `text`. Job files that it names come from `env`, by a path relative to the
/// working directory or to `name`.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read(name: &str, text: &str, env: &dyn Environment) -> Result<ScenarioFile, FileError> {
    let source = Source { name, text };
    build::scenario(source, build::parse(source)?, env)
}

/// Reads a price list file: the table that a scenario has under `[machine.costs]`. `reap calibrate`
/// writes such files.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read_costs(name: &str, text: &str) -> Result<Costs, FileError> {
    let source = Source { name, text };
    build::costs(source, &build::parse(source)?)
}

/// Reads a drive's profile: the table that a device of a scenario has under `profile`. The profile
/// gets the name of the file, without directory and extension.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read_profile(name: &str, text: &str) -> Result<Profile, FileError> {
    let file: Profile = build::parse(Source { name, text })?;
    let stem = Path::new(name)
        .file_stem()
        .map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok(Profile { name: stem, ..file })
}

/// A mistake in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// `name:line:column`, or the name alone; empty if `what` contains it.
    place: String,
    what: String,
    help: Option<String>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}

impl FileError {
    /// Adds what to do about it.
    fn help(mut self, help: impl Into<String>) -> FileError {
        self.help = Some(help.into());
        self
    }

    /// Adds the nearest of the known names, or else `other`.
    fn nearest<'a>(
        self,
        given: &str,
        names: impl Iterator<Item = &'a str>,
        other: impl Into<String>,
    ) -> FileError {
        match units::nearest_name(given, names) {
            Some(near) => self.help(format!("did you mean '{near}'?")),
            None => self.help(other),
        }
    }

    /// A mistake in a fio job. The parser's message names its place.
    fn job(errors: &ParseErrors) -> FileError {
        FileError { place: String::new(), what: errors.to_string(), help: None }
    }
}

/// The text that is read, with its name for messages.
#[derive(Clone, Copy)]
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// A mistake at these bytes of the text; `None`: in the whole text.
    fn error(self, at: Option<Range<usize>>, what: impl Into<String>) -> FileError {
        let place = match at {
            Some(at) => {
                let (line, column) = self.place(at.start);
                format!("{}:{line}:{column}", self.name)
            }
            None => self.name.to_owned(),
        };
        FileError { place, what: what.into(), help: None }
    }

    /// Line and column of a byte, both from 1; columns are characters.
    fn place(self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_at = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_at..].chars().count() + 1)
    }

    /// The TOML reader's message, in words of TOML instead of Rust, with the nearest name where it
    /// lists the known ones.
    fn toml(self, error: &toml::de::Error) -> FileError {
        const WORDS: [(&str, &str); 11] = [
            ("u8", "a whole number up to 255"),
            ("u16", "a whole number up to 65535"),
            ("u32", "a whole number up to 4294967295"),
            ("u64", "a whole number"),
            ("usize", "a whole number"),
            ("a nonzero u16", "a whole number from 1 to 65535"),
            ("a nonzero u32", "a whole number from 1 to 4294967295"),
            ("a nonzero u64", "a whole number from 1 on"),
            ("a sequence", "a list"),
            ("a map", "a table"),
            ("a boolean", "true or false"),
        ];
        let message = error.message().trim();
        let what = match message.rsplit_once(", expected ") {
            Some((found, expected)) => {
                let words = WORDS
                    .iter()
                    .find(|(rust, _)| *rust == expected)
                    .map_or(expected, |(_, words)| words);
                format!("{found}, expected {words}")
            }
            None => message.to_owned(),
        };
        let mistake = self.error(error.span(), what);
        // "unknown field `a`, expected one of `b`, `c`": suggests the known name most like `a`.
        let mut quoted = message.split('`').skip(1).step_by(2);
        let given = quoted.next().filter(|_| message.starts_with("unknown "));
        match given.and_then(|given| units::nearest_name(given, quoted)) {
            Some(near) => mistake.help(format!("did you mean '{near}'?")),
            None => mistake,
        }
    }
}

#[cfg(test)]
mod tests;
