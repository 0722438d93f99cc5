//! The event loop of one run. [`World`] holds the whole simulated machine: CPUs, threads, queues
//! and controllers.
//!
//! Each source of events (listed below) has one timer in the [`Calendar`], for its next action. The
//! loop takes the earliest timer, advances virtual time to it and calls the source. Then every CPU
//! that the event has affected is rescheduled:
//!
//! ```text
//!   calendar.pop() -> now = at -> dispatch(source) -> update_changed_cpus() --+
//!         ^                                                                   |
//!         +-------------------------------------------------------------------+
//!   sources: CPU, device, controller task, moderator, thread timer, messages, switch, placer, tick
//! ```

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

use completion::Mode;
use emu::Controller;
use nvme::Vector;
use units::Nanos;
use workload::Histogram;
use workload::plan::Plan;

use crate::ablation::{Ablation, NO_ABLATION};
use crate::cpu::{Cpu, Irq, Route};
use crate::dies::DieTimes;
use crate::events::Calendar;
use crate::host::drain::Drain;
use crate::host::{Context, Effect, Owner};
use crate::hw_queue::HwQueue;
use crate::path::SharedPath;
use crate::placer::Placer;
use crate::port::{HostBar, SimPort, Vectors, Written};
use crate::sched::TaskId;
use crate::{JobSpec, Lines, Moment, Outcome, Scenario, SimError, Tick};
use controller_task::ControllerTask;
use tasks::Task;

/// The vector of the admin queue. The controller task polls that queue, so its messages interrupt
/// no CPU.
const ADMIN_VECTOR: Vector = Vector(0);

/// Maximum number of steps at the same instant. More steps are reported as a livelock.
const STEPS_AT_ONCE: u32 = 100_000;

/// A controller, with the host's state for it.
struct Attached {
    controller: Controller<SimPort>,
    bar: HostBar,
    vectors: Rc<Vectors>,
    /// Not a [`Task`]: it has no thread and uses no CPU.
    control: ControllerTask,
    /// Its I/O queues, as indices into [`World::queues`].
    queues: std::ops::Range<usize>,
    /// By vector.
    routes: Vec<Route>,
    /// The drive's dies, whose clock must be set before each step of the controller.
    dies: Option<Rc<DieTimes>>,
    /// The controller cannot write to memory before this instant, because the shared interrupt path
    /// has not accepted its last message yet, or because the thread of an in-process controller is
    /// busy.
    writes_free_at: Nanos,
}

/// For each kind of source, the index of its first timer in the calendar. CPUs start at 0.
#[derive(Clone, Copy, Debug)]
struct Sources {
    devices: usize,
    controller_tasks: usize,
    moderators: usize,
    thread_timers: usize,
    messages: usize,
    switches: usize,
    placer: usize,
    ticks: usize,
    /// Number of sources.
    count: usize,
}

impl Sources {
    fn new(cpus: usize, devices: usize, tasks: usize) -> Sources {
        let controller_tasks = cpus + devices;
        let moderators = controller_tasks + devices;
        let thread_timers = moderators + devices;
        let messages = thread_timers + tasks;
        Sources {
            devices: cpus,
            controller_tasks,
            moderators,
            thread_timers,
            messages,
            switches: messages + 1,
            placer: messages + 2,
            ticks: messages + 3,
            count: messages + 4,
        }
    }
}

/// The totals when measuring began, which are subtracted at the end.
#[derive(Debug)]
enum Baseline {
    /// Some job has neither start delay nor ramp: measuring begins with the run, and nothing is
    /// subtracted.
    Zero,
    /// All jobs are in their start delay or ramp: nothing is measured yet.
    Pending,
    /// The totals at the start of the measured time.
    Known(Box<Outcome>),
}

impl Baseline {
    /// The state at the start of the run.
    fn of(scenario: &Scenario, plan: &Plan) -> Baseline {
        let at_once = |spec: &JobSpec| {
            spec.job.ramp_time == Nanos::ZERO && spec.job.start_delay.1 == Nanos::ZERO
        };
        let mut first = plan.threads.iter().filter(|thread| thread.stage == 0);
        if first.any(|thread| at_once(&scenario.jobs[thread.job])) {
            Baseline::Zero
        } else {
            Baseline::Pending
        }
    }
}

