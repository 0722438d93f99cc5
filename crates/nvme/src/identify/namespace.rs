//! Identify Namespace, and what the NVM command set adds to it and to Identify Controller.

use std::fmt;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::page;

/// Identify Namespace of the NVM command set, CNS 00h (NVM 4.1.5.1). Sizes are in logical blocks.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Namespace {
    /// NSZE, 7:0. Size; LBAs are below it. 0: the namespace is not active.
    pub nsze: u64,
    /// NCAP, 15:8. How many blocks may be allocated at one time.
    pub ncap: u64,
    /// NUSE, 23:16. How many blocks are allocated.
    pub nuse: u64,
    /// NSFEAT, 24. Features: bit 0 thin provisioning, 1 NAWUN…NACWU are set, 2 deallocated blocks give errors, 4 NPWG…NOWS are set.
    pub nsfeat: u8,
    /// NLBAF, 25. LBA formats, 0's based.
    pub nlbaf: u8,
    /// FLBAS, 26. The format in use; see [`Namespace::format`].
    pub flbas: u8,
    /// MC, 27. Metadata capabilities: bit 0 with the data, 1 in a buffer of its own.
    pub mc: u8,
    /// DPC, 28. Protection information capabilities.
    pub dpc: u8,
    /// DPS, 29. Protection information in use; see [`Namespace::protection_type`].
    pub dps: u8,
    /// NMIC, 30. Sharing; see [`Namespace::NMIC_SHARED`].
    pub nmic: u8,
    /// RESCAP, 31. Reservations.
    pub rescap: u8,
    /// FPI, 32. Format progress.
    pub fpi: u8,
    /// DLFEAT, 33. Deallocation; bits 2:0 are what a deallocated block reads as: 1 zeroes, 2 ones; bit 3: Write Zeroes
    /// deallocates where it is asked to.
    pub dlfeat: u8,
    /// NAWUN, 35:34. Atomic write unit in normal operation, 0's based.
    pub nawun: u16,
    /// NAWUPF, 37:36. Atomic write unit over a power failure, 0's based.
    pub nawupf: u16,
    /// NACWU, 39:38. Atomic compare and write unit, 0's based.
    pub nacwu: u16,
    /// NABSN, 41:40. Atomic boundary in normal operation, 0's based.
    pub nabsn: u16,
    /// NABO, 43:42. The LBA of the first atomic boundary.
    pub nabo: u16,
    /// NABSPF, 45:44. Atomic boundary over a power failure, 0's based.
    pub nabspf: u16,
    /// NOIOB, 47:46. Optimal I/O boundary: commands that cross a multiple of it are slower. 0: none.
    pub noiob: u16,
    /// NVMCAP, 63:48. Capacity in bytes.
    pub nvmcap: U128,
    /// NPWG, 65:64. Preferred write granularity, 0's based.
    pub npwg: u16,
    /// NPWA, 67:66. Preferred write alignment, 0's based.
    pub npwa: u16,
    /// NPDG, 69:68. Preferred deallocate granularity, 0's based.
    pub npdg: u16,
    /// NPDA, 71:70. Preferred deallocate alignment, 0's based.
    pub npda: u16,
    /// NOWS, 73:72. Optimal write size, 0's based.
    pub nows: u16,
    /// MSSRL, 75:74. Longest source range of a Copy.
    pub mssrl: u16,
    /// MCL, 79:76. Longest Copy.
    pub mcl: u32,
    /// MSRC, 80. Source ranges of a Copy, 0's based.
    pub msrc: u8,
    /// KPIOS, 81. Key per I/O.
    pub kpios: u8,
    /// NULBAF, 82. LBA formats with attributes of their own.
    pub nulbaf: u8,
    #[doc(hidden)]
    pub reserved83: u8,
    /// KPIODAAG, 87:84. Key per I/O data access alignment and granularity.
    pub kpiodaag: u32,
    #[doc(hidden)]
    pub reserved88: [u8; 4],
    /// ANAGRPID, 95:92. ANA group, whose state the log page 0Ch has; 0: none.
    pub anagrpid: u32,
    #[doc(hidden)]
    pub reserved96: [u8; 3],
    /// NSATTR, 99. Bit 0: write protected.
    pub nsattr: u8,
    /// NVMSETID, 101:100. NVM set; 0: none.
    pub nvmsetid: u16,
    /// ENDGID, 103:102. Endurance group; 0: none.
    pub endgid: u16,
    /// NGUID, 119:104. Globally unique identifier, big-endian; 0: none.
    pub nguid: [u8; 16],
    /// EUI64, 127:120. IEEE identifier, big-endian; 0: none.
    pub eui64: [u8; 8],
    /// LBAF0 to LBAF63, 383:128.
    pub lbaf: [LbaFormat; 64],
    /// VS, 4095:384. Vendor specific.
    pub vs: [u8; 3712],
}

