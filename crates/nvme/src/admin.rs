//! Admin commands, each a struct with `to_sqe` for the host and `from_sqe` for the controller.
//!
//! Decoding never fails: every bit pattern is accepted, and the controller validates the values.
//! Reserved bits are ignored. The queue pair sets the CID.

use bitfield_struct::bitfield;

use crate::prp::Dptr;
use crate::{Cid, Nsid, QueueId, Sqe, Status, Vector, opcode};

/// Values of [`Identify::cns`] (Base §5.1.13.1).
pub mod cns {
    /// Identify Namespace, NVM command set → [`crate::identify::IdentifyNamespace`].
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller → [`crate::identify::Controller`].
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace IDs greater than the command's NSID → [`crate::identify::NamespaceList`].
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list → [`crate::identify::DescriptorList`].
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of an I/O command set → [`crate::identify::NvmNamespace`].
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Identify Controller of an I/O command set → [`crate::identify::NvmController`].
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active namespace IDs of an I/O command set, greater than the command's NSID →
    /// [`crate::identify::NamespaceList`].
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// Identify Namespace of any I/O command set → [`crate::identify::IndependentNamespace`].
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
}

/// Values of CSI, the Command Set Identifier (Base §5.1.13.1).
pub mod csi {
    /// The NVM command set.
    pub const NVM: u8 = 0x00;
}

/// Identify: 4096 bytes that describe the controller or a namespace (Base §5.1.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CDW10.CNS: which structure; see [`cns`].
    pub cns: u8,
    /// NSID; 0 if the structure does not concern a namespace.
    pub nsid: Nsid,
    /// CDW10.CNTID: a controller, for structures that need one.
    pub cntid: u16,
    /// CDW11.CSI: an I/O command set, for structures that need one; see [`csi`].
    pub csi: u8,
    /// CDW11.CNSSID: CNS specific identifier.
    pub cns_specific: u16,
    /// Data pointer, 4096 bytes.
    pub data: Dptr,
}

impl Identify {
    /// Size of every Identify structure in bytes.
    pub const LEN: usize = 4096;

    /// A command for structures that only need CNS and NSID.
    pub fn new(cns: u8, nsid: Nsid, data: Dptr) -> Identify {
        Identify { cns, nsid, cntid: 0, csi: csi::NVM, cns_specific: 0, data }
    }

    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::IDENTIFY,
            nsid: self.nsid.0,
            cdw10: u32::from(self.cns) | u32::from(self.cntid) << 16,
            cdw11: u32::from(self.cns_specific) | u32::from(self.csi) << 24,
            ..Sqe::with_data(self.data)
        }
    }

    /// Decodes the command.
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

/// Get Log Page (Base §5.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// CDW10.LID: log page identifier; see [`crate::log::lid`].
    pub lid: u8,
    /// NSID: 0 or FFFFFFFFh for a log page of the controller.
    pub nsid: Nsid,
    /// CDW10.LSP (7 bits): log page specific.
    pub lsp: u8,
    /// CDW10.RAE, Retain Asynchronous Event: reading the page does not clear its event, so that no
    /// further event of that type is reported.
    pub retain_event: bool,
    /// (NUMD + 1) × 4: bytes to return, a multiple of four, 4 to 16 GiB.
    pub len: u64,
    /// CDW11.LSI: log page specific.
    pub lsi: u16,
    /// LPO: where in the page to begin, in bytes (if `offset_is_index`, the index of an entry). The
    /// controller ignores bits 1:0 of an offset in bytes.
    pub offset: u64,
    /// CDW14.OT: `offset` is the index of an entry.
    pub offset_is_index: bool,
    /// CDW14.CSI.
    pub csi: u8,
    /// Data pointer.
    pub data: Dptr,
}

impl GetLogPage {
    /// The first `len` bytes (a multiple of four, at least 4) of a log page with controller scope.
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

    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        debug_assert!(self.len >= 4 && self.len.is_multiple_of(4) && self.len <= 1 << 34);
        // NUMD is 0's based and in dwords. Its halves lie in two dwords of the command, as NUMDU
        // was added later.
        let numd = (self.len / 4).wrapping_sub(1) as u32;
        Sqe {
            opcode: opcode::admin::GET_LOG_PAGE,
            nsid: self.nsid.0,
            cdw10: u32::from(self.lid)
                | u32::from(self.lsp & 0x7f) << 8
                | u32::from(self.retain_event) << 15
                | numd << 16,
            cdw11: numd >> 16 | u32::from(self.lsi) << 16,
            cdw12: self.offset as u32,
            cdw13: (self.offset >> 32) as u32,
            cdw14: u32::from(self.offset_is_index) << 23 | u32::from(self.csi) << 24,
            ..Sqe::with_data(self.data)
        }
    }

    /// Decodes the command.
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

    /// The range of bytes of a log page of `page` bytes that the controller returns; it fills the
    /// rest of the host's `len` bytes with zeroes. Fails with Invalid Field if the offset exceeds
    /// the page, or is an index, which this controller supports for no page.
    pub fn range_of(&self, page: u64) -> Result<std::ops::Range<u64>, Status> {
        if self.offset_is_index || self.offset > page {
            return Err(Status::INVALID_FIELD);
        }
        // Base §5.1.12: the controller ignores the two low bits of LPO.
        let start = self.offset & !3;
        Ok(start..start.saturating_add(self.len).min(page))
    }
}

