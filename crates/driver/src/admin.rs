//! Admin commands as the state machines of this crate ask for them, and what an admin token says.

use nvme::{Cid, QueueId, Sqe, Status};

/// A command to post on the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    /// The command. If `page` is set, its PRP1 is still to be filled in.
    pub sqe: Sqe,
    /// It returns 4096 bytes: give it a page-aligned buffer of that size as PRP1, and the reply what is in there.
    pub page: bool,
}

/// The answer to an [`AdminCommand`].
#[derive(Clone, Copy, Debug)]
pub struct AdminReply<'a> {
    /// How it ended.
    pub status: Status,
    /// DW0 of the completion.
    pub result: u32,
    /// The page that it filled; empty if it asked for none.
    pub page: &'a [u8],
}

/// Who an admin command belongs to: the token it is posted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The state machine that is at work: bring-up, recovery or shutdown.
    Sequence,
    /// An Abort of this command.
    Abort {
        /// The queue of the command.
        queue: QueueId,
        /// The command.
        cid: Cid,
    },
    /// An Asynchronous Event Request: it completes when there is an event, maybe never, and has no time-out.
    AsyncEvent,
    /// Keep Alive.
    KeepAlive,
    /// Whatever the owner of the queue wants, by a number of its own (56 bits).
    Own(u64),
}

const KIND: u32 = 56;

impl Purpose {
    /// As a token.
    pub fn to_token(self) -> u64 {
        match self {
            Purpose::Sequence => 1 << KIND,
            Purpose::Abort { queue, cid } => 2 << KIND | u64::from(queue.0) << 16 | u64::from(cid.0),
            Purpose::AsyncEvent => 3 << KIND,
            Purpose::KeepAlive => 4 << KIND,
            Purpose::Own(n) => n & ((1 << KIND) - 1),
        }
    }

    /// What a token says.
    pub fn from_token(token: u64) -> Purpose {
        match token >> KIND {
            1 => Purpose::Sequence,
            2 => Purpose::Abort { queue: QueueId((token >> 16) as u16), cid: Cid(token as u16) },
            3 => Purpose::AsyncEvent,
            4 => Purpose::KeepAlive,
            _ => Purpose::Own(token & ((1 << KIND) - 1)),
        }
    }

    /// Whether a command may stay unanswered for ever.
    pub fn may_wait_for_ever(self) -> bool {
        self == Purpose::AsyncEvent
    }
}
