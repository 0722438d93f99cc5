//! Read, Write and Flush: what they ask for, whether they may, and the moving of their data.

use nvme::io::{Flags, Transfer};
use nvme::prp::{Dptr, PageSize, Segment, Walker};
use nvme::{Nsid, Sqe, Status, opcode};
use units::Op;

use crate::config::Medium;
use crate::media::{Access, MediaError};
use crate::{BusError, Mem, Namespace, Port};

/// An I/O command that has been found valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) op: Op,
    /// FUA, or the write cache is disabled.
    pub(crate) durable: bool,
    pub(crate) nsid: Nsid,
    /// First logical block; 0 for a Flush.
    pub(crate) lba: u64,
    pub(crate) bytes: u32,
    dptr: Dptr,
}

/// The namespaces, and how commands reach them.
#[derive(Debug)]
pub(crate) struct Store {
    namespaces: Vec<Namespace>,
    /// Most bytes in one command.
    pub(crate) max_transfer: u32,
    /// As the host set CC.MPS.
    pub(crate) page: PageSize,
    /// Feature 06h: without a write cache every write is durable.
    pub(crate) write_cache: bool,
    moves_data: bool,
    /// Where the data of other than memory media pass through.
    scratch: Vec<u8>,
}

impl Store {
    pub(crate) fn new(namespaces: Vec<Namespace>, max_transfer: u32, moves_data: bool) -> Store {
        let bounce = namespaces.iter().any(|n| matches!(n.medium, Medium::Other(_)));
        let scratch = if bounce { vec![0; max_transfer as usize] } else { Vec::new() };
        Store { namespaces, max_transfer, page: PageSize::MIN, write_cache: true, moves_data, scratch }
    }

    /// How many namespaces there are; identifiers count from 1.
    pub(crate) fn len(&self) -> u32 {
        self.namespaces.len() as u32
    }

