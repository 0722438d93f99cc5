//! Messages: their layout, and how a stream is cut into messages. No I/O.
//!
//! Fixed layouts are structures that `zerocopy` reads and writes. A client checks each reply
//! against its request, and both sides check that the fields of a message agree: neither side
//! trusts the other.
//!
//! ```text
//! message:  header (16 bytes: id, command, size, flags, error) | body | descriptors (SCM_RIGHTS)
//! ```

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zerocopy::{FromBytes, Immutable, IntoBytes, TryFromBytes};

/// A message that breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Invalid size in the header. The start of the next message is then unknown.
    #[error("a message has a size of {size} bytes; valid are 16 to {max}")]
    Size {
        /// Size in the header.
        size: u32,
        /// Maximum valid size.
        max: u32,
    },
    /// A body that is too short.
    #[error("the {what} ends after {len} bytes, within a field")]
    Short {
        /// The structure that was read.
        what: &'static str,
        /// Available bytes.
        len: usize,
    },
    /// A field with an invalid or contradictory value.
    #[error("the {what} is {value:#x}, which is invalid")]
    Field {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// Too many descriptors.
    #[error("a message has more than {max} descriptors")]
    Descriptors {
        /// Maximum number of descriptors.
        max: usize,
    },
    /// The capabilities are not a JSON object, or one of them is not an integer.
    #[error("the capabilities of a VERSION message are not a JSON object of integers")]
    Capabilities,
    /// A reply to which no request belongs.
    #[error("message {id} is a reply without a request")]
    UnexpectedReply {
        /// Its identifier.
        id: u16,
    },
}

/// Splits a structure off the start of `bytes`.
fn take<'a, T: FromBytes>(what: &'static str, bytes: &'a [u8]) -> Result<(T, &'a [u8]), Malformed> {
    T::read_from_prefix(bytes).map_err(|_| Malformed::Short { what, len: bytes.len() })
}

/// The first `count` bytes of `bytes`.
fn data<'a>(what: &'static str, bytes: &'a [u8], count: u32) -> Result<&'a [u8], Malformed> {
    bytes.get(..count as usize).ok_or(Malformed::Short { what, len: bytes.len() })
}

/// An error about the field `what`, which has this value, unless `is_valid`.
fn check(is_valid: bool, what: &'static str, value: impl Into<u64>) -> Result<(), Malformed> {
    if is_valid { Ok(()) } else { Err(Malformed::Field { what, value: value.into() }) }
}

/// The command of a message (specification, table of commands).
///
/// Not implemented: descriptors for the doorbells of a region (6), migration (14), and several
/// writes in one message (15). DMA_READ and DMA_WRITE (11, 12), which a server sends, are
/// [`DmaRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u16)]
pub enum Command {
    /// Negotiate version and capabilities: the first message.
    Version = 1,
    /// Map guest memory.
    DmaMap = 2,
    /// Unmap guest memory.
    DmaUnmap = 3,
    /// Get the number of regions and of interrupt types.
    DeviceGetInfo = 4,
    /// Get the description of a region.
    DeviceGetRegionInfo = 5,
    /// Get the description of an interrupt type.
    DeviceGetIrqInfo = 7,
    /// Route, mask or trigger interrupts.
    DeviceSetIrqs = 8,
    /// Read a region.
    RegionRead = 9,
    /// Write a region.
    RegionWrite = 10,
    /// Reset the device.
    DeviceReset = 13,
}

/// The name in the specification.
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
    /// The command with this number; `None`: it is not implemented.
    pub fn from_number(number: u16) -> Option<Command> {
        Command::try_read_from_bytes(number.as_bytes()).ok()
    }
}

/// The flags of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Flags(pub u32);

impl Flags {
    /// A request with a reply.
    pub const REQUEST: Flags = Flags(0);
    /// A reply.
    pub const REPLY: Flags = Flags(1);
    /// A request without a reply.
    pub const NO_REPLY: Flags = Flags(1 << 4);
    /// A reply that reports an error.
    pub const ERROR: Flags = Flags(1 | 1 << 5);

    /// Whether this is a reply.
    pub fn is_reply(self) -> bool {
        // Bits 3:0 are the message type, not flags.
        self.0 & 0xf == 1
    }

