//! Where I/Os go: distributions of random offsets, files within a device, strided zones.

use super::per_op::PerOp;

/// How random offsets are distributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Each block as likely as any other.
    #[default]
    Uniform,
    /// Zipf's law with this exponent; which blocks are the popular ones is itself scattered.
    Zipf {
        /// The exponent, above 0 and not 1.
        theta: f64,
    },
    /// A self-similar distribution: the share `h` of the blocks has the share `1 - h` of the I/Os, and so on within it. fio calls it
    /// pareto. Which blocks are the popular ones is scattered.
    Pareto {
        /// Above 0, below 1.
        h: f64,
    },
    /// A bell around the middle of the region.
    Normal {
        /// The deviation, in per cent of the region.
        percent: f64,
    },
    /// `zoned`, `zoned_abs`: stretches of the region, one after the other, each with its share of the I/Os.
    Zoned(PerOp<Vec<AccessZone>>),
    /// `sequence`: these blocks in this order, over and over.
    Sequence {
        /// Numbers of blocks.
        blocks: Vec<u64>,
        /// `random_sequence_stride`: each round begins as many blocks later as there are of them.
        moves: bool,
    },
}

/// One stretch of [`Distribution::Zoned`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessZone {
    /// Per cent of the I/Os.
    pub access: f64,
    /// How much of the region it is.
    pub room: ZoneRoom,
}

/// How long a stretch of [`Distribution::Zoned`] is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ZoneRoom {
    /// Per cent of the region (`zoned`).
    Percent(f64),
    /// Bytes (`zoned_abs`).
    Bytes(u64),
}

/// `file_service_type`: which file has the next I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileService {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Each until all of it is done.
    Sequential,
    /// Any.
    Random,
}

/// `zonemode=strided`: I/Os go to one zone until it has had its bytes, then to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// `zonesize`: bytes that a zone has before the next is begun, never 0.
    pub size: u64,
    /// `zonerange`: bytes over which these are spread, at least `size`.
    pub range: u64,
    /// `zoneskip`: bytes between the end of a range and the start of the next.
    pub skip: u64,
    /// Zones reach to the end of the device, and `size` is how much I/O there is.
    pub whole: bool,
}
