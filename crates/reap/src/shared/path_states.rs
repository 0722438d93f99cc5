//! The states of the paths of a multipath device. The controllers' tasks write them; the device's
//! queues read them before each batch, and request resets and new ANA log pages here.
//!
//! ```text
//!  one word per path:   63..32 life     16 fits   15..8 link   7..0 ANA state
//!                       link changes    size      Connecting,  as the ANA log
//!                       so far          matches   Live, …      page says
//!
//!  task:   return all requests in flight to the inboxes → store the word (Release) → changes += 1
//!  queue:  changes? (Acquire) → read the words → take the inbox
//! ```
//!
//! So when a queue reads that a path is lost, its inbox has the completions of all requests that it
//! had sent on the path.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::Namespace;
use driver::multipath::{Link, PathSnapshot, PathStatus, WriteMarks};
use driver::paths::{PathId, PathSet};
use nvme::fabrics::CrossControllerReset;
use nvme::{AnaState, Nsid};
use units::Nanos;

use super::events::{EventKind, EventLog};

fn to_word(snapshot: PathSnapshot) -> u64 {
    let link = match snapshot.link {
        Link::Connecting => 0,
        Link::Live => 1,
        Link::Resetting => 2,
        Link::Lost => 3,
    };
    u64::from(snapshot.life) << 32
        | u64::from(snapshot.fits) << 16
        | link << 8
        | u64::from(snapshot.ana.0)
}

fn from_word(word: u64) -> PathSnapshot {
    let link = match word >> 8 & 0xff {
        0 => Link::Connecting,
        1 => Link::Live,
        2 => Link::Resetting,
        _ => Link::Lost,
    };
    PathSnapshot {
        life: (word >> 32) as u32,
        link,
        ana: AnaState(word as u8),
        fits: word >> 16 & 1 == 1,
    }
}

/// The state of one path.
struct PathState {
    /// [`PathSnapshot`] as one word, so that it is read and written as a whole.
    snapshot: AtomicU64,
    /// The size of the namespace in logical blocks, as the path's controller last reported it.
    blocks: AtomicU64,
    /// A queue wants the ANA log page to be read.
    wants_refresh: AtomicBool,
    /// A queue wants the controller to be reset.
    wants_reset: AtomicBool,
}

/// A Cross-Controller Reset: another path is to reset the controller of a lost path.
struct CrossReset {
    /// The lost path.
    path: PathId,
    /// The command, which names the controller of the association that was lost.
    command: CrossControllerReset,
    /// Paths that have tried.
    tried: PathSet,
    state: CrossResetState,
}

#[derive(Clone, Copy, PartialEq)]
enum CrossResetState {
    Wanted,
    /// A path is sending the command.
    Taken,
    /// This path has reset the controller, which executes no command any more.
    Done(PathId),
}

/// The controller has not reported a size yet.
const UNKNOWN_SIZE: u64 = u64::MAX;

/// The path states of one multipath device.
pub(crate) struct PathStates {
    paths: Box<[PathState]>,
    /// Number of changes of all paths. Before each batch a queue reads only this counter.
    changes: AtomicU64,
    /// The namespace, and its ANA group (0: none). Set when the paths are joined; `nsid` is 0
    /// before.
    nsid: AtomicU64,
    group: AtomicU64,
    /// The size of the namespace in logical blocks: the last new size that any controller has
    /// reported.
    blocks: AtomicU64,
    /// Writes that no Flush has covered yet.
    pub marks: WriteMarks,
    /// See [`PathStates::fail_pending`].
    fails_pending: AtomicBool,
    /// At most one for each lost path. Only the housekeeping thread uses them.
    cross_resets: Mutex<Vec<CrossReset>>,
    /// The event log of the device.
    pub events: Arc<EventLog>,
    /// The keep-alive time-out that is set on every controller.
    pub keep_alive: Nanos,
}

