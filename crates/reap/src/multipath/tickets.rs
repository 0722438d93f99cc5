//! What futures of a multipath device wait for. A request may change its path; its future keeps its ticket.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::request::Completion;

/// The tickets of all the queues of a device.
#[derive(Default)]
pub(crate) struct Tickets(Mutex<Vec<Ticket>>);

enum Ticket {
    Free,
    /// With a waker once the future has been polled.
    Waiting(Option<Waker>),
    /// The future was dropped.
    Dropped,
    Complete(Completion),
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, Vec<Ticket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ticket for one future.
    pub(super) fn issue(&self) -> u32 {
        let mut tickets = self.lock();
        let at = tickets.iter().position(|ticket| matches!(ticket, Ticket::Free)).unwrap_or_else(|| {
            tickets.push(Ticket::Free);
            tickets.len() - 1
        });
        if let Some(ticket) = tickets.get_mut(at) {
            *ticket = Ticket::Waiting(None);
        }
        at as u32
    }

    /// The request is finished. The waker to be called, outside every lock.
    pub(super) fn complete(&self, at: u32, completion: Completion) -> Option<Waker> {
        let mut tickets = self.lock();
        let ticket = tickets.get_mut(at as usize)?;
        match std::mem::replace(ticket, Ticket::Free) {
            Ticket::Waiting(waker) => {
                *ticket = Ticket::Complete(completion);
                waker
            }
            _ => {
                drop(tickets);
                None
            }
        }
    }

    /// What a future's poll finds: its result, or the waker that it had left, which is dropped outside the lock.
    pub(crate) fn poll(&self, at: u32, waker: Waker) -> Result<Completion, Option<Waker>> {
        let mut tickets = self.lock();
        let Some(ticket) = tickets.get_mut(at as usize) else { return Err(Some(waker)) };
        match std::mem::replace(ticket, Ticket::Free) {
            Ticket::Complete(completion) => Ok(completion),
            Ticket::Waiting(before) => {
                *ticket = Ticket::Waiting(Some(waker));
                Err(before)
            }
            other => {
                *ticket = other;
                Err(Some(waker))
            }
        }
    }

    /// The future is gone; its request goes on without it.
    pub(crate) fn drop_one(&self, at: u32) {
        let mut tickets = self.lock();
        let Some(ticket) = tickets.get_mut(at as usize) else { return };
        let was = std::mem::replace(ticket, Ticket::Free);
        if matches!(was, Ticket::Waiting(_)) {
            *ticket = Ticket::Dropped;
        }
        drop(tickets);
        drop(was);
    }
}
