//! Identify data structures: 4096 bytes each (Base §5.1.13.2, NVM §4.1.5).

use std::fmt;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Nsid;
use crate::page::{Text, page};
use crate::regs::Cap;

/// Identify Controller, CNS 01h (Base §5.1.13.2.1). Fields by byte offset. Fields without a user
/// are part of the hidden `reserved…` arrays, as in every structure of this crate.
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
    #[doc(hidden)]
    pub reserved73: [u8; 3],
    /// CMIC, 76. Multi-path and sharing; see [`MultiPath`].
    pub cmic: MultiPath,
    /// MDTS, 77. Maximum data transfer size: 2^MDTS pages of CAP.MPSMIN; 0: no limit. See
    /// [`Controller::max_transfer`].
    pub mdts: u8,
    /// CNTLID, 79:78. Controller identifier within the subsystem.
    pub cntlid: u16,
    /// VER, 83:80. As in the VS property.
    pub ver: u32,
    #[doc(hidden)]
    pub reserved84: [u8; 4],
    /// RTD3E, 91:88. RTD3 entry latency in µs, which is also how long a host should wait for a
    /// shutdown.
    pub rtd3e: u32,
    /// OAES, 95:92. Supported asynchronous events; bits as in
    /// [`crate::features::AsyncEventConfig`].
    pub oaes: u32,
    /// CTRATT, 99:96. Controller attributes.
    pub ctratt: u32,
    #[doc(hidden)]
    pub reserved100: [u8; 11],
    /// CNTRLTYPE, 111. Controller type; see [`Controller::TYPE_IO`].
    pub cntrltype: u8,
    #[doc(hidden)]
    pub reserved112: [u8; 23],
    /// CIU, 135. Controller Instance Uniquifier, different for each association (TP8028).
    pub ciu: u8,
    /// CIRN, 143:136. Controller Instance Random Number.
    pub cirn: u64,
    #[doc(hidden)]
    pub reserved144: [u8; 112],
    /// OACS, 257:256. Optional admin commands.
    pub oacs: u16,
    /// ACL, 258. Maximum number of concurrent Abort commands, 0's based.
    pub acl: u8,
    /// AERL, 259. Maximum number of concurrent Asynchronous Event Requests, 0's based.
    pub aerl: u8,
    /// FRMW, 260. Firmware updates: bit 0 slot 1 is read-only, bits 3:1 number of slots, bit 4
    /// activation without reset.
    pub frmw: u8,
    /// LPA, 261. Log page attributes; see [`Controller::LPA_EXTENDED_DATA`].
    pub lpa: u8,
    /// ELPE, 262. Error Information log entries, 0's based.
    pub elpe: u8,
    /// NPSS, 263. Power states, 0's based.
    pub npss: u8,
    #[doc(hidden)]
    pub reserved264: [u8; 2],
    /// WCTEMP, 267:266. Warning temperature, in kelvin.
    pub wctemp: u16,
    /// CCTEMP, 269:268. Critical temperature, in kelvin.
    pub cctemp: u16,
    #[doc(hidden)]
    pub reserved270: [u8; 10],
    /// TNVMCAP, 295:280. Total capacity in bytes.
    pub tnvmcap: U128,
    #[doc(hidden)]
    pub reserved296: [u8; 24],
    /// KAS, 321:320. Granularity of the Keep Alive Timer in units of 100 ms; 0: not supported.
    pub kas: u16,
    #[doc(hidden)]
    pub reserved322: [u8; 20],
    /// ANATT, 342. Maximum time in the ANA Change state, in seconds.
    pub anatt: u8,
    /// ANACAP, 343. ANA capabilities: bit *n* of 4:0 is [`crate::AnaState::capability`]; see
    /// [`Controller::ANACAP_STATIC_GROUPS`].
    pub anacap: u8,
    /// ANAGRPMAX, 347:344. Highest ANA group identifier.
    pub anagrpmax: u32,
    /// NANAGRPID, 351:348. Number of ANA groups, at most ANAGRPMAX.
    pub nanagrpid: u32,
    #[doc(hidden)]
    pub reserved352: [u8; 34],
    /// CQT, 387:386. Command Quiesce Time in milliseconds.
    pub cqt: u16,
    #[doc(hidden)]
    pub reserved388: [u8; 124],
    /// SQES, 512. Submission queue entry sizes as powers of two: bits 3:0 smallest, bits 7:4
    /// largest.
    pub sqes: u8,
    /// CQES, 513. Completion queue entry sizes as powers of two: bits 3:0 smallest, bits 7:4
    /// largest.
    pub cqes: u8,
    /// MAXCMD, 515:514. Maximum number of outstanding commands per queue; 0: not reported.
    pub maxcmd: u16,
    /// NN, 519:516. The highest namespace identifier.
    pub nn: u32,
    /// ONCS, 521:520. Optional NVM commands; see `Controller::ONCS_…`.
    pub oncs: u16,
    #[doc(hidden)]
    pub reserved522: [u8; 3],
    /// VWC, 525. Volatile write cache.
    pub vwc: VolatileCache,
    /// AWUN, 527:526. Atomic write unit in normal operation, in logical blocks, 0's based.
    pub awun: u16,
    /// AWUPF, 529:528. Atomic write unit over a power failure, in logical blocks, 0's based.
    pub awupf: u16,
    #[doc(hidden)]
    pub reserved530: [u8; 6],
    /// SGLS, 539:536. SGL support ([`Controller::has_sgls`]); 0: PRPs only.
    pub sgls: u32,
    /// MNAN, 543:540. Maximum number of namespaces; 0: the value of NN.
    pub mnan: u32,
    #[doc(hidden)]
    pub reserved544: [u8; 224],
    /// SUBNQN, 1023:768. NVMe Qualified Name of the subsystem.
    pub subnqn: Text<256>,
    #[doc(hidden)]
    pub reserved1024: [u8; 768],
    /// IOCCSZ, 1795:1792. I/O command capsule size in units of 16 bytes (this and the following
    /// fields: NVMe over Fabrics).
    pub ioccsz: u32,
    /// IORCSZ, 1799:1796. I/O response capsule size in units of 16 bytes.
    pub iorcsz: u32,
    /// ICDOFF, 1801:1800. Offset of in-capsule data after the command, in units of 16 bytes.
    pub icdoff: u16,
    /// FCATT, 1802. Bit 0: the controllers are static.
    pub fcatt: u8,
    /// MSDBD, 1803. Maximum number of SGL data block descriptors in a capsule; 0: no limit.
    pub msdbd: u8,
    /// OFCS, 1805:1804. Bit 0: Disconnect is supported.
    pub ofcs: u16,
    /// DCTYPE, 1806. Type of a discovery controller; 0: not reported.
    pub dctype: u8,
    /// CCRL, 1807. Maximum number of concurrent Cross-Controller Resets.
    pub ccrl: u8,
    #[doc(hidden)]
    pub reserved1808: [u8; 2288],
}

