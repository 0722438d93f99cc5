//! NVMe over Fabrics: Fabrics commands (Base §6), the discovery log (Base §5.1.12.3.1), and
//! Cross-Controller Reset (TP8028, TP4129).
//!
//! ```text
//!   discovery controller: Connect ─► Get Log Page 70h ─► DiscoveryEntry: address, SUBNQN
//!   NVM subsystem, admin queue: Connect (QID 0) ─► CNTLID ─► Property Set CC.EN ─► Identify …
//!   each I/O queue: Connect (QID n, CNTLID) ─► I/O commands
//! ```

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::{Text, page};
use crate::prp::Dptr;
use crate::{QueueId, Sqe, Status, opcode, regs};

/// The well-known NQN of discovery services (Base §4.7).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Fabrics Command Types: byte 4 of the command, see [`fctype_of`].
pub mod fctype {
    /// Property Set (Base §6.6).
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect (Base §6.3).
    pub const CONNECT: u8 = 0x01;
    /// Property Get (Base §6.5).
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send (Base §6.2).
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive (Base §6.1).
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect (Base §6.4).
    pub const DISCONNECT: u8 = 0x08;
}

// Status codes of Connect (Base §6.3). They are command specific: other commands use the same
// values with other meanings.
/// Connect: RECFMT is not supported.
pub const INCOMPATIBLE_FORMAT: Status = Status::new(1, 0x80);
/// Connect: the controller is in use, or the subsystem has no free controller.
pub const CONTROLLER_BUSY: Status = Status::new(1, 0x81);
/// Connect: invalid parameter; its location is in DW0 ([`invalid_parameter`]).
pub const INVALID_PARAMETERS: Status = Status::new(1, 0x82);
/// Connect: the subsystem is no longer available here; the host should repeat discovery.
pub const RESTART_DISCOVERY: Status = Status::new(1, 0x83);
/// Connect: the host is not allowed to use this subsystem.
pub const INVALID_HOST: Status = Status::new(1, 0x84);

/// The type of a Fabrics command; `None` for other commands.
pub fn fctype_of(sqe: &Sqe) -> Option<u8> {
    (sqe.opcode == opcode::admin::FABRICS).then_some(sqe.nsid as u8)
}

/// A Fabrics command. PSDT is 01b, as these commands only use SGLs (Base §4.1.2).
fn fabrics(fctype: u8) -> Sqe {
    Sqe {
        opcode: opcode::admin::FABRICS,
        flags: Sqe::PSDT_SGL,
        nsid: fctype.into(),
        ..Sqe::default()
    }
}

/// Direction of a command's data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// To the controller.
    ToController,
    /// To the host.
    ToHost,
    /// Bidirectional; not used by these command sets.
    Both,
}

/// Direction of a command's data: bits 1:0 of the opcode, or of the type of a Fabrics command (Base
/// §4.1, CDW0.DTD).
pub fn direction_of(sqe: &Sqe) -> Direction {
    match fctype_of(sqe).unwrap_or(sqe.opcode) & 3 {
        0 => Direction::None,
        1 => Direction::ToController,
        2 => Direction::ToHost,
        _ => Direction::Both,
    }
}

/// Connect (Base §6.3): the first command on each queue. Its data are a [`ConnectData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// CDW10.RECFMT: 0, the only format.
    pub format: u16,
    /// CDW10.QID. On queue 0, the admin queue, Connect creates an association.
    pub queue: QueueId,
    /// CDW11.SQSIZE + 1: entries of the queue, 1 to 65,536.
    pub entries: u32,
    /// CDW11.CATTR bit 2: SQ flow control is disabled; the controller does not report SQHD.
    pub no_flow_control: bool,
    /// KATO: Keep Alive Timeout in milliseconds; 0: disabled.
    pub kato: u32,
    /// Data pointer.
    pub data: Dptr,
}

impl Connect {
    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            prp1: self.data.prp1,
            prp2: self.data.prp2,
            cdw10: u32::from(self.format) | u32::from(self.queue.0) << 16,
            cdw11: self.entries.wrapping_sub(1) & 0xffff | u32::from(self.no_flow_control) << 18,
            cdw12: self.kato,
            ..fabrics(fctype::CONNECT)
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> Connect {
        Connect {
            format: sqe.cdw10 as u16,
            queue: QueueId((sqe.cdw10 >> 16) as u16),
            entries: (sqe.cdw11 & 0xffff) + 1,
            no_flow_control: sqe.cdw11 >> 18 & 1 == 1,
            kato: sqe.cdw12,
            data: sqe.dptr(),
        }
    }
}

