//! What can be asked of the kernel, of which file, with which bytes: submission entries, as `linux/io_uring.h` lays them out.

use std::ops::Range;

use nvme::Sqe;
use rustix::io_uring::{IoringOp, IoringPollFlags, IoringSqeFlags, IoringUringCmdFlags};

use crate::dma::{Lent, Piece};

/// BLOCK_URING_CMD_DISCARD: `_IO(0x12, 0)` (linux/blkdev.h, 6.12).
const DISCARD: u32 = 0x1200;
/// NVME_URING_CMD_IO: `_IOWR('N', 0x80, struct nvme_uring_cmd)` (linux/nvme_ioctl.h).
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;
/// IORING_FSYNC_DATASYNC.
const DATASYNC: u32 = 1;

/// A slot of the ring's table of files: see [`Ring::register_file`](super::Ring::register_file). An empty slot is EBADF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSlot(pub u32);

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

/// What all entries begin with; what a field means differs with the operation.
#[repr(C)]
#[derive(Debug, Default)]
struct Head {
    op: u8,
    flags: u8,
    priority: u16,
    /// A slot of the table of files, or -1.
    file: i32,
    /// In the file; of IORING_OP_URING_CMD the command, and 0.
    offset: [u32; 2],
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    file_index: u32,
}

/// One request, with user data 0 until [`Entry::user_data`]. Its buffer stays lent until its completion was taken, or the
/// entry was dropped without being pushed.
#[repr(C)]
#[derive(Debug)]
#[must_use = "an entry is asked for once it is pushed"]
pub struct Entry {
    head: Head,
    command: [u64; 2],
}

/// The second half of an entry in a big ring, of which no operation here takes notice.
pub(super) type Empty = [u64; 8];

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Command>() == 128 && size_of::<NvmeCommand>() == 80);

/// 64 bits as the two fields in their place.
#[inline]
fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

impl Entry {
    #[inline]
    fn new(op: IoringOp, FileSlot(slot): FileSlot, head: Head) -> Entry {
        let (op, flags, file) = (op as u8, IoringSqeFlags::FIXED_FILE.bits(), slot.cast_signed());
        Entry { head: Head { op, flags, file, ..head }, command: [0; 2] }
    }

    /// Reads from byte `offset` of `file` on into `span`. Completes with the bytes read, fewer at the end of the file.
    #[inline]
    pub fn read(file: FileSlot, offset: u64, Span { addr, len, slot }: Span) -> Entry {
        let (op, buffer) = slot.map_or((IoringOp::Read, 0), |slot| (IoringOp::ReadFixed, slot));
        Entry::new(op, file, Head { offset: halves(offset), addr: addr as u64, len, buffer, ..Head::default() })
    }

    /// Writes `span` from byte `offset` of `file` on. Completes with the bytes written; `durable` (RWF_DSYNC): once they are on the
    /// medium, by FUA where the device has it.
    #[inline]
    pub fn write(file: FileSlot, offset: u64, Span { addr, len, slot }: Span, durable: bool) -> Entry {
        let (op, buffer) = slot.map_or((IoringOp::Write, 0), |slot| (IoringOp::WriteFixed, slot));
        let op_flags = if durable { libc::RWF_DSYNC as u32 } else { 0 };
        Entry::new(op, file, Head { offset: halves(offset), addr: addr as u64, len, op_flags, buffer, ..Head::default() })
    }

    /// Puts what was written before onto the medium; `data_only` as fdatasync(2). It is not ordered after entries that
    /// have not completed.
    pub fn fsync(file: FileSlot, data_only: bool) -> Entry {
        Entry::new(IoringOp::Fsync, file, Head { op_flags: if data_only { DATASYNC } else { 0 }, ..Head::default() })
    }

    /// fallocate(2) with `mode` (FALLOC_FL_…) for `len` bytes from `offset` on. Completes with 0.
    pub fn allocate(file: FileSlot, mode: i32, offset: u64, len: u64) -> Entry {
        let head = Head { offset: halves(offset), addr: len, len: mode.cast_unsigned(), ..Head::default() };
        Entry::new(IoringOp::Fallocate, file, head)
    }

