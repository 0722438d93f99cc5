//! Configuration of controllers and namespaces.

use std::sync::{Arc, Mutex};

use nvme::{Nsid, Status};
use units::Nanos;

use crate::media::{BadBlocks, Faulty, forward_media, lock};
use crate::{
    AbortOrder, Ana, FaultInjector, Fetch, Media, MediaError, MediaFault, Mem, PendingBit, Profile,
};

/// Properties of a controller. Start from [`Config::new`] and change fields as needed.
#[derive(Clone, Debug)]
pub struct Config {
    /// Timing.
    pub profile: Profile,
    /// Seed of the random service times: equal seeds, commands and times give equal completions.
    pub seed: u64,
    /// Serial number, at most 20 ASCII characters (SN, Base 5.1.13.2.1).
    pub serial: String,
    /// Model number, at most 40 ASCII characters (MN).
    pub model: String,
    /// Firmware revision, at most 8 ASCII characters (FR).
    pub firmware: String,
    /// SUBNQN, at most 223 bytes; `None`: derived from model and serial number.
    pub nqn: Option<String>,
    /// CNTLID, unique in the subsystem.
    pub controller_id: u16,
    /// Asymmetric Namespace Access; `None`: not reported.
    pub ana: Option<Ana>,
    /// I/O queue pairs offered by feature 07h: 1 to 128.
    pub queue_pairs: u16,
    /// Maximum entries of an I/O queue: 2 to 65,536 (CAP.MQES + 1).
    pub queue_entries: u32,
    /// Interrupt vectors, at least 1. Vector 0 is that of the admin queue and may be shared.
    pub vectors: u16,
    /// Maximum bytes of one command (MDTS), rounded down to a power of two of pages.
    pub max_transfer: u32,
    /// Boundary in bytes that commands should not cross (NOIOB); 0: none.
    pub boundary: u32,
    /// Time from a change of CC.EN to that of CSTS.RDY, in both directions.
    pub ready_delay: Nanos,
    /// CAP.TO, the time that a host waits for CSTS.RDY, in steps of 500 ms: longer than
    /// `ready_delay`, at most 127.5 s. It has to allow for delays of the thread that steps the
    /// controller.
    pub ready_timeout: Nanos,
    /// Time of a shutdown.
    pub shutdown_delay: Nanos,
    /// CQT: time for which the controller may still execute commands of a lost path after the Keep
    /// Alive Timer has expired. In steps of a millisecond.
    pub quiesce_time: Nanos,
    /// Maximum commands fetched, and maximum commands completed, per [`crate::Controller::step`].
    pub step_budget: u32,
    /// Handling of the Pending bit of a masked vector.
    pub pending: PendingBit,
    /// When write data, PRP lists and lists of ranges are read from host memory.
    pub fetch: Fetch,
    /// When an aborted command completes.
    pub aborts: AbortOrder,
    /// Write Zeroes is supported (ONCS bit 3).
    pub write_zeroes: bool,
    /// Dataset Management is supported (ONCS bit 2), with Deallocate.
    pub dataset_management: bool,
    /// Compare (ONCS bit 0) and Verify (ONCS bit 7) are supported.
    pub checks: bool,
    /// Write Uncorrectable is supported (ONCS bit 1).
    pub uncorrectable: bool,
    /// Doorbell Buffer Config is supported (OACS bit 8). The port must implement
    /// [`crate::Port::shadow_doorbells`], and the owner must call
    /// [`crate::Controller::arm_doorbells`] before it sleeps.
    pub shadow_doorbells: bool,
    /// I/O commands may use SGLs (SGLS): dword aligned data blocks in any number of segments, at
    /// most [`nvme::sgl::MAX_DESCRIPTORS`] descriptors.
    pub sgls: bool,
    /// Properties of a fabric controller; `None`: PCIe.
    pub fabric: Option<Fabric>,
    /// Fault injection.
    pub faults: Option<FaultInjector>,
    /// CAP.DSTRD: doorbells are 4 << this bytes apart; at most 15.
    pub doorbell_stride: u8,
}

