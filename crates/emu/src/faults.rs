//! Fault injection into commands, completion queue entries and interrupt messages, by a plan or at
//! run time.
//!
//! Without a [`FaultInjector`] the cost is one pointer comparison per entry and per doorbell read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::{Cid, Doorbells, QueueId, Sqe, Status, Vector};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use crate::{Port, SendResult};

/// A fault that happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An interrupt message is dropped.
    LoseMessage,
    /// A message is delayed by this time.
    DelayMessage(Nanos),
    /// A message is sent twice.
    DoubleMessage,
    /// An entry carries the CID of the previous entry of its queue; its own command never
    /// completes.
    StaleCid,
    /// An entry carries a CID that is not in use; its own command never completes.
    UnknownCid,
    /// An entry is posted twice, if there is room.
    DoubleEntry,
    /// An entry is stored with an inverted phase tag: the host sees neither it nor later entries of
    /// the queue.
    WrongPhase,
    /// A command is executed but completes with this status.
    Status(Status),
    /// A command is executed but its entry is not posted.
    SwallowEntry,
    /// A command is neither executed nor completed.
    SwallowCommand,
    /// CSTS.CFS: instead of posting this entry the controller fails, until the host resets it.
    Fatal,
}

/// What a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    Message,
    Entry,
    Command,
}

impl Fault {
    fn occasion(self) -> Occasion {
        match self {
            Fault::LoseMessage | Fault::DelayMessage(_) | Fault::DoubleMessage => Occasion::Message,
            Fault::SwallowCommand => Occasion::Command,
            _ => Occasion::Entry,
        }
    }
}

/// A fault that was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The fault.
    pub fault: Fault,
    /// Submission queue and CID of the command; `None` for a message.
    pub command: Option<(QueueId, Cid)>,
}

/// A fault plan: faults at given occurrences, and random ones. Occurrences are messages, posted
/// entries or fetched commands, whichever the fault concerns, each counted from 0. The admin queue
/// and vector 0 are excluded unless [`FaultPlan::admin_too`] is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    scripted: Vec<(u64, Fault)>,
    chances: Vec<(u32, Fault)>,
    late_doorbells: (Nanos, u64),
    seed: u64,
    admin_too: bool,
}

impl FaultPlan {
    /// A plan without faults.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Adds a fault at occurrence `n`. If several match an occurrence, the one added first is
    /// injected.
    pub fn at(mut self, n: u64, fault: Fault) -> FaultPlan {
        self.scripted.push((n, fault));
        self
    }

    /// Adds a fault with a probability of `ppm` in a million per occurrence.
    pub fn with_chance(mut self, ppm: u32, fault: Fault) -> FaultPlan {
        self.chances.push((ppm, fault));
        self
    }

    /// Delays each doorbell write, also of the admin queue, by a random time up to `max`, drawn
    /// with this seed. Writes to one doorbell stay in order; writes to different doorbells may be
    /// reordered.
    pub fn with_late_doorbells(mut self, max: Nanos, seed: u64) -> FaultPlan {
        self.late_doorbells = (max, seed);
        self
    }

    /// Sets the seed of random faults.
    pub fn with_seed(mut self, seed: u64) -> FaultPlan {
        self.seed = seed;
        self
    }

    /// Includes the admin queue pair and vector 0.
    pub fn admin_too(mut self) -> FaultPlan {
        self.admin_too = true;
        self
    }
}

/// Fault injection of one controller ([`crate::Config::faults`]). Clones share their state and may
/// be used from any thread.
#[derive(Clone, Debug)]
pub struct FaultInjector(Arc<Mutex<InjectorState>>);

#[derive(Debug)]
struct InjectorState {
    plan: FaultPlan,
    random: Xoshiro256PlusPlus,
    /// Occurrences so far, by kind.
    occasions: [u64; 3],
    /// Faults for the next occurrences of their kind, and their number.
    next: Vec<(Fault, u32)>,
    injected: Vec<Injected>,
    now: Nanos,
    doorbells: LateDoorbells,
    /// Delayed messages, in order of sending.
    messages: Vec<(Nanos, Vector)>,
}

impl InjectorState {
    fn set_plan(&mut self, plan: FaultPlan) {
        let (max, seed) = plan.late_doorbells;
        // Doorbell writes in flight are kept.
        if max > Nanos::ZERO && plan.late_doorbells != self.plan.late_doorbells {
            self.doorbells = LateDoorbells::new(max, seed);
        }
        (self.random, self.occasions) = (Xoshiro256PlusPlus::seed_from_u64(plan.seed), [0; 3]);
        self.plan = plan;
    }

