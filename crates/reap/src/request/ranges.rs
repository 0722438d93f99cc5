//! Checks of requests other than Read and Write, and the list of ranges of a Deallocate.

use hw::{DmaBuf, DmaPool};
use nvme::Lba;
use nvme::io::Range;
use units::Op;

use crate::error::Refused;
use crate::namespace::Namespace;

/// A request other than Read and Write.
pub(super) struct Dataless {
    pub op: Op,
    pub namespace: Namespace,
    pub lba: u64,
    pub bytes: u64,
    /// For a Deallocate: the buffer holds a list of ranges that the caller has made.
    pub listed: bool,
}

impl Dataless {
    /// Checks the request and returns its buffer. For a Deallocate this is a buffer with its list
    /// of ranges: `carried`, if the list fits, or a buffer from `pool`.
    #[cold]
    #[inline(never)]
    pub(super) fn check(
        self,
        carried: Option<DmaBuf>,
        pool: &DmaPool,
    ) -> (Result<(), Refused>, Option<DmaBuf>) {
        if self.op == Op::Flush {
            // A Flush has no length: the request table would split it by its bytes.
            let refused =
                Refused::FlushOfBytes { bytes: self.bytes.try_into().unwrap_or(u32::MAX) };
            return (if self.bytes == 0 { Ok(()) } else { Err(refused) }, carried);
        }
        if self.op == Op::Compare {
            return (self.check_compare(carried.as_ref()), carried);
        }
        if self.listed {
            return (self.check_list(carried.as_ref(), pool), carried);
        }
        let (blocks, most) = match self.check_range(&carried, pool) {
            Ok(both) => both,
            Err(why) => return (Err(why), carried),
        };
        if self.op != Op::Deallocate {
            return (Ok(()), carried);
        }
        let bytes = blocks.div_ceil(most) as usize * Range::LEN;
        let mut list = match carried {
            Some(carried) if carried.len() >= bytes => carried,
            carried => match pool.alloc(bytes) {
                Ok(list) => list,
                Err(_) => return (Err(Refused::NoRoom { bytes }), carried),
            },
        };
        self.list_ranges(&mut list[..bytes], blocks, most);
        (Ok(()), Some(list))
    }

    /// Checks a Compare as a Write of its buffer.
    fn check_compare(&self, buf: Option<&DmaBuf>) -> Result<(), Refused> {
        let splitter = self.namespace.splitter();
        let (size, blocks, buffer) =
            (splitter.block_size(), self.namespace.blocks(), buf.map_or(0, |buf| buf.len()));
        if splitter.max_optional_blocks(self.op).is_none() {
            return Err(Refused::Unsupported { op: self.op, nsid: self.namespace.nsid().0 });
        }
        let count = self.bytes / size;
        if count * size != self.bytes || count == 0 || self.bytes > buffer as u64 {
            return Err(Refused::Length {
                bytes: self.bytes.try_into().unwrap_or(u32::MAX),
                block: size as u32,
                buffer,
            });
        }
        if count > blocks || self.lba > blocks - count {
            return Err(Refused::OutOfRange {
                lba: self.lba,
                end: self.lba.saturating_add(count),
                blocks,
            });
        }
        Ok(())
    }

    /// Checks a list that the caller has made: its ranges lie in the namespace, and one command may
    /// have that many.
    fn check_list(&self, buf: Option<&DmaBuf>, pool: &DmaPool) -> Result<(), Refused> {
        let (splitter, blocks) = (self.namespace.splitter(), self.namespace.blocks());
        let unsupported = Refused::Unsupported { op: self.op, nsid: self.namespace.nsid().0 };
        let most = splitter.max_optional_blocks(self.op).ok_or(unsupported)?;
        let count = self.bytes / splitter.block_size();
        // The buffer may be too short for the list: ranges beyond its end do not exist.
        let list = buf.map_or(&[][..], |buf| buf.as_chunks().0);
        let max_ranges = splitter.max_ranges().min(list.len() as u32);
        let list = list.get(..count as usize).filter(|_| count <= u64::from(max_ranges));
        let list = list.ok_or(Refused::TooManyRanges { ranges: count, most: max_ranges })?;
        if buf.is_some_and(|buf| !buf.is_of(pool.key())) {
            return Err(Refused::ForeignBuffer);
        }
        let ranges = || list.iter().map(|range| Range::from_bytes(*range));
        if count == 0 || ranges().any(|range| range.blocks == 0) {
            return Err(Refused::NoBlocks);
        }
        if let Some(range) = ranges().find(|range| !range.fits(blocks)) {
            return Err(Refused::OutOfRange {
                lba: range.lba,
                end: range.lba.saturating_add(range.blocks.into()),
                blocks,
            });
        }
        let all = ranges().map(|range| u64::from(range.blocks)).sum();
        if all > u64::from(most) { Err(Refused::TooLong { blocks: all, most }) } else { Ok(()) }
    }

    /// Checks the range. Returns the number of blocks, and the maximum number of blocks of one
    /// part.
    fn check_range(&self, carried: &Option<DmaBuf>, pool: &DmaPool) -> Result<(u32, u32), Refused> {
        let (splitter, lba) = (self.namespace.splitter(), self.lba);
        let unsupported = Refused::Unsupported { op: self.op, nsid: self.namespace.nsid().0 };
        let most = splitter.max_optional_blocks(self.op).ok_or(unsupported)?;
        let (blocks, size) = (self.namespace.blocks(), splitter.block_size());
        let count = self.bytes / size;
        if count > blocks || lba > blocks - count {
            return Err(Refused::OutOfRange { lba, end: lba.saturating_add(count), blocks });
        }
        if count == 0 {
            return Err(Refused::NoBlocks);
        }
        if count * size != self.bytes {
            let (bytes, buffer) = (
                self.bytes.try_into().unwrap_or(u32::MAX),
                carried.as_ref().map_or(0, |buf| buf.len()),
            );
            return Err(Refused::Length { bytes, block: size as u32, buffer });
        }
        // A `Token` has 32 bits for a part's first block.
        let count =
            u32::try_from(count).map_err(|_| Refused::TooLong { blocks: count, most: u32::MAX })?;
        if carried.as_ref().is_some_and(|buf| !buf.is_of(pool.key())) {
            return Err(Refused::ForeignBuffer);
        }
        Ok((count, most))
    }

    /// Writes the list of `blocks` blocks: one range of at most `most` blocks for each part, in
    /// order.
    fn list_ranges(&self, list: &mut [u8], blocks: u32, most: u32) {
        let mut from = 0;
        for entry_bytes in list.as_chunks_mut().0 {
            let len = most.min(blocks - from);
            *entry_bytes = Range::new(Lba(self.lba + u64::from(from)), len).to_bytes();
            from += len;
        }
    }
}

/// Writes a caller's ranges to `buf`, as many as fit, and clears the rest of the list. A range that
/// ends before it begins, or that is too long for a list entry, becomes an empty range, which is
/// refused later.
pub(super) fn list(ranges: &[std::ops::Range<u64>], buf: &mut DmaBuf) {
    let entry = |range: &std::ops::Range<u64>| {
        let blocks = range.end.saturating_sub(range.start).try_into().unwrap_or(0);
        Range::new(Lba(range.start), blocks)
    };
    let entries = ranges
        .iter()
        .map(entry)
        .chain(std::iter::repeat(Range::default()))
        .take(nvme::io::MAX_RANGES as usize);
    for (entry_bytes, entry) in buf.as_chunks_mut().0.iter_mut().zip(entries) {
        *entry_bytes = entry.to_bytes();
    }
}
