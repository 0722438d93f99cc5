//! When a kernel's `adaptive` leaves its completions to another CPU.
//!
//! `adaptive` completes on the CPU that submits, where nothing has to be carried from one CPU to
//! another. A thread that never waits, because whatever it has submitted has completed by the time
//! it looks, gains nothing by choosing when to look: the thread is what limits, and the CPU that
//! the vector interrupts could take the completing off it. Whether that raises throughput only a
//! trial shows. So it is tried for a window, kept only if more completed by it, and questioned
//! again.

use units::Nanos;

/// How long completions are counted before they are compared. What a switch brings about is over
/// after one window.
pub const WINDOW: Nanos = Nanos::from_millis(10);

/// Completions of one window that are enough to be compared.
const ENOUGH: u64 = 64;

/// A thread that waits less often than once in this many completions does not wait.
const SELDOM: u64 = 64;

/// Throughput is higher if it is by more than one part in this many, and the load is another one if
/// it differs by one in this many.
const GAIN: u64 = 32;
const OTHER: u64 = 8;

/// Windows until a failure is questioned: twice as many each time it was found again, up to a
/// limit. A success is questioned as soon as the load is another one, and otherwise after as many
/// as the limit.
const SOON: u32 = 64;
const LATE: u32 = 1_024;

/// Where a kernel's `adaptive` completes for now: on the CPU that submits, or, where the thread
/// that submits is what limits, on the interrupted one, as `irq-poll` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placer {
    stage: Stage,
    /// How long a failure is taken for granted.
    failed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The thread that submits completes, for this many windows at least.
    Own { rest: u32 },
    /// Tried instead of `own` completions in a window; the first window does not count.
    Trial { own: u64, counts: bool },
    /// Another CPU completes, this many in a window, for this many windows more.
    Other { rate: u64, left: u32 },
}

impl Default for Placer {
    fn default() -> Placer {
        Placer { stage: Stage::Own { rest: 0 }, failed: SOON }
    }
}

impl Placer {
    /// A window is over in which this many commands completed, and the threads that submit waited
    /// so often, and napped or slept. Whether the interrupted CPU completes in the next.
    pub fn window(&mut self, completed: u64, waits: u64, sleeps: u64) -> bool {
        // A thread that sleeps for many at a time has time to spare, however seldom it does.
        let waits = waits.saturating_add(sleeps.saturating_mul(SELDOM));
        self.stage = match self.stage {
            Stage::Own { rest: 0 }
                if completed >= ENOUGH && waits.saturating_mul(SELDOM) <= completed =>
            {
                Stage::Trial { own: completed, counts: false }
            }
            Stage::Own { rest } => Stage::Own { rest: rest.saturating_sub(1) },
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
            Stage::Other { rate, left } if left == 0 || completed.abs_diff(rate) > rate / OTHER => {
                Stage::Own { rest: 1 }
            }
            Stage::Other { rate, left } => Stage::Other { rate, left: left - 1 },
        };
        !matches!(self.stage, Stage::Own { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays windows against a machine that completes this many by itself and by another CPU. How
    /// many windows went to the other CPU, and how often it was tried.
    fn play(placer: &mut Placer, windows: u32, own: u64, other: u64, waits: u64) -> (u32, u32) {
        let (mut moved, mut away, mut switches) = (false, 0, 0);
        for _ in 0..windows {
            let completed = if moved { other } else { own };
            away += u32::from(moved);
            let next = placer.window(completed, if moved { completed } else { waits }, 0);
            switches += u32::from(next && !moved);
            moved = next;
        }
        (away, switches)
    }

    #[test]
    fn better_placement_is_kept() {
        let (away, tries) = play(&mut Placer::default(), 2_000, 250, 300, 0);
        assert_eq!((away, tries), (1_997, 2));
    }

    /// It finds 64 at a time, and sleeps in between.
    #[test]
    fn sleeping_threads_are_not_moved() {
        let mut placer = Placer::default();
        assert!(!(0..100).any(|_| placer.window(4_000, 60, 60)));
    }

    #[test]
    fn failed_trials_become_rare() {
        for other in [100, 250, 257] {
            let (away, tries) = play(&mut Placer::default(), 1_900, 250, other, 0);
            assert!(away == 2 * tries && (1..=6).contains(&tries), "{other}: {away} {tries}");
        }
    }

    #[test]
    fn waiting_threads_are_not_moved() {
        assert_eq!(play(&mut Placer::default(), 2_000, 250, 300, 10), (0, 0));
        assert_eq!(play(&mut Placer::default(), 2_000, 30, 300, 0), (0, 0));
    }

    #[test]
    fn lower_load_moves_back() {
        let mut placer = Placer::default();
        play(&mut placer, 100, 250, 300, 0);
        let (away, _) = play(&mut placer, 1_000, 120, 120, 60);
        assert!(away <= 1, "{away}");
    }
}
