//! The controller: one step of time, the way of an I/O command through it, and what a host sees of
//! its life.

mod apart;
mod early;
mod external;
#[cfg(feature = "serve")]
mod fabric;
mod life;
mod registers;

use nvme::regs::{Cc, Csts};
use nvme::{Cid, Cqe, Nsid, QueueId, Sqe, Status};
use std::fmt;
use units::{Nanos, Op};

use crate::faults::SeenDoorbells;
use crate::features::Features;
use crate::interrupts::Interrupts;
use crate::io::{Request, Store};
use crate::logs::{Event, Events, FailedCommand, Logs};
use crate::queues::{Announced, Command, Commands, Consumed, Queues};
use crate::schedule::{Due, Schedule};
use crate::subsystem::AnaStates;
use crate::{Config, Namespace, Port};

use early::Early;
use external::{External, Link};
use life::Life;

/// Data that one step moves at most, roughly: a command is never split.
const STEP_BYTES: u64 = 4 << 20;

/// Commands fetched at one look at a doorbell, at most; an arbitration burst beyond it takes
/// several.
const BATCH: usize = 16;

/// A controller as a state machine. Its owner calls [`Controller::step`] with the time.
pub struct Controller<P: Port> {
    pub(crate) port: P,
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) queues: Queues<P>,
    pub(crate) commands: Commands,
    pub(crate) schedule: Schedule,
    pub(crate) interrupts: Interrupts,
    pub(crate) features: Features,
    pub(crate) logs: Logs,
    pub(crate) events: Events,
    /// `None`: not reported.
    pub(crate) ana: Option<AnaStates>,
    /// Commands neither take time nor move data: each is done the moment it is fetched.
    instant: bool,
    pub(crate) external: External,
    early: Early,
    life: Life,
    /// CC as the host wrote it last, CSTS as the controller did.
    pub(crate) cc: Cc,
    csts: Csts,
    /// Feature 01h AB: commands fetched from one queue at a time.
    pub(crate) burst: u32,
    /// When the host must have sent Keep Alive.
    pub(crate) keep_alive: Nanos,
    /// The completion queue whose head is looked at when there is nothing else to do.
    idle_turn: usize,
    counters: Counters,
    /// The commands that were just fetched.
    batch: Box<[Sqe; BATCH]>,
}

/// What a step did and when the next one matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Something was fetched, posted or announced, or a register changed, or there is room now for
    /// what could not be fetched.
    pub worked: bool,
    /// The controller's own next event; `None`: only the host can cause one.
    pub next: Option<Nanos>,
}

/// What a controller has done since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands fetched, admin commands included.
    pub fetched: u64,
    /// Entries posted.
    pub completed: u64,
    /// Messages attempted.
    pub messages: u64,
    /// Of these, the ones that an unmasked vector took.
    pub messages_sent: u64,
}

