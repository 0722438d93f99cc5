//! The requests of a thread whose paths end at different controllers. As in the library,
//! `driver::multipath::Failover` decides which paths a request may take, and what happens when a
//! path fails; the selector chooses one of those paths. This file carries out the decisions.

use driver::multipath::{
    Action, CompletionOutcome, Failover, Link, MultipathCounters, PathId, PathSnapshot, PathUpdate,
    RequestId, Submitted,
};
use nvme::Status;
use units::{Class, Nanos, Op};
use workload::Io;

use super::paths::{Chooser, SentRequest};
use super::{Effect, StepContext};
use crate::requests::{Finished, RequestError};

/// Counters of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathTally {
    /// Requests that have ended on the path, including those that were then sent on another path.
    pub(crate) ended: u64,
    /// How many of `ended` failed on the path.
    pub(crate) failed: u64,
    /// Sum of the times that the requests of `ended` spent on the path.
    pub(crate) time: Nanos,
}

/// A request, or one controller's share of a Flush.
#[derive(Debug)]
struct Flight {
    /// The request as the application issued it.
    io: Io,
    /// The path that the request is on; `None` while it is not sent.
    attempt: Option<Attempt>,
    /// This is one controller's share of a Flush; the application waits for the Flush only.
    share: bool,
}

/// A request on a path.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    request: RequestId,
    path: PathId,
    sent: SentRequest,
}

/// What to do with a request.
pub(super) enum PathAction {
    /// Send it: its target is the path.
    Send(Io),
    /// It has ended.
    Finish(Finished),
}

/// The requests of one thread over several paths.
#[derive(Debug)]
pub(crate) struct MultipathRequests {
    failover: Failover,
    chooser: Chooser,
    /// By path: its device.
    devices: Vec<usize>,
    /// By slot. Slots from `depth` on are for shares of Flushes.
    flights: Vec<Option<Flight>>,
    depth: usize,
    /// By path: its state.
    current: Vec<PathSnapshot>,
    /// By path: the state last reported to the failover.
    applied: Vec<PathSnapshot>,
    /// `current` and `applied` may differ, or the failover has to be told of cancelled requests.
    changed: bool,
    tallies: Vec<PathTally>,
    /// Costs of choosing paths and of counting requests since the last
    /// [`MultipathRequests::take_costs`].
    choosing: Nanos,
    counting: Nanos,
}

impl MultipathRequests {
    /// All controllers are up.
    pub(crate) fn new(
        failover: Failover,
        chooser: Chooser,
        devices: Vec<usize>,
        depth: u32,
        now: Nanos,
    ) -> MultipathRequests {
        let (paths, depth) = (devices.len(), depth as usize);
        let mut multipath = MultipathRequests {
            failover,
            chooser,
            devices,
            flights: (0..depth).map(|_| None).collect(),
            depth,
            current: vec![PathSnapshot::NEVER_UP.with_link(Link::Live); paths],
            applied: vec![PathSnapshot::NEVER_UP; paths],
            changed: true,
            tallies: vec![PathTally::default(); paths],
            choosing: Nanos::ZERO,
            counting: Nanos::ZERO,
        };
        // Initially all paths are new, and nothing is in flight on them.
        multipath.apply_path_changes(now, |_| true);
        multipath
    }

    /// Failures that were handled.
    pub(crate) fn counters(&self) -> MultipathCounters {
        self.failover.counters()
    }

    /// The counters of the path that ends at a device.
    pub(crate) fn tally(&self, device: usize) -> Option<&PathTally> {
        self.tallies.get(self.devices.iter().position(|of| *of == device)?)
    }

    /// When the failover has to act at the latest.
    pub(super) fn next_deadline(&self) -> Nanos {
        self.failover.next_deadline()
    }

