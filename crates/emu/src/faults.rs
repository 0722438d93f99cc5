//! Faults: what goes wrong with the controller's commands, completion entries and messages, by a
//! plan or because an operator says so.
//!
//! A controller without a [`FaultInjector`] pays a pointer comparison for each entry, and one for
//! each look at a doorbell.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::{Cid, Doorbells, QueueId, Sqe, Status, Vector};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

use crate::{Message, Port};

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message does not go out.
    LoseMessage,
    /// A message goes out this much later.
    DelayMessage(Nanos),
    /// A message goes out twice.
    DoubleMessage,
    /// An entry carries the CID of the command that completed before it on its queue; its own
    /// command never completes.
    StaleCid,
    /// An entry carries a CID that was not used lately; its own command never completes.
    UnknownCid,
    /// An entry is posted twice, unless there is no room.
    DoubleEntry,
    /// An entry is stored with the wrong phase tag: the host never sees it, nor any after it on its
    /// queue.
    WrongPhase,
    /// A command ends with this status; what it did remains done.
    Status(Status),
    /// An entry is not posted: the command is carried out and never completes.
    SwallowEntry,
    /// A command is not carried out and never completes.
    SwallowCommand,
    /// CSTS.CFS: at this entry the controller fails, and is silent until the host resets it.
    Fatal,
}

/// What a fault happens to.
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

/// A fault that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Which.
    pub fault: Fault,
    /// The submission queue and the command that it hit; a message has none.
    pub command: Option<(QueueId, Cid)>,
}

/// A plan of faults: scripted ones at a certain occasion, and others by chance. Occasions are
/// messages, entries posted or commands fetched, whichever the fault concerns, counted from 0 each.
/// The admin queue and vector 0 are spared unless [`FaultPlan::admin_too`] says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    scripted: Vec<(u64, Fault)>,
    chances: Vec<(u32, Fault)>,
    late_doorbells: (Nanos, u64),
    seed: u64,
    admin_too: bool,
}

impl FaultPlan {
    /// No faults.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Adds a fault at occasion number `n`. At most one happens per occasion: the first that was
    /// added.
    pub fn at(mut self, n: u64, fault: Fault) -> FaultPlan {
        self.scripted.push((n, fault));
        self
    }

    /// Adds a fault that meets `ppm` of a million occasions.
    pub fn with_chance(mut self, ppm: u32, fault: Fault) -> FaultPlan {
        self.chances.push((ppm, fault));
        self
    }

    /// Each doorbell write, the admin queue's too, reaches the controller up to `most` after the
    /// host has made it, by this seed. Writes to one doorbell arrive in order, those to different
    /// ones in any order.
    pub fn with_late_doorbells(mut self, most: Nanos, seed: u64) -> FaultPlan {
        self.late_doorbells = (most, seed);
        self
    }

    /// The seed of the chances.
    pub fn with_seed(mut self, seed: u64) -> FaultPlan {
        self.seed = seed;
        self
    }

    /// Faults hit the admin queue pair and vector 0 as well.
    pub fn admin_too(mut self) -> FaultPlan {
        self.admin_too = true;
        self
    }
}

/// The faults of one controller ([`crate::Config::faults`]). Clones are handles on the same one,
/// for any thread.
#[derive(Clone, Debug)]
pub struct FaultInjector(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    random: Xoshiro256PlusPlus,
    /// Occasions so far, by kind.
    occasions: [u64; 3],
    /// Faults that meet the next occasions of their kind, and how many.
    next: Vec<(Fault, u32)>,
    injected: Vec<Injected>,
    now: Nanos,
    doorbells: LateDoorbells,
    /// Messages that are delayed, in the order of sending.
    messages: Vec<(Nanos, Vector)>,
}

impl State {
    fn set_plan(&mut self, plan: FaultPlan) {
        let (most, seed) = plan.late_doorbells;
        // Writes that are on their way go on.
        if most > Nanos::ZERO && plan.late_doorbells != self.plan.late_doorbells {
            self.doorbells = LateDoorbells::new(most, seed);
        }
        (self.random, self.occasions) = (Xoshiro256PlusPlus::seed_from_u64(plan.seed), [0; 3]);
        self.plan = plan;
    }

