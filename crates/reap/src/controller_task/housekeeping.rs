//! The housekeeping thread: one per process, which runs the tasks of all controllers and files. It
//! starts with the first device and ends with the last.
//!
//! ```text
//!  loop:  clear kicks → add new tasks → step every task → arm → check kicks → epoll_wait
//!                                                                               until the earliest deadline,
//!                                                                               an admin vector, or a kick
//! ```

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use driver::Inventory;
use hw::Poller;
use units::Nanos;

use super::{ControllerTask, DeviceTask, TaskStatus};
use crate::error::OpenError;
use crate::options::OpenOptions;
use crate::shared::control::Control;
use crate::shared::controller::Opened;
use crate::shared::events::EventSource;
use crate::shared::path_states::PathHandle;
use crate::shared::reports::Kick;
use crate::transport::RingController;

/// The handle by which threads that open a device find the housekeeping thread. The thread runs as
/// long as the handle or its [`Kick`] has other users.
struct Housekeeper {
    /// Tasks that the thread has not taken over yet.
    new_tasks: Mutex<Vec<Box<dyn DeviceTask>>>,
    kick: Arc<Kick>,
}

static CURRENT: Mutex<Option<Arc<Housekeeper>>> = Mutex::new(None);

/// The poller's key of the wake-up. The keys of admin vectors follow it.
const KEY_WAKE: u64 = 0;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The housekeeping thread. Starts it if there is none.
fn shared() -> Result<Arc<Housekeeper>, OpenError> {
    let system = |source| OpenError::System { what: "housekeeping thread", source };
    let mut current = lock(&CURRENT);
    if let Some(housekeeper) = &*current {
        return Ok(housekeeper.clone());
    }
    let kick = Arc::new(Kick::new().map_err(system)?);
    let poller = Poller::new().map_err(system)?;
    poller.add(&*kick, KEY_WAKE).map_err(system)?;
    let housekeeper = Arc::new(Housekeeper { new_tasks: Mutex::default(), kick });
    let worker = HousekeepingThread {
        handle: housekeeper.clone(),
        tasks: Vec::new(),
        poller,
        events: Vec::new(),
        next_key: KEY_WAKE + 1,
    };
    thread::Builder::new()
        .name("reap-housekeep".into())
        .spawn(move || worker.run())
        .map_err(system)?;
    // The lock is held from the start, so that two openers do not start two threads.
    *current = Some(housekeeper.clone());
    Ok(housekeeper)
}

/// Brings a controller up: starts its task, and waits until it is live.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn bring_up(
    controller: Arc<RingController>,
    path_handle: Option<PathHandle>,
    options: &OpenOptions,
) -> Result<(Opened, Inventory), OpenError> {
    let housekeeper = shared()?;
    let (reply, result) = mpsc::sync_channel(1);
    let source = match &path_handle {
        Some(path_handle) => {
            EventSource::new(path_handle.path_states.events.clone(), Some(path_handle.path.index()))
        }
        None => EventSource::new(Arc::default(), None),
    };
    let control = Control::new(housekeeper.kick.clone(), source);
    let task = ControllerTask::new(controller, path_handle, options, control, reply)?;
    housekeeper.add(Box::new(task));
    // From here on only the task's kick keeps the thread running, so that the thread ends if the
    // task does.
    drop(housekeeper);
    result.recv().unwrap_or_else(|_| {
        // The task was dropped without an answer: a step has panicked.
        let source = io::Error::other("it ended before the controller was up");
        Err(OpenError::System { what: "housekeeping thread", source })
    })
}

/// Starts the task of a file, which `task` makes. Returns the handle to it.
///
/// # Errors
/// The system has no thread left.
pub(super) fn add_file(
    task: impl FnOnce(&Control) -> Box<dyn DeviceTask>,
) -> Result<Control, OpenError> {
    let housekeeper = shared()?;
    let control = Control::new(housekeeper.kick.clone(), EventSource::new(Arc::default(), None));
    housekeeper.add(task(&control));
    Ok(control)
}

impl Housekeeper {
    fn add(&self, task: Box<dyn DeviceTask>) {
        lock(&self.new_tasks).push(task);
        self.kick.kick();
    }
}

struct HousekeepingThread {
    handle: Arc<Housekeeper>,
    /// Each with its key in the poller.
    tasks: Vec<(u64, Box<dyn DeviceTask>)>,
    poller: Poller,
    events: Vec<u64>,
    next_key: u64,
}

/// However the thread ends, also by a panic: drops tasks that it has not taken over, whose openers
/// get an error, and has the next opener start a new thread.
struct ExitGuard(Arc<Housekeeper>);

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let mut current = lock(&CURRENT);
        if current.as_ref().is_some_and(|housekeeper| Arc::ptr_eq(housekeeper, &self.0)) {
            *current = None;
        }
        drop(current);
        lock(&self.0.new_tasks).clear();
    }
}

impl HousekeepingThread {
    fn run(mut self) {
        // The opener may be pinned to a CPU on which it spins.
        hw::clear_affinity();
        let _end = ExitGuard(self.handle.clone());
        loop {
            // Cleared before anything is read: a kick that comes from here on is seen by `arm`.
            self.handle.kick.clear();
            self.take_new_tasks();
            let until = self.step_all();
            if self.tasks.is_empty() && self.may_exit() {
                return;
            }
            if !self.handle.kick.arm() {
                let timeout = (until != Nanos::MAX).then(|| until - hw::now());
                if let Err(error) = self.poller.wait(timeout, &mut self.events) {
                    tracing::error!(%error, "the housekeeping thread cannot sleep");
                }
            }
            self.handle.kick.disarm();
        }
    }

    fn take_new_tasks(&mut self) {
        for mut task in lock(&self.handle.new_tasks).drain(..) {
            let key = self.next_key;
            self.next_key += 1;
            if let Some(eventfd) = task.vector()
                && let Err(source) = self.poller.add(eventfd, key)
            {
                task.refuse(OpenError::System { what: "admin vector", source });
                continue;
            }
            self.tasks.push((key, task));
        }
    }

    /// Steps each task. Returns the earliest time at which one is due again.
    fn step_all(&mut self) -> Nanos {
        let mut until = Nanos::MAX;
        // A clock read for each: the time that one step takes must not count as lateness of the
        // next controller. All tasks, not only those that were signalled: kicks do not say which
        // task they are for.
        self.tasks.retain_mut(|(_, task)| {
            match catch_unwind(AssertUnwindSafe(|| task.step(hw::now()))) {
                Ok(TaskStatus::Until(instant)) => {
                    until = until.min(instant);
                    true
                }
                // Dropping the task closes its eventfd, which removes it from the poller.
                Ok(TaskStatus::Ended) => false,
                // A panic ends this device alone. The task's `drop` fails its requests.
                Err(_) => {
                    tracing::error!("the task of a device has panicked; the device is given up");
                    false
                }
            }
        });
        until
    }

    /// Whether no thread can add a task any more.
    fn may_exit(&self) -> bool {
        // Under the lock that openers take to find the thread: none can come between the test and
        // the removal.
        let mut current = lock(&CURRENT);
        // 3: this struct, the exit guard and CURRENT. An opener has one more; an open device has
        // the kick.
        let unused =
            Arc::strong_count(&self.handle) == 3 && Arc::strong_count(&self.handle.kick) == 1;
        if unused {
            *current = None;
        }
        unused
    }
}

#[cfg(test)]
mod tests;
