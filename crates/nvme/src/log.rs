//! Log pages (Base §5.1.12.1).

use bitfield_struct::bitfield;
use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Status;
use crate::page::{Text, page};

pub mod ana;

pub use crate::identify::NamespaceList as ChangedNamespaces;

/// Log page identifiers (Base §5.1.12.1).
pub mod lid {
    /// Supported Log Pages → [`super::IdentifiersSupported`].
    pub const SUPPORTED_LOG_PAGES: u8 = 0x00;
    /// Error Information → [`super::ErrorEntry`]s, the newest first.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information → [`super::Smart`].
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information → [`super::FirmwareSlots`].
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Attached Namespace List → [`super::ChangedNamespaces`].
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects → [`super::CommandsSupported`].
    pub const COMMANDS_SUPPORTED: u8 = 0x05;
    /// Asymmetric Namespace Access → [`super::ana::AnaLog`].
    pub const ANA: u8 = 0x0c;
    /// Feature Identifiers Supported and Effects → [`super::IdentifiersSupported`].
    pub const FEATURES_SUPPORTED: u8 = 0x12;
    /// NVMe-MI Commands Supported and Effects: 4096 bytes, all zero without NVMe-MI Send.
    pub const MI_COMMANDS_SUPPORTED: u8 = 0x13;
    /// Cross-Controller Reset (TP8028) → [`crate::fabrics::CrossResetEntry`]s.
    pub const CROSS_CONTROLLER_RESET: u8 = 0x1e;
    /// Discovery → [`crate::fabrics::DiscoveryHeader`] and [`crate::fabrics::DiscoveryEntry`]s.
    pub const DISCOVERY: u8 = 0x70;
}

/// An entry of the Error Information log (Base §5.1.12.1.2): 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ErrorEntry {
    /// ECNT, 7:0. Counts errors from 1 over the controller's life; 0: unused entry.
    pub error_count: u64,
    /// SQID, 9:8. The queue of the command, or [`ErrorEntry::NONE`].
    pub sq_id: u16,
    /// CID, 11:10. The command, or [`ErrorEntry::NONE`].
    pub cid: u16,
    /// STS, 13:12. Bit 0 the phase tag, bits 15:1 the status; see [`ErrorEntry::status`].
    pub status_and_phase: u16,
    /// PEL, 15:14. Location of the invalid parameter in the command: bits 7:0 the byte, bits 10:8
    /// the bit in the byte; FFFFh: not applicable.
    pub parameter_location: u16,
    /// LBA, 23:16. First block with an error, if the command has a range of blocks.
    pub lba: u64,
    /// NSID, 27:24.
    pub nsid: u32,
    #[doc(hidden)]
    pub reserved28: [u8; 3],
    /// OPC, 31. Opcode of the command, if LPVER is 1 or more.
    pub opcode: u8,
    /// CSINFO, 39:32. Command specific information.
    pub command_info: u64,
    #[doc(hidden)]
    pub reserved40: [u8; 23],
    /// LPVER, 63. 1: OPC is valid (and CSI, byte 30, which is not decoded here).
    pub version: u8,
}

page!(ErrorEntry, 64);

impl ErrorEntry {
    /// Value of SQID, CID and PEL if not applicable.
    pub const NONE: u16 = u16::MAX;

    /// The status of the command.
    pub fn status(&self) -> Status {
        Status(self.status_and_phase >> 1)
    }
}

