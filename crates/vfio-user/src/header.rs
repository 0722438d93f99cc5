//! The header of every message.

use std::fmt;

use crate::bytes::{Malformed, Put, Reader};

/// What a message is about (the specification's table of commands).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Protocol version and capabilities: the first message.
    Version = 1,
    /// Guest memory appears.
    DmaMap = 2,
    /// Guest memory goes.
    DmaUnmap = 3,
    /// How many regions and interrupts the device has.
    DeviceGetInfo = 4,
    /// What a region is.
    DeviceGetRegionInfo = 5,
    /// What an interrupt is.
    DeviceGetIrqInfo = 7,
    /// Where interrupts go.
    DeviceSetIrqs = 8,
    /// A load from a region.
    RegionRead = 9,
    /// A store to a region.
    RegionWrite = 10,
    /// The device as after power-on.
    DeviceReset = 13,
}

/// As the specification writes it.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Version => "VERSION",
            Command::DmaMap => "DMA_MAP",
            Command::DmaUnmap => "DMA_UNMAP",
            Command::DeviceGetInfo => "DEVICE_GET_INFO",
            Command::DeviceGetRegionInfo => "DEVICE_GET_REGION_INFO",
            Command::DeviceGetIrqInfo => "DEVICE_GET_IRQ_INFO",
            Command::DeviceSetIrqs => "DEVICE_SET_IRQS",
            Command::RegionRead => "REGION_READ",
            Command::RegionWrite => "REGION_WRITE",
            Command::DeviceReset => "DEVICE_RESET",
        })
    }
}

impl Command {
    /// Every command that is known here. Known and left out are descriptors for a region's doorbells (6), the device's own reads and writes
    /// of guest memory (11, 12), migration (14) and several writes in one message (15, for servers that offer it).
    pub const ALL: [Command; 10] = [
        Command::Version,
        Command::DmaMap,
        Command::DmaUnmap,
        Command::DeviceGetInfo,
        Command::DeviceGetRegionInfo,
        Command::DeviceGetIrqInfo,
        Command::DeviceSetIrqs,
        Command::RegionRead,
        Command::RegionWrite,
        Command::DeviceReset,
    ];

    /// The command of this number, if it is known here.
    pub fn from_number(number: u16) -> Option<Command> {
        Command::ALL.into_iter().find(|command| *command as u16 == number)
    }
}

/// The flags of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// A request that is to be answered.
    pub const REQUEST: Flags = Flags(0);
    /// An answer.
    pub const REPLY: Flags = Flags(1);
    /// A request that nobody waits for.
    pub const NO_REPLY: Flags = Flags(1 << 4);
    /// An answer that says that the request failed.
    pub const ERROR: Flags = Flags(1 | 1 << 5);

    /// Whether the message answers one.
    pub fn is_reply(self) -> bool {
        self.0 & 0xf == 1
    }

    /// Whether its sender waits for an answer.
    pub fn wants_reply(self) -> bool {
        self.0 & Flags::NO_REPLY.0 == 0
    }

    /// Whether it says that a request failed.
    pub fn is_error(self) -> bool {
        self.0 & (1 << 5) != 0
    }
}

/// What every message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by who asks; the answer has it too.
    pub id: u16,
    /// Number of the command.
    pub command: u16,
    /// Bytes of the message, these included.
    pub size: u32,
    /// What kind of message.
    pub flags: Flags,
    /// Of a reply that says so, the error number (errno(3)).
    pub error: u32,
}

impl Header {
    /// Its bytes.
    pub const SIZE: usize = 16;

    /// Reads it.
    ///
    /// # Errors
    /// Fewer bytes than it has.
    pub fn from_bytes(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut reader = Reader::new("header", bytes);
        let (id, command, size) = (reader.u16()?, reader.u16()?, reader.u32()?);
        Ok(Header { id, command, size, flags: Flags(reader.u32()?), error: reader.u32()? })
    }

    /// A whole message: this header, with its size put right, and a body.
    pub fn with_body(self, body: &[u8]) -> Vec<u8> {
        let size = Header::SIZE + body.len();
        let mut bytes = Vec::with_capacity(size);
        bytes.u16(self.id).u16(self.command).u32(size as u32).u32(self.flags.0).u32(self.error);
        bytes.extend(body);
        bytes
    }
}
