//! How a path stands in the words of its controller's keeper, and how a software queue's failover is told.
//!
//! A keeper that says that a path is lost, or has stopped, has given back everything that was in flight there before; but it may
//! still be on its way to the queue that sent it. Until it has arrived the failover is told no more than that nothing is to be
//! sent there: else a request would be sent again, and its old completion taken for the new one's.

use nvme::AnaState;
use units::Nanos;

use super::{Failover, Link, PathId};

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

impl Failover {
    /// How `path` stands now, where it was told last what `seen` says. `drained`: nothing that was sent there is on its way.
    pub fn hear(&mut self, now: Nanos, path: PathId, seen: &mut Standing, standing: Standing, drained: impl FnOnce() -> bool) -> Heard {
        if standing == *seen {
            return Heard::All;
        }
        if standing.fits != seen.fits {
            self.size_fits(now, path, standing.fits);
            seen.fits = standing.fits;
        }
        if standing.life == seen.life {
            self.ana_changed(now, path, standing.ana);
            *seen = standing;
            return Heard::All;
        }
        if seen.link == Link::Live || standing.link == Link::Resetting {
            // Whatever it has become since: nothing more is sent there before it is known.
            self.path_resetting(now, path);
            seen.link = Link::Resetting;
        }
        if standing.link != Link::Resetting && !drained() {
            return Heard::Later;
        }
        *seen = standing;
        match standing.link {
            Link::Live => {
                self.path_up(now, path, standing.ana);
                return Heard::Up;
            }
            Link::Resetting => {}
            Link::Lost => self.path_lost(now, path),
            Link::Connecting => self.quiesced(now, path),
        }
        Heard::All
    }
}
