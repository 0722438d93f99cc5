//! Chooses the CPU on which `adaptive` in the simulated kernel completes: by default the submitting
//! one, so that no cache line moves between CPUs.
//!
//! If the submitting thread never waits, because its commands have completed whenever it polls, the
//! thread is the bottleneck, and the CPU that the vector interrupts could take over the
//! completions. Whether this raises throughput can only be measured: it is tried for a window, kept
//! only if more commands complete, and tried or given up again later.
//!
//! ```text
//!             thread never waits                 more completed
//!   Own ----------------------------> Trial ---------------------> Other
//!    ^ <-- no gain: pause, doubled ----+                             |
//!    +------------- load differs, or 1,024 windows ------------------+
//! ```

use units::Nanos;

/// Length of a window over which completions are counted, in nanoseconds. The transient after a
/// switch ends within one window, which is therefore not compared.
pub(crate) const WINDOW: Nanos = Nanos::from_millis(10);

/// Fewest completions of a window that are compared.
const ENOUGH: u64 = 64;

/// A thread that waits less than once per this many completions counts as one that never waits.
const SELDOM: u64 = 64;

/// Least gain in throughput, and least change of load, as fractions: 1/32 and 1/8.
const GAIN: u64 = 32;
const OTHER: u64 = 8;

/// Windows from a failed trial to the next: at first, and at most; doubled by each failure. A
/// success is given up when the load changes, or after the latter number.
const SOON: u32 = 64;
const LATE: u32 = 1_024;

/// The CPU on which `adaptive` completes at present: the submitting one, or, where the submitting
/// thread is the bottleneck, the interrupted one as in `irq-poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placer {
    stage: Stage,
    /// Windows to pause after the next failure.
    failed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The submitting thread completes, for at least this many windows.
    Own { rest: u32 },
    /// The other CPU is tried; `own` is the number of completions of a window without it. The first
    /// window does not count.
    Trial { own: u64, counts: bool },
    /// Another CPU completes: `rate` per window, for at most `left` further windows.
    Other { rate: u64, left: u32 },
}

impl Default for Placer {
    fn default() -> Placer {
        Placer { stage: Stage::Own { rest: 0 }, failed: SOON }
    }
}

impl Placer {
    /// Ends a window, given its completed commands and how often the submitting threads waited, and
    /// napped or slept. Returns whether the interrupted CPU completes in the next one.
    pub(crate) fn window(&mut self, completed: u64, waits: u64, sleeps: u64) -> bool {
        // A thread that sleeps until several commands have completed has spare CPU time, however
        // rarely it sleeps.
        let waits = waits.saturating_add(sleeps.saturating_mul(SELDOM));
        self.stage = match self.stage {
            Stage::Own { rest: 0 }
                if completed >= ENOUGH && waits.saturating_mul(SELDOM) <= completed =>
            {
                Stage::Trial { own: completed, counts: false }
            }
            Stage::Own { rest } => Stage::Own { rest: rest.saturating_sub(1) },
            // This window contains the transient of the switch.
            Stage::Trial { own, counts: false } => Stage::Trial { own, counts: true },
            Stage::Trial { own, .. } if completed > own + own / GAIN => {
                self.failed = SOON;
                Stage::Other { rate: completed, left: LATE }
            }
            Stage::Trial { .. } => {
                let rest = self.failed;
                self.failed = (rest * 2).min(LATE);
                Stage::Own { rest }
            }
            // Measure the submitting CPU again for a window, so that the next trial has a current
            // reference.
            Stage::Other { rate, left } if left == 0 || completed.abs_diff(rate) > rate / OTHER => {
                Stage::Own { rest: 1 }
            }
            Stage::Other { rate, left } => Stage::Other { rate, left: left - 1 },
        };
        !matches!(self.stage, Stage::Own { .. })
    }
}

#[cfg(test)]
mod tests;
