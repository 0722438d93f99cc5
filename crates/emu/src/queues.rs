//! Submission and completion queues as the controller uses them, round-robin arbitration, and the
//! table of commands in service.

use nvme::{Cid, CqSlots, Cqe, Doorbells, QueueId, RingIndex, SqSlots, Sqe, Status, Vector};

use crate::io::IoCommand;
use crate::{Fault, FaultInjector, Port};

/// A submission queue.
#[derive(Debug)]
pub(crate) struct Sq<S> {
    pub(crate) id: QueueId,
    /// Completion queue of its commands.
    pub(crate) cq: QueueId,
    slots: S,
    ring: RingIndex,
    /// Commands that were announced and not fetched at the last read of the tail doorbell.
    waiting: u32,
    /// An invalid tail value that was reported already, so that it is reported once.
    bad_tail: Option<u32>,
}

/// Result of reading a tail doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// Number of commands to fetch.
    Commands(u32),
    /// The tail is outside the ring, or takes back announced commands. Reported at the first read
    /// of this value only.
    Invalid(u32),
}

impl<S: SqSlots> Sq<S> {
    pub(crate) fn new(id: QueueId, cq: QueueId, slots: S, entries: u32) -> Sq<S> {
        Sq { id, cq, slots, ring: RingIndex::new(entries), waiting: 0, bad_tail: None }
    }

    /// Reads the tail doorbell.
    #[inline]
    pub(crate) fn announced(&mut self, doorbells: &impl Doorbells) -> Announced {
        let tail = doorbells.sq_tail(self.id);
        match self.ring.available(tail) {
            // Fewer commands than at the last read means that the tail went backwards.
            Some(n) if n >= self.waiting => {
                self.waiting = n;
                Announced::Commands(n)
            }
            // The value is that of the last report: it is reported once.
            _ if self.bad_tail == Some(tail) => Announced::Commands(0),
            _ => {
                self.bad_tail = Some(tail);
                Announced::Invalid(tail)
            }
        }
    }

    /// Fetches the next command, which must have been announced.
    #[inline]
    pub(crate) fn fetch(&mut self) -> Sqe {
        let sqe = self.slots.load(self.ring.slot());
        self.ring.advance();
        self.waiting = self.waiting.saturating_sub(1);
        sqe
    }

    /// The tail value up to which all commands have been fetched; `None` if some have not.
    #[inline]
    pub(crate) fn drained_at(&self) -> Option<u32> {
        (self.waiting == 0).then_some(self.ring.slot())
    }

    /// SQHD: the submission queue head.
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.ring.slot() as u16
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq<C> {
    pub(crate) id: QueueId,
    /// Interrupt vector; `None`: interrupts are disabled (CDW11.IEN).
    pub(crate) vector: Option<Vector>,
    /// Number of submission queues that use it.
    pub(crate) sqs: u32,
    slots: C,
    ring: RingIndex,
    entries: u32,
    /// The last valid head that the host wrote.
    head: u32,
    bad_head: Option<u32>,
    /// Entries that can be posted until the head doorbell has to be read again.
    room: u32,
    /// Entries that the host has consumed since [`Cq::take_consumed`].
    unreported: u32,
    /// CID of the last entry posted by [`Cq::post_with`].
    last_cid: Option<u16>,
    /// Entries of `room` that are reserved for commands in service, so that each of them can
    /// complete.
    reserved: u32,
}

/// Result of reading a head doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumed {
    /// The head is valid; it may have moved.
    Valid,
    /// The head is outside the ring or beyond the posted entries. Reported at the first read of
    /// this value only.
    Invalid(u32),
}

impl<C: CqSlots> Cq<C> {
    pub(crate) fn new(id: QueueId, vector: Option<Vector>, slots: C, entries: u32) -> Cq<C> {
        // One slot of a ring stays empty, so that full and empty differ (Base 3.3.1.2).
        let room = entries - 1;
        Cq {
            id,
            vector,
            sqs: 0,
            slots,
            ring: RingIndex::new(entries),
            entries,
            head: 0,
            bad_head: None,
            room,
            unreported: 0,
            last_cid: None,
            reserved: 0,
        }
    }

