//! A queue pair over rings in shared memory, with its doorbells and its interrupt vector.
//!
//! Any thread may post (under the SQ lock) or reap (one at a time). Arming works as
//! everywhere: unmask the vector, then poll once more, because a completion that was posted while
//! the vector was masked sends no message.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use driver::{Completed, QueuePairCounters, Reaped, SqGuard};
use hw::{CqRing, EventFd, ForkGuard, SqRing};
use nvme::io::{Flags, Range};
use nvme::{Lba, QueueId, Sqe, Vector};
use sync::Posted;
use units::{Nanos, Op};

use super::prp_table::PrpTable;
use super::{Pair, RingController};
use crate::counters::DeviceCounters;
use crate::request::Token;
use crate::transport::tcp::TcpQueue;
use crate::transport::{IoCommand, Mask, Part, Post};

/// A queue pair and its vector.
pub(crate) struct RingPair {
    queue_pair: Pair,
    controller: Arc<RingController>,
    prp: Arc<PrpTable>,
    vector: Vector,
    /// Its completions raise the vector (IEN = 1).
    notifies: bool,
    /// No other queue pair shares the vector.
    alone: bool,
    /// No other queue pair shares the vector, and the vector has a mask.
    maskable: bool,
    fork_guard: ForkGuard,
}

impl RingPair {
    /// For a queue pair that the controller has created. `alone`: no other shares `vector`.
    pub(crate) fn new(
        queue_pair: Pair,
        (vector, alone): (Vector, bool),
        controller: Arc<RingController>,
        prp: Arc<PrpTable>,
    ) -> RingPair {
        let maskable = alone && controller.facts().mask == Mask::Bit;
        RingPair {
            queue_pair,
            controller,
            prp,
            vector,
            notifies: true,
            alone,
            maskable,
            fork_guard: ForkGuard::current(),
        }
    }

    /// For a queue pair whose completions raise no interrupt: the second one of a hardware queue.
    pub(crate) fn polled(
        queue_pair: Pair,
        controller: Arc<RingController>,
        prp: Arc<PrpTable>,
    ) -> RingPair {
        // Vector 0 is a placeholder: with IEN = 0 it is never raised.
        RingPair {
            queue_pair,
            controller,
            prp,
            vector: Vector(0),
            notifies: false,
            alone: false,
            maskable: false,
            fork_guard: ForkGuard::current(),
        }
    }

    /// The PRP table that its commands use.
    #[cfg(test)]
    pub(crate) fn lists(&self) -> &PrpTable {
        &self.prp
    }

    /// The process that made it. After a fork the child has at most a copy of the rings, which no
    /// controller reads.
    pub(crate) fn fork_guard(&self) -> ForkGuard {
        self.fork_guard
    }

