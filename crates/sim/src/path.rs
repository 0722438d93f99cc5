//! The stages between devices and CPUs at which a machine's interrupts wait for each other: the
//! interrupt remapping unit, and a hypervisor's injection.
//!
//! ```text
//! device -> remapping unit (one at a time) -> hypervisor (N injectors) -> CPU
//! ```
//!
//! The unit takes one message at a time, and a device's writes are ordered: what a device writes
//! after a message waits until the unit has taken the message. So the interrupt rate of the whole
//! machine limits the data rate of each drive, and every interrupt that posting or coalescing
//! avoids helps all drives.

use units::Nanos;

use crate::SimError;

/// The shared interrupt path. All zero: interrupts do not wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterruptPath {
    /// Time that the unit spends on each interrupt of a CPU, until the message is at the CPU's
    /// interrupt controller. A posted vector sets a bit instead, which takes the unit no time; the
    /// posted vectors of a CPU share one interrupt while it is outstanding.
    #[serde(deserialize_with = "crate::values::time")]
    pub notify: Nanos,
    /// Time that a hypervisor takes to inject an interrupt. The interrupt is delayed by this time,
    /// and one of the `injectors` is busy for it. In addition the guest's CPU spends
    /// [`crate::InterruptCosts::entry`].
    #[serde(deserialize_with = "crate::values::time")]
    pub inject: Nanos,
    /// Maximum number of interrupts that are injected at the same time, in the whole machine. 0: no
    /// limit.
    pub injectors: u32,
}

impl InterruptPath {
    /// The largest value of `injectors`.
    pub const MAX_INJECTORS: u32 = 4_096;

    /// Whether interrupts wait for each other.
    pub fn is_shared(&self) -> bool {
        *self != InterruptPath::default()
    }

    pub(crate) fn check(&self) -> Result<(), SimError> {
        let most = InterruptPath::MAX_INJECTORS;
        if self.injectors > most {
            return Err(SimError::Unfit(format!(
                "machine.interrupts: {} injectors: there are at most {most}",
                self.injectors
            )));
        }
        Ok(())
    }
}

/// When a message reaches each stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transit {
    /// When the unit has taken the message: from then on the device's later writes proceed.
    pub(crate) accepted: Nanos,
    /// When the message reaches the CPU, or the posted-interrupt descriptor.
    pub(crate) arrives: Nanos,
}

/// The state of the shared path.
#[derive(Debug)]
pub(crate) struct SharedPath {
    path: InterruptPath,
    /// The time until which the unit is busy.
    free_at: Nanos,
    /// By injector: the time until which it is busy.
    injectors: Vec<Nanos>,
    pub(crate) counts: PathCounts,
}

/// Counters of the shared interrupt path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Messages that were sent through it.
    pub messages: u64,
    /// Sum of the times that messages waited for their turn.
    pub waited: Nanos,
    /// Sum of the times that devices' later writes waited for a message.
    pub held: Nanos,
}

impl SharedPath {
    /// `None`: interrupts do not wait for each other.
    pub(crate) fn new(path: InterruptPath) -> Option<SharedPath> {
        let injectors = vec![Nanos::ZERO; path.injectors as usize];
        path.is_shared().then(|| SharedPath {
            path,
            free_at: Nanos::ZERO,
            injectors,
            counts: PathCounts::default(),
        })
    }

    /// A device sends a message to a CPU or, if `posted`, to a posted-interrupt descriptor.
    pub(crate) fn send(&mut self, now: Nanos, posted: bool) -> Transit {
        self.counts.messages += 1;
        // A posted vector sets a bit in memory and interrupts no CPU.
        if posted { self.serve(now, Nanos::ZERO) } else { self.notify(now) }
    }

    /// Sends an interrupt to a CPU.
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

    /// Occupies the unit for the time `takes`, from when it is free.
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
