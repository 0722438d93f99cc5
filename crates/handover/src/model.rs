//! What the loom models share. A model tells a lost wake-up as a value rather than by deadlock: loom's own panic in a
//! deadlock cannot be unwound, and the broken twins have to be caught.

use std::sync::atomic::AtomicU64 as Counter;

use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, Condvar, Mutex, lock, thread};
use crate::{Bell, Inbox, LookLock, LookRole, SleeperId};

/// Eventfds, and the threads that block on them. Signals are sticky, as an eventfd's are, and a thread may block on
/// several.
pub struct EventFds {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    signalled: Vec<bool>,
    /// Threads that neither block nor have ended: the ones that may still signal.
    running: usize,
    /// What each blocked thread waits for.
    blocked: Vec<&'static [usize]>,
    lost: bool,
}

/// Everybody who is left blocks, and nobody is there to signal.
#[derive(Debug)]
pub struct LostWakeUp;

impl EventFds {
    pub fn new(fds: usize, threads: usize) -> Arc<EventFds> {
        let state = State { signalled: vec![false; fds], running: threads, blocked: Vec::new(), lost: false };
        Arc::new(EventFds { state: Mutex::new(state), changed: Condvar::new() })
    }

    pub fn signal(&self, fd: usize) {
        lock(&self.state).signalled[fd] = true;
        self.changed.notify_all();
    }

    /// Sleeps until one of `fds` is signalled, and drains them.
    pub fn block(&self, fds: &'static [usize]) -> Result<(), LostWakeUp> {
        let mut state = lock(&self.state);
        state.running -= 1;
        state.blocked.push(fds);
        self.check(&mut state);
        while !state.lost && !fds.iter().any(|&fd| state.signalled[fd]) {
            state = self.changed.wait(state).unwrap();
        }
        let at = state.blocked.iter().position(|waits| *waits == fds).unwrap();
        state.blocked.swap_remove(at);
        state.running += 1;
        fds.iter().for_each(|&fd| state.signalled[fd] = false);
        if state.lost { Err(LostWakeUp) } else { Ok(()) }
    }

    /// A thread ends: it signals no more.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.running -= 1;
        self.check(&mut state);
    }

    fn check(&self, state: &mut State) {
        let wakes = |fds: &&'static [usize]| fds.iter().any(|&fd| state.signalled[fd]);
        if state.running == 0 && !state.blocked.is_empty() && !state.blocked.iter().any(wakes) {
            state.lost = true;
            self.changed.notify_all();
        }
    }
}

/// Runs every interleaving of `model` with at most `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` overrides it), and
/// counts those in which it answers false.
fn failures(preemptions: usize, model: impl Fn() -> bool + Send + Sync + 'static) -> u64 {
    let failures: &'static Counter = Box::leak(Box::default());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        if !model() {
            failures.fetch_add(1, Relaxed);
        }
    });
    failures.load(Relaxed)
}

/// The model holds in every interleaving.
pub fn holds(preemptions: usize, model: impl Fn() -> bool + Send + Sync + 'static) {
    assert_eq!(failures(preemptions, model), 0, "interleavings that fail");
}

/// A broken twin: some interleaving must fail.
pub fn fails(preemptions: usize, model: impl Fn() -> bool + Send + Sync + 'static) {
    assert_ne!(failures(preemptions, model), 0, "the broken twin passed: the model proves nothing");
}

/// A step that a broken twin leaves out. `Nothing`: the protocol as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    Nothing,
    /// The look between arming and blocking.
    LookBeforeSleep,
    /// The look after the release of the lock.
    LookAfterRelease,
    /// The fence between the release and that look.
    FenceAfterRelease,
    /// Waking the owner of an entry that was taken for it.
    WakeWhoseEntry,
    /// Waking the role's owner when leaving with entries pending.
    WakeOwner,
    /// Arming one's own bell before registering: it is armed afterwards.
    ArmFirst,
    /// Handing the role on before leaving.
    HandOn,
    /// Waking the heir.
    WakeHeir,
    /// Waiting for the end of a thread that was dismissed.
    Join,
    /// The look after that.
    LookAfterEnd,
}

