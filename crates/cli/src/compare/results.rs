//! From blocks to rows and pairs, pure.

use completion::Mode;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::Nanos;
use serde_json::{Map, Value};
use workload::{Histogram, Moments};

use super::blocks::Sample;
use super::design::FEW;
use super::labels::Labels;
use super::statistics;
use super::validity::{self, Doubt, Yardstick};
use crate::bench::over_all;
use crate::rows::json::VALID;
use crate::rows::{CPU, IOPS, Latencies, P50, Pair, Row, Scene};

/// All that was measured.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// By round, then by label.
    pub rounds: Vec<Vec<Option<Sample>>>,
    /// With a rate: what the device does without it, polled.
    pub capacity: Vec<Sample>,
    /// Blocks of polling without a rate, at this depth: those, and others that were run to see how busy the machine is.
    pub polled: Vec<Sample>,
    /// By mode, in nanoseconds per I/O; empty if it was not measured.
    pub stolen: Vec<Option<f64>>,
}

impl Record {
    /// The blocks in which polling spins from start to end: those of `poll` where I/Os arrive in a closed loop, and others without a rate.
    pub fn spinning(&self, labels: &Labels, closed: bool) -> Vec<&Sample> {
        let is_poll = |label: usize| labels.mode(label).mode == Mode::POLL;
        let rounds = self.rounds.iter().filter(|_| closed);
        let own = rounds
            .flat_map(|round| round.iter().enumerate().filter(|(label, _)| is_poll(*label)).filter_map(|(_, sample)| sample.as_ref()));
        own.chain(&self.polled).collect()
    }
}

/// What stands around the figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// URI.
    pub device: String,
    /// What was done, in words, but for the depth.
    pub job: String,
    /// With a rate: I/Os per second meant.
    pub offered: Option<f64>,
    /// Nanoseconds of application work after each completion.
    pub host_work: u64,
    /// Length of a block.
    pub block: Nanos,
    /// The device is no thread of this process.
    pub outside: bool,
    /// The command that compares these modes simulated.
    pub simulate: String,
    /// More threads than CPUs.
    pub oversubscribed: bool,
}

/// What came out of one scene.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where; its load is what the modes were offered, in per cent of the capacity that was measured.
    pub scene: Scene,
    /// One for each mode.
    pub rows: Vec<Row>,
    /// Each label with each later one; the last label is the first mode once more.
    pub pairs: Vec<Pair>,
    /// Rounds run.
    pub rounds: usize,
    /// Rounds that count as one because a block has few I/Os or none; 1 where it has enough.
    pub together: usize,
    /// With a rate: the device's capacity in I/Os per second.
    pub capacity: Option<f64>,
    /// Why this is inconclusive; empty if it is not.
    pub doubts: Vec<Doubt>,
}

