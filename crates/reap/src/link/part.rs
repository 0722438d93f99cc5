//! What a link is asked to carry out: one command's worth of a request, before it is an SQE, a capsule or an io_uring entry.

use hw::Lent;
use nvme::Nsid;
use units::{Nanos, Op};

use crate::request::Token;

/// One command's worth of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub op: Op,
    /// Of a Write or a Write Zeroes: durable when it completes.
    pub fua: bool,
    /// Of a Write Zeroes: the blocks keep the room that they have.
    pub keep: bool,
    pub nsid: Nsid,
    /// First logical block, and how many there are; 0 of a Flush.
    pub lba: u64,
    pub blocks: u32,
    /// Of a Read, a Write or a Compare, where the data is: bus address and bytes. Of a Deallocate, its ranges.
    pub addr: u64,
    pub bytes: u32,
    /// The buffer that it is in.
    pub buf: &'a Option<Lent>,
}

/// A lane that is locked for posting.
pub(crate) trait Post {
    /// Lays a Read or a Write down where the next [`Post::commit`] announces it. False: there is no room, or the lane is closed.
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool;

    /// The same for any other part, and for a Read with Force Unit Access. A method of its own keeps what it needs out of the loop that posts all others.
    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool;

    /// Announces what was posted. How many commands that were.
    fn commit(&mut self) -> u32;
}
