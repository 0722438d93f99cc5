//! The results for people: tables, and what has to be known to read them.

use std::io::IsTerminal;

use comfy_table::{Cell, CellAlignment, Table, presets};

pub use super::fit::wrap;
use super::{CPU, Estimate, IOPS, Results, Row, Scene, fit};

/// Characters of a line where the output is no terminal.
const DEFAULT_WIDTH: u16 = 120;
/// Characters of a line on the standard output.
pub fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = std::io::stdout().is_terminal().then(|| Table::new().width()).flatten();
    terminal.or(columns).unwrap_or(DEFAULT_WIDTH)
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Intervals from where to where.
    Wide,
    /// Intervals as ± per cent.
    Narrow,
}

/// A column.
struct Column {
    header: &'static str,
    /// As [`Results::legend`] calls it.
    key: &'static str,
    /// Where there is no room for all, those with the highest are left out first; 0: it stays.
    spare: u8,
    /// Only where some row has something to say.
    used: fn(&Results) -> bool,
    cell: fn(&Results, &Row, Style) -> String,
}

/// The highest [`Column::spare`].
const SPARE: u8 = 6;

const ALWAYS: fn(&Results) -> bool = |_| true;
const PAIRED: fn(&Results) -> bool = |all| !all.pairs.is_empty();

const TOLD: fn(&Results) -> bool = |all| !all.rows.iter().all(|row| row.untold);

const COLUMNS: [Column; 12] = [
    Column { header: "kIOPS", key: "kIOPS", spare: 0, used: ALWAYS, cell: |_, row, style| with_interval(row.iops, 1e3, style) },
    Column { header: "÷\nfirst", key: "÷ first", spare: 0, used: PAIRED, cell: |all, row, style| against_first(all, row, IOPS, style) },
    Column { header: "CPU\nns/IO", key: "CPU", spare: 0, used: ALWAYS, cell: |_, row, style| with_interval(row.cpu, 1.0, style) },
    Column { header: "÷\nfirst", key: "÷ first", spare: 4, used: PAIRED, cell: |all, row, style| against_first(all, row, CPU, style) },
    Column {
        header: "stolen\nns/IO",
        key: "stolen",
        spare: 3,
        used: |all| all.rows.iter().any(|row| row.stolen.is_some()),
        cell: |_, row, _| row.stolen.map_or("–".into(), digits),
    },
    Column {
        header: "notify\nns/IO",
        key: "notify",
        spare: 5,
        used: |all| all.rows.iter().any(|row| row.notify > 0.0 && !row.untold),
        cell: |_, row, _| digits(row.notify),
    },
    Column { header: "msgs\nk/s", key: "msgs", spare: 6, used: TOLD, cell: |_, row, _| digits(row.messages / 1e3) },
    Column {
        header: "sys\nper IO",
        key: "sys per IO",
        spare: 5,
        used: |all| all.rows.iter().any(|row| row.system_calls.is_some()),
        cell: |_, row, _| row.system_calls.map_or("–".into(), digits),
    },
    Column {
        header: "IO per\nwake",
        key: "IO per wake",
        spare: 2,
        used: ALWAYS,
        cell: |_, row, _| if row.wakeups > 0.0 { digits(row.per_wakeup) } else { "–".into() },
    },
    Column { header: "p50\nµs", key: "p50", spare: 0, used: ALWAYS, cell: |_, row, style| with_interval(row.latency.p50, 1e3, style) },
    Column { header: "p99\nµs", key: "p99", spare: 0, used: ALWAYS, cell: |_, row, style| with_interval(row.latency.p99, 1e3, style) },
    Column {
        header: "p99.9\nµs", key: "p99.9", spare: 1, used: ALWAYS, cell: |_, row, style| with_interval(row.latency.p999, 1e3, style)
    },
];

/// Which columns there is room for, and how they are written.
#[derive(Clone, Copy)]
struct Layout {
    style: Style,
    /// Columns that are spared more than this are left out.
    spare: u8,
}

impl Layout {
    /// From the one that says most to the one that says least.
    fn all() -> impl Iterator<Item = Layout> {
        let narrow = (0..=SPARE).rev().map(|spare| Layout { style: Style::Narrow, spare });
        std::iter::once(Layout { style: Style::Wide, spare: SPARE }).chain(narrow)
    }

    fn columns(self, all: &Results) -> Vec<&'static Column> {
        COLUMNS.iter().filter(|column| column.spare <= self.spare && (column.used)(all)).collect()
    }
}

/// The title, the tables in lines of `width` characters, and the notes.
pub fn show(all: &Results, width: u16) -> String {
    let scenes = all.scenes();
    let mut text = all.banner.iter().map(|line| wrap(line, width.into())).collect::<String>();
    text += &wrap(&all.title, width.into());
    // A table holds the scenes that differ in nothing but the load.
    let mut tables: Vec<Vec<&Scene>> = Vec::new();
    for scene in scenes {
        match tables.iter_mut().find(|scenes| scenes.iter().all(|other| group(other) == group(scene))) {
            Some(scenes) => scenes.push(scene),
            None => tables.push(vec![scene]),
        }
    }
    // All tables have the same columns.
    let fit = |layout: &Layout| tables.iter().all(|scenes| fit::fits(&table(all, scenes, *layout).trim_fmt(), width));
    let layout = Layout::all().find(fit).unwrap_or(Layout { style: Style::Narrow, spare: 0 });
    for scenes in &tables {
        if let (true, Some(scene)) = (tables.len() > 1, scenes.first()) {
            text += &format!("\n{}\n", headline(scene));
        }
        text += &format!("{}\n", fit::first(width, [table(all, scenes, layout)]));
        text += &paths(all, scenes, width);
    }
    let shown: Vec<&str> = layout.columns(all).iter().map(|column| column.key).collect();
    let notes = all.notes.iter().cloned().chain(legend(all, |key| shown.contains(&key)));
    text + &notes.map(|line| wrap(&line, width.into())).collect::<String>()
}