    /// Reads the head doorbell.
    #[inline]
    pub(crate) fn consumed(&mut self, doorbells: &impl Doorbells) -> Consumed {
        let head = doorbells.cq_head(self.id);
        if head == self.head {
            return Consumed::Valid;
        }
        if self.take_head(head) {
            return Consumed::Valid;
        }
        let seen = self.bad_head.replace(head) == Some(head);
        if seen { Consumed::Valid } else { Consumed::Invalid(head) }
    }

    /// Applies a head written by the host. Returns false if it is invalid.
    #[inline]
    fn take_head(&mut self, head: u32) -> bool {
        // The head may have wrapped since it was last read.
        let moved = match head.checked_sub(self.head) {
            Some(moved) => moved,
            None => head + self.entries - self.head,
        };
        // The head must not pass the entries that have been posted.
        if head >= self.entries || moved > self.entries - 1 - self.room {
            return false;
        }
        self.head = head;
        self.room += moved;
        // Interrupt coalescing takes into account which entries the host has polled.
        self.unreported += moved;
        true
    }

    /// Whether the host has consumed every entry, according to the last read of the doorbell.
    #[inline]
    fn is_acknowledged(&self) -> bool {
        self.room == self.entries - 1
    }

    /// Entries that the host has consumed since the last call, according to the last read of the
    /// doorbell.
    #[inline]
    pub(crate) fn take_consumed(&mut self) -> u32 {
        std::mem::take(&mut self.unreported)
    }

    /// Commands that can be accepted without reading the head doorbell.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.room - self.reserved
    }

    /// Reserves an entry for a command; [`Cq::free`] must not be 0.
    #[inline]
    pub(crate) fn reserve(&mut self) {
        debug_assert!(self.free() > 0);
        self.reserved += 1;
    }

    /// Releases a reservation, right before [`Cq::post`] of the command's entry.
    #[inline]
    pub(crate) fn redeem(&mut self) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
    }

    /// Posts an entry; [`Cq::free`] must not be 0.
    #[inline]
    pub(crate) fn post(&mut self, cqe: Cqe, status: Status) {
        self.store(cqe.with_status(status, self.ring.phase()));
    }

    /// Posts an entry, modified by a fault if one applies. Returns true if the controller has to
    /// fail.
    #[cold]
    pub(crate) fn post_with(
        &mut self,
        faults: &FaultInjector,
        mut cqe: Cqe,
        mut status: Status,
        doorbells: &impl Doorbells,
    ) -> bool {
        let mut fault = faults.with_entry((QueueId(cqe.sq_id), cqe.cid()));
        // The fault posts two entries; skip it if there is room for one only.
        if fault == Some(Fault::DoubleEntry)
            && (matches!(self.consumed(doorbells), Consumed::Invalid(_)) || self.free() < 2)
        {
            faults.take_back();
            fault = None;
        }
        match fault {
            Some(Fault::SwallowEntry) => return false,
            Some(Fault::Fatal) => return true,
            Some(Fault::WrongPhase) => {
                self.store(cqe.with_status(status, !self.ring.phase()));
                return false;
            }
            // Before the first entry there is no previous CID; any other value has the same effect.
            Some(Fault::StaleCid) => cqe.cid = self.last_cid.unwrap_or(cqe.cid ^ 0x8000),
            Some(Fault::UnknownCid) => cqe.cid ^= 0x5a5a,
            Some(Fault::Status(instead)) => status = instead,
            Some(Fault::DoubleEntry) => self.post(cqe, status),
            _ => {}
        }
        self.post(cqe, status);
        self.last_cid = Some(cqe.cid);
        false
    }

    #[inline]
    fn store(&mut self, cqe: Cqe) {
        debug_assert!(self.free() > 0);
        self.slots.store(self.ring.slot(), &cqe);
        self.ring.advance();
        self.room -= 1;
    }
}