    /// Whether [`MultipathRequests::apply_path_changes`] and [`MultipathRequests::next`] have work.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.changed || now >= self.next_deadline()
    }

    /// The path that ends at a device has a new state.
    pub(crate) fn path_changed(&mut self, device: usize, snapshot: PathSnapshot) {
        for (path, _) in self.devices.iter().enumerate().filter(|(_, of)| **of == device) {
            // Only recorded here: the thread applies it in its own step, as a thread of the library
            // reads the shared word.
            self.current[path] = snapshot;
            self.changed = true;
        }
    }

    /// The paths whose controllers went away since the last change was applied: commands for them
    /// in the backlog have to be cancelled.
    pub(super) fn closed(&self) -> impl Iterator<Item = usize> + use<> {
        let changed = self.current.iter().zip(&self.applied).enumerate();
        let closed = |(_, (current, applied)): &(usize, (&PathSnapshot, &PathSnapshot))| {
            current.life != applied.life && applied.life > 0
        };
        let closed: Vec<usize> = changed.filter(closed).map(|(path, _)| path).collect();
        closed.into_iter()
    }

    /// Gives the failover the new states. `drained`: nothing that was sent on a path is in flight.
    pub(super) fn apply_path_changes(&mut self, now: Nanos, drained: impl Fn(usize) -> bool) {
        self.changed = false;
        for n in 0..self.current.len() {
            let path = PathId(n as u8);
            match self.failover.update_path(
                now,
                path,
                &mut self.applied[n],
                self.current[n],
                || drained(n),
            ) {
                PathUpdate::Applied => {}
                // Latencies from before the outage say nothing about the controller now.
                PathUpdate::CameUp => self.chooser.forget(path),
                // Commands from before the path's last change of link are still in flight.
                PathUpdate::Deferred => self.changed = true,
            }
        }
        if now >= self.next_deadline() {
            self.failover.tick(now);
        }
    }

    /// Takes a request of the application. `None`: it waits for a path, or for
    /// [`MultipathRequests::next`].
    pub(super) fn submit(
        &mut self,
        io: Io,
        cx: &mut StepContext,
        cold: bool,
    ) -> Option<PathAction> {
        let (class, now) = (Class::new(io.op, io.len), cx.now);
        if let Some(flight) = self.flights.get_mut(io.slot as usize) {
            *flight = Some(Flight { io, attempt: None, share: false });
        }
        let MultipathRequests { failover, chooser, choosing, .. } = self;
        let choose = |among| {
            let (chosen, cost) = chooser.choose(among, class, cx, cold);
            *choosing += cost;
            chosen.unwrap_or(PathId(0))
        };
        match failover.submit(now, io.slot.into(), io.op, choose) {
            Submitted::Send { request, path } => {
                self.send(io.slot, request, path, cx).map(PathAction::Send)
            }
            Submitted::Queued => None,
            Submitted::Refused(_) => {
                self.finish(io.slot, Err(RequestError::NoPath)).map(PathAction::Finish)
            }
        }
    }

    /// The next request to send or to end.
    pub(super) fn next(&mut self, cx: &mut StepContext, cold: bool) -> Option<PathAction> {
        loop {
            let now = cx.now;
            let MultipathRequests { failover, chooser, flights, choosing, .. } = self;
            let choose = |token: u64, among| {
                // A retry or a share of a Flush: its size decides which latencies are compared.
                let io =
                    flights.get(token as usize).and_then(Option::as_ref).map(|flight| flight.io);
                let class = io.map_or(Class::new(Op::Flush, 0), |io| Class::new(io.op, io.len));
                let (chosen, cost) = chooser.choose(among, class, cx, cold);
                *choosing += cost;
                chosen.unwrap_or(PathId(0))
            };
            let todo = match failover.poll(now, choose)? {
                Action::Send { request, token, path } => {
                    let slot = self.slot_to_send(token as u32);
                    self.send(slot, request, path, cx).map(PathAction::Send)
                }
                Action::Complete { token, status } => {
                    self.finish(token as u32, result_of(status)).map(PathAction::Finish)
                }
                Action::Fail { token, .. } => {
                    self.finish(token as u32, Err(RequestError::NoPath)).map(PathAction::Finish)
                }
                Action::ReadAna(path) => self.controller_effect(path, Effect::ReadAna, cx),
                Action::Reset(path) => self.controller_effect(path, Effect::Reset, cx),
            };
            if todo.is_some() {
                return todo;
            }
        }
    }

    fn controller_effect(
        &self,
        path: PathId,
        effect: fn(usize) -> Effect,
        cx: &mut StepContext,
    ) -> Option<PathAction> {
        cx.out.extend(self.devices.get(path.index()).map(|&device| effect(device)));
        None
    }

    /// The slot of a request that is to be sent. Shares of a Flush may be on several paths at once,
    /// so each has a slot of its own.
    fn slot_to_send(&mut self, slot: u32) -> u32 {
        let io = self.flights.get(slot as usize).and_then(Option::as_ref).map(|flight| flight.io);
        let Some(io) = io.filter(|io| io.op == Op::Flush) else { return slot };
        // The slots of earlier shares are used again.
        let beyond = self.flights.iter().skip(self.depth).position(Option::is_none);
        let at = beyond.map_or(self.flights.len(), |at| self.depth + at);
        if at == self.flights.len() {
            self.flights.push(None);
        }
        self.flights[at] =
            Some(Flight { io: Io { slot: at as u32, ..io }, attempt: None, share: true });
        at as u32
    }

    /// Counts a request as sent on `path`, and makes the path its target.
    fn send(
        &mut self,
        slot: u32,
        request: RequestId,
        path: PathId,
        cx: &mut StepContext,
    ) -> Option<Io> {
        let flight = self.flights.get_mut(slot as usize)?.as_mut()?;
        let (sent, cost) = self.chooser.start(path, Class::new(flight.io.op, flight.io.len), cx);
        self.counting += cost;
        flight.attempt = Some(Attempt { request, path, sent });
        Some(Io { target: path.0.into(), ..flight.io })
    }

    /// A request has ended on its path. Returns its result, unless it is to be sent on another
    /// path.
    pub(super) fn completed(
        &mut self,
        (io, result): Finished,
        cx: &mut StepContext,
    ) -> Option<Finished> {
        let flight = self.flights.get_mut(io.slot as usize)?.as_mut()?;
        let (attempt, share) = (flight.attempt.take()?, flight.share);
        // The slot of a share was made for this share alone. The failover counts the shares of a
        // Flush, and ends the Flush with the last one.
        if share {
            self.flights[io.slot as usize] = None;
        }
        let tally = &mut self.tallies[attempt.path.index()];
        tally.ended += 1;
        tally.time += cx.now - attempt.sent.at;
        tally.failed += u64::from(result.is_err());
        let status = match result {
            Ok(()) => {
                self.counting += self.chooser.end(attempt.sent, cx);
                Status::SUCCESS
            }
            Err(failed) => {
                self.chooser.abandon(attempt.sent);
                // What happens to a cancelled request is decided when the path's new state is
                // known.
                let RequestError::Status(status) = failed else { return None };
                status
            }
        };
        match self.failover.ended(cx.now, attempt.request, attempt.path, status) {
            CompletionOutcome::Done { token, status } => {
                self.finish(token as u32, result_of(status))
            }
            CompletionOutcome::Continues | CompletionOutcome::Stale => None,
        }
    }

    /// A request was cancelled on its path, or never posted there. The path's next state decides
    /// whether it is sent on another path.
    pub(super) fn cancelled(&mut self, io: &Io, now: Nanos) {
        let Some(place) = self.flights.get_mut(io.slot as usize) else { return };
        let Some(flight) = place else { return };
        let attempt = flight.attempt.take();
        if flight.share {
            *place = None;
        }
        let Some(attempt) = attempt else { return };
        let tally = &mut self.tallies[attempt.path.index()];
        (tally.ended, tally.failed) = (tally.ended + 1, tally.failed + 1);
        tally.time += now - attempt.sent.at;
        self.chooser.abandon(attempt.sent);
        self.changed = true;
    }

    fn finish(&mut self, slot: u32, result: Result<(), RequestError>) -> Option<Finished> {
        let flight = self.flights.get_mut(slot as usize)?.take()?;
        Some((flight.io, result))
    }

    /// Takes the costs of choosing and of counting.
    pub(super) fn take_costs(&mut self) -> (Nanos, Nanos) {
        (std::mem::take(&mut self.choosing), std::mem::take(&mut self.counting))
    }
}

fn result_of(status: Status) -> Result<(), RequestError> {
    if status.is_success() { Ok(()) } else { Err(RequestError::Status(status)) }
}