/// What the columns of these keys mean, in a line; `None` if there is nothing to say.
pub fn legend(all: &Results, shown: impl Fn(&str) -> bool) -> Option<String> {
    let said: Vec<&str> = all.legend.iter().filter(|(key, _)| shown(key)).map(|(_, words)| words.as_str()).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// What each path did in each mode, of a device that has several.
fn paths(all: &Results, scenes: &[&Scene], width: u16) -> String {
    let rows: Vec<&Row> = all.rows.iter().filter(|row| !row.paths.is_empty() && scenes.contains(&&row.scene)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let loads = scenes.len() > 1;
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let numbers = ["I/Os", "failed", "in\nflight", "latency\nµs"].map(|header| right(header.into()));
    let heading = loads.then(|| right("load\n%".into()));
    table.set_header(heading.into_iter().chain([Cell::new("mode")]).chain(numbers).chain([Cell::new("state"), Cell::new("path")]));
    for row in rows {
        for (n, path) in row.paths.iter().enumerate() {
            let first = |text: String| if n == 0 { text } else { String::new() };
            let load = loads.then(|| right(first(load(row.scene.load_pct))));
            let numbers = [path.ios.to_string(), path.failed.to_string(), digits(path.in_flight), digits(path.lat_ns as f64 / 1e3)];
            let name = if path.device.is_empty() { path.path.clone() } else { format!("{} of {}", path.path, path.device) };
            let words = [Cell::new(&path.state), Cell::new(name)];
            table.add_row(load.into_iter().chain([Cell::new(first(row.mode.clone()))]).chain(numbers.map(right)).chain(words));
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    format!("Paths, over all that was measured of a mode\n{}\n", fit::first(width, [table]))
}

/// What tables are apart by.
fn group(scene: &Scene) -> Scene {
    Scene { load_pct: 0.0, ..scene.clone() }
}

/// What a table, or a group of charts, is about.
pub fn headline(scene: &Scene) -> String {
    let background = scene.background_pct.map_or(String::new(), |pct| format!(", a thread that wants {pct:.0} % of the host's CPU"));
    let arrivals = scene.arrivals.as_ref().map_or(String::new(), |arrivals| format!(", {arrivals}"));
    format!("{}, queue depth {}{arrivals}{background}", scene.profile, scene.qd)
}

fn table(all: &Results, scenes: &[&Scene], layout: Layout) -> Table {
    let (style, columns) = (layout.style, layout.columns(all));
    let loads = scenes.len() > 1;
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let heading = loads.then(|| right("load\n%".into()));
    table.set_header(heading.into_iter().chain([Cell::new("mode")]).chain(columns.iter().map(|c| right(c.header.into()))));
    for scene in scenes {
        let mut load = loads.then(|| load(scene.load_pct));
        for row in all.rows.iter().filter(|row| row.scene == **scene) {
            let cells = columns.iter().map(|column| right((column.cell)(all, row, style)));
            // Said once for all modes at that load.
            let first = loads.then(|| right(load.take().unwrap_or_default()));
            table.add_row(first.into_iter().chain([Cell::new(row.mode.replace('+', "\n+"))]).chain(cells));
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

fn against_first(all: &Results, row: &Row, figure: &str, style: Style) -> String {
    let Some(e) = all.against_first(&row.scene, &row.mode, figure) else {
        return if all.first(&row.scene) == Some(&row.mode) { "1" } else { "–" }.to_owned();
    };
    match (e.interval, style) {
        (None, _) => format!("{:.2}", e.value),
        (Some([low, high]), Style::Wide) => format!("{:.2}\n{low:.2}–{high:.2}", e.value),
        (Some([low, high]), Style::Narrow) => format!("{:.2}\n±{:.2}", e.value, (high - low) / 2.0),
    }
}

/// `1.002 (0.990–1.010)`
pub fn ratio(estimate: &Estimate) -> String {
    let between = estimate.interval.map_or(String::new(), |[low, high]| format!(" ({low:.3}–{high:.3})"));
    format!("{:.3}{between}", estimate.value)
}

/// The value, and in the line below it the interval.
fn with_interval(estimate: Option<Estimate>, unit: f64, style: Style) -> String {
    let Some(e) = estimate else { return "–".to_owned() };
    let value = digits(e.value / unit);
    match (e.interval.filter(|[low, high]| low < high), style) {
        (None, _) => value,
        (Some([low, high]), Style::Wide) => format!("{value}\n{}–{}", digits(low / unit), digits(high / unit)),
        (Some([low, high]), Style::Narrow) => format!("{value}\n±{}%", percent((high - low) * 50.0 / e.value.max(1e-9))),
    }
}

/// Whole ones, but for the smallest.
fn percent(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Three digits that matter, of large numbers in thousands.
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

/// Per cent, whole where they are.
fn load(pct: f64) -> String {
    if pct.fract() == 0.0 { format!("{pct:.0}") } else { digits(pct) }
}

#[cfg(test)]
mod tests;
