//! Features: CDW11 of Set Features and the result of Get Features (Base §5.1.25.1).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::page;

/// Feature identifiers (Base §5.1.25, figure "Feature Identifiers").
pub mod fid {
    /// Arbitration → [`super::Arbitration`].
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management → [`super::PowerManagement`].
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold → [`super::TemperatureThreshold`].
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery, of a namespace → [`super::ErrorRecovery`].
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache → [`super::VolatileWriteCache`].
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues → [`super::NumberOfQueues`].
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing → [`super::InterruptCoalescing`].
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Interrupt Vector Configuration → [`super::VectorConfig`].
    pub const VECTOR_CONFIG: u8 = 0x09;
    /// Write Atomicity Normal → [`super::WriteAtomicity`].
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration → [`super::AsyncEventConfig`].
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    /// Host Memory Buffer: host memory for the controller's exclusive use.
    pub const HOST_MEMORY_BUFFER: u8 = 0x0d;
    /// Keep Alive Timer: KATO in milliseconds, 0 disables it.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Host Behavior Support → [`super::HostBehavior`], a data structure.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// I/O Command Set Profile: which command sets the namespaces have.
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
}

/// Values of Get Features CDW10.SEL (Base §5.1.11).
pub mod select {
    /// The current value.
    pub const CURRENT: u8 = 0;
    /// The default value.
    pub const DEFAULT: u8 = 1;
    /// The saved value, or the default if none was saved.
    pub const SAVED: u8 = 2;
    /// Not a value, but [`super::Capabilities`].
    pub const CAPABILITIES: u8 = 3;
}

/// The result of Get Features with SEL = capabilities (Base §5.1.11).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Capabilities {
    /// The feature can be saved.
    pub saveable: bool,
    /// The feature is namespace specific.
    pub namespace_specific: bool,
    /// The feature can be changed.
    pub changeable: bool,
    #[bits(29)]
    __: u32,
}

/// 01h Arbitration (Base §5.1.25.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Arbitration {
    /// AB: at most 2^AB commands are fetched from one queue at a time; 7 means no limit. See
    /// [`Arbitration::burst`].
    #[bits(3)]
    pub ab: u8,
    #[bits(29)]
    __: u32,
}

impl Arbitration {
    /// The arbitration burst in commands, `None` for no limit.
    pub fn burst(self) -> Option<u32> {
        (self.ab() != 7).then(|| 1 << self.ab())
    }
}

/// 02h Power Management (Base §5.1.25.1.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PowerManagement {
    /// PS: power state, at most Identify Controller NPSS.
    #[bits(5)]
    pub ps: u8,
    /// WH: workload hint, at most [`PowerManagement::MAX_WORKLOAD`].
    #[bits(3)]
    pub wh: u8,
    #[bits(24)]
    __: u32,
}

impl PowerManagement {
    /// The largest value of WH that is not reserved.
    pub const MAX_WORKLOAD: u8 = 2;
}

/// 04h Temperature Threshold (Base §5.1.25.1.3). TMPSEL and THSEL select the threshold, in Get
/// Features too.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// TMPTH: the threshold, in kelvin.
    pub tmpth: u16,
    /// TMPSEL: 0 the Composite Temperature, 1 to 8 a sensor; or [`TemperatureThreshold::ALL`].
    #[bits(4)]
    pub tmpsel: u8,
    /// THSEL: 0 the over temperature threshold, 1 the under temperature threshold.
    #[bits(2)]
    pub thsel: u8,
    /// TMPTHH: hysteresis in kelvin, at most Identify Controller TMPTHHA.
    #[bits(3)]
    pub tmpthh: u8,
    #[bits(7)]
    __: u8,
}

impl TemperatureThreshold {
    /// TMPSEL, in Set Features only: every temperature that the controller reports.
    pub const ALL: u8 = 0xf;
}

