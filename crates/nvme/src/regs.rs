//! Controller properties (registers): offsets and fields (Base §3.1.4; doorbells: PCIe Transport
//! 3.1.2).

use std::fmt;

use bitfield_struct::bitfield;

use crate::QueueId;

/// CAP, Controller Capabilities, 64 bits (Base §3.1.4.1).
pub const CAP: u32 = 0x00;
/// VS, Version (Base §3.1.4.2).
pub const VS: u32 = 0x08;
/// CC, Controller Configuration (Base §3.1.4.5).
pub const CC: u32 = 0x14;
/// CSTS, Controller Status (Base §3.1.4.6).
pub const CSTS: u32 = 0x1c;
/// NSSR, NVM Subsystem Reset (Base §3.1.4.7).
pub const NSSR: u32 = 0x20;
/// AQA, Admin Queue Attributes (Base §3.1.4.8).
pub const AQA: u32 = 0x24;
/// ASQ, Admin Submission Queue Base Address, 64 bits (Base §3.1.4.9).
pub const ASQ: u32 = 0x28;
/// ACQ, Admin Completion Queue Base Address, 64 bits (Base §3.1.4.10).
pub const ACQ: u32 = 0x30;
/// CRTO, Controller Ready Timeouts (Base §3.1.4.21).
pub const CRTO: u32 = 0x68;
/// Offset of the first doorbell, above all properties (PCIe Transport §3.1.2).
pub const DOORBELLS: u32 = 0x1000;

/// Value of NSSR that resets the NVM subsystem: "NVMe" (Base §3.1.4.7).
pub const NSSR_RESET: u32 = 0x4e56_4d65;

/// Offset of a submission queue's tail doorbell; `dstrd` is CAP.DSTRD (PCIe Transport §3.1.2.1).
pub const fn sq_tail_doorbell(queue: QueueId, dstrd: u8) -> u32 {
    doorbell(2 * queue.0 as u32, dstrd)
}

/// Offset of a completion queue's head doorbell; `dstrd` is CAP.DSTRD (PCIe Transport §3.1.2.2).
pub const fn cq_head_doorbell(queue: QueueId, dstrd: u8) -> u32 {
    doorbell(2 * queue.0 as u32 + 1, dstrd)
}

/// DSTRD has four bits. With DSTRD above 13 (strides above 2^15 bytes) the offsets of the highest
/// queue identifiers exceed 32 bits; no BAR is that large.
const fn doorbell(index: u32, dstrd: u8) -> u32 {
    DOORBELLS.wrapping_add(index.wrapping_mul(4 << (dstrd & 0xf)))
}

/// CAP, Controller Capabilities (Base §3.1.4.1). Read-only for the host.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// MQES: maximum number of entries of an I/O queue, 0's based; see [`Cap::max_entries`].
    pub mqes: u16,
    /// CQR: I/O queues must be physically contiguous.
    pub cqr: bool,
    /// AMS: arbitration mechanisms besides round robin; bit 0 weighted round robin, bit 1 vendor
    /// specific.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    __: u8,
    /// TO: maximum time until CSTS.RDY follows CC.EN, in units of 500 ms; see [`Cap::timeout_ms`].
    pub to: u8,
    /// DSTRD: doorbells are 2^(2 + DSTRD) bytes apart.
    #[bits(4)]
    pub dstrd: u8,
    /// NSSRS: NVM Subsystem Reset is supported.
    pub nssrs: bool,
    /// CSS: I/O command sets; bit 0 NVM, bit 6 one or more (selected by CC.CSS = 110b), bit 7 no
    /// I/O command set.
    pub css: u8,
    #[bits(3)]
    __: u8,
    /// MPSMIN: the smallest memory page is 2^(12 + MPSMIN) bytes, the unit of MDTS; see
    /// [`crate::prp::PageSize::from_mps`].
    #[bits(4)]
    pub mpsmin: u8,
    /// MPSMAX: the largest memory page is 2^(12 + MPSMAX) bytes.
    #[bits(4)]
    pub mpsmax: u8,
    #[bits(3)]
    __: u8,
    /// CRMS: controller ready modes; bit 0 with media, bit 1 independent of media.
    #[bits(2)]
    pub crms: u8,
    #[bits(3)]
    __: u8,
}

impl Cap {
    /// CAP.CSS: NVM command set.
    pub const CSS_NVM: u8 = 1 << 0;
    /// CAP.CSS: one or more I/O command sets, selected with [`Cc::CSS_ALL`].
    pub const CSS_ALL: u8 = 1 << 6;
    /// CAP.CRMS: Controller Ready With Media, within CRTO.CRWMT.
    pub const CRMS_WITH_MEDIA: u8 = 1 << 0;
    /// CAP.CSS: no I/O command set.
    pub const CSS_ADMIN_ONLY: u8 = 1 << 7;

    /// Maximum number of entries of an I/O queue: 1 to 65,536. The specification requires at least
    /// 2.
    pub fn max_entries(self) -> u32 {
        u32::from(self.mqes()) + 1
    }

