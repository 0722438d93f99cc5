//! Submission queue entries, as `linux/io_uring.h` lays them out: the operation, the file and the
//! memory of one request.

use std::ops::Range;

use nvme::Sqe;
use rustix::io_uring::{IoringOp, IoringPollFlags, IoringSqeFlags, IoringUringCmdFlags};

use crate::dma::{ChunkId, Lent};

/// BLOCK_URING_CMD_DISCARD: `_IO(0x12, 0)` (linux/blkdev.h, 6.12).
const DISCARD: u32 = 0x1200;
/// NVME_URING_CMD_IO: `_IOWR('N', 0x80, struct nvme_uring_cmd)` (linux/nvme_ioctl.h).
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;
/// IORING_FSYNC_DATASYNC.
const DATASYNC: u32 = 1;

/// A slot in the table of registered files: see
/// [`Ring::register_file`](super::Ring::register_file). Using an empty slot fails with EBADF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSlot(pub u32);

/// A chunk of memory in the table of registered buffers: see
/// [`Ring::register_buffer`](super::Ring::register_buffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    pub(super) slot: u16,
    pub(super) chunk: ChunkId,
}

/// A range of a lent buffer. The buffer must stay lent until the entry that names it has completed.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The address, for the kernel; never dereferenced here.
    addr: usize,
    len: u32,
    slot: Option<u16>,
}

impl Span {
    /// The bytes `range` of `lent`.
    ///
    /// # Panics
    /// If the range is not within the buffer, or has 4 GiB or more.
    #[inline]
    pub fn of(lent: &Lent, range: Range<usize>) -> Span {
        if range.start > range.end || range.end > lent.len() || range.len() > u32::MAX as usize {
            outside(range, lent.len());
        }
        Span {
            addr: lent.memory().as_ptr().expose_provenance() + range.start,
            len: range.len() as u32,
            slot: None,
        }
    }

    /// [`Span::of`], through the registered buffer `fixed` if `lent` is within its chunk; otherwise
    /// unregistered.
    ///
    /// # Panics
    /// As [`Span::of`].
    #[inline]
    pub fn fixed(lent: &Lent, range: Range<usize>, fixed: Fixed) -> Span {
        let slot = (lent.chunk_id() == Some(fixed.chunk)).then_some(fixed.slot);
        Span { slot, ..Span::of(lent, range) }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // a span is never tested for emptiness
    pub fn len(self) -> u32 {
        self.len
    }

    /// The rest after `bytes` bytes; `None`: nothing is left. For resuming a short transfer.
    #[inline]
    pub fn after(self, bytes: u32) -> Option<Span> {
        let len = self.len.checked_sub(bytes).filter(|&len| len > 0)?;
        Some(Span { addr: self.addr + bytes as usize, len, ..self })
    }

    /// Whether the range is in a registered buffer.
    #[inline]
    pub fn is_fixed(self) -> bool {
        self.slot.is_some()
    }
}

/// Takes its arguments by value so that the caller can keep the range in registers.
#[cold]
fn outside(range: Range<usize>, len: usize) -> ! {
    panic!(
        "bytes {}..{} of a lent buffer of {len} bytes, and less than 4 GiB at once",
        range.start, range.end
    )
}

/// The common part of all entries; the meaning of a field depends on the operation.
#[repr(C)]
#[derive(Debug, Default)]
struct SqeHead {
    op: u8,
    flags: u8,
    priority: u16,
    /// A slot in the table of registered files, or -1.
    file: i32,
    /// Offset in the file; for IORING_OP_URING_CMD the command number and 0.
    offset: [u32; 2],
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    file_index: u32,
}

/// One request; user data is 0 unless set by [`Entry::user_data`]. Its buffer must stay lent until
/// its completion has been popped, or the entry was dropped unpushed.
#[repr(C)]
#[derive(Debug)]
#[must_use = "an entry does nothing until it is pushed"]
pub struct Entry {
    head: SqeHead,
    command: [u64; 2],
}

/// The second half of an entry in a big ring, unused by all operations but passthrough.
pub(super) type SecondHalf = [u64; 8];

const _: () = assert!(
    size_of::<Entry>() == 64
        && size_of::<PassthroughCommand>() == 128
        && size_of::<NvmeCommand>() == 80
);

/// A 64-bit value as two 32-bit fields in memory order.
#[inline]
fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

impl Entry {
    #[inline]
    fn new(op: IoringOp, FileSlot(slot): FileSlot, head: SqeHead) -> Entry {
        // Every file is a slot of the table, never a descriptor number.
        let (op, flags, file) = (op as u8, IoringSqeFlags::FIXED_FILE.bits(), slot.cast_signed());
        Entry { head: SqeHead { op, flags, file, ..head }, command: [0; 2] }
    }

