//! Rings whose entries are tampered with on their way.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use nvme::{Cid, CqSlots, Cqe, QueueId, SqSlots, Sqe, Status};

use super::fault::{Fault, Occasion};
use super::injector::{Injector, lock};
use super::posted::Posted;
use crate::Port;

/// A submission queue behind a [`super::FaultyPort`].
pub struct FaultySq<P: Port> {
    inner: P::Sq,
    port: Injector<P>,
    id: Arc<OnceLock<QueueId>>,
}

impl<P: Port> fmt::Debug for FaultySq<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultySq").field("id", &self.id.get()).finish_non_exhaustive()
    }
}

impl<P: Port> FaultySq<P> {
    pub(super) fn new(inner: P::Sq, port: Injector<P>) -> FaultySq<P> {
        FaultySq { inner, port, id: Arc::default() }
    }

    /// Where the queue learns its identifier.
    pub(super) fn id(&self) -> Arc<OnceLock<QueueId>> {
        self.id.clone()
    }
}

impl<P: Port> SqSlots for FaultySq<P> {
    fn store(&self, slot: u32, sqe: &Sqe) {
        self.inner.store(slot, sqe);
    }

    fn load(&self, slot: u32) -> Sqe {
        let sqe = self.inner.load(slot);
        let Some(&id) = self.id.get() else { return sqe };
        match self.port.throw(Occasion::Command, id, Some((id, sqe.cid()))) {
            None => sqe,
            // A command that the controller refuses without touching anything; the refusal is swallowed.
            Some(_) => {
                self.port.swallow(id, sqe.cid());
                Sqe { cid: sqe.cid, flags: u8::MAX, ..Sqe::default() }
            }
        }
    }
}

/// A completion queue behind a [`super::FaultyPort`].
pub struct FaultyCq<P: Port> {
    inner: P::Cq,
    port: Injector<P>,
    state: Arc<Mutex<Posted>>,
}

impl<P: Port> fmt::Debug for FaultyCq<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyCq").finish_non_exhaustive()
    }
}

impl<P: Port> FaultyCq<P> {
    pub(super) fn new(inner: P::Cq, port: Injector<P>, entries: u32) -> FaultyCq<P> {
        FaultyCq { inner, port, state: Arc::new(Mutex::new(Posted::new(entries))) }
    }

    pub(super) fn state(&self) -> Arc<Mutex<Posted>> {
        self.state.clone()
    }

    fn post(&self, state: &mut Posted, cqe: Cqe, status: Status) {
        self.inner.store(state.ring.slot(), &cqe.with_status(status, state.ring.phase()));
        state.ring.advance();
        state.last = Some(cqe.cid());
    }

    /// Whether there is room for an entry too many, as well in the ring as in the controller's idea of the head.
    fn can_double(&self, state: &mut Posted) -> bool {
        state.look_at(self.port.cq_head(state.id));
        state.ring.room(state.head) >= 2 && state.taken.checked_add_signed(state.shift - 1).is_some()
    }
}

impl<P: Port> CqSlots for FaultyCq<P> {
    fn store(&self, _slot: u32, cqe: &Cqe) {
        if self.port.is_fatal() {
            return;
        }
        let command = (QueueId(cqe.sq_id), cqe.cid());
        let mut state = lock(&self.state);
        if self.port.was_swallowed(command) {
            state.shift += 1;
            return;
        }
        let mut fault = self.port.throw(Occasion::Entry, command.0, Some(command));
        if fault == Some(Fault::DoubleEntry) && !self.can_double(&mut state) {
            self.port.take_back();
            fault = None;
        }
        let (mut sent, mut status) = (*cqe, cqe.status());
        match fault {
            Some(Fault::SwallowEntry) => {
                state.shift += 1;
                return;
            }
            Some(Fault::Fatal) => {
                drop(state);
                return self.port.fail();
            }
            Some(Fault::WrongPhase) => {
                self.inner.store(state.ring.slot(), &cqe.with_status(status, !state.ring.phase()));
                return state.ring.advance();
            }
            Some(Fault::StaleCid) => sent.cid = state.last.unwrap_or(Cid(cqe.cid ^ 0x8000)).0,
            Some(Fault::UnknownCid) => sent.cid = cqe.cid ^ 0x5a5a,
            Some(Fault::Status(instead)) => status = instead,
            Some(Fault::DoubleEntry) => {
                self.post(&mut state, sent, status);
                state.shift -= 1;
            }
            _ => {}
        }
        self.post(&mut state, sent, status);
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        self.inner.load(slot, phase)
    }

    fn is_new(&self, slot: u32, phase: bool) -> bool {
        self.inner.is_new(slot, phase)
    }
}
