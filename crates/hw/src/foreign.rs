//! Files of other processes, before they are mapped: touching a page that is not there is a signal (SIGBUS), which ends this process.

use std::os::fd::AsFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};
use rustix::io::Errno;

/// Magic numbers of file systems (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;

/// Why pages of a file may be gone when they are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageLoss {
    /// It is on a disk, or can be made shorter.
    #[error("it is no memory file that is sealed against being made shorter (F_SEAL_SHRINK)")]
    Unsealed,
    /// Each huge page is taken from those set aside when it is first touched, by any process, and none need be left. A hole that is
    /// punched gives it back. No seal forbids either (memfd_create(2)).
    #[error("it has huge pages, which may run out or be taken away whatever its seals say")]
    HugePages,
    /// `fstatfs` failed.
    #[error("its file system cannot be told: {0}")]
    Unknown(Errno),
}

/// Whether all pages of a file that another process also has will be there whenever they are touched. They will in ordinary memory files
/// (memfd_create(2), on tmpfs) that are sealed against shrinking: a hole that is punched there reads as zeroes. Any other file is refused.
///
/// Ask this before the file's size: an owner could shorten the file between the two, and seal it then.
pub(crate) fn keeps_pages(file: impl AsFd) -> Result<(), PageLoss> {
    judge(fstatfs(&file).map(|system| system.f_type), fcntl_get_seals(&file))
}

fn judge(system: Result<i64, Errno>, seals: Result<SealFlags, Errno>) -> Result<(), PageLoss> {
    match system.map_err(PageLoss::Unknown)? {
        HUGETLBFS => Err(PageLoss::HugePages),
        TMPFS if seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) => Ok(()),
        _ => Err(PageLoss::Unsealed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_tmpfs_keeps_pages() {
        let (sealed, ext4) = (Ok(SealFlags::SHRINK | SealFlags::SEAL), 0xef53);
        assert_eq!(judge(Ok(TMPFS), sealed), Ok(()));
        for (system, seals, why) in [
            (Ok(TMPFS), Ok(SealFlags::SEAL | SealFlags::GROW), PageLoss::Unsealed),
            (Ok(TMPFS), Err(Errno::INVAL), PageLoss::Unsealed),
            (Ok(ext4), Err(Errno::INVAL), PageLoss::Unsealed),
            (Ok(ext4), sealed, PageLoss::Unsealed),
            (Ok(HUGETLBFS), sealed, PageLoss::HugePages),
            (Err(Errno::NOSYS), sealed, PageLoss::Unknown(Errno::NOSYS)),
        ] {
            assert_eq!(judge(system, seals), Err(why), "{system:?} {seals:?}");
        }
    }
}
