mod settles;

use super::*;
use cells::{DEPTHS, LOADS, PHASED, drawn};
use completion::Mode;
use emu::Profile;
use sim::{Scenario, closed_loop, open_loop};
use units::Nanos;

#[test]
fn the_grid_has_every_combination_once() {
    let cells = Grid::whole(7).cells();
    let families = |family: &str| cells.iter().filter(|cell| cell.kind.family() == family).count();
    assert_eq!(families("open"), 2 * 4 * DEPTHS.len() * LOADS.len());
    assert_eq!((families("closed"), families("think"), families("threads"), families("log")), (64, 32, 24, 8));
    for (at, cell) in cells.iter().enumerate() {
        assert!(!cells[..at].contains(cell) && cells[..at].iter().all(|other| other.to_string() != cell.to_string()), "{cell}");
    }
    assert_eq!(Grid::whole(7).cells(), cells);
    assert!(Grid::quick(7).cells().iter().all(|cell| cells.contains(cell)));
}

#[test]
fn cells_are_picked_by_their_words() {
    let cell = &Grid::whole(1).cells()[3];
    let named = |words: &[&[&str]]| {
        cell.is_named(&words.iter().map(|group| group.iter().map(|&word| word.to_owned()).collect()).collect::<Vec<_>>())
    };
    assert_eq!(cell.to_string(), "bare-metal optane open qd=1 load=25");
    assert!(named(&[]) && named(&[&["open"], &["qd=4", "qd=1"]]));
    assert!(!named(&[&["open"], &["qd=4"]]) && !named(&[&["bare"]]), "whole words only");
}

#[test]
fn drawn_profiles_stay_plausible() {
    for seed in 0..2_000 {
        let profile = drawn(seed);
        assert!((5_000..200_000).contains(&profile.read.base.0), "{profile:?}");
        assert!((16..=128).contains(&profile.channels) && !profile.read.is_zero(), "{profile:?}");
    }
    assert_ne!(drawn(1).read, drawn(2).read);
}

/// Deterministic, with nothing that the known grid has, and with each of the three traits once.
#[test]
fn unseen_grid_depends_on_seed() {
    for seed in 0..200 {
        let grid = Grid::unseen(seed).unwrap();
        assert_eq!(grid, Grid::unseen(seed).unwrap());
        assert_ne!(grid.profiles, Grid::unseen(seed + 1).unwrap().profiles);
        assert!(grid.loads.iter().all(|load| !LOADS.contains(load) && (2..93).contains(load)), "{grid:?}");
        assert!(grid.depths.iter().all(|depth| !DEPTHS.contains(depth) && (1..200).contains(depth)), "{grid:?}");
        let reads: Vec<_> = grid.profiles.iter().map(|profile| profile.read).collect();
        assert_eq!(reads.iter().filter(|read| read.drift_run > 0).count(), 1);
        assert_eq!(reads.iter().filter(|read| read.tail_run >= 500 && read.tail_ppm == 500_000).count(), 1, "{reads:?}");
        assert_eq!(reads.iter().filter(|read| read.tail_run > 0).count(), 2);
        let [from, own, to] = [sim::Costs::BARE_METAL, grid.costs[0].costs, sim::Costs::VIRTUAL].map(|costs| costs.thread.switch);
        assert!(from < own && own < to, "{own:?}");
    }
}

/// What is printed of a drawn grid is the grid.
#[test]
fn grid_tables_round_trip() {
    let grid = Grid::unseen(5).unwrap();
    let tables = grid.tables().unwrap();
    for ((_, text), profile) in tables[1..].iter().zip(&grid.profiles) {
        let table: toml::Table = toml::from_str(text).unwrap();
        let own: Profile = table["device"][0]["profile"].clone().try_into().unwrap();
        assert_eq!(Profile { name: profile.name.clone(), ..own }, *profile);
    }
    let text = tables[0].1.replace("[machine.costs]\n", "").replace("machine.costs.", "");
    assert_eq!(sim::file::read_costs("own", &text).unwrap(), grid.costs[0].costs, "{text}");
}

