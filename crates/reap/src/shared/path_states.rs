//! What the housekeeping thread tells the queues of a multipath device about its paths, and what they ask of it.
//!
//! Each path has one word: how often its link has changed, what it is now, and its ANA state. Its writer has given
//! back everything that was in flight before, so that a queue that reads "lost" has, or finds in its inbox, all the
//! requests that it had sent there.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use driver::Namespace;
use driver::multipath::{Link, PathStatus, Standing, WriteMarks};
use driver::paths::PathId;
use nvme::{AnaState, Nsid};
use units::Nanos;

use super::events::{EventKind, EventLog};

fn to_word(standing: Standing) -> u64 {
    let link = match standing.link {
        Link::Connecting => 0,
        Link::Live => 1,
        Link::Resetting => 2,
        Link::Lost => 3,
    };
    u64::from(standing.life) << 32 | u64::from(standing.fits) << 16 | link << 8 | u64::from(standing.ana.0)
}

fn from_word(word: u64) -> Standing {
    let link = match word >> 8 & 0xff {
        0 => Link::Connecting,
        1 => Link::Live,
        2 => Link::Resetting,
        _ => Link::Lost,
    };
    Standing { life: (word >> 32) as u32, link, ana: AnaState(word as u8), fits: word >> 16 & 1 == 1 }
}

/// One path's place on the path states.
struct PathState {
    standing: AtomicU64,
    /// The namespace's size in logical blocks, as its controller last said; [`UNTOLD`]: it has not.
    blocks: AtomicU64,
    wants_news: AtomicBool,
    wants_reset: AtomicBool,
}

/// No size.
const UNTOLD: u64 = u64::MAX;

/// The path states of one multipath device.
pub(crate) struct PathStates {
    places: Box<[PathState]>,
    /// Changes so far, of all paths: what queues look at before every batch.
    changes: AtomicU64,
    /// The namespace, and its ANA group (0: none): known when the paths are joined.
    nsid: AtomicU64,
    group: AtomicU64,
    /// The namespace's size in logical blocks: what the path said whose controller was the last to say something new.
    blocks: AtomicU64,
    /// Which writes no Flush has covered.
    pub marks: WriteMarks,
    /// See [`PathStates::lose_patience`].
    impatient: AtomicBool,
    /// What happens to the device.
    pub events: Arc<EventLog>,
    /// The keep-alive time-out that is asked of every controller.
    pub keep_alive: Nanos,
}

impl PathStates {
    /// For `paths` paths, none of which is up, and `queues` software queues.
    pub(crate) fn new(paths: usize, queues: usize, keep_alive: Nanos) -> PathStates {
        let place = |_| PathState {
            standing: AtomicU64::new(to_word(Standing::NEVER_UP)),
            blocks: AtomicU64::new(UNTOLD),
            wants_news: AtomicBool::new(false),
            wants_reset: AtomicBool::new(false),
        };
        PathStates {
            places: (0..paths).map(place).collect(),
            changes: AtomicU64::new(0),
            nsid: AtomicU64::new(0),
            group: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            marks: WriteMarks::new(queues, paths),
            impatient: AtomicBool::new(false),
            events: Arc::default(),
            keep_alive,
        }
    }

    /// Changes so far. One load: this is asked before every batch.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// How a path stands.
    pub(crate) fn standing(&self, path: PathId) -> Standing {
        from_word(self.places.get(path.index()).map_or(3 << 8, |place| place.standing.load(Acquire)))
    }

    /// What the paths have turned out to lead to.
    pub(crate) fn set_namespace(&self, namespace: &Namespace) {
        self.blocks.store(namespace.blocks, Release);
        self.group.store(namespace.ana_group.into(), Release);
        self.nsid.store(namespace.nsid.0.into(), Release);
    }

