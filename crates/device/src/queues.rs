//! Queue pairs as the controller sees them, and the commands it has taken from them.

use nvme::{Cid, Consumer, CqSlots, Cqe, Doorbells, Producer, QueueId, SqSlots, Sqe, Status, Vector};

use crate::Port;
use crate::io::Request;

/// A submission queue.
#[derive(Debug)]
pub(crate) struct Sq<S> {
    pub(crate) id: QueueId,
    /// The completion queue of its commands.
    pub(crate) cq: QueueId,
    slots: S,
    ring: Consumer,
    /// A doorbell value that has been reported as impossible, so that it is reported once.
    bad_tail: Option<u32>,
}

/// What a look at a tail doorbell saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// So many commands wait.
    Commands(u32),
    /// A tail outside the ring, seen for the first time.
    Invalid(u32),
}

impl<S: SqSlots> Sq<S> {
    pub(crate) fn new(id: QueueId, cq: QueueId, slots: S, entries: u32) -> Sq<S> {
        Sq { id, cq, slots, ring: Consumer::new(entries), bad_tail: None }
    }

    /// Reads the tail doorbell.
    #[inline]
    pub(crate) fn announced(&mut self, bells: &impl Doorbells) -> Announced {
        let tail = bells.sq_tail(self.id);
        match self.ring.available(tail) {
            Some(n) => Announced::Commands(n),
            None if self.bad_tail == Some(tail) => Announced::Commands(0),
            None => {
                self.bad_tail = Some(tail);
                Announced::Invalid(tail)
            }
        }
    }

    /// Takes the next command; one must have been announced.
    #[inline]
    pub(crate) fn fetch(&mut self) -> Sqe {
        let sqe = self.slots.load(self.ring.slot());
        self.ring.advance();
        sqe
    }

    /// SQHD: how far the queue has been consumed.
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.ring.slot() as u16
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq<C> {
    pub(crate) id: QueueId,
    /// `None`: created without interrupts.
    pub(crate) vector: Option<Vector>,
    /// Submission queues that complete into it.
    pub(crate) sqs: u32,
    slots: C,
    ring: Producer,
    entries: u32,
    /// The last head that the host wrote and that was possible.
    head: u32,
    bad_head: Option<u32>,
    /// Entries that can be posted before the head doorbell must be read again.
    room: u32,
    /// Of the room, entries promised to commands that were fetched: every accepted command can complete.
    reserved: u32,
}

/// What a look at a head doorbell saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumed {
    /// So many entries since the last look.
    Entries(u32),
    /// A head that is outside the ring or beyond what was posted, seen for the first time.
    Invalid(u32),
}

impl<C: CqSlots> Cq<C> {
    pub(crate) fn new(id: QueueId, vector: Option<Vector>, slots: C, entries: u32) -> Cq<C> {
        let room = entries - 1;
        Cq { id, vector, sqs: 0, slots, ring: Producer::new(entries), entries, head: 0, bad_head: None, room, reserved: 0 }
    }

    /// Reads the head doorbell.
    #[inline]
    pub(crate) fn consumed(&mut self, bells: &impl Doorbells) -> Consumed {
        let head = bells.cq_head(self.id);
        if head == self.head {
            return Consumed::Entries(0);
        }
        let moved = match head.checked_sub(self.head) {
            Some(moved) => moved,
            None => head + self.entries - self.head,
        };
        if head >= self.entries || moved > self.entries - 1 - self.room {
            let seen = self.bad_head.replace(head) == Some(head);
            return if seen { Consumed::Entries(0) } else { Consumed::Invalid(head) };
        }
        self.head = head;
        self.room += moved;
        Consumed::Entries(moved)
    }

    /// How many more commands may be fetched, as far as is known without reading the doorbell.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.room - self.reserved
    }

    /// Promises an entry to a command; [`Cq::free`] must not be 0.
    #[inline]
    pub(crate) fn reserve(&mut self) {
        debug_assert!(self.free() > 0);
        self.reserved += 1;
    }

    /// Turns a promise back into room, right before the command's [`Cq::post`].
    #[inline]
    pub(crate) fn redeem(&mut self) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
    }

    /// Posts an entry; [`Cq::free`] must not be 0.
    #[inline]
    pub(crate) fn post(&mut self, cqe: Cqe, status: Status) {
        debug_assert!(self.free() > 0);
        self.slots.store(self.ring.slot(), &cqe.with_status(status, self.ring.phase()));
        self.ring.advance();
        self.room -= 1;
    }
}

/// A command that was fetched and takes its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// When it was fetched, among all commands; also tells a slot's commands apart.
    pub(crate) order: u64,
    pub(crate) sq: QueueId,
    pub(crate) cid: Cid,
    pub(crate) request: Request,
}

/// The commands in service. Slots are allocated when a completion queue is created: as every command has an entry of
/// one reserved, there are always enough.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    slots: Vec<Option<Command>>,
    free: Vec<u32>,
    orders: u64,
}

impl Commands {
    /// Makes room for `n` more commands.
    pub(crate) fn grow(&mut self, n: u32) {
        let first = self.slots.len() as u32;
        self.slots.resize((first + n) as usize, None);
        self.free.reserve(self.slots.len());
        self.free.extend((first..first + n).rev());
    }

