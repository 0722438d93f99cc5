//! What others ask of the thread that looks after a controller, from any thread.

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

/// The handle by which others reach the thread that looks after a controller. Dropping it closes the device.
pub(crate) struct Control(Arc<Asks>);

/// What is asked, for the thread that does it.
pub(crate) struct Asks {
    health: Mutex<Health>,
    reset: AtomicBool,
    closing: AtomicBool,
    raw_commands: Mutex<VecDeque<RawCommand>>,
    /// Queues of a file that have lost their thread since this was last looked at.
    orphans: Mutex<Vec<Box<dyn Orphan>>>,
    pub reporter: Reporter,
}

/// Dword 0 of the completion, and the data, filled where the command does that; or why there is none.
pub(crate) type Answer = Result<(u32, Vec<u8>), AdminError>;

/// A caller's admin command.
pub(crate) struct RawCommand {
    pub sqe: Sqe,
    pub data: Vec<u8>,
    tell: SyncSender<Answer>,
}

impl RawCommand {
    /// Tells the caller, who may have stopped waiting.
    pub(crate) fn answer(self, answer: Answer) {
        _ = self.tell.try_send(answer);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(kick: Arc<Kick>, source: EventSource) -> Control {
        Control(Arc::new(Asks {
            health: Mutex::default(),
            reset: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            raw_commands: Mutex::default(),
            orphans: Mutex::default(),
            reporter: Reporter::new(kick, source),
        }))
    }

    /// What is asked through it.
    pub(crate) fn asks(&self) -> Arc<Asks> {
        self.0.clone()
    }

    /// What its queues report to.
    pub(crate) fn reporter(&self) -> Reporter {
        self.0.reporter.clone()
    }

    pub(crate) fn health(&self) -> Health {
        self.0.health().clone()
    }

    /// There is something to look at; or another mode was asked for, and the controller may have to be told.
    pub(crate) fn kick(&self) {
        self.0.reporter.kick();
    }

    pub(crate) fn ask_reset(&self) {
        self.0.reset.store(true, Release);
        self.kick();
    }

    /// Has a raw admin command sent. The answer comes to the receiver.
    pub(crate) fn admin_command(&self, sqe: Sqe, data: Vec<u8>) -> Receiver<Answer> {
        let (tell, answer) = sync_channel(1);
        self.0.raw_commands().push_back(RawCommand { sqe, data, tell });
        self.kick();
        answer
    }

    /// A queue of a file without a thread.
    pub(crate) fn adopt(&self, queue: Box<dyn Orphan>) {
        lock(&self.0.orphans).push(queue);
        self.kick();
    }

    /// A mode was asked for whose coalescing there is not.
    pub(crate) fn refuse_coalescing(&self) {
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

impl Asks {
    /// What the device's users are told.
    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        lock(&self.health)
    }

    /// Queues of a file that have lost their thread since this was last asked.
    pub(crate) fn take_orphans(&self) -> Vec<Box<dyn Orphan>> {
        std::mem::take(&mut lock(&self.orphans))
    }

    pub(crate) fn raw_commands(&self) -> MutexGuard<'_, VecDeque<RawCommand>> {
        lock(&self.raw_commands)
    }

    /// Whether a reset was asked for since this was last asked.
    pub(crate) fn take_reset(&self) -> bool {
        self.reset.swap(false, Relaxed)
    }

    /// Whether nobody uses the device any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }
}
