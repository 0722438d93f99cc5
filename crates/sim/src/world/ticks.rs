//! What is asked at even distances: counts for the time line, and, of a kernel's `adaptive`, where completions are to be taken.

use completion::WINDOW;

use super::task::Body;
use super::*;
use crate::{Host, Tick};

impl World<'_> {
    /// The next tick's end, if anybody wants to know.
    pub(super) fn set_tick(&mut self) {
        if let Some(every) = self.scenario.ticks.filter(|&every| every > Nanos::ZERO) {
            self.calendar.set(self.sources.ticks, self.now + every);
        }
    }

    /// A tick is over.
    pub(super) fn tick(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.account(cpu));
        let (counts, latency) = (self.counts(), self.latency().histogram.unwrap_or_default());
        let spans = latency.since(&self.ticks.latency).percentiles(&[50.0, 99.0]);
        let (p50, p99) = (spans.first().copied().unwrap_or(0), spans.last().copied().unwrap_or(0));
        let before = std::mem::replace(&mut self.ticks.before, counts);
        self.ticks.latency = latency;
        self.ticks.over.push(Tick { p50, p99, ..counts.since(&before) });
        self.set_tick();
    }

    /// Everything so far.
    fn counts(&self) -> Tick {
        let (tally, decisions) = (self.tally(), self.decisions().unwrap_or_default());
        let interrupts: Nanos = self.cpus.iter().map(|cpu| cpu.outcome.hard + cpu.outcome.soft).fold(Nanos::ZERO, |a, b| a + b);
        let threads = self.tasks.iter().filter(|task| !matches!(task.body, Body::Hog));
        let threads = threads.map(|task| task.runtime).fold(Nanos::ZERO, |a, b| a + b);
        Tick {
            completed: tally.completed,
            cpu: interrupts + (threads - tally.worked - tally.away),
            looks: tally.looks,
            empty_looks: tally.empty_looks,
            spins: self.spins(&tally),
            naps: tally.naps,
            sleeps: tally.sleeps,
            gathered: decisions.gathered,
            explored: decisions.explored,
            ..Tick::default()
        }
    }

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

impl Tick {
    /// What has been counted since.
    fn since(&self, before: &Tick) -> Tick {
        Tick {
            completed: self.completed - before.completed,
            cpu: self.cpu - before.cpu,
            looks: self.looks - before.looks,
            empty_looks: self.empty_looks - before.empty_looks,
            spins: self.spins.saturating_sub(before.spins),
            naps: self.naps - before.naps,
            sleeps: self.sleeps - before.sleeps,
            gathered: self.gathered - before.gathered,
            explored: self.explored - before.explored,
            ..*self
        }
    }
}
