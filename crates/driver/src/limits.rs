//! What a controller and its namespaces allow, from CAP, Identify Controller and Identify Namespace. Everything here is
//! untrusted: each value is checked, and what cannot be used is refused with the reason.

use nvme::identify::{self, DescriptorList, ExtendedFormat, descriptor};
use nvme::prp::PageSize;
use nvme::regs::Cap;
use nvme::{Nsid, Sqe, admin};

use crate::{QueueSizes, SplitError, Splitter};

/// What every command and every queue of a controller has to keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of data per command (MDTS, in units of CAP.MPSMIN); `None`: not limited.
    pub max_transfer: Option<u64>,
    /// Most entries of an I/O queue, 2 to 65,536 (CAP.MQES + 1).
    pub max_entries: u32,
    /// Most commands that the controller works on per queue (MAXCMD); `None`: not said.
    pub max_commands: Option<u32>,
    /// Bytes of a memory page, the unit of PRPs (CC.MPS).
    pub page_size: u64,
    /// Most Abort commands in flight (ACL + 1).
    pub aborts: u32,
    /// Most Asynchronous Event Requests in flight (AERL + 1).
    pub async_events: u32,
    /// There is a volatile write cache: a write is durable only after Flush or with FUA (VWC).
    pub volatile_cache: bool,
    /// Most bytes of a Write Zeroes (WZSL, in units of CAP.MPSMIN; where that is not said, as many as a Write moves, although MDTS
    /// does not count there: controllers take it for less); `None`: there is no such command (ONCS bit 3).
    pub write_zeroes: Option<u64>,
    /// I/O commands may have SGLs of data blocks that are dword aligned and of whole dwords (SGLS).
    pub sgls: bool,
    /// What a Deallocate may name; `None`: there is no Dataset Management (ONCS bit 2).
    pub deallocate: Option<DeallocateLimits>,
    /// There is Compare (ONCS bit 0), of at most `max_transfer`.
    pub compare: bool,
    /// Most bytes of a Verify (VSL, in units of CAP.MPSMIN; where that is not said, as many as a Read moves); `None`: there is no such
    /// command (ONCS bit 7).
    pub verify: Option<u64>,
    /// Most bytes of a Write Uncorrectable (WUSL, in units of CAP.MPSMIN; where that is not said, as many as a Write moves); `None`: there
    /// is no such command (ONCS bit 1).
    pub uncorrectable: Option<u64>,
}

/// What one Dataset Management command may name (NVM 4.1.5.4). Where the controller does not say, what the command can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeallocateLimits {
    /// Ranges (DMRL).
    pub ranges: u32,
    /// Logical blocks of a range (DMRSL).
    pub range_blocks: u32,
    /// Logical blocks of all ranges together (DMSL).
    pub blocks: u64,
}

impl DeallocateLimits {
    /// What the command can say.
    pub const UNSAID: DeallocateLimits = DeallocateLimits { ranges: nvme::io::MAX_RANGES, range_blocks: u32::MAX, blocks: u64::MAX };
}

/// A controller that this driver cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// MQES of 0: a ring of one entry holds nothing (Base 3.1.4.1: the least is 1h).
    #[error("CAP.MQES is 0: the controller's queues could hold no command")]
    NoEntries,
    /// The memory page of this driver is not among those that the controller supports.
    #[error("the controller supports memory pages of {min} to {max} bytes (CAP.MPSMIN, MPSMAX); this driver uses {page}")]
    PageSize {
        /// CAP.MPSMIN in bytes.
        min: u64,
        /// CAP.MPSMAX in bytes.
        max: u64,
        /// What the driver uses.
        page: u64,
    },
    /// The NVM command set is not supported.
    #[error("CAP.CSS is {0:#04x}: the controller does not support the NVM command set")]
    CommandSet(u8),
    /// Entries of another size.
    #[error("SQES is {sqes:#04x} and CQES {cqes:#04x}: the controller does not support entries of 64 and 16 bytes")]
    EntrySize {
        /// Identify Controller SQES.
        sqes: u8,
        /// Identify Controller CQES.
        cqes: u8,
    },
    /// A discovery or administrative controller.
    #[error("CNTRLTYPE is {0}: a controller without I/O queues (1 is an I/O controller)")]
    ControllerType(u8),
}

