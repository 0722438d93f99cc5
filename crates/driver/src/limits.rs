//! Limits of a controller and its namespaces, from CAP, Identify Controller and Identify Namespace.
//! The data is untrusted: each value is checked, and what this driver cannot use is refused with
//! the reason.

use nvme::identify::{self, DescriptorList, ExtendedFormat, descriptor};
use nvme::prp::PageSize;
use nvme::regs::Cap;
use nvme::{Nsid, Sqe, admin};

use crate::{QueueSizes, SplitError, Splitter};

/// Limits of the commands and queues of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of data per command (MDTS, in units of CAP.MPSMIN); `None`: no limit.
    pub max_transfer: Option<u64>,
    /// Maximum entries of an I/O queue, 2 to 65,536 (CAP.MQES + 1).
    pub max_entries: u32,
    /// Maximum commands in flight per queue (MAXCMD); `None`: not reported.
    pub max_commands: Option<u32>,
    /// Bytes of a memory page, the unit of PRPs (CC.MPS).
    pub page_size: u64,
    /// Maximum Abort commands in flight (ACL + 1).
    pub aborts: u32,
    /// Maximum Asynchronous Event Requests in flight (AERL + 1).
    pub async_events: u32,
    /// A volatile write cache is present (VWC): a write is durable only after Flush or with FUA.
    pub volatile_cache: bool,
    /// Maximum bytes of a Write Zeroes (WZSL, in units of CAP.MPSMIN). If WZSL is not reported,
    /// MDTS: the specification exempts Write Zeroes from MDTS, but some controllers enforce it.
    /// `None`: the command is not supported (ONCS bit 3).
    pub write_zeroes: Option<u64>,
    /// I/O commands may use SGLs whose data blocks are dword aligned and a multiple of a dword
    /// (SGLS).
    pub sgls: bool,
    /// Limits of a Deallocate; `None`: Dataset Management is not supported (ONCS bit 2).
    pub deallocate: Option<DeallocateLimits>,
    /// Compare is supported (ONCS bit 0), for at most `max_transfer` bytes.
    pub compare: bool,
    /// Maximum bytes of a Verify (VSL, in units of CAP.MPSMIN; if not reported, MDTS); `None`: the
    /// command is not supported (ONCS bit 7).
    pub verify: Option<u64>,
    /// Maximum bytes of a Write Uncorrectable (WUSL, in units of CAP.MPSMIN; if not reported,
    /// MDTS); `None`: the command is not supported (ONCS bit 1).
    pub uncorrectable: Option<u64>,
}

/// Limits of one Dataset Management command (NVM 4.1.5.4). A limit that the controller does not
/// report is that of the command format.
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
    /// The limits of the command format.
    pub const UNLIMITED: DeallocateLimits =
        DeallocateLimits { ranges: nvme::io::MAX_RANGES, range_blocks: u32::MAX, blocks: u64::MAX };
}

/// Why this driver cannot use a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// MQES of 0: a ring of one entry holds no command (Base 3.1.4.1: the minimum is 1h).
    #[error("CAP.MQES is 0: the controller's queues could hold no command")]
    NoEntries,
    /// The controller does not support the memory page size of this driver.
    #[error(
        "the controller supports memory pages of {min} to {max} bytes (CAP.MPSMIN, MPSMAX); this driver uses {page}"
    )]
    PageSize {
        /// CAP.MPSMIN in bytes.
        min: u64,
        /// CAP.MPSMAX in bytes.
        max: u64,
        /// The page size of this driver.
        page: u64,
    },
    /// The NVM command set is not supported.
    #[error("CAP.CSS is {0:#04x}: the controller does not support the NVM command set")]
    CommandSet(u8),
    /// The controller does not support the standard queue entry sizes.
    #[error(
        "SQES is {sqes:#04x} and CQES {cqes:#04x}: the controller does not support entries of 64 and 16 bytes"
    )]
    EntrySize {
        /// Identify Controller SQES.
        sqes: u8,
        /// Identify Controller CQES.
        cqes: u8,
    },
    /// A discovery or administrative controller, which has no I/O queues.
    #[error("CNTRLTYPE is {0}: a controller without I/O queues (1 is an I/O controller)")]
    ControllerType(u8),
}

