//! A pair over rings in shared memory: a queue queue_pair, with its doorbells and its vector.

use std::sync::Arc;

use driver::{Completed, Counters, Reaped, SqGuard};
use hw::{Birth, CqRing, EventFd, SqRing};
use nvme::io::{Flags, Range};
use nvme::{Lba, QueueId, Sqe, Vector};
use sync::Posted;
use units::{Nanos, Op};

use super::prp_table::PrpTable;
use super::{Pair, RingController};
use crate::counters::DeviceCounters;
use crate::request::Token;
use crate::transport::{IoCommand, Mask, Part, Post};

/// A queue pair of the controller's, with its vector.
pub(crate) struct RingPair {
    queue_pair: Pair,
    controller: Arc<RingController>,
    prp: Arc<PrpTable>,
    vector: Vector,
    /// Its completions raise the vector.
    notifies: bool,
    /// The vector is this pair's alone.
    alone: bool,
    /// The same, and it has a mask.
    maskable: bool,
    birth: Birth,
}

impl RingPair {
    /// A pair over a queue pair that has been created.
    pub(crate) fn new(queue_pair: Pair, (vector, alone): (Vector, bool), controller: Arc<RingController>, prp: Arc<PrpTable>) -> RingPair {
        let maskable = alone && controller.facts().mask == Mask::Bit;
        RingPair { queue_pair, controller, prp, vector, notifies: true, alone, maskable, birth: Birth::here() }
    }

    /// The same where completions raise no vector: the second pair of a hardware queue.
    pub(crate) fn polled(queue_pair: Pair, controller: Arc<RingController>, prp: Arc<PrpTable>) -> RingPair {
        RingPair { queue_pair, controller, prp, vector: Vector(0), notifies: false, alone: false, maskable: false, birth: Birth::here() }
    }

    /// The PRP lists that its commands use.
    #[cfg(test)]
    pub(crate) fn lists(&self) -> &PrpTable {
        &self.prp
    }

    /// Which process made it. A forked child has a copy of the rings at most, which no controller reads.
    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }

    /// The submission side, locked. No thread runs the application's code while it has it.
    #[inline]
    pub(crate) fn posting(&self) -> RingPosting<'_> {
        RingPosting { sq: self.queue_pair.lock_sq(), pair: self }
    }

    /// The same, if no other thread has it: for the housekeeping thread, which waits for no lock.
    pub(crate) fn try_posting(&self) -> Option<RingPosting<'_>> {
        Some(RingPosting { sq: self.queue_pair.try_lock_sq()?, pair: self })
    }

    /// Announces what was posted.
    pub(crate) fn commit(&self) {
        self.queue_pair.lock_sq().commit(self.controller.doorbells());
    }

    /// Whether a completion waits, without a lock and without a system call.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.queue_pair.pending()
    }

    /// Takes as many completions as `out` has places. `None`: another thread does, and looks once more afterwards.
    #[inline]
    pub(crate) fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        self.queue_pair.try_reap_into(self.controller.doorbells(), out)
    }

    /// The same, for at most `budget` completions, appended to `out` as far as it has room.
    pub(crate) fn try_reap_more(&self, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        self.queue_pair.try_reap(self.controller.doorbells(), budget, out)
    }

    /// Allows its notifications; where they are posted, the next one. A look is owed.
    #[inline]
    pub(crate) fn arm(&self) {
        self.controller.arm(self.vector);
    }

    /// Forbids its notifications.
    #[inline]
    pub(crate) fn mask(&self) {
        if let Some(bell) = self.controller.vectors.flag(self.vector.0) {
            bell.mask();
        }
    }

    /// Whether [`RingPair::mask`] is this pair's affair alone.
    #[inline]
    pub(crate) fn is_maskable(&self) -> bool {
        self.maskable
    }

    /// What a thread that sleeps on it waits for.
    pub(crate) fn wait_on(&self) -> Option<&EventFd> {
        self.controller.vectors.signal(self.vector.0)
    }

    /// Whether its completions raise a vector.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies
    }

    /// The vector that its completions raise.
    pub(crate) fn vector(&self) -> Vector {
        self.vector
    }

    /// Whether `home`'s notification may stand for its messages: where they are posted, even of its own vector; on the bus, where they can
    /// only be sent to another eventfd, of any other.
    pub(crate) fn may_post_to(&self, home: Vector) -> bool {
        self.maskable || self.alone && self.controller.is_on_bus() && home != self.vector
    }

    /// From now on the notification of `home` stands for its messages; `None`: they signal its own eventfd. Arming and a look
    /// follow. False: they go where they went.
    pub(crate) fn route(&self, home: Option<Vector>) -> bool {
        self.controller.route(self.vector, home)
    }

    /// What is signalled for messages that `home` stands for.
    pub(crate) fn notification(&self, home: Vector) -> Option<&EventFd> {
        self.controller.vectors.signal(home.0)
    }

    /// Whether anything was posted for it to `home` since this was asked last. A drive on the bus sets no bits: its entries tell.
    pub(crate) fn take_posted(&self, home: Vector) -> bool {
        if self.controller.is_on_bus() { self.pending() } else { self.posted(home).is_some_and(|posted| posted.take(self.vector.0)) }
    }

    /// The descriptor of `home`, into which messages are posted.
    pub(crate) fn posted(&self, home: Vector) -> Option<&Posted> {
        self.controller.vectors.posted(home.0)
    }

    /// When the first message was sent that nobody has asked after yet, where the controller is in this process.
    pub(crate) fn take_message_time(&self) -> Option<Nanos> {
        self.controller.end()?.take_message_time(self.vector)
    }

    /// Messages of its vector so far.
    pub(crate) fn messages(&self) -> u64 {
        self.controller.messages(self.vector)
    }

    /// Notifications that came of messages, and were signalled by its vector's eventfd.
    pub(crate) fn notifications(&self) -> u64 {
        self.controller.notifications(self.vector)
    }

    /// Whether the two lead to one controller.
    pub(crate) fn shares_controller(&self, other: &RingPair) -> bool {
        Arc::ptr_eq(&self.controller, &other.controller)
    }

    /// The queue that it is at the controller.
    pub(crate) fn id(&self) -> QueueId {
        self.queue_pair.id()
    }

    /// Commands that it has room for.
    #[inline]
    pub(crate) fn tags(&self) -> u32 {
        self.queue_pair.sizes().tags
    }

    /// Commands announced and not yet taken.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.queue_pair.in_flight()
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        self.queue_pair.counters()
    }

    /// What has been counted, as a part of its device; the messages of its vector only if asked for, because pairs may share one.
    pub(crate) fn device_counters(&self, with_messages: bool) -> DeviceCounters {
        let (counters, of_vector) = (self.counters(), |count: u64| if with_messages { count } else { 0 });
        DeviceCounters {
            sq_doorbells: counters.sq_doorbells,
            cq_doorbells: counters.cq_doorbells,
            messages: of_vector(self.messages()),
            notifications: of_vector(self.notifications()),
            ..DeviceCounters::default()
        }
    }

    /// Announces what was posted, unless some thread posts at this moment, and commits by itself. How many commands that were.
    pub(crate) fn try_commit(&self) -> u32 {
        self.queue_pair.try_lock_sq().map_or(0, |mut sq| sq.commit(self.controller.doorbells()))
    }

    /// Its queue queue_pair, for the thread that looks after its controller.
    pub(crate) fn queue_pair(&self) -> &Pair {
        &self.queue_pair
    }
}

