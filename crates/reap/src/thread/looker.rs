//! One thread's side of a software queue: its policy, what it saw last, and how it looks.
//!
//! A look takes what other threads left in the inbox, then tries the completion queue. Everything that is told to
//! others (inboxes, wakers) is told after the locks are released.

use std::task::Waker;

use completion::{Done, Lawful, Mode, Plan, Policy, Spin, Tuning, Waiter};
use driver::Completed;
use units::Nanos;

use super::contention::Contention;
use super::vector::Vector;
use crate::counters::Counters;
use crate::request::{Outcome, Token};
use crate::shared::book::{Failure, Requests};
use crate::shared::hw_queue::HwQueue;
use crate::shared::soft::Soft;
use crate::wakeups::Wakeups;

/// Most entries of one look, whatever a policy asks for: the room of the buffers that are allocated once.
const MOST: usize = 256;

pub(crate) struct Looker {
    me: u8,
    pub waiter: Waiter,
    pub counters: Counters,
    /// What wake-ups bring, if somebody wants to know.
    pub wakeups: Option<Box<Wakeups>>,
    /// What spinning means where others want the CPU.
    pub spin: Spin,
    /// [`MOST`] places; what a look takes is in the first of them.
    taken: Box<[Completed; MOST]>,
    inbox: Vec<Outcome>,
    done: Vec<Done>,
    wakers: Vec<Waker>,
    /// When the thread's last sleep was over, until the next plan is made; and, if the look that follows it is to begin at once, the
    /// clock read of that look.
    pub woke_at: Option<Nanos>,
    pub read: Option<Nanos>,
    contention: Contention,
}

impl Looker {
    pub(crate) fn new(me: u8, policy: Policy) -> Looker {
        Looker {
            me,
            waiter: Waiter::new(policy, Lawful),
            counters: Counters::default(),
            wakeups: None,
            spin: Spin::Naps,
            taken: Box::new([Completed::default(); MOST]),
            inbox: Vec::with_capacity(MOST),
            done: Vec::with_capacity(MOST),
            wakers: Vec::with_capacity(MOST),
            woke_at: None,
            read: None,
            contention: Contention::default(),
        }
    }

    /// Adopts another mode if one was asked for. Whatever the old one was waiting for, the new one begins with a look.
    #[inline(always)] // Asked for each plan, and the answer is no.
    pub(crate) fn adopt(&mut self, soft: &Soft, tuning: impl FnOnce() -> Tuning) -> Option<Mode> {
        let asked = soft.mode.adopt(self.waiter.policy.word())?;
        Some(self.change(asked, tuning))
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self, mode: Mode, tuning: impl FnOnce() -> Tuning) -> Mode {
        self.waiter.adopt(Policy::with(mode, &tuning()));
        mode
    }

    /// Goes on in the same mode with another tuning, as if it were another mode.
    pub(crate) fn retune(&mut self, tuning: &Tuning) {
        self.waiter.adopt(Policy::with(self.waiter.policy.mode(), tuning));
    }

    /// What to do next, where that is to look and need not be asked for.
    #[inline(always)] // Asked for each plan.
    pub(crate) fn looks_first(&mut self, queue: &HwQueue) -> Option<Plan> {
        self.waiter.looks_first(|| queue.hint())
    }

    /// What to do next. The caller goes on at `goes_on_at`, whatever has been found.
    #[inline]
    pub(crate) fn next(&mut self, soft: &Soft, now: Nanos, goes_on_at: Nanos, vector: &mut Vector<'_>) -> Plan {
        let seen = &mut self.waiter.seen;
        seen.goes_on_at = (goes_on_at != Nanos::MAX).then_some(goes_on_at);
        seen.in_flight = soft.open();
        seen.urgent_waiting = soft.urgent();
        seen.held = vector.queue.held_back();
        if let Some(polled) = &vector.queue.polled {
            self.waiter.set_silent(polled.in_flight());
        }
        let plan = self.waiter.next(now, vector);
        let holds = self.waiter.policy.holds().into();
        if holds != soft.holds() && soft.asks_to_hold(holds) {
            vector.queue.reporter.stirred();
        }
        plan
    }

    /// A batch has been committed, and the policy says that its thread may look. Whether it did.
    #[inline]
    pub(crate) fn check(&mut self, queue: &HwQueue, soft: &Soft, budget: u32) -> bool {
        if !queue.hint() {
            return false;
        }
        self.counters.submit_checks += 1;
        let others_look = std::mem::replace(&mut self.waiter.others_look, false);
        self.look(queue, soft, budget);
        self.waiter.others_look = others_look;
        true
    }

