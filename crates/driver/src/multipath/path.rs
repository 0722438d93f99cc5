//! The state of each path, the path sets derived from it, and the state as the controller's task
//! reports it.

use nvme::AnaState;
use units::Nanos;

use super::{PathId, PathSet};
use crate::Inventory;

/// Properties of a path, from bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathTraits {
    /// How long the controller of a lost path may still execute commands. `None`: until it has been
    /// reset. See [`PathTraits::quiesce_after`].
    pub quiesce_after: Option<Nanos>,
    /// ANATT: the longest duration of the ANA state Change.
    pub ana_transition: Nanos,
    /// The controller has a volatile write cache: its writes are durable only after a Flush on this
    /// path.
    pub volatile_cache: bool,
}

impl PathTraits {
    /// The properties of a controller that has been brought up.
    pub fn of(inventory: &Inventory) -> PathTraits {
        let subsystem = &inventory.subsystem;
        PathTraits {
            quiesce_after: PathTraits::quiesce_after(
                inventory.keep_alive,
                subsystem.traffic_keep_alive,
                subsystem.quiesce_time,
            ),
            ana_transition: subsystem.ana_transition.unwrap_or(Nanos::ZERO),
            volatile_cache: inventory.limits.is_some_and(|limits| limits.volatile_cache),
        }
    }

    /// How long a host must wait after it lost a controller (Base 9.6). The Keep Alive Timer must
    /// have expired with certainty since the last Keep Alive, which takes two time-outs, or three
    /// if any traffic restarts it (CTRATT.TBKAS). Then the Command Quiesce Time (CQT) must pass.
    /// `None`: without keep-alive there is no bound.
    pub fn quiesce_after(
        keep_alive: Nanos,
        traffic_based: bool,
        quiesce_time: Nanos,
    ) -> Option<Nanos> {
        let timeouts = if traffic_based { 3 } else { 2 };
        // Saturating, as all arithmetic of `Nanos`.
        (keep_alive > Nanos::ZERO)
            .then(|| Nanos(keep_alive.0.saturating_mul(timeouts)) + quiesce_time)
    }
}

/// State of the connection to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The controller is being brought up, and has no commands of this host.
    Connecting,
    /// The controller is up and accepts commands.
    Live,
    /// The controller is being reset: it accepts no commands; those in flight may still complete or
    /// be executed.
    Resetting,
    /// The controller does not answer; commands in flight may still be executed.
    Lost,
}

/// Preference of an ANA state, best first.
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

/// Status of a path, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// State of the connection.
    pub link: Link,
    /// ANA state of the namespace's group, as far as known.
    pub ana: AnaState,
    /// The path's controller reports the expected size of the namespace.
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
    /// The path's controller reports the expected size of the namespace.
    pub(super) fits: bool,
    /// [`super::WriteMarks::losses`] when the path was last brought up.
    pub(super) losses: u64,
    /// When the state Change exceeds ANATT; MAX: not in that state.
    pub(super) ana_deadline: Nanos,
    /// When the controller of a lost path executes no more commands; MAX: unknown.
    pub(super) quiesced_at: Nanos,
    /// When the path was lost, or its reset began.
    pub(super) down_since: Nanos,
}

/// All paths of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    list: Vec<Path>,
    /// Paths that are up and accessible: a Flush can be sent on them.
    pub(super) reachable: PathSet,
    /// The paths in `reachable` with the expected size.
    pub(super) usable: PathSet,
    /// The paths in `usable` on which requests are sent: those in state Optimized, or, if there are
    /// none, those in state Non-Optimized.
    pub(super) best: PathSet,
    /// The earliest time at which a path changes without an event.
    pub(super) deadline: Nanos,
}

impl Paths {
    /// Paths that are not up yet.
    pub(super) fn new(traits: &[PathTraits]) -> Paths {
        let path = |&traits| Path {
            traits,
            link: Link::Connecting,
            // No requests until bring-up has read the log page.
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

    /// Changes a path and recomputes the sets. `None`: no such path.
    pub(super) fn change<T>(
        &mut self,
        path: PathId,
        change: impl FnOnce(&mut Path) -> T,
    ) -> Option<T> {
        let changed = change(self.list.get_mut(path.index())?);
        let those = |wanted: &dyn Fn(&Path) -> bool| {
            let live = self.iter().filter(|(_, p)| p.link == Link::Live && wanted(p));
            live.fold(PathSet::NONE, |set, (id, _)| set.with(id))
        };
        // Recomputed on each change, so that submitting reads one word.
        let ranked = |rank| those(&|p| p.fits && AnaRank::of(p.ana) == rank);
        let (optimized, other) = (ranked(AnaRank::Best), ranked(AnaRank::Second));
        // The size does not matter here: a Flush names no blocks.
        let reachable = those(&|p| p.ana.is_accessible());
        self.best = if optimized.is_empty() { other } else { optimized };
        (self.usable, self.reachable) = (PathSet(optimized.0 | other.0), reachable);
        // Folded here, so that `next_deadline` need not visit the paths.
        self.deadline = self
            .list
            .iter()
            .map(|p| p.ana_deadline.min(p.quiesced_at))
            .fold(Nanos::MAX, Nanos::min);
        Some(changed)
    }
}

/// The state of a path, as its controller's task publishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSnapshot {
    /// Number of changes of `link`. A queue that has applied fewer of them must first reap all
    /// completions of the path.
    pub life: u32,
    /// State of the connection.
    pub link: Link,
    /// ANA state of the namespace's group.
    pub ana: AnaState,
    /// The path's controller reports the expected size of the namespace.
    pub fits: bool,
}

/// Result of [`super::Failover::update_path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUpdate {
    /// Applied.
    Applied,
    /// Applied, and the path has come up: latencies measured before are obsolete.
    CameUp,
    /// Not applied yet: call again when every command sent on the path has completed.
    Deferred,
}

impl PathSnapshot {
    /// A path that was never up.
    pub const NEVER_UP: PathSnapshot =
        PathSnapshot { life: 0, link: Link::Connecting, ana: AnaState::OPTIMIZED, fits: true };

    /// The state after a change of `link`.
    #[must_use]
    pub fn with_link(self, link: Link) -> PathSnapshot {
        PathSnapshot { life: self.life.wrapping_add(1), link, ..self }
    }
}
