//! Which file an entry means. None of them can be closed and become another file under an entry.

use std::num::NonZeroU64;
use std::os::fd::RawFd;

/// A place in the ring's table of files: see [`Ring::register_file`](super::Ring::register_file). An empty place is EBADF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSlot(pub u32);

/// A descriptor that a ring owns until it closes: see [`Ring::keep`](super::Ring::keep). Other rings refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub(super) fd: RawFd,
    pub(super) ring: NonZeroU64,
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Registered: the kernel takes no reference for each request.
    Slot(FileSlot),
    /// A descriptor.
    Kept(Kept),
}

impl From<FileSlot> for File {
    fn from(slot: FileSlot) -> File {
        File::Slot(slot)
    }
}

impl From<Kept> for File {
    fn from(kept: Kept) -> File {
        File::Kept(kept)
    }
}

impl File {
    /// The one ring that this may be pushed to.
    pub(super) fn ring(self) -> Option<NonZeroU64> {
        match self {
            File::Slot(_) => None,
            File::Kept(kept) => Some(kept.ring),
        }
    }
}

/// `$build` with `$file` as the crate's type of file: they are two, and their common trait is sealed.
macro_rules! with_file {
    ($file:expr, |$name:ident| $build:expr) => {
        match $file {
            $crate::uring::file::File::Slot($crate::uring::file::FileSlot(slot)) => {
                let $name = io_uring::types::Fixed(slot);
                $build
            }
            $crate::uring::file::File::Kept(kept) => {
                let $name = io_uring::types::Fd(kept.fd);
                $build
            }
        }
    };
}
pub(super) use with_file;
