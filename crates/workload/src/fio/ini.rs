//! Splits job files into sections of options: comments, `[sections]`, `include`, `${VARIABLES}`.
//! Depth, number and size of included files are limited, so that no input takes unbounded time.

use super::{Diagnostic, Environment, Input, Location};
use std::sync::Arc;

/// Maximum depth of nested includes.
const MAX_DEPTH: usize = 16;
/// Maximum number of files, and of bytes, that all includes together may read. Without limits,
/// files that each include another file twice would take exponential time.
const MAX_FILES: usize = 1000;
const MAX_BYTES: usize = 16 << 20;
/// Maximum bytes of a line, before and after variables are replaced, as in fio.
pub(super) const MAX_LINE: usize = 8192;

/// A line of a section with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OptionLine {
    pub location: Location,
    /// The line without comment and surrounding whitespace; not empty.
    pub text: String,
}

/// A `[section]` with its lines, including those of included files.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub name: String,
    pub location: Location,
    pub lines: Vec<OptionLine>,
}

/// Splits one job file and the files that it includes.
pub(super) fn sections(
    input: &Input<'_>,
    env: &dyn Environment,
    errors: &mut Vec<Diagnostic>,
) -> Vec<Section> {
    let mut reader = Reader { env, errors, open: Vec::new(), files: 0, bytes: 0 };
    let mut sections: Vec<Section> = Vec::new();
    let file: Arc<str> = input.name.into();
    reader.open.push(file.to_string());
    let mut orphans = false;
    for line in reader.lines(&file, input.text) {
        if let Some(name) = line.text.strip_prefix('[') {
            if !name.ends_with(']') {
                let message = format!("the section '{}' has no closing ]", shorten(&line.text, 60));
                reader.errors.push(Diagnostic::at(&line.location, message));
            }
            // Parsing continues as if it were closed, to find further errors.
            let name = name.strip_suffix(']').unwrap_or(name).to_owned();
            sections.push(Section { name, location: line.location, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            reader.option(line, &mut section.lines);
        } else if !orphans {
            // One error for all such lines, which have the same cause.
            orphans = true;
            let error = Diagnostic::at(
                &line.location,
                format!("'{}' is before the first [section]", shorten(&line.text, 60)),
            );
            reader
                .errors
                .push(error.help("start with [global] or with the name of a job in brackets"));
        }
    }
    sections
}

struct Reader<'a> {
    env: &'a dyn Environment,
    errors: &'a mut Vec<Diagnostic>,
    /// Names of the files being read, outermost first.
    open: Vec<String>,
    files: usize,
    bytes: usize,
}

impl Reader<'_> {
    /// The lines of a file that are not empty, without comments.
    fn lines(&mut self, file: &Arc<str>, text: &[u8]) -> Vec<OptionLine> {
        let mut lines = Vec::new();
        // Some editors write a byte order mark, which is skipped.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (number, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
            let mut location = Location { file: file.clone(), line: number as u32 + 1, column: 1 };
            let whole = String::from_utf8_lossy(bytes);
            // Comments may contain anything, even invalid UTF-8.
            let line = whole.split([';', '#']).next().unwrap_or("");
            if let Some(at) = line.find(char::REPLACEMENT_CHARACTER) {
                location.column = line[..at].chars().count() as u32 + 1;
                self.errors.push(Diagnostic::at(&location, "this is not UTF-8 text"));
                continue;
            }
            let blank = |c: char| c.is_whitespace() || c.is_control();
            let text = line.trim_start_matches(blank);
            location.column = line.chars().count() as u32 - text.chars().count() as u32 + 1;
            let text = text.trim_end_matches(blank);
            if text.len() > MAX_LINE {
                self.errors.push(Diagnostic::at(
                    &location,
                    format!("the line has {} bytes; the maximum is {MAX_LINE}", text.len()),
                ));
            } else if !text.is_empty() {
                lines.push(OptionLine { location, text: text.to_owned() });
            }
        }
        lines
    }

    /// Adds a line to `into`: its option, or, if it is an `include`, the options of that file.
    fn option(&mut self, line: OptionLine, into: &mut Vec<OptionLine>) {
        let path = match line.text.strip_prefix("include") {
            Some(rest) if rest.starts_with([' ', '\t', '=']) => {
                rest.trim_start_matches([' ', '\t', '='])
            }
            _ => return into.push(line),
        };
        if let Err(message) = self.include(path, &line, into) {
            self.errors.push(Diagnostic::at(&line.location, message));
        }
    }

    /// Appends the options of an included file to `into`.
    ///
    /// # Errors
    /// The file cannot be read, includes itself, or exceeds a limit.
    fn include(
        &mut self,
        path: &str,
        line: &OptionLine,
        into: &mut Vec<OptionLine>,
    ) -> Result<(), String> {
        if path.is_empty() {
            return Err("include needs a file name".into());
        }
        // Each include is a recursion, so the depth is limited for the sake of the stack.
        if self.open.len() > MAX_DEPTH {
            return Err(format!(
                "include '{}': more than {MAX_DEPTH} nested includes",
                shorten(path, 60)
            ));
        }
        self.files += 1;
        if self.files > MAX_FILES {
            // Only the first include beyond the limit is an error.
            return if self.files == MAX_FILES + 1 {
                Err(format!("more than {MAX_FILES} includes"))
            } else {
                Ok(())
            };
        }
        let (name, text) = self
            .env
            .include(&line.location.file, path)
            .map_err(|reason| format!("cannot include '{}': {reason}", shorten(path, 60)))?;
        // Only files that are still open form a cycle; including a file twice is fine.
        if self.open.contains(&name) {
            return Err(format!(
                "'{}' includes itself: {}",
                shorten(&name, 60),
                self.open.join(" → ")
            ));
        }
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return Err(format!("the included files have more than {MAX_BYTES} bytes"));
        }
        self.open.push(name.clone());
        for line in self.lines(&name.into(), &text) {
            if line.text.starts_with('[') {
                let error = Diagnostic::at(
                    &line.location,
                    format!("'{}': an included file holds options only", shorten(&line.text, 60)),
                );
                self.errors.push(error.help("move the section to the including file"));
                break;
            }
            self.option(line, into);
        }
        self.open.pop();
        Ok(())
    }
}

/// At most `max` characters of `text`, for messages that quote the input.
pub(super) fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Replaces each `${NAME}` of a line by the variable's value, or by nothing if it is not set, as in
/// fio. Returns the line, and the names that are not set. Values are not expanded again, and `${`
/// without `}` stays. Stops when the line is too long.
pub(super) fn expand(line: &str, env: &dyn Environment) -> (String, Vec<String>) {
    let (mut text, mut unset, mut rest) = (String::with_capacity(line.len()), Vec::new(), line);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        match env.variable(name) {
            Some(value) => text.push_str(&value),
            None => unset.push(name.to_owned()),
        }
        rest = behind;
        if text.len() > MAX_LINE {
            break;
        }
    }
    text.push_str(rest);
    (text, unset)
}
