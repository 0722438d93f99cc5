//! Job files: read from disk, parsed, and what is to be said about them said.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, anyhow};
use workload::fio::{self, Diagnostic, Input, Outside, Parsed};

use crate::output::say;

/// What the jobs of the command line are called where jobs have files' names.
const LINE: &str = "(command line)";

/// No file that people write is this long.
pub const MOST_BYTES: u64 = 16 << 20;

/// Reads and parses job files, and the jobs of the command line (`line`), which come after them. Warnings and notes go to stderr.
///
/// # Errors
/// A file that cannot be read, or everything that is wrong with the jobs, one to a line.
pub fn load(paths: &[PathBuf], line: Option<&str>) -> Result<Parsed> {
    let mut texts = Vec::new();
    for path in paths {
        let text = if path.as_os_str() == "-" { hw::read_at_most(io::stdin(), MOST_BYTES).context("cannot read it") } else { text(path) };
        texts.push((path.display().to_string(), text.with_context(|| format!("job file {}", path.display()))?));
    }
    texts.extend(line.map(|line| (LINE.to_owned(), line.as_bytes().to_vec())));
    let inputs: Vec<Input<'_>> = texts.iter().map(|(name, text)| Input { name, text }).collect();
    let told = |all: &[Diagnostic]| all.iter().map(|one| told(one, line.unwrap_or_default())).collect::<Vec<_>>();
    let parsed = fio::parse(&inputs, &Disk).map_err(|errors| anyhow!(told(&errors.0).join("\n")))?;
    for warning in told(&parsed.warnings) {
        say(format_args!("warning: {warning}"));
    }
    for note in told(&parsed.notes) {
        say(format_args!("note: {note}"));
    }
    Ok(parsed)
}

/// What is to be said of a job. Who gave it on the command line wrote an option there, and no line of `text`, which was made of the options.
fn told(said: &Diagnostic, text: &str) -> String {
    let here = said.location.as_ref().filter(|at| &*at.file == LINE);
    let Some(written) = here.and_then(|at| text.lines().nth((at.line as usize).checked_sub(1)?)) else { return said.to_string() };
    let (option, name) = match written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(job) => (format!("--name={job}"), format!("job '{job}'")),
        None => (format!("--{written}"), written.split('=').next().unwrap_or(written).to_owned()),
    };
    // The message's own beginning says the same once more.
    let message = said.message.strip_prefix(&name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&said.message);
    let help = said.help.iter().map(|help| format!(" ({help})")).collect::<String>();
    format!("{option}: {message}{help}")
}

/// The bytes of a file of people's.
///
/// # Errors
/// It cannot be read, or is no such file by its length.
pub fn text(path: &Path) -> Result<Vec<u8>> {
    hw::read_file(path, MOST_BYTES).context("cannot read it")
}

/// Files and the environment, as fio sees them.
pub struct Disk;

impl Outside for Disk {
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        let beside = Path::new(from).parent().map(|dir| dir.join(path));
        let found = [Some(PathBuf::from(path)), beside].into_iter().flatten().find(|p| p.exists());
        let found = found.ok_or("no such file, neither here nor in the directory of the file that includes it")?;
        // One name for each file, however it is spelled, so that circles are seen; a short one where that is possible.
        let name = fs::canonicalize(&found).map_err(|e| e.to_string())?;
        let text = text(&name).map_err(|e| format!("{e:#}"))?;
        let here = std::env::current_dir().and_then(fs::canonicalize).unwrap_or_default();
        Ok((name.strip_prefix(&here).unwrap_or(&name).display().to_string(), text))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}
