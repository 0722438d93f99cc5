//! fio job files, read as fio reads them.
//!
//! Lines become sections, and variables are replaced (`ini`), values are read (`values`) into the options
//! that Reap knows (`options`) or that at least fio knows (`known`). One pass finds all errors it can.
//!
//! Where fio silently misreads a value, this is an error: trailing rubbish (`4kfoo` is 4 KiB to fio), fractions
//! (`1.5k` is one byte), unknown units of time (`1min` is a microsecond), a section without `]`.

mod ini;
mod iolog;
mod known;
mod options;
mod values;

pub use iolog::read_iolog;
pub use units::cpus;

use crate::job::Job;
use ini::{Line, MAX_LINE, Section, expand, shorten};
use options::Draft;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Errors that are shown; the others are counted.
const MOST_ERRORS: usize = 100;

/// What the job files say.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The jobs in order; never empty.
    pub jobs: Vec<Job>,
    /// The options of the `[global]` sections as written: names, and values where there is an equals sign.
    pub globals: Vec<(String, Option<String>)>,
    /// What the user should know: options that Reap does not have yet (one for each), and what contradicts itself.
    pub warnings: Vec<Diagnostic>,
    /// What the user may want to know: that the device decides, not `ioengine`.
    pub notes: Vec<Diagnostic>,
}

/// A job file, in memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its name, for messages and for relative includes.
    pub name: &'a str,
    /// Its bytes.
    pub text: &'a [u8],
}

/// What reading a job file needs of the world.
pub trait Outside {
    /// The file that `from` includes as `path`: its name (one per file, however it was spelled, so that circles are
    /// seen) and its bytes; or why there is none. fio looks in the working directory, then beside `from`.
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String>;

    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
}

/// A world without files and variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Outside for Nothing {
    fn include(&self, _from: &str, _path: &str) -> Result<(String, Vec<u8>), String> {
        Err("there are no files here".into())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

/// A place in a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file's name as it was given.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// An error, a warning or a note about a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where; `None`: the job files as a whole.
    pub location: Option<Location>,
    /// What.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    fn at(location: &Location, message: impl Into<String>) -> Diagnostic {
        Diagnostic { location: Some(location.clone()), message: message.into(), help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with the job files, as far as one pass finds it; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseErrors(pub Vec<Diagnostic>);

impl fmt::Display for ParseErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ParseErrors {}

/// What may follow the name of a job's option on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// A value.
    Value,
    /// Nothing: alone it says yes.
    Nothing,
}

/// Whether fio has an option of this name, and what follows it; `None`: it has none.
pub fn option(name: &str) -> Option<Follows> {
    let other = || options::names().any(|known| known == name).then_some(Follows::Value);
    options::find(name).map(|option| option.follows).or_else(other)
}

/// The name of an option of fio's that is nearest to `name`, if one is near.
pub fn nearest_option(name: &str) -> Option<&'static str> {
    units::nearest(name, options::names())
}

/// Reads job files as given on one command line: each starts without `[global]` options, and its first job waits for the
/// jobs of the files before it.
pub fn parse(files: &[Input<'_>], outside: &dyn Outside) -> Result<Parsed, ParseErrors> {
    let mut parser = Parser { outside, parsed: Parsed::default(), errors: Vec::new(), globals: Draft::default(), told: BTreeSet::new() };
    for (index, file) in files.iter().enumerate() {
        let mut wall = index > 0;
        parser.globals = Draft::default();
        for section in ini::sections(file, outside, &mut parser.errors) {
            wall &= !parser.section(section, wall);
        }
    }
    parser.finish()
}

struct Parser<'a> {
    outside: &'a dyn Outside,
    parsed: Parsed,
    errors: Vec<Diagnostic>,
    globals: Draft,
    /// Names that were warned about.
    told: BTreeSet<String>,
}

