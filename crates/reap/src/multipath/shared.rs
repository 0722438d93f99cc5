//! What the threads of a multipath device share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use driver::multipath::{FailoverConfig, MultipathCounters, PathStatus, PathTraits};
use driver::paths::{PathId, Paths, Selector};
use emu::PathControl;
#[cfg(feature = "testing")]
use emu::{Change, NoSuchPath, Script};
use hw::DmaPool;
use units::Nanos;

use super::uri::{MultipathUri, PathUri};
use crate::error::{QueueError, Refused};
use crate::namespace::Namespace;
use crate::request::Request;
use crate::shared::controller::{Description, OpenController};
use crate::shared::path_states::PathStates;
use crate::transport::Count;

/// An open multipath device.
pub(crate) struct Multipath {
    pub(super) controllers: Arc<[OpenController]>,
    pub(super) uri: MultipathUri,
    pub(super) path_states: Arc<PathStates>,
    pub(super) selector: Arc<Paths>,
    pub(super) failover: FailoverConfig,
    pub(super) traits: Vec<PathTraits>,
    /// The one namespace as callers see it, and as each path's controller does.
    pub(super) namespaces: [Namespace; 1],
    pub(super) path_namespaces: Vec<Namespace>,
    pub(super) number: u32,
    pub(super) pool: DmaPool,
    pub(super) description: Description,
    /// Free software queues, in descending order, so that the lowest is taken first.
    pub(super) free: Mutex<Vec<usize>>,
    pub(super) software_queues: usize,
    pub(super) nodes: hw::Nodes,
    /// By software queue and path.
    pub(super) path_counters: Box<[CachePadded<PathCounters>]>,
    pub(super) counters: Mutex<Vec<MultipathCounters>>,
    #[cfg_attr(
        not(feature = "testing"),
        expect(dead_code, reason = "only tests change a path while it is in use")
    )]
    pub(super) control: PathControl,
}

/// Counters of one software queue on one path. They continue when another thread takes the queue.
#[derive(Default)]
pub(crate) struct PathCounters {
    pub(super) sent: Count,
    pub(super) ended: Count,
    pub(super) failed: Count,
    /// Nanoseconds, over all that ended.
    pub(super) time: Count,
}

