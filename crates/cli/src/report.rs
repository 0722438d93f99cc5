//! `--html FILE`: the results as one page that needs nothing else, no network either.
//!
//! The page is its parts one after the other: the style, the charting library ([`vendor`](../report/vendor/README.md)),
//! the results as the JSON that `--json` writes, and the scripts that draw them. What comes from outside is data to all of
//! them: in the JSON no `<` can end the element that it stands in, and the scripts put it into the page as text only.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::output::Output;
use crate::rows::Results;
use crate::rows::json::JsonResults;

const STYLE: &str = include_str!("report/page/style.css");
const BODY: &str = include_str!("report/page/body.html");
/// In the order in which they run.
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

/// What a page is about.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// All figures.
    pub results: &'a Results,
    /// Where they come from: this machine, or what was simulated.
    pub machine: &'a str,
}

/// A page's data, as its scripts read it.
#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    command: String,
    version: &'static str,
    machine: &'a str,
    notes: &'a [String],
    results: JsonResults<'a>,
}

/// Opens the file that the page will be written to, before anything is measured.
///
/// # Errors
/// The file cannot be created.
pub fn open(path: Option<&Path>) -> Result<Option<Output>> {
    path.map(|path| Output::open(Some(path))).transpose()
}

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report<'_>, mut to: Output) -> Result<()> {
    to.write(&page(report, command(std::env::args()))?)?;
    to.finish()
}

fn page(report: &Report<'_>, command: String) -> Result<String> {
    let results = report.results;
    let data = Data {
        title: &results.title,
        command,
        version: env!("CARGO_PKG_VERSION"),
        machine: report.machine,
        notes: &results.notes,
        results: JsonResults::new(results),
    };
    // The only character with which text could leave the element that holds it.
    let json = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script type=\"application/json\" id=\"data\">{json}</script>\n",
        escape(&results.title)
    );
    for script in SCRIPTS {
        page += "<script>\n";
        page += script;
        page += "</script>\n";
    }
    Ok(page + "</body>\n</html>\n")
}

/// The command line, to be pasted into a shell.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    let quote = |word: String| match word {
        word if !word.is_empty() && word.chars().all(plain) => word,
        word => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words = arguments.skip(1).map(quote);
    std::iter::once("reap".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
