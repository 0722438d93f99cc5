//! The controller state machine: one step in time, and the processing of I/O commands.
//!
//! ```text
//!   step(now): registers ─► complete due commands ─► fetch and start ─► async events ─► interrupts
//!
//!   fetch: tail doorbell ─► SQE ─► validate ─► Schedule::start ─► execute ─► CQE ─► vector
//! ```

mod changes;
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
use crate::io::{IoCommand, Store};
use crate::logs::{ControllerEvent, ControllerEvents, FailedCommand, Logs};
use crate::queues::{Announced, Commands, Consumed, FetchedCommand, Queues};
use crate::schedule::{Due, Schedule};
use crate::subsystem::AnaStates;
use crate::{Config, NamespaceConfig, Port};

use early::Early;
use external::{External, Link};
use life::Life;

/// Bytes of data per step. The limit is approximate, because commands are not split.
const STEP_BYTES: u64 = 4 << 20;

/// Maximum commands fetched per read of a tail doorbell; a larger arbitration burst takes several
/// reads.
const BATCH: usize = 16;

/// A controller as a state machine. The owner calls [`Controller::step`] with the current time.
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
    pub(crate) events: ControllerEvents,
    /// `None`: ANA is not reported.
    pub(crate) ana: Option<AnaStates>,
    /// Service time and data transfer are off: each command completes in the step that fetches it.
    instant: bool,
    pub(crate) external: External,
    early: Early,
    life: Life,
    /// CC as last seen, and CSTS as last written.
    pub(crate) cc: Cc,
    csts: Csts,
    /// Feature 01h AB: maximum commands fetched from one queue before the next is served.
    pub(crate) burst: u32,
    /// Expiry of the Keep Alive Timer.
    pub(crate) keep_alive: Nanos,
    /// Index of the completion queue whose head doorbell is read in the next idle step.
    idle_turn: usize,
    counters: Counters,
    /// Buffer for fetched commands.
    batch: Box<[Sqe; BATCH]>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Something was fetched, posted or signalled, a register has changed, or a full completion
    /// queue has room again.
    pub worked: bool,
    /// Time of the controller's next own event; `None`: only the host can cause one.
    pub next: Option<Nanos>,
}

