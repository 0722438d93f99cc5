//! The parser of fio job files. `ini` splits files into sections and replaces variables, `values`
//! parses values, `options` has the supported options, `known` the names of fio's other ones. All
//! errors of the files are reported together.
//!
//! Values that fio misreads without an error are errors here: trailing characters (fio reads
//! `4kfoo` as 4 KiB), fractions (`1.5k` as one byte), unknown units of time (`1min` as a
//! microsecond), a section without `]`.

mod ini;
mod iolog;
mod known;
mod options;
mod values;

pub use iolog::read_iolog;
pub use units::cpus;

use crate::job::Job;
use ini::{MAX_LINE, OptionLine, Section, expand, shorten};
use options::JobBuilder;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Maximum number of errors that are shown; further ones are only counted.
const MAX_ERRORS: usize = 100;

/// The contents of job files.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The jobs in order; never empty.
    pub jobs: Vec<Job>,
    /// The options of the `[global]` sections as written, with their values if they have one.
    pub globals: Vec<(String, Option<String>)>,
    /// Ignored options (each once) and contradictions.
    pub warnings: Vec<Diagnostic>,
    /// Remarks, such as that `ioengine` has no effect.
    pub notes: Vec<Diagnostic>,
}

/// A job file in memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The file's name, for messages and for relative includes.
    pub name: &'a str,
    /// The file's bytes.
    pub text: &'a [u8],
}

/// The files and environment variables that a job file refers to.
pub trait Environment {
    /// The name and contents of the file that the file `from` includes as `path`. The name
    /// is canonical: all paths to a file give the same name, so that cycles are detected. fio
    /// searches the working directory, then the directory of `from`.
    ///
    /// # Errors
    /// Why the file cannot be read.
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String>;

    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
}

/// An environment without files and variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Environment for Nothing {
    fn include(&self, _from: &str, _path: &str) -> Result<(String, Vec<u8>), String> {
        Err("there are no files here".into())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

/// A position in a job file.
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
    /// The position; `None`: the job files as a whole.
    pub location: Option<Location>,
    /// What is wrong.
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

/// The errors of the job files; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseErrors(pub Vec<Diagnostic>);

impl fmt::Display for ParseErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ParseErrors {}

/// Whether an option of jobs needs a value on a command line (`has_arg` of getopt_long(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value, always.
    Required,
    /// A value or nothing, which means 1.
    Optional,
}

/// Whether the fio option `name` needs a value; `None`: fio has no such option.
pub fn option(name: &str) -> Option<Argument> {
    let other = || options::names().any(|known| known == name).then_some(Argument::Required);
    options::find(name).map(|option| option.argument).or_else(other)
}

/// The fio option whose name is similar to `name`, for a suggestion.
pub fn nearest_option(name: &str) -> Option<&'static str> {
    units::nearest_name(name, options::names())
}

/// Parses the job files of one command line. As in fio each file starts without `[global]` options,
/// and its first job waits for all jobs of the files before it.
///
/// # Errors
/// All errors of the files.
pub fn parse(files: &[Input<'_>], env: &dyn Environment) -> Result<Parsed, ParseErrors> {
    let mut parser = Parser {
        env,
        parsed: Parsed::default(),
        errors: Vec::new(),
        globals: JobBuilder::default(),
        warned: BTreeSet::new(),
    };
    for (index, file) in files.iter().enumerate() {
        let mut stonewall = index > 0;
        // Options of `[global]` do not apply to the next file.
        parser.globals = JobBuilder::default();
        for section in ini::sections(file, env, &mut parser.errors) {
            stonewall &= !parser.section(section, stonewall);
        }
    }
    parser.finish()
}

struct Parser<'a> {
    env: &'a dyn Environment,
    parsed: Parsed,
    errors: Vec<Diagnostic>,
    globals: JobBuilder,
    /// Options that were warned about.
    warned: BTreeSet<String>,
}

