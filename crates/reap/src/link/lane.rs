//! A lane: where commands of a hardware queue are posted, and where their completions are found.

use std::sync::Arc;

use driver::{Abandoned, Command, Completed, Counters, Exclusive, Expired, QueuePair, QueueSizes, Reaped, SqGuard};
use handover::Posted;
use hw::{CqRing, EventFd, Lent, RingMemory, SqRing};
use nvme::io::{Flags, Range};
use nvme::prp::Dptr;
use nvme::{Cid, Lba, Nsid, QueueId, Sqe, Vector};
use units::{Nanos, Op};

use super::prp_table::PrpTable;
use super::{Link, Part, Post};
use crate::request::Token;

/// A queue pair over rings in the link's pool.
pub(crate) type Pair = QueuePair<SqRing, CqRing>;

/// Ring memory of a queue pair. The controller may use it for as long as this lives.
pub(crate) struct Rings {
    sq: RingMemory,
    cq: RingMemory,
}

impl Rings {
    /// Memory for rings of these sizes.
    ///
    /// # Errors
    /// The pool has no room for them.
    pub(crate) fn new(link: &Link, sizes: QueueSizes) -> Result<Rings, hw::AllocError> {
        let sq = link.pool().alloc_ring((sizes.sq_entries as usize) << nvme::Sqe::SIZE_LOG2)?;
        let cq = link.pool().alloc_ring((sizes.cq_entries as usize) << nvme::Cqe::SIZE_LOG2)?;
        Ok(Rings { sq, cq })
    }

    /// Bus addresses of submission and completion queue.
    pub(crate) fn addrs(&self) -> (u64, u64) {
        (self.sq.addr(), self.cq.addr())
    }

    /// The queue pair over this memory. `None` only if the sizes are not those it was made for.
    pub(crate) fn pair(&self, link: &Link, id: QueueId, sizes: QueueSizes) -> Option<Pair> {
        let sq = link.pool().sq(self.sq.addr(), sizes.sq_entries)?;
        let cq = link.pool().cq(self.cq.addr(), sizes.cq_entries)?;
        QueuePair::new(id, sizes, sq, cq).ok()
    }
}

/// A queue pair of the controller's, with its vector.
pub(crate) struct Lane {
    pair: Pair,
    link: Arc<Link>,
    prp: Arc<PrpTable>,
    vector: Vector,
    /// Its completions raise the vector.
    notifies: bool,
    /// The vector is this lane's alone, and has a mask.
    maskable: bool,
}

impl Lane {
    /// A lane over a queue pair that has been created.
    pub(crate) fn new(pair: Pair, (vector, maskable): (Vector, bool), link: Arc<Link>, prp: Arc<PrpTable>) -> Lane {
        Lane { pair, link, prp, vector, notifies: true, maskable }
    }

    /// The same where completions raise no vector: the second lane of a hardware queue.
    pub(crate) fn polled(pair: Pair, link: Arc<Link>, prp: Arc<PrpTable>) -> Lane {
        Lane { pair, link, prp, vector: Vector(0), notifies: false, maskable: false }
    }

    /// Waits for the submission side: no thread runs the application's code while it has it.
    #[inline]
    pub(crate) fn lock(&self) -> Posting<'_> {
        Posting { sq: self.pair.lock_sq(), lane: self }
    }

    /// The submission side, if nobody has it: for a thread that must not wait for those who post.
    pub(crate) fn try_lock(&self) -> Option<Posting<'_>> {
        Some(Posting { sq: self.pair.try_lock_sq()?, lane: self })
    }

    /// Announces what was posted. How many commands that were.
    #[inline]
    pub(crate) fn commit(&self) -> u32 {
        self.pair.lock_sq().commit(self.link.doorbells())
    }

    /// The same, unless some thread posts at this moment, and commits by itself.
    pub(crate) fn try_commit(&self) -> u32 {
        self.try_lock().map_or(0, |mut posting| posting.commit())
    }

    /// Whether a completion waits, without a lock and without a system call.
    #[inline]
    pub(crate) fn hint(&self) -> bool {
        self.pair.pending()
    }

    /// Takes as many completions as `out` has places. `None`: another thread does, and looks once more afterwards.
    #[inline]
    pub(crate) fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        self.pair.try_reap_into(self.link.doorbells(), out)
    }

    /// The same, for at most `budget` completions, appended to `out` as far as it has room.
    pub(crate) fn try_reap_more(&self, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        self.pair.try_reap(self.link.doorbells(), budget, out)
    }

    /// Allows its notifications; where they are posted, the next one. A look is owed.
    #[inline]
    pub(crate) fn arm(&self) {
        self.link.vectors.arm(self.vector);
    }

    /// Forbids its notifications.
    #[inline]
    pub(crate) fn mask(&self) {
        if let Some(bell) = self.link.vectors.bell(self.vector) {
            bell.mask();
        }
    }

    /// Whether [`Lane::mask`] is this lane's affair alone.
    #[inline]
    pub(crate) fn is_maskable(&self) -> bool {
        self.maskable
    }

    /// What a thread that sleeps on it waits for.
    pub(crate) fn wait_on(&self) -> Option<&EventFd> {
        self.link.vectors.eventfd(self.vector)
    }

    /// Whether its completions raise a vector.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies
    }

    /// The vector that its completions raise.
    pub(crate) fn vector(&self) -> Vector {
        self.vector
    }

    /// From now on its messages are posted into the descriptor of `home`; `None`: they signal its own eventfd. Arming and a look
    /// follow.
    pub(crate) fn route(&self, home: Option<Vector>) {
        self.link.vectors.route(self.vector, home);
    }

    /// The descriptor of `home`, into which messages are posted.
    pub(crate) fn posted(&self, home: Vector) -> Option<&Posted> {
        self.link.vectors.posted(home)
    }

    /// When the first message was sent that nobody has asked after yet, where the controller is in this process.
    pub(crate) fn take_message_time(&self) -> Option<Nanos> {
        self.link.end()?.take_message_time(self.vector)
    }

    /// Messages of its vector so far.
    pub(crate) fn messages(&self) -> u64 {
        self.link.messages(self.vector)
    }

    /// Whether the two lead to one controller.
    pub(crate) fn is_beside(&self, other: &Lane) -> bool {
        Arc::ptr_eq(&self.link, &other.link)
    }

    /// The queue that it is at the controller.
    pub(crate) fn id(&self) -> QueueId {
        self.pair.id()
    }

    /// Commands that it has room for.
    #[inline]
    pub(crate) fn tags(&self) -> u32 {
        self.pair.sizes().tags
    }

    /// Commands announced and not yet taken.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.pair.in_flight()
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        self.pair.counters()
    }

    /// The commands posted `timeout` or longer before `now`, appended to `out`; takes no lock.
    pub(crate) fn expired(&self, now: Nanos, timeout: Nanos, out: &mut Vec<Expired>) {
        self.pair.expired(now, timeout, out);
    }

    /// The queue pair, for the state machines that watch over it.
    pub(crate) fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Everything about it, for the thread that looks after its controller; `None`: some thread posts or reaps at this moment.
    pub(crate) fn try_exclusive(&self) -> Option<Held<'_>> {
        Some(Held { sides: self.pair.try_exclusive()? })
    }

    /// After [`Lane::try_exclusive`]: whether a completion waits for which somebody may have found the lock busy.
    pub(crate) fn look_again(&self) -> bool {
        self.pair.look_again()
    }
}

