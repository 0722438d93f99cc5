//! Queue entries: submission queue entry (command) and completion queue entry.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::prp::Dptr;
use crate::{Cid, Nsid, QueueId, Status};

/// A submission queue entry: 64 bytes, the common command format (Base §4.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Sqe {
    /// CDW0.OPC, bits 7:0.
    pub opcode: u8,
    /// CDW0.FUSE (bits 1:0 of this byte) and CDW0.PSDT (bits 7:6): fused operation, PRP or SGL.
    pub flags: u8,
    /// CDW0.CID, bits 31:16.
    pub cid: u16,
    /// NSID.
    pub nsid: u32,
    /// Command dwords 2 and 3.
    pub cdw2: [u32; 2],
    /// MPTR: metadata pointer.
    pub mptr: u64,
    /// DPTR.PRP1.
    pub prp1: u64,
    /// DPTR.PRP2: second page, or the address of a PRP list.
    pub prp2: u64,
    /// Command dwords 10 to 15, by command.
    pub cdw10: u32,
    #[allow(missing_docs)]
    pub cdw11: u32,
    #[allow(missing_docs)]
    pub cdw12: u32,
    #[allow(missing_docs)]
    pub cdw13: u32,
    #[allow(missing_docs)]
    pub cdw14: u32,
    #[allow(missing_docs)]
    pub cdw15: u32,
}

/// A completion queue entry: 16 bytes (Base §4.2).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Cqe {
    /// DW0, command specific. Set Features of some features, such as Number of Queues, returns here
    /// the value that now applies.
    pub result: u32,
    /// DW1, by command.
    pub dw1: u32,
    /// DW2.SQHD: submission queue head, the next entry that the controller will fetch.
    pub sq_head: u16,
    /// DW2.SQID: the submission queue of the command.
    pub sq_id: u16,
    /// DW3.CID.
    pub cid: u16,
    /// DW3 bits 31:16: the phase tag in bit 0, the status field above it.
    pub status_and_phase: u16,
}

impl Sqe {
    /// Entry size as a power of two: CC.IOSQES (Base §3.1.4.5).
    pub const SIZE_LOG2: u8 = 6;
    /// CDW0.PSDT: DPTR is an SGL descriptor, and MPTR the address of a buffer ([`crate::sgl`]).
    pub const PSDT_SGL: u8 = 0b01 << 6;

    /// The entry as the eight 64-bit words that a ring slot holds.
    pub fn to_words(self) -> [u64; 8] {
        transmute!(self)
    }

    /// The entry read from the eight words of a ring slot.
    pub fn from_words(words: [u64; 8]) -> Sqe {
        transmute!(words)
    }

    /// CDW0.CID as its own type.
    pub fn cid(&self) -> Cid {
        Cid(self.cid)
    }

    /// NSID as its own type.
    pub fn nsid(&self) -> Nsid {
        Nsid(self.nsid)
    }

    /// An entry with this data pointer; all other fields are zero.
    pub(crate) fn with_data(dptr: Dptr) -> Sqe {
        Sqe { prp1: dptr.prp1, prp2: dptr.prp2, ..Sqe::default() }
    }

    /// DPTR: two PRP entries, or, if `flags` has [`Sqe::PSDT_SGL`], an SGL descriptor.
    pub fn dptr(&self) -> Dptr {
        Dptr { prp1: self.prp1, prp2: self.prp2 }
    }
}

impl Cqe {
    /// The completion of command `cid` of queue `sq`, with SQHD `sq_head`.
    pub fn new(
        cid: Cid,
        sq: QueueId,
        sq_head: u16,
        status: Status,
        result: u32,
        phase: bool,
    ) -> Cqe {
        Cqe { result, dw1: 0, sq_head, sq_id: sq.0, cid: cid.0, status_and_phase: 0 }
            .with_status(status, phase)
    }

    /// Entry size as a power of two: CC.IOCQES (Base §3.1.4.5).
    pub const SIZE_LOG2: u8 = 4;

    /// The entry as two 64-bit words. The second holds the phase tag and must be stored last.
    pub fn to_words(self) -> [u64; 2] {
        transmute!(self)
    }

    /// The entry read from its two words.
    pub fn from_words(words: [u64; 2]) -> Cqe {
        transmute!(words)
    }

    /// The phase tag of an entry whose second word is `word` (Base §4.2.4).
    pub fn phase_of(word: u64) -> bool {
        word >> 48 & 1 == 1
    }

    /// The phase tag.
    pub fn phase(&self) -> bool {
        self.status_and_phase & 1 == 1
    }

    /// The status field, without the phase tag.
    pub fn status(&self) -> Status {
        Status(self.status_and_phase >> 1)
    }

    /// DW3.CID as its own type.
    pub fn cid(&self) -> Cid {
        Cid(self.cid)
    }

    /// The same entry with this status and phase.
    pub fn with_status(mut self, status: Status, phase: bool) -> Cqe {
        self.status_and_phase = status.0 << 1 | u16::from(phase);
        self
    }
}
