//! Regret over the knob: how far `adaptive` is from each other mode at the setting that suits a comparison best.

use std::collections::BTreeMap;

use crate::rows::fit;
use crate::rows::table::width;
use ::sim::sweep::{self, Cell, GOAL, Halves, PHASED};
use comfy_table::{Cell as Text, CellAlignment, Table, presets};
use completion::Mode;
use serde::Serialize;

use super::ran::Ran;
use super::tasks::{Task, halves_agree, settings};

/// How far `adaptive` is from a mode in a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regret {
    pub mode: String,
    load_pct: u32,
    qd: u32,
    profile: String,
    costs: String,
    pub ratio: f64,
    /// The setting that was judged.
    latency_price: String,
    /// Seeds of the cell, and whether their halves agree about every mode there.
    seeds: u64,
    halves_agree: bool,
}

/// Against every other mode in every cell of which at least `asked` settings were run: all that all cells have.
pub fn regrets(cells: &[Cell], tasks: &[Task], ran: &[Option<Ran>], asked: usize) -> Vec<Regret> {
    let mut regrets = Vec::new();
    for (at, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.kind.is_open()) {
        let settings = settings(at, tasks, ran);
        if settings.len() < asked {
            continue;
        }
        let halves: Vec<Halves> = settings.iter().map(|(_, halves)| *halves).collect();
        let halves_agree = halves_agree(at, tasks, ran);
        for (task, ran) in tasks.iter().zip(ran).filter(|(task, _)| task.cell == at && task.mode != Mode::ADAPTIVE) {
            let judged = ran.as_ref().and_then(|ran| sweep::regret(&halves, &ran.halves));
            regrets.extend(judged.map(|(best, ratio)| Regret {
                mode: task.mode.to_string(),
                load_pct: cell.kind.load(),
                qd: cell.depth,
                profile: cell.profile.name.clone(),
                costs: cell.costs.name.clone(),
                ratio,
                latency_price: settings[best].0.to_string(),
                seeds: task.seeds,
                halves_agree,
            }));
        }
    }
    regrets
}

/// By mode: the median, how many cells are beyond 5 %, and the worst with its place.
pub fn show(regrets: &[Regret], runs: usize, ios: u64) -> String {
    let text = format!("{runs} runs of {ios} I/Os with each seed (of devices with phases: {PHASED} times as many), in virtual time.");
    let mut text = fit::wrap(&text, width().into());
    if regrets.is_empty() {
        return text + "No cell has `adaptive` with all settings of its knob and another mode to compare it with.\n";
    }
    let mut modes: Vec<&str> = Vec::new();
    for regret in regrets {
        if !modes.contains(&regret.mode.as_str()) {
            modes.push(&regret.mode);
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let right = |text: String| Text::new(text).set_alignment(CellAlignment::Right);
    let headers = ["cells", "median", "> 1.05", "worst", "at load\n%", "queue\ndepth"];
    let header = std::iter::once(Text::new("adaptive against")).chain(headers.map(|h| right(h.into())));
    table.set_header(header.chain(["profile", "costs", "price"].map(Text::new)));
    for mode in modes {
        let mut of: Vec<&Regret> = regrets.iter().filter(|regret| regret.mode == mode).collect();
        of.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let (Some(middle), Some(worst)) = (of.get(of.len() / 2), of.last()) else { continue };
        let beyond = of.iter().filter(|regret| regret.ratio > GOAL).count();
        let ratio = |ratio: f64| format!("{ratio:.3}");
        let figures = [
            of.len().to_string(),
            ratio(middle.ratio),
            beyond.to_string(),
            ratio(worst.ratio),
            worst.load_pct.to_string(),
            worst.qd.to_string(),
        ];
        let place = [worst.profile.clone(), worst.costs.clone(), worst.latency_price.clone()].map(Text::new);
        table.add_row(std::iter::once(Text::new(mode)).chain(figures.map(right)).chain(place));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    text += &format!("{}\n{}", fit::first(width(), [table]), show_seeds(regrets));
    text + &fit::wrap(HOW, width().into()) + "1.00: as good in both; the worst cell's place and setting stand beside it.\n"
}

/// How a regret is made.
const HOW: &str = "In each open cell and against each mode: max(p99 ÷ its p99, CPU ÷ its CPU) of the tightest setting of --latency-price \
                   at which that is at most 1/1.05 on one half of the seeds, by the worse of its own halves, or else the least to within \
                   0.5 %, judged on the other.";

/// How many cells had how many seeds, and in how many of them the halves disagreed to the end.
fn show_seeds(regrets: &[Regret]) -> String {
    let place = |regret: &Regret| (regret.costs.clone(), regret.profile.clone(), regret.qd, regret.load_pct);
    let mut cells: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    for of_cell in regrets.chunk_by(|a, b| place(a) == place(b)) {
        let (all, disagree) = cells.entry(of_cell[0].seeds).or_default();
        (*all, *disagree) = (*all + 1, *disagree + u32::from(!of_cell[0].halves_agree));
    }
    let of = |(seeds, (all, disagree)): (&u64, &(u32, u32))| match disagree {
        0 => format!("{seeds} in {all}"),
        n => format!("{seeds} in {all}, of which {n} have halves that disagree all the same"),
    };
    format!("Seeds of a cell: {}.\n", cells.iter().map(of).collect::<Vec<_>>().join("; "))
}
