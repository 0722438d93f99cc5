//! What can be asked of the kernel, of which file, with which bytes.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use nvme::Sqe;

use crate::dma::{Lent, Piece};

/// BLOCK_URING_CMD_DISCARD: `_IO(0x12, 0)` (linux/blkdev.h, 6.12).
const DISCARD: u32 = 0x1200;
/// NVME_URING_CMD_IO: `_IOWR('N', 0x80, struct nvme_uring_cmd)` (linux/nvme_ioctl.h).
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;

/// A place in the ring's table of files: see [`Ring::register_file`](super::Ring::register_file). An empty place is EBADF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSlot(pub u32);

/// A descriptor that a ring owns until it closes: see [`Ring::keep`](super::Ring::keep). Other rings refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub(super) fd: RawFd,
    pub(super) ring: NonZeroU64,
}

/// Which file an entry means. None of them can be closed and become another file under an entry.
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
    /// What the entry says of it, and the one ring that the entry may be pushed to.
    #[inline]
    fn target(self) -> (Fd, squeue::Flags, Option<NonZeroU64>) {
        match self {
            File::Slot(FileSlot(slot)) => (Fd(slot.cast_signed()), squeue::Flags::FIXED_FILE, None),
            File::Kept(kept) => (Fd(kept.fd), squeue::Flags::empty(), Some(kept.ring)),
        }
    }
}

/// A piece of memory in a ring's table of buffers: see [`Ring::register_buffer`](super::Ring::register_buffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    pub(super) slot: u16,
    pub(super) piece: Piece,
}

/// Some bytes of a lent buffer. The buffer stays lent until the completion of the entry that names them.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where they are: for the kernel, and never followed here.
    addr: usize,
    len: u32,
    slot: Option<u16>,
}

impl Span {
    /// The bytes `range` of `lent`.
    ///
    /// # Panics
    /// If they are not all in the buffer, or 4 GiB and more: as a slice would.
    #[inline]
    pub fn of(lent: &Lent, range: Range<usize>) -> Span {
        if range.start > range.end || range.end > lent.len() || range.len() > u32::MAX as usize {
            outside(range, lent.len());
        }
        Span { addr: lent.memory().as_ptr().expose_provenance() + range.start, len: range.len() as u32, slot: None }
    }

