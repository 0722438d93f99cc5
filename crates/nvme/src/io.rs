//! I/O commands of the NVM command set: Read, Write, Flush, Write Zeroes, Dataset Management,
//! Compare, Verify, Write Uncorrectable. The host builds, the controller decodes.

use std::ops::BitOr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::prp::Dptr;
use crate::{Lba, Nsid, Sqe, opcode};

/// The most logical blocks in one command: NLB has 16 bits and is 0's based (NVM 3.3.4, CDW12).
pub const MAX_BLOCKS: u32 = 65_536;

/// CDW12 modifiers of Read, Write and Write Zeroes (NVM 3.3.4, 3.3.6 and 3.3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// FUA, Force Unit Access: data and metadata are on the medium before the command completes
    /// (CDW12 bit 30).
    pub const FUA: Flags = Flags(1 << 30);
    /// DEAC, of a Write Zeroes: the controller may deallocate the blocks, where those read as
    /// zeroes (CDW12 bit 25).
    pub const DEALLOCATE: Flags = Flags(1 << 25);

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, rhs: Flags) -> Flags {
        Flags(self.0 | rhs.0)
    }
}

/// Read `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` (NVM 3.3.4). The CID is the queue
/// pair's to fill in.
pub fn read(nsid: Nsid, lba: Lba, blocks: u32, data: Dptr, flags: Flags) -> Sqe {
    transfer(opcode::io::READ, nsid, lba, blocks, data, flags)
}

/// Write `blocks` logical blocks (1 to [`MAX_BLOCKS`]) at `lba` (NVM 3.3.6).
pub fn write(nsid: Nsid, lba: Lba, blocks: u32, data: Dptr, flags: Flags) -> Sqe {
    transfer(opcode::io::WRITE, nsid, lba, blocks, data, flags)
}

/// Make `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` on read as zeroes (NVM 3.3.8). No
/// data move.
pub fn write_zeroes(nsid: Nsid, lba: Lba, blocks: u32, flags: Flags) -> Sqe {
    transfer(opcode::io::WRITE_ZEROES, nsid, lba, blocks, Dptr::NONE, flags)
}

/// Compare `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` on with `data`; Compare Failure
/// if they differ (NVM 3.3.1).
pub fn compare(nsid: Nsid, lba: Lba, blocks: u32, data: Dptr) -> Sqe {
    transfer(opcode::io::COMPARE, nsid, lba, blocks, data, Flags::NONE)
}

/// Make sure that `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` on can be read (NVM
/// 3.3.5). No data move.
pub fn verify(nsid: Nsid, lba: Lba, blocks: u32) -> Sqe {
    transfer(opcode::io::VERIFY, nsid, lba, blocks, Dptr::NONE, Flags::NONE)
}

/// Make `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` on unreadable until they are
/// written again (NVM 3.3.7). No data move.
pub fn write_uncorrectable(nsid: Nsid, lba: Lba, blocks: u32) -> Sqe {
    transfer(opcode::io::WRITE_UNCORRECTABLE, nsid, lba, blocks, Dptr::NONE, Flags::NONE)
}

/// Make every write that completed before durable; `Nsid::ALL` where the controller allows it (Base
/// 7.2).
pub fn flush(nsid: Nsid) -> Sqe {
    Sqe { opcode: opcode::io::FLUSH, nsid: nsid.0, ..Sqe::default() }
}
fn transfer(opcode: u8, nsid: Nsid, lba: Lba, blocks: u32, data: Dptr, flags: Flags) -> Sqe {
    debug_assert!((1..=MAX_BLOCKS).contains(&blocks));
    Sqe {
        opcode,
        nsid: nsid.0,
        prp1: data.prp1,
        prp2: data.prp2,
        cdw10: lba.0 as u32,
        cdw11: (lba.0 >> 32) as u32,
        cdw12: blocks.wrapping_sub(1) & 0xffff | flags.0,
        ..Sqe::default()
    }
}

/// A Read, a Write, a Write Zeroes, a Write Uncorrectable, a Compare or a Verify as the controller
/// sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// SLBA: the first logical block.
    pub lba: Lba,
    /// NLB + 1: logical blocks, 1 to [`MAX_BLOCKS`].
    pub blocks: u32,
    /// FUA and LR; of a Write Zeroes, see [`Transfer::deallocates`].
    pub flags: Flags,
    /// PRINFO: protection information action and checks (CDW12 bits 29:26). Nonzero asks for what a
    /// namespace without protection information does not have.
    pub prinfo: u8,
}

