//! What the interrupts of a machine share on their way to the CPUs: the interrupt remapping unit,
//! and a hypervisor's injection.
//!
//! ```text
//! device -> remapping unit (one at a time) -> hypervisor (N injectors) -> CPU
//! ```
//!
//! The unit takes one message at a time, and a device's writes are ordered: what it writes after a
//! message waits until the unit has taken that. So the interrupt rate of the whole machine limits
//! the data rate of each drive, and every interrupt that posting or coalescing avoids helps all
//! drives.

use units::Nanos;

use crate::SimError;

/// The shared interrupt path. All zero: nothing is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterruptPath {
    /// Time of the unit for each interrupt of a CPU, in which the message crosses to the CPU's
    /// interrupt controller. Posted vectors set a bit instead, which takes no time. They share one
    /// such interrupt while it is outstanding.
    #[serde(deserialize_with = "crate::values::time")]
    pub notify: Nanos,
    /// Time in which a hypervisor injects an interrupt: delay, and time of one of the `injectors`.
    /// The guest's CPU pays [`crate::InterruptCosts::entry`].
    #[serde(deserialize_with = "crate::values::time")]
    pub inject: Nanos,
    /// Interrupts that are injected at the same time, in the whole machine. 0: no limit.
    pub injectors: u32,
}

impl InterruptPath {
    /// The largest value of `injectors`.
    pub const MOST_INJECTORS: u32 = 4_096;

    /// Whether interrupts share anything on their way.
    pub fn is_shared(&self) -> bool {
        *self != InterruptPath::default()
    }

    pub(crate) fn check(&self) -> Result<(), SimError> {
        let most = InterruptPath::MOST_INJECTORS;
        if self.injectors > most {
            return Err(SimError::Unfit(format!(
                "machine.interrupts: {} injectors: there are at most {most}",
                self.injectors
            )));
        }
        Ok(())
    }
}

/// Where a message is at which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transit {
    /// The unit has taken it: the device's later writes go on.
    pub(crate) accepted: Nanos,
    /// It has reached the CPU, or the posted descriptor.
    pub(crate) arrives: Nanos,
}

/// The state of the shared path.
#[derive(Debug)]
pub(crate) struct SharedPath {
    path: InterruptPath,
    /// The unit is busy until then.
    free_at: Nanos,
    /// By injector: busy until then.
    injectors: Vec<Nanos>,
    pub(crate) counts: PathCounts,
}

/// Counters of the shared interrupt path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Messages that were sent through it.
    pub messages: u64,
    /// Time that messages waited for their turn, in all.
    pub waited: Nanos,
    /// Time that the devices' later writes waited, in all.
    pub held: Nanos,
}

impl SharedPath {
    /// `None`: nothing is shared.
    pub(crate) fn new(path: InterruptPath) -> Option<SharedPath> {
        let injectors = vec![Nanos::ZERO; path.injectors as usize];
        path.is_shared().then(|| SharedPath {
            path,
            free_at: Nanos::ZERO,
            injectors,
            counts: PathCounts::default(),
        })
    }

    /// A device sends a message, to a CPU or, if `posted`, to a descriptor.
    pub(crate) fn send(&mut self, now: Nanos, posted: bool) -> Transit {
        self.counts.messages += 1;
        // A posted vector sets a bit in memory and interrupts no CPU.
        if posted { self.serve(now, Nanos::ZERO) } else { self.notify(now) }
    }

    /// A CPU is interrupted.
    pub(crate) fn notify(&mut self, now: Nanos) -> Transit {
        let mut sent = self.serve(now, self.path.notify);
        if self.path.inject > Nanos::ZERO {
            // With a limited number of injectors the message waits for the first one that is free.
            let mut begins = sent.arrives;
            if let Some(free_at) = self.injectors.iter_mut().min() {
                self.counts.waited += *free_at - begins;
                begins = begins.max(*free_at);
                *free_at = begins + self.path.inject;
            }
            sent.arrives = begins + self.path.inject;
        }
        sent
    }

    /// Occupies the unit for this time, when the message's turn comes.
    fn serve(&mut self, now: Nanos, takes: Nanos) -> Transit {
        let begins = self.free_at.max(now);
        self.free_at = begins + takes;
        self.counts.waited += begins - now;
        self.counts.held += self.free_at - now;
        Transit { accepted: self.free_at, arrives: self.free_at }
    }
}

#[cfg(test)]
mod tests;
