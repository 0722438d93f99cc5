//! Multipath: several controllers of one subsystem as one device (`multipath:?path=URI&path=URI…`).
//!
//! | question | file |
//! | --- | --- |
//! | what does a multipath URI mean? | `uri.rs` |
//! | how are the paths opened and joined? | `open.rs` |
//! | what becomes of one request? | `head.rs` (and `driver::multipath`, which decides) |
//! | what does one thread have? | `queue.rs` |
//! | who is told of a path that comes or goes? | `board.rs` |
//! | what do futures wait for? | `tickets.rs` |
//!
//! Each path is a device of its own, with queues of its own, below; requests, failover and the choice of a path are above
//! them. All paths reach the same buffer pool.

mod board;
mod head;
mod open;
mod queue;
mod tickets;
mod uri;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blkmq::paths::{PathId, Paths, Place};
use crossbeam_utils::CachePadded;
use device::{Change, NoSuchPath, PathControl, Script};
use driver::multipath::{Counters, Failover, FailoverConfig, PathStatus, PathTraits};
use hw::DmaPool;
use units::Nanos;

use crate::device::{Description, Single};
use crate::engine;
use crate::error::{QueueError, Refused};
use crate::namespace::Namespace;
use crate::request::Request;

pub(crate) use board::{Board, Seat};
pub(crate) use open::open;
pub(crate) use queue::Queue;
pub(crate) use tickets::Tickets;
pub(crate) use uri::SCHEME;
pub use uri::{MultipathUri, PathUri};

/// An open multipath device.
pub(crate) struct Multipath {
    singles: Vec<Single>,
    uri: MultipathUri,
    board: Arc<Board>,
    selector: Paths,
    failover: FailoverConfig,
    traits: Vec<PathTraits>,
    /// The one namespace, as callers see it, and as each path does.
    namespaces: [Namespace; 1],
    path_namespaces: Vec<Namespace>,
    number: u32,
    pool: DmaPool,
    description: Description,
    /// Software queues that nobody has, in descending order.
    free: Mutex<Vec<usize>>,
    software_queues: usize,
    nodes: hw::Nodes,
    /// By software queue and path.
    tallies: Box<[CachePadded<Tally>]>,
    counters: Mutex<Vec<Counters>>,
    control: PathControl,
}

/// What one software queue has sent by one path, and what came back. It goes on when another thread has the queue.
#[derive(Default)]
pub(crate) struct Tally {
    sent: Count,
    ended: Count,
    failed: Count,
    /// Nanoseconds, over all that ended.
    time: Count,
}

/// A count that one thread at a time adds to, without a locked instruction, and that others read at any time.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A path of a multipath device, as a report shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathReport {
    /// Its URI.
    pub uri: String,
    /// Its link, and the ANA state of the namespace there.
    pub status: PathStatus,
    /// Requests that were sent by it and have ended, those that failed over included.
    pub ios: u64,
    /// Of these, the ones that did not end well there.
    pub failed: u64,
    /// Requests that are on their way.
    pub in_flight: u64,
    /// The time that all that ended took together, from the doorbell until they were found.
    pub time: Nanos,
}

