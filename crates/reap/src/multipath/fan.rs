//! One thread's way over several paths: a software queue on each, which the caller has, and the head above them, which is here.

use std::cell::{Cell, RefCell, RefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use driver::multipath::Failover;
use driver::paths::{PathId, Policy};
use units::Nanos;

use super::head::{Claim, Head};
use super::joined::Multipath;
use crate::error::{QueueError, Refused};
use crate::request::{Completion, Request};
use crate::shared::future::Pending;
use crate::thread::engine::{self, Place};
use crate::thread::executor;
use crate::thread::path_queue::PathQueue;
use crate::thread::queue_pair::Turned;
use crate::wake;

/// Between two looks at what waits for a path, should nothing else wake the thread.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// What one thread has above its software queues, one for each path: `lanes`, wherever they are asked for.
pub(crate) struct Fan {
    shared: Arc<Multipath>,
    index: usize,
    place: Place,
    /// Borrowed while the application's iterator runs: then nothing else can be done here.
    head: RefCell<Head>,
    clock: Cell<Nanos>,
}

impl Fan {
    /// For a thread that needs a software queue over all paths, and the queues below it.
    ///
    /// # Errors
    /// All of them are taken, or the system is out of descriptors.
    pub(crate) fn take(shared: &Arc<Multipath>) -> Result<(Fan, Vec<PathQueue>), QueueError> {
        let index = shared.take()?;
        Fan::new(shared, index).inspect_err(|_| shared.give_back(index))
    }

    fn new(shared: &Arc<Multipath>, index: usize) -> Result<(Fan, Vec<PathQueue>), QueueError> {
        let system = |source| QueueError::System { what: "epoll instance", source };
        let lanes =
            shared.controllers().iter().map(|controller| PathQueue::take(controller, false, None)).collect::<Result<Vec<_>, _>>()?;
        let place = Place::new().map_err(system)?;
        for (key, lane) in (0..).zip(&lanes) {
            place.poller().add(lane, key).map_err(system)?;
        }
        // The number of paths was checked when they were joined.
        let failover = Failover::new(shared.failover, &shared.traits, &shared.board.marks, index, 256);
        let failover = failover.map_err(|e| QueueError::System { what: "failover", source: std::io::Error::other(e) })?;
        let head = RefCell::new(Head::new(shared, failover, shared.choices(index)));
        Ok((Fan { shared: shared.clone(), index, place, head, clock: Cell::new(hw::now()) }, lanes))
    }

    pub(crate) fn shared(&self) -> &Arc<Multipath> {
        &self.shared
    }

    /// See [`crate::Queue::reap`].
    pub(crate) fn reap(&self, lanes: &[PathQueue], out: &mut Vec<Completion>) -> usize {
        self.sift(lanes);
        let Ok(mut head) = self.head.try_borrow_mut() else { return 0 };
        let room = (out.capacity() - out.len()).max(1);
        let count = room.min(head.done.len());
        if count == head.done.len() {
            out.append(&mut head.done);
        } else {
            out.extend(head.done.drain(..count));
        }
        count
    }

    /// See [`crate::Queue::finished`].
    pub(crate) fn finished(&self, lanes: &[PathQueue]) -> usize {
        self.sift(lanes);
        self.done()
    }

    fn done(&self) -> usize {
        self.head.try_borrow().map_or(0, |head| head.done.len())
    }

    /// Requests that are not finished.
    pub(crate) fn in_flight(&self) -> u32 {
        self.head.try_borrow().map_or(0, |head| head.open)
    }

    /// Whether the application's iterator runs.
    pub(crate) fn is_submitting(&self) -> bool {
        self.head.try_borrow().is_err()
    }

    /// Drives the paths until `min` requests can be reaped, `until`, or, unless `idle` too is waited out, nothing is open.
    pub(crate) fn wait(&self, lanes: &[PathQueue], min: usize, until: Nanos, idle: bool) -> usize {
        self.drive(lanes, until, idle, || self.done() >= min);
        self.done()
    }

    /// See [`crate::Queue::start`].
    pub(crate) fn start(&self, lanes: &[PathQueue], request: Request) -> Pending {
        let (checked, request) = self.shared.check(request);
        if let Err(why) = checked {
            return Pending::refused(why, request);
        }
        if self.is_submitting() {
            return Pending::refused(Refused::InsideSubmit, request);
        }
        let now = self.begin(lanes, hw::now());
        let mut head = self.head.borrow_mut();
        let ticket = head.tickets.issue();
        head.enter(request, Claim::Future(ticket), now);
        head.pump(&self.shared, now);
        Pending::new(head.tickets.clone(), ticket)
    }

    /// See [`crate::Queue::commit`].
    pub(crate) fn commit(&self, lanes: &[PathQueue]) {
        if let Ok(mut head) = self.head.try_borrow_mut() {
            self.send(lanes, &mut head, self.clock.get());
        }
    }

    /// See [`crate::Queue::turn`].
    pub(crate) fn turn(&self, lanes: &[PathQueue], budget: u32) -> Turned {
        _ = self.place.drain(u64::MAX);
        self.commit(lanes);
        let mut turned = Turned { found: 0, more: false };
        for lane in lanes {
            let one = lane.turn(budget);
            turned.found += one.found;
            turned.more |= one.more && lane.finished() == 0;
        }
        self.sift(lanes);
        // When there is more at the latest is [`Fan::next_deadline`].
        _ = self.look_after(lanes);
        turned.more |= self.done() > 0;
        turned
    }

    /// When to turn at the latest, on account of what waits for a path.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let head = self.head.try_borrow().ok()?;
        Some(head.next_deadline()).filter(|&at| at != Nanos::MAX)
    }

    /// Whether futures wait for any of the open requests. What has been found is given to them first.
    pub(crate) fn has_futures(&self, lanes: &[PathQueue]) -> bool {
        self.commit(lanes);
        self.sift(lanes);
        self.head.borrow().has_futures()
    }

    /// The thread is gone, and nobody waits for what it has in flight.
    pub(crate) fn close(&self, lanes: Vec<PathQueue>) {
        let mut head = self.head.borrow_mut();
        self.shared.keep_counters(self.index, || head.counters());
        head.leave(|path| {
            if let Some(tally) = self.shared.tallies(self.index).get(path.index()) {
                tally.sent.add(1u64.wrapping_neg());
            }
        });
        drop(head);
        lanes.into_iter().for_each(PathQueue::close);
        self.shared.give_back(self.index);
    }

    /// See [`crate::Queue::submit`].
    pub(crate) fn submit(
        &self,
        lanes: &[PathQueue],
        now: Nanos,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        if self.is_submitting() {
            return executor::refuse(Refused::InsideSubmit, requests);
        }
        let now = self.begin(lanes, now);
        let mut staged = Staged { fan: self, lanes, now, head: Some(self.head.borrow_mut()) };
        for request in requests {
            let (checked, request) = self.shared.check(request);
            if let Err(why) = checked {
                return Err((why, request));
            }
            if let Some(head) = &mut staged.head {
                head.enter(request, Claim::Batch, now);
            }
        }
        Ok(())
    }

    /// Before a batch: which paths there are, and which CPU this is.
    #[inline]
    fn begin(&self, lanes: &[PathQueue], now: Nanos) -> Nanos {
        self.clock.set(now);
        let mut head = self.head.borrow_mut();
        if self.shared.selector.policy() == Policy::Numa {
            head.set_cpu(&self.shared, hw::current_cpu());
        }
        head.begin(now);
        if head.changes != self.shared.board.changes() {
            self.read_board(lanes, &mut head, now);
        }
        now
    }

    #[cold]
    fn read_board(&self, lanes: &[PathQueue], head: &mut Head, now: Nanos) {
        self.take_found(lanes, head);
        let drained = |path: PathId| lanes.get(path.index()).is_none_or(|lane| lane.in_flight() == 0 && lane.finished() == 0);
        head.read_board(&self.shared, now, drained);
        head.pump(&self.shared, now);
    }

    /// Posts what is staged: one doorbell for each path.
    #[inline]
    fn send(&self, lanes: &[PathQueue], head: &mut Head, now: Nanos) {
        if !std::mem::replace(&mut head.staged, false) {
            return;
        }
        head.count_staged(now);
        let ways = lanes.iter().zip(self.shared.tallies(self.index)).zip(&self.shared.path_namespaces);
        for (path, ((lane, tally), namespace)) in ways.enumerate() {
            let Some(batch) = head.take_batch(path) else { continue };
            let mut left = batch.iter();
            // Those after one that is not taken are sent all the same.
            while let Err((why, request)) = lane.submit(now, false, head.requests(&mut left, namespace)) {
                head.not_taken(&self.shared, why, request, now);
            }
            tally.sent.add(batch.len() as u64);
            head.sent(path, batch);
        }
    }

    /// Takes what the paths' queues have found, and whatever follows from it.
    #[inline]
    fn sift(&self, lanes: &[PathQueue]) {
        let found = lanes.iter().any(|lane| lane.finished() > 0);
        let Ok(mut head) = self.head.try_borrow_mut() else { return };
        if !found && head.changes == self.shared.board.changes() {
            return;
        }
        self.take_found(lanes, &mut head);
        if head.changes != self.shared.board.changes() {
            self.read_board(lanes, &mut head, hw::now());
        }
        head.pump(&self.shared, self.clock.get());
        self.send(lanes, &mut head, self.clock.get());
        self.wake_all(head);
    }

    #[inline]
    fn take_found(&self, lanes: &[PathQueue], head: &mut Head) {
        let mut latest = self.clock.get();
        for (lane, tally) in lanes.iter().zip(self.shared.tallies(self.index)) {
            if lane.finished() == 0 {
                continue;
            }
            let (mut ended, mut failed, mut time) = (0, 0, 0);
            lane.reap_each(|completion| {
                ended += 1;
                failed += u64::from(completion.result.is_err());
                time += completion.completed_at.as_nanos().saturating_sub(completion.submitted_at.as_nanos());
                latest = latest.max(completion.completed_at.nanos());
                head.came_back(&self.shared, completion);
            });
            tally.ended.add(ended);
            tally.failed.add(failed);
            tally.time.add(time);
        }
        self.clock.set(latest);
    }

    /// Wakers run, and memory of the application's ends, when nothing is borrowed or locked: both may do anything with the queue.
    #[inline]
    fn wake_all(&self, mut head: RefMut<'_, Head>) {
        if head.wakers.is_empty() && head.unclaimed.is_empty() {
            return;
        }
        let (wakers, unclaimed) = (std::mem::take(&mut head.wakers), std::mem::take(&mut head.unclaimed));
        drop(head);
        wake::wake_all(wakers);
        executor::let_go(unclaimed);
    }

    /// Does what is due, and sends what is staged. When there is more at the latest, should nothing else wake the thread.
    pub(crate) fn look_after(&self, lanes: &[PathQueue]) -> Nanos {
        let Ok(mut head) = self.head.try_borrow_mut() else { return Nanos::MAX };
        let mut deadline = head.next_deadline();
        if deadline < Nanos::MAX {
            let now = hw::now();
            head.tick(now);
            head.pump(&self.shared, now);
            deadline = head.next_deadline();
        }
        self.send(lanes, &mut head, self.clock.get());
        let open = head.open;
        self.wake_all(head);
        // Requests may be held here while nothing is on its way.
        if open > 0 { deadline.min(hw::now() + PATIENCE) } else { deadline }
    }

    /// Drives the paths until `enough`, `until`, or, unless others may come (`for_others`), nothing is open.
    pub(crate) fn drive(&self, lanes: &[PathQueue], until: Nanos, for_others: bool, enough: impl Fn() -> bool) {
        let mut seen = self.head.borrow().changes;
        loop {
            let deadline = self.look_after(lanes);
            let open = self.in_flight();
            if enough() || open == 0 && !for_others || hw::now() >= until {
                break;
            }
            let wait_until = until.min(deadline);
            let idle = || !for_others && self.in_flight() == 0;
            if let [only] = lanes {
                only.drive(wait_until, Some(1), || enough() || idle() || self.shared.board.changes() != seen);
                // Read before the queue's completions are: what changes later ends the next drive.
                seen = self.shared.board.changes();
                self.sift(lanes);
                continue;
            }
            let stop = || {
                self.sift(lanes);
                enough() || idle()
            };
            engine::report(engine::together(lanes.iter(), |lanes| self.place.drive(lanes, self.clock.get(), wait_until, true, stop)));
        }
        self.shared.keep_counters(self.index, || self.head.borrow().counters());
    }
}

/// A batch that is being staged: sent when this is dropped, even where the iterator has panicked.
struct Staged<'a> {
    fan: &'a Fan,
    lanes: &'a [PathQueue],
    now: Nanos,
    head: Option<RefMut<'a, Head>>,
}

impl Drop for Staged<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut head) = self.head.take() {
            head.pump(&self.fan.shared, self.now);
            self.fan.send(self.lanes, &mut head, self.now);
            self.fan.wake_all(head);
        }
    }
}

impl AsFd for Fan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }
}
