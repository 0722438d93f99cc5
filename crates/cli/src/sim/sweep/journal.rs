//! What of a sweep is done, in a file beside its results: a line for each run, so that one that was interrupted can go on.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use super::ran::Ran;
use crate::jobs;
use crate::program::PROGRAM;

/// The open file, and what it had in it.
pub struct Journal {
    file: File,
    path: PathBuf,
    done: HashMap<String, Ran>,
}

impl Journal {
    /// The journal beside the results `json` of the sweep that `sweep` describes, new or, with `resume`, that of a sweep that was
    /// interrupted.
    ///
    /// # Errors
    /// With `resume` there is none, or it is another sweep's, or damaged; without, there is one that holds runs. It cannot be
    /// written, or another sweep is writing it.
    pub fn open(json: &Path, sweep: &Map<String, Value>, resume: bool) -> Result<Journal> {
        let mut name = json.as_os_str().to_owned();
        name.push(".journal");
        let path = PathBuf::from(name);
        let shown = path.display();
        ensure!(!resume || path.exists(), "there is no {shown}: nothing to resume");
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path).with_context(|| format!("cannot write {shown}"))?;
        file.try_lock().with_context(|| format!("{shown} is another running sweep's"))?;
        let text = hw::read_open(&file, jobs::MOST_OWN_BYTES).with_context(|| format!("cannot read {shown}"))?;
        let text = String::from_utf8(text).with_context(|| format!("{shown}: this is no sweep's journal"))?;
        // What was being written when the program was ended has no end.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let (head, runs) = whole.split_once('\n').unwrap_or_default();
        ensure!(
            resume || runs.is_empty(),
            "{shown} holds the runs of a sweep that was interrupted: --resume goes on with them, or remove it"
        );
        let kept = if resume && !head.is_empty() { whole.len() } else { 0 };
        file.set_len(kept as u64).with_context(|| format!("cannot write {shown}"))?;
        let mut journal = Journal { file, path, done: HashMap::new() };
        if kept == 0 {
            journal.line(&serde_json::to_string(sweep)?)?;
        } else {
            let head = serde_json::from_str(head).with_context(|| format!("{}:1: this is no sweep's journal", journal.path.display()))?;
            same(&head, sweep).with_context(|| format!("{} is another sweep's", journal.path.display()))?;
            for (at, line) in runs.lines().enumerate() {
                let damaged = || format!("{}:{}: this is no run; remove the line and it is run again", journal.path.display(), at + 2);
                let (name, ran) = serde_json::from_str(line).with_context(damaged)?;
                journal.done.insert(name, ran);
            }
        }
        Ok(journal)
    }

    /// What came of the run of this name, if it was done before.
    pub fn take(&mut self, name: &str) -> Option<Ran> {
        self.done.remove(name)
    }

    /// Keeps what came of a run.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&mut self, name: &str, ran: &Ran) -> Result<()> {
        self.line(&serde_json::to_string(&(name, ran))?)
    }

    /// The sweep's results are written: nothing is left to be resumed.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn line(&mut self, line: &str) -> Result<()> {
        // In one piece, so that a line that has an end is whole.
        self.file.write_all(format!("{line}\n").as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Whether two sweeps do the same runs.
fn same(there: &Map<String, Value>, here: &Map<String, Value>) -> Result<()> {
    for (key, here) in here {
        match there.get(key) {
            Some(there) if there == here => {}
            Some(there) => bail!("{key} is {there} there, and {here} here"),
            None => bail!("it does not tell {key}"),
        }
    }
    Ok(())
}

/// Name, version and checksum of this program: another build may have other prices and policies, and its figures do not
/// belong with this one's.
///
/// # Errors
/// The program cannot read itself.
pub fn program() -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read("/proc/self/exe").context("cannot read this program's file")?);
    Ok(format!("{PROGRAM} build {:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests;