/// The completed ticks, and the totals at the end of the last completed tick.
#[derive(Debug, Default)]
struct Ticks {
    completed: Vec<Tick>,
    totals: Tick,
    latency: Histogram,
}

/// The placer, and the totals when its window began.
#[derive(Debug)]
struct Placing {
    /// The mode that the scenario set.
    own: Mode,
    placer: Placer,
    before: (u64, u64, u64),
}

/// One run.
pub(crate) struct World<'a> {
    now: Nanos,
    started: Nanos,
    baseline: Baseline,
    scenario: &'a Scenario,
    /// The steps that are taken. A negative test clears one.
    ablation: &'a Ablation,
    mode: Mode,
    /// Where completions are reaped in this mode.
    context: Context,
    calendar: Calendar,
    sources: Sources,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    /// By task.
    owners: Vec<Owner>,
    /// The first of the ksoftirqd threads, one for each CPU.
    first_ksoftirqd: TaskId,
    /// Threads of jobs that have not finished.
    running: usize,
    plan: Plan,
    /// By thread of a job: the device of each of its targets.
    targets: Vec<Vec<usize>>,
    /// Current stage: the threads of lower stages have finished.
    stage: u32,
    queues: Vec<HwQueue>,
    /// By queue: its drain, which reaps for the threads of jobs.
    drains: Vec<Drain>,
    /// Cache lines that CPUs share.
    lines: Lines,
    devices: Vec<Attached>,
    /// Controllers whose registers or doorbells the host has written to.
    written: Written,
    /// Messages in transit: arrival, device, vector; earliest first.
    messages: VecDeque<(Nanos, u32, Vector)>,
    /// Buffer for the vectors that a controller raises in a step.
    raised: Vec<Vector>,
    /// The interrupt path that all messages of the machine share.
    irq_path: Option<SharedPath>,
    /// Distribution of timer lateness, and the generator that it is drawn from.
    lateness: emu::Service,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
    /// Whether a thread that polls learns that another thread is runnable on its CPU.
    reports_cpu_wanted: bool,
    /// Mode switches to come, the next one last.
    switches: Vec<(Nanos, Mode)>,
    placing: Option<Placing>,
    effects: Vec<Effect>,
    ticks: Ticks,
    /// CPUs that the current event has affected.
    changed_cpus: Vec<usize>,
}

impl Scenario {
    /// Runs the scenario.
    ///
    /// # Errors
    /// The scenario is inconsistent, or the run broke an invariant.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.run_with(NO_ABLATION)
    }

    /// Runs the scenario to its end, or until `stop` is set. The run then ends within microseconds.
    ///
    /// # Errors
    /// As [`Scenario::run`]; [`SimError::Stopped`] where `stop` was set before the jobs had
    /// finished.
    pub fn run_unless(&self, stop: &AtomicBool) -> Result<Outcome, SimError> {
        self.run_as(NO_ABLATION, stop)
    }

    /// Runs the scenario with steps left out, for negative tests.
    pub(crate) fn run_with(&self, ablation: Ablation) -> Result<Outcome, SimError> {
        self.run_as(ablation, &AtomicBool::new(false))
    }

    fn run_as(&self, ablation: Ablation, stop: &AtomicBool) -> Result<Outcome, SimError> {
        self.check()?;
        World::bring_up(self, &ablation)?.run(stop)
    }
}

