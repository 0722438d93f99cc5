//! How blocks are zeroed and deallocated: which of three kernel operations the file system or the
//! device supports. What is not known at open is found out by the first request that needs it.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use hw::uring::{Entry, FileSlot};
use rustix::fs::FallocateFlags;
use units::Op;

use super::target::{TargetFacts, TargetKind};

/// File systems without holes (fs/*: no FALLOC_FL_PUNCH_HOLE, or no fallocate at all). Others are
/// asked by the first request.
const WITHOUT_HOLES: [&str; 15] = [
    "9p", "adfs", "affs", "exfat", "hfs", "hfsplus", "jffs2", "jfs", "minix", "msdos", "nilfs2",
    "ramfs", "ubifs", "udf", "vfat",
];

/// One method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroMethod {
    /// FALLOC_FL_ZERO_RANGE: zeroes that stay allocated. For a block device without Write Zeroes
    /// the kernel writes them.
    Zero,
    /// FALLOC_FL_PUNCH_HOLE: zeroes that are deallocated; for a block device, Write Zeroes that may
    /// unmap.
    Punch,
    /// BLOCK_URING_CMD_DISCARD: deallocates, and later reads may return anything. Block devices
    /// only.
    Discard,
}

/// The operations that one file or block device supports.
pub(super) struct ZeroMethods {
    /// Path and file system or disk, for messages.
    of: String,
    /// Those that are not supported, a bit each.
    refused: AtomicU8,
}

impl ZeroMethod {
    /// The SQE that does it to `bytes` bytes from `offset` on.
    pub(super) fn entry(self, file: FileSlot, offset: u64, bytes: u64) -> Entry {
        let allocate =
            |mode: FallocateFlags| Entry::allocate(file, mode.bits().cast_signed(), offset, bytes);
        match self {
            // Without KEEP_SIZE, as a Write: beyond the end of a truncated file it extends the
            // file.
            ZeroMethod::Zero => allocate(FallocateFlags::ZERO_RANGE),
            ZeroMethod::Punch => allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            ZeroMethod::Discard => Entry::discard(file, offset, bytes),
        }
    }
}

impl ZeroMethods {
    /// The operations of a target, as far as they are known without trying. `discards`: this kernel
    /// supports discard through io_uring.
    pub(super) fn new(path: &str, facts: &TargetFacts, discards: bool) -> ZeroMethods {
        let name = String::from("a namespace");
        let (on, lacks) = match &facts.kind {
            TargetKind::File { filesystem } if WITHOUT_HOLES.contains(&&**filesystem) => {
                (filesystem, vec![ZeroMethod::Zero, ZeroMethod::Punch, ZeroMethod::Discard])
            }
            TargetKind::File { filesystem } => (filesystem, vec![ZeroMethod::Discard]),
            TargetKind::Block { disk, .. } => {
                let has = |has: fn(&super::target::DiskFacts) -> bool| {
                    facts.disk.as_ref().is_some_and(has)
                };
                let punch = (!has(|disk| disk.write_zeroes)).then_some(ZeroMethod::Punch);
                let discard =
                    (!discards || !has(|disk| disk.discard)).then_some(ZeroMethod::Discard);
                (disk, punch.into_iter().chain(discard).collect())
            }
            // Pass-through: the controller's own commands, known at open.
            TargetKind::Namespace(_) => (&name, vec![ZeroMethod::Discard]),
        };
        let refused = lacks.iter().fold(0, |bits, method| bits | method.bit());
        ZeroMethods { of: format!("{path} ({on})"), refused: AtomicU8::new(refused) }
    }

    /// The method for `op`, and the fallback should the kernel refuse it. `keep`: the blocks stay
    /// allocated.
    pub(super) fn choose(&self, op: Op, keep: bool) -> (ZeroMethod, Option<ZeroMethod>) {
        let order = ZeroMethods::order(op, keep);
        let mut left = order.into_iter().filter(|&method| self.has(method));
        match left.next() {
            Some(first) => (first, left.next()),
            // None left: the kernel refuses it once more, and the request fails with that error.
            None => (order[1], None),
        }
    }

    /// The methods in the order in which they are tried. Deallocating ones first, as the embedded
    /// controller does.
    fn order(op: Op, keep: bool) -> [ZeroMethod; 2] {
        match (op, keep) {
            (Op::Deallocate, _) => [ZeroMethod::Discard, ZeroMethod::Punch],
            (_, true) => [ZeroMethod::Zero, ZeroMethod::Punch],
            (_, false) => [ZeroMethod::Punch, ZeroMethod::Zero],
        }
    }

    /// Whether any method supports `op`.
    pub(super) fn any(&self, op: Op) -> bool {
        ZeroMethods::order(op, false).into_iter().any(|method| self.has(method))
    }

    fn has(&self, method: ZeroMethod) -> bool {
        self.refused.load(Relaxed) & method.bit() == 0
    }

    /// Notes that the target does not support `method`; it is not tried again.
    #[cold]
    pub(super) fn refuse(&self, method: ZeroMethod) {
        let before = self.refused.fetch_or(method.bit(), Relaxed);
        for op in [Op::WriteZeroes, Op::Deallocate] {
            // Logged once, when the last method for an operation is gone.
            let had =
                ZeroMethods::order(op, false).into_iter().any(|method| before & method.bit() == 0);
            if had && !self.any(op) {
                tracing::warn!(
                    "kernel:{} cannot carry out {op:?}: requests for it are refused; write zeroes by Write instead",
                    self.of
                );
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
