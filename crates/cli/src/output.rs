//! Where results go.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// The standard output, or a file.
pub struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    /// Opens `path`, before anything runs whose results could then not be kept.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn open(path: Option<&Path>) -> Result<Output> {
        let Some(path) = path else { return Ok(Output { to: Box::new(io::stdout()), name: "the standard output".into() }) };
        let file = File::create(path).with_context(|| format!("cannot write the results to {}", path.display()))?;
        Ok(Output { to: Box::new(BufWriter::new(file)), name: path.display().to_string() })
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
