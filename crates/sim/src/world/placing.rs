//! Where a kernel's `adaptive` has its completions taken: carries out what [`Placer`] says, for all queues at once.

use completion::{Placer, WINDOW};

use super::*;
use crate::Host;

impl World<'_> {
    /// A mode has been asked for: whether it may be left to other CPUs is asked from now on, or no longer.
    pub(super) fn set_placer(&mut self) {
        let asks = self.mode.asks_placer() && self.scenario.host == Host::Kernel && self.interrupts_another_cpu();
        self.placing = asks.then(|| Placing { placer: Placer::default(), before: self.completed_and_waited() });
        self.calendar.set(self.sources.placer, if asks { self.now + WINDOW } else { Nanos::MAX });
    }

    /// A window is over.
    pub(super) fn place(&mut self) {
        let now = self.completed_and_waited();
        let Some(placing) = &mut self.placing else { return };
        let before = std::mem::replace(&mut placing.before, now);
        let mode = placing.placer.window(now.0 - before.0, now.1 - before.1, now.2 - before.2);
        self.calendar.set(self.sources.placer, self.now + WINDOW);
        if mode != self.mode {
            self.carry_out(mode);
        }
    }

    /// Whether a vector interrupts a CPU on which no job runs.
    fn interrupts_another_cpu(&self) -> bool {
        let submits = |cpu| self.tasks.iter().any(|task| task.cpu == cpu && task.thread().is_some());
        let mut routes = self.devices.iter().flat_map(|device| &device.routes);
        routes.any(|route| !route.queues.is_empty() && !submits(route.cpu))
    }

    fn completed_and_waited(&self) -> (u64, u64, u64) {
        let (waits, sleeps) = self.decisions().map_or((0, 0), |decisions| (decisions.waits, decisions.napped + decisions.slept));
        (self.tally().completed, waits, sleeps)
    }
}