page!(Namespace, 4096);

/// I/O Command Set Independent Identify Namespace, CNS 08h (Base 5.1.13.2.8).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IndependentNamespace {
    /// NSFEAT, 0. Bit 3 identifiers are not used again, 4 rotational media, 5 no volatile write cache.
    pub nsfeat: u8,
    /// NMIC, 1. Sharing; see [`Namespace::NMIC_SHARED`].
    pub nmic: u8,
    /// RESCAP, 2. Reservations.
    pub rescap: u8,
    /// FPI, 3. Format progress.
    pub fpi: u8,
    /// ANAGRPID, 7:4. ANA group; 0: none.
    pub anagrpid: u32,
    /// NSATTR, 8. Bit 0: write protected.
    pub nsattr: u8,
    #[doc(hidden)]
    pub reserved9: u8,
    /// NVMSETID, 11:10. NVM set; 0: none.
    pub nvmsetid: u16,
    /// ENDGID, 13:12. Endurance group; 0: none.
    pub endgid: u16,
    /// NSTAT, 14. Status; see [`IndependentNamespace::NSTAT_READY`].
    pub nstat: u8,
    /// KPIOS, 15. Key per I/O.
    pub kpios: u8,
    /// MAXKT, 17:16. Highest key tag.
    pub maxkt: u16,
    #[doc(hidden)]
    pub reserved18: [u8; 2],
    /// RGRPID, 23:20. Reachability group; 0: none.
    pub rgrpid: u32,
    #[doc(hidden)]
    pub reserved24: [u8; 4072],
}

page!(IndependentNamespace, 4096);

impl IndependentNamespace {
    /// NSTAT bit 0, NRDY: the namespace is ready. A host leaves a namespace without it alone.
    pub const NSTAT_READY: u8 = 1 << 0;
}

/// An LBA format: four bytes of [`Namespace::lbaf`] (NVM 4.1.5.1, figure "LBA Format Data Structure").
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LbaFormat {
    /// MS: bytes of metadata per block.
    pub ms: u16,
    /// LBADS: data per block are 2^LBADS bytes; below 9 the format is not available.
    pub lbads: u8,
    /// RP: relative performance; 0 best, 3 degraded.
    #[bits(2)]
    pub rp: u8,
    #[bits(6)]
    __: u8,
}

impl LbaFormat {
    /// Bytes of data in a block, if the format is available and the size is one that 32 bits hold (LBADS 9 to 31).
    pub fn block_size(self) -> Option<u32> {
        matches!(self.lbads(), 9..=31).then(|| 1 << self.lbads())
    }
}

impl Namespace {
    /// NMIC bit 0, SHRNS: several controllers of the subsystem may be attached to the namespace at one time.
    pub const NMIC_SHARED: u8 = 1 << 0;
    /// NMIC bit 1, DISNS: the namespace is dispersed, over several subsystems.
    pub const NMIC_DISPERSED: u8 = 1 << 1;
    /// FLBAS bit 4: metadata follow the data of each block.
    pub const FLBAS_EXTENDED: u8 = 1 << 4;
    /// DLFEAT bits 2:0: deallocated blocks read as zeroes.
    pub const DLFEAT_ZEROES: u8 = 1;
    /// DLFEAT bit 3: Write Zeroes takes the Deallocate bit (DEAC).
    pub const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;

    /// The index of the format in use: FLBAS.FIDXL, and FLBAS.FIDXU if there are more than 16 formats.
    pub fn format_index(&self) -> usize {
        let upper = if u16::from(self.nlbaf) + u16::from(self.nulbaf) + 1 > 16 { self.flbas >> 5 & 3 } else { 0 };
        usize::from(upper << 4 | self.flbas & 0xf)
    }

