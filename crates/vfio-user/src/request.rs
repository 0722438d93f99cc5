//! Requests: what a client asks of a device.

use crate::bytes::{Malformed, Put, Reader};
use crate::header::{Command, Flags, Header};
use crate::irqs::SetIrqs;
use crate::socket::Socket;
use crate::version::Version;

/// Bytes that an answer to GET_REGION_INFO takes at most, with as many parts as descriptors come with a message.
pub(crate) const MOST_REGION_INFO: u32 = 32 + 16 + 16 * Socket::MOST_FDS as u32 + 64;

/// DMA_MAP: guest memory appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// The device may read it.
    pub readable: bool,
    /// The device may write to it.
    pub writable: bool,
    /// First byte of the range in the file of the descriptor that comes with the message, if one does.
    pub offset: u64,
    /// Bus address of its first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// DMA_UNMAP: guest memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// Everything goes, whatever the range says.
    pub all: bool,
    /// A bitmap of what was written to is wanted: migration.
    pub bitmap: bool,
    /// Bus address of the range.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// REGION_READ and REGION_WRITE: which bytes of which region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// First byte in the region.
    pub offset: u64,
    /// Which region ([`crate::region`]).
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// What do both speak?
    Version(Version),
    /// Guest memory appears.
    DmaMap(DmaMap),
    /// Guest memory goes.
    DmaUnmap(DmaUnmap),
    /// What is the device?
    DeviceInfo,
    /// What is this region?
    RegionInfo {
        /// Which.
        index: u32,
        /// Bytes that the answer may have (`argsz`); what does not fit is left out.
        room: u32,
    },
    /// What is this kind of interrupts?
    IrqInfo {
        /// Which.
        index: u32,
    },
    /// Where do interrupts go?
    SetIrqs(SetIrqs<'a>),
    /// What stands there?
    RegionRead(Access),
    /// This stands there from now on: as many bytes as the access counts.
    RegionWrite(Access, &'a [u8]),
    /// The device as after power-on.
    DeviceReset,
}

const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const BITMAP: u32 = 1;
const ALL: u32 = 1 << 1;

impl<'a> Request<'a> {
    /// Reads the body of a command's message. What a body has more than is known here is a later version's, and is passed over.
    ///
    /// # Errors
    /// It is too short, or contradicts itself.
    pub fn from_bytes(command: Command, body: &'a [u8]) -> Result<Request<'a>, Malformed> {
        Ok(match command {
            Command::Version => Request::Version(Version::from_bytes(body)?),
            Command::DmaMap => Request::DmaMap(dma_map(Reader::new("DMA_MAP message", body))?),
            Command::DmaUnmap => Request::DmaUnmap(dma_unmap(Reader::new("DMA_UNMAP message", body))?),
            Command::DeviceGetInfo => Request::DeviceInfo,
            Command::DeviceGetRegionInfo => {
                let (room, index) = question(Reader::new("GET_REGION_INFO message", body))?;
                Request::RegionInfo { index, room }
            }
            Command::DeviceGetIrqInfo => Request::IrqInfo { index: question(Reader::new("GET_IRQ_INFO message", body))?.1 },
            Command::DeviceSetIrqs => Request::SetIrqs(SetIrqs::read(Reader::new("SET_IRQS message", body))?),
            Command::RegionRead => Request::RegionRead(access(&mut Reader::new("REGION_READ message", body))?),
            Command::RegionWrite => {
                let mut reader = Reader::new("REGION_WRITE message", body);
                let access = access(&mut reader)?;
                let data = reader.rest();
                let short = Malformed::Short { what: "data of REGION_WRITE", len: data.len() };
                Request::RegionWrite(access, data.get(..access.count as usize).ok_or(short)?)
            }
            Command::DeviceReset => Request::DeviceReset,
        })
    }

    /// Which command it is.
    pub fn command(&self) -> Command {
        match self {
            Request::Version(_) => Command::Version,
            Request::DmaMap(_) => Command::DmaMap,
            Request::DmaUnmap(_) => Command::DmaUnmap,
            Request::DeviceInfo => Command::DeviceGetInfo,
            Request::RegionInfo { .. } => Command::DeviceGetRegionInfo,
            Request::IrqInfo { .. } => Command::DeviceGetIrqInfo,
            Request::SetIrqs(_) => Command::DeviceSetIrqs,
            Request::RegionRead(_) => Command::RegionRead,
            Request::RegionWrite(..) => Command::RegionWrite,
            Request::DeviceReset => Command::DeviceReset,
        }
    }

    /// A whole message of this identifier and these flags.
    pub fn to_bytes(&self, id: u16, flags: Flags) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Request::Version(version) => body = version.to_bytes(),
            Request::DmaMap(map) => {
                let flags = if map.readable { READ } else { 0 } | if map.writable { WRITE } else { 0 };
                body.u32(32).u32(flags).u64(map.offset).u64(map.address).u64(map.size);
            }
            Request::DmaUnmap(unmap) => {
                let flags = if unmap.bitmap { BITMAP } else { 0 } | if unmap.all { ALL } else { 0 };
                body.u32(24).u32(flags).u64(unmap.address).u64(unmap.size);
            }
            Request::DeviceInfo => _ = body.u32(16).u32(0).u32(0).u32(0),
            Request::RegionInfo { index, room } => _ = body.u32(*room).u32(0).u32(*index).u32(0).u64(0).u64(0),
            Request::IrqInfo { index } => _ = body.u32(16).u32(0).u32(*index).u32(0),
            Request::SetIrqs(set) => set.put(&mut body),
            Request::RegionRead(access) => put_access(access, &mut body),
            Request::RegionWrite(access, data) => {
                put_access(access, &mut body);
                body.extend(*data);
            }
            Request::DeviceReset => {}
        }
        Header { id, command: self.command() as u16, size: 0, flags, error: 0 }.with_body(&body)
    }
}

fn dma_map(mut reader: Reader<'_>) -> Result<DmaMap, Malformed> {
    let _argsz = reader.u32()?;
    let flags = reader.u32()?;
    if flags & !(READ | WRITE) != 0 {
        return Err(Malformed::Field { what: "flags of DMA_MAP", value: flags.into() });
    }
    let (offset, address, size) = (reader.u64()?, reader.u64()?, reader.u64()?);
    Ok(DmaMap { readable: flags & READ != 0, writable: flags & WRITE != 0, offset, address, size })
}

fn dma_unmap(mut reader: Reader<'_>) -> Result<DmaUnmap, Malformed> {
    let _argsz = reader.u32()?;
    let flags = reader.u32()?;
    if flags & !(BITMAP | ALL) != 0 {
        return Err(Malformed::Field { what: "flags of DMA_UNMAP", value: flags.into() });
    }
    Ok(DmaUnmap { all: flags & ALL != 0, bitmap: flags & BITMAP != 0, address: reader.u64()?, size: reader.u64()? })
}

/// What a region's and an interrupt's question have in common: room for the answer, and the index.
fn question(mut reader: Reader<'_>) -> Result<(u32, u32), Malformed> {
    let (room, _flags) = (reader.u32()?, reader.u32()?);
    Ok((room, reader.u32()?))
}

fn access(reader: &mut Reader<'_>) -> Result<Access, Malformed> {
    Ok(Access { offset: reader.u64()?, region: reader.u32()?, count: reader.u32()? })
}

pub(crate) fn put_access(access: &Access, bytes: &mut Vec<u8>) {
    bytes.u64(access.offset).u32(access.region).u32(access.count);
}

#[cfg(test)]
mod tests;