    /// Takes at most `budget` entries. Returns the clock read of the look, if it found something.
    #[inline]
    pub(crate) fn look(&mut self, queue: &HwQueue, soft: &Soft, budget: u32) -> Option<Nanos> {
        let (slept, met) = self.waiter.begin_look();
        self.counters.looks += 1;
        self.reap(queue, budget);
        let from_inbox = if soft.inbox.is_empty() { 0 } else { soft.inbox.take(MOST, &mut self.inbox) };
        if self.waiter.seen.found == 0 && from_inbox == 0 {
            self.counters.empty_looks += 1;
            self.read = None;
            if queue.is_dead() {
                self.fail_waiting(soft);
            }
            return None;
        }
        self.counters.entries += u64::from(self.waiter.seen.found);
        self.counters.drains += 1;
        self.counters.drain_max = self.counters.drain_max.max(self.waiter.seen.found);
        let now = self.read_clock();
        if let Some(wakeups) = &mut self.wakeups {
            wakeups.took(self.waiter.seen.found, now);
        }
        self.finish(queue, soft, now, slept);
        // What somebody else took for this queue is found as well, as far as its policy is concerned.
        self.waiter.seen.found += from_inbox as u32;
        self.waiter.seen.met_at = met.then_some(now);
        Some(now)
    }

    /// The clock read of a look that has found something.
    #[inline]
    fn read_clock(&mut self) -> Nanos {
        if let Some(read) = self.read {
            self.read = None;
            return read;
        }
        hw::now()
    }

    /// The controller is given up: what waits for a tag fails.
    #[cold]
    fn fail_waiting(&mut self, soft: &Soft) {
        let mut book = soft.requests();
        book.fail_waiting(Failure::DeviceLost, hw::now());
        book.take_ended(&mut self.wakers);
    }

    #[inline]
    fn reap(&mut self, queue: &HwQueue, budget: u32) {
        let places = &mut self.taken[..(budget as usize).clamp(1, MOST)];
        let reaped = match (self.waiter.others_look, &queue.polled) {
            (false, _) => queue.try_reap(places),
            // A drain thread is told of the lane that notifies alone.
            (true, Some(polled)) => polled.try_reap(places),
            (true, None) => return,
        };
        let Some(reaped) = reaped else {
            self.waiter.seen.lock_busy = true;
            return;
        };
        self.waiter.seen.found = reaped.found;
        self.waiter.seen.budget_used_up = reaped.budget_used_up;
        self.waiter.seen.pending = reaped.more;
        if let Some(violation) = reaped.violation {
            queue.reporter.violated(*violation);
        }
    }

    /// Ends what was taken and tells the others. Wakers are left for [`Looker::take_wakers`].
    #[inline]
    fn finish(&mut self, queue: &HwQueue, soft: &Soft, now: Nanos, slept: bool) {
        if queue.is_shared() {
            self.hand_out(queue);
        }
        let wants_done = self.waiter.policy.wants_done();
        let mut book = soft.requests();
        if soft.is_impatient() {
            book.lose_patience();
        }
        if !self.inbox.is_empty() {
            self.end_mail(&mut book, wants_done, now, slept);
        }
        if wants_done {
            self.record(&book, now, slept);
        }
        book.answered(&self.taken[..self.waiter.seen.found as usize], now, &mut self.wakers);
        if book.is_waiting() {
            queue.post_again(self.me, &mut book, now);
        }
        book.take_ended(&mut self.wakers);
        drop(book);
        queue.serve_line(now);
        if wants_done {
            self.waiter.policy.completed(&self.done);
            self.done.clear();
        }
    }

    /// What the last look has taken.
    fn taken(&self) -> &[Completed] {
        &self.taken[..self.waiter.seen.found as usize]
    }

    /// Hands to other threads what is theirs of what was taken.
    #[inline(never)]
    fn hand_out(&self, queue: &HwQueue) {
        let taken = self.taken();
        if taken.iter().any(|c| Token(c.token).soft() != self.me) {
            queue.hand_out(Some(self.me), taken);
        }
    }

    /// Ends what other threads took for this queue.
    #[inline(never)]
    fn end_mail(&mut self, book: &mut Requests, wants_done: bool, now: Nanos, slept: bool) {
        for outcome in self.inbox.drain(..) {
            if wants_done {
                self.done.extend(book.record(outcome.token, outcome.posted_at, now, slept));
            }
            self.wakers.extend(book.end(outcome.token, outcome.how, now));
        }
    }

    /// Makes the policy's records of what was taken.
    #[inline(never)]
    fn record(&mut self, book: &Requests, now: Nanos, slept: bool) {
        let taken = &self.taken[..self.waiter.seen.found as usize];
        let mine = taken.iter().filter(|completed| Token(completed.token).soft() == self.me);
        let records = mine.filter_map(|completed| book.record(Token(completed.token), completed.posted_at, now, slept));
        self.waiter.policy.record(records, &mut self.done);
    }

    /// Whether there are any of [`Looker::take_wakers`].
    #[inline]
    pub(crate) fn has_wakers(&self) -> bool {
        !self.wakers.is_empty()
    }

    /// The wakers of what has finished, to be called when nothing is borrowed.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Gives the room of [`Looker::take_wakers`] back.
    pub(crate) fn keep_wakers(&mut self, room: Vec<Waker>) {
        if room.capacity() > self.wakers.capacity() {
            self.wakers = room;
        }
    }

    /// Tells the policy whether others want this CPU, unless its mode spins and is to spin all the same.
    pub(crate) fn sample_delay(&mut self, now: Nanos) {
        if let Some(wanted) = self.contention.sample(now) {
            self.waiter.seen.cpu_wanted = wanted && self.spin.tells_wanted(self.waiter.policy.mode());
        }
    }
}

#[cfg(test)]
mod tests;
