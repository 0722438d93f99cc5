//! Log pages (Base 5.1.12.1).

use bitfield_struct::bitfield;
use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::{Text, page};
use crate::{Cid, QueueId, Status};

pub mod ana;
mod effects;

pub use effects::{CommandSupported, CommandsSupported, FeaturesSupported, FidSupported, LidSupported, SupportedLogPages, scope};

pub use crate::identify::NamespaceList as ChangedNamespaces;

/// Log page identifiers (Base 5.1.12.1).
pub mod lid {
    /// Supported Log Pages → [`super::SupportedLogPages`].
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
    /// Feature Identifiers Supported and Effects → [`super::FeaturesSupported`].
    pub const FEATURES_SUPPORTED: u8 = 0x12;
    /// NVMe-MI Commands Supported and Effects: 4096 bytes, zeroes where there is no NVMe-MI Send.
    pub const MI_COMMANDS_SUPPORTED: u8 = 0x13;
}

/// An entry of the Error Information log (Base 5.1.12.1.2): 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ErrorEntry {
    /// ECNT, 7:0. Counts errors from 1 over the controller's life; 0: the entry is not used.
    pub error_count: u64,
    /// SQID, 9:8. The queue of the command, or FFFFh; see [`ErrorEntry::command`].
    pub sq_id: u16,
    /// CID, 11:10. The command, or FFFFh.
    pub cid: u16,
    /// STS, 13:12. Bit 0 the phase tag, bits 15:1 the status; see [`ErrorEntry::status`].
    pub status_and_phase: u16,
    /// PEL, 15:14. Where the offending parameter is: 7:0 byte, 10:8 bit; FFFFh if it does not apply.
    pub parameter_location: u16,
    /// LBA, 23:16. The first block with an error, if the command has blocks.
    pub lba: u64,
    /// NSID, 27:24.
    pub nsid: u32,
    /// VSIA, 28. A vendor specific log page has more; 0: none has.
    pub vendor_log: u8,
    /// TRTYPE, 29. Transport type; 0 for PCIe.
    pub transport: u8,
    /// CSI, 30. The command set of the command, if LPVER is 1 or more.
    pub csi: u8,
    /// OPC, 31. The opcode of the command, if LPVER is 1 or more.
    pub opcode: u8,
    /// CSINFO, 39:32. Command specific information.
    pub command_info: u64,
    /// TTSI, 41:40. Transport type specific information.
    pub transport_info: u16,
    #[doc(hidden)]
    pub reserved42: [u8; 21],
    /// LPVER, 63. 1: CSI and OPC are set.
    pub version: u8,
}

page!(ErrorEntry, 64);

impl ErrorEntry {
    /// What SQID, CID and PEL hold where they do not apply.
    pub const NONE: u16 = u16::MAX;

    /// The command that failed, if it was one.
    pub fn command(&self) -> Option<(QueueId, Cid)> {
        (self.sq_id != Self::NONE || self.cid != Self::NONE).then_some((QueueId(self.sq_id), Cid(self.cid)))
    }

    /// The status of the command.
    pub fn status(&self) -> Status {
        Status(self.status_and_phase >> 1)
    }
}

/// SMART / Health Information (Base 5.1.12.1.3): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Smart {
    /// CW, 0. Critical warnings.
    pub critical_warning: CriticalWarning,
    /// CTEMP, 2:1. Composite temperature, in kelvin.
    pub temperature: U16,
    /// AVSP, 3. Spare capacity left, in percent.
    pub available_spare: u8,
    /// AVSPT, 4. Below this much spare capacity, in percent, there may be an event.
    pub available_spare_threshold: u8,
    /// PUSED, 5. Life used, in percent; may exceed 100, stops at 255.
    pub percentage_used: u8,
    /// EGCWS, 6. Critical warnings of endurance groups.
    pub endurance_group_warning: u8,
    #[doc(hidden)]
    pub reserved7: [u8; 25],
    /// DUR, 47:32. Data read, in thousands of 512-byte units, rounded up.
    pub data_units_read: U128,
    /// DUW, 63:48. Data written, in thousands of 512-byte units, rounded up.
    pub data_units_written: U128,
    /// HRC, 79:64. Read commands.
    pub host_reads: U128,
    /// HWC, 95:80. Write commands.
    pub host_writes: U128,
    /// CBT, 111:96. Minutes busy with I/O.
    pub busy_minutes: U128,
    /// PWRC, 127:112. Power cycles.
    pub power_cycles: U128,
    /// POH, 143:128. Hours powered on.
    pub power_on_hours: U128,
    /// UPL, 159:144. Shutdowns without notice.
    pub unsafe_shutdowns: U128,
    /// MDIE, 175:160. Media and data integrity errors.
    pub media_errors: U128,
    /// NEILE, 191:176. Error Information log entries over the controller's life.
    pub error_log_entries: U128,
    /// WCTT, 195:192. Minutes above the warning temperature.
    pub warning_temperature_minutes: u32,
    /// CCTT, 199:196. Minutes above the critical temperature.
    pub critical_temperature_minutes: u32,
    /// TSEN1 to TSEN8, 215:200. Temperature sensors, in kelvin; 0: not there.
    pub temperature_sensors: [u16; 8],
    /// TMT1TC and TMT2TC, 223:216. Transitions of thermal management.
    pub thermal_transitions: [u32; 2],
    /// TTTMT1 and TTTMT2, 231:224. Seconds in thermal management.
    pub thermal_seconds: [u32; 2],
    #[doc(hidden)]
    pub reserved232: [u8; 280],
}

page!(Smart, 512);

/// SMART critical warnings (Base 5.1.12.1.3, CW).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CriticalWarning {
    /// ASCBT: spare capacity is below its threshold.
    pub spare: bool,
    /// TTC: a temperature is beyond its threshold.
    pub temperature: bool,
    /// NDR: reliability is degraded.
    pub degraded: bool,
    /// AMRO: all media are read-only.
    pub read_only: bool,
    /// VMBF: the backup of volatile memory failed.
    pub backup_failed: bool,
    /// PMRRO: the persistent memory region is read-only or unreliable.
    pub pmr_read_only: bool,
    #[bits(2)]
    __: u8,
}

/// Firmware Slot Information (Base 5.1.12.1.4): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirmwareSlots {
    /// AFI, 0. Bits 2:0 the slot that runs, 6:4 the slot that runs after the next reset, 0 if that is the vendor's choice.
    pub active: u8,
    #[doc(hidden)]
    pub reserved1: [u8; 7],
    /// FRS1 to FRS7, 63:8. Firmware revision in each slot; zeroes: none.
    pub revisions: [Text<8>; 7],
    #[doc(hidden)]
    pub reserved64: [u8; 448],
}

page!(FirmwareSlots, 512);

impl FirmwareSlots {
    /// One slot, which runs.
    pub fn single(revision: Text<8>) -> FirmwareSlots {
        let mut slots = FirmwareSlots { active: 1, ..FirmwareSlots::default() };
        slots.revisions[0] = revision;
        slots
    }

    /// The revision that runs, if AFI names a slot.
    pub fn running(&self) -> Option<Text<8>> {
        self.revisions.get(usize::from(self.active & 7).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests;
