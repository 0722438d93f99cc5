//! The results as text tables of `width` characters, with notes and the verdict below.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

use super::{CPU, Estimate, IOPS, Results, Row, SCORE, Scene};

/// Line width in characters if the output is not a terminal and COLUMNS is not set.
const DEFAULT_WIDTH: u16 = 120;

/// Line width of the standard output, in characters.
pub fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = std::io::stdout().is_terminal().then(|| Table::new().width()).flatten();
    terminal.or(columns).unwrap_or(DEFAULT_WIDTH)
}

/// A column. It is left out if no row has a value for it.
struct Column {
    header: &'static str,
    /// Key of its explanation in [`Results::legend`].
    key: &'static str,
    /// Shown only with `--wide`.
    wide: bool,
    cell: fn(&Results, &Row) -> Option<String>,
}

const COLUMNS: [Column; 14] = [
    Column {
        header: "kIOPS",
        key: "kIOPS",
        wide: false,
        cell: |_, row| with_interval(row.iops?, 1e3),
    },
    Column {
        header: "÷\nfirst",
        key: "÷ first",
        wide: true,
        cell: |all, row| against_first(all, row, IOPS),
    },
    Column {
        header: "CPU per I/O\nµs",
        key: "CPU",
        wide: false,
        cell: |_, row| with_interval(row.cpu?, 1e3),
    },
    Column {
        header: "÷\nfirst",
        key: "÷ first",
        wide: true,
        cell: |all, row| against_first(all, row, CPU),
    },
    Column {
        header: "thread\nµs",
        key: "thread",
        wide: true,
        cell: |_, row| with_interval(row.thread_cpu?, 1e3),
    },
    Column {
        header: "stolen\nµs",
        key: "stolen",
        wide: true,
        cell: |_, row| Some(digits(row.stolen? / 1e3)),
    },
    Column {
        header: "notify\nns/IO",
        key: "notify",
        wide: true,
        cell: |_, row| (row.notify > 0.0 && !row.messages_unknown).then(|| digits(row.notify)),
    },
    Column {
        header: "msgs\nk/s",
        key: "msgs",
        wide: true,
        cell: |_, row| (!row.messages_unknown).then(|| digits(row.messages / 1e3)),
    },
    Column {
        header: "sys\nper IO",
        key: "sys per IO",
        wide: true,
        cell: |_, row| row.system_calls.map(digits),
    },
    Column {
        header: "IO per\nwake",
        key: "IO per wake",
        wide: true,
        // Modes that only poll have no wake-ups, so no ratio.
        cell: |_, row| (row.wakeups > 0.0).then(|| digits(row.per_wakeup)),
    },
    Column {
        header: "p50\nµs",
        key: "p50",
        wide: false,
        cell: |_, row| with_interval(row.latency.p50?, 1e3),
    },
    Column {
        header: "p99\nµs",
        key: "p99",
        wide: false,
        cell: |_, row| with_interval(row.latency.p99?, 1e3),
    },
    Column {
        header: "p99.9\nµs",
        key: "p99.9",
        wide: true,
        cell: |_, row| with_interval(row.latency.p999?, 1e3),
    },
    Column {
        header: "÷ first\nC·L³",
        key: "C·L³",
        wide: true,
        cell: |all, row| against_first(all, row, SCORE),
    },
];

/// The columns with a value in some row; `wide`: also those of `--wide`.
fn columns(all: &Results, wide: bool) -> Vec<&'static Column> {
    let used = |column: &&Column| all.rows.iter().any(|row| (column.cell)(all, row).is_some());
    COLUMNS.iter().filter(|column| wide || !column.wide).filter(used).collect()
}

/// Title, tables, `more`, notes and verdict, wrapped to `width` characters. Tables with `wide` are
/// not wrapped, so that scripts and pagers get one line per row.
pub fn show(all: &Results, width: u16, wide: bool, more: &str) -> String {
    let mut text = wrap(&all.title, width.into());
    // Scenes that differ only in the load share a table, with a column for the load.
    let mut groups: Vec<Vec<&Scene>> = Vec::new();
    for scene in all.scenes() {
        let same =
            |other: &&Scene| Scene { load_pct: scene.load_pct, ..(*other).clone() } == *scene;
        match groups.iter_mut().find(|scenes| scenes.iter().all(same)) {
            Some(scenes) => scenes.push(scene),
            None => groups.push(vec![scene]),
        }
    }
    for scenes in &groups {
        // With one table the title already has profile, queue depth and load.
        if let (true, Some(scene)) = (groups.len() > 1, scenes.first()) {
            let background = scene.background_pct.map_or(String::new(), |pct| {
                format!(", a thread that takes {pct:.0} % of each job CPU")
            });
            let arrivals =
                scene.arrivals.as_ref().map_or(String::new(), |arrivals| format!(", {arrivals}"));
            text +=
                &format!("\n{}, queue depth {}{arrivals}{background}\n", scene.profile, scene.qd);
        }
        // Columns are chosen over all rows, so that all tables have the same ones.
        let table = table(all, scenes, &columns(all, wide));
        text += &if wide { table.trim_fmt() + "\n" } else { fitted(table, width) };
        if let Some(paths) = paths(all, scenes) {
            text +=
                &format!("Paths, over all that was measured of a mode\n{}", fitted(paths, width));
        }
    }
    let verdict = all.verdict();
    let lines =
        notes(all, wide).into_iter().chain((!verdict.is_empty()).then(String::new)).chain(verdict);
    text + more + &lines.map(|line| wrap(&line, width.into())).collect::<String>()
}

