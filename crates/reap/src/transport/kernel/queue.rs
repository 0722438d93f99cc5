//! One thread's queue on a file or block device: an interrupt ring, and an IOPOLL ring next to it
//! where the device has poll queues.
//!
//! ```text
//!  push    Part → RingCommand (a slot of the ring's table) → SQE
//!  commit  io_uring_enter, unless a sleep follows, which submits in the same call
//!  reap    CQE → RingCommand → Completed; what the kernel did only in part is submitted again
//!  sleep   io_uring_enter: submits, waits for completions, the queue's wake-up, or a time-out
//! ```
//!
//! Reads and writes go to the poll ring while the policy polls. Everything else goes to the
//! interrupt ring, which alone has the wake-up.

use std::sync::Arc;

use completion::{Mode, Notification, Route};
use driver::Completed;
use hw::uring::Poll;
use hw::{ForkGuard, Lent, Poller};
use nvme::QueueId;
use sync::WaiterId;
use units::Nanos;

use super::command_ring::CommandRing;
use super::file::KernelFile;
use crate::error::QueueError;
use crate::request::{ERRNO, TRUNCATED, Token};
use crate::transport::queue_transport::{
    KEY_NOTIFICATION, Polled, QueueTransport, SleepFor, TransportCounts,
};
use crate::transport::{Part, Post};
use crate::wake::Wake;

/// The SQPOLL thread sleeps after this many milliseconds without SQEs, so that it does not disturb
/// the next mode in a comparison.
const SQPOLL_IDLE_MS: u32 = 1;

/// Commands on the interrupt ring of a queue whose reads and writes are polled.
const INTERRUPT_TAGS: u32 = 16;

/// EBADF, for a write to a descriptor that is open for reading; reported as EROFS (errno(3)).
const EBADF: u32 = 9;
const EROFS: u32 = 30;
/// Errnos of requests to a device that is being removed; reported as ENODEV. EIO, ENXIO; EINVAL: a
/// namespace's head device has no path left; ENOSPC: the device's size is 0, so any write is past
/// its end.
const GONE_ERRNOS: [u32; 4] = [5, 6, 22, 28];
const ENODEV: u32 = 19;
/// EIO: a read past the end of a file that was truncated.
const EIO: u32 = 5;

/// A queue of a file or block device.
pub(crate) struct UringQueue {
    kernel_file: Arc<KernelFile>,
    interrupt: CommandRing,
    poll: Option<CommandRing>,
    /// Reads and writes go to the poll ring.
    polls: bool,
    /// The mode that the rings were made for, if it is one of the kernel's own.
    kernel_mode: Option<Mode>,
    /// Only the thread that made the rings may use them (SINGLE_ISSUER).
    bound: bool,
    /// The epoll instance in which a thread sleeps that has several queues, and whether completions
    /// are reported there.
    poller: Arc<Poller>,
    watched: bool,
}

