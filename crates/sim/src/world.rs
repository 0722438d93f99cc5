//! The world of one run: events in virtual time, one CPU, one thread, one controller and its keeper.

mod bringup;
mod keeper;

use completion::{Cause, Woke};
use device::{Controller, FaultPlan, FaultyPort, Namespace};
use nvme::Vector;
use units::Nanos;

use crate::cpu::Cpu;
use crate::events::{Events, Ticket};
use crate::lane::Lane;
use crate::notifier::PerVector;
use crate::port::{Bus, HostBar, SimPort, Vectors};
use crate::thread::{Application, Ground, Habits, LAWFUL, Progress, Thread};
use crate::{CpuOutcome, DeviceOutcome, JobOutcome, Outcome, Scenario, SimError};
use keeper::Keeper;
use std::rc::Rc;

/// The vector of the admin queue. The keeper looks at it by itself.
const ADMIN_VECTOR: Vector = Vector(0);

/// Something that happens at an instant.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The controller's own next event, or a doorbell has reached it.
    Device,
    /// A message reaches the CPU.
    Message(Vector),
    /// An interrupt that waited for another one to end.
    Interrupt(Vector),
    /// The thread's step, or its wake-up, ends.
    Step,
    /// The thread's timer.
    Timer,
    /// The n-th switch of mode.
    Switch(usize),
    /// The keeper's turn.
    Keeper,
}

/// What the thread does with the CPU. The ticket names the event that ends it.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// A step, or being woken. `ticket` is of the event that ends it.
    Busy {
        until: Nanos,
        ticket: Ticket,
    },
    /// Looks again and again; `hard` is what interrupts had taken when it began.
    Spinning {
        since: Nanos,
        hard: Nanos,
        until: Nanos,
        ticket: Ticket,
    },
    /// Off the CPU. `ticket` is of the timer.
    Blocked {
        until: Nanos,
        ticket: Ticket,
    },
    Finished,
}

/// Steps that may follow each other at the same instant.
const STEPS_AT_ONCE: u32 = 100_000;

/// One run.
pub(crate) struct World<P: Bus> {
    now: Nanos,
    scenario: Scenario,
    events: Events<Event>,
    cpu: Cpu,
    run: Run,
    thread: Thread,
    controller: Controller<P>,
    /// When the controller is stepped next, and the event that does it.
    device_at: Nanos,
    device_ticket: Option<Ticket>,
    keeper: Keeper,
    keeper_ticket: Option<Ticket>,
    bells: HostBar,
    seen_writes: u64,
    vectors: Rc<Vectors>,
    notifier: Rc<PerVector>,
    /// Per vector: an interrupt waits for another one to end. Messages that come meanwhile are merged into it.
    waiting: Vec<bool>,
    raised: Vec<Vector>,
    interrupts: u64,
    started: Nanos,
}

impl Scenario {
    /// Runs it.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.run_with(LAWFUL)
    }

    /// Runs it with a thread of these habits.
    pub(crate) fn run_with(&self, habits: Habits) -> Result<Outcome, SimError> {
        self.check()?;
        if self.devices[0].faults == FaultPlan::default() {
            World::bring_up(self, |port| port, habits)?.run()
        } else {
            World::bring_up(self, |port| FaultyPort::new(port, self.devices[0].faults.clone()), habits)?.run()
        }
    }
}

impl<P: Bus> World<P> {
    fn run(mut self) -> Result<Outcome, SimError> {
        for (n, &(at, _)) in self.scenario.switches.iter().enumerate() {
            self.events.schedule(self.started + at, Event::Switch(n));
        }
        self.keep()?;
        self.occupy(Nanos::ZERO);
        while let Some((at, ticket, event)) = self.events.pop() {
            self.now = at;
            if at > self.started + self.scenario.limit {
                let (limit, seed) = (self.scenario.limit, self.scenario.seed);
                return Err(SimError::TooLong { limit, seed, in_flight: self.in_flight() });
            }
            self.happen(ticket, event)?;
            if matches!(self.run, Run::Finished) {
                return Ok(self.outcome());
            }
        }
        let lane = self.thread.lanes.first();
        Err(SimError::Standstill {
            at: self.now,
            seed: self.scenario.seed,
            mode: lane.map_or(self.scenario.mode, |lane| lane.policy.mode()),
            in_flight: self.in_flight(),
            pending: self.thread.lanes.iter().filter(|lane| lane.pair.pending()).count(),
        })
    }

