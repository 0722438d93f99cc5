//! Runs the blocks of one device: rounds of every scene, stolen time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use completion::Mode;
use indicatif::ProgressBar;
use rand::Rng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::Nanos;
use workload::Job;
use workload::plan::Plan;

use super::background::Background;
use super::blocks::{Block, Field, Sample, prepare};
use super::contender::Contender;
use super::design::{BLOCK, CAPACITY_EVERY, RAMP, STOLEN_BLOCKS};
use super::labels::Labels;
use super::results::Record;
use super::scenes::Setting;
use super::seats::Seats;
use super::statistics;
use super::stolen::{self, Counters};
use crate::output::say;

/// Measurements of the capacity that the next load is a share of: their median.
const RECENT: usize = 3;

/// One device, and all that is run on it.
pub struct Experiment<'a> {
    /// What is compared.
    pub labels: &'a Labels,
    /// In which scenes.
    pub settings: &'a [Setting],
    /// The threads of the jobs.
    pub plan: &'a Plan,
    /// Where they run.
    pub seats: &'a Seats,
    /// Who else wants that CPU, in scenes that have a background.
    pub background: Option<Background>,
    /// Rounds of each scene.
    pub repeat: usize,
    /// Set: end with what there is.
    pub stop: &'a Arc<AtomicBool>,
    /// Counts blocks.
    pub bar: &'a ProgressBar,
}

/// What polling reaches at one queue depth, measured again and again.
struct Capacity {
    qd: u64,
    /// Rounds since the last measurement.
    rounds: usize,
    samples: Vec<Sample>,
}