/// The memory page size of this driver: CC.MPS = 0.
pub(crate) const PAGE: u64 = 4096;

impl Limits {
    /// What CAP says by itself, before anything can be asked.
    pub fn check_cap(cap: Cap) -> Result<(), Unusable> {
        if cap.mqes() == 0 {
            return Err(Unusable::NoEntries);
        }
        let [min, max] = [cap.mpsmin(), cap.mpsmax()].map(|mps| PageSize::from_mps(mps).bytes());
        if !(min..=max).contains(&PAGE) {
            return Err(Unusable::PageSize { min, max, page: PAGE });
        }
        // Controllers of before 2.0 may name no command set at all; SPDK and Linux take these for what they are as well.
        if cap.css() != 0 && cap.css() & (Cap::CSS_NVM | Cap::CSS_ALL) == 0 {
            return Err(Unusable::CommandSet(cap.css()));
        }
        Ok(())
    }

    /// The limits of a controller.
    pub fn new(cap: Cap, controller: &identify::Controller) -> Result<Limits, Unusable> {
        Limits::check_cap(cap)?;
        // 0: a controller of before 1.4, which does not say.
        if !matches!(controller.cntrltype, 0 | identify::Controller::TYPE_IO) {
            return Err(Unusable::ControllerType(controller.cntrltype));
        }
        if !controller.supports_entries(Sqe::SIZE_LOG2, nvme::Cqe::SIZE_LOG2) {
            return Err(Unusable::EntrySize { sqes: controller.sqes, cqes: controller.cqes });
        }
        let has = |bit: u16| controller.oncs & bit != 0;
        Ok(Limits {
            max_transfer: controller.max_transfer(cap),
            max_entries: cap.max_entries(),
            max_commands: (controller.maxcmd != 0).then_some(controller.maxcmd.into()),
            page_size: PAGE,
            aborts: controller.abort_limit(),
            async_events: controller.async_event_limit(),
            volatile_cache: controller.vwc.present(),
            sgls: controller.has_sgls(),
            write_zeroes: has(identify::Controller::ONCS_WRITE_ZEROES).then(|| controller.max_transfer(cap).unwrap_or(u64::MAX)),
            deallocate: has(identify::Controller::ONCS_DATASET_MANAGEMENT).then_some(DeallocateLimits::UNSAID),
            compare: has(identify::Controller::ONCS_COMPARE),
            verify: has(identify::Controller::ONCS_VERIFY).then(|| controller.max_transfer(cap).unwrap_or(u64::MAX)),
            uncorrectable: has(identify::Controller::ONCS_WRITE_UNCORRECTABLE).then(|| controller.max_transfer(cap).unwrap_or(u64::MAX)),
        })
    }

    /// The same with what the NVM command set adds (NVM 4.1.5.4); of a command that there is not, nothing.
    pub fn with_command_set(self, cap: Cap, page: &identify::NvmController) -> Limits {
        let said = |n: u64| (n != 0).then_some(n);
        // Of more than 64 bits: as good as no limit.
        let shifted = |log2: u64| PageSize::from_mps(cap.mpsmin()).bytes().checked_shl(log2 as u32).filter(|&n| n != 0).unwrap_or(u64::MAX);
        let pages = |log2: u8| said(log2.into()).map(shifted);
        let unsaid = DeallocateLimits::UNSAID;
        let deallocate = DeallocateLimits {
            ranges: said(page.dmrl.into()).map_or(unsaid.ranges, |ranges| ranges as u32),
            range_blocks: said(page.dmrsl.into()).map_or(unsaid.range_blocks, |blocks| blocks as u32),
            blocks: said(page.dmsl).unwrap_or(unsaid.blocks),
        };
        Limits {
            write_zeroes: self.write_zeroes.map(|unsaid| pages(page.wzsl).unwrap_or(unsaid)),
            verify: self.verify.map(|unsaid| pages(page.vsl).unwrap_or(unsaid)),
            uncorrectable: self.uncorrectable.map(|unsaid| pages(page.wusl).unwrap_or(unsaid)),
            deallocate: self.deallocate.map(|_| deallocate),
            ..self
        }
    }

