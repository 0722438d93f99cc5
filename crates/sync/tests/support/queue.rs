//! A completion queue that threads share, for the models. The waiter, the policies and the order of
//! going to sleep are the library's; the primitives are this crate's. Only the ring, the eventfds
//! and the device belong to the model.

use std::cell::Cell;

use completion::{
    Ablation, Mode, Notification, Plan, Rule, SleepCosts, SleepStep, StepResult, Waiter, Woke,
    sleep_step,
};
use units::Nanos;

use super::{EventFds, LostWakeUp};
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::atomic::{AtomicU64, AtomicUsize};
use crate::thread::JoinHandle;
use crate::{Arc, thread};
use crate::{Inbox, NotificationRole, PollLock, SleepSteps, WaiterId, WakeFlag, sleep};

/// A step that a mutant leaves out. `Nothing`: the protocol as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    Nothing,
    /// The check between arming and blocking.
    LookBeforeSleep,
    /// The check after the release of the lock.
    LookAfterRelease,
    /// The fence between the release and that check.
    FenceAfterRelease,
    /// Waking the owner of an entry that was taken for it.
    WakeWhoseEntry,
    /// Waking the role's owner when leaving with entries pending.
    WakeOwner,
    /// Arming one's own flag before registering: it is armed afterwards.
    ArmFirst,
    /// Handing the role on before leaving.
    HandOffRole,
    /// Waking the successor.
    WakeHeir,
    /// Waiting for the end of a drain thread.
    Join,
    /// The check after that.
    LookAfterEnd,
    /// The check of the inbox before blocking.
    Mail,
    /// The check before blocking whether another thread wants something.
    Wanted,
}

impl Ablation for Omit {
    fn sleep(&self) -> &'static [SleepStep] {
        if *self == Omit::LookBeforeSleep {
            &[SleepStep::Arm, SleepStep::Block]
        } else {
            completion::SLEEP
        }
    }

    fn keeps(&self, rule: Rule) -> bool {
        match rule {
            Rule::PollAfterSwitch => *self != Omit::LookAfterEnd,
            Rule::HandOffRole => *self != Omit::HandOffRole,
            Rule::NotifyOwner => *self != Omit::WakeOwner,
            Rule::RearmAfterMask | Rule::NapOnPollQueue => true,
        }
    }
}

/// A completion queue with one vector, and the state that the library keeps for it.
pub struct Queue {
    slots: Vec<AtomicU64>,
    /// The consumer's index, under the lock; and a copy for checks without it.
    lock: PollLock<usize>,
    head: AtomicUsize,
    vector: WakeFlag,
    role: NotificationRole,
    flags: [WakeFlag; HOSTS],
    inboxes: [Inbox<u64>; HOSTS],
    /// Not 0: the drain thread is to end.
    dismissed: AtomicUsize,
    fds: Arc<EventFds>,
    /// The check before a sleep ignores an entry while the lock is held, as [`NotificationRole`]
    /// allows. The library's check does not: it takes no lock.
    ignores_locked: bool,
    omit: Omit,
}

/// What one of the threads does.
type Part = fn(&Queue) -> Result<(), LostWakeUp>;

const HOSTS: usize = 2;
const VECTOR: usize = HOSTS;
const ENDED: usize = HOSTS + 1;
const OWN: [&[usize]; HOSTS] = [&[0], &[1]];
const OWN_AND_VECTOR: [&[usize]; HOSTS] = [&[0, VECTOR], &[1, VECTOR]];

impl Queue {
    fn new(entries: usize, threads: usize, omit: Omit) -> Queue {
        Queue {
            slots: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            lock: PollLock::new(0),
            head: AtomicUsize::new(0),
            vector: WakeFlag::new(),
            role: NotificationRole::new(HOSTS),
            flags: Default::default(),
            inboxes: std::array::from_fn(|_| Inbox::new(entries)),
            dismissed: AtomicUsize::new(0),
            fds: EventFds::new(HOSTS + 2, threads),
            ignores_locked: false,
            omit,
        }
    }

    /// A device completes one command for each of these hosts. Host 0 waits for its own in this
    /// mode, and another thread does something else. Returns whether every host was woken.
    pub(crate) fn play(mode: Mode, order: &'static [usize], omit: Omit, other: Part) -> bool {
        let queue = Arc::new(Queue::new(order.len(), 3, omit));
        Queue::play_on(&queue, order, other, |queue| queue.wait(0, mode))
    }

