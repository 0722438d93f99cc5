//! Parallel execution of runs, and tables in plain text.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use comfy_table::{CellAlignment, Table, presets};

/// Runs `work` for each item, on all CPUs in parallel. Returns the results in the order of the
/// items, and prints progress to stderr.
pub fn each<T: Sync, R: Send>(what: &str, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get).min(items.len()) {
            scope.spawn(|| {
                while let Some((at, item)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, items.get(at)?)))
                {
                    let result = work(item);
                    let mut done = done.lock().expect("no holder panics");
                    done.push((at, result));
                    // Progress in steps of 5 %.
                    if done.len() % items.len().div_ceil(20) == 0 {
                        eprintln!("{what}: {} of {}", done.len(), items.len());
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no holder panics");
    // Runs finish in any order.
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A table whose first `words` columns are left-aligned text, and the others right-aligned numbers.
pub fn table(
    headers: &[&str],
    words: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headers);
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if at >= words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}
