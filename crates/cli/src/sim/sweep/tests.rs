use super::*;

fn cell() -> Cell {
    Cell { depth: 4, load: 25, ..Grid::whole(1).cells()[0].clone() }
}

/// A cell with two modes and all settings of the third.
#[test]
fn a_cell_gives_rows_and_regrets() {
    let cells = [cell()];
    let capacity = cells[0].capacity(1).unwrap();
    let plain = [Mode::INTERRUPT, Mode::POLL].map(|mode| Task { cell: 0, mode, slack: LatencySlack::NONE, capacity });
    let settings = SLACKS.map(|slack| Task { cell: 0, mode: Mode::ADAPTIVE, slack, capacity });
    let tasks: Vec<Task> = plain.into_iter().chain(settings).collect();
    let results: Vec<Option<Ran>> = tasks.iter().map(|task| Some(ran(&cells[0], task, 500, 1).unwrap())).collect();
    let row = &results[0].as_ref().unwrap().row;
    assert_eq!((row.mode.as_str(), row.scene.load_pct, row.scene.qd, &row.extra["costs"]), ("interrupt", 25.0, 4, &"bare-metal".into()));
    assert_eq!(results[3].as_ref().unwrap().row.mode, "adaptive@2%");
    let regrets = regrets(&cells, &tasks, &results);
    assert_eq!(regrets.iter().map(|regret| regret.mode.as_str()).collect::<Vec<_>>(), ["interrupt", "poll"]);
    assert!(regrets.iter().all(|regret| regret.ratio > 0.1 && regret.ratio < 10.0), "{regrets:?}");
    let text = show(&regrets, tasks.len(), 2_000);
    assert!(text.contains("interrupt") && text.contains("bare-metal"), "{text}");

    // Stopped before all settings were run: no verdict, but the rows stay.
    let mut part = results;
    *part.last_mut().unwrap() = None;
    assert!(super::regrets(&cells, &tasks, &part).is_empty());
    assert!(show(&[], 1, 2_000).contains("No cell"));
}
