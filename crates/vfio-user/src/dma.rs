//! DMA_READ and DMA_WRITE: what a server asks of its client's memory, where it has no descriptor for it.

use crate::bytes::{Malformed, Put, Reader};
use crate::header::{Flags, Header};

/// Number of DMA_READ.
const DMA_READ: u16 = 11;
/// Number of DMA_WRITE.
const DMA_WRITE: u16 = 12;

/// What a server asks of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAsk<'a> {
    /// So many bytes from a bus address on.
    Read {
        /// First byte.
        address: u64,
        /// Bytes.
        count: u32,
    },
    /// These bytes are to stand at a bus address.
    Write {
        /// First byte.
        address: u64,
        /// What is to stand there.
        data: &'a [u8],
    },
}

impl<'a> DmaAsk<'a> {
    /// Reads a message of a server's. `None`: it is no request for memory.
    ///
    /// # Errors
    /// It is too short, or about more than `most` bytes.
    pub fn from_message(header: &Header, body: &'a [u8], most: u32) -> Result<Option<DmaAsk<'a>>, Malformed> {
        if !matches!(header.command, DMA_READ | DMA_WRITE) {
            return Ok(None);
        }
        let mut reader = Reader::new("DMA_READ or DMA_WRITE message", body);
        let (address, count) = (reader.u64()?, reader.u64()?);
        let bytes = u32::try_from(count).ok().filter(|count| *count <= most);
        let count = bytes.ok_or(Malformed::Field { what: "count of a DMA_READ or DMA_WRITE message", value: count })?;
        if header.command == DMA_READ {
            return Ok(Some(DmaAsk::Read { address, count }));
        }
        let data = reader.rest();
        let data = data.get(..count as usize).ok_or(Malformed::Short { what: "data of DMA_WRITE", len: data.len() })?;
        Ok(Some(DmaAsk::Write { address, data }))
    }

    /// The whole message that answers it: with `data` if it was to be read.
    pub fn answer(&self, request: &Header, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(16 + data.len());
        let (address, count) = match self {
            DmaAsk::Read { address, count } => (*address, *count as usize),
            DmaAsk::Write { address, data } => (*address, data.len()),
        };
        body.u64(address).u64(count as u64);
        body.extend(data);
        Header { flags: Flags::REPLY, error: 0, ..*request }.with_body(&body)
    }
}