/// The memory page size of this driver: CC.MPS = 0.
pub(crate) const PAGE: u64 = 4096;

impl Limits {
    /// Checks CAP, before any command can be sent.
    pub fn check_cap(cap: Cap) -> Result<(), Unusable> {
        if cap.mqes() == 0 {
            return Err(Unusable::NoEntries);
        }
        let [min, max] = [cap.mpsmin(), cap.mpsmax()].map(|mps| PageSize::from_mps(mps).bytes());
        if !(min..=max).contains(&PAGE) {
            return Err(Unusable::PageSize { min, max, page: PAGE });
        }
        // Controllers from before 2.0 may set no bit of CSS. SPDK and Linux accept them as NVM
        // controllers too.
        if cap.css() != 0 && cap.css() & (Cap::CSS_NVM | Cap::CSS_ALL) == 0 {
            return Err(Unusable::CommandSet(cap.css()));
        }
        Ok(())
    }

    /// The limits of a controller, or why it cannot be used.
    pub fn new(cap: Cap, controller: &identify::Controller) -> Result<Limits, Unusable> {
        Limits::check_cap(cap)?;
        // 0: a controller from before 1.4, which does not report its type.
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
            // MAXCMD = 0: not reported.
            max_commands: (controller.maxcmd != 0).then_some(controller.maxcmd.into()),
            page_size: PAGE,
            aborts: controller.abort_limit(),
            async_events: controller.async_event_limit(),
            volatile_cache: controller.vwc.present(),
            sgls: controller.has_sgls(),
            write_zeroes: has(identify::Controller::ONCS_WRITE_ZEROES)
                .then(|| controller.max_transfer(cap).unwrap_or(u64::MAX)),
            deallocate: has(identify::Controller::ONCS_DATASET_MANAGEMENT)
                .then_some(DeallocateLimits::UNLIMITED),
            compare: has(identify::Controller::ONCS_COMPARE),
            verify: has(identify::Controller::ONCS_VERIFY)
                .then(|| controller.max_transfer(cap).unwrap_or(u64::MAX)),
            uncorrectable: has(identify::Controller::ONCS_WRITE_UNCORRECTABLE)
                .then(|| controller.max_transfer(cap).unwrap_or(u64::MAX)),
        })
    }

    /// Adds the limits of the NVM command set's Identify Controller page (NVM 4.1.5.4). They apply
    /// only to supported commands.
    pub fn with_command_set(self, cap: Cap, page: &identify::NvmController) -> Limits {
        let said = |n: u64| (n != 0).then_some(n);
        // A shift of 64 or more, or a result of 0, is more than 64 bits: no limit.
        let shifted = |log2: u64| {
            PageSize::from_mps(cap.mpsmin())
                .bytes()
                .checked_shl(log2 as u32)
                .filter(|&n| n != 0)
                .unwrap_or(u64::MAX)
        };
        let pages = |log2: u8| said(log2.into()).map(shifted);
        let unsaid = DeallocateLimits::UNLIMITED;
        let deallocate = DeallocateLimits {
            ranges: said(page.dmrl.into()).map_or(unsaid.ranges, |ranges| ranges as u32),
            range_blocks: said(page.dmrsl.into())
                .map_or(unsaid.range_blocks, |blocks| blocks as u32),
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

    /// The largest queue pair with at most `depth` commands in flight (0 counts as 1), within
    /// [`QueueSizes::MAX_TAGS`] and the controller's limits. A ring of N entries holds one less.
    /// The completion queue has as many entries as there can be commands, so neither ring overruns.
    pub fn queue_sizes(&self, depth: u32) -> QueueSizes {
        // `max_entries` is at least 2: `check_cap` refuses MQES = 0.
        let tags = depth
            .clamp(1, QueueSizes::MAX_TAGS)
            .min(self.max_commands.unwrap_or(u32::MAX))
            .min(self.max_entries - 1);
        QueueSizes { sq_entries: tags + 1, cq_entries: tags + 1, tags }
    }
}

/// A namespace that this driver can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: Nsid,
    /// Logical blocks (NSZE).
    pub blocks: u64,
    /// Logical blocks have 2^`block_log2` bytes (LBADS), 512 to 64 KiB or more.
    pub block_log2: u8,
    /// Commands that cross a multiple of this number of blocks are slower (NOIOB); 0: no boundary.
    pub boundary: u32,
    /// The namespace is write protected (NSATTR bit 0).
    pub read_only: bool,
    /// Write Zeroes supports the Deallocate bit (DLFEAT bit 3). If not, the bit may be an invalid
    /// field.
    pub deallocates_zeroes: bool,
    /// The namespace may be attached to several controllers (NMIC bit 0).
    pub shared: bool,
    /// ANA group (ANAGRPID); 0: none.
    pub ana_group: u32,
    /// NGUID, or zeroes.
    pub nguid: [u8; 16],
    /// EUI64, or zeroes.
    pub eui64: [u8; 8],
    /// UUID, or zeroes.
    pub uuid: [u8; 16],
}