/// A command in service: fetched and not completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchedCommand {
    /// Sequence number over all commands; distinguishes the successive commands of a slot.
    pub(crate) order: u64,
    pub(crate) sq: QueueId,
    pub(crate) cid: Cid,
    /// The command's Abort has completed, and the command itself completes later.
    pub(crate) aborted: bool,
    pub(crate) request: IoCommand,
}

/// Table of commands in service. Slots are allocated with completion queues: each command has a
/// reserved entry, so there is always a free slot.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    slots: Vec<Option<FetchedCommand>>,
    free: Vec<u32>,
    orders: u64,
}

impl Commands {
    /// Ensures capacity for `n` commands. Slots of deleted queues are reused, so the table never
    /// exceeds the largest number of commands that was possible at one time.
    pub(crate) fn make_room(&mut self, n: usize) {
        let first = self.slots.len();
        if n > first {
            self.slots.resize(n, None);
            self.free.reserve(n - self.free.len());
            // Reversed, so that `pop` returns low slots first.
            self.free.extend((first as u32..n as u32).rev());
        }
    }

    /// Adds a command, assigns its `order`, and returns its slot. The table grows if no slot is
    /// free, which reserved entries should prevent.
    #[inline]
    pub(crate) fn insert(&mut self, mut command: FetchedCommand) -> (u32, u64) {
        // A slot is reused as soon as its command completes. An entry of the schedule that refers
        // to the earlier command is recognized by its order.
        self.orders += 1;
        command.order = self.orders;
        match self.free.pop().and_then(|slot| Some((slot, self.slots.get_mut(slot as usize)?))) {
            Some((slot, entry)) => {
                *entry = Some(command);
                (slot, self.orders)
            }
            None => {
                self.slots.push(Some(command));
                (self.slots.len() as u32 - 1, self.orders)
            }
        }
    }

    /// Removes a command, unless it was removed before.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32, order: u64) -> Option<FetchedCommand> {
        let entry = self.slots.get_mut(slot as usize)?;
        // The slot has been reused, as its command ended early: by an Abort, or with its queue.
        if entry.as_ref()?.order != order {
            return None;
        }
        self.free.push(slot);
        entry.take()
    }

    /// Marks the command that [`Commands::find`] would remove and returns its slot. `None`: not
    /// found, or marked already.
    pub(crate) fn mark_aborted(&mut self, sq: QueueId, cid: Cid) -> Option<(u32, u64)> {
        let (slot, order) = self.oldest(sq, cid)?;
        let command =
            self.slots.get_mut(slot as usize)?.as_mut().filter(|command| !command.aborted)?;
        command.aborted = true;
        Some((slot, order))
    }

    /// Removes the command with this queue and CID; the oldest if the host has reused the CID.
    /// Linear, as only Abort uses it.
    pub(crate) fn find(&mut self, sq: QueueId, cid: Cid) -> Option<FetchedCommand> {
        let (slot, order) = self.oldest(sq, cid)?;
        self.remove(slot, order)
    }

    fn oldest(&self, sq: QueueId, cid: Cid) -> Option<(u32, u64)> {
        let named = self.of_queue(sq).filter(|(_, c)| c.cid == cid);
        named.map(|(slot, c)| (slot, c.order)).min_by_key(|&(_, order)| order)
    }

    /// Removes all commands of a queue, oldest first. Linear, as only Delete I/O Submission Queue
    /// uses it.
    pub(crate) fn remove_all(&mut self, sq: QueueId) -> Vec<FetchedCommand> {
        let mut found: Vec<_> = self.of_queue(sq).map(|(slot, c)| (c.order, slot)).collect();
        // Slots are reused in any order; entries are posted by age.
        found.sort_unstable();
        found.into_iter().filter_map(|(order, slot)| self.remove(slot, order)).collect()
    }

    /// All commands in service, with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &FetchedCommand)> {
        self.slots.iter().enumerate().filter_map(|(slot, c)| Some((slot as u32, c.as_ref()?)))
    }

    fn of_queue(&self, sq: QueueId) -> impl Iterator<Item = (u32, &FetchedCommand)> {
        self.iter().filter(move |(_, c)| c.sq == sq)
    }
}

