//! The bench for people: nanoseconds by queues and by threads, instructions by paths.

use std::fmt::Write;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use reap::paths::Policy;

use super::row::Row;

/// Columns: heading, paths, queues, threads.
const COLUMNS: [(&str, u8, u16, u8); 7] = [
    ("1 queue", 2, 1, 1),
    ("16", 2, 16, 1),
    ("64", 2, 64, 1),
    ("128", 2, 128, 1),
    ("16 paths\n128 queues", 16, 128, 1),
    ("2 threads\n1 queue", 2, 1, 2),
    ("2 threads\n64 queues", 2, 64, 2),
];

/// The table, and what it shows.
pub fn draw(rows: &[Row], rounds: u32, machine: &str) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    let headings = COLUMNS.iter().map(|(heading, ..)| (*heading).to_owned());
    table.set_header(["policy".to_owned()].into_iter().chain(headings).chain(["instructions\n1 → 2 → 16 paths".to_owned()]));
    for policy in Policy::ALL.map(Policy::name) {
        let find = |paths, queues, threads| {
            rows.iter().find(|row| (row.policy, row.paths, row.queues, row.threads) == (policy, paths, queues, threads))
        };
        let ns =
            COLUMNS.iter().map(|&(_, paths, queues, threads)| find(paths, queues, threads).map_or("–".into(), |row| figure(row, rounds)));
        let instructions = [1, 2, 16].map(|paths| find(paths, 64, 1).and_then(|row| row.instructions));
        let instructions = instructions.map(|count| count.map_or("–".into(), |count| format!("{count:.0}"))).join(" → ");
        table.add_row([policy.to_owned()].into_iter().chain(ns).chain([instructions]));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("Nanoseconds for one choose + start + end, two paths where not said otherwise\n{table}\n");
    let rounds =
        if rounds == 1 { "One round".to_owned() } else { format!("Medians over {rounds} rounds, below them the least and the most") };
    _ = writeln!(text, "{rounds}. Instructions: at 64 queues, by callgrind.");
    _ = writeln!(text, "{}", ratio(rows).unwrap_or_default());
    _ = writeln!(text, "Machine: {machine}.");
    text
}

fn figure(row: &Row, rounds: u32) -> String {
    if rounds == 1 { format!("{:.1}", row.ns) } else { format!("{:.1}\n{:.1}–{:.1}", row.ns, row.ns_min, row.ns_max) }
}

/// What post 004 is about: the sum over hardware queues against one count for each controller, at its 64 queues.
fn ratio(rows: &[Row]) -> Option<String> {
    let at = |policy| rows.iter().find(|row| (row.policy, row.paths, row.queues, row.threads) == (policy, 2, 64, 1));
    let (sum, one) = (at("queue-depth:sum")?, at("queue-depth:controller")?);
    Some(format!("At 64 queues the sum over them takes {:.1} times as long as one count for each controller.", sum.ns / one.ns))
}
