//! Reads and parses job files and jobs of the command line, and prints warnings about them.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, anyhow};
use workload::fio::{self, Diagnostic, Environment, Input, Parsed};

use crate::output::say;

/// File name of the jobs of the command line in messages.
const LINE: &str = "(command line)";

/// Maximum bytes of an input file; protects from reading a device by mistake.
pub const MAX_INPUT_BYTES: u64 = 16 << 20;

/// Reads and parses job files and the jobs of the command line (`line`). As in fio, those of the
/// command line come first, and options before them are defaults of the first file as well. Prints
/// warnings and notes.
///
/// # Errors
/// All errors of the jobs, one per line.
pub fn load(paths: &[PathBuf], line: Option<&str>) -> Result<Parsed> {
    let mut texts = Vec::new();
    for path in paths {
        let text = if path.as_os_str() == "-" {
            hw::read_at_most(io::stdin(), MAX_INPUT_BYTES).context("cannot read it")
        } else {
            text(path)
        };
        texts.push((
            path.display().to_string(),
            text.with_context(|| format!("job file {}", path.display()))?,
        ));
    }
    // The command line is put before the first file, so that its options are defaults for both.
    let line = line.unwrap_or_default();
    match texts.first_mut() {
        Some((_, text)) => drop(text.splice(..0, line.bytes())),
        None => texts.push((LINE.to_owned(), line.as_bytes().to_vec())),
    }
    let inputs: Vec<Input<'_>> = texts.iter().map(|(name, text)| Input { name, text }).collect();
    let message_text = |all: &[Diagnostic]| {
        all.iter().map(|one| message_text(one, line, inputs[0].name)).collect::<Vec<_>>()
    };
    let parsed =
        fio::parse(&inputs, &Disk).map_err(|errors| anyhow!(message_text(&errors.0).join("\n")))?;
    for warning in message_text(&parsed.warnings) {
        say(format_args!("warning: {warning}"));
    }
    for note in message_text(&parsed.notes) {
        say(format_args!("note: {note}"));
    }
    Ok(parsed)
}

/// The text of a message. Positions in `line`, which was put before the file `first`, are shown as
/// options, and lines of that file are counted without it.
fn message_text(diagnostic: &Diagnostic, line: &str, first: &str) -> String {
    let mut diagnostic = diagnostic.clone();
    let Some(at) = diagnostic.location.as_mut().filter(|at| &*at.file == first) else {
        return diagnostic.to_string();
    };
    // A position beyond the lines of the command line is in the file.
    let Some(written) = line.lines().nth((at.line as usize).saturating_sub(1)) else {
        at.line -= line.lines().count() as u32;
        return diagnostic.to_string();
    };
    let (option, name) = match written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(job) => (format!("--name={job}"), format!("job '{job}'")),
        None => (format!("--{written}"), written.split('=').next().unwrap_or(written).to_owned()),
    };
    // The message begins with the option's name, which would be repeated.
    let message = diagnostic
        .message
        .strip_prefix(&name)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(&diagnostic.message);
    let help = diagnostic.help.iter().map(|help| format!(" ({help})")).collect::<String>();
    format!("{option}: {message}{help}")
}

/// The contents of an input file.
pub fn text(path: &Path) -> Result<Vec<u8>> {
    hw::read_file(path, MAX_INPUT_BYTES).context("cannot read it")
}

/// Files and environment variables for the parser of jobs.
pub struct Disk;

impl Environment for Disk {
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        let relative = Path::new(from).parent().map(|dir| dir.join(path));
        let found =
            [Some(PathBuf::from(path)), relative].into_iter().flatten().find(|p| p.exists());
        let found = found.ok_or(
            "no such file, neither here nor in the directory of the file that includes it",
        )?;
        // The canonical name detects cycles; it is shown relative to the working directory.
        let name = fs::canonicalize(&found).map_err(|e| e.to_string())?;
        let text = text(&name).map_err(|e| format!("{e:#}"))?;
        let here = std::env::current_dir().and_then(fs::canonicalize).unwrap_or_default();
        Ok((name.strip_prefix(&here).unwrap_or(&name).display().to_string(), text))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}
