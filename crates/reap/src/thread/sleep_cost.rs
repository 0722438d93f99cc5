//! What sleeping costs on this machine: measured once per process, when somebody first asks for a mode that weighs it.
//!
//! Another thread signals an eventfd some fifty times while this one sleeps on it; then this one sleeps on a timer as often. The
//! lowest tenths count: rounds in which somebody else had the CPU are late, and most may be such rounds.

use std::sync::OnceLock;

use completion::{Cycle, Mode};
use hw::{EventFd, Poller};
use units::Nanos;

/// Sleeps of each kind.
const ROUNDS: usize = 48;

/// From one signal to the next; also the length of a nap.
const PAUSE: Nanos = Nanos::from_micros(60);

/// A sleep that took longer than this was not ended by what was to end it.
const LOST: Nanos = Nanos::from_millis(20);

static MEASURED: OnceLock<Cycle> = OnceLock::new();

/// Measures, the first time that `mode` needs it: 10 ms. To be called where the mode is asked for, not where data pass.
pub(crate) fn prepare(mode: Mode) {
    if mode.facts().weighs_sleeps {
        MEASURED.get_or_init(|| {
            measure().unwrap_or_else(|error| {
                tracing::warn!(%error, "what a sleep costs could not be measured; policies that weigh sleeps start from a guess");
                Cycle::default()
            })
        });
    }
}

/// What has been measured, or a guess.
pub(crate) fn known() -> Cycle {
    MEASURED.get().copied().unwrap_or_default()
}

/// CPU time and lateness of one sleep.
#[derive(Clone, Copy, Default)]
struct Sleep {
    cpu: Nanos,
    late: Nanos,
}

fn measure() -> std::io::Result<Cycle> {
    let (poller, bell) = (Poller::new()?, EventFd::new()?);
    poller.add(&bell, 0)?;
    let mut events = Vec::with_capacity(1);
    let mut sleep = |due: Option<Nanos>| -> std::io::Result<(Sleep, Nanos)> {
        let cpu = hw::thread_cpu();
        let timeout = due.map_or(LOST, |due| due - hw::now());
        poller.wait(Some(timeout), &mut events)?;
        let woke_at = hw::now();
        Ok((Sleep { cpu: hw::thread_cpu() - cpu, late: due.map_or(Nanos::ZERO, |due| woke_at - due) }, woke_at))
    };
    let sleeper = hw::current_cpu();
    let notified = std::thread::scope(|scope| -> std::io::Result<Vec<Sleep>> {
        let signalled = scope.spawn(|| {
            // A device signals from elsewhere. On the sleeper's own CPU, where its opener may be pinned, nobody comes out of idleness.
            hw::avoid(sleeper);
            let mut signals = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                hw::sleep_until(hw::now() + PAUSE);
                signals.push(hw::now());
                bell.signal();
            }
            signals
        });
        let mut woken = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            woken.push(sleep(None)?);
        }
        let signals = signalled.join().unwrap_or_default();
        Ok(paired(&woken, &signals))
    })?;
    let naps = (0..ROUNDS).map(|_| Ok(sleep(Some(hw::now() + PAUSE))?.0)).collect::<std::io::Result<Vec<_>>>()?;
    let ((cpu, delay), (nap, late)) = (tenths(notified), tenths(naps));
    Ok(Cycle { cpu: cpu.max(Nanos(1)), nap: nap.max(Nanos(1)), delay, late, message: Nanos::ZERO })
}

/// Each sleep that a signal ended, by how late that was: the first signal since the sleep before was over. Two of them may have ended one
/// sleep; and a sleep may have ended by itself, which says nothing.
fn paired(woken: &[(Sleep, Nanos)], signals: &[Nanos]) -> Vec<Sleep> {
    let mut over = Nanos::ZERO;
    let ended = woken.iter().filter_map(|&(one, woke_at)| {
        let since = std::mem::replace(&mut over, woke_at);
        let signal = signals.iter().find(|&&signal| signal > since)?;
        (*signal <= woke_at).then(|| Sleep { late: woke_at - *signal, ..one })
    });
    ended.collect()
}

/// Of CPU time and lateness.
fn tenths(sleeps: Vec<Sleep>) -> (Nanos, Nanos) {
    let tenth = |of: fn(&Sleep) -> Nanos| {
        let mut all: Vec<Nanos> = sleeps.iter().map(of).filter(|&n| n < LOST).collect();
        all.sort_unstable();
        all.get(all.len() / 10).copied().unwrap_or_default()
    };
    (tenth(|s| s.cpu), tenth(|s| s.late))
}

#[cfg(test)]
mod tests;