    /// Locks the submission side. No thread runs application code while it holds this lock.
    #[inline]
    pub(crate) fn posting(&self) -> RingPosting<'_> {
        RingPosting { sq: self.queue_pair.lock_sq(), pair: self }
    }

    /// As [`RingPair::posting`], unless another thread holds the lock: the housekeeping thread
    /// waits for no lock.
    pub(crate) fn try_posting(&self) -> Option<RingPosting<'_>> {
        Some(RingPosting { sq: self.queue_pair.try_lock_sq()?, pair: self })
    }

    /// Rings the doorbell for what was posted.
    pub(crate) fn commit(&self) {
        // Under the lock: the tail must not overtake an SQE that another thread is still writing.
        self.queue_pair.lock_sq().commit(self.controller.doorbells());
    }

    /// Whether a completion is visible in the CQ. No lock and no system call, except over TCP.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.queue_pair.pending() || self.receive()
    }

    /// Over TCP a reap receives, unless completions are there already. Whether the socket may have
    /// more: its poller reports bytes once, when they come.
    #[inline]
    fn receive_first(&self) -> bool {
        let Some(tcp) = self.controller.tcp() else { return false };
        if !self.queue_pair.pending() {
            tcp.poll(self.id());
        }
        tcp.queue(self.id()).is_some_and(TcpQueue::has_more)
    }

    /// Over TCP: receives what has come, which may post completions.
    #[inline]
    fn receive(&self) -> bool {
        self.controller.tcp().is_some_and(|tcp| tcp.poll(self.id()))
    }

    /// Reaps at most `out.len()` completions. `None`: another thread holds the CQ, and polls once
    /// more before it lets go.
    #[inline]
    pub(crate) fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        let more = self.receive_first();
        self.queue_pair
            .try_reap_into(self.controller.doorbells(), out)
            .map(|reaped| go_on(reaped, more))
    }

    /// As [`RingPair::try_reap`], for at most `budget` completions, appended to `out` within its
    /// capacity.
    pub(crate) fn try_reap_more(&self, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        let more = self.receive_first();
        self.queue_pair
            .try_reap(self.controller.doorbells(), budget, out)
            .map(|reaped| go_on(reaped, more))
    }

    /// Unmasks the vector; for posted notifications, allows the next one. The caller must poll once
    /// more afterwards.
    #[inline]
    pub(crate) fn arm(&self) {
        self.controller.arm(self.vector);
    }

    /// Masks the vector.
    #[inline]
    pub(crate) fn mask(&self) {
        if let Some(flag) = self.controller.vectors.flag(self.vector.0) {
            flag.disarm();
        }
    }

    /// Whether masking the vector affects no other queue pair.
    #[inline]
    pub(crate) fn is_maskable(&self) -> bool {
        self.maskable
    }

    /// What a thread that sleeps on this queue pair waits for: an eventfd, or over TCP a socket.
    pub(crate) fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        if let Some(tcp) = self.controller.tcp() {
            return tcp.queue(self.id()).map(TcpQueue::interrupt);
        }
        self.controller.vectors.signal(self.vector.0).map(EventFd::as_fd)
    }

    /// Whether its completions raise a vector.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies
    }

    /// The vector that its completions raise.
    pub(crate) fn vector(&self) -> Vector {
        self.vector
    }

    /// Whether its messages may be directed to `home`'s notification. Posted (embedded): to any,
    /// its own included. On the bus, where a vector can only signal another eventfd: to any other.
    pub(crate) fn may_post_to(&self, home: Vector) -> bool {
        self.maskable || self.alone && self.controller.is_on_bus() && home != self.vector
    }

    /// Directs its messages to the notification of `home`; see [`RingController::route`].
    pub(crate) fn route(&self, home: Option<Vector>) -> bool {
        self.controller.route(self.vector, home)
    }

    /// The eventfd of `home`.
    pub(crate) fn notification(&self, home: Vector) -> Option<&EventFd> {
        self.controller.vectors.signal(home.0)
    }

    /// Whether anything was posted for it to `home` since the last call. A bus controller sets no
    /// posted bits, so there the CQ itself is checked.
    pub(crate) fn take_posted(&self, home: Vector) -> bool {
        if self.controller.is_on_bus() {
            self.pending()
        } else {
            self.posted(home).is_some_and(|posted| posted.take(self.vector.0))
        }
    }

    /// The posted-interrupt descriptor of `home`.
    pub(crate) fn posted(&self, home: Vector) -> Option<&Posted> {
        self.controller.vectors.posted(home.0)
    }

    /// When the oldest message that no one has collected was sent; embedded controllers only.
    pub(crate) fn take_message_time(&self) -> Option<Nanos> {
        self.controller.end()?.take_message_time(self.vector)
    }

    /// Messages of its vector so far.
    pub(crate) fn messages(&self) -> u64 {
        self.controller.messages(self.vector)
    }

    /// Notifications of messages that were signalled through its vector's eventfd.
    pub(crate) fn notifications(&self) -> u64 {
        self.controller.notifications(self.vector)
    }

    /// Whether both belong to the same controller.
    pub(crate) fn shares_controller(&self, other: &RingPair) -> bool {
        Arc::ptr_eq(&self.controller, &other.controller)
    }

    /// Its queue identifier.
    pub(crate) fn id(&self) -> QueueId {
        self.queue_pair.id()
    }

    /// The number of command identifiers: the maximum number of commands in flight.
    #[inline]
    pub(crate) fn tags(&self) -> u32 {
        self.queue_pair.sizes().tags
    }

    /// Commands announced and not yet reaped.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.queue_pair.in_flight()
    }

    /// Its counters.
    pub(crate) fn counters(&self) -> QueuePairCounters {
        self.queue_pair.counters()
    }

    /// Its share of the device's counters. `with_messages`: include those of its vector, which
    /// queue pairs may share and must be counted once.
    pub(crate) fn device_counters(&self, with_messages: bool) -> DeviceCounters {
        let (counters, of_vector) =
            (self.counters(), |count: u64| if with_messages { count } else { 0 });
        DeviceCounters {
            sq_doorbells: counters.sq_doorbells,
            cq_doorbells: counters.cq_doorbells,
            messages: of_vector(self.messages()),
            notifications: of_vector(self.notifications()),
            ..DeviceCounters::default()
        }
    }

    /// Rings the doorbell for what was posted, unless another thread holds the SQ lock: that one
    /// commits itself. Returns the number of commands announced.
    pub(crate) fn try_commit(&self) -> u32 {
        self.queue_pair.try_lock_sq().map_or(0, |mut sq| sq.commit(self.controller.doorbells()))
    }

    /// The queue pair itself, for the controller's task.
    pub(crate) fn queue_pair(&self) -> &Pair {
        &self.queue_pair
    }
}