/// Why this driver cannot use a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnsupportedNamespace {
    /// The format has metadata, interleaved or in a separate buffer.
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
    /// The format has protection information.
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
        /// ELBAF: guard format and storage tag size.
        extended: ExtendedFormat,
    },
    /// An extended LBA format: a host that has not enabled them (LBAFEE) gets an error for every
    /// command.
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
    /// An LBA format that is not available, or of an invalid block size.
    #[error(
        "namespace {nsid} has LBA format {format} with LBADS {lbads}: logical blocks have 2^9 to 2^31 bytes"
    )]
    BlockSize {
        /// The namespace.
        nsid: Nsid,
        /// The index of its LBA format.
        format: usize,
        /// LBAF.LBADS.
        lbads: u8,
    },
    /// The namespace has more than 2^64 bytes.
    #[error(
        "namespace {nsid} has {blocks} logical blocks of 2^{lbads} bytes: more than 64 bits can address"
    )]
    TooLarge {
        /// The namespace.
        nsid: Nsid,
        /// NSZE.
        blocks: u64,
        /// LBAF.LBADS.
        lbads: u8,
    },
    /// The namespace is inactive: it has no blocks.
    #[error("namespace {nsid} is not active: its size is 0")]
    Inactive {
        /// The namespace.
        nsid: Nsid,
    },
    /// Another I/O command set (zoned, key value, …).
    #[error(
        "namespace {nsid} has I/O command set {csi:#04x}; this driver supports the NVM command set (00h) only"
    )]
    CommandSet {
        /// The namespace.
        nsid: Nsid,
        /// CSI of its identification descriptor list.
        csi: u8,
    },
}

impl UnsupportedNamespace {
    /// Adds the extended LBA format, if it belongs to the reason.
    pub fn with_extended(self, extended: ExtendedFormat) -> UnsupportedNamespace {
        match self {
            UnsupportedNamespace::Protection { nsid, format, kind, .. } => {
                UnsupportedNamespace::Protection { nsid, format, kind, extended }
            }
            other => other,
        }
    }
}

