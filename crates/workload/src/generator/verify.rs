//! Verified blocks in fio's format (`verify`), so that fio and Reap can check what the other wrote.
//!
//! Each block of `interval` bytes is checked on its own, whatever the length of the I/O that wrote
//! it:
//!
//! ```text
//! │← interval ──────────────────────────────→│← interval ───
//! │ Header │ digest of the data │ data …     │ Header │ …      data: from a seed, or a pattern
//! ```
//!
//! With `verify_offset` header and digest are exchanged with the data at that offset.

use super::Io;
use super::in_flight::Extra;
use super::offsets::JobError;
use crate::job::{FillPattern, Job, VerifyKind};
use md5::Md5;
use md5::digest::Digest as _;
use std::fmt;
use units::Nanos;
use xxhash_rust::xxh32::xxh32;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header, without the digest.
const HEADER: usize = size_of::<Header>();
/// What a header begins with.
const MAGIC: u16 = 0xacca;

/// The header of a verified block: `struct verify_header` of fio 3.33 (verify.h).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct Header {
    magic: U16,
    /// The number of the [`VerifyKind`].
    kind: U16,
    /// Bytes of the block, header included.
    len: U32,
    /// Seed of the data.
    seed: U64,
    /// Offset of the block.
    offset: U64,
    seconds: U32,
    nanos: U32,
    /// Number of the writing thread.
    thread: U16,
    /// Number of the write, modulo 2^16.
    number: U16,
    /// CRC-32C of the bytes before this field, without the final inversion.
    checksum: U32,
}

impl Header {
    /// The checksum of this header.
    fn sum(&self) -> u32 {
        crc32c_of(&self.as_bytes()[..HEADER - size_of::<U32>()])
    }
}

/// The format of a job's blocks.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    kind: VerifyKind,
    pattern: Option<FillPattern>,
    interval: u32,
    /// `verify_offset`: offset of the header in its block.
    at: u32,
}

/// Expected fields of a header; a field that is `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Seed of the data.
    pub seed: Option<u64>,
    /// Start of the pass and the current time; the time in the header must be between them.
    pub written: Option<(Nanos, Nanos)>,
    /// Number of the writing thread.
    pub thread: Option<u16>,
    /// Number of the write.
    pub number: Option<u64>,
}

/// A block that failed verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// Index of the job's target.
    pub target: u16,
    /// Offset of the block in bytes.
    pub offset: u64,
    /// Length of the block in bytes.
    pub len: u32,
    /// What is wrong with the block.
    pub why: String,
}

impl fmt::Display for BadBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verify: at offset {}, length {}: {}", self.offset, self.len, self.why)
    }
}

/// The error for a block that is too short for its header.
const SHORT: &str = "shorter than a verified block";

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The interval that fio uses for `job`, whose `verify_interval` is `given`: no longer than the
/// shortest write or read, and a divisor of every write (`fixup_options` in its init.c).
fn interval(job: &Job, given: Option<u64>) -> u64 {
    let (write, read) = (&job.block.write, &job.block.read);
    let mut interval = match given {
        None if write.max != write.min => write.min,
        given => given.unwrap_or(0),
    };
    // A block must lie within one I/O.
    if interval > write.min {
        interval = write.min;
    } else if job.pattern.reads() && interval > read.min {
        interval = read.min;
    }
    let divides = |bytes: u64| interval > 0 && bytes.is_multiple_of(interval);
    if divides(write.min) && divides(write.max) {
        interval
    } else {
        greatest_common_divisor(write.min, write.max)
    }
}

impl Layout {
    /// The format for `job`; `None` if the job does not verify, or has `verify=null`.
    ///
    /// # Errors
    /// The header does not fit into a block, or reads are not whole blocks.
    pub fn new(job: &Job) -> Result<Option<Layout>, JobError> {
        let Some(verify) = job.verify.as_ref().filter(|verify| verify.kind != VerifyKind::Null)
        else {
            return Ok(None);
        };
        let bytes = interval(job, verify.interval);
        let mut layout =
            Layout { kind: verify.kind, pattern: verify.pattern.clone(), interval: 0, at: 0 };
        let header = layout.header_len();
        // `verify=pattern` has no header, so there is nothing to move.
        layout.at = if header > 0 { verify.offset } else { 0 };
        let at = layout.at;
        // The header and the data that it is exchanged with must not overlap.
        if at > 0 && (at as usize) < header {
            let why = format!(
                "verify_offset {at} lies within the header of {header} bytes; give 0, or {header} or more"
            );
            return Err(JobError::of(job, why));
        }
        if bytes > 1 << 31 || bytes <= (header + at as usize) as u64 {
            let room =
                format!("no room for its header of {header} bytes, verify_offset {at}, and data");
            return Err(JobError::of(job, format!("a verified block of {bytes} bytes has {room}")));
        }
        // A read that ends within a block could not be checked. Jobs that write are exempt: they
        // read back whole writes.
        let read = &job.block.read;
        let sizes = read.split.iter().map(|(bytes, _)| *bytes).chain([read.min, read.max]);
        if let Some(read) =
            sizes.filter(|_| !job.pattern.writes()).find(|read| !read.is_multiple_of(bytes))
        {
            let why = format!(
                "verified blocks have {bytes} bytes, and a read of {read} bytes is not a multiple of that; give verify_interval"
            );
            return Err(JobError::of(job, why));
        }
        layout.interval = bytes as u32;
        Ok(Some(layout))
    }

