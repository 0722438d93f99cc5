//! Cache lines between two CPUs.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use anyhow::{Context, Result};

use super::list::Found;
use super::sampler::{Sampler, time_each};

/// Rounds of a sample.
const ROUNDS: u32 = 2_000;

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

#[derive(Default)]
struct Table {
    /// Written by this CPU.
    ours: Line,
    /// Written by the other one.
    theirs: Line,
    end: AtomicBool,
    pinned: AtomicBool,
}

/// A store on one CPU until the other, which spins on it, sees it: half of a round between two lines.
///
/// # Errors
/// A thread cannot be started.
pub fn measure(sampler: &mut Sampler<'_>, other: usize, found: &mut Found) -> Result<()> {
    let table = Arc::new(Table::default());
    let echo = table.clone();
    let echoing = thread::Builder::new().name("reap-echo".into()).spawn(move || {
        echo.pinned.store(hw::pin(other).is_ok(), Release);
        let mut seen = 0;
        while !echo.end.load(Relaxed) {
            let now = echo.ours.0.load(Acquire);
            if now != seen {
                seen = now;
                echo.theirs.0.store(now, Release);
            }
            std::hint::spin_loop();
        }
    });
    let echoing = echoing.context("cannot start a thread")?;
    let mut n = 0;
    found.line = sampler
        .repeat(|| {
            let round = time_each(ROUNDS, || {
                n += 1;
                table.ours.0.store(n, Release);
                while table.theirs.0.load(Acquire) != n {
                    std::hint::spin_loop();
                }
            });
            table.pinned.load(Acquire).then_some([round / 2.0])
        })
        .map(|[line]| line);
    table.end.store(true, Relaxed);
    _ = echoing.join();
    Ok(())
}