    /// Whether the sender expects a reply.
    pub fn wants_reply(self) -> bool {
        self.0 & Flags::NO_REPLY.0 == 0
    }

    /// Whether this is an error reply.
    pub fn is_error(self) -> bool {
        self.0 & (1 << 5) != 0
    }
}

/// The header of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Header {
    /// Identifier, chosen by the sender of the request; the reply repeats it.
    pub id: u16,
    /// Number of the command.
    pub command: u16,
    /// Size of the message in bytes, including the header.
    pub size: u32,
    /// Type and flags.
    pub flags: Flags,
    /// For an error reply, the error number (errno(3)).
    pub error: u32,
}

impl Header {
    /// Size of a header in bytes.
    pub const SIZE: usize = 16;

    /// Parses a header.
    ///
    /// # Errors
    /// There are fewer than [`Header::SIZE`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Header, Malformed> {
        take("header", bytes).map(|(header, _)| header)
    }

    /// Builds a message: this header, with `size` filled in, and a body.
    pub fn with_body(self, body: &[u8]) -> Vec<u8> {
        let size = (Header::SIZE + body.len()) as u32;
        [Header { size, ..self }.as_bytes(), body].concat()
    }
}

/// A complete message.
#[derive(Debug)]
pub struct Message<F> {
    /// Its header.
    pub header: Header,
    /// The bytes after the header.
    pub body: Vec<u8>,
    /// Its descriptors, in order.
    pub fds: Vec<F>,
    /// The kernel dropped descriptors, as this process or the system had too many (EMFILE, ENFILE).
    pub lost_fds: bool,
}

/// Cuts a stream into messages. [`Assembler::space`] never extends past the current message:
/// descriptors arrive with the bytes that they were sent with, so those that arrive with the bytes
/// of a message belong to that message.
#[derive(Debug)]
pub struct Assembler<F> {
    /// Buffer with the size of what is being read: a header, or a complete message.
    bytes: Vec<u8>,
    /// How many of `bytes` have been read.
    filled: usize,
    fds: Vec<F>,
    max_bytes: u32,
    max_fds: usize,
}

impl<F> Assembler<F> {
    /// An assembler for messages of at most `max_bytes` bytes, including the header, and `max_fds`
    /// descriptors.
    pub fn new(max_bytes: u32, max_fds: usize) -> Assembler<F> {
        Assembler { bytes: vec![0; Header::SIZE], filled: 0, fds: Vec::new(), max_bytes, max_fds }
    }

    /// Buffer for the next bytes; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Takes `len` bytes written to [`Assembler::space`] and the descriptors that came with them.
    /// Returns the message if it is complete.
    ///
    /// # Errors
    /// The size or the number of descriptors is invalid. The connection must be closed, as the
    /// start of the next message is unknown.
    pub fn filled(
        &mut self,
        len: usize,
        fds: impl IntoIterator<Item = F>,
    ) -> Result<Option<Message<F>>, Malformed> {
        self.fds.extend(fds);
        if self.fds.len() > self.max_fds {
            return Err(Malformed::Descriptors { max: self.max_fds });
        }
        // A wrong `len` must not index past the buffer.
        self.filled = (self.filled + len).min(self.bytes.len());
        if self.filled < self.bytes.len() {
            return Ok(None);
        }
        let header = Header::from_bytes(&self.bytes)?;
        // Check the size before allocating the body: the peer chooses it.
        if self.bytes.len() == Header::SIZE {
            if header.size < Header::SIZE as u32 || header.size > self.max_bytes {
                return Err(Malformed::Size { size: header.size, max: self.max_bytes });
            }
            self.bytes.resize(header.size as usize, 0);
            if self.filled < self.bytes.len() {
                return Ok(None);
            }
        }
        self.filled = 0;
        // The next bytes are a header again.
        let bytes = std::mem::replace(&mut self.bytes, vec![0; Header::SIZE]);
        Ok(Some(Message {
            header,
            body: bytes[Header::SIZE..].to_vec(),
            fds: std::mem::take(&mut self.fds),
            lost_fds: false,
        }))
    }
}

