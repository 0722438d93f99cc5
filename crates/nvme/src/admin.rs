//! Admin commands. Each is a struct of what it says: `to_sqe` for the host, `from_sqe` for the controller.
//!
//! Decoding never fails: every bit pattern means something, and what a controller does not support it refuses by
//! value. Reserved bits are ignored. The CID is the queue pair's to fill in.

mod events;
mod queues;

pub use events::{AsyncEvent, async_event_request, error_event, event_type, notice, smart_event};
pub use queues::{CreateCq, CreateSq, DeleteCq, DeleteSq};

use crate::prp::Dptr;
use crate::{Cid, Nsid, QueueId, Sqe, Status, opcode};

/// Values of [`Identify::cns`] (Base 5.1.13.1).
pub mod cns {
    /// Identify Namespace, NVM command set → [`crate::identify::Namespace`].
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller → [`crate::identify::Controller`].
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace IDs above the given one → [`crate::identify::NamespaceList`].
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list → [`crate::identify::DescriptorList`].
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of an I/O command set → [`crate::identify::NvmNamespace`].
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Identify Controller of an I/O command set → [`crate::identify::NvmController`].
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active namespace IDs of an I/O command set above the given one → [`crate::identify::NamespaceList`].
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// Identify Namespace of any I/O command set → [`crate::identify::IndependentNamespace`].
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
}

/// Values of CSI, the Command Set Identifier (Base 5.1.13.1).
pub mod csi {
    /// The NVM command set.
    pub const NVM: u8 = 0x00;
}

/// Identify: 4096 bytes about the controller or a namespace (Base 5.1.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CDW10.CNS: which structure; see [`cns`].
    pub cns: u8,
    /// NSID; 0 where the structure is not about a namespace.
    pub nsid: Nsid,
    /// CDW10.CNTID: a controller, where the structure asks for one.
    pub cntid: u16,
    /// CDW11.CSI: an I/O command set, where the structure asks for one; see [`csi`].
    pub csi: u8,
    /// CDW11.CNSSID: an identifier whose meaning depends on the CNS.
    pub cns_specific: u16,
    /// Where the 4096 bytes go.
    pub data: Dptr,
}

impl Identify {
    /// Bytes of every Identify structure.
    pub const LEN: usize = 4096;

    /// A structure that needs no more than CNS and NSID.
    pub fn new(cns: u8, nsid: Nsid, data: Dptr) -> Identify {
        Identify { cns, nsid, cntid: 0, csi: csi::NVM, cns_specific: 0, data }
    }

    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::IDENTIFY,
            nsid: self.nsid.0,
            cdw10: u32::from(self.cns) | u32::from(self.cntid) << 16,
            cdw11: u32::from(self.cns_specific) | u32::from(self.csi) << 24,
            ..Sqe::with_data(self.data)
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> Identify {
        Identify {
            cns: sqe.cdw10 as u8,
            nsid: sqe.nsid(),
            cntid: (sqe.cdw10 >> 16) as u16,
            csi: (sqe.cdw11 >> 24) as u8,
            cns_specific: sqe.cdw11 as u16,
            data: sqe.dptr(),
        }
    }
}

/// Get Log Page (Base 5.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// CDW10.LID: which page; see [`crate::log::lid`].
    pub lid: u8,
    /// NSID: 0 or FFFFFFFFh for the controller.
    pub nsid: Nsid,
    /// CDW10.LSP (7 bits): by page.
    pub lsp: u8,
    /// CDW10.RAE: do not take this read as the acknowledgement of an asynchronous event.
    pub retain_event: bool,
    /// (NUMD + 1) × 4: how many bytes, a multiple of four, 4 to 16 GiB.
    pub len: u64,
    /// CDW11.LSI: by page.
    pub lsi: u16,
    /// LPO: where in the page to start, in bytes (an index if `offset_is_index`). The controller ignores bits 1:0.
    pub offset: u64,
    /// CDW14.OT: `offset` counts entries.
    pub offset_is_index: bool,
    /// CDW14.CSI.
    pub csi: u8,
    /// Where the bytes go.
    pub data: Dptr,
}