/// A path of a multipath device, as a report shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathReport {
    /// Its URI.
    pub uri: String,
    /// Its state, and the ANA state of the namespace there.
    pub status: PathStatus,
    /// Requests sent on it that have completed, including those that failed over.
    pub ios: u64,
    /// Of these, the ones that failed on this path.
    pub failed: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// The sum of all completed requests' latencies, from the doorbell until they were reaped.
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
    /// Takes a software queue for a thread; returned by [`Multipath::give_back`].
    ///
    /// # Errors
    /// All of them are in use.
    pub(super) fn take(&self) -> Result<usize, QueueError> {
        // From the end: the lowest index.
        lock(&self.free).pop().ok_or(QueueError::AllTaken { queues: self.software_queues })
    }

    /// The path selector of a software queue.
    pub(super) fn selector_for(&self, index: usize) -> Selector {
        let mut selector = Selector::new(self.selector.clone(), index);
        selector.set_node(self.nodes.of(hw::current_cpu()));
        selector
    }

    pub(super) fn give_back(&self, index: usize) {
        lock(&self.free).push(index);
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// The namespace with its present size.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        // Another device's namespace stays as it is; using it here is refused later.
        if namespace.device() == self.number {
            namespace.with_blocks(self.path_states.blocks())
        } else {
            *namespace
        }
    }

    /// The controllers, one for each path.
    pub(crate) fn controllers(&self) -> &Arc<[OpenController]> {
        &self.controllers
    }

    pub(crate) fn selector(&self) -> &Paths {
        &self.selector
    }

    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// Checks a request; see [`Request::check`].
    #[inline]
    pub(super) fn check(&self, request: Request) -> (Result<(), Refused>, Request) {
        let (checked, request) = request.check(&self.pool);
        (checked.and_then(|()| self.check_namespace(&request)), request)
    }

    #[inline]
    fn check_namespace(&self, request: &Request) -> Result<(), Refused> {
        if request.namespace.device() != self.number {
            return Err(Refused::NoNamespace(request.namespace.nsid().0));
        }
        match &request.buf {
            // One pool for all paths, so one check is enough.
            Some(buf) if !buf.is_of(self.pool.key()) => Err(Refused::ForeignBuffer),
            _ => Ok(()),
        }
    }

    /// The counters of a software queue, by path.
    #[inline]
    pub(super) fn path_counters(&self, index: usize) -> &[CachePadded<PathCounters>] {
        let paths = self.controllers.len();
        self.path_counters.get(index * paths..).and_then(|all| all.get(..paths)).unwrap_or_default()
    }

    pub(super) fn keep_counters(&self, index: usize, counters: impl FnOnce() -> MultipathCounters) {
        if let Some(kept) = lock(&self.counters).get_mut(index) {
            *kept = counters();
        }
    }

    /// Failover counters over all software queues, as of their last wait.
    pub(crate) fn counters(&self) -> MultipathCounters {
        lock(&self.counters)
            .iter()
            .copied()
            .fold(MultipathCounters::default(), MultipathCounters::merged)
    }

    /// The state and counters of each path.
    pub(crate) fn report(&self) -> Vec<PathReport> {
        let paths = self.controllers.len();
        let report = |(n, path): (usize, &PathUri)| {
            let of = |field: fn(&PathCounters) -> &Count| -> u64 {
                self.path_counters
                    .iter()
                    .skip(n)
                    .step_by(paths)
                    .map(|counters| field(counters).get())
                    .sum()
            };
            // `ended` first: what is sent in between makes `in_flight` too large, never negative.
            let (ended, sent) = (of(|p| &p.ended), of(|p| &p.sent));
            let snapshot = self.path_states.snapshot(PathId(n as u8));
            PathReport {
                uri: path.text.clone(),
                status: PathStatus { link: snapshot.link, ana: snapshot.ana, fits: snapshot.fits },
                ios: ended,
                failed: of(|p| &p.failed),
                in_flight: sent.saturating_sub(ended),
                time: Nanos(of(|p| &p.time)),
            }
        };
        self.uri.paths.iter().enumerate().map(report).collect()
    }

    /// Fails requests that wait for a path or for a retry, instead of waiting for time-outs. Each
    /// controller notifies its queues.
    pub(crate) fn fail_pending(&self) {
        // Waiting requests first, then those that wait for a retry below.
        self.path_states.fail_pending();
        self.controllers.iter().for_each(OpenController::fail_retries);
    }

    pub(super) fn request_refresh(&self, path: PathId) {
        self.path_states.request_refresh(path);
        self.wake_task(path);
    }

    pub(super) fn request_reset(&self, path: PathId) {
        self.path_states.request_reset(path);
        self.wake_task(path);
    }

    fn wake_task(&self, path: PathId) {
        if let Some(controller) = self.controllers.get(path.index()) {
            controller.wake_task();
        }
    }

    /// Applies a change to a path's embedded controller.
    #[cfg(feature = "testing")]
    pub(crate) fn change(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.control.apply(path, change)?;
        self.kick_device();
        Ok(())
    }

    /// Plays a script of changes, beginning now.
    #[cfg(feature = "testing")]
    pub(crate) fn play(&self, script: &Script) -> Result<(), NoSuchPath> {
        self.control.play(script, hw::now())?;
        self.kick_device();
        Ok(())
    }

    /// Wakes the threads of embedded controllers, which may sleep: one for all of them, or with
    /// `thread=own` one for each.
    pub(super) fn kick_device(&self) {
        self.controllers
            .iter()
            .filter_map(|controller| controller.transport().end())
            .for_each(|end| end.kick());
    }
}
