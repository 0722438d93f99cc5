use super::*;
use crate::sim::sweep::tasks::{ran, runs};
use ::sim::sweep::{Grid, Kind};

fn cell() -> Cell {
    Cell { depth: 4, kind: Kind::Open { load: 25 }, ..Grid::whole(1).cells()[0].clone() }
}

fn taken(cell: &Cell, task: &Task, ios: u64) -> Ran {
    ran(cell, task, &runs(cell, task, ios, 1).unwrap()).unwrap()
}

/// A cell with two modes and all settings of the third.
#[test]
fn a_cell_gives_rows_and_regrets() {
    let cells = [cell()];
    let capacity = cells[0].capacity(1).unwrap();
    let task = |mode, price| Task { cell: 0, mode, price, capacity, seeds: SEEDS, begun: Vec::new() };
    let plain = [Mode::INTERRUPT, Mode::POLL].map(|mode| task(mode, LatencyPrice::UNLIMITED));
    let settings = PRICES.iter().map(|&price| task(Mode::ADAPTIVE, price));
    let tasks: Vec<Task> = plain.into_iter().chain(settings).collect();
    let results: Vec<Option<Ran>> = tasks.iter().map(|task| Some(taken(&cells[0], task, 500))).collect();
    let row = &results[0].as_ref().unwrap().row;
    assert_eq!((row.mode.as_str(), row.scene.load_pct, row.scene.qd, &row.extra["costs"]), ("interrupt", 25.0, 4, &"bare-metal".into()));
    assert_eq!(results[3].as_ref().unwrap().row.mode, "adaptive@10");
    let regrets = regrets::regrets(&cells, &tasks, &results, PRICES.len());
    assert_eq!(regrets.iter().map(|regret| regret.mode.as_str()).collect::<Vec<_>>(), ["interrupt", "poll"]);
    assert!(regrets.iter().all(|regret| regret.ratio > 0.1 && regret.ratio < 10.0), "{regrets:?}");
    let text = regrets::show(&regrets, tasks.len(), 2_000);
    assert!(text.contains("interrupt") && text.contains("bare-metal") && text.contains("Seeds of a cell: 8 in 1"), "{text}");

    let modes = [Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE];
    let verdicts = |results: &[Option<Ran>]| Verdicts::of(&cells, &tasks, results, &modes, PRICES);
    schema(&verdicts(&results).json(), &cells[0]);
    let told = verdicts(&results).show();
    assert!(told.starts_with("adaptive at its default, 0.2: dominated in ") && told.contains(" of 1 cells"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");

    // Stopped before all settings were run: no verdict, but the rows stay.
    let mut part = results;
    *part.last_mut().unwrap() = None;
    assert!(regrets::regrets(&cells, &tasks, &part, PRICES.len()).is_empty());
    assert_eq!(verdicts(&part).json()["default"]["cells"], 0);
    assert!(verdicts(&part).show().contains("No cell"));
    assert!(regrets::show(&[], 1, 2_000).contains("No cell"));
}

/// What scripts read: a point of the curve for each setting, and of each dominated cell where it is and by whom.
fn schema(json: &Map<String, Value>, cell: &Cell) {
    let curve = json["curve"].as_array().unwrap();
    assert_eq!(curve.len(), PRICES.len());
    for (point, setting) in curve.iter().zip(PRICES) {
        assert_eq!(point["lambda"].as_f64().is_some(), setting.rate().is_finite(), "{point}");
        assert!(point["lambda"].as_f64().is_none_or(|lambda| (lambda - setting.rate()).abs() < 1e-6), "{point}");
        let figures = ["cpu_ns_per_io", "mean_ns", "p99_ns", "iops"].map(|key| point[key].as_f64().unwrap());
        assert!(figures.iter().all(|figure| *figure > 0.0), "{point}");
    }
    let default = &json["default"];
    assert_eq!(default["cells"], 1);
    for dominated in default["dominated"].as_array().unwrap() {
        assert_eq!((&dominated["costs"], &dominated["profile"]), (&json!("bare-metal"), &json!("optane")));
        assert_eq!((&dominated["qd"], &dominated["load_pct"], &dominated["cell"]), (&json!(4), &json!(25), &json!(cell.to_string())));
        assert!(dominated["mode"].is_string() && dominated["cpu_ratio"].as_f64().unwrap() <= 0.95);
        assert!(["mean_ratio", "p99_ratio"].iter().all(|key| dominated[*key].as_f64().unwrap() <= 1.05), "{dominated}");
    }
    assert!(json["knob"]["monotone_pct"].is_number());
}

/// The default against a mode that is as quick and half as dear: found, told, and written.
#[test]
fn a_cell_that_is_dominated_is_told_with_its_rival() {
    let cells = [cell()];
    let capacity = cells[0].capacity(1).unwrap();
    let task = |mode, price| Task { cell: 0, mode, price, capacity, seeds: SEEDS, begun: Vec::new() };
    let tasks = [task(Mode::VIC, LatencyPrice::UNLIMITED), task(Mode::ADAPTIVE, LatencyPrice::default())];
    let own = taken(&cells[0], &tasks[1], 200);
    let mut rival = own.clone();
    rival.fare.cpu /= 2.0;
    let (modes, settings) = ([Mode::VIC, Mode::ADAPTIVE], [LatencyPrice::default()]);
    let verdicts = Verdicts::of(&cells, &tasks, &[Some(rival), Some(own.clone())], &modes, &settings);
    let json = verdicts.json();
    let dominated = &json["default"]["dominated"][0];
    assert_eq!((&dominated["mode"], &dominated["cpu_ratio"], &dominated["modes"]), (&json!("vic"), &json!(0.5), &json!(["vic"])));
    let text = verdicts.show();
    assert!(text.contains("dominated in 1 of 1 cells (100.0 %), in 1 by") && text.contains("where vic takes 0.50 of the CPU"), "{text}");
    let alike = Verdicts::of(&cells, &tasks, &[Some(own.clone()), Some(own)], &modes, &settings);
    assert_eq!(alike.json()["default"]["dominated"], json!([]));
}

/// A rival that is half as dear and a little later dominates, and may cost more by the default's own measure all the same.
#[test]
fn what_the_default_costs_by_its_own_measure_is_told_beside_the_verdicts() {
    let cells = [cell()];
    let capacity = cells[0].capacity(1).unwrap();
    let task = |mode, price| Task { cell: 0, mode, price, capacity, seeds: SEEDS, begun: Vec::new() };
    let tasks = [task(Mode::VIC, LatencyPrice::UNLIMITED), task(Mode::ADAPTIVE, LatencyPrice::default())];
    let mut own = taken(&cells[0], &tasks[1], 200);
    (own.fare.cpu, own.fare.mean) = (1_000.0, 95_000.0);
    let told = |later: f64| {
        let mut rival = own.clone();
        (rival.fare.cpu, rival.fare.mean) = (500.0, own.fare.mean + later);
        let (modes, settings) = ([Mode::VIC, Mode::ADAPTIVE], [LatencyPrice::default()]);
        let verdicts = Verdicts::of(&cells, &tasks, &[Some(rival), Some(own.clone())], &modes, &settings);
        let default = verdicts.json()["default"].clone();
        let figures = [&default["cost"]["median"], &default["cost"]["worst"], &default["dominated"][0]["cost_ratio"]];
        (verdicts.show(), figures.map(|figure| (figure.as_f64().unwrap() * 1e3).round()))
    };
    // 20,000 beside 20,300, as 4,000 ns are worth 800.
    let (text, figures) = told(4_000.0);
    assert_eq!(figures, [985.0, 985.0, 1015.0]);
    assert!(
        text.replace('\n', " ").contains("it costs 0.99 of the cheapest") && text.replace('\n', " ").contains("or more: 1 of 1."),
        "{text}"
    );
    // And beside 19,700.
    let (text, figures) = told(1_000.0);
    assert_eq!(figures, [1015.0, 1015.0, 985.0]);
    assert!(text.replace('\n', " ").contains("or more: 0 of 1."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Any stretch of the order has as many cells of either half, within a few.
#[test]
fn neighbours_are_far_apart_in_the_order_of_runs() {
    let mut order: Vec<usize> = (0..400).collect();
    order.sort_by_key(|&cell| scattered(cell));
    for stretch in order.windows(40) {
        let low = stretch.iter().filter(|&&cell| cell < 200).count();
        assert!((16..=24).contains(&low), "{low} of {stretch:?}");
    }
}

fn sweep(cells: Vec<Cell>, ios: u64, most_seeds: u64) -> Sweep {
    let forecast = Mutex::new(Forecast::new(vec![false; cells.len()], most_seeds));
    Sweep { cells, ios, first: 1, most_seeds, threads: None, stop: Arc::default(), forecast, journal: None }
}

/// Two modes in a cell that is the same with every seed, and in one that is not with so few I/Os.
fn calm_and_noisy() -> (Vec<Cell>, Vec<Task>) {
    let noisy = Cell { kind: Kind::Open { load: 90 }, profile: Grid::whole(1).profiles[1].clone(), ..cell() };
    let task = |cell: usize, mode| Task { cell, mode, price: LatencyPrice::UNLIMITED, capacity: 60_000.0, seeds: SEEDS, begun: Vec::new() };
    let tasks = [0, 1].into_iter().flat_map(|cell| [Mode::POLL, Mode::INTERRUPT].map(|mode| task(cell, mode)));
    (vec![Cell { depth: 1, kind: Kind::Open { load: 1 }, ..cell() }, noisy], tasks.collect())
}

/// Only the noisy one gets more seeds, both modes as many, and its figures are those of a run that had as many from the start.
#[test]
fn a_cell_whose_halves_disagree_gets_more_seeds() {
    for (most, expected) in [(8, 8), (15, 8), (16, 16), (40, 32)] {
        let (cells, mut tasks) = calm_and_noisy();
        let sweep = sweep(cells, 50, most);
        let mut all = sweep.run_all(&mut tasks, Phase::All).unwrap();
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

/// Killed after any of its runs, and resumed: the same results. What a cell's first seeds said is not in the journal one by one, so that
/// they are run again where more are needed.
#[test]
fn a_sweep_goes_on_wherever_it_was_with_as_many_seeds() {
    let dir = tempfile::tempdir().unwrap();
    let (json, path) = (dir.path().join("s.json"), dir.path().join("s.json.journal"));
    let results = |resume| {
        let (cells, mut tasks) = calm_and_noisy();
        let journal = Journal::open(&json, &Map::new(), resume).unwrap();
        let sweep = Sweep { journal: Some(Mutex::new(journal)), ..sweep(cells, 50, 32) };
        let mut all = sweep.run_all(&mut tasks, Phase::All).unwrap();
        sweep.settle(&mut tasks, &mut all).unwrap();
        (tasks.iter().map(|task| task.seeds).collect::<Vec<_>>(), all)
    };
    let whole = results(false);
    let text = std::fs::read_to_string(&path).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    assert_eq!(ends.len(), 1 + 4 + 2 + 2, "the head, all with 8 seeds, the noisy one's with 16 and 32");
    for end in ends {
        std::fs::write(&path, &text[..end]).unwrap();
        assert!(results(true) == whole, "cut at {end}");
    }
}

/// Stopped while cells were run again: one of which a mode is missing counts as it was before, all its modes with as many seeds.
#[test]
fn a_cell_that_was_not_run_again_as_a_whole_stays_as_it_was() {
    let (cells, mut tasks) = calm_and_noisy();
    let mut all: Vec<Option<Ran>> = tasks.iter().map(|task| Some(taken(&cells[task.cell], task, 50))).collect();
    let before = all.clone();
    let more = tasks.iter_mut().map(Task::with_twice_the_seeds).enumerate();
    let again = more.map(|(at, task)| (at, (task, before[at].clone().filter(|_| at != 1)))).collect();
    take_over(&mut tasks, &mut all, again);
    assert_eq!(tasks.iter().map(|task| task.seeds).collect::<Vec<_>>(), [8, 8, 16, 16]);
    assert_eq!(all, before, "nothing is lost");
}
