//! What any thread may request of a controller's task (`controller_task.rs`): close, reset, admin
//! commands that a caller built, queues without a thread to take over. Each request is stored here,
//! and the housekeeping thread is woken.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::Sqe;

use super::events::{EventKind, EventSource};
use super::queue_shared::Orphan;
use super::reports::{Kick, Reporter};
use crate::error::AdminError;
use crate::health::Health;

/// The handle to a controller's task. Dropping it closes the device.
pub(crate) struct Control(Arc<ControlShared>);

/// What the handle and the task share.
pub(crate) struct ControlShared {
    health: Mutex<Health>,
    /// A reset was requested.
    reset: AtomicBool,
    /// The device is being closed.
    closing: AtomicBool,
    raw_commands: Mutex<VecDeque<RawCommand>>,
    /// Queues of a file whose thread is gone, for the task to take over.
    orphans: Mutex<Vec<Box<dyn Orphan>>>,
    pub reporter: Reporter,
}

/// Dword 0 of the completion, and the data, which the command may have filled.
pub(crate) type AdminResult = Result<(u32, Vec<u8>), AdminError>;

/// An admin command that a caller built.
pub(crate) struct RawCommand {
    pub sqe: Sqe,
    pub data: Vec<u8>,
    reply: SyncSender<AdminResult>,
}

impl RawCommand {
    /// Sends the result to the caller.
    pub(crate) fn complete(self, result: AdminResult) {
        // The channel has room for this one result, so an error means that the caller has stopped
        // waiting.
        _ = self.reply.try_send(result);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poison is ignored, because the locks guard plain stores, which a panic cannot interrupt.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(kick: Arc<Kick>, source: EventSource) -> Control {
        Control(Arc::new(ControlShared {
            health: Mutex::default(),
            reset: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            raw_commands: Mutex::default(),
            orphans: Mutex::default(),
            reporter: Reporter::new(kick, source),
        }))
    }

    /// The task's side.
    pub(crate) fn shared(&self) -> Arc<ControlShared> {
        self.0.clone()
    }

    /// The reporter for the controller's queues.
    pub(crate) fn reporter(&self) -> Reporter {
        self.0.reporter.clone()
    }

    pub(crate) fn health(&self) -> Health {
        self.0.health().clone()
    }

    /// Has the housekeeping thread step the task.
    pub(crate) fn kick(&self) {
        self.0.reporter.kick();
    }

    pub(crate) fn request_reset(&self) {
        self.0.reset.store(true, Release);
        self.kick();
    }

    /// Queues an admin command that a caller built. The receiver gets the result.
    pub(crate) fn admin_command(&self, sqe: Sqe, data: Vec<u8>) -> Receiver<AdminResult> {
        let (reply, result) = sync_channel(1);
        self.0.raw_commands().push_back(RawCommand { sqe, data, reply });
        self.kick();
        result
    }

    /// Hands over a queue of a file whose thread is gone.
    pub(crate) fn add_orphan(&self, queue: Box<dyn Orphan>) {
        lock(&self.0.orphans).push(queue);
        self.kick();
    }

    /// Records that a requested mode needs Interrupt Coalescing, and the device has none.
    pub(crate) fn refuse_coalescing(&self) {
        // One event per device, whatever the number of queues that need it.
        let known = std::mem::replace(&mut self.0.health().coalescing_refused, true);
        if !known {
            self.0.reporter.push(EventKind::CoalescingRefused);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.closing.store(true, Release);
        self.kick();
    }
}

impl ControlShared {
    /// The health that users read.
    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        lock(&self.health)
    }

    /// Queues handed over since the last call.
    pub(crate) fn take_orphans(&self) -> Vec<Box<dyn Orphan>> {
        std::mem::take(&mut lock(&self.orphans))
    }

    pub(crate) fn raw_commands(&self) -> MutexGuard<'_, VecDeque<RawCommand>> {
        lock(&self.raw_commands)
    }

    /// Whether a reset was requested since the last call.
    pub(crate) fn take_reset(&self) -> bool {
        self.reset.swap(false, Relaxed)
    }

    /// Whether the last handle of the device and its last queue have been dropped.
    pub(crate) fn is_closing(&self) -> bool {
        // Acquire: the task then also sees the open requests that the last queue has left.
        self.closing.load(Acquire)
    }
}