    /// The fault, if any, that meets an occasion. `queue`: the submission queue, or a vector's
    /// number.
    fn throw(
        &mut self,
        occasion: Occasion,
        queue: QueueId,
        command: Option<(QueueId, Cid)>,
    ) -> Option<Fault> {
        if queue == QueueId::ADMIN && !self.plan.admin_too {
            return None;
        }
        let n = self.occasions[occasion as usize];
        self.occasions[occasion as usize] += 1;
        let meant = |fault: &Fault| fault.occasion() == occasion;
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
    /// Faults by `plan`.
    pub fn new(plan: FaultPlan) -> FaultInjector {
        let mut state = State {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Doorbell writes are up to so late from now on, whatever the plan
    /// ([`FaultPlan::with_late_doorbells`]).
    pub fn delay_doorbells(&self, most: Nanos, seed: u64) {
        self.state().doorbells = LateDoorbells::new(most, seed);
    }

    /// From now on a different plan; occasions count from here. Doorbells that are late stay so.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state().set_plan(plan);
    }

    /// The faults so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        self.state().injected.clone()
    }

    /// The next `times` occasions of its kind meet this fault, in place of what was asked for of
    /// the same fault before.
    pub(crate) fn expect(&self, fault: Fault, times: u32) {
        let next = &mut self.state().next;
        next.retain(|(other, _)| std::mem::discriminant(other) != std::mem::discriminant(&fault));
        if times > 0 {
            next.push((fault, times));
        }
    }

    /// What [`FaultInjector::expect`] was told and has not happened yet.
    pub(crate) fn expected(&self) -> Vec<(Fault, u32)> {
        self.state().next.clone()
    }

    /// Sends the late messages that are due by now. One whose vector is masked waits on.
    pub(crate) fn advance(&self, now: Nanos, port: &impl Port) {
        let mut state = self.state();
        state.now = now;
        for (_, vector) in
            state.messages.extract_if(.., |&mut (at, vector)| at <= now && !port.is_masked(vector))
        {
            port.message(vector);
        }
    }

    /// When the next late message, or doorbell write, is due that is not due yet.
    pub(crate) fn next(&self) -> Nanos {
        let state = self.state();
        let messages = state.messages.iter().map(|&(at, _)| at).filter(|&at| at > state.now);
        messages.chain(state.doorbells.next(state.now)).min().unwrap_or(Nanos::MAX)
    }

    /// Whether a command that was just fetched is dropped.
    pub(crate) fn swallows(&self, queue: QueueId, sqe: &Sqe) -> bool {
        self.state().throw(Occasion::Command, queue, Some((queue, sqe.cid()))).is_some()
    }

    /// Drops commands of a batch. How many are left, at its beginning.
    #[cold]
    pub(crate) fn swallow(&self, queue: QueueId, batch: &mut [Sqe]) -> usize {
        let mut kept = 0;
        for n in 0..batch.len() {
            if !self.swallows(queue, &batch[n]) {
                batch.swap(kept, n);
                kept += 1;
            }
        }
        kept
    }

    /// What the controller sees of a doorbell that the host has set to `written`.
    #[cold]
    fn see(&self, doorbell: Doorbell, written: u32) -> u32 {
        let state = &mut *self.state();
        state.doorbells.see(doorbell, written, state.now)
    }

    /// What goes wrong with a command's entry.
    pub(crate) fn with_entry(&self, command: (QueueId, Cid)) -> Option<Fault> {
        self.state().throw(Occasion::Entry, command.0, Some(command))
    }

    /// The last fault could not happen after all.
    pub(crate) fn take_back(&self) {
        self.state().injected.pop();
    }

    /// Sends the message of a vector, or that of its Pending bit, or what a fault makes of it.
    #[cold]
    pub(crate) fn message(&self, vector: Vector, port: &impl Port, pending: bool) -> Message {
        let send = || if pending { port.send_pending(vector) } else { port.message(vector) };
        let mut state = self.state();
        let message = match state.throw(Occasion::Message, QueueId(vector.0), None) {
            Some(Fault::LoseMessage) => Message::Lost,
            Some(Fault::DelayMessage(by)) => {
                let at = state.now + by;
                state.messages.push((at, vector));
                Message::Lost
            }
            Some(Fault::DoubleMessage) => {
                let first = send();
                port.message(vector);
                first
            }
            _ => send(),
        };
        if pending && message == Message::Lost {
            port.clear_pending(vector);
        }
        message
    }
}

/// The doorbells as the controller sees them: those of its port, each write some time after the
/// host has made it where they are late.
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

/// Which doorbell: a queue's, and whether it is the completion queue's.
type Doorbell = (QueueId, bool);

/// Every doorbell's writes, each with an instant of its own at which it arrives. Writes to one
/// doorbell arrive in order, because they are posted writes to one address. Those to different
/// doorbells arrive in any order.
#[derive(Debug)]
struct LateDoorbells {
    /// How late a write may be at most. Zero: none is late.
    most: Nanos,
    dice: Xoshiro256PlusPlus,
    seen: HashMap<Doorbell, Writes>,
}

/// One doorbell's writes.
#[derive(Debug)]
struct Writes {
    /// What has arrived last, and what was written last.
    arrived: u32,
    written: u32,
    /// Writes on their way, in order.
    coming: VecDeque<(Nanos, u32)>,
}

impl Writes {
    fn none_since(value: u32) -> Writes {
        Writes { arrived: value, written: value, coming: VecDeque::new() }
    }
}

impl LateDoorbells {
    fn new(most: Nanos, seed: u64) -> LateDoorbells {
        LateDoorbells { most, dice: Xoshiro256PlusPlus::seed_from_u64(seed), seen: HashMap::new() }
    }

    /// What the controller sees at `now` of a doorbell that the host has set to `written`.
    fn see(&mut self, doorbell: Doorbell, written: u32, now: Nanos) -> u32 {
        if self.most == Nanos::ZERO {
            return written;
        }
        // From none to the most: of 64 random bits the share of that range.
        let late = Nanos(
            (((u128::from(self.most.0) + 1) * u128::from(self.dice.next_u64())) >> 64) as u64,
        );
        // What was written before the first look has arrived.
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

    /// The controller sets a doorbell itself, for a queue that begins: what is on its way belongs
    /// to an earlier one.
    fn set(&mut self, doorbell: Doorbell, value: u32) {
        self.seen.insert(doorbell, Writes::none_since(value));
    }

    /// When the next write arrives that has not arrived by `now`. One that has, at a doorbell that
    /// is not looked at, is no event.
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
