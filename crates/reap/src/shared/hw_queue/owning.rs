//! A hardware queue that belongs to one thread, and what others ask of that.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::HwQueue;
use crate::link::{Lane, Owner};

impl HwQueue {
    /// Whether the thread that has taken it is the only one that may use its lanes.
    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        self.lane.owner().is_some()
    }

    /// Whether one thread alone may use its lanes, and there is none.
    pub(crate) fn lacks_its_owner(&self) -> bool {
        self.lane.owner().is_some_and(Owner::is_nobody)
    }

    /// It belongs to the calling thread (true), or to nobody, where one thread alone may use its lanes.
    pub(crate) fn belongs(&self, to_this_thread: bool) {
        self.lanes().filter_map(Lane::owner).for_each(|owner| if to_this_thread { owner.begin() } else { owner.end() });
    }

    /// What another thread wants and only the owner may do, which is told if it sleeps.
    #[cold]
    pub(super) fn ask_owner(&self) {
        self.errand.store(true, Release);
        self.softs.iter().for_each(|soft| soft.tell());
    }

    /// The owner: whether it was asked since it last asked this.
    #[inline]
    pub(crate) fn take_errand(&self) -> bool {
        self.errand.load(Acquire) && self.errand.swap(false, AcqRel)
    }
}
