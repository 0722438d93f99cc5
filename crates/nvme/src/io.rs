//! I/O commands of the NVM command set: Read, Write, Flush, Write Zeroes, Dataset Management,
//! Compare, Verify, Write Uncorrectable. Built by the host, decoded by the controller.

use std::ops::BitOr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::prp::Dptr;
use crate::{Lba, Nsid, Sqe, opcode};

/// Maximum number of logical blocks of a command: NLB has 16 bits and is 0's based (NVM §3.3.4,
/// CDW12).
pub const MAX_BLOCKS: u32 = 65_536;

/// CDW12 modifiers of Read, Write and Write Zeroes (NVM §3.3.4, 3.3.6 and 3.3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// FUA, Force Unit Access: data and metadata are on non-volatile media before the command
    /// completes (CDW12 bit 30).
    pub const FUA: Flags = Flags(1 << 30);
    /// DEAC, of Write Zeroes: the controller may deallocate the blocks if deallocated blocks read
    /// as zeroes (CDW12 bit 25).
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

/// Read `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` (NVM §3.3.4). The queue pair sets
/// the CID.
pub fn read(nsid: Nsid, lba: Lba, blocks: u32, data: Dptr, flags: Flags) -> Sqe {
    transfer(opcode::io::READ, nsid, lba, blocks, data, flags)
}

/// Write `blocks` logical blocks (1 to [`MAX_BLOCKS`]) at `lba` (NVM §3.3.6).
pub fn write(nsid: Nsid, lba: Lba, blocks: u32, data: Dptr, flags: Flags) -> Sqe {
    transfer(opcode::io::WRITE, nsid, lba, blocks, data, flags)
}

/// Write Zeroes to `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` (NVM §3.3.8), without a
/// data transfer.
pub fn write_zeroes(nsid: Nsid, lba: Lba, blocks: u32, flags: Flags) -> Sqe {
    transfer(opcode::io::WRITE_ZEROES, nsid, lba, blocks, Dptr::NONE, flags)
}

/// Compare `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` with `data`; fails with Compare
/// Failure if they differ (NVM §3.3.1).
pub fn compare(nsid: Nsid, lba: Lba, blocks: u32, data: Dptr) -> Sqe {
    transfer(opcode::io::COMPARE, nsid, lba, blocks, data, Flags::NONE)
}

/// Verify `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba`: reads them without a data
/// transfer (NVM §3.3.5).
pub fn verify(nsid: Nsid, lba: Lba, blocks: u32) -> Sqe {
    transfer(opcode::io::VERIFY, nsid, lba, blocks, Dptr::NONE, Flags::NONE)
}

/// Write Uncorrectable: makes `blocks` logical blocks (1 to [`MAX_BLOCKS`]) from `lba` unreadable
/// until they are written again (NVM §3.3.7), without a data transfer.
pub fn write_uncorrectable(nsid: Nsid, lba: Lba, blocks: u32) -> Sqe {
    transfer(opcode::io::WRITE_UNCORRECTABLE, nsid, lba, blocks, Dptr::NONE, Flags::NONE)
}

/// Flush: makes the completed writes to namespace `nsid` durable (Base §7.2). [`Nsid::ALL`] means
/// all namespaces, if the controller supports it ([`crate::identify::VolatileCache::flush_all`]).
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
        // NLB is 0's based. The mask keeps a length out of range from setting other fields, which
        // in a release build is not asserted.
        cdw12: blocks.wrapping_sub(1) & 0xffff | flags.0,
        ..Sqe::default()
    }
}

/// Decoded fields of Read, Write, Write Zeroes, Write Uncorrectable, Compare or Verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// SLBA: the first logical block.
    pub lba: Lba,
    /// NLB + 1: logical blocks, 1 to [`MAX_BLOCKS`].
    pub blocks: u32,
    /// FUA and LR; for Write Zeroes see [`Transfer::deallocates`].
    pub flags: Flags,
    /// PRINFO: protection information action and checks (CDW12 bits 29:26). Must be 0 for a
    /// namespace without protection information.
    pub prinfo: u8,
}

