use super::*;
use crate::rows::fit;
use reap::paths::Policy;

fn made_up() -> Vec<Row> {
    let row = |cell: &Cell| {
        let ns = if cell.policy.name() == "queue-depth:sum" { f64::from(cell.queues) } else { 12.0 };
        Row {
            policy: cell.policy.name(),
            paths: cell.paths,
            queues: cell.queues,
            threads: cell.threads,
            ns,
            ns_min: ns - 1.0,
            ns_max: ns + 1.0,
            instructions: Some(40.0),
        }
    };
    Cell::all(2).iter().map(row).collect()
}

#[test]
fn the_matrix_is_whole() {
    let cells = Cell::all(2);
    assert_eq!(cells.len(), Policy::ALL.len() * 5 * 6 * 2);
    assert_eq!(Cell::all(1).len() * 2, cells.len(), "one CPU shows one thread");
}

#[test]
fn a_cell_is_measured_and_leaves_nothing_counted() {
    let cells: Vec<Cell> = Cell::all(2).into_iter().filter(|cell| cell.paths == 2 && cell.queues == 4).collect();
    assert_eq!(cells.len(), 2 * Policy::ALL.len());
    let (_, rows) = rows(&cells, 1, &hw::allowed_cpus().unwrap(), None, &AtomicBool::new(false)).unwrap();
    for row in rows {
        assert!(row.ns > 0.0 && row.ns_min <= row.ns && row.ns <= row.ns_max && row.instructions.is_none(), "{row:?}");
    }
}

#[test]
fn the_table_names_every_policy_and_the_ratio() {
    let text = table::draw(&made_up(), 3, "one of mine", 120);
    for policy in Policy::ALL {
        // How a policy counts stands below its name.
        assert!(policy.name().split(':').all(|part| text.contains(part)), "{text}");
    }
    for width in [80, 120] {
        let text = table::draw(&made_up(), 3, "one of mine, whose name is a long one, with many processors", width);
        assert!(fit::fits(&text, width), "{width}: {text}");
    }
    assert!(text.contains("5.3 times as long") && text.contains("40 → 40 → 40"), "{text}");
}

#[test]
fn the_picture_has_four_panels() {
    let svg = plot::draw(&made_up()).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for title in ["2 paths, 1 thread", "2 paths, 2 threads", "64 hardware queues, 1 thread", "queue-depth:cpu"] {
        assert!(svg.contains(title), "{title}");
    }
}
