//! The housekeeping thread: one per process, for everything that is not I/O.
//!
//! It owns the admin queues of all open controllers: bring-up, asynchronous events, time-outs, aborts, resets, shutdown.
//! It sleeps until the next deadline, an admin vector's message, or a kick.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;

use handover::Bell;
use hw::{EventFd, Poller};
use units::Nanos;

use crate::control::{Control, Keeper, Opened, Turn};
use crate::device::OpenOptions;
use crate::error::OpenError;
use crate::link::Link;

/// What others know of the housekeeping thread.
pub(crate) struct Housekeeper {
    arrivals: Mutex<Vec<Keeper>>,
    news: AtomicBool,
    bell: Bell,
    wake: EventFd,
}

static CURRENT: Mutex<Weak<Housekeeper>> = Mutex::new(Weak::new());

/// The key of the wake-up descriptor; controllers have the others.
const KEY_WAKE: u64 = 0;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Housekeeper {
    /// The process's housekeeping thread, started if there is none.
    pub(crate) fn shared() -> Result<Arc<Housekeeper>, OpenError> {
        let system = |source| OpenError::System { what: "housekeeping thread", source };
        let mut current = lock(&CURRENT);
        if let Some(housekeeper) = current.upgrade() {
            return Ok(housekeeper);
        }
        let housekeeper = Arc::new(Housekeeper {
            arrivals: Mutex::default(),
            news: AtomicBool::new(false),
            bell: Bell::new(),
            wake: EventFd::new().map_err(system)?,
        });
        let poller = Poller::new().map_err(system)?;
        poller.add(&housekeeper.wake, KEY_WAKE).map_err(system)?;
        let worker = Worker { me: housekeeper.clone(), keepers: Vec::new(), poller, events: Vec::new(), next_key: KEY_WAKE + 1 };
        thread::Builder::new().name("reap-housekeep".into()).spawn(move || worker.run()).map_err(system)?;
        *current = Arc::downgrade(&housekeeper);
        Ok(housekeeper)
    }

    /// Brings the controller of `link` up and looks after it from then on.
    pub(crate) fn open(self: Arc<Self>, link: Arc<Link>, options: &OpenOptions) -> Result<Opened, OpenError> {
        let (tell, told) = mpsc::sync_channel(1);
        let control = Control::new(self.clone());
        let keeper = Keeper::new(link, options, control, tell)?;
        lock(&self.arrivals).push(keeper);
        self.kick();
        told.recv().unwrap_or_else(|_| {
            let source = io::Error::other("it ended before the controller was up");
            Err(OpenError::System { what: "housekeeping thread", source })
        })
    }

    /// There is something to do that no vector tells of.
    pub(crate) fn kick(&self) {
        self.news.store(true, Release);
        if self.bell.ring_once() {
            self.wake.signal();
        }
    }
}

struct Worker {
    me: Arc<Housekeeper>,
    keepers: Vec<(u64, Keeper)>,
    poller: Poller,
    events: Vec<u64>,
    next_key: u64,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.me.news.swap(false, AcqRel);
            self.adopt();
            let until = self.turn();
            if self.keepers.is_empty() && self.is_forgotten() {
                return;
            }
            self.me.bell.arm();
            if !self.me.news.load(Acquire) {
                let timeout = (until != Nanos::MAX).then(|| until - hw::now());
                if let Err(error) = self.poller.wait(timeout, &mut self.events) {
                    tracing::error!(%error, "the housekeeping thread cannot sleep");
                }
            }
            self.me.bell.mask();
        }
    }

    fn adopt(&mut self) {
        for mut keeper in lock(&self.me.arrivals).drain(..) {
            let key = self.next_key;
            self.next_key += 1;
            if let Some(eventfd) = keeper.vector()
                && let Err(source) = self.poller.add(eventfd, key)
            {
                keeper.refuse(OpenError::System { what: "admin vector", source });
                continue;
            }
            self.keepers.push((key, keeper));
        }
    }

    /// One turn for each controller. When the next is due at the latest.
    fn turn(&mut self) -> Nanos {
        let now = hw::now();
        let mut until = Nanos::MAX;
        self.keepers.retain_mut(|(_, keeper)| match keeper.turn(now) {
            Turn::Until(instant) => {
                until = until.min(instant);
                true
            }
            // Its eventfd is closed with it, and leaves the poller by that.
            Turn::Ended => false,
        });
        until
    }

    /// Whether nobody can hand over a controller any more. Decided under the lock under which the thread is found.
    fn is_forgotten(&self) -> bool {
        let mut current = lock(&CURRENT);
        let forgotten = Arc::strong_count(&self.me) == 1;
        if forgotten {
            *current = Weak::new();
        }
        forgotten
    }
}