/// DW0 of a Connect that fails with [`INVALID_PARAMETERS`]: byte offset of the parameter, in the
/// data or in the command.
pub fn invalid_parameter(offset: usize, in_data: bool) -> u32 {
    offset as u32 & 0xffff | u32::from(in_data) << 16
}

/// The data of a Connect: 1024 bytes (Base §6.3, figure "Connect Command – Data").
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID, 15:0.
    pub host_id: [u8; 16],
    /// CNTLID, 17:16. On the admin queue FFFFh in the dynamic controller model; on an I/O queue the
    /// CNTLID of the association.
    pub cntlid: U16,
    #[doc(hidden)]
    pub reserved18: [u8; 238],
    /// SUBNQN, 511:256.
    pub subnqn: Text<256>,
    /// HOSTNQN, 767:512.
    pub hostnqn: Text<256>,
    #[doc(hidden)]
    pub reserved768: [u8; 256],
}

page!(ConnectData, 1024);

impl ConnectData {
    /// CNTLID: any controller.
    pub const ANY: u16 = 0xffff;
    /// Byte offset of CNTLID.
    pub const CNTLID_AT: usize = 16;
    /// Byte offset of SUBNQN.
    pub const SUBNQN_AT: usize = 256;
    /// Byte offset of HOSTNQN.
    pub const HOSTNQN_AT: usize = 512;
}

/// The NQN in a field; `None` if it is not NUL terminated, not UTF-8, or not valid by Base §4.7.
pub fn nqn(field: &Text<256>) -> Option<&str> {
    let end = field.0.iter().position(|byte| *byte == 0)?;
    let text = str::from_utf8(field.0.get(..end)?).ok()?;
    (text.starts_with("nqn.") && text.len() <= 223 && !text.chars().any(char::is_control))
        .then_some(text)
}

/// Property Get or Property Set (Base §6.5, 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// CDW11.OFST: the register's offset.
    pub offset: u32,
    /// CDW10.ATTRIB, the property's size: `Some(true)` 8 bytes, `Some(false)` 4 bytes, `None` a
    /// reserved value.
    pub wide: Option<bool>,
    /// The value to set; Property Get returns it in DW0 and DW1 of its completion.
    pub value: u64,
}

impl Property {
    /// Encodes Property Get.
    pub fn to_get(offset: u32, wide: bool) -> Sqe {
        Sqe { cdw10: wide.into(), cdw11: offset, ..fabrics(fctype::PROPERTY_GET) }
    }

    /// Encodes Property Set.
    pub fn to_set(offset: u32, wide: bool, value: u64) -> Sqe {
        Sqe {
            cdw10: wide.into(),
            cdw11: offset,
            cdw12: value as u32,
            cdw13: (value >> 32) as u32,
            ..fabrics(fctype::PROPERTY_SET)
        }
    }

    /// Decodes either command.
    pub fn from_sqe(sqe: &Sqe) -> Property {
        let wide = [Some(false), Some(true)].get((sqe.cdw10 & 7) as usize).copied().flatten();
        Property {
            offset: sqe.cdw11,
            wide,
            value: u64::from(sqe.cdw12) | u64::from(sqe.cdw13) << 32,
        }
    }

    /// Whether a fabric controller's property has 8 bytes (otherwise it has 4), and whether a host
    /// may set it (Base §3.1.4, figure "Property Definition"). `None`: there is no property at this
    /// offset, or only on PCIe.
    pub fn size(offset: u32) -> Option<(bool, bool)> {
        Some(match offset {
            regs::CAP => (true, false),
            regs::VS | regs::CSTS | regs::CRTO => (false, false),
            regs::CC | regs::NSSR => (false, true),
            _ => return None,
        })
    }
}

/// Disconnect (Base §6.4): deletes the I/O queue on which it is sent.
pub fn disconnect() -> Sqe {
    fabrics(fctype::DISCONNECT)
}

/// Header of the discovery log: 1024 bytes, followed by entries of the same size (Base
/// §5.1.12.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR, 7:0. Generation counter: changes whenever the log changes.
    pub generation: U64,
    /// NUMREC, 15:8. Number of entries.
    pub records: U64,
    /// RECFMT, 17:16. Always 0.
    pub format: U16,
    #[doc(hidden)]
    pub reserved18: [u8; 1006],
}

page!(DiscoveryHeader, 1024);

