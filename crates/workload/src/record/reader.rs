//! Reading a recording. Everything is checked when it is opened, so that its entries can be relied on.

use std::ops::Range;

use super::codec::{self, Context};
use super::writer::{END, MAGIC, SUBMISSIONS, VERSION};
use super::{End, Header, ServiceTimes, Submission, TraceError};

/// A whole recording, in memory as compact as in its file.
#[derive(Clone, Debug)]
pub struct Trace {
    bytes: Vec<u8>,
    header: Header,
    end: End,
    /// By thread, its blocks: where the payload lies, and how many submissions it holds.
    blocks: Vec<Vec<Block>>,
}

#[derive(Clone, Debug)]
struct Block {
    payload: Range<usize>,
    count: u32,
}

/// Bytes of a block before its payload.
const BLOCK_HEAD: usize = 20;

impl Trace {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: Vec<u8>) -> Result<Trace, TraceError> {
        let cut = TraceError::CutOff { at: bytes.len() as u64 };
        if !bytes.starts_with(MAGIC) {
            let begun = !bytes.is_empty() && MAGIC.starts_with(&bytes);
            return Err(if begun { cut } else { TraceError::Foreign });
        }
        let word = |at: usize| word(&bytes, at).ok_or(cut.clone());
        let found = word(8)?;
        if found != VERSION {
            return Err(TraceError::Version { found, known: VERSION });
        }
        let text = range(&bytes, 20, word(12)?).ok_or(cut.clone())?;
        if crc32c::crc32c(&bytes[text.clone()]) != word(16)? {
            return Err(TraceError::Checksum { at: 0 });
        }
        let malformed = |at: usize, what: String| TraceError::Malformed { at: at as u64, what };
        let header: Header = serde_json::from_slice(&bytes[text.clone()]).map_err(|e| malformed(0, e.to_string()))?;
        let mut blocks = vec![Vec::new(); header.threads.len()];
        let mut at = text.end;
        let end = loop {
            let (kind, thread, count) = (word(at)?, word(at + 4)?, word(at + 8)?);
            let payload = range(&bytes, at + BLOCK_HEAD, word(at + 12)?).ok_or(cut.clone())?;
            let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 16]), &bytes[payload.clone()]);
            if sum != word(at + 16)? {
                return Err(TraceError::Checksum { at: at as u64 });
            }
            let next = payload.end;
            match kind {
                SUBMISSIONS => {
                    let list: &mut Vec<Block> =
                        blocks.get_mut(thread as usize).ok_or_else(|| malformed(at, format!("there is no thread {thread}")))?;
                    list.push(Block { payload, count });
                }
                END if next < bytes.len() => return Err(malformed(next, format!("{} bytes after the end", bytes.len() - next))),
                END => break serde_json::from_slice(&bytes[payload]).map_err(|e| malformed(at, e.to_string()))?,
                kind => return Err(malformed(at, format!("there is no kind {kind} of block"))),
            }
            at = next;
        };
        let trace = Trace { bytes, header, end, blocks };
        trace.check_heads()?;
        trace.check_submissions()?;
        Ok(trace)
    }

    /// What was recorded.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What the run came to.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// The submissions of a thread, in order; none if there is no such thread.
    pub fn submissions(&self, thread: usize) -> Submissions<'_> {
        let blocks = self.blocks.get(thread).map(Vec::as_slice).unwrap_or_default();
        Submissions { cursor: Cursor::default(), trace: self, blocks }
    }

    /// The next submission of a thread whose place is `cursor`.
    pub(super) fn next(&self, thread: usize, cursor: &mut Cursor) -> Option<Submission> {
        // Everything was decoded once when the file was opened.
        cursor.next(&self.bytes, self.blocks.get(thread)?).and_then(Result::ok)
    }

    fn check_heads(&self) -> Result<(), TraceError> {
        let malformed = |what: String| Err(TraceError::Malformed { at: 0, what });
        for (number, thread) in self.header.threads.iter().enumerate() {
            if thread.targets.is_empty() || thread.targets.iter().any(|&target| target >= self.header.devices.len()) {
                return malformed(format!("thread {number} uses a device that the header does not have"));
            }
            if thread.depth == 0 {
                return malformed(format!("thread {number} has no I/O in flight at any time"));
            }
        }
        let mut stages: Vec<u32> = self.header.threads.iter().map(|thread| thread.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        if let Some((missing, stage)) = (0..).zip(stages).find(|(number, stage)| number != stage) {
            return malformed(format!("a thread of stage {stage}, and none of stage {missing}"));
        }
        for device in &self.header.devices {
            if !device.block_bytes.is_power_of_two() {
                return malformed(format!("blocks of {} bytes on {}", device.block_bytes, device.uri));
            }
            let dice = device.timing.iter().flat_map(|timing| [timing.read, timing.write, timing.flush]);
            if let Some(ServiceTimes { tail_ppm, .. }) = dice.into_iter().find(|dice| dice.tail_ppm > 1_000_000) {
                return malformed(format!("{tail_ppm} of a million commands slow on {}", device.uri));
            }
        }
        Ok(())
    }

    /// Decodes everything once.
    fn check_submissions(&self) -> Result<(), TraceError> {
        for (thread, (head, blocks)) in self.header.threads.iter().zip(&self.blocks).enumerate() {
            let mut cursor = Cursor::default();
            while let Some(next) = cursor.next(&self.bytes, blocks) {
                let at = blocks.get(cursor.block).map_or(0, |block| block.payload.start.saturating_sub(BLOCK_HEAD)) as u64;
                let malformed = |what: &str| TraceError::Malformed { at, what: what.to_owned() };
                let s = next.map_err(malformed)?;
                let device = head.targets.get(usize::from(s.target)).and_then(|&target| self.header.devices.get(target));
                let device = device.ok_or_else(|| malformed("a target that the thread does not have"))?;
                if s.offset.checked_add(s.len.into()).is_none_or(|end| end > device.bytes) {
                    return Err(malformed("a submission beyond the end of its device"));
                }
                let block = u64::from(device.block_bytes);
                if !(s.offset | u64::from(s.len)).is_multiple_of(block) || s.len == 0 && s.op != units::Op::Flush {
                    return Err(malformed("a submission that is not of whole blocks"));
                }
                if s.len > head.longest {
                    return Err(malformed("a submission longer than its thread's longest"));
                }
            }
            if self.end.submissions.get(thread) != Some(&cursor.number) {
                let at = self.bytes.len() as u64;
                return Err(TraceError::Malformed { at, what: format!("submissions of thread {thread} are missing") });
            }
        }
        Ok(())
    }
}

