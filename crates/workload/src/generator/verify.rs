//! Blocks that prove what they are, as fio writes and checks them.
//!
//! Each `interval` bytes that a job writes begin with a header and a digest of the rest ([`header`], [`digest`]); the rest
//! follows from a seed or is a pattern ([`body`]). A reader needs to know the interval and the kind, so whatever was written
//! last over a block, in whatever lengths, each interval is judged by itself.

mod body;
mod digest;
mod header;

use super::io::Io;
use super::offsets::Misfit;
use crate::job::{FillPattern, Job, VerifyKind};
use header::{HEADER, Header};
use std::fmt;
use units::Nanos;

/// What the blocks of a job look like.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    kind: VerifyKind,
    pattern: Option<FillPattern>,
    interval: u32,
    /// Where the header stands in its block.
    at: u32,
}

/// What a write says of itself in its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub seed: u64,
    pub time: Nanos,
    pub thread: u16,
    /// The number of the write: its lower half stands in the header.
    pub number: u64,
}

/// What one block is expected to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// The seed of its data, if known.
    pub seed: Option<u64>,
    /// When the pass began whose write it is, and the time now, if the job itself wrote.
    pub written: Option<(Nanos, Nanos)>,
    /// The thread that wrote, if it is this one.
    pub thread: Option<u16>,
    /// Which write was the last one here, if known.
    pub number: Option<u64>,
}

/// A block that was not what had been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// Index of the job's target.
    pub target: u16,
    /// Where the block starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
    /// What is wrong, in words.
    pub why: String,
}

impl fmt::Display for BadBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verify: at offset {}, length {}: {}", self.offset, self.len, self.why)
    }
}

/// What is wrong with a block that has no room for what is to be checked.
const SHORT: &str = "shorter than a verified block";

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The interval that fio makes of `job`'s: at most a write, else a read, and a divisor of every write's length.
fn interval(job: &Job, given: Option<u64>) -> u64 {
    let (write, read) = (&job.block.write, &job.block.read);
    let mut interval = match given {
        None if write.max != write.min => write.min,
        given => given.unwrap_or(0),
    };
    if interval > write.min {
        interval = write.min;
    } else if job.pattern.reads() && interval > read.min {
        interval = read.min;
    }
    let divides = |bytes: u64| interval > 0 && bytes.is_multiple_of(interval);
    if divides(write.min) && divides(write.max) { interval } else { greatest_common_divisor(write.min, write.max) }
}

impl Layout {
    /// The blocks of `job`; `None` if nothing is to be looked at.
    ///
    /// # Errors
    /// Headers do not fit.
    pub fn new(job: &Job) -> Result<Option<Layout>, Misfit> {
        let Some(verify) = job.verify.as_ref().filter(|verify| verify.kind != VerifyKind::Null) else { return Ok(None) };
        let bytes = interval(job, verify.interval);
        let mut layout = Layout { kind: verify.kind, pattern: verify.pattern.clone(), interval: 0, at: 0 };
        let header = layout.header_len();
        layout.at = if header > 0 { verify.offset } else { 0 };
        let at = layout.at;
        if at > 0 && (at as usize) < header {
            let why = format!("verify_offset {at} lies within the header of {header} bytes; it has to be at least as large");
            return Err(Misfit::of(job, why));
        }
        if bytes > 1 << 31 || bytes <= (header + at as usize) as u64 {
            let room = format!("no room for its header of {header} bytes, verify_offset {at}, and data");
            return Err(Misfit::of(job, format!("a verified block of {bytes} bytes has {room}")));
        }
        let read = &job.block.read;
        let sizes = read.split.iter().map(|(bytes, _)| *bytes).chain([read.min, read.max]);
        if let Some(read) = sizes.filter(|_| !job.pattern.writes()).find(|read| !read.is_multiple_of(bytes)) {
            let why =
                format!("verified blocks have {bytes} bytes, and a read of {read} bytes is no whole number of them; give verify_interval");
            return Err(Misfit::of(job, why));
        }
        layout.interval = bytes as u32;
        Ok(Some(layout))
    }

    /// Bytes of header and digest.
    fn header_len(&self) -> usize {
        if self.kind == VerifyKind::Pattern { 0 } else { HEADER + digest::len_of(self.kind) }
    }

    /// Whether the data follow from a seed.
    pub fn is_seeded(&self) -> bool {
        self.pattern.is_none()
    }

    /// Writes data and headers over `buf`, which is what the write `io` writes.
    pub fn fill(&self, io: &Io, mark: Mark, buf: &mut [u8]) {
        match &self.pattern {
            Some(pattern) => body::fill_pattern(buf, &pattern.at(io.offset)),
            None => body::fill_seeded(buf, mark.seed),
        }
        let header_len = self.header_len();
        if header_len == 0 {
            return;
        }
        let mut offset = io.offset;
        for block in buf.chunks_mut(self.interval as usize) {
            let header = Header {
                kind: header::number_of(self.kind),
                len: block.len() as u32,
                seed: if self.is_seeded() { mark.seed } else { 0 },
                offset,
                time: mark.time,
                thread: mark.thread,
                number: mark.number as u16,
            };
            offset += block.len() as u64;
            let Some((front, data)) = block.split_at_mut_checked(header_len) else { return };
            front[..HEADER].copy_from_slice(&header.encode());
            let len = front.len() - HEADER;
            front[HEADER..].copy_from_slice(&digest::digest(self.kind, data)[..len]);
            self.swap(block);
        }
    }