    /// The largest queue pair of at most `depth` commands in flight (0 counts as 1; more than [`QueueSizes::MOST_TAGS`] as those). A ring of N entries holds N − 1, and
    /// the completion queue holds as many entries as there can be commands, so neither overruns.
    pub fn queue_sizes(&self, depth: u32) -> QueueSizes {
        let tags = depth.clamp(1, QueueSizes::MOST_TAGS).min(self.max_commands.unwrap_or(u32::MAX)).min(self.max_entries - 1);
        QueueSizes { sq_entries: tags + 1, cq_entries: tags + 1, tags }
    }
}

/// A namespace as the host uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: Nsid,
    /// Logical blocks (NSZE).
    pub blocks: u64,
    /// Logical blocks have 2^`block_log2` bytes (LBADS), 512 to 64 KiB or more.
    pub block_log2: u8,
    /// Commands that cross a multiple of this many blocks are slower (NOIOB); 0: there is no such boundary.
    pub boundary: u32,
    /// The controller refuses writes (NSATTR bit 0).
    pub read_only: bool,
    /// Write Zeroes takes the Deallocate bit (DLFEAT bit 3). Elsewhere it may be an invalid field.
    pub frees_zeroes: bool,
    /// Several controllers of the subsystem may be attached to it (NMIC bit 0).
    pub shared: bool,
    /// The ANA group that it is in (ANAGRPID); 0: none.
    pub ana_group: u32,
    /// NGUID, or 0s.
    pub nguid: [u8; 16],
    /// EUI64, or 0s.
    pub eui64: [u8; 8],
    /// UUID, or 0s.
    pub uuid: [u8; 16],
}

/// A namespace that this driver cannot use, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedFormat {
    /// Metadata, with the data or in a buffer of its own.
    #[error(
        "namespace {nsid} is formatted with {bytes} bytes of metadata per logical block (LBA format {format}); this driver reads and writes formats without metadata only: reformat it, or use another namespace"
    )]
    Metadata {
        /// The namespace.
        nsid: Nsid,
        /// The index of its LBA format.
        format: usize,
        /// LBAF.MS.
        bytes: u16,
    },
    /// Protection information.
    #[error(
        "namespace {nsid} is formatted with protection information of type {kind}, {guard} (DPS, ELBAF {format}); this driver does not check or make any: reformat it, or use another namespace",
        guard = extended.guard()
    )]
    Protection {
        /// The namespace.
        nsid: Nsid,
        /// The index of its LBA format.
        format: usize,
        /// DPS.PIT.
        kind: u8,
        /// ELBAF: its guard and storage tag.
        extended: ExtendedFormat,
    },
    /// An extended LBA format: hosts that have not enabled those (LBAFEE) are refused every command.
    #[error(
        "namespace {nsid} has LBA format {format} with a storage tag of {tag} bits and {guard} (ELBAF); this driver uses no extended LBA formats: reformat it, or use another namespace",
        tag = extended.sts(), guard = extended.guard()
    )]
    Extended {
        /// The namespace.
        nsid: Nsid,
        /// The index of its LBA format.
        format: usize,
        /// ELBAF.
        extended: ExtendedFormat,
    },
    /// An LBA format that is not available, or of a size that no block has.
    #[error("namespace {nsid} has LBA format {format} with LBADS {lbads}: logical blocks have 2^9 to 2^31 bytes")]
    BlockSize {
        /// The namespace.
        nsid: Nsid,
        /// The index of its LBA format.
        format: usize,
        /// LBAF.LBADS.
        lbads: u8,
    },
    /// More bytes than 64 bits count.
    #[error("namespace {nsid} has {blocks} logical blocks of 2^{lbads} bytes: more than 64 bits can address")]
    TooLarge {
        /// The namespace.
        nsid: Nsid,
        /// NSZE.
        blocks: u64,
        /// LBAF.LBADS.
        lbads: u8,
    },
    /// No blocks.
    #[error("namespace {nsid} is not active: its size is 0")]
    Inactive {
        /// The namespace.
        nsid: Nsid,
    },
    /// Another I/O command set (zoned, key value, …).
    #[error("namespace {nsid} has I/O command set {csi:#04x}; this driver speaks the NVM command set (00h) only")]
    CommandSet {
        /// The namespace.
        nsid: Nsid,
        /// CSI of its identification descriptor list.
        csi: u8,
    },
}