    /// [`Queue::play`], where checks before a sleep ignore an entry while the lock is held.
    pub(crate) fn play_ignoring_locked(
        mode: Mode,
        order: &'static [usize],
        omit: Omit,
        other: Part,
    ) -> bool {
        let queue = Arc::new(Queue { ignores_locked: true, ..Queue::new(order.len(), 3, omit) });
        Queue::play_on(&queue, order, other, |queue| queue.wait(0, mode))
    }

    /// Host 0 has the queue alone, with `commands` of its own. Another thread polls it
    /// occasionally, as the controller's thread does (`polled`), or none does. Returns whether host
    /// 0 was woken.
    pub(crate) fn run_single_threaded(
        mode: Mode,
        order: &'static [usize],
        polled: bool,
        omit: Omit,
    ) -> bool {
        let queue = Arc::new(Queue::new(order.len(), 2 + usize::from(polled), omit));
        let mut host = Host::new(&queue, 0, mode, false);
        host.settle();
        let device = Queue::spawn(&queue, |queue| queue.post(order));
        let other = polled.then(|| {
            Queue::spawn(&queue, |queue| {
                while queue.reap(1, usize::MAX).is_some_and(|(_, more)| more) {}
                Ok(())
            })
        });
        let woken = host.wait(order.len()).is_ok();
        queue.fds.end();
        let others = [Some(device), other].into_iter().flatten();
        others.fold(woken, |woken, other| other.join().unwrap() && woken)
    }

    /// The drain thread (host 1) takes host 0's one entry, unless host 0 takes the queue back
    /// first. Host 0 is then woken by its vector, which it arms (`sleeps`), or polls without
    /// messages. Returns whether it found the entry, and whether the vector stays masked if it
    /// masked it.
    pub(crate) fn play_dismissal(sleeps: bool, omit: Omit) -> bool {
        let mode = if sleeps { Mode::INTERRUPT } else { Mode::POLL };
        let queue = Arc::new(Queue::new(1, 3, omit));
        let drain: Part = |queue| Host::new(queue, 1, Mode::THREADED, true).drain();
        let woken = Queue::play_on(&queue, &[0], drain, |queue| {
            Host::new(queue, 0, Mode::THREADED, true).takes_back(mode)
        });
        woken && queue.vector.is_armed() == sleeps
    }

    fn play_on(
        queue: &Arc<Queue>,
        order: &'static [usize],
        other: Part,
        own: impl FnOnce(&Queue) -> Result<(), LostWakeUp>,
    ) -> bool {
        let device = Queue::spawn(queue, |queue| queue.post(order));
        let other = Queue::spawn(queue, other);
        let woken = own(queue).is_ok();
        queue.fds.end();
        device.join().unwrap() && other.join().unwrap() && woken
    }

    fn spawn(
        queue: &Arc<Queue>,
        part: impl FnOnce(&Queue) -> Result<(), LostWakeUp> + 'static,
    ) -> JoinHandle<bool> {
        let queue = queue.clone();
        thread::spawn(move || {
            let woken = part(&queue).is_ok();
            queue.fds.end();
            woken
        })
    }

    /// Device: completes commands of these hosts in order, with a message each.
    fn post(&self, owners: &[usize]) -> Result<(), LostWakeUp> {
        for (slot, &owner) in self.slots.iter().zip(owners) {
            slot.store(1 + owner as u64, Release);
            if self.vector.should_wake() {
                self.fds.signal(VECTOR);
            }
        }
        Ok(())
    }

    /// Host: tries the lock, takes at most `budget` entries, pushes each to its owner's inbox and
    /// wakes the owner. `None`: the lock is held. Otherwise the number taken, and whether more
    /// entries are pending.
    pub(crate) fn reap(&self, me: usize, budget: usize) -> Option<(usize, bool)> {
        let mut taken = Vec::new();
        let look = |head: &mut usize| {
            while taken.len() < budget
                && self.slots.get(*head).is_some_and(|slot| slot.load(Acquire) != 0)
            {
                taken.push(self.slots[*head].load(Relaxed) as usize - 1);
                *head += 1;
            }
            self.head.store(*head, Relaxed);
        };
        let more = match self.omit {
            Omit::LookAfterRelease => self.lock.try_release(look).map(|()| false)?,
            Omit::FenceAfterRelease => self.lock.try_release(look).map(|()| self.pending())?,
            _ => self.lock.try_poll(look, || self.pending())?.more,
        };
        let found = taken.len();
        for owner in taken {
            assert!(self.inboxes[owner].push(0).is_ok());
            if owner != me && self.omit != Omit::WakeWhoseEntry {
                self.wake(owner);
            }
        }
        Some((found, more))
    }