/// The submission side of a queue queue_pair, locked.
pub(crate) struct RingPosting<'a> {
    sq: SqGuard<'a, SqRing, CqRing>,
    pair: &'a RingPair,
}

impl Post for RingPosting<'_> {
    #[inline(always)]
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        self.sq.post(command(part, &self.pair.prp, || self.pair.controller.sgls()), token.0, now).is_ok()
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // A lock, which others do without.
        let frees = part.op == Op::WriteZeroes && self.pair.controller.frees_zeroes(part.nsid);
        self.sq.post(other_command(part, &self.pair.prp, || self.pair.controller.sgls(), frees), token.0, now).is_ok()
    }

    fn post_command(&mut self, command: &IoCommand, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        let (data, flags) = self.pair.prp.whole(part.addr, command.bytes, part.buf, self.pair.controller.sgls());
        let sqe = Sqe { flags, prp1: data.prp1, prp2: data.prp2, ..command.sqe };
        self.sq.post(sqe, token.0, now).is_ok()
    }

    #[inline(always)]
    fn commit(&mut self) {
        self.sq.commit(self.pair.controller.doorbells());
    }
}

/// What a part is to a controller; `sgls`: whether it has them.
#[inline(always)]
fn command(part: &Part<'_>, prp: &PrpTable, sgls: impl FnOnce() -> bool) -> Sqe {
    let (data, flags) = prp.data(part.addr, part.bytes, part.buf, sgls);
    let sqe = match part.op {
        Op::Write => nvme::io::write(part.nsid, Lba(part.lba), part.blocks, data, if part.fua { Flags::FUA } else { Flags::NONE }),
        _ => nvme::io::read(part.nsid, Lba(part.lba), part.blocks, data, Flags::NONE),
    };
    Sqe { flags, ..sqe }
}

/// What a part is to a controller that is no Read and no Write, or one with Force Unit Access. `frees`: the namespace's Write Zeroes takes the
/// Deallocate bit.
fn other_command(part: &Part<'_>, prp: &PrpTable, sgls: impl FnOnce() -> bool, frees: bool) -> Sqe {
    match part.op {
        Op::WriteZeroes => {
            let fua = if part.fua { Flags::FUA } else { Flags::NONE };
            let room = if part.keep || !frees { Flags::NONE } else { Flags::DEALLOCATE };
            nvme::io::write_zeroes(part.nsid, Lba(part.lba), part.blocks, fua | room)
        }
        Op::Verify => nvme::io::verify(part.nsid, Lba(part.lba), part.blocks),
        Op::WriteUncorrectable => nvme::io::write_uncorrectable(part.nsid, Lba(part.lba), part.blocks),
        Op::Flush => nvme::io::flush(part.nsid),
        Op::Read | Op::Write | Op::Compare | Op::Deallocate => {
            let (data, flags) = prp.data(part.addr, part.bytes, part.buf, sgls);
            let sqe = match part.op {
                Op::Deallocate => nvme::io::deallocate(part.nsid, part.bytes / Range::LEN as u32, data),
                Op::Compare => nvme::io::compare(part.nsid, Lba(part.lba), part.blocks, data),
                Op::Write => nvme::io::write(part.nsid, Lba(part.lba), part.blocks, data, Flags::FUA),
                _ => nvme::io::read(part.nsid, Lba(part.lba), part.blocks, data, Flags::FUA),
            };
            Sqe { flags, ..sqe }
        }
    }
}

#[cfg(test)]
mod tests;
