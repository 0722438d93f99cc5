//! Where results go, and what is said beside them.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Says `line` on stderr, where all that is no result goes. That nobody is there to read it keeps nothing from being done.
pub fn say(line: impl Display) {
    _ = writeln!(io::stderr(), "{line}");
}

/// The standard output, or a file.
pub struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    /// Opens `path`, before anything runs whose results could then not be kept. What is in the file stays until there is
    /// something to write; a file that is new and was never written to is removed again.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn open(path: Option<&Path>) -> Result<Output> {
        let Some(path) = path else { return Ok(Output { to: Box::new(io::stdout()), name: "the standard output".into() }) };
        let new = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot write the results to {}", path.display()))?;
        let to = Kept { file, written: false, new: new.then(|| path.to_owned()) };
        Ok(Output { to: Box::new(BufWriter::new(to)), name: path.display().to_string() })
    }

    /// Writes `text`. A reader that has gone away wants no more of it, which is no error.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.settle(|to| to.write_all(text.as_bytes()))
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(mut self) -> Result<()> {
        self.settle(|to| to.flush())
    }

    fn settle(&mut self, act: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        match act(&mut self.to) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).with_context(|| format!("cannot write the results to {}", self.name))
            }
            _ => Ok(()),
        }
    }
}

/// Prints `text` on the standard output.
///
/// # Errors
/// What the system says.
pub fn print(text: &str) -> Result<()> {
    let mut output = Output::open(None)?;
    output.write(text)?;
    output.finish()
}

/// A file whose content is replaced by the first thing that is written.
struct Kept {
    file: File,
    written: bool,
    /// It was not there before.
    new: Option<PathBuf>,
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Pipes and devices have no length.
        if !std::mem::replace(&mut self.written, true) && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(path) = self.new.take_if(|_| !self.written) {
            _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
