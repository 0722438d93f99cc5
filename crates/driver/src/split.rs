//! Splits a request into commands: by the controller's transfer limit (MDTS), and at multiples of a
//! boundary that commands had better not cross (NOIOB). Linux does the same in the block layer
//! (`max_sectors`, `chunk_sectors`).

use units::Op;

/// The limits by which requests to one namespace are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splitter(
    /// One word, because every request carries a copy:
    ///
    /// | bits | content |
    /// | --- | --- |
    /// | 15:0 | maximum blocks of a part, minus 1, as NLB counts |
    /// | 23:16 | log2 of the block size |
    /// | 27:24 | log2 of the maximum blocks of a Write Zeroes; 0: not supported |
    /// | 31:28 | log4 of the maximum blocks of a Deallocate; 0: not supported |
    /// | 36:32 | log2 of the maximum blocks of a Verify, plus 1; 0: not supported |
    /// | 37 | Compare is supported |
    /// | 42:38 | log2 of the maximum blocks of a Write Uncorrectable, plus 1; 0: not supported |
    /// | 46:43 | log2 of the maximum ranges of a Deallocate |
    /// | 63:47 | the boundary in blocks; 0: none; or [`NO_FAST_PATH`] |
    u64,
);

/// Stored in place of a boundary, which has 16 bits: [`Splitter::fits_one`] has to return false, so
/// that the request does not take the fast path of reads and writes. `fits_one` tests for a
/// boundary of 0 anyway, so the flag costs reads and writes nothing.
const NO_FAST_PATH: u32 = 1 << 16;

/// Lowest bit of the boundary.
const BOUNDARY: u32 = 47;

/// Lowest bit and mask of the maximum blocks of a Verify.
const VERIFY: (u32, u64) = (32, 0x1f);

/// Lowest bit and mask of the maximum blocks of a Write Uncorrectable.
const UNCORRECTABLE: (u32, u64) = (38, 0x1f);

/// Lowest bit and mask of the maximum ranges of a Deallocate.
const RANGES: (u32, u64) = (43, 0xf);

/// Compare is supported.
const COMPARE: u64 = 1 << 37;

/// One command's share of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First logical block.
    pub lba: u64,
    /// Logical blocks, 1 to 65,536 (the command's NLB is one less).
    pub blocks: u32,
    /// Offset of its data in the request's buffer, in bytes.
    pub offset: u64,
}

/// Iterator over the parts of a request, in order. It does not allocate.
#[derive(Clone, Debug)]
pub struct Split {
    splitter: Splitter,
    lba: u64,
    left: u32,
    offset: u64,
}

/// A request that cannot be split, or limits that allow no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Offset or length is not a multiple of the logical block size.
    #[error(
        "offset {offset} and length {len} have to be multiples of the logical block size, {block} bytes"
    )]
    Unaligned {
        /// Byte offset on the namespace.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of a logical block.
        block: u64,
    },
    /// Nothing to transfer.
    #[error("a request of 0 bytes at offset {offset}: the minimum is one logical block")]
    Empty {
        /// Byte offset on the namespace.
        offset: u64,
    },
    /// Past the end of the namespace, or more than 2^32 - 1 blocks.
    #[error(
        "{len} bytes at offset {offset} do not lie within the namespace of {capacity} bytes, or are more than 2^32 - 1 logical blocks"
    )]
    OutOfRange {
        /// Byte offset on the namespace.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the namespace.
        capacity: u64,
    },
    /// The transfer limit is less than one block.
    #[error(
        "the controller transfers at most {max_bytes} bytes per command, less than one logical block of {block}"
    )]
    NoBlockFits {
        /// Maximum bytes per command.
        max_bytes: u64,
        /// Bytes of a logical block.
        block: u64,
    },
}

/// Parts of one block of 512 bytes, which every controller accepts.
impl Default for Splitter {
    fn default() -> Splitter {
        Splitter(9 << 16)
    }
}

impl Splitter {
    /// Parts of at most `max_bytes` bytes (MDTS, or less) and 65,536 blocks (NLB, NVM 3.3.4) that
    /// do not cross a multiple of `boundary` blocks (NOIOB, NVM 4.1.5.1, 16 bits; 0 or a larger
    /// value: none). Logical blocks have 2^`block_log2` bytes (LBADS).
    pub fn new(block_log2: u8, max_bytes: u64, boundary: u32) -> Result<Splitter, SplitError> {
        // This is a public constructor: LBADS may be out of range.
        let block = 1u64.checked_shl(block_log2.into()).unwrap_or(u64::MAX);
        match (max_bytes / block).min(65_536) as u32 {
            // A block larger than MDTS: reported by the device, so no panic.
            0 => Err(SplitError::NoBlockFits { max_bytes, block }),
            max_blocks => Ok(Splitter(
                u64::from(u16::try_from(boundary).unwrap_or(0)) << BOUNDARY
                    | u64::from(block_log2) << 16
                    | u64::from(max_blocks - 1),
            )),
        }
    }

