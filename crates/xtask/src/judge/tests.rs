use super::*;
use cells::{LOADS, drawn};
use completion::Mode;
use sim::{Scenario, closed_loop, open_loop};

/// Cells of both sets differ, and are as many as documents say.
#[test]
fn sets_have_each_cell_once() {
    for (grid, seed) in [(Grid::known(), None), (Grid::unseen(7).unwrap(), Some(7))] {
        let cells = grid.cells();
        assert_eq!(cells.len(), 204);
        for (at, cell) in cells.iter().enumerate() {
            assert!(
                cells[..at].iter().all(|other| other.to_string() != cell.to_string()),
                "{cell}"
            );
        }
        let again = seed.map_or_else(Grid::known, |seed| Grid::unseen(seed).unwrap());
        assert_eq!(again.cells(), cells);
    }
}

#[test]
fn cells_are_picked_by_their_words() {
    let cell = &Grid::known().cells()[1];
    let named = |words: &[&[&str]]| {
        cell.is_named(
            &words
                .iter()
                .map(|group| group.iter().map(|&word| word.to_owned()).collect())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(cell.to_string(), "bare-metal optane open qd=1 load=50");
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

/// Deterministic, with nothing that the known grid has, and with each of the three traits twice.
#[test]
fn unseen_grid_depends_on_seed() {
    for seed in 0..200 {
        let grid = Grid::unseen(seed).unwrap();
        assert_eq!(grid, Grid::unseen(seed).unwrap());
        assert_ne!(grid.profiles, Grid::unseen(seed + 1).unwrap().profiles);
        assert!(
            grid.loads.iter().all(|load| !LOADS.contains(load) && (2..93).contains(load)),
            "{grid:?}"
        );
        assert!(
            grid.depths
                .iter()
                .all(|depth| !cells::CLOSED_DEPTHS.contains(depth) && (1..200).contains(depth)),
            "{grid:?}"
        );
        let reads: Vec<_> = grid.profiles.iter().map(|profile| profile.read).collect();
        assert_eq!(reads.iter().filter(|read| read.drift_run > 0).count(), 2);
        assert_eq!(
            reads.iter().filter(|read| read.tail_run >= 500 && read.tail_ppm == 500_000).count(),
            2,
            "{reads:?}"
        );
        assert_eq!(reads.iter().filter(|read| read.tail_run > 0).count(), 4);
        let [from, own, to] = [sim::Costs::BARE_METAL, grid.costs[0].costs, sim::Costs::VIRTUAL]
            .map(|costs| costs.thread.switch);
        assert!(from < own && own < to, "{own:?}");
    }
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
    let figures = |outcome: &sim::Outcome| {
        (
            outcome.iops(),
            outcome.cpu_ns_per_io(),
            outcome.latency.moments.mean(),
            outcome.counts.completed,
        )
    };
    figures(a) == figures(b)
}

/// The file of a cell, read as any other, gives the run of the judge: of each family, known and
/// drawn.
#[test]
fn cell_runs_alone_alike() {
    let grids = [
        Grid { costs: Grid::known().costs[1..].to_vec(), ..Grid::known() },
        Grid::unseen(3).unwrap(),
    ];
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
            assert!(
                (398..=400).contains(&swept.counts.completed),
                "{cell}: {}",
                swept.counts.completed
            );
        }
        assert_eq!(families.len(), 8, "{families:?}");
    }
}

/// A file says what a cell means: the same runs as of scenarios that are put together by hand.
#[test]
fn cell_loop_matches_its_name() {
    let cell = Grid::known().cells().swap_remove(4);
    assert_eq!(cell.to_string(), "bare-metal optane open qd=32 load=50");
    let by_hand = |job| {
        Scenario { seed: 5, ..Scenario::new(Mode::INTERRUPT, cell.profile.clone(), job) }
            .run()
            .unwrap()
    };
    let job = workload::Job { iodepth: 32, batch_submit: 16, ..open_loop(50_000, 2_000) };
    let run =
        |cell: &Cell| cell.scenario(Mode::INTERRUPT, 100_000.0, 2_000, 5).unwrap().run().unwrap();
    assert!(alike(&run(&cell), &by_hand(job)));
    let closed = Cell { kind: Kind::Closed, ..cell.clone() };
    assert!(alike(&run(&closed), &by_hand(closed_loop(32, 2_000))));
    let thinking =
        run(&Cell { depth: 1, kind: Kind::Think { think: Nanos::from_micros(100) }, ..cell });
    // The drive works while the thread computes, so that it is the thread that paces.
    assert!((9_000.0..10_000.0).contains(&thinking.iops()), "{}", thinking.iops());
}

/// The load of a cell is the part of the capacity that arrives, and is done.
#[test]
fn a_cell_runs_at_its_load() {
    let cell = Grid::known().cells().swap_remove(4);
    let capacity = cell.capacity().unwrap();
    let outcome = cell.scenario(Mode::POLL, capacity, 20_000, 1).unwrap().run().unwrap();
    let load = outcome.iops() / capacity;
    assert!((0.47..0.53).contains(&load), "{load}");
}

/// Latency counts three times as much as CPU time, and the best is the least of all fixed modes.
#[test]
fn regret_is_against_the_best() {
    let cells = Grid::known().cells();
    let figures = |cpu, latency| Figures {
        cpu,
        latency,
        p50: 1.0,
        p99: latency,
        iops: 1e9 / latency,
        state: String::new(),
    };
    let mut fixed = vec![figures(1_000.0, 2_000.0); FIXED.len()];
    fixed[4] = figures(4_000.0, 1_000.0);
    let own = figures(2_000.0, 1_100.0);
    let verdict = verdict(&cells[0], &own, &fixed);
    assert_eq!(verdict.best, FIXED[4]);
    assert!((verdict.regret - 0.5 * 1.1f64.powi(3)).abs() < 1e-3, "{}", verdict.regret);
    assert!(
        (verdict.rate - 1.0 / 1.1).abs() < 1e-9 && verdict.cpu == Some(0.5),
        "{:?}",
        verdict.cpu
    );
    let text = show(&[verdict]);
    assert!(text.contains("open") && text.contains(&cells[0].to_string()), "{text}");
}

/// A run lasts for the time that its I/Os take, without the warm-up.
#[test]
fn figures_leave_the_warm_up_out() {
    let cell = &Grid::known().cells()[0];
    let ran = figures(cell, Mode::POLL, 100_000.0, 2_000).unwrap();
    assert!(
        (8_000.0..12_000.0).contains(&ran.iops) && ran.cpu > 0.0 && ran.p99 >= ran.p50,
        "{ran:?}"
    );
}
