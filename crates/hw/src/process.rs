//! The process at the other end of a Unix socket: whether it is the one that was there before, and whether it has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that listens at a socket.
#[derive(Debug)]
pub struct Process {
    id: Pid,
    fd: OwnedFd,
}

impl Process {
    /// The process that listens at the other end of `socket`, which is connected.
    ///
    /// # Errors
    /// It cannot be seen from here (a PID namespace of its own), or is gone.
    pub fn behind(socket: impl AsFd) -> io::Result<Process> {
        let id = socket_peercred(socket)?.pid;
        Ok(Process { id, fd: pidfd_open(id, PidfdFlags::empty())? })
    }

    /// Its number, which is nobody else's until it has ended.
    pub fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it has ended with all of its threads. What they had asked of the kernel is over by then.
    pub fn has_ended(&self) -> bool {
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests;
