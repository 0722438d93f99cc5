//! `cargo xtask published`: compares figures from mailing-list posts with those of the simulator.
//!
//! A *post* is a message to a mailing list, numbered 000 to 004. A *case* is a run of a scenario of
//! this repository in one mode, with the settings that the post varied. A *row* is a published
//! figure, next to the same figure of a case. A row is *calibrated* if a constant of the machine or
//! device was fitted to it ([`KNOBS`]); *predicted*, and scored, if no constant was; or *shape*:
//! shown but not scored, as the post says too little about its machine.
//!
//! The score compares effects: an effect is the change that a mechanism (for example posted MSI)
//! makes to a baseline row of the same machine. Next to the score is the score of the same model
//! without the mechanism:
//!
//! ```text
//! effect = row with the mechanism ÷ baseline row
//! score  = |ln(simulated effect ÷ published effect)|      0: exact; 0.1: about 10 % off
//! ```

mod calibrate;
mod cases;
mod rows;

use anyhow::{Context, Result};
use clap::Args;
use sim::Outcome;

use crate::output;
use calibrate::{KNOBS, calibrate};
use cases::CASES;
use rows::{HISTOGRAMS, Role, SPECS, Spec};

/// `cargo xtask published`
#[derive(Args, Debug)]
pub struct PublishedArgs {
    /// Find the calibrated constants by bisection, and print them next to those of the scenarios
    #[arg(long)]
    calibrate: bool,
    /// Seed of all runs, instead of the scenarios' own
    #[arg(long, value_name = "N", conflicts_with = "calibrate")]
    seed: Option<u64>,
}

/// The text below the table: terms, deviations with their reasons, and sources.
const LEGEND: &str = "\
row: post.case.figure. off and on: without and with the post's poller; u4 and u5: io_uring on four and five drives; l4: libaio on four; \
int: interrupts per second; sum: many counters for each path, added up; atomic: one counter for each path.
calibrate: a constant of the machine or the device was fitted to this row, so the row is no evidence for the simulator.
predict: no constant was fitted to this row; the simulator is judged by it.
shape: the post says too little about its machine to predict the figure; it is not scored.
score: |ln(simulated effect ÷ published effect)|; an effect is the row ÷ the row in the last column; the table has the published effect.
without: the score of the same model without the mechanism.

Rows that deviate, and why:
003.u5.irq.iops: in the post each of the first four drives, too, has more IOPS in the run with five, so runs u4 and u5 had different machines or drives.
001.off.4096.int: the model has one service time for both block sizes.
001.on.4096.int: the post's poller is interrupted again on a saturated CPU; in the model the interrupt is masked while the poller runs.
002.five.delay.8-15: unexplained; the tail of late polls is shorter than the post's.
001.fast.on.int: unexplained; the poller saves interrupts and CPU, but fewer than in the post.

Not blind: these constants were set after their effect on the predicted rows was known: hidden_coalescing of post-003-uring; \
machine.interrupts.notify and percent of post-003-libaio; thread.cold of bare-metal.

000: Ming Lei, 12 November 2019, \"[PATCH 2/2] nvme-pci: poll IO after batch submission for multi-mapping queue\"
     http://lists.infradead.org/pipermail/linux-nvme/2019-November/
001: Jeff Garzik, 7 August 2009, \"Re: [PATCH 1/3] block: add blk-iopoll, a NAPI like approach for block devices\"
     https://lore.kernel.org/lkml/?q=s:blk-iopoll+f:Garzik
002: Sagi Grimberg, 17 January 2017, \"[LSF/MM TOPIC][LSF/MM ATTEND] NAPI polling for block drivers\"
     http://lists.infradead.org/pipermail/linux-nvme/2017-January/
003: Jacob Pan, 12 February 2024, \"Re: [PATCH 00/15] Coalesced Interrupt Delivery with posted MSI\"
     https://lore.kernel.org/lkml/?q=s:%22Coalesced+Interrupt+Delivery%22+f:Jacob
004: Uday Shankar, 3 October 2023, \"[PATCH 1/3] block: introduce blk_queue_nr_active()\"
     http://lists.infradead.org/pipermail/linux-nvme/2023-October/
";

/// Runs all cases, or the calibration, and prints the table.
///
/// # Errors
/// A run breaks an invariant.
pub fn run(args: &PublishedArgs) -> Result<()> {
    if args.calibrate {
        // Constants of one file depend on each other; files do not, and run in parallel.
        let mut files: Vec<&str> = KNOBS.iter().map(|knob| knob.file).collect();
        files.dedup();
        let results = output::each("files", &files, |file| calibrate(file))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let rows = results.iter().flatten().map(|result| {
            let [shipped, fitted] = [result.shipped, result.fitted].map(|value| value.to_string());
            let [file, key] = [result.knob.0, result.knob.1].map(str::to_owned);
            vec![
                file,
                key,
                result.row.to_owned(),
                shipped,
                fitted,
                format!("{:+.1} %", (result.ratio - 1.0) * 100.0),
            ]
        });
        print!(
            "{}",
            output::table(
                &["file", "constant", "fitted to", "shipped", "fitted", "error with fitted"],
                3,
                rows
            )
        );
        return Ok(());
    }
    let outcomes = output::each("cases", CASES, |case| {
        let mut scenario = case.scenario()?;
        scenario.seed = args.seed.unwrap_or(scenario.seed);
        anyhow::Ok((case.name, scenario.run().with_context(|| format!("case {}", case.name))?))
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    print!(
        "{}\n{LEGEND}",
        show(&rows(&|name| outcomes
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, outcome)| outcome)))
    );
    Ok(())
}

