//! From text to sections of options: lines, comments, `[sections]`, `include`.

use super::{Diagnostic, Input, Location, Outside};
use std::sync::Arc;

/// Includes within includes.
const MAX_DEPTH: usize = 16;
/// Files and bytes read by `include` in all: a chain that doubles at each step ends here.
const MAX_FILES: usize = 1000;
const MAX_BYTES: usize = 16 << 20;
/// Bytes of a line, before and after variables are replaced; the same as in fio.
pub(super) const MAX_LINE: usize = 8192;

/// One line of a section: an option as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub location: Location,
    /// Without comment and surrounding blanks; not empty.
    pub text: String,
}

/// One `[section]` with its lines, those of included files in their place.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub name: String,
    pub location: Location,
    pub lines: Vec<Line>,
}

/// Reads one job file, `include`s included.
pub(super) fn sections(input: &Input<'_>, outside: &dyn Outside, errors: &mut Vec<Diagnostic>) -> Vec<Section> {
    let mut reader = Reader { outside, errors, open: Vec::new(), files: 0, bytes: 0 };
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
            let name = name.strip_suffix(']').unwrap_or(name).to_owned();
            sections.push(Section { name, location: line.location, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            reader.option(line, &mut section.lines);
        } else if !orphans {
            // One error for all of them: they share one cause.
            orphans = true;
            let error = Diagnostic::at(&line.location, format!("'{}' stands before the first [section]", shorten(&line.text, 60)));
            reader.errors.push(error.help("start with [global] or with the name of a job in brackets"));
        }
    }
    sections
}

struct Reader<'a> {
    outside: &'a dyn Outside,
    errors: &'a mut Vec<Diagnostic>,
    /// Names of the files being read, outermost first.
    open: Vec<String>,
    files: usize,
    bytes: usize,
}

impl Reader<'_> {
    /// The lines of a file that say something, without comments and blanks.
    fn lines(&mut self, file: &Arc<str>, text: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (number, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
            let mut location = Location { file: file.clone(), line: number as u32 + 1, column: 1 };
            let whole = String::from_utf8_lossy(bytes);
            // What is wrong in a comment is no concern of ours.
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
                self.errors.push(Diagnostic::at(&location, format!("a line of {} bytes; the most is {MAX_LINE}", text.len())));
            } else if !text.is_empty() {
                lines.push(Line { location, text: text.to_owned() });
            }
        }
        lines
    }

    /// An option, or the options of the file that `include` names.
    fn option(&mut self, line: Line, into: &mut Vec<Line>) {
        let path = match line.text.strip_prefix("include") {
            Some(rest) if rest.starts_with([' ', '\t', '=']) => rest.trim_start_matches([' ', '\t', '=']),
            _ => return into.push(line),
        };
        if let Err(message) = self.include(path, &line, into) {
            self.errors.push(Diagnostic::at(&line.location, message));
        }
    }

    fn include(&mut self, path: &str, line: &Line, into: &mut Vec<Line>) -> Result<(), String> {
        if path.is_empty() {
            return Err("include names no file".into());
        }
        if self.open.len() > MAX_DEPTH {
            return Err(format!("include '{}' is the {MAX_DEPTH}th within another", shorten(path, 60)));
        }
        self.files += 1;
        if self.files > MAX_FILES {
            // Said once, not once for each further include.
            return if self.files == MAX_FILES + 1 { Err(format!("more than {MAX_FILES} includes")) } else { Ok(()) };
        }
        let (name, text) = self
            .outside
            .include(&line.location.file, path)
            .map_err(|reason| format!("cannot include '{}': {reason}", shorten(path, 60)))?;
        if self.open.contains(&name) {
            return Err(format!("'{}' includes itself: {}", shorten(&name, 60), self.open.join(" → ")));
        }
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return Err(format!("the included files have more than {MAX_BYTES} bytes"));
        }
        self.open.push(name.clone());
        for line in self.lines(&name.into(), &text) {
            if line.text.starts_with('[') {
                let error = Diagnostic::at(&line.location, format!("'{}': an included file holds options only", shorten(&line.text, 60)));
                self.errors.push(error.help("sections belong into the file that includes it"));
                break;
            }
            self.option(line, into);
        }
        self.open.pop();
        Ok(())
    }
}

/// At most `most` characters, for messages that quote what the user wrote.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Replaces each `${NAME}` of a line, once: what a variable holds is not looked at again. `${` without `}` stays. Stops when the line
/// has become longer than any may be. Also the variables that are not set: they became empty, as in fio.
pub(super) fn expand(line: &str, outside: &dyn Outside) -> (String, Vec<String>) {
    let (mut text, mut unset, mut rest) = (String::with_capacity(line.len()), Vec::new(), line);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        match outside.variable(name) {
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
