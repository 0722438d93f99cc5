//! The requests of a simulated thread: buffers, parts, retries, and the proof that each ends exactly once.

use blkmq::{Part, Parts, Splitter};
use driver::{Limits, Namespace, RetryPolicy};
use nvme::prp::{self, PageSize, Segment};
use nvme::{Lba, Sqe, Status, io};
use units::{Class, Op};
use workload::Io;

use crate::SimError;
use crate::port::Memory;

/// Bytes of the largest request.
pub(crate) const BUFFER: u64 = 1 << 20;

/// How often a part is posted again after a reset, or a status that invites it.
pub(crate) const RETRY: RetryPolicy = RetryPolicy { limit: 3 };

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The controller said so.
    Status(Status),
    /// A reset took it back too often, or the controller is dead.
    TakenBack,
}

/// A request that has ended, and how.
pub(crate) type Ended = (Io, Result<(), Failed>);

/// What a command is posted with: which part of which request, and which use of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    slot: u16,
    part: u16,
    generation: u32,
}

impl Token {
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot) << 16 | u64::from(self.part)
    }

    pub(crate) fn slot(self) -> usize {
        self.slot.into()
    }

    pub(crate) fn from_word(word: u64) -> Token {
        Token { slot: (word >> 16) as u16, part: word as u16, generation: (word >> 32) as u32 }
    }
}

/// A request in flight.
#[derive(Debug)]
struct Request {
    io: Io,
    generation: u32,
    parts: Parts<Failed>,
    /// Parts that have not ended, by bit; a request has at most 64 parts.
    open: u64,
    retries: u8,
}

/// The requests of one thread on one namespace, by slot.
#[derive(Debug)]
pub(crate) struct Requests {
    memory: Memory,
    namespace: Namespace,
    splitter: Splitter,
    /// Per slot: its buffer and its PRP lists.
    places: Vec<Place>,
    live: Vec<Option<Request>>,
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    buffer: u64,
    lists: u64,
}

/// Bytes of PRP list per part: a page, which points to 2 MiB.
const LIST: u64 = 4096;

impl Requests {
    /// Room for `depth` requests of at most `len` bytes.
    pub(crate) fn new(memory: &Memory, namespace: Namespace, limits: &Limits, depth: u32, len: u64) -> Result<Requests, SimError> {
        let splitter = namespace.splitter(limits, BUFFER).map_err(|error| SimError::Unfit(error.to_string()))?;
        let parts = if len > 4096 { 64 } else { 1 };
        let place = || Some(Place { buffer: memory.alloc(len as usize)?, lists: memory.alloc((parts * LIST) as usize)? });
        let places: Option<Vec<Place>> = (0..depth).map(|_| place()).collect();
        let places = places.ok_or_else(|| SimError::Unfit(format!("{depth} buffers of {len} bytes do not fit the simulated memory")))?;
        let live = (0..depth).map(|_| None).collect();
        Ok(Requests { memory: memory.clone(), namespace, splitter, places, live, generation: 0 })
    }

    /// Bytes that the requests of `depth` slots take.
    pub(crate) fn footprint(depth: u32, len: u64) -> usize {
        let parts = if len > 4096 { 64 } else { 1 };
        depth as usize * (len.next_multiple_of(4096) + parts * LIST) as usize
    }

    /// Starts a request; appends what is to be posted.
    pub(crate) fn begin(&mut self, io: Io, out: &mut Vec<Token>) -> Result<(), SimError> {
        let blocks = self.namespace.blocks;
        let split = self.splitter.split_bytes(io.offset, io.len.into(), blocks).map_err(|error| SimError::Unfit(error.to_string()))?;
        let (slot, parts) = (io.slot as u16, split.parts());
        if !(1..=64).contains(&parts) {
            return Err(SimError::Unfit(format!("a request of {parts} commands: there have to be 1 to 64")));
        }
        self.generation = self.generation.wrapping_add(1);
        let request = Request { io, generation: self.generation, parts: Parts::new(parts), open: u64::MAX >> (64 - parts), retries: 0 };
        match self.live.get_mut(io.slot as usize) {
            Some(place @ None) => *place = Some(request),
            _ => return Err(SimError::Unfit(format!("slot {} is in use or outside the depth", io.slot))),
        }
        out.extend((0..parts as u16).map(|part| Token { slot, part, generation: self.generation }));
        Ok(())
    }