impl PathStates {
    /// `paths` paths, none of which is up yet, for `queues` software queues.
    pub(crate) fn new(paths: usize, queues: usize, keep_alive: Nanos) -> PathStates {
        let state = |_| PathState {
            snapshot: AtomicU64::new(to_word(PathSnapshot::NEVER_UP)),
            blocks: AtomicU64::new(UNKNOWN_SIZE),
            wants_refresh: AtomicBool::new(false),
            wants_reset: AtomicBool::new(false),
        };
        PathStates {
            paths: (0..paths).map(state).collect(),
            changes: AtomicU64::new(0),
            nsid: AtomicU64::new(0),
            group: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            marks: WriteMarks::new(queues, paths),
            fails_pending: AtomicBool::new(false),
            cross_resets: Mutex::default(),
            events: Arc::default(),
            keep_alive,
        }
    }

    /// Number of changes so far. One load.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// The state of a path.
    pub(crate) fn snapshot(&self, path: PathId) -> PathSnapshot {
        // `3 << 8`: a path that does not exist is lost.
        from_word(self.paths.get(path.index()).map_or(3 << 8, |state| state.snapshot.load(Acquire)))
    }

    /// Sets the namespace that the paths lead to, once they are joined.
    pub(crate) fn set_namespace(&self, namespace: &Namespace) {
        self.blocks.store(namespace.blocks, Release);
        self.group.store(namespace.ana_group.into(), Release);
        // Last: a reader that sees the identifier sees size and group too.
        self.nsid.store(namespace.nsid.0.into(), Release);
    }

    /// The namespace's size in logical blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Acquire)
    }

    fn change(&self, path: PathId, change: impl Fn(PathSnapshot) -> PathSnapshot) {
        let Some(state) = self.paths.get(path.index()) else { return };
        // The housekeeping thread is the only writer, so a load and a store do.
        let before = from_word(state.snapshot.load(Relaxed));
        let after = change(before);
        if after != before {
            state.snapshot.store(to_word(after), Release);
            self.changes.fetch_add(1, AcqRel);
        }
        let status = |of: PathSnapshot| PathStatus { link: of.link, ana: of.ana, fits: of.fits };
        // No events while the device is being opened.
        if status(after) != status(before) && self.nsid.load(Acquire) != 0 {
            self.events.push(Some(path.index()), EventKind::Path(status(after)));
        }
    }

    /// From now on requests that no path can take fail, instead of waiting for a path.
    pub(crate) fn fail_pending(&self) {
        self.fails_pending.store(true, Release);
        // Queues read `fails_pending` only after a change.
        self.changes.fetch_add(1, AcqRel);
    }

    /// Whether [`PathStates::fail_pending`] was called. That call counts as a change.
    pub(crate) fn fails_pending(&self) -> bool {
        self.fails_pending.load(Acquire)
    }

    fn request(&self, path: PathId, flag: fn(&PathState) -> &AtomicBool) {
        if let Some(path) = self.paths.get(path.index()) {
            flag(path).store(true, Release);
        }
    }

    /// Requests that the path's task read the ANA log page and report the namespace's size.
    pub(crate) fn request_refresh(&self, path: PathId) {
        self.request(path, |path| &path.wants_refresh);
    }

    /// Requests a reset of the path's controller.
    pub(crate) fn request_reset(&self, path: PathId) {
        self.request(path, |path| &path.wants_reset);
    }
}

/// One path, for its controller's task.
#[derive(Clone)]
pub(crate) struct PathHandle {
    pub path_states: Arc<PathStates>,
    pub path: PathId,
}

impl PathHandle {
    /// Sets the state of the connection.
    pub(crate) fn set_link(&self, link: Link) {
        self.path_states.change(self.path, |was| was.with_link(link));
    }

    /// Sets the ANA state from the path's ANA log page (Base §5.1.12.1.13).
    pub(crate) fn set_ana(&self, log: &nvme::log::ana::AnaLog) {
        let group = self.path_states.group.load(Acquire) as u32;
        if let Some(ana) = log.state_of(group) {
            self.path_states.change(self.path, |was| PathSnapshot { ana, ..was });
        }
    }

    /// The path's controller reports this size. If the size is new, it is the namespace's size from
    /// now on: after a resize some controller is the first to report the new size. Paths whose
    /// controllers report another size are not used until they report the new size too.
    pub(crate) fn set_blocks(&self, nsid: Nsid, blocks: u64) {
        let Some(state) = self.path_states.paths.get(self.path.index()) else { return };
        if self.path_states.nsid.load(Acquire) != u64::from(nsid.0)
            || state.blocks.swap(blocks, AcqRel) == blocks
        {
            return;
        }
        // 0: the namespace is detached from this controller, or was replaced there. The other
        // controllers still have it.
        let size = if blocks == 0 { self.path_states.blocks() } else { blocks };
        for (n, state) in (0..).zip(&self.path_states.paths) {
            let shown = state.blocks.load(Acquire);
            self.path_states.change(PathId(n), |was| PathSnapshot {
                fits: shown == size || shown == UNKNOWN_SIZE,
                ..was
            });
        }
        // Last: a reader of the new size sees that paths with the old one are not used.
        self.path_states.blocks.store(size, Release);
    }

