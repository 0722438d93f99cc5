//! Identify Controller.

use std::fmt;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::parts::{Fabrics, PowerState};
use crate::page::{Text, page};
use crate::regs::Cap;

/// Identify Controller, CNS 01h (Base 5.1.13.2.1). Fields by byte offset; what is not listed here is reserved or of
/// use only to fabrics and NVMe-MI.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Controller {
    /// VID, 1:0. PCI vendor.
    pub vid: u16,
    /// SSVID, 3:2. PCI subsystem vendor.
    pub ssvid: u16,
    /// SN, 23:4. Serial number.
    pub sn: Text<20>,
    /// MN, 63:24. Model number.
    pub mn: Text<40>,
    /// FR, 71:64. Firmware revision.
    pub fr: Text<8>,
    /// RAB, 72. Recommended arbitration burst, 2^RAB commands.
    pub rab: u8,
    /// IEEE, 75:73. OUI of the vendor.
    pub ieee: [u8; 3],
    /// CMIC, 76. Multi-path and sharing; see [`MultiPath`].
    pub cmic: MultiPath,
    /// MDTS, 77. The most data in one command, 2^MDTS pages of CAP.MPSMIN; 0 is no limit. See
    /// [`Controller::max_transfer`].
    pub mdts: u8,
    /// CNTLID, 79:78. Controller identifier within the subsystem.
    pub cntlid: u16,
    /// VER, 83:80. As in the VS property.
    pub ver: u32,
    /// RTD3R, 87:84. Typical time to resume from D3, in µs.
    pub rtd3r: u32,
    /// RTD3E, 91:88. Typical time to enter D3, in µs: how long a host should wait for a shutdown.
    pub rtd3e: u32,
    /// OAES, 95:92. Which asynchronous events can be enabled; the bits of [`crate::features::AsyncEventConfig`].
    pub oaes: u32,
    /// CTRATT, 99:96. Controller attributes.
    pub ctratt: u32,
    /// RRLS, 101:100. Read recovery levels.
    pub rrls: u16,
    /// BPCAP, 102. Boot partition capabilities.
    pub bpcap: u8,
    #[doc(hidden)]
    pub reserved103: u8,
    /// NSSL, 107:104. NVM subsystem shutdown latency, in µs.
    pub nssl: u32,
    #[doc(hidden)]
    pub reserved108: [u8; 2],
    /// PLSI, 110. Power loss signaling.
    pub plsi: u8,
    /// CNTRLTYPE, 111. Controller type; see [`Controller::TYPE_IO`].
    pub cntrltype: u8,
    /// FGUID, 127:112. FRU identifier.
    pub fguid: [u8; 16],
    /// CRDT1 to CRDT3, 133:128. Command retry delays in units of 100 ms; [`crate::Status::retry_delay`] chooses.
    pub crdt: [u16; 3],
    /// CRCAP, 134. Controller reachability.
    pub crcap: u8,
    #[doc(hidden)]
    pub reserved135: [u8; 118],
    /// NVMSR, 253. Whether the subsystem is a storage device, an enclosure, or both.
    pub nvmsr: u8,
    /// VWCI, 254. VPD write cycles.
    pub vwci: u8,
    /// MEC, 255. Management endpoints.
    pub mec: u8,
    /// OACS, 257:256. Optional admin commands.
    pub oacs: u16,
    /// ACL, 258. Concurrent Abort commands, 0's based.
    pub acl: u8,
    /// AERL, 259. Concurrent Asynchronous Event Requests, 0's based.
    pub aerl: u8,
    /// FRMW, 260. Firmware updates: bit 0 slot 1 is read-only, 3:1 slots, 4 activation without reset.
    pub frmw: u8,
    /// LPA, 261. Log page attributes; see [`Controller::LPA_EXTENDED_DATA`].
    pub lpa: u8,
    /// ELPE, 262. Error Information log entries, 0's based.
    pub elpe: u8,
    /// NPSS, 263. Power states, 0's based.
    pub npss: u8,
    /// AVSCC, 264. Format of vendor specific admin commands.
    pub avscc: u8,
    /// APSTA, 265. Autonomous power state transitions.
    pub apsta: u8,
    /// WCTEMP, 267:266. Warning temperature, in kelvin.
    pub wctemp: u16,
    /// CCTEMP, 269:268. Critical temperature, in kelvin.
    pub cctemp: u16,
    /// MTFA, 271:270. Longest firmware activation, in units of 100 ms.
    pub mtfa: u16,
    /// HMPRE, 275:272. Host memory buffer wanted, in units of 4 KiB.
    pub hmpre: u32,
    /// HMMIN, 279:276. Host memory buffer needed, in units of 4 KiB.
    pub hmmin: u32,
    /// TNVMCAP, 295:280. All the capacity, in bytes.
    pub tnvmcap: U128,
    /// UNVMCAP, 311:296. Unallocated capacity, in bytes.
    pub unvmcap: U128,
    /// RPMBS, 315:312. Replay protected memory block.
    pub rpmbs: u32,
    /// EDSTT, 317:316. Extended self-test, in minutes.
    pub edstt: u16,
    /// DSTO, 318. Self-test options.
    pub dsto: u8,
    /// FWUG, 319. Firmware update granularity, in units of 4 KiB.
    pub fwug: u8,
    /// KAS, 321:320. Granularity of the Keep Alive Timer in units of 100 ms; 0: there is none.
    pub kas: u16,
    /// HCTMA, 323:322. Host controlled thermal management.
    pub hctma: u16,
    /// MNTMT, 325:324. Lowest thermal management temperature, in kelvin.
    pub mntmt: u16,
    /// MXTMT, 327:326. Highest thermal management temperature, in kelvin.
    pub mxtmt: u16,
    /// SANICAP, 331:328. Sanitize capabilities.
    pub sanicap: u32,
    /// HMMINDS, 335:332. Smallest host memory buffer descriptor, in units of 4 KiB.
    pub hmminds: u32,
    /// HMMAXD, 337:336. Most host memory buffer descriptors.
    pub hmmaxd: u16,
    /// NSETIDMAX, 339:338. Highest NVM set.
    pub nsetidmax: u16,
    /// ENDGIDMAX, 341:340. Highest endurance group.
    pub endgidmax: u16,
    /// ANATT, 342. The longest that a group stays in the state Change, in seconds.
    pub anatt: u8,
    /// ANACAP, 343. ANA capabilities: bit *n* of 4:0 is [`crate::AnaState::capability`]; see [`Controller::ANACAP_STATIC_GROUPS`].
    pub anacap: u8,
    /// ANAGRPMAX, 347:344. Highest ANA group identifier.
    pub anagrpmax: u32,
    /// NANAGRPID, 351:348. Number of ANA groups, at most ANAGRPMAX.
    pub nanagrpid: u32,
    /// PELS, 355:352. Persistent event log size, in units of 64 KiB.
    pub pels: u32,
    /// DID, 357:356. Domain identifier.
    pub did: u16,
    /// KPIOC, 358. Key per I/O.
    pub kpioc: u8,
    #[doc(hidden)]
    pub reserved359: u8,
    /// MPTFAWR, 361:360. Longest firmware activation without reset, in units of 100 ms.
    pub mptfawr: u16,
    #[doc(hidden)]
    pub reserved362: [u8; 6],
    /// MEGCAP, 383:368. Largest endurance group, in bytes.
    pub megcap: U128,
    /// TMPTHHA, 384. Temperature threshold hysteresis.
    pub tmpthha: u8,
    #[doc(hidden)]
    pub reserved385: u8,
    /// CQT, 387:386. Command quiesce time, in ms.
    pub cqt: u16,
    #[doc(hidden)]
    pub reserved388: [u8; 124],
    /// SQES, 512. Submission queue entry sizes: 3:0 smallest, 7:4 largest, powers of two.
    pub sqes: u8,
    /// CQES, 513. Completion queue entry sizes: 3:0 smallest, 7:4 largest, powers of two.
    pub cqes: u8,
    /// MAXCMD, 515:514. The most commands outstanding on one queue; 0: not said.
    pub maxcmd: u16,
    /// NN, 519:516. The highest namespace identifier.
    pub nn: u32,
    /// ONCS, 521:520. Optional NVM commands; see `Controller::ONCS_…`.
    pub oncs: u16,
    /// FUSES, 523:522. Fused operations.
    pub fuses: u16,
    /// FNA, 524. Format NVM attributes.
    pub fna: u8,
    /// VWC, 525. Volatile write cache.
    pub vwc: VolatileCache,
    /// AWUN, 527:526. Atomic write unit in normal operation, in logical blocks, 0's based.
    pub awun: u16,
    /// AWUPF, 529:528. Atomic write unit over a power failure, in logical blocks, 0's based.
    pub awupf: u16,
    /// ICSVSCC, 530. Format of vendor specific I/O commands.
    pub icsvscc: u8,
    /// NWPC, 531. Namespace write protection.
    pub nwpc: u8,
    /// ACWU, 533:532. Atomic compare and write unit, in logical blocks, 0's based.
    pub acwu: u16,
    /// OCFS, 535:534. Copy descriptor formats.
    pub ocfs: u16,
    /// SGLS, 539:536. SGL support ([`Controller::has_sgls`]); 0: PRPs only.
    pub sgls: u32,
    /// MNAN, 543:540. Most namespaces; 0: as many as NN.
    pub mnan: u32,
    /// MAXDNA, 559:544. Most namespace attachments in the domain.
    pub maxdna: U128,
    /// MAXCNA, 563:560. Most namespace attachments of this controller.
    pub maxcna: u32,
    /// OAQD, 567:564. Optimal aggregated queue depth.
    pub oaqd: u32,
    #[doc(hidden)]
    pub reserved568: [u8; 200],
    /// SUBNQN, 1023:768. NVMe Qualified Name of the subsystem.
    pub subnqn: Text<256>,
    #[doc(hidden)]
    pub reserved1024: [u8; 768],
    /// 2047:1792. Of use to fabrics alone.
    pub fabrics: Fabrics,
    /// PSD0 to PSD31, 3071:2048. Power state descriptors.
    pub psd: [PowerState; 32],
    /// VS, 4095:3072. Vendor specific.
    pub vs: [u8; 1024],
}

