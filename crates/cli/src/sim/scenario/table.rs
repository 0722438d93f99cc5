//! The table of `compare`, and below it what the CPUs did.

use comfy_table::Table;
use serde_json::Value;

use super::rows::{AWAY, DECISIONS, FAILOVER, INTERRUPTS, SOFTIRQS, SPLIT, SWITCHES};
use crate::rows::{Results, Row, table};

/// A column: what stands above it, and its cell.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 8] = [
    ("IRQ\nk/s", |row| thousands(row, INTERRUPTS)),
    ("softirq\nk/s", |row| thousands(row, SOFTIRQS)),
    ("switches\nk/s", |row| thousands(row, SWITCHES)),
    ("hard\n%", |row| part(row, "hard")),
    ("soft\n%", |row| part(row, "soft")),
    ("thread\n%", |row| part(row, "thread")),
    ("idle\n%", |row| part(row, "idle")),
    ("longest away\nµs", |row| number(&row.extra, AWAY).map_or("–".into(), |ns| table::digits(ns / 1e3))),
];

/// All of it, in lines of `width` characters.
pub fn show(results: &Results, machine: &str, width: u16) -> String {
    let notes = Results { notes: Vec::new(), ..results.clone() };
    let mut text = table::show(&notes, width);
    text += &format!("{machine}:\n{}", table::fitted(cpus(results), width));
    let notes = results
        .rows
        .iter()
        .filter_map(decided)
        .chain(results.rows.iter().filter_map(made_good))
        .chain(results.notes.iter().cloned())
        .collect();
    let below = Results { notes, ..Results::default() };
    text + table::show(&below, width).trim_start()
}

/// What a mode decided that counts its decisions, in a line.
fn decided(row: &Row) -> Option<String> {
    let decisions = row.extra.get(DECISIONS)?.as_object()?;
    let counts: Vec<String> = decisions.iter().map(|(name, count)| format!("{count} {}", name.replace('_', " "))).collect();
    Some(format!("{} decided: {}.", row.mode, counts.join(", ")))
}

/// What went wrong on a mode's paths and was made good, in a line; nothing, if nothing did.
fn made_good(row: &Row) -> Option<String> {
    let failover = row.extra.get(FAILOVER)?.as_object()?;
    let of = |key: &str| number(failover, key).unwrap_or(0.0);
    let stall = of("longest_stall_ns");
    (stall > 0.0).then(|| {
        let ms = |ns: f64| table::digits(ns / 1e6);
        format!(
            "{}: {} requests went another way, {} waited for a path, {} writes for their controller ({} ms at most); the longest stall was {} ms.",
            row.mode,
            of("failed_over") + of("retried"),
            of("waited"),
            of("held"),
            ms(of("longest_hold_ns")),
            ms(stall)
        )
    })
}

fn cpus(results: &Results) -> Table {
    let cells = |row: &Row| COLUMNS.iter().map(|(_, cell)| cell(row)).collect::<Vec<_>>();
    let rows = results.rows.iter().map(|row| [vec![row.mode.replace('+', "\n+")], cells(row)].concat()).collect();
    table::ruled(std::iter::once("mode").chain(COLUMNS.iter().map(|(header, _)| *header)), rows)
}

fn number(map: &serde_json::Map<String, Value>, key: &str) -> Option<f64> {
    map.get(key).and_then(Value::as_f64)
}

fn thousands(row: &Row, key: &str) -> String {
    number(&row.extra, key).map_or("–".into(), |n| table::digits(n / 1e3))
}

fn part(row: &Row, key: &str) -> String {
    row.extra.get(SPLIT).and_then(|split| split.get(key)).and_then(Value::as_f64).map_or("–".into(), |pct| format!("{pct:.1}"))
}
