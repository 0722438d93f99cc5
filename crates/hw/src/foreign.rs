//! Files of other processes, before they are mapped: touching a page that is not there would be a signal (SIGBUS), which ends this process.

use std::os::fd::AsFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};

/// hugetlbfs (linux/magic.h).
const HUGETLBFS: i64 = 0x958458f6;

/// Whether a file consists of huge pages that are set aside. Each is taken from there when it is first touched, by whoever touches it, and none
/// need be left; a hole that its owner punches gives it back. No seal forbids either (memfd_create(2)).
pub(crate) fn has_huge_pages(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|system| system.f_type == HUGETLBFS)
}

/// Why pages of a file may be gone when they are touched, if its owner is not trusted to leave them. Of ordinary memory files that cannot be
/// made shorter a hole that is punched is filled with zeroes.
pub(crate) fn may_lose_pages(file: impl AsFd) -> Option<&'static str> {
    // Of files that cannot be sealed it is an error.
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Some("its owner can make it shorter (it has no F_SEAL_SHRINK)");
    }
    has_huge_pages(file).then_some("it has huge pages, which may run out or be taken away whatever its seals say")
}
