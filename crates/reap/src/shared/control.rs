//! What others ask of the thread that looks after a controller, from any thread.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::admin::Identify;

use super::hw_queue::HwQueue;
use super::reports::{Kick, Reporter};
use crate::error::IdentifyError;
use crate::health::Health;

/// The handle by which others reach the thread that looks after a controller. Dropping it closes the device.
pub(crate) struct Control(Arc<Asks>);

/// What is asked, for the thread that does it.
pub(crate) struct Asks {
    health: Mutex<Health>,
    reset: AtomicBool,
    closing: AtomicBool,
    /// Software queues that were dropped with requests in flight, and those that were taken, in order.
    changes: Mutex<Vec<Change>>,
    questions: Mutex<VecDeque<Question>>,
    pub reporter: Reporter,
}

/// A software queue changes hands.
pub(crate) enum Change {
    Orphaned(Arc<HwQueue>, u8),
    Taken(Arc<HwQueue>, u8),
}

/// 4096 bytes, or why there are none.
pub(crate) type Answer = Result<Box<[u8; Identify::LEN]>, IdentifyError>;

/// What a caller asks the controller.
pub(crate) struct Question {
    pub what: Identify,
    tell: SyncSender<Answer>,
}

impl Question {
    /// Tells the caller, who may have stopped waiting.
    pub(crate) fn answer(self, answer: Answer) {
        _ = self.tell.try_send(answer);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(kick: Arc<Kick>) -> Control {
        Control(Arc::new(Asks {
            health: Mutex::default(),
            reset: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            changes: Mutex::default(),
            questions: Mutex::default(),
            reporter: Reporter::new(kick),
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

    /// Asks the controller. The answer comes to the receiver.
    pub(crate) fn identify(&self, what: &Identify) -> Receiver<Answer> {
        let (tell, answer) = sync_channel(1);
        lock(&self.0.questions).push_back(Question { what: *what, tell });
        self.kick();
        answer
    }

    /// A software queue without a thread: what it has in flight is reaped until there is nothing left.
    pub(crate) fn orphan(&self, queue: &Arc<HwQueue>, me: u8) {
        if queue.softs[usize::from(me)].open() > 0 {
            self.0.changes().push(Change::Orphaned(queue.clone(), me));
            self.kick();
        }
    }

    /// A software queue has a thread, which looks after whatever the last one left in flight.
    pub(crate) fn taken(&self, queue: &Arc<HwQueue>, me: u8) {
        self.0.changes().push(Change::Taken(queue.clone(), me));
        self.kick();
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

    pub(crate) fn changes(&self) -> MutexGuard<'_, Vec<Change>> {
        lock(&self.changes)
    }

    pub(crate) fn questions(&self) -> MutexGuard<'_, VecDeque<Question>> {
        lock(&self.questions)
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
