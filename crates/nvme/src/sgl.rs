//! Scatter Gather Lists: the alternative to PRPs (Base §4.3.2), supported if SGLS is not zero.
//!
//! The command holds one descriptor: of the data, or of a *segment*, which is an array of
//! descriptors in memory. The last descriptor of a segment may point to the next segment. CDW0.PSDT
//! says whether a command has an SGL or PRPs.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::Status;
use crate::prp::{Dptr, Segment};

// Descriptor types and sub types (Base §4.3.2.1, SGL Identifier) that are supported.
/// SGL Data Block: address and length of data.
const DATA_BLOCK: u8 = 0x00;
/// SGL Segment: its last descriptor points to another segment.
const SEGMENT: u8 = 0x20;
/// SGL Last Segment: none of its descriptors points to another segment.
const LAST_SEGMENT: u8 = 0x30;
/// SGL Data Block with sub type Offset: in-capsule data at this offset (NVMe over Fabrics).
const DATA_OFFSET: u8 = 0x01;
/// Transport SGL Data Block: data that the transport transfers, without an address (NVMe over
/// Fabrics).
const TRANSPORT_DATA: u8 = 0x5a;

/// Maximum number of descriptors that [`walk`] reads for a command, so that a cyclic list
/// terminates.
pub const MAX_DESCRIPTORS: u32 = 4096;

/// Maximum number of descriptors read at a time.
const BATCH: usize = 16;

/// An SGL descriptor: 16 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Descriptor {
    /// Address of the data or the segment.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    #[doc(hidden)]
    pub reserved: [u8; 3],
    /// SGL Identifier: the type in bits 7:4, the sub type in bits 3:0.
    pub kind: u8,
}

impl Descriptor {
    /// Bytes of a descriptor.
    pub const LEN: u32 = 16;

    /// `len` bytes of data at bus address `addr`.
    pub const fn data_block(addr: u64, len: u32) -> Descriptor {
        Descriptor { addr, len, reserved: [0; 3], kind: DATA_BLOCK }
    }

    /// An SGL Segment of `descriptors` descriptors at bus address `addr`, whose last one points to
    /// another segment.
    pub const fn segment(addr: u64, descriptors: u32) -> Descriptor {
        Descriptor { addr, len: descriptors * Descriptor::LEN, reserved: [0; 3], kind: SEGMENT }
    }

    /// An SGL Last Segment of `descriptors` descriptors at bus address `addr`.
    pub const fn last_segment(addr: u64, descriptors: u32) -> Descriptor {
        Descriptor {
            addr,
            len: descriptors * Descriptor::LEN,
            reserved: [0; 3],
            kind: LAST_SEGMENT,
        }
    }

    /// `len` bytes of in-capsule data from `offset`.
    pub const fn in_capsule(offset: u64, len: u32) -> Descriptor {
        Descriptor { addr: offset, len, reserved: [0; 3], kind: DATA_OFFSET }
    }

    /// `len` bytes of data that the transport transfers.
    pub const fn transport(len: u32) -> Descriptor {
        Descriptor { addr: 0, len, reserved: [0; 3], kind: TRANSPORT_DATA }
    }

    /// Whether the data are in the capsule.
    pub const fn is_in_capsule(&self) -> bool {
        self.kind == DATA_OFFSET
    }

    /// Whether the transport transfers the data.
    pub const fn is_transport(&self) -> bool {
        self.kind == TRANSPORT_DATA
    }

    /// The descriptor in a command's data pointer (DPTR.SGL1).
    pub const fn of(dptr: Dptr) -> Descriptor {
        transmute!([dptr.prp1, dptr.prp2])
    }

    /// The data pointer with this descriptor, for commands with [`crate::Sqe::PSDT_SGL`].
    pub const fn dptr(self) -> Dptr {
        let [prp1, prp2] = transmute!(self);
        Dptr { prp1, prp2 }
    }
}

