//! The world of one run: CPUs with what runs on them, controllers with their keepers, and time, which passes from one
//! alarm of the [`Calendar`] to the next.

mod bringup;
mod controller_task;
mod cpus;
mod interrupts;
mod outcome;
mod tasks;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use completion::{Mode, Placer};
use emu::Controller;
use nvme::Vector;
use units::Nanos;
use workload::Histogram;
use workload::plan::Plan;

use crate::cpu::{Cpu, Irq, Route};
use crate::events::Calendar;
use crate::habits::{Habits, LAWFUL};
use crate::host::drain::Drain;
use crate::host::{Context, Effect, Owner};
use crate::hw_queue::HwQueue;
use crate::limits::Limits;
use crate::path::SharedPath;
use crate::port::{HostBar, SimPort, Vectors, Written};
use crate::sched::TaskId;
use crate::{JobSpec, Lines, Moment, Outcome, Scenario, SimError, Tick};
use controller_task::ControllerTask;
use tasks::Task;

/// The vector of the admin queue. The keeper looks at it by itself.
const ADMIN_VECTOR: Vector = Vector(0);

/// Steps that may follow each other at the same instant.
const STEPS_AT_ONCE: u32 = 100_000;

/// A controller, and what belongs to it.
struct Attached {
    controller: Controller<SimPort>,
    bar: HostBar,
    vectors: Rc<Vectors>,
    control: ControllerTask,
    /// Its I/O queues, among all of the machine's.
    queues: std::ops::Range<usize>,
    /// By vector.
    routes: Vec<Route>,
    /// What its commands share, which has to know the time.
    limits: Option<Rc<Limits>>,
    /// Its messages are on their way to CPUs until then, or its thread is busy: what it writes waits.
    writes_free_at: Nanos,
}

/// Where each kind of source has its alarms.
#[derive(Clone, Copy, Debug)]
struct Sources {
    devices: usize,
    controller_tasks: usize,
    moderators: usize,
    timers: usize,
    messages: usize,
    switches: usize,
    placer: usize,
    ticks: usize,
    all: usize,
}

impl Sources {
    fn new(cpus: usize, devices: usize, tasks: usize) -> Sources {
        let controller_tasks = cpus + devices;
        let (moderators, timers) = (controller_tasks + devices, controller_tasks + 2 * devices);
        let messages = timers + tasks;
        Sources {
            devices: cpus,
            controller_tasks,
            moderators,
            timers,
            messages,
            switches: messages + 1,
            placer: messages + 2,
            ticks: messages + 3,
            all: messages + 4,
        }
    }
}

/// What came of a run before anything was measured: start delays and ramps.
#[derive(Debug)]
enum Baseline {
    /// Some job that begins at once is measured from the start.
    Zero,
    /// Nothing is measured yet.
    Pending,
    /// This.
    Known(Box<Outcome>),
}

impl Baseline {
    /// As it is when the run begins.
    fn of(scenario: &Scenario, plan: &Plan) -> Baseline {
        let at_once = |spec: &JobSpec| spec.job.ramp_time == Nanos::ZERO && spec.job.start_delay.1 == Nanos::ZERO;
        let mut first = plan.threads.iter().filter(|thread| thread.stage == 0);
        if first.any(|thread| at_once(&scenario.jobs[thread.job])) { Baseline::Zero } else { Baseline::Pending }
    }
}

/// The ticks that are over, and what had been counted by the end of the last.
#[derive(Debug, Default)]
struct Ticks {
    over: Vec<Tick>,
    before: Tick,
    latency: Histogram,
}

/// The placer, and what had been counted when the window began.
#[derive(Debug)]
struct Placing {
    /// The mode that was asked for.
    own: Mode,
    placer: Placer,
    before: (u64, u64, u64),
}

