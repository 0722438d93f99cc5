//! What a controller is made of.

use std::sync::{Arc, Mutex, PoisonError};

use nvme::{Nsid, Status};
use units::Nanos;

use crate::media::{Faulty, Spoilt};
use crate::{
    AbortOrder, Ana, FaultInjector, Fetch, Media, MediaError, MediaFault, Mem, PendingBit, Profile,
};

/// A controller's properties. Start from [`Config::new`] and change what matters.
#[derive(Clone, Debug)]
pub struct Config {
    /// Timing.
    pub profile: Profile,
    /// Seed of the timing's dice: the same seed and the same commands at the same instants give the
    /// same completions.
    pub seed: u64,
    /// Serial number, 20 ASCII characters at most (Base 5.1.13.2.1, SN).
    pub serial: String,
    /// Model number, 40 ASCII characters at most (MN).
    pub model: String,
    /// Firmware revision, 8 ASCII characters at most (FR).
    pub firmware: String,
    /// SUBNQN, at most 223 bytes; `None`: one made of model and serial number.
    pub nqn: Option<String>,
    /// CNTLID: which controller of its subsystem this is.
    pub controller_id: u16,
    /// Asymmetric namespace access; `None`: not reported.
    pub ana: Option<Ana>,
    /// I/O queue pairs offered: 1 to 128 (feature 07h).
    pub queue_pairs: u16,
    /// Most entries of an I/O queue: 2 to 65,536 (CAP.MQES + 1).
    pub queue_entries: u32,
    /// Interrupt vectors, at least 1. Vector 0 is the admin queue's and may be shared.
    pub vectors: u16,
    /// Most bytes in one command; rounded down to a power of two of pages (MDTS).
    pub max_transfer: u32,
    /// Blocks, in bytes, that commands should not cross; 0: none (NOIOB).
    pub boundary: u32,
    /// How long the controller takes to become ready, and to become disabled.
    pub ready_delay: Nanos,
    /// How long a host waits for that before it gives the controller up (CAP.TO), in steps of half
    /// a second: longer than `ready_delay`, and 127.5 s at most. The thread that steps the
    /// controller may be late; drives say seconds as well.
    pub ready_timeout: Nanos,
    /// How long a shutdown takes.
    pub shutdown_delay: Nanos,
    /// CQT: how long commands may go on inside after the Keep Alive Timer has run out while the
    /// path is lost. In steps of a millisecond.
    pub quiesce_time: Nanos,
    /// Most commands fetched, and most completed, in one [`crate::Controller::step`].
    pub step_budget: u32,
    /// What becomes of a message whose vector is masked.
    pub pending: PendingBit,
    /// When data to write, lists of pointers and lists of ranges are fetched.
    pub fetch: Fetch,
    /// When an aborted command completes.
    pub aborts: AbortOrder,
    /// Whether there is Write Zeroes (ONCS bit 3).
    pub write_zeroes: bool,
    /// Whether there is Dataset Management (ONCS bit 2), and with it Deallocate.
    pub dataset_management: bool,
    /// Whether there are Compare (ONCS bit 0) and Verify (ONCS bit 7).
    pub checks: bool,
    /// Whether there is Write Uncorrectable (ONCS bit 1).
    pub uncorrectable: bool,
    /// Whether a host may write I/O queues' doorbells to memory (OACS bit 8, Doorbell Buffer
    /// Config). The port has to bear it ([`crate::Port::shadow_doorbells`]), and the thread that
    /// steps the controller calls [`crate::Controller::arm_doorbells`] before it sleeps.
    pub shadow_doorbells: bool,
    /// Whether I/O commands may have SGLs (SGLS): of data blocks that are dword aligned, in
    /// segments of any number, of [`nvme::sgl::MOST_DESCRIPTORS`] descriptors at most.
    pub sgls: bool,
    /// On a fabric: what only controllers there say.
    pub fabric: Option<Fabric>,
    /// What goes wrong on purpose.
    pub faults: Option<FaultInjector>,
    /// Doorbells are 4 << this bytes apart (CAP.DSTRD), 15 at most.
    pub doorbell_stride: u8,
}

impl Config {
    /// 64 queue pairs of 1024 entries, 65 vectors, 1 MiB per command, ready at once, ten seconds
    /// for that.
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

    /// The same with every value in its legal range.
    pub(crate) fn legal(mut self) -> Config {
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
        self.profile.channels = self.profile.channels.min(Profile::MOST_CHANNELS);
        self
    }

    /// The most I/O queue pairs of any controller of this kind.
    pub const MAX_QUEUE_PAIRS: u16 = 128;

    /// A CAP.DSTRD that gives each doorbell a cache line: 64 bytes.
    const A_LINE_EACH: u8 = 4;

    /// CAP.TO counts in these.
    pub(crate) const READY_STEP: Nanos = Nanos::from_millis(500);

