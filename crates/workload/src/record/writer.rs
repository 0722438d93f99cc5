//! Writing a recording: submissions are gathered into a block for each thread, and written when it is full.

use std::io::{self, Write};

use super::codec::{self, Context};
use super::{End, Header, Submission};

/// What a recording begins with.
pub(super) const MAGIC: &[u8; 8] = b"REAPTRAC";
/// The format of `docs/record.md`.
pub(super) const VERSION: u32 = 1;
/// Kinds of block.
pub(super) const SUBMISSIONS: u32 = 1;
pub(super) const END: u32 = 2;
/// A block is written when it has so many bytes.
const FULL: usize = 64 << 10;

/// Writes a recording. What it writes to need not be buffered: each write is a block.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    threads: Vec<Block>,
}

/// A block in the making.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    context: Context,
    /// Submissions in it.
    count: u32,
    /// Submissions of the thread so far.
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// What `to` says.
    pub fn new(mut to: W, header: &Header) -> io::Result<Writer<W>> {
        let text = serde_json::to_vec_pretty(header)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(crc32c::crc32c(&text).to_le_bytes());
        bytes.extend(text);
        to.write_all(&bytes)?;
        let threads = header.threads.iter().map(|_| Block::default()).collect();
        Ok(Writer { to, threads })
    }

    /// The thread's next submission.
    ///
    /// # Errors
    /// What the output says.
    pub fn push(&mut self, thread: usize, submission: &Submission) -> io::Result<()> {
        let Some(block) = self.threads.get_mut(thread) else { return Ok(()) };
        codec::encode(&mut block.context, block.written, submission, &mut block.bytes);
        block.count += 1;
        block.written += 1;
        if block.bytes.len() >= FULL { self.write(thread) } else { Ok(()) }
    }

    /// Writes what is left, and the end: `end.submissions` is filled in here.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(mut self, end: End) -> io::Result<W> {
        for thread in 0..self.threads.len() {
            self.write(thread)?;
        }
        let submissions = self.threads.iter().map(|block| block.written).collect();
        let text = serde_json::to_vec(&End { submissions, ..end })?;
        self.to.write_all(&block(END, 0, 0, &text))?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn write(&mut self, thread: usize) -> io::Result<()> {
        let Some(open) = self.threads.get_mut(thread).filter(|block| block.count > 0) else { return Ok(()) };
        self.to.write_all(&block(SUBMISSIONS, thread as u32, open.count, &open.bytes))?;
        open.bytes.clear();
        (open.context, open.count) = (Context::default(), 0);
        Ok(())
    }
}

/// Kind, thread, count, length, checksum over these four and the payload; the payload.
fn block(kind: u32, thread: u32, count: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [kind, thread, count, payload.len() as u32].into_iter().flat_map(u32::to_le_bytes).collect();
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes), payload);
    bytes.extend(checksum.to_le_bytes());
    bytes.extend(payload);
    bytes
}
