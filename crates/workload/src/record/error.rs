//! What can be wrong with a recording.

/// Why a file is no recording, or not a whole one. Offsets are bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Something else altogether.
    #[error("it is not a recording: `reap run --record FILE` writes those, and they begin with `REAPTRAC`")]
    Foreign,
    /// Written by another version.
    #[error("it is a recording of format {found}, and this program reads format {known}: record again, or use the program that wrote it")]
    Version {
        /// The file's.
        found: u32,
        /// This program's.
        known: u32,
    },
    /// The file ends too early.
    #[error(
        "the recording is cut off at byte {at}: its end, with the run's own figures, is missing; was the run killed, or the disk full?"
    )]
    CutOff {
        /// Length of the file.
        at: u64,
    },
    /// A checksum does not fit.
    #[error("the recording is damaged: the checksum of the block at byte {at} does not fit")]
    Checksum {
        /// First byte of the block.
        at: u64,
    },
    /// The checksum fits, and the content does not make sense.
    #[error("the recording is damaged: block at byte {at}: {what}")]
    Malformed {
        /// First byte of the block.
        at: u64,
        /// What is wrong.
        what: String,
    },
}
