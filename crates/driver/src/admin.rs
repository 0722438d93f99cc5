//! Admin commands that the state machines of this crate ask their executor (the caller that does
//! the I/O) to post, and the tokens that identify the commands.

use nvme::{Cid, QueueId, Sqe, Status};

/// A command to post on the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    /// The command. If `needs_page` is set, the executor fills in PRP1.
    pub sqe: Sqe,
    /// The command returns 4096 bytes of data. The executor passes a page-aligned buffer of that
    /// size as PRP1, and hands the buffer's contents over in the reply.
    pub needs_page: bool,
}

/// The completion of an [`AdminCommand`].
#[derive(Clone, Copy, Debug)]
pub struct AdminReply<'a> {
    /// Status of the completion.
    pub status: Status,
    /// DW0 of the completion.
    pub result: u32,
    /// The page that the command filled; empty if `needs_page` was not set.
    pub page: &'a [u8],
}

/// Which part of the driver posted an admin command. The command's token encodes this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The state machine in progress: bring-up, recovery or shutdown.
    Sequence,
    /// An Abort of this command.
    Abort {
        /// The queue of the command.
        queue: QueueId,
        /// The command.
        cid: Cid,
    },
    /// An Asynchronous Event Request. It completes when an event occurs, which may be never, so it
    /// has no time-out.
    AsyncEvent,
    /// Keep Alive.
    KeepAlive,
    /// A command that the admin queue's owner posts itself, with a number of its choice (56 bits).
    Own(u64),
}

const KIND: u32 = 56;

impl Purpose {
    /// Packs the purpose into a token.
    pub fn to_token(self) -> u64 {
        match self {
            // Kind 0 is `Own`, so that a token that was never set belongs to the owner.
            Purpose::Sequence => 1 << KIND,
            Purpose::Abort { queue, cid } => {
                2 << KIND | u64::from(queue.0) << 16 | u64::from(cid.0)
            }
            Purpose::AsyncEvent => 3 << KIND,
            Purpose::KeepAlive => 4 << KIND,
            Purpose::Own(n) => n & ((1 << KIND) - 1),
        }
    }

    /// Unpacks a token.
    pub fn from_token(token: u64) -> Purpose {
        match token >> KIND {
            1 => Purpose::Sequence,
            2 => Purpose::Abort { queue: QueueId((token >> 16) as u16), cid: Cid(token as u16) },
            3 => Purpose::AsyncEvent,
            4 => Purpose::KeepAlive,
            // Tokens come back through the command table, so none is invalid.
            _ => Purpose::Own(token & ((1 << KIND) - 1)),
        }
    }

    /// Whether the command may legitimately stay in flight for ever, so that no time-out applies.
    pub fn has_no_timeout(self) -> bool {
        self == Purpose::AsyncEvent
    }
}