impl Transfer {
    /// Decodes the command. For NSID and data pointer use [`Sqe::nsid`] and [`Sqe::dptr`].
    pub fn from_sqe(sqe: &Sqe) -> Transfer {
        Transfer {
            lba: Lba(u64::from(sqe.cdw10) | u64::from(sqe.cdw11) << 32),
            // NLB is 0's based.
            blocks: (sqe.cdw12 & 0xffff) + 1,
            flags: Flags(sqe.cdw12 & 3 << 30),
            prinfo: (sqe.cdw12 >> 26 & 0xf) as u8,
        }
    }

    /// Whether Write Zeroes requests deallocation (DEAC). The bit has another meaning in other
    /// commands.
    pub fn deallocates(sqe: &Sqe) -> bool {
        Flags(sqe.cdw12).contains(Flags::DEALLOCATE)
    }

    /// Whether all blocks lie in a namespace of `blocks_in_namespace` blocks. Does not overflow for
    /// any SLBA.
    pub fn fits(&self, blocks_in_namespace: u64) -> bool {
        blocks_in_namespace
            // By subtraction: SLBA + NLB may exceed 64 bits.
            .checked_sub(u64::from(self.blocks))
            .is_some_and(|last_start| self.lba.0 <= last_start)
    }
}

/// A range of Dataset Management: 16 bytes (NVM §3.3.3, figure "Dataset Management: Range
/// Definition").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Range {
    /// Bytes 3:0, context attributes: hints about how the range is used.
    pub context: u32,
    /// Bytes 7:4, length in logical blocks. Not 0's based: 0 means no block.
    pub blocks: u32,
    /// Bytes 15:8, starting LBA.
    pub lba: u64,
}

impl Range {
    /// Bytes of a range.
    pub const LEN: usize = 16;

    /// `blocks` logical blocks from `lba`, without context attributes.
    pub fn new(lba: Lba, blocks: u32) -> Range {
        Range { context: 0, blocks, lba: lba.0 }
    }

    /// Encodes the range.
    pub fn to_bytes(self) -> [u8; Range::LEN] {
        zerocopy::transmute!(self)
    }

    /// Decodes a range. Every bit pattern is valid.
    pub fn from_bytes(bytes: [u8; Range::LEN]) -> Range {
        zerocopy::transmute!(bytes)
    }

    /// Whether the range lies in a namespace of `blocks_in_namespace` blocks. An empty range always
    /// does. Does not overflow for any starting LBA.
    pub fn fits(&self, blocks_in_namespace: u64) -> bool {
        self.blocks == 0
            || blocks_in_namespace
                .checked_sub(self.blocks.into())
                .is_some_and(|last_start| self.lba <= last_start)
    }
}

/// Maximum number of ranges of a command: NR has 8 bits and is 0's based (NVM §3.3.3, CDW10).
pub const MAX_RANGES: u32 = 256;

/// CDW11.AD, Attribute – Deallocate: hints that the contents of the ranges are no longer needed
/// (TRIM).
const DEALLOCATE: u32 = 1 << 2;

/// Deallocate `ranges` ranges (1 to [`MAX_RANGES`]), which are an array at `data`, [`Range::LEN`]
/// bytes each (NVM §3.3.3, CDW11.AD).
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

/// Decoded fields of Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// NR + 1: number of ranges, 1 to [`MAX_RANGES`].
    pub ranges: u32,
    /// AD. The other attributes are hints that a controller may ignore.
    pub deallocate: bool,
}

impl DatasetManagement {
    /// Decodes the command. For NSID and the pointer to the ranges use [`Sqe::nsid`] and
    /// [`Sqe::dptr`].
    pub fn from_sqe(sqe: &Sqe) -> DatasetManagement {
        DatasetManagement {
            // NR is 0's based.
            ranges: (sqe.cdw10 & 0xff) + 1,
            deallocate: sqe.cdw11 & DEALLOCATE != 0,
        }
    }

    /// Bytes of the array of ranges, at most 4096.
    pub fn bytes(&self) -> usize {
        self.ranges as usize * Range::LEN
    }
}

#[cfg(test)]
mod tests;
