//! A ring that the queues of several files have in common, where one thread drives them together in `posted`.
//!
//! Each lane keeps its commands, and its own ring for other modes. Here it has a *seat*: the user data of an entry names the seat and
//! the command. A thread that takes completions leaves each of them at its seat, where the lane finds it at its next look. So one enter
//! submits for all the files and waits for all of them, and one completion ring is emptied.
//!
//! The lanes that post here are those of one group, and so one thread's. Any other thread that takes completions signals the bell of each
//! lane that it finds one of; and the group's own thread that of a lane which posts here no more. Signals are sticky, so that no sleep
//! misses one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use hw::EventFd;
use hw::uring::{Cq, Cqe, Ended, Enter, Entry, File, FileSlot, Hint, Options, Poll, Ring, RingError, Sq};
use sync::{Mutex, MutexGuard, lock, try_lock};
use units::Nanos;

use super::buffers::{Buffers, PLACES};
use super::command::Command;
use super::namespace::Passthrough;
use crate::error::QueueError;

/// Lanes of one ring, at most.
const MOST_SEATS: u32 = 256;

/// Entries of its submission ring, at most. A ring that is full is submitted, and then has room.
const MOST_ENTRIES: u32 = 4096;

/// Entries that are taken off the ring at a time.
const RUN: usize = 16;

/// User data of what is no command, beside the seat's number: the bell of a seat's thread, and cancelling.
const BELL: u64 = 1 << 32;
const QUIET: u64 = 2 << 32;

/// The ring.
pub(crate) struct Common {
    ring: Ring,
    /// One thread alone may use it.
    owned: bool,
    /// It takes commands that pass through.
    big: bool,
    /// Signalled by completions, for a thread that sleeps elsewhere.
    event: EventFd,
    /// It serves queues that are driven together. Of others there are seats alone.
    serves: AtomicBool,
    inner: Mutex<Inner>,
}

/// What its lock guards.
struct Inner {
    sq: Sq,
    cq: Cq,
    taken: Box<[Cqe; RUN]>,
    buffers: Buffers,
    seats: Vec<Option<Arc<Seat>>>,
    /// Seats that nobody has any more, whose files are to be let go; and bells to be listened to again.
    empty: Vec<u32>,
    deaf: Vec<u32>,
}

/// One lane's place.
struct Seat {
    number: u32,
    /// Ends the sleep of the lane's thread, wherever it sleeps.
    signal: EventFd,
    /// Its lane posts here.
    posts: AtomicBool,
    /// Completions that the lane has not looked at: its command, and the kernel's answer.
    came: Mutex<VecDeque<(u16, i32)>>,
    waiting: AtomicU32,
}

/// What a lane has of a ring in common.
pub(super) struct Seated {
    common: Arc<Common>,
    seat: Arc<Seat>,
    /// The lane's thread drives it together with the others here.
    gathered: AtomicBool,
    /// The last sleep has looked for it.
    brought: AtomicBool,
    /// Commands out on the ring: counted under the lane's lock.
    out: AtomicU32,
    /// System calls on the lane's behalf.
    enters: AtomicU64,
}

/// What a ring is to serve: the sum of the lanes' commands, and whether one thread alone is to use it, or commands pass through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub tags: u32,
    pub owned: bool,
    pub big: bool,
}

impl Needs {
    /// Those of both.
    pub(crate) fn and(self, other: Needs) -> Needs {
        Needs { tags: self.tags + other.tags, big: self.big || other.big, ..self }
    }
}