    #[inline]
    pub(crate) fn get(&self, nsid: Nsid) -> Option<&Namespace> {
        self.namespaces.get(nsid.0.wrapping_sub(1) as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, nsid: Nsid) -> Option<&mut Namespace> {
        self.namespaces.get_mut(nsid.0.wrapping_sub(1) as usize)
    }

    /// Whether any medium has a volatile write cache.
    pub(crate) fn is_volatile(&self) -> bool {
        self.namespaces.iter().any(|n| n.media().is_volatile())
    }

    /// Checks a command as far as that goes without touching its data.
    #[inline(always)]
    pub(crate) fn decode(&self, sqe: &Sqe) -> Result<Request, Status> {
        // FUSE: no fused commands. PSDT: no SGLs.
        if sqe.flags != 0 {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        let op = match sqe.opcode {
            opcode::io::READ => Op::Read,
            opcode::io::WRITE => Op::Write,
            opcode::io::FLUSH => return self.decode_flush(sqe.nsid()),
            _ => return Err(Status::INVALID_OPCODE.with_dnr()),
        };
        let Some(namespace) = self.get(sqe.nsid()) else { return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr()) };
        let transfer = Transfer::from_sqe(sqe);
        let bytes = u64::from(transfer.blocks) << namespace.block_shift;
        if bytes > u64::from(self.max_transfer) {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if transfer.prinfo != 0 {
            return Err(Status::INVALID_PROTECTION_INFORMATION.with_dnr());
        }
        if !transfer.fits(namespace.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        let durable = !self.write_cache | transfer.flags.contains(Flags::FUA);
        Ok(Request { op, durable, nsid: sqe.nsid(), lba: transfer.lba.0, bytes: bytes as u32, dptr: sqe.dptr() })
    }

    fn decode_flush(&self, nsid: Nsid) -> Result<Request, Status> {
        if nsid != Nsid::ALL && self.get(nsid).is_none() {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
        }
        Ok(Request { op: Op::Flush, durable: true, nsid, lba: 0, bytes: 0, dptr: Dptr::NONE })
    }

    /// Carries a command out. Inlined so that `null` needs next to nothing of the request.
    #[inline(always)]
    pub(crate) fn execute(&mut self, request: &Request, port: &impl Port) -> Result<(), Status> {
        match request.op {
            Op::Flush => self.flush(request.nsid),
            Op::Read | Op::Write if !self.moves_data => Ok(()),
            Op::Read | Op::Write => self.transfer(request, port),
        }
    }

    fn transfer(&mut self, request: &Request, port: &impl Port) -> Result<(), Status> {
        let (page, bytes) = (self.page, request.bytes);
        let Store { namespaces, scratch, .. } = self;
        let namespace = namespaces.get_mut(request.nsid.0.wrapping_sub(1) as usize).ok_or(Status::INTERNAL_ERROR)?;
        let at = request.lba << namespace.block_shift;
        let mut data = Walker::new(request.dptr, u64::from(bytes), page)?;
        match (&mut namespace.medium, request.op) {
            (Medium::Mem(mem), Op::Read) => read_mem(mem, at, &mut data, port),
            (Medium::Mem(mem), _) => write_mem(mem, at, &mut data, port),
            (Medium::Other(media), op) => {
                let buffer = scratch.get_mut(..bytes as usize).ok_or(Status::INTERNAL_ERROR)?;
                if op == Op::Read {
                    media.read_at(at, buffer).map_err(status_of)?;
                    return scatter(buffer, &mut data, port);
                }
                gather(buffer, &mut data, port)?;
                media.write_at(at, buffer, request.durable).map_err(status_of)
            }
        }
    }

    /// Makes a namespace, or all, durable.
    #[inline(never)]
    pub(crate) fn flush(&mut self, nsid: Nsid) -> Result<(), Status> {
        let one = (nsid != Nsid::ALL).then_some(nsid.0.wrapping_sub(1) as usize);
        let chosen = self.namespaces.iter_mut().enumerate().filter(|&(n, _)| one.is_none_or(|one| one == n));
        // All of them, even if one fails; the first error is the command's.
        chosen.map(|(_, namespace)| namespace.media_mut().flush().map_err(status_of)).fold(Ok(()), Result::and)
    }
}

#[inline]
fn read_mem(mem: &Mem, mut at: u64, data: &mut Walker, port: &impl Port) -> Result<(), Status> {
    while let Some(Segment { mut addr, mut len }) = data.next(|from, into| port.dma_read(from, into)).map_err(prp_status)? {
        while len > 0 {
            let piece = mem.piece(at, len);
            if piece.is_empty() {
                return Err(Status::INTERNAL_ERROR);
            }
            port.dma_write(addr, piece).map_err(refused)?;
            let n = piece.len() as u64;
            (at, addr, len) = (at + n, addr + n, len - n);
        }
    }
    Ok(())
}

#[inline]
fn write_mem(mem: &mut Mem, mut at: u64, data: &mut Walker, port: &impl Port) -> Result<(), Status> {
    while let Some(Segment { mut addr, mut len }) = data.next(|from, into| port.dma_read(from, into)).map_err(prp_status)? {
        port.check(addr, len).map_err(refused)?;
        while len > 0 {
            let piece = mem.piece_mut(at, len).map_err(status_of)?;
            port.dma_read(addr, piece).map_err(refused)?;
            let n = piece.len() as u64;
            (at, addr, len) = (at + n, addr + n, len - n);
        }
    }
    Ok(())
}

/// Copies a buffer into the host's memory.
pub(crate) fn scatter(from: &[u8], data: &mut Walker, port: &impl Port) -> Result<(), Status> {
    let mut rest = from;
    while let Some(segment) = data.next(|from, into| port.dma_read(from, into)).map_err(prp_status)? {
        let (now, later) = rest.split_at_checked(segment.len as usize).ok_or(Status::INTERNAL_ERROR)?;
        port.dma_write(segment.addr, now).map_err(refused)?;
        rest = later;
    }
    Ok(())
}

/// Fills a buffer from the host's memory.
pub(crate) fn gather(into: &mut [u8], data: &mut Walker, port: &impl Port) -> Result<(), Status> {
    let mut rest = into;
    while let Some(segment) = data.next(|from, into| port.dma_read(from, into)).map_err(prp_status)? {
        let (now, later) = rest.split_at_mut_checked(segment.len as usize).ok_or(Status::INTERNAL_ERROR)?;
        port.dma_read(segment.addr, now).map_err(refused)?;
        rest = later;
    }
    Ok(())
}

/// An address outside the host's memory. The same command would fail again.
fn refused(error: BusError) -> Status {
    tracing::debug!(%error, "a command's data could not be transferred");
    Status::DATA_TRANSFER_ERROR.with_dnr()
}

fn prp_status(status: Status) -> Status {
    status.with_dnr()
}

/// The status of a medium's refusal.
fn status_of(error: MediaError) -> Status {
    tracing::warn!(%error, "a medium refused");
    match error {
        // What NVM 3.1 names for a thin provisioned namespace that has run out; later, with blocks to spare, the same
        // write may succeed.
        MediaError::Full { .. } => Status::CAPACITY_EXCEEDED,
        MediaError::Io { what: Access::Read, .. } => Status::UNRECOVERED_READ_ERROR,
        MediaError::Io { .. } => Status::WRITE_FAULT,
        MediaError::FlushLost => Status::WRITE_FAULT.with_dnr(),
        MediaError::OutOfRange { .. } => Status::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests;