/// Get Features (Base §5.1.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    /// CDW10.FID: feature identifier; see [`crate::features::fid`].
    pub fid: u8,
    /// CDW10.SEL: which value; see [`crate::features::select`].
    pub select: u8,
    /// NSID, for namespace specific features.
    pub nsid: Nsid,
    /// CDW11: feature specific; for Interrupt Vector Configuration, the vector.
    pub value: u32,
    /// Data pointer, for features with a data structure.
    pub data: Dptr,
}

impl GetFeatures {
    /// Reads the current value of a controller feature without a data structure.
    pub fn current(fid: u8) -> GetFeatures {
        GetFeatures { fid, select: 0, nsid: Nsid(0), value: 0, data: Dptr::NONE }
    }

    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::GET_FEATURES,
            nsid: self.nsid.0,
            cdw10: u32::from(self.fid) | u32::from(self.select & 7) << 8,
            cdw11: self.value,
            ..Sqe::with_data(self.data)
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> GetFeatures {
        GetFeatures {
            fid: sqe.cdw10 as u8,
            select: (sqe.cdw10 >> 8 & 7) as u8,
            nsid: sqe.nsid(),
            value: sqe.cdw11,
            data: sqe.dptr(),
        }
    }
}

/// Set Features (Base §5.1.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    /// CDW10.FID: feature identifier; see [`crate::features::fid`].
    pub fid: u8,
    /// CDW10.SV: save the value over power cycles and resets.
    pub save: bool,
    /// NSID, for namespace specific features.
    pub nsid: Nsid,
    /// CDW11: the value; the types in [`crate::features`] convert into it.
    pub value: u32,
    /// Data pointer, for features with a data structure.
    pub data: Dptr,
}

impl SetFeatures {
    /// Sets a controller feature without a data structure.
    pub fn new(fid: u8, value: impl Into<u32>) -> SetFeatures {
        SetFeatures { fid, save: false, nsid: Nsid(0), value: value.into(), data: Dptr::NONE }
    }

    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::SET_FEATURES,
            nsid: self.nsid.0,
            cdw10: u32::from(self.fid) | u32::from(self.save) << 31,
            cdw11: self.value,
            ..Sqe::with_data(self.data)
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> SetFeatures {
        SetFeatures {
            fid: sqe.cdw10 as u8,
            save: sqe.cdw10 >> 31 != 0,
            nsid: sqe.nsid(),
            value: sqe.cdw11,
            data: sqe.dptr(),
        }
    }
}

/// Abort, best effort (Base §5.1.1).
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
    /// DW0 of the completion if the command was not aborted: it was not found, has completed, or
    /// will complete as usual.
    pub const NOT_ABORTED: u32 = 1;

    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::ABORT,
            cdw10: u32::from(self.sq.0) | u32::from(self.cid.0) << 16,
            ..Sqe::default()
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> Abort {
        Abort { sq: QueueId(sqe.cdw10 as u16), cid: Cid((sqe.cdw10 >> 16) as u16) }
    }
}

/// Doorbell Buffer Config (Base §5.2.5): the host writes doorbell values to the page at bus address
/// `doorbells`; the controller writes to the page at `events` (EventIdx) the value of each doorbell
/// after which the host has to write the register too.
pub fn doorbell_buffer_config(doorbells: u64, events: u64) -> Sqe {
    Sqe {
        opcode: opcode::admin::DOORBELL_BUFFER_CONFIG,
        prp1: doorbells,
        prp2: events,
        ..Sqe::default()
    }
}

/// Keep Alive: restarts the Keep Alive Timer (Base §5.1.14).
pub fn keep_alive() -> Sqe {
    Sqe { opcode: opcode::admin::KEEP_ALIVE, ..Sqe::default() }
}

/// Create I/O Completion Queue (Base §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateCq {
    /// CDW10.QID.
    pub queue: QueueId,
    /// CDW10.QSIZE + 1: entries, 1 to 65,536.
    pub entries: u32,
    /// PRP1: address of the queue, or, if it is not contiguous, of its PRP list.
    pub addr: u64,
    /// CDW11.PC: the queue is contiguous in bus addresses.
    pub contiguous: bool,
    /// CDW11.IV if CDW11.IEN is set: the vector on which new entries interrupt the host. `None`:
    /// IEN is 0, and the queue is only polled.
    pub vector: Option<Vector>,
}