impl Config {
    /// A configuration with 64 queue pairs of 1024 entries, 65 vectors, 1 MiB per command, no ready
    /// delay, and a CAP.TO of ten seconds.
    pub fn new(profile: Profile) -> Config {
        Config {
            profile,
            seed: 0,
            serial: "REAP0001".into(),
            model: "Reap embedded NVMe controller".into(),
            firmware: "1".into(),
            nqn: None,
            controller_id: 1,
            ana: None,
            queue_pairs: 64,
            queue_entries: 1024,
            vectors: 65,
            max_transfer: 1 << 20,
            boundary: 0,
            ready_delay: Nanos::ZERO,
            ready_timeout: Nanos::from_secs(10),
            shutdown_delay: Nanos::ZERO,
            quiesce_time: Nanos::ZERO,
            step_budget: 128,
            pending: PendingBit::default(),
            fetch: Fetch::default(),
            aborts: AbortOrder::default(),
            write_zeroes: true,
            dataset_management: true,
            checks: true,
            uncorrectable: true,
            shadow_doorbells: false,
            sgls: false,
            fabric: None,
            faults: None,
            doorbell_stride: Config::A_LINE_EACH,
        }
    }

    /// Clamps every value to its valid range.
    pub(crate) fn clamped(mut self) -> Config {
        self.queue_pairs = self.queue_pairs.clamp(1, Config::MAX_QUEUE_PAIRS);
        self.queue_entries = self.queue_entries.clamp(2, 65_536);
        self.vectors = self.vectors.clamp(1, 2048);
        self.max_transfer = (1 << self.max_transfer.clamp(4096, 1 << 26).ilog2()).max(4096);
        self.step_budget = self.step_budget.max(1);
        self.doorbell_stride = self.doorbell_stride.min(15);
        self.ready_timeout = self
            .ready_timeout
            .max(self.ready_delay + Config::READY_STEP)
            .min(Nanos(255 * Config::READY_STEP.0));
        self.profile.iops_burst = self.profile.iops_burst.max(1);
        self.profile.channels = self.profile.channels.min(Profile::MAX_CHANNELS);
        self
    }

    /// Maximum I/O queue pairs.
    pub const MAX_QUEUE_PAIRS: u16 = 128;

    /// CAP.DSTRD for a stride of 64 bytes, one cache line per doorbell.
    const A_LINE_EACH: u8 = 4;

    /// Unit of CAP.TO.
    pub(crate) const READY_STEP: Nanos = Nanos::from_millis(500);

    /// WZSL: log2 of the maximum pages of 4 KiB of a Write Zeroes. There is a limit because a step
    /// cannot be interrupted within a command.
    pub(crate) const WZSL: u8 = 10;
    /// WZSL in bytes.
    pub(crate) const MAX_ZEROES: u64 = 4096 << Config::WZSL;
    /// WUSL: log2 of the maximum pages of a Write Uncorrectable.
    pub(crate) const WUSL: u8 = Config::WZSL;
    /// DMRL: maximum ranges of a Dataset Management command.
    pub(crate) const MAX_RANGES: u8 = 255;
    /// DMRSL: maximum logical blocks of a range.
    pub(crate) const MAX_RANGE_BLOCKS: u32 = 1 << 21;
    /// DMSL: maximum logical blocks of all ranges of a command.
    pub(crate) const MAX_DEALLOCATED_BLOCKS: u64 = 1 << 23;
}

/// Properties of a fabrics controller. Its port ignores the data pointers of commands, and uses the
/// buffers of the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Maximum bytes of in-capsule data.
    pub in_capsule: u32,
    /// CIU and CIRN, which distinguish this association from earlier ones with the same CNTLID.
    pub instance: (u8, u64),
    /// The discovery log page, if this is a discovery controller.
    pub discovery: Option<Arc<[u8]>>,
}

/// Globally unique identifiers of a namespace, equal on all its paths. Zero: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    /// NGUID.
    pub nguid: [u8; 16],
    /// EUI64.
    pub eui64: [u8; 8],
    /// UUID.
    pub uuid: [u8; 16],
}

/// A namespace: a medium divided into logical blocks. Without an explicit NSID it gets the next
/// free one, from 1.
#[derive(Debug)]
pub struct NamespaceConfig {
    pub(crate) medium: Medium,
    pub(crate) nsid: Option<Nsid>,
    /// `None`: a UUID derived from the subsystem's NQN and the NSID.
    pub(crate) identifiers: Option<Identifiers>,
    /// ANA group; 0 without ANA.
    pub(crate) ana_group: u32,
    /// Status of I/O commands in the current ANA state; success if accessible.
    pub(crate) refusal: Status,
    pub(crate) block_shift: u8,
    /// Size in logical blocks (NSZE).
    pub(crate) blocks: u64,
    /// Thin provisioned: the medium may run out of space.
    pub(crate) thin: bool,
}

