//! A non-blocking Unix socket for messages and file descriptors. Only [`Socket::wait`] blocks.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::codec::{Assembler, Malformed, Message, Region};

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The peer sent a message that breaks the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The peer sends requests and does not read the replies, and the maximum of unsent bytes is
    /// exceeded.
    #[error("the peer does not read replies: {0} bytes are unsent")]
    PeerNotReading(usize),
    /// A system call failed.
    #[error("the connection is broken: {0}")]
    System(#[from] io::Error),
}

/// Result of [`Socket::receive`].
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Message<OwnedFd>),
    /// There is no complete message yet.
    Nothing,
    /// The peer has closed the connection.
    End,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Socket {
    stream: Arc<UnixStream>,
    assembler: Assembler<OwnedFd>,
    /// The kernel dropped descriptors of the message being read.
    lost_fds: bool,
    /// Bytes of messages that the socket has not accepted yet.
    unsent: Vec<u8>,
}

impl Socket {
    /// Maximum number of descriptors in one message: the reply to GET_REGION_INFO has one for each
    /// mappable area of the region.
    pub const MAX_FDS: usize = Region::MAX_AREAS;

    /// Maximum number of unsent bytes. A peer that sends requests and never reads the replies is
    /// disconnected.
    const MAX_UNSENT: usize = 1 << 20;

    /// Takes a connection, for received messages of at most `max_bytes` bytes, and makes it
    /// non-blocking.
    ///
    /// # Errors
    /// The error of fcntl(2).
    pub fn new(stream: impl Into<Arc<UnixStream>>, max_bytes: u32) -> io::Result<Socket> {
        let stream = stream.into();
        // This makes every clone of the stream (`try_clone`) non-blocking, too.
        stream.set_nonblocking(true)?;
        Ok(Socket {
            stream,
            assembler: Assembler::new(max_bytes, Socket::MAX_FDS),
            lost_fds: false,
            unsent: Vec::new(),
        })
    }

    /// Receives the next message, if it is complete.
    ///
    /// # Errors
    /// After any error the caller must close the connection.
    pub fn receive(&mut self) -> Result<Received, SocketError> {
        loop {
            let mut control =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Socket::MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut control);
            // `space` ends with the message: a recvmsg(2) across two messages would mix their
            // descriptors.
            let space = self.assembler.space();
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got =
                match recvmsg(&*self.stream, &mut [IoSliceMut::new(space)], &mut control, flags) {
                    Ok(got) => got,
                    Err(Errno::AGAIN) => return Ok(Received::Nothing),
                    Err(Errno::INTR) => continue,
                    // The peer closed without reading everything: the same as end of file.
                    Err(Errno::CONNRESET) => return Ok(Received::End),
                    Err(errno) => return Err(io::Error::from(errno).into()),
                };
            // On an error below, dropping `fds` closes the descriptors received so far.
            let fds = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            let fds: Vec<OwnedFd> = fds.flatten().collect();
            if got.flags.contains(ReturnFlags::CTRUNC) {
                // Descriptors are missing. Either the peer has sent more than fit, which is its
                // error, or the kernel could not open another file (EMFILE in `scm_detach_fds`).
                if fds.len() >= Socket::MAX_FDS {
                    return Err(Malformed::Descriptors { max: Socket::MAX_FDS }.into());
                }
                // EMFILE is not an error here: the command may not need the descriptors.
                self.lost_fds = true;
            }
            if got.bytes == 0 {
                return Ok(Received::End);
            }
            if let Some(message) = self.assembler.filled(got.bytes, fds)? {
                return Ok(Received::Message(Message {
                    lost_fds: std::mem::take(&mut self.lost_fds),
                    ..message
                }));
            }
        }
    }

    /// Sends a message after the unsent bytes. Bytes that the socket does not accept now are kept,
    /// and sent by the next [`Socket::send`] or [`Socket::flush`].
    ///
    /// # Errors
    /// `WouldBlock`: the message has descriptors, and the socket is full. The message was neither
    /// sent nor kept; send it again later. After any other error the caller must close the
    /// connection.
    pub fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        self.flush()?;
        // Messages stay in order: while bytes are unsent, this message is queued behind them.
        let sent = if self.unsent.is_empty() { self.write(bytes, fds)? } else { 0 };
        // Descriptors are sent with the first byte. Once that is sent, the rest of the message can
        // be kept for later.
        if sent == 0 && !fds.is_empty() {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        self.unsent.extend(bytes.get(sent..).unwrap_or_default());
        // A peer must not make this process use unlimited memory.
        if self.unsent.len() > Socket::MAX_UNSENT {
            return Err(SocketError::PeerNotReading(self.unsent.len()));
        }
        Ok(())
    }

    /// Sends unsent bytes, as far as the socket accepts them. Returns whether all were sent.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn flush(&mut self) -> Result<bool, SocketError> {
        while !self.unsent.is_empty() {
            match self.write(&self.unsent, &[])? {
                0 => return Ok(false),
                sent => drop(self.unsent.drain(..sent)),
            }
        }
        Ok(true)
    }

    /// Waits at most `timeout` until the socket is readable, or, if there are unsent bytes,
    /// readable or writable.
    ///
    /// # Errors
    /// The error of poll(2).
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let events = if self.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&*self.stream, events)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether there are unsent bytes.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the number of bytes sent; 0: the socket accepts nothing now.
    fn write(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Socket::MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            // MSG_NOSIGNAL: EPIPE instead of SIGPIPE when the peer has closed.
            match sendmsg(
                &*self.stream,
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
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
