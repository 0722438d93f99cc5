//! The requests of a software queue and their states, each in a slot that is reused once the
//! request has completed. The number of slots grows to the maximum number of requests that there
//! were at one time.

use units::{Nanos, Op};

use super::{PathId, PathSet};

/// Identifies a request until it has completed. A slot counts its uses, so that its next 2^32 - 1
/// requests have other identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    slot: u32,
    uses: u32,
}

impl RequestId {
    /// Packs the identifier into a number: the token of the request's command on a path.
    pub fn to_bits(self) -> u64 {
        u64::from(self.uses) << 32 | u64::from(self.slot)
    }

    /// Unpacks a number.
    pub fn from_bits(bits: u64) -> RequestId {
        RequestId { slot: bits as u32, uses: (bits >> 32) as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// No request; the next free slot.
    Free(u32),
    /// In flight.
    Sent(PathId),
    /// A write of unknown outcome on a lost path, held until the controller can no longer execute
    /// it.
    Held(PathId),
    /// To be sent at the next poll.
    Ready,
    /// Waiting for a usable path.
    Waiting,
    /// A Flush: index into [`super::flush::Flushes`].
    Flush(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequestSlot {
    /// The caller's token of the request.
    pub(super) token: u64,
    pub(super) state: RequestState,
    uses: u32,
    pub(super) op: Op,
    /// The request has failed, been held, or found no path: its [`RetryState`] is valid.
    pub(super) retrying: bool,
}

/// Further state of a request that has failed, been held, or found no path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryState {
    /// When it first failed, or found no path.
    pub(super) since: Nanos,
    /// Since when it has been waiting for a path, or held.
    pub(super) waiting_since: Nanos,
    /// Paths on which it failed.
    pub(super) avoid: PathSet,
    /// Retries after error statuses.
    pub(super) tries: u8,
    /// A write was in flight on this path when it was lost or reset: it may have been executed.
    pub(super) lost_on: Option<PathId>,
}

#[derive(Clone, Debug)]
pub(super) struct Slots {
    list: Vec<RequestSlot>,
    /// Retry states by slot. They are in a list of their own, so that slots stay small.
    retries: Vec<RetryState>,
    free: u32,
}

const END: u32 = u32::MAX;

impl Slots {
    pub(super) fn with_capacity(requests: usize) -> Slots {
        let mut slots = Slots {
            list: Vec::with_capacity(requests),
            retries: Vec::with_capacity(requests),
            free: END,
        };
        for _ in 0..requests {
            slots.grow();
        }
        slots
    }

    #[cold]
    fn grow(&mut self) {
        let slot = self.list.len() as u32;
        self.list.push(RequestSlot {
            token: 0,
            state: RequestState::Free(self.free),
            uses: 0,
            op: Op::Read,
            retrying: false,
        });
        self.retries.push(RetryState::default());
        self.free = slot;
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn capacity(&self) -> usize {
        self.list.len()
    }

    /// Adds a request.
    #[inline]
    pub(super) fn insert(&mut self, token: u64, op: Op, state: RequestState) -> RequestId {
        if self.free == END {
            self.grow();
        }
        let id = self.free;
        // Cannot fail: the free list holds only slots of `list`. If it did, an identifier that no
        // slot has is better than a panic.
        let Some(slot) = self.list.get_mut(id as usize) else {
            return RequestId { slot: END, uses: 0 };
        };
        if let RequestState::Free(next) = slot.state {
            self.free = next;
        }
        (slot.token, slot.state, slot.op, slot.retrying) = (token, state, op, false);
        RequestId { slot: id, uses: slot.uses }
    }

    #[inline]
    pub(super) fn get(&self, id: RequestId) -> Option<&RequestSlot> {
        self.list
            .get(id.slot as usize)
            .filter(|slot| slot.uses == id.uses && !matches!(slot.state, RequestState::Free(_)))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut RequestSlot> {
        self.list
            .get_mut(id.slot as usize)
            .filter(|slot| slot.uses == id.uses && !matches!(slot.state, RequestState::Free(_)))
    }

    /// The slot and retry state of a request; a new retry state begins at `now`.
    pub(super) fn ensure_retry(
        &mut self,
        id: RequestId,
        now: Nanos,
    ) -> Option<(&mut RequestSlot, &mut RetryState)> {
        let slot = self
            .list
            .get_mut(id.slot as usize)
            .filter(|slot| slot.uses == id.uses && !matches!(slot.state, RequestState::Free(_)))?;
        let retry = self.retries.get_mut(id.slot as usize)?;
        if !std::mem::replace(&mut slot.retrying, true) {
            *retry = RetryState { since: now, ..RetryState::default() };
        }
        Some((slot, retry))
    }

    /// The retry state of a request, if it has one.
    pub(super) fn retry_of(&self, id: RequestId) -> Option<&RetryState> {
        self.get(id).filter(|slot| slot.retrying)?;
        self.retries.get(id.slot as usize)
    }

    /// Removes a request that is in flight on this path and has never failed: the usual completion.
    #[inline]
    pub(super) fn take_sent(&mut self, id: RequestId, path: PathId) -> Option<(u64, Op)> {
        let slot = self.list.get_mut(id.slot as usize)?;
        // A request that has failed before is left to the slow path (`close`), which also records
        // how long the request was stalled.
        if slot.uses != id.uses || slot.state != RequestState::Sent(path) || slot.retrying {
            return None;
        }
        (slot.state, slot.uses) = (RequestState::Free(self.free), id.uses.wrapping_add(1));
        self.free = id.slot;
        Some((slot.token, slot.op))
    }

    /// Removes a request.
    #[inline]
    pub(super) fn remove(&mut self, id: RequestId) {
        let free = self.free;
        if let Some(slot) = self.get_mut(id) {
            // The slot's uses are counted, so that a late completion of this request finds
            // nothing.
            (slot.state, slot.uses) = (RequestState::Free(free), slot.uses.wrapping_add(1));
            self.free = id.slot;
        }
    }

    /// All requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &RequestSlot)> {
        self.list
            .iter()
            .enumerate()
            .filter(|(_, slot)| !matches!(slot.state, RequestState::Free(_)))
            .map(|(n, slot)| (RequestId { slot: n as u32, uses: slot.uses }, slot))
    }
}