/// Arbitration state of a submission queue.
#[derive(Clone, Copy, Debug)]
struct Active {
    queue: QueueId,
    /// If all announced commands were fetched, the tail at that time: the queue is skipped while
    /// its doorbell still has this value.
    drained_at: Option<u32>,
}

/// A submission queue and its completion queue.
type Pair<'a, P> = (&'a mut Sq<<P as Port>::Sq>, &'a mut Cq<<P as Port>::Cq>);

/// All queues of a controller, by identifier. Queue 0 is the admin queue pair.
pub(crate) struct Queues<P: Port> {
    sqs: Vec<Option<Sq<P::Sq>>>,
    cqs: Vec<Option<Cq<P::Cq>>>,
    /// Existing submission queues, in the order of arbitration.
    active: Vec<Active>,
    /// Existing completion queues.
    active_cqs: Vec<QueueId>,
    /// Index in `active` of the next queue to serve.
    turn: usize,
}

impl<P: Port> Queues<P> {
    /// No queues, with capacity for `pairs` I/O queue pairs.
    pub(crate) fn new(pairs: u16) -> Queues<P> {
        let n = usize::from(pairs) + 1;
        Queues {
            sqs: std::iter::repeat_with(|| None).take(n).collect(),
            cqs: std::iter::repeat_with(|| None).take(n).collect(),
            active: Vec::with_capacity(n),
            active_cqs: Vec::with_capacity(n),
            turn: 0,
        }
    }

    /// Drops all queues on a controller reset. No entry is posted and no host memory accessed
    /// afterwards.
    pub(crate) fn clear(&mut self) {
        self.sqs.fill_with(|| None);
        self.cqs.fill_with(|| None);
        self.active.clear();
        self.active_cqs.clear();
        self.turn = 0;
    }

    /// Whether I/O queues exist.
    pub(crate) fn has_io_queues(&self) -> bool {
        self.cqs.iter().skip(1).any(Option::is_some)
    }

    #[inline]
    pub(crate) fn sq(&mut self, id: QueueId) -> Option<&mut Sq<P::Sq>> {
        self.sqs.get_mut(usize::from(id.0))?.as_mut()
    }

    #[inline]
    pub(crate) fn cq(&mut self, id: QueueId) -> Option<&mut Cq<P::Cq>> {
        self.cqs.get_mut(usize::from(id.0))?.as_mut()
    }