    fn happen(&mut self, ticket: Ticket, event: Event) -> Result<(), SimError> {
        match event {
            Event::Device if self.device_ticket == Some(ticket) => self.step_device()?,
            Event::Message(vector) => self.message(vector),
            Event::Interrupt(vector) => {
                if let Some(waiting) = self.waiting.get_mut(usize::from(vector.0)) {
                    *waiting = false;
                }
                self.message(vector);
            }
            Event::Step if self.run.ends_with(ticket) => self.step_thread()?,
            Event::Timer => {
                if let Run::Blocked { until, ticket: timer } = self.run
                    && timer == ticket
                {
                    let awake = self.cpu.interrupt(self.now, self.scenario.machine.costs.old_timer());
                    self.wake(awake, Cause::Timer, until);
                }
            }
            Event::Switch(n) => {
                if let Some(&(_, mode)) = self.scenario.switches.get(n) {
                    self.thread.switch(mode);
                    self.poke();
                }
            }
            Event::Keeper if self.keeper_ticket == Some(ticket) => self.keep()?,
            // No longer wanted: something else came first.
            Event::Device | Event::Step | Event::Keeper => {}
        }
        Ok(())
    }

    /// The controller does what is due.
    fn step_device(&mut self) -> Result<(), SimError> {
        (self.device_at, self.device_ticket) = (Nanos::MAX, None);
        self.controller.port().advance(self.now);
        let step = self.controller.step(self.now);
        let next = if step.worked { self.now } else { step.next.unwrap_or(Nanos::MAX) };
        self.device_by(next.min(self.controller.port().next()).max(self.now));
        self.vectors.take_raised(&mut self.raised);
        let arrives = self.now + self.scenario.machine.costs.interrupt.message_delay;
        for vector in self.raised.drain(..).filter(|&vector| vector != ADMIN_VECTOR) {
            self.events.schedule(arrives, Event::Message(vector));
        }
        if let Run::Spinning { since, hard, until, .. } = self.run
            && self.thread.sees_an_entry()
        {
            let seen = self.cpu.free_at(self.now) + self.scenario.machine.costs.memory.device_line;
            if seen < until {
                self.run = Run::Spinning { since, hard, until: seen, ticket: self.events.schedule(seen, Event::Step) };
            }
        }
        if self.keeper.is_called() {
            self.keep()?;
        }
        Ok(())
    }

    /// Steps the controller at `at` at the latest.
    fn device_by(&mut self, at: Nanos) {
        if at < self.device_at {
            self.device_at = at;
            self.device_ticket = Some(self.events.schedule(at, Event::Device));
        }
    }

    /// If the host has written to the BAR, the controller sees it.
    fn forward_writes(&mut self) {
        if self.bells.writes() != self.seen_writes {
            self.seen_writes = self.bells.writes();
            self.device_by(self.now + self.scenario.machine.costs.memory.mmio_delay);
        }
    }

    /// A message at the CPU. While one interrupt of a vector waits, others are merged into it; that is all the
    /// coalescing there is on this side.
    fn message(&mut self, vector: Vector) {
        let Some(waiting) = self.waiting.get_mut(usize::from(vector.0)) else { return };
        if *waiting {
            return;
        }
        if self.cpu.in_interrupt(self.now) {
            *waiting = true;
            self.events.schedule(self.cpu.free_at(self.now), Event::Interrupt(vector));
            return;
        }
        self.interrupts += 1;
        let cost = self.scenario.machine.costs.old_interrupt();
        let ends = self.cpu.interrupt(self.now, cost);
        self.notifier.signal(vector);
        match self.run {
            Run::Blocked { until, .. } => self.wake(ends, Cause::Notification, until),
            Run::Busy { until, .. } => self.end_busy_at(until + cost),
            Run::Spinning { since, hard, until, .. } => {
                let until = until + cost;
                self.run = Run::Spinning { since, hard, until, ticket: self.events.schedule(until, Event::Step) };
            }
            Run::Finished => {}
        }
    }

    /// Takes the thread out of its sleep: it runs once the CPU is back from interrupts, out of idle, and switched.
    fn wake(&mut self, at: Nanos, cause: Cause, until: Nanos) {
        let costs = &self.scenario.machine.costs;
        let runs = at + costs.thread.idle_exit + costs.old_wake();
        self.cpu.thread += costs.old_wake();
        self.thread.tally.wakeups += 1;
        self.thread.tally.timer_wakeups += u64::from(cause == Cause::Timer);
        let late = if cause == Cause::Timer { runs - until } else { Nanos::ZERO };
        self.thread.wake(Woke { cause, late });
        self.end_busy_at(runs);
    }

    fn end_busy_at(&mut self, until: Nanos) {
        self.run = Run::Busy { until, ticket: self.events.schedule(until, Event::Step) };
    }

    /// The thread has the CPU for `cost`, interrupts not counted.
    fn occupy(&mut self, cost: Nanos) {
        self.end_busy_at(self.cpu.free_at(self.now) + cost);
    }

