use super::*;

#[test]
fn the_grid_has_every_combination_once() {
    let cells = Grid::whole(7).cells();
    assert_eq!(cells.len(), 2 * 4 * DEPTHS.len() * LOADS.len());
    for (at, cell) in cells.iter().enumerate() {
        assert!(!cells[..at].contains(cell), "{cell:?}");
    }
    assert_eq!(Grid::whole(7).cells(), cells);
    assert!(Grid::quick(7).cells().iter().all(|cell| cells.contains(cell)));
}

#[test]
fn profiles_are_drawn_within_what_drives_do() {
    for seed in 0..2_000 {
        let profile = drawn(seed);
        assert!((5_000..200_000).contains(&profile.read.base.0), "{profile:?}");
        assert!((16..=128).contains(&profile.channels) && !profile.read.is_zero(), "{profile:?}");
    }
    assert_ne!(drawn(1).read, drawn(2).read);
}

/// The load of a cell is the part of the capacity that arrives, and is done.
#[test]
fn a_cell_runs_at_its_load() {
    let cell = Cell { costs: "bare-metal", profile: Profile::optane(), depth: 32, load: 50 };
    let capacity = cell.capacity(1).unwrap();
    let outcome = cell.scenario(Mode::POLL, LatencySlack::NONE, capacity, 20_000, 1).run().unwrap();
    let load = outcome.iops() / capacity;
    assert!((0.47..0.53).contains(&load), "{load}");
    let point = Point::of(&[outcome]).unwrap();
    assert!(point.p99 > 10_000.0 && point.cpu > 0.0, "{point:?}");
}

/// A setting that is lucky on the seeds it is chosen by is judged on the others.
#[test]
fn regret_is_judged_on_other_seeds_than_it_is_chosen_by() {
    let point = |p99, cpu| Point { p99, cpu };
    let other = [point(100.0, 100.0); 2];
    let lucky = [point(50.0, 50.0), point(300.0, 50.0)];
    let steady = [point(90.0, 90.0), point(90.0, 95.0)];
    assert_eq!(regret(&[steady, lucky], &other), Some((1, 3.0)));
    assert_eq!(regret(&[steady], &other), Some((0, 0.95)));
    assert_eq!(regret(&[], &other), None);
}

#[test]
fn the_knob_is_set_finer_around_the_best_setting_and_only_while_that_is_not_good_enough() {
    let point = |p99, cpu| Point { p99, cpu };
    let setting = |thousandths, p99, cpu| (LatencySlack::per_mille(thousandths), [point(p99, cpu); 2]);
    let curve = [setting(0, 10.0, 300.0), setting(100, 90.0, 115.0), setting(400, 130.0, 80.0), setting(u32::MAX, 500.0, 50.0)];
    let around = |other| finer(&curve, &[other; 2]).iter().map(|slack| slack.thousandths()).collect::<Vec<_>>();
    assert_eq!(around(point(100.0, 100.0)), [10, 200]);
    assert_eq!(around(point(9.0, 300.0)), [10]);
    assert_eq!(around(point(500.0, 45.0)), [20_000]);
    assert!(around(point(90.0, 115.0)).is_empty());
    assert!(finer(&[], &[point(1.0, 1.0); 2]).is_empty());
}
