//! fio's header of a verified block, as fio 3.33 lays it out: 40 bytes, little-endian.
//!
//! | byte | what |
//! | --- | --- |
//! | 0 | magic, 0xacca |
//! | 2 | kind of verification |
//! | 4 | bytes of the block, header included |
//! | 8 | seed of the data |
//! | 16 | offset of the block |
//! | 24 | seconds, and nanoseconds from byte 28 on |
//! | 32 | thread that wrote |
//! | 34 | number of the write |
//! | 36 | CRC-32C of the bytes before, not inverted at the end |

use crate::job::VerifyKind;
use units::Nanos;

/// Bytes of a header; the kind's own digest follows.
pub(super) const HEADER: usize = 40;
/// What a header begins with.
const MAGIC: u16 = 0xacca;

/// A header, its magic and its checksum aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// fio's number of the kind.
    pub kind: u16,
    pub len: u32,
    pub seed: u64,
    pub offset: u64,
    pub time: Nanos,
    pub thread: u16,
    pub number: u16,
}

/// fio's number of `kind`.
pub(super) fn number_of(kind: VerifyKind) -> u16 {
    match kind {
        VerifyKind::Md5 => 2,
        VerifyKind::Crc32c => 5,
        VerifyKind::Sha256 => 9,
        VerifyKind::XxHash => 15,
        VerifyKind::PatternHeader => 17,
        VerifyKind::Pattern => 18,
        VerifyKind::Null => 19,
    }
}

/// CRC-32C as fio has it: without the inversion at the end.
pub(super) fn crc32c_of(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let (seconds, nanos) = (self.time.0 / 1_000_000_000, self.time.0 % 1_000_000_000);
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seed.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&(seconds as u32).to_le_bytes());
        bytes[28..32].copy_from_slice(&(nanos as u32).to_le_bytes());
        bytes[32..34].copy_from_slice(&self.thread.to_le_bytes());
        bytes[34..36].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32c_of(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header that `bytes` are.
    ///
    /// # Errors
    /// The magic or the checksum is wrong.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, String> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if half(0) != MAGIC {
            return Err(format!("no verify header (bad magic {:#06x}, wanted {MAGIC:#06x})", half(0)));
        }
        let has = crc32c_of(&bytes[..36]);
        if word(36) != has {
            return Err(format!("the verify header's own checksum is wrong: crc32c is {has:#010x}, wanted {:#010x}", word(36)));
        }
        let time = Nanos(u64::from(word(24)) * 1_000_000_000 + u64::from(word(28)));
        Ok(Header { kind: half(2), len: word(4), seed: long(8), offset: long(16), time, thread: half(32), number: half(34) })
    }
}