    /// The thread's steps, up to one that takes time.
    fn step_thread(&mut self) -> Result<(), SimError> {
        if let Run::Spinning { since, hard, .. } = self.run {
            let spun = self.now - since - (self.cpu.hard - hard);
            self.cpu.thread += spun;
            self.thread.tally.spun += spun;
        }
        for _ in 0..STEPS_AT_ONCE {
            let ground = Ground { now: self.now, costs: &self.scenario.machine.costs, bells: &self.bells };
            let progress = self.thread.step(&ground)?;
            self.forward_writes();
            if progress != Progress::Busy(Nanos::ZERO) {
                self.spend(progress);
                return self.report_violation();
            }
        }
        Err(SimError::Livelock { at: self.now, seed: self.scenario.seed })
    }

    fn spend(&mut self, progress: Progress) {
        match progress {
            Progress::Busy(cost) => {
                self.cpu.thread += cost;
                self.occupy(cost);
            }
            Progress::Away(cost) => self.occupy(cost),
            Progress::Spin(until) => {
                let ticket = self.events.schedule(until, Event::Step);
                self.run = Run::Spinning { since: self.now, hard: self.cpu.hard, until, ticket };
            }
            Progress::Block(until) => {
                let fires = until + self.scenario.machine.costs.thread.timer_slack;
                self.run = Run::Blocked { until, ticket: self.events.schedule(fires, Event::Timer) };
            }
            Progress::Finished => self.run = Run::Finished,
        }
    }

    fn report_violation(&mut self) -> Result<(), SimError> {
        match self.thread.violation.take() {
            Some(violation) => {
                self.keeper.violated(violation)?;
                self.keep()
            }
            None => Ok(()),
        }
    }

    /// Has the thread look up from whatever it waits for.
    fn poke(&mut self) {
        self.thread.poke();
        if let Run::Blocked { until, .. } = self.run {
            self.wake(self.cpu.free_at(self.now), Cause::Other, until);
        }
    }

    fn in_flight(&self) -> u32 {
        self.thread.lanes.iter().map(|lane| lane.pair.in_flight()).sum()
    }

    fn outcome(self) -> Outcome {
        let lanes = &self.thread.lanes;
        let sum = |f: &dyn Fn(&Lane) -> u64| lanes.iter().map(f).sum::<u64>();
        let tally = self.thread.tally;
        let spins = tally.spun.0 / self.scenario.machine.costs.library.look.0.max(1);
        let elapsed = self.now - self.started;
        let (hard, thread) = (self.cpu.hard, self.cpu.thread);
        let cpu = CpuOutcome {
            hard,
            thread,
            idle: elapsed - hard - thread,
            interrupts: self.interrupts,
            wakeups: tally.wakeups,
            timer_wakeups: tally.timer_wakeups,
            ..CpuOutcome::default()
        };
        let stats = self.thread.app.generator.stats().clone();
        let job = JobOutcome { name: self.scenario.jobs[0].job.name.clone(), threads: 1, stats: stats.clone() };
        let device = DeviceOutcome {
            name: self.scenario.devices[0].name.clone(),
            completed: tally.completed,
            messages: self.vectors.messages(),
            suppressed: self.vectors.suppressed(),
        };
        Outcome {
            elapsed,
            completed: tally.completed,
            failed: tally.failed,
            lost: tally.lost,
            failure: self.thread.app.generator.failure().copied(),
            bad_statuses: tally.bad_statuses,
            messages: self.vectors.messages(),
            suppressed: self.vectors.suppressed(),
            interrupts: self.interrupts,
            notifications: 0,
            vectors_handled: self.interrupts,
            softirqs: 0,
            ksoftirqd_runs: 0,
            context_switches: 0,
            wakeups: tally.wakeups,
            timer_wakeups: tally.timer_wakeups,
            returned_at_once: tally.returned_at_once,
            syscalls: 0,
            looks: tally.looks,
            empty_looks: tally.empty_looks,
            busy_looks: 0,
            found_by_check: 0,
            spins,
            sq_doorbells: sum(&|lane| lane.pair.counters().sq_doorbells),
            cq_doorbells: sum(&|lane| lane.pair.counters().cq_doorbells),
            entries_per_drain_max: tally.drain_max,
            hard,
            soft: Nanos::ZERO,
            thread: thread - tally.worked,
            application: tally.worked,
            resets: self.keeper.resets,
            aborts: self.keeper.aborts,
            missed_notifications: self.keeper.missed,
            injected: self.controller.port().injected(),
            stats,
            cpus: vec![cpu],
            jobs: vec![job],
            devices: vec![device],
        }
    }
}

impl Run {
    fn ends_with(&self, event: Ticket) -> bool {
        match self {
            Run::Busy { ticket, .. } | Run::Spinning { ticket, .. } => *ticket == event,
            Run::Blocked { .. } | Run::Finished => false,
        }
    }
}

#[cfg(test)]
mod tests;