    /// The fault of an occurrence, if any. `queue`: submission queue, or number of the vector.
    fn draw(
        &mut self,
        occasion: Occasion,
        queue: QueueId,
        command: Option<(QueueId, Cid)>,
    ) -> Option<Fault> {
        // The admin queue is excluded by default: drivers would fail in initialization, before any
        // I/O.
        if queue == QueueId::ADMIN && !self.plan.admin_too {
            return None;
        }
        let n = self.occasions[occasion as usize];
        self.occasions[occasion as usize] += 1;
        let meant = |fault: &Fault| fault.occasion() == occasion;
        // Requests at run time take precedence over the plan.
        let asked = self.next.iter().position(|(fault, _)| meant(fault));
        let scripted = || {
            self.plan
                .scripted
                .iter()
                .find(|(at, fault)| *at == n && meant(fault))
                .map(|&(_, fault)| fault)
        };
        let fault = match asked {
            Some(at) => {
                let (fault, left) = &mut self.next[at];
                let fault = *fault;
                *left -= 1;
                if *left == 0 {
                    self.next.remove(at);
                }
                Some(fault)
            }
            None => scripted().or_else(|| {
                let mut hit = |ppm: u32| {
                    (u128::from(self.random.next_u64()) * 1_000_000) >> 64 < u128::from(ppm)
                };
                self.plan
                    .chances
                    .iter()
                    .filter(|(_, fault)| meant(fault))
                    .find(|(ppm, _)| hit(*ppm))
                    .map(|&(_, fault)| fault)
            }),
        }?;
        self.injected.push(Injected { fault, command });
        Some(fault)
    }
}

impl FaultInjector {
    /// Injects faults by `plan`.
    pub fn new(plan: FaultPlan) -> FaultInjector {
        let mut state = InjectorState {
            plan: FaultPlan::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(0),
            occasions: [0; 3],
            next: Vec::new(),
            injected: Vec::new(),
            now: Nanos::ZERO,
            doorbells: LateDoorbells::new(Nanos::ZERO, 0),
            messages: Vec::new(),
        };
        state.set_plan(plan);
        FaultInjector(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, InjectorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delays doorbell writes by up to `max` from now on, independently of the plan
    /// ([`FaultPlan::with_late_doorbells`]).
    pub fn delay_doorbells(&self, max: Nanos, seed: u64) {
        self.state().doorbells = LateDoorbells::new(max, seed);
    }

    /// Replaces the plan; occurrences are counted from 0 again. Doorbell delays are kept.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state().set_plan(plan);
    }

    /// The injected faults so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        self.state().injected.clone()
    }

    /// Injects a fault at the next `times` occurrences, replacing an earlier request for the same
    /// fault.
    pub(crate) fn expect(&self, fault: Fault, times: u32) {
        let next = &mut self.state().next;
        // By kind, not by value: a second request with another delay or status replaces the first.
        next.retain(|(other, _)| std::mem::discriminant(other) != std::mem::discriminant(&fault));
        if times > 0 {
            next.push((fault, times));
        }
    }

    /// Requests of [`FaultInjector::expect`] that have not been injected yet.
    pub(crate) fn expected(&self) -> Vec<(Fault, u32)> {
        self.state().next.clone()
    }

    /// Sends the delayed messages that are due. Those of masked vectors stay delayed.
    pub(crate) fn advance(&self, now: Nanos, port: &impl Port) {
        let mut state = self.state();
        state.now = now;
        for (_, vector) in
            state.messages.extract_if(.., |&mut (at, vector)| at <= now && !port.is_masked(vector))
        {
            port.send_message(vector);
        }
    }

    /// Time of the next delayed message or doorbell write.
    pub(crate) fn next(&self) -> Nanos {
        let state = self.state();
        let messages = state.messages.iter().map(|&(at, _)| at).filter(|&at| at > state.now);
        messages.chain(state.doorbells.next(state.now)).min().unwrap_or(Nanos::MAX)
    }

    /// Whether a fetched command has to be dropped.
    pub(crate) fn swallows(&self, queue: QueueId, sqe: &Sqe) -> bool {
        self.state().draw(Occasion::Command, queue, Some((queue, sqe.cid()))).is_some()
    }

    /// Removes dropped commands from a batch. Returns the number of commands left at its start.
    #[cold]
    pub(crate) fn swallow(&self, queue: QueueId, batch: &mut [Sqe]) -> usize {
        let mut kept = 0;
        // Swapping keeps the order of the commands that stay.
        for n in 0..batch.len() {
            if !self.swallows(queue, &batch[n]) {
                batch.swap(kept, n);
                kept += 1;
            }
        }
        kept
    }

    /// The value of a doorbell as the controller sees it, if the host has written `written`.
    #[cold]
    fn see(&self, doorbell: Doorbell, written: u32) -> u32 {
        let state = &mut *self.state();
        state.doorbells.see(doorbell, written, state.now)
    }

    /// The fault to inject into a command's entry, if any.
    pub(crate) fn with_entry(&self, command: (QueueId, Cid)) -> Option<Fault> {
        self.state().draw(Occasion::Entry, command.0, Some(command))
    }