impl Parser<'_> {
    /// Reads one section; `wall`: its job waits for all earlier ones. Whether it was a job.
    fn section(&mut self, section: Section, wall: bool) -> bool {
        // Not only [global]: fio looks at the first six letters.
        let global = section.name.starts_with("global");
        let mut draft = self.globals.clone();
        let mut options = Vec::new();
        for line in section.lines {
            options.extend(self.option(&line, &mut draft));
        }
        if global {
            self.globals = draft;
            self.parsed.globals.extend(options);
            return false;
        }
        if self.parsed.jobs.len() as u64 > options::MOST_JOBS {
            // Too many: an error at the end. What follows is not kept.
            return true;
        }
        let at = &section.location;
        let mut list = None;
        if let Some(name) = &draft.iolog {
            let read = self.outside.include(&at.file, name).and_then(|(name, text)| read_iolog(&name, &text, draft.no_stall));
            list = read.map_err(|why| self.errors.push(Diagnostic::at(at, format!("read_iolog={}: {why}", shorten(name, 60))))).ok();
        }
        // Before `directory` is applied, to these names as well.
        if let Some(list) = list.as_ref().filter(|_| draft.job.filenames.is_empty()) {
            draft.job.filenames.clone_from(&list.files);
        }
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let mut job = draft.finish(&section.name, &mut errors, &mut warnings);
        if let Some(list) = list {
            job.replays(list);
        }
        let on = |message: String| Diagnostic::at(at, format!("job '{}': {message}", shorten(&section.name, 60)));
        self.errors.extend(errors.into_iter().map(on));
        self.parsed.warnings.extend(warnings.into_iter().map(on));
        job.stonewall |= wall;
        job.options = options;
        self.parsed.jobs.push(job);
        true
    }

    /// Reads one option: its name, and its value where there is an equals sign.
    fn option(&mut self, line: &Line, draft: &mut Draft) -> Option<(String, Option<String>)> {
        let (text, unset) = expand(&line.text, self.outside);
        if text.len() > MAX_LINE {
            let message = format!("with its variables this line has more than {MAX_LINE} bytes");
            self.errors.push(Diagnostic::at(&line.location, message));
            return None;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim())),
            None => (text.as_str(), None),
        };
        let help = not_set(&unset);
        if name.is_empty() {
            self.errors.push(Diagnostic { help, ..Diagnostic::at(&line.location, "an option without a name") });
            return None;
        }
        if let Some(option) = options::find(name) {
            let set = match (value, option.follows) {
                (None, Follows::Nothing) => (option.set)(draft, "1"),
                (None | Some(""), _) => Err("needs a value".to_owned()),
                (Some(text), _) => (option.set)(draft, text),
            };
            if let Err(bad) = set {
                let before = line.text.split_once('=').map_or(0, |(name, value)| name.len() + 1 + value.len() - value.trim_start().len());
                let columns = line.text.get(..before).map_or(0, |text| text.chars().count()) as u32;
                let at = Location { column: line.location.column + columns, ..line.location.clone() };
                self.errors.push(Diagnostic { help, ..Diagnostic::at(&at, format!("{name}: {}", shorten(&bad, 200))) });
            } else if name == "ioengine" && self.told.insert(name.to_owned()) {
                let engine = draft.job.engine.name.as_deref().unwrap_or_default();
                let synchronous = matches!(engine, "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" | "splice");
                let depth = if synchronous { "; iodepth holds here, where fio has one I/O in flight" } else { "" };
                let note = format!("ioengine={engine} is noted for the results only: the device URI decides{depth}");
                self.parsed.notes.push(Diagnostic::at(&line.location, note));
            }
        } else {
            self.unknown(name, value, &line.location);
        }
        Some((name.to_owned(), value.map(str::to_owned)))
    }

    fn unknown(&mut self, name: &str, value: Option<&str>, at: &Location) {
        // What is off is not missed.
        let off = |value: &str| value == "0" || value == "none";
        if let Some((_, usual)) = known::REFUSED.iter().find(|(other, _)| *other == name) {
            let value = value.unwrap_or("1");
            if !off(value) && value != *usual {
                self.errors.push(Diagnostic::at(at, options::refused(&format!("{name}={}", shorten(value, 60)))));
            }
        } else if known::OPTIONS.contains(&name) {
            if !value.is_some_and(off) && self.told.insert(name.to_owned()) {
                let warning = format!("fio's option '{name}' does not change the I/O; it is ignored");
                self.parsed.warnings.push(Diagnostic::at(at, warning));
            }
        } else {
            // A file with this many errors is no job file.
            let near = if self.errors.len() < MOST_ERRORS { nearest_option(name) } else { None };
            let error = Diagnostic::at(at, format!("there is no option '{}'", shorten(name, 60)));
            self.errors.push(Diagnostic { help: near.map(|near| format!("did you mean '{near}'?")), ..error });
        }
    }

    fn finish(mut self) -> Result<Parsed, ParseErrors> {
        let whole = |message: String| Diagnostic { location: None, message, help: None };
        let threads: u64 = self.parsed.jobs.iter().map(|job| u64::from(job.numjobs)).sum();
        if threads > options::MOST_JOBS {
            self.errors.push(whole(format!("{threads} job threads in all; the most is {}", options::MOST_JOBS)));
        }
        if self.errors.len() > MOST_ERRORS {
            let more = self.errors.len() - MOST_ERRORS;
            self.errors.truncate(MOST_ERRORS);
            self.errors.push(whole(format!("and {more} more errors")));
        }
        if self.errors.is_empty() && self.parsed.jobs.is_empty() {
            self.errors.push(whole("there is no job: each section but [global] is one".into()));
        }
        if self.errors.is_empty() { Ok(self.parsed) } else { Err(ParseErrors(self.errors)) }
    }
}

/// What to say of variables that are not set.
fn not_set(names: &[String]) -> Option<String> {
    let shown: Vec<String> = names.iter().map(|name| format!("${{{}}}", shorten(name, 60))).collect();
    let empty = if names.len() == 1 { "it is empty" } else { "they are empty" };
    (!names.is_empty()).then(|| format!("{} not set: {empty}", shown.join(", ")))
}

#[cfg(test)]
mod tests;
