//! What stands around the table: what was done, what was dropped, what is noise, how to read the figures.

use super::results::{Facts, Outcome};
use crate::rows::table::{digits, ratio};
use crate::rows::{CPU, IOPS, Results};

/// The title of a comparison.
pub fn title(facts: &Facts) -> String {
    let work = if facts.host_work > 0 { format!(", {} ns of application work per I/O", facts.host_work) } else { String::new() };
    format!("{} on {}{work}", facts.job, facts.device)
}

/// What stands below the table, where `results` are those of `outcomes`.
pub fn notes(facts: &Facts, outcomes: &[Outcome], results: &Results, machine: &str) -> Vec<String> {
    let mut lines = vec![format!("Machine: {machine}.")];
    lines.push(blocks(facts, outcomes));
    for outcome in outcomes {
        let itself = |figure| results.against_itself(&outcome.scene, figure);
        if let (Some(first), Some(iops), Some(cpu)) = (outcome.rows.first(), itself(IOPS), itself(CPU)) {
            lines.push(format!(
                "A/A: {} against itself: IOPS × {}, CPU × {}; such differences are noise.",
                first.mode,
                ratio(&iops),
                ratio(&cpu)
            ));
        }
        if let (Some(offered), Some(capacity)) = (facts.offered, outcome.capacity) {
            lines.push(format!(
                "Load: {} kIOPS meant, {:.0} % of the {} kIOPS that polling reaches without a rate.",
                digits(offered / 1e3),
                outcome.scene.load_pct,
                digits(capacity / 1e3)
            ));
        }
    }
    if facts.oversubscribed {
        lines.push("Oversubscribed: there are more threads than CPUs, and they wait for each other.".to_owned());
    }
    lines.push(legend(facts, results));
    lines
}

fn blocks(facts: &Facts, outcomes: &[Outcome]) -> String {
    let (kept, dropped) = outcomes.iter().fold((0, 0), |sum, o| (sum.0 + o.blocks.0, sum.1 + o.blocks.1));
    let limit = match outcomes.iter().map(|o| o.gaps_allowed).max().unwrap_or(0) {
        0 => "any".to_owned(),
        1 => "more than one (too few had none: the machine is busy)".to_owned(),
        n => format!("more than {n} (too few had fewer: the machine is busy)"),
    };
    format!(
        "Blocks: {} rounds of {} ms blocks in random order. Gaps, in which the device's thread was away for more than 50 µs: {kept} \
         blocks kept, {dropped} dropped that had {limit}.",
        outcomes.iter().map(|o| o.rounds).sum::<usize>(),
        facts.block.0 / 1_000_000
    )
}

fn legend(facts: &Facts, results: &Results) -> String {
    let paced = if facts.offered.is_some() { "intended start" } else { "decision to issue" };
    format!(
        "Medians over blocks, below them their 95 % interval (where the table is narrow, half of it). ÷ first: against {}, paired by round. \
         CPU: of the host's threads, load generator included. stolen: work that a loop at idle priority loses on the host's CPU, which \
         counts interrupts and idle exits as well. notify: the device's time for sending messages. Latencies: from the {paced} until \
         the completion was found; a percentile is shown if 20 samples lie above it.",
        results.rows.first().map_or("the first", |row| &row.mode)
    )
}
