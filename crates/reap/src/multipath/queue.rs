//! One thread's queue over several paths: a software queue on each path, which the caller holds,
//! and the request table above them, which is here.
//!
//! The table is in a `RefCell`. While it is borrowed the application's iterator may run (`submit`),
//! so every other method uses `try_borrow` and does nothing then.

use std::cell::{Cell, RefCell, RefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use driver::multipath::Failover;
use driver::paths::{PathId, Policy};
use units::Nanos;

use super::requests::{Claim, MultipathRequests};
use super::shared::Multipath;
use crate::error::{QueueError, Refused};
use crate::request::{Completion, Request};
use crate::shared::future_states::FutureStates;
use crate::thread::block_on;
use crate::thread::event_loop::{self, EventLoop};
use crate::thread::path_queue::PathQueue;
use crate::thread::queue_pair::PollStatus;
use crate::wake;

/// Longest sleep while requests wait for a path and nothing else would wake the thread.
const MAX_WAIT: Nanos = Nanos::from_secs(1);

/// One thread's queue over several paths. `path_queues` are passed to each method.
pub(crate) struct MultipathQueue {
    shared: Arc<Multipath>,
    index: usize,
    event_loop: EventLoop,
    tickets: Arc<FutureStates>,
    /// Borrowed mutably while the application's iterator runs.
    table: RefCell<MultipathRequests>,
    /// The latest clock read; saves one where the exact time does not matter.
    clock: Cell<Nanos>,
}

impl MultipathQueue {
    /// Takes a software queue over all paths, and one on each path.
    ///
    /// # Errors
    /// All are in use, or the system is out of descriptors.
    pub(crate) fn take(
        shared: &Arc<Multipath>,
    ) -> Result<(MultipathQueue, Vec<PathQueue>), QueueError> {
        let index = shared.take()?;
        // An error must return the index.
        MultipathQueue::new(shared, index).inspect_err(|_| shared.give_back(index))
    }

    fn new(
        shared: &Arc<Multipath>,
        index: usize,
    ) -> Result<(MultipathQueue, Vec<PathQueue>), QueueError> {
        let system = |source| QueueError::System { what: "epoll instance", source };
        let path_queues = shared
            .controllers()
            .iter()
            .map(|controller| PathQueue::take(controller, false, None))
            .collect::<Result<Vec<_>, _>>()?;
        let event_loop = EventLoop::new().map_err(system)?;
        for (key, path_queue) in (0..).zip(&path_queues) {
            event_loop.poller().add(path_queue, key).map_err(system)?;
        }
        // Cannot fail: the number of paths was checked when they were joined.
        let failover =
            Failover::new(shared.failover, &shared.traits, &shared.path_states.marks, index, 256);
        let failover = failover.map_err(|e| QueueError::System {
            what: "failover",
            source: std::io::Error::other(e),
        })?;
        let table = MultipathRequests::new(shared, failover, shared.selector_for(index));
        let (tickets, table) = (table.tickets.clone(), RefCell::new(table));
        Ok((
            MultipathQueue {
                shared: shared.clone(),
                index,
                event_loop,
                tickets,
                table,
                clock: Cell::new(hw::now()),
            },
            path_queues,
        ))
    }

    pub(crate) fn shared(&self) -> &Arc<Multipath> {
        &self.shared
    }

    /// See [`crate::Queue::reap`].
    pub(crate) fn reap(&self, path_queues: &[PathQueue], out: &mut Vec<Completion>) -> usize {
        self.process_completions(path_queues);
        let Ok(mut table) = self.table.try_borrow_mut() else { return 0 };
        // At least one, so that an empty `Vec` without capacity makes progress too.
        let room = (out.capacity() - out.len()).max(1);
        let count = room.min(table.done.len());
        if count == table.done.len() {
            // The common case: no element is moved twice.
            out.append(&mut table.done);
        } else {
            out.extend(table.done.drain(..count));
        }
        count
    }

    /// See [`crate::Queue::finished`].
    pub(crate) fn finished(&self, path_queues: &[PathQueue]) -> usize {
        self.process_completions(path_queues);
        self.done()
    }

    fn done(&self) -> usize {
        self.table.try_borrow().map_or(0, |table| table.done.len())
    }

    /// Requests that have not completed.
    pub(crate) fn in_flight(&self) -> u32 {
        self.table.try_borrow().map_or(0, |table| table.open)
    }

    /// Whether the application's iterator is running in `submit`.
    pub(crate) fn is_submitting(&self) -> bool {
        self.table.try_borrow().is_err()
    }

    /// Drives the paths until `min` requests can be reaped, until the time `until`, or until
    /// nothing is open; `idle`: wait even then.
    pub(crate) fn wait(
        &self,
        path_queues: &[PathQueue],
        min: usize,
        until: Nanos,
        idle: bool,
    ) -> usize {
        self.drive(path_queues, until, idle, || self.done() >= min);
        self.done()
    }

    /// See [`crate::Queue::start`]; `ticket` is its future's.
    ///
    /// # Errors
    /// The request cannot be carried out.
    pub(crate) fn start(
        &self,
        path_queues: &[PathQueue],
        ticket: u32,
        request: Request,
    ) -> Result<(), (Refused, Request)> {
        let (checked, request) = self.shared.check(request);
        if let Err(why) = checked {
            return Err((why, request));
        }
        if self.is_submitting() {
            return Err((Refused::InsideSubmit, request));
        }
        let now = self.begin(path_queues, hw::now());
        let mut table = self.table.borrow_mut();
        table.submit(request, Claim::Future(ticket), now);
        table.pump(&self.shared, now);
        Ok(())
    }

    /// The states of the queue's futures.
    pub(crate) fn tickets(&self) -> &Arc<FutureStates> {
        &self.tickets
    }

    /// See [`crate::Queue::commit`].
    pub(crate) fn commit(&self, path_queues: &[PathQueue]) {
        if let Ok(mut table) = self.table.try_borrow_mut() {
            self.send(path_queues, &mut table, self.clock.get());
        }
    }

    /// See [`crate::Queue::poll_events`].
    pub(crate) fn poll_events(&self, path_queues: &[PathQueue], budget: u32) -> PollStatus {
        // Clears readiness, so that the descriptor does not stay readable in the application's
        // loop.
        _ = self.event_loop.drain(u64::MAX);
        self.commit(path_queues);
        let mut turned = PollStatus { found: 0, more: false };
        for path_queue in path_queues {
            let one = path_queue.poll_events(budget);
            turned.found += one.found;
            // What a path's queue has reaped is processed below: it is no reason for another turn.
            turned.more |= one.more && path_queue.finished() == 0;
        }
        self.process_completions(path_queues);
        // Its result is not needed: the caller asks `next_deadline`.
        _ = self.run_timers(path_queues);
        turned.more |= self.done() > 0;
        turned
    }

    /// When the next turn is due for requests that wait for a path.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let table = self.table.try_borrow().ok()?;
        Some(table.next_deadline()).filter(|&at| at != Nanos::MAX)
    }

    /// Whether futures wait for any open request, after the completions found so far have been
    /// delivered.
    pub(crate) fn has_futures(&self, path_queues: &[PathQueue]) -> bool {
        self.commit(path_queues);
        self.process_completions(path_queues);
        self.table.borrow().has_futures()
    }

    /// The thread is gone, and no one waits for its requests in flight.
    pub(crate) fn close(&self, path_queues: Vec<PathQueue>) {
        let mut table = self.table.borrow_mut();
        self.shared.keep_counters(self.index, || table.counters());
        table.abandon_all(|path| {
            // Abandoned requests will not be counted as completed: take them back.
            if let Some(counters) = self.shared.path_counters(self.index).get(path.index()) {
                counters.sent.add(1u64.wrapping_neg());
            }
        });
        // Not borrowed while the path queues close.
        drop(table);
        path_queues.into_iter().for_each(PathQueue::close);
        self.shared.give_back(self.index);
    }

    /// See [`crate::Queue::submit`].
    pub(crate) fn submit(
        &self,
        path_queues: &[PathQueue],
        now: Nanos,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        if self.is_submitting() {
            return block_on::refuse(Refused::InsideSubmit, requests);
        }
        let now = self.begin(path_queues, now);
        let mut staged =
            StagedBatch { multipath: self, path_queues, now, table: Some(self.table.borrow_mut()) };
        for request in requests {
            let (checked, request) = self.shared.check(request);
            if let Err(why) = checked {
                return Err((why, request));
            }
            if let Some(table) = &mut staged.table {
                table.submit(request, Claim::Batch, now);
            }
        }
        Ok(())
    }

    /// Before a batch: takes note of path changes, and of the CPU for the `numa` policy.
    #[inline]
    fn begin(&self, path_queues: &[PathQueue], now: Nanos) -> Nanos {
        self.clock.set(now);
        let mut table = self.table.borrow_mut();
        // Only this policy needs the CPU; reading it is not free.
        if self.shared.selector.policy() == Policy::Numa {
            table.set_cpu(&self.shared, hw::current_cpu());
        }
        table.begin(now);
        // One atomic load for each batch in the common case.
        if table.changes != self.shared.path_states.changes() {
            self.read_path_states(path_queues, &mut table, now);
        }
        now
    }

    #[cold]
    fn read_path_states(
        &self,
        path_queues: &[PathQueue],
        table: &mut MultipathRequests,
        now: Nanos,
    ) {
        self.reap_paths(path_queues, table);
        // Requests that a lost path has returned must be taken before the failover decides about
        // the rest.
        let drained = |path: PathId| {
            path_queues
                .get(path.index())
                .is_none_or(|path_queue| path_queue.in_flight() == 0 && path_queue.finished() == 0)
        };
        table.read_path_states(&self.shared, now, drained);
        table.pump(&self.shared, now);
    }

    /// Posts what is staged, with one doorbell for each path.
    #[inline]
    fn send(&self, path_queues: &[PathQueue], table: &mut MultipathRequests, now: Nanos) {
        if !std::mem::replace(&mut table.staged, false) {
            return;
        }
        // Counted before it is sent: a completion may come at once.
        table.count_staged(now);
        let paths = path_queues
            .iter()
            .zip(self.shared.path_counters(self.index))
            .zip(&self.shared.path_namespaces);
        for (path, ((path_queue, counters), namespace)) in paths.enumerate() {
            let Some(batch) = table.take_batch(path) else { continue };
            let mut left = batch.iter();
            // A rejected request ends the path queue's batch; the ones after it are sent all the
            // same.
            while let Err((why, request)) =
                path_queue.submit(now, false, table.requests(&mut left, namespace))
            {
                table.reject(&self.shared, why, request, now);
            }
            counters.sent.add(batch.len() as u64);
            table.sent(path, batch);
        }
    }

    /// Reaps the paths' queues, and sends what follows from that: retries, and requests that
    /// waited.
    #[inline]
    fn process_completions(&self, path_queues: &[PathQueue]) {
        let found = path_queues.iter().any(|path_queue| path_queue.finished() > 0);
        let Ok(mut table) = self.table.try_borrow_mut() else { return };
        // The common case of a poll that finds nothing.
        if !found && table.changes == self.shared.path_states.changes() {
            return;
        }
        self.reap_paths(path_queues, &mut table);
        if table.changes != self.shared.path_states.changes() {
            self.read_path_states(path_queues, &mut table, hw::now());
        }
        table.pump(&self.shared, self.clock.get());
        self.send(path_queues, &mut table, self.clock.get());
        self.wake_all(table);
    }

    #[inline]
    fn reap_paths(&self, path_queues: &[PathQueue], table: &mut MultipathRequests) {
        let mut latest = self.clock.get();
        for (path_queue, counters) in path_queues.iter().zip(self.shared.path_counters(self.index))
        {
            if path_queue.finished() == 0 {
                continue;
            }
            let (mut ended, mut failed, mut time) = (0, 0, 0);
            path_queue.reap_each(|completion| {
                ended += 1;
                failed += u64::from(completion.result.is_err());
                time += completion
                    .completed_at
                    .as_nanos()
                    .saturating_sub(completion.submitted_at.as_nanos());
                // The queues' own clock reads: no further one here.
                latest = latest.max(completion.completed_at.nanos());
                table.complete(&self.shared, completion);
            });
            counters.ended.add(ended);
            counters.failed.add(failed);
            counters.time.add(time);
        }
        self.clock.set(latest);
    }

    /// Runs wakers and drops the application's memory while nothing is borrowed or locked: both run
    /// application code, which may use the queue.
    #[inline]
    fn wake_all(&self, mut table: RefMut<'_, MultipathRequests>) {
        if table.wakers.is_empty() && table.unclaimed.is_empty() {
            return;
        }
        let (wakers, unclaimed) =
            (std::mem::take(&mut table.wakers), std::mem::take(&mut table.unclaimed));
        drop(table);
        wake::wake_all(wakers);
        block_on::drop_buffers(unclaimed);
    }

    /// Runs due timers and sends what is staged. Returns when to call it again at the latest,
    /// should nothing else wake the thread.
    pub(crate) fn run_timers(&self, path_queues: &[PathQueue]) -> Nanos {
        let Ok(mut table) = self.table.try_borrow_mut() else { return Nanos::MAX };
        let mut deadline = table.next_deadline();
        if deadline < Nanos::MAX {
            let now = hw::now();
            table.tick(now);
            table.pump(&self.shared, now);
            deadline = table.next_deadline();
        }
        self.send(path_queues, &mut table, self.clock.get());
        let open = table.open;
        self.wake_all(table);
        // Requests may wait here for a path while nothing is in flight.
        if open > 0 { deadline.min(hw::now() + MAX_WAIT) } else { deadline }
    }

    /// Drives the paths until `enough()`, until the time `until`, or until nothing is open;
    /// `for_others`: wait even then, because other threads may submit.
    pub(crate) fn drive(
        &self,
        path_queues: &[PathQueue],
        until: Nanos,
        for_others: bool,
        enough: impl Fn() -> bool,
    ) {
        let mut seen = self.table.borrow().changes;
        loop {
            let deadline = self.run_timers(path_queues);
            let open = self.in_flight();
            if enough() || open == 0 && !for_others || hw::now() >= until {
                break;
            }
            let wait_until = until.min(deadline);
            let idle = || !for_others && self.in_flight() == 0;
            // One path: its own queue's loop is faster than the shared event loop.
            if let [only] = path_queues {
                only.drive(wait_until, Some(1), || {
                    enough() || idle() || self.shared.path_states.changes() != seen
                });
                // Read before completions are processed: a later change ends the next drive.
                seen = self.shared.path_states.changes();
                self.process_completions(path_queues);
                continue;
            }
            let stop = || {
                self.process_completions(path_queues);
                enough() || idle()
            };
            event_loop::report(event_loop::together(path_queues.iter(), |path_queues| {
                self.event_loop.drive(path_queues, self.clock.get(), wait_until, true, stop)
            }));
        }
        self.shared.keep_counters(self.index, || self.table.borrow().counters());
    }
}

/// A batch that is being staged. Dropping it sends it, even if the iterator panicked: requests that
/// were taken must not be lost.
struct StagedBatch<'a> {
    multipath: &'a MultipathQueue,
    path_queues: &'a [PathQueue],
    now: Nanos,
    table: Option<RefMut<'a, MultipathRequests>>,
}

impl Drop for StagedBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut table) = self.table.take() {
            table.pump(&self.multipath.shared, self.now);
            self.multipath.send(self.path_queues, &mut table, self.now);
            self.multipath.wake_all(table);
        }
    }
}

impl AsFd for MultipathQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_loop.as_fd()
    }
}