/// The medium of a namespace. Memory is accessed directly, other media through their trait and a
/// bounce buffer.
pub(crate) enum Medium {
    Mem(Mem),
    Other(Box<dyn Media>),
    /// A medium shared by controllers that may run in different threads; locked during a command.
    Shared(Arc<Mutex<Medium>>),
    /// A medium with unreadable blocks.
    BadBlocks(Box<BadBlocks<Medium>>),
    /// A medium with injected faults.
    Faulty(Box<Faulty<Medium>>),
}

impl Medium {
    /// Makes `len` bytes from `at` unreadable until they are written. The medium is wrapped at the
    /// first such call, so that other media have no cost.
    pub(crate) fn mark_uncorrectable(&mut self, at: u64, len: u64) {
        match self {
            Medium::Shared(shared) => {
                return lock(shared).mark_uncorrectable(at, len);
            }
            Medium::BadBlocks(_) => {}
            Medium::Mem(_) | Medium::Other(_) | Medium::Faulty(_) => {
                *self = Medium::BadBlocks(Box::new(BadBlocks::new(self.take())))
            }
        }
        if let Medium::BadBlocks(bad_blocks) = self {
            bad_blocks.mark(at, len);
        }
    }

    /// Takes the medium out and leaves an empty one, which no command can reach.
    fn take(&mut self) -> Medium {
        std::mem::replace(self, Medium::Mem(Mem::new(0, crate::Budget::new(0))))
    }

    /// Injects a fault into the medium inside `BadBlocks`, if there is one. `block`: logical block
    /// size in bytes.
    pub(crate) fn inject_fault(&mut self, fault: MediaFault, block: u64) -> Result<(), MediaError> {
        match self {
            Medium::Shared(shared) => {
                return lock(shared).inject_fault(fault, block);
            }
            Medium::BadBlocks(bad_blocks) => return bad_blocks.inner.inject_fault(fault, block),
            Medium::Faulty(_) => {}
            Medium::Mem(_) | Medium::Other(_) => {
                *self = Medium::Faulty(Box::new(Faulty::new(self.take())))
            }
        }
        if let Medium::Faulty(faulty) = self { faulty.inject_fault(fault, block) } else { Ok(()) }
    }

    /// The injected faults that are still in effect.
    #[cfg(feature = "serve")]
    pub(crate) fn active_faults(&self) -> Vec<MediaFault> {
        match self {
            Medium::Shared(shared) => lock(shared).active_faults(),
            Medium::BadBlocks(bad_blocks) => bad_blocks.inner.active_faults(),
            Medium::Faulty(faulty) => faulty.active_faults(),
            Medium::Mem(_) | Medium::Other(_) => Vec::new(),
        }
    }

    /// Power loss: drops an injected cache.
    pub(crate) fn lose_power(&mut self) -> Result<(), MediaError> {
        match self {
            Medium::Shared(shared) => lock(shared).lose_power(),
            Medium::BadBlocks(bad_blocks) => bad_blocks.inner.lose_power(),
            Medium::Faulty(faulty) => faulty.lose_power(),
            Medium::Mem(_) | Medium::Other(_) => Ok(()),
        }
    }

    /// Whether data are copied through a bounce buffer.
    pub(crate) fn needs_buffer(&self) -> bool {
        match self {
            Medium::Mem(_) => false,
            Medium::Other(_) | Medium::BadBlocks(_) | Medium::Faulty(_) => true,
            Medium::Shared(shared) => lock(shared).needs_buffer(),
        }
    }

    fn as_media(&self) -> &dyn Media {
        match self {
            Medium::Mem(mem) => mem,
            Medium::Other(other) => other.as_ref(),
            Medium::Shared(shared) => shared,
            Medium::BadBlocks(bad_blocks) => bad_blocks.as_ref(),
            Medium::Faulty(faulty) => faulty.as_ref(),
        }
    }