    /// The format in use. Always one of the 64 that the structure has; whether it is available is
    /// [`LbaFormat::block_size`].
    pub fn format(&self) -> LbaFormat {
        self.lbaf.get(self.format_index()).copied().unwrap_or_default()
    }

    /// DPS.PIT: type of protection information, 0 for none.
    pub fn protection_type(&self) -> u8 {
        self.dps & 7
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace").field("nsze", &self.nsze).field("format", &self.format()).finish_non_exhaustive()
    }
}

/// What the NVM command set adds to Identify Namespace, CNS 05h (NVM 4.1.5.3).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NvmNamespace {
    /// LBSTM, 7:0. Storage tag mask.
    pub lbstm: u64,
    /// PIC, 8. Protection information capabilities.
    pub pic: u8,
    /// PIFA, 9. Protection information format attributes.
    pub pifa: u8,
    #[doc(hidden)]
    pub reserved10: [u8; 2],
    /// ELBAF0 to ELBAF63, 267:12. What is extended of each LBA format.
    pub elbaf: [ExtendedFormat; 64],
    /// NPDGL, 271:268. Preferred deallocate granularity, large.
    pub npdgl: u32,
    /// NPRG, 275:272. Preferred read granularity.
    pub nprg: u32,
    /// NPRA, 279:276. Preferred read alignment.
    pub npra: u32,
    /// NORS, 283:280. Optimal read size.
    pub nors: u32,
    /// NPDAL, 287:284. Preferred deallocate alignment, large.
    pub npdal: u32,
    #[doc(hidden)]
    pub reserved288: [u8; 3808],
}

page!(NvmNamespace, 4096);

/// An extended LBA format: four bytes of [`NvmNamespace::elbaf`] (NVM 4.1.5.3, figure "Extended LBA Format Data Structure").
/// All zeroes, as every format of a controller from before version 2.0: no storage tag, guards of 16 bits.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ExtendedFormat {
    /// STS: bits of the storage and reference space that are the storage tag.
    #[bits(7)]
    pub sts: u8,
    /// PIF: the format of protection information; [`ExtendedFormat::PIF_QUALIFIED`] is said by QPIF.
    #[bits(2)]
    pub pif: u8,
    /// QPIF: the same in more bits.
    #[bits(4)]
    pub qpif: u8,
    #[bits(19)]
    __: u32,
}

impl ExtendedFormat {
    /// PIF: see QPIF.
    pub const PIF_QUALIFIED: u8 = 3;

    /// What the specification calls its protection information (NVM 5.3.1).
    pub fn guard(self) -> &'static str {
        match (self.pif(), self.qpif()) {
            (0, _) | (ExtendedFormat::PIF_QUALIFIED, 0) => "16b Guard",
            (1, _) | (ExtendedFormat::PIF_QUALIFIED, 1) => "32b Guard",
            (2, _) | (ExtendedFormat::PIF_QUALIFIED, 2) => "64b Guard",
            _ => "a format of guard that is reserved",
        }
    }
}

impl NvmNamespace {
    /// What is extended of an LBA format; of one beyond the 64, nothing.
    pub fn format(&self, index: usize) -> ExtendedFormat {
        self.elbaf.get(index).copied().unwrap_or_default()
    }
}

/// What the NVM command set adds to Identify Controller, CNS 06h (NVM 4.1.5.4). Limits of commands other than Read and
/// Write; 0 is "not said".
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NvmController {
    /// VSL, 0. Verify: 2^VSL pages of CAP.MPSMIN.
    pub vsl: u8,
    /// WZSL, 1. Write Zeroes: 2^WZSL pages of CAP.MPSMIN.
    pub wzsl: u8,
    /// WUSL, 2. Write Uncorrectable: 2^WUSL pages of CAP.MPSMIN.
    pub wusl: u8,
    /// DMRL, 3. Dataset Management: ranges.
    pub dmrl: u8,
    /// DMRSL, 7:4. Dataset Management: blocks in a range.
    pub dmrsl: u32,
    /// DMSL, 15:8. Dataset Management: blocks in a command.
    pub dmsl: u64,
    #[doc(hidden)]
    pub reserved16: [u8; 4080],
}

page!(NvmController, 4096);