page!(Controller, 4096);

/// Identify Controller VWC, byte 525 (Base §5.1.13.2.1).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct VolatileCache {
    /// VWCP: a volatile write cache is present; feature 06h enables it.
    pub present: bool,
    /// FB: support of Flush with NSID FFFFFFFFh: 2 not supported, [`VolatileCache::ALL_FLUSHED`].
    #[bits(2)]
    pub flush_all: u8,
    #[bits(5)]
    __: u8,
}

impl VolatileCache {
    /// FB: Flush with NSID FFFFFFFFh is supported, and flushes all namespaces.
    pub const ALL_FLUSHED: u8 = 3;
}

/// Identify Controller CMIC, byte 76 (Base §5.1.13.2.1): multi-path I/O and namespace sharing
/// capabilities.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MultiPath {
    /// MPORTS: the subsystem may have several ports.
    pub ports: bool,
    /// MCTRS: the subsystem may have several controllers.
    pub controllers: bool,
    #[bits(1)]
    __: u8,
    /// ANARS: ANA reporting is supported (Base §8.1.1).
    pub ana: bool,
    #[bits(4)]
    __: u8,
}

impl Controller {
    /// ANACAP bit 6: ANAGRPID does not change while a namespace is attached to any controller.
    pub const ANACAP_STATIC_GROUPS: u8 = 1 << 6;
    /// CNTRLTYPE: an I/O controller.
    pub const TYPE_IO: u8 = 1;
    /// CNTRLTYPE: a discovery controller.
    pub const TYPE_DISCOVERY: u8 = 2;
    /// LPA bit 1: Commands Supported and Effects log.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA bit 2: extended data of Get Log Page (NUMDU, LPOL, LPOU).
    pub const LPA_EXTENDED_DATA: u8 = 1 << 2;
    /// LPA bit 5, MLPS: log pages 00h, 12h and 13h, and the scope of each command in 05h.
    pub const LPA_MISCELLANEOUS: u8 = 1 << 5;
    /// OACS bit 8: Doorbell Buffer Config.
    pub const OACS_DOORBELL_BUFFERS: u16 = 1 << 8;
    /// ONCS bit 0: Compare.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    /// ONCS bit 1: Write Uncorrectable.
    pub const ONCS_WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// ONCS bit 2: Dataset Management. The controller then accepts its attribute Deallocate, which
    /// is a hint.
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS bit 3: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS bit 4: SV of Set Features and SEL of Get Features may be nonzero.
    pub const ONCS_SAVE_SELECT: u16 = 1 << 4;
    /// ONCS bit 7: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// SGLS bits 1:0 = 10b: SGLs in I/O commands, with dword alignment and granularity.
    pub const SGLS_DWORDS: u32 = 0b10;
    /// SGLS on a fabric: bits 1:0 = 01b, SGLs of any alignment; bit 20, offsets as addresses; bit
    /// 21, Transport SGL Data Blocks.
    pub const SGLS_FABRIC: u32 = 0b01 | 1 << 20 | 1 << 21;
    /// OFCS bit 0: Disconnect.
    pub const OFCS_DISCONNECT: u16 = 1;
    /// CTRATT bit 6: traffic based keep alive.
    pub const CTRATT_TBKAS: u32 = 1 << 6;

