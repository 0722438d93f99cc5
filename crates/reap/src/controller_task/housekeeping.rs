//! The housekeeping thread: one per process, for everything that is not I/O.
//!
//! It owns the admin queues of all open controllers: bring-up, asynchronous events, time-outs, aborts, resets, shutdown.
//! It sleeps until the next deadline, an admin vector's message, or a kick.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use driver::Inventory;
use hw::Poller;
use units::Nanos;

use super::{Charge, ControllerTask, Turn};
use crate::error::OpenError;
use crate::options::OpenOptions;
use crate::shared::control::Control;
use crate::shared::controller::Opened;
use crate::shared::events::EventSource;
use crate::shared::path_states::PathHandle;
use crate::shared::reports::Kick;
use crate::transport::RingController;

/// The housekeeping thread, as those find it who open a device. It runs as long as others have a [`Kick`] of its.
struct Housekeeper {
    arrivals: Mutex<Vec<Box<dyn Charge>>>,
    kick: Arc<Kick>,
}

static CURRENT: Mutex<Option<Arc<Housekeeper>>> = Mutex::new(None);

/// The key of the wake-up descriptor; controllers have the others.
const KEY_WAKE: u64 = 0;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's housekeeping thread, started if there is none.
fn shared() -> Result<Arc<Housekeeper>, OpenError> {
    let system = |source| OpenError::System { what: "housekeeping thread", source };
    let mut current = lock(&CURRENT);
    if let Some(housekeeper) = &*current {
        return Ok(housekeeper.clone());
    }
    let kick = Arc::new(Kick::new().map_err(system)?);
    let poller = Poller::new().map_err(system)?;
    poller.add(&*kick, KEY_WAKE).map_err(system)?;
    let housekeeper = Arc::new(Housekeeper { arrivals: Mutex::default(), kick });
    let worker = Worker { me: housekeeper.clone(), charges: Vec::new(), poller, events: Vec::new(), next_key: KEY_WAKE + 1 };
    thread::Builder::new().name("reap-housekeep".into()).spawn(move || worker.run()).map_err(system)?;
    *current = Some(housekeeper.clone());
    Ok(housekeeper)
}

/// Brings the controller behind `controller` up, and has it looked after from then on.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn bring_up(
    controller: Arc<RingController>,
    path_handle: Option<PathHandle>,
    options: &OpenOptions,
) -> Result<(Opened, Inventory), OpenError> {
    let housekeeper = shared()?;
    let (tell, told) = mpsc::sync_channel(1);
    let source = match &path_handle {
        Some(path_handle) => EventSource::new(path_handle.path_states.events.clone(), Some(path_handle.path.index())),
        None => EventSource::new(Arc::default(), None),
    };
    let control = Control::new(housekeeper.kick.clone(), source);
    let keeper = ControllerTask::new(controller, path_handle, options, control, tell)?;
    housekeeper.adopts(Box::new(keeper));
    // From here on the controller task alone keeps the thread.
    drop(housekeeper);
    told.recv().unwrap_or_else(|_| {
        let source = io::Error::other("it ended before the controller was up");
        Err(OpenError::System { what: "housekeeping thread", source })
    })
}

/// Has a file looked after from now on: `controller task` makes what does, and what others ask it through is handed back.
///
/// # Errors
/// The system has no thread left.
pub(super) fn look_after(keeper: impl FnOnce(&Control) -> Box<dyn Charge>) -> Result<Control, OpenError> {
    let housekeeper = shared()?;
    let control = Control::new(housekeeper.kick.clone(), EventSource::new(Arc::default(), None));
    housekeeper.adopts(keeper(&control));
    Ok(control)
}

impl Housekeeper {
    fn adopts(&self, charge: Box<dyn Charge>) {
        lock(&self.arrivals).push(charge);
        self.kick.kick();
    }
}

struct Worker {
    me: Arc<Housekeeper>,
    charges: Vec<(u64, Box<dyn Charge>)>,
    poller: Poller,
    events: Vec<u64>,
    next_key: u64,
}

/// However the thread ends, nobody waits for it who has handed a controller over, and the next is opened by another.
struct End(Arc<Housekeeper>);

impl Drop for End {
    fn drop(&mut self) {
        let mut current = lock(&CURRENT);
        if current.as_ref().is_some_and(|housekeeper| Arc::ptr_eq(housekeeper, &self.0)) {
            *current = None;
        }
        drop(current);
        lock(&self.0.arrivals).clear();
    }
}

impl Worker {
    fn run(mut self) {
        hw::roam();
        let _end = End(self.me.clone());
        loop {
            self.me.kick.clear();
            self.adopt();
            let until = self.turn();
            if self.charges.is_empty() && self.is_forgotten() {
                return;
            }
            if !self.me.kick.arm() {
                let timeout = (until != Nanos::MAX).then(|| until - hw::now());
                if let Err(error) = self.poller.wait(timeout, &mut self.events) {
                    tracing::error!(%error, "the housekeeping thread cannot sleep");
                }
            }
            self.me.kick.mask();
        }
    }

    fn adopt(&mut self) {
        for mut charge in lock(&self.me.arrivals).drain(..) {
            let key = self.next_key;
            self.next_key += 1;
            if let Some(eventfd) = charge.vector()
                && let Err(source) = self.poller.add(eventfd, key)
            {
                charge.refuse(OpenError::System { what: "admin vector", source });
                continue;
            }
            self.charges.push((key, charge));
        }
    }

    /// One turn for each controller. When the next is due at the latest.
    fn turn(&mut self) -> Nanos {
        let mut until = Nanos::MAX;
        // Each by a clock of its own: what one turn took must not make the next controller look late.
        self.charges.retain_mut(|(_, charge)| match catch_unwind(AssertUnwindSafe(|| charge.turn(hw::now()))) {
            Ok(Turn::Until(instant)) => {
                until = until.min(instant);
                true
            }
            // Its eventfd is closed with it, and leaves the poller by that.
            Ok(Turn::Ended) => false,
            // It ends as one whose controller is lost, and the others are looked after as before.
            Err(_) => {
                tracing::error!("what looks after a device has panicked; the device is given up");
                false
            }
        });
        until
    }

    /// Whether nobody can hand over a controller any more. Decided under the lock under which the thread is found.
    fn is_forgotten(&self) -> bool {
        let mut current = lock(&CURRENT);
        // Its own two and the list's; devices that are being opened have another, and open ones have its kick.
        let forgotten = Arc::strong_count(&self.me) == 3 && Arc::strong_count(&self.me.kick) == 1;
        if forgotten {
            *current = None;
        }
        forgotten
    }
}

#[cfg(test)]
mod tests;
