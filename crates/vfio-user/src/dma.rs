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

    fn command(&self) -> u16 {
        match self {
            DmaAsk::Read { .. } => DMA_READ,
            DmaAsk::Write { .. } => DMA_WRITE,
        }
    }

    /// First byte that it is about, and how many.
    pub fn range(&self) -> (u64, u64) {
        match self {
            DmaAsk::Read { address, count } => (*address, u64::from(*count)),
            DmaAsk::Write { address, data } => (*address, data.len() as u64),
        }
    }

    /// The whole message, of this identifier.
    pub fn to_bytes(&self, id: u16) -> Vec<u8> {
        let (address, count) = self.range();
        let mut body = Vec::new();
        body.u64(address).u64(count);
        if let DmaAsk::Write { data, .. } = self {
            body.extend(*data);
        }
        Header { id, command: self.command(), size: 0, flags: Flags::REQUEST, error: 0 }.with_body(&body)
    }

    /// Whether a message of this header answers it, if it has its identifier.
    pub fn is_answered_by(&self, header: &Header) -> bool {
        header.flags.is_reply() && header.command == self.command()
    }

    /// Reads the answer: what stands there, of what was to be read. `None`: the client refuses.
    ///
    /// # Errors
    /// It is about another range, or has fewer bytes than were asked for, or more.
    pub fn read_answer<'b>(&self, header: &Header, body: &'b [u8]) -> Result<Option<&'b [u8]>, Malformed> {
        if header.flags.is_error() {
            return Ok(None);
        }
        let mut reader = Reader::new("answer to DMA_READ or DMA_WRITE", body);
        let said = (reader.u64()?, reader.u64()?);
        let (address, count) = self.range();
        if said.0 != address {
            return Err(Malformed::Field { what: "address of DMA_READ's or DMA_WRITE's answer", value: said.0 });
        }
        if said.1 != count {
            return Err(Malformed::Field { what: "count of DMA_READ's or DMA_WRITE's answer", value: said.1 });
        }
        let (data, due) = (reader.rest(), if matches!(self, DmaAsk::Read { .. }) { count } else { 0 });
        if data.len() as u64 != due {
            return Err(Malformed::Field { what: "number of bytes of DMA_READ's or DMA_WRITE's answer", value: data.len() as u64 });
        }
        Ok(Some(data))
    }

    /// The whole message that answers it: with `data` if it was to be read.
    pub fn answer(&self, request: &Header, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(16 + data.len());
        let (address, count) = self.range();
        body.u64(address).u64(count);
        body.extend(data);
        Header { flags: Flags::REPLY, error: 0, ..*request }.with_body(&body)
    }
}

#[cfg(test)]
mod tests;