impl World<'_> {
    fn run(mut self, stop: &AtomicBool) -> Result<Outcome, SimError> {
        self.start()?;
        let ends = self.started + self.scenario.limit;
        while self.running > 0 {
            // Jobs are unfinished and no timer is set: a wake-up was lost.
            let Some((at, source)) = self.calendar.pop() else {
                return Err(SimError::Standstill(self.moment()));
            };
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
        // The script's times count from here, not from bring-up.
        for step in &self.scenario.script.steps {
            // A path of the script is a device of the scenario.
            let n = step.path;
            let Some(device) = self.devices.get_mut(n) else { continue };
            let at = self.started + step.at;
            device.controller.change(at, step.change);
            self.calendar.set_no_later(self.sources.devices + n, at);
        }
        // Threads became ready before the CPUs had timers.
        (0..self.cpus.len()).for_each(|cpu| self.mark_changed(cpu));
        self.update_changed_cpus()
    }

    /// Handles the timer of `source`. The order of the ranges is that of [`Sources::new`].
    fn dispatch(&mut self, source: usize) -> Result<(), SimError> {
        // CPUs are by far the most frequent source, so they are tested first.
        if source < self.sources.devices {
            return self.cpu_due(source);
        }
        let sources = self.sources;
        if source < sources.controller_tasks {
            self.step_device(source - sources.devices)
        } else if source < sources.moderators {
            self.run_controller_task(source - sources.controller_tasks)
        } else if source < sources.thread_timers {
            self.moderate(source - sources.moderators);
            Ok(())
        } else if source < sources.messages {
            let task = source - sources.thread_timers;
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

    /// Steps a controller: carries out what is due, and sends its messages.
    fn step_device(&mut self, n: usize) -> Result<(), SimError> {
        let device = &mut self.devices[n];
        // The controller cannot write before `writes_free_at`, so it is stepped at that time.
        if self.now < device.writes_free_at {
            self.calendar.set_no_later(self.sources.devices + n, device.writes_free_at);
            return Ok(());
        }
        if let Some(dies) = &device.dies {
            dies.clock.set(self.now);
        }
        let completed =
            self.scenario.devices[n].in_process.then(|| device.controller.counters().completed);
        let step = device.controller.step(self.now);
        if let Some(completed) = completed {
            // The thread of an in-process controller spends CPU time on each command, and completes
            // no other command in that time.
            let served = device.controller.counters().completed - completed;
            device.writes_free_at =
                self.now + Nanos(self.scenario.machine.costs.library.serve.0 * served);
        }
        let next = step.next.unwrap_or(Nanos::MAX);
        // During bring-up and reset a register write may cause more work at the same instant.
        let settles = step.worked && device.control.is_busy();
        let next = if settles { self.now } else { next.max(self.now) };
        self.calendar.set_no_later(self.sources.devices + n, next);
        device.vectors.take_raised(&mut self.raised);
        self.send_messages(n);
        let replies = self.devices[n].control.has_replies();
        self.end_spins(n);
        if replies { self.run_controller_task(n) } else { Ok(()) }
    }

    /// Steps the controller for the host's writes to registers and doorbells, after the bus delay.
    fn forward_writes(&mut self, n: usize) {
        if self.written.take(n) {
            let sees = self.now + self.scenario.machine.costs.memory.mmio_delay;
            self.calendar.set_no_later(self.sources.devices + n, sees);
        }
    }

    fn set_switch(&mut self) {
        if let Some(&(at, _)) = self.switches.last() {
            self.calendar.set(self.sources.switches, self.started + at);
        }
    }

    /// The next mode switch of the scenario is due.
    fn switch(&mut self) {
        let Some((_, mode)) = self.switches.pop() else { return };
        self.set_switch();
        self.apply_mode(mode);
        self.set_placer();
    }

    /// Switches the mode. Policies change at their next batch, so every thread polls once.
    fn apply_mode(&mut self, mode: Mode) {
        (self.mode, self.context) = (mode, Context::of(mode, self.scenario.host));
        self.reports_cpu_wanted = self.scenario.spin.reports_cpu_wanted_in(mode);
        for (queue, drain) in self.queues.iter().zip(&mut self.drains) {
            // A notification that is still outstanding from the old mode would suppress the first
            // notification of the new mode.
            drain.switch(mode);
            queue.clear_outstanding();
            // Unmasking must be followed by a poll (below), because entries that were posted under
            // the mask have sent no message.
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
        if self.context != Context::Waiter && self.ablation.polls_after_switch {
            (0..self.queues.len()).for_each(|queue| self.kick(queue));
        }
    }
}

#[cfg(test)]
mod tests;