/// Limits of one side. Values that a peer leaves out are those of [`Capabilities::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Capabilities {
    /// Maximum number of descriptors in one message.
    pub max_msg_fds: u64,
    /// Maximum number of data bytes in one message.
    pub max_data_xfer_size: u64,
    /// Maximum number of mapped ranges of guest memory.
    pub max_dma_maps: u64,
}

impl Default for Capabilities {
    /// The defaults of the specification.
    fn default() -> Capabilities {
        Capabilities { max_msg_fds: 1, max_data_xfer_size: 1 << 20, max_dma_maps: 65535 }
    }
}

/// A VERSION message, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Different major versions are incompatible.
    pub major: u16,
    /// Within a major version both sides use the lower minor version.
    pub minor: u16,
    /// Limits of the sender.
    pub capabilities: Capabilities,
}

impl Version {
    /// Parses the body of a VERSION message.
    ///
    /// # Errors
    /// The body is too short, or its capabilities are not a JSON object with valid numbers.
    pub fn from_bytes(bytes: &[u8]) -> Result<Version, Malformed> {
        let ([major, minor], text) = take::<[u16; 2]>("VERSION message", bytes)?;
        // The text is NUL-terminated; some peers leave out the NUL or the whole text.
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let all: Map<String, Value> = match text {
            [] => Map::new(),
            text => serde_json::from_slice(text).map_err(|_| Malformed::Capabilities)?,
        };
        let capabilities = match all.get("capabilities") {
            None => Capabilities::default(),
            Some(given) => Capabilities::deserialize(given).map_err(|_| Malformed::Capabilities)?,
        };
        Ok(Version { major, minor, capabilities })
    }

    /// The body of the message, NUL-terminated.
    pub fn to_bytes(&self) -> Vec<u8> {
        let text = json!({"capabilities": self.capabilities}).to_string();
        [[self.major, self.minor].as_bytes(), text.as_bytes(), &[0]].concat()
    }
}

// Flags of SET_IRQS (`struct vfio_irq_set`).
const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;

/// The action of SET_IRQS: a flag of `struct vfio_irq_set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum IrqAction {
    /// Mask.
    Mask = 1 << 3,
    /// Unmask.
    Unmask = 1 << 4,
    /// Set the eventfds, or trigger an interrupt.
    Trigger = 1 << 5,
}

/// Which interrupts of the range SET_IRQS applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// To all of them. With `Trigger` and an empty range: disables all interrupts of the type.
    None,
    /// To those whose byte is not zero.
    Bools(&'a [u8]),
    /// Each interrupt gets an eventfd, a descriptor of the message. A message without descriptors
    /// removes the eventfds of the range.
    Eventfds,
}

/// A SET_IRQS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// Interrupt type ([`crate::irq`]).
    pub index: u32,
    /// First interrupt.
    pub start: u32,
    /// Number of interrupts.
    pub count: u32,
    /// Action.
    pub action: IrqAction,
    /// To which of these interrupts the action applies.
    pub data: IrqData<'a>,
}