    /// A submission queue and its completion queue.
    #[inline]
    pub(crate) fn pair(&mut self, sq: QueueId) -> Option<Pair<'_, P>> {
        let sq = self.sqs.get_mut(usize::from(sq.0))?.as_mut()?;
        let cq = self.cqs.get_mut(usize::from(sq.cq.0))?.as_mut()?;
        Some((sq, cq))
    }

    /// Number of completion queues.
    #[inline]
    pub(crate) fn cqs(&self) -> usize {
        self.active_cqs.len()
    }

    /// Maximum I/O commands in service, which is the number of completion queue entries that can be
    /// reserved.
    pub(crate) fn capacity(&self) -> usize {
        self.cqs.iter().skip(1).flatten().map(|cq| cq.entries as usize - 1).sum()
    }

    /// The `n`th existing completion queue, in unspecified order.
    #[inline]
    pub(crate) fn nth_cq(&mut self, n: usize) -> Option<&mut Cq<P::Cq>> {
        let id = *self.active_cqs.get(n)?;
        self.cq(id)
    }

    /// Whether the host has consumed every entry of the completion queues with this vector. An
    /// invalid head counts as unchanged; it is reported when the queue is polled.
    pub(crate) fn are_acknowledged(&mut self, vector: Vector, doorbells: &impl Doorbells) -> bool {
        let mut cqs = self.cqs.iter_mut().flatten().filter(|cq| cq.vector == Some(vector));
        cqs.all(|cq| {
            cq.take_head(doorbells.cq_head(cq.id));
            cq.is_acknowledged()
        })
    }

    /// Whether an I/O queue identifier is valid and unused.
    pub(crate) fn is_free_id(&self, id: QueueId, submission: bool) -> bool {
        let n = usize::from(id.0);
        let taken = if submission {
            self.sqs.get(n).map(Option::is_some)
        } else {
            self.cqs.get(n).map(Option::is_some)
        };
        n != 0 && taken == Some(false)
    }

    /// Adds a completion queue, whose identifier must be unused.
    pub(crate) fn add_cq(&mut self, cq: Cq<P::Cq>) {
        self.active_cqs.push(cq.id);
        if let Some(entry) = self.cqs.get_mut(usize::from(cq.id.0)) {
            *entry = Some(cq);
        }
    }

    /// Adds a submission queue, whose identifier must be unused and whose completion queue must
    /// exist.
    pub(crate) fn add_sq(&mut self, sq: Sq<P::Sq>) {
        if let Some(cq) = self.cq(sq.cq) {
            cq.sqs += 1;
        }
        self.active.push(Active { queue: sq.id, drained_at: None });
        let n = usize::from(sq.id.0);
        if let Some(entry) = self.sqs.get_mut(n) {
            *entry = Some(sq);
        }
    }

    /// Removes a submission queue.
    pub(crate) fn remove_sq(&mut self, id: QueueId) {
        let Some(sq) = self.sqs.get_mut(usize::from(id.0)).and_then(Option::take) else { return };
        if let Some(cq) = self.cq(sq.cq) {
            cq.sqs -= 1;
        }
        self.active.retain(|a| a.queue != id);
        self.turn = 0;
    }

    /// Removes a completion queue, which must have no submission queues.
    pub(crate) fn remove_cq(&mut self, id: QueueId) {
        self.active_cqs.retain(|&q| q != id);
        if let Some(entry) = self.cqs.get_mut(usize::from(id.0)) {
            *entry = None;
        }
    }

    /// Doorbells that can give the controller work, as queue and whether it is a completion queue:
    /// every tail, and the heads of full completion queues.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (QueueId, bool)> {
        let tails = self.active.iter().map(|active| (active.queue, false));
        let full = self.cqs.iter().flatten().filter(|cq| cq.free() == 0);
        tails.chain(full.map(|cq| (cq.id, true)))
    }

    /// Number of submission queues in arbitration.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.len()
    }

    /// Advances to the next queue and returns it, unless its tail doorbell has not moved since it
    /// was drained. Costs one load per idle queue.
    #[inline]
    pub(crate) fn next_turn(&mut self, doorbells: &impl Doorbells) -> Option<QueueId> {
        let count = self.active.len();
        let active = self.active.get_mut(self.turn)?;
        self.turn = if self.turn + 1 == count { 0 } else { self.turn + 1 };
        (active.drained_at != Some(doorbells.sq_tail(active.queue))).then_some(active.queue)
    }

    /// Records whether the queue that was served last is drained.
    #[inline]
    pub(crate) fn end_turn(&mut self, queue: QueueId) {
        let last = if self.turn == 0 { self.active.len() } else { self.turn };
        let drained_at = self.sq(queue).and_then(|sq| sq.drained_at());
        if let Some(active) = self.active.get_mut(last.wrapping_sub(1)).filter(|a| a.queue == queue)
        {
            active.drained_at = drained_at;
        }
    }
}

#[cfg(test)]
mod tests;
