//! What others ask of a controller's keeper, from any thread.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::ProtocolViolation;

use crate::health::Health;
use crate::housekeeping::Housekeeper;
use crate::hw_queue::HwQueue;

/// The handle by which others reach a controller's keeper. Dropping the last one of a device closes it.
pub(crate) struct Control(pub(super) Arc<Asks>);

pub(super) struct Asks {
    pub(super) housekeeper: Arc<Housekeeper>,
    pub(super) health: Mutex<Health>,
    pub(super) reset: AtomicBool,
    /// A moderated queue that was idle is not any more.
    pub(super) stirred: AtomicBool,
    pub(super) closing: AtomicBool,
    pub(super) violations: Mutex<Vec<ProtocolViolation>>,
    /// Software queues that were dropped with requests in flight, and those that were taken, in order.
    pub(super) changes: Mutex<Vec<Change>>,
}

/// A software queue changes hands.
pub(super) enum Change {
    Orphaned(Arc<HwQueue>, u8),
    Taken(Arc<HwQueue>, u8),
}

/// The part of [`Control`] that queues hold: it reports, and keeps nothing open.
#[derive(Clone)]
pub(crate) struct Reporter(pub(super) Arc<Asks>);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(housekeeper: Arc<Housekeeper>) -> Control {
        Control(Arc::new(Asks {
            housekeeper,
            health: Mutex::default(),
            reset: AtomicBool::new(false),
            stirred: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            violations: Mutex::default(),
            changes: Mutex::default(),
        }))
    }

    pub(crate) fn health(&self) -> Health {
        lock(&self.0.health).clone()
    }

    pub(crate) fn kick(&self) {
        self.0.housekeeper.kick();
    }

    pub(crate) fn ask_reset(&self) {
        self.0.reset.store(true, Release);
        self.0.housekeeper.kick();
    }

    /// Another mode was asked for: the controller may have to be told.
    pub(crate) fn mode_asked(&self) {
        self.0.housekeeper.kick();
    }

    /// A software queue without a thread: what it has in flight is reaped until there is nothing left.
    pub(crate) fn orphan(&self, queue: &Arc<HwQueue>, me: u8) {
        if queue.softs[usize::from(me)].open() > 0 {
            lock(&self.0.changes).push(Change::Orphaned(queue.clone(), me));
            self.0.housekeeper.kick();
        }
    }

    /// A software queue has a thread, which looks after whatever the last one left in flight.
    pub(crate) fn taken(&self, queue: &Arc<HwQueue>, me: u8) {
        lock(&self.0.changes).push(Change::Taken(queue.clone(), me));
        self.0.housekeeper.kick();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.closing.store(true, Release);
        self.0.housekeeper.kick();
    }
}

impl Reporter {
    /// Something has completed on a moderated queue that was idle.
    #[cold]
    pub(crate) fn stirred(&self) {
        self.0.stirred.store(true, Release);
        self.0.housekeeper.kick();
    }

    /// The controller broke the protocol on some queue.
    #[cold]
    pub(crate) fn violated(&self, violation: ProtocolViolation) {
        lock(&self.0.violations).push(violation);
        self.0.housekeeper.kick();
    }
}