impl Common {
    /// A ring without seats.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn new(needs: Needs) -> Result<Arc<Common>, QueueError> {
        let refused = |e: &dyn std::fmt::Display| QueueError::Ring(e.to_string());
        let Needs { tags, owned, big } = needs;
        let entries = (tags + 64).next_power_of_two().min(MOST_ENTRIES);
        let files = 2 * MOST_SEATS;
        let options = Options { entries, cq_entries: 2 * entries, owner: owned, poll: Poll::No, big, files, buffers: PLACES };
        let (ring, sq, cq) = Ring::new(&options).map_err(|e| refused(&e))?;
        let event = EventFd::new().map_err(|e| refused(&e))?;
        ring.notify(Some(&event)).map_err(|e| refused(&e))?;
        let inner =
            Inner { sq, cq, taken: Box::default(), buffers: Buffers::default(), seats: Vec::new(), empty: Vec::new(), deaf: Vec::new() };
        Ok(Arc::new(Common { ring, owned, big, event, serves: AtomicBool::new(false), inner: Mutex::new(inner) }))
    }

    /// Whether a lane of these needs can have a seat. However many commands it has, there is room in turn.
    pub(crate) fn fits(&self, needs: Needs) -> bool {
        self.owned == needs.owned && (self.big || !needs.big)
    }

    /// It serves one group of queues, and so one thread, at a time: whether it serves this one from now on.
    pub(crate) fn begin(&self) -> bool {
        !self.serves.swap(true, Acquire)
    }

    /// The group is no more.
    pub(crate) fn end(&self) {
        self.serves.store(false, Release);
    }

    /// What completions signal.
    pub(crate) fn event(&self) -> &EventFd {
        &self.event
    }

    #[inline]
    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// A seat for a lane whose file is `file`, and whose thread `signal` wakes.
    ///
    /// # Errors
    /// All seats are taken, or the kernel refuses a file.
    pub(super) fn sit(self: &Arc<Common>, file: impl std::os::fd::AsFd, signal: EventFd) -> Result<Seated, QueueError> {
        let refused = |e: &dyn std::fmt::Display| QueueError::Ring(e.to_string());
        let mut inner = self.inner();
        inner.tidy(&self.ring);
        inner.buffers.forget_gone(&self.ring);
        let free = inner.seats.iter().position(Option::is_none);
        let number = free.unwrap_or(inner.seats.len()) as u32;
        if number >= MOST_SEATS {
            return Err(QueueError::Ring(format!("a ring for several files has {MOST_SEATS} places at most")));
        }
        self.ring.register_file(target(number), file).map_err(|e| refused(&e))?;
        self.ring.register_file(bell(number), &signal).map_err(|e| refused(&e))?;
        let seat =
            Arc::new(Seat { number, signal, posts: AtomicBool::new(false), came: Mutex::new(VecDeque::new()), waiting: AtomicU32::new(0) });
        match inner.seats.get_mut(number as usize) {
            Some(place) => *place = Some(seat.clone()),
            None => inner.seats.push(Some(seat.clone())),
        }
        inner.deaf.push(number);
        let (gathered, brought) = (AtomicBool::new(false), AtomicBool::new(false));
        let (out, enters) = (AtomicU32::new(0), AtomicU64::new(0));
        let seated = Seated { common: self.clone(), seat, gathered, brought, out, enters };
        seated.submit_locked(&mut inner);
        Ok(seated)
    }
}

/// Enters the kernel. How a wait has ended; `None`: it could not begin.
pub(super) fn entered(ring: &Ring, enter: Enter) -> Option<Ended> {
    match ring.enter(enter) {
        Ok(entered) => Some(entered.ended),
        // Completions have to be taken first: the look that follows does.
        Err(RingError::Again | RingError::Busy) => None,
        Err(error) => {
            tracing::error!(%error, "a queue of a file cannot enter the kernel");
            None
        }
    }
}

/// The places of a seat in the ring's table of files: its lane's file, and its bell.
fn target(seat: u32) -> FileSlot {
    FileSlot(2 * seat)
}

fn bell(seat: u32) -> FileSlot {
    FileSlot(2 * seat + 1)
}

impl Inner {
    /// Lets the files of empty seats go. Where one thread alone may use the ring, it is that thread's to do.
    #[cold]
    fn tidy(&mut self, ring: &Ring) {
        for number in std::mem::take(&mut self.empty) {
            let gone = ring.unregister_file(target(number)).and_then(|()| ring.unregister_file(bell(number)));
            if let Err(error) = gone {
                tracing::debug!(%error, "a file stays open until the thread that has its ring comes by");
                self.empty.push(number);
                continue;
            }
            self.deaf.retain(|deaf| *deaf != number);
            // The poll keeps the bell beyond its place in the table.
            if self.sq.push(Entry::cancel(BELL | u64::from(number)).user_data(QUIET)).is_err() {
                tracing::debug!("a bell is listened to until its ring is closed");
            }
            if let Some(place) = self.seats.get_mut(number as usize) {
                *place = None;
            }
        }
    }