/// A completion queue with one vector that [`HOSTS`] threads share, and everything that the engine has around it.
pub struct Queue {
    slots: Vec<AtomicU64>,
    /// The consumer's index, under the lock; and a copy for looks without it.
    lock: LookLock<usize>,
    head: AtomicUsize,
    vector: Bell,
    role: LookRole,
    bells: [Bell; HOSTS],
    inboxes: [Inbox<u64>; HOSTS],
    /// The drain thread is to end.
    dismissed: AtomicUsize,
    fds: Arc<EventFds>,
    omit: Omit,
}

const HOSTS: usize = 2;
const VECTOR: usize = HOSTS;
const ENDED: usize = HOSTS + 1;
const OWN: [&[usize]; HOSTS] = [&[0], &[1]];
const OWN_AND_VECTOR: [&[usize]; HOSTS] = [&[0, VECTOR], &[1, VECTOR]];

impl Queue {
    fn new(entries: usize, threads: usize, omit: Omit) -> Arc<Queue> {
        Arc::new(Queue {
            slots: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            lock: LookLock::new(0),
            head: AtomicUsize::new(0),
            vector: Bell::new(),
            role: LookRole::new(HOSTS),
            bells: Default::default(),
            inboxes: std::array::from_fn(|_| Inbox::new(entries)),
            dismissed: AtomicUsize::new(0),
            fds: EventFds::new(HOSTS + 2, threads),
            omit,
        })
    }

    /// A device completes one command each of these hosts, host 0 waits for its own, and another thread does something
    /// else. Whether everybody was told.
    pub fn play(order: &'static [usize], omit: Omit, other: fn(&Queue) -> Result<(), LostWakeUp>) -> bool {
        Queue::play_as(|queue| queue.wait(0), order, omit, other).1
    }

    /// The drain thread (host 1) takes host 0's one entry, unless host 0, which takes the queue back meanwhile, is told of it by
    /// its vector, which is armed from then on (`sleeps`), or finds it by itself, and wants no message from then on. Whether it was
    /// told, and nothing has armed the vector that it masked.
    pub fn play_dismissal(sleeps: bool, omit: Omit) -> bool {
        let own: fn(&Queue) -> _ = if sleeps { Queue::sleep_alone } else { Queue::poll_alone };
        let (queue, told) = Queue::play_as(own, &[0], omit, Queue::drain);
        told && queue.vector.is_armed() == sleeps
    }

    fn play_as(
        own: fn(&Queue) -> Result<(), LostWakeUp>,
        order: &'static [usize],
        omit: Omit,
        other: fn(&Queue) -> Result<(), LostWakeUp>,
    ) -> (Arc<Queue>, bool) {
        let queue = Queue::new(order.len(), 3, omit);
        let device = Queue::spawn(&queue, |queue| queue.post(order));
        let other = Queue::spawn(&queue, other);
        let told = own(&queue).is_ok();
        queue.fds.end();
        let told = device.join().unwrap() && other.join().unwrap() && told;
        (queue, told)
    }

    fn spawn(queue: &Arc<Queue>, part: impl FnOnce(&Queue) -> Result<(), LostWakeUp> + 'static) -> JoinHandle<bool> {
        let queue = queue.clone();
        thread::spawn(move || {
            let told = part(&queue).is_ok();
            queue.fds.end();
            told
        })
    }

    /// Device: completes commands of these hosts in this order, a message each.
    fn post(&self, owners: &[usize]) -> Result<(), LostWakeUp> {
        for (slot, &owner) in self.slots.iter().zip(owners) {
            slot.store(1 + owner as u64, Release);
            if self.vector.rings() {
                self.fds.signal(VECTOR);
            }
        }
        Ok(())
    }

    /// Host: tries the lock, takes at most `budget` entries, leaves each with its owner and wakes it. None: lock busy.
    /// Otherwise whether more is pending.
    pub fn reap(&self, me: usize, budget: usize) -> Option<bool> {
        let mut taken = Vec::new();
        let look = |head: &mut usize| {
            while taken.len() < budget && self.slots.get(*head).is_some_and(|slot| slot.load(Acquire) != 0) {
                taken.push(self.slots[*head].load(Relaxed) as usize - 1);
                *head += 1;
            }
            self.head.store(*head, Relaxed);
        };
        let more = match self.omit {
            Omit::LookAfterRelease => self.lock.try_release(look).map(|()| false)?,
            Omit::FenceAfterRelease => self.lock.try_release(look).map(|()| self.pending())?,
            _ => self.lock.try_look(look, || self.pending())?.more,
        };
        for owner in taken {
            assert!(self.inboxes[owner].push(0).is_ok());
            if owner != me && self.omit != Omit::WakeWhoseEntry {
                self.wake(owner);
            }
        }
        Some(more)
    }