impl UringQueue {
    /// Rings for `tags` requests in flight in `mode`. `wake` ends a sleep in them; `counts` are the
    /// queue's. `owned`: only the calling thread will ever use them. A thread with several queues
    /// sleeps in `poller`, an epoll instance, where completions are then reported.
    ///
    /// # Errors
    /// The kernel refuses a ring; for one of the kernel's own modes, a test read shows that it
    /// cannot poll the device.
    pub(crate) fn new(
        kernel_file: &Arc<KernelFile>,
        id: QueueId,
        tags: u32,
        (wake, counts): (&Wake, &Arc<TransportCounts>),
        owned: bool,
        mode: Mode,
        poller: Arc<Poller>,
    ) -> Result<UringQueue, QueueError> {
        let ring =
            |tags, poll| CommandRing::new(kernel_file, id, tags, (wake, counts), owned, poll);
        let queue = |interrupt, poll| UringQueue {
            kernel_file: kernel_file.clone(),
            interrupt,
            poll,
            polls: false,
            kernel_mode: None,
            bound: owned && kernel_file.features().owner,
            poller: poller.clone(),
            watched: false,
        };
        if !mode.is_the_kernels() {
            // If the device cannot be polled, or has no room for another ring, there is no poll
            // ring.
            let poll = if kernel_file.may_poll() { ring(tags, Poll::Io).ok() } else { None };
            return Ok(queue(ring(tags, Poll::No)?, poll.and_then(CommandRing::test_polling)));
        }
        if let Some(why) = kernel_file.unsupported_reason(mode) {
            return Err(why.into());
        }
        let poll = match mode {
            Mode::KERNEL_SQPOLL => {
                let interrupt = CommandRing::new(
                    kernel_file,
                    id,
                    tags,
                    (wake, counts),
                    false,
                    Poll::Sq { idle_ms: SQPOLL_IDLE_MS },
                )?;
                return Ok(UringQueue {
                    kernel_mode: Some(mode),
                    bound: false,
                    ..queue(interrupt, None)
                });
            }
            Mode::KERNEL_HYBRID_IOPOLL => ring(tags, Poll::HybridIo)?,
            _ => ring(tags, Poll::Io)?,
        };
        let refused = || {
            QueueError::Ring(format!(
                "`{mode}`: a test read was refused: the kernel cannot poll this device"
            ))
        };
        let poll = poll.test_polling().ok_or_else(refused)?;
        let interrupt = ring(INTERRUPT_TAGS, Poll::No)?;
        Ok(UringQueue { kernel_mode: Some(mode), polls: true, ..queue(interrupt, Some(poll)) })
    }

    /// The process that made it.
    pub(crate) fn fork_guard(&self) -> ForkGuard {
        self.interrupt.fork_guard()
    }

    /// The eventfd that completions signal, if requested.
    #[cfg(test)]
    pub(crate) fn eventfd(&self) -> Option<&hw::EventFd> {
        self.interrupt.eventfd()
    }

    /// Replaces an errno by what it means: writes to a read-only file fail with EBADF, requests to
    /// a device that is being removed with one of several, reads past the end of a truncated file
    /// with EIO.
    #[cold]
    fn translate_errno(kernel_file: &KernelFile, completed: &mut Completed) {
        completed.result = match completed.result {
            EBADF if kernel_file.target().facts().read_only => EROFS,
            // Only for these errnos the system is asked whether the device is gone: a system call.
            errno if GONE_ERRNOS.contains(&errno) && kernel_file.target().is_gone() => ENODEV,
            errno => errno,
        };
        if completed.result == EIO && kernel_file.target().truncated_to().is_some() {
            completed.status = TRUNCATED;
        }
    }

    /// The ring of reads and writes.
    #[inline]
    fn data_ring(&mut self) -> &mut CommandRing {
        match &mut self.poll {
            Some(poll) if self.polls => poll,
            _ => &mut self.interrupt,
        }
    }
}

impl Post for &mut UringQueue {
    #[inline]
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        self.data_ring().push_data(part, token, now)
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // A write with FUA is the same SQE with a flag.
        let ring = if part.op.transfers_blocks() { self.data_ring() } else { &mut self.interrupt };
        ring.push_other(part, token, now)
    }

    fn commit(&mut self) {
        QueueTransport::commit(*self);
    }
}

/// The methods are described in [`QueueTransport`].
impl QueueTransport for UringQueue {
    const SUBMITS_IN_SLEEP: bool = true;
    const CANCELS_OVERDUE: bool = true;
    const REAPED_BY_OTHERS: bool = false;

    type Posting<'a> = &'a mut UringQueue;

    fn room(&self, _: u32) -> u32 {
        u32::MAX
    }

    #[inline(always)]
    fn posting(&mut self) -> &mut UringQueue {
        self
    }

    #[inline]
    fn commit(&mut self) {
        self.interrupt.submit();
        if let Some(poll) = &mut self.poll {
            poll.submit();
        }
    }

    fn has_poll_queue(&self) -> bool {
        self.poll.is_some() && self.kernel_mode.is_none()
    }

    fn set_route(&mut self, route: Route) {
        self.polls = route == Route::Poll;
    }

