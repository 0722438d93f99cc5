//! Processes: which one made something, and which one is at the other end of a Unix socket. After `fork` the child has its memory and its descriptors as well, and must touch neither: a ring is
//! the parent's, and so are the threads that look after a device.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

/// What is mapped: at least a word, rounded up by the kernel.
const PAGE_BYTES: usize = 4096;

/// The process that was there when it was made. A child that is made past libc, by clone(2), is taken for its parent.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    pid: u32,
    mark: Option<&'static AtomicU32>,
}

impl Birth {
    /// Here and now.
    pub fn here() -> Birth {
        static MARK: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
        let (pid, mark) = (getpid().as_raw_nonzero().get().unsigned_abs(), *MARK.get_or_init(wiped_on_fork));
        if let Some(mark) = mark {
            // A child's page begins as zero: its own rings are born here.
            mark.store(pid, Ordering::Relaxed);
        }
        Birth { pid, mark }
    }

    /// Whether this is that process. One load, where the kernel can wipe a page.
    #[inline]
    pub fn is_here(self) -> bool {
        match self.mark {
            Some(mark) => mark.load(Ordering::Relaxed) == self.pid,
            None => getpid().as_raw_nonzero().get().unsigned_abs() == self.pid,
        }
    }
}

/// A word that is zero again in a child (MADV_WIPEONFORK, madvise(2)).
fn wiped_on_fork() -> Option<&'static AtomicU32> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the range is the mapping just made. Where the advice is refused it stays, unused.
    unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is zeroed, aligned, never unmapped, and known to nobody else.
    Some(unsafe { AtomicU32::from_ptr(page.cast()) })
}

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