struct NoFiles;

impl workload::fio::Environment for NoFiles {
    fn include(&self, _from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        panic!("a cell's file names {path}");
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

fn alike(a: &sim::Outcome, b: &sim::Outcome) -> bool {
    let figures =
        |outcome: &sim::Outcome| (outcome.iops(), outcome.cpu_ns_per_io(), outcome.latency.moments.mean(), outcome.counts.completed);
    figures(a) == figures(b)
}

/// The file of a cell, read as any other, gives the run of the sweep: of each family, known and drawn.
#[test]
fn cell_runs_alone_alike() {
    let grids = [Grid { costs: Grid::whole(3).costs[1..].to_vec(), ..Grid::quick(3) }, Grid::unseen(3).unwrap()];
    for grid in grids {
        let mut families = Vec::new();
        for cell in grid.cells().into_iter().rev() {
            if families.contains(&cell.kind.family()) {
                continue;
            }
            families.push(cell.kind.family());
            let text = cell.text(50_000.0, 400, 9).unwrap();
            let alone = sim::file::read("cell.toml", &text, &NoFiles).unwrap().scenario;
            let alone = Scenario { mode: Mode::ADAPTIVE, ..alone }.run().unwrap();
            let swept = cell.scenario(Mode::ADAPTIVE, 50_000.0, 400, 9).unwrap().run().unwrap();
            assert!(alike(&alone, &swept), "{cell}\n{text}");
            assert!((398..=400).contains(&swept.counts.completed), "{cell}: {}", swept.counts.completed);
        }
        assert_eq!(families.len(), 8, "{families:?}");
    }
}

/// A file says what the sweep means: the same runs as of scenarios that are put together by hand.
#[test]
fn cell_loop_matches_its_name() {
    let cell = Grid::quick(1).cells().swap_remove(4);
    assert_eq!(cell.to_string(), "bare-metal optane open qd=32 load=50");
    let by_hand = |job| Scenario { seed: 5, ..Scenario::new(Mode::INTERRUPT, cell.profile.clone(), job) }.run().unwrap();
    let job = workload::Job { iodepth: 32, batch_submit: 16, ..open_loop(50_000, 2_000) };
    let run = |cell: &Cell| cell.scenario(Mode::INTERRUPT, 100_000.0, 2_000, 5).unwrap().run().unwrap();
    assert!(alike(&run(&cell), &by_hand(job)));
    let closed = Cell { kind: Kind::Closed, ..cell.clone() };
    assert!(alike(&run(&closed), &by_hand(closed_loop(32, 2_000))));
    let thinking = run(&Cell { depth: 1, kind: Kind::Think { think: Nanos::from_micros(100) }, ..cell });
    // The drive works while the thread computes, so that it is the thread that paces.
    assert!((9_000.0..10_000.0).contains(&thinking.iops()), "{}", thinking.iops());
}

/// The load of a cell is the part of the capacity that arrives, and is done.
#[test]
fn a_cell_runs_at_its_load() {
    let cell = Grid::quick(1).cells().swap_remove(4);
    let capacity = cell.capacity(1).unwrap();
    let outcome = cell.scenario(Mode::POLL, capacity, 20_000, 1).unwrap().run().unwrap();
    let load = outcome.iops() / capacity;
    assert!((0.47..0.53).contains(&load), "{load}");
}

#[test]
fn phased_devices_run_longer() {
    let cell = &Grid::quick(1).cells()[0];
    let ios = |profile| Cell { profile, ..cell.clone() }.ios(1_000);
    assert_eq!([ios(Profile::optane()), ios(Profile::tlc()), ios(Profile::bimodal())], [1_000, 1_000, PHASED * 1_000]);
}

/// An open loop on a device that ships.
fn open(costs: &str, profile: Profile, depth: u32, load: u32) -> Cell {
    let costs = Grid::whole(1).costs.into_iter().find(|prices| prices.name == costs).unwrap();
    Cell { costs, profile, depth, kind: Kind::Open { load } }
}

/// A closed loop on a device that ships.
fn closed(costs: &str, profile: Profile, depth: u32) -> Cell {
    Cell { kind: Kind::Closed, ..open(costs, profile, depth, 100) }
}

/// Many in flight on a device at its limit: as many I/Os as `poll`, and no more CPU time than a mode that has the device hold its
/// messages back, because as many are found at a time. Of a device whose channels are busy by chance less seems to be to spare: some of
/// 128 always wait while others of its channels are idle.
#[test]
fn adaptive_matches_coalescing_at_saturation() {
    for (profile, depth, dearer) in [(Profile::optane(), 32, 1.1), (Profile::optane(), 128, 1.1), (Profile::tlc(), 128, 1.25)] {
        let cell = closed("bare-metal", profile, depth);
        let run = |mode| cell.scenario(mode, 0.0, 30_000, 1).unwrap().run().unwrap();
        let (own, poll, held) = (run(Mode::ADAPTIVE), run(Mode::POLL), run(Mode::VIC));
        assert!(own.iops() > poll.iops() * 0.98, "{cell}: {} of {}", own.iops(), poll.iops());
        assert!(own.cpu_ns_per_io() < held.cpu_ns_per_io() * dearer, "{cell}: {} of {}", own.cpu_ns_per_io(), held.cpu_ns_per_io());
    }
}

/// Even if only CPU time counts, what a loop offers is carried.
#[test]
fn free_latency_still_carries_load() {
    for costs in ["bare-metal", "vm"] {
        let cell = open(costs, Profile::tlc(), 32, 75);
        let capacity = cell.capacity(1).unwrap();
        let run = cell.scenario(Mode::adaptive(LatencyPrice::NONE), capacity, 80_000, 1).unwrap().run().unwrap();
        assert!(run.iops() > capacity * 0.75 * 0.8, "{cell}: {} of {capacity}", run.iops());
    }
}

fn ran(mode: Mode, cpu: f64) -> Ran {
    Ran { cell: 0, mode, fare: Fare { cpu, mean: 1_000.0, p99: 2_000.0, iops: 1_000.0 }, p50: 900.0 }
}

#[test]
fn dominated_cell_shows_its_rival() {
    let cells = Grid::whole(1).cells();
    let soon = Mode::adaptive(LatencyPrice::UNLIMITED);
    let show = |vic| show(&cells, &[ran(Mode::VIC, vic), ran(soon, 1_100.0), ran(Mode::ADAPTIVE, 1_000.0)]);
    let dominated = show(500.0);
    assert!(dominated.contains("in 1 cells: dominated in 1, by another mode in 1; dominating in 0."), "{dominated}");
    assert!(dominated.contains("vic  0.50  1.00  1.00  1.00"), "{dominated}");
    assert!(show(2_000.0).contains("dominated in 0, by another mode in 0; dominating in 1."));
}

#[test]
fn a_fare_is_of_all_seeds() {
    let cell = &Grid::quick(1).cells()[0];
    let (fare, p50) = fare(cell, Mode::POLL, 100_000.0, 100, 1).unwrap();
    assert!(fare.cpu > 0.0 && fare.iops > 0.0 && p50 > 5_000.0 && fare.p99 >= p50, "{fare:?} {p50}");
}

/// Where values lie evenly, a percentile is known better than its bucket.
#[test]
fn percentiles_are_found_within_buckets() {
    let mut histogram = Histogram::default();
    assert_eq!(percentile_within(&histogram, 99.0), None);
    (0..1 << 17).for_each(|nanos| histogram.add(nanos, 1));
    for percent in [0.01, 1.0, 50.0, 90.0, 99.0, 99.9] {
        let (within, exact) = (percentile_within(&histogram, percent).unwrap(), percent * 1_310.72);
        assert!((within / exact - 1.0).abs() < 0.001, "{percent}: {within}");
    }
    let coarse = histogram.percentiles(&[99.0])[0] as f64 / (99.0 * 1_310.72);
    assert!((coarse - 1.0).abs() > 0.001, "{coarse}: the other one knows it as well");
}