    /// Sets the maximum blocks of a Write Zeroes and of a Deallocate; `None`: not supported. The
    /// limits are rounded down: that of Write Zeroes to a power of 2, at most 2^15; that of
    /// Deallocate to a power of 4, at most 4^15. A limit below 2 for Write Zeroes or below 4 for
    /// Deallocate counts as not supported.
    pub fn with_dataless(self, zeroes: Option<u64>, deallocate: Option<u64>) -> Splitter {
        let log2 = |max: Option<u64>| max.and_then(u64::checked_ilog2).unwrap_or(0).into();
        let (zeroes, deallocate): (u64, u64) = (log2(zeroes), log2(deallocate));
        Splitter(self.0 & !(0xff << 24) | zeroes.min(15) << 24 | (deallocate / 2).min(15) << 28)
    }

    /// Sets whether Compare is supported, with parts as large as those of a Read, and the maximum
    /// blocks of a Verify; `None`: not supported. The limit is rounded down to a power of 2, at
    /// most 2^16.
    #[must_use]
    pub fn with_checks(self, compare: bool, verify: Option<u64>) -> Splitter {
        let Splitter(rest) = self.with_power(VERIFY, verify);
        Splitter(rest & !COMPARE | if compare { COMPARE } else { 0 })
    }

    /// Sets the maximum blocks of a Write Uncorrectable; `None`: not supported. The limit is
    /// rounded down to a power of 2, at most 2^16.
    #[must_use]
    pub fn with_uncorrectable(self, max: Option<u64>) -> Splitter {
        self.with_power(UNCORRECTABLE, max)
    }

    /// Sets the maximum ranges of a Deallocate, rounded down to a power of 2 from 1 to 256.
    #[must_use]
    pub fn with_ranges(self, max: u32) -> Splitter {
        let (at, bits) = RANGES;
        Splitter(self.0 & !(bits << at) | u64::from(max.clamp(1, 256).ilog2()) << at)
    }

    /// Maximum ranges of one Deallocate. Meaningless if `max_optional_blocks` says that Deallocate
    /// is not supported.
    pub fn max_ranges(&self) -> u32 {
        1 << (self.0 >> RANGES.0 & RANGES.1)
    }

    /// Stores the log2 of a limit, plus 1, so that 0 means "not supported".
    fn with_power(self, (at, bits): (u32, u64), max: Option<u64>) -> Splitter {
        let power = max.and_then(u64::checked_ilog2).map_or(0, |log2| u64::from(log2.min(16)) + 1);
        Splitter(self.0 & !(bits << at) | power << at)
    }

    fn power(&self, (at, bits): (u32, u64)) -> Option<u32> {
        (self.0 >> at & bits).checked_sub(1).map(|log2| 1 << log2)
    }

    /// Maximum blocks of one command of an optional operation. `None`: the operation is not
    /// supported. Always `None` for Flush, and for Read and Write, whose limit is
    /// [`Splitter::max_blocks`].
    pub fn max_optional_blocks(&self, op: Op) -> Option<u32> {
        let log2 = match op {
            Op::WriteZeroes => self.0 >> 24 & 15,
            Op::Deallocate => 2 * (self.0 >> 28 & 15),
            Op::Verify => return self.power(VERIFY),
            Op::WriteUncorrectable => return self.power(UNCORRECTABLE),
            Op::Compare => return (self.0 & COMPARE != 0).then(|| self.max_blocks()),
            Op::Read | Op::Write | Op::Flush => 0,
        };
        (log2 > 0).then(|| 1 << log2)
    }

    /// The limits for requests of operation `op`. Requests other than Read and Write ignore the
    /// boundary, and do not take the fast path. For a Deallocate use
    /// [`Splitter::max_optional_blocks`] instead: its parts may exceed 65,536 blocks.
    #[must_use]
    pub fn of(self, op: Op) -> Splitter {
        if op.transfers_blocks() {
            return self;
        }
        // The field for blocks per part holds 1 to 65,536.
        let max = self.max_optional_blocks(op).unwrap_or(1).min(65_536);
        Splitter(
            self.0 & ((1 << BOUNDARY) - 0x1_0000)
                | u64::from(max - 1)
                | u64::from(NO_FAST_PATH) << BOUNDARY,
        )
    }

    /// Makes [`Splitter::fits_one`] always return false, so that reads and writes do not take the
    /// fast path. Parts stay as large as before, except that the boundary is ignored.
    #[must_use]
    pub fn without_fast_path(self) -> Splitter {
        Splitter(self.0 & ((1 << BOUNDARY) - 1) | u64::from(NO_FAST_PATH) << BOUNDARY)
    }

    /// Restricts the optional operations to those that `other` supports too, with the lower of the
    /// two limits, for requests that may go to either namespace. Block size, blocks per part and
    /// boundary stay.
    #[must_use]
    pub fn and_optional(self, other: Splitter) -> Splitter {
        let lower =
            |shift: u32, bits: u64| (self.0 >> shift & bits).min(other.0 >> shift & bits) << shift;
        let powers = [VERIFY, UNCORRECTABLE, RANGES];
        // The minimum works on the packed fields: all are logarithms, and 0 is "not supported".
        let rest = powers
            .iter()
            .fold(self.0 & !(0xff << 24 | COMPARE), |rest, (at, bits)| rest & !(bits << at));
        let powers = powers.iter().fold(0, |all, &(at, bits)| all | lower(at, bits));
        Splitter(rest | lower(24, 15) | lower(28, 15) | powers | self.0 & other.0 & COMPARE)
    }

