//! An NVMe namespace opened by its character device (`/dev/ng0n1`, Linux 5.13): what Identify
//! reports of it and of its controller.

use std::fs::File;
use std::io;

use driver::{SplitError, Splitter};
use hw::passthrough::{CommandError, identify, nsid};
use nvme::admin::{Identify, cns};
use nvme::identify::{Controller, IdentifyNamespace as NamespacePage, NvmController, NvmNamespace};
use nvme::io::MAX_BLOCKS;
use nvme::prp::Dptr;
use nvme::regs::{Cap, Version};
use nvme::{Nsid, Page};
use rustix::io::Errno;

use crate::error::TargetFault;
use hw::block::Disk;

/// The maximum number of bytes of a command, even if the device allows more.
const MAX_BYTES: u64 = 1 << 20;

/// Bytes of the pages that the kernel counts as DMA segments.
const PAGE: u64 = 4096;

/// A namespace to which commands pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passthrough {
    /// Its namespace identifier.
    pub(crate) nsid: Nsid,
    /// Log2 of the bytes of its logical blocks. The device's blocks may be larger (`lba=`).
    pub(crate) block_log2: u8,
    /// How requests are split, in the device's blocks.
    pub(crate) splitter: Splitter,
    /// Opened with `readonly=yes`. Enforced here, because the kernel would let root write all the
    /// same.
    pub(crate) read_only: bool,
}

/// What Identify reports.
pub(super) struct IdentifyData {
    /// The limits of the controller's commands.
    pub(super) limits: driver::Limits,
    /// The namespace and its format.
    pub(super) usable: driver::Namespace,
}

impl IdentifyData {
    /// Sends Identify commands to the namespace that `file` is.
    pub(super) fn read(file: &File) -> Result<IdentifyData, TargetFault> {
        let nsid = nsid(file)
            .map_err(|source| TargetFault::System { what: "ask which namespace it is", source })?;
        let controller =
            Controller::from_page(&*page(file, cns::CONTROLLER, Nsid(0))?).map_err(too_short)?;
        let namespace =
            NamespacePage::from_page(&*page(file, cns::NAMESPACE, nsid)?).map_err(too_short)?;
        // Controllers before version 2.0 reject these CNS values.
        let newer = Version::from_bits(controller.ver).major() >= 2;
        let asked = |cns, nsid| newer.then(|| page(file, cns, nsid).ok()).flatten();
        let extended = asked(cns::COMMAND_SET_NAMESPACE, nsid)
            .and_then(|page| NvmNamespace::from_page(&*page).ok());
        let commands = asked(cns::COMMAND_SET_CONTROLLER, Nsid(0))
            .and_then(|page| NvmController::from_page(&*page).ok());
        IdentifyData::new(nsid, (&controller, commands.as_ref()), (&namespace, extended.as_ref()))
    }

    /// Checks the pages: of the controller and its command set, of the namespace and its format. A
    /// page that is missing means a feature that is not there.
    fn new(
        nsid: Nsid,
        (controller, commands): (&Controller, Option<&NvmController>),
        (namespace, extended): (&NamespacePage, Option<&NvmNamespace>),
    ) -> Result<IdentifyData, TargetFault> {
        // The kernel does not show CAP. It has created queues, so queues are possible; MDTS counts
        // in units of CAP.MPSMIN, for which 4 KiB (0) is the smallest and so the safe value.
        let cap = Cap::new().with_mqes(u16::MAX).with_css(Cap::CSS_NVM);
        let limits = driver::Limits::new(cap, controller).map_err(|why| {
            TargetFault::Unusable(format!("its controller cannot be used: {why}"))
        })?;
        let limits = commands.map_or(limits, |commands| limits.with_command_set(cap, commands));
        let format = namespace.format_index();
        let usable = driver::Namespace::new(nsid, namespace);
        let usable = match extended.map(|page| page.format(format)) {
            Some(extended) => usable
                .map_err(|why| why.with_extended(extended))
                .and_then(|ns| ns.with_extended(format, extended)),
            None => usable,
        };
        let usable =
            usable.map_err(|why| TargetFault::Unusable(format!("it cannot be used: {why}")))?;
        Ok(IdentifyData { limits, usable })
    }

