//! One thread's software queue over several paths: a queue of each path's, and the head above them.

use std::cell::{Cell, RefCell, RefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use blkmq::paths::{Counting, PathId, Policy};
use completion::Mode;
use units::Nanos;

use super::Multipath;
use super::head::{Claim, Head};
use crate::device::HardwareCounters;
use crate::engine::{self, Place};
use crate::error::Refused;
use crate::executor::{self, Signal};
use crate::future::Pending;
use crate::looker::Counters;
use crate::queue::{Queue as Lane, Turned};
use crate::request::{Completion, Request};
use crate::wakeups::Wakeups;

/// Between two looks at what waits for a path, should nothing else wake the thread.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// A software queue of a multipath device.
pub(crate) struct Queue(Option<Box<Parts>>);

/// What it is made of. Apart, so that it can be left to a thread of its own when futures outlive it.
pub(super) struct Parts {
    shared: Arc<Multipath>,
    index: usize,
    lanes: Vec<Lane>,
    place: Place,
    head: RefCell<Head>,
    clock: Cell<Nanos>,
}

impl Queue {
    pub(super) fn new(shared: Arc<Multipath>, index: usize, lanes: Vec<Lane>, place: Place, head: Head) -> Queue {
        let parts = Parts { shared, index, lanes, place, head: RefCell::new(head), clock: Cell::new(hw::now()) };
        Queue(Some(Box::new(parts)))
    }

    /// It is there until it is dropped.
    #[inline]
    fn parts(&self) -> &Parts {
        match &self.0 {
            Some(parts) => parts,
            None => unreachable!("a queue is taken apart only when it is dropped"),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Multipath> {
        &self.parts().shared
    }

    pub(crate) fn submit(&self, now: Nanos, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.parts().submit(now, requests)
    }

    pub(crate) fn reap(&self, out: &mut Vec<Completion>) -> usize {
        let parts = self.parts();
        parts.sift();
        let room = (out.capacity() - out.len()).max(1);
        let mut head = parts.head.borrow_mut();
        let count = room.min(head.done.len());
        if count == head.done.len() {
            out.append(&mut head.done);
        } else {
            out.extend(head.done.drain(..count));
        }
        count
    }

    pub(crate) fn finished(&self) -> usize {
        self.parts().sift();
        self.parts().head.borrow().done.len()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.parts().head.borrow().open
    }

    /// Drives the paths until `enough`, `until`, or, unless others may come (`for_others`), nothing is open.
    pub(crate) fn drive(&self, until: Nanos, for_others: bool, enough: impl Fn() -> bool) {
        self.parts().drive(until, for_others, enough);
    }

    /// Drives the paths until `min` requests can be reaped, `until`, or, unless `idle` too is waited out, nothing is open.
    pub(crate) fn wait(&self, min: usize, until: Nanos, idle: bool) -> usize {
        let parts = self.parts();
        let done = || parts.head.borrow().done.len();
        parts.drive(until, idle, || done() >= min);
        done()
    }

    pub(crate) fn start(&self, request: Request) -> Pending {
        let parts = self.parts();
        if let Err(why) = parts.shared.check(&request) {
            return Pending::refused(why, request);
        }
        let now = parts.begin(hw::now());
        let mut head = parts.head.borrow_mut();
        let ticket = head.tickets.issue();
        head.enter(&parts.shared, request, Claim::Future(ticket), now);
        head.pump(&parts.shared, now);
        Pending::ticket(head.tickets.clone(), ticket)
    }

    pub(crate) fn commit(&self) {
        let parts = self.parts();
        parts.send(&mut parts.head.borrow_mut(), parts.clock.get());
    }

    pub(crate) fn turn(&self, budget: u32) -> Turned {
        let parts = self.parts();
        _ = parts.place.drain(u64::MAX);
        self.commit();
        let mut turned = Turned { found: 0, more: false };
        for lane in &parts.lanes {
            let one = lane.turn(budget);
            turned.found += one.found;
            turned.more |= one.more && lane.finished() == 0;
        }
        parts.sift();
        // When there is more at the latest is [`Queue::next_deadline`].
        _ = parts.look_after();
        turned.more |= !parts.head.borrow().done.is_empty();
        turned
    }

    pub(crate) fn leave_loop(&self) {
        self.parts().lanes.iter().for_each(Lane::leave_loop);
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let parts = self.parts();
        let own = Some(parts.head.borrow().next_deadline()).filter(|&at| at != Nanos::MAX);
        parts.lanes.iter().filter_map(Lane::next_deadline).chain(own).min()
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.parts().lanes.iter().for_each(|lane| lane.set_mode(mode));
    }

    pub(crate) fn count_wakeups(&self) {
        self.parts().lanes.iter().for_each(Lane::count_wakeups);
    }

    pub(crate) fn wakeups(&self) -> Wakeups {
        let mut sum = Wakeups::default();
        self.parts().lanes.iter().for_each(|lane| sum.merge(&lane.wakeups()));
        sum
    }

    pub(crate) fn counters(&self, of: fn(&Lane) -> Counters) -> Counters {
        self.parts().lanes.iter().map(of).fold(Counters::default(), Counters::and)
    }

    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.parts().lanes.iter().map(Lane::hardware_counters).fold(HardwareCounters::default(), HardwareCounters::and)
    }

    /// A path's queue, for what all of them have alike.
    pub(crate) fn lane(&self) -> &Lane {
        &self.parts().lanes[0]
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        self.lane().signal()
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.parts().lanes
    }

    pub(crate) fn look_after(&self) -> Nanos {
        self.parts().look_after()
    }
}

impl Parts {
    fn submit(&self, now: Nanos, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        let now = self.begin(now);
        let mut refused = Ok(());
        let mut head = self.head.borrow_mut();
        for request in requests {
            if let Err(why) = self.shared.check(&request) {
                refused = Err((why, request));
                break;
            }
            head.enter(&self.shared, request, Claim::Batch, now);
        }
        head.pump(&self.shared, now);
        self.send(&mut head, now);
        self.wake_all(head);
        refused
    }

    /// Before a batch: which paths there are, and which CPU this is.
    #[inline]
    fn begin(&self, now: Nanos) -> Nanos {
        self.clock.set(now);
        let mut head = self.head.borrow_mut();
        if matches!(self.shared.selector.policy(), Policy::Numa | Policy::QueueDepth(Counting::Cpu)) {
            head.set_cpu(&self.shared, hw::current_cpu());
        }
        head.begin(&self.shared, now);
        if head.changes != self.shared.board.changes() {
            self.read_board(&mut head, now);
        }
        now
    }

    #[cold]
    fn read_board(&self, head: &mut Head, now: Nanos) {
        self.take_found(head);
        let drained = |path: PathId| self.lanes.get(path.index()).is_none_or(|lane| lane.in_flight() == 0 && lane.finished() == 0);
        head.read_board(&self.shared, now, drained);
        head.pump(&self.shared, now);
    }

    /// Posts what is staged: one doorbell for each path.
    #[inline]
    fn send(&self, head: &mut Head, now: Nanos) {
        if !std::mem::replace(&mut head.staged, false) {
            return;
        }
        head.count_staged(&self.shared, now);
        let lanes = self.lanes.iter().zip(self.shared.tallies(self.index)).zip(&self.shared.path_namespaces);
        for (path, ((lane, tally), namespace)) in lanes.enumerate() {
            let Some(batch) = head.take_batch(path) else { continue };
            let mut left = batch.iter();
            // Those after one that is not taken are sent all the same.
            while let Err((why, request)) = lane.submit(now, head.requests(&mut left, namespace)) {
                head.not_taken(&self.shared, why, request, now);
            }
            tally.sent.add(batch.len() as u64);
            head.sent(path, batch);
        }
    }

    /// Takes what the paths' queues have found, and whatever follows from it.
    #[inline]
    fn sift(&self) {
        let found = self.lanes.iter().any(|lane| lane.finished() > 0);
        if !found && self.head.borrow().changes == self.shared.board.changes() {
            return;
        }
        let mut head = self.head.borrow_mut();
        self.take_found(&mut head);
        if head.changes != self.shared.board.changes() {
            self.read_board(&mut head, hw::now());
        }
        head.pump(&self.shared, self.clock.get());
        self.send(&mut head, self.clock.get());
        self.wake_all(head);
    }

    #[inline]
    fn take_found(&self, head: &mut Head) {
        let mut latest = self.clock.get();
        for (lane, tally) in self.lanes.iter().zip(self.shared.tallies(self.index)) {
            if lane.finished() == 0 {
                continue;
            }
            let (mut ended, mut failed, mut time) = (0, 0, 0);
            lane.reap_each(|completion| {
                ended += 1;
                failed += u64::from(completion.result.is_err());
                time += (completion.completed_at - completion.submitted_at).0;
                latest = latest.max(completion.completed_at);
                head.came_back(&self.shared, completion);
            });
            tally.ended.add(ended);
            tally.failed.add(failed);
            tally.time.add(time);
        }
        self.clock.set(latest);
    }

    /// Wakers run when nothing is borrowed: they may do anything with the queue.
    #[inline]
    fn wake_all(&self, mut head: RefMut<'_, Head>) {
        if head.wakers.is_empty() {
            return;
        }
        let wakers = std::mem::take(&mut head.wakers);
        drop(head);
        executor::wake_all(wakers);
    }

    /// Does what is due, and sends what is staged. When there is more at the latest, should nothing else wake the thread.
    fn look_after(&self) -> Nanos {
        let mut head = self.head.borrow_mut();
        let mut deadline = head.next_deadline();
        if deadline < Nanos::MAX {
            let now = hw::now();
            head.tick(now);
            head.pump(&self.shared, now);
            deadline = head.next_deadline();
        }
        self.send(&mut head, self.clock.get());
        let open = head.open;
        self.wake_all(head);
        // Requests may be held here while nothing is on its way.
        if open > 0 { deadline.min(hw::now() + PATIENCE) } else { deadline }
    }

    fn drive(&self, until: Nanos, for_others: bool, enough: impl Fn() -> bool) {
        loop {
            let deadline = self.look_after();
            let open = self.head.borrow().open;
            if enough() || open == 0 && !for_others || hw::now() >= until {
                break;
            }
            let wait_until = until.min(deadline);
            let idle = || !for_others && self.head.borrow().open == 0;
            let stop = || {
                self.sift();
                enough() || idle()
            };
            engine::report(self.place.drive(&self.lanes, self.clock.get(), wait_until, true, stop));
        }
        self.shared.keep_counters(self.index, || self.head.borrow().counters());
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Some(parts) = self.0.take() else { return };
        parts.send(&mut parts.head.borrow_mut(), parts.clock.get());
        parts.sift();
        let futures = parts.head.borrow().has_futures();
        if !futures {
            return;
        }
        // Their requests may have to be sent again: somebody has to be there for that.
        let left = move || parts.drive(Nanos::MAX, false, || false);
        if let Err(error) = std::thread::Builder::new().name("reap-multipath".into()).spawn(left) {
            tracing::error!(%error, "futures outlive their queue, and nobody can drive it");
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let mut head = self.head.borrow_mut();
        self.shared.keep_counters(self.index, || head.counters());
        head.leave(&self.shared, |path| {
            if let Some(tally) = self.shared.tallies(self.index).get(path.index()) {
                tally.sent.add(1u64.wrapping_neg());
            }
        });
        drop(head);
        self.lanes.clear();
        self.shared.give_back(self.index);
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.parts().place.as_fd()
    }
}
