//! VERSION: what both sides speak.

use serde_json::{Map, Value, json};

use crate::bytes::{Malformed, Put, Reader};

/// What a side can take. A peer that leaves a value out takes what [`Capabilities::default`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Descriptors in one message.
    pub max_msg_fds: u32,
    /// Bytes that one message reads or writes.
    pub max_data_xfer_size: u32,
    /// Ranges of guest memory at one time.
    pub max_dma_maps: u32,
}

impl Default for Capabilities {
    /// What the specification says of a side that says nothing.
    fn default() -> Capabilities {
        Capabilities { max_msg_fds: 1, max_data_xfer_size: 1 << 20, max_dma_maps: 65535 }
    }
}

/// A VERSION message, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Protocols of different major numbers do not understand each other.
    pub major: u16,
    /// Of one major number, the lower minor number counts.
    pub minor: u16,
    /// What its sender can take.
    pub capabilities: Capabilities,
}

impl Version {
    /// Reads a message's body.
    ///
    /// # Errors
    /// It is too short, or its capabilities are no JSON object with numbers that can be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Version, Malformed> {
        let mut reader = Reader::new("VERSION message", bytes);
        let (major, minor) = (reader.u16()?, reader.u16()?);
        let text = reader.rest();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Version { major, minor, capabilities: capabilities(text)? })
    }

    /// A message's body, with the zero byte at the end of its text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Capabilities { max_msg_fds, max_data_xfer_size, max_dma_maps } = self.capabilities;
        let numbers = json!({"max_msg_fds": max_msg_fds, "max_data_xfer_size": max_data_xfer_size, "max_dma_maps": max_dma_maps});
        let mut bytes = Vec::new();
        bytes.u16(self.major).u16(self.minor);
        bytes.extend(json!({"capabilities": numbers}).to_string().bytes());
        bytes.push(0);
        bytes
    }
}

fn capabilities(text: &[u8]) -> Result<Capabilities, Malformed> {
    let usual = Capabilities::default();
    if text.is_empty() {
        return Ok(usual);
    }
    let Ok(Value::Object(all)) = serde_json::from_slice(text) else { return Err(Malformed::Capabilities("they are no JSON object")) };
    let of = match all.get("capabilities") {
        None => return Ok(usual),
        Some(Value::Object(of)) => of,
        Some(_) => return Err(Malformed::Capabilities("`capabilities` is no object")),
    };
    Ok(Capabilities {
        max_msg_fds: number(of, "max_msg_fds", usual.max_msg_fds)?,
        max_data_xfer_size: number(of, "max_data_xfer_size", usual.max_data_xfer_size)?,
        max_dma_maps: number(of, "max_dma_maps", usual.max_dma_maps)?,
    })
}

fn number(of: &Map<String, Value>, key: &str, usual: u32) -> Result<u32, Malformed> {
    match of.get(key) {
        None => Ok(usual),
        // A peer that takes more than can be counted takes enough.
        Some(value) => {
            let value = value.as_u64().ok_or(Malformed::Capabilities("one of them is no whole number"))?;
            Ok(u32::try_from(value).unwrap_or(u32::MAX))
        }
    }
}