    #[inline]
    fn polled_in_flight(&self) -> u32 {
        self.poll.as_ref().map_or(0, CommandRing::in_flight)
    }

    #[inline]
    fn pending(&self) -> bool {
        // An IOPOLL ring shows nothing by itself: only reaping finds out.
        self.interrupt.has_entries() || self.polled_in_flight() > 0
    }

    #[inline]
    fn reap(&mut self, budget: u32, mut sink: impl FnMut(&[Completed])) -> Polled {
        let kernel_file = &self.kernel_file;
        let mut translated = |completed: &mut Completed| {
            if completed.status == ERRNO {
                UringQueue::translate_errno(kernel_file, completed);
            }
            sink(std::slice::from_ref(completed));
        };
        let mut found = self.interrupt.reap(budget, &mut translated);
        if let Some(poll) = &mut self.poll
            && poll.in_flight() > 0
            && found < budget
        {
            found += poll.reap(budget - found, &mut translated);
        }
        Polled {
            found,
            budget_used_up: found == budget,
            more: self.interrupt.has_entries(),
            ..Polled::default()
        }
    }

    fn can_extend_nap(&self) -> bool {
        self.kernel_mode.is_none() && self.kernel_file.features().min_wait
    }

    fn counts_completions(&self) -> bool {
        self.poll.is_none() || self.kernel_mode.is_none()
    }

    fn sleep(&mut self, sleep: SleepFor, timeout: Option<Nanos>) -> bool {
        // An IOPOLL ring has no wake-up and no time-outs. Only the kernel's own polling modes sleep
        // in it.
        if let (Some(poll), Some(_)) = (&mut self.poll, self.kernel_mode)
            && poll.in_flight() > 0
        {
            self.interrupt.submit();
            return poll.sleep(SleepFor::Completions(1), None);
        }
        if let Some(poll) = &mut self.poll {
            poll.submit();
        }
        self.interrupt.sleep(sleep, timeout)
    }

    fn notify_by_eventfd(&mut self) {
        self.interrupt.notify_by_eventfd();
    }

    fn prepare(&mut self, lent: &Lent) {
        self.interrupt.prepare(lent);
        if let Some(poll) = &mut self.poll {
            poll.prepare(lent);
        }
    }

    fn cancel_overdue(&mut self, now: Nanos, timeout: Nanos) -> (u32, Nanos) {
        // Polled requests (IOPOLL) cannot be cancelled; the kernel's own time-out ends them.
        self.interrupt.cancel_overdue(now, timeout)
    }

    fn is_bound_to_thread(&self) -> bool {
        self.bound
    }

    /// Needed only by a thread that sleeps on several queues or in an event loop: a thread that
    /// sleeps in the ring is woken by it.
    fn watch(&mut self, sleeps: bool) {
        let Some(event) = self.interrupt.eventfd().filter(|_| self.watched != sleeps) else {
            return;
        };
        match if sleeps {
            self.poller.add(event, KEY_NOTIFICATION)
        } else {
            self.poller.remove(event)
        } {
            Ok(()) => self.watched = sleeps,
            Err(error) => {
                tracing::error!(%error, sleeps, "cannot add an eventfd to epoll, or remove it")
            }
        }
    }
}

/// A ring has no vector to mask and is not shared between threads, so most methods do nothing:
/// nothing is armed, so `pending` (the check after arming) finds nothing, and the thread always has
/// the notification role. The methods are described in [`Notification`].
impl Notification for UringQueue {
    type Thread = WaiterId;

    #[inline]
    fn is_shared(&self) -> bool {
        false
    }

    #[inline]
    fn has_own_vector(&self) -> bool {
        false
    }

    fn arm(&mut self) {}

    fn mask(&mut self) {}

    fn pending(&mut self) -> bool {
        false
    }

    fn take_role(&mut self) -> bool {
        true
    }

    fn has_role(&self) -> bool {
        true
    }

    fn release_role(&mut self) -> Option<WaiterId> {
        None
    }

    fn other_owner(&mut self) -> Option<WaiterId> {
        None
    }
}
