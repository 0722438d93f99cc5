//! What a controller is made of.

use units::Nanos;

use crate::{Media, Mem, Profile};

/// A controller's properties. Start from [`Config::new`] and change what matters.
#[derive(Clone, Debug)]
pub struct Config {
    /// Timing.
    pub profile: Profile,
    /// Seed of the timing's dice: the same seed and the same commands at the same instants give the same completions.
    pub seed: u64,
    /// Serial number, 20 ASCII characters at most (Base 5.1.13.2.1, SN).
    pub serial: String,
    /// Model number, 40 ASCII characters at most (MN).
    pub model: String,
    /// Firmware revision, 8 ASCII characters at most (FR).
    pub firmware: String,
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
    /// How long a shutdown takes.
    pub shutdown_delay: Nanos,
    /// Most commands fetched, and most completed, in one [`crate::Controller::step`].
    pub step_budget: u32,
}

impl Config {
    /// 64 queue pairs of 1024 entries, 65 vectors, 1 MiB per command, ready at once.
    pub fn new(profile: Profile) -> Config {
        Config {
            profile,
            seed: 0,
            serial: "REAP0001".into(),
            model: "Reap embedded NVMe controller".into(),
            firmware: "1".into(),
            queue_pairs: 64,
            queue_entries: 1024,
            vectors: 65,
            max_transfer: 1 << 20,
            boundary: 0,
            ready_delay: Nanos::ZERO,
            shutdown_delay: Nanos::ZERO,
            step_budget: 128,
        }
    }

    /// The same with every value in its legal range.
    pub(crate) fn legal(mut self) -> Config {
        self.queue_pairs = self.queue_pairs.clamp(1, Config::MAX_QUEUE_PAIRS);
        self.queue_entries = self.queue_entries.clamp(2, 65_536);
        self.vectors = self.vectors.clamp(1, 2048);
        self.max_transfer = (1 << self.max_transfer.clamp(4096, 1 << 26).ilog2()).max(4096);
        self.step_budget = self.step_budget.max(1);
        self.profile.iops_burst = self.profile.iops_burst.max(1);
        self
    }

    /// The most I/O queue pairs of any controller of this kind.
    pub const MAX_QUEUE_PAIRS: u16 = 128;
}

/// A namespace: a medium cut into logical blocks. Namespace identifiers are given in order, from 1.
#[derive(Debug)]
pub struct Namespace {
    pub(crate) medium: Medium,
    pub(crate) block_shift: u8,
    /// Logical blocks, as many as are exposed at the moment (NSZE).
    pub(crate) blocks: u64,
    /// The medium may hold less than it shows.
    pub(crate) thin: bool,
}

/// The media, told apart once per command: memory is reached without a copy in between, any other through its trait.
pub(crate) enum Medium {
    Mem(Mem),
    Other(Box<dyn Media>),
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Medium::Mem(mem) => mem.fmt(f),
            Medium::Other(other) => write!(f, "a medium of {} bytes", other.bytes()),
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
        let mut namespace = Namespace { medium, block_shift: block.ilog2() as u8, blocks: 0, thin: false };
        let media = namespace.media();
        let (bytes, thin) = (media.bytes(), media.allocated() < media.bytes());
        (namespace.blocks, namespace.thin) = (bytes >> namespace.block_shift, thin);
        if namespace.blocks == 0 {
            return Err(NamespaceError::TooSmall { bytes, block });
        }
        Ok(namespace)
    }

    pub(crate) fn media(&self) -> &dyn Media {
        match &self.medium {
            Medium::Mem(mem) => mem,
            Medium::Other(other) => other.as_ref(),
        }
    }

    pub(crate) fn media_mut(&mut self) -> &mut dyn Media {
        match &mut self.medium {
            Medium::Mem(mem) => mem,
            Medium::Other(other) => other.as_mut(),
        }
    }
}