    /// WZSL: a Write Zeroes covers 2^this pages of 4 KiB at most. A step does not end within a
    /// command.
    pub(crate) const WZSL: u8 = 10;
    /// The same in bytes.
    pub(crate) const MOST_ZEROES: u64 = 4096 << Config::WZSL;
    /// WUSL: the same of a Write Uncorrectable.
    pub(crate) const WUSL: u8 = Config::WZSL;
    /// DMRL: ranges of one Dataset Management.
    pub(crate) const MOST_RANGES: u8 = 255;
    /// DMRSL: logical blocks of a range.
    pub(crate) const MOST_RANGE_BLOCKS: u32 = 1 << 21;
    /// DMSL: logical blocks of all ranges of a command together.
    pub(crate) const MOST_DEALLOCATED_BLOCKS: u64 = 1 << 23;
}

/// What a controller on a fabric says of itself. The host's data are where its port has put them,
/// whatever its commands say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Most bytes of data in a command capsule.
    pub in_capsule: u32,
    /// CIU and CIRN, which tell this association's controller from others that have had its
    /// identifier.
    pub instance: (u8, u64),
    /// It is a discovery controller, with this log.
    pub discovery: Option<Arc<[u8]>>,
}

/// By what a namespace can be told from all others, whatever path leads to it. Zeroes: none of that
/// kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    /// NGUID.
    pub nguid: [u8; 16],
    /// EUI64.
    pub eui64: [u8; 8],
    /// UUID.
    pub uuid: [u8; 16],
}

/// A namespace: a medium cut into logical blocks. Namespace identifiers are given in order, from 1,
/// to those that have none.
#[derive(Debug)]
pub struct Namespace {
    pub(crate) medium: Medium,
    pub(crate) nsid: Option<Nsid>,
    /// `None`: a UUID made of the subsystem's name and the NSID.
    pub(crate) identifiers: Option<Identifiers>,
    /// ANA group; 0 without ANA.
    pub(crate) ana_group: u32,
    /// The status of an I/O command to it in its ANA state; success: it is carried out.
    pub(crate) refusal: Status,
    pub(crate) block_shift: u8,
    /// Logical blocks, as many as are exposed at the moment (NSZE).
    pub(crate) blocks: u64,
    /// The medium may hold less than it shows.
    pub(crate) thin: bool,
}

/// The media, told apart once per command: memory is reached without a copy in between, any other
/// through its trait.
pub(crate) enum Medium {
    Mem(Mem),
    Other(Box<dyn Media>),
    /// Of several controllers, which may have a thread each: a command holds the lock while it is
    /// carried out.
    Shared(Arc<Mutex<Medium>>),
    /// Some of its blocks were made unreadable.
    Spoilt(Box<Spoilt<Medium>>),
    /// It misbehaves.
    Faulty(Box<Faulty<Medium>>),
}

impl Medium {
    /// Makes `len` bytes from `at` on unreadable until they are written. The first such range wraps
    /// the medium, so that media without any are read as if there were no such thing.
    pub(crate) fn spoil(&mut self, at: u64, len: u64) {
        match self {
            Medium::Shared(shared) => {
                return shared.lock().unwrap_or_else(PoisonError::into_inner).spoil(at, len);
            }
            Medium::Spoilt(_) => {}
            Medium::Mem(_) | Medium::Other(_) | Medium::Faulty(_) => {
                *self = Medium::Spoilt(Box::new(Spoilt::new(self.take())))
            }
        }
        if let Medium::Spoilt(spoilt) = self {
            spoilt.mark(at, len);
        }
    }

    /// The medium itself. For a moment the namespace has one of no bytes, which no command can
    /// reach.
    fn take(&mut self) -> Medium {
        std::mem::replace(self, Medium::Mem(Mem::new(0, crate::Budget::new(0))))
    }

    /// Has it misbehave. Of logical blocks of `block` bytes.
    pub(crate) fn expect(&mut self, fault: MediaFault, block: u64) -> Result<(), MediaError> {
        match self {
            Medium::Shared(shared) => {
                return shared.lock().unwrap_or_else(PoisonError::into_inner).expect(fault, block);
            }
            Medium::Faulty(_) => {}
            Medium::Mem(_) | Medium::Other(_) | Medium::Spoilt(_) => {
                *self = Medium::Faulty(Box::new(Faulty::new(self.take())))
            }
        }
        if let Medium::Faulty(faulty) = self { faulty.expect(fault, block) } else { Ok(()) }
    }

    /// A cache that it was given is lost.
    pub(crate) fn lose_power(&mut self) -> Result<(), MediaError> {
        match self {
            Medium::Shared(shared) => {
                shared.lock().unwrap_or_else(PoisonError::into_inner).lose_power()
            }
            Medium::Faulty(faulty) => faulty.lose_power(),
            Medium::Mem(_) | Medium::Other(_) | Medium::Spoilt(_) => Ok(()),
        }
    }

