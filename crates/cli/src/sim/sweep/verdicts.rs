//! What a user would say of the default setting: where it is dominated, where it dominates, and whether the knob gives what it asks for.

use crate::rows::fit;
use crate::rows::table::width;
use ::sim::sweep::Cell;
use ::sim::sweep::judge::{self, Fare, Verdict};
use comfy_table::{Cell as Text, CellAlignment, Table, presets};
use completion::{LatencyPrice, Mode};
use serde_json::{Map, Value, json};

use super::ran::Ran;
use super::tasks::Task;

/// Cells that a table shows of those that are dominated, the worst ones; the JSON has all.
const SHOWN: usize = 20;

/// The verdicts on the cells in which everything that was asked for was run.
pub struct Verdicts {
    cells: Vec<Judged>,
    /// Each setting of the knob in each cell.
    curve: Vec<(String, Value)>,
    curves: Curves,
}

/// A cell's verdict.
struct Judged {
    name: String,
    family: &'static str,
    place: Map<String, Value>,
    open: bool,
    dominating: bool,
    /// What the default costs by its own measure, as a part of what the cheapest other mode does.
    cost: f64,
    rival: Option<Rival>,
    /// Other modes that dominate; a setting of its own knob is none.
    modes: Vec<String>,
}

/// Who dominates, of several the cheapest.
struct Rival {
    mode: String,
    /// Its figures as parts of the default's, and what it costs by the default's measure.
    parts: Fare,
    cost: f64,
}

/// The default by its own measure, as parts of what the cheapest other mode of a cell costs.
struct Costs {
    median: f64,
    p90: f64,
    worst: f64,
    /// The worst cell.
    cell: String,
    /// Cells that are dominated by a rival that costs as much, or more.
    no_dearer: usize,
}

/// What the curves of the knob come to.
#[derive(Default)]
struct Curves {
    cells: usize,
    monotone: usize,
    /// Of neighbouring settings, if these mean a rate of exchange: how many exchange something, and how many at a rate in theirs.
    exchanged: Option<(usize, usize)>,
}

impl Verdicts {
    /// On cells with all of `modes`, and all of `settings` of the knob.
    pub fn of(cells: &[Cell], tasks: &[Task], ran: &[Option<Ran>], modes: &[Mode], settings: &[LatencyPrice]) -> Verdicts {
        let mut all = Verdicts { cells: Vec::new(), curve: Vec::new(), curves: Curves::default() };
        let mut by_cell: Vec<Vec<(&Task, Fare)>> = vec![Vec::new(); cells.len()];
        for (task, ran) in tasks.iter().zip(ran).filter_map(|(task, ran)| Some((task, ran.as_ref()?))) {
            by_cell[task.cell].push((task, ran.fare));
        }
        for (cell, fares) in cells.iter().zip(&by_cell) {
            let setting = |wanted: &LatencyPrice| {
                fares.iter().find(|(task, _)| task.mode == Mode::ADAPTIVE && task.price == *wanted).map(|(task, fare)| (*task, *fare))
            };
            let curve: Vec<(&Task, Fare)> = settings.iter().filter_map(setting).collect();
            let others: Vec<(&Task, Fare)> = fares.iter().filter(|(task, _)| task.mode != Mode::ADAPTIVE).copied().collect();
            let whole = curve.len() == settings.len() && others.len() + 1 == modes.len();
            let Some((_, own)) = setting(&LatencyPrice::default()).filter(|_| whole) else { continue };
            all.cells.push(judged(cell, &own, &others, &curve));
            all.curve.extend(curve.iter().map(|(task, fare)| (cell.to_string(), point(cell, task.price, fare))));
            all.curves.add(&curve);
        }
        all
    }