impl<'a> SetIrqs<'a> {
    fn from_bytes(body: &'a [u8]) -> Result<SetIrqs<'a>, Malformed> {
        let ([_argsz, flags, index, start, count], bytes) =
            take::<[u32; 5]>("SET_IRQS message", body)?;
        let bad = Malformed::Field { what: "flags of SET_IRQS", value: flags.into() };
        let action = flags & !(DATA_NONE | DATA_BOOL | DATA_EVENTFD);
        let action = IrqAction::try_read_from_bytes(action.as_bytes()).map_err(|_| bad)?;
        // Servers compute `start + count`: it must not overflow.
        check(start.checked_add(count).is_some(), "count of SET_IRQS", count)?;
        let data = match flags & (DATA_NONE | DATA_BOOL | DATA_EVENTFD) {
            DATA_NONE => IrqData::None,
            DATA_BOOL => IrqData::Bools(data("data of SET_IRQS", bytes, count)?),
            DATA_EVENTFD => IrqData::Eventfds,
            _ => return Err(bad),
        };
        Ok(SetIrqs { index, start, count, action, data })
    }

    fn to_bytes(self) -> Vec<u8> {
        let (flag, data): (u32, &[u8]) = match self.data {
            IrqData::None => (DATA_NONE, &[]),
            IrqData::Bools(bools) => (DATA_BOOL, bools),
            IrqData::Eventfds => (DATA_EVENTFD, &[]),
        };
        let fields =
            [20 + data.len() as u32, self.action as u32 | flag, self.index, self.start, self.count];
        [fields.as_bytes(), data].concat()
    }
}

/// DMA_MAP: maps guest memory (`struct vfio_user_dma_map`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// The device may read the memory.
    pub readable: bool,
    /// The device may write to the memory.
    pub writable: bool,
    /// Offset of the range in the file whose descriptor comes with the message, if one does.
    pub offset: u64,
    /// Bus address of the first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// DMA_UNMAP: unmaps guest memory (`struct vfio_user_dma_unmap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// Unmap everything, regardless of the range.
    pub all: bool,
    /// Return a bitmap of dirty pages, for migration.
    pub bitmap: bool,
    /// Bus address of the range.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// REGION_READ and REGION_WRITE: the bytes to access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RegionAccess {
    /// First byte in the region.
    pub offset: u64,
    /// The region ([`crate::region`]).
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Negotiate version and capabilities.
    Version(Version),
    /// Map guest memory.
    DmaMap(DmaMap),
    /// Unmap guest memory.
    DmaUnmap(DmaUnmap),
    /// Describe the device.
    DeviceInfo,
    /// Describe a region.
    RegionInfo {
        /// Index of the region.
        index: u32,
        /// Maximum size of the reply (`argsz`); if a list of areas does not fit, it is left out.
        room: u32,
    },
    /// Describe an interrupt type.
    IrqInfo {
        /// Index of the type.
        index: u32,
    },
    /// Route, mask or trigger interrupts.
    SetIrqs(SetIrqs<'a>),
    /// Read a region.
    RegionRead(RegionAccess),
    /// Write a region; the data has the length of the access.
    RegionWrite(RegionAccess, &'a [u8]),
    /// Reset the device.
    DeviceReset,
}

// Flags of DMA_MAP, and of a region (`VFIO_REGION_INFO_FLAG_*`).
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const MMAP: u32 = 1 << 2;
const CAPS: u32 = 1 << 3;
// Flags of DMA_UNMAP.
const BITMAP: u32 = 1;
const ALL: u32 = 1 << 1;

impl<'a> Request<'a> {
    /// Parses the body of a request. Extra bytes, from a later version, are ignored.
    ///
    /// # Errors
    /// The body is too short, or a field is invalid.
    pub fn from_bytes(command: Command, body: &'a [u8]) -> Result<Request<'a>, Malformed> {
        Ok(match command {
            Command::Version => Request::Version(Version::from_bytes(body)?),
            Command::DmaMap => {
                let ([_argsz, flags], rest) = take::<[u32; 2]>("DMA_MAP message", body)?;
                let ([offset, address, size], _) = take::<[u64; 3]>("DMA_MAP message", rest)?;
                // An unknown flag could mean a different layout or access: refuse it.
                check(flags & !(READ | WRITE) == 0, "flags of DMA_MAP", flags)?;
                Request::DmaMap(DmaMap {
                    readable: flags & READ != 0,
                    writable: flags & WRITE != 0,
                    offset,
                    address,
                    size,
                })
            }
            Command::DmaUnmap => {
                let ([_argsz, flags], rest) = take::<[u32; 2]>("DMA_UNMAP message", body)?;
                let ([address, size], _) = take::<[u64; 2]>("DMA_UNMAP message", rest)?;
                check(flags & !(BITMAP | ALL) == 0, "flags of DMA_UNMAP", flags)?;
                Request::DmaUnmap(DmaUnmap {
                    all: flags & ALL != 0,
                    bitmap: flags & BITMAP != 0,
                    address,
                    size,
                })
            }
            Command::DeviceGetInfo => Request::DeviceInfo,
            Command::DeviceGetRegionInfo => {
                let ([room, _flags, index], _) = take::<[u32; 3]>("GET_REGION_INFO message", body)?;
                Request::RegionInfo { index, room }
            }
            Command::DeviceGetIrqInfo => {
                let ([_argsz, _flags, index], _) = take::<[u32; 3]>("GET_IRQ_INFO message", body)?;
                Request::IrqInfo { index }
            }
            Command::DeviceSetIrqs => Request::SetIrqs(SetIrqs::from_bytes(body)?),
            Command::RegionRead => Request::RegionRead(take("REGION_READ message", body)?.0),
            Command::RegionWrite => {
                let (access, bytes) = take::<RegionAccess>("REGION_WRITE message", body)?;
                Request::RegionWrite(access, data("data of REGION_WRITE", bytes, access.count)?)
            }
            Command::DeviceReset => Request::DeviceReset,
        })
    }

    /// The command.
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

    /// Builds the message with this identifier and these flags.
    pub fn to_bytes(&self, id: u16, flags: Flags) -> Vec<u8> {
        let body = match *self {
            Request::Version(version) => version.to_bytes(),
            Request::DmaMap(DmaMap { readable, writable, offset, address, size }) => {
                let flags = if readable { READ } else { 0 } | if writable { WRITE } else { 0 };
                [[32, flags].as_bytes(), [offset, address, size].as_bytes()].concat()
            }
            Request::DmaUnmap(unmap) => unmap.to_bytes(),
            Request::DeviceInfo => [16u32, 0, 0, 0].as_bytes().to_vec(),
            Request::RegionInfo { index, room } => {
                [room, 0, index, 0, 0, 0, 0, 0].as_bytes().to_vec()
            }
            Request::IrqInfo { index } => [16, 0, index, 0].as_bytes().to_vec(),
            Request::SetIrqs(set) => set.to_bytes(),
            Request::RegionRead(access) => access.as_bytes().to_vec(),
            Request::RegionWrite(access, data) => [access.as_bytes(), data].concat(),
            Request::DeviceReset => Vec::new(),
        };
        Header { id, command: self.command() as u16, size: 0, flags, error: 0 }.with_body(&body)
    }
}

impl DmaUnmap {
    fn to_bytes(self) -> Vec<u8> {
        let flags = if self.bitmap { BITMAP } else { 0 } | if self.all { ALL } else { 0 };
        [[24, flags].as_bytes(), [self.address, self.size].as_bytes()].concat()
    }
}

/// The capability that lists the mappable areas of a region (`VFIO_REGION_INFO_CAP_SPARSE_MMAP`).
const SPARSE_MMAP: u16 = 1;

/// A region as a server describes it (`struct vfio_region_info`). All of it can be accessed by
/// messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Index of the region.
    pub index: u32,
    /// Size in bytes; 0: the region does not exist.
    pub size: u64,
    /// The area that can also be mapped, if any. The reply carries the descriptor of a file, in
    /// which the area has the same offset as in the region.
    pub mappable: Option<Area>,
    /// Maximum size of the reply that the client accepts. If it is too small, the reply has the
    /// size needed and no area.
    pub room: u32,
}

impl RegionInfo {
    /// Size of a reply with an area: the structure, the capability header, and the area.
    const WITH_AREA: u32 = REGION_INFO + 16 + 16;

    /// Whether the reply carries the descriptor of the mappable area.
    pub fn has_descriptor(&self) -> bool {
        self.mappable.is_some() && self.room >= RegionInfo::WITH_AREA
    }

    fn to_bytes(self) -> Vec<u8> {
        let flags = if self.size > 0 { READ | WRITE } else { 0 };
        // argsz is the size that the complete reply needs, as in the ioctl, even if less is sent.
        let argsz = if self.mappable.is_some() { RegionInfo::WITH_AREA } else { REGION_INFO };
        // The flag for capabilities is only set with a capability: QEMU rejects a reply that has
        // the flag and no offset.
        let area = self.mappable.filter(|_| self.has_descriptor());
        let (flags, capabilities) =
            if area.is_some() { (flags | MMAP | CAPS, REGION_INFO) } else { (flags, 0) };
        let info = [[argsz, flags, self.index, capabilities].as_bytes(), [self.size, 0].as_bytes()]
            .concat();
        // Version 1 of the capability, the latest, with one area.
        let capability = area.map(|area| {
            [[SPARSE_MMAP, 1].as_bytes(), [0u32, 1, 0].as_bytes(), area.as_bytes()].concat()
        });
        [info, capability.unwrap_or_default()].concat()
    }
}

/// The reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Success, without data.
    Done,
    /// The request failed.
    Error(Errno),
    /// The negotiated version.
    Version(Version),
    /// The memory that was unmapped.
    DmaUnmap(DmaUnmap),
    /// The device.
    DeviceInfo(DeviceInfo),
    /// The region.
    RegionInfo(RegionInfo),
    /// The interrupts of the type with this index; they cannot be masked.
    IrqInfo(u32, Interrupts),
    /// The access as requested, and the data read.
    RegionRead(RegionAccess, &'a [u8]),
    /// The access as requested.
    RegionWrite(RegionAccess),
}

/// Size of `struct vfio_region_info` in bytes.
const REGION_INFO: u32 = 32;
/// Interrupt flags: eventfds are supported (bit 0), and the number of enabled interrupts cannot be
/// changed without disabling all of them (bit 3, VFIO_IRQ_INFO_NORESIZE).
const EVENTFD_FIXED: u32 = 1 | 1 << 3;

impl Reply<'_> {
    /// Builds the reply to the request with this header.
    pub fn to_bytes(&self, request: &Header) -> Vec<u8> {
        let body = match *self {
            Reply::Done | Reply::Error(_) => Vec::new(),
            Reply::Version(version) => version.to_bytes(),
            // No dirty bitmap follows: migration is not supported.
            Reply::DmaUnmap(unmap) => DmaUnmap { bitmap: false, ..unmap }.to_bytes(),
            Reply::DeviceInfo(DeviceInfo { can_reset, is_pci, regions, irqs }) => {
                [16, u32::from(can_reset) | u32::from(is_pci) << 1, regions, irqs]
                    .as_bytes()
                    .to_vec()
            }
            Reply::RegionInfo(info) => info.to_bytes(),
            Reply::IrqInfo(index, Interrupts { by_eventfd, count }) => {
                [16, if by_eventfd { EVENTFD_FIXED } else { 0 }, index, count].as_bytes().to_vec()
            }
            Reply::RegionRead(access, data) => [access.as_bytes(), data].concat(),
            Reply::RegionWrite(access) => access.as_bytes().to_vec(),
        };
        let (flags, error) = match self {
            Reply::Error(errno) => (Flags::ERROR, errno.raw_os_error() as u32),
            _ => (Flags::REPLY, 0),
        };
        Header { id: request.id, command: request.command, size: 0, flags, error }.with_body(&body)
    }
}

/// A device (`struct vfio_device_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device supports DEVICE_RESET.
    pub can_reset: bool,
    /// It is a PCI device.
    pub is_pci: bool,
    /// Number of regions.
    pub regions: u32,
    /// Number of interrupt types.
    pub irqs: u32,
}

