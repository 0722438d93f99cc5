//! The results for people: one table, and what has to be known to read it.

use std::io::IsTerminal;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::results::{CPU, Comparison, Facts, IOPS, Row};
use super::statistics::Estimate;

/// Characters of a line where the output is no terminal.
const DEFAULT_WIDTH: u16 = 120;
/// From here on there is room for all columns.
const WIDE: u16 = 118;

/// Characters of a line on the standard output.
pub fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = std::io::stdout().is_terminal().then(|| Table::new().width()).flatten();
    terminal.or(columns).unwrap_or(DEFAULT_WIDTH)
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// All columns; intervals from where to where.
    Wide,
    /// The columns that matter most; intervals as ± per cent.
    Narrow,
}

/// A column.
struct Column {
    header: &'static str,
    /// Only where there is room for it.
    wide: bool,
    cell: fn(&Comparison, &Row, Style) -> String,
}

const COLUMNS: [Column; 11] = [
    Column { header: "kIOPS", wide: false, cell: |_, row, style| with_interval(Some(row.iops), 1e3, style) },
    Column { header: "÷\nfirst", wide: false, cell: |all, row, style| against_first(all, row, IOPS, style) },
    Column { header: "CPU\nns/IO", wide: false, cell: |_, row, style| with_interval(Some(row.cpu), 1.0, style) },
    Column { header: "÷\nfirst", wide: true, cell: |all, row, style| against_first(all, row, CPU, style) },
    Column { header: "stolen\nns/IO", wide: false, cell: |_, row, _| row.stolen.map_or("–".into(), digits) },
    Column { header: "notify\nns/IO", wide: false, cell: |_, row, _| digits(row.notify) },
    Column { header: "msgs\nk/s", wide: true, cell: |_, row, _| digits(row.messages / 1e3) },
    Column { header: "IO per\nwake", wide: false, cell: |_, row, _| if row.wakeups > 0.0 { digits(row.per_wakeup) } else { "–".into() } },
    Column { header: "p50\nµs", wide: false, cell: |_, row, style| with_interval(row.latency.p50, 1e3, style) },
    Column { header: "p99\nµs", wide: false, cell: |_, row, style| with_interval(row.latency.p99, 1e3, style) },
    Column { header: "p99.9\nµs", wide: false, cell: |_, row, style| with_interval(row.latency.p999, 1e3, style) },
];

/// The table in lines of `width` characters, the machine, what was dropped, and a legend.
pub fn show(all: &Comparison, machine: &str, width: u16) -> String {
    let style = if width >= WIDE { Style::Wide } else { Style::Narrow };
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| style == Style::Wide || !column.wide).collect();
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.set_header(std::iter::once(Cell::new("mode")).chain(columns.iter().map(|c| right(c.header.into()))));
    for row in &all.rows {
        let cells = columns.iter().map(|column| right((column.cell)(all, row, style)));
        table.add_row(std::iter::once(Cell::new(row.mode.replace('+', "\n+"))).chain(cells));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let below: String = about(all, machine, style).iter().map(|line| wrap(line, width.into())).collect();
    format!("{}{table}\n{below}", wrap(&heading(&all.facts), width.into()))
}

fn heading(facts: &Facts) -> String {
    let work = if facts.host_work > 0 { format!(", {} ns of application work per I/O", facts.host_work) } else { String::new() };
    format!("{} on {}{work}", facts.job, facts.device)
}

/// What stands below the table.
fn about(all: &Comparison, machine: &str, style: Style) -> Vec<String> {
    let (kept, dropped) = all.blocks;
    let mut lines = vec![format!("Machine: {machine}.")];
    let limit = match all.gaps_allowed {
        0 => "any".to_owned(),
        1 => "more than one (too few had none: the machine is busy)".to_owned(),
        n => format!("more than {n} (too few had fewer: the machine is busy)"),
    };
    lines.push(format!(
        "Blocks: {} rounds of {} ms blocks in random order. Gaps, in which the device's thread was away for more than 50 µs: {kept} \
         blocks kept, {dropped} dropped that had {limit}.",
        all.rounds,
        all.facts.block.0 / 1_000_000
    ));
    if let (Some(first), Some(iops), Some(cpu)) = (all.rows.first(), all.against_itself(IOPS), all.against_itself(CPU)) {
        lines.push(format!(
            "A/A: {} against itself: IOPS × {}, CPU × {}; such differences are noise.",
            first.mode,
            ratio(&iops),
            ratio(&cpu)
        ));
    }
    if let (Some(offered), Some(capacity)) = (all.facts.offered, all.capacity) {
        lines.push(format!(
            "Load: {} kIOPS meant, {:.0} % of the {} kIOPS that polling reaches without a rate.",
            digits(offered / 1e3),
            all.load_pct,
            digits(capacity / 1e3)
        ));
    }
    if all.facts.oversubscribed {
        lines.push("Oversubscribed: there are more threads than CPUs, and they wait for each other.".to_owned());
    }
    let interval = if style == Style::Wide { "their 95 % interval" } else { "half of their 95 % interval" };
    let paced = if all.facts.offered.is_some() { "intended start" } else { "decision to issue" };
    lines.push(format!(
        "Medians over blocks, below them {interval}. ÷ first: against {}, paired by round. CPU: of the host's threads, load \
         generator included. stolen: work that a loop at idle priority loses on the host's CPU, which counts interrupts and idle exits as \
         well. notify: the device's time for sending messages. Latencies: from the {paced} until the completion was found; a percentile is \
         shown if 20 samples lie above it.",
        all.rows.first().map_or("the first", |row| &row.mode)
    ));
    lines
}

fn against_first(all: &Comparison, row: &Row, figure: &str, style: Style) -> String {
    match (all.against_first(&row.mode, figure), style) {
        (Some(e), Style::Wide) => format!("{:.2}\n{:.2}–{:.2}", e.value, e.low, e.high),
        (Some(e), Style::Narrow) => format!("{:.2}\n±{:.2}", e.value, (e.high - e.low) / 2.0),
        (None, _) => "1".to_owned(),
    }
}

fn ratio(estimate: &Estimate) -> String {
    format!("{:.3} ({:.3}–{:.3})", estimate.value, estimate.low, estimate.high)
}

/// The value, and in the line below it the interval.
fn with_interval(estimate: Option<Estimate>, unit: f64, style: Style) -> String {
    match (estimate, style) {
        (Some(e), Style::Wide) => format!("{}\n{}–{}", digits(e.value / unit), digits(e.low / unit), digits(e.high / unit)),
        (Some(e), Style::Narrow) => format!("{}\n±{}%", digits(e.value / unit), percent((e.high - e.low) * 50.0 / e.value.max(1e-9))),
        (None, _) => "–".to_owned(),
    }
}

/// Whole ones, but for the smallest.
fn percent(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Three digits that matter, of large numbers in thousands.
fn digits(value: f64) -> String {
    match value {
        v if v >= 9_999.5 => format!("{}k", digits(v / 1e3)),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v > 0.0 => format!("{v:.2}"),
        _ => "0".to_owned(),
    }
}

/// Breaks a line at blanks.
fn wrap(line: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in line.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests;