    /// Bytes of header and digest; `verify=pattern` has neither.
    fn header_len(&self) -> usize {
        if self.kind == VerifyKind::Pattern { 0 } else { HEADER + len_of(self.kind) }
    }

    /// Fills `buf` with the data and headers of the write `io` of `thread`.
    pub fn fill(&self, io: &Io, extra: Extra, thread: u16, buf: &mut [u8]) {
        match &self.pattern {
            Some(pattern) => fill_pattern(buf, &pattern.at(io.offset)),
            None => fill_seeded(buf, extra.seed),
        }
        let header_len = self.header_len();
        // With verify=pattern blocks have no header.
        if header_len == 0 {
            return;
        }
        let mut offset = io.offset;
        for block in buf.chunks_mut(self.interval as usize) {
            let mut header = Header {
                magic: MAGIC.into(),
                kind: (self.kind as u16).into(),
                len: (block.len() as u32).into(),
                seed: if self.pattern.is_none() { extra.seed.into() } else { U64::ZERO },
                offset: offset.into(),
                seconds: ((extra.written.0 / 1_000_000_000) as u32).into(),
                nanos: ((extra.written.0 % 1_000_000_000) as u32).into(),
                thread: thread.into(),
                number: (extra.sequence as u16).into(),
                checksum: U32::ZERO,
            };
            // Computed last, as it covers the other fields.
            header.checksum = header.sum().into();
            offset += block.len() as u64;
            let Some((front, data)) = block.split_at_mut_checked(header_len) else { return };
            front[..HEADER].copy_from_slice(header.as_bytes());
            let len = front.len() - HEADER;
            front[HEADER..].copy_from_slice(&digest(self.kind, data)[..len]);
            self.swap(block);
        }
    }

    /// Exchanges the header and the data at `verify_offset`.
    fn swap(&self, block: &mut [u8]) {
        let (len, at) = (self.header_len(), self.at as usize);
        if at > 0
            && let Some((front, rest)) = block.split_at_mut_checked(at)
            && let (Some(front), Some(rest)) = (front.get_mut(..len), rest.get_mut(..len))
        {
            front.swap_with_slice(rest);
        }
    }

    /// Checks each block of `buf`, the data of the read `io`, and calls `bad` for each wrong one.
    pub fn check(&self, io: &Io, expected: Expected, buf: &[u8], mut bad: impl FnMut(BadBlock)) {
        let mut swapped = Vec::new();
        for (index, block) in buf.chunks(self.interval.max(1) as usize).enumerate() {
            let begin = index * self.interval as usize;
            let offset = io.offset + begin as u64;
            // Undo the exchange of verify_offset in a copy, because the buffer belongs to the
            // caller.
            let block = if self.at == 0 {
                block
            } else {
                swapped.clear();
                swapped.extend_from_slice(block);
                self.swap(&mut swapped);
                &swapped
            };
            if let Err(why) = self.check_block(io, begin, block, expected) {
                bad(BadBlock { target: io.target, offset, len: block.len() as u32, why });
            }
        }
    }