    /// Reads from byte `offset` of `file` into `span`. Completes with the number of bytes read:
    /// fewer at the end of the file.
    #[inline]
    pub fn read(file: FileSlot, offset: u64, Span { addr, len, slot }: Span) -> Entry {
        let (op, buffer) = slot.map_or((IoringOp::Read, 0), |slot| (IoringOp::ReadFixed, slot));
        Entry::new(
            op,
            file,
            SqeHead {
                offset: halves(offset),
                addr: addr as u64,
                len,
                buffer,
                ..SqeHead::default()
            },
        )
    }

    /// Writes `span` at byte `offset` of `file`. Completes with the number of bytes written.
    /// `durable` (RWF_DSYNC): completes once they are on the medium, with FUA if the device
    /// supports it.
    #[inline]
    pub fn write(
        file: FileSlot,
        offset: u64,
        Span { addr, len, slot }: Span,
        durable: bool,
    ) -> Entry {
        let (op, buffer) = slot.map_or((IoringOp::Write, 0), |slot| (IoringOp::WriteFixed, slot));
        let op_flags = if durable { libc::RWF_DSYNC as u32 } else { 0 };
        Entry::new(
            op,
            file,
            SqeHead {
                offset: halves(offset),
                addr: addr as u64,
                len,
                op_flags,
                buffer,
                ..SqeHead::default()
            },
        )
    }

    /// Flushes completed writes to the medium, as fsync(2), or with `data_only` as fdatasync(2).
    /// Not ordered after entries that have not completed.
    pub fn fsync(file: FileSlot, data_only: bool) -> Entry {
        Entry::new(
            IoringOp::Fsync,
            file,
            SqeHead { op_flags: if data_only { DATASYNC } else { 0 }, ..SqeHead::default() },
        )
    }

    /// fallocate(2) with `mode` (FALLOC_FL_…) for `len` bytes from `offset` on. Completes with 0.
    pub fn allocate(file: FileSlot, mode: i32, offset: u64, len: u64) -> Entry {
        let head = SqeHead {
            offset: halves(offset),
            addr: len,
            len: mode.cast_unsigned(),
            ..SqeHead::default()
        };
        Entry::new(IoringOp::Fallocate, file, head)
    }

    /// Discards `len` bytes at `offset` of the block device `file`, as ioctl BLKDISCARD (6.12).
    /// Completes with 0.
    pub fn discard(file: FileSlot, offset: u64, len: u64) -> Entry {
        // The length is in `addr3`, the first word of the command area.
        let head = SqeHead { offset: [DISCARD, 0], addr: offset, ..SqeHead::default() };
        Entry { command: [len, 0], ..Entry::new(IoringOp::UringCmd, file, head) }
    }

    /// Completes with the poll(2) events once `file` is readable (POLLIN). With `multishot` it
    /// completes again for each new event; [`Cqe::more`](super::Cqe::more) says whether more will
    /// come.
    pub fn poll(file: FileSlot, multishot: bool) -> Entry {
        let flags = if multishot { IoringPollFlags::ADD_MULTI } else { IoringPollFlags::empty() };
        // `poll32_events`: the kernel expects the 16-bit halves in little-endian order
        // (linux/io_uring.h).
        let events =
            (libc::POLLIN as u32).rotate_left(if cfg!(target_endian = "big") { 16 } else { 0 });
        Entry::new(
            IoringOp::PollAdd,
            file,
            SqeHead { len: flags.bits(), op_flags: events, ..SqeHead::default() },
        )
    }

    /// Cancels the first request with this user data. Completes with 0; with ENOENT if there is
    /// none; with EALREADY if it can no longer be cancelled. The cancelled request completes with
    /// ECANCELED or EINTR.
    pub fn cancel(user_data: u64) -> Entry {
        Entry {
            head: SqeHead {
                op: IoringOp::AsyncCancel as u8,
                file: -1,
                addr: user_data,
                ..SqeHead::default()
            },
            command: [0; 2],
        }
    }