impl RefusedFormat {
    /// The same with what the NVM command set adds to the LBA format, where it has to do with the reason.
    pub fn with_extended(self, extended: ExtendedFormat) -> RefusedFormat {
        match self {
            RefusedFormat::Protection { nsid, format, kind, .. } => RefusedFormat::Protection { nsid, format, kind, extended },
            other => other,
        }
    }
}

impl Namespace {
    /// The namespace that `identify` describes, if its format can be used.
    pub fn new(nsid: Nsid, identify: &identify::Namespace) -> Result<Namespace, RefusedFormat> {
        let (format, index) = (identify.format(), identify.format_index());
        let (blocks, lbads) = (identify.nsze, format.lbads());
        if blocks == 0 {
            return Err(RefusedFormat::Inactive { nsid });
        }
        if format.block_size().is_none() {
            return Err(RefusedFormat::BlockSize { nsid, format: index, lbads });
        }
        if identify.protection_type() != 0 {
            let (kind, extended) = (identify.protection_type(), ExtendedFormat::new());
            return Err(RefusedFormat::Protection { nsid, format: index, kind, extended });
        }
        if format.ms() != 0 {
            return Err(RefusedFormat::Metadata { nsid, format: index, bytes: format.ms() });
        }
        if blocks > u64::MAX >> lbads {
            return Err(RefusedFormat::TooLarge { nsid, blocks, lbads });
        }
        Ok(Namespace {
            nsid,
            blocks,
            block_log2: lbads,
            boundary: identify.noiob.into(),
            read_only: identify.nsattr & 1 != 0,
            frees_zeroes: identify.dlfeat & identify::Namespace::DLFEAT_WRITE_ZEROES != 0,
            shared: identify.nmic & identify::Namespace::NMIC_SHARED != 0,
            ana_group: identify.anagrpid,
            nguid: identify.nguid,
            eui64: identify.eui64,
            uuid: [0; 16],
        })
    }

    /// The same with what the NVM command set adds to its LBA format, the one of index `format` (NVM 4.1.5.3, ELBAF).
    pub fn with_extended(self, format: usize, extended: ExtendedFormat) -> Result<Namespace, RefusedFormat> {
        match extended.into_bits() {
            0 => Ok(self),
            _ => Err(RefusedFormat::Extended { nsid: self.nsid, format, extended }),
        }
    }

    /// The same with what its identification descriptors add (Base 5.1.13.2.3), if it is of the NVM command set.
    pub fn with_descriptors(mut self, list: &DescriptorList) -> Result<Namespace, RefusedFormat> {
        if let Some(&[csi]) = list.find(descriptor::CSI)
            && csi != admin::csi::NVM
        {
            return Err(RefusedFormat::CommandSet { nsid: self.nsid, csi });
        }
        if let Some(uuid) = list.find(descriptor::UUID).and_then(|id| id.try_into().ok()) {
            self.uuid = uuid;
        }
        Ok(self)
    }

    /// Whether what was `before` under the same identifier may be taken for this, whatever its size: another format or another name is
    /// another namespace.
    pub fn is_still(&self, before: &Namespace) -> bool {
        let who = |ns: &Namespace| (ns.block_log2, ns.nguid, ns.eui64, ns.uuid);
        who(self) == who(before)
    }

    /// Bytes of a logical block.
    pub fn block_size(&self) -> u64 {
        1 << self.block_log2
    }

    /// Bytes of the namespace.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_log2
    }

    /// How requests to this namespace are split: by MDTS, by `most` bytes if the host wants less, and at NOIOB; those that neither
    /// read nor write by limits of their own, each part of a Deallocate being one range.
    pub fn splitter(&self, limits: &Limits, most: u64) -> Result<Splitter, SplitError> {
        let splitter = Splitter::new(self.block_log2, limits.max_transfer.unwrap_or(u64::MAX).min(most), self.boundary)?;
        let zeroes = limits.write_zeroes.map(|bytes| bytes >> self.block_log2);
        let splitter = splitter.with_dataless(zeroes, limits.deallocate.map(|most| most.blocks.min(most.range_blocks.into())));
        let blocks = |bytes: u64| bytes >> self.block_log2;
        Ok(splitter
            .with_checks(limits.compare, limits.verify.map(blocks))
            .with_uncorrectable(limits.uncorrectable.map(blocks))
            .with_ranges(limits.deallocate.map_or(1, |most| most.ranges)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
