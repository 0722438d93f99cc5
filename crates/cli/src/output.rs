//! Standard output, stderr, and output files. Results go to standard output or to files, everything
//! else to stderr. If an output file is `-`, which is standard output, text for people goes to
//! stderr.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::rows::table::wrap;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

/// Prints `line` on stderr. Errors are ignored: a closed stderr must not stop a run.
pub fn say(line: impl Display) {
    _ = io::stderr().write_all(laid(&line.to_string(), terminal()).as_bytes());
}

/// Columns of the terminal on stderr, or COLUMNS; `None`: do not wrap.
fn terminal() -> Option<usize> {
    let terminal =
        rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col));
    let columns = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal.filter(|&columns| columns > 0).or_else(columns).filter(|&columns| columns > 20)
}

/// Wraps `text` to `width` columns; `None`: does not wrap it.
fn laid(text: &str, width: Option<usize>) -> String {
    match width {
        Some(width) => text.lines().map(|line| wrap(line, width)).collect(),
        None => format!("{text}\n"),
    }
}

/// Replaces control characters, and those that change the direction of writing, by question marks:
/// for text chosen by devices, file names or other users.
pub fn escape(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    text.chars().map(|c| if obeyed(c) { '?' } else { c }).collect()
}

/// A progress bar. Hidden if stderr is not a terminal.
pub fn bar(steps: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    // The template is a valid constant.
    if let Ok(style) = ProgressStyle::with_template(
        "{prefix} [{bar:24}] {pos}/{len}  {elapsed} elapsed, {eta} left",
    ) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Whether an output file is `-`, so that text for people goes to stderr.
static STDOUT_IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// The stream for text for people, and its name.
pub fn for_people() -> (Box<dyn Write>, &'static str) {
    match STDOUT_IS_A_FILE.load(Relaxed) {
        true => (Box::new(io::stderr()), "stderr"),
        false => (Box::new(io::stdout()), "the standard output"),
    }
}

/// Standard output, or a file.
pub struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    /// Opens `path`, or standard output for `-`. Called before a run, whose results would otherwise
    /// be lost if the file cannot be written.
    pub fn open(path: Option<&Path>) -> Result<Output> {
        let Some(path) = path else {
            let (to, name) = for_people();
            return Ok(Output { to, name: name.into() });
        };
        let to = OutputFile::open(path)
            .with_context(|| format!("cannot write the results to {}", path.display()))?;
        Ok(Output { to: Box::new(to), name: path.display().to_string() })
    }

    /// Writes `text`. A closed pipe is not an error: `| head` ends early on purpose.
    pub fn write(&mut self, text: &str) -> Result<()> {
        match self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).with_context(|| format!("cannot write the results to {}", self.name))
            }
            _ => Ok(()),
        }
    }
}

/// Prints `text` for people.
pub fn print(text: &str) -> Result<()> {
    Output::open(None)?.write(text)
}

/// An optional additional output file.
pub struct OptionalOutput(Option<Output>);

impl OptionalOutput {
    /// Opens it as [`Output::open`] does.
    pub fn open(path: Option<&Path>) -> Result<OptionalOutput> {
        path.map(|path| Output::open(Some(path))).transpose().map(OptionalOutput)
    }

    /// Writes the result of `text`, if there is a file.
    pub fn write(self, text: impl FnOnce() -> Result<String>) -> Result<()> {
        self.0.map_or(Ok(()), |mut output| output.write(&text()?))
    }
}

/// Combines the results of writing several outputs, all of which were tried. The error has one line
/// per failure.
pub fn all<const N: usize>(written: [Result<()>; N]) -> Result<()> {
    let failed: Vec<String> =
        written.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Returns an error if two outputs are the same file, or an output is a file that is read.
/// `written` has the option and the file of each output.
pub fn apart<'a>(
    read: impl IntoIterator<Item = &'a Path>,
    written: &[(&str, Option<&Path>)],
) -> Result<()> {
    // For inputs `-` is standard input.
    let read: Vec<PathBuf> =
        read.into_iter().filter(|path| *path != Path::new(STANDARD)).filter_map(identity).collect();
    let mut known: Vec<(&str, PathBuf)> = Vec::new();
    for &(option, path) in written {
        let Some((path, file)) = path.and_then(|path| Some((path.display(), identity(path)?)))
        else {
            continue;
        };
        ensure!(
            !read.contains(&file),
            "{option} {path} would overwrite an input file; give another name"
        );
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == file) {
            bail!("{other} and {option} name the same file, {path}; give each a file of its own");
        }
        known.push((option, file));
    }
    Ok(())
}

/// The canonical name of a file, which need not exist. `None` for pipes and devices, which may be
/// written several times.
fn identity(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(there) => there.is_file().then_some(there),
        Err(_) => {
            let dir =
                path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(dir.canonicalize().ok()?.join(path.file_name()?))
        }
    }
}

/// The file name that means standard output.
pub const STANDARD: &str = "-";

/// An output file. It is truncated only by the first write, and removed if it is new and nothing
/// was written.
pub struct OutputFile {
    file: File,
    written: bool,
    /// Its path, if it did not exist before.
    new: Option<PathBuf>,
}

impl OutputFile {
    /// Opens it; `-` is the standard output.
    pub fn open(path: &Path) -> io::Result<OutputFile> {
        if path == Path::new(STANDARD) {
            STDOUT_IS_A_FILE.store(true, Relaxed);
            // Do not truncate it: `>>` may have been used.
            return Ok(OutputFile {
                file: io::stdout().as_fd().try_clone_to_owned()?.into(),
                written: true,
                new: None,
            });
        }
        // Existing contents are kept until the first write: the run may still fail.
        let new = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(OutputFile { file, written: false, new: new.then(|| path.to_owned()) })
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Pipes and devices cannot be truncated.
        if !self.written && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        let written = self.file.write(bytes)?;
        self.written = true;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // A run that fails must not leave an empty file behind.
        if let Some(path) = self.new.take_if(|_| !self.written) {
            _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