    /// For scripts: `default`, `curve`, `knob`.
    pub fn json(&self) -> Map<String, Value> {
        let dominated: Vec<Value> = self.cells.iter().filter_map(Judged::json).collect();
        let dominating: Vec<&str> = self.cells.iter().filter(|cell| cell.dominating).map(|cell| &*cell.name).collect();
        let curve: Vec<&Value> = self.curve.iter().map(|(_, point)| point).collect();
        let percent = |part: usize, all: usize| (all > 0).then(|| part as f64 * 100.0 / all as f64);
        let Curves { cells, monotone, exchanged } = self.curves;
        let exchanged = exchanged.map(|(pairs, kept)| json!({ "pairs": pairs, "within_pct": percent(kept, pairs) }));
        let default = json!({
            "setting": LatencyPrice::default().to_string(), "cells": self.cells.len(), "dominated": dominated, "dominating": dominating,
            "cost": self.costs().map(|Costs { median, p90, worst, .. }| json!({ "median": median, "p90": p90, "worst": worst })),
        });
        let knob = json!({ "cells": cells, "monotone_pct": percent(monotone, cells), "exchange": exchanged });
        [("default", default), ("curve", json!(curve)), ("knob", knob)].map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }

    /// For people, in 80 columns: counts, families, rivals, the worst cells, the knob.
    pub fn show(&self) -> String {
        if self.cells.is_empty() {
            return "No cell has `adaptive` at its default and all that it is compared with.\n\n".to_owned();
        }
        let mut dominated: Vec<(&Judged, &Rival)> = self.cells.iter().filter_map(|cell| Some((cell, cell.rival.as_ref()?))).collect();
        dominated.sort_by(|a, b| a.1.parts.cpu.total_cmp(&b.1.parts.cpu));
        let (all, by_modes) = (self.cells.len(), dominated.iter().filter(|(cell, _)| !cell.modes.is_empty()).count());
        let mut text = format!(
            "adaptive at its default, {}: dominated in {} of {all} cells ({:.1} %), in {by_modes} by\nanother mode, in {} by its own knob alone; \
             dominating in {}.",
            LatencyPrice::default(),
            dominated.len(),
            dominated.len() as f64 * 100.0 / all as f64,
            dominated.len() - by_modes,
            self.cells.iter().filter(|cell| cell.dominating).count(),
        );
        if let Some((cell, rival)) = dominated.first() {
            text += &format!("\nWorst: {}, where {} takes {:.2} of the CPU.", cell.name, rival.mode, rival.parts.cpu);
        }
        text += &format!("\n{}\n{}\n", self.costs().map_or_else(String::new, |costs| costs.show(dominated.len())), self.families());
        if !dominated.is_empty() {
            text += &format!("{}\n{}", self.rivals(), worst(&dominated));
        }
        text + &self.curves.show()
            + "Dominated: open loop, a rival takes at most 0.95 of the CPU per I/O, its mean\nand p99 at most 5 % later; closed loop, the same CPU\n\
               at 0.99 of the IOPS or more.\nDominating: none dominates, and it takes 0.95 of the CPU of each mode as quick.\n\n"
    }

    /// What the default costs by its own measure, beside the cheapest other mode of each cell.
    fn costs(&self) -> Option<Costs> {
        let mut all: Vec<&Judged> = self.cells.iter().collect();
        all.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        let at = |part: usize| all.get((all.len().saturating_sub(1)) * part / 100).map(|cell| cell.cost);
        let no_dearer = all.iter().filter(|cell| cell.rival.as_ref().is_some_and(|rival| rival.cost >= 1.0)).count();
        Some(Costs { median: at(50)?, p90: at(90)?, worst: at(100)?, cell: all.last()?.name.clone(), no_dearer })
    }