/// A place among the submissions of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    block: usize,
    /// Bytes and submissions of the block that were read.
    read: usize,
    taken: u32,
    context: Context,
    number: u64,
}

impl Cursor {
    fn next(&mut self, bytes: &[u8], blocks: &[Block]) -> Option<Result<Submission, &'static str>> {
        let mut block = blocks.get(self.block)?;
        while self.taken == block.count {
            if self.read != block.payload.len() {
                return Some(Err("a block with something left over"));
            }
            (self.block, self.read, self.taken, self.context) = (self.block + 1, 0, 0, Context::default());
            block = blocks.get(self.block)?;
        }
        let mut rest = bytes.get(block.payload.start + self.read..block.payload.end)?;
        let before = rest.len();
        let decoded = codec::decode(&mut self.context, self.number, &mut rest);
        self.read += before - rest.len();
        self.taken += 1;
        self.number += 1;
        Some(decoded)
    }
}

/// The submissions of a thread.
#[derive(Clone, Debug)]
pub struct Submissions<'a> {
    trace: &'a Trace,
    blocks: &'a [Block],
    cursor: Cursor,
}

impl Iterator for Submissions<'_> {
    type Item = Submission;

    fn next(&mut self) -> Option<Submission> {
        self.cursor.next(&self.trace.bytes, self.blocks).and_then(Result::ok)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_le_bytes)
}

fn range(bytes: &[u8], at: usize, len: u32) -> Option<Range<usize>> {
    let range = at..at.checked_add(len as usize)?;
    (range.end <= bytes.len()).then_some(range)
}
