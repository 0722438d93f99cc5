//! Process identity: detects use after `fork`, and names the process at the other end of a Unix
//! socket. After `fork` the child has copies of the parent's memory and descriptors but must use
//! neither: the rings and the threads that serve a device belong to the parent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

/// Bytes mapped for one word; the kernel rounds up to its page size.
const PAGE_BYTES: usize = 4096;

/// Remembers which process created an object, so that a forked child can refuse to use it. A child
/// created by a raw clone(2) that shares memory is taken for its parent.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    pid: u32,
    pid_page: Option<&'static AtomicU32>,
}

impl ForkGuard {
    /// Remembers the calling process.
    pub fn current() -> ForkGuard {
        static PID_PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
        let (pid, pid_page) =
            (getpid().as_raw_nonzero().get().unsigned_abs(), *PID_PAGE.get_or_init(wiped_on_fork));
        if let Some(pid_page) = pid_page {
            // In a forked child the page is zero again: mark objects made from now on as the
            // child's.
            pid_page.store(pid, Ordering::Relaxed);
        }
        ForkGuard { pid, pid_page }
    }

    /// Whether the calling process is the one remembered. One relaxed load where the kernel can
    /// wipe a page on fork; otherwise getpid(2).
    #[inline]
    pub fn same_process(self) -> bool {
        match self.pid_page {
            Some(pid_page) => pid_page.load(Ordering::Relaxed) == self.pid,
            None => getpid().as_raw_nonzero().get().unsigned_abs() == self.pid,
        }
    }
}

/// A word that the kernel zeroes in a forked child (MADV_WIPEONFORK, madvise(2), Linux 4.14).
fn wiped_on_fork() -> Option<&'static AtomicU32> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
    let page = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .ok()?;
    // SAFETY: the range is the mapping just made. Where the advice is refused it stays, unused.
    unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is zeroed, aligned, never unmapped, and no other code has its address.
    Some(unsafe { AtomicU32::from_ptr(page.cast()) })
}

/// A process at the other end of a Unix socket.
#[derive(Debug)]
pub struct Process {
    id: Pid,
    fd: OwnedFd,
}

impl Process {
    /// The process that listens at the other end of `socket`, which is connected (SO_PEERCRED).
    ///
    /// # Errors
    /// It is in another PID namespace, or has ended.
    pub fn peer_of(socket: impl AsFd) -> io::Result<Process> {
        let id = socket_peercred(socket)?.pid;
        Ok(Process { id, fd: pidfd_open(id, PidfdFlags::empty())? })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether the process and all its threads have ended. By then their system calls are over too.
    pub fn has_ended(&self) -> bool {
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests;