    fn families(&self) -> Table {
        let mut table = plain(&["family", "cells", "dominated", "by modes", "worst CPU", "dominating"], 1);
        let mut families: Vec<&str> = self.cells.iter().map(|cell| cell.family).collect();
        let mut seen = Vec::new();
        families.retain(|family| {
            !seen.contains(family) && {
                seen.push(*family);
                true
            }
        });
        for family in families {
            let of = || self.cells.iter().filter(|cell| cell.family == family);
            let worst = of().filter_map(|cell| cell.rival.as_ref()).map(|rival| rival.parts.cpu).reduce(f64::min);
            let counts =
                [of().count(), of().filter(|cell| cell.rival.is_some()).count(), of().filter(|cell| !cell.modes.is_empty()).count()];
            let figures = counts.map(|count| count.to_string()).into_iter();
            let figures = figures.chain([worst.map_or("–".to_owned(), |cpu| format!("{cpu:.2}"))]);
            let figures = figures.chain([of().filter(|cell| cell.dominating).count().to_string()]);
            table.add_row(std::iter::once(Text::new(family)).chain(figures.map(right)));
        }
        table
    }

    /// In how many cells each mode dominates.
    fn rivals(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for mode in self.cells.iter().flat_map(|cell| &cell.modes) {
            match counts.iter_mut().find(|(known, _)| known == mode) {
                Some((_, count)) => *count += 1,
                None => counts.push((mode, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let counts: Vec<String> = counts.iter().map(|(mode, count)| format!("{mode} in {count}")).collect();
        if counts.is_empty() { String::new() } else { fill(&format!("Modes that dominate: {}.", counts.join(", "))) }
    }
}

impl Judged {
    fn json(&self) -> Option<Value> {
        let Rival { mode, parts, cost } = self.rival.as_ref()?;
        let mut value = Map::from_iter([("mode".to_owned(), json!(mode))]);
        value.extend(self.place.clone());
        let ratios = [
            ("cpu_ratio", parts.cpu),
            ("mean_ratio", parts.mean),
            ("p99_ratio", parts.p99),
            ("iops_ratio", parts.iops),
            ("cost_ratio", *cost),
        ];
        value.extend(ratios.map(|(key, ratio)| (key.to_owned(), json!(ratio))));
        value.extend([("cell".to_owned(), json!(self.name)), ("modes".to_owned(), json!(self.modes))]);
        Some(value.into())
    }
}

impl Costs {
    fn show(&self, dominated: usize) -> String {
        let Costs { median, p90, worst, cell, no_dearer } = self;
        let price = LatencyPrice::default();
        let rivals = if dominated > 0 {
            format!(" Dominating rivals that cost as much or more: {no_dearer} of {dominated}.")
        } else {
            String::new()
        };
        fill(&format!(
            "By its own measure, CPU time + {price} · mean latency, it costs {median:.2} of the cheapest mode in the median cell, {p90:.2} at \
             the 90th percentile, {worst:.2} at worst ({cell}).{rivals}"
        ))
    }
}

impl Curves {
    fn add(&mut self, curve: &[(&Task, Fare)]) {
        let fares: Vec<Fare> = curve.iter().map(|(_, fare)| *fare).collect();
        self.cells += 1;
        self.monotone += usize::from(judge::is_monotone(&fares));
        let rates: Vec<(f64, Fare)> = curve.iter().map(|(task, fare)| (task.price.rate(), *fare)).collect();
        let (all, kept) = judge::exchanges(&rates);
        let (pairs, within) = self.exchanged.get_or_insert_default();
        (*pairs, *within) = (*pairs + all, *within + kept);
    }

    fn show(&self) -> String {
        let percent = |part: usize, all: usize| if all > 0 { format!("{:.1} %", part as f64 * 100.0 / all as f64) } else { "–".into() };
        let exchanged = match self.exchanged {
            Some((pairs, kept)) => format!("in {} of {pairs} pairs of neighbours", percent(kept, pairs)),
            None => "not told, as its settings mean no rate".to_owned(),
        };
        let monotone = percent(self.monotone, self.cells);
        format!(
            "The knob: monotone within 3 % in {monotone} of {} cells; CPU is exchanged for time\nat its rate within a factor of 2: {exchanged}.\n",
            self.cells
        )
    }
}

fn judged(cell: &Cell, own: &Fare, others: &[(&Task, Fare)], curve: &[(&Task, Fare)]) -> Judged {
    let open = cell.kind.is_open();
    let settings: Vec<(&Task, Fare)> = curve.iter().filter(|(task, _)| task.price != LatencyPrice::default()).copied().collect();
    let fares = |of: &[(&Task, Fare)]| of.iter().map(|(_, fare)| *fare).collect::<Vec<Fare>>();
    let verdict = judge::judge(own, &fares(others), &fares(&settings), open);
    let cost = |fare: &Fare| fare.cost(LatencyPrice::default().rate());
    // Where it runs alone it is the cheapest.
    let cheapest = others.iter().map(|(_, fare)| cost(fare)).reduce(f64::min).unwrap_or_else(|| cost(own));
    let modes = others.iter().filter(|(_, fare)| fare.dominates(own, open)).map(|(task, _)| task.label()).collect();
    let dominates = if let Verdict::Dominated(at) = verdict { others.iter().chain(&settings).nth(at) } else { None };
    Judged {
        name: cell.to_string(),
        family: cell.kind.family(),
        place: place(cell),
        open,
        dominating: verdict == Verdict::Dominating,
        cost: cost(own) / cheapest,
        rival: dominates.map(|(task, fare)| Rival { mode: task.label(), cost: cost(fare) / cost(own), parts: fare.over(own) }),
        modes,
    }
}

/// Where a cell is, for scripts.
fn place(cell: &Cell) -> Map<String, Value> {
    let place = [
        ("costs", json!(cell.costs.name)),
        ("profile", json!(cell.profile.name)),
        ("qd", json!(cell.depth)),
        ("load_pct", json!(cell.kind.load())),
        ("family", json!(cell.kind.family())),
        ("threads", json!(cell.kind.threads())),
    ];
    place.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

/// A setting of the knob in a cell. The rate that it means is a number; what is none is told as it is written.
fn point(cell: &Cell, setting: LatencyPrice, fare: &Fare) -> Value {
    let lambda = if setting.rate().is_finite() { json!(setting.rate()) } else { json!(setting.to_string()) };
    let mut value = place(cell);
    let figures = [
        ("cell", json!(cell.to_string())),
        ("lambda", lambda),
        ("cpu_ns_per_io", json!(fare.cpu)),
        ("mean_ns", json!(fare.mean)),
        ("p99_ns", json!(fare.p99)),
        ("iops", json!(fare.iops)),
    ];
    value.extend(figures.map(|(key, figure)| (key.to_owned(), figure)));
    value.into()
}

/// The worst of them.
fn worst(dominated: &[(&Judged, &Rival)]) -> String {
    let mut table = plain(&["dominated in", "by", "CPU", "mean", "p99", "IOPS"], 2);
    for (cell, Rival { mode, parts, .. }) in dominated.iter().take(SHOWN) {
        let part = |part: f64| right(format!("{part:.2}"));
        // What the rule does not ask for is no part of the verdict.
        let late = if cell.open {
            [part(parts.mean), part(parts.p99), right("–".into())]
        } else {
            [right("–".into()), right("–".into()), part(parts.iops)]
        };
        table.add_row([Text::new(&cell.name), Text::new(mode), part(parts.cpu)].into_iter().chain(late));
    }
    let more = dominated.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("… and {more} more, which --json has.\n") } else { String::new() };
    format!("{}\n{more}Parts of what the default takes.\n\n", fit::first(width(), [table]))
}

fn right(text: String) -> Text {
    Text::new(text).set_alignment(CellAlignment::Right)
}

/// A table whose first columns are words.
fn plain(headers: &[&str], words: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let header = |(at, header): (usize, &&str)| if at < words { Text::new(header) } else { right((*header).to_owned()) };
    table.set_header(headers.iter().enumerate().map(header));
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

/// In lines of at most 80 columns.
fn fill(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if lines.last().is_some_and(|line| line.len() + word.len() >= 80) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n") + "\n"
}
