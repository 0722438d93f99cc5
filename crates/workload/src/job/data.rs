//! What is written where nothing is verified.

use super::FillPattern;
use units::Op;

/// What a write of a job asks of the device: `write_mode` and `sg_write_mode`. Whatever it is, it counts as a write, as in fio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteAs {
    /// A Write.
    #[default]
    Write,
    /// A Write Zeroes.
    Zeroes,
    /// A Write Uncorrectable: the blocks cannot be read until they are written again.
    Uncorrectable,
    /// A Verify: the device makes sure that the blocks can be read.
    Verify,
    /// A Compare of what would be written with what is there.
    Compare,
    /// A Write of the first block, over and over. SCSI's Write Same moves it once.
    Same,
    /// A Compare of each block with the first block of what would be written.
    CompareSame,
}

impl WriteAs {
    /// The command.
    pub fn op(self) -> Op {
        match self {
            WriteAs::Write | WriteAs::Same => Op::Write,
            WriteAs::Zeroes => Op::WriteZeroes,
            WriteAs::Uncorrectable => Op::WriteUncorrectable,
            WriteAs::Verify => Op::Verify,
            WriteAs::Compare | WriteAs::CompareSame => Op::Compare,
        }
    }

    /// Whether all blocks of its data are the first.
    pub fn repeats(self) -> bool {
        matches!(self, WriteAs::Same | WriteAs::CompareSame)
    }
}

/// The data of writes: `buffer_pattern`, `zero_buffers` and their kin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// Something that does not compress, the same at each write of a buffer.
    #[default]
    Random,
    /// `zero_buffers`.
    Zeroes,
    /// `buffer_pattern`, repeated from the start of each I/O to its end.
    Pattern(FillPattern),
    /// `buffer_compress_percentage`: so many per cent of each chunk of so many bytes are zeroes, or the pattern.
    Compressible {
        /// Per cent that compresses.
        percent: u32,
        /// `buffer_compress_chunk` in bytes; never 0.
        chunk: u32,
        /// What stands there; `None`: zeroes.
        pattern: Option<FillPattern>,
    },
}
