//! Data pointers (PRPs, SGLs) and the copying of data between host memory and buffers.

use std::io::ErrorKind;
use std::vec::IntoIter;

use nvme::prp::{Dptr, PageSize, Segment, Walker};
use nvme::{Status, sgl};

use crate::media::{MediaError, MediaOperation};
use crate::{BusError, Mem, Port};

/// A command's data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) dptr: Dptr,
    /// DPTR is an SGL descriptor (PSDT).
    pub(super) sgl: bool,
}

impl Pointer {
    #[inline]
    pub(super) fn prps(dptr: Dptr) -> Pointer {
        Pointer { dptr, sgl: false }
    }
}

/// The memory segments of a command's data, from PRPs or an SGL.
pub(crate) enum Data {
    /// PRP lists are read while the data are copied.
    Prps(Walker),
    /// A single data block, in the command or in a list.
    Block(Option<Segment>),
    /// A longer SGL, read and validated completely before any data are copied.
    Listed(IntoIter<Segment>),
}

impl Data {
    /// From PRPs.
    #[inline]
    pub(crate) fn prps(dptr: Dptr, len: u64, page: PageSize) -> Result<Data, Status> {
        Walker::new(dptr, len, page).map(Data::Prps)
    }

    /// From PRPs or an SGL.
    #[inline]
    pub(super) fn of(
        Pointer { dptr, sgl }: Pointer,
        bytes: u32,
        page: PageSize,
        port: &impl Port,
    ) -> Result<Data, Status> {
        if sgl {
            Data::listed(dptr, bytes.into(), port)
        } else {
            Data::prps(dptr, bytes.into(), page)
        }
    }

    #[cold]
    #[inline(never)]
    fn listed(dptr: Dptr, len: u64, port: &impl Port) -> Result<Data, Status> {
        let (mut first, mut all) = (None, Vec::new());
        sgl::walk(
            dptr,
            len,
            |from, into| port.dma_read(from, into),
            |run| {
                // A list with one segment, the usual case, needs no allocation.
                if let Some(before) = first.replace(run) {
                    all.push(before);
                }
            },
        )?;
        // An empty `all` with no first segment is a transfer without data.
        if all.is_empty() {
            return Ok(Data::Block(first));
        }
        all.extend(first);
        Ok(Data::Listed(all.into_iter()))
    }

    /// The next segment; `None` after the last.
    #[inline]
    pub(super) fn next(&mut self, port: &impl Port) -> Result<Option<Segment>, Status> {
        match self {
            Data::Prps(walker) => {
                walker.next(|from, into| port.dma_read(from, into)).map_err(Status::with_dnr)
            }
            Data::Block(block) => Ok(block.take()),
            Data::Listed(runs) => Ok(runs.next()),
        }
    }
}

#[inline]
pub(super) fn read_mem(
    mem: &Mem,
    mut at: u64,
    data: &mut Data,
    port: &impl Port,
) -> Result<(), Status> {
    while let Some(Segment { mut addr, mut len }) = data.next(port)? {
        while len > 0 {
            // Data are copied from the medium's page to host memory, without a bounce buffer.
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
pub(super) fn write_mem(
    mem: &mut Mem,
    mut at: u64,
    data: &mut Data,
    port: &impl Port,
) -> Result<(), Status> {
    while let Some(Segment { mut addr, mut len }) = data.next(port)? {
        // All host memory is checked before any page is changed: a Write with inaccessible memory
        // must not leave half of its data on the medium.
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

/// Copies a buffer to host memory.
pub(crate) fn scatter(from: &[u8], data: &mut Data, port: &impl Port) -> Result<(), Status> {
    let mut rest = from;
    while let Some(segment) = data.next(port)? {
        let (now, later) =
            rest.split_at_checked(segment.len as usize).ok_or(Status::INTERNAL_ERROR)?;
        port.dma_write(segment.addr, now).map_err(refused)?;
        rest = later;
    }
    Ok(())
}

/// Copies host memory into a buffer.
pub(crate) fn gather(into: &mut [u8], data: &mut Data, port: &impl Port) -> Result<(), Status> {
    let mut rest = into;
    while let Some(segment) = data.next(port)? {
        let (now, later) =
            rest.split_at_mut_checked(segment.len as usize).ok_or(Status::INTERNAL_ERROR)?;
        port.dma_read(segment.addr, now).map_err(refused)?;
        rest = later;
    }
    Ok(())
}

/// Status for an address outside host memory, with DNR, as a retry would fail too.
pub(super) fn refused(error: BusError) -> Status {
    tracing::debug!(%error, "a command's data could not be transferred");
    Status::DATA_TRANSFER_ERROR.with_dnr()
}

/// Status for a medium's error.
pub(super) fn status_of(error: MediaError) -> Status {
    tracing::warn!(%error, "a medium refused");
    match error {
        // The status of NVM 3.1 for a thin provisioned namespace without free blocks. Without DNR:
        // the write may succeed after a deallocation.
        MediaError::Full { .. } => Status::CAPACITY_EXCEEDED,
        MediaError::Io {
            what: MediaOperation::Write | MediaOperation::Zero | MediaOperation::Flush,
            source,
            ..
        } if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            Status::CAPACITY_EXCEEDED
        }
        MediaError::Io { what: MediaOperation::Read, .. } => Status::UNRECOVERED_READ_ERROR,
        MediaError::Io { .. } => Status::WRITE_FAULT,
        MediaError::Uncorrectable { .. } => Status::UNRECOVERED_READ_ERROR.with_dnr(),
        MediaError::FlushLost | MediaError::Truncated { .. } => Status::WRITE_FAULT.with_dnr(),
        MediaError::OutOfRange { .. } => Status::INTERNAL_ERROR,
    }
}