/// Follows the SGL of a command that transfers `len` bytes, and passes each range of data to
/// `found`, in order; adjacent data blocks are merged. `read(addr, into)` reads descriptors, each
/// of them once; if it fails, the walk fails with Data Transfer Error.
///
/// The host is not trusted: the whole list is validated, up to [`MAX_DESCRIPTORS`]. After an error
/// the ranges that were passed to `found` must not be used.
///
/// # Errors
/// The statuses of Base §4.2.3.1, with Do Not Retry:
///
/// | status | why |
/// | --- | --- |
/// | Invalid SGL Segment Descriptor | a segment is empty, not a multiple of 16 bytes or not qword aligned; a Segment does not point to another segment, or a Last Segment does |
/// | Invalid Number of SGL Descriptors | a Segment or Last Segment descriptor is not the last one of its segment; there are more than [`MAX_DESCRIPTORS`] |
/// | SGL Descriptor Type Invalid | an unsupported type or sub type |
/// | SGL Data Block Granularity Invalid | address or length of data is not a multiple of four |
/// | Data SGL Length Invalid | more or less data than `len` |
pub fn walk<E>(
    dptr: Dptr,
    len: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    found: impl FnMut(Segment),
) -> Result<(), Status> {
    let mut data = RangeCollector { left: len, pending: Segment::default(), found };
    let mut budget = MAX_DESCRIPTORS;
    let mut walk_all = || {
        let mut next = data.take(Descriptor::of(dptr))?;
        while let Some(segment) = next.take() {
            let mut rest = segment.len / Descriptor::LEN;
            // A host could chain segments in a circle; the limit ends the walk.
            budget = budget.checked_sub(rest).ok_or(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS)?;
            let mut at = segment.addr;
            let mut descriptors = [Descriptor::default(); BATCH];
            while rest > 0 {
                // In batches: one DMA access for several descriptors.
                let descriptors = &mut descriptors[..BATCH.min(rest as usize)];
                read(at, descriptors.as_mut_bytes()).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
                // If the address wraps, the next `read` fails.
                at = at.wrapping_add(descriptors.as_bytes().len() as u64);
                for descriptor in descriptors {
                    rest -= 1;
                    match data.take(*descriptor)? {
                        Some(_) if segment.kind == LAST_SEGMENT => {
                            return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
                        }
                        // Only the last descriptor of a segment may point to another one.
                        Some(_) if rest > 0 => {
                            return Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
                        }
                        of_segment => next = of_segment,
                    }
                }
            }
            // A Segment must point to another segment, a Last Segment must not.
            if next.is_some() != (segment.kind == SEGMENT) {
                return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
            }
        }
        // An SGL shorter than the transfer is an error as well.
        if data.left == 0 { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID) }
    };
    walk_all().map_err(Status::with_dnr)?;
    // The last range of data: no data block follows that would pass it on.
    data.pass_pending();
    Ok(())
}

/// Merges adjacent data blocks, and passes the ranges to `found`.
struct RangeCollector<F> {
    /// Bytes of the transfer that no descriptor has covered yet.
    left: u64,
    /// The last range, which the next data block may extend.
    pending: Segment,
    found: F,
}

impl<F: FnMut(Segment)> RangeCollector<F> {
    /// Validates a descriptor. Returns it if it describes a segment.
    fn take(&mut self, descriptor: Descriptor) -> Result<Option<Descriptor>, Status> {
        let Descriptor { addr, len, kind, .. } = descriptor;
        match kind {
            DATA_BLOCK if (addr | u64::from(len)) & 3 != 0 => {
                Err(Status::SGL_DATA_BLOCK_GRANULARITY_INVALID)
            }
            DATA_BLOCK => {
                let len = len.into();
                self.left = self.left.checked_sub(len).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
                // Adjacent blocks are merged, as drivers describe a contiguous buffer page by page.
                if self.pending.addr.checked_add(self.pending.len) == Some(addr) {
                    self.pending.len += len;
                } else {
                    self.pass_pending();
                    self.pending = Segment { addr, len };
                }
                Ok(None)
            }
            SEGMENT | LAST_SEGMENT if len == 0 || len % Descriptor::LEN != 0 || addr & 7 != 0 => {
                Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR)
            }
            SEGMENT | LAST_SEGMENT => Ok(Some(descriptor)),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }

    fn pass_pending(&mut self) {
        // Data blocks of length 0 are valid.
        if self.pending.len > 0 {
            (self.found)(self.pending);
        }
    }
}

#[cfg(test)]
mod tests;