/// Entry of the discovery log: a subsystem and its transport address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE, 0; see [`DiscoveryEntry::TCP`].
    pub transport: u8,
    /// ADRFAM, 1; see [`DiscoveryEntry::IPV4`].
    pub family: u8,
    /// SUBTYPE, 2; see [`DiscoveryEntry::NVM`].
    pub kind: u8,
    /// TREQ, 3. Bits 1:0 secure channel: 2 not required; bit 2: SQ flow control can be disabled.
    pub requirements: u8,
    /// PORTID, 5:4.
    pub port: U16,
    /// CNTLID, 7:6. FFFFh: dynamic controllers.
    pub cntlid: U16,
    /// ASQSZ, 9:8. Maximum number of entries of an admin queue.
    pub admin_entries: U16,
    /// EFLAGS, 11:10.
    pub flags: U16,
    #[doc(hidden)]
    pub reserved12: [u8; 20],
    /// TRSVCID, 63:32. The port number.
    pub service: Text<32>,
    #[doc(hidden)]
    pub reserved64: [u8; 192],
    /// SUBNQN, 511:256.
    pub subnqn: Text<256>,
    /// TRADDR, 767:512.
    pub address: Text<256>,
    /// TSAS, 1023:768. For TCP, byte 0 is the type of security; 0: none.
    pub specific: [u8; 256],
}

page!(DiscoveryEntry, 1024);

impl DiscoveryEntry {
    /// TRTYPE: TCP.
    pub const TCP: u8 = 3;
    /// ADRFAM: IPv4.
    pub const IPV4: u8 = 1;
    /// ADRFAM: IPv6.
    pub const IPV6: u8 = 2;
    /// SUBTYPE: an NVM subsystem.
    pub const NVM: u8 = 2;
    /// SUBTYPE: the discovery subsystem that returned this log.
    pub const CURRENT_DISCOVERY: u8 = 3;
    /// TREQ: no secure channel is required, and SQ flow control can be disabled.
    pub const OPEN: u8 = 2 | 1 << 2;

    /// Whether the address is for TLS only: TREQ says that a secure channel is required, or over TCP
    /// the type of security (SECTYPE) is not "none".
    pub fn requires_tls(&self) -> bool {
        self.requirements & 3 == 1 || self.transport == Self::TCP && self.specific[0] != 0
    }
}

/// Cross-Controller Reset (TP8028): a host that has lost contact with a controller requests its
/// reset through another controller of the subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossControllerReset {
    /// CDW10.CIU, 23:16: Controller Instance Uniquifier, as in Identify Controller.
    pub ciu: u8,
    /// CDW10.ICID, 15:0: the impacted controller.
    pub icid: u16,
    /// CDW13, CDW12: Controller Instance Random Number, as in Identify Controller.
    pub cirn: u64,
}

impl CrossControllerReset {
    /// DW0 of the completion: the reset is complete (IRS).
    pub const RESET: u32 = 1;

    /// Encodes the command.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::CROSS_CONTROLLER_RESET,
            cdw10: u32::from(self.icid) | u32::from(self.ciu) << 16,
            cdw12: self.cirn as u32,
            cdw13: (self.cirn >> 32) as u32,
            ..Sqe::default()
        }
    }

    /// Decodes the command.
    pub fn from_sqe(sqe: &Sqe) -> CrossControllerReset {
        CrossControllerReset {
            ciu: (sqe.cdw10 >> 16) as u8,
            icid: sqe.cdw10 as u16,
            cirn: u64::from(sqe.cdw12) | u64::from(sqe.cdw13) << 32,
        }
    }
}

/// Entry of the Cross-Controller Reset log (Base §2.3 5.2.12.3.1), which starts with the number of
/// entries, 1:0, and 6 reserved bytes. There is one for each reset that was still in progress when
/// its command completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CrossResetEntry {
    /// ICID, 1:0. The impacted controller.
    pub icid: U16,
    /// CIU, 2. Controller Instance Uniquifier of the impacted controller.
    pub ciu: u8,
    #[doc(hidden)]
    pub reserved3: u8,
    /// ACID, 5:4. Alternate controller for the host to use; [`CrossResetEntry::NO_OTHER`]: none.
    pub acid: U16,
    /// CCRS, 6; see [`CrossResetEntry::IN_PROGRESS`].
    pub status: u8,
    /// CCRF, 7. Bit 0: the command was validated, bit 1: the reset was initiated.
    pub flags: u8,
}

page!(CrossResetEntry, 8);

impl CrossResetEntry {
    /// Most entries of the log.
    pub const MOST: usize = 511;
    /// LSP bit 0 of Get Log Page, RMC: remove entries of completed resets.
    pub const REMOVE_COMPLETED: u8 = 1;
    /// ACID: none.
    pub const NO_OTHER: u16 = 0xffff;
    /// CCRS: the reset is in progress.
    pub const IN_PROGRESS: u8 = 0;
    /// CCRS: the reset was successful.
    pub const SUCCESSFUL: u8 = 1;
}

#[cfg(test)]
mod tests;