    /// Exchanges the header and what stands at `verify_offset`.
    fn swap(&self, block: &mut [u8]) {
        let (len, at) = (self.header_len(), self.at as usize);
        if at > 0
            && let Some((front, rest)) = block.split_at_mut_checked(at)
            && let (Some(front), Some(rest)) = (front.get_mut(..len), rest.get_mut(..len))
        {
            front.swap_with_slice(rest);
        }
    }

    /// Checks each interval of `buf`, the data of the read `io`; tells `bad` of each that is wrong.
    pub fn check(&self, io: &Io, expected: Expected, buf: &[u8], mut bad: impl FnMut(BadBlock)) {
        let mut turned = Vec::new();
        for (index, block) in buf.chunks(self.interval.max(1) as usize).enumerate() {
            let begin = index * self.interval as usize;
            let offset = io.offset + begin as u64;
            let block = if self.at == 0 {
                block
            } else {
                turned.clear();
                turned.extend_from_slice(block);
                self.swap(&mut turned);
                &turned
            };
            if let Err(why) = self.check_block(io, begin, block, expected) {
                bad(BadBlock { target: io.target, offset, len: block.len() as u32, why });
            }
        }
    }

    /// Checks one block, which begins `begin` bytes into `io`.
    fn check_block(&self, io: &Io, begin: usize, block: &[u8], expected: Expected) -> Result<(), String> {
        if block.len() != self.interval as usize {
            return Err(SHORT.into());
        }
        let header_len = self.header_len();
        let (front, data) = block.split_at_checked(header_len).ok_or(SHORT)?;
        if let Some((header, stored)) = front.split_first_chunk::<HEADER>() {
            let header = self.check_header(header, io.offset + begin as u64, expected)?;
            let digest = digest::digest(self.kind, data);
            let found = &digest[..digest::len_of(self.kind)];
            if found != stored {
                let first = self.first_wrong(io, begin, data, header.seed).map_or(String::new(), |first| format!(": {first}"));
                let (found, wanted) = (digest::shown(found), digest::shown(stored));
                return Err(format!("{} is {found}, wanted {wanted}{first}", self.kind.name()));
            }
        }
        // A checksum speaks for the data. Without one the pattern does.
        match &self.pattern {
            Some(pattern) if digest::len_of(self.kind) == 0 => {
                let differs = body::pattern_differs(data, begin + header_len, &pattern.at(io.offset));
                differs.map_or(Ok(()), |differs| Err(format!("the pattern is interrupted: {}", self.wrong(differs))))
            }
            _ => Ok(()),
        }
    }

    fn check_header(&self, bytes: &[u8; HEADER], offset: u64, expected: Expected) -> Result<Header, String> {
        let header = Header::decode(bytes)?;
        let kind = header::number_of(self.kind);
        // fio once had a number of its own for crc32c by hardware.
        if header.kind != kind && !(header.kind == 6 && self.kind == VerifyKind::Crc32c) {
            let known = |number| VerifyKind::ALL.into_iter().find(|(_, kind)| header::number_of(*kind) == number);
            let name = |number| known(number).map_or("another method", |(name, _)| name);
            let (found, wanted) = (name(header.kind), name(kind));
            return Err(format!("the block was written with verify={found}, and is checked with verify={wanted}"));
        }
        if header.len != self.interval {
            return Err(format!("the block says that it has {} bytes", header.len));
        }
        if header.offset != offset {
            return Err(format!("the block says that it belongs to offset {}", header.offset));
        }
        match expected.written {
            Some((since, until)) if header.time < since || header.time > until => {
                let (found, since) = (header.time.as_secs_f64(), since.as_secs_f64());
                return Err(format!("stale data: written at {found:.9} s, and the job's writes began at {since:.9} s"));
            }
            _ => {}
        }
        if let Some(wanted) = expected.thread.filter(|thread| *thread != header.thread) {
            return Err(format!("the block was written by thread {}, wanted thread {wanted}", header.thread));
        }
        if let Some(wanted) = expected.number.map(|number| number as u16).filter(|number| *number != header.number) {
            return Err(format!("stale data: of write {}, wanted write {wanted}", header.number));
        }
        let seed = expected.seed.map(|seed| if self.is_seeded() { seed } else { 0 });
        match seed.filter(|seed| *seed != header.seed) {
            Some(wanted) => {
                let found = header.seed;
                Err(format!("the header's seed is {found:#018x}, wanted {wanted:#018x}: another write's data, or another job's"))
            }
            None => Ok(header),
        }
    }

    /// The first byte of a block's data that is not what was written, if the write had the extent of the read `io`.
    #[cold]
    fn first_wrong(&self, io: &Io, begin: usize, data: &[u8], seed: u64) -> Option<String> {
        let header_len = self.header_len();
        let from = begin + header_len;
        let mut all = vec![0; io.len as usize];
        match &self.pattern {
            Some(pattern) => body::fill_pattern(&mut all, &pattern.at(io.offset)),
            None => body::fill_seeded(&mut all, seed),
        }
        // A header that stands elsewhere is not part of the data: what it was exchanged with is.
        let wanted = all.get(from..from + data.len())?;
        body::seeded_differs(data, wanted).map(|differs| self.wrong(differs))
    }

    /// A byte of the data, by its place in the data.
    fn wrong(&self, (index, found, wanted): (usize, u8, u8)) -> String {
        let (header, at) = (self.header_len(), self.at as usize);
        let place = header + index;
        // What the header was exchanged with stands at the front.
        let moved = at > 0 && (at..at + header).contains(&place);
        format!("byte {} is {found:#04x}, wanted {wanted:#04x}", if moved { place - at } else { place })
    }
}

#[cfg(test)]
mod tests;