    /// Checks one block, which begins `begin` bytes into `io`.
    fn check_block(
        &self,
        io: &Io,
        begin: usize,
        block: &[u8],
        expected: Expected,
    ) -> Result<(), String> {
        // The end of a read that is not a multiple of the interval has no complete block.
        if block.len() != self.interval as usize {
            return Err(SHORT.into());
        }
        let header_len = self.header_len();
        let (front, data) = block.split_at_checked(header_len).ok_or(SHORT)?;
        if let Ok((header, stored)) = Header::read_from_prefix(front) {
            self.check_header(&header, io.offset + begin as u64, expected)?;
            let digest = digest(self.kind, data);
            let found = &digest[..len_of(self.kind)];
            // The error names the first wrong byte: it shows whether a bit flipped, or the data are
            // another block's.
            if found != stored {
                let first = self
                    .first_wrong(io, begin, data, header.seed.get())
                    .map_or(String::new(), |first| format!(": {first}"));
                let (found, wanted) = (shown(found), shown(stored));
                return Err(format!("{} is {found}, wanted {wanted}{first}", self.kind.name()));
            }
        }
        // A digest covers the data; without one the data are compared with the pattern.
        match &self.pattern {
            Some(pattern) if len_of(self.kind) == 0 => {
                let differs = pattern_differs(data, begin + header_len, &pattern.at(io.offset));
                differs.map_or(Ok(()), |differs| {
                    Err(format!("the pattern is interrupted: {}", self.wrong(differs)))
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks the header of the block at `offset`.
    ///
    /// # Errors
    /// What is wrong.
    fn check_header(&self, header: &Header, offset: u64, expected: Expected) -> Result<(), String> {
        // From the least to the most specific check, so that the error names the cause: there is no
        // header, it is torn, it is another job's, it is of an older write.
        if header.magic.get() != MAGIC {
            return Err(format!(
                "no verify header (bad magic {:#06x}, wanted {MAGIC:#06x})",
                header.magic
            ));
        }
        if header.checksum.get() != header.sum() {
            let (found, wanted) = (header.sum(), header.checksum);
            return Err(format!(
                "the verify header's own checksum is wrong: crc32c is {found:#010x}, wanted {wanted:#010x}"
            ));
        }
        let (found, wanted) = (header.kind.get(), self.kind as u16);
        // Old versions of fio had another number for crc32c-intel.
        if found != wanted && !(found == 6 && self.kind == VerifyKind::Crc32c) {
            let found = VerifyKind::ALL
                .iter()
                .find(|(_, kind)| *kind as u16 == found)
                .map_or("another method", |(name, _)| name);
            return Err(format!(
                "the block was written with verify={found}, and is checked with verify={}",
                self.kind.name()
            ));
        }
        // The block was written with another `verify_interval`.
        if header.len.get() != self.interval {
            return Err(format!("the block says that it has {} bytes", header.len));
        }
        if header.offset.get() != offset {
            return Err(format!("the block says that it belongs to offset {}", header.offset));
        }
        // After a lost write the block still has a correct header of an earlier pass.
        let time =
            Nanos(u64::from(header.seconds.get()) * 1_000_000_000 + u64::from(header.nanos.get()));
        if let Some((since, _)) =
            expected.written.filter(|(since, until)| time < *since || time > *until)
        {
            let (found, since) = (time.as_secs_f64(), since.as_secs_f64());
            return Err(format!(
                "stale data: written at {found:.9} s, and the job's writes began at {since:.9} s"
            ));
        }
        if let Some(wanted) = expected.thread.filter(|thread| *thread != header.thread.get()) {
            return Err(format!(
                "the block was written by thread {}, wanted thread {wanted}",
                header.thread
            ));
        }
        if let Some(wanted) = expected
            .number
            .map(|number| number as u16)
            .filter(|number| *number != header.number.get())
        {
            return Err(format!("stale data: of write {}, wanted write {wanted}", header.number));
        }
        // With verify_pattern fio writes a seed of 0.
        let seed = expected.seed.map(|seed| if self.pattern.is_none() { seed } else { 0 });
        if let Some(wanted) = seed.filter(|seed| *seed != header.seed.get()) {
            let found = header.seed;
            return Err(format!(
                "the header's seed is {found:#018x}, wanted {wanted:#018x}: another write's data, or another job's"
            ));
        }
        Ok(())
    }

    /// The first wrong byte of a block's data, if the write had the same extent as the read `io`.
    #[cold]
    fn first_wrong(&self, io: &Io, begin: usize, data: &[u8], seed: u64) -> Option<String> {
        let header_len = self.header_len();
        let from = begin + header_len;
        let mut all = vec![0; io.len as usize];
        match &self.pattern {
            Some(pattern) => fill_pattern(&mut all, &pattern.at(io.offset)),
            None => fill_seeded(&mut all, seed),
        }
        // With verify_offset `data` includes the bytes that the header was exchanged with.
        let wanted = all.get(from..from + data.len())?;
        seeded_differs(data, wanted).map(|differs| self.wrong(differs))
    }

    /// Describes the wrong byte at `index` of the data by its offset in the block.
    fn wrong(&self, (index, found, wanted): (usize, u8, u8)) -> String {
        let (header, at) = (self.header_len(), self.at as usize);
        let place = header + index;
        // These bytes were exchanged with the header, so they are at the front of the block.
        let moved = at > 0 && (at..at + header).contains(&place);
        format!(
            "byte {} is {found:#04x}, wanted {wanted:#04x}",
            if moved { place - at } else { place }
        )
    }
}

/// CRC-32C as fio computes it: without the final inversion.
fn crc32c_of(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}

/// Length of the longest digest in bytes.
const MAX_DIGEST: usize = 64;

/// A digest as text for a message: a digest of four bytes as a number, else the first 16 bytes.
fn shown(bytes: &[u8]) -> String {
    match <[u8; 4]>::try_from(bytes) {
        Ok(word) => format!("{:#010x}", u32::from_le_bytes(word)),
        Err(_) => bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Bytes of the digest of `kind`.
fn len_of(kind: VerifyKind) -> usize {
    match kind {
        VerifyKind::Crc32c | VerifyKind::XxHash => 4,
        VerifyKind::Md5 => 16,
        VerifyKind::Sha256 => MAX_DIGEST,
        VerifyKind::PatternHeader | VerifyKind::Pattern | VerifyKind::Null => 0,
    }
}

/// The digest of `data`: the first [`len_of`] bytes.
fn digest(kind: VerifyKind, data: &[u8]) -> [u8; MAX_DIGEST] {
    let mut digest = [0; MAX_DIGEST];
    match kind {
        VerifyKind::Crc32c => digest[..4].copy_from_slice(&crc32c_of(data).to_le_bytes()),
        VerifyKind::XxHash => digest[..4].copy_from_slice(&xxh32(data, 1).to_le_bytes()),
        VerifyKind::Md5 => digest[..16].copy_from_slice(&Md5::digest(data)),
        VerifyKind::Sha256 => digest = sha256(data),
        VerifyKind::PatternHeader | VerifyKind::Pattern | VerifyKind::Null => {}
    }
    digest
}

/// The initial state of SHA-256 (FIPS 180-4, 5.3.3).
const SHA256_START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// SHA-256 as fio computes it, which is not the standard's: the length in bits is appended
/// little-endian, and the stored digest is the last padded block of 64 bytes, in which the lowest
/// byte of each word of the state replaces the first eight bytes.
fn sha256(data: &[u8]) -> [u8; 64] {
    let (blocks, tail) = data.as_chunks::<64>();
    let mut state = SHA256_START;
    sha2::block_api::compress256(&mut state, blocks);
    let mut last = [0; 64];
    last[..tail.len()].copy_from_slice(tail);
    last[tail.len()] = 0x80;
    // If the length does not fit into this block, one more block follows.
    if tail.len() >= 56 {
        sha2::block_api::compress256(&mut state, &[last]);
        last = [0; 64];
    }
    last[56..].copy_from_slice(&(u64::from(data.len() as u32) << 3).to_le_bytes());
    sha2::block_api::compress256(&mut state, &[last]);
    for (byte, word) in last.iter_mut().zip(state) {
        *byte = word as u8;
    }
    last
}

/// fio's multiplier (GOLDEN_RATIO_64 in its hash.h): 2^64 / φ².
const STEP: u64 = 0x61c8_8646_80b5_83eb;
/// Factors of the seed for each of the four interleaved sequences.
const LANES: [u64; 4] = [1, 2, 3, 5];

/// Fills `buf` with the data of `seed`: four interleaved sequences of words, in each of which a
/// word is the previous word times [`STEP`].
fn fill_seeded(buf: &mut [u8], seed: u64) {
    let mut lanes = LANES.map(|lane| seed.wrapping_mul(lane));
    let (chunks, rest) = buf.as_chunks_mut::<32>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks_mut::<8>();
        for (word, lane) in words.iter_mut().zip(&mut lanes) {
            *word = lane.to_le_bytes();
            *lane = lane.wrapping_mul(STEP);
        }
    }
    let mut word = lanes[0];
    for part in rest.chunks_mut(8) {
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        word = word.wrapping_mul(STEP);
    }
}

/// Fills `buf` with `pattern`, repeated.
fn fill_pattern(buf: &mut [u8], pattern: &[u8]) {
    for part in buf.chunks_mut(pattern.len().max(1)) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}

/// The first byte of `data` that differs from the repeated pattern: its index, its value, and the
/// pattern's. `at`: the byte of the repeated pattern with which `data` begins.
fn pattern_differs(data: &[u8], at: usize, pattern: &[u8]) -> Option<(usize, u8, u8)> {
    let wanted = pattern.iter().cycle().skip(at % pattern.len().max(1));
    data.iter()
        .zip(wanted)
        .enumerate()
        .find(|(_, (found, wanted))| found != wanted)
        .map(|(index, (found, wanted))| (index, *found, *wanted))
}

/// The first byte of `data` that differs from `wanted`: its index, its value, and the wanted value.
/// `None` if a quarter or more of the bytes differ: the data are then another write's, and naming
/// one byte would mislead.
fn seeded_differs(data: &[u8], wanted: &[u8]) -> Option<(usize, u8, u8)> {
    let mut different =
        data.iter().zip(wanted).enumerate().filter(|(_, (found, wanted))| found != wanted);
    let (index, (found, wanted)) = different.next()?;
    (different.count() < data.len() / 4).then_some((index, *found, *wanted))
}

#[cfg(test)]
mod tests;
