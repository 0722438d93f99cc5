use super::*;

fn cell() -> Cell {
    Cell { depth: 4, load: 25, ..Grid::whole(1).cells()[0].clone() }
}

fn taken(cell: &Cell, task: &Task, ios: u64) -> Ran {
    ran(cell, task, &runs(cell, task, ios, 1).unwrap()).unwrap()
}

/// A cell with two modes and all settings of the third.
#[test]
fn a_cell_gives_rows_and_regrets() {
    let cells = [cell()];
    let capacity = cells[0].capacity(1).unwrap();
    let task = |mode, slack| Task { cell: 0, mode, slack, capacity, seeds: SEEDS, begun: Vec::new() };
    let plain = [Mode::INTERRUPT, Mode::POLL].map(|mode| task(mode, LatencySlack::NONE));
    let settings = SLACKS.map(|slack| task(Mode::ADAPTIVE, slack));
    let tasks: Vec<Task> = plain.into_iter().chain(settings).collect();
    let results: Vec<Option<Ran>> = tasks.iter().map(|task| Some(taken(&cells[0], task, 500))).collect();
    let row = &results[0].as_ref().unwrap().row;
    assert_eq!((row.mode.as_str(), row.scene.load_pct, row.scene.qd, &row.extra["costs"]), ("interrupt", 25.0, 4, &"bare-metal".into()));
    assert_eq!(results[3].as_ref().unwrap().row.mode, "adaptive@2%");
    let regrets = regrets(&cells, &tasks, &results);
    assert_eq!(regrets.iter().map(|regret| regret.mode.as_str()).collect::<Vec<_>>(), ["interrupt", "poll"]);
    assert!(regrets.iter().all(|regret| regret.ratio > 0.1 && regret.ratio < 10.0), "{regrets:?}");
    let text = show(&regrets, tasks.len(), 2_000);
    assert!(text.contains("interrupt") && text.contains("bare-metal") && text.contains("Seeds of a cell: 8 in 1"), "{text}");

    // Stopped before all settings were run: no verdict, but the rows stay.
    let mut part = results;
    *part.last_mut().unwrap() = None;
    assert!(super::regrets(&cells, &tasks, &part).is_empty());
    assert!(show(&[], 1, 2_000).contains("No cell"));
}

fn sweep(cells: Vec<Cell>, ios: u64, most_seeds: u64) -> Sweep {
    Sweep { cells, ios, seed: 1, most_seeds, stop: Arc::default(), journal: None }
}

/// Two modes in a cell that is the same with every seed, and in one that is not with so few I/Os: only the second gets more seeds, both
/// modes as many, and its figures are those of a run that had as many from the start.
#[test]
fn a_cell_whose_halves_disagree_gets_more_seeds() {
    let calm = Cell { depth: 1, load: 1, ..cell() };
    let noisy = Cell { load: 90, profile: Grid::whole(1).profiles[1].clone(), ..cell() };
    for (most, expected) in [(8, 8), (15, 8), (16, 16), (40, 32)] {
        let sweep = sweep(vec![calm.clone(), noisy.clone()], 50, most);
        let modes = [Mode::POLL, Mode::INTERRUPT];
        let task = |cell: usize, mode| Task { cell, mode, slack: LatencySlack::NONE, capacity: 60_000.0, seeds: SEEDS, begun: Vec::new() };
        let mut tasks: Vec<Task> = [0, 1].into_iter().flat_map(|cell| modes.map(|mode| task(cell, mode))).collect();
        let mut all = sweep.run_all(&mut tasks, "test").unwrap();
        sweep.settle(&mut tasks, &mut all).unwrap();
        assert_eq!(tasks.iter().map(|task| task.seeds).collect::<Vec<_>>(), [8, 8, expected, expected]);
        for (task, ran) in tasks.iter().zip(all) {
            assert!(task.begun.is_empty());
            let ran = ran.unwrap();
            assert_eq!(ran.row.extra["seeds"], task.seeds);
            assert_eq!(ran, taken(&sweep.cells[task.cell], task, 50));
        }
    }
}

/// Stopped while cells were run again: one of which a mode is missing counts as it was before, all its modes with as many seeds.
#[test]
fn a_cell_that_was_not_run_again_as_a_whole_stays_as_it_was() {
    let (cells, modes) = ([cell(), Cell { load: 90, ..cell() }], [Mode::POLL, Mode::INTERRUPT]);
    let task = |cell: usize, mode| Task { cell, mode, slack: LatencySlack::NONE, capacity: 60_000.0, seeds: SEEDS, begun: Vec::new() };
    let mut tasks: Vec<Task> = [0, 1].into_iter().flat_map(|cell| modes.map(|mode| task(cell, mode))).collect();
    let mut all: Vec<Option<Ran>> = tasks.iter().map(|task| Some(taken(&cells[task.cell], task, 50))).collect();
    let before = all.clone();
    let more = tasks.iter_mut().map(Task::with_twice_the_seeds).enumerate();
    let again = more.map(|(at, task)| (at, (task, before[at].clone().filter(|_| at != 1)))).collect();
    take_over(&mut tasks, &mut all, again);
    assert_eq!(tasks.iter().map(|task| task.seeds).collect::<Vec<_>>(), [8, 8, 16, 16]);
    assert_eq!(all, before, "nothing is lost");
}