/// A region (`struct vfio_region_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// Size in bytes; 0: the region does not exist.
    pub bytes: u64,
    /// Offset of the region in the file that the descriptors of the reply refer to.
    pub file_offset: u64,
    /// Mappable areas, in the order of their descriptors. If there is only one descriptor, it is
    /// for all areas.
    pub areas: Vec<Area>,
}

/// An area of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Area {
    /// First byte in the region.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The interrupts of one type (`struct vfio_irq_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupts {
    /// The interrupts can signal eventfds.
    pub by_eventfd: bool,
    /// Number of interrupts; 0: the device does not have this type.
    pub count: u32,
}

impl DeviceInfo {
    /// Parses the body of the reply to GET_INFO.
    ///
    /// # Errors
    /// The body is too short.
    pub fn from_reply(body: &[u8]) -> Result<DeviceInfo, Malformed> {
        let ([_argsz, flags, regions, irqs], _) = take::<[u32; 4]>("reply to GET_INFO", body)?;
        Ok(DeviceInfo { can_reset: flags & 1 != 0, is_pci: flags & 1 << 1 != 0, regions, irqs })
    }
}

impl Interrupts {
    /// Parses the body of the reply to GET_IRQ_INFO for `index`.
    ///
    /// # Errors
    /// The body is too short, or for another interrupt type.
    pub fn from_reply(index: u32, body: &[u8]) -> Result<Interrupts, Malformed> {
        let ([_argsz, flags, about, count], _) = take::<[u32; 4]>("reply to GET_IRQ_INFO", body)?;
        check(about == index, "index in the reply to GET_IRQ_INFO", about)?;
        Ok(Interrupts { by_eventfd: flags & 1 != 0, count })
    }
}