    /// log2 of the bytes of a logical block.
    #[inline]
    pub fn block_log2(&self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// Bytes of a logical block.
    #[inline]
    pub fn block_size(&self) -> u64 {
        1 << self.block_log2()
    }

    /// Boundary in blocks; 0: none.
    #[inline]
    fn boundary(&self) -> u32 {
        (self.0 >> BOUNDARY) as u32
    }

    /// Maximum logical blocks of a part.
    #[inline]
    pub fn max_blocks(&self) -> u32 {
        u32::from(self.0 as u16) + 1
    }

    /// Splits `len` bytes at byte `offset` of a namespace of `blocks` logical blocks.
    #[inline]
    pub fn split_bytes(&self, offset: u64, len: u64, blocks: u64) -> Result<Split, SplitError> {
        let log2 = self.block_log2();
        // One test for both values: in the one that is not aligned, a bit below the block size is
        // set.
        if (offset | len) & (self.block_size() - 1) != 0 {
            return Err(SplitError::Unaligned { offset, len, block: self.block_size() });
        }
        if len == 0 {
            return Err(SplitError::Empty { offset });
        }
        let lba = offset >> log2;
        match u32::try_from(len >> log2) {
            // `blocks - lba` rather than `lba + count`, which could overflow.
            Ok(count) if lba < blocks && u64::from(count) <= blocks - lba => {
                Ok(self.split(lba, count))
            }
            _ => Err(SplitError::OutOfRange {
                offset,
                len,
                capacity: blocks.saturating_mul(self.block_size()),
            }),
        }
    }

    /// Whether `blocks` logical blocks at `lba` are one part of a Read or Write; true for 0 blocks.
    /// Always false for the result of [`Splitter::of`] for other operations.
    #[inline]
    pub fn fits_one(&self, lba: u64, blocks: u32) -> bool {
        // The usual namespace has no boundary, and the usual request needs no division.
        blocks <= self.max_blocks() && (self.boundary() == 0 || self.is_within(lba, blocks))
    }

    #[inline]
    fn is_within(self, lba: u64, blocks: u32) -> bool {
        self.boundary() != NO_FAST_PATH && self.split(lba, blocks).next_len() == blocks
    }

    /// Splits `blocks` logical blocks at `lba`. The caller has checked that the range is within the
    /// namespace.
    #[inline]
    pub fn split(&self, lba: u64, blocks: u32) -> Split {
        Split { splitter: *self, lba, left: blocks, offset: 0 }
    }
}

impl Split {
    /// Number of parts left.
    #[inline]
    pub fn parts(&self) -> u32 {
        // The usual request needs no division.
        if self.next_len() == self.left {
            return u32::from(self.left > 0);
        }
        self.clone().count() as u32
    }

    #[inline]
    fn next_len(&self) -> u32 {
        let max = self.left.min(self.splitter.max_blocks());
        match self.splitter.boundary() {
            0 | NO_FAST_PATH => max,
            // A mask instead of a division. The low 32 bits of the LBA are enough.
            boundary if boundary.is_power_of_two() => {
                max.min(boundary - (self.lba as u32 & (boundary - 1)))
            }
            boundary => max.min(boundary - (self.lba % u64::from(boundary)) as u32),
        }
    }
}

impl Iterator for Split {
    type Item = Part;

    #[inline]
    fn next(&mut self) -> Option<Part> {
        if self.left == 0 {
            return None;
        }
        let blocks = self.next_len();
        let part = Part { lba: self.lba, blocks, offset: self.offset };
        // Saturating: only a range outside of the namespace could overflow.
        self.lba = self.lba.saturating_add(blocks.into());
        self.offset += u64::from(blocks) << self.splitter.block_log2();
        self.left -= blocks;
        Some(part)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.div_ceil(self.splitter.max_blocks()) as usize, Some(self.left as usize))
    }
}

/// Combines the results of a request's parts. Only the request's owner uses it, so it is not
/// atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<E> {
    left: u32,
    first_error: Option<E>,
}

impl<E> Parts<E> {
    /// A request of `parts` parts.
    pub fn new(parts: u32) -> Parts<E> {
        Parts { left: parts, first_error: None }
    }

    /// One part has completed. After the last part, returns the result of the request: the first
    /// error, if any. Later calls are ignored.
    #[inline]
    pub fn complete(&mut self, result: Result<(), E>) -> Option<Result<(), E>> {
        self.left = self.left.checked_sub(1)?;
        if let Err(error) = result
            && self.first_error.is_none()
        {
            self.first_error = Some(error);
        }
        (self.left == 0).then(|| self.first_error.take().map_or(Ok(()), Err))
    }

    /// Parts that have not completed.
    pub fn left(&self) -> u32 {
        self.left
    }
}

#[cfg(test)]
mod tests;
