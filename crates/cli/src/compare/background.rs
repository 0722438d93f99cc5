//! `--background`: another thread that wants the host's CPU, as an application has them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use reap::Nanos;

/// In each period a thread computes for its share, then sleeps.
const PERIOD: Nanos = Nanos::from_millis(5);

/// Threads that compute until [`Background::stop`].
pub struct Background {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Nanos>>,
}

impl Background {
    /// A thread on each of `cpus`, at ordinary priority, that wants `percent` of it.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(cpus: &[usize], percent: u8) -> Result<Background> {
        let mut background = Background { end: Arc::default(), threads: Vec::new() };
        for &cpu in cpus {
            let end = background.end.clone();
            let body = move || {
                if let Err(error) = hw::pin(cpu) {
                    tracing::warn!(cpu, %error, "a background thread is not pinned");
                }
                while !end.load(Relaxed) {
                    let period_ends = hw::now() + PERIOD;
                    // As much CPU time, however long that takes next to other threads.
                    let enough = hw::thread_cpu() + Nanos(PERIOD.0 * u64::from(percent) / 100);
                    while hw::thread_cpu() < enough && !end.load(Relaxed) {}
                    // At 100 % there is no time to sleep.
                    if percent < 100 {
                        hw::sleep_until(period_ends);
                    }
                }
                hw::thread_cpu()
            };
            let thread = thread::Builder::new().name("reap-background".into()).spawn(body);
            background.threads.push(thread.context("cannot start a background thread")?);
        }
        Ok(background)
    }

    /// Ends them. The CPU time that they have had, all together.
    pub fn stop(mut self) -> Nanos {
        self.end.store(true, Relaxed);
        // They only compute: they cannot have panicked.
        Nanos(self.threads.drain(..).filter_map(|thread| thread.join().ok()).map(|had| had.0).sum())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_until_stopped() {
        let cpu = hw::allowed_cpus().unwrap()[0];
        for percent in [30, 100] {
            let background = Background::start(&[cpu], percent).unwrap();
            hw::sleep_until(hw::now() + Nanos::from_millis(20));
            // However busy the machine is, it has run: it has ended itself.
            assert!(background.stop() > Nanos::ZERO);
        }
    }
}
