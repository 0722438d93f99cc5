//! Eventfds: counters in the kernel that wake a sleeping thread. Interrupt vectors, mailboxes and
//! guests of VFIO signal them.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use sync::Signal;

/// A counter that polls readable while it is not zero, so a signal before the sleep still ends the
/// sleep. Reads and writes do not block.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero.
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Takes an eventfd that another process made, and sets O_NONBLOCK: a full counter must not
    /// block the thread that signals it.
    ///
    /// # Errors
    /// `InvalidInput`: the descriptor is not an eventfd. Otherwise the error of fcntl(2).
    pub fn adopt(fd: OwnedFd) -> io::Result<EventFd> {
        let kind = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not an eventfd",
            ));
        }
        // The flag belongs to the open file, so the other process sees it change too.
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(EventFd(fd))
    }

    /// Adds one.
    #[inline]
    pub fn signal(&self) {
        // Fails only when the counter is at its maximum: then it is readable already.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// A second descriptor of the same counter.
    pub fn try_clone(&self) -> io::Result<EventFd> {
        Ok(EventFd(self.0.try_clone()?))
    }

    /// Reads the count without changing it: the number of signals since the last
    /// [`EventFd::drain`]. Unlike a read(2) it cannot consume a wake-up of the sleeping thread.
    /// Costs three system calls (proc_pid_fdinfo(5), `eventfd-count`).
    ///
    /// # Errors
    /// `/proc` is not mounted, or does not show the count.
    pub fn count(&self) -> io::Result<u64> {
        // `thread-self`, not `self`: the latter is empty once the main thread has ended. Buffers on
        // the stack: coalescing controllers call this while the data path runs, which must not
        // allocate.
        let mut path = [0; 64];
        let mut rest = &mut path[..];
        write!(rest, "/proc/thread-self/fdinfo/{}", self.0.as_raw_fd())?;
        let unused = rest.len();
        let shown = rustix::fs::open(
            &path[..path.len() - unused],
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut text = [0; 512];
        let len = rustix::io::read(shown, &mut text)?;
        let mut lines = text[..len].split(|&byte| byte == b'\n');
        let count =
            lines.find_map(|line| std::str::from_utf8(line.strip_prefix(b"eventfd-count:")?).ok());
        count
            .and_then(|count| u64::from_str_radix(count.trim(), 16).ok())
            .ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Reads the count and resets it to zero: the number of signals since the last call. Only the
    /// thread that sleeps on it may call this: a signal that another thread drains before a
    /// [`Poller`](crate::Poller) has reported it is lost. The poller is edge-triggered: it reports
    /// each new signal whether or not the count was drained.
    #[inline]
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            // EAGAIN: the counter is zero.
            _ => 0,
        }
    }
}

/// The MSI-X vectors of one controller, as a VFIO user sees them: one eventfd each. The eventfd's
/// count is the message counter, so it is read ([`EventFd::count`]) and never drained.
pub type Vectors = sync::Vectors<EventFd>;

/// Makes `count` vectors, all masked. `masks = false`: masking has no effect, as under VFIO, and
/// every message is sent.
pub fn vectors(count: u16, masks: bool) -> io::Result<Vectors> {
    let signals = (0..count).map(|_| EventFd::new()).collect::<io::Result<Vec<_>>>()?;
    Ok(Vectors::new(signals, masks))
}

impl Signal for EventFd {
    #[inline]
    fn signal(&self) {
        EventFd::signal(self);
    }

    #[inline]
    fn count(&self) -> Option<u64> {
        EventFd::count(self).ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