    /// Takes in a command; says where, and gives it its `order`. Should slots run out, which the entry that every
    /// command has reserved rules out, there will be one more.
    #[inline]
    pub(crate) fn insert(&mut self, mut command: Command) -> (u32, u64) {
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

    /// Takes a command out, if it is still there.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32, order: u64) -> Option<Command> {
        let entry = self.slots.get_mut(slot as usize)?;
        if entry.as_ref()?.order != order {
            return None;
        }
        self.free.push(slot);
        entry.take()
    }

    /// Takes out the oldest command for which `wanted` holds. Linear: for Abort and queue deletion.
    pub(crate) fn remove_first(&mut self, wanted: impl Fn(&Command) -> bool) -> Option<Command> {
        let in_service = self.slots.iter().enumerate().filter_map(|(slot, c)| Some((slot, c.as_ref()?)));
        let (slot, order) = in_service.filter(|(_, c)| wanted(c)).map(|(slot, c)| (slot, c.order)).min_by_key(|&(_, order)| order)?;
        self.remove(slot as u32, order)
    }
}

/// A submission queue and its completion queue.
type Pair<'a, P> = (&'a mut Sq<<P as Port>::Sq>, &'a mut Cq<<P as Port>::Cq>);

/// All queues of a controller, by identifier. 0 is the admin queue pair.
pub(crate) struct Queues<P: Port> {
    sqs: Vec<Option<Sq<P::Sq>>>,
    cqs: Vec<Option<Cq<P::Cq>>>,
    /// Submission queues that exist, in the order of arbitration.
    active: Vec<QueueId>,
    /// Where in `active` the next round begins.
    turn: usize,
}

impl<P: Port> Queues<P> {
    /// No queues; room for `pairs` I/O queue pairs.
    pub(crate) fn new(pairs: u16) -> Queues<P> {
        let n = usize::from(pairs) + 1;
        Queues {
            sqs: std::iter::repeat_with(|| None).take(n).collect(),
            cqs: std::iter::repeat_with(|| None).take(n).collect(),
            active: Vec::with_capacity(n),
            turn: 0,
        }
    }

    /// Forgets everything: a controller reset. No entry is posted, no memory of the host touched afterwards.
    pub(crate) fn clear(&mut self) {
        self.sqs.fill_with(|| None);
        self.cqs.fill_with(|| None);
        self.active.clear();
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

    /// A submission queue and the completion queue that it is tied to.
    #[inline]
    pub(crate) fn pair(&mut self, sq: QueueId) -> Option<Pair<'_, P>> {
        let sq = self.sqs.get_mut(usize::from(sq.0))?.as_mut()?;
        let cq = self.cqs.get_mut(usize::from(sq.cq.0))?.as_mut()?;
        Some((sq, cq))
    }

    /// Every completion queue.
    pub(crate) fn cqs(&mut self) -> impl Iterator<Item = &mut Cq<P::Cq>> {
        self.cqs.iter_mut().flatten()
    }

    /// Completion queue number `n` modulo the number of identifiers, if it exists.
    #[inline]
    pub(crate) fn nth_cq(&mut self, n: usize) -> Option<&mut Cq<P::Cq>> {
        let len = self.cqs.len();
        self.cqs.get_mut(n % len)?.as_mut()
    }

    /// Whether an I/O queue may have this identifier, and whether it exists already.
    pub(crate) fn is_free_id(&self, id: QueueId, submission: bool) -> bool {
        let n = usize::from(id.0);
        let taken = if submission { self.sqs.get(n).map(Option::is_some) } else { self.cqs.get(n).map(Option::is_some) };
        n != 0 && taken == Some(false)
    }

    /// Adds a completion queue; its identifier must be free.
    pub(crate) fn add_cq(&mut self, cq: Cq<P::Cq>) {
        if let Some(entry) = self.cqs.get_mut(usize::from(cq.id.0)) {
            *entry = Some(cq);
        }
    }

    /// Adds a submission queue; its identifier must be free and its completion queue exist.
    pub(crate) fn add_sq(&mut self, sq: Sq<P::Sq>) {
        if let Some(cq) = self.cq(sq.cq) {
            cq.sqs += 1;
        }
        self.active.push(sq.id);
        let n = usize::from(sq.id.0);
        if let Some(entry) = self.sqs.get_mut(n) {
            *entry = Some(sq);
        }
    }

    /// Takes a submission queue away.
    pub(crate) fn remove_sq(&mut self, id: QueueId) {
        let Some(sq) = self.sqs.get_mut(usize::from(id.0)).and_then(Option::take) else { return };
        if let Some(cq) = self.cq(sq.cq) {
            cq.sqs -= 1;
        }
        self.active.retain(|&q| q != id);
        self.turn = 0;
    }

    /// Takes a completion queue away; it must have no submission queues.
    pub(crate) fn remove_cq(&mut self, id: QueueId) {
        if let Some(entry) = self.cqs.get_mut(usize::from(id.0)) {
            *entry = None;
        }
    }

    /// How many submission queues take part in arbitration.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.len()
    }

    /// The submission queue whose turn it is; passes the turn on.
    #[inline]
    pub(crate) fn next_turn(&mut self) -> Option<QueueId> {
        let queue = *self.active.get(self.turn)?;
        self.turn = if self.turn + 1 == self.active.len() { 0 } else { self.turn + 1 };
        Some(queue)
    }
}
