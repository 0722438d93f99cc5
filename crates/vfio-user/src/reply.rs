//! Replies: what a device answers.

use rustix::io::Errno;

use crate::answers::{Area, CAPS, Device, Interrupts, MMAP, SPARSE_MMAP};
use crate::bytes::Put;
use crate::header::{Flags, Header};
use crate::request::{Access, DmaUnmap, put_access};
use crate::version::Version;

/// What a region is (`struct vfio_region_info`). Any of it can be reached by messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Which.
    pub index: u32,
    /// Bytes; 0: there is none of that index.
    pub size: u64,
    /// The part that can be mapped too, if one can. It lies in the file of a descriptor that goes with the answer, where it lies in the region.
    pub mappable: Option<Area>,
    /// Bytes that the client has room for. With too few the answer says how many it takes, and names no part.
    pub room: u32,
}

impl RegionInfo {
    /// Bytes of an answer that names a part: the structure, the head of the capability, and one area.
    const WITH_AREA: u32 = REGION_INFO + 16 + 16;

    /// Whether the answer goes with the descriptor of the part that can be mapped.
    pub fn has_descriptor(&self) -> bool {
        self.mappable.is_some() && self.room >= RegionInfo::WITH_AREA
    }

    fn put(&self, body: &mut Vec<u8>) {
        let flags = if self.size > 0 { READ_WRITE } else { 0 };
        let takes = if self.mappable.is_some() { RegionInfo::WITH_AREA } else { REGION_INFO };
        match self.mappable.filter(|_| self.has_descriptor()) {
            // No word of capabilities: QEMU takes an answer for a lie that has some and says not where.
            None => _ = body.u32(takes).u32(flags).u32(self.index).u32(0).u64(self.size).u64(0),
            Some(Area { offset, bytes }) => {
                body.u32(takes).u32(flags | MMAP | CAPS).u32(self.index).u32(REGION_INFO).u64(self.size).u64(0);
                // Version 1 of the capability, which is the last, and has one area.
                body.u16(SPARSE_MMAP).u16(1).u32(0).u32(1).u32(0).u64(offset).u64(bytes);
            }
        }
    }
}

/// What a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// It is done, and there is nothing to tell.
    Done,
    /// It failed.
    Error(Errno),
    /// What is spoken from now on.
    Version(Version),
    /// The memory that is no longer reached.
    DmaUnmap(DmaUnmap),
    /// What the device is.
    DeviceInfo(Device),
    /// What the region is.
    RegionInfo(RegionInfo),
    /// What the interrupts of this kind are. None can be masked.
    IrqInfo(u32, Interrupts),
    /// What stands in a region.
    RegionRead(Access, &'a [u8]),
    /// The bytes that were written.
    RegionWrite(Access),
}

/// Bytes of `struct vfio_region_info`.
const REGION_INFO: u32 = 32;
/// Flags of a region that can be read and written.
const READ_WRITE: u32 = 1 | 1 << 1;
/// Flags of interrupts: they go to eventfds (bit 0), and their number is set once and for all (bit 3).
const EVENTFD_FIXED: u32 = 1 | 1 << 3;

impl Reply<'_> {
    /// The whole message that answers the request of this header.
    pub fn to_bytes(&self, request: &Header) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Reply::Done | Reply::Error(_) => {}
            Reply::Version(version) => body = version.to_bytes(),
            Reply::DmaUnmap(unmap) => _ = body.u32(24).u32(if unmap.all { 2 } else { 0 }).u64(unmap.address).u64(unmap.size),
            Reply::DeviceInfo(Device { can_reset, is_pci, regions, irqs }) => {
                _ = body.u32(16).u32(u32::from(*can_reset) | u32::from(*is_pci) << 1).u32(*regions).u32(*irqs);
            }
            Reply::RegionInfo(info) => info.put(&mut body),
            Reply::IrqInfo(index, Interrupts { by_eventfd, count }) => {
                _ = body.u32(16).u32(if *by_eventfd { EVENTFD_FIXED } else { 0 }).u32(*index).u32(*count);
            }
            Reply::RegionRead(access, data) => {
                put_access(access, &mut body);
                body.extend(*data);
            }
            Reply::RegionWrite(access) => put_access(access, &mut body),
        }
        let (flags, error) = match self {
            Reply::Error(errno) => (Flags::ERROR, errno.raw_os_error() as u32),
            _ => (Flags::REPLY, 0),
        };
        Header { id: request.id, command: request.command, size: 0, flags, error }.with_body(&body)
    }
}
