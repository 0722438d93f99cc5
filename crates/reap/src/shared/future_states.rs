//! What futures wait on. A request may change its path, and its software queue its thread; its future keeps its ticket.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::request::Completion;

/// The tickets of one queue: its thread issues and completes them, and threads that have futures poll them.
#[derive(Debug, Default)]
pub(crate) struct FutureStates(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    tickets: Vec<FutureState>,
    /// Those of them that are free.
    free: Vec<u32>,
}

#[derive(Debug)]
enum FutureState {
    Free,
    /// With a waker once the future has been polled.
    Waiting(Option<Waker>),
    /// The future was dropped.
    Dropped,
    Complete(Completion),
}

impl Table {
    /// The ticket `at` is free from now on; what it was.
    fn vacate(&mut self, at: u32) -> FutureState {
        self.free.push(at);
        self.tickets.get_mut(at as usize).map_or(FutureState::Free, |ticket| std::mem::replace(ticket, FutureState::Free))
    }
}

impl FutureStates {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ticket for one future.
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

    /// The request of a ticket that no future has was not accepted.
    #[cold]
    pub(crate) fn withdraw(&self, at: u32) {
        self.lock().vacate(at);
    }

    /// The request is finished. The waker to be called, outside every lock.
    ///
    /// # Errors
    /// No future has the ticket any more: the completion, whose end may be the application's code.
    pub(crate) fn complete(&self, at: u32, completion: Completion) -> Result<Option<Waker>, Completion> {
        let mut table = self.lock();
        match table.tickets.get_mut(at as usize) {
            Some(ticket @ FutureState::Waiting(_)) => match std::mem::replace(ticket, FutureState::Complete(completion)) {
                FutureState::Waiting(waker) => Ok(waker),
                _ => Ok(None),
            },
            Some(FutureState::Dropped) => {
                table.vacate(at);
                Err(completion)
            }
            _ => Err(completion),
        }
    }

    /// What a future's poll finds: its result, or the waker that it had left, which is dropped outside the lock.
    pub(crate) fn poll(&self, at: u32, waker: Waker) -> Result<Completion, Option<Waker>> {
        let mut table = self.lock();
        match table.tickets.get_mut(at as usize) {
            Some(FutureState::Waiting(before)) => Err(before.replace(waker)),
            Some(FutureState::Complete(_)) => match table.vacate(at) {
                FutureState::Complete(completion) => Ok(completion),
                _ => Err(Some(waker)),
            },
            _ => Err(Some(waker)),
        }
    }

    /// The future is gone; its request goes on without it.
    pub(crate) fn drop_one(&self, at: u32) {
        let mut table = self.lock();
        let was = match table.tickets.get_mut(at as usize) {
            Some(ticket @ FutureState::Waiting(_)) => std::mem::replace(ticket, FutureState::Dropped),
            Some(FutureState::Complete(_)) => table.vacate(at),
            _ => return,
        };
        drop(table);
        drop(was);
    }
}

#[cfg(test)]
mod tests;