impl<P: Port> fmt::Debug for Controller<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("cc", &self.cc)
            .field("csts", &self.csts)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<P: Port> Controller<P> {
    /// A controller at power-on. Values of `config` outside their range are brought into it. Writes
    /// CAP, VS and CSTS.
    pub fn new(config: Config, namespaces: Vec<Namespace>, port: P) -> Controller<P> {
        let config = config.legal();
        let store = Store::new(namespaces, &config);
        let mut controller = Controller {
            queues: Queues::new(config.queue_pairs),
            commands: Commands::default(),
            schedule: Schedule::new(&config.profile, config.seed),
            interrupts: Interrupts::new(&config),
            features: Features::new(config.queue_pairs),
            logs: Logs::default(),
            events: Events::new(),
            ana: config.ana.as_ref().map(AnaStates::new),
            instant: false,
            external: External::new(config.faults.clone()),
            early: Early::new(config.fetch, config.seed),
            life: Life::Disabled,
            cc: Cc::new(),
            csts: Csts::new(),
            burst: 1,
            keep_alive: Nanos::MAX,
            idle_turn: 0,
            counters: Counters::default(),
            batch: Box::new([Sqe::default(); BATCH]),
            port,
            config,
            store,
        };
        controller.set_instant();
        controller.place_in_groups();
        controller.apply_features();
        controller.power_on();
        controller
    }

    /// The bus.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The doorbells, as far as the host's writes have arrived.
    #[inline]
    pub(crate) fn doorbells(&self) -> SeenDoorbells<'_, P> {
        SeenDoorbells { port: &self.port, faults: self.external.faults.as_ref() }
    }

    /// What the controller has done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            messages: self.interrupts.attempted,
            messages_sent: self.interrupts.sent,
            ..self.counters
        }
    }

    /// Exposes `blocks` logical blocks of a namespace, at most what its medium holds: the host is
    /// notified by a Namespace Attribute Changed event, if it asked for such. Other controllers of
    /// a subsystem go on showing what they showed: each is notified separately. `None`: there is no
    /// such namespace; else the new size.
    pub fn resize(&mut self, nsid: Nsid, blocks: u64) -> Option<u64> {
        let namespace = self.store.get_mut(nsid)?;
        let blocks = blocks.min(namespace.media().bytes() >> namespace.block_shift);
        if std::mem::replace(&mut namespace.blocks, blocks) != blocks {
            self.logs.namespace_changed(nsid);
            if self.features.events().namespace_attribute() {
                self.events.raise(Event::NamespaceChanged);
            }
        }
        Some(blocks)
    }

    /// Looks at registers and doorbells, fetches, completes what is due at `now`, raises vectors.
    /// The work of one step is bounded. `now` never goes back.
    pub fn step(&mut self, now: Nanos) -> Step {
        if self.external.is_special(now) {
            return self.step_specially(now);
        }
        self.step_in_touch(now)
    }

    /// Before its owner sleeps: where the host writes doorbells to memory it is asked to ring those
    /// that there is something to do for. Whether one of them has moved since: then it may have
    /// asked too late, and the controller is to be stepped again before the sleep.
    pub fn arm_doorbells(&self) -> bool {
        let listens = self.life == Life::Ready && self.external.link == Link::Up;
        listens
            && self.queues.awaited().fold(false, |moved, (queue, completion)| {
                moved | self.port.arm_doorbell(queue, completion)
            })
    }

    /// A step while host and controller reach each other.
    #[inline]
    fn step_in_touch(&mut self, now: Nanos) -> Step {
        let mut worked = self.look_at_registers(now);
        if self.life != Life::Ready {
            let next = self.next_change().unwrap_or(Nanos::MAX).min(self.external.next);
            return Step { worked, next: (next != Nanos::MAX).then_some(next) };
        }
        if self.interrupts.watches_host() {
            self.watch_host();
        }
        worked |= self.complete_due(now);
        let (fetched, more) = self.fetch(now);
        worked |= fetched;
        if self.events.is_due() {
            worked |= self.report_event();
        }
        worked |= self.interrupts.tick(now, &self.port);
        if self.interrupts.has_pending() {
            worked |= self.send_pending();
        }
        if !worked {
            // What it makes room for the fetch has not seen: a thread that slept now would leave
            // it, and ask for no head either.
            worked = self.look_at_one_head();
        }
        let own = self
            .interrupts
            .next()
            .min(self.schedule.next().unwrap_or(Nanos::MAX))
            .min(self.keep_alive)
            .min(self.external.next);
        let next = if more { now } else { own.min(self.next_change().unwrap_or(Nanos::MAX)) };
        Step { worked, next: (next != Nanos::MAX).then_some(next) }
    }

    /// Completes what is due.
    #[inline]
    fn complete_due(&mut self, now: Nanos) -> bool {
        let mut bytes = 0;
        for n in 0..self.config.step_budget {
            if bytes >= STEP_BYTES {
                return true;
            }
            let Some(due) = self.schedule.pop(now) else { return n > 0 };
            // Aborted since: its entry has been posted.
            let Some(command) = self.commands.remove(due.slot, due.order) else { continue };
            bytes += u64::from(command.request.bytes);
            self.finish(now, &command, command.aborted.then_some(Status::ABORT_REQUESTED));
        }
        true
    }

    /// Carries out a command that was in service, unless it ends with `instead`, and posts its
    /// entry.
    pub(crate) fn finish(&mut self, now: Nanos, command: &Command, instead: Option<Status>) {
        let Controller { port, store, queues, logs, interrupts, early, external, .. } = self;
        let fetched = early.take(command.order);
        let Some((sq, cq)) = queues.pair(command.sq) else { return };
        let carry_out = || match fetched {
            None => store.execute(&command.request, port),
            Some(fetched) => store.execute_fetched(&command.request, fetched, port),
        };
        let done = instead.map_or_else(carry_out, Err);
        cq.redeem();
        let status = match done {
            Ok(()) => {
                logs.count(command.request.op, command.request.bytes);
                Status::SUCCESS
            }
            Err(status) if instead.is_some() => status,
            Err(status) => {
                let failed = FailedCommand {
                    cid: command.cid,
                    opcode: opcode_of(&command.request),
                    nsid: command.request.nsid,
                    lba: command.request.lba,
                };
                logs.command_failed(sq.id, &failed, status);
                status.with_more()
            }
        };
        let entry = entry(sq.id, sq.head(), command.cid);
        match &external.faults {
            None => cq.post(entry, status),
            Some(faults) => {
                if cq.post_with(
                    faults,
                    entry,
                    status,
                    &SeenDoorbells { port, faults: Some(faults) },
                ) {
                    return self.fail();
                }
            }
        }
        interrupts.posted(now, cq.vector, 1, port);
        self.counters.completed += 1;
    }

    /// Fetches by round robin, in bursts. Returns whether anything was fetched and whether more
    /// waits.
    #[inline]
    fn fetch(&mut self, now: Nanos) -> (bool, bool) {
        let mut budget = self.config.step_budget;
        loop {
            let mut more = false;
            for _ in 0..self.queues.active() {
                let Some(queue) = self.queues.next_turn(&SeenDoorbells {
                    port: &self.port,
                    faults: self.external.faults.as_ref(),
                }) else {
                    continue;
                };
                let (taken, left) =
                    self.fetch_from(now, queue, self.burst.min(budget).min(BATCH as u32));
                self.queues.end_turn(queue);
                budget -= taken;
                more |= left;
                if budget == 0 {
                    return (true, true);
                }
            }
            if !more {
                return (budget < self.config.step_budget, false);
            }
        }
    }

    /// Fetches at most `limit` commands from one queue. Returns how many, and whether the limit
    /// kept any back.
    #[inline]
    fn fetch_from(&mut self, now: Nanos, queue: QueueId, limit: u32) -> (u32, bool) {
        let Some((sq, cq)) = self.queues.pair(queue) else { return (0, false) };
        let doorbells = &SeenDoorbells { port: &self.port, faults: self.external.faults.as_ref() };
        let waiting = match sq.announced(doorbells) {
            Announced::Commands(0) => return (0, false),
            Announced::Commands(n) => n,
            Announced::Invalid(tail) => {
                self.bad_doorbell(queue, tail);
                return (0, false);
            }
        };
        let mut count = waiting.min(limit);
        if cq.free() < count {
            if let Consumed::Invalid(head) = cq.consumed(doorbells) {
                let queue = cq.id;
                self.bad_doorbell(queue, head);
                return (0, false);
            }
            count = count.min(cq.free());
        }
        if queue == QueueId::ADMIN {
            count = self.fetch_admin(now, count);
        } else {
            self.fetch_io(now, queue, count as usize);
        }
        self.counters.fetched += u64::from(count);
        (count, waiting > limit && count == limit)
    }

    /// Takes `count` commands, at most [`BATCH`], from an I/O queue; its completion queue has room
    /// for as many.
    #[inline]
    fn fetch_io(&mut self, now: Nanos, queue: QueueId, count: usize) {
        let Controller {
            port,
            store,
            queues,
            logs,
            interrupts,
            commands,
            schedule,
            external,
            early,
            batch,
            ..
        } = self;
        let Some((sq, cq)) = queues.pair(queue) else { return };
        let mut batch = &mut batch[..count.min(BATCH)];
        // All loads before anything else: each may have to come from the host's cache, and none
        // waits for another.
        for sqe in &mut *batch {
            *sqe = sq.fetch();
        }
        if let Some(faults) = &external.faults {
            let kept = faults.swallow(queue, batch);
            batch = &mut batch[..kept];
        }
        let sq_head = sq.head();
        let mut posted = 0;
        for sqe in &*batch {
            let status = match store.decode(sqe) {
                Ok(request) if !self.instant => {
                    cq.reserve();
                    let done =
                        schedule.start(now, request.op, request.bytes, port.service_time(sqe))
                            + external.delay;
                    let (slot, order) = commands.insert(Command {
                        order: 0,
                        sq: queue,
                        cid: sqe.cid(),
                        aborted: false,
                        request,
                    });
                    early.begin(order, &request, store, port);
                    let due = Due { at: done, order, slot };
                    if !external.holds(request.op, due) {
                        schedule.push(due);
                    }
                    continue;
                }
                Ok(request) => match store.execute(&request, port) {
                    Ok(()) => {
                        logs.count(request.op, request.bytes);
                        Status::SUCCESS
                    }
                    Err(status) => failed(logs, queue, sqe, status),
                },
                Err(status) => {
                    let status = failed(logs, queue, sqe, status);
                    if let Some(faults) = &external.faults {
                        if cq.post_with(
                            faults,
                            entry(queue, sq_head, sqe.cid()),
                            status,
                            &SeenDoorbells { port, faults: Some(faults) },
                        ) {
                            return self.fail();
                        }
                        posted += 1;
                        continue;
                    }
                    status
                }
            };
            cq.post(entry(queue, sq_head, sqe.cid()), status);
            posted += 1;
        }
        // Entries of one batch, posted without moving data, are as good as simultaneous: their
        // messages, as many as there are entries, follow them, so that a barrier per message does
        // not keep back the next entry.
        interrupts.posted(now, cq.vector, posted, port);
        self.counters.completed += u64::from(posted);
    }

    /// Posts an entry to the admin completion queue, which must have room.
    pub(crate) fn post_admin(&mut self, cid: Cid, result: u32, status: Status) {
        let Controller { port, queues, external, .. } = self;
        let Some((sq, cq)) = queues.pair(QueueId::ADMIN) else { return };
        let entry = Cqe { result, ..entry(QueueId::ADMIN, sq.head(), cid) };
        match &external.faults {
            None => cq.post(entry, status),
            Some(faults) => {
                if cq.post_with(
                    faults,
                    entry,
                    status,
                    &SeenDoorbells { port, faults: Some(faults) },
                ) {
                    return self.fail();
                }
            }
        }
        if let Some(vector) = cq.vector {
            self.interrupts.message(vector, &self.port);
        }
        self.counters.completed += 1;
    }

    /// Reports an asynchronous event if the admin completion queue has room.
    #[inline(never)]
    fn report_event(&mut self) -> bool {
        let Some((_, cq)) = self.queues.pair(QueueId::ADMIN) else { return false };
        if cq.free() == 0 {
            cq.consumed(&SeenDoorbells { port: &self.port, faults: self.external.faults.as_ref() });
        }
        if cq.free() == 0 {
            return false;
        }
        let Some((cid, event)) = self.events.take() else { return false };
        self.post_admin(cid, event.into_bits(), Status::SUCCESS);
        true
    }

    #[cold]
    fn bad_doorbell(&mut self, queue: QueueId, value: u32) {
        self.logs.bad_doorbell(queue, value);
        self.events.raise(Event::InvalidDoorbell);
    }

    /// Tells the vectors how far the host has come by itself.
    #[inline(never)]
    fn watch_host(&mut self) {
        let Controller { port, queues, interrupts, external, .. } = self;
        let doorbells = SeenDoorbells { port, faults: external.faults.as_ref() };
        let mut bad = None;
        for n in 0..queues.cqs() {
            // The admin queue's entries are not held back, and so not counted.
            let Some(cq) = queues.nth_cq(n).filter(|cq| cq.id != QueueId::ADMIN) else { continue };
            if let Consumed::Invalid(head) = cq.consumed(&doorbells) {
                bad = Some((cq.id, head));
            }
            let taken = cq.take_consumed();
            if let Some(vector) = cq.vector.filter(|_| taken > 0) {
                interrupts.taken(vector, taken);
            }
        }
        if let Some((queue, head)) = bad {
            self.bad_doorbell(queue, head);
        }
    }

    /// Sends the messages of vectors that the host has unmasked. A Pending bit whose entries the
    /// host has acknowledged, all of them, is cleared instead.
    #[inline(never)]
    fn send_pending(&mut self) -> bool {
        let Controller { port, queues, interrupts, external, .. } = self;
        let doorbells = SeenDoorbells { port, faults: external.faults.as_ref() };
        interrupts.send_pending(port, |vector| queues.are_acknowledged(vector, &doorbells))
    }

    /// Finds impossible head doorbells of queues that are never full. Whether there is room now in
    /// a queue that was full.
    #[inline]
    fn look_at_one_head(&mut self) -> bool {
        self.idle_turn =
            if self.idle_turn + 1 < self.queues.cqs() { self.idle_turn + 1 } else { 0 };
        let Some(cq) = self.queues.nth_cq(self.idle_turn) else { return false };
        let was_full = cq.free() == 0;
        if let Consumed::Invalid(head) =
            cq.consumed(&SeenDoorbells { port: &self.port, faults: self.external.faults.as_ref() })
        {
            let queue = cq.id;
            self.bad_doorbell(queue, head);
            return false;
        }
        was_full && cq.free() > 0
    }
}

#[inline]
fn entry(queue: QueueId, sq_head: u16, cid: Cid) -> Cqe {
    Cqe { result: 0, dw1: 0, sq_head, sq_id: queue.0, cid: cid.0, status_and_phase: 0 }
}

#[cold]
fn failed(logs: &mut Logs, queue: QueueId, sqe: &Sqe, status: Status) -> Status {
    logs.command_failed(queue, &FailedCommand::of(sqe), status);
    status.with_more()
}

fn opcode_of(request: &Request) -> u8 {
    match request.op {
        Op::Read => nvme::opcode::io::READ,
        Op::Write => nvme::opcode::io::WRITE,
        Op::Flush => nvme::opcode::io::FLUSH,
        Op::WriteZeroes => nvme::opcode::io::WRITE_ZEROES,
        Op::Deallocate => nvme::opcode::io::DATASET_MANAGEMENT,
        Op::Compare => nvme::opcode::io::COMPARE,
        Op::Verify => nvme::opcode::io::VERIFY,
        Op::WriteUncorrectable => nvme::opcode::io::WRITE_UNCORRECTABLE,
    }
}

#[cfg(test)]
mod tests;