    /// Listens to the bells that are not listened to.
    #[cold]
    fn listen(&mut self) {
        while let Some(&number) = self.deaf.last() {
            if self.sq.push(Entry::poll(bell(number), true).user_data(BELL | u64::from(number))).is_err() {
                return;
            }
            self.deaf.pop();
        }
    }

    /// Polls again the bells that need it. How many entries the next enter submits.
    #[inline]
    fn publish(&mut self, ring: &Ring) -> u32 {
        if !self.empty.is_empty() {
            self.tidy(ring);
        }
        if !self.deaf.is_empty() {
            self.listen();
        }
        self.sq.unsubmitted()
    }

    /// Leaves each completion at its seat. `theirs`: the lanes' thread does, which needs no signal for those that post here.
    fn hand_out(&mut self, theirs: bool) {
        loop {
            let taken = self.cq.take(&mut self.taken[..]);
            for cqe in &self.taken[..taken] {
                let number = if cqe.user_data >= BELL { cqe.user_data as u32 } else { (cqe.user_data >> 16) as u32 };
                let Some(Some(seat)) = self.seats.get(number as usize) else { continue };
                match cqe.user_data {
                    quiet if quiet >= QUIET => {}
                    bell if bell >= BELL => {
                        if !cqe.more() {
                            self.deaf.push(number);
                        }
                    }
                    command => seat.leave(command as u16, cqe.result, theirs),
                }
            }
            if taken < RUN {
                return;
            }
        }
    }
}

impl Seat {
    fn leave(&self, at: u16, result: i32, theirs: bool) {
        lock(&self.came).push_back((at, result));
        self.waiting.fetch_add(1, Release);
        if !theirs || !self.posts.load(Relaxed) {
            self.signal.signal();
        }
    }
}

impl Seated {
    /// The ring.
    pub(super) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Whether new commands go there.
    #[inline]
    pub(super) fn posts(&self) -> bool {
        self.seat.posts.load(Relaxed)
    }

    /// The lane's thread drives it with the others there (true), or by itself.
    pub(super) fn gather(&self, gathered: bool) {
        self.gathered.store(gathered, Relaxed);
        if !gathered {
            self.post(false);
        }
    }

    /// New commands go there, if the lane is driven with the others; or to the lane's own ring. None that is out moves.
    pub(super) fn post(&self, here: bool) {
        // Under the lock: a thread that hands completions out sees it before or after all of them.
        let _inner = self.common.inner();
        self.seat.posts.store(here && self.gathered.load(Relaxed), Relaxed);
    }

    /// Whether it is driven with the others.
    pub(super) fn is_gathered(&self) -> bool {
        self.gathered.load(Relaxed)
    }

    /// Completions that nobody has taken off the ring.
    #[cfg(test)]
    pub(super) fn ready(&self) -> u32 {
        self.common.ring.ready()
    }

    /// Commands out.
    #[inline]
    pub(super) fn out(&self) -> u32 {
        self.out.load(Acquire)
    }

    /// System calls on the lane's behalf.
    pub(super) fn enters(&self) -> u64 {
        self.enters.load(Relaxed)
    }

    /// Whether a look may find something, without a system call; for a thread that has not submitted, what `shows`.
    #[inline]
    pub(super) fn hint(&self, shows: bool) -> bool {
        let there = |hint| if shows { hint == Hint::Entries } else { hint != Hint::None };
        self.seat.waiting.load(Acquire) > 0 || self.out() > 0 && there(self.common.ring.hint())
    }

    /// Pushes a command of the lane, as number `at`. `with` makes it, of memory that the ring knows by these buffers. `None`: there is
    /// no room now.
    pub(super) fn push(
        &self,
        at: u16,
        passthrough: Option<Passthrough>,
        with: impl FnOnce(&mut Buffers, &Ring) -> Command,
    ) -> Option<Command> {
        let mut inner = self.common.inner();
        if inner.sq.room() == 0 {
            self.submit_locked(&mut inner);
            if inner.sq.room() == 0 {
                return None;
            }
        }
        let inner = &mut *inner;
        let command = with(&mut inner.buffers, &self.common.ring);
        let (file, user_data) = (File::Slot(target(self.seat.number)), u64::from(self.seat.number) << 16 | u64::from(at));
        let pushed = match passthrough.and_then(|passthrough| passthrough.entry(&command, file)) {
            None => inner.sq.push(command.entry(file).user_data(user_data)).is_ok(),
            Some(entry) => inner.sq.push_command(entry.user_data(user_data)).is_ok(),
        };
        pushed.then_some(command)
    }

