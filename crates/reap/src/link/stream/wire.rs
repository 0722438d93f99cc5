//! One end of a stream of bytes: a non-blocking socket whose buffers are as small as the system has them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};

use crate::uri::Wire;

/// Most bytes of a crumb: less than a command, more than a completion.
const CRUMB: u64 = 40;

/// One end of a stream.
pub(in crate::link) struct Socket {
    socket: OwnedFd,
    /// Crumbs: what decides how long the next is.
    crumbs: Option<AtomicU64>,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct Received {
    pub bytes: usize,
    /// Nothing more was there. The waiting thread is told of later bytes.
    pub drained: bool,
}

impl Socket {
    /// Both ends of a stream. `wire`: whether it is given crumbs.
    ///
    /// # Errors
    /// What `socketpair` says (too many open files).
    pub(in crate::link) fn pair(wire: Wire) -> io::Result<(Socket, Socket)> {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        let end = |socket: OwnedFd, seed| -> io::Result<Socket> {
            // The system rounds up to the least that it can do with.
            sockopt::set_socket_send_buffer_size(&socket, 1)?;
            Ok(Socket { socket, crumbs: (wire == Wire::Trickle).then(|| AtomicU64::new(seed)) })
        };
        Ok((end(here, 0)?, end(there, 1 << 32)?))
    }

    /// Sends as much as the socket takes now: how many bytes.
    pub(in crate::link) fn send(&self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match send(&self.socket, self.crumb(rest), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => sent += taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    // The other end is gone. What was to be sent is taken back with the reset that follows the time-out.
                    tracing::warn!(%error, "a stream takes no more bytes");
                    return bytes.len();
                }
            }
        }
        sent
    }

    fn crumb<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(crumbs) = &self.crumbs else { return bytes };
        let dice = SplitMix64::seed_from_u64(crumbs.fetch_add(1, Relaxed)).next_u64();
        &bytes[..bytes.len().min(1 + (dice % CRUMB) as usize)]
    }

    /// Receives what is there now, as far as `into` has room, which is not none.
    pub(in crate::link) fn recv(&self, into: &mut [u8]) -> Received {
        let room = into.len();
        loop {
            match recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
                // Less than there was room for: the socket was empty at that moment. The end of a stream is no more than that.
                Ok((bytes, _)) => return Received { bytes, drained: bytes < room },
                Err(Errno::INTR) => {}
                Err(_) => return Received { bytes: 0, drained: true },
            }
        }
    }

    /// Whether bytes are there to be received.
    pub(in crate::link) fn is_readable(&self) -> bool {
        matches!(recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((bytes, _)) if bytes > 0)
    }

    /// Receives what is there, for nobody.
    pub(in crate::link) fn discard(&self) {
        while !self.recv(&mut [0; 1024]).drained {}
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
