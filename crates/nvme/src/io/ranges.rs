//! Dataset Management: a list of ranges and what is to become of them (NVM 3.3.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::prp::Dptr;
use crate::{Lba, Nsid, Sqe, opcode};

/// One range of a Dataset Management command: 16 bytes of host memory (NVM 3.3.3, figure "Dataset Management: Range Definition").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
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

    /// Whether all of it lies in a namespace of `blocks_in_namespace`. No overflow for any range; one of no blocks lies anywhere.
    pub fn fits(&self, blocks_in_namespace: u64) -> bool {
        self.blocks == 0 || blocks_in_namespace.checked_sub(self.blocks.into()).is_some_and(|last| self.lba <= last)
    }
}

/// The most ranges of one command: NR has 8 bits and is 0's based (NVM 3.3.3, CDW10).
pub const MAX_RANGES: u32 = 256;

/// CDW11.AD, Attribute – Deallocate: nobody needs what the ranges hold.
const DEALLOCATE: u32 = 1 << 2;

/// Deallocate `ranges` ranges (1 to [`MAX_RANGES`]), which lie one after another at `data`, [`Range::LEN`] bytes each
/// (NVM 3.3.3, CDW11.AD).
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
    /// Decodes the command. Namespace and the pointer to the ranges are [`Sqe::nsid`] and [`Sqe::dptr`].
    pub fn from_sqe(sqe: &Sqe) -> DatasetManagement {
        DatasetManagement { ranges: (sqe.cdw10 & 0xff) + 1, deallocate: sqe.cdw11 & DEALLOCATE != 0 }
    }

    /// Bytes of the list of ranges, at most a page.
    pub fn bytes(&self) -> usize {
        self.ranges as usize * Range::LEN
    }
}
