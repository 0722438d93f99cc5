//! What is wrong with a scenario, and where.

use std::fmt;
use std::ops::Range;

use workload::fio::ParseErrors;

/// A mistake in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// `name:line:column`, or the name alone; empty where `what` says it.
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

/// The text that is being read, to say where something stands.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// A mistake at these bytes of the text; `None`: in all of it.
    pub(super) fn error(self, at: Option<Range<usize>>, what: impl Into<String>) -> FileError {
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
    pub(super) fn place(self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_at = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_at..].chars().count() + 1)
    }

    /// What the TOML reader says, with the nearest name where it lists those that it knows.
    pub(super) fn toml(self, error: &toml::de::Error) -> FileError {
        let message = error.message().trim();
        let said = self.error(error.span(), plainly(message));
        match nearest_listed(message) {
            Some(near) => said.help(format!("did you mean '{near}'?")),
            None => said,
        }
    }
}

impl FileError {
    /// With what to do about it.
    pub(super) fn help(mut self, help: impl Into<String>) -> FileError {
        self.help = Some(help.into());
        self
    }

    /// The job reader's own words, which say where.
    pub(super) fn job(errors: &ParseErrors) -> FileError {
        FileError { place: String::new(), what: errors.to_string(), help: None }
    }
}

/// What the reader expected, in words of TOML instead of Rust's.
fn plainly(message: &str) -> String {
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
    let Some((said, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let words = WORDS.iter().find(|(rust, _)| *rust == expected).map_or(expected, |(_, words)| words);
    format!("{said}, expected {words}")
}

/// Of "unknown field `a`, expected one of `b`, `c`": the name most like the first.
fn nearest_listed(message: &str) -> Option<&str> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let given = quoted.next().filter(|_| message.starts_with("unknown "))?;
    units::nearest(given, quoted)
}
