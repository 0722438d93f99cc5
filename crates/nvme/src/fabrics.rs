//! NVMe over Fabrics: its commands (Base 6), the discovery log (Base 5.1.12.3.1), and resets of one
//! controller by another (TP8028, TP4129).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::{Text, page};
use crate::prp::Dptr;
use crate::{QueueId, Sqe, Status, opcode, regs};

/// The NQN under which every discovery service is reached (Base 4.7).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Fabrics Command Types: byte 4 of the command, see [`fctype_of`].
pub mod fctype {
    /// Property Set (Base 6.6).
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect (Base 6.3).
    pub const CONNECT: u8 = 0x01;
    /// Property Get (Base 6.5).
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send (Base 6.2).
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive (Base 6.1).
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect (Base 6.4).
    pub const DISCONNECT: u8 = 0x08;
}

// Statuses of Connect (Base 6.3). Command specific, so that other commands have the same codes.
/// Connect: RECFMT is not supported.
pub const INCOMPATIBLE_FORMAT: Status = Status::new(1, 0x80);
/// Connect: the controller has an association, or the subsystem as many as it takes.
pub const CONTROLLER_BUSY: Status = Status::new(1, 0x81);
/// Connect: a parameter is invalid; DW0 says which ([`invalid_parameter`]).
pub const INVALID_PARAMETERS: Status = Status::new(1, 0x82);
/// Connect: the subsystem is not here any more, ask the discovery service again.
pub const RESTART_DISCOVERY: Status = Status::new(1, 0x83);
/// Connect: the host may not use this subsystem.
pub const INVALID_HOST: Status = Status::new(1, 0x84);

/// Whether it is one of these commands, and of which type.
pub fn fctype_of(sqe: &Sqe) -> Option<u8> {
    (sqe.opcode == opcode::admin::FABRICS).then_some(sqe.nsid as u8)
}

/// A Fabrics command. PSDT is 01b in all of them, as they have SGLs only (Base 4.1.2).
fn fabrics(fctype: u8) -> Sqe {
    Sqe {
        opcode: opcode::admin::FABRICS,
        flags: Sqe::PSDT_SGL,
        nsid: fctype.into(),
        ..Sqe::default()
    }
}

/// Which way the data of a command go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// There are none.
    None,
    /// To the controller.
    ToController,
    /// To the host.
    ToHost,
    /// Either way, which no command of these command sets has.
    Both,
}

/// Which way the data of a command go: bits 1:0 of the opcode, of a Fabrics command those of its
/// type (Base 4.1, CDW0.DTD).
pub fn direction_of(sqe: &Sqe) -> Direction {
    match fctype_of(sqe).unwrap_or(sqe.opcode) & 3 {
        0 => Direction::None,
        1 => Direction::ToController,
        2 => Direction::ToHost,
        _ => Direction::Both,
    }
}

/// Connect (Base 6.3): the first command of each queue. Its data are a [`ConnectData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// CDW10.RECFMT: 0, the only format.
    pub format: u16,
    /// CDW10.QID: 0 begins an association.
    pub queue: QueueId,
    /// CDW11.SQSIZE + 1: entries of the queue, 1 to 65,536.
    pub entries: u32,
    /// CDW11.CATTR bit 2: the controller need not report SQHD.
    pub no_flow_control: bool,
    /// KATO: the keep alive time-out in milliseconds; 0: none.
    pub kato: u32,
    /// Where the data are.
    pub data: Dptr,
}

impl Connect {
    /// The command for the host to send.
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

    /// What the host asked for.
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

/// DW0 of a Connect that ends with [`INVALID_PARAMETERS`]: the byte where the parameter begins, in
/// the data or in the command.
pub fn invalid_parameter(offset: usize, in_data: bool) -> u32 {
    offset as u32 & 0xffff | u32::from(in_data) << 16
}

/// The data of a Connect: 1024 bytes (Base 6.3, figure "Connect Command – Data").
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID, 15:0.
    pub host_id: [u8; 16],
    /// CNTLID, 17:16. Of an admin queue FFFFh in the dynamic controller model; of an I/O queue,
    /// that of its association.
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
    /// Where CNTLID is.
    pub const CNTLID_AT: usize = 16;
    /// Where SUBNQN is.
    pub const SUBNQN_AT: usize = 256;
    /// Where HOSTNQN is.
    pub const HOSTNQN_AT: usize = 512;
}

/// The NQN in a field: `None` if it does not end with a NUL, is no UTF-8, or none that Base 4.7
/// allows.
pub fn nqn(field: &Text<256>) -> Option<&str> {
    let end = field.0.iter().position(|byte| *byte == 0)?;
    let text = str::from_utf8(field.0.get(..end)?).ok()?;
    (text.starts_with("nqn.") && text.len() <= 223 && !text.chars().any(char::is_control))
        .then_some(text)
}

/// Property Get or Property Set (Base 6.5, 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// CDW11.OFST: the register's offset.
    pub offset: u32,
    /// CDW10.ATTRIB: 8 bytes rather than 4. `None`: a size that is reserved.
    pub wide: Option<bool>,
    /// What is set; a Property Get has it in DW0 and DW1 of its completion.
    pub value: u64,
}

