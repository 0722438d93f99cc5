//! The event log of a device, and its receivers. The log keeps the last 256 events; each receiver
//! has its own position in it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use completion::Mode;
use driver::ResetCause;
use driver::multipath::PathStatus;
use nvme::Nsid;
use nvme::admin::AsyncEvent;
use units::Nanos;

use crate::health::PermanentFailure;
use crate::instant::Instant;
use crate::wake::{on_another_thread, wake_all};

/// Maximum number of events that a device keeps.
const KEPT: usize = 256;

/// An event of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When the event happened.
    pub at: Instant,
    /// The path, an index of [`Device::paths`](crate::Device::paths); `None` if the device is not
    /// `multipath:`.
    pub path: Option<usize>,
    /// What has happened.
    pub kind: EventKind,
}

/// What has happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A reset of the controller begins. Requests in flight are posted again when the controller is
    /// up, or fail.
    Reset(ResetCause),
    /// The controller is up again after a reset.
    Restored,
    /// The controller was removed or cannot be used any more: every request fails, or takes another
    /// path.
    PermanentFailure(PermanentFailure),
    /// Requests have exceeded the time-out. They are aborted, or the kernel is asked to cancel
    /// them.
    TimedOut {
        /// The queue of the requests.
        queue: u16,
        /// Number of requests.
        requests: u32,
        /// The time-out.
        after: Nanos,
    },
    /// The size of a namespace has changed. [`Device::current`](crate::Device::current) returns a
    /// handle with the new size.
    Resized {
        /// The namespace.
        nsid: Nsid,
        /// Its size in logical blocks before.
        before: u64,
        /// Its size in logical blocks now; 0: it is gone, or was replaced by another namespace.
        blocks: u64,
    },
    /// The controller has sent an asynchronous event (Base §5.1.2). The library has read the log
    /// pages that it uses.
    Async(AsyncEvent),
    /// The state of a path of a `multipath:` device, or its ANA state, has changed.
    Path(PathStatus),
    /// The connection to a controller in another process has ended, for this reason.
    Disconnected(String),
    /// The connection is back, and the controller is brought up.
    Reconnected,
    /// The device has no Interrupt Coalescing: `coalesce`, `dim` and `vic` behave as `interrupt`.
    CoalescingRefused,
    /// A queue could not get the requested mode, because its ring was made for another one.
    ModeUnavailable {
        /// The queue.
        queue: u16,
        /// The requested mode.
        asked: Mode,
        /// The mode in force.
        in_force: Mode,
    },
    /// Something that an administrator should know.
    Note(String),
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::Reset(cause) => write!(f, "the controller is reset: {cause}"),
            EventKind::Restored => f.write_str("the controller is up again"),
            EventKind::PermanentFailure(why) => write!(f, "the controller is given up: {why}"),
            EventKind::TimedOut { queue, requests, after } => {
                write!(f, "{requests} requests of queue {queue} have not completed after {after}, and are aborted")
            }
            EventKind::Resized { nsid, before, blocks } => {
                write!(f, "namespace {nsid} has {blocks} logical blocks now, and had {before}")
            }
            EventKind::Async(event) => {
                let (kind, info, page) = (event.event_type(), event.info(), event.lid());
                write!(f, "asynchronous event of type {kind}, information {info:#04x} (log page {page:#04x})")
            }
            EventKind::Path(status) => write!(f, "the path is {status}"),
            EventKind::Disconnected(why) => f.write_str(why),
            EventKind::Reconnected => f.write_str("the connection is back, and the controller is brought up"),
            EventKind::CoalescingRefused => {
                f.write_str("the device has no Interrupt Coalescing: `coalesce`, `dim` and `vic` behave as `interrupt`")
            }
            EventKind::ModeUnavailable { queue, asked, in_force } => {
                write!(f, "queue {queue} is in `{in_force}`: its ring was not made for `{asked}`")
            }
            EventKind::Note(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            Some(path) => write!(f, "path {path}: {}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// The events of one device, from all its controllers.
#[derive(Default)]
pub(crate) struct EventLog {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    kept: VecDeque<Event>,
    /// How many events were dropped from the front of `kept`, which is also the number of the first
    /// event in it.
    dropped: u64,
    /// Number of controllers that are open. If it is 0, no more events come.
    sources: usize,
    /// Number of receivers so far, which is the number of the last one.
    receivers: u64,
    /// At most one waker for each receiver.
    wakers: Vec<(u64, Waker)>,
}

impl LogState {
    /// Removes the waker of a receiver, for the caller to drop outside the lock.
    fn take_waker(&mut self, receiver: u64) -> Option<Waker> {
        let at = self.wakers.iter().position(|(number, _)| *number == receiver)?;
        Some(self.wakers.swap_remove(at).1)
    }
}

impl EventLog {
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `change`, and wakes the receivers.
    fn change(&self, change: impl FnOnce(&mut LogState)) {
        let mut state = self.lock();
        change(&mut state);
        let wakers: Vec<_> = state.wakers.drain(..).map(|(_, waker)| waker).collect();
        drop(state);
        self.changed.notify_all();
        // Wakers run the application's code. Most events come from the housekeeping thread, which
        // must not block.
        on_another_thread("reap-wake", wakers, wake_all);
    }

    /// Logs an event, also by `tracing`.
    #[cold]
    pub(crate) fn push(&self, path: Option<usize>, kind: EventKind) {
        let event = Event { at: Instant::now(), path, kind };
        match event.kind {
            EventKind::PermanentFailure(_) => tracing::error!("{event}"),
            EventKind::Restored => tracing::info!("{event}"),
            EventKind::Path(_) => tracing::debug!("{event}"),
            _ => tracing::warn!("{event}"),
        }
        self.change(|state| {
            // A slow receiver must not grow the log: it loses events, and `Events::lost` counts
            // them.
            if state.kept.len() == KEPT {
                state.kept.pop_front();
                state.dropped += 1;
            }
            state.kept.push_back(event);
        });
    }
}

/// The sending side, one for each controller. Once the last one is dropped, receivers see the end.
pub(crate) struct EventSource {
    log: Arc<EventLog>,
    path: Option<usize>,
}

impl EventSource {
    /// For the only controller of a device (`path` is `None`), or for a path's controller.
    pub(crate) fn new(log: Arc<EventLog>, path: Option<usize>) -> EventSource {
        log.lock().sources += 1;
        EventSource { log, path }
    }

    /// Logs an event of the controller.
    pub(crate) fn push(&self, kind: EventKind) {
        self.log.push(self.path, kind);
    }

    /// A receiver of the device's events, of all its controllers.
    pub(crate) fn receiver(&self) -> Events {
        let mut state = self.log.lock();
        state.receivers += 1;
        Events { log: self.log.clone(), number: state.receivers, next: state.dropped, lost: 0 }
    }
}

impl Drop for EventSource {
    fn drop(&mut self) {
        self.log.change(|state| state.sources -= 1);
    }
}

/// Receives the events of a device ([`Device::events`](crate::Device::events)), on any thread. The
/// first event received is the oldest of the last 256 events, which a device keeps. A receiver that
/// is further behind loses the oldest events, and counts them ([`Events::lost`]). A receiver does
/// not keep the device open.
///
/// ```
/// use reap::{Device, EventKind};
///
/// let device = Device::open("mem:64M?profile=null")?;
/// let mut events = device.events();
/// device.reset();
/// while let Some(event) = events.next(None) {
///     match event.kind {
///         EventKind::Reset(cause) => println!("{cause}"),
///         EventKind::Restored => break,
///         _ => {}
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Events {
    log: Arc<EventLog>,
    /// The number of the receiver.
    number: u64,
    /// The number of the next event, from 0.
    next: u64,
    lost: u64,
}

impl Events {
    /// The next event, if there is one. Does not block.
    pub fn try_next(&mut self) -> Option<Event> {
        let log = self.log.clone();
        self.take(&log.lock())
    }

    /// The next event. Blocks until there is one, until `until` (`None`: no time limit), or until
    /// the device is closed.
    pub fn next(&mut self, until: Option<Instant>) -> Option<Event> {
        let log = self.log.clone();
        let mut state = log.lock();
        loop {
            let event = self.take(&state);
            if event.is_some() || state.sources == 0 {
                return event;
            }
            state = match until.map(|until| until.duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return None,
                Some(left) => {
                    log.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => log.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The next event, for async code on any executor; `None` once the device is closed.
    pub async fn recv(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let (log, waker) = (self.log.clone(), cx.waker().clone());
        let mut state = log.lock();
        let event = self.take(&state);
        if event.is_some() || state.sources == 0 {
            return Poll::Ready(event);
        }
        let before = state.take_waker(self.number);
        state.wakers.push((self.number, waker));
        // Not under the lock: dropping a waker runs the application's code, which may use the
        // device.
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Events that were dropped before this receiver could read them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn take(&mut self, state: &LogState) -> Option<Event> {
        let lost = state.dropped.saturating_sub(self.next);
        (self.lost, self.next) = (self.lost + lost, self.next + lost);
        let event = state.kept.get((self.next - state.dropped) as usize)?.clone();
        self.next += 1;
        Some(event)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("next", &self.next)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let waker = self.log.lock().take_waker(self.number);
        drop(waker);
    }
}