    /// Host: takes at most `budget` entries and leaves without sleeping: a submitter that checks.
    pub fn check(&self, me: usize, budget: usize) {
        let leaves_some = self.reap(me, budget) == Some(true) && self.omit != Omit::WakeOwner;
        if let Some(owner) = self.role.owner().filter(|_| leaves_some) {
            self.wake(owner.0 as usize);
        }
    }

    /// Host: sleeps until its one command has completed, and leaves.
    pub fn wait(&self, me: usize) -> Result<(), LostWakeUp> {
        let waited = self.wait_registered(me);
        if self.omit != Omit::HandOn {
            let heir = self.role.release(SleeperId(me as u32));
            if let Some(heir) = heir.filter(|_| self.omit != Omit::WakeHeir) {
                self.wake(heir.0 as usize);
            }
        }
        waited
    }

    fn wait_registered(&self, me: usize) -> Result<(), LostWakeUp> {
        loop {
            while self.reap(me, usize::MAX) == Some(true) {}
            if self.inboxes[me].pop().is_some() {
                return Ok(());
            }
            if self.omit != Omit::ArmFirst {
                self.bells[me].arm();
            }
            let owner = self.role.try_take(SleeperId(me as u32));
            if self.omit == Omit::ArmFirst {
                self.bells[me].arm();
            }
            if owner {
                self.vector.arm();
            }
            if self.omit == Omit::LookBeforeSleep || !self.looks_once_more(me, owner) {
                self.fds.block(if owner { OWN_AND_VECTOR[me] } else { OWN[me] })?;
            }
            self.bells[me].mask();
            if owner {
                self.vector.mask();
            }
        }
    }

    /// Host 1: takes what comes, until it is dismissed. What it was told of it has taken by then.
    fn drain(&self) -> Result<(), LostWakeUp> {
        loop {
            while self.reap(1, usize::MAX) == Some(true) {}
            if self.dismissed.load(Acquire) != 0 {
                break;
            }
            self.bells[1].arm();
            let owner = self.role.try_take(SleeperId(1));
            if owner {
                self.vector.arm();
            }
            if self.dismissed.load(Acquire) == 0 && !(owner && self.pending()) {
                self.fds.block(OWN_AND_VECTOR[1])?;
            }
            self.bells[1].mask();
        }
        self.role.release(SleeperId(1));
        self.fds.signal(ENDED);
        Ok(())
    }

    /// Host 0: the drain thread ends, and has ended.
    fn dismiss(&self) -> Result<(), LostWakeUp> {
        self.dismissed.store(1, Release);
        self.wake(1);
        if self.omit == Omit::Join { Ok(()) } else { self.fds.block(&[ENDED]) }
    }

    /// Host 0: takes the queue back, and from then on looks only when it is told.
    fn sleep_alone(&self) -> Result<(), LostWakeUp> {
        self.dismiss()?;
        self.vector.arm();
        if self.omit != Omit::LookAfterEnd {
            self.reap(0, usize::MAX);
        }
        loop {
            self.bells[0].arm();
            if self.inboxes[0].pop().is_some() {
                return Ok(());
            }
            self.fds.block(OWN_AND_VECTOR[0])?;
            self.bells[0].mask();
            self.reap(0, usize::MAX);
        }
    }

    /// Host 0: takes the queue back, and from then on looks all the time.
    fn poll_alone(&self) -> Result<(), LostWakeUp> {
        self.dismiss()?;
        self.vector.mask();
        loop {
            self.reap(0, usize::MAX);
            if self.inboxes[0].pop().is_some() {
                return Ok(());
            }
            thread::yield_now();
        }
    }

    /// Whether there is a reason not to sleep. A lock that is busy is none: its holder looks once more.
    fn looks_once_more(&self, me: usize, owner: bool) -> bool {
        let reaped = owner && self.pending() && self.reap(me, usize::MAX).is_some();
        reaped || !self.inboxes[me].is_empty()
    }

    fn pending(&self) -> bool {
        self.slots.get(self.head.load(Relaxed)).is_some_and(|slot| slot.load(Acquire) != 0)
    }

    fn wake(&self, host: usize) {
        if self.bells[host].ring_once() {
            self.fds.signal(host);
        }
    }
}
