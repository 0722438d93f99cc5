//! Blocks that prove what they are: a header with offset, generation and checksum, and a body that follows from them.
//!
//! Each `interval` bytes that a job writes carry their own header, so a reader needs to know only the interval: whatever
//! was written last over a block, in whatever lengths, each interval can be judged by itself.

use super::io::Io;
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use std::fmt;

/// Marks a block written by Reap: "reapblk" and a version.
const MAGIC: [u8; 8] = *b"reapblk\x01";
/// Bytes of a header: magic, offset, generation, sequence, length, checksum of the body, checksum of the header; all
/// numbers little-endian.
pub const HEADER: usize = 8 + 8 + 8 + 8 + 4 + 4 + 4;

/// What one block is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// Whose writes they are, if known: the writer checks what it wrote itself.
    pub generation: Option<u64>,
    /// Which write of that generation was the last one here, if known.
    pub sequence: Option<u64>,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No header: never written by a verifying job, or the magic is damaged.
    Magic,
    /// The header's own checksum is wrong.
    Header,
    /// A block that belongs elsewhere.
    Offset {
        /// The offset that it says it belongs to.
        found: u64,
    },
    /// Its length is not the verify interval: another job's, or the intervals differ.
    Length {
        /// The length that it says it has.
        found: u32,
    },
    /// Another run's or job's data: the last write to this block was lost.
    Generation {
        /// The generation found.
        found: u64,
    },
    /// An earlier write's data: the last write to this block was lost.
    Sequence {
        /// The write found.
        found: u64,
        /// The write expected.
        wanted: u64,
    },
    /// The body does not have its checksum.
    Checksum {
        /// crc32c of what was read.
        found: u32,
        /// crc32c that the header promises.
        wanted: u32,
    },
    /// The read was shorter than the block.
    Short,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Magic => f.write_str("no verify header (bad magic)"),
            Fault::Header => f.write_str("the verify header's own checksum is wrong"),
            Fault::Offset { found } => write!(f, "the block says that it belongs to offset {found}"),
            Fault::Length { found } => write!(f, "the block says that it has {found} bytes"),
            Fault::Generation { found } => write!(f, "stale data: of another run (generation {found:#x})"),
            Fault::Sequence { found, wanted } => write!(f, "stale data: of write {found}, wanted write {wanted}"),
            Fault::Checksum { found, wanted } => write!(f, "crc32c is {found:#010x}, wanted {wanted:#010x}"),
            Fault::Short => f.write_str("shorter than a verified block"),
        }
    }
}

/// A block that was not what had been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// Index of the job's target.
    pub target: u16,
    /// Where the block starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for BadBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verify: at offset {}, length {}: {}", self.offset, self.len, self.fault)
    }
}

/// Writes headers and bodies over `buf`, the data of `io`, one per `interval` bytes.
pub(super) fn fill(io: &Io, interval: u32, generation: u64, sequence: u64, buf: &mut [u8]) {
    let mut offset = io.offset;
    for block in buf.chunks_mut(interval.max(1) as usize) {
        let Some((header, body)) = block.split_at_mut_checked(HEADER) else { return };
        SplitMix64::seed_from_u64(generation ^ sequence.rotate_left(32) ^ offset).fill_bytes(body);
        let crc = crc32c::crc32c(body);
        let len = (HEADER + body.len()) as u32;
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&offset.to_le_bytes());
        put(&generation.to_le_bytes());
        put(&sequence.to_le_bytes());
        put(&len.to_le_bytes());
        put(&crc.to_le_bytes());
        let own = crc32c::crc32c(&header[..HEADER - 4]);
        header[HEADER - 4..].copy_from_slice(&own.to_le_bytes());
        offset += u64::from(interval);
    }
}

/// Checks each interval of `buf`, the data of the read `io`; tells `bad` of each that is wrong.
pub(super) fn check(io: &Io, interval: u32, expected: Expected, buf: &[u8], mut bad: impl FnMut(BadBlock)) {
    let mut offset = io.offset;
    for block in buf.chunks(interval.max(1) as usize) {
        if let Err(fault) = check_block(block, offset, interval, expected) {
            bad(BadBlock { target: io.target, offset, len: block.len() as u32, fault });
        }
        offset += u64::from(interval);
    }
}

fn check_block(block: &[u8], offset: u64, interval: u32, expected: Expected) -> Result<(), Fault> {
    let header = block.get(..HEADER).ok_or(Fault::Short)?;
    let word = |at: usize| header.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let half = |at: usize| header.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    if header[..8] != MAGIC {
        return Err(Fault::Magic);
    }
    if half(HEADER - 4) != crc32c::crc32c(&header[..HEADER - 4]) {
        return Err(Fault::Header);
    }
    if word(8) != offset {
        return Err(Fault::Offset { found: word(8) });
    }
    if half(32) != interval || block.len() != interval as usize {
        return Err(Fault::Length { found: half(32) });
    }
    let crc = crc32c::crc32c(&block[HEADER..]);
    if half(36) != crc {
        return Err(Fault::Checksum { found: crc, wanted: half(36) });
    }
    match expected.generation {
        Some(generation) if generation != word(16) => return Err(Fault::Generation { found: word(16) }),
        _ => {}
    }
    match expected.sequence {
        Some(wanted) if wanted != word(24) => Err(Fault::Sequence { found: word(24), wanted }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
