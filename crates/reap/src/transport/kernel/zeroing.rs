//! How blocks are zeroed, and given back: what of it the file system or the device has.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use hw::uring::{Entry, FileSlot};
use rustix::fs::FallocateFlags;
use units::Op;

use super::target::{TargetFacts, TargetKind};

/// File systems without holes (fs/*: no FALLOC_FL_PUNCH_HOLE where they allocate, or no fallocate at all). What is not here is asked
/// at the first request.
const WITHOUT_HOLES: [&str; 15] =
    ["9p", "adfs", "affs", "exfat", "hfs", "hfsplus", "jffs2", "jfs", "minix", "msdos", "nilfs2", "ramfs", "ubifs", "udf", "vfat"];

/// One method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroMethod {
    /// Zeroes that keep their room (FALLOC_FL_ZERO_RANGE). The kernel writes them to a block device that has no command for it.
    Zero,
    /// Zeroes that give their room back (FALLOC_FL_PUNCH_HOLE): of a block device, Write Zeroes that may unmap.
    Punch,
    /// Room is given back, and nothing is said of what is read then (BLOCK_URING_CMD_DISCARD): block devices alone.
    Discard,
}

/// The methods of one file or block device.
pub(super) struct ZeroMethods {
    /// For people: path, and what it lies on.
    of: String,
    /// Those that have been refused, a bit each.
    refused: AtomicU8,
}

impl ZeroMethod {
    /// What asks the kernel to do it to `bytes` bytes from `offset` on.
    pub(super) fn entry(self, file: FileSlot, offset: u64, bytes: u64) -> Entry {
        let allocate = |mode: FallocateFlags| Entry::allocate(file, mode.bits().cast_signed(), offset, bytes);
        match self {
            // The size is not kept: what lies controller the end of a file that was truncated comes to be, as by a Write.
            ZeroMethod::Zero => allocate(FallocateFlags::ZERO_RANGE),
            ZeroMethod::Punch => allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            ZeroMethod::Discard => Entry::discard(file, offset, bytes),
        }
    }
}

impl ZeroMethods {
    /// Those of a target, as far as the system tells without being asked for them. `discards`: the kernel discards by entries.
    pub(super) fn new(path: &str, facts: &TargetFacts, discards: bool) -> ZeroMethods {
        let name = String::from("a namespace");
        let (on, lacks) = match &facts.kind {
            TargetKind::File { filesystem } if WITHOUT_HOLES.contains(&&**filesystem) => {
                (filesystem, vec![ZeroMethod::Zero, ZeroMethod::Punch, ZeroMethod::Discard])
            }
            TargetKind::File { filesystem } => (filesystem, vec![ZeroMethod::Discard]),
            TargetKind::Block { disk, .. } => {
                let has = |has: fn(&super::target::DiskFacts) -> bool| facts.disk.as_ref().is_some_and(has);
                let punch = (!has(|disk| disk.write_zeroes)).then_some(ZeroMethod::Punch);
                let discard = (!discards || !has(|disk| disk.discard)).then_some(ZeroMethod::Discard);
                (disk, punch.into_iter().chain(discard).collect())
            }
            // Its commands are its own, and what a command lacks is known at open.
            TargetKind::Namespace(_) => (&name, vec![ZeroMethod::Discard]),
        };
        let refused = lacks.iter().fold(0, |bits, method| bits | method.bit());
        ZeroMethods { of: format!("{path} ({on})"), refused: AtomicU8::new(refused) }
    }

    /// By which method, and by which other should that one be refused.
    pub(super) fn choose(&self, op: Op, keep: bool) -> (ZeroMethod, Option<ZeroMethod>) {
        let order = ZeroMethods::order(op, keep);
        let mut left = order.into_iter().filter(|&method| self.has(method));
        match left.next() {
            Some(first) => (first, left.next()),
            // The kernel says once more that there is none.
            None => (order[1], None),
        }
    }

    /// In the order in which they are tried. What may be given back is, if it can be had: the embedded controller does the same.
    fn order(op: Op, keep: bool) -> [ZeroMethod; 2] {
        match (op, keep) {
            (Op::Deallocate, _) => [ZeroMethod::Discard, ZeroMethod::Punch],
            (_, true) => [ZeroMethod::Zero, ZeroMethod::Punch],
            (_, false) => [ZeroMethod::Punch, ZeroMethod::Zero],
        }
    }

    /// Whether there is any for this.
    pub(super) fn any(&self, op: Op) -> bool {
        ZeroMethods::order(op, false).into_iter().any(|method| self.has(method))
    }

    fn has(&self, method: ZeroMethod) -> bool {
        self.refused.load(Relaxed) & method.bit() == 0
    }

    /// The file system or the device does not have it: nobody asks again.
    #[cold]
    pub(super) fn refuse(&self, method: ZeroMethod) {
        let before = self.refused.fetch_or(method.bit(), Relaxed);
        for op in [Op::WriteZeroes, Op::Deallocate] {
            let had = ZeroMethods::order(op, false).into_iter().any(|method| before & method.bit() == 0);
            if had && !self.any(op) {
                tracing::warn!("kernel:{} cannot carry out {op:?}: requests for it are refused; write zeroes by Write instead", self.of);
            }
        }
    }
}

impl ZeroMethod {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

#[cfg(test)]
pub(super) mod tests;