    /// Maximum data transfer size in bytes; `None`: no limit. A size that exceeds 64 bits counts as
    /// no limit.
    pub fn max_transfer(&self, cap: Cap) -> Option<u64> {
        // MDTS is a power of two in units of the smallest memory page; 0 means no limit.
        if self.mdts == 0 {
            return None;
        }
        1u64.checked_shl(u32::from(self.mdts) + 12 + u32::from(cap.mpsmin()))
    }

    /// Whether I/O commands may use SGLs with dword alignment and granularity (SGLS bits 1:0; 11b
    /// is reserved).
    pub fn has_sgls(&self) -> bool {
        matches!(self.sgls & 0b11, 0b01 | Controller::SGLS_DWORDS)
    }

    /// Whether submission queue entries of 2^`sqe` bytes and completion queue entries of 2^`cqe`
    /// bytes are supported.
    pub fn supports_entries(&self, sqe: u8, cqe: u8) -> bool {
        (self.sqes & 0xf..=self.sqes >> 4).contains(&sqe)
            && (self.cqes & 0xf..=self.cqes >> 4).contains(&cqe)
    }

    /// Maximum number of outstanding Abort commands.
    pub fn abort_limit(&self) -> u32 {
        u32::from(self.acl) + 1
    }

    /// Maximum number of outstanding Asynchronous Event Requests.
    pub fn async_event_limit(&self) -> u32 {
        u32::from(self.aerl) + 1
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("mn", &self.mn)
            .field("sn", &self.sn)
            .field("fr", &self.fr)
            .finish_non_exhaustive()
    }
}