    /// Has the block device `file` discard `len` bytes from `offset` on, as the ioctl BLKDISCARD does (6.12). Completes with 0.
    pub fn discard(file: FileSlot, offset: u64, len: u64) -> Entry {
        // The length is where other commands begin (`addr3`).
        let head = Head { offset: [DISCARD, 0], addr: offset, ..Head::default() };
        Entry { command: [len, 0], ..Entry::new(IoringOp::UringCmd, file, head) }
    }

    /// Completes once `file` is readable (poll(2), POLLIN), with the events that came. If it is to go on (`multishot`), it completes
    /// again for each time that something new arrives; [`Cqe::more`](super::Cqe::more) says whether it will.
    pub fn poll(file: FileSlot, multishot: bool) -> Entry {
        let flags = if multishot { IoringPollFlags::ADD_MULTI } else { IoringPollFlags::empty() };
        // The kernel wants the 16-bit halves of the events in the order of little-endian machines.
        let events = (libc::POLLIN as u32).rotate_left(if cfg!(target_endian = "big") { 16 } else { 0 });
        Entry::new(IoringOp::PollAdd, file, Head { len: flags.bits(), op_flags: events, ..Head::default() })
    }

    /// Cancels the first request with this user data. Completes with 0; ENOENT if there is none; EALREADY if it cannot
    /// be cancelled any more. What was cancelled completes with ECANCELED or EINTR.
    pub fn cancel(user_data: u64) -> Entry {
        Entry { head: Head { op: IoringOp::AsyncCancel as u8, file: -1, addr: user_data, ..Head::default() }, command: [0; 2] }
    }

    /// Completes with 0.
    pub fn nop() -> Entry {
        Entry { head: Head { op: IoringOp::Nop as u8, file: -1, ..Head::default() }, command: [0; 2] }
    }

    /// What its completions carry.
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

/// An NVMe command that passes through the kernel (`/dev/ngXnY`), for a big ring (IORING_OP_URING_CMD). It completes with the NVMe
/// status, or a negative errno; the first of the big words is the command's result.
#[repr(C)]
#[derive(Debug)]
#[must_use = "a command is asked for once it is pushed"]
pub struct Command {
    head: Head,
    command: NvmeCommand,
}

impl Command {
    /// `command` to the namespace that `file` is, with `data`, which stays lent until the completion. The number of bytes
    /// is to be what the command transfers: a device may take no notice of where they end.
    #[inline]
    pub fn new(file: FileSlot, command: &Sqe, data: Option<Span>) -> Command {
        let (addr, len, slot) = data.map_or((0, 0, None), |span| (span.addr as u64, span.len, span.slot));
        let op_flags = if slot.is_some() { IoringUringCmdFlags::FIXED.bits() } else { 0 };
        let head = Head { offset: [NVME_URING_CMD_IO, 0], op_flags, buffer: slot.unwrap_or(0), ..Head::default() };
        Command { head: Entry::new(IoringOp::UringCmd, file, head).head, command: NvmeCommand::new(command, addr, len) }
    }

    /// What its completion carries.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Command {
        self.head.user_data = user_data;
        self
    }
}

/// `struct nvme_uring_cmd` (linux/nvme_ioctl.h), 72 bytes, in the 80 that a big entry has; `struct nvme_admin_cmd` is the same.
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
    /// Identifier and data pointers are the kernel's to fill in; so is the time-out, its own default.
    #[inline]
    pub(crate) fn new(command: &Sqe, addr: u64, len: u32) -> NvmeCommand {
        let &Sqe { opcode, flags, nsid, cdw2, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } = command;
        let cdw10 = [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15];
        let (metadata, metadata_len) = (0, 0);
        NvmeCommand { opcode, flags, reserved: 0, nsid, cdw2, metadata, addr, metadata_len, len, cdw10, timeout_ms: 0, result: 0, rest: 0 }
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
        assert_eq!((command.opcode, command.flags, command.nsid, command.cdw2), (1, 1, low(1), [low(2); 2]));
        assert_eq!((command.metadata, command.addr, command.metadata_len, command.len), (0, 0x1122_3344_5566_7788, 0, 4096));
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
        let at = [offset_of!(Head, addr), offset_of!(Head, len), offset_of!(Head, user_data), offset_of!(Head, buffer)];
        assert_eq!((at, size_of::<Head>(), offset_of!(Command, command)), ([16, 24, 32, 40], 48, 48));
    }
}
