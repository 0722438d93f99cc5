//! Messages: what stands in them, and how they are cut out of a stream. Without I/O.
//!
//! Fixed layouts are structures that `zerocopy` reads and writes. What a client reads of a server is held against the question and
//! against itself: neither side trusts the other.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zerocopy::{FromBytes, Immutable, IntoBytes, TryFromBytes};

/// A message that cannot be what its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The size in its header. What follows cannot be told apart any more.
    #[error("a message says that it has {size} bytes; one has 16 to {most}")]
    Size {
        /// What the header says.
        size: u32,
        /// The most that a message may have.
        most: u32,
    },
    /// A body that ends within a field.
    #[error("the {what} ends after {len} bytes, within a field")]
    Short {
        /// What was read.
        what: &'static str,
        /// Bytes that there are.
        len: usize,
    },
    /// A field that contradicts another, or that no sender may set so.
    #[error("the {what} is {value:#x}, which cannot be")]
    Field {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// Too many descriptors.
    #[error("a message comes with more than {most} descriptors")]
    Descriptors {
        /// The most that a message may have.
        most: usize,
    },
    /// The capabilities are no JSON object, or one of them is no whole number.
    #[error("the capabilities of a VERSION message are no JSON object of whole numbers")]
    Capabilities,
    /// A reply to a request that nobody made.
    #[error("message {id} is a reply, and nothing was asked")]
    Unasked {
        /// Its identifier.
        id: u16,
    },
}

/// The structure at the start of `bytes`, and what follows it.
fn take<'a, T: FromBytes>(what: &'static str, bytes: &'a [u8]) -> Result<(T, &'a [u8]), Malformed> {
    T::read_from_prefix(bytes).map_err(|_| Malformed::Short { what, len: bytes.len() })
}

fn data<'a>(what: &'static str, bytes: &'a [u8], count: u32) -> Result<&'a [u8], Malformed> {
    bytes.get(..count as usize).ok_or(Malformed::Short { what, len: bytes.len() })
}

fn check(is_right: bool, what: &'static str, value: impl Into<u64>) -> Result<(), Malformed> {
    if is_right { Ok(()) } else { Err(Malformed::Field { what, value: value.into() }) }
}

/// What a message is about (the specification's table of commands).
///
/// Known and left out are descriptors for a region's doorbells (6), the device's own reads and writes of guest memory (11, 12), migration (14)
/// and several writes in one message (15, for servers that offer it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
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
    /// The command of this number, if it is known here.
    pub fn from_number(number: u16) -> Option<Command> {
        Command::try_read_from_bytes(number.as_bytes()).ok()
    }
}

/// The flags of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
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
        take("header", bytes).map(|(header, _)| header)
    }

    /// A whole message: this header, with its size put right, and a body.
    pub fn with_body(self, body: &[u8]) -> Vec<u8> {
        let size = (Header::SIZE + body.len()) as u32;
        [Header { size, ..self }.as_bytes(), body].concat()
    }
}

/// A message, whole.
#[derive(Debug)]
pub struct Message<F> {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub body: Vec<u8>,
    /// The descriptors that came with it, in their order.
    pub fds: Vec<F>,
    /// It came with more, for which this process, or the system, had no room (EMFILE, ENFILE).
    pub lost_fds: bool,
}

/// Cuts a stream into messages. It asks for the bytes of one message at a time and never for one more: descriptors travel beside the bytes that
/// they were sent with, so those that come with a message's bytes are the message's own.
#[derive(Debug)]
pub struct Assembler<F> {
    /// As long as what is read now: a header, or a whole message.
    bytes: Vec<u8>,
    filled: usize,
    fds: Vec<F>,
    most_bytes: u32,
    most_fds: usize,
}

impl<F> Assembler<F> {
    /// For messages of at most this many bytes, the header included, with at most this many descriptors.
    pub fn new(most_bytes: u32, most_fds: usize) -> Assembler<F> {
        Assembler { bytes: vec![0; Header::SIZE], filled: 0, fds: Vec::new(), most_bytes, most_fds }
    }

