//! Scatter gather lists: the other way to say where the data of a command are (Base 4.3.2), where
//! the controller has it (SGLS).
//!
//! The command itself holds one descriptor: of the data, or of a *segment*, which is a run of
//! descriptors in memory. The last descriptor of a segment leads to the next one. CDW0.PSDT tells
//! such commands from those with PRPs.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::Status;
use crate::prp::{Dptr, Segment};

// What a descriptor is (Base 4.3.2.1, SGL Identifier: type and sub type). Here the types that
// controllers on a bus know.
/// Of data: an address and a length.
const DATA_BLOCK: u8 = 0x00;
/// Of a segment that another one follows.
const SEGMENT: u8 = 0x20;
/// Of the last segment.
const LAST_SEGMENT: u8 = 0x30;
/// Of data in the capsule of the command: the address is an offset there (NVMe over Fabrics).
const DATA_OFFSET: u8 = 0x01;
/// Of data that the transport moves: there is no address (NVMe over Fabrics).
const TRANSPORT_DATA: u8 = 0x5a;

/// The most descriptors that [`walk`] follows for a command. No host needs as many, and a list
/// without an end has more.
pub const MOST_DESCRIPTORS: u32 = 4096;

/// Descriptors fetched at one time.
const FETCH: usize = 16;

/// An SGL descriptor: 16 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Descriptor {
    /// Where the data, or the segment, begins.
    pub addr: u64,
    /// Bytes.
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

    /// A segment of `descriptors` descriptors at bus address `addr`, of which the last leads to
    /// another segment.
    pub const fn segment(addr: u64, descriptors: u32) -> Descriptor {
        Descriptor { addr, len: descriptors * Descriptor::LEN, reserved: [0; 3], kind: SEGMENT }
    }

    /// The last segment, of `descriptors` descriptors at bus address `addr`.
    pub const fn last_segment(addr: u64, descriptors: u32) -> Descriptor {
        Descriptor {
            addr,
            len: descriptors * Descriptor::LEN,
            reserved: [0; 3],
            kind: LAST_SEGMENT,
        }
    }

    /// `len` bytes of data in the capsule of their command, from `offset` on.
    pub const fn in_capsule(offset: u64, len: u32) -> Descriptor {
        Descriptor { addr: offset, len, reserved: [0; 3], kind: DATA_OFFSET }
    }

    /// `len` bytes of data that the transport moves.
    pub const fn transport(len: u32) -> Descriptor {
        Descriptor { addr: 0, len, reserved: [0; 3], kind: TRANSPORT_DATA }
    }

    /// Whether the data are in the capsule.
    pub const fn is_in_capsule(&self) -> bool {
        self.kind == DATA_OFFSET
    }

    /// Whether the transport moves the data.
    pub const fn is_transport(&self) -> bool {
        self.kind == TRANSPORT_DATA
    }

    /// The descriptor in a command's data pointer (DPTR.SGL1).
    pub const fn of(dptr: Dptr) -> Descriptor {
        transmute!([dptr.prp1, dptr.prp2])
    }

    /// The same as a command's data pointer, for commands with [`crate::Sqe::PSDT_SGL`].
    pub const fn dptr(self) -> Dptr {
        let [prp1, prp2] = transmute!(self);
        Dptr { prp1, prp2 }
    }
}

/// Follows the list of a command that moves `len` bytes, and hands `found` each run of memory, in
/// order; of those that touch, it makes one. `fetch(addr, into)` reads descriptors, each of them
/// once. If it fails the command ends with Data Transfer Error.
///
/// The host may be wrong or malicious. All of a list is judged, up to [`MOST_DESCRIPTORS`]; with an
/// error what was found is void.
///
/// # Errors
/// The statuses of Base 4.2.3.1, with Do Not Retry:
///
/// | status | why |
/// | --- | --- |
/// | Invalid SGL Segment Descriptor | a segment that is empty, no multiple of 16 bytes or not qword aligned; one that leads on, or does not, against its descriptor's type |
/// | Invalid Number of SGL Descriptors | a segment's descriptor that is not the last one of its segment; more than [`MOST_DESCRIPTORS`] |
/// | SGL Descriptor Type Invalid | a type or sub type that there is not here |
/// | SGL Data Block Granularity Invalid | data that are not dword aligned, or not of whole dwords |
/// | Data SGL Length Invalid | more or less data than `len` |
pub fn walk<E>(
    dptr: Dptr,
    len: u64,
    mut fetch: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    found: impl FnMut(Segment),
) -> Result<(), Status> {
    let mut data = Data { left: len, pending: Segment::default(), found };
    let mut budget = MOST_DESCRIPTORS;
    let mut all = || {
        let mut next = data.take(Descriptor::of(dptr))?;
        while let Some(segment) = next.take() {
            let mut rest = segment.len / Descriptor::LEN;
            budget = budget.checked_sub(rest).ok_or(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS)?;
            let mut at = segment.addr;
            let mut descriptors = [Descriptor::default(); FETCH];
            while rest > 0 {
                let descriptors = &mut descriptors[..FETCH.min(rest as usize)];
                fetch(at, descriptors.as_mut_bytes()).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
                // Beyond the last address `fetch` refuses what wraps.
                at = at.wrapping_add(descriptors.as_bytes().len() as u64);
                for descriptor in descriptors {
                    rest -= 1;
                    match data.take(*descriptor)? {
                        Some(_) if segment.kind == LAST_SEGMENT => {
                            return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
                        }
                        Some(_) if rest > 0 => {
                            return Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
                        }
                        of_segment => next = of_segment,
                    }
                }
            }
            // Whether another follows is what a segment's type says.
            if next.is_some() != (segment.kind == SEGMENT) {
                return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
            }
        }
        if data.left == 0 { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID) }
    };
    all().map_err(Status::with_dnr)?;
    data.give_pending();
    Ok(())
}

/// The data of a command, as far as descriptors have been judged.
struct Data<F> {
    /// Bytes without a descriptor.
    left: u64,
    /// The run of memory that was found last; another may touch it.
    pending: Segment,
    found: F,
}

impl<F: FnMut(Segment)> Data<F> {
    /// Judges one descriptor. A segment's is handed back.
    fn take(&mut self, descriptor: Descriptor) -> Result<Option<Descriptor>, Status> {
        let Descriptor { addr, len, kind, .. } = descriptor;
        match kind {
            DATA_BLOCK if (addr | u64::from(len)) & 3 != 0 => {
                Err(Status::SGL_DATA_BLOCK_GRANULARITY_INVALID)
            }
            DATA_BLOCK => {
                let len = len.into();
                self.left = self.left.checked_sub(len).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
                if self.pending.addr.checked_add(self.pending.len) == Some(addr) {
                    self.pending.len += len;
                } else {
                    self.give_pending();
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

    fn give_pending(&mut self) {
        // A data block of no bytes is one.
        if self.pending.len > 0 {
            (self.found)(self.pending);
        }
    }
}

#[cfg(test)]
mod tests;
