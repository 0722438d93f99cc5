//! An NVMe namespace by its character device (`/dev/ng0n1`, Linux 5.13): what its controller says of it, and the block device that is held
//! so that nobody else writes.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use blkmq::{SplitError, Splitter};
use hw::passthrough::{CommandError, identify, nsid};
use nvme::admin::{Identify, cns};
use nvme::identify::{Controller, Namespace as NamespacePage, NvmController, NvmNamespace};
use nvme::io::MAX_BLOCKS;
use nvme::prp::Dptr;
use nvme::regs::{Cap, Version};
use nvme::{Nsid, Page};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{DiskFacts, Facts, Kind, Opening, Target, stat_failed};
use crate::error::TargetFault;
use crate::link::kernel::disk::Disk;
use crate::link::kernel::passthrough::Passthrough;
use crate::link::kernel::uri::Buffered;

/// What addresses of buffers are multiples of: dwords (Base 4.1.1).
const DWORD: u32 = 4;

/// Most bytes of a command, whatever the device takes.
const MOST_BYTES: u64 = 1 << 20;

/// Bytes of the pages that the kernel makes segments of.
const PAGE: u64 = 4096;

/// What a controller says.
struct Said {
    limits: driver::Limits,
    /// How the namespace can be used.
    usable: driver::Namespace,
}

impl Said {
    /// Asks the controller of the namespace that `file` is.
    fn by(file: &File) -> Result<Said, TargetFault> {
        let nsid = nsid(file).map_err(|source| TargetFault::System { what: "ask which namespace it is", source })?;
        let controller = Controller::from_page(&*page(file, cns::CONTROLLER, Nsid(0))?).map_err(too_short)?;
        let namespace = NamespacePage::from_page(&*page(file, cns::NAMESPACE, nsid)?).map_err(too_short)?;
        // Who asks an older controller for these is refused.
        let newer = Version::from_bits(controller.ver).major() >= 2;
        let asked = |cns, nsid| newer.then(|| page(file, cns, nsid).ok()).flatten();
        let extended = asked(cns::COMMAND_SET_NAMESPACE, nsid).and_then(|page| NvmNamespace::from_page(&*page).ok());
        let commands = asked(cns::COMMAND_SET_CONTROLLER, Nsid(0)).and_then(|page| NvmController::from_page(&*page).ok());
        Said::of(nsid, (&controller, commands.as_ref()), (&namespace, extended.as_ref()))
    }

    /// Checks what it says: of the controller and its commands, of the namespace and its format. What is not said is not there.
    fn of(
        nsid: Nsid,
        (controller, commands): (&Controller, Option<&NvmController>),
        (namespace, extended): (&NamespacePage, Option<&NvmNamespace>),
    ) -> Result<Said, TargetFault> {
        // The kernel shows no registers. It has made queues; and pages are at least as small as this (CAP.MPSMIN 0), in which MDTS counts.
        let cap = Cap::new().with_mqes(u16::MAX).with_css(Cap::CSS_NVM);
        let limits = driver::Limits::new(cap, controller).map_err(TargetFault::Controller)?;
        let limits = commands.map_or(limits, |commands| limits.with_command_set(cap, commands));
        let format = namespace.format_index();
        let usable = driver::Namespace::new(nsid, namespace);
        let usable = match extended.map(|page| page.format(format)) {
            Some(extended) => usable.map_err(|why| why.with_extended(extended)).and_then(|ns| ns.with_extended(format, extended)),
            None => usable,
        }?;
        Ok(Said { limits, usable })
    }

    /// How requests are split in blocks of 2^`log2` bytes, as large as the namespace's or larger. Of its list a Deallocate has one range,
    /// in the namespace's blocks.
    fn splitter(&self, log2: u8, disk: &Disk) -> Result<Splitter, SplitError> {
        let per = log2.saturating_sub(self.usable.block_log2);
        let boundary = if self.usable.boundary.trailing_zeros() >= per.into() { self.usable.boundary >> per } else { 0 };
        let zeroes = self.limits.write_zeroes.map(|bytes| (bytes >> log2).min(u64::from(MAX_BLOCKS) >> per));
        let ranges = self.limits.deallocate.filter(|_| per == 0);
        let splitter = Splitter::new(log2, self.most_bytes(disk).max(1 << log2), boundary)?;
        Ok(splitter.with_dataless(zeroes, ranges.map(|most| most.blocks.min(most.range_blocks.into()))))
    }

    /// Most bytes of a command. The kernel maps a command's data as it is, or not at all; a buffer that begins within a page has a page
    /// more.
    fn most_bytes(&self, disk: &Disk) -> u64 {
        let by_pages = disk.queue("max_segments").map(|pages| pages.saturating_sub(1).max(1).saturating_mul(PAGE));
        let by_kernel = disk.queue("max_hw_sectors_kb").map(|kib| kib.saturating_mul(1024));
        let limits = [self.limits.max_transfer, by_pages, by_kernel];
        let most = limits.into_iter().flatten().fold(MOST_BYTES, u64::min).max(self.usable.block_size());
        1 << most.ilog2()
    }

