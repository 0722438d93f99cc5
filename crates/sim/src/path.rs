//! What the interrupts of a machine share on their way to the CPUs: one remapping unit, and a hypervisor's injection.
//!
//! The unit takes one message at a time. A device's writes are ordered, so what it writes behind its message waits until the unit
//! has taken that. So the rate of interrupts of the whole machine limits the data of each of its drives, and what `posted` and
//! coalescing spare they spare for all of them.

use units::Nanos;

use crate::SimError;

/// The shared interrupt path. All zero: nothing is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterruptPath {
    /// Time of the unit for each interrupt of a CPU: the message crosses the node to the CPU's interrupt controller. Posted vectors
    /// set a bit instead, which takes no time, and share one such interrupt while it is outstanding.
    #[serde(deserialize_with = "crate::values::time")]
    pub notify: Nanos,
    /// A hypervisor's time to inject an interrupt. Delay, and the time of one of the `injectors`; what the guest's CPU
    /// pays is [`crate::InterruptCosts::entry`].
    #[serde(deserialize_with = "crate::values::time")]
    pub inject: Nanos,
    /// Interrupts that it injects at the same time, of the whole machine. 0: any number.
    pub injectors: u32,
}

impl InterruptPath {
    /// The most interrupts that a hypervisor injects at the same time.
    pub const MOST_INJECTORS: u32 = 4_096;

    /// Whether anything is shared.
    pub fn is_shared(&self) -> bool {
        *self != InterruptPath::default()
    }

    /// Whether it can be.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let most = InterruptPath::MOST_INJECTORS;
        if self.injectors > most {
            return Err(SimError::Unfit(format!("machine.interrupts: {} injectors: there are at most {most}", self.injectors)));
        }
        Ok(())
    }
}

/// When a message is where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transit {
    /// What the device writes behind it goes on.
    pub(crate) accepted: Nanos,
    /// It has come to the CPU, or to the descriptor.
    pub(crate) arrives: Nanos,
}

/// The shared path at work.
#[derive(Debug)]
pub(crate) struct SharedPath {
    path: InterruptPath,
    /// When the unit has served all that was sent.
    free_at: Nanos,
    /// Of each injector, until when it is at work.
    injectors: Vec<Nanos>,
    pub(crate) counts: PathCounts,
}

/// What messages met on the shared interrupt path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Messages that devices sent by it.
    pub messages: u64,
    /// How long they waited for their turn, together.
    pub waited: Nanos,
    /// How long devices' writes waited behind them, together.
    pub held: Nanos,
}

impl SharedPath {
    /// `None`: nothing is shared.
    pub(crate) fn new(path: InterruptPath) -> Option<SharedPath> {
        let injectors = vec![Nanos::ZERO; path.injectors as usize];
        path.is_shared().then(|| SharedPath { path, free_at: Nanos::ZERO, injectors, counts: PathCounts::default() })
    }

    /// A device sends a message: to a CPU, or, `posted`, to a descriptor.
    pub(crate) fn send(&mut self, now: Nanos, posted: bool) -> Transit {
        self.counts.messages += 1;
        if posted { self.serve(now, Nanos::ZERO) } else { self.notify(now) }
    }

    /// A CPU is interrupted.
    pub(crate) fn notify(&mut self, now: Nanos) -> Transit {
        let mut sent = self.serve(now, self.path.notify);
        if self.path.inject > Nanos::ZERO {
            // The hypervisor's next free injector, if they are bounded.
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

    /// The unit is busy for so long, when the message's turn comes.
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
