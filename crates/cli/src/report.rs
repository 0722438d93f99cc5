//! `--html FILE`: writes the results as one HTML page without external resources.
//!
//! The page has the style sheet, the charting library ([`vendor`](../report/vendor/README.md)), the
//! JSON of `--json`, and the scripts that draw it. Text from outside cannot become markup: `<` is
//! escaped in the JSON, and the scripts insert it as text only.

use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::json;

use crate::rows::{Results, table};

const STYLE: &str = include_str!("report/page/style.css");
const BODY: &str = include_str!("report/page/body.html");
/// In the order of execution: libraries first.
const SCRIPTS: [&str; 9] = [
    include_str!("report/vendor/d3.min.js"),
    include_str!("report/vendor/plot.umd.min.js"),
    include_str!("report/page/data.js"),
    include_str!("report/page/plots.js"),
    include_str!("report/page/charts.js"),
    include_str!("report/page/timeline.js"),
    include_str!("report/page/simulated.js"),
    include_str!("report/page/table.js"),
    include_str!("report/page/page.js"),
];

/// The page of `results`. `machine`: description of this machine, or of the simulated one.
pub fn page(results: &Results, machine: &str) -> Result<String> {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    page_of(results, machine, &command(std::env::args_os()), age.as_millis() as u64)
}

/// The page with a given command line and date, in milliseconds since 1970.
fn page_of(results: &Results, machine: &str, command: &str, date: u64) -> Result<String> {
    let data = json!({
        "title": results.title,
        "verdict": results.verdict(),
        "date": date,
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine,
        "notes": table::notes(results, true),
        "results": results.json(),
    });
    // `</script>` would end the element that holds the JSON, so `<` is escaped.
    let json = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script type=\"application/json\" id=\"data\">{json}</script>\n",
        results.title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    );
    // One element per script: an error in one does not prevent the others from running.
    for script in SCRIPTS {
        page += "<script>\n";
        page += script;
        page += "</script>\n";
    }
    Ok(page + "</body>\n</html>\n")
}

/// The command line, quoted for a shell. Bytes that are not UTF-8 are replaced.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let words = arguments.skip(1).map(|word| quote(word.to_string_lossy().into_owned()));
    std::iter::once("reap".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a POSIX shell.
pub fn quote(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests;
