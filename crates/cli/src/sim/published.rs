//! `reap sim --published`: the posts' tables beside the simulator's, and how the constants behind them were found.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use ::sim::published::{self, CASES, Case, Found, KNOBS, Row};
use ::sim::{Outcome, SimError};
use anyhow::{Context, Result, bail};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::{pool, scenario};
use crate::args::SimArgs;
use crate::compare::statistics;
use crate::output::{self, Aside};
use crate::rows::fit::{self, wrap};
use crate::rows::table::{digits, width};
use crate::stop;

/// A row, for scripts.
#[derive(Serialize)]
struct JsonRow {
    id: &'static str,
    published: f64,
    simulated: f64,
    unit: &'static str,
    #[serde(rename = "use")]
    used: &'static str,
    error: f64,
    /// Of a prediction: what its effect is relative to, that effect, and the scores of both models.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_without: Option<f64>,
}

#[derive(Serialize)]
struct JsonResults {
    schema: u32,
    /// Whether all cases were simulated.
    complete: bool,
    rows: Vec<JsonRow>,
}

/// Runs all cases, and prints the rows.
///
/// # Errors
/// A run that broke a law; the file cannot be written.
pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let stop = stop::on_signal()?;
    let json = Aside::open(args.json.as_deref())?;
    let outcomes = pool::each(CASES, "cases", &stop, |case| outcome(case, args.seed, &stop));
    let outcomes: Vec<Option<Outcome>> = outcomes.into_iter().map(|run| run.transpose().map(Option::flatten)).collect::<Result<_, _>>()?;
    let done = CASES.iter().zip(&outcomes).filter_map(|(case, outcome)| Some((case.name, outcome.as_ref()?)));
    let done: std::collections::BTreeMap<&str, &Outcome> = done.collect();
    let rows = published::rows(&|name| done.get(name).copied());
    if rows.is_empty() {
        bail!("stopped before anything was simulated");
    }
    let cases = outcomes.iter().flatten().count();
    let complete = cases == CASES.len();
    if !complete {
        stop::tell(format_args!("{cases} of {} cases; what follows is of those", CASES.len()));
    }
    let results = JsonResults { schema: 1, complete, rows: rows.iter().map(JsonRow::new).collect() };
    output::all([output::print(&show(&rows, width())), json.write(|| Ok(serde_json::to_string_pretty(&results)? + "\n"))])?;
    Ok(ExitCode::SUCCESS)
}

/// `None`: it was stopped.
fn outcome(case: &Case, seed: Option<u64>, stop: &AtomicBool) -> Result<Option<Outcome>> {
    let mut run = case.scenario()?;
    run.seed = seed.unwrap_or(run.seed);
    scenario::done(run.run_unless(stop)).with_context(|| format!("case {}", case.name))
}

/// Looks for the constants anew, and prints what fits beside what is shipped. All of them or none: a signal ends the program.
///
/// # Errors
/// As [`run`].
pub fn calibrate() -> Result<ExitCode> {
    let mut files: Vec<&str> = KNOBS.iter().map(|knob| knob.file).collect();
    files.dedup();
    let found = pool::each(&files, "files", &AtomicBool::new(false), |file| published::calibrate(file));
    let found: Vec<Vec<Found>> = found.into_iter().flatten().collect::<Result<_, SimError>>()?;
    output::print(&show_found(&found.concat()))?;
    Ok(ExitCode::SUCCESS)
}

impl JsonRow {
    fn new(row: &Row) -> JsonRow {
        JsonRow {
            id: row.id,
            published: row.published,
            simulated: row.simulated,
            unit: row.unit,
            used: row.used.name(),
            error: row.error(),
            baseline: row.score.map(|score| score.baseline),
            effect: row.score.map(|score| score.effect),
            score: row.score.map(|score| score.score),
            score_without: row.score.map(|score| score.without),
        }
    }
}

/// What a table shows beside the two values and the error: all, the scores, or nothing.
const LAYOUTS: [usize; 3] = [4, 2, 0];