    /// Where the next bytes go. Never empty.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// The first `len` bytes of [`Assembler::space`] have been filled, at most all of them, and these descriptors came with them. Gives the
    /// message that they complete.
    ///
    /// # Errors
    /// The stream cannot be followed any further.
    pub fn filled(&mut self, len: usize, fds: impl IntoIterator<Item = F>) -> Result<Option<Message<F>>, Malformed> {
        self.fds.extend(fds);
        if self.fds.len() > self.most_fds {
            return Err(Malformed::Descriptors { most: self.most_fds });
        }
        self.filled = (self.filled + len).min(self.bytes.len());
        if self.filled < self.bytes.len() {
            return Ok(None);
        }
        let header = Header::from_bytes(&self.bytes)?;
        if self.bytes.len() == Header::SIZE {
            if header.size < Header::SIZE as u32 || header.size > self.most_bytes {
                return Err(Malformed::Size { size: header.size, most: self.most_bytes });
            }
            self.bytes.resize(header.size as usize, 0);
            if self.filled < self.bytes.len() {
                return Ok(None);
            }
        }
        self.filled = 0;
        let bytes = std::mem::replace(&mut self.bytes, vec![0; Header::SIZE]);
        Ok(Some(Message { header, body: bytes[Header::SIZE..].to_vec(), fds: std::mem::take(&mut self.fds), lost_fds: false }))
    }
}

/// What a side can take. A peer that leaves a value out takes what [`Capabilities::default`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Capabilities {
    /// Descriptors in one message.
    pub max_msg_fds: u64,
    /// Bytes that one message reads or writes.
    pub max_data_xfer_size: u64,
    /// Ranges of guest memory at one time.
    pub max_dma_maps: u64,
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
        let ([major, minor], text) = take::<[u16; 2]>("VERSION message", bytes)?;
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

    /// A message's body, with the zero byte at the end of its text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let text = json!({"capabilities": self.capabilities}).to_string();
        [[self.major, self.minor].as_bytes(), text.as_bytes(), &[0]].concat()
    }
}

// Flags of SET_IRQS (`struct vfio_irq_set`).
const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;

/// What is to be done with interrupts: the flag that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum IrqAction {
    /// Hold them back.
    Mask = 1 << 3,
    /// Let them through.
    Unmask = 1 << 4,
    /// Set where they go, or let one happen.
    Trigger = 1 << 5,
}

/// For which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// For all in the range; no interrupts at all if the range is empty.
    None,
    /// For those whose byte is not zero.
    Bools(&'a [u8]),
    /// Each has a descriptor, or, where the message has none at all, none has.
    Eventfds,
}

/// A SET_IRQS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// Which kind of interrupts ([`crate::irq`]).
    pub index: u32,
    /// The first of them.
    pub start: u32,
    /// How many.
    pub count: u32,
    /// What is done with them.
    pub action: IrqAction,
    /// For which.
    pub data: IrqData<'a>,
}