/// A lane that nobody posts to and nobody reaps.
pub(crate) struct Held<'a> {
    sides: Exclusive<'a, SqRing, CqRing>,
}

impl Held<'_> {
    /// See [`Exclusive::begin_abort`].
    pub(crate) fn begin_abort(&mut self, command: &Command) -> bool {
        self.sides.begin_abort(command)
    }

    /// See [`Exclusive::end_abort`].
    pub(crate) fn end_abort(&mut self, cid: Cid) {
        self.sides.end_abort(cid);
    }

    /// See [`Exclusive::close`]: nothing is taken back.
    pub(crate) fn close(&mut self) -> Vec<Abandoned> {
        self.sides.close();
        Vec::new()
    }

    /// See [`Exclusive::abandon`].
    pub(crate) fn take_back(&mut self) -> Vec<Abandoned> {
        self.sides.abandon()
    }

    /// See [`Exclusive::reopen`]: nothing is taken back.
    pub(crate) fn reopen(&mut self) -> Vec<Abandoned> {
        self.sides.reopen();
        Vec::new()
    }
}

/// A lane's submission side, locked.
pub(crate) struct Posting<'a> {
    sq: SqGuard<'a, SqRing, CqRing>,
    lane: &'a Lane,
}

impl Posting<'_> {
    /// Whether there is no room for another command now, or the lane is closed.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.sq.exhausted()
    }
}

impl Post for Posting<'_> {
    #[inline(always)]
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        self.sq.post(command(part, &self.lane.prp), token.0, now).is_ok()
    }

    #[inline]
    fn commit(&mut self) -> u32 {
        self.sq.commit(self.lane.link.doorbells())
    }
}

#[inline(always)]
fn command(part: &Part<'_>, prp: &PrpTable) -> Sqe {
    if !part.op.moves_data() {
        // By value, so that the part may stay in registers.
        let Part { op, fua, keep, nsid, lba, blocks, addr, buf, .. } = *part;
        let modifiers = if fua { Flags::FUA } else { Flags::NONE } | if keep { Flags::NONE } else { Flags::DEALLOCATE };
        // Field by field, so that no other command has to be laid down where this one is returned.
        let built = dataless(op, nsid, Lba(lba), blocks, (modifiers, addr), buf, prp);
        let Sqe { opcode, nsid, prp1, prp2, cdw10, cdw11, cdw12, .. } = built;
        return Sqe { opcode, nsid, prp1, prp2, cdw10, cdw11, cdw12, ..Sqe::default() };
    }
    let (prp1, prp2) = prp.pointers(part.addr, part.bytes, part.buf);
    let data = Dptr { prp1, prp2 };
    match part.op {
        Op::Write => nvme::io::write(part.nsid, Lba(part.lba), part.blocks, data, if part.fua { Flags::FUA } else { Flags::NONE }),
        _ => nvme::io::read(part.nsid, Lba(part.lba), part.blocks, data, Flags::NONE),
    }
}

/// Apart from the commands that most parts are.
#[cold]
#[inline(never)]
fn dataless(op: Op, nsid: Nsid, lba: Lba, blocks: u32, (flags, range): (Flags, u64), buf: &Option<Lent>, prp: &PrpTable) -> Sqe {
    match op {
        Op::WriteZeroes => nvme::io::write_zeroes(nsid, lba, blocks, flags),
        Op::Deallocate => {
            let (prp1, prp2) = prp.pointers(range, Range::LEN as u32, buf);
            nvme::io::deallocate(nsid, 1, Dptr { prp1, prp2 })
        }
        Op::Read | Op::Write | Op::Flush => nvme::io::flush(nsid),
    }
}
