//! Whether figures are conclusive: by the first mode against itself (A/A), by the intervals, and by the CPU that polling had, because
//! other work on the host's CPUs moves ratios of modes that spin to those that sleep, and leaves A/A at 1.

use std::fmt;

use super::blocks::Sample;
use super::labels::Labels;
use super::statistics::{self, FEWEST};
use crate::rows::{CPU, IOPS, Pair};

/// Less of its CPUs than this, and `poll` shared them with others.
const OWN: f64 = 0.9;
/// As a ratio: where the first mode differs from itself by no more, modes that are equal within that are found to be equal.
const SMALL: f64 = 1.05;

/// A reason for which a scene's figures are inconclusive.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// `poll` got this share of its CPUs.
    Starved(f64),
    /// The first mode, by name, against itself: this figure, the end of the ratio's interval that is farther from 1, and the ratio of the
    /// mode that differs most from the first.
    Noise { first: String, figure: &'static str, itself: f64, others: f64 },
    /// Fewer rounds than an interval takes.
    Few,
}

/// The CPUs that polling is held against.
#[derive(Clone, Copy, Debug)]
pub struct Yardstick {
    /// CPUs of the job threads.
    pub cpus: usize,
    /// I/Os arrive in a closed loop: only there does polling spin all the time.
    pub closed: bool,
}

/// The reasons for which the `pairs` of a scene are inconclusive. `polled`: blocks in which polling spins from start to end.
pub fn doubts(labels: &Labels, pairs: &[Pair], polled: &[&Sample], yardstick: Yardstick) -> Vec<Doubt> {
    let starved = share(polled, yardstick.cpus).filter(|share| *share < OWN).map(Doubt::Starved);
    starved.into_iter().chain([IOPS, CPU].into_iter().filter_map(|figure| noise(labels, pairs, figure))).collect()
}

/// How far a ratio is from 1, the same for its reciprocal.
fn off(ratio: f64) -> f64 {
    ratio.max(1e-9).ln().abs()
}

/// Whether `figure` of the first mode differs from itself by more than it does from each other mode.
fn noise(labels: &Labels, pairs: &[Pair], figure: &'static str) -> Option<Doubt> {
    let (first, again) = (labels.name(0), labels.name(labels.len() - 1));
    let of_first = || pairs.iter().filter(|pair| pair.figure == figure && pair.a == first);
    let Some(interval) = of_first().find(|pair| pair.b == again).and_then(|pair| pair.ratio.interval) else { return Some(Doubt::Few) };
    let farther = |a: f64, b: f64| if off(a) > off(b) { a } else { b };
    let itself = farther(interval[0], interval[1]);
    let others = of_first().filter(|pair| pair.b != again).map(|pair| pair.ratio.value).reduce(farther)?;
    (off(itself) > off(SMALL) && off(itself) >= off(others)).then_some(Doubt::Noise { first, figure, itself, others })
}

/// The share of their CPUs that polling threads had: the median over blocks. What a background thread of the scene's had is theirs, for it
/// is meant to be there. Outside this process a thread may wait in the kernel; there it is the time that it did not wait for a CPU.
fn share(blocks: &[&Sample], cpus: usize) -> Option<f64> {
    let of = |sample: &&Sample| {
        let all = (sample.counted.wall.0 * cpus as u64) as f64;
        let part = sample.counted.wall.0 as f64 / sample.took.0.max(1) as f64;
        let meant = sample.background.unwrap_or_default().0 as f64 * part.min(1.0);
        let had = match sample.away {
            Some(away) => 1.0 - away.0 as f64 / (sample.took.0.max(1) * cpus as u64) as f64 + meant / all.max(1.0),
            None => (sample.counted.cpu.0 as f64 + meant) / all.max(1.0),
        };
        (all > 0.0).then_some(had)
    };
    statistics::median(&blocks.iter().filter_map(of).collect::<Vec<_>>())
}

/// The reasons over all scenes, each kind once, the worst of it: what JSON and the banner say.
pub fn reasons(scenes: &[&[Doubt]]) -> Vec<String> {
    let mut worst: Vec<&Doubt> = Vec::new();
    for doubt in scenes.iter().copied().flatten() {
        match worst.iter_mut().find(|other| other.kind() == doubt.kind()) {
            Some(other) if doubt.badness() > other.badness() => *other = doubt,
            Some(_) => {}
            None => worst.push(doubt),
        }
    }
    worst.iter().map(ToString::to_string).collect()
}

/// The first line of results that are inconclusive; `None`: they are conclusive. `scenes` has the doubts of each; `simulate` is the
/// command that compares the modes where nothing else runs.
pub fn banner(scenes: &[&[Doubt]], simulate: &str) -> Option<String> {
    let (bad, all) = (scenes.iter().filter(|doubts| !doubts.is_empty()).count(), scenes.len());
    if bad == 0 {
        return None;
    }
    let subject = if bad == all { "Inconclusive".to_owned() } else { format!("Inconclusive in {bad} of {all} scenes") };
    Some(format!("{subject}: {}. Try: {simulate}", reasons(scenes).join("; ")))
}

impl Doubt {
    /// Doubts of one kind are compared by how bad they are.
    fn kind(&self) -> (u8, &'static str) {
        match self {
            Doubt::Starved(_) => (0, ""),
            Doubt::Noise { figure, .. } => (1, figure),
            Doubt::Few => (2, ""),
        }
    }

    fn badness(&self) -> f64 {
        match self {
            Doubt::Starved(share) => 1.0 - share,
            Doubt::Noise { itself, .. } => off(*itself),
            Doubt::Few => 0.0,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Starved(share) => {
                write!(f, "other work left poll {:.0} % of its CPU", (share * 100.0).clamp(0.0, 89.0))
            }
            Doubt::Noise { first, figure, itself, others } => {
                let figure = if *figure == CPU { "CPU" } else { "IOPS" };
                write!(f, "{figure} of {first} differs from itself (A/A) by × {itself:.2}, and from other modes by × {others:.2} at most")
            }
            Doubt::Few => write!(f, "an interval takes {FEWEST} rounds with I/Os in all modes (--repeat)"),
        }
    }
}

#[cfg(test)]
mod tests;
