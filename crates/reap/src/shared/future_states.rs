//! The state of each future of a queue. A *ticket* is the index of a future's state. A request may
//! move to another path, and its queue to another thread; the future keeps its ticket.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::request::Completion;

/// The states of the futures of one queue. The queue's thread issues and completes tickets; any
/// thread polls them.
#[derive(Debug, Default)]
pub(crate) struct FutureStates(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// By ticket.
    tickets: Vec<FutureState>,
    /// Tickets without a future.
    free: Vec<u32>,
}

#[derive(Debug)]
enum FutureState {
    Free,
    /// With a waker once the future has been polled.
    Waiting(Option<Waker>),
    /// The future was dropped; the request is still open.
    Dropped,
    Complete(Completion),
}

impl Table {
    /// Frees ticket `at`. Returns its last state.
    fn free_ticket(&mut self, at: u32) -> FutureState {
        self.free.push(at);
        self.tickets
            .get_mut(at as usize)
            .map_or(FutureState::Free, |ticket| std::mem::replace(ticket, FutureState::Free))
    }
}

impl FutureStates {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Issues a ticket for one future.
    pub(crate) fn issue(&self) -> u32 {
        let mut table = self.lock();
        let Table { tickets, free } = &mut *table;
        let at = free.pop().unwrap_or(tickets.len() as u32);
        match tickets.get_mut(at as usize) {
            Some(ticket) => *ticket = FutureState::Waiting(None),
            None => tickets.push(FutureState::Waiting(None)),
        }
        at
    }

    /// The request is finished. Returns the future's waker, which the caller calls without holding
    /// a lock.
    ///
    /// # Errors
    /// The future was dropped. Returns the completion, which the caller drops without holding a
    /// lock, because that may run the application's code.
    pub(crate) fn complete(
        &self,
        at: u32,
        completion: Completion,
    ) -> Result<Option<Waker>, Completion> {
        let mut table = self.lock();
        match table.tickets.get_mut(at as usize) {
            Some(ticket @ FutureState::Waiting(_)) => {
                match std::mem::replace(ticket, FutureState::Complete(completion)) {
                    FutureState::Waiting(waker) => Ok(waker),
                    _ => Ok(None),
                }
            }
            Some(FutureState::Dropped) => {
                // Freed only now, so that no new future could receive this completion.
                table.free_ticket(at);
                Err(completion)
            }
            _ => Err(completion),
        }
    }

    /// For a future that is polled: takes the completion, or stores the waker.
    ///
    /// # Errors
    /// The request is open. Returns the waker of the last poll, for the caller to drop without
    /// holding a lock.
    pub(crate) fn poll(&self, at: u32, waker: Waker) -> Result<Completion, Option<Waker>> {
        let mut table = self.lock();
        match table.tickets.get_mut(at as usize) {
            Some(FutureState::Waiting(before)) => Err(before.replace(waker)),
            Some(FutureState::Complete(_)) => match table.free_ticket(at) {
                FutureState::Complete(completion) => Ok(completion),
                _ => Err(Some(waker)),
            },
            _ => Err(Some(waker)),
        }
    }

    /// The future was dropped. Its request continues.
    pub(crate) fn drop_one(&self, at: u32) {
        let mut table = self.lock();
        let was = match table.tickets.get_mut(at as usize) {
            Some(ticket @ FutureState::Waiting(_)) => {
                std::mem::replace(ticket, FutureState::Dropped)
            }
            Some(FutureState::Complete(_)) => table.free_ticket(at),
            _ => return,
        };
        // Not under the lock: dropping a waker or a buffer may run the application's code, which
        // may poll another ticket.
        drop(table);
        drop(was);
    }
}

#[cfg(test)]
mod tests;