/// One run.
pub(crate) struct World<'a> {
    now: Nanos,
    started: Nanos,
    /// What came of it before anything was measured.
    baseline: Baseline,
    scenario: &'a Scenario,
    habits: &'a Habits,
    mode: Mode,
    context: Context,
    calendar: Calendar,
    sources: Sources,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    owners: Vec<Owner>,
    /// The first of the threads that do left-over softirqs, one for each CPU.
    first_ksoftirqd: TaskId,
    /// Threads of jobs that are not done.
    running: usize,
    plan: Plan,
    /// Per thread of a job, the device of each of its targets.
    targets: Vec<Vec<usize>>,
    /// Threads of lower stages are done.
    stage: u32,
    queues: Vec<HwQueue>,
    /// Of each, who takes its entries where no waiting thread does.
    drains: Vec<Drain>,
    lines: Lines,
    devices: Vec<Attached>,
    written: Written,
    /// On their way to a CPU, oldest first: all take the same time.
    messages: VecDeque<(Nanos, u32, Vector)>,
    raised: Vec<Vector>,
    /// What messages share on their way.
    irq_path: Option<SharedPath>,
    /// How late timers are, and the die that says it.
    lateness: emu::Service,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
    /// A thread that looks by itself is told that others want its CPU.
    reports_cpu_wanted: bool,
    /// Still to come, the next one last.
    switches: Vec<(Nanos, Mode)>,
    placing: Option<Placing>,
    effects: Vec<Effect>,
    ticks: Ticks,
    /// CPUs on which something has changed during this event.
    changed_cpus: Vec<usize>,
}

impl Scenario {
    /// Runs it.
    ///
    /// # Errors
    /// The scenario does not go together, or the run broke a law.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.run_with(LAWFUL)
    }

    /// The same, until `stop` is set: a long run then ends within microseconds.
    ///
    /// # Errors
    /// As [`Scenario::run`]; [`SimError::Stopped`] where `stop` was set before the jobs were done.
    pub fn run_unless(&self, stop: &AtomicBool) -> Result<Outcome, SimError> {
        self.run_as(LAWFUL, stop)
    }

    /// Runs it with executors of these habits.
    pub(crate) fn run_with(&self, habits: Habits) -> Result<Outcome, SimError> {
        self.run_as(habits, &AtomicBool::new(false))
    }

    fn run_as(&self, habits: Habits, stop: &AtomicBool) -> Result<Outcome, SimError> {
        self.check()?;
        World::bring_up(self, &habits)?.run(stop)
    }
}

