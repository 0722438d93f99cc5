//! `${VARIABLE}` in options.

use super::ini::MAX_LINE;
use super::outside::Outside;

/// A line with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub text: String,
    /// Variables that are not set: they became empty, as in fio.
    pub unset: Vec<String>,
}

/// Replaces each `${NAME}`, once: what a variable holds is not looked at again. `${` without `}` stays. Stops when the
/// line has become longer than any may be.
pub(super) fn expand(line: &str, outside: &dyn Outside) -> Expanded {
    let mut out = Expanded { text: String::with_capacity(line.len()), unset: Vec::new() };
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        out.text.push_str(before);
        match outside.variable(name) {
            Some(value) => out.text.push_str(&value),
            None => out.unset.push(name.to_owned()),
        }
        rest = behind;
        if out.text.len() > MAX_LINE {
            break;
        }
    }
    out.text.push_str(rest);
    out
}