/// 05h Error Recovery of a namespace (NVM §4.1.3.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ErrorRecovery {
    /// TLER: time limit for error recovery of commands with Limited Retry, in units of 100 ms; 0:
    /// no limit.
    pub tler: u16,
    /// DULBE: reads of deallocated blocks fail; requires NSFEAT.DAE of Identify Namespace.
    pub dulbe: bool,
    #[bits(15)]
    __: u16,
}

/// 06h Volatile Write Cache (Base §5.1.25.1.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct VolatileWriteCache {
    /// WCE: the cache is enabled.
    pub wce: bool,
    #[bits(31)]
    __: u32,
}

/// 07h Number of Queues (Base §5.1.25.2.1), of I/O queues. In Set Features the numbers requested,
/// in its result the numbers allocated.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NumberOfQueues {
    /// NSQR / NSQA: submission queues, 0's based; FFFFh must not be requested.
    pub nsq: u16,
    /// NCQR / NCQA: completion queues, 0's based; FFFFh must not be requested.
    pub ncq: u16,
}

impl NumberOfQueues {
    /// The value for these numbers of queues, clamped to 1 … 65,535.
    pub fn of(submission: u32, completion: u32) -> NumberOfQueues {
        let zeroes_based = |n: u32| (n.clamp(1, 65_535) - 1) as u16;
        NumberOfQueues::new().with_nsq(zeroes_based(submission)).with_ncq(zeroes_based(completion))
    }

    /// Number of submission queues.
    pub fn submission(self) -> u32 {
        u32::from(self.nsq()) + 1
    }

    /// Number of completion queues.
    pub fn completion(self) -> u32 {
        u32::from(self.ncq()) + 1
    }
}

/// 08h Interrupt Coalescing (Base §5.1.25.2.2): for all vectors that [`VectorConfig`] does not
/// exempt, never for the admin queue. Both fields are recommendations.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// THR: entries per vector before an interrupt, 0's based; see
    /// [`InterruptCoalescing::threshold`].
    pub thr: u8,
    /// TIME: the maximum delay of an interrupt in units of 100 µs; 0: no delay.
    pub time: u8,
    __: u16,
}

impl InterruptCoalescing {
    /// Aggregation threshold in entries: 1 to 256.
    pub fn threshold(self) -> u32 {
        u32::from(self.thr()) + 1
    }

    /// Whether interrupts are coalesced. With a time of 0 or a threshold of one entry there is an
    /// interrupt per entry.
    pub fn is_on(self) -> bool {
        self.time() != 0 && self.thr() != 0
    }
}

/// 09h Interrupt Vector Configuration (Base §5.1.25.2.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct VectorConfig {
    /// IV: the vector.
    pub iv: u16,
    /// CD: coalescing disabled.
    pub cd: bool,
    #[bits(15)]
    __: u16,
}

/// 0Ah Write Atomicity Normal (NVM §4.1.3.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WriteAtomicity {
    /// DN: the controller honors only AWUPF and NAWUPF, not AWUN and NAWUN.
    pub dn: bool,
    #[bits(31)]
    __: u32,
}

/// 0Bh Asynchronous Event Configuration (Base §5.1.25.1.5): which events are reported.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEventConfig {
    /// SHCW: the bits of SMART / health critical warning that cause an event.
    pub smart: u8,
    /// NSAN: namespace attributes changed.
    pub namespace_attribute: bool,
    #[bits(2)]
    __: u8,
    /// ANACN: asymmetric namespace access changed.
    pub ana_change: bool,
    #[bits(8)]
    __: u8,
    /// CCRCN: Cross-Controller Reset completed (Base §2.3).
    pub cross_reset: bool,
    #[bits(11)]
    __: u32,
}

/// 16h Host Behavior Support (Base §5.1.25.1.14): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostBehavior {
    /// ACRE: 1 enables Command Interrupted status and Command Retry Delay.
    pub acre: u8,
    /// ETDAS: 1 enables the extended telemetry data area.
    pub etdas: u8,
    /// LBAFEE: 1 enables more than 16 LBA formats.
    pub lbafee: u8,
    #[doc(hidden)]
    pub reserved3: [u8; 509],
}

page!(HostBehavior, 512);

#[cfg(test)]
mod tests;
