//! The device thread, which steps every embedded controller of the process.
//!
//! One thread serves all of them, because controllers that spin on threads of their own would take
//! the CPU from each other. `thread=own` gives a controller its own thread; then, as with hardware,
//! only the host's synchronization orders accesses of different controllers.
//!
//! ```text
//!   step all ──worked──► step all …
//!      │ nothing to do for 100 ms
//!      ▼
//!   idle.arm() ─► step all once more ─► wait(wake_fd, next event) ─► idle.disarm()
//!                 (a doorbell that was rung before arm() is seen here)
//! ```

use std::fmt;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use emu::{Controller, Port, Step};
use hw::{EventFd, Poller};
use sync::WakeFlag;
use units::Nanos;

use super::port::Attachment;

/// The thread sleeps after this long without work (unless measured), so that an idle process uses
/// no CPU.
const IDLE_AFTER: Nanos = Nanos::from_millis(100);

/// A controller with its port type erased.
pub(super) trait Stepper: Send {
    fn step(&mut self, now: Nanos) -> Step;
}

impl<P: Port + Send> Stepper for Controller<P>
where
    P::Sq: Send,
    P::Cq: Send,
{
    fn step(&mut self, now: Nanos) -> Step {
        Controller::step(self, now)
    }
}

/// A controller and what its host shares with the device thread.
type Attached = (Box<dyn Stepper>, Arc<Attachment>);

/// Shared state of a device thread and the hosts of its controllers.
pub(crate) struct Runner {
    arrivals: Mutex<Vec<Attached>>,
    /// Locked by the thread while it runs, by [`ManualStepper`] while it steps.
    steppers: Mutex<Vec<Attached>>,
    /// The number of [`ManualStepper`] guards; the thread rests while there is one.
    by_hand: AtomicU32,
    /// Controllers were attached or detached, or a guard came or went.
    changed: AtomicBool,
    /// Armed while the thread sleeps.
    idle: WakeFlag,
    wake_fd: EventFd,
    measured: AtomicU64,
    cpu: Option<usize>,
}

static SHARED_RUNNER: Mutex<Weak<Runner>> = Mutex::new(Weak::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runner {
    fn new(cpu: Option<usize>) -> io::Result<Runner> {
        Ok(Runner {
            arrivals: Mutex::default(),
            steppers: Mutex::default(),
            by_hand: AtomicU32::new(0),
            changed: AtomicBool::new(false),
            idle: WakeFlag::new(),
            wake_fd: EventFd::new()?,
            measured: AtomicU64::new(0),
            cpu,
        })
    }

    /// The process's device thread, started if there is none; `cpu` counts only then. A weak
    /// reference: the thread ends with the last controller.
    pub(super) fn shared(cpu: Option<usize>) -> io::Result<Arc<Runner>> {
        // Held while the thread is started, so that two devices opened at once share one.
        let mut current = lock(&SHARED_RUNNER);
        if let Some(runner) = current.upgrade() {
            return Ok(runner);
        }
        let runner = Runner::start(cpu)?;
        *current = Arc::downgrade(&runner);
        Ok(runner)
    }

    /// A thread for one controller alone, not pinned: two spinning threads on one CPU would starve
    /// each other.
    pub(super) fn own() -> io::Result<Arc<Runner>> {
        Runner::start(None)
    }

    fn start(cpu: Option<usize>) -> io::Result<Arc<Runner>> {
        let runner = Arc::new(Runner::new(cpu)?);
        let poller = Poller::new()?;
        poller.add(&runner.wake_fd, 0)?;
        let device_thread =
            DeviceThread { runner: Arc::downgrade(&runner), poller, events: Vec::new() };
        thread::Builder::new().name("reap-device".into()).spawn(move || device_thread.run(cpu))?;
        Ok(runner)
    }

    /// Hands a controller to the thread.
    pub(super) fn attach(&self, stepper: Box<dyn Stepper>, attachment: Arc<Attachment>) {
        lock(&self.arrivals).push((stepper, attachment));
        self.kick();
    }

    /// Adds new controllers and drops those whose host is gone.
    fn update_steppers(&self, steppers: &mut Vec<Attached>) {
        // Cleared before the lists are read: a change that comes later sets it again.
        self.changed.swap(false, AcqRel);
        steppers.append(&mut lock(&self.arrivals));
        steppers.retain(|(_, attachment)| !attachment.is_detached());
    }

    /// Wakes the thread for a change that is not a doorbell or register write.
    pub(crate) fn kick(&self) {
        self.changed.store(true, Release);
        self.wake();
    }

    /// Wakes the thread if it sleeps. Called after the doorbell or register was written.
    #[inline]
    pub(super) fn wake(&self) {
        // Claims at most one wake-up per sleep: a batch of doorbells costs one signal.
        if self.idle.claim_wake() {
            self.wake_fd.signal();
        }
    }

    /// Whether controllers are stepped manually.
    fn is_by_hand(&self) -> bool {
        self.by_hand.load(Acquire) > 0
    }

    /// The CPU that the thread is pinned to.
    pub(crate) fn cpu(&self) -> Option<usize> {
        self.cpu
    }
}

/// While this lives the device thread never sleeps, so that no command waits for it to wake up.
pub struct Measured(Arc<Runner>);

impl Measured {
    pub(crate) fn new(runner: &Arc<Runner>) -> Measured {
        // Relaxed: `kick` publishes it, and a late start of the measurement only counts fewer gaps.
        runner.measured.fetch_add(1, Relaxed);
        runner.kick();
        Measured(runner.clone())
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measured").finish_non_exhaustive()
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.0.measured.fetch_sub(1, Relaxed);
    }
}

/// While this lives the device thread rests, and its embedded controllers run only when
/// [`ManualStepper::step`] is called. For instruction counts, and for tests that must know when the
/// device does what.
#[cfg(feature = "testing")]
pub struct ManualStepper(Arc<Runner>);

#[cfg(feature = "testing")]
impl ManualStepper {
    pub(crate) fn new(runner: &Arc<Runner>) -> ManualStepper {
        // Before the kick: the thread must see the guard when it wakes.
        runner.by_hand.fetch_add(1, Release);
        runner.kick();
        // The device thread holds this lock while it runs. Once we have had it, the thread rests.
        drop(lock(&runner.steppers));
        ManualStepper(runner.clone())
    }

    /// Steps every controller once. Returns whether any of them did something.
    pub fn step(&self) -> bool {
        let mut steppers = lock(&self.0.steppers);
        // The resting thread does not do it.
        self.0.update_steppers(&mut steppers);
        step_all(&mut steppers, hw::now()).worked
    }
}

#[cfg(feature = "testing")]
impl fmt::Debug for ManualStepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualStepper").finish_non_exhaustive()
    }
}