/// SMART / Health Information (Base §5.1.12.1.3): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Smart {
    /// CW, 0. Critical warnings.
    pub critical_warning: CriticalWarning,
    /// CTEMP, 2:1. Composite temperature, in kelvin.
    pub temperature: U16,
    /// AVSP, 3. Available spare, in percent.
    pub available_spare: u8,
    /// AVSPT, 4. Available spare threshold, in percent, below which an event may be reported.
    pub available_spare_threshold: u8,
    #[doc(hidden)]
    pub reserved5: [u8; 27],
    /// DUR, 47:32. Data read, in thousands of 512-byte units, rounded up.
    pub data_units_read: U128,
    /// DUW, 63:48. Data written, in thousands of 512-byte units, rounded up.
    pub data_units_written: U128,
    /// HRC, 79:64. Read commands.
    pub host_reads: U128,
    /// HWC, 95:80. Write commands.
    pub host_writes: U128,
    #[doc(hidden)]
    pub reserved96: [u8; 16],
    /// PWRC, 127:112. Power cycles.
    pub power_cycles: U128,
    /// POH, 143:128. Power on hours.
    pub power_on_hours: U128,
    /// UPL, 159:144. Power losses without a preceding shutdown.
    pub unsafe_shutdowns: U128,
    /// MDIE, 175:160. Media and data integrity errors.
    pub media_errors: U128,
    /// NEILE, 191:176. Number of Error Information log entries over the controller's life.
    pub error_log_entries: U128,
    #[doc(hidden)]
    pub reserved192: [u8; 320],
}

page!(Smart, 512);

/// SMART critical warnings (Base §5.1.12.1.3, CW).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CriticalWarning {
    /// ASCBT: spare capacity is below its threshold.
    pub spare: bool,
    /// TTC: a temperature is beyond its threshold.
    pub temperature: bool,
    #[bits(1)]
    __: u8,
    /// AMRO: all media are read-only.
    pub read_only: bool,
    #[bits(4)]
    __: u8,
}

/// Firmware Slot Information (Base §5.1.12.1.4): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirmwareSlots {
    /// AFI, byte 0. Bits 2:0: active slot; bits 6:4: slot that is activated at the next reset, 0 if
    /// not specified.
    pub active: u8,
    #[doc(hidden)]
    pub reserved1: [u8; 7],
    /// FRS1 to FRS7, 63:8. Firmware revision of each slot; zero: empty.
    pub revisions: [Text<8>; 7],
    #[doc(hidden)]
    pub reserved64: [u8; 448],
}

page!(FirmwareSlots, 512);

impl FirmwareSlots {
    /// A single, active slot.
    pub fn single(revision: Text<8>) -> FirmwareSlots {
        let mut slots = FirmwareSlots { active: 1, ..FirmwareSlots::default() };
        slots.revisions[0] = revision;
        slots
    }
}

/// Bits of [`Supported::scope`]: what a command or a feature may affect (Base §5.1.12.1.6 and
/// 5.1.12.1.18).
pub mod scope {
    /// NSCPE: namespaces.
    pub const NAMESPACE: u16 = 1 << 0;
    /// CSCPE: the controller.
    pub const CONTROLLER: u16 = 1 << 1;
}

/// Support and effects of a log page, feature or command: the data structures "LID Supported and
/// Effects" (Base §5.1.12.1.1), "FID Supported and Effects" (Base §5.1.12.1.18) and "Commands
/// Supported and Effects" (Base §5.1.12.1.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Supported {
    /// LSUPP, FSUPP or CSUPP: the identifier or opcode is supported.
    pub supported: bool,
    /// LBCC, of a command: may change logical block content.
    pub lbcc: bool,
    #[bits(18)]
    __: u32,
    /// FSP or CSP: bits of [`scope`]; 0: not reported.
    #[bits(12)]
    pub scope: u16,
}

/// Supported Log Pages (Base §5.1.12.1.1) and Feature Identifiers Supported and Effects (Base
/// §5.1.12.1.18): 1024 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifiersSupported {
    /// LIDS0 to LIDS255, or FIS0 to FIS255.
    pub ids: [Supported; 256],
}

page!(IdentifiersSupported, 1024);

/// Commands Supported and Effects (Base §5.1.12.1.6): 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandsSupported {
    /// ACS0 to ACS255, admin commands by opcode.
    pub admin: [Supported; 256],
    /// IOCS0 to IOCS255, I/O commands by opcode.
    pub io: [Supported; 256],
    #[doc(hidden)]
    pub reserved2048: [u8; 2048],
}

page!(CommandsSupported, 4096);

#[cfg(test)]
mod tests;