    /// The namespace of the device; 0 before the paths are joined.
    pub(crate) fn nsid(&self) -> Nsid {
        Nsid(self.path_states.nsid.load(Acquire) as u32)
    }

    /// The size that a controller reports after a reconnect. This does not resize the namespace,
    /// because the controller may be another one than before: if the size differs from the
    /// namespace's, the path is not used.
    pub(crate) fn set_reconnected_size(&self, nsid: Nsid, blocks: u64) {
        let Some(state) = self.path_states.paths.get(self.path.index()) else { return };
        if self.nsid() == nsid {
            state.blocks.store(blocks, Release);
            self.path_states.change(self.path, |was| PathSnapshot {
                fits: blocks == self.path_states.blocks(),
                ..was
            });
        }
    }

    /// The controller has lost the contents of its volatile cache. Call it before the path is set
    /// live.
    pub(crate) fn cache_lost(&self) {
        self.path_states.marks.cache_lost(self.path);
    }

    /// Whether a refresh was requested since the last call.
    pub(crate) fn take_refresh_request(&self) -> bool {
        self.take(|state| &state.wants_refresh)
    }

    /// Whether a reset was requested since the last call.
    pub(crate) fn take_reset_request(&self) -> bool {
        self.take(|state| &state.wants_reset)
    }

    fn cross_resets(&self) -> MutexGuard<'_, Vec<CrossReset>> {
        self.path_states.cross_resets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This path is lost: requests that another path reset its controller.
    pub(crate) fn want_cross_reset(&self, command: CrossControllerReset) {
        self.forget_cross_reset();
        let (path, state) = (self.path, CrossResetState::Wanted);
        self.cross_resets().push(CrossReset { path, command, tried: PathSet::NONE, state });
    }

    /// The path's controller has stopped: no other path need reset it.
    pub(crate) fn forget_cross_reset(&self) {
        self.cross_resets().retain(|reset| reset.path != self.path);
    }

    /// The path that has reset this path's controller. Returned once.
    pub(crate) fn take_reset_by(&self) -> Option<PathId> {
        let mut resets = self.cross_resets();
        let at = resets.iter().position(|reset| reset.path == self.path)?;
        let CrossResetState::Done(by) = resets[at].state else { return None };
        resets.swap_remove(at);
        Some(by)
    }

    /// Takes a reset that this path is to send: the lost path, and the command.
    pub(crate) fn take_cross_reset(&self) -> Option<(PathId, CrossControllerReset)> {
        let mut resets = self.cross_resets();
        let wanted = |reset: &&mut CrossReset| {
            reset.state == CrossResetState::Wanted
                && reset.path != self.path
                && !reset.tried.contains(self.path)
        };
        let reset = resets.iter_mut().find(wanted)?;
        (reset.tried, reset.state) = (reset.tried.with(self.path), CrossResetState::Taken);
        Some((reset.path, reset.command))
    }

    /// Ends a reset that [`PathHandle::take_cross_reset`] has returned. `done`: the controller was
    /// reset; otherwise another path tries. Does nothing if the lost path has another association
    /// by now.
    pub(crate) fn end_cross_reset(
        &self,
        (path, command): (PathId, CrossControllerReset),
        done: bool,
    ) {
        let same = |reset: &&mut CrossReset| (reset.path, reset.command) == (path, command);
        if let Some(reset) = self.cross_resets().iter_mut().find(same) {
            reset.state =
                if done { CrossResetState::Done(self.path) } else { CrossResetState::Wanted };
        }
    }

    fn take(&self, flag: fn(&PathState) -> &AtomicBool) -> bool {
        self.path_states
            .paths
            .get(self.path.index())
            .is_some_and(|state| flag(state).swap(false, AcqRel))
    }
}