impl Parser<'_> {
    /// Parses one section. `stonewall`: the section's job waits for all earlier jobs. Returns
    /// whether the section was a job.
    fn section(&mut self, section: Section, stonewall: bool) -> bool {
        // As in fio, [global2] and the like are global, too.
        let global = section.name.starts_with("global");
        let mut draft = self.globals.clone();
        let mut options = Vec::new();
        for line in section.lines {
            options.extend(self.option(&line, &mut draft));
        }
        // Options of a global section apply to the sections after it only.
        if global {
            self.globals = draft;
            self.parsed.globals.extend(options);
            return false;
        }
        if self.parsed.jobs.len() as u64 > options::MAX_JOBS {
            // `Parser::finish` reports the error. Further jobs would only take memory.
            return true;
        }
        let at = &section.location;
        let mut list = None;
        if let Some(name) = &draft.iolog {
            let read = self
                .env
                .include(&at.file, name)
                .and_then(|(name, text)| read_iolog(&name, &text, draft.no_stall));
            list = read
                .map_err(|why| {
                    self.errors.push(Diagnostic::at(
                        at,
                        format!("read_iolog={}: {why}", shorten(name, 60)),
                    ))
                })
                .ok();
        }
        // Set before `JobBuilder::finish`, which puts `directory` before the names of these files
        // as well.
        if let Some(list) = list.as_ref().filter(|_| draft.job.filenames.is_empty()) {
            draft.job.filenames.clone_from(&list.files);
        }
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let mut job = draft.finish(&section.name, &mut errors, &mut warnings);
        // Set after `JobBuilder::finish`, because the log overrides rw=.
        if let Some(list) = list {
            job.set_iolog(list);
        }
        let on = |message: String| {
            Diagnostic::at(at, format!("job '{}': {message}", shorten(&section.name, 60)))
        };
        self.errors.extend(errors.into_iter().map(on));
        self.parsed.warnings.extend(warnings.into_iter().map(on));
        job.stonewall |= stonewall;
        job.options = options;
        self.parsed.jobs.push(job);
        true
    }

    /// Applies one option. Returns its name, and its value if it has one.
    fn option(
        &mut self,
        line: &OptionLine,
        draft: &mut JobBuilder,
    ) -> Option<(String, Option<String>)> {
        let (text, unset) = expand(&line.text, self.env);
        if text.len() > MAX_LINE {
            let message =
                format!("after variables are replaced, this line has more than {MAX_LINE} bytes");
            self.errors.push(Diagnostic::at(&line.location, message));
            return None;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim())),
            None => (text.as_str(), None),
        };
        // An unset variable is often the cause of an error in the value.
        let help = not_set(&unset);
        if name.is_empty() {
            self.errors.push(Diagnostic {
                help,
                ..Diagnostic::at(&line.location, "an option without a name")
            });
            return None;
        }
        if let Some(option) = options::find(name) {
            let set = match (value, option.argument) {
                (None, Argument::Optional) => (option.set)(draft, "1"),
                (None | Some(""), _) => Err("this option needs a value".to_owned()),
                (Some(text), _) => (option.set)(draft, text),
            };
            // The error is reported at the value's column, not at the option's.
            if let Err(bad) = set {
                let before = line.text.split_once('=').map_or(0, |(name, value)| {
                    name.len() + 1 + value.len() - value.trim_start().len()
                });
                let columns = line.text.get(..before).map_or(0, |text| text.chars().count()) as u32;
                let at =
                    Location { column: line.location.column + columns, ..line.location.clone() };
                self.errors.push(Diagnostic {
                    help,
                    ..Diagnostic::at(&at, format!("{name}: {}", shorten(&bad, 200)))
                });
            } else if name == "ioengine" && self.warned.insert(name.to_owned()) {
                let engine = draft.job.engine.name.as_deref().unwrap_or_default();
                let synchronous = matches!(
                    engine,
                    "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" | "splice"
                );
                let depth = if synchronous {
                    "; iodepth applies, while fio would have one I/O in flight"
                } else {
                    ""
                };
                let note = format!(
                    "ioengine={engine} has no effect: the device URI chooses the engine{depth}"
                );
                self.parsed.notes.push(Diagnostic::at(&line.location, note));
            }
        } else {
            self.unknown(name, value, &line.location);
        }
        Some((name.to_owned(), value.map(str::to_owned)))
    }

    /// Reports an option that is not in the table of supported options: an error if fio has no such
    /// option or it would change the I/O, else a warning.
    fn unknown(&mut self, name: &str, value: Option<&str>, at: &Location) {
        // An option that is switched off does not change the I/O.
        let off = |value: &str| value == "0" || value == "none";
        if let Some((_, usual)) = known::REFUSED.iter().find(|(other, _)| *other == name) {
            let value = value.unwrap_or("1");
            if !off(value) && value != *usual {
                self.errors.push(Diagnostic::at(
                    at,
                    options::unsupported(&format!("{name}={}", shorten(value, 60))),
                ));
            }
        } else if known::OPTIONS.contains(&name) {
            // One warning per option, however many jobs have it.
            if !value.is_some_and(off) && self.warned.insert(name.to_owned()) {
                let warning =
                    format!("fio's option '{name}' is ignored, because it does not change the I/O");
                self.parsed.warnings.push(Diagnostic::at(at, warning));
            }
        } else {
            // Suggestions are slow, and a file with this many errors is probably not a job file.
            let near = if self.errors.len() < MAX_ERRORS { nearest_option(name) } else { None };
            let error = Diagnostic::at(at, format!("unknown option '{}'", shorten(name, 60)));
            self.errors.push(Diagnostic {
                help: near.map(|near| format!("did you mean '{near}'?")),
                ..error
            });
        }
    }

    /// Checks the files as a whole, and limits the number of errors.
    fn finish(mut self) -> Result<Parsed, ParseErrors> {
        let whole = |message: String| Diagnostic { location: None, message, help: None };
        let threads: u64 = self.parsed.jobs.iter().map(|job| u64::from(job.numjobs)).sum();
        if threads > options::MAX_JOBS {
            self.errors.push(whole(format!(
                "there are {threads} job threads; the maximum is {}",
                options::MAX_JOBS
            )));
        }
        if self.errors.len() > MAX_ERRORS {
            let more = self.errors.len() - MAX_ERRORS;
            self.errors.truncate(MAX_ERRORS);
            self.errors.push(whole(format!("and {more} more errors")));
        }
        if self.errors.is_empty() && self.parsed.jobs.is_empty() {
            self.errors.push(whole("there is no job: add a section other than [global]".into()));
        }
        if self.errors.is_empty() { Ok(self.parsed) } else { Err(ParseErrors(self.errors)) }
    }
}

/// The help text for variables that are not set.
fn not_set(names: &[String]) -> Option<String> {
    let shown: Vec<String> =
        names.iter().map(|name| format!("${{{}}}", shorten(name, 60))).collect();
    let empty = if names.len() == 1 {
        "is not set, so it is empty"
    } else {
        "are not set, so they are empty"
    };
    (!names.is_empty()).then(|| format!("{} {empty}", shown.join(", ")))
}

#[cfg(test)]
mod tests;