    /// Host: polls once as a submitter does, taking at most `budget` entries, and leaves. Wakes the
    /// role's owner if entries are left.
    pub(crate) fn check(&self, me: usize, budget: usize) {
        let mut host = Host::new(self, me, Mode::INTERRUPT, true);
        host.look(budget);
        let owner = host.waiter.owner_to_wake(&mut host.vector);
        owner.into_iter().for_each(|owner| self.wake(owner.0 as usize));
    }

    /// Host: sleeps until its one command has completed, and leaves.
    pub(crate) fn wait(&self, me: usize, mode: Mode) -> Result<(), LostWakeUp> {
        Host::new(self, me, mode, true).wait(1)
    }

    fn pending(&self) -> bool {
        self.slots.get(self.head.load(Relaxed)).is_some_and(|slot| slot.load(Acquire) != 0)
    }

    fn wake(&self, host: usize) {
        if self.flags[host].claim_wake() {
            self.fds.signal(host);
        }
    }
}

/// The queue's vector and notification role, as one thread sees them.
struct Vector<'a> {
    queue: &'a Queue,
    me: WaiterId,
    shared: Cell<bool>,
}

impl Notification for Vector<'_> {
    type Thread = WaiterId;

    fn is_shared(&self) -> bool {
        self.shared.get()
    }

    fn has_own_vector(&self) -> bool {
        true
    }

    fn arm(&mut self) {
        self.queue.vector.arm();
    }

    fn mask(&mut self) {
        self.queue.vector.disarm();
    }

    fn pending(&mut self) -> bool {
        let locked = || self.queue.lock.try_lock().is_none();
        self.queue.pending() && !(self.queue.ignores_locked && locked())
    }

    fn take_role(&mut self) -> bool {
        let owner = self.queue.role.try_take(self.me);
        if self.queue.omit == Omit::ArmFirst {
            self.queue.flags[self.me.0 as usize].arm();
        }
        owner
    }

    fn has_role(&self) -> bool {
        self.queue.role.owner() == Some(self.me)
    }

    fn release_role(&mut self) -> Option<WaiterId> {
        self.queue.role.release(self.me)
    }

    fn other_owner(&mut self) -> Option<WaiterId> {
        self.queue.role.owner().filter(|owner| *owner != self.me)
    }
}

/// A thread of the host.
struct Host<'a> {
    queue: &'a Queue,
    me: usize,
    waiter: Waiter<Omit>,
    vector: Vector<'a>,
    /// Commands in flight.
    open: u32,
    /// It drains the queue for others.
    drains: bool,
    /// The flag of the mutant that arms its own too late.
    nobodys: WakeFlag,
}

