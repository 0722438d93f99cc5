//! `--background`: another thread that wants the host's CPU, as an application has them.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use reap::Nanos;

/// In each period it computes for its share, then sleeps.
const PERIOD: Nanos = Nanos::from_millis(5);

const PARKED: u8 = 0;
const ON: u8 = 1;
const END: u8 = 2;

/// A thread on each of some CPUs; parked until it is wanted, ended when this is dropped.
pub struct Background {
    threads: Vec<(Arc<Shared>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    state: AtomicU8,
    /// CPU time in nanoseconds that the thread has had.
    had: AtomicU64,
}

impl Background {
    /// Threads that want `percent` of each of `cpus`, at ordinary priority.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(cpus: &[usize], percent: f64) -> Result<Background> {
        let mut background = Background { threads: Vec::new() };
        for &cpu in cpus {
            let shared = Arc::new(Shared::default());
            let own = shared.clone();
            let thread = thread::Builder::new().name("reap-background".into()).spawn(move || live(&own, cpu, percent));
            background.threads.push((shared, thread.context("cannot start a background thread")?));
        }
        Ok(background)
    }

    /// Whether they compute from now on.
    pub fn set(&self, on: bool) {
        self.tell(if on { ON } else { PARKED });
    }

    /// CPU time that they have had, all together.
    pub fn had(&self) -> Nanos {
        Nanos(self.threads.iter().map(|(shared, _)| shared.had.load(Relaxed)).sum())
    }

    fn tell(&self, state: u8) {
        for (shared, thread) in &self.threads {
            shared.state.store(state, Release);
            thread.thread().unpark();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tell(END);
        for (_, thread) in self.threads.drain(..) {
            // It only computes: it cannot have panicked.
            _ = thread.join();
        }
    }
}

fn live(shared: &Shared, cpu: usize, percent: f64) {
    if let Err(error) = hw::pin(cpu) {
        tracing::warn!(cpu, %error, "a background thread is not pinned");
    }
    loop {
        match shared.state.load(Acquire) {
            END => return,
            ON => compute(shared, percent),
            _ => thread::park(),
        }
    }
}

/// One period: so much CPU time, however long that takes beside others, and then nothing.
fn compute(shared: &Shared, percent: f64) {
    let end = hw::now() + PERIOD;
    let enough = hw::thread_cpu() + Nanos((PERIOD.0 as f64 * percent / 100.0) as u64);
    loop {
        let had = hw::thread_cpu();
        shared.had.store(had.0, Relaxed);
        if had >= enough || shared.state.load(Acquire) != ON {
            break;
        }
    }
    // Someone who wants all of the CPU has no time to sleep.
    if percent < 100.0 {
        hw::sleep_until(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until it has had some CPU time more than `than`, for as long as a machine may ever take; tells whether it did.
    fn gets_more(background: &Background, than: Nanos) -> bool {
        let give_up = hw::now() + Nanos::from_secs(20);
        while background.had() <= than && hw::now() < give_up {
            hw::sleep_until(hw::now() + Nanos::from_millis(1));
        }
        background.had() > than
    }

    #[test]
    fn it_computes_while_it_is_on_and_ends_when_dropped() {
        let cpu = hw::allowed_cpus().unwrap()[0];
        for percent in [30.0, 100.0] {
            let background = Background::start(&[cpu], percent).unwrap();
            assert_eq!(background.had(), Nanos::ZERO);
            background.set(true);
            assert!(gets_more(&background, Nanos::ZERO));
            background.set(false);
            // It may be on its way still; once parked it gets nothing, however often it is told so.
            hw::sleep_until(hw::now() + Nanos::from_millis(20));
            let parked = background.had();
            background.set(false);
            hw::sleep_until(hw::now() + Nanos::from_millis(20));
            background.set(true);
            assert!(gets_more(&background, parked));
        }
    }
}
