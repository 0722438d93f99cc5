//! Sleeping on several file descriptors and a deadline.

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

/// There is no `epoll_pwait2`, as was found out once: under valgrind, in some sandboxes.
static NO_PWAIT2: AtomicBool = AtomicBool::new(false);

/// An epoll instance, edge-triggered: a descriptor is reported once for each time that something new arrives, so one
/// that is not drained does not spin the sleeper.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// Beside a key: the descriptor takes bytes again. Keys leave this bit free.
    pub const WRITABLE: u64 = 1 << 63;

    /// Events taken per call; more wait for the next one.
    const BATCH: usize = 64;

    /// Nothing to wait for yet.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Reports `fd` under `key` from now on, and at once if it is readable already.
    ///
    /// # Errors
    /// `AlreadyExists` if it is added twice; what else `epoll_ctl` says.
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(key), EventFlags::IN | EventFlags::ET)?)
    }

    /// Whether it is reported as well, from now on, that `fd`, which has been added, takes bytes again after it has refused some: under its
    /// key with [`Poller::WRITABLE`]. Whatever is so already is reported at once, whether or not it was reported before.
    ///
    /// # Errors
    /// `NotFound` if it was not added.
    pub fn watch_writes(&self, fd: impl AsFd, key: u64, watch: bool) -> io::Result<()> {
        let write = if watch { EventFlags::OUT } else { EventFlags::empty() };
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(key), EventFlags::IN | EventFlags::ET | write)?)
    }

    /// Reports `fd` no more.
    ///
    /// # Errors
    /// `NotFound` if it was not added.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Sleeps until something arrives or `timeout` has passed (`None` or [`Nanos::MAX`]: no limit; zero: only looks),
    /// and puts the keys of what arrived into `out`, which is cleared first. A signal handler ends the sleep with
    /// nothing in `out`. The timer is as fine as the thread's timer slack.
    pub fn wait(&self, timeout: Option<Nanos>, out: &mut Vec<u64>) -> io::Result<()> {
        out.clear();
        let timeout = timeout.filter(|t| *t != Nanos::MAX).map(timespec);
        if NO_PWAIT2.load(Ordering::Relaxed) {
            return self.wait_in_two_steps(timeout.as_ref(), out);
        }
        let mut events = [const { MaybeUninit::<Event>::uninit() }; Self::BATCH];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events.iter().for_each(|event| report(event.data.u64(), event.flags, out)),
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS) => {
                NO_PWAIT2.store(true, Ordering::Relaxed);
                return self.wait_in_two_steps(timeout.as_ref(), out);
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// [`Poller::wait`] without `epoll_pwait2`.
    #[cold]
    fn wait_in_two_steps(&self, timeout: Option<&Timespec>, out: &mut Vec<u64>) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; Self::BATCH];
        // SAFETY: the descriptor is open, and `events` has room for as many as are asked for.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), Self::BATCH as i32, 0) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        events[..count].iter().for_each(|event| report(event.u64, EventFlags::from_bits_retain(event.events), out));
        Ok(())
    }
}

/// What an event says, as keys. An error or an end is there to be read, or met by the next write.
#[inline]
fn report(key: u64, flags: EventFlags, out: &mut Vec<u64>) {
    if flags != EventFlags::OUT {
        out.push(key);
    }
    if flags.contains(EventFlags::OUT) {
        out.push(key | Poller::WRITABLE);
    }
}

/// Readable while [`Poller::wait`] would report something: for a foreign loop.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
