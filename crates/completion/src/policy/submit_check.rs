//! `+submit-check`: a look at the queue after each commit.
//!
//! Proposed for queue pairs that serve several software queues (linux-nvme, November 2019, "poll IO after batch
//! submission"): the thread that has just submitted is awake anyway, a look at the phase costs one load, and what it
//! finds needs no interrupt. The lock is only tried, and only when an entry is pending.

use super::work::WEIGHT;
use crate::{Check, Mode};

/// What follows each commit in this mode. A constant of the mode, so that asking costs no branch.
pub(super) fn after_commit(mode: Mode) -> Check {
    if mode.submit_check() { Check::TryLook { budget: WEIGHT } } else { Check::No }
}
