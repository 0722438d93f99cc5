//! Sleeping on several file descriptors with a deadline: an epoll instance.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use units::Nanos;

use crate::clock::timespec;

/// Set when `epoll_pwait2` (Linux 5.11) returned ENOSYS: under valgrind and in some sandboxes.
static NO_PWAIT2: AtomicBool = AtomicBool::new(false);

/// An edge-triggered epoll instance: a descriptor is reported once per new event, so that a
/// descriptor that is not drained does not keep the thread awake.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// Set in a reported key: the descriptor is writable again. Keys must not use this bit.
    pub const WRITABLE: u64 = 1 << 63;

    /// Events per call; the next call returns the rest.
    const BATCH: usize = 64;

    /// Creates an epoll instance without descriptors.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Registers `fd`: its input events are reported as `key`, at once if it is readable already.
    ///
    /// # Errors
    /// `AlreadyExists`: `fd` is registered already. Otherwise the error of epoll_ctl(2).
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(key), EventFlags::IN | EventFlags::ET)?)
    }

    /// Enables or disables reporting of writability for a registered `fd`: after a write returned
    /// EAGAIN, the key with [`Poller::WRITABLE`] is reported once there is room. Conditions that
    /// hold already are reported at once, even if they were reported before.
    ///
    /// # Errors
    /// `NotFound`: `fd` is not registered.
    pub fn watch_writes(&self, fd: impl AsFd, key: u64, watch: bool) -> io::Result<()> {
        let write = if watch { EventFlags::OUT } else { EventFlags::empty() };
        Ok(epoll::modify(
            &self.0,
            fd,
            EventData::new_u64(key),
            EventFlags::IN | EventFlags::ET | write,
        )?)
    }

    /// Unregisters `fd`.
    ///
    /// # Errors
    /// `NotFound`: `fd` is not registered.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Sleeps until an event arrives or `timeout` has passed, and puts the keys into `out`, which
    /// is cleared first. `None` and [`Nanos::MAX`]: no limit; zero: check without sleeping. A
    /// signal handler ends the sleep with `out` empty. The precision is the thread's timer slack.
    pub fn wait(&self, timeout: Option<Nanos>, out: &mut Vec<u64>) -> io::Result<()> {
        out.clear();
        let timeout = timeout.filter(|t| *t != Nanos::MAX).map(timespec);
        if NO_PWAIT2.load(Ordering::Relaxed) {
            return self.wait_without_pwait2(timeout.as_ref(), out);
        }
        let mut events = [const { MaybeUninit::<Event>::uninit() }; Self::BATCH];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok((events, _)) => {
                events.iter().for_each(|event| push_keys(event.data.u64(), event.flags, out))
            }
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS) => {
                NO_PWAIT2.store(true, Ordering::Relaxed);
                return self.wait_without_pwait2(timeout.as_ref(), out);
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// [`Poller::wait`] without `epoll_pwait2`: ppoll(2) on the epoll descriptor sleeps with
    /// nanosecond precision, then epoll_wait(2) with a zero time-out fetches the events.
    #[cold]
    fn wait_without_pwait2(
        &self,
        timeout: Option<&Timespec>,
        out: &mut Vec<u64>,
    ) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; Self::BATCH];
        // SAFETY: the descriptor is open, and `events` has room for as many as are asked for.
        let count = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), Self::BATCH as i32, 0)
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        events[..count].iter().for_each(|event| {
            push_keys(event.u64, EventFlags::from_bits_retain(event.events), out)
        });
        Ok(())
    }
}

/// Translates an event into keys. EPOLLERR and EPOLLHUP count as readable: the next read or write
/// returns the error.
#[inline]
fn push_keys(key: u64, flags: EventFlags, out: &mut Vec<u64>) {
    if flags != EventFlags::OUT {
        out.push(key);
    }
    if flags.contains(EventFlags::OUT) {
        out.push(key | Poller::WRITABLE);
    }
}

/// Readable while [`Poller::wait`] would report something: lets a foreign event loop wait on this
/// one.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
