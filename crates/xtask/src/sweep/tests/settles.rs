//! With a device that keeps up, no mode settles at less than the offered load.

use crate::sweep::cells::drawn;
use completion::{LatencyPrice, Mode};
use emu::{Profile, Service};
use sim::{Costs, Scenario, closed_loop, open_loop};
use units::Nanos;
use workload::Job;

/// How much of the offered load a mode settles at.
fn settled(mode: Mode, profile: &Profile, (depth, load): (u32, u64), (ios, seed): (u64, u64)) -> f64 {
    let mean = profile.read.mean().0.max(1);
    // What the channels do, and no more than the depth allows: there is room for a mode to be late.
    let parallel = u64::from(profile.channels).min(u64::from(depth));
    let rate = parallel * 1_000_000_000 / mean * load / 100;
    let job = Job { iodepth: depth, batch_submit: depth.min(16), ..open_loop(rate, ios) };
    let mut scenario = Scenario { seed, ..Scenario::new(mode, profile.clone(), job) }.with_costs(Costs::BARE_METAL);
    scenario.devices[0].config.profile.moves_data = false;
    let outcome = scenario.run().unwrap_or_else(|error| panic!("{mode}: {error}"));
    outcome.iops() / rate as f64
}

/// A profile whose capacity one core keeps up with: so slow, and so few at once.
fn calm(seed: u64) -> Profile {
    let mut profile = drawn(seed);
    profile.channels = profile.channels.min(16);
    profile.read.base = profile.read.base.max(Nanos(40_000));
    Profile { write: profile.read, ..profile }
}

fn look(seeds: std::ops::Range<u64>, ios: u64) -> Vec<String> {
    let mut short = Vec::new();
    for seed in seeds {
        let profile = calm(seed);
        for depth in [16, 32] {
            for mode in Mode::ALL {
                let adaptive = [100, 300, 10_000].map(|price| Mode::adaptive(LatencyPrice::per_mille(price)));
                for mode in if mode == Mode::ADAPTIVE { adaptive.to_vec() } else { vec![mode] } {
                    let part = settled(mode, &profile, (depth, 30), (ios, seed));
                    if part < 0.9 {
                        short.push(format!("{mode}, {}, depth {depth}: {part:.2}", profile.name));
                    }
                }
            }
        }
    }
    short
}

#[test]
fn every_mode_carries_offered_load() {
    assert_eq!(look(1..4, 8_000), Vec::<String>::new());
}

/// More profiles, for longer: some minutes.
#[test]
#[ignore = "minutes"]
fn many_drives_carry_offered_load() {
    assert_eq!(look(4..60, 30_000), Vec::<String>::new());
}

/// A drive in two phases, 20 µs and 300, in runs of 40, which are this many of a million, at 45 % of what `poll` does at a depth of 12; and a
/// low price of latency.
fn trapped(costs: Costs, tail_ppm: u32, seeds: std::ops::RangeInclusive<u64>) -> Vec<(u64, f64)> {
    let tail = Service { base: Nanos(20_000), tail_ppm, tail: Nanos(280_000), tail_run: 40, ..Service::default() };
    let profile = Profile { name: "trap".into(), read: tail, write: tail, channels: 128, ..Profile::null() };
    let capacity = Scenario::new(Mode::POLL, profile.clone(), closed_loop(12, 50_000)).with_costs(costs).run().unwrap().iops();
    let part = |seed| {
        let rate = (capacity * 0.45) as u64;
        let job = Job { iodepth: 12, batch_submit: 12, ..open_loop(rate, 30_000) };
        let mode = Mode::adaptive(LatencyPrice::per_mille(30));
        let scenario = Scenario { seed, ..Scenario::new(mode, profile.clone(), job) };
        scenario.with_costs(costs).run().unwrap().iops() / rate as f64
    };
    seeds.map(|seed| (seed, part(seed))).filter(|(_, part)| *part < 0.9).collect()
}

#[test]
fn a_low_price_is_no_trap() {
    for costs in [Costs::BARE_METAL, Costs::VIRTUAL] {
        for tail_ppm in [50_000, 100_000, 300_000] {
            assert_eq!(trapped(costs, tail_ppm, 1..=4), [], "{tail_ppm}");
        }
    }
}
