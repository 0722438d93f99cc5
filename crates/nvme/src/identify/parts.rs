//! Parts of Identify Controller that are structures of their own.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::page;

/// A Power State Descriptor (Base 5.1.13.2.1, figure "Identify – Power State Descriptor Data Structure").
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PowerState {
    /// MP, 1:0. The most power, in units of 10 mW; of 0.1 mW with [`PowerState::MXPS`].
    pub mp: u16,
    #[doc(hidden)]
    pub reserved2: u8,
    /// 3: [`PowerState::MXPS`] and [`PowerState::NOPS`].
    pub flags: u8,
    /// ENLAT, 7:4. The longest that entering it takes, in µs.
    pub enlat: u32,
    /// EXLAT, 11:8. The longest that leaving it takes, in µs.
    pub exlat: u32,
    /// RRT, 12. Read throughput among the states; 0 is best.
    pub rrt: u8,
    /// RRL, 13. Read latency among the states; 0 is best.
    pub rrl: u8,
    /// RWT, 14. Write throughput among the states; 0 is best.
    pub rwt: u8,
    /// RWL, 15. Write latency among the states; 0 is best.
    pub rwl: u8,
    /// IDLP, 17:16. Power while idle, in the unit of IPS.
    pub idlp: u16,
    /// IPS, 18. Bits 7:6: the unit, as [`PowerState::unit`] reads it.
    pub ips: u8,
    #[doc(hidden)]
    pub reserved19: u8,
    /// ACTP, 21:20. The most average power while active, in the unit of APS.
    pub actp: u16,
    /// 22. Bits 2:0: APW, the workload of ACTP; bits 7:6: APS, its unit, as [`PowerState::unit`] reads it.
    pub apws: u8,
    /// EPFRT, 23. Emergency power fail recovery time.
    pub epfrt: u8,
    /// FQVT, 24. Forced quiescence vault time.
    pub fqvt: u8,
    /// EPFVT, 25. Emergency power fail vault time.
    pub epfvt: u8,
    /// 26. Bits 3:0: scale of EPFRT; bits 7:4: scale of FQVT.
    pub epfr_fqv_ts: u8,
    /// 27. Bits 3:0: scale of EPFVT.
    pub epfvts: u8,
    #[doc(hidden)]
    pub reserved28: [u8; 4],
}

page!(PowerState, 32);

impl PowerState {
    /// Flags bit 0, MXPS: MP is in units of 0.1 mW.
    pub const MXPS: u8 = 1 << 0;
    /// Flags bit 1, NOPS: no I/O is done in it.
    pub const NOPS: u8 = 1 << 1;

    /// The unit in IPS or APS (bits 7:6): 0 nothing is reported, 1 is 0.1 mW, 2 is 10 mW, 3 is reserved.
    pub fn unit(scale: u8) -> u8 {
        scale >> 6
    }
}

/// What Identify Controller says of a controller over fabrics, bytes 2047:1792 (Base 5.1.13.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Fabrics {
    /// IOCCSZ, 1795:1792. Longest command capsule of an I/O queue, in units of 16 bytes.
    pub ioccsz: u32,
    /// IORCSZ, 1799:1796. Longest response capsule of an I/O queue, in units of 16 bytes.
    pub iorcsz: u32,
    /// ICDOFF, 1801:1800. Where data within a capsule begin, in units of 16 bytes after the command.
    pub icdoff: u16,
    /// FCATT, 1802. Bit 0: the controller is no dynamic one.
    pub fcatt: u8,
    /// MSDBD, 1803. Most SGL data block descriptors of a command; 0: any number.
    pub msdbd: u8,
    /// OFCS, 1805:1804. Optional fabrics commands: bit 0 Disconnect.
    pub ofcs: u16,
    #[doc(hidden)]
    pub reserved1806: [u8; 242],
}

page!(Fabrics, 256);
