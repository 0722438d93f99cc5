//! Creating and deleting I/O queues (Base 5.2.1 to 5.2.4).

use crate::{QueueId, Sqe, Vector, opcode};

/// Create I/O Completion Queue (Base 5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateCq {
    /// CDW10.QID.
    pub queue: QueueId,
    /// CDW10.QSIZE + 1: entries, 1 to 65,536.
    pub entries: u32,
    /// PRP1: where the queue is, or if it is not contiguous where its PRP list is.
    pub addr: u64,
    /// CDW11.PC: the queue is contiguous in bus addresses.
    pub contiguous: bool,
    /// CDW11.IV if CDW11.IEN: the vector that new entries raise, `None` for a queue that is only polled.
    pub vector: Option<Vector>,
}

impl CreateCq {
    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        let vector = self.vector.map_or(0, |v| u32::from(v.0) << 16 | 1 << 1);
        Sqe {
            opcode: opcode::admin::CREATE_CQ,
            prp1: self.addr,
            cdw10: queue_and_size(self.queue, self.entries),
            cdw11: vector | u32::from(self.contiguous),
            ..Sqe::default()
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> CreateCq {
        CreateCq {
            queue: QueueId(sqe.cdw10 as u16),
            entries: (sqe.cdw10 >> 16) + 1,
            addr: sqe.prp1,
            contiguous: sqe.cdw11 & 1 != 0,
            vector: (sqe.cdw11 & 2 != 0).then_some(Vector((sqe.cdw11 >> 16) as u16)),
        }
    }
}

/// Create I/O Submission Queue (Base 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSq {
    /// CDW10.QID.
    pub queue: QueueId,
    /// CDW10.QSIZE + 1: entries, 1 to 65,536.
    pub entries: u32,
    /// PRP1: where the queue is, or if it is not contiguous where its PRP list is.
    pub addr: u64,
    /// CDW11.PC: the queue is contiguous in bus addresses.
    pub contiguous: bool,
    /// CDW11.QPRIO: 0 urgent, 1 high, 2 medium, 3 low; used under weighted round robin only.
    pub priority: u8,
    /// CDW11.CQID: the completion queue of its commands.
    pub cq: QueueId,
    /// CDW12.NVMSETID, 0 for none.
    pub nvm_set: u16,
}

impl CreateSq {
    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::CREATE_SQ,
            prp1: self.addr,
            cdw10: queue_and_size(self.queue, self.entries),
            cdw11: u32::from(self.cq.0) << 16 | u32::from(self.priority & 3) << 1 | u32::from(self.contiguous),
            cdw12: u32::from(self.nvm_set),
            ..Sqe::default()
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> CreateSq {
        CreateSq {
            queue: QueueId(sqe.cdw10 as u16),
            entries: (sqe.cdw10 >> 16) + 1,
            addr: sqe.prp1,
            contiguous: sqe.cdw11 & 1 != 0,
            priority: (sqe.cdw11 >> 1 & 3) as u8,
            cq: QueueId((sqe.cdw11 >> 16) as u16),
            nvm_set: sqe.cdw12 as u16,
        }
    }
}

fn queue_and_size(queue: QueueId, entries: u32) -> u32 {
    debug_assert!((1..=65_536).contains(&entries));
    u32::from(queue.0) | entries.wrapping_sub(1) << 16
}

/// Delete I/O Submission Queue (Base 5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteSq {
    /// CDW10.QID.
    pub queue: QueueId,
}

impl DeleteSq {
    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe { opcode: opcode::admin::DELETE_SQ, cdw10: u32::from(self.queue.0), ..Sqe::default() }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> DeleteSq {
        DeleteSq { queue: QueueId(sqe.cdw10 as u16) }
    }
}

/// Delete I/O Completion Queue (Base 5.2.3). Its submission queues must be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteCq {
    /// CDW10.QID.
    pub queue: QueueId,
}

impl DeleteCq {
    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe { opcode: opcode::admin::DELETE_CQ, cdw10: u32::from(self.queue.0), ..Sqe::default() }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> DeleteCq {
        DeleteCq { queue: QueueId(sqe.cdw10 as u16) }
    }
}
