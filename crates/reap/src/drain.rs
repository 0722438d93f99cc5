//! `threaded`: a thread for each vector that drains its queue and wakes those who submitted, as `request_threaded_irq`
//! has it.
//!
//! To the look role (law 6) it is one more sleeper, which waits on the vector and leaves every entry in its owner's inbox.
//! So software queues in other modes may share the hardware queue meanwhile, and the modes may be switched at any time. It
//! runs as long as some software queue is in that mode. The last one to leave the mode waits for its end: after that nobody
//! else arms the vector, and a software queue that has the hardware queue to itself goes by the role no more.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use completion::WEIGHT;
use driver::Completed;
use handover::{Bell, Posted, SleeperId};
use hw::{EventFd, Poller, ThreadCpuClock};
use units::Nanos;

use crate::engine::{KEY_VECTOR, KEY_WAKE};
use crate::hw_queue::HwQueue;

/// The drain thread of a hardware queue, or the place where one will be.
pub(crate) struct Drain {
    /// Locked for as long as one begins or ends, so that there are never two. It does not lock this itself.
    thread: Mutex<Option<JoinHandle<()>>>,
    state: Mutex<State>,
    /// While there is one the queue's entries may be taken by another thread than their owner's, and going to sleep on it
    /// goes by the look role.
    shares: AtomicBool,
    bell: Bell,
    wake: EventFd,
    /// CPU time of threads that have ended.
    spent: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Software queues in the mode.
    users: u32,
    clock: Option<ThreadCpuClock>,
}

impl Drain {
    pub(crate) fn new() -> std::io::Result<Drain> {
        let (shares, bell, wake) = (AtomicBool::new(false), Bell::new(), EventFd::new()?);
        Ok(Drain { thread: Mutex::default(), state: Mutex::default(), shares, bell, wake, spent: AtomicU64::new(0) })
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a drain thread.
    #[inline]
    pub(crate) fn shares(&self) -> bool {
        self.shares.load(Acquire)
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn tell(&self) {
        if self.bell.ring_once() {
            self.wake.signal();
        }
    }

    /// CPU time of the drain threads so far.
    pub(crate) fn cpu(&self) -> Nanos {
        let state = self.state();
        let running = state.clock.and_then(ThreadCpuClock::read).unwrap_or_default();
        Nanos(self.spent.load(Acquire)) + running
    }

    /// A software queue is in the mode no more. If it was the last one, the drain thread has ended afterwards; what it took is
    /// in the inboxes. Call without any lock.
    pub(crate) fn dismiss(&self) {
        let mut thread = self.thread();
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        let last = state.users == 0;
        drop(state);
        if !last {
            return;
        }
        self.tell();
        if let Some(thread) = thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a drain thread has panicked");
        }
        self.shares.store(false, Release);
    }
}

/// A software queue's thread enters the mode. The drain thread runs where the caller may.
///
/// # Errors
/// The system has no thread or descriptor left; nothing has changed.
pub(crate) fn engage(queue: &Arc<HwQueue>) -> std::io::Result<()> {
    let mut thread = queue.drain.thread();
    queue.drain.state().users += 1;
    if thread.is_none() {
        *thread = Some(begin(queue).inspect_err(|_| queue.drain.state().users -= 1)?);
    }
    queue.drain.shares.store(true, Release);
    Ok(())
}

fn begin(queue: &Arc<HwQueue>) -> std::io::Result<JoinHandle<()>> {
    let poller = Poller::new()?;
    poller.add(&queue.drain.wake, KEY_WAKE)?;
    if let Some(eventfd) = queue.link.vectors().eventfd(queue.vector) {
        poller.add(eventfd, KEY_VECTOR)?;
    }
    let worker = Worker { queue: queue.clone(), poller, taken: Vec::with_capacity(WEIGHT as usize), events: Vec::with_capacity(8) };
    std::thread::Builder::new().name("reap-drain".into()).spawn(move || worker.run())
}

struct Worker {
    queue: Arc<HwQueue>,
    poller: Poller,
    taken: Vec<Completed>,
    events: Vec<u64>,
}

impl Worker {
    fn run(mut self) {
        let queue = self.queue.clone();
        let me = queue.drain_id();
        queue.drain.state().clock = ThreadCpuClock::of_current().ok();
        loop {
            queue.take_for_owners(&mut self.taken);
            if self.is_dismissed() {
                break;
            }
            // By law 6: the own bell, the role, the vector, and a look.
            queue.drain.bell.arm();
            let owner = queue.role.try_take(me);
            if owner {
                queue.arm_vector();
            }
            let idle = queue.drain.state().users > 0 && !(owner && queue.pair.pending());
            self.events.clear();
            if idle && let Err(error) = self.poller.wait(None, &mut self.events) {
                tracing::error!(%error, "a drain thread cannot sleep");
            }
            queue.drain.bell.mask();
            if self.events.contains(&KEY_VECTOR) {
                self.pass_on();
            }
        }
        if let Some(heir) = queue.role.release(me) {
            queue.tell_sleeper(heir);
        }
    }

    /// In a group the vector's notification may stand for messages of other queues as well, whose thread leaves the vector to this
    /// one. It is the thread that waits for this queue, and looks at all of them when it is told.
    fn pass_on(&self) {
        let queue = &self.queue;
        if queue.link.vectors().posted(queue.vector).is_some_and(Posted::any) {
            queue.softs.iter().for_each(|soft| soft.tell());
        }
    }

    /// Whether no software queue is in the mode: then none will be before the thread has ended.
    fn is_dismissed(&self) -> bool {
        let drain = &self.queue.drain;
        let mut state = drain.state();
        let dismissed = state.users == 0;
        if dismissed {
            state.clock = None;
            drain.spent.fetch_add(hw::thread_cpu().0, AcqRel);
        }
        dismissed
    }
}

impl HwQueue {
    /// Takes what there is, as much at a time as `taken` has room for, and hands it to its owners. For a thread that is none of them.
    /// A lock that is busy is none of its business: the holder looks once more.
    pub(crate) fn take_for_owners(&self, taken: &mut Vec<Completed>) {
        loop {
            taken.clear();
            let Some(reaped) = self.pair.try_reap(self.link.doorbells(), WEIGHT, taken) else { return };
            if let Some(violation) = reaped.violation {
                self.reporter.violated(violation);
            }
            if !taken.is_empty() {
                self.hand_out(None, taken);
                self.serve_line(hw::now());
            }
            if !reaped.more {
                return;
            }
        }
    }

    /// The drain thread's number in the look role: after all the software queues'.
    pub(crate) fn drain_id(&self) -> SleeperId {
        SleeperId(self.softs.len() as u32)
    }

    /// Wakes a thread that the look role knows.
    pub(crate) fn tell_sleeper(&self, sleeper: SleeperId) {
        match self.softs.get(sleeper.0 as usize) {
            Some(soft) => soft.tell(),
            None => self.drain.tell(),
        }
    }
}