/// Identify Namespace of the NVM command set, CNS 00h (NVM §4.1.5.1). Sizes are in logical blocks.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// NSZE, 7:0. Size in logical blocks; 0: inactive namespace.
    pub nsze: u64,
    /// NCAP, 15:8. Maximum number of blocks that may be allocated.
    pub ncap: u64,
    /// NUSE, 23:16. Blocks allocated.
    pub nuse: u64,
    /// NSFEAT, 24. Features: bit 0 thin provisioning, bit 1 NAWUN…NACWU are valid, bit 2 DULBE is
    /// supported, bit 4 NPWG…NOWS are valid.
    pub nsfeat: u8,
    /// NLBAF, 25. Number of LBA formats, 0's based.
    pub nlbaf: u8,
    /// FLBAS, 26. The format in use; see [`IdentifyNamespace::format`].
    pub flbas: u8,
    /// MC, 27. Metadata capabilities: bit 0 extended LBA, 1 separate buffer.
    pub mc: u8,
    #[doc(hidden)]
    pub reserved28: u8,
    /// DPS, 29. Protection information settings; see [`IdentifyNamespace::protection_type`].
    pub dps: u8,
    /// NMIC, 30. Multi-path and sharing; see [`IdentifyNamespace::NMIC_SHARED`].
    pub nmic: u8,
    #[doc(hidden)]
    pub reserved31: [u8; 2],
    /// DLFEAT, 33. Bits 2:0: what deallocated blocks read as, 1 zeroes, 2 ones; bit 3: Write Zeroes
    /// supports DEAC.
    pub dlfeat: u8,
    #[doc(hidden)]
    pub reserved34: [u8; 12],
    /// NOIOB, 47:46. Optimal I/O boundary in logical blocks; 0: not reported.
    pub noiob: u16,
    /// NVMCAP, 63:48. Capacity in bytes.
    pub nvmcap: U128,
    #[doc(hidden)]
    pub reserved64: [u8; 18],
    /// NULBAF, 82. Number of LBA formats with unique attributes.
    pub nulbaf: u8,
    #[doc(hidden)]
    pub reserved83: [u8; 9],
    /// ANAGRPID, 95:92. ANA group identifier; 0: none. The group's state is in log page 0Ch.
    pub anagrpid: u32,
    #[doc(hidden)]
    pub reserved96: [u8; 3],
    /// NSATTR, 99. Bit 0: write protected.
    pub nsattr: u8,
    #[doc(hidden)]
    pub reserved100: [u8; 4],
    /// NGUID, 119:104. Globally unique identifier, big-endian; 0: none.
    pub nguid: [u8; 16],
    /// EUI64, 127:120. IEEE identifier, big-endian; 0: none.
    pub eui64: [u8; 8],
    /// LBAF0 to LBAF63, 383:128.
    pub lbaf: [LbaFormat; 64],
    #[doc(hidden)]
    pub reserved384: [u8; 3712],
}

page!(IdentifyNamespace, 4096);

/// I/O Command Set Independent Identify Namespace, CNS 08h (Base §5.1.13.2.8).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IndependentNamespace {
    /// NSFEAT, byte 0. Bit 3 identifiers are not reused, bit 4 rotational media, bit 5 no volatile
    /// write cache.
    pub nsfeat: u8,
    /// NMIC, 1. Multi-path and sharing; see [`IdentifyNamespace::NMIC_SHARED`].
    pub nmic: u8,
    #[doc(hidden)]
    pub reserved2: [u8; 2],
    /// ANAGRPID, 7:4. ANA group; 0: none.
    pub anagrpid: u32,
    #[doc(hidden)]
    pub reserved8: [u8; 6],
    /// NSTAT, 14. Status; see [`IndependentNamespace::NSTAT_READY`].
    pub nstat: u8,
    #[doc(hidden)]
    pub reserved15: [u8; 4081],
}

page!(IndependentNamespace, 4096);

impl IndependentNamespace {
    /// NSTAT bit 0, NRDY: the namespace is ready. While it is not, a host must not send I/O
    /// commands to the namespace.
    pub const NSTAT_READY: u8 = 1 << 0;
}

/// An LBA format: four bytes of [`IdentifyNamespace::lbaf`] (NVM §4.1.5.1, figure "LBA Format Data
/// Structure").
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LbaFormat {
    /// MS: bytes of metadata per block.
    pub ms: u16,
    /// LBADS: a block has 2^LBADS bytes of data; a value below 9 means not available.
    pub lbads: u8,
    /// RP: relative performance; 0 best, 3 degraded.
    #[bits(2)]
    pub rp: u8,
    #[bits(6)]
    __: u8,
}

