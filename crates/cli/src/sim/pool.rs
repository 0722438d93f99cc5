//! Runs on all cores: each takes the next when it is done with one, and results come back in order.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::output;

/// From one line about the progress to the next.
const EVERY: Duration = Duration::from_secs(20);

/// Does `work` for each item. What was not begun before `stop` was set is `None`.
pub fn each<T: Sync, R: Send>(items: &[T], what: &str, stop: &AtomicBool, work: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    let bar = output::bar(items.len() as u64, what);
    let (next, mut results) = (AtomicUsize::new(0), Vec::new());
    results.resize_with(items.len(), || None);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    // Where stderr is no terminal, a line each so often says what the bar would.
    let (silent, begun, mut told) = (io::stderr().is_terminal(), Instant::now(), Instant::now());
    let (done, each_done) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (done, next, work) = (done.clone(), &next, &work);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(item) = items.get(at) else { return };
                    // Nobody listens any more: the others have panicked.
                    if done.send((at, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        for (done, (at, result)) in (1..).zip(each_done) {
            if let Some(slot) = results.get_mut(at) {
                *slot = Some(result);
            }
            bar.inc(1);
            if !silent && told.elapsed() >= EVERY {
                told = Instant::now();
                let (all, gone) = (items.len(), begun.elapsed().as_secs_f64());
                let left = gone * (all - done) as f64 / done as f64;
                output::say(format_args!("{what}: {done} of {all} after {gone:.0} s, about {left:.0} s left"));
            }
        }
    });
    bar.finish_and_clear();
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let items: Vec<u64> = (0..100).collect();
        let results = each(&items, "test", &AtomicBool::new(false), |n| n * 2);
        assert!(results.iter().zip(&items).all(|(result, n)| *result == Some(n * 2)));
    }

    #[test]
    fn stopped_pool_leaves_items_undone() {
        let stop = AtomicBool::new(false);
        let results = each(&[(); 1_000], "test", &stop, |()| stop.store(true, Relaxed));
        let done = results.iter().flatten().count();
        assert!((1..1_000).contains(&done), "{done}");
        assert!(each(&[1, 2], "test", &AtomicBool::new(true), |n| *n).iter().all(Option::is_none));
    }
}