    /// Corrects what the kernel says of its disk: there, it has added what it does itself.
    fn correct(&self, disk: DiskFacts) -> DiskFacts {
        DiskFacts {
            volatile_cache: self.limits.volatile_cache,
            write_zeroes: self.limits.write_zeroes.is_some(),
            discard: self.limits.deallocate.is_some(),
            ..disk
        }
    }
}

impl Opening<'_> {
    pub(super) fn namespace(&self, meta: &Metadata, disk: Option<Disk>) -> Result<Target, TargetFault> {
        if self.uri.buffered == Buffered::Yes {
            return Err(TargetFault::NoPageCache);
        }
        let file = self.open_with(&self.uri.path, OFlags::empty()).map_err(|e| self.refused(e, true))?;
        if file.metadata().map_err(stat_failed)?.rdev() != meta.rdev() {
            return Err(TargetFault::Replaced);
        }
        let said = Said::by(&file)?;
        let disk = disk.ok_or(TargetFault::NoBlockDevice)?;
        if disk.nsid().is_some_and(|nsid| nsid != said.usable.nsid.0) {
            return Err(TargetFault::Replaced);
        }
        // A zoned namespace takes commands of its own.
        if let Some(zoned) = disk.queue_text("zoned").filter(|zoned| zoned != "none") {
            return Err(TargetFault::Zoned(zoned));
        }
        let held = if self.writing { Some(self.hold_beside(&disk)?) } else { None };
        self.as_it_is(file, held, &disk, &said)
    }

    /// Holds the block device, through which others would write.
    fn hold_beside(&self, disk: &Disk) -> Result<File, TargetFault> {
        let (node, number) = (disk.node(), disk.number().ok_or(TargetFault::NoBlockDevice)?);
        self.hold(&node, number, Some(disk)).map_err(|fault| match fault {
            TargetFault::Permission { source, .. } => TargetFault::Beside { block: node, source },
            other => other,
        })
    }

    fn as_it_is(&self, file: File, held: Option<File>, disk: &Disk, said: &Said) -> Result<Target, TargetFault> {
        let block = u32::try_from(said.usable.block_size()).unwrap_or(u32::MAX);
        let (lba_bytes, bytes) = (self.uri.lba_bytes.unwrap_or(block), said.usable.bytes());
        if !lba_bytes.is_multiple_of(block) {
            return Err(TargetFault::BlockOfNamespace { lba: lba_bytes, block });
        }
        if !bytes.is_multiple_of(u64::from(lba_bytes)) {
            return Err(TargetFault::NotWhole { bytes, block: lba_bytes, least: block });
        }
        let splitter = said.splitter(lba_bytes.ilog2() as u8, disk);
        let splitter = splitter.map_err(|e| TargetFault::System { what: "split requests to it", source: io::Error::other(e) })?;
        let passthrough = Passthrough { nsid: said.usable.nsid, block_log2: said.usable.block_log2, splitter, read_only: !self.writing };
        let facts = Facts {
            kind: Kind::Namespace(passthrough),
            bytes,
            lba_bytes,
            mem_align: DWORD,
            direct: true,
            read_only: !self.writing || said.usable.read_only,
            disk: Some(said.correct(DiskFacts::of(disk))),
            identity: disk.identity(),
        };
        Ok(Target { file, facts, notes: Vec::new(), _held: held, pid: std::process::id() })
    }
}

/// Bytes that the namespace has now.
pub(super) fn current_bytes(file: &File, nsid: Nsid) -> io::Result<u64> {
    let page = identify(file, &Identify::new(cns::NAMESPACE, nsid, Dptr::NONE)).map_err(io::Error::other)?;
    let namespace = NamespacePage::from_page(&*page).map_err(io::Error::other)?;
    driver::Namespace::new(nsid, &namespace).map(|usable| usable.bytes()).map_err(io::Error::other)
}

fn page(file: &File, cns: u8, nsid: Nsid) -> Result<Box<[u8; Identify::LEN]>, TargetFault> {
    identify(file, &Identify::new(cns, nsid, Dptr::NONE)).map_err(|e| match e {
        CommandError::System(source) if matches!(Errno::from_io_error(&source), Some(Errno::ACCESS | Errno::PERM)) => {
            TargetFault::NotPassed(source)
        }
        CommandError::System(source) => TargetFault::System { what: "identify it", source },
        status @ CommandError::Status(_) => TargetFault::System { what: "identify it", source: io::Error::other(status) },
    })
}

fn too_short(short: impl std::error::Error + Send + Sync + 'static) -> TargetFault {
    TargetFault::System { what: "identify it", source: io::Error::other(short) }
}

#[cfg(test)]
mod tests;