impl Namespace {
    /// The namespace that `identify` describes, or why it cannot be used.
    pub fn new(
        nsid: Nsid,
        identify: &identify::IdentifyNamespace,
    ) -> Result<Namespace, UnsupportedNamespace> {
        let (format, index) = (identify.format(), identify.format_index());
        let (blocks, lbads) = (identify.nsze, format.lbads());
        if blocks == 0 {
            return Err(UnsupportedNamespace::Inactive { nsid });
        }
        // LBADS comes from the device: checked before anything is shifted by it.
        if format.block_size().is_none() {
            return Err(UnsupportedNamespace::BlockSize { nsid, format: index, lbads });
        }
        // Protection before metadata: it always implies metadata, and is the better explanation.
        if identify.protection_type() != 0 {
            let (kind, extended) = (identify.protection_type(), ExtendedFormat::new());
            return Err(UnsupportedNamespace::Protection { nsid, format: index, kind, extended });
        }
        if format.ms() != 0 {
            return Err(UnsupportedNamespace::Metadata { nsid, format: index, bytes: format.ms() });
        }
        // So that `bytes` and every byte offset fit in 64 bits.
        if blocks > u64::MAX >> lbads {
            return Err(UnsupportedNamespace::TooLarge { nsid, blocks, lbads });
        }
        Ok(Namespace {
            nsid,
            blocks,
            block_log2: lbads,
            boundary: identify.noiob.into(),
            // NSATTR bit 0: the namespace is write protected.
            read_only: identify.nsattr & 1 != 0,
            deallocates_zeroes: identify.dlfeat & identify::IdentifyNamespace::DLFEAT_WRITE_ZEROES
                != 0,
            shared: identify.nmic & identify::IdentifyNamespace::NMIC_SHARED != 0,
            ana_group: identify.anagrpid,
            nguid: identify.nguid,
            eui64: identify.eui64,
            // Only the identification descriptors (CNS 03h) have a UUID.
            uuid: [0; 16],
        })
    }

    /// Adds the extended part of LBA format `format` (NVM 4.1.5.3, ELBAF).
    pub fn with_extended(
        self,
        format: usize,
        extended: ExtendedFormat,
    ) -> Result<Namespace, UnsupportedNamespace> {
        match extended.into_bits() {
            0 => Ok(self),
            _ => Err(UnsupportedNamespace::Extended { nsid: self.nsid, format, extended }),
        }
    }

    /// Adds the identification descriptors (Base 5.1.13.2.3). The namespace must be of the NVM
    /// command set.
    pub fn with_descriptors(
        mut self,
        list: &DescriptorList,
    ) -> Result<Namespace, UnsupportedNamespace> {
        if let Some(&[csi]) = list.find(descriptor::CSI)
            && csi != admin::csi::NVM
        {
            return Err(UnsupportedNamespace::CommandSet { nsid: self.nsid, csi });
        }
        // A descriptor of another length is invalid, and ignored.
        if let Some(uuid) = list.find(descriptor::UUID).and_then(|id| id.try_into().ok()) {
            self.uuid = uuid;
        }
        Ok(self)
    }

    /// Whether this is the same namespace as `before`, which had the same identifier. The size may
    /// differ. Another format or another identifier (NGUID, EUI64, UUID) means another namespace.
    pub fn is_same_as(&self, before: &Namespace) -> bool {
        // All zero for a namespace without identifiers: then only the format is compared.
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

    /// How requests to this namespace are split: by MDTS, or by `max_bytes` if that is less, and at
    /// NOIOB. Commands other than Read and Write have limits of their own; each part of a
    /// Deallocate is one range.
    pub fn splitter(&self, limits: &Limits, max_bytes: u64) -> Result<Splitter, SplitError> {
        let splitter = Splitter::new(
            self.block_log2,
            limits.max_transfer.unwrap_or(u64::MAX).min(max_bytes),
            self.boundary,
        )?;
        let zeroes = limits.write_zeroes.map(|bytes| bytes >> self.block_log2);
        // A part is one range, so both the limit per range and the limit per command apply.
        let splitter = splitter.with_dataless(
            zeroes,
            limits.deallocate.map(|limits| limits.blocks.min(limits.range_blocks.into())),
        );
        let blocks = |bytes: u64| bytes >> self.block_log2;
        Ok(splitter
            .with_checks(limits.compare, limits.verify.map(blocks))
            .with_uncorrectable(limits.uncorrectable.map(blocks))
            .with_ranges(limits.deallocate.map_or(1, |limits| limits.ranges)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