fn table(rows: &[Row], more: usize) -> Table {
    let mut table = new_table();
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let headers = ["published", "simulated", "error\n%"].map(|header| right(header.into()));
    let beside = [right("score".into()), right("without".into()), right("effect".into()), Cell::new("against")];
    table.set_header([Cell::new("row"), Cell::new("use")].into_iter().chain(headers).chain(beside.into_iter().take(more)));
    for row in rows {
        let score = |figure: fn(&published::Score) -> f64, digits: usize| {
            row.score.as_ref().map_or(String::new(), |s| format!("{:.digits$}", figure(s)))
        };
        let cells = [
            Cell::new(row.id),
            Cell::new(row.used.name()),
            right(format!("{} {}", digits_of(row.published, row.unit), row.unit)),
            right(format!("{} {}", digits_of(row.simulated, row.unit), row.unit)),
            // As much as is printed of it, and no zero below zero.
            right(format!("{:+.1}", (row.error() * 1e3).round() / 10.0 + 0.0)),
        ];
        let beside = [
            right(score(|s| s.score, 3)),
            right(score(|s| s.without, 3)),
            right(score(|s| s.effect, 2)),
            Cell::new(row.score.map_or("", |score| score.baseline)),
        ];
        table.add_row(cells.into_iter().chain(beside.into_iter().take(more)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// What the words in the column `use` mean, and those above the others.
const LEGEND: [&str; 5] = [
    "calibrate: a constant of the machine or the device was chosen by this row, so that it says nothing of the simulator.",
    "predict: nothing was chosen for it; it is what the simulator is judged by.",
    "shape: the post does not say enough of its machine to pin the figure down; it is shown, and not scored.",
    "score: |ln(simulated effect ÷ published effect)| of a prediction, an effect being the row ÷ the one that it stands against.",
    "without: the score of the same model with the mechanism left out.",
];

/// The posts, by the first three digits of a row: who wrote it, when, its subject, and where it can be found.
const POSTS: [(&str, &str, &str); 5] = [
    (
        "000",
        "Ming Lei, 12 November 2019, \"[PATCH 2/2] nvme-pci: poll IO after batch submission for multi-mapping queue\"",
        "http://lists.infradead.org/pipermail/linux-nvme/2019-November/",
    ),
    (
        "001",
        "Jeff Garzik, 7 August 2009, \"Re: [PATCH 1/3] block: add blk-iopoll, a NAPI like approach for block devices\"",
        "https://lore.kernel.org/lkml/?q=s:blk-iopoll+f:Garzik",
    ),
    (
        "002",
        "Sagi Grimberg, 17 January 2017, \"[LSF/MM TOPIC][LSF/MM ATTEND] NAPI polling for block drivers\"",
        "http://lists.infradead.org/pipermail/linux-nvme/2017-January/",
    ),
    (
        "003",
        "Jacob Pan, 12 February 2024, \"Re: [PATCH 00/15] Coalesced Interrupt Delivery with posted MSI\"",
        "https://lore.kernel.org/lkml/?q=s:%22Coalesced+Interrupt+Delivery%22+f:Jacob",
    ),
    (
        "004",
        "Uday Shankar, 3 October 2023, \"[PATCH 1/3] block: introduce blk_queue_nr_active()\"",
        "http://lists.infradead.org/pipermail/linux-nvme/2023-October/",
    ),
];

/// The rows in lines of `width` characters, how the predictions did, what the words mean, and which posts these are.
pub fn show(rows: &[Row], width: u16) -> String {
    let mut scores: Vec<(f64, &str)> = rows.iter().filter_map(|row| Some((row.score?.score, row.id))).collect();
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut text = format!("{}\n", fit::first(width, LAYOUTS.map(|more| table(rows, more))));
    let values: Vec<f64> = scores.iter().map(|(score, _)| *score).collect();
    if let (Some(median), Some((worst, id))) = (statistics::median(&values), scores.last()) {
        text += &format!("Predictions: {}, median score {median:.3}, worst {worst:.3} ({id}).\n", scores.len());
    }
    for histogram in published::HISTOGRAMS {
        if let Some(distance) = published::total_variation(rows, histogram) {
            text += &format!("{histogram}: total variation {distance:.3}.\n");
        }
    }
    text += &LEGEND.iter().map(|line| wrap(line, width.into())).collect::<String>();
    let post = |(number, words, place): &(&str, &str, &str)| wrap(&format!("{number}: {words}, {place}"), width.into());
    text + "The posts:\n" + &POSTS.iter().map(post).collect::<String>()
}

fn digits_of(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{value:.4}"),
        _ if value >= 1e6 => format!("{:.2}M", value / 1e6),
        _ => digits(value),
    }
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

fn show_found(found: &[Found]) -> String {
    let mut table = new_table();
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.set_header(["file", "constant", "by row", "shipped", "found", "row then"].map(Cell::new));
    for found in found {
        table.add_row([
            Cell::new(found.knob.0),
            Cell::new(found.knob.1),
            Cell::new(found.row),
            right(found.shipped.to_string()),
            right(found.found.to_string()),
            right(format!("{:+.1} %", (found.ratio - 1.0) * 100.0)),
        ]);
    }
    format!("{}\n", fit::first(width(), [table]))
}

#[cfg(test)]
mod tests;