    /// Undoes the last injection, because the fault was not possible.
    pub(crate) fn take_back(&self) {
        self.state().injected.pop();
    }

    /// Sends a message, or that of a Pending bit, as modified by a fault.
    #[cold]
    pub(crate) fn message(&self, vector: Vector, port: &impl Port, pending: bool) -> SendResult {
        let send = || if pending { port.send_pending(vector) } else { port.send_message(vector) };
        let mut state = self.state();
        let message = match state.draw(Occasion::Message, QueueId(vector.0), None) {
            Some(Fault::LoseMessage) => SendResult::Lost,
            Some(Fault::DelayMessage(by)) => {
                let at = state.now + by;
                // A delayed message is reported as lost: the caller must neither count it as sent
                // nor set a Pending bit.
                state.messages.push((at, vector));
                SendResult::Lost
            }
            Some(Fault::DoubleMessage) => {
                let first = send();
                port.send_message(vector);
                first
            }
            _ => send(),
        };
        // As after a message that was sent: it must not be sent a second time on unmasking.
        if pending && message == SendResult::Lost {
            port.clear_pending(vector);
        }
        message
    }
}

/// The port's doorbells with delayed writes.
pub(crate) struct SeenDoorbells<'a, P> {
    pub(crate) port: &'a P,
    pub(crate) faults: Option<&'a FaultInjector>,
}

impl<P: Port> Doorbells for SeenDoorbells<'_, P> {
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        if let Some(faults) = self.faults {
            faults.state().doorbells.set((queue, false), tail);
        }
        self.port.doorbells().ring_sq(queue, tail);
    }

    fn ring_cq(&self, queue: QueueId, head: u32) {
        if let Some(faults) = self.faults {
            faults.state().doorbells.set((queue, true), head);
        }
        self.port.doorbells().ring_cq(queue, head);
    }

    #[inline]
    fn sq_tail(&self, queue: QueueId) -> u32 {
        let tail = self.port.doorbells().sq_tail(queue);
        self.faults.map_or(tail, |faults| faults.see((queue, false), tail))
    }

    #[inline]
    fn cq_head(&self, queue: QueueId) -> u32 {
        let head = self.port.doorbells().cq_head(queue);
        self.faults.map_or(head, |faults| faults.see((queue, true), head))
    }
}

/// A doorbell: queue, and whether it is the completion queue's.
type Doorbell = (QueueId, bool);

/// Doorbell writes in flight, each with its arrival time. Writes to one doorbell arrive in order,
/// as posted writes to one address do; those to different doorbells in any order.
#[derive(Debug)]
struct LateDoorbells {
    /// Longest delay; zero: none.
    max: Nanos,
    rng: Xoshiro256PlusPlus,
    seen: HashMap<Doorbell, Writes>,
}

/// Writes to one doorbell.
#[derive(Debug)]
struct Writes {
    /// The last value that has arrived, and the last value written.
    arrived: u32,
    written: u32,
    /// Writes in flight, in order.
    coming: VecDeque<(Nanos, u32)>,
}

impl Writes {
    fn none_since(value: u32) -> Writes {
        Writes { arrived: value, written: value, coming: VecDeque::new() }
    }
}

impl LateDoorbells {
    fn new(max: Nanos, seed: u64) -> LateDoorbells {
        LateDoorbells { max, rng: Xoshiro256PlusPlus::seed_from_u64(seed), seen: HashMap::new() }
    }

    /// The value that has arrived at `now`, if the host has written `written`.
    fn see(&mut self, doorbell: Doorbell, written: u32, now: Nanos) -> u32 {
        if self.max == Nanos::ZERO {
            return written;
        }
        // A uniformly distributed delay from 64 random bits.
        let late =
            Nanos((((u128::from(self.max.0) + 1) * u128::from(self.rng.next_u64())) >> 64) as u64);
        // A value written before the first read counts as arrived.
        let writes = self.seen.entry(doorbell).or_insert_with(|| Writes::none_since(written));
        if writes.written != written {
            writes.written = written;
            let before = writes.coming.back().map_or(Nanos::ZERO, |&(at, _)| at);
            writes.coming.push_back((before.max(now + late), written));
        }
        while let Some((_, value)) = writes.coming.pop_front_if(|(at, _)| *at <= now) {
            writes.arrived = value;
        }
        writes.arrived
    }

    /// Sets a doorbell for a new queue: writes in flight belong to an earlier queue and are
    /// dropped.
    fn set(&mut self, doorbell: Doorbell, value: u32) {
        self.seen.insert(doorbell, Writes::none_since(value));
    }

    /// Time of the next arrival after `now`. A write that has arrived at a doorbell that is not
    /// read is not an event.
    fn next(&self, now: Nanos) -> Option<Nanos> {
        self.seen
            .values()
            .flat_map(|writes| &writes.coming)
            .map(|&(at, _)| at)
            .filter(|&at| at > now)
            .min()
    }
}

#[cfg(test)]
mod tests;
