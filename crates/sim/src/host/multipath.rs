//! The head of a thread's paths, where each ends at a controller of its own: its open requests, wherever they are, and what
//! becomes of them. As in the engine, `driver::multipath::Failover` decides which paths a request may take and what happens
//! when one fails, the selector chooses among those, and here it is done.

use driver::multipath::{Action, CompletionOutcome, Counters, Failover, Link, PathId, PathSnapshot, PathUpdate, RequestId, Submitted};
use nvme::Status;
use units::{Class, Nanos, Op};
use workload::Io;

use super::paths::{Chooser, SentRequest};
use super::{Effect, StepContext};
use crate::requests::{Finished, RequestError};

/// What was sent by a path, and what came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathTally {
    /// Requests that have ended, those that go another way included.
    pub(crate) ended: u64,
    /// Of these, the ones that did not end well there.
    pub(crate) failed: u64,
    /// The time that all that ended took.
    pub(crate) time: Nanos,
}

/// A request, or one controller's share of a Flush.
#[derive(Debug)]
struct Flight {
    /// As the application issued it.
    io: Io,
    /// While it is on its way.
    attempt: Option<Attempt>,
    /// It is a share of a Flush: nobody waits for it.
    share: bool,
}

/// How a request goes: its name in the failover, and what it is counted in.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    request: RequestId,
    path: PathId,
    sent: SentRequest,
}

/// What is to be done with a request.
pub(super) enum PathAction {
    /// It is sent: its target is the path.
    Send(Io),
    /// It is over.
    Finish(Finished),
}

/// The head of one thread's paths.
#[derive(Debug)]
pub(crate) struct MultipathRequests {
    failover: Failover,
    chooser: Chooser,
    /// By path, its device.
    devices: Vec<usize>,
    /// By slot; those beyond the thread's depth are for shares of Flushes.
    flights: Vec<Option<Flight>>,
    depth: usize,
    /// By path, how it stands, and what the failover was told last.
    current: Vec<PathSnapshot>,
    applied: Vec<PathSnapshot>,
    /// Some of it the failover has not been told.
    changed: bool,
    tallies: Vec<PathTally>,
    /// What choosing and counting have cost since it was asked for last.
    choosing: Nanos,
    counting: Nanos,
}

impl MultipathRequests {
    /// Over controllers that are all up.
    pub(crate) fn new(failover: Failover, chooser: Chooser, devices: Vec<usize>, depth: u32, now: Nanos) -> MultipathRequests {
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
        multipath.apply_path_changes(now, |_| true);
        multipath
    }

    /// What went wrong and was made good.
    pub(crate) fn counters(&self) -> Counters {
        self.failover.counters()
    }

    /// What was sent by the path that ends at a device, if one does.
    pub(crate) fn tally(&self, device: usize) -> Option<&PathTally> {
        self.tallies.get(self.devices.iter().position(|of| *of == device)?)
    }

    /// When it has to be asked at the latest.
    pub(super) fn next_deadline(&self) -> Nanos {
        self.failover.next_deadline()
    }