impl Property {
    /// The command that reads it.
    pub fn to_get(offset: u32, wide: bool) -> Sqe {
        Sqe { cdw10: wide.into(), cdw11: offset, ..fabrics(fctype::PROPERTY_GET) }
    }

    /// The command that writes it.
    pub fn to_set(offset: u32, wide: bool, value: u64) -> Sqe {
        Sqe {
            cdw10: wide.into(),
            cdw11: offset,
            cdw12: value as u32,
            cdw13: (value >> 32) as u32,
            ..fabrics(fctype::PROPERTY_SET)
        }
    }

    /// What the host asked for, by either of them.
    pub fn from_sqe(sqe: &Sqe) -> Property {
        let wide = [Some(false), Some(true)].get((sqe.cdw10 & 7) as usize).copied().flatten();
        Property {
            offset: sqe.cdw11,
            wide,
            value: u64::from(sqe.cdw12) | u64::from(sqe.cdw13) << 32,
        }
    }

    /// The size in bytes of a property that a controller on a fabric has, and whether a host may
    /// set it (Base 3.1.4, figure "Property Definition"). `None`: there is none at this offset, or
    /// only on a bus.
    pub fn size(offset: u32) -> Option<(bool, bool)> {
        Some(match offset {
            regs::CAP => (true, false),
            regs::VS | regs::CSTS | regs::CRTO => (false, false),
            regs::CC | regs::NSSR => (false, true),
            _ => return None,
        })
    }
}

/// Disconnect (Base 6.4): deletes the I/O queue that it is sent on.
pub fn disconnect() -> Sqe {
    fabrics(fctype::DISCONNECT)
}

/// The head of the discovery log: 1024 bytes, and an entry of as many follows for each record (Base
/// 5.1.12.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR, 7:0. Changes with the log.
    pub generation: U64,
    /// NUMREC, 15:8. How many entries follow.
    pub records: U64,
    /// RECFMT, 17:16. 0.
    pub format: U16,
    #[doc(hidden)]
    pub reserved18: [u8; 1006],
}

page!(DiscoveryHeader, 1024);

/// An entry of the discovery log: where a subsystem is reached.
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
    /// ASQSZ, 9:8. Most entries of an admin queue.
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
    /// TSAS, 1023:768. Of TCP byte 0 is the kind of security; 0: none.
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
    /// SUBTYPE: the discovery subsystem that is asked.
    pub const CURRENT_DISCOVERY: u8 = 3;
    /// TREQ: no secure channel is required, and SQ flow control can be disabled.
    pub const OPEN: u8 = 2 | 1 << 2;
}

/// Cross-Controller Reset (TP8028): a host that has lost a controller has another one of the
/// subsystem reset it.
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
    /// DW0 of the completion: the controller has been reset already (IRS).
    pub const RESET: u32 = 1;

    /// The command for the host to send.
    pub fn to_sqe(&self) -> Sqe {
        Sqe {
            opcode: opcode::admin::CROSS_CONTROLLER_RESET,
            cdw10: u32::from(self.icid) | u32::from(self.ciu) << 16,
            cdw12: self.cirn as u32,
            cdw13: (self.cirn >> 32) as u32,
            ..Sqe::default()
        }
    }

    /// What the host asked for.
    pub fn from_sqe(sqe: &Sqe) -> CrossControllerReset {
        CrossControllerReset {
            ciu: (sqe.cdw10 >> 16) as u8,
            icid: sqe.cdw10 as u16,
            cirn: u64::from(sqe.cdw12) | u64::from(sqe.cdw13) << 32,
        }
    }
}

/// An entry of the Cross-Controller Reset log (Base 2.3 5.2.12.3.1), which begins with a count of
/// entries, 1:0, and 6 reserved bytes. It has one for each reset that was not over when its command
/// was.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CrossResetEntry {
    /// ICID, 1:0. The impacted controller.
    pub icid: U16,
    /// CIU, 2. Its instance.
    pub ciu: u8,
    #[doc(hidden)]
    pub reserved3: u8,
    /// ACID, 5:4. A controller to use instead; [`CrossResetEntry::NO_OTHER`]: none is named.
    pub acid: U16,
    /// CCRS, 6; see [`CrossResetEntry::IN_PROGRESS`].
    pub status: u8,
    /// CCRF, 7. Bit 0: the command was validated, bit 1: the reset was initiated.
    pub flags: u8,
}

impl CrossResetEntry {
    /// Most entries of the log.
    pub const MOST: usize = 511;
    /// LSP bit 0 of Get Log Page: remove entries of resets that are over (RMC).
    pub const REMOVE_COMPLETED: u8 = 1;
    /// ACID: none.
    pub const NO_OTHER: u16 = 0xffff;
    /// CCRS: the controller is being reset.
    pub const IN_PROGRESS: u8 = 0;
    /// CCRS: it has been reset.
    pub const SUCCESSFUL: u8 = 1;
}

#[cfg(test)]
mod tests;
