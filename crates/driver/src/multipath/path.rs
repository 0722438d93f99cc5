//! What is known of each path, the sets that follow from it, and how it stands as its controller's task reports it.

use nvme::AnaState;
use units::Nanos;

use super::{PathId, PathSet};
use crate::Inventory;

/// What bring-up learnt of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathTraits {
    /// How long after a path was lost its controller can still carry out commands that it took; `None`: only a reset that
    /// was acknowledged ends that. See [`PathTraits::quiesce_after`].
    pub quiesce_after: Option<Nanos>,
    /// ANATT: the longest that the state Change lasts.
    pub ana_transition: Nanos,
    /// The controller has a volatile write cache: writes that completed here are durable only after a Flush here.
    pub volatile_cache: bool,
}

impl PathTraits {
    /// Of a controller that has come up.
    pub fn of(inventory: &Inventory) -> PathTraits {
        let subsystem = &inventory.subsystem;
        PathTraits {
            quiesce_after: PathTraits::quiesce_after(inventory.keep_alive, subsystem.traffic_keep_alive, subsystem.quiesce_time),
            ana_transition: subsystem.ana_transition.unwrap_or(Nanos::ZERO),
            volatile_cache: inventory.limits.is_some_and(|limits| limits.volatile_cache),
        }
    }

    /// How long a host has to wait after it lost a controller (Base 9.6): the Keep Alive Timer that started with the last
    /// Keep Alive has to have run out for certain, which takes two of its time-outs, three if any traffic restarts it
    /// (CTRATT.TBKAS); and then the Command Quiesce Time (CQT) has to pass. Without keep-alive there is no such time.
    pub fn quiesce_after(keep_alive: Nanos, traffic_based: bool, quiesce_time: Nanos) -> Option<Nanos> {
        let timeouts = if traffic_based { 3 } else { 2 };
        (keep_alive > Nanos::ZERO).then(|| Nanos(keep_alive.0.saturating_mul(timeouts)) + quiesce_time)
    }
}

/// The link to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It is being brought up for the first time, or again; nothing of ours is inside.
    Connecting,
    /// It takes commands.
    Live,
    /// It is being reset: it takes no commands, those inside may still complete or be carried out.
    Resetting,
    /// It does not answer; commands inside may still be carried out.
    Lost,
}

/// How good an ANA state is for sending, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnaRank {
    /// Optimized.
    Best,
    /// Non-Optimized.
    Second,
    /// Any other.
    Never,
}

impl AnaRank {
    fn of(state: AnaState) -> AnaRank {
        match state {
            AnaState::OPTIMIZED => AnaRank::Best,
            AnaState::NON_OPTIMIZED => AnaRank::Second,
            _ => AnaRank::Never,
        }
    }
}

/// A path as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// The link.
    pub link: Link,
    /// The ANA state of the namespace's group, as far as known.
    pub ana: AnaState,
    /// Its controller shows the namespace in the size that it has.
    pub fits: bool,
}

impl std::fmt::Display for PathStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.link {
            Link::Connecting => f.pad("connecting"),
            Link::Live if !self.fits => f.pad("other size"),
            Link::Live => self.ana.fmt(f),
            Link::Resetting => f.pad("resetting"),
            Link::Lost => f.pad("lost"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) traits: PathTraits,
    pub(super) link: Link,
    pub(super) ana: AnaState,
    /// Its controller shows the namespace in the size that it has.
    pub(super) fits: bool,
    /// How often its cache had been lost when it was last brought up.
    pub(super) losses: u64,
    /// When the state Change has lasted too long.
    pub(super) ana_deadline: Nanos,
    /// When the controller of a lost path can carry out nothing more; MAX: unknown.
    pub(super) quiesced_at: Nanos,
    /// When it was lost, or its reset began.
    pub(super) down_since: Nanos,
}

/// All paths of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    list: Vec<Path>,
    /// Live and accessible: a Flush can be sent there.
    pub(super) reachable: PathSet,
    /// Those of them that show the namespace in its size.
    pub(super) usable: PathSet,
    /// The best of them: Optimized, else Non-Optimized. What a request is sent on.
    pub(super) best: PathSet,
    /// The earliest instant at which a path changes by itself.
    pub(super) deadline: Nanos,
}

impl Paths {
    /// None of them is up yet.
    pub(super) fn new(traits: &[PathTraits]) -> Paths {
        let path = |&traits| Path {
            traits,
            link: Link::Connecting,
            ana: AnaState::CHANGE,
            fits: true,
            losses: 0,
            ana_deadline: Nanos::MAX,
            quiesced_at: Nanos::MAX,
            down_since: Nanos::ZERO,
        };
        Paths {
            list: traits.iter().map(path).collect(),
            reachable: PathSet::NONE,
            usable: PathSet::NONE,
            best: PathSet::NONE,
            deadline: Nanos::MAX,
        }
    }

    pub(super) fn get(&self, path: PathId) -> Option<&Path> {
        self.list.get(path.index())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PathId, &Path)> {
        (0..).map(PathId).zip(&self.list)
    }

    /// Changes a path and what follows from all of them. `None`: there is no such path.
    pub(super) fn change<T>(&mut self, path: PathId, change: impl FnOnce(&mut Path) -> T) -> Option<T> {
        let changed = change(self.list.get_mut(path.index())?);
        let those = |wanted: &dyn Fn(&Path) -> bool| {
            let live = self.iter().filter(|(_, p)| p.link == Link::Live && wanted(p));
            live.fold(PathSet::NONE, |set, (id, _)| set.with(id))
        };
        let ranked = |rank| those(&|p| p.fits && AnaRank::of(p.ana) == rank);
        let (optimized, other) = (ranked(AnaRank::Best), ranked(AnaRank::Second));
        let reachable = those(&|p| p.ana.is_accessible());
        self.best = if optimized.is_empty() { other } else { optimized };
        (self.usable, self.reachable) = (PathSet(optimized.0 | other.0), reachable);
        self.deadline = self.list.iter().map(|p| p.ana_deadline.min(p.quiesced_at)).fold(Nanos::MAX, Nanos::min);
        Some(changed)
    }
}

/// How a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Changes of the link so far.
    pub life: u32,
    /// The link.
    pub link: Link,
    /// The ANA state of the namespace's group.
    pub ana: AnaState,
    /// Its controller shows the namespace in the size that it has.
    pub fits: bool,
}

/// What a failover has made of a path's new standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It knows.
    All,
    /// It knows, and the path has come up: what was learnt of it before holds no more.
    Up,
    /// It has to be told again when everything that was sent there has come back.
    Later,
}

impl Standing {
    /// Of a path that was never up.
    pub const NEVER_UP: Standing = Standing { life: 0, link: Link::Connecting, ana: AnaState::OPTIMIZED, fits: true };

    /// The same after a change of the link.
    #[must_use]
    pub fn with_link(self, link: Link) -> Standing {
        Standing { life: self.life.wrapping_add(1), link, ..self }
    }
}
