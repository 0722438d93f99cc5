//! What is written where nothing is verified.

use super::FillPattern;

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