    fn as_media_mut(&mut self) -> &mut dyn Media {
        match self {
            Medium::Mem(mem) => mem,
            Medium::Other(other) => other.as_mut(),
            Medium::Shared(shared) => shared,
            Medium::BadBlocks(bad_blocks) => bad_blocks.as_mut(),
            Medium::Faulty(faulty) => faulty.as_mut(),
        }
    }
}

impl Media for Medium {
    forward_media!(self, self.as_media(), self.as_media_mut());
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Medium::Mem(mem) => mem.fmt(f),
            Medium::Shared(_) => write!(f, "a shared medium"),
            Medium::Other(other) => write!(f, "a medium of {} bytes", other.bytes()),
            Medium::Faulty(faulty) => write!(f, "a medium of {} bytes with faults", faulty.bytes()),
            Medium::BadBlocks(bad_blocks) => {
                write!(f, "a medium of {} bytes, some of them unreadable", bad_blocks.bytes())
            }
        }
    }
}

/// Why a namespace cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The block size is not a power of two from 512 to 65,536.
    #[error("logical blocks of {0} bytes: the size must be a power of two from 512 to 65536")]
    BlockSize(u32),
    /// The medium is smaller than a block.
    #[error("a medium of {bytes} bytes does not hold a single logical block of {block}")]
    TooSmall {
        /// Size of the medium in bytes.
        bytes: u64,
        /// Logical block size in bytes.
        block: u32,
    },
}

impl NamespaceConfig {
    /// The highest NSID.
    pub(crate) const MAX_NSID: u32 = 1024;

    /// A namespace in memory; `block`: logical block size in bytes, such as 512 or 4096.
    pub fn mem(mem: Mem, block: u32) -> Result<NamespaceConfig, NamespaceError> {
        NamespaceConfig::on(Medium::Mem(mem), block)
    }

    /// A namespace on any medium; `block`: logical block size in bytes.
    pub fn new(media: impl Media + 'static, block: u32) -> Result<NamespaceConfig, NamespaceError> {
        NamespaceConfig::on(Medium::Other(Box::new(media)), block)
    }

    fn on(medium: Medium, block: u32) -> Result<NamespaceConfig, NamespaceError> {
        if !block.is_power_of_two() || !(512..=65_536).contains(&block) {
            return Err(NamespaceError::BlockSize(block));
        }
        let mut namespace = NamespaceConfig {
            medium,
            nsid: None,
            identifiers: None,
            ana_group: 0,
            refusal: Status::SUCCESS,
            block_shift: block.ilog2() as u8,
            blocks: 0,
            thin: false,
        };
        let media = namespace.media();
        let (bytes, thin) = (media.bytes(), media.allocated() < media.bytes());
        (namespace.blocks, namespace.thin) = (bytes >> namespace.block_shift, thin);
        if namespace.blocks == 0 {
            return Err(NamespaceError::TooSmall { bytes, block });
        }
        Ok(namespace)
    }

    /// Sets the NSID, 1 to 1024.
    #[must_use]
    pub fn with_nsid(self, nsid: Nsid) -> NamespaceConfig {
        NamespaceConfig { nsid: Some(nsid), ..self }
    }

    /// Sets the identifiers. All zero: hosts cannot recognize the namespace.
    #[must_use]
    pub fn with_identifiers(self, identifiers: Identifiers) -> NamespaceConfig {
        NamespaceConfig { identifiers: Some(identifiers), ..self }
    }

    /// Sets the ANA group, from 1; the default is group 1. Only used by controllers that report ANA
    /// ([`Config::ana`]).
    #[must_use]
    pub fn with_ana_group(self, group: u32) -> NamespaceConfig {
        NamespaceConfig { ana_group: group, ..self }
    }

    /// Another controller's handle on the same namespace, with the same medium and identifiers.
    /// Size and ANA state are kept per controller.
    pub fn share(&mut self) -> NamespaceConfig {
        let shared = match &self.medium {
            Medium::Shared(shared) => shared.clone(),
            _ => Arc::new(Mutex::new(self.medium.take())),
        };
        self.medium = Medium::Shared(shared.clone());
        NamespaceConfig { medium: Medium::Shared(shared), ..*self }
    }

    /// Whether the namespace may be attached to several controllers.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.medium, Medium::Shared(_))
    }

    pub(crate) fn media(&self) -> &dyn Media {
        self.medium.as_media()
    }

    pub(crate) fn media_mut(&mut self) -> &mut dyn Media {
        self.medium.as_media_mut()
    }
}
