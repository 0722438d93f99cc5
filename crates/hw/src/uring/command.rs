//! NVMe commands that pass through the kernel (`/dev/ngXnY`).

use std::num::NonZeroU64;

use io_uring::{opcode, squeue};
use nvme::Sqe;

use super::file::{File, with_file};
use super::span::Span;

/// NVME_URING_CMD_IO: `_IOWR('N', 0x80, struct nvme_uring_cmd)` (linux/nvme_ioctl.h).
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;

/// The fields of an I/O command that the kernel leaves to the caller. It fills in the rest: identifier, pointers to data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvmeCommand {
    /// Opcode.
    pub opcode: u8,
    /// FUSE bits.
    pub flags: u8,
    /// Namespace identifier: that of the file.
    pub nsid: u32,
    /// Dwords 2 and 3.
    pub cdw2: [u32; 2],
    /// Dwords 10 to 15.
    pub cdw10: [u32; 6],
    /// Milliseconds until the kernel aborts it; 0: its own default.
    pub timeout_ms: u32,
}

impl NvmeCommand {
    /// `struct nvme_uring_cmd`, 72 bytes, in the 80 that a big entry has.
    #[inline]
    pub(crate) fn bytes(&self, addr: u64, len: u32) -> [u8; 80] {
        let mut bytes = [0; 80];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&[self.opcode, self.flags, 0, 0]);
        put(&self.nsid.to_ne_bytes());
        self.cdw2.iter().for_each(|dword| put(&dword.to_ne_bytes()));
        // No metadata: its address, and below its length.
        put(&0u64.to_ne_bytes());
        put(&addr.to_ne_bytes());
        put(&0u32.to_ne_bytes());
        put(&len.to_ne_bytes());
        self.cdw10.iter().for_each(|dword| put(&dword.to_ne_bytes()));
        put(&self.timeout_ms.to_ne_bytes());
        bytes
    }
}

/// The same command, by the kernel's time-out. Data pointers and identifier are the kernel's to fill in.
impl From<Sqe> for NvmeCommand {
    #[inline]
    fn from(sqe: Sqe) -> NvmeCommand {
        let cdw10 = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
        NvmeCommand { opcode: sqe.opcode, flags: sqe.flags, nsid: sqe.nsid, cdw2: sqe.cdw2, cdw10, timeout_ms: 0 }
    }
}

/// A command for a big ring (IORING_OP_URING_CMD). It completes with the NVMe status, or a negative errno; the first of the
/// big words is the command's result.
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
    pub fn new(file: impl Into<File>, command: &NvmeCommand, data: Option<Span>) -> Command {
        let file = file.into();
        let (addr, len, slot) = data.map_or((0, 0, None), |span| (span.at.as_ptr() as u64, span.len, span.slot));
        let bytes = command.bytes(addr, len);
        let sqe = with_file!(file, |fd| opcode::UringCmd80::new(fd, NVME_URING_CMD_IO).cmd(bytes).buf_index(slot).build());
        Command { sqe, ring: file.ring() }
    }

    /// What its completion carries.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Command {
        self.sqe = self.sqe.user_data(user_data);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_where_the_kernel_reads_them() {
        let command = NvmeCommand { opcode: 2, flags: 3, nsid: 4, cdw2: [5, 6], cdw10: [10, 11, 12, 13, 14, 15], timeout_ms: 99 };
        let bytes = command.bytes(0x1122_3344_5566_7788, 4096);
        let dword = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((bytes[0], bytes[1], dword(4), dword(8), dword(12)), (2, 3, 4, 5, 6));
        assert_eq!(u64::from_ne_bytes(bytes[24..32].try_into().unwrap()), 0x1122_3344_5566_7788);
        assert_eq!((dword(32), dword(36)), (0, 4096));
        assert_eq!([40, 44, 48, 52, 56, 60, 64].map(dword), [10, 11, 12, 13, 14, 15, 99]);
        assert_eq!(bytes[68..], [0; 12]);
    }

    #[test]
    fn an_entry_of_the_specification_keeps_all_but_its_pointers_and_its_identifier() {
        let words: [u64; 8] = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as u64 + 1));
        let command = NvmeCommand::from(Sqe::from_words(words));
        let (low, twice) = (|n: u32| n * 0x0101_0101, |n: u32| [n * 0x0101_0101; 2]);
        assert_eq!((command.opcode, command.flags, command.nsid, command.cdw2), (1, 1, low(1), twice(2)));
        assert_eq!((command.cdw10, command.timeout_ms), ([low(6), low(6), low(7), low(7), low(8), low(8)], 0));
    }
}