page!(Controller, 4096);

/// Identify Controller VWC, byte 525 (Base 5.1.13.2.1).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct VolatileCache {
    /// VWCP: there is a volatile write cache; Flush matters, and feature 06h can switch it.
    pub present: bool,
    /// FB: what Flush to NSID FFFFFFFFh does; [`VolatileCache::ALL_REFUSED`] or [`VolatileCache::ALL_FLUSHED`].
    #[bits(2)]
    pub flush_all: u8,
    #[bits(5)]
    __: u8,
}

impl VolatileCache {
    /// FB: Flush to all namespaces is refused.
    pub const ALL_REFUSED: u8 = 2;
    /// FB: Flush to all namespaces is done.
    pub const ALL_FLUSHED: u8 = 3;
}

/// Identify Controller CMIC, byte 76 (Base 5.1.13.2.1): what of the subsystem is shared.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MultiPath {
    /// MPORTS: the subsystem may have several ports.
    pub ports: bool,
    /// MCTRS: the subsystem may have several controllers.
    pub controllers: bool,
    /// FT: the controller belongs to an SR-IOV virtual function.
    pub virtual_function: bool,
    /// ANARS: asymmetric namespace access is reported (Base 8.1.1).
    pub ana: bool,
    #[bits(4)]
    __: u8,
}