    /// The namespace's size in logical blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Acquire)
    }

    fn change(&self, path: PathId, change: impl Fn(Standing) -> Standing) {
        let Some(place) = self.places.get(path.index()) else { return };
        // One writer: the housekeeping thread.
        let before = from_word(place.standing.load(Relaxed));
        let after = change(before);
        if after != before {
            place.standing.store(to_word(after), Release);
            self.changes.fetch_add(1, AcqRel);
        }
        let status = |of: Standing| PathStatus { link: of.link, ana: of.ana, fits: of.fits };
        // Not while the device is opened.
        if status(after) != status(before) && self.nsid.load(Acquire) != 0 {
            self.events.push(Some(path.index()), EventKind::Path(status(after)));
        }
    }

    /// Nobody waits any longer for what may never come.
    pub(crate) fn lose_patience(&self) {
        self.impatient.store(true, Release);
        self.changes.fetch_add(1, AcqRel);
    }

    /// Whether [`PathStates::lose_patience`] was called: then that is among the changes.
    pub(crate) fn is_impatient(&self) -> bool {
        self.impatient.load(Acquire)
    }

    fn ask(&self, path: PathId, wish: fn(&PathState) -> &AtomicBool) {
        if let Some(place) = self.places.get(path.index()) {
            wish(place).store(true, Release);
        }
    }

    /// Somebody wants to hear how the path's controller sees the namespace: its ANA log page is read, its size told.
    pub(crate) fn ask_news(&self, path: PathId) {
        self.ask(path, |place| &place.wants_news);
    }

    /// A queue wants the path's controller to be reset.
    pub(crate) fn ask_reset(&self, path: PathId) {
        self.ask(path, |place| &place.wants_reset);
    }
}

/// The housekeeping thread's side of one path.
#[derive(Clone)]
pub(crate) struct PathHandle {
    pub path_states: Arc<PathStates>,
    pub path: PathId,
}

impl PathHandle {
    /// The link has changed.
    pub(crate) fn set_link(&self, link: Link) {
        self.path_states.change(self.path, |was| was.with_link(link));
    }

    /// The path's ANA log page says this.
    pub(crate) fn set_ana(&self, log: &nvme::log::ana::AnaLog) {
        let group = self.path_states.group.load(Acquire) as u32;
        if let Some(ana) = log.state_of(group) {
            self.path_states.change(self.path, |was| Standing { ana, ..was });
        }
    }

    /// The path's controller shows the namespace in this size. If that is news it is the size that the namespace has, and paths whose
    /// controllers show another are not used until they show this one: of several controllers, one is the first to be told. One that
    /// shows no blocks (the namespace is detached from it, or is not the same any more) says nothing of the others.
    pub(crate) fn set_blocks(&self, nsid: Nsid, blocks: u64) {
        let Some(place) = self.path_states.places.get(self.path.index()) else { return };
        if self.path_states.nsid.load(Acquire) != u64::from(nsid.0) || place.blocks.swap(blocks, AcqRel) == blocks {
            return;
        }
        let size = if blocks == 0 { self.path_states.blocks() } else { blocks };
        for (n, place) in (0..).zip(&self.path_states.places) {
            let shown = place.blocks.load(Acquire);
            self.path_states.change(PathId(n), |was| Standing { fits: shown == size || shown == UNTOLD, ..was });
        }
        // A reader of the new size finds that paths of the old one are not used.
        self.path_states.blocks.store(size, Release);
    }

    /// The namespace that the paths lead to; 0: they are not joined yet.
    pub(crate) fn nsid(&self) -> Nsid {
        Nsid(self.path_states.nsid.load(Acquire) as u32)
    }

    /// What serves the path's controller now shows the namespace in this size. It is not believed like a controller that tells of a change: in another
    /// size than the namespace has the path is not used.
    pub(crate) fn returns_with(&self, nsid: Nsid, blocks: u64) {
        let Some(place) = self.path_states.places.get(self.path.index()) else { return };
        if self.nsid() == nsid {
            place.blocks.store(blocks, Release);
            self.path_states.change(self.path, |was| Standing { fits: blocks == self.path_states.blocks(), ..was });
        }
    }

    /// The controller has lost what its cache held. Before it is said that the path is up.
    pub(crate) fn cache_lost(&self) {
        self.path_states.marks.cache_lost(self.path);
    }

    /// Whether somebody wants to hear of the namespace.
    pub(crate) fn take_news_wish(&self) -> bool {
        self.take(|place| &place.wants_news)
    }

    /// Whether the controller is to be reset.
    pub(crate) fn take_reset_wish(&self) -> bool {
        self.take(|place| &place.wants_reset)
    }

    fn take(&self, wish: fn(&PathState) -> &AtomicBool) -> bool {
        self.path_states.places.get(self.path.index()).is_some_and(|place| wish(place).swap(false, AcqRel))
    }
}