    /// CAP.TO in milliseconds.
    pub fn timeout_ms(self) -> u64 {
        u64::from(self.to()) * 500
    }
}

/// VS, Version (Base §3.1.4.2); also Identify Controller VER.
#[bitfield(u32)]
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// TER: tertiary version.
    pub tertiary: u8,
    /// MNR: minor version.
    pub minor: u8,
    /// MJR: major version.
    pub major: u16,
}

impl Version {
    /// 2.1, the version that this crate implements.
    pub const V2_1: Version = Version::new().with_major(2).with_minor(1);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.tertiary())
    }
}

/// CC, Controller Configuration (Base §3.1.4.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// EN: enables the controller. 1 → 0 is a controller reset.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// CSS: I/O command set; [`Cc::CSS_NVM`], [`Cc::CSS_ALL`], or 7 for none.
    #[bits(3)]
    pub css: u8,
    /// MPS: the memory page size is 2^(12 + MPS) bytes; see [`crate::prp::PageSize::from_mps`].
    #[bits(4)]
    pub mps: u8,
    /// AMS: arbitration; 0 round robin, 1 weighted round robin, 7 vendor specific.
    #[bits(3)]
    pub ams: u8,
    /// SHN: shutdown notification; [`Cc::SHN_NORMAL`], or 2 for an abrupt one.
    #[bits(2)]
    pub shn: u8,
    /// IOSQES: I/O submission queue entries have 2^IOSQES bytes; the NVM command set requires 6.
    #[bits(4)]
    pub iosqes: u8,
    /// IOCQES: I/O completion queue entries have 2^IOCQES bytes; the NVM command set requires 4.
    #[bits(4)]
    pub iocqes: u8,
    __: u8,
}

impl Cc {
    /// CSS: the NVM command set.
    pub const CSS_NVM: u8 = 0;
    /// CSS: every I/O command set that the controller supports.
    pub const CSS_ALL: u8 = 6;
    /// SHN: no shutdown.
    pub const SHN_NONE: u8 = 0;
    /// SHN: normal shutdown.
    pub const SHN_NORMAL: u8 = 1;
    /// AMS: round robin.
    pub const AMS_ROUND_ROBIN: u8 = 0;
}

/// CSTS, Controller Status (Base §3.1.4.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// RDY: ready for commands; follows CC.EN.
    pub rdy: bool,
    /// CFS: Controller Fatal Status, cleared by a reset.
    pub cfs: bool,
    /// SHST: shutdown status; 0 none, [`Csts::SHST_OCCURRING`] or [`Csts::SHST_COMPLETE`].
    #[bits(2)]
    pub shst: u8,
    /// NSSRO: an NVM Subsystem Reset occurred; write 1 to clear.
    pub nssro: bool,
    #[bits(27)]
    __: u32,
}

impl Csts {
    /// SHST: shutdown in progress.
    pub const SHST_OCCURRING: u8 = 1;
    /// SHST: a shutdown is complete.
    pub const SHST_COMPLETE: u8 = 2;

    /// All bits set: what a read of a removed PCIe device returns. Not a valid value, as CSTS has
    /// reserved bits.
    pub fn is_gone(self) -> bool {
        self.into_bits() == u32::MAX
    }
}

/// AQA, Admin Queue Attributes (Base §3.1.4.8). Both sizes are 0's based; see [`Aqa::of`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// ASQS: admin submission queue entries, 0's based.
    #[bits(12)]
    pub asqs: u16,
    #[bits(4)]
    __: u8,
    /// ACQS: admin completion queue entries, 0's based.
    #[bits(12)]
    pub acqs: u16,
    #[bits(4)]
    __: u8,
}

impl Aqa {
    /// Maximum number of entries of an admin queue.
    pub const MAX_ENTRIES: u32 = 4096;

    /// The register value for queues of these numbers of entries, each clamped to 2 … 4096.
    pub fn of(sq_entries: u32, cq_entries: u32) -> Aqa {
        let zeroes_based = |n: u32| (n.clamp(2, Aqa::MAX_ENTRIES) - 1) as u16;
        Aqa::new().with_asqs(zeroes_based(sq_entries)).with_acqs(zeroes_based(cq_entries))
    }

    /// Entries of the admin submission queue: 1 to 4096 (1 is illegal; the controller checks).
    pub fn sq_entries(self) -> u32 {
        u32::from(self.asqs()) + 1
    }

    /// Entries of the admin completion queue.
    pub fn cq_entries(self) -> u32 {
        u32::from(self.acqs()) + 1
    }
}

/// CRTO, Controller Ready Timeouts (Base §3.1.4.21). Valid if CAP.CRMS is not zero.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Crto {
    /// CRWMT: time-out until the controller is ready and its media are, in units of 500 ms.
    pub crwmt: u16,
    __: u16,
}

#[cfg(test)]
mod tests;