impl Outcome {
    /// Makes rows and pairs of `record`. With `offered` I/Os per second, the scene's load is worked out. `None`: not one
    /// complete round.
    pub fn new(
        labels: &Labels,
        record: &Record,
        (mut scene, yardstick): (Scene, Yardstick),
        offered: Option<f64>,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Outcome> {
        let capacity = statistics::median(&record.capacity.iter().map(|s| s.iops).collect::<Vec<_>>());
        if let Some((offered, capacity)) = offered.zip(capacity).filter(|(_, capacity)| *capacity > 0.0) {
            scene.load_pct = offered * 100.0 / capacity;
        }
        // By label, then by round.
        let blocks: Vec<Vec<Option<&Sample>>> =
            (0..labels.len()).map(|label| record.rounds.iter().map(|round| round.get(label)?.as_ref()).collect()).collect();
        let together = together(&blocks);
        let laid: Vec<Vec<Option<Sample>>> = blocks.iter().map(|rounds| lay(rounds, together)).collect();
        let mut rows = Vec::new();
        for (at, mode) in labels.modes().iter().enumerate() {
            let samples: Vec<&Sample> = laid[at].iter().flatten().collect();
            let stolen = record.stolen.get(at).copied().flatten();
            rows.push(Row { mode: mode.to_string(), scene: scene.clone(), stolen, ..row(&samples, rng)? });
        }
        let pairs = pairs(labels, &scene, &laid, rng);
        let doubts = validity::doubts(labels, &pairs, &record.spinning(labels, yardstick.closed), yardstick);
        if !doubts.is_empty() {
            rows.iter_mut().for_each(|row| drop(row.extra.insert(VALID.into(), false.into())));
        }
        Some(Outcome { pairs, scene, rows, doubts, rounds: record.rounds.len(), together, capacity })
    }
}

/// How many rounds it takes until a block of each label has enough I/Os; at most all of them.
fn together(blocks: &[Vec<Option<&Sample>>]) -> usize {
    let enough = |rounds: &Vec<Option<&Sample>>| {
        let ios: u64 = rounds.iter().flatten().map(|s| s.counted.ios).sum();
        (FEW as f64 * rounds.iter().flatten().count() as f64 / (ios as f64).max(f64::MIN_POSITIVE)).ceil() as usize
    };
    let all = blocks.iter().map(Vec::len).max().unwrap_or(0);
    blocks.iter().map(enough).max().unwrap_or(1).min(all).max(1)
}

/// One label's `rounds`, as many of them as one as are to go `together`, or one more where they do not come out even.
fn lay(rounds: &[Option<&Sample>], together: usize) -> Vec<Option<Sample>> {
    let parts = (rounds.len() / together).max(1);
    let part = |n: usize| &rounds[n * rounds.len() / parts..(n + 1) * rounds.len() / parts];
    (0..parts).map(|n| Sample::in_turn(&part(n).iter().copied().flatten().collect::<Vec<_>>())).collect()
}

fn row(samples: &[&Sample], rng: &mut Xoshiro256PlusPlus) -> Option<Row> {
    let of = |figure: fn(&Sample) -> Option<f64>| samples.iter().filter_map(|s| figure(s)).collect::<Vec<f64>>();
    let median = |figure: fn(&Sample) -> Option<f64>| statistics::median(&of(figure)).unwrap_or(0.0);
    Some(Row {
        iops: Some(statistics::estimate(&of(|s| Some(s.iops)), rng)?),
        cpu: statistics::estimate(&of(|s| s.counted.cpu_ns_per_io()), rng),
        notify: median(|s| s.counted.per_io(s.counted.notify_ns)),
        messages: median(|s| Some(s.counted.per_second(s.counted.messages))),
        untold: samples.iter().any(|s| s.counted.untold),
        system_calls: statistics::median(&of(|s| s.counted.per_io(s.counted.system_calls?))),
        wakeups: median(|s| Some(s.counted.per_second(s.counted.host.wakeups as f64))),
        per_wakeup: median(|s| s.counted.completions_per_wakeup()),
        drain_max: samples.iter().map(|s| s.counted.host.drain_max).max().unwrap_or(0),
        latency: latencies(samples, rng),
        paths: over_all(&samples.iter().map(|s| s.paths.as_slice()).collect::<Vec<_>>()),
        extra: extra(samples),
        ..Row::default()
    })
}

/// Per cent of the host's CPUs that the background threads had meanwhile.
const BACKGROUND_HAD: &str = "background_had_pct";

fn extra(samples: &[&Sample]) -> Map<String, Value> {
    let share = |s: &&Sample| Some(s.background?.0 as f64 * 100.0 / s.took.0.max(1) as f64);
    let had = statistics::median(&samples.iter().filter_map(share).collect::<Vec<_>>());
    had.map(|had| (BACKGROUND_HAD.to_owned(), had.into())).into_iter().collect()
}

fn latencies(samples: &[&Sample], rng: &mut Xoshiro256PlusPlus) -> Latencies {
    let mut moments = Moments::default();
    samples.iter().for_each(|s| moments.merge(&s.latency.moments));
    let histograms: Vec<&Histogram> = samples.iter().filter_map(|s| s.latency.histogram.as_ref()).collect();
    let mut percentile = |percent: f64| statistics::percentile(&histograms, percent, rng);
    let measured = moments.n > 0;
    Latencies {
        mean: measured.then(|| moments.mean()),
        p50: percentile(50.0),
        p99: percentile(99.0),
        p999: percentile(99.9),
        p9999: percentile(99.99),
        max: measured.then(|| moments.max()),
        curve: statistics::curve(&histograms),
    }
}

fn pairs(labels: &Labels, scene: &Scene, laid: &[Vec<Option<Sample>>], rng: &mut Xoshiro256PlusPlus) -> Vec<Pair> {
    type Figure = fn(&Sample) -> Option<f64>;
    let figures: [(&'static str, Figure); 3] = [
        (IOPS, |s| Some(s.iops)),
        (CPU, |s| s.counted.cpu_ns_per_io()),
        (P50, |s| s.latency.histogram.as_ref()?.percentiles(&[50.0]).first().map(|&p| p as f64)),
    ];
    let mut pairs = Vec::new();
    for (figure, of) in figures {
        let values: Vec<Vec<Option<f64>>> = laid.iter().map(|rounds| rounds.iter().map(|s| s.as_ref().and_then(of)).collect()).collect();
        for a in 0..labels.len() {
            for b in a + 1..labels.len() {
                if let Some(ratio) = statistics::ratio(&values[a], &values[b], rng) {
                    pairs.push(Pair { scene: scene.clone(), a: labels.name(a), b: labels.name(b), figure, ratio });
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
pub(super) mod tests;