impl PathReport {
    /// The mean latency.
    pub fn latency(&self) -> Nanos {
        Nanos(self.time.0.checked_div(self.ios).unwrap_or(0))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Multipath {
    /// A software queue for one thread: one of each path's.
    pub(crate) fn queue(self: &Arc<Self>) -> Result<Queue, QueueError> {
        let index = lock(&self.free).pop().ok_or(QueueError::AllTaken { queues: self.software_queues })?;
        self.queue_at(index).inspect_err(|_| lock(&self.free).push(index))
    }

    fn queue_at(self: &Arc<Self>, index: usize) -> Result<Queue, QueueError> {
        let system = |source| QueueError::System { what: "epoll instance", source };
        let lanes = self.singles.iter().map(Single::queue).collect::<Result<Vec<_>, _>>()?;
        let place = engine::Place::new().map_err(system)?;
        for (key, lane) in (0..).zip(&lanes) {
            place.poller().add(lane, key).map_err(system)?;
        }
        // The number of paths was checked when they were joined.
        let failover = Failover::new(self.failover, &self.traits, &self.board.marks, index, 256);
        let failover = failover.map_err(|e| QueueError::System { what: "failover", source: std::io::Error::other(e) })?;
        let head = head::Head::new(self, failover, self.place(index));
        Ok(Queue::new(self.clone(), index, lanes, place, head))
    }

    /// Where the requests of a software queue come from.
    fn place(&self, index: usize) -> Place {
        let cpu = hw::current_cpu();
        self.selector.place(index as u16, cpu as u16, 0, self.nodes.of(cpu))
    }

    fn give_back(&self, index: usize) {
        lock(&self.free).push(index);
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// The same namespace in the size that it has now.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        if namespace.device() == self.number { namespace.with_blocks(self.board.blocks()) } else { *namespace }
    }

    pub(crate) fn pool(&self) -> &DmaPool {
        &self.pool
    }

    pub(crate) fn singles(&self) -> &[Single] {
        &self.singles
    }

    pub(crate) fn selector(&self) -> &Paths {
        &self.selector
    }

    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// Whether a request can be carried out on this device.
    #[inline]
    fn check(&self, request: &Request) -> Result<(), Refused> {
        request.check()?;
        if request.namespace.device() != self.number {
            return Err(Refused::NoNamespace(request.namespace.nsid().0));
        }
        match &request.buf {
            Some(buf) if !self.pool.owns(buf) => Err(Refused::ForeignBuffer),
            _ => Ok(()),
        }
    }

    /// Of a software queue, by path.
    #[inline]
    fn tallies(&self, index: usize) -> &[CachePadded<Tally>] {
        let paths = self.singles.len();
        self.tallies.get(index * paths..).and_then(|all| all.get(..paths)).unwrap_or_default()
    }

    fn keep_counters(&self, index: usize, counters: impl FnOnce() -> Counters) {
        if let Some(kept) = lock(&self.counters).get_mut(index) {
            *kept = counters();
        }
    }

    /// What has gone wrong and was made good, over all software queues, as of their last wait.
    pub(crate) fn counters(&self) -> Counters {
        lock(&self.counters).iter().copied().fold(Counters::default(), Counters::and)
    }

    /// How each path stands, and what it has done.
    pub(crate) fn report(&self) -> Vec<PathReport> {
        let paths = self.singles.len();
        let report = |(n, path): (usize, &PathUri)| {
            let of =
                |field: fn(&Tally) -> &Count| -> u64 { self.tallies.iter().skip(n).step_by(paths).map(|tally| field(tally).get()).sum() };
            let (ended, sent) = (of(|p| &p.ended), of(|p| &p.sent));
            let standing = self.board.standing(PathId(n as u8));
            PathReport {
                uri: path.text.clone(),
                status: PathStatus { link: standing.link, ana: standing.ana, fits: standing.fits },
                ios: ended,
                failed: of(|p| &p.failed),
                in_flight: sent.saturating_sub(ended),
                time: Nanos(of(|p| &p.time)),
            }
        };
        self.uri.paths.iter().enumerate().map(report).collect()
    }

    /// Nobody waits any longer for what may never come. The paths' queues are told by their controllers.
    pub(crate) fn lose_patience(&self) {
        self.board.lose_patience();
        self.singles.iter().for_each(Single::lose_patience);
    }

    fn ask_news(&self, path: PathId) {
        self.board.ask_news(path);
        self.kick(path);
    }

    fn ask_reset(&self, path: PathId) {
        self.board.ask_reset(path);
        self.kick(path);
    }

    fn kick(&self, path: PathId) {
        if let Some(single) = self.singles.get(path.index()) {
            single.kick_keeper();
        }
    }

    /// Something happens to a path's embedded controller.
    pub(crate) fn change(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.control.apply(path, change)?;
        self.kick_device();
        Ok(())
    }

    /// The same by the clock, from now on.
    pub(crate) fn play(&self, script: &Script) -> Result<(), NoSuchPath> {
        self.control.play(script, hw::now())?;
        self.kick_device();
        Ok(())
    }

    /// The device thread may sleep.
    fn kick_device(&self) {
        if let Some(single) = self.singles.first() {
            single.kick_device();
        }
    }
}

#[cfg(test)]
mod tests;