impl World<'_> {
    fn run(mut self, stop: &AtomicBool) -> Result<Outcome, SimError> {
        self.start()?;
        let ends = self.started + self.scenario.limit;
        while self.running > 0 {
            let Some((at, source)) = self.calendar.pop() else { return Err(SimError::Standstill(self.moment())) };
            self.now = at;
            if stop.load(Relaxed) {
                return Err(SimError::Stopped(self.moment()));
            }
            if at > ends {
                return Err(SimError::TooLong(self.moment()));
            }
            self.dispatch(source)?;
            self.update_changed_cpus()?;
        }
        self.outcome()
    }

    fn start(&mut self) -> Result<(), SimError> {
        self.set_switch();
        self.set_placer();
        self.set_tick();
        for device in 0..self.devices.len() {
            self.run_controller_task(device)?;
            self.set_moderator(device);
        }
        self.start_stage();
        // From now on things happen to controllers.
        for step in &self.scenario.script.steps {
            let Some(device) = self.devices.get_mut(step.path) else { continue };
            let at = self.started + step.at;
            device.controller.change(at, step.change);
            self.calendar.set_by(self.sources.devices + step.path, at);
        }
        (0..self.cpus.len()).for_each(|cpu| self.mark_changed(cpu));
        self.update_changed_cpus()
    }

    fn dispatch(&mut self, source: usize) -> Result<(), SimError> {
        if source < self.sources.devices {
            return self.cpu_due(source);
        }
        let sources = self.sources;
        if source < sources.controller_tasks {
            self.step_device(source - sources.devices)
        } else if source < sources.moderators {
            self.run_controller_task(source - sources.controller_tasks)
        } else if source < sources.timers {
            self.moderate(source - sources.moderators);
            Ok(())
        } else if source < sources.messages {
            let task = source - sources.timers;
            self.interrupt(self.tasks[task].cpu, Irq::Timer(task));
            Ok(())
        } else if source == sources.messages {
            self.messages_arrive();
            Ok(())
        } else if source == sources.switches {
            self.switch();
            Ok(())
        } else if source == sources.placer {
            self.place();
            Ok(())
        } else {
            self.tick();
            Ok(())
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            at: self.now - self.started,
            seed: self.scenario.seed,
            mode: self.mode,
            in_flight: self.queues.iter().map(HwQueue::in_flight).sum(),
            pending: self.queues.iter().filter(|queue| queue.pending()).count(),
        }
    }

    /// A controller does what is due.
    fn step_device(&mut self, n: usize) -> Result<(), SimError> {
        let device = &mut self.devices[n];
        if self.now < device.writes_free_at {
            self.calendar.set_by(self.sources.devices + n, device.writes_free_at);
            return Ok(());
        }
        if let Some(limits) = &device.limits {
            limits.clock.set(self.now);
        }
        let completed = self.scenario.devices[n].in_process.then(|| device.controller.counters().completed);
        let step = device.controller.step(self.now);
        if let Some(completed) = completed {
            let served = device.controller.counters().completed - completed;
            device.writes_free_at = self.now + Nanos(self.scenario.machine.costs.library.serve.0 * served);
        }
        let next = step.next.unwrap_or(Nanos::MAX);
        // A register that changed may bring about more at the same instant.
        let settles = step.worked && device.control.is_busy();
        let next = if settles { self.now } else { next.max(self.now) };
        self.calendar.set_by(self.sources.devices + n, next);
        device.vectors.take_raised(&mut self.raised);
        self.send_messages(n);
        let called = self.devices[n].control.has_replies();
        self.end_spins(n);
        if called { self.run_controller_task(n) } else { Ok(()) }
    }

    /// If the host has written to a controller's registers or doorbells, it sees that.
    fn forward_writes(&mut self, n: usize) {
        if self.written.take(n) {
            let sees = self.now + self.scenario.machine.costs.memory.mmio_delay;
            self.calendar.set_by(self.sources.devices + n, sees);
        }
    }

    fn set_switch(&mut self) {
        if let Some(&(at, _)) = self.switches.last() {
            self.calendar.set(self.sources.switches, self.started + at);
        }
    }

    /// The mode is switched.
    fn switch(&mut self) {
        let Some((_, mode)) = self.switches.pop() else { return };
        self.set_switch();
        self.apply_mode(mode);
        self.set_placer();
    }

    /// Another mode: every policy is another one from its next batch on, and everybody looks up.
    fn apply_mode(&mut self, mode: Mode) {
        (self.mode, self.context) = (mode, Context::of(mode, self.scenario.host));
        self.reports_cpu_wanted = self.scenario.spin.tells_wanted(mode);
        for (queue, drain) in self.queues.iter().zip(&mut self.drains) {
            drain.switch(mode);
            queue.clear_outstanding();
            // A mask that is taken off is followed by a look, below: what was posted under it has sent no message.
            if self.context != Context::Waiter {
                queue.arm();
            }
        }
        for device in 0..self.devices.len() {
            self.change_moderator(device);
        }
        for task in 0..self.tasks.len() {
            if let Some(thread) = self.tasks[task].thread_mut() {
                thread.switch(mode, self.context);
                self.poke(task);
            }
        }
        if self.context != Context::Waiter && self.habits.looks_after_switch {
            (0..self.queues.len()).for_each(|queue| self.kick(queue));
        }
    }
}

#[cfg(test)]
mod tests;