    /// Whether data pass through a buffer of the controller's.
    pub(crate) fn needs_buffer(&self) -> bool {
        match self {
            Medium::Mem(_) => false,
            Medium::Other(_) | Medium::Spoilt(_) | Medium::Faulty(_) => true,
            Medium::Shared(shared) => {
                shared.lock().unwrap_or_else(PoisonError::into_inner).needs_buffer()
            }
        }
    }

    fn as_media(&self) -> &dyn Media {
        match self {
            Medium::Mem(mem) => mem,
            Medium::Other(other) => other.as_ref(),
            Medium::Shared(shared) => shared,
            Medium::Spoilt(spoilt) => spoilt.as_ref(),
            Medium::Faulty(faulty) => faulty.as_ref(),
        }
    }

    fn as_media_mut(&mut self) -> &mut dyn Media {
        match self {
            Medium::Mem(mem) => mem,
            Medium::Other(other) => other.as_mut(),
            Medium::Shared(shared) => shared,
            Medium::Spoilt(spoilt) => spoilt.as_mut(),
            Medium::Faulty(faulty) => faulty.as_mut(),
        }
    }
}

impl Media for Medium {
    fn bytes(&self) -> u64 {
        self.as_media().bytes()
    }

    fn allocated(&self) -> u64 {
        self.as_media().allocated()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.as_media_mut().read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        self.as_media_mut().write_at(at, from, fua)
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        self.as_media_mut().zero_at(at, len, deallocate, fua)
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.as_media_mut().flush()
    }

    fn is_volatile(&self) -> bool {
        self.as_media().is_volatile()
    }
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Medium::Mem(mem) => mem.fmt(f),
            Medium::Shared(_) => write!(f, "a shared medium"),
            Medium::Other(other) => write!(f, "a medium of {} bytes", other.bytes()),
            Medium::Faulty(faulty) => write!(f, "a medium of {} bytes with faults", faulty.bytes()),
            Medium::Spoilt(spoilt) => {
                write!(f, "a medium of {} bytes, some of them unreadable", spoilt.bytes())
            }
        }
    }
}

/// A namespace that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// A block size that is no power of two from 512 to 65,536.
    #[error("logical blocks of {0} bytes: the size must be a power of two from 512 to 65536")]
    BlockSize(u32),
    /// A medium that holds not even one block.
    #[error("a medium of {bytes} bytes does not hold a single logical block of {block}")]
    TooSmall {
        /// Size of the medium.
        bytes: u64,
        /// Logical block size.
        block: u32,
    },
}

impl Namespace {
    /// The highest identifier.
    pub(crate) const MOST: u32 = 1024;

    /// A namespace in memory, of logical blocks of `block` bytes (512 or 4096, say).
    pub fn mem(mem: Mem, block: u32) -> Result<Namespace, NamespaceError> {
        Namespace::on(Medium::Mem(mem), block)
    }

    /// A namespace on any medium.
    pub fn new(media: impl Media + 'static, block: u32) -> Result<Namespace, NamespaceError> {
        Namespace::on(Medium::Other(Box::new(media)), block)
    }

    fn on(medium: Medium, block: u32) -> Result<Namespace, NamespaceError> {
        if !block.is_power_of_two() || !(512..=65_536).contains(&block) {
            return Err(NamespaceError::BlockSize(block));
        }
        let mut namespace = Namespace {
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

    /// The same with this identifier, rather than the next in order: 1 to 1024.
    #[must_use]
    pub fn with_nsid(self, nsid: Nsid) -> Namespace {
        Namespace { nsid: Some(nsid), ..self }
    }

    /// The same with identifiers of one's own. All zero: a namespace that no host can tell from
    /// another.
    #[must_use]
    pub fn with_identifiers(self, identifiers: Identifiers) -> Namespace {
        Namespace { identifiers: Some(identifiers), ..self }
    }

    /// The same in this ANA group, from 1. Of use only on controllers that report ANA
    /// ([`Config::ana`]), where a namespace is in group 1 otherwise.
    #[must_use]
    pub fn with_ana_group(self, group: u32) -> Namespace {
        Namespace { ana_group: group, ..self }
    }

    /// Another controller's handle on the same namespace: same medium, same identifiers. What each
    /// controller makes of it, its size if it is resized, its ANA state, is each one's own.
    pub fn share(&mut self) -> Namespace {
        let shared = match &self.medium {
            Medium::Shared(shared) => shared.clone(),
            _ => Arc::new(Mutex::new(self.medium.take())),
        };
        self.medium = Medium::Shared(shared.clone());
        Namespace { medium: Medium::Shared(shared), ..*self }
    }

    /// Whether other controllers may be attached to it.
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