/// Counters since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands fetched, admin commands included.
    pub fetched: u64,
    /// Completion queue entries posted.
    pub completed: u64,
    /// Interrupt messages attempted.
    pub messages: u64,
    /// Messages that were sent, as their vector was not masked.
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
    /// A controller at power-on. Values of `config` are clamped to their valid ranges. Writes CAP,
    /// VS and CSTS.
    pub fn new(config: Config, namespaces: Vec<NamespaceConfig>, port: P) -> Controller<P> {
        // Values are clamped first: everything below sizes its tables by them.
        let config = config.clamped();
        let store = Store::new(namespaces, &config);
        let mut controller = Controller {
            queues: Queues::new(config.queue_pairs),
            commands: Commands::default(),
            schedule: Schedule::new(&config.profile, config.seed),
            interrupts: Interrupts::new(&config),
            features: Features::new(config.queue_pairs),
            logs: Logs::default(),
            events: ControllerEvents::new(),
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

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The doorbells; with late doorbell writes (fault injection) only those that have arrived.
    #[inline]
    pub(crate) fn doorbells(&self) -> SeenDoorbells<'_, P> {
        SeenDoorbells { port: &self.port, faults: self.external.faults.as_ref() }
    }

    /// Counters since power-on.
    pub fn counters(&self) -> Counters {
        Counters {
            messages: self.interrupts.attempted,
            messages_sent: self.interrupts.sent,
            ..self.counters
        }
    }

    /// Sets the size of a namespace in logical blocks, up to that of its medium, and raises a
    /// Namespace Attribute Changed event if the host has enabled it. Other controllers of the
    /// subsystem keep the old size. Returns the new size, or `None` if there is no such namespace.
    pub fn resize(&mut self, nsid: Nsid, blocks: u64) -> Option<u64> {
        let namespace = self.store.get_mut(nsid)?;
        let blocks = blocks.min(namespace.media().bytes() >> namespace.block_shift);
        if std::mem::replace(&mut namespace.blocks, blocks) != blocks {
            self.logs.namespace_changed(nsid);
            if self.features.events().namespace_attribute() {
                self.events.raise(ControllerEvent::NamespaceChanged);
            }
        }
        Some(blocks)
    }

    /// Handles registers and doorbells, fetches commands, completes those due at `now`, and signals
    /// vectors. The work of one step is bounded. `now` must not decrease.
    pub fn step(&mut self, now: Nanos) -> Step {
        if self.external.is_special(now) {
            return self.step_with_changes(now);
        }
        self.step_connected(now)
    }

    /// To be called before the owner sleeps: requests a notification for the next write of each
    /// relevant shadow doorbell (EventIdx). If one has moved in the meantime, returns true; the
    /// controller must then be stepped before the sleep.
    pub fn arm_doorbells(&self) -> bool {
        let listens = self.life == Life::Ready && self.external.link == Link::Up;
        listens
            && self.queues.awaited().fold(false, |moved, (queue, completion)| {
                moved | self.port.arm_doorbell(queue, completion)
            })
    }

    /// A step while the path to the host is up.
    #[inline]
    fn step_connected(&mut self, now: Nanos) -> Step {
        let mut worked = self.poll_registers(now);
        if self.life != Life::Ready {
            let next = self.next_change().unwrap_or(Nanos::MAX).min(self.external.next);
            return Step { worked, next: (next != Nanos::MAX).then_some(next) };
        }
        // Head doorbells are read here only for hidden coalescing: each read is a cache miss,
        // because the host's CPU owns the line.
        if self.interrupts.watches_host() {
            self.watch_host();
        }
        // Commands are completed before others are fetched, so that the slots that completions
        // release are available to new commands in the same step.
        worked |= self.complete_due(now);
        let (fetched, more) = self.fetch(now);
        worked |= fetched;
        // Events are reported after fetching, which may have brought an Asynchronous Event Request
        // to complete.
        if self.events.is_due() {
            worked |= self.report_event();
        }
        // Coalesced messages are sent last, so that entries posted in this step count towards the
        // aggregation threshold.
        worked |= self.interrupts.tick(now, &self.port);
        if self.interrupts.has_pending() {
            worked |= self.send_pending();
        }
        if !worked {
            // A head that moved after the fetch makes room for waiting commands. Without this check
            // the owner would sleep, and no head of a queue that is no longer full would be armed.
            worked = self.poll_one_head();
        }
        let own = self
            .interrupts
            .next()
            .min(self.schedule.next().unwrap_or(Nanos::MAX))
            .min(self.keep_alive)
            .min(self.external.next);
        // Commands left in a queue are fetched by the next step at once.
        let next = if more { now } else { own.min(self.next_change().unwrap_or(Nanos::MAX)) };
        Step { worked, next: (next != Nanos::MAX).then_some(next) }
    }

    /// Completes the commands that are due.
    #[inline]
    fn complete_due(&mut self, now: Nanos) -> bool {
        let mut bytes = 0;
        // The loop is bounded, so that a thread with several controllers serves all of them.
        for n in 0..self.config.step_budget {
            // Long transfers must not delay other controllers of the same thread.
            if bytes >= STEP_BYTES {
                return true;
            }
            let Some(due) = self.schedule.pop(now) else { return n > 0 };
            // The command was aborted in the meantime, and its entry has been posted.
            let Some(command) = self.commands.remove(due.slot, due.order) else { continue };
            bytes += u64::from(command.request.bytes);
            self.finish(now, &command, command.aborted.then_some(Status::ABORT_REQUESTED));
        }
        true
    }

    /// Executes a command in service, or fails it with `instead`, and posts its entry.
    pub(crate) fn finish(&mut self, now: Nanos, command: &FetchedCommand, instead: Option<Status>) {
        let Controller { port, store, queues, logs, interrupts, early, external, .. } = self;
        // Data read early are removed even if the command is going to fail: otherwise the copy
        // would stay until the next reset.
        let fetched = early.take(command.order);
        let Some((sq, cq)) = queues.pair(command.sq) else { return };
        let carry_out = || match fetched {
            None => store.execute(&command.request, port),
            Some(fetched) => store.execute_fetched(&command.request, fetched, port),
        };
        let done = instead.map_or_else(carry_out, Err);
        // The reservation made at fetch becomes the entry that is posted below.
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

    /// Fetches from all queues, round robin in bursts. Returns whether anything was fetched, and
    /// whether commands are left.
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
                // Remember a drained queue by its tail, so that the next round skips it for the
                // price of one load.
                self.queues.end_turn(queue);
                budget -= taken;
                more |= left;
                if budget == 0 {
                    return (true, true);
                }
            }
            // Another round only for what the burst limit has left: a queue that the host keeps
            // filling must not prolong this step.
            if !more {
                return (budget < self.config.step_budget, false);
            }
        }
    }

    /// Fetches at most `limit` commands from one queue. Returns their number, and whether the limit
    /// has left commands in the queue.
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
        // The head doorbell is read only if the known room does not suffice: its cache line is
        // shared with the host.
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

    /// Fetches and starts `count` commands, at most [`BATCH`], of an I/O queue. Its completion
    /// queue must have room for them.
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
        // Load all entries first: the cache misses on lines that the host has written overlap.
        for sqe in &mut *batch {
            *sqe = sq.fetch();
        }
        if let Some(faults) = &external.faults {
            // Swallowed commands are fetched, so SQHD advances past them, but no entry is ever
            // posted.
            let kept = faults.swallow(queue, batch);
            batch = &mut batch[..kept];
        }
        let sq_head = sq.head();
        let mut posted = 0;
        for sqe in &*batch {
            let status = match store.decode(sqe) {
                // Reserve the entry first: a command in service must always be able to complete.
                Ok(request) if !self.instant => {
                    cq.reserve();
                    let done =
                        schedule.start(now, request.op, request.bytes, port.service_time(sqe))
                            + external.delay;
                    let (slot, order) = commands.insert(FetchedCommand {
                        order: 0,
                        sq: queue,
                        cid: sqe.cid(),
                        aborted: false,
                        request,
                    });
                    // A real controller may read data and PRP lists at any time between fetch and
                    // completion; `early` chooses when.
                    early.begin(order, &request, store, port);
                    let due = Due { at: done, order, slot };
                    // A held command stays in service and is scheduled when the hold ends.
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
        // One interrupt call for the batch, as its entries are posted at practically the same time:
        // a memory barrier per message would delay the next entry.
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

    /// Completes an Asynchronous Event Request if the admin completion queue has room.
    #[inline(never)]
    fn report_event(&mut self) -> bool {
        let Some((_, cq)) = self.queues.pair(QueueId::ADMIN) else { return false };
        // The room is known from the last read of the head; read it again before giving up.
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
        // The host has broken its queue. An event is enough: the controller ignores the value and
        // goes on.
        self.logs.bad_doorbell(queue, value);
        self.events.raise(ControllerEvent::InvalidDoorbell);
    }

    /// Reads the head doorbells and reports consumed entries to interrupt coalescing.
    #[inline(never)]
    fn watch_host(&mut self) {
        let Controller { port, queues, interrupts, external, .. } = self;
        let doorbells = SeenDoorbells { port, faults: external.faults.as_ref() };
        let mut bad = None;
        for n in 0..queues.cqs() {
            // Admin queue entries are never coalesced.
            let Some(cq) = queues.nth_cq(n).filter(|cq| cq.id != QueueId::ADMIN) else { continue };
            if let Consumed::Invalid(head) = cq.consumed(&doorbells) {
                bad = Some((cq.id, head));
            }
            // The head may have been read for its room as well, so the queue keeps its own count
            // since the last call.
            let taken = cq.take_consumed();
            if let Some(vector) = cq.vector.filter(|_| taken > 0) {
                interrupts.taken(vector, taken);
            }
        }
        if let Some((queue, head)) = bad {
            self.bad_doorbell(queue, head);
        }
    }

    /// Sends the pending messages of vectors that the host has unmasked. If all entries of the
    /// vector have been consumed, its Pending bit is cleared instead.
    #[inline(never)]
    fn send_pending(&mut self) -> bool {
        let Controller { port, queues, interrupts, external, .. } = self;
        let doorbells = SeenDoorbells { port, faults: external.faults.as_ref() };
        interrupts.send_pending(port, |vector| queues.are_acknowledged(vector, &doorbells))
    }

    /// Reads the head doorbell of one completion queue, in turn, to detect invalid values on queues
    /// that are never full. Returns whether a full queue has room again.
    #[inline]
    fn poll_one_head(&mut self) -> bool {
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
        // Only room in a queue that was full gives the controller work: commands that could not be
        // fetched.
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
    // The details are in the Error Information log, which `command_failed` has extended.
    status.with_more()
}

fn opcode_of(request: &IoCommand) -> u8 {
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