impl CreateCq {
    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        // IEN is set only with a vector; IV is reserved otherwise.
        let vector = self.vector.map_or(0, |v| u32::from(v.0) << 16 | 1 << 1);
        Sqe {
            opcode: opcode::admin::CREATE_CQ,
            prp1: self.addr,
            cdw10: queue_and_size(self.queue, self.entries),
            cdw11: vector | u32::from(self.contiguous),
            ..Sqe::default()
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> CreateCq {
        CreateCq {
            queue: QueueId(sqe.cdw10 as u16),
            entries: (sqe.cdw10 >> 16) + 1,
            addr: sqe.prp1,
            contiguous: sqe.cdw11 & 1 != 0,
            // IV is ignored while IEN is 0.
            vector: (sqe.cdw11 & 2 != 0).then_some(Vector((sqe.cdw11 >> 16) as u16)),
        }
    }
}

/// Create I/O Submission Queue (Base §5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSq {
    /// CDW10.QID.
    pub queue: QueueId,
    /// CDW10.QSIZE + 1: entries, 1 to 65,536.
    pub entries: u32,
    /// PRP1: address of the queue, or, if it is not contiguous, of its PRP list.
    pub addr: u64,
    /// CDW11.PC: the queue is contiguous in bus addresses.
    pub contiguous: bool,
    /// CDW11.QPRIO: 0 urgent, 1 high, 2 medium, 3 low; used under weighted round robin only.
    pub priority: u8,
    /// CDW11.CQID: the completion queue of this queue's commands.
    pub cq: QueueId,
}

impl CreateSq {
    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::CREATE_SQ,
            prp1: self.addr,
            cdw10: queue_and_size(self.queue, self.entries),
            cdw11: u32::from(self.cq.0) << 16
                | u32::from(self.priority & 3) << 1
                | u32::from(self.contiguous),
            ..Sqe::default()
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> CreateSq {
        CreateSq {
            queue: QueueId(sqe.cdw10 as u16),
            entries: (sqe.cdw10 >> 16) + 1,
            addr: sqe.prp1,
            contiguous: sqe.cdw11 & 1 != 0,
            priority: (sqe.cdw11 >> 1 & 3) as u8,
            cq: QueueId((sqe.cdw11 >> 16) as u16),
        }
    }
}

fn queue_and_size(queue: QueueId, entries: u32) -> u32 {
    debug_assert!((1..=65_536).contains(&entries));
    // QSIZE is 0's based.
    u32::from(queue.0) | entries.wrapping_sub(1) << 16
}

/// Delete I/O Submission Queue (Base §5.2.4). The identifier is in CDW10, as it is in Delete I/O
/// Completion Queue.
pub fn delete_sq(queue: QueueId) -> Sqe {
    Sqe { opcode: opcode::admin::DELETE_SQ, cdw10: u32::from(queue.0), ..Sqe::default() }
}

/// Delete I/O Completion Queue (Base §5.2.3). Its submission queues must be deleted first.
pub fn delete_cq(queue: QueueId) -> Sqe {
    Sqe { opcode: opcode::admin::DELETE_CQ, cdw10: u32::from(queue.0), ..Sqe::default() }
}

/// Asynchronous Event Request: stays outstanding until an event occurs (Base §5.1.2).
pub fn async_event_request() -> Sqe {
    Sqe { opcode: opcode::admin::ASYNC_EVENT_REQUEST, ..Sqe::default() }
}

/// DW0 of a completed Asynchronous Event Request (Base §5.1.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEvent {
    /// AET: event type; see [`event_type`].
    #[bits(3)]
    pub event_type: u8,
    #[bits(5)]
    __: u8,
    /// AEI: event information, by type.
    pub info: u8,
    /// LID: the log page with the details; reading it clears the event.
    pub lid: u8,
    __: u8,
}

/// Values of [`AsyncEvent::event_type`] (Base §5.1.2.1).
pub mod event_type {
    /// Error status; details in the Error Information log.
    pub const ERROR: u8 = 0;
    /// SMART / health status.
    pub const SMART: u8 = 1;
    /// Notice; see [`super::notice`].
    pub const NOTICE: u8 = 2;
}

/// Values of [`AsyncEvent::info`] when the type is [`event_type::ERROR`] (Base §5.1.2.1).
pub mod error_event {
    /// Invalid Doorbell Write Value.
    pub const INVALID_DOORBELL_VALUE: u8 = 1;
    /// Transient Internal Error.
    pub const TRANSIENT_INTERNAL: u8 = 4;
}

/// Values of [`AsyncEvent::info`] when the type is [`event_type::SMART`] (Base §5.1.2.1).
pub mod smart_event {
    /// A temperature is beyond a threshold of feature 04h.
    pub const TEMPERATURE_THRESHOLD: u8 = 1;
}

/// Values of [`AsyncEvent::info`] when the type is [`event_type::NOTICE`] (Base §5.1.2.1).
pub mod notice {
    /// Namespaces were attached, detached or changed.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: u8 = 0;
    /// Asymmetric Namespace Access changed; details in log page 0Ch, [`crate::log::ana::AnaLog`].
    /// Sent if feature 0Bh has ANACN ([`crate::features::AsyncEventConfig::ana_change`]).
    pub const ANA_CHANGE: u8 = 3;
    /// Cross-Controller Reset completed; details in log page 1Eh.
    pub const CROSS_RESET_COMPLETED: u8 = 0xf4;
}

#[cfg(test)]
mod tests;
