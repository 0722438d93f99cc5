//! How much work the results so far leave to later phases of the sweep: a cell whose halves disagree runs again with more seeds, and the
//! knob is set finer where no setting is close. Without that the first estimate would be of the first phase alone.

use ::sim::sweep::{self, Halves, PRICES, SEEDS};
use completion::{LatencyPrice, Mode};

use super::tasks::Task;

/// Of cells that had more seeds, the share that goes on disagreeing.
const AGAIN: f64 = 0.6;
/// Settings that all rounds of finer ones try, for each that the first does.
const ROUNDS: f64 = 2.0;

/// Of settings that a round of finer ones tries, how many follow for each.
pub fn finer_after(round: usize) -> f64 {
    if round == 0 { ROUNDS - 1.0 } else { 0.0 }
}

/// What is known of a cell.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Runs that it has in this phase.
    wanted: usize,
    /// Seeds of each.
    seeds: u64,
    /// Those that have ended.
    got: Vec<(Mode, LatencyPrice, Halves)>,
    /// Once all have: what it leaves, in runs of [`SEEDS`] seeds.
    leaves: Option<f64>,
}

/// What is known of all cells.
#[derive(Debug)]
pub struct Forecast {
    cells: Vec<Known>,
    /// Which of them are open: the knob is set finer there.
    open: Vec<bool>,
    most_seeds: u64,
}

impl Forecast {
    /// Of cells, given by whether their knob may be set finer, that may have so many seeds.
    pub fn new(open: Vec<bool>, most_seeds: u64) -> Forecast {
        Forecast { cells: vec![Known::default(); open.len()], open, most_seeds }
    }

    /// These runs come next.
    pub fn begin(&mut self, tasks: &[Task]) {
        for task in tasks {
            let known = &mut self.cells[task.cell];
            if known.seeds != task.seeds {
                *known = Known { seeds: task.seeds, ..Known::default() };
            }
            known.wanted += 1;
        }
    }

    /// One of them has ended; whether its cell has with it.
    pub fn add(&mut self, task: &Task, halves: &Halves) -> bool {
        let (open, most) = (self.open[task.cell], self.most_seeds);
        let known = &mut self.cells[task.cell];
        known.got.push((task.mode, task.price, *halves));
        let ended = known.got.len() == known.wanted;
        if ended {
            known.leaves = Some(known.leaves(open, most));
        }
        ended
    }

    /// What later phases will take, in runs with so many more seeds as this phase's have. Cells that have not ended leave what those with
    /// as many seeds do on average.
    pub fn later(&self, seeds: u64) -> f64 {
        let mut levels: Vec<u64> = self.cells.iter().map(|known| known.seeds).collect();
        levels.sort_unstable();
        levels.dedup();
        let of_level = |level: u64| {
            let here = || self.cells.iter().filter(|known| known.seeds == level);
            let ended: Vec<f64> = here().filter_map(|known| known.leaves).collect();
            match ended.len() {
                // Who has more seeds has disagreed once.
                0 if level > SEEDS => here().map(|known| known.more(AGAIN, self.most_seeds).0 / SEEDS as f64).sum(),
                0 => 0.0,
                ended_here => ended.iter().sum::<f64>() / ended_here as f64 * here().count() as f64,
            }
        };
        levels.into_iter().map(of_level).sum::<f64>() * SEEDS as f64 / seeds.max(1) as f64
    }
}

impl Known {
    /// What doublings add, in seeds of all runs together, and how many seeds a run then has, where the first is as likely as `part`.
    fn more(&self, mut part: f64, most_seeds: u64) -> (f64, f64) {
        let (mut seeds, mut more, mut expected) = (self.seeds, 0.0, self.seeds as f64);
        while seeds * 2 <= most_seeds {
            // Each adds as many as there were.
            more += part * self.wanted as f64 * seeds as f64;
            expected += part * seeds as f64;
            (seeds, part) = (seeds * 2, part * AGAIN);
        }
        (more, expected)
    }

    fn leaves(&self, open: bool, most_seeds: u64) -> f64 {
        let adaptive = |mode: Mode| mode == Mode::ADAPTIVE;
        let modes: Vec<&Halves> = self.got.iter().filter(|(mode, ..)| !adaptive(*mode)).map(|(.., halves)| halves).collect();
        let mut settings: Vec<(LatencyPrice, Halves)> = self
            .got
            .iter()
            .filter(|(mode, price, _)| adaptive(*mode) && PRICES.contains(price))
            .map(|(_, price, halves)| (*price, *halves))
            .collect();
        settings.sort_by_key(|(price, _)| price.rank());
        let agree = sweep::halves_agree(&modes, &settings.iter().map(|(_, halves)| halves).collect::<Vec<_>>());
        let (more, expected) = self.more(if agree { 0.0 } else { 1.0 }, most_seeds);
        let mut finer: Vec<LatencyPrice> =
            if open && settings.len() > 1 { modes.iter().flat_map(|other| sweep::finer(&settings, other)).collect() } else { Vec::new() };
        finer.sort_unstable();
        finer.dedup();
        (more + finer.len() as f64 * ROUNDS * expected) / SEEDS as f64
    }
}

#[cfg(test)]
mod tests;