    /// [`Span::of`] by way of the registered `fixed`, if the buffer lies in it; else as if nothing were registered.
    ///
    /// # Panics
    /// As [`Span::of`].
    #[inline]
    pub fn fixed(lent: &Lent, range: Range<usize>, fixed: Fixed) -> Span {
        let slot = (lent.piece() == Some(fixed.piece)).then_some(fixed.slot);
        Span { slot, ..Span::of(lent, range) }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(self) -> u32 {
        self.len
    }

    /// What is left of it after `bytes` bytes; `None`: nothing.
    #[inline]
    pub fn after(self, bytes: u32) -> Option<Span> {
        let len = self.len.checked_sub(bytes).filter(|&len| len > 0)?;
        Some(Span { addr: self.addr + bytes as usize, len, ..self })
    }

    /// Whether the kernel finds the memory in the ring's table.
    #[inline]
    pub fn is_fixed(self) -> bool {
        self.slot.is_some()
    }
}

/// By value, so that the caller's range may stay in registers.
#[cold]
fn outside(range: Range<usize>, len: usize) -> ! {
    panic!("bytes {}..{} of a lent buffer of {len} bytes, and less than 4 GiB at once", range.start, range.end)
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
    #[inline]
    fn of(file: impl Into<File>, build: impl FnOnce(Fd) -> squeue::Entry) -> Entry {
        let (fd, flags, ring) = file.into().target();
        Entry { sqe: build(fd).flags(flags), ring }
    }

    /// Reads from byte `offset` of `file` on into `span`. Completes with the bytes read, fewer at the end of the file.
    #[inline]
    pub fn read(file: impl Into<File>, offset: u64, span: Span) -> Entry {
        let Span { addr, len, slot } = span;
        let at = ptr::with_exposed_provenance_mut(addr);
        Entry::of(file, |fd| match slot {
            Some(slot) => opcode::ReadFixed::new(fd, at, len, slot).offset(offset).build(),
            None => opcode::Read::new(fd, at, len).offset(offset).build(),
        })
    }

    /// Writes `span` from byte `offset` of `file` on. Completes with the bytes written; `durable` (RWF_DSYNC): once they are on the
    /// medium, by FUA where the device has it.
    #[inline]
    pub fn write(file: impl Into<File>, offset: u64, span: Span, durable: bool) -> Entry {
        let Span { addr, len, slot } = span;
        let (at, flags) = (ptr::with_exposed_provenance(addr), if durable { libc::RWF_DSYNC } else { 0 });
        Entry::of(file, |fd| match slot {
            Some(slot) => opcode::WriteFixed::new(fd, at, len, slot).offset(offset).rw_flags(flags).build(),
            None => opcode::Write::new(fd, at, len).offset(offset).rw_flags(flags).build(),
        })
    }

    /// Puts what was written before onto the medium; `data_only` as fdatasync(2). It is not ordered after entries that
    /// have not completed.
    pub fn fsync(file: impl Into<File>, data_only: bool) -> Entry {
        let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
        Entry::of(file, |fd| opcode::Fsync::new(fd).flags(flags).build())
    }

    /// fallocate(2) with `mode` (FALLOC_FL_…) for `len` bytes from `offset` on. Completes with 0.
    pub fn allocate(file: impl Into<File>, mode: i32, offset: u64, len: u64) -> Entry {
        Entry::of(file, |fd| opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build())
    }

    /// Has the block device `file` discard `len` bytes from `offset` on, as the ioctl BLKDISCARD does (6.12). Completes with 0.
    pub fn discard(file: impl Into<File>, offset: u64, len: u64) -> Entry {
        // The length is where other commands begin (`addr3`).
        let mut command = [0; 16];
        command[..8].copy_from_slice(&len.to_ne_bytes());
        Entry::of(file, |fd| opcode::UringCmd16::new(fd, DISCARD).cmd(command).addr(Some(offset)).build())
    }

    /// Completes once `file` is readable (poll(2), POLLIN), with the events that came. If it is to go on (`multishot`), it completes
    /// again for each time that something new arrives; [`Cqe::more`](super::Cqe::more) says whether it will.
    pub fn poll(file: impl Into<File>, multishot: bool) -> Entry {
        Entry::of(file, |fd| opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(multishot).build())
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
}

/// An NVMe command that passes through the kernel (`/dev/ngXnY`), for a big ring (IORING_OP_URING_CMD). It completes with the NVMe
/// status, or a negative errno; the first of the big words is the command's result.
#[derive(Debug)]
#[must_use = "a command is asked for once it is pushed"]
pub struct Command {
    pub(super) sqe: squeue::Entry128,
    pub(super) ring: Option<NonZeroU64>,
}

impl Command {
    /// `command` to the namespace that `file` is, with `data`, which stays lent until the completion. The number of bytes
    /// is to be what the command transfers: a device may take no notice of where they end.
    #[inline]
    pub fn new(file: impl Into<File>, command: &Sqe, data: Option<Span>) -> Command {
        let (fd, flags, ring) = file.into().target();
        let (addr, len, slot) = data.map_or((0, 0, None), |span| (span.addr as u64, span.len, span.slot));
        let bytes = nvme_uring_cmd(command, addr, len);
        Command { sqe: opcode::UringCmd80::new(fd, NVME_URING_CMD_IO).cmd(bytes).buf_index(slot).build().flags(flags), ring }
    }

    /// What its completion carries.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Command {
        self.sqe = self.sqe.user_data(user_data);
        self
    }
}

/// `struct nvme_uring_cmd`, 72 bytes, in the 80 that a big entry has. Identifier and data pointers are the kernel's to fill in; so is the
/// time-out, its own default.
#[inline]
pub(crate) fn nvme_uring_cmd(command: &Sqe, addr: u64, len: u32) -> [u8; 80] {
    let mut bytes = [0; 80];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    put(&[command.opcode, command.flags, 0, 0]);
    put(&command.nsid.to_ne_bytes());
    command.cdw2.iter().for_each(|dword| put(&dword.to_ne_bytes()));
    // No metadata: its address, and below its length.
    put(&0u64.to_ne_bytes());
    put(&addr.to_ne_bytes());
    put(&0u32.to_ne_bytes());
    put(&len.to_ne_bytes());
    let cdw10 = [command.cdw10, command.cdw11, command.cdw12, command.cdw13, command.cdw14, command.cdw15];
    cdw10.iter().for_each(|dword| put(&dword.to_ne_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passthrough_layout_is_the_kernels() {
        let words: [u64; 8] = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as u64 + 1));
        let bytes = nvme_uring_cmd(&Sqe::from_words(words), 0x1122_3344_5566_7788, 4096);
        let dword = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let low = |n: u32| n * 0x0101_0101;
        assert_eq!((bytes[0], bytes[1], bytes[2], bytes[3], dword(4), dword(8), dword(12)), (1, 1, 0, 0, low(1), low(2), low(2)));
        assert_eq!(u64::from_ne_bytes(bytes[24..32].try_into().unwrap()), 0x1122_3344_5566_7788);
        assert_eq!((dword(16), dword(20), dword(32), dword(36)), (0, 0, 0, 4096));
        assert_eq!([40, 44, 48, 52, 56, 60].map(dword), [low(6), low(6), low(7), low(7), low(8), low(8)]);
        assert_eq!(bytes[64..], [0; 16]);
    }
}
