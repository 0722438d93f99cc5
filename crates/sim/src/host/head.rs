//! The head of a thread's paths, where each ends at a controller of its own: its open requests, wherever they are, and what
//! becomes of them. As in the engine, `driver::multipath::Failover` decides which paths a request may take and what happens
//! when one fails, the selector chooses among those, and here it is done.

use driver::multipath::{Action, CompletionOutcome, Counters, Failover, Link, PathId, PathSnapshot, PathUpdate, RequestId, Submitted};
use nvme::Status;
use units::{Class, Nanos, Op};
use workload::Io;

use super::paths::{Chooser, Sent};
use super::{Effect, Ground};
use crate::requests::{Ended, Failed};

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
    way: Option<Way>,
    /// It is a share of a Flush: nobody waits for it.
    share: bool,
}

/// How a request goes: its name in the failover, and what it is counted in.
#[derive(Clone, Copy, Debug)]
struct Way {
    request: RequestId,
    path: PathId,
    sent: Sent,
}

/// What is to be done with a request.
pub(super) enum Todo {
    /// It is sent: its target is the path.
    Send(Io),
    /// It is over.
    Over(Ended),
}

/// The head of one thread's paths.
#[derive(Debug)]
pub(crate) struct Head {
    failover: Failover,
    chooser: Chooser,
    /// By path, its device.
    devices: Vec<usize>,
    /// By slot; those beyond the thread's depth are for shares of Flushes.
    flights: Vec<Option<Flight>>,
    depth: usize,
    /// By path, how it stands, and what the failover was told last.
    stands: Vec<PathSnapshot>,
    seen: Vec<PathSnapshot>,
    /// Some of it the failover has not been told.
    news: bool,
    tallies: Vec<PathTally>,
    /// What choosing and counting have cost since it was asked for last.
    choosing: Nanos,
    counting: Nanos,
}

impl Head {
    /// Over controllers that are all up.
    pub(crate) fn new(failover: Failover, chooser: Chooser, devices: Vec<usize>, depth: u32, now: Nanos) -> Head {
        let (paths, depth) = (devices.len(), depth as usize);
        let mut head = Head {
            failover,
            chooser,
            devices,
            flights: (0..depth).map(|_| None).collect(),
            depth,
            stands: vec![PathSnapshot::NEVER_UP.with_link(Link::Live); paths],
            seen: vec![PathSnapshot::NEVER_UP; paths],
            news: true,
            tallies: vec![PathTally::default(); paths],
            choosing: Nanos::ZERO,
            counting: Nanos::ZERO,
        };
        head.hear(now, |_| true);
        head
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

    /// Whether [`Head::hear`] and [`Head::next`] have something to do.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.news || now >= self.next_deadline()
    }

    /// The path that ends at a device now stands so.
    pub(crate) fn tell(&mut self, device: usize, standing: PathSnapshot) {
        for (path, _) in self.devices.iter().enumerate().filter(|(_, of)| **of == device) {
            self.stands[path] = standing;
            self.news = true;
        }
    }

    /// The paths that nothing more goes out by: what waits to be posted there is to be taken back.
    pub(super) fn closed(&self) -> impl Iterator<Item = usize> + use<> {
        let news = self.stands.iter().zip(&self.seen).enumerate();
        let closed = |(_, (stands, seen)): &(usize, (&PathSnapshot, &PathSnapshot))| stands.life != seen.life && seen.life > 0;
        let closed: Vec<usize> = news.filter(closed).map(|(path, _)| path).collect();
        closed.into_iter()
    }

    /// Tells the failover what is new. `drained`: nothing that was sent by a path is on its way.
    pub(super) fn hear(&mut self, now: Nanos, drained: impl Fn(usize) -> bool) {
        self.news = false;
        for n in 0..self.stands.len() {
            let path = PathId(n as u8);
            match self.failover.update_path(now, path, &mut self.seen[n], self.stands[n], || drained(n)) {
                PathUpdate::Applied => {}
                PathUpdate::CameUp => self.chooser.forget(path),
                PathUpdate::Deferred => self.news = true,
            }
        }
        if now >= self.next_deadline() {
            self.failover.tick(now);
        }
    }

    /// Takes in a request of the application's. `None`: it waits for a path, or for [`Head::next`].
    pub(super) fn submit(&mut self, io: Io, g: &mut Ground, cold: bool) -> Option<Todo> {
        let (class, now) = (Class::new(io.op, io.len), g.now);
        if let Some(flight) = self.flights.get_mut(io.slot as usize) {
            *flight = Some(Flight { io, way: None, share: false });
        }
        let Head { failover, chooser, choosing, .. } = self;
        let choose = |among| {
            let (chosen, cost) = chooser.choose(among, class, g, cold);
            *choosing += cost;
            chosen.unwrap_or(PathId(0))
        };
        match failover.submit(now, io.slot.into(), io.op, choose) {
            Submitted::Send { request, path } => self.send(io.slot, request, path, g).map(Todo::Send),
            Submitted::Queued => None,
            Submitted::Refused(_) => self.over(io.slot, Err(Failed::NoPath)).map(Todo::Over),
        }
    }