impl Experiment<'_> {
    /// Runs everything. A record for each scene, and, if an I/O failed, what became of it: records are of the rounds before.
    pub fn run(&self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> (Vec<Record>, Result<()>) {
        let mut capacities: Vec<Capacity> = Vec::new();
        let mut records = vec![Record::default(); self.settings.len()];
        let rounds = self.rounds(field, (&mut records, &mut capacities), rng);
        for (setting, record) in self.settings.iter().zip(&mut records) {
            record.polled = capacities.iter().find(|c| c.qd == setting.scene.qd).map_or_else(Vec::new, |c| c.samples.clone());
            if setting.wants_capacity() {
                record.capacity.clone_from(&record.polled);
            }
        }
        let ended = rounds.and_then(|()| self.beside(field, &mut records, rng));
        (records, ended)
    }

    /// What is measured apart from the rounds: stolen time.
    fn beside(&self, field: &mut Field, records: &mut [Record], rng: &mut Xoshiro256PlusPlus) -> Result<()> {
        match self.stolen(field, records, rng) {
            Ok(stolen) => records.iter_mut().zip(stolen).for_each(|(record, stolen)| record.stolen = stolen),
            Err(error) => say(format_args!("warning: stolen time is not measured: {error:#}")),
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Round after round of every scene, the scenes in random order.
    fn rounds(
        &self,
        field: &mut Field,
        (records, capacities): (&mut [Record], &mut Vec<Capacity>),
        rng: &mut Xoshiro256PlusPlus,
    ) -> Result<()> {
        if let Some(setting) = self.settings.first() {
            // The first block finds nothing in the caches: it does not count.
            let jobs: Vec<Job> = setting.jobs.iter().map(|job| prepare(job, RAMP, BLOCK)).collect();
            field.run(block(self.labels.mode(0), &jobs, 0))?;
        }
        let mut order: Vec<usize> = (0..self.settings.len()).collect();
        for _ in 0..self.repeat {
            order.shuffle(rng);
            for &at in &order {
                let Some(round) = self.round(field, &self.settings[at], capacities, rng)? else { return Ok(()) };
                records[at].rounds.push(round);
            }
        }
        Ok(())
    }

    /// A block of each label, in random order; `None`: stopped.
    fn round(
        &self,
        field: &mut Field,
        setting: &Setting,
        capacities: &mut Vec<Capacity>,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Result<Option<Vec<Option<Sample>>>> {
        // Where poll is not compared, what it gets of its CPU has to be known all the same.
        let wanted = setting.wants_capacity() || !self.labels.has(Mode::POLL);
        let capacity = if wanted { self.capacity(field, setting, capacities, rng)? } else { 0.0 };
        let jobs: Vec<Job> = setting.paced(capacity, self.plan).iter().map(|job| prepare(job, RAMP, BLOCK)).collect();
        let mut round: Vec<Option<Sample>> = vec![None; self.labels.len()];
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        order.shuffle(rng);
        let seed = rng.next_u64();
        self.in_background(setting, true);
        for label in order {
            let background = self.background.as_ref().filter(|_| setting.scene.background_pct.is_some());
            let had = background.map(Background::had);
            let mut sample = field.run(block(self.labels.mode(label), &jobs, seed))?;
            sample.background = had.zip(background).map(|(before, after)| after.had() - before);
            sample.charge(sample.background.unwrap_or_default());
            self.bar.inc(1);
            if self.stopped() {
                self.in_background(setting, false);
                return Ok(None);
            }
            round[label] = Some(sample);
        }
        self.in_background(setting, false);
        Ok(Some(round))
    }

    fn in_background(&self, setting: &Setting, on: bool) {
        if let Some(background) = self.background.as_ref().filter(|_| setting.scene.background_pct.is_some()) {
            background.set(on);
        }
    }

    /// I/Os per second that polling reaches at this depth, in a closed loop: measured every few rounds.
    fn capacity(&self, field: &mut Field, setting: &Setting, capacities: &mut Vec<Capacity>, rng: &mut Xoshiro256PlusPlus) -> Result<f64> {
        let qd = setting.scene.qd;
        let at = capacities.iter().position(|capacity| capacity.qd == qd).unwrap_or_else(|| {
            capacities.push(Capacity { qd, rounds: 0, samples: Vec::new() });
            capacities.len() - 1
        });
        let capacity = &mut capacities[at];
        if capacity.rounds.is_multiple_of(CAPACITY_EVERY) {
            let jobs: Vec<Job> = setting.jobs.iter().map(|job| prepare(&without_rate(job), RAMP, BLOCK)).collect();
            let sample = field.run(block(Contender::plain(Mode::POLL), &jobs, rng.next_u64()))?;
            // One that a signal cut short tells nothing.
            if !self.stopped() {
                capacity.samples.push(sample);
            }
        }
        capacity.rounds += 1;
        let recent: Vec<f64> = capacity.samples.iter().rev().take(RECENT).map(|sample| sample.iops).collect();
        Ok(statistics::median(&recent).unwrap_or(0.0))
    }

    /// By scene and mode: what it takes from a loop at idle priority, in nanoseconds per I/O. Not beside a background
    /// thread, which leaves such a loop nothing.
    fn stolen(&self, field: &mut Field, records: &[Record], rng: &mut Xoshiro256PlusPlus) -> Result<Vec<Vec<Option<f64>>>> {
        let modes = self.labels.modes();
        let counters = Counters::start(&self.seats.disturbed)?;
        let mut lost = vec![vec![Vec::new(); modes.len()]; self.settings.len()];
        let (mut idle, mut readings) = (Vec::new(), Vec::new());
        let mut order: Vec<usize> = (0..modes.len()).collect();
        for _ in 0..STOLEN_BLOCKS {
            for (scene, (setting, record)) in self.settings.iter().zip(records).enumerate() {
                if setting.scene.background_pct.is_some() {
                    continue;
                }
                let jobs = setting.paced(record.capacity(), self.plan);
                let jobs: Vec<Job> = jobs.iter().map(|job| prepare(job, Nanos::ZERO, BLOCK)).collect();
                let from = counters.read();
                hw::sleep_until(hw::now() + BLOCK);
                idle.push(from.rate(&counters.read()));
                self.bar.inc(1);
                order.shuffle(rng);
                for &at in &order {
                    if self.stopped() {
                        return Ok(Vec::new());
                    }
                    let from = counters.read();
                    let sample = field.run(block(modes[at], &jobs, rng.next_u64()))?;
                    readings.push((scene, at, from, counters.read(), sample.counted));
                    self.bar.inc(1);
                }
            }
        }
        let idle = statistics::median(&idle).unwrap_or(0.0);
        for (scene, at, from, to, counted) in readings {
            lost[scene][at].push(stolen::Block { lost: from.lost(&to, idle), cpu: counted.cpu, ios: counted.ios });
        }
        Ok(lost.iter().map(|modes| modes.iter().map(|blocks| stolen::per_io(blocks)).collect()).collect())
    }
}

impl Setting {
    /// Whether polling without a rate is measured beside it: for a share of that, or to tell what share a job's rate is.
    fn wants_capacity(&self) -> bool {
        self.load.is_some() || self.jobs.iter().any(|job| job.rate.read.is_some() || job.rate.write.is_some())
    }
}

impl Record {
    /// The median of what was measured of the capacity; 0 if it was not.
    pub fn capacity(&self) -> f64 {
        statistics::median(&self.capacity.iter().map(|sample| sample.iops).collect::<Vec<_>>()).unwrap_or(0.0)
    }
}

fn block(contender: Contender, jobs: &[Job], seed: u64) -> Block<'_> {
    Block { mode: contender.mode, price: contender.price, jobs, seed }
}

fn without_rate(job: &Job) -> Job {
    Job { rate: Default::default(), ..job.clone() }
}