    /// Whether [`MultipathRequests::hear`] and [`MultipathRequests::next`] have something to do.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.changed || now >= self.next_deadline()
    }

    /// The path that ends at a device now stands so.
    pub(crate) fn path_changed(&mut self, device: usize, snapshot: PathSnapshot) {
        for (path, _) in self.devices.iter().enumerate().filter(|(_, of)| **of == device) {
            self.current[path] = snapshot;
            self.changed = true;
        }
    }

    /// The paths that nothing more goes out by: what waits to be posted there is to be taken back.
    pub(super) fn closed(&self) -> impl Iterator<Item = usize> + use<> {
        let changed = self.current.iter().zip(&self.applied).enumerate();
        let closed = |(_, (current, applied)): &(usize, (&PathSnapshot, &PathSnapshot))| current.life != applied.life && applied.life > 0;
        let closed: Vec<usize> = changed.filter(closed).map(|(path, _)| path).collect();
        closed.into_iter()
    }

    /// Tells the failover what is new. `drained`: nothing that was sent by a path is on its way.
    pub(super) fn apply_path_changes(&mut self, now: Nanos, drained: impl Fn(usize) -> bool) {
        self.changed = false;
        for n in 0..self.current.len() {
            let path = PathId(n as u8);
            match self.failover.update_path(now, path, &mut self.applied[n], self.current[n], || drained(n)) {
                PathUpdate::Applied => {}
                PathUpdate::CameUp => self.chooser.forget(path),
                PathUpdate::Deferred => self.changed = true,
            }
        }
        if now >= self.next_deadline() {
            self.failover.tick(now);
        }
    }

    /// Takes in a request of the application's. `None`: it waits for a path, or for [`MultipathRequests::next`].
    pub(super) fn submit(&mut self, io: Io, cx: &mut StepContext, cold: bool) -> Option<PathAction> {
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
            Submitted::Send { request, path } => self.send(io.slot, request, path, cx).map(PathAction::Send),
            Submitted::Queued => None,
            Submitted::Refused(_) => self.finish(io.slot, Err(RequestError::NoPath)).map(PathAction::Finish),
        }
    }

    /// The next thing to do, until there is none.
    pub(super) fn next(&mut self, cx: &mut StepContext, cold: bool) -> Option<PathAction> {
        loop {
            let now = cx.now;
            let MultipathRequests { failover, chooser, flights, choosing, .. } = self;
            let choose = |token: u64, among| {
                let io = flights.get(token as usize).and_then(Option::as_ref).map(|flight| flight.io);
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
                Action::End { token, status } => self.finish(token as u32, result_of(status)).map(PathAction::Finish),
                Action::Fail { token, .. } => self.finish(token as u32, Err(RequestError::NoPath)).map(PathAction::Finish),
                Action::ReadAna(path) => self.controller_effect(path, Effect::ReadAna, cx),
                Action::Reset(path) => self.controller_effect(path, Effect::Reset, cx),
            };
            if todo.is_some() {
                return todo;
            }
        }
    }

    fn controller_effect(&self, path: PathId, effect: fn(usize) -> Effect, cx: &mut StepContext) -> Option<PathAction> {
        cx.out.extend(self.devices.get(path.index()).map(|&device| effect(device)));
        None
    }

    /// The slot of a request that is to be sent: of a Flush, whose shares may be on several paths at once, a new one.
    fn slot_to_send(&mut self, slot: u32) -> u32 {
        let io = self.flights.get(slot as usize).and_then(Option::as_ref).map(|flight| flight.io);
        let Some(io) = io.filter(|io| io.op == Op::Flush) else { return slot };
        let beyond = self.flights.iter().skip(self.depth).position(Option::is_none);
        let at = beyond.map_or(self.flights.len(), |at| self.depth + at);
        if at == self.flights.len() {
            self.flights.push(None);
        }
        self.flights[at] = Some(Flight { io: Io { slot: at as u32, ..io }, attempt: None, share: true });
        at as u32
    }

    /// Counts a request as sent by `path`. It, with the path as its target.
    fn send(&mut self, slot: u32, request: RequestId, path: PathId, cx: &mut StepContext) -> Option<Io> {
        let flight = self.flights.get_mut(slot as usize)?.as_mut()?;
        let (sent, cost) = self.chooser.start(path, Class::new(flight.io.op, flight.io.len), cx);
        self.counting += cost;
        flight.attempt = Some(Attempt { request, path, sent });
        Some(Io { target: path.0.into(), ..flight.io })
    }

    /// A request has come back from its path. What became of it, if it is over.
    pub(super) fn completed(&mut self, (io, result): Finished, cx: &mut StepContext) -> Option<Finished> {
        let flight = self.flights.get_mut(io.slot as usize)?.as_mut()?;
        let (attempt, share) = (flight.attempt.take()?, flight.share);
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
                let RequestError::Status(status) = failed else { return None };
                status
            }
        };
        match self.failover.ended(cx.now, attempt.request, attempt.path, status) {
            CompletionOutcome::Done { token, status } => self.finish(token as u32, result_of(status)),
            CompletionOutcome::Continues | CompletionOutcome::Stale => None,
        }
    }

    /// A request was taken back from its path, or was never posted there. What that means for it depends on what becomes of
    /// the path, of which there will be news.
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

    /// What choosing, and counting, have cost since this was asked last.
    pub(super) fn take_costs(&mut self) -> (Nanos, Nanos) {
        (std::mem::take(&mut self.choosing), std::mem::take(&mut self.counting))
    }
}

fn result_of(status: Status) -> Result<(), RequestError> {
    if status.is_success() { Ok(()) } else { Err(RequestError::Status(status)) }
}