/// What was reaped, where a socket may have `more`: then the caller polls again before it sleeps.
#[inline]
fn go_on(reaped: Reaped, more: bool) -> Reaped {
    if more { Reaped { budget_used_up: true, more: true, ..reaped } } else { reaped }
}

/// The locked submission side of a queue pair.
pub(crate) struct RingPosting<'a> {
    sq: SqGuard<'a, SqRing, CqRing>,
    pair: &'a RingPair,
}

impl Post for RingPosting<'_> {
    #[inline(always)]
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // Read in the closure: only transfers longer than two pages ask whether there are SGLs.
        self.sq
            .post(command(part, &self.pair.prp, || self.pair.controller.sgls()), token.0, now)
            .is_ok()
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // Takes a lock, so only Write Zeroes asks.
        let frees =
            part.op == Op::WriteZeroes && self.pair.controller.deallocates_zeroes(part.nsid);
        self.sq
            .post(
                other_command(part, &self.pair.prp, || self.pair.controller.sgls(), frees),
                token.0,
                now,
            )
            .is_ok()
    }

    fn post_command(
        &mut self,
        command: &IoCommand,
        part: &Part<'_>,
        token: Token,
        now: Nanos,
    ) -> bool {
        let (data, flags) =
            self.pair.prp.whole(part.addr, command.bytes, part.buf, self.pair.controller.sgls());
        let sqe = Sqe { flags, prp1: data.prp1, prp2: data.prp2, ..command.sqe };
        self.sq.post(sqe, token.0, now).is_ok()
    }

    #[inline(always)]
    fn commit(&mut self) {
        self.sq.commit(self.pair.controller.doorbells());
    }
}

/// The SQE of a Read without FUA or of a Write. `sgls`: whether the controller supports SGLs.
#[inline(always)]
fn command(part: &Part<'_>, prp: &PrpTable, sgls: impl FnOnce() -> bool) -> Sqe {
    let (data, flags) = prp.data(part.addr, part.bytes, part.buf, sgls);
    let sqe = match part.op {
        // Of the operations posted here, only a Write can have FUA.
        Op::Write => nvme::io::write(
            part.nsid,
            Lba(part.lba),
            part.blocks,
            data,
            if part.fua { Flags::FUA } else { Flags::NONE },
        ),
        _ => nvme::io::read(part.nsid, Lba(part.lba), part.blocks, data, Flags::NONE),
    };
    Sqe { flags, ..sqe }
}

/// The SQE of every other operation, and of a Read or Write with FUA. `frees`: the namespace's
/// Write Zeroes supports the Deallocate bit.
fn other_command(part: &Part<'_>, prp: &PrpTable, sgls: impl FnOnce() -> bool, frees: bool) -> Sqe {
    match part.op {
        Op::WriteZeroes => {
            let fua = if part.fua { Flags::FUA } else { Flags::NONE };
            // Without DLFEAT bit 3 a controller may refuse the bit (SPDK's target does).
            let room = if part.keep || !frees { Flags::NONE } else { Flags::DEALLOCATE };
            nvme::io::write_zeroes(part.nsid, Lba(part.lba), part.blocks, fua | room)
        }
        Op::Verify => nvme::io::verify(part.nsid, Lba(part.lba), part.blocks),
        Op::WriteUncorrectable => {
            nvme::io::write_uncorrectable(part.nsid, Lba(part.lba), part.blocks)
        }
        Op::Flush => nvme::io::flush(part.nsid),
        // These transfer data to or from the buffer; the rest of the operations has none.
        Op::Read | Op::Write | Op::Compare | Op::Deallocate => {
            let (data, flags) = prp.data(part.addr, part.bytes, part.buf, sgls);
            let sqe = match part.op {
                // NR is 0-based in the SQE; `deallocate` takes the number of ranges.
                Op::Deallocate => {
                    nvme::io::deallocate(part.nsid, part.bytes / Range::LEN as u32, data)
                }
                Op::Compare => nvme::io::compare(part.nsid, Lba(part.lba), part.blocks, data),
                // A Write comes here only with FUA set.
                Op::Write => {
                    nvme::io::write(part.nsid, Lba(part.lba), part.blocks, data, Flags::FUA)
                }
                _ => nvme::io::read(part.nsid, Lba(part.lba), part.blocks, data, Flags::FUA),
            };
            Sqe { flags, ..sqe }
        }
    }
}

#[cfg(test)]
mod tests;
