//! What can be asked of the kernel: one entry each.

use std::num::NonZeroU64;
use std::ops::BitOr;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use super::file::{File, Kept, with_file};
use super::span::Span;

/// BLOCK_URING_CMD_DISCARD: `_IO(0x12, 0)` (linux/blkdev.h, 6.12).
const DISCARD: u32 = 0x1200;

/// How one read or write differs from others (preadv2(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RwFlags(i32);

impl RwFlags {
    /// Not at all.
    pub const NONE: RwFlags = RwFlags(0);
    /// It polls; IOPOLL rings need no flag for that.
    pub const HIPRI: RwFlags = RwFlags(libc::RWF_HIPRI);
    /// A write that completes once its data is on the medium: FUA, where the device has it.
    pub const DSYNC: RwFlags = RwFlags(libc::RWF_DSYNC);
    /// EAGAIN instead of waiting.
    pub const NOWAIT: RwFlags = RwFlags(libc::RWF_NOWAIT);
}

impl BitOr for RwFlags {
    type Output = RwFlags;
    fn bitor(self, other: RwFlags) -> RwFlags {
        RwFlags(self.0 | other.0)
    }
}

/// One request, with user data 0 until [`Entry::user_data`]. Its buffer stays lent until its completion was taken, or the
/// entry was dropped without being pushed.
#[derive(Debug)]
#[must_use = "an entry is asked for once it is pushed"]
pub struct Entry {
    pub(super) sqe: squeue::Entry,
    pub(super) ring: Option<NonZeroU64>,
}

impl Entry {
    /// Reads from byte `offset` of `file` on into `span`. Completes with the bytes read, fewer at the end of the file.
    #[inline]
    pub fn read(file: impl Into<File>, offset: u64, span: Span, flags: RwFlags) -> Entry {
        let (file, Span { at, len, slot }) = (file.into(), span);
        let at = at.as_ptr();
        let sqe = with_file!(file, |fd| match slot {
            Some(slot) => opcode::ReadFixed::new(fd, at, len, slot).offset(offset).rw_flags(flags.0).build(),
            None => opcode::Read::new(fd, at, len).offset(offset).rw_flags(flags.0).build(),
        });
        Entry { sqe, ring: file.ring() }
    }

    /// Writes `span` from byte `offset` of `file` on. Completes with the bytes written.
    #[inline]
    pub fn write(file: impl Into<File>, offset: u64, span: Span, flags: RwFlags) -> Entry {
        let (file, Span { at, len, slot }) = (file.into(), span);
        let at = at.as_ptr().cast_const();
        let sqe = with_file!(file, |fd| match slot {
            Some(slot) => opcode::WriteFixed::new(fd, at, len, slot).offset(offset).rw_flags(flags.0).build(),
            None => opcode::Write::new(fd, at, len).offset(offset).rw_flags(flags.0).build(),
        });
        Entry { sqe, ring: file.ring() }
    }

    /// Puts what was written before onto the medium; `data_only` as fdatasync(2). It is not ordered after entries that
    /// have not completed.
    pub fn fsync(file: impl Into<File>, data_only: bool) -> Entry {
        let file = file.into();
        let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
        let sqe = with_file!(file, |fd| opcode::Fsync::new(fd).flags(flags).build());
        Entry { sqe, ring: file.ring() }
    }

    /// fallocate(2) with `mode` (FALLOC_FL_…) for `len` bytes from `offset` on. Completes with 0.
    pub fn allocate(file: impl Into<File>, mode: i32, offset: u64, len: u64) -> Entry {
        let file = file.into();
        let sqe = with_file!(file, |fd| opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build());
        Entry { sqe, ring: file.ring() }
    }

    /// Has the block device `file` discard `len` bytes from `offset` on, as the ioctl BLKDISCARD does (6.12). Completes with 0.
    pub fn discard(file: impl Into<File>, offset: u64, len: u64) -> Entry {
        let file = file.into();
        // The length is where other commands begin (`addr3`).
        let mut command = [0; 16];
        command[..8].copy_from_slice(&len.to_ne_bytes());
        let sqe = with_file!(file, |fd| opcode::UringCmd16::new(fd, DISCARD).cmd(command).addr(Some(offset)).build());
        Entry { sqe, ring: file.ring() }
    }

    /// Completes once `file` is readable (poll(2), POLLIN), with the events that came. If it is to go on (`multishot`), it completes
    /// again for each time that something new arrives; [`Cqe::more`](super::Cqe::more) says whether it will.
    pub fn poll(file: impl Into<File>, multishot: bool) -> Entry {
        let file = file.into();
        let sqe = with_file!(file, |fd| opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(multishot).build());
        Entry { sqe, ring: file.ring() }
    }

    /// A completion with `user_data` and `result` in another ring, whose descriptor this ring keeps. It completes here
    /// too, with 0.
    pub fn message(to: Kept, user_data: u64, result: i32) -> Entry {
        Entry { sqe: opcode::MsgRingData::new(Fd(to.fd), result, user_data, None).build(), ring: Some(to.ring) }
    }

    /// Cancels the first request with this user data. Completes with 0; ENOENT if there is none; EALREADY if it cannot
    /// be cancelled any more. What was cancelled completes with ECANCELED or EINTR.
    pub fn cancel(user_data: u64) -> Entry {
        Entry { sqe: opcode::AsyncCancel::new(user_data).build(), ring: None }
    }

    /// Completes with 0.
    pub fn nop() -> Entry {
        Entry { sqe: opcode::Nop::new().build(), ring: None }
    }

    /// What its completions carry.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Entry {
        self.sqe.set_user_data(user_data);
        self
    }

    /// Without a completion, unless it fails (IOSQE_CQE_SKIP_SUCCESS, 5.17).
    pub fn quiet(mut self) -> Entry {
        self.sqe = self.sqe.flags(squeue::Flags::SKIP_SUCCESS);
        self
    }

    /// The entries that are pushed after it are begun when it has succeeded, and cancelled if not: up to the first that is
    /// not followed.
    pub fn followed(mut self) -> Entry {
        self.sqe = self.sqe.flags(squeue::Flags::IO_LINK);
        self
    }
}