impl Transfer {
    /// Decodes one of them. Namespace and data pointer are [`Sqe::nsid`] and [`Sqe::dptr`].
    pub fn from_sqe(sqe: &Sqe) -> Transfer {
        Transfer {
            lba: Lba(u64::from(sqe.cdw10) | u64::from(sqe.cdw11) << 32),
            blocks: (sqe.cdw12 & 0xffff) + 1,
            flags: Flags(sqe.cdw12 & 3 << 30),
            prinfo: (sqe.cdw12 >> 26 & 0xf) as u8,
        }
    }

    /// Whether a Write Zeroes asks for its blocks to be deallocated (DEAC). In other commands the
    /// bit belongs to something else.
    pub fn deallocates(sqe: &Sqe) -> bool {
        Flags(sqe.cdw12).contains(Flags::DEALLOCATE)
    }

    /// Whether all the blocks lie in a namespace of `blocks_in_namespace`. No overflow for any
    /// SLBA.
    pub fn fits(&self, blocks_in_namespace: u64) -> bool {
        blocks_in_namespace
            .checked_sub(u64::from(self.blocks))
            .is_some_and(|last| self.lba.0 <= last)
    }
}

/// One range of a Dataset Management command: 16 bytes of host memory (NVM 3.3.3, figure "Dataset
/// Management: Range Definition").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Range {
    /// Context attributes, 3:0: hints about how the range is used.
    pub context: u32,
    /// Length in logical blocks, 7:4. Not 0's based: 0 is no block.
    pub blocks: u32,
    /// Starting LBA, 15:8.
    pub lba: u64,
}

impl Range {
    /// Bytes of a range.
    pub const LEN: usize = 16;

    /// `blocks` logical blocks from `lba` on, of which nothing else is said.
    pub fn new(lba: Lba, blocks: u32) -> Range {
        Range { context: 0, blocks, lba: lba.0 }
    }

    /// As it lies in memory.
    pub fn to_bytes(self) -> [u8; Range::LEN] {
        zerocopy::transmute!(self)
    }

    /// As it was read from memory. Every pattern of bits is a range.
    pub fn from_bytes(bytes: [u8; Range::LEN]) -> Range {
        zerocopy::transmute!(bytes)
    }

    /// Whether all of it lies in a namespace of `blocks_in_namespace`. No overflow for any range;
    /// one of no blocks lies anywhere.
    pub fn fits(&self, blocks_in_namespace: u64) -> bool {
        self.blocks == 0
            || blocks_in_namespace
                .checked_sub(self.blocks.into())
                .is_some_and(|last| self.lba <= last)
    }
}

/// The most ranges of one command: NR has 8 bits and is 0's based (NVM 3.3.3, CDW10).
pub const MAX_RANGES: u32 = 256;

/// CDW11.AD, Attribute – Deallocate: hints that the ranges' contents are no longer needed (TRIM).
const DEALLOCATE: u32 = 1 << 2;

/// Deallocate `ranges` ranges (1 to [`MAX_RANGES`]), which lie one after another at `data`,
/// [`Range::LEN`] bytes each (NVM 3.3.3, CDW11.AD).
pub fn deallocate(nsid: Nsid, ranges: u32, data: Dptr) -> Sqe {
    debug_assert!((1..=MAX_RANGES).contains(&ranges));
    Sqe {
        opcode: opcode::io::DATASET_MANAGEMENT,
        nsid: nsid.0,
        cdw10: ranges.wrapping_sub(1) & 0xff,
        cdw11: DEALLOCATE,
        ..Sqe::with_data(data)
    }
}

/// A Dataset Management command as the controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// NR + 1: how many ranges there are, 1 to [`MAX_RANGES`].
    pub ranges: u32,
    /// AD. The other attributes are hints that a controller need not follow.
    pub deallocate: bool,
}

impl DatasetManagement {
    /// Decodes the command. Namespace and the pointer to the ranges are [`Sqe::nsid`] and
    /// [`Sqe::dptr`].
    pub fn from_sqe(sqe: &Sqe) -> DatasetManagement {
        DatasetManagement {
            ranges: (sqe.cdw10 & 0xff) + 1,
            deallocate: sqe.cdw11 & DEALLOCATE != 0,
        }
    }

    /// Bytes of the list of ranges, at most a page.
    pub fn bytes(&self) -> usize {
        self.ranges as usize * Range::LEN
    }
}

#[cfg(test)]
mod tests;
