//! The socket: bytes and descriptors. It waits only where it is asked to.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    sendmsg,
};

use crate::codec::{Assembler, Malformed, Message, Region};

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// What came cannot be followed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The peer asks and does not read what it is answered.
    #[error("the peer reads no answers: {0} bytes wait for it")]
    Deaf(usize),
    /// The system says so.
    #[error("the connection is broken: {0}")]
    System(#[from] io::Error),
}

/// What came.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Message<OwnedFd>),
    /// Nothing more for the moment.
    Nothing,
    /// The peer has closed the connection.
    End,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Socket {
    stream: Arc<UnixStream>,
    assembler: Assembler<OwnedFd>,
    /// There was no room for descriptors of the message that is read now.
    lost_fds: bool,
    unsent: Vec<u8>,
}

impl Socket {
    /// Descriptors that a message may have.
    pub const MOST_FDS: usize = Region::MOST_AREAS;

    /// Answers that wait for a peer at most. One that asks more and reads none of it is given up.
    const MOST_UNSENT: usize = 1 << 20;

    /// On a connection, for messages of at most this many bytes. It is made non-blocking.
    ///
    /// # Errors
    /// What `fcntl` says.
    pub fn new(stream: impl Into<Arc<UnixStream>>, most_bytes: u32) -> io::Result<Socket> {
        let stream = stream.into();
        stream.set_nonblocking(true)?;
        Ok(Socket { stream, assembler: Assembler::new(most_bytes, Socket::MOST_FDS), lost_fds: false, unsent: Vec::new() })
    }

    /// The next message, if it is there.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub fn receive(&mut self) -> Result<Received, SocketError> {
        loop {
            let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Socket::MOST_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut control);
            let space = self.assembler.space();
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = match recvmsg(&*self.stream, &mut [IoSliceMut::new(space)], &mut control, flags) {
                Ok(got) => got,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Ok(Received::End),
                Err(errno) => return Err(io::Error::from(errno).into()),
            };
            // The descriptors that were let in are closed with this.
            let fds = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            let fds: Vec<OwnedFd> = fds.flatten().collect();
            if got.flags.contains(ReturnFlags::CTRUNC) {
                // The kernel fills the room that it is given, unless it cannot open another file (`scm_detach_fds`).
                if fds.len() >= Socket::MOST_FDS {
                    return Err(Malformed::Descriptors { most: Socket::MOST_FDS }.into());
                }
                self.lost_fds = true;
            }
            if got.bytes == 0 {
                return Ok(Received::End);
            }
            if let Some(message) = self.assembler.filled(got.bytes, fds)? {
                return Ok(Received::Message(Message { lost_fds: std::mem::take(&mut self.lost_fds), ..message }));
            }
        }
    }

    /// Sends a message after those that wait, as far as the peer takes it; the rest waits.
    ///
    /// # Errors
    /// The connection is of no more use; or the message has descriptors, which do not wait, and the peer takes nothing at the moment.
    pub fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        self.flush()?;
        let sent = if self.unsent.is_empty() { self.write(bytes, fds)? } else { 0 };
        if sent == 0 && !fds.is_empty() {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        self.unsent.extend(bytes.get(sent..).unwrap_or_default());
        if self.unsent.len() > Socket::MOST_UNSENT {
            return Err(SocketError::Deaf(self.unsent.len()));
        }
        Ok(())
    }

    /// Sends what waits, as far as the peer takes it. Whether all of it has been sent.
    ///
    /// # Errors
    /// As of [`Socket::send`].
    pub fn flush(&mut self) -> Result<bool, SocketError> {
        while !self.unsent.is_empty() {
            match self.write(&self.unsent, &[])? {
                0 => return Ok(false),
                sent => drop(self.unsent.drain(..sent)),
            }
        }
        Ok(true)
    }

    /// Waits until something has come, or there is room for what waits to be sent; so long at most.
    ///
    /// # Errors
    /// What `poll` says.
    pub fn wait(&self, most: Duration) -> io::Result<()> {
        let looked_for = if self.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let most = Timespec::try_from(most).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&*self.stream, looked_for)], Some(&most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// How much was taken; 0: nothing at the moment.
    fn write(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Socket::MOST_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            match sendmsg(&*self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests;