impl Region {
    /// Maximum number of areas per region, and so of descriptors per message
    /// ([`crate::Socket::MAX_FDS`]).
    pub const MAX_AREAS: usize = 16;

    /// Size of a reply with [`Region::MAX_AREAS`] areas and 64 bytes of other capabilities, for
    /// `argsz` of the request.
    pub const MAX_BYTES: u32 = REGION_INFO + 16 + 16 * Region::MAX_AREAS as u32 + 64;

    /// Parses the body of the reply to GET_REGION_INFO for `index`.
    ///
    /// # Errors
    /// The body is too short, for another region, or lists areas outside the region.
    pub fn from_reply(index: u32, body: &[u8]) -> Result<Region, Malformed> {
        let ([argsz, flags, about, capabilities], rest) =
            take::<[u32; 4]>("reply to GET_REGION_INFO", body)?;
        let ([bytes, file_offset], _) = take::<[u64; 2]>("reply to GET_REGION_INFO", rest)?;
        check(about == index, "index in the reply to GET_REGION_INFO", about)?;
        let mut areas = Vec::new();
        // Without a list of areas the whole region is mappable, except if the list was left out
        // because the reply would have been too large.
        if flags & MMAP != 0 && bytes > 0 && argsz <= Region::MAX_BYTES {
            let sparse = if flags & CAPS != 0 { sparse_areas(body, capabilities)? } else { None };
            areas = sparse.unwrap_or_else(|| vec![Area { offset: 0, bytes }]);
        }
        for Area { offset, bytes: len } in &areas {
            // The end in the file must not overflow either: mmap(2) gets `file_offset + offset`.
            let end = offset
                .checked_add(*len)
                .filter(|end| *end <= bytes)
                .and_then(|end| end.checked_add(file_offset));
            check(end.is_some(), "end of an area of a region", offset.wrapping_add(*len))?;
        }
        Ok(Region {
            readable: flags & READ != 0,
            writable: flags & WRITE != 0,
            bytes,
            file_offset,
            areas,
        })
    }
}