    /// The pass-through parameters for blocks of `lba_bytes` bytes, a multiple of the namespace's.
    pub(super) fn passthrough(
        &self,
        lba_bytes: u32,
        disk: &Disk,
        read_only: bool,
    ) -> Result<Passthrough, TargetFault> {
        let splitter = self.splitter(lba_bytes.ilog2() as u8, disk);
        let splitter = splitter.map_err(|e| TargetFault::System {
            what: "split requests to it",
            source: io::Error::other(e),
        })?;
        Ok(Passthrough {
            nsid: self.usable.nsid,
            block_log2: self.usable.block_log2,
            splitter,
            read_only,
        })
    }

    /// The splitter for blocks of 2^`log2` bytes, at least as large as the namespace's. A
    /// Deallocate has one range, counted in the namespace's blocks.
    fn splitter(&self, log2: u8, disk: &Disk) -> Result<Splitter, SplitError> {
        let per = log2.saturating_sub(self.usable.block_log2);
        // A boundary that is no multiple of the larger blocks cannot be kept.
        let boundary = if self.usable.boundary.trailing_zeros() >= per.into() {
            self.usable.boundary >> per
        } else {
            0
        };
        let zeroes =
            self.limits.write_zeroes.map(|bytes| (bytes >> log2).min(u64::from(MAX_BLOCKS) >> per));
        // Ranges count the namespace's blocks: with larger ones the caller's lists would be wrong.
        let ranges = self.limits.deallocate.filter(|_| per == 0);
        let splitter = Splitter::new(log2, self.max_bytes(disk).max(1 << log2), boundary)?;
        let splitter = splitter
            .with_dataless(zeroes, ranges.map(|most| most.blocks.min(most.range_blocks.into())));
        let most = |bytes: u64| (bytes >> log2).min(u64::from(MAX_BLOCKS) >> per);
        let splitter = splitter.with_checks(self.limits.compare, self.limits.verify.map(most));
        Ok(splitter
            .with_uncorrectable(self.limits.uncorrectable.map(most))
            .with_ranges(ranges.map_or(1, |most| most.ranges)))
    }

    /// The maximum number of bytes of a command. The kernel does not split a pass-through command:
    /// it maps all of its data or fails it. A buffer that begins within a page has one page more.
    fn max_bytes(&self, disk: &Disk) -> u64 {
        let by_pages = disk
            .queue("max_segments")
            .map(|pages| pages.saturating_sub(1).max(1).saturating_mul(PAGE));
        let by_kernel = disk.queue("max_hw_sectors_kb").map(|kib| kib.saturating_mul(1024));
        let limits = [self.limits.max_transfer, by_pages, by_kernel];
        let most =
            limits.into_iter().flatten().fold(MAX_BYTES, u64::min).max(self.usable.block_size());
        1 << most.ilog2()
    }
}

/// The present size of the namespace in bytes.
pub(super) fn current_bytes(file: &File, nsid: Nsid) -> io::Result<u64> {
    let page = identify(file, &Identify::new(cns::NAMESPACE, nsid, Dptr::NONE))
        .map_err(io::Error::other)?;
    let namespace = NamespacePage::from_page(&*page).map_err(io::Error::other)?;
    driver::Namespace::new(nsid, &namespace).map(|usable| usable.bytes()).map_err(io::Error::other)
}

fn page(file: &File, cns: u8, nsid: Nsid) -> Result<Box<[u8; Identify::LEN]>, TargetFault> {
    identify(file, &Identify::new(cns, nsid, Dptr::NONE)).map_err(|e| match e {
        CommandError::System(source)
            if matches!(Errno::from_io_error(&source), Some(Errno::ACCESS | Errno::PERM)) =>
        {
            passthrough_denied(source)
        }
        CommandError::System(source) => TargetFault::System { what: "identify it", source },
        status @ CommandError::Status(_) => {
            TargetFault::System { what: "identify it", source: io::Error::other(status) }
        }
    })
}

/// The error where the kernel passes no commands of this user on.
pub(super) fn passthrough_denied(source: io::Error) -> TargetFault {
    let what = format!(
        "the kernel passes no NVMe commands of this user's to it ({source}); be root, use its block device, or have Linux 6.2 and a controller that reports the effects of its commands"
    );
    TargetFault::Permission { what, source }
}

fn too_short(short: impl std::error::Error + Send + Sync + 'static) -> TargetFault {
    TargetFault::System { what: "identify it", source: io::Error::other(short) }
}

#[cfg(test)]
mod tests;
