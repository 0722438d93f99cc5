//! Tests whether the kernel passes NVMe commands through, with a Read of one block on a ring of its
//! own.

use std::fs::File;

use hw::DmaPool;
use hw::uring::{Enter, Features, FileSlot, Options, PassthroughCommand, Ring, Span};
use nvme::Lba;
use nvme::io::{Flags, read};
use nvme::prp::Dptr;
use rustix::io::Errno;

use super::namespace::{Passthrough, passthrough_denied};
use super::target::no_device;
use crate::error::TargetFault;

const TARGET: FileSlot = FileSlot(0);

/// The test, with what it needs.
pub(super) struct PassthroughProbe<'a> {
    pub file: &'a File,
    pub pool: &'a DmaPool,
    pub features: &'a Features,
    pub passthrough: Passthrough,
}

impl PassthroughProbe<'_> {
    /// Reads the first block, with registered memory (Linux 6.1) and if that fails without. Returns
    /// whether registered memory works.
    ///
    /// # Errors
    /// The kernel passes no commands through, or none of this user's.
    pub(super) fn run(&self) -> Result<bool, TargetFault> {
        if !self.features.big {
            return Err(TargetFault::Kernel(NO_PASSTHROUGH.into()));
        }
        match self.read_block(true)? {
            // How older kernels refuse registered memory with pass-through.
            Some(Errno::INVAL | Errno::FAULT) => {
                check_result(self.read_block(false)?).map(|()| false)
            }
            answer => check_result(answer).map(|()| true),
        }
    }

    /// The errno of a Read of the first block; `None`: it passed.
    fn read_block(&self, registered: bool) -> Result<Option<Errno>, TargetFault> {
        let refused = |e: &dyn std::fmt::Display| TargetFault::Kernel(e.to_string());
        let (ring, mut sq, mut cq) = Ring::new(&Options {
            entries: 2,
            big: true,
            files: 1,
            buffers: 1,
            ..Options::default()
        })
        .map_err(|e| refused(&e))?;
        ring.register_file(TARGET, self.file).map_err(|e| refused(&e))?;
        let lent =
            self.pool.alloc(1 << self.passthrough.block_log2).map_err(|e| refused(&e))?.lend();
        // Memory that cannot be locked (RLIMIT_MEMLOCK) is used unregistered, here and later.
        let fixed = if registered { ring.register_buffer(0, &lent).ok() } else { None };
        let span = fixed.map_or_else(
            || Span::of(&lent, 0..lent.len()),
            |fixed| Span::fixed(&lent, 0..lent.len(), fixed),
        );
        let command = read(self.passthrough.nsid, Lba(0), 1, Dptr::NONE, Flags::NONE);
        if !sq.push_command(PassthroughCommand::new(TARGET, &command, Some(span))) {
            return Err(refused(&"an empty ring has no room"));
        }
        let mut submit = sq.unsubmitted();
        let cqe = loop {
            if let Some(cqe) = cq.pop() {
                break cqe;
            }
            // On an error the buffer stays lent (leaked): the kernel may have the command.
            submit -= ring
                .enter(Enter { submit, wait_for: 1, ..Enter::default() })
                .map_err(|e| refused(&e))?;
        };
        drop(lent.take_back());
        // Rings close late, but the device must be free as soon as it is closed.
        _ = ring.unregister_file(TARGET);
        Ok((cqe.result < 0).then(|| Errno::from_raw_os_error(-cqe.result)))
    }
}

const NO_PASSTHROUGH: &str = "its io_uring passes no NVMe commands through; Linux 5.19 and newer do, and the block device of the namespace needs none";

/// Judges the result. A command that the controller failed has passed through too.
fn check_result(answer: Option<Errno>) -> Result<(), TargetFault> {
    match answer {
        None => Ok(()),
        Some(errno @ (Errno::ACCESS | Errno::PERM)) => Err(passthrough_denied(errno.into())),
        Some(Errno::OPNOTSUPP | Errno::NOTTY) => Err(TargetFault::Kernel(NO_PASSTHROUGH.into())),
        Some(errno @ (Errno::NODEV | Errno::NXIO)) => Err(no_device(&errno.into())),
        Some(errno) => {
            Err(TargetFault::System { what: "read its first block", source: errno.into() })
        }
    }
}