#[cfg(feature = "testing")]
impl Drop for ManualStepper {
    fn drop(&mut self) {
        self.0.by_hand.fetch_sub(1, Release);
        self.0.kick();
    }
}

/// The thread's own state.
struct DeviceThread {
    /// Weak: the controllers' hosts hold the runner, and the thread ends when the last one is gone.
    runner: Weak<Runner>,
    poller: Poller,
    events: Vec<u64>,
}

impl DeviceThread {
    fn run(mut self, cpu: Option<usize>) {
        match cpu.map(|cpu| (cpu, hw::pin(cpu))) {
            // A CPU that is not there is no reason not to run.
            Some((cpu, Err(error))) => {
                tracing::warn!(cpu, %error, "the device thread is not pinned")
            }
            Some(_) => {}
            // The creating thread may be pinned; this one must not inherit that.
            None => hw::clear_affinity(),
        }
        // Ends when the last host has dropped its runner.
        while let Some(runner) = self.runner.upgrade() {
            let mut steppers = lock(&runner.steppers);
            runner.update_steppers(&mut steppers);
            if !runner.is_by_hand() {
                run_until_idle(&runner, &mut steppers);
            }
            self.sleep(&runner, steppers);
        }
    }

    /// Sleeps until there is work. Arm, check, block: a doorbell is either seen by the check, or
    /// finds the flag armed and signals.
    fn sleep(&mut self, runner: &Runner, mut steppers: MutexGuard<'_, Vec<Attached>>) {
        let by_hand = runner.is_by_hand();
        // Waking takes tens of microseconds, which a measurement would see as device time.
        if runner.measured.load(Relaxed) > 0 && !by_hand {
            return;
        }
        runner.idle.arm();
        let now = hw::now();
        // While guards live, the thread must not step, not even this once.
        let step =
            if by_hand { Step { worked: false, next: None } } else { step_all(&mut steppers, now) };
        // Released before blocking: `ManualStepper` steps while the thread sleeps.
        drop(steppers);
        if !step.worked && !runner.changed.load(Acquire) {
            // Timed work of the models (a command in progress, a late doorbell) bounds the sleep.
            let timeout = step.next.map(|next| next - now);
            if let Err(error) = self.poller.wait(timeout, &mut self.events) {
                tracing::error!(%error, "the device thread cannot sleep");
            }
        }
        runner.idle.disarm();
    }
}

/// Steps until `changed` is set or there was nothing to do for [`IDLE_AFTER`].
fn run_until_idle(runner: &Runner, steppers: &mut [Attached]) {
    let mut worked_at = hw::now();
    loop {
        let now = hw::now();
        if step_all(steppers, now).worked {
            worked_at = now;
            continue;
        }
        if runner.changed.load(Acquire) {
            return;
        }
        if now - worked_at > IDLE_AFTER && runner.measured.load(Relaxed) == 0 {
            return;
        }
        std::hint::spin_loop();
    }
}

/// One step of each; `next` is the earliest of all.
fn step_all(steppers: &mut [Attached], now: Nanos) -> Step {
    let mut all = Step { worked: false, next: None };
    for (stepper, _) in steppers {
        let step = stepper.step(now);
        all.worked |= step.worked;
        all.next = match (all.next, step.next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    all
}

#[cfg(test)]
mod tests;
