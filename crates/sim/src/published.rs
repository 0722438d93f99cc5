//! The posts' tables, reproduced: what was published, what the simulator says, and how far the one is from the other.
//!
//! A [`Case`] is a run: a shipped scenario in a mode, with what the post varied. A [`Row`] is a published figure and the
//! same figure of a case. Rows are *calibrated* (a machine or device constant was chosen so that they fit: [`KNOBS`] has
//! them all), *predicted* (nothing was chosen for them: they are scored), or tell a *shape* only.
//!
//! A prediction is scored by its effect, not by its value: how much the mechanism changes the row of the same machine
//! without it. The score is |ln(simulated effect ÷ published effect)|; beside it stands the score of the same model with
//! the mechanism left out.

mod calibrate;
mod cases;
mod rows;

use crate::Outcome;

pub use calibrate::{Found, KNOBS, Knob, calibrate};
pub use cases::{CASES, Case, scenario};
pub use rows::{Against, HISTOGRAMS, SPECS, Spec, Use};

/// A published figure, and what came of it here.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Post, case and figure: `003.u4.posted.iops`.
    pub id: &'static str,
    /// As the post has it.
    pub published: f64,
    /// As the simulator has it.
    pub simulated: f64,
    /// Of both.
    pub unit: &'static str,
    /// What it is for.
    pub used: Use,
    /// Of a prediction.
    pub score: Option<Score>,
}

/// How good a prediction is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The row that the effect is measured against.
    pub baseline: &'static str,
    /// Published ÷ published baseline.
    pub effect: f64,
    /// |ln(simulated effect ÷ published effect)|.
    pub score: f64,
    /// The same of the model without the mechanism.
    pub without: f64,
}

impl Row {
    /// Simulated ÷ published, less one.
    pub fn error(&self) -> f64 {
        self.simulated / self.published - 1.0
    }
}

/// The rows, of what the cases came to: `outcome(name)` is that of the case of this name. A row whose case was not run is
/// left out.
pub fn rows<'a>(outcome: &dyn Fn(&str) -> Option<&'a Outcome>) -> Vec<Row> {
    SPECS.iter().filter_map(|spec| row(spec, outcome)).collect()
}

/// Half the sum of what the shares of a histogram's buckets differ by, the buckets that were not published counting as one:
/// 0 is the same, 1 nothing in common. `None`: not one of its buckets is there.
pub fn total_variation(rows: &[Row], histogram: &str) -> Option<f64> {
    let is_bucket = |row: &&Row| row.id.strip_prefix(histogram).is_some_and(|rest| rest.starts_with('.'));
    let buckets: Vec<&Row> = rows.iter().filter(is_bucket).collect();
    let sum = |figure: fn(&Row) -> f64| buckets.iter().map(|row| figure(row)).sum::<f64>();
    let rest = (sum(|row| row.published) - sum(|row| row.simulated)).abs();
    let distance = (sum(|row| (row.published - row.simulated).abs()) + rest) / 2.0;
    (!buckets.is_empty()).then_some(distance)
}

fn row<'a>(spec: &Spec, outcome: &dyn Fn(&str) -> Option<&'a Outcome>) -> Option<Row> {
    let simulated = (spec.figure)(outcome(spec.case)?);
    let score = spec.against.and_then(|against| {
        let base = SPECS.iter().find(|other| other.id == against.baseline)?;
        let simulated_base = (base.figure)(outcome(base.case)?);
        let without = (spec.figure)(outcome(against.without)?);
        let effect = spec.published / base.published;
        let distance = |simulated: f64| (simulated / simulated_base / effect).ln().abs();
        Some(Score { baseline: base.id, effect, score: distance(simulated), without: distance(without) })
    });
    Some(Row { id: spec.id, published: spec.published, simulated, unit: spec.unit, used: spec.used, score })
}

#[cfg(test)]
mod tests;