    /// Asks the kernel to cancel the lane's command `at`. False: there is no room now.
    pub(super) fn cancel(&self, at: u16) -> bool {
        let command = u64::from(self.seat.number) << 16 | u64::from(at);
        self.common.inner().sq.push(Entry::cancel(command).user_data(QUIET)).is_ok()
    }

    /// So many more commands are out; the lane's lock is held.
    pub(super) fn went(&self) {
        self.out.store(self.out.load(Relaxed) + 1, Release);
    }

    /// One of them is over.
    pub(super) fn ended(&self) {
        self.out.store(self.out.load(Relaxed) - 1, Release);
    }

    /// Has the kernel take what was pushed, by whichever lane. Entries submitted.
    pub(super) fn submit(&self) -> u32 {
        self.submit_locked(&mut self.common.inner())
    }

    fn submit_locked(&self, inner: &mut Inner) -> u32 {
        let submit = inner.publish(&self.common.ring);
        if submit > 0 {
            let run_tasks = self.common.ring.hint() == Hint::TaskWork;
            self.enter(Enter { submit, run_tasks, ..Enter::default() });
        }
        submit
    }

    fn enter(&self, enter: Enter) -> Option<Ended> {
        self.enters.fetch_add(1, Relaxed);
        entered(&self.common.ring, enter)
    }

    /// Looks for completions, and leaves each at its seat. `brings`: for the thread that has submitted, which alone brings what waits in
    /// its task. Another thread waits for nobody.
    pub(super) fn look(&self, brings: bool) {
        let ring = &self.common.ring;
        let mut inner = match brings {
            true => self.common.inner(),
            false => match try_lock(&self.common.inner) {
                Some(inner) => inner,
                None => return,
            },
        };
        if brings && (ring.hint() == Hint::TaskWork || inner.sq.unsubmitted() > 0) {
            let submit = inner.publish(ring);
            self.enter(Enter { submit, run_tasks: true, ..Enter::default() });
        }
        // A lane that is driven by itself may be another thread's than those that are driven together.
        let theirs = brings && self.posts();
        inner.hand_out(theirs);
    }

    /// A sleep in the ring has looked for the lane (true), whose next look need not; or that is not known (false), because a notification
    /// may have been followed since.
    #[inline]
    pub(super) fn set_brought(&self, brought: bool) {
        self.brought.store(brought, Relaxed);
    }

    /// Whether a sleep has looked for the lane. Told once.
    #[inline]
    pub(super) fn was_brought(&self) -> bool {
        self.brought.load(Relaxed) && self.brought.swap(false, Relaxed)
    }

    /// Whether completions wait at the seat.
    #[inline]
    pub(super) fn has_come(&self) -> bool {
        self.seat.waiting.load(Acquire) > 0
    }

    /// Takes a completion that was left at the seat: its command, and the kernel's answer.
    pub(super) fn take(&self) -> Option<(u16, i32)> {
        if !self.has_come() {
            return None;
        }
        let came = lock(&self.seat.came).pop_front();
        if came.is_some() {
            self.seat.waiting.fetch_sub(1, Relaxed);
        }
        came
    }

    /// Submits what was pushed by any lane, sleeps until there is a completion of any, or a bell rings, or for `timeout`, and leaves each
    /// completion at its seat: one system call.
    pub(super) fn sleep(&self, timeout: Option<Nanos>) {
        let ring = &self.common.ring;
        let submit = self.common.inner().publish(ring);
        if submit > 0 || ring.hint() != Hint::Entries {
            let ended = self.enter(Enter { submit, wait_for: 1, timeout, ..Enter::default() });
            if ended.is_none() && timeout.is_none() {
                // It cannot sleep now; what has to be taken first is there, or in a moment.
                std::thread::yield_now();
            }
        }
        self.common.inner().hand_out(true);
    }
}

/// The lane goes, with nothing of it out.
impl Drop for Seated {
    fn drop(&mut self) {
        if !self.common.ring.birth().is_here() {
            return;
        }
        let mut inner = self.common.inner();
        inner.empty.push(self.seat.number);
        inner.tidy(&self.common.ring);
    }
}
