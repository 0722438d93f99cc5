//! The requests of a simulated thread: buffers, splitting into commands, retries. A command that
//! completes twice, or that was never posted, is an error of the run (invariant 3).

use driver::{Limits, Namespace, RetryPolicy};
use driver::{Part, Parts, Splitter};
use nvme::prp::{self, PageSize, Segment};
use nvme::{Lba, Sqe, Status, io};
use units::{Class, Op};
use workload::Io;

use crate::SimError;
use crate::port::Memory;

/// Bytes of the largest request.
pub(crate) const MAX_REQUEST: u64 = 1 << 20;

/// How often a command is posted again after a reset, or after a status without Do Not Retry.
pub(crate) const RETRY: RetryPolicy = RetryPolicy { limit: 3 };

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The controller's status.
    Status(Status),
    /// Resets cancelled the request too often, or the host has given the controller up.
    Cancelled,
    /// All paths are gone for good, or no path came up within the time that requests may wait.
    NoPath,
}

/// A request that has ended, and its result.
pub(crate) type Finished = (Io, Result<(), RequestError>);

/// Identifies a command, and comes back with its completion: thread, slot, part of the request, and
/// generation of the slot.
///
/// ```text
/// 63      48 47      32 31         6 5    0
/// | thread  |  slot    | generation | part |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandToken {
    task: u16,
    slot: u16,
    /// Below 64.
    part: u8,
    /// 26 bits.
    generation: u32,
}

/// The bits of [`CommandToken::generation`].
const GENERATIONS: u32 = (1 << 26) - 1;

impl CommandToken {
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.task) << 48
            | u64::from(self.slot) << 32
            | u64::from(self.generation) << 6
            | u64::from(self.part)
    }

    pub(crate) fn task(self) -> usize {
        self.task.into()
    }

    pub(crate) fn slot(self) -> usize {
        self.slot.into()
    }

    pub(crate) fn from_word(word: u64) -> CommandToken {
        let generation = (word >> 6) as u32 & GENERATIONS;
        CommandToken {
            task: (word >> 48) as u16,
            slot: (word >> 32) as u16,
            part: word as u8 & 63,
            generation,
        }
    }
}

/// A request in flight.
#[derive(Debug)]
struct InFlightRequest {
    io: Io,
    generation: u32,
    parts: Parts<RequestError>,
    /// A bit for each part that has not ended; a request has at most 64 parts.
    open: u64,
    retries: u8,
}

/// The requests of one thread, by slot.
#[derive(Debug)]
pub(crate) struct Requests {
    memory: Memory,
    /// The thread.
    task: u16,
    targets: Vec<TargetNamespace>,
    slots: Vec<SlotMemory>,
    live: Vec<Option<InFlightRequest>>,
    generation: u32,
}

/// Where requests go: the namespace of one device, and how requests are split for it.
#[derive(Clone, Debug)]
struct TargetNamespace {
    namespace: Namespace,
    splitter: Splitter,
}

/// Bus addresses of a slot's buffer and PRP lists.
#[derive(Clone, Copy, Debug)]
struct SlotMemory {
    buffer: u64,
    lists: u64,
}

/// Bytes of the PRP list of each part: one page, whose entries cover 2 MiB of data.
const PRP_LIST: u64 = 4096;

/// Whether each request has its own buffer. Only verification needs that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataBuffers {
    /// Each slot has a buffer.
    PerSlot,
    /// All slots use the same buffer.
    Shared,
}

