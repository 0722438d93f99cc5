use ::sim::sweep::Point;

use super::*;

fn task(cell: usize, mode: Mode, seeds: u64) -> Task {
    Task { cell, mode, price: LatencyPrice::UNLIMITED, capacity: 0.0, seeds, begun: Vec::new() }
}

/// Halves of which one is so much worse than the other.
fn halves(worse: f64) -> Halves {
    let at = |cpu| Point { p99: 1000.0, cpu };
    Halves { choosing: at(100.0), quarters: [at(100.0); 2], judging: at(100.0 * worse) }
}

fn modes(cell: usize, seeds: u64) -> [Task; 2] {
    [Mode::INTERRUPT, Mode::POLL].map(|mode| task(cell, mode, seeds))
}

/// Of four cells one has ended and disagrees: all are expected to run again, and half of them a second time, with twice as many seeds.
#[test]
fn cells_that_have_ended_speak_for_the_others() {
    let mut forecast = Forecast::new(vec![false; 4], 32);
    let tasks: Vec<Task> = (0..4).flat_map(|cell| modes(cell, SEEDS)).collect();
    forecast.begin(&tasks);
    assert_eq!(forecast.later(SEEDS), 0.0);
    assert!(!forecast.add(&tasks[0], &halves(1.5)), "the cell has another mode");
    assert!(forecast.add(&tasks[1], &halves(1.0)));
    assert_eq!(forecast.later(SEEDS), 4.0 * (2.0 + AGAIN * 2.0 * 2.0));
    // One more agrees.
    tasks[2..4].iter().for_each(|task| _ = forecast.add(task, &halves(1.0)));
    assert_eq!(forecast.later(SEEDS), 2.0 * (2.0 + AGAIN * 2.0 * 2.0));
}

/// With more seeds a run is as long as the seeds that are new, and what agreed before leaves nothing.
#[test]
fn more_seeds_leave_less() {
    let mut forecast = Forecast::new(vec![false; 2], 32);
    let first: Vec<Task> = (0..2).flat_map(|cell| modes(cell, SEEDS)).collect();
    forecast.begin(&first);
    first.iter().zip([1.5, 1.5, 1.0, 1.0]).for_each(|(task, worse)| _ = forecast.add(task, &halves(worse)));
    let again = modes(0, 2 * SEEDS);
    forecast.begin(&again);
    assert_eq!(forecast.later(again[0].seeds_more()), AGAIN * 4.0, "a cell with more seeds is a doubtful one");
    again.iter().for_each(|task| _ = forecast.add(task, &halves(1.5)));
    assert_eq!(forecast.later(again[0].seeds_more()), 4.0);
    let last = modes(0, 4 * SEEDS);
    forecast.begin(&last);
    last.iter().for_each(|task| _ = forecast.add(task, &halves(1.5)));
    assert_eq!(forecast.later(last[0].seeds_more()), 0.0, "no cell may have more");
}
