//! What happens when: counts, taken at even distances.

use super::task::Body;
use super::*;
use crate::Tick;

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