impl Requests {
    /// Memory for `depth` requests of at most `len` bytes on these namespaces.
    pub(crate) fn new(
        memory: &Memory,
        task: usize,
        targets: &[(Namespace, Limits)],
        depth: u32,
        len: u64,
        data: DataBuffers,
    ) -> Result<Requests, SimError> {
        let place = |(namespace, limits): &(Namespace, Limits)| {
            let splitter = namespace
                .splitter(limits, MAX_REQUEST)
                .map_err(|error| SimError::Unfit(error.to_string()))?;
            Ok(TargetNamespace { namespace: *namespace, splitter })
        };
        let targets: Result<Vec<TargetNamespace>, SimError> = targets.iter().map(place).collect();
        let slot = || {
            Some(SlotMemory {
                buffer: memory.alloc(len as usize)?,
                lists: memory.alloc((parts_of(len) * PRP_LIST) as usize)?,
            })
        };
        let first = slot();
        // Without verification one buffer is enough, and saves memory and the simulator's own cache
        // misses.
        let slots =
            (0..depth).map(|n| if n == 0 || data == DataBuffers::Shared { first } else { slot() });
        let slots: Option<Vec<SlotMemory>> = slots.collect();
        let slots = slots.ok_or_else(|| {
            SimError::Unfit(format!(
                "{depth} buffers of {len} bytes do not fit the simulated memory"
            ))
        })?;
        let live = (0..depth).map(|_| None).collect();
        Ok(Requests {
            memory: memory.clone(),
            task: task as u16,
            targets: targets?,
            slots,
            live,
            generation: 0,
        })
    }

    /// Bytes of memory that `depth` slots take.
    pub(crate) fn footprint(depth: u32, len: u64, data: DataBuffers) -> usize {
        let slots = if data == DataBuffers::PerSlot { depth as usize } else { 1 };
        slots * (len.next_multiple_of(4096) + parts_of(len) * PRP_LIST) as usize
    }

    /// Starts a request and appends the commands to be posted to `out`.
    pub(crate) fn begin(&mut self, io: Io, out: &mut Vec<CommandToken>) -> Result<(), SimError> {
        let Some(TargetNamespace { namespace, splitter }) =
            self.targets.get(usize::from(io.target))
        else {
            return Err(SimError::Unfit(format!(
                "target {} of a job that has {}",
                io.target,
                self.targets.len()
            )));
        };
        let blocks = namespace.blocks;
        let parts = match io.op {
            Op::Flush => 1,
            Op::WriteZeroes
            | Op::Deallocate
            | Op::Compare
            | Op::Verify
            | Op::WriteUncorrectable => {
                return Err(SimError::Unfit(format!(
                    "{:?}: the simulated host sends Read, Write and Flush only",
                    io.op
                )));
            }
            Op::Read | Op::Write => splitter
                .split_bytes(io.offset, io.len.into(), blocks)
                .map_err(|error| SimError::Unfit(error.to_string()))?
                .parts(),
        };
        let slot = io.slot as u16;
        // The open parts are bits of one word.
        if !(1..=64).contains(&parts) {
            return Err(SimError::Unfit(format!(
                "a request of {parts} commands: there must be 1 to 64"
            )));
        }
        // A completion of the slot's previous request then has another generation, and is an error.
        self.generation = self.generation.wrapping_add(1) & GENERATIONS;
        if io.op == Op::Flush && io.slot as usize >= self.live.len() {
            // Shares of a Flush have slots beyond the depth. They have no data, and so need no
            // memory.
            self.live.resize_with(io.slot as usize + 1, || None);
        }
        let request = InFlightRequest {
            io,
            generation: self.generation,
            parts: Parts::new(parts),
            open: u64::MAX >> (64 - parts),
            retries: 0,
        };
        match self.live.get_mut(io.slot as usize) {
            Some(place @ None) => *place = Some(request),
            _ => {
                return Err(SimError::Unfit(format!(
                    "slot {} is in use or outside the depth",
                    io.slot
                )));
            }
        }
        let (task, generation) = (self.task, self.generation);
        out.extend((0..parts as u8).map(|part| CommandToken { task, slot, part, generation }));
        Ok(())
    }

