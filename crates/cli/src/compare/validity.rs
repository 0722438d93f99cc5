//! Whether figures decide anything, pure: what a machine does to blocks on which others have the CPUs.
//!
//! A busy machine does not do the same to all modes. One that spins loses what others take; one that sleeps is woken late, and is
//! charged nothing for it. So their ratio is another one beside other work.

use std::fmt;

use reap::{Nanos, Profile};
use workload::Job;

use super::blocks::Sample;
use super::noise::{self, Rule};
use super::statistics;
use crate::rows::{Pair, Row};

/// Less of its CPUs than this, and `poll` shared them with others.
const OWN: f64 = 0.9;
/// Blocks that were disturbed more than once are so many, and what is left of them is chance.
const MANY: f64 = 1.0 / 3.0;
/// Latencies are so many times what the device needs, and something else than the device and the modes makes them.
const TIMES: u64 = 100;
/// What a host needs for an I/O, when it is slow.
const EACH: Nanos = Nanos::from_micros(1);

/// A reason for which a scene's figures decide nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// `poll` got this share of its CPUs.
    Starved(f64),
    /// This share of the blocks was disturbed more than once, by this rule.
    Disturbed(f64, Rule),
    /// Half of the I/Os take longer than the first in every mode; a device needs the second.
    Late(Nanos, Nanos),
}

/// What a scene is held against.
#[derive(Clone, Copy, Debug)]
pub struct Yardstick {
    /// CPUs of the job threads.
    pub cpus: usize,
    /// What an I/O takes where the device is all there is to wait for; `None`: nothing is known of the device.
    pub device: Option<Nanos>,
    /// I/Os arrive in a closed loop: only there does polling spin all the time.
    pub closed: bool,
}

/// What an I/O of `job` takes on a device with this profile, with `depth` of them in flight.
pub fn needed(profile: &Profile, job: &Job, depth: u64) -> Nanos {
    let service = if job.pattern.reads() { &profile.read } else { &profile.write };
    let bytes = if job.pattern.reads() { job.block.read.mean() } else { job.block.write.mean() };
    let per_second = |limit: u64, each: f64| if limit == 0 { 0.0 } else { 1e9 * each / limit as f64 };
    let channels = if profile.channels == 0 { 0.0 } else { service.mean().0 as f64 / f64::from(profile.channels) };
    let each = [EACH.0 as f64, channels, per_second(profile.iops, 1.0), per_second(profile.bandwidth, bytes)];
    service.mean() + Nanos((depth as f64 * each.into_iter().fold(0.0, f64::max)) as u64)
}

/// The reasons for which the blocks of `rounds`, and the rows made of them, decide nothing. `polled`: blocks in which polling spins from
/// start to end.
pub fn doubts(polled: &[&Sample], rounds: &[Vec<Option<Sample>>], rows: &[Row], yardstick: Yardstick) -> Vec<Doubt> {
    let starved = share(polled, yardstick.cpus).filter(|share| *share < OWN);
    let fastest = rows.iter().filter_map(|row| row.latency.p50).map(|p50| p50.value).min_by(f64::total_cmp);
    let late = fastest.zip(yardstick.device).map(|(p50, device)| (Nanos(p50 as u64), device));
    let disturbed = disturbed(rounds);
    [
        starved.map(Doubt::Starved),
        (disturbed > MANY).then(|| Doubt::Disturbed(disturbed, noise::rule(rounds))),
        late.filter(|(p50, device)| p50.0 / TIMES > device.0).map(|(p50, device)| Doubt::Late(p50, device)),
    ]
    .into_iter()
    .flatten()
    .collect()
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

/// The share of blocks that were disturbed more than once.
fn disturbed(rounds: &[Vec<Option<Sample>>]) -> f64 {
    let all: Vec<u64> = noise::disturbances(rounds).into_iter().flatten().flatten().collect();
    all.iter().filter(|&&times| times > 1).count() as f64 / all.len().max(1) as f64
}

/// Takes away what looks like knowledge: the intervals.
pub fn without_intervals(rows: &mut [Row], pairs: &mut [Pair]) {
    let figures = |row: &mut Row| {
        let latency = &mut row.latency;
        for figure in [&mut row.iops, &mut row.cpu, &mut latency.p50, &mut latency.p99, &mut latency.p999, &mut latency.p9999] {
            figure.iter_mut().for_each(|figure| figure.interval = None);
        }
    };
    rows.iter_mut().for_each(figures);
    pairs.iter_mut().for_each(|pair| pair.ratio.interval = None);
}

/// The reasons over all scenes, each kind once, the worst of it: what JSON and the banner say.
pub fn reasons(scenes: &[&[Doubt]]) -> Vec<String> {
    let mut worst: Vec<Doubt> = Vec::new();
    for &doubt in scenes.iter().copied().flatten() {
        match worst.iter_mut().find(|other| std::mem::discriminant(*other) == std::mem::discriminant(&doubt)) {
            Some(other) if doubt.badness() > other.badness() => *other = doubt,
            Some(_) => {}
            None => worst.push(doubt),
        }
    }
    worst.iter().map(Doubt::to_string).collect()
}

/// The first line of results that decide nothing; `None`: they do. `scenes` has the doubts of each.
pub fn banner(scenes: &[&[Doubt]]) -> Option<String> {
    let (bad, all) = (scenes.iter().filter(|doubts| !doubts.is_empty()).count(), scenes.len());
    if bad == 0 {
        return None;
    }
    let subject =
        if bad == all { "These figures decide nothing".to_owned() } else { format!("In {bad} of {all} scenes the figures decide nothing") };
    Some(format!("{subject}: {}. Run it again with less beside it.", reasons(scenes).join("; ")))
}

impl Doubt {
    /// To compare with doubts of its kind.
    fn badness(&self) -> f64 {
        match self {
            Doubt::Starved(share) => 1.0 - share,
            Doubt::Disturbed(share, _) => *share,
            Doubt::Late(took, needed) => took.0 as f64 / needed.0.max(1) as f64,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: &Nanos| match ns.0 {
            ..1_000_000 => format!("{:.0} µs", ns.0 as f64 / 1e3),
            _ => format!("{:.1} ms", ns.0 as f64 / 1e6),
        };
        match self {
            Doubt::Starved(share) => {
                write!(f, "other work took the CPU from poll, which got {:.0} % of it", (share * 100.0).clamp(0.0, 89.0))
            }
            Doubt::Disturbed(share, Rule::Gaps) => {
                write!(f, "in {:.0} % of the blocks the device's thread lost its CPU several times", share * 100.0)
            }
            Doubt::Disturbed(share, Rule::Away) => write!(f, "in {:.0} % of the blocks job threads waited long for a CPU", share * 100.0),
            Doubt::Late(took, needed) => {
                write!(f, "half of the I/Os took more than {} in every mode, and the device needs about {}", time(took), time(needed))
            }
        }
    }
}

#[cfg(test)]
mod tests;
