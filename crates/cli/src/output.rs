//! Where results go, and what is said beside them.

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

/// Says `line` on stderr, where all that is no result goes. That nobody is there to read it keeps nothing from being done.
pub fn say(line: impl Display) {
    _ = io::stderr().write_all(laid(&line.to_string(), terminal()).as_bytes());
}

/// Characters of a line where stderr is a terminal, which would break lines within words, or where COLUMNS says what reads it.
fn terminal() -> Option<usize> {
    let terminal = rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col));
    let columns = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal.filter(|&columns| columns > 0).or_else(columns).filter(|&columns| columns > 20)
}

/// `text` in lines of this many characters, or as it is.
fn laid(text: &str, width: Option<usize>) -> String {
    match width {
        Some(width) => text.lines().map(|line| wrap(line, width)).collect(),
        None => format!("{text}\n"),
    }
}

/// Text that a device, a file name or another user has chosen, with a question mark for each character that a terminal might obey: control characters, and those that turn the direction of
/// writing.
pub fn escape(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    text.chars().map(|c| if obeyed(c) { '?' } else { c }).collect()
}

/// How far a command is, and how much time is left. Invisible where stderr is no terminal.
pub fn bar(steps: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    // The template is a constant: it parses.
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:24}] {pos}/{len}  {elapsed} gone, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// An option named `-`: the standard output is that file's, and what is for people goes to stderr.
static STDOUT_IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// Where what is for people goes: the standard output, or stderr where that is a file's; with its name.
pub fn for_people() -> (Box<dyn Write>, &'static str) {
    match STDOUT_IS_A_FILE.load(Relaxed) {
        true => (Box::new(io::stderr()), "stderr"),
        false => (Box::new(io::stdout()), "the standard output"),
    }
}

/// The standard output, or a file.
pub struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    /// Opens `path`, of which `-` is the standard output, before anything runs whose results could then not be kept.
    pub fn open(path: Option<&Path>) -> Result<Output> {
        let Some(path) = path else {
            let (to, name) = for_people();
            return Ok(Output { to, name: name.into() });
        };
        let to = Kept::open(path).with_context(|| format!("cannot write the results to {}", path.display()))?;
        Ok(Output { to: Box::new(to), name: path.display().to_string() })
    }

    /// Writes `text`. A reader that has gone away wants no more of it, which is no error.
    pub fn write(&mut self, text: &str) -> Result<()> {
        match self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).with_context(|| format!("cannot write the results to {}", self.name))
            }
            _ => Ok(()),
        }
    }
}

/// Prints `text` on the standard output, or on stderr where that is a file's.
pub fn print(text: &str) -> Result<()> {
    Output::open(None)?.write(text)
}

/// A file beside the results, where one was asked for.
pub struct Aside(Option<Output>);

impl Aside {
    /// Opens it as [`Output::open`] does.
    pub fn open(path: Option<&Path>) -> Result<Aside> {
        path.map(|path| Output::open(Some(path))).transpose().map(Aside)
    }

    /// Writes what `text` makes, if there is a file.
    pub fn write(self, text: impl FnOnce() -> Result<String>) -> Result<()> {
        self.0.map_or(Ok(()), |mut output| output.write(&text()?))
    }
}

/// What became of all that there was to write: the results, which come first, and each file beside them. One that could not
/// be written has kept none of the others from it, and fails the command now.
/// The error has everything that could not be written, one to a line.
pub fn all<const N: usize>(written: [Result<()>; N]) -> Result<()> {
    let failed: Vec<String> = written.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Refuses to write two things into one file (`written`, by their options), or over what is read.
pub fn apart<'a>(read: impl IntoIterator<Item = &'a Path>, written: &[(&str, Option<&Path>)]) -> Result<()> {
    // There, `-` is the standard input.
    let read: Vec<PathBuf> = read.into_iter().filter(|path| *path != Path::new(STANDARD)).filter_map(identity).collect();
    let mut known: Vec<(&str, PathBuf)> = Vec::new();
    for &(option, path) in written {
        let Some((path, file)) = path.and_then(|path| Some((path.display(), identity(path)?))) else { continue };
        ensure!(!read.contains(&file), "{option} {path} would overwrite what is read; give it another name");
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == file) {
            bail!("{other} and {option} name one file, {path}; give each its own");
        }
        known.push((option, file));
    }
    Ok(())
}

/// The one name of a file, which need not be there yet. `None`: a pipe or a device, which takes what several write.
fn identity(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(there) => there.is_file().then_some(there),
        Err(_) => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(dir.canonicalize().ok()?.join(path.file_name()?))
        }
    }
}

/// The standard output in place of a file's name.
pub const STANDARD: &str = "-";

/// A file that is open to be written. What is in it stays until there is something to write; one that is new and was never
/// written to is removed again.
pub struct Kept {
    file: File,
    written: bool,
    /// It was not there before.
    new: Option<PathBuf>,
}

impl Kept {
    /// Opens it; `-` is the standard output.
    pub fn open(path: &Path) -> io::Result<Kept> {
        if path == Path::new(STANDARD) {
            STDOUT_IS_A_FILE.store(true, Relaxed);
            // What another program wrote to it before is not this one's to cut off.
            return Ok(Kept { file: io::stdout().as_fd().try_clone_to_owned()?.into(), written: true, new: None });
        }
        let new = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(Kept { file, written: false, new: new.then(|| path.to_owned()) })
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Pipes and devices have no length.
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

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(path) = self.new.take_if(|_| !self.written) {
            _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