/// The table, the median score, and the distances of histograms.
fn show(rows: &[Row]) -> String {
    let digits = |value: f64, unit: &str| match unit {
        "share" => format!("{value:.4}"),
        _ if value >= 1e6 => format!("{:.2}M", value / 1e6),
        _ if value >= 1e3 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    };
    let cells = rows.iter().map(|row| {
        let [published, simulated] = [row.published, row.simulated]
            .map(|value| format!("{} {}", digits(value, row.unit), row.unit));
        // Rounded as printed, plus 0.0, so that -0.0 is not printed.
        let error = format!("{:+.1}", (row.error() * 1e3).round() / 10.0 + 0.0);
        let scores = row.score.map_or_else(Default::default, |score| {
            [
                format!("{:.3}", score.score),
                format!("{:.3}", score.without),
                format!("{:.2}", score.effect),
                score.baseline.to_owned(),
            ]
        });
        [row.id.to_owned(), row.role.name().to_owned(), published, simulated, error]
            .into_iter()
            .chain(scores)
            .collect()
    });
    let mut text = output::table(
        &[
            "row",
            "role",
            "published",
            "simulated",
            "error %",
            "score",
            "without",
            "published effect",
            "against",
        ],
        2,
        cells,
    );
    let mut scores: Vec<(f64, &str)> =
        rows.iter().filter_map(|row| Some((row.score?.score, row.id))).collect();
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((worst, id)) = scores.last() {
        // For an odd number of scores both indices are the same.
        let median = (scores[(scores.len() - 1) / 2].0 + scores[scores.len() / 2].0) / 2.0;
        text += &format!(
            "\nPredictions: {}, median score {median:.3}, worst {worst:.3} ({id}).\n",
            scores.len()
        );
    }
    for histogram in HISTOGRAMS {
        let distance = total_variation(rows, histogram)
            .map_or_else(String::new, |distance| format!("{distance:.3}"));
        text += &format!("{histogram}: total variation {distance}\n");
    }
    text
}

/// A published figure, and the simulated one.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Post, case and figure: `003.u4.posted.iops`.
    pub id: &'static str,
    /// Published value.
    pub published: f64,
    /// Simulated value.
    pub simulated: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// Whether the row is calibrated, predicted, or only a shape.
    pub role: Role,
    /// `Some` for a prediction.
    pub score: Option<Score>,
}

/// The score of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The baseline row.
    pub baseline: &'static str,
    /// Published effect: value ÷ baseline.
    pub effect: f64,
    /// |ln(simulated effect ÷ published effect)|.
    pub score: f64,
    /// The score of the model without the mechanism.
    pub without: f64,
}

impl Row {
    /// Simulated ÷ published, minus one.
    pub fn error(&self) -> f64 {
        self.simulated / self.published - 1.0
    }
}

/// The rows whose cases were run. `outcome`: the outcome of a case by name.
pub fn rows<'a>(outcome: &dyn Fn(&str) -> Option<&'a Outcome>) -> Vec<Row> {
    SPECS.iter().filter_map(|spec| row(spec, outcome)).collect()
}

/// Total variation distance of a histogram: half the sum of the absolute differences of shares; 0:
/// equal, 1: disjoint. The buckets that were not published are merged into one bucket. `None`:
/// there is no such histogram.
pub fn total_variation(rows: &[Row], histogram: &str) -> Option<f64> {
    let is_bucket =
        |row: &&Row| row.id.strip_prefix(histogram).is_some_and(|rest| rest.starts_with('.'));
    let buckets: Vec<&Row> = rows.iter().filter(is_bucket).collect();
    let sum = |figure: fn(&Row) -> f64| buckets.iter().map(|row| figure(row)).sum::<f64>();
    // The merged bucket: its shares are what the other buckets leave.
    let rest = (sum(|row| row.published) - sum(|row| row.simulated)).abs();
    let distance = (sum(|row| (row.published - row.simulated).abs()) + rest) / 2.0;
    (!buckets.is_empty()).then_some(distance)
}

/// The row of `spec`; `None` if its case was not run.
fn row<'a>(spec: &Spec, outcome: &dyn Fn(&str) -> Option<&'a Outcome>) -> Option<Row> {
    let simulated = (spec.figure)(outcome(spec.case)?);
    let score = spec.against.and_then(|against| {
        let base = SPECS.iter().find(|other| other.id == against.baseline)?;
        let simulated_base = (base.figure)(outcome(base.case)?);
        let without = (spec.figure)(outcome(against.without)?);
        let effect = spec.published / base.published;
        // |ln| of the simulated effect ÷ the published effect.
        let distance = |simulated: f64| (simulated / simulated_base / effect).ln().abs();
        Some(Score {
            baseline: base.id,
            effect,
            score: distance(simulated),
            without: distance(without),
        })
    });
    Some(Row {
        id: spec.id,
        published: spec.published,
        simulated,
        unit: spec.unit,
        role: spec.role,
        score,
    })
}

#[cfg(test)]
mod tests;