impl Controller {
    /// ANACAP bit 6: a namespace keeps its ANAGRPID while it is attached to any controller.
    pub const ANACAP_STATIC_GROUPS: u8 = 1 << 6;
    /// ANACAP bit 7: namespace management takes an ANAGRPID other than 0.
    pub const ANACAP_GROUP_CHOICE: u8 = 1 << 7;
    /// CNTRLTYPE: an I/O controller.
    pub const TYPE_IO: u8 = 1;
    /// LPA bit 1: Commands Supported and Effects log.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA bit 2: Get Log Page has NUMDU, LPOL and LPOU.
    pub const LPA_EXTENDED_DATA: u8 = 1 << 2;
    /// LPA bit 5, MLPS: log pages 00h, 12h and 13h, and the scope of each command in 05h.
    pub const LPA_MISCELLANEOUS: u8 = 1 << 5;
    /// OACS bit 8: Doorbell Buffer Config.
    pub const OACS_DOORBELL_BUFFERS: u16 = 1 << 8;
    /// ONCS bit 0: Compare.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    /// ONCS bit 1: Write Uncorrectable.
    pub const ONCS_WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// ONCS bit 2: Dataset Management, whose Deallocate is a wish that every such controller takes.
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS bit 3: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS bit 4: Set Features SV and Get Features SEL may be nonzero.
    pub const ONCS_SAVE_SELECT: u16 = 1 << 4;
    /// ONCS bit 7: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// SGLS bits 1:0, the value 10b: SGLs in I/O commands, of data blocks that are dword aligned and of whole dwords.
    pub const SGLS_DWORDS: u32 = 0b10;
    /// CTRATT bit 0: 128-bit host identifier.
    pub const CTRATT_HOST_ID_128: u32 = 1;
    /// CTRATT bit 6: traffic based keep alive.
    pub const CTRATT_TBKAS: u32 = 1 << 6;

    /// The most data of one command in bytes, `None` if not limited. MDTS is untrusted: a value beyond 64 bits is
    /// no limit either.
    pub fn max_transfer(&self, cap: Cap) -> Option<u64> {
        if self.mdts == 0 {
            return None;
        }
        1u64.checked_shl(u32::from(self.mdts) + 12 + u32::from(cap.mpsmin()))
    }

    /// Whether I/O commands may have SGLs of data blocks that are dword aligned and of whole dwords (SGLS bits 1:0; 11b is reserved).
    pub fn has_sgls(&self) -> bool {
        matches!(self.sgls & 0b11, 0b01 | Controller::SGLS_DWORDS)
    }

    /// Whether submission entries of 2^`log2` bytes are supported.
    pub fn supports_sqes(&self, log2: u8) -> bool {
        (self.sqes & 0xf..=self.sqes >> 4).contains(&log2)
    }

    /// Whether completion entries of 2^`log2` bytes are supported.
    pub fn supports_cqes(&self, log2: u8) -> bool {
        (self.cqes & 0xf..=self.cqes >> 4).contains(&log2)
    }

    /// How many Abort commands may be outstanding.
    pub fn abort_limit(&self) -> u32 {
        u32::from(self.acl) + 1
    }

    /// How many Asynchronous Event Requests may be outstanding.
    pub fn async_event_limit(&self) -> u32 {
        u32::from(self.aerl) + 1
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("mn", &self.mn).field("sn", &self.sn).field("fr", &self.fr).finish_non_exhaustive()
    }
}