impl LbaFormat {
    /// Bytes of data per block; `None` if the format is not available or the size exceeds 32 bits
    /// (LBADS 9 to 31 are accepted).
    pub fn block_size(self) -> Option<u32> {
        // The smallest logical block is 512 bytes; a larger exponent would not fit 32 bits.
        matches!(self.lbads(), 9..=31).then(|| 1 << self.lbads())
    }
}

impl IdentifyNamespace {
    /// NMIC bit 0, SHRNS: the namespace may be attached to several controllers of the subsystem at
    /// the same time.
    pub const NMIC_SHARED: u8 = 1 << 0;
    /// DLFEAT bits 2:0: deallocated blocks read as zeroes.
    pub const DLFEAT_ZEROES: u8 = 1;
    /// DLFEAT bit 3: Write Zeroes supports the Deallocate bit (DEAC).
    pub const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;

    /// The index of the format in use: FLBAS.FIDXL, and FLBAS.FIDXU if there are more than 16
    /// formats.
    pub fn format_index(&self) -> usize {
        // With 16 formats or fewer the upper bits of FLBAS are reserved.
        let upper = if u16::from(self.nlbaf) + u16::from(self.nulbaf) + 1 > 16 {
            self.flbas >> 5 & 3
        } else {
            0
        };
        usize::from(upper << 4 | self.flbas & 0xf)
    }

    /// The format in use. [`LbaFormat::block_size`] says whether it is available.
    pub fn format(&self) -> LbaFormat {
        self.lbaf.get(self.format_index()).copied().unwrap_or_default()
    }

    /// DPS.PIT: type of protection information, 0 for none.
    pub fn protection_type(&self) -> u8 {
        self.dps & 7
    }
}

impl fmt::Debug for IdentifyNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifyNamespace")
            .field("nsze", &self.nsze)
            .field("format", &self.format())
            .finish_non_exhaustive()
    }
}

/// NVM command set specific Identify Namespace, CNS 05h (NVM §4.1.5.3).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NvmNamespace {
    #[doc(hidden)]
    pub reserved0: [u8; 12],
    /// ELBAF0 to ELBAF63, 267:12. Extended LBA formats.
    pub elbaf: [ExtendedFormat; 64],
    #[doc(hidden)]
    pub reserved268: [u8; 3828],
}

page!(NvmNamespace, 4096);

/// An extended LBA format: four bytes of [`NvmNamespace::elbaf`] (NVM §4.1.5.3, figure "Extended
/// LBA Format Data Structure"). All zero, as reported by controllers before version 2.0, means no
/// storage tag and a 16-bit guard.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ExtendedFormat {
    /// STS: storage tag size in bits.
    #[bits(7)]
    pub sts: u8,
    /// PIF: protection information format; [`ExtendedFormat::PIF_QUALIFIED`]: the format is in
    /// QPIF.
    #[bits(2)]
    pub pif: u8,
    /// QPIF: qualified protection information format.
    #[bits(4)]
    pub qpif: u8,
    #[bits(19)]
    __: u32,
}

impl ExtendedFormat {
    /// PIF: the format is in QPIF.
    pub const PIF_QUALIFIED: u8 = 3;

    /// Name of the protection information format (NVM §5.3.1).
    pub fn guard(self) -> &'static str {
        match (self.pif(), self.qpif()) {
            (0, _) | (ExtendedFormat::PIF_QUALIFIED, 0) => "16b Guard",
            (1, _) | (ExtendedFormat::PIF_QUALIFIED, 1) => "32b Guard",
            (2, _) | (ExtendedFormat::PIF_QUALIFIED, 2) => "64b Guard",
            _ => "reserved guard format",
        }
    }
}

impl NvmNamespace {
    /// Extended format `index`; all zero beyond the 64.
    pub fn format(&self, index: usize) -> ExtendedFormat {
        self.elbaf.get(index).copied().unwrap_or_default()
    }
}