impl<'a> Host<'a> {
    fn new(queue: &'a Queue, me: usize, mode: Mode, shared: bool) -> Host<'a> {
        let vector = Vector { queue, me: WaiterId(me as u32), shared: Cell::new(shared) };
        let mut waiter = Waiter::new(mode, &SleepCosts::default(), queue.omit);
        waiter.owner = !shared;
        Host { queue, me, waiter, vector, open: 0, drains: false, nobodys: WakeFlag::new() }
    }

    fn settle(&mut self) {
        self.waiter.settle(&mut self.vector);
    }

    /// Takes at most `budget` entries, for its waiter.
    fn look(&mut self, budget: usize) {
        _ = self.waiter.begin_poll();
        match self.queue.reap(self.me, budget) {
            None => {
                self.waiter.seen.lock_busy = true;
                // The check before the sleep may return here until the holder is done.
                thread::yield_now();
            }
            Some((found, more)) => {
                (self.waiter.seen.found, self.waiter.seen.pending) = (found as u32, more)
            }
        }
        while self.queue.inboxes[self.me].pop().is_some() {
            self.open -= 1;
        }
    }

    /// Waits by its policy until these commands have completed, and leaves.
    fn wait(mut self, commands: usize) -> Result<(), LostWakeUp> {
        self.open = commands as u32;
        if self.vector.shared.get() {
            // As a submitter that checks: it may take another thread's entry before it knows of the
            // role.
            self.look(usize::MAX);
        }
        let waited = self.carry_out();
        let successor = self.waiter.leave(&mut self.vector);
        successor.into_iter().for_each(|successor| self.notify(successor));
        waited
    }

    fn carry_out(&mut self) -> Result<(), LostWakeUp> {
        while self.open > 0 {
            self.waiter.seen.in_flight = self.open;
            match self.waiter.next(Nanos::ZERO, &mut self.vector) {
                Plan::Poll { .. } => self.look(usize::MAX),
                Plan::Sleep { .. } => self.sleep()?,
                Plan::Spin { .. } => {
                    thread::yield_now();
                    self.look(usize::MAX);
                }
                Plan::Nap { .. } | Plan::Idle => unreachable!("no policy of the models naps"),
            }
        }
        Ok(())
    }

    /// As the engine does: arms, checks, blocks.
    fn sleep(&mut self) -> Result<(), LostWakeUp> {
        let (omit, mut slept) = (self.queue.omit, Ok(()));
        let mut found = false;
        let arm = |host: &mut Self| {
            sleep::arm(host);
            true
        };
        for step in 0.. {
            match sleep_step(&omit, step, std::iter::once(&mut *self), arm, |host| {
                Some(sleep::check(host))
            }) {
                StepResult::Armed(_) | StepResult::Empty(_) => {}
                StepResult::Found(_) => {
                    found = true;
                    break;
                }
                StepResult::Block => {
                    slept = self.queue.fds.block(self.waits_on());
                    break;
                }
            }
        }
        sleep::wake(self);
        if !found {
            self.waiter.woken(Woke::OTHER);
        }
        slept
    }

    fn waits_on(&self) -> &'static [usize] {
        let owner = self.waiter.owner && !self.waiter.others_look;
        if owner { OWN_AND_VECTOR[self.me] } else { OWN[self.me] }
    }

    /// Takes entries until it is to end. By then it has taken all that was announced to it.
    fn drain(mut self) -> Result<(), LostWakeUp> {
        self.drains = true;
        self.waiter.plan = Plan::sleep(Nanos::MAX);
        loop {
            _ = self.waiter.begin_poll();
            while self.queue.reap(self.me, usize::MAX).is_some_and(|(_, more)| more) {}
            if self.queue.dismissed.load(Acquire) != 0 {
                break;
            }
            self.sleep()?;
        }
        let successor = self.waiter.leave(&mut self.vector);
        successor.into_iter().for_each(|successor| self.notify(successor));
        self.queue.fds.signal(ENDED);
        Ok(())
    }

    /// A drain thread (host 1) has polled for this thread. It ends, and the queue is this thread's
    /// in another mode.
    fn takes_back(mut self, mode: Mode) -> Result<(), LostWakeUp> {
        self.queue.dismissed.store(1, Release);
        self.queue.wake(1);
        if self.queue.omit != Omit::Join {
            self.queue.fds.block(&[ENDED])?;
        }
        self.vector.shared.set(false);
        self.waiter.adopt(mode, &SleepCosts::default());
        self.waiter.owner = true;
        self.settle();
        self.wait(1)
    }
}

impl SleepSteps for Host<'_> {
    type Thread = WaiterId;

    fn flag(&self) -> &WakeFlag {
        if self.queue.omit == Omit::ArmFirst { &self.nobodys } else { &self.queue.flags[self.me] }
    }

    fn register(&mut self) -> Option<WaiterId> {
        self.waiter.register(&mut self.vector)
    }

    fn unmask(&mut self) {
        self.waiter.arm(&mut self.vector);
    }

    fn notify(&self, thread: WaiterId) {
        if self.queue.omit != Omit::WakeHeir {
            self.queue.wake(thread.0 as usize);
        }
    }

    fn was_posted(&mut self) -> bool {
        false
    }

    fn has_entry(&mut self) -> bool {
        self.waiter.recheck(&mut self.vector).unwrap_or(false)
    }

    fn has_completions(&mut self) -> bool {
        let mail = !self.drains
            && self.queue.omit != Omit::Mail
            && !self.queue.inboxes[self.me].is_empty();
        if mail {
            self.waiter.found_something();
        }
        mail
    }

    fn is_wanted(&mut self) -> bool {
        self.drains && self.queue.omit != Omit::Wanted && self.queue.dismissed.load(Acquire) != 0
    }

    fn mask(&mut self) {
        self.queue.flags[self.me].disarm();
        self.waiter.wakes(&self.vector);
        self.waiter.mask_or_keep(self.open, &mut self.vector);
    }
}