/// The data in the body of the reply to the REGION_READ `requested`.
///
/// # Errors
/// The reply is for another access, or has fewer bytes than its `count`.
pub fn region_data<'a>(requested: &RegionAccess, body: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (reply, bytes) = take::<RegionAccess>("reply to REGION_READ", body)?;
    check(reply.region == requested.region, "region in the reply to REGION_READ", reply.region)?;
    check(reply.count == requested.count, "count in the reply to REGION_READ", reply.count)?;
    check(reply.offset == requested.offset, "offset in the reply to REGION_READ", reply.offset)?;
    data("data of the reply to REGION_READ", bytes, reply.count)
}

/// The mappable areas from the chain of capabilities that begins at byte `first` of `body`. Offsets
/// in the chain must ascend, so that it cannot be circular.
fn sparse_areas(body: &[u8], first: u32) -> Result<Option<Vec<Area>>, Malformed> {
    const WHAT: &str = "capabilities of a region";
    let mut at = first;
    while at != 0 {
        let rest =
            body.get(at as usize..).ok_or(Malformed::Short { what: WHAT, len: body.len() })?;
        let ([id, _version], rest) = take::<[u16; 2]>(WHAT, rest)?;
        let (next, rest) = take::<u32>(WHAT, rest)?;
        if id == SPARSE_MMAP {
            let ([count, _reserved], mut rest) = take::<[u32; 2]>(WHAT, rest)?;
            // Checked, as it limits the allocation below.
            check(count as usize <= Region::MAX_AREAS, "number of areas of a region", count)?;
            let area = |_| {
                let (area, after) = take::<Area>(WHAT, rest)?;
                rest = after;
                Ok(area)
            };
            return (0..count).map(area).collect::<Result<_, _>>().map(Some);
        }
        check(next == 0 || next > at, "next capability of a region", next)?;
        at = next;
    }
    Ok(None)
}