/// The notes, and the explanations of the columns shown.
pub fn notes(all: &Results, wide: bool) -> Vec<String> {
    // Hidden columns are not explained.
    let columns = columns(all, wide);
    let words: Vec<&str> = all
        .legend
        .iter()
        .filter(|(key, _)| columns.iter().any(|column| column.key == *key))
        .map(|(_, words)| words.as_str())
        .collect();
    all.notes.iter().cloned().chain((!words.is_empty()).then(|| words.join(" "))).collect()
}

/// The table of some scenes; `*` marks the recommended mode.
fn table(all: &Results, scenes: &[&Scene], columns: &[&Column]) -> Table {
    let loads = scenes.len() > 1;
    let headers = loads
        .then_some("load\n%")
        .into_iter()
        .chain(["mode"])
        .chain(columns.iter().map(|column| column.header));
    let mut rows = Vec::new();
    for scene in scenes {
        // One recommendation per scene: a sweep may have a different one at each load.
        let best = all.best(scene).map(|row| &row.mode);
        for (n, row) in all.rows.iter().filter(|row| row.scene == **scene).enumerate() {
            // The load is printed in the first row of its scene only.
            let load = loads.then(|| if n == 0 { percent(scene.load_pct) } else { String::new() });
            let mark = if best == Some(&row.mode) { " *" } else { "" };
            let cells = columns
                .iter()
                .map(|column| (column.cell)(all, row).unwrap_or_else(|| "–".to_owned()));
            rows.push(
                load.into_iter().chain([format!("{}{mark}", row.mode)]).chain(cells).collect(),
            );
        }
    }
    unruled(headers, rows)
}

/// A table of statistics per path and mode; `None` without multipath devices.
fn paths(all: &Results, scenes: &[&Scene]) -> Option<Table> {
    let loads = scenes.len() > 1;
    let mut rows = Vec::new();
    for row in all.rows.iter().filter(|row| scenes.contains(&&row.scene)) {
        for (n, path) in row.paths.iter().enumerate() {
            let first = |text: String| if n == 0 { text } else { String::new() };
            let cells = [
                first(row.mode.clone()),
                path.ios.to_string(),
                path.failed.to_string(),
                digits(path.in_flight),
                digits(path.lat_ns as f64 / 1e3),
                path.state.clone(),
                if path.device.is_empty() {
                    path.path.clone()
                } else {
                    format!("{} of {}", path.path, path.device)
                },
            ];
            rows.push(
                loads
                    .then(|| first(percent(row.scene.load_pct)))
                    .into_iter()
                    .chain(cells)
                    .collect(),
            );
        }
    }
    let headers = ["mode", "I/Os", "failed", "in\nflight", "latency\nµs", "state", "path"];
    (!rows.is_empty()).then(|| unruled(loads.then_some("load\n%").into_iter().chain(headers), rows))
}

/// A table with lines between rows; columns of numbers are right-aligned.
pub fn ruled<'a>(headers: impl IntoIterator<Item = &'a str>, rows: Vec<Vec<String>>) -> Table {
    let headers: Vec<&str> = headers.into_iter().collect();
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(&headers).add_rows(rows);
    for (column, header) in table.column_iter_mut().zip(headers) {
        column.set_padding((0, 1));
        if !["mode", "state", "path", "price", "how"].contains(&header) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table without lines between rows.
pub fn unruled<'a>(headers: impl IntoIterator<Item = &'a str>, rows: Vec<Vec<String>>) -> Table {
    let mut table = ruled(headers, rows);
    table
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections);
    table
}

/// The text of a table; if it is wider than `width` characters, cells are wrapped.
pub fn fitted(mut table: Table, width: u16) -> String {
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.trim_fmt() + "\n"
}

/// Wraps a line at spaces. A word longer than `width` keeps its length.
pub fn wrap(line: &str, width: usize) -> String {
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

/// Ratio to the first mode of the scene, with half of its interval.
fn against_first(all: &Results, row: &Row, figure: &str) -> Option<String> {
    let Some(Estimate { value, interval }) = all.against_first(&row.scene, &row.mode, figure)
    else {
        // The first mode has no pair with itself except A/A: its ratio is 1.
        let first = !all.pairs.is_empty() && all.first(&row.scene) == Some(&row.mode);
        return first.then(|| "1".to_owned());
    };
    let half =
        interval.map_or_else(String::new, |[low, high]| format!(" ±{:.2}", (high - low) / 2.0));
    Some(format!("{value:.2}{half}"))
}

/// A value ÷ `unit`, with half of its interval in per cent.
fn with_interval(estimate: Estimate, unit: f64) -> Option<String> {
    let value = digits(estimate.value / unit);
    let Some([low, high]) = estimate.interval.filter(|[low, high]| low < high) else {
        return Some(value);
    };
    // The interval may be asymmetric; its half width is enough on a terminal, JSON has both ends.
    let half = (high - low) * 50.0 / estimate.value.max(1e-9);
    Some(if half < 9.95 {
        format!("{value} ±{half:.1}%")
    } else {
        format!("{value} ±{half:.0}%")
    })
}

/// A number with three significant digits; from 10,000 in thousands or millions.
pub fn digits(value: f64) -> String {
    match value {
        v if v >= 9_999_500.0 => format!("{}M", digits(v / 1e6)),
        v if v >= 9_999.5 => format!("{}k", digits(v / 1e3)),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v > 0.0 => format!("{v:.2}"),
        _ => "0".to_owned(),
    }
}

/// A percentage, without decimals if it is whole.
pub fn percent(pct: f64) -> String {
    if pct.fract() == 0.0 { format!("{pct:.0}") } else { digits(pct) }
}

#[cfg(test)]
mod tests;
