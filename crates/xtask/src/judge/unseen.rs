//! A set of cells on which no constant of `adaptive` was chosen: it is drawn from a seed.
//!
//! The set has six devices with one to three modes of service time: the service times of two
//! devices drift, those of two alternate between phases, and two devices have a write cache that is
//! fast until it is full. It has two price lists between the built-in ones, and queue depths and
//! loads that the known set does not have.

use emu::{Profile, Service};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use super::cells::{CLOSED_DEPTHS, Grid, JOBS, LOADS, Prices};
use sim::{Costs, SimError};

/// Number of queue depths and of loads that are drawn.
const DEPTHS: usize = 3;
const DRAWN_LOADS: usize = 2;
/// Makes these random numbers independent of other random numbers with the same seed.
const SALT: u64 = 0x756e_7365_656e;

/// Random numbers.
struct Draws(SplitMix64);

impl Draws {
    /// A number in `low..high`.
    fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.next_u64() % (high - low)
    }

    /// A number in `low..high`, whose logarithm is uniform.
    fn log(&mut self, low: f64, high: f64) -> u64 {
        let part = self.within(0, 1 << 20) as f64 / f64::from(1 << 20);
        (low * (high / low).powf(part)) as u64
    }

    /// `count` different numbers from `draw`, ascending, none of which is in `known`.
    fn others(
        &mut self,
        count: usize,
        known: &[u32],
        mut draw: impl FnMut(&mut Draws) -> u64,
    ) -> Vec<u32> {
        let mut drawn: Vec<u32> = Vec::new();
        while drawn.len() < count {
            let one = draw(self) as u32;
            if !known.contains(&one) && !drawn.contains(&one) {
                drawn.push(one);
            }
        }
        drawn.sort_unstable();
        drawn
    }
}

/// How a device's service times change over time.
#[derive(Clone, Copy)]
enum Trait {
    /// Service time drifts.
    Drifts,
    /// Slow phases alternate with fast ones.
    Phases,
    /// A cache is full after a number of commands.
    Cliff,
}

impl Grid {
    /// The grid of `seed`.
    ///
    /// # Errors
    /// A price list cannot be written as TOML; never a built-in one.
    pub fn unseen(seed: u64) -> Result<Grid, SimError> {
        let mut rng = Draws(SplitMix64::seed_from_u64(seed ^ SALT));
        let mut profiles = Vec::new();
        let traits = [Trait::Drifts, Trait::Phases, Trait::Cliff];
        // Six devices, so each behaviour occurs twice.
        for (letter, one) in
            ["a", "b", "c", "d", "e", "f"].into_iter().zip(traits.into_iter().cycle())
        {
            profiles.push(profile(&mut rng, format!("unseen-{seed}{letter}"), one));
        }
        let mut costs = Vec::new();
        for (low, high) in [(5, 50), (50, 100)] {
            let percent = rng.within(low, high);
            costs.push(Prices {
                name: format!("between-{percent}"),
                costs: between(percent as f64 / 100.0)?,
            });
        }
        // Depths and loads of the known set are excluded, since constants were chosen on them.
        let depths = rng.others(DEPTHS, &CLOSED_DEPTHS, |rng| rng.log(1.0, 200.0));
        let loads = rng.others(DRAWN_LOADS, &LOADS, |rng| rng.within(2, 93));
        let think = |rng: &mut Draws| Nanos::from_micros(rng.log(2.0, 300.0));
        let thinks = [1, depths[0]].map(|depth| (depth, think(&mut rng))).to_vec();
        let threads = vec![(depths[rng.within(0, 2) as usize], rng.within(2, 7) as u16)];
        let closed = std::iter::once(1).chain(depths.iter().copied()).collect();
        Ok(Grid { costs, profiles, closed, depths, loads, thinks, threads, jobs: JOBS.to_vec() })
    }
}

/// A random device with the behaviour `one`.
fn profile(rng: &mut Draws, name: String, one: Trait) -> Profile {
    let base = rng.log(4_000.0, 250_000.0);
    let longer = |rng: &mut Draws| Nanos(base * rng.within(15, 200) / 10);
    let mut read = Service {
        base: Nanos(base),
        jitter: Nanos(base * rng.within(0, 40) / 100),
        ..Service::default()
    };
    let modes = rng.within(1, 4);
    if modes > 1 {
        (read.more_ppm, read.more) = (rng.log(1_000.0, 400_000.0) as u32, longer(rng));
    }
    match one {
        Trait::Drifts => {
            (read.drift_pct, read.drift_run) =
                (rng.within(30, 300) as u32, rng.log(2_000.0, 20_000.0) as u32);
            if modes > 2 {
                (read.tail_ppm, read.tail) = (rng.log(500.0, 100_000.0) as u32, longer(rng));
            }
        }
        Trait::Phases => {
            (read.tail_ppm, read.tail, read.tail_run) =
                (rng.within(20, 400) as u32 * 1_000, longer(rng), rng.log(20.0, 500.0) as u32);
        }
        // Half of the commands find the cache full, at least twice in the shortest run of a cell.
        Trait::Cliff => {
            (read.tail_ppm, read.tail, read.tail_run) =
                (500_000, longer(rng), rng.log(500.0, 1_500.0) as u32);
        }
    }
    let share = |time: Nanos, percent: u64| Nanos(time.0 * percent / 100);
    let faster = rng.within(20, 101);
    let write =
        Service { base: share(read.base, faster), jitter: share(read.jitter, faster), ..read };
    let flush = Service { base: Nanos(rng.log(1_000.0, 400_000.0)), ..Service::default() };
    let channels = 8u32 << rng.within(0, 5);
    let bandwidth = rng.within(15, 71) * 100_000_000;
    Profile { name, read, write, flush, channels, bandwidth, ..Profile::optane() }
}

/// A price list between the two built-in ones: the logarithm of each price is at the fraction
/// `part` of the distance.
fn between(part: f64) -> Result<Costs, SimError> {
    let table = |costs: Costs| {
        toml::Table::try_from(costs).map_err(|error| SimError::Unfit(error.to_string()))
    };
    let (mut from, to) = (table(Costs::BARE_METAL)?, table(Costs::VIRTUAL)?);
    for (group, prices) in &mut from {
        let (Some(prices), Some(to)) =
            (prices.as_table_mut(), to.get(group).and_then(toml::Value::as_table))
        else {
            continue;
        };
        for (name, price) in prices.iter_mut() {
            let (Some(less), Some(more)) =
                (price.as_integer(), to.get(name).and_then(toml::Value::as_integer))
            else {
                continue;
            };
            // A price of 0 has no logarithm, and is interpolated linearly.
            let way = |less: f64, more: f64| {
                if less > 0.0 { less * (more / less).powf(part) } else { more * part }
            };
            *price = toml::Value::Integer(if less == more {
                less
            } else {
                way(less as f64, more as f64).round() as i64
            });
        }
    }
    from.try_into().map_err(|error: toml::de::Error| SimError::Unfit(error.to_string()))
}