    /// Completes with 0.
    pub fn nop() -> Entry {
        Entry {
            head: SqeHead { op: IoringOp::Nop as u8, file: -1, ..SqeHead::default() },
            command: [0; 2],
        }
    }

    /// Sets the value that its completions return.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Entry {
        self.head.user_data = user_data;
        self
    }

    pub(super) fn flag(mut self, flag: IoringSqeFlags) -> Entry {
        self.head.flags |= flag.bits();
        self
    }
}

/// An NVMe passthrough command for a namespace's character device (`/dev/ngXnY`), in a big ring
/// (IORING_OP_URING_CMD). Completes with the NVMe status field, or a negative errno.
#[repr(C)]
#[derive(Debug)]
#[must_use = "a command does nothing until it is pushed"]
pub struct PassthroughCommand {
    head: SqeHead,
    command: NvmeCommand,
}

impl PassthroughCommand {
    /// Sends `command` to the namespace `file`, with `data`, which must stay lent until the
    /// completion. The length of `data` must be what the command transfers: a device may ignore
    /// where the buffer ends.
    #[inline]
    pub fn new(file: FileSlot, command: &Sqe, data: Option<Span>) -> PassthroughCommand {
        let (addr, len, slot) =
            data.map_or((0, 0, None), |span| (span.addr as u64, span.len, span.slot));
        let op_flags = if slot.is_some() { IoringUringCmdFlags::FIXED.bits() } else { 0 };
        let head = SqeHead {
            offset: [NVME_URING_CMD_IO, 0],
            op_flags,
            buffer: slot.unwrap_or(0),
            ..SqeHead::default()
        };
        PassthroughCommand {
            head: Entry::new(IoringOp::UringCmd, file, head).head,
            command: NvmeCommand::new(command, addr, len),
        }
    }

    /// Sets the value that its completion returns.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> PassthroughCommand {
        self.head.user_data = user_data;
        self
    }
}

/// `struct nvme_uring_cmd` (linux/nvme_ioctl.h): 72 bytes, in the 80-byte command area of a big
/// entry. `struct nvme_admin_cmd` has the same layout.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: [u32; 2],
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    len: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    pub(crate) result: u32,
    rest: u64,
}

impl NvmeCommand {
    /// The kernel fills in command identifier and data pointers; time-out 0 selects its default.
    #[inline]
    pub(crate) fn new(command: &Sqe, addr: u64, len: u32) -> NvmeCommand {
        let &Sqe { opcode, flags, nsid, cdw2, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } =
            command;
        let cdw10 = [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15];
        let (metadata, metadata_len) = (0, 0);
        NvmeCommand {
            opcode,
            flags,
            reserved: 0,
            nsid,
            cdw2,
            metadata,
            addr,
            metadata_len,
            len,
            cdw10,
            timeout_ms: 0,
            result: 0,
            rest: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn passthrough_layout_is_the_kernels() {
        let words: [u64; 8] = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as u64 + 1));
        let command = NvmeCommand::new(&Sqe::from_words(words), 0x1122_3344_5566_7788, 4096);
        let low = |n: u32| n * 0x0101_0101;
        assert_eq!(
            (command.opcode, command.flags, command.nsid, command.cdw2),
            (1, 1, low(1), [low(2); 2])
        );
        assert_eq!(
            (command.metadata, command.addr, command.metadata_len, command.len),
            (0, 0x1122_3344_5566_7788, 0, 4096)
        );
        assert_eq!(command.cdw10, [low(6), low(6), low(7), low(7), low(8), low(8)]);
        let at = [
            offset_of!(NvmeCommand, nsid),
            offset_of!(NvmeCommand, cdw2),
            offset_of!(NvmeCommand, metadata),
            offset_of!(NvmeCommand, addr),
            offset_of!(NvmeCommand, metadata_len),
            offset_of!(NvmeCommand, len),
            offset_of!(NvmeCommand, cdw10),
            offset_of!(NvmeCommand, timeout_ms),
            offset_of!(NvmeCommand, result),
        ];
        assert_eq!(at, [4, 8, 16, 24, 32, 36, 40, 64, 68]);
        let at = [
            offset_of!(SqeHead, addr),
            offset_of!(SqeHead, len),
            offset_of!(SqeHead, user_data),
            offset_of!(SqeHead, buffer),
        ];
        assert_eq!(
            (at, size_of::<SqeHead>(), offset_of!(PassthroughCommand, command)),
            ([16, 24, 32, 40], 48, 48)
        );
    }
}
