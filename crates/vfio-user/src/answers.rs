//! Answers as a client reads them. Their server is not trusted: what it says of sizes and places is held against the question and itself.

use crate::bytes::{Malformed, Reader};
use crate::request::{Access, MOST_REGION_INFO};
use crate::socket::Socket;

/// Flags of a region (`VFIO_REGION_INFO_FLAG_*`).
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
pub(crate) const MMAP: u32 = 1 << 2;
pub(crate) const CAPS: u32 = 1 << 3;

/// The capability that lists which parts of a region can be mapped (`VFIO_REGION_INFO_CAP_SPARSE_MMAP`).
pub(crate) const SPARSE_MMAP: u16 = 1;

/// A device (`struct vfio_device_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// It can be reset by a message.
    pub can_reset: bool,
    /// It is a PCI device.
    pub is_pci: bool,
    /// Regions.
    pub regions: u32,
    /// Kinds of interrupts.
    pub irqs: u32,
}

/// A region (`struct vfio_region_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// It can be read by messages.
    pub readable: bool,
    /// It can be written by messages.
    pub writable: bool,
    /// Bytes; 0: there is none of that index.
    pub bytes: u64,
    /// Where the region begins in the file of its descriptors.
    pub file_offset: u64,
    /// Parts that can be mapped, in the order of their descriptors; where there is one descriptor, it is that of all.
    pub areas: Vec<Area>,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte in the region.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Interrupts of a kind (`struct vfio_irq_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupts {
    /// They signal eventfds.
    pub by_eventfd: bool,
    /// How many; 0: there are none of that kind.
    pub count: u32,
}

impl Device {
    /// Reads the answer to GET_INFO.
    ///
    /// # Errors
    /// It is too short.
    pub fn from_answer(body: &[u8]) -> Result<Device, Malformed> {
        let mut reader = Reader::new("answer to GET_INFO", body);
        let (_argsz, flags) = (reader.u32()?, reader.u32()?);
        Ok(Device { can_reset: flags & 1 != 0, is_pci: flags & 1 << 1 != 0, regions: reader.u32()?, irqs: reader.u32()? })
    }
}

impl Interrupts {
    /// Reads the answer to GET_IRQ_INFO about `index`.
    ///
    /// # Errors
    /// It is too short, or about other interrupts.
    pub fn from_answer(index: u32, body: &[u8]) -> Result<Interrupts, Malformed> {
        let mut reader = Reader::new("answer to GET_IRQ_INFO", body);
        let (_argsz, flags, about) = (reader.u32()?, reader.u32()?, reader.u32()?);
        same("index of GET_IRQ_INFO's answer", about, index)?;
        Ok(Interrupts { by_eventfd: flags & 1 != 0, count: reader.u32()? })
    }
}

impl Region {
    /// Parts of a region at most: as many descriptors as come with a message.
    pub const MOST_AREAS: usize = Socket::MOST_FDS;

    /// Bytes that an answer with that many parts takes at most, for the field `argsz` of the question.
    pub const MOST_BYTES: u32 = MOST_REGION_INFO;

    /// Reads the answer to GET_REGION_INFO about `index`.
    ///
    /// # Errors
    /// It is too short, about another region, or lists parts that are not in the region.
    pub fn from_answer(index: u32, body: &[u8]) -> Result<Region, Malformed> {
        let mut reader = Reader::new("answer to GET_REGION_INFO", body);
        let (argsz, flags, about, first) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        same("index of GET_REGION_INFO's answer", about, index)?;
        let (bytes, file_offset) = (reader.u64()?, reader.u64()?);
        let mut areas = Vec::new();
        // More than there was room for has been left out: what can be mapped is not known then.
        if flags & MMAP != 0 && bytes > 0 && argsz <= Region::MOST_BYTES {
            let sparse = if flags & CAPS != 0 { sparse_areas(body, first)? } else { None };
            areas = sparse.unwrap_or_else(|| vec![Area { offset: 0, bytes }]);
        }
        for Area { offset, bytes: len } in &areas {
            let end = offset.checked_add(*len).filter(|end| *end <= bytes);
            if end.and_then(|end| end.checked_add(file_offset)).is_none() {
                return Err(Malformed::Field { what: "end of a part of a region", value: offset.wrapping_add(*len) });
            }
        }
        Ok(Region { readable: flags & READ != 0, writable: flags & WRITE != 0, bytes, file_offset, areas })
    }
}

/// The data of an answer to REGION_READ.
///
/// # Errors
/// It is not about `asked`, or has fewer bytes than it says.
pub fn region_data<'a>(asked: &Access, body: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let mut reader = Reader::new("answer to REGION_READ", body);
    let (offset, region, count) = (reader.u64()?, reader.u32()?, reader.u32()?);
    same("region of REGION_READ's answer", region, asked.region)?;
    same("count of REGION_READ's answer", count, asked.count)?;
    if offset != asked.offset {
        return Err(Malformed::Field { what: "offset of REGION_READ's answer", value: offset });
    }
    let data = reader.rest();
    data.get(..count as usize).ok_or(Malformed::Short { what: "data of REGION_READ's answer", len: data.len() })
}

fn same(what: &'static str, said: u32, asked: u32) -> Result<(), Malformed> {
    if said == asked { Ok(()) } else { Err(Malformed::Field { what, value: said.into() }) }
}

/// What the chain of capabilities that begins at `first` says of parts that can be mapped. It goes forward, and so has an end.
fn sparse_areas(body: &[u8], first: u32) -> Result<Option<Vec<Area>>, Malformed> {
    const WHAT: &str = "capabilities of a region";
    let from =
        |at: u32| body.get(at as usize..).map(|rest| Reader::new(WHAT, rest)).ok_or(Malformed::Short { what: WHAT, len: body.len() });
    let mut at = first;
    while at != 0 {
        let mut reader = from(at)?;
        let (id, _version, next) = (reader.u16()?, reader.u16()?, reader.u32()?);
        if id == SPARSE_MMAP {
            let (count, _reserved) = (reader.u32()?, reader.u32()?);
            if count as usize > Region::MOST_AREAS {
                return Err(Malformed::Field { what: "number of parts of a region", value: count.into() });
            }
            let area = |_| Ok(Area { offset: reader.u64()?, bytes: reader.u64()? });
            return (0..count).map(area).collect::<Result<_, _>>().map(Some);
        }
        if next != 0 && next <= at {
            return Err(Malformed::Field { what: "next capability of a region", value: next.into() });
        }
        at = next;
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
