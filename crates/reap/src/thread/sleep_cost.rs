//! Measures what a sleep costs on this machine: CPU time, and how late the thread wakes. Done once
//! per process, when a mode that weighs it (`adaptive`) is first requested.
//!
//! Another thread signals an eventfd 48 times while this thread sleeps on it; then this thread
//! sleeps on a timer as often. The 10th percentiles are used: rounds in which other threads had the
//! CPU are late, and on a busy machine most rounds may be.

use std::path::Path;
use std::sync::OnceLock;

use completion::{Mode, SleepCosts};
use hw::{EventFd, Poller};
use units::Nanos;

/// Sleeps of each kind.
const ROUNDS: usize = 48;

/// From one signal to the next; also the length of a nap.
const PAUSE: Nanos = Nanos::from_micros(60);

/// The time-out of a sleep that waits for a signal. Longer ones are not counted.
const LOST: Nanos = Nanos::from_millis(20);

static MEASURED: OnceLock<SleepCosts> = OnceLock::new();
static WAKE_UP: OnceLock<(Nanos, Nanos)> = OnceLock::new();

/// Sets W, the CPU time that a wake-up takes from other work (`docs/adaptive.md`), as `reap
/// calibrate` has measured it: of a wake-up by a notification, and by a timer. Both in nanoseconds.
/// Policies that weigh sleeps use it from the next queue or switch of mode on; without it, a
/// default for the kind of machine. Returns whether this was the first call in the process; others
/// have no effect.
pub fn set_wake_up_cost(notified: Nanos, timer: Nanos) -> bool {
    WAKE_UP.set((notified, timer)).is_ok()
}

/// Measures if `mode` needs it and it has not been done. That takes about 10 ms, so call it where a
/// mode is requested, not on the data path.
pub(crate) fn prepare(mode: Mode) {
    if mode.facts().weighs_sleeps {
        MEASURED.get_or_init(|| {
            measure().unwrap_or_else(|error| {
                tracing::warn!(%error, "the cost of a sleep could not be measured; policies that weigh it start from a default");
                default_of_machine()
            })
        });
    }
}

/// The measured cost, or a default.
pub(crate) fn known() -> SleepCosts {
    let cycle = MEASURED.get().copied().unwrap_or_else(default_of_machine);
    let (wake, timer_wake) = WAKE_UP.get().copied().unwrap_or((cycle.wake, cycle.timer_wake));
    SleepCosts { wake, timer_wake, ..cycle }
}

/// What a sleep costs on this kind of machine: virtual where the CPU shows a hypervisor.
fn default_of_machine() -> SleepCosts {
    static KIND: OnceLock<SleepCosts> = OnceLock::new();
    *KIND.get_or_init(|| {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpus.lines().find(|line| line.starts_with("flags")).unwrap_or("");
        let hypervisor = flags.split_whitespace().any(|flag| flag == "hypervisor")
            || Path::new("/sys/hypervisor/type").exists();
        if hypervisor { SleepCosts::VIRTUAL } else { SleepCosts::BARE_METAL }
    })
}

/// CPU time and lateness of one sleep.
#[derive(Clone, Copy, Default)]
struct Sleep {
    cpu: Nanos,
    late: Nanos,
}

fn measure() -> std::io::Result<SleepCosts> {
    let (poller, event) = (Poller::new()?, EventFd::new()?);
    poller.add(&event, 0)?;
    let mut events = Vec::with_capacity(1);
    let mut sleep = |due: Option<Nanos>| -> std::io::Result<(Sleep, Nanos)> {
        let cpu = hw::thread_cpu();
        let timeout = due.map_or(LOST, |due| due - hw::now());
        poller.wait(Some(timeout), &mut events)?;
        let woke_at = hw::now();
        Ok((
            Sleep {
                cpu: hw::thread_cpu() - cpu,
                late: due.map_or(Nanos::ZERO, |due| woke_at - due),
            },
            woke_at,
        ))
    };
    let sleeper = hw::current_cpu();
    let notified = std::thread::scope(|scope| -> std::io::Result<Vec<Sleep>> {
        let signalled = scope.spawn(|| {
            // A device signals while the sleeper's CPU is idle. A signalling thread on that CPU,
            // where the opener may be pinned, would keep it from being idle.
            hw::avoid_cpu(sleeper);
            let mut signals = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                hw::sleep_until(hw::now() + PAUSE);
                signals.push(hw::now());
                event.signal();
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
    let naps = (0..ROUNDS)
        .map(|_| Ok(sleep(Some(hw::now() + PAUSE))?.0))
        .collect::<std::io::Result<Vec<_>>>()?;
    let ((cpu, delay), (nap, late)) = (tenth_percentiles(notified), tenth_percentiles(naps));
    // At least 1 ns: a cost of 0 would make every sleep worth it.
    // The thread's clock does not show what a wake-up takes from others: `known` adds it.
    Ok(SleepCosts {
        cpu: cpu.max(Nanos(1)),
        nap: nap.max(Nanos(1)),
        delay,
        late,
        message: Nanos::ZERO,
        ..default_of_machine()
    })
}

/// The sleeps that a signal has ended, each with its lateness: the time since the first signal
/// after the sleep before. Two signals may have ended one sleep. A sleep that ended by its time-out
/// is left out.
fn paired(woken: &[(Sleep, Nanos)], signals: &[Nanos]) -> Vec<Sleep> {
    let mut over = Nanos::ZERO;
    let ended = woken.iter().filter_map(|&(one, woke_at)| {
        let since = std::mem::replace(&mut over, woke_at);
        let signal = signals.iter().find(|&&signal| signal > since)?;
        (*signal <= woke_at).then(|| Sleep { late: woke_at - *signal, ..one })
    });
    ended.collect()
}

/// The 10th percentiles of CPU time and lateness.
fn tenth_percentiles(sleeps: Vec<Sleep>) -> (Nanos, Nanos) {
    let tenth = |of: fn(&Sleep) -> Nanos| {
        let mut all: Vec<Nanos> = sleeps.iter().map(of).filter(|&n| n < LOST).collect();
        all.sort_unstable();
        all.get(all.len() / 10).copied().unwrap_or_default()
    };
    (tenth(|s| s.cpu), tenth(|s| s.late))
}

#[cfg(test)]
mod tests;