impl GetLogPage {
    /// The first `len` bytes (a multiple of four, at least 4) of a page of the controller.
    pub fn new(lid: u8, len: u64, data: Dptr) -> GetLogPage {
        GetLogPage {
            lid,
            nsid: Nsid::ALL,
            lsp: 0,
            retain_event: false,
            len,
            lsi: 0,
            offset: 0,
            offset_is_index: false,
            csi: csi::NVM,
            data,
        }
    }

    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        debug_assert!(self.len >= 4 && self.len.is_multiple_of(4) && self.len <= 1 << 34);
        let numd = (self.len / 4).wrapping_sub(1) as u32;
        Sqe {
            opcode: opcode::admin::GET_LOG_PAGE,
            nsid: self.nsid.0,
            cdw10: u32::from(self.lid) | u32::from(self.lsp & 0x7f) << 8 | u32::from(self.retain_event) << 15 | numd << 16,
            cdw11: numd >> 16 | u32::from(self.lsi) << 16,
            cdw12: self.offset as u32,
            cdw13: (self.offset >> 32) as u32,
            cdw14: u32::from(self.offset_is_index) << 23 | u32::from(self.csi) << 24,
            ..Sqe::with_data(self.data)
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> GetLogPage {
        GetLogPage {
            lid: sqe.cdw10 as u8,
            nsid: sqe.nsid(),
            lsp: (sqe.cdw10 >> 8 & 0x7f) as u8,
            retain_event: sqe.cdw10 >> 15 & 1 != 0,
            len: (u64::from(sqe.cdw10 >> 16 | sqe.cdw11 << 16) + 1) * 4,
            lsi: (sqe.cdw11 >> 16) as u16,
            offset: u64::from(sqe.cdw12) | u64::from(sqe.cdw13) << 32,
            offset_is_index: sqe.cdw14 >> 23 & 1 != 0,
            csi: (sqe.cdw14 >> 24) as u8,
            data: sqe.dptr(),
        }
    }

    /// What the controller returns of a page of `page` bytes: the range to copy, the rest of `len` being zeroes.
    /// Refused: an offset beyond the page, and an index offset, which only some pages of which none is here support.
    pub fn range_of(&self, page: u64) -> Result<std::ops::Range<u64>, Status> {
        if self.offset_is_index || self.offset > page {
            return Err(Status::INVALID_FIELD);
        }
        let start = self.offset & !3;
        Ok(start..start.saturating_add(self.len).min(page))
    }
}

/// Get Features (Base 5.1.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    /// CDW10.FID: which feature; see [`crate::features::fid`].
    pub fid: u8,
    /// CDW10.SEL: which of its values; see [`crate::features::select`].
    pub select: u8,
    /// NSID, for features of a namespace.
    pub nsid: Nsid,
    /// CDW11: by feature; for Interrupt Vector Configuration, the vector asked about.
    pub value: u32,
    /// Where the data go, for features that have a data structure.
    pub data: Dptr,
}

impl GetFeatures {
    /// The value in force of a feature of the controller that has no data structure.
    pub fn current(fid: u8) -> GetFeatures {
        GetFeatures { fid, select: 0, nsid: Nsid(0), value: 0, data: Dptr::NONE }
    }

    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::GET_FEATURES,
            nsid: self.nsid.0,
            cdw10: u32::from(self.fid) | u32::from(self.select & 7) << 8,
            cdw11: self.value,
            ..Sqe::with_data(self.data)
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> GetFeatures {
        GetFeatures { fid: sqe.cdw10 as u8, select: (sqe.cdw10 >> 8 & 7) as u8, nsid: sqe.nsid(), value: sqe.cdw11, data: sqe.dptr() }
    }
}

/// Set Features (Base 5.1.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    /// CDW10.FID: which feature; see [`crate::features::fid`].
    pub fid: u8,
    /// CDW10.SV: keep the value over power cycles and resets.
    pub save: bool,
    /// NSID, for features of a namespace.
    pub nsid: Nsid,
    /// CDW11: the value; the types in [`crate::features`] convert into it.
    pub value: u32,
    /// Where the data are, for features that have a data structure.
    pub data: Dptr,
}

impl SetFeatures {
    /// A feature of the controller that has no data structure.
    pub fn new(fid: u8, value: impl Into<u32>) -> SetFeatures {
        SetFeatures { fid, save: false, nsid: Nsid(0), value: value.into(), data: Dptr::NONE }
    }

    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::SET_FEATURES,
            nsid: self.nsid.0,
            cdw10: u32::from(self.fid) | u32::from(self.save) << 31,
            cdw11: self.value,
            ..Sqe::with_data(self.data)
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> SetFeatures {
        SetFeatures { fid: sqe.cdw10 as u8, save: sqe.cdw10 >> 31 != 0, nsid: sqe.nsid(), value: sqe.cdw11, data: sqe.dptr() }
    }
}

/// Abort, best effort (Base 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// CDW10.SQID: the queue of the command to abort.
    pub sq: QueueId,
    /// CDW10.CID: the command to abort.
    pub cid: Cid,
}

impl Abort {
    /// DW0 of the completion if the command was aborted.
    pub const ABORTED: u32 = 0;
    /// DW0 of the completion if the command was not aborted: it was not found, is complete, or will complete.
    pub const NOT_ABORTED: u32 = 1;

    /// The command for the host to post.
    pub fn to_sqe(&self) -> Sqe {
        Sqe { opcode: opcode::admin::ABORT, cdw10: u32::from(self.sq.0) | u32::from(self.cid.0) << 16, ..Sqe::default() }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> Abort {
        Abort { sq: QueueId(sqe.cdw10 as u16), cid: Cid((sqe.cdw10 >> 16) as u16) }
    }

    /// Reads DW0 of the completion: whether the command was aborted.
    pub fn was_aborted(result: u32) -> bool {
        result & 1 == 0
    }
}

/// Doorbell Buffer Config: the host keeps its doorbells in the page at bus address `bells`, and the controller says in the one at
/// `events` after which value of each its register is to be rung (Base 5.2.5).
pub fn doorbell_buffer_config(bells: u64, events: u64) -> Sqe {
    Sqe { opcode: opcode::admin::DOORBELL_BUFFER_CONFIG, prp1: bells, prp2: events, ..Sqe::default() }
}

/// Keep Alive: restarts the Keep Alive Timer (Base 5.1.14).
pub fn keep_alive() -> Sqe {
    Sqe { opcode: opcode::admin::KEEP_ALIVE, ..Sqe::default() }
}

#[cfg(test)]
mod tests;
