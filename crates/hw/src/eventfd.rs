//! Eventfds: how a sleeping thread is told.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use sync::Signal;

/// A counter that polls readable while it is not zero. Non-blocking; a signal given before the sleep still ends it.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero.
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// One that another process has made. Whatever it is set to, it does not make who signals it wait from now on.
    ///
    /// # Errors
    /// `InvalidInput` if it is no eventfd; what `fcntl` says.
    pub fn adopt(fd: OwnedFd) -> io::Result<EventFd> {
        let kind = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is no eventfd"));
        }
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(EventFd(fd))
    }

    /// Adds one.
    #[inline]
    pub fn signal(&self) {
        // The only failure is a counter at its end, which is as readable as a counter gets.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// The same counter, by another descriptor.
    pub fn try_clone(&self) -> io::Result<EventFd> {
        Ok(EventFd(self.0.try_clone()?))
    }

    /// The count, which stays as it is: as many signals as there were, if nobody calls [`EventFd::drain`]. The system keeps it for the
    /// reader, however many threads signal. Looking takes nobody's wake-up; it takes three system calls (proc_pid_fdinfo(5), `eventfd-count`).
    ///
    /// # Errors
    /// There is no `/proc`, or it does not show the count.
    pub fn count(&self) -> io::Result<u64> {
        // Of the calling thread: that of the process is empty once its first thread has ended. On the stack, because moderators ask
        // while the data path runs, which allocates nothing.
        let mut path = [0; 64];
        let mut rest = &mut path[..];
        write!(rest, "/proc/thread-self/fdinfo/{}", self.0.as_raw_fd())?;
        let unused = rest.len();
        let shown = rustix::fs::open(&path[..path.len() - unused], OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = [0; 512];
        let len = rustix::io::read(shown, &mut text)?;
        let mut lines = text[..len].split(|&byte| byte == b'\n');
        let count = lines.find_map(|line| std::str::from_utf8(line.strip_prefix(b"eventfd-count:")?).ok());
        count.and_then(|count| u64::from_str_radix(count.trim(), 16).ok()).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Takes the count, leaving zero: how many signals there were since the last time. For the thread that sleeps on it: a signal that
    /// another thread takes before a [`Poller`](crate::Poller) has reported it is not reported any more. The poller reports every new
    /// signal whether or not the sleeper takes the count.
    #[inline]
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

/// The interrupt vectors of one controller, as a guest of VFIO sees MSI-X. Messages are counted in the eventfd, by the kernel, which is
/// read and never emptied.
pub type Vectors = sync::Vectors<EventFd>;

/// `count` vectors, masked. Where `masks` is false masks are without effect, as under VFIO: every message is sent.
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
