//! What the housekeeping thread tells the queues of a multipath device about its paths, and what they ask of it.
//!
//! Each path has one word: how often its link has changed, what it is now, and its ANA state. Whoever writes it has given
//! back everything that was in flight before, so that a queue that reads "lost" has, or finds in its inbox, all the
//! requests that it had sent there.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use blkmq::paths::PathId;
use driver::multipath::{Link, Standing};
use nvme::AnaState;
use units::Nanos;

fn to_word(standing: Standing) -> u64 {
    let link = match standing.link {
        Link::Connecting => 0,
        Link::Live => 1,
        Link::Resetting => 2,
        Link::Lost => 3,
    };
    u64::from(standing.life) << 32 | link << 8 | u64::from(standing.ana.0)
}

fn from_word(word: u64) -> Standing {
    let link = match word >> 8 & 0xff {
        0 => Link::Connecting,
        1 => Link::Live,
        2 => Link::Resetting,
        _ => Link::Lost,
    };
    Standing { life: (word >> 32) as u32, link, ana: AnaState(word as u8) }
}

/// One path's place on the board.
struct Place {
    standing: AtomicU64,
    wants_ana: AtomicBool,
    wants_reset: AtomicBool,
}

/// The board of one multipath device.
pub(crate) struct Board {
    places: Box<[Place]>,
    /// Changes so far, of all paths: what queues look at before every batch.
    changes: AtomicU64,
    /// The ANA group of the namespace; 0: none.
    group: AtomicU64,
    /// The keep-alive time-out that is asked of every controller.
    pub keep_alive: Nanos,
}

impl Board {
    /// For `paths` paths, none of which is up.
    pub(crate) fn new(paths: usize, keep_alive: Nanos) -> Board {
        let place = |_| Place {
            standing: AtomicU64::new(to_word(Standing::NEVER_UP)),
            wants_ana: AtomicBool::new(false),
            wants_reset: AtomicBool::new(false),
        };
        Board { places: (0..paths).map(place).collect(), changes: AtomicU64::new(0), group: AtomicU64::new(0), keep_alive }
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

    /// The namespace's ANA group, once it is known.
    pub(crate) fn set_group(&self, group: u32) {
        self.group.store(group.into(), Release);
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
    }

    fn ask(&self, path: PathId, wish: fn(&Place) -> &AtomicBool) {
        if let Some(place) = self.places.get(path.index()) {
            wish(place).store(true, Release);
        }
    }

    /// A queue wants the path's ANA log page to be read.
    pub(crate) fn ask_ana(&self, path: PathId) {
        self.ask(path, |place| &place.wants_ana);
    }

    /// A queue wants the path's controller to be reset.
    pub(crate) fn ask_reset(&self, path: PathId) {
        self.ask(path, |place| &place.wants_reset);
    }
}

/// The housekeeping thread's side of one path.
#[derive(Clone)]
pub(crate) struct Seat {
    pub board: std::sync::Arc<Board>,
    pub path: PathId,
}

impl Seat {
    /// The link has changed.
    pub(crate) fn set_link(&self, link: Link) {
        tracing::debug!(path = self.path.0, ?link, "a path's link");
        self.board.change(self.path, |was| was.with_link(link));
    }

    /// The path's ANA log page says this.
    pub(crate) fn set_ana(&self, log: &nvme::log::ana::AnaLog) {
        let group = self.board.group.load(Acquire) as u32;
        if let Some(ana) = log.state_of(group) {
            tracing::debug!(path = self.path.0, %ana, "a path's ANA state");
            self.board.change(self.path, |was| Standing { ana, ..was });
        }
    }

    /// Whether the ANA log page is to be read.
    pub(crate) fn take_ana_wish(&self) -> bool {
        self.take(|place| &place.wants_ana)
    }

    /// Whether the controller is to be reset.
    pub(crate) fn take_reset_wish(&self) -> bool {
        self.take(|place| &place.wants_reset)
    }

    fn take(&self, wish: fn(&Place) -> &AtomicBool) -> bool {
        self.board.places.get(self.path.index()).is_some_and(|place| wish(place).swap(false, AcqRel))
    }
}
