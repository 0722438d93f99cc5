//! The sending half: messages in their order, and writes of which only the last value counts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::header::Flags;
use crate::request::{Access, Request};
use crate::socket::{Socket, SocketError};

/// What goes out.
pub(super) struct Out {
    socket: Socket,
    /// Writes that the socket has not taken: region, offset, value. Each place once, in the order of their first value.
    owed: Vec<(u32, u64, u32)>,
    /// Tells the thread that waits for room.
    wake: OwnedFd,
}

impl Out {
    pub(super) fn new(socket: Socket) -> io::Result<Out> {
        Ok(Out { socket, owed: Vec::new(), wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// What the thread that waits for room sleeps on.
    pub(super) fn wake(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// Wakes that thread.
    pub(super) fn stir(&self) {
        _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Whether something waits for room.
    pub(super) fn owes(&self) -> bool {
        self.socket.owes() || !self.owed.is_empty()
    }

    /// Writes 32 bits to a region, or owes it.
    pub(super) fn post(&mut self, region: u32, offset: u64, value: u32) -> Result<(), SocketError> {
        if self.owes() {
            match self.owed.iter_mut().find(|(r, o, _)| (*r, *o) == (region, offset)) {
                Some((_, _, last)) => *last = value,
                None => self.owed.push((region, offset, value)),
            }
            return Ok(());
        }
        self.socket.send(&write(region, offset, value))?;
        // What it did not take waits for room.
        if self.socket.owes() {
            self.stir();
        }
        Ok(())
    }

    /// Sends a message behind everything that is owed. False: it has descriptors, and the socket takes nothing now.
    pub(super) fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, SocketError> {
        let sent = match fds {
            [] => {
                // In this order: a write that comes after what was to follow it would be another one.
                for (region, offset, value) in std::mem::take(&mut self.owed) {
                    self.socket.send(&write(region, offset, value))?;
                }
                self.socket.send(bytes)?;
                true
            }
            fds if self.flush()? => match self.socket.send_with(bytes, fds) {
                Ok(()) => true,
                Err(SocketError::System(error)) if error.kind() == io::ErrorKind::WouldBlock => false,
                Err(error) => return Err(error),
            },
            _ => false,
        };
        if self.owes() {
            self.stir();
        }
        Ok(sent)
    }

    /// Sends what is owed, as far as the server takes it. Whether all of it has been sent.
    pub(super) fn flush(&mut self) -> Result<bool, SocketError> {
        while self.socket.flush()? {
            if self.owed.is_empty() {
                return Ok(true);
            }
            let (region, offset, value) = self.owed.remove(0);
            self.socket.send(&write(region, offset, value))?;
        }
        Ok(false)
    }
}

impl AsFd for Out {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A write that is not answered.
fn write(region: u32, offset: u64, value: u32) -> Vec<u8> {
    Request::RegionWrite(Access { offset, region, count: 4 }, &value.to_le_bytes()).to_bytes(0, Flags::NO_REPLY)
}
