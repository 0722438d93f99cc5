//! Eventfds: how a sleeping thread is told.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A counter that polls readable while it is not zero. Non-blocking; a signal given before the sleep still ends it.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Adds one.
    #[inline]
    pub fn signal(&self) {
        // The only failure is a counter at its end, which is as readable as a counter gets.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// The same counter, by another descriptor.
    ///
    /// # Errors
    /// Too many open files.
    pub fn try_clone(&self) -> io::Result<EventFd> {
        Ok(EventFd(self.0.try_clone()?))
    }

    /// Takes the count, leaving zero: how many signals there were since the last time. An edge-triggered
    /// [`Poller`](crate::Poller) reports every new signal whether or not this is called.
    #[inline]
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