/// Command number of DMA_READ.
const DMA_READ: u16 = 11;
/// Command number of DMA_WRITE.
const DMA_WRITE: u16 = 12;

/// A memory request of a server: DMA_READ or DMA_WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaRequest<'a> {
    /// Read `count` bytes at a bus address.
    Read {
        /// First byte.
        address: u64,
        /// Bytes.
        count: u32,
    },
    /// Write bytes at a bus address.
    Write {
        /// First byte.
        address: u64,
        /// The data to write.
        data: &'a [u8],
    },
}

impl<'a> DmaRequest<'a> {
    /// Parses a message of a server. `None`: it is another command.
    ///
    /// # Errors
    /// The message is too short, or for more than `max` bytes.
    pub fn from_message(
        header: &Header,
        body: &'a [u8],
        max: u32,
    ) -> Result<Option<DmaRequest<'a>>, Malformed> {
        if !matches!(header.command, DMA_READ | DMA_WRITE) {
            return Ok(None);
        }
        let ([address, count], bytes) = take::<[u64; 2]>("DMA_READ or DMA_WRITE message", body)?;
        // Checked before the cast to 32 bits, and before `count` bytes are allocated.
        check(count <= max.into(), "count of a DMA_READ or DMA_WRITE message", count)?;
        let count = count as u32;
        if header.command == DMA_READ {
            return Ok(Some(DmaRequest::Read { address, count }));
        }
        Ok(Some(DmaRequest::Write { address, data: data("data of DMA_WRITE", bytes, count)? }))
    }

    fn command(&self) -> u16 {
        match self {
            DmaRequest::Read { .. } => DMA_READ,
            DmaRequest::Write { .. } => DMA_WRITE,
        }
    }

    /// Bus address of the first byte, and number of bytes.
    pub fn range(&self) -> (u64, u64) {
        match self {
            DmaRequest::Read { address, count } => (*address, u64::from(*count)),
            DmaRequest::Write { address, data } => (*address, data.len() as u64),
        }
    }

    /// Builds the message with this identifier.
    pub fn to_bytes(&self, id: u16) -> Vec<u8> {
        let (address, count) = self.range();
        let data = if let DmaRequest::Write { data, .. } = self { data } else { &[][..] };
        let body = [[address, count].as_bytes(), data].concat();
        Header { id, command: self.command(), size: 0, flags: Flags::REQUEST, error: 0 }
            .with_body(&body)
    }

    /// Whether a message with this header is a reply to this command. Identifiers are not compared.
    pub fn is_answered_by(&self, header: &Header) -> bool {
        header.flags.is_reply() && header.command == self.command()
    }

    /// Parses the reply to this request. Returns the bytes read (empty for a write), or `None` if
    /// the client has refused the request.
    ///
    /// # Errors
    /// The reply is for another range, or has the wrong number of bytes.
    pub fn read_reply<'b>(
        &self,
        header: &Header,
        body: &'b [u8],
    ) -> Result<Option<&'b [u8]>, Malformed> {
        if header.flags.is_error() {
            return Ok(None);
        }
        let ([about, said], data) = take::<[u64; 2]>("reply to DMA_READ or DMA_WRITE", body)?;
        let (address, count) = self.range();
        check(about == address, "address in the reply to DMA_READ or DMA_WRITE", about)?;
        check(said == count, "count in the reply to DMA_READ or DMA_WRITE", said)?;
        // Only a read returns data.
        let due = if matches!(self, DmaRequest::Read { .. }) { count } else { 0 };
        check(
            data.len() as u64 == due,
            "number of bytes in the reply to DMA_READ or DMA_WRITE",
            data.len() as u64,
        )?;
        Ok(Some(data))
    }

    /// Builds the reply to this request, whose header is `request`. `data`: the bytes read; empty
    /// for a write.
    pub fn reply(&self, request: &Header, data: &[u8]) -> Vec<u8> {
        let (address, count) = self.range();
        let body = [[address, count].as_bytes(), data].concat();
        Header { flags: Flags::REPLY, error: 0, ..*request }.with_body(&body)
    }
}

#[cfg(test)]
mod tests;