    /// Builds the command of a part.
    pub(crate) fn command(&self, token: CommandToken) -> Result<Sqe, SimError> {
        let request = self.of(token)?;
        let io = request.io;
        let TargetNamespace { namespace, splitter } = &self.targets[usize::from(io.target)];
        let nsid = namespace.nsid;
        if io.op == Op::Flush {
            return Ok(io::flush(nsid));
        }
        let log2 = namespace.block_log2;
        let mut split = splitter.split(io.offset >> log2, io.len >> log2);
        let Some(Part { lba, blocks, offset }) = split.nth(token.part.into()) else {
            return Err(duplicate_completion(token));
        };
        let slot = self.slots[usize::from(token.slot)];
        let buffer = Segment { addr: slot.buffer + offset, len: u64::from(blocks) << log2 };
        let list = Segment { addr: slot.lists + u64::from(token.part) * PRP_LIST, len: PRP_LIST };
        // Cannot fail: the lists lie in memory that was allocated for them.
        let put =
            |addr, entry: u64| self.memory.write(addr, &entry.to_le_bytes()).unwrap_or_default();
        let data = prp::build(buffer, PageSize::MIN, list, put)
            .map_err(|error| SimError::Unfit(error.to_string()))?;
        Ok(match io.op {
            Op::Write => io::write(nsid, Lba(lba), blocks, data, io::Flags::NONE),
            _ => io::read(nsid, Lba(lba), blocks, data, io::Flags::NONE),
        })
    }

    /// A part has ended. If it is the last open part, returns the request and its result.
    pub(crate) fn end(
        &mut self,
        token: CommandToken,
        result: Result<(), RequestError>,
    ) -> Result<Option<Finished>, SimError> {
        let request = self.of_mut(token)?;
        // A second completion of this part is then an error, whatever the first one returned.
        request.open &= !(1 << token.part);
        let io = request.io;
        let ended = request.parts.complete(result).map(|result| (io, result));
        if ended.is_some() {
            // The slot is free for the application's next request at once.
            self.live[usize::from(token.slot)] = None;
        }
        Ok(ended)
    }

    /// Counts a retry. Returns the retries before it.
    pub(crate) fn count_retry(&mut self, token: CommandToken) -> Result<u8, SimError> {
        let request = self.of_mut(token)?;
        request.retries = request.retries.saturating_add(1);
        Ok(request.retries - 1)
    }

    /// The class of a part's command.
    pub(crate) fn class(&self, token: CommandToken) -> Result<Class, SimError> {
        let io = self.of(token)?.io;
        Ok(Class::new(io.op, io.len))
    }

    /// The target of a request; 0 if the request has ended.
    pub(crate) fn target(&self, token: CommandToken) -> usize {
        self.live
            .get(token.slot())
            .and_then(Option::as_ref)
            .map_or(0, |request| request.io.target.into())
    }

    /// Calls `f` with the buffer of a request.
    pub(crate) fn with_buffer<R>(&self, io: &Io, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let addr = self.slots.get(io.slot as usize).map_or(0, |slot| slot.buffer);
        self.memory.with(addr, io.len.into(), f)
    }

    fn of(&self, token: CommandToken) -> Result<&InFlightRequest, SimError> {
        let slot = self.live.get(usize::from(token.slot)).and_then(Option::as_ref);
        slot.filter(|request| request.is(token)).ok_or_else(|| duplicate_completion(token))
    }

    fn of_mut(&mut self, token: CommandToken) -> Result<&mut InFlightRequest, SimError> {
        let slot = self.live.get_mut(usize::from(token.slot)).and_then(Option::as_mut);
        slot.filter(|request| request.is(token)).ok_or_else(|| duplicate_completion(token))
    }
}

impl InFlightRequest {
    /// Whether this is the request of `token`, and that part of it is still open.
    fn is(&self, token: CommandToken) -> bool {
        self.generation == token.generation && self.open >> token.part & 1 == 1
    }
}

/// Maximum number of parts of a request of this length.
fn parts_of(len: u64) -> u64 {
    if len > 4096 { 64 } else { 1 }
}

fn duplicate_completion(token: CommandToken) -> SimError {
    SimError::NotOnce { token: token.to_word() }
}

#[cfg(test)]
mod tests;
