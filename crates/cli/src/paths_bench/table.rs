//! The bench for people: nanoseconds by queues and by threads, instructions by paths.

use std::fmt::Write;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use reap::paths::Policy;

use super::row::Row;
use crate::rows::fit::{self, wrap};

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

/// What a table leaves out to be narrow.
#[derive(Clone, Copy)]
struct Layout {
    /// The least and the most stand below the median.
    spread: bool,
    /// Instructions stand below each other.
    tall: bool,
    /// This many columns.
    columns: usize,
}

const LAYOUTS: [Layout; 4] = [
    Layout { spread: true, tall: false, columns: COLUMNS.len() },
    Layout { spread: true, tall: true, columns: COLUMNS.len() },
    Layout { spread: false, tall: true, columns: COLUMNS.len() },
    Layout { spread: false, tall: true, columns: COLUMNS.len() - 1 },
];

/// The table in lines of `width` characters, and what it shows.
pub fn draw(rows: &[Row], rounds: u32, machine: &str, width: u16) -> String {
    let tables = LAYOUTS.map(|layout| table(rows, rounds, layout));
    let mut text = wrap("Nanoseconds for one choose + start + end, two paths where not said otherwise", width.into());
    _ = writeln!(text, "{}", fit::first(width, tables));
    let rounds = if rounds == 1 {
        "One round".to_owned()
    } else {
        format!("Medians over {rounds} rounds, below them the least and the most where there is room")
    };
    let notes = [Some(format!("{rounds}. Instructions: at 64 queues, by callgrind.")), ratio(rows), Some(format!("Machine: {machine}."))];
    text + &notes.into_iter().flatten().map(|line| wrap(&line, width.into())).collect::<String>()
}

fn table(rows: &[Row], rounds: u32, layout: Layout) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    // The last ones first: what one thread does is what the others are held against.
    let columns = &COLUMNS[..layout.columns];
    let headings = columns.iter().map(|(heading, ..)| (*heading).to_owned());
    let instructions = if layout.tall { "instructions\n1, 2, 16\npaths" } else { "instructions\n1 → 2 → 16 paths" };
    table.set_header(["policy".to_owned()].into_iter().chain(headings).chain([instructions.to_owned()]));
    for policy in Policy::ALL.map(Policy::name) {
        let find = |paths, queues, threads| {
            rows.iter().find(|row| (row.policy, row.paths, row.queues, row.threads) == (policy, paths, queues, threads))
        };
        let spread = if layout.spread { rounds } else { 1 };
        let ns =
            columns.iter().map(|&(_, paths, queues, threads)| find(paths, queues, threads).map_or("–".into(), |row| figure(row, spread)));
        let instructions = [1, 2, 16].map(|paths| find(paths, 64, 1).and_then(|row| row.instructions));
        let instructions = instructions.map(|count| count.map_or("–".into(), |count| format!("{count:.0}")));
        let instructions = instructions.join(if layout.tall { "\n" } else { " → " });
        table.add_row([policy.replace(':', ":\n")].into_iter().chain(ns).chain([instructions]));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
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