impl<'a> SetIrqs<'a> {
    fn from_bytes(body: &'a [u8]) -> Result<SetIrqs<'a>, Malformed> {
        let ([_argsz, flags, index, start, count], bytes) = take::<[u32; 5]>("SET_IRQS message", body)?;
        let bad = Malformed::Field { what: "flags of SET_IRQS", value: flags.into() };
        let action = flags & !(DATA_NONE | DATA_BOOL | DATA_EVENTFD);
        let action = IrqAction::try_read_from_bytes(action.as_bytes()).map_err(|_| bad)?;
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
        let fields = [20 + data.len() as u32, self.action as u32 | flag, self.index, self.start, self.count];
        [fields.as_bytes(), data].concat()
    }
}

/// DMA_MAP: guest memory appears (`struct vfio_user_dma_map`).
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

/// DMA_UNMAP: guest memory goes (`struct vfio_user_dma_unmap`).
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
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

// Flags of DMA_MAP, and of a region (`VFIO_REGION_INFO_FLAG_*`).
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const MMAP: u32 = 1 << 2;
const CAPS: u32 = 1 << 3;
// Flags of DMA_UNMAP.
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
            Command::DmaMap => {
                let ([_argsz, flags], rest) = take::<[u32; 2]>("DMA_MAP message", body)?;
                let ([offset, address, size], _) = take::<[u64; 3]>("DMA_MAP message", rest)?;
                check(flags & !(READ | WRITE) == 0, "flags of DMA_MAP", flags)?;
                Request::DmaMap(DmaMap { readable: flags & READ != 0, writable: flags & WRITE != 0, offset, address, size })
            }
            Command::DmaUnmap => {
                let ([_argsz, flags], rest) = take::<[u32; 2]>("DMA_UNMAP message", body)?;
                let ([address, size], _) = take::<[u64; 2]>("DMA_UNMAP message", rest)?;
                check(flags & !(BITMAP | ALL) == 0, "flags of DMA_UNMAP", flags)?;
                Request::DmaUnmap(DmaUnmap { all: flags & ALL != 0, bitmap: flags & BITMAP != 0, address, size })
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
                let (access, bytes) = take::<Access>("REGION_WRITE message", body)?;
                Request::RegionWrite(access, data("data of REGION_WRITE", bytes, access.count)?)
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
        let body = match *self {
            Request::Version(version) => version.to_bytes(),
            Request::DmaMap(DmaMap { readable, writable, offset, address, size }) => {
                let flags = if readable { READ } else { 0 } | if writable { WRITE } else { 0 };
                [[32, flags].as_bytes(), [offset, address, size].as_bytes()].concat()
            }
            Request::DmaUnmap(unmap) => unmap.to_bytes(),
            Request::DeviceInfo => [16u32, 0, 0, 0].as_bytes().to_vec(),
            Request::RegionInfo { index, room } => [room, 0, index, 0, 0, 0, 0, 0].as_bytes().to_vec(),
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

/// The capability that lists which parts of a region can be mapped (`VFIO_REGION_INFO_CAP_SPARSE_MMAP`).
const SPARSE_MMAP: u16 = 1;

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

    fn to_bytes(self) -> Vec<u8> {
        let flags = if self.size > 0 { READ | WRITE } else { 0 };
        let argsz = if self.mappable.is_some() { RegionInfo::WITH_AREA } else { REGION_INFO };
        // No word of capabilities where there are none: QEMU takes an answer for a lie that has some and says not where.
        let area = self.mappable.filter(|_| self.has_descriptor());
        let (flags, capabilities) = if area.is_some() { (flags | MMAP | CAPS, REGION_INFO) } else { (flags, 0) };
        let info = [[argsz, flags, self.index, capabilities].as_bytes(), [self.size, 0].as_bytes()].concat();
        // Version 1 of the capability, which is the last, and has one area.
        let capability = area.map(|area| [[SPARSE_MMAP, 1].as_bytes(), [0u32, 1, 0].as_bytes(), area.as_bytes()].concat());
        [info, capability.unwrap_or_default()].concat()
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
/// Flags of interrupts: they go to eventfds (bit 0), and their number is set once and for all (bit 3).
const EVENTFD_FIXED: u32 = 1 | 1 << 3;

impl Reply<'_> {
    /// The whole message that answers the request of this header.
    pub fn to_bytes(&self, request: &Header) -> Vec<u8> {
        let body = match *self {
            Reply::Done | Reply::Error(_) => Vec::new(),
            Reply::Version(version) => version.to_bytes(),
            Reply::DmaUnmap(unmap) => DmaUnmap { bitmap: false, ..unmap }.to_bytes(),
            Reply::DeviceInfo(Device { can_reset, is_pci, regions, irqs }) => {
                [16, u32::from(can_reset) | u32::from(is_pci) << 1, regions, irqs].as_bytes().to_vec()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
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
        let ([_argsz, flags, regions, irqs], _) = take::<[u32; 4]>("answer to GET_INFO", body)?;
        Ok(Device { can_reset: flags & 1 != 0, is_pci: flags & 1 << 1 != 0, regions, irqs })
    }
}

impl Interrupts {
    /// Reads the answer to GET_IRQ_INFO about `index`.
    ///
    /// # Errors
    /// It is too short, or about other interrupts.
    pub fn from_answer(index: u32, body: &[u8]) -> Result<Interrupts, Malformed> {
        let ([_argsz, flags, about, count], _) = take::<[u32; 4]>("answer to GET_IRQ_INFO", body)?;
        check(about == index, "index of GET_IRQ_INFO's answer", about)?;
        Ok(Interrupts { by_eventfd: flags & 1 != 0, count })
    }
}

impl Region {
    /// Parts of a region at most: as many as a message has descriptors ([`crate::Socket::MOST_FDS`]).
    pub const MOST_AREAS: usize = 16;

    /// Bytes that an answer with that many parts takes at most, for the field `argsz` of the question.
    pub const MOST_BYTES: u32 = REGION_INFO + 16 + 16 * Region::MOST_AREAS as u32 + 64;

    /// Reads the answer to GET_REGION_INFO about `index`.
    ///
    /// # Errors
    /// It is too short, about another region, or lists parts that are not in the region.
    pub fn from_answer(index: u32, body: &[u8]) -> Result<Region, Malformed> {
        let ([argsz, flags, about, capabilities], rest) = take::<[u32; 4]>("answer to GET_REGION_INFO", body)?;
        let ([bytes, file_offset], _) = take::<[u64; 2]>("answer to GET_REGION_INFO", rest)?;
        check(about == index, "index of GET_REGION_INFO's answer", about)?;
        let mut areas = Vec::new();
        // More than there was room for has been left out: what can be mapped is not known then.
        if flags & MMAP != 0 && bytes > 0 && argsz <= Region::MOST_BYTES {
            let sparse = if flags & CAPS != 0 { sparse_areas(body, capabilities)? } else { None };
            areas = sparse.unwrap_or_else(|| vec![Area { offset: 0, bytes }]);
        }
        for Area { offset, bytes: len } in &areas {
            let end = offset.checked_add(*len).filter(|end| *end <= bytes).and_then(|end| end.checked_add(file_offset));
            check(end.is_some(), "end of a part of a region", offset.wrapping_add(*len))?;
        }
        Ok(Region { readable: flags & READ != 0, writable: flags & WRITE != 0, bytes, file_offset, areas })
    }
}

/// The data of an answer to REGION_READ.
///
/// # Errors
/// It is not about `asked`, or has fewer bytes than it says.
pub fn region_data<'a>(asked: &Access, body: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (said, bytes) = take::<Access>("answer to REGION_READ", body)?;
    check(said.region == asked.region, "region of REGION_READ's answer", said.region)?;
    check(said.count == asked.count, "count of REGION_READ's answer", said.count)?;
    check(said.offset == asked.offset, "offset of REGION_READ's answer", said.offset)?;
    data("data of REGION_READ's answer", bytes, said.count)
}

/// What the chain of capabilities that begins at `first` says of parts that can be mapped. It goes forward, and so has an end.
fn sparse_areas(body: &[u8], first: u32) -> Result<Option<Vec<Area>>, Malformed> {
    const WHAT: &str = "capabilities of a region";
    let mut at = first;
    while at != 0 {
        let rest = body.get(at as usize..).ok_or(Malformed::Short { what: WHAT, len: body.len() })?;
        let ([id, _version], rest) = take::<[u16; 2]>(WHAT, rest)?;
        let (next, rest) = take::<u32>(WHAT, rest)?;
        if id == SPARSE_MMAP {
            let ([count, _reserved], mut rest) = take::<[u32; 2]>(WHAT, rest)?;
            check(count as usize <= Region::MOST_AREAS, "number of parts of a region", count)?;
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

/// Number of DMA_READ.
const DMA_READ: u16 = 11;
/// Number of DMA_WRITE.
const DMA_WRITE: u16 = 12;

/// What a server asks of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAsk<'a> {
    /// This many bytes from a bus address on.
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
        let ([address, count], bytes) = take::<[u64; 2]>("DMA_READ or DMA_WRITE message", body)?;
        check(count <= most.into(), "count of a DMA_READ or DMA_WRITE message", count)?;
        let count = count as u32;
        if header.command == DMA_READ {
            return Ok(Some(DmaAsk::Read { address, count }));
        }
        Ok(Some(DmaAsk::Write { address, data: data("data of DMA_WRITE", bytes, count)? }))
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
        let data = if let DmaAsk::Write { data, .. } = self { data } else { &[][..] };
        let body = [[address, count].as_bytes(), data].concat();
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
        let ([about, said], data) = take::<[u64; 2]>("answer to DMA_READ or DMA_WRITE", body)?;
        let (address, count) = self.range();
        check(about == address, "address of DMA_READ's or DMA_WRITE's answer", about)?;
        check(said == count, "count of DMA_READ's or DMA_WRITE's answer", said)?;
        let due = if matches!(self, DmaAsk::Read { .. }) { count } else { 0 };
        check(data.len() as u64 == due, "number of bytes of DMA_READ's or DMA_WRITE's answer", data.len() as u64)?;
        Ok(Some(data))
    }

    /// The whole message that answers it: with `data` if it was to be read.
    pub fn answer(&self, request: &Header, data: &[u8]) -> Vec<u8> {
        let (address, count) = self.range();
        let body = [[address, count].as_bytes(), data].concat();
        Header { flags: Flags::REPLY, error: 0, ..*request }.with_body(&body)
    }
}

#[cfg(test)]
mod tests;