    /// The command of a part.
    pub(crate) fn command(&self, token: Token) -> Result<Sqe, SimError> {
        let request = self.of(token)?;
        let (io, nsid) = (request.io, self.namespace.nsid);
        if io.op == Op::Flush {
            return Ok(io::flush(nsid));
        }
        let log2 = self.namespace.block_log2;
        let mut split = self.splitter.split(io.offset >> log2, io.len >> log2);
        let Some(Part { lba, blocks, offset }) = split.nth(token.part.into()) else { return Err(not_once(token)) };
        let place = self.places[usize::from(token.slot)];
        let buffer = Segment { addr: place.buffer + offset, len: u64::from(blocks) << log2 };
        let list = Segment { addr: place.lists + u64::from(token.part) * LIST, len: LIST };
        // Lists lie in the memory that was allocated for them.
        let put = |addr, entry: u64| self.memory.write(addr, &entry.to_le_bytes()).unwrap_or_default();
        let data = prp::build(buffer, PageSize::MIN, list, put).map_err(|error| SimError::Unfit(error.to_string()))?;
        Ok(match io.op {
            Op::Write => io::write(nsid, Lba(lba), blocks, data, io::Flags::NONE),
            Op::Read | Op::Flush => io::read(nsid, Lba(lba), blocks, data, io::Flags::NONE),
        })
    }

    /// A part has ended; with the last one, the request and its result.
    pub(crate) fn end(&mut self, token: Token, result: Result<(), Failed>) -> Result<Option<Ended>, SimError> {
        let request = self.of_mut(token)?;
        request.open &= !(1 << token.part);
        let io = request.io;
        let ended = request.parts.complete(result).map(|result| (io, result));
        if ended.is_some() {
            self.live[usize::from(token.slot)] = None;
        }
        Ok(ended)
    }

    /// Counts another try for a part; the tries before it.
    pub(crate) fn retries(&mut self, token: Token) -> Result<u8, SimError> {
        let request = self.of_mut(token)?;
        request.retries = request.retries.saturating_add(1);
        Ok(request.retries - 1)
    }

    /// The class of a part's command.
    pub(crate) fn class(&self, token: Token) -> Result<Class, SimError> {
        let io = self.of(token)?.io;
        Ok(Class::new(io.op, io.len))
    }

    /// Calls `f` with the buffer of a request.
    pub(crate) fn with_buffer<R>(&self, io: &Io, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let addr = self.places.get(io.slot as usize).map_or(0, |place| place.buffer);
        self.memory.with(addr, io.len.into(), f)
    }

    fn of(&self, token: Token) -> Result<&Request, SimError> {
        let slot = self.live.get(usize::from(token.slot)).and_then(Option::as_ref);
        slot.filter(|request| request.is(token)).ok_or_else(|| not_once(token))
    }

    fn of_mut(&mut self, token: Token) -> Result<&mut Request, SimError> {
        let slot = self.live.get_mut(usize::from(token.slot)).and_then(Option::as_mut);
        slot.filter(|request| request.is(token)).ok_or_else(|| not_once(token))
    }
}

impl Request {
    /// Whether this is the request of `token`, and that part of it has not ended.
    fn is(&self, token: Token) -> bool {
        self.generation == token.generation && token.part < 64 && self.open >> token.part & 1 == 1
    }
}

fn not_once(token: Token) -> SimError {
    SimError::NotOnce { token: token.to_word() }
}

#[cfg(test)]
mod tests;