    /// The next thing to do, until there is none.
    pub(super) fn next(&mut self, g: &mut Ground, cold: bool) -> Option<Todo> {
        loop {
            let now = g.now;
            let Head { failover, chooser, flights, choosing, .. } = self;
            let choose = |token: u64, among| {
                let io = flights.get(token as usize).and_then(Option::as_ref).map(|flight| flight.io);
                let class = io.map_or(Class::new(Op::Flush, 0), |io| Class::new(io.op, io.len));
                let (chosen, cost) = chooser.choose(among, class, g, cold);
                *choosing += cost;
                chosen.unwrap_or(PathId(0))
            };
            let todo = match failover.poll(now, choose)? {
                Action::Send { request, token, path } => {
                    let slot = self.slot_to_send(token as u32);
                    self.send(slot, request, path, g).map(Todo::Send)
                }
                Action::End { token, status } => self.over(token as u32, result_of(status)).map(Todo::Over),
                Action::Fail { token, .. } => self.over(token as u32, Err(Failed::NoPath)).map(Todo::Over),
                Action::ReadAna(path) => self.wish(path, Effect::ReadAna, g),
                Action::Reset(path) => self.wish(path, Effect::Reset, g),
            };
            if todo.is_some() {
                return todo;
            }
        }
    }

    fn wish(&self, path: PathId, effect: fn(usize) -> Effect, g: &mut Ground) -> Option<Todo> {
        g.out.extend(self.devices.get(path.index()).map(|&device| effect(device)));
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
        self.flights[at] = Some(Flight { io: Io { slot: at as u32, ..io }, way: None, share: true });
        at as u32
    }

    /// Counts a request as sent by `path`. It, with the path as its target.
    fn send(&mut self, slot: u32, request: RequestId, path: PathId, g: &mut Ground) -> Option<Io> {
        let flight = self.flights.get_mut(slot as usize)?.as_mut()?;
        let (sent, cost) = self.chooser.start(path, Class::new(flight.io.op, flight.io.len), g);
        self.counting += cost;
        flight.way = Some(Way { request, path, sent });
        Some(Io { target: path.0.into(), ..flight.io })
    }

    /// A request has come back from its path. What became of it, if it is over.
    pub(super) fn came_back(&mut self, (io, result): Ended, g: &mut Ground) -> Option<Ended> {
        let flight = self.flights.get_mut(io.slot as usize)?.as_mut()?;
        let (way, share) = (flight.way.take()?, flight.share);
        if share {
            self.flights[io.slot as usize] = None;
        }
        let tally = &mut self.tallies[way.path.index()];
        tally.ended += 1;
        tally.time += g.now - way.sent.at;
        tally.failed += u64::from(result.is_err());
        let status = match result {
            Ok(()) => {
                self.counting += self.chooser.end(way.sent, g);
                Status::SUCCESS
            }
            Err(failed) => {
                self.chooser.abandon(way.sent);
                let Failed::Status(status) = failed else { return None };
                status
            }
        };
        match self.failover.ended(g.now, way.request, way.path, status) {
            CompletionOutcome::Done { token, status } => self.over(token as u32, result_of(status)),
            CompletionOutcome::Continues | CompletionOutcome::Stale => None,
        }
    }

    /// A request was taken back from its path, or was never posted there. What that means for it depends on what becomes of
    /// the path, of which there will be news.
    pub(super) fn taken_back(&mut self, io: &Io, now: Nanos) {
        let Some(place) = self.flights.get_mut(io.slot as usize) else { return };
        let Some(flight) = place else { return };
        let way = flight.way.take();
        if flight.share {
            *place = None;
        }
        let Some(way) = way else { return };
        let tally = &mut self.tallies[way.path.index()];
        (tally.ended, tally.failed) = (tally.ended + 1, tally.failed + 1);
        tally.time += now - way.sent.at;
        self.chooser.abandon(way.sent);
        self.news = true;
    }

    fn over(&mut self, slot: u32, result: Result<(), Failed>) -> Option<Ended> {
        let flight = self.flights.get_mut(slot as usize)?.take()?;
        Some((flight.io, result))
    }

    /// What choosing, and counting, have cost since this was asked last.
    pub(super) fn take_costs(&mut self) -> (Nanos, Nanos) {
        (std::mem::take(&mut self.choosing), std::mem::take(&mut self.counting))
    }
}

fn result_of(status: Status) -> Result<(), Failed> {
    if status.is_success() { Ok(()) } else { Err(Failed::Status(status)) }
}