/// NVM command set specific Identify Controller, CNS 06h (NVM §4.1.5.4): size limits of commands
/// other than Read and Write; 0: not reported.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NvmController {
    /// VSL, byte 0. Verify: 2^VSL pages of CAP.MPSMIN.
    pub vsl: u8,
    /// WZSL, 1. Write Zeroes: 2^WZSL pages of CAP.MPSMIN.
    pub wzsl: u8,
    /// WUSL, 2. Write Uncorrectable: 2^WUSL pages of CAP.MPSMIN.
    pub wusl: u8,
    /// DMRL, 3. Dataset Management: number of ranges.
    pub dmrl: u8,
    /// DMRSL, 7:4. Dataset Management: number of blocks in a range.
    pub dmrsl: u32,
    /// DMSL, 15:8. Dataset Management: number of blocks in a command.
    pub dmsl: u64,
    #[doc(hidden)]
    pub reserved16: [u8; 4080],
}

page!(NvmController, 4096);

/// A Namespace List: up to 1024 identifiers in ascending order, padded with zeroes (Base §4.6.2).
/// Used by Identify CNS 02h (Base §5.1.13.2.2) and the Changed Attached Namespace List log page
/// (Base §5.1.12.1.5).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NamespaceList {
    ids: [u32; NamespaceList::CAPACITY],
}

page!(NamespaceList, 4096);

impl NamespaceList {
    /// Maximum number of identifiers of a list.
    pub const CAPACITY: usize = 1024;

    /// A list of the first [`NamespaceList::CAPACITY`] identifiers of `ids`, which must be in
    /// ascending order. For CNS 02h they must be greater than the NSID of the command.
    pub fn of(ids: impl IntoIterator<Item = Nsid>) -> NamespaceList {
        let mut list = NamespaceList::default();
        for (slot, id) in list.ids.iter_mut().zip(ids) {
            *slot = id.0;
        }
        list
    }

    /// The identifiers, up to the first zero. If the list is full, repeat Identify with the last
    /// identifier as NSID to get the next ones.
    pub fn iter(&self) -> impl Iterator<Item = Nsid> {
        self.ids.iter().take_while(|&&id| id != 0).map(|&id| Nsid(id))
    }
}

/// Values of [`NamespaceDescriptor::kind`] (Base §5.1.13.2.3, NIDT), with the identifier's length.
pub mod descriptor {
    /// EUI64, 8 bytes.
    pub const EUI64: u8 = 1;
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// CSI, 1 byte: the I/O command set of the namespace.
    pub const CSI: u8 = 4;
}

/// One Namespace Identification Descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceDescriptor<'a> {
    /// NIDT: type of the identifier; see [`descriptor`].
    pub kind: u8,
    /// NID: the identifier, NIDL bytes.
    pub id: &'a [u8],
}

/// Namespace Identification Descriptor list, CNS 03h (Base §5.1.13.2.3).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct DescriptorList {
    bytes: [u8; 4096],
}

page!(DescriptorList, 4096);

impl DescriptorList {
    /// Bytes before each identifier: NIDT, NIDL and two reserved bytes.
    const HEADER: usize = 4;

    /// Appends an identifier (1 to 255 bytes). Returns false, and appends nothing, if it does not
    /// fit.
    pub fn push(&mut self, kind: u8, id: &[u8]) -> bool {
        let end = self.iter().map(|d| DescriptorList::HEADER + d.id.len()).sum::<usize>();
        let (Ok(len @ 1..), Some(room)) = (u8::try_from(id.len()), self.bytes.get_mut(end..))
        else {
            return false;
        };
        let Some((header, rest)) = room.split_first_chunk_mut::<{ DescriptorList::HEADER }>()
        else {
            return false;
        };
        let Some(nid) = rest.get_mut(..id.len()) else { return false };
        *header = [kind, len, 0, 0];
        nid.copy_from_slice(id);
        true
    }

    /// The descriptors, up to the first with length 0 or the first that exceeds the list.
    pub fn iter(&self) -> impl Iterator<Item = NamespaceDescriptor<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (&[kind, len, ..], after) =
                rest.split_first_chunk::<{ DescriptorList::HEADER }>()?;
            let (id, after) = after.split_at_checked(usize::from(len))?;
            rest = after;
            (len != 0).then_some(NamespaceDescriptor { kind, id })
        })
    }

    /// The first identifier of this kind.
    pub fn find(&self, kind: u8) -> Option<&[u8]> {
        self.iter().find(|d| d.kind == kind).map(|d| d.id)
    }
}

#[cfg(test)]
mod tests;
