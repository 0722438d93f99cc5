//! A file or block device as a transport: what its queues and its device share. Each queue makes
//! its own ring.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use completion::{Mode, Preset};
use driver::Splitter;
use hw::uring::Features;
use hw::{DmaPool, PoolOptions};
use nvme::{Nsid, Sqe};
use units::Op;

use super::namespace::Passthrough;
use super::probe::PassthroughProbe;
use super::target::{Target, TargetKind};
use super::uri::KernelUri;
use super::zeroing::ZeroMethods;
use crate::error::{AdminError, OpenError, OptionsError, TargetFault};
use crate::mode::{ModeNote, UnsupportedMode};
use crate::namespace::Namespace;
use crate::transport::next_number;

/// The maximum number of bytes of one part. The kernel splits it again for the disk.
const MAX_PART_BYTES: u64 = 1 << 20;

/// The maximum number of bytes of one part of a Deallocate: a running discard cannot always be
/// cancelled, so it must be short.
const MAX_DEALLOCATE_BYTES: u64 = 1 << 30;

/// An open file or block device.
pub(crate) struct KernelFile {
    target: Target,
    pool: DmaPool,
    features: Features,
    zero_methods: ZeroMethods,
    number: u32,
    /// Memory is no longer registered with rings: the kernel has refused, and that was logged.
    unregistered: AtomicBool,
}

impl KernelFile {
    /// Opens the target of `uri`, with a buffer pool of `pool_bytes` bytes.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn open(uri: &KernelUri, pool_bytes: u64) -> Result<KernelFile, OpenError> {
        let unusable = |what: String| OpenError::Kernel {
            path: uri.path.clone(),
            fault: TargetFault::Kernel(what),
        };
        let features = Features::probe().map_err(|e| unusable(e.to_string()))?;
        // Without `keeps_overflow` the kernel would drop completions.
        if !features.timeouts || !features.keeps_overflow || !features.shared {
            return Err(unusable("its io_uring has no time-outs, overflow or cooperative tasks; Linux 5.19 and newer have them".into()));
        }
        let target = Target::open(uri, true)?;
        let pool = PoolOptions { alignment: target.facts().mem_align, ..PoolOptions::default() }
            .open(pool_bytes);
        let pool = pool.map_err(|source| OpenError::System { what: "buffer pool", source })?;
        let is_device = matches!(target.facts().kind, TargetKind::Block { .. });
        let zero_methods = ZeroMethods::new(
            &uri.path.display().to_string(),
            target.facts(),
            is_device && features.discards(target.file()),
        );
        let kernel_file = KernelFile {
            target,
            pool,
            features,
            zero_methods,
            number: next_number(),
            unregistered: AtomicBool::new(false),
        };
        if let Some(passthrough) = kernel_file.target.passthrough() {
            let probe = PassthroughProbe {
                file: kernel_file.target.file(),
                pool: &kernel_file.pool,
                features: &kernel_file.features,
                passthrough,
            };
            let registers =
                probe.run().map_err(|fault| OpenError::Kernel { path: uri.path.clone(), fault })?;
            if !registers && kernel_file.stop_registering() {
                tracing::warn!(
                    "with commands that pass through, this kernel takes no registered memory; Linux 6.1 and newer do, and are faster"
                );
            }
        }
        Ok(kernel_file)
    }

    /// The open target.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Sends an admin command to the controller of an NVMe character device. Returns dword 0 of its
    /// completion.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub(crate) fn admin_command(&self, command: &Sqe, data: &mut [u8]) -> Result<u32, AdminError> {
        match self.target.passthrough() {
            Some(_) => Ok(hw::passthrough::admin(self.target.file(), command, data)?),
            None => Err(AdminError::NoController(
                self.target.facts().identity.model.clone().unwrap_or_else(|| "the file".to_owned()),
            )),
        }
    }

    /// What the running kernel's io_uring supports.
    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    /// The buffer pool.
    #[inline]
    pub(crate) fn pool(&self) -> &DmaPool {
        &self.pool
    }

    /// The transport's number, unique in the process.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The file as a namespace.
    ///
    /// # Errors
    /// A block is larger than one part may be.
    pub(crate) fn namespace(&self) -> Result<Namespace, OpenError> {
        let facts = self.target.facts();
        let log2 = facts.lba_bytes.trailing_zeros() as u8;
        if let Some(Passthrough { nsid, splitter, .. }) = self.target.passthrough() {
            return Ok(Namespace::new(nsid, splitter, facts.bytes >> log2, self.number));
        }
        let splitter = Splitter::new(log2, MAX_PART_BYTES, 0).map_err(OptionsError::from)?;
        Ok(Namespace::new(Nsid(1), self.with_dataless(splitter), facts.bytes >> log2, self.number))
    }

    fn with_dataless(&self, splitter: Splitter) -> Splitter {
        if let Some(through) = self.target.passthrough() {
            return through.splitter;
        }
        let has = |op| self.zero_methods.any(op);
        let deallocated = has(Op::Deallocate).then(|| MAX_DEALLOCATE_BYTES / splitter.block_size());
        splitter.with_dataless(has(Op::WriteZeroes).then_some(u64::MAX), deallocated)
    }

    /// The namespace with its present size and the operations that it is known to support by now.
    pub(crate) fn current(&self, namespace: &Namespace) -> Namespace {
        let facts = self.target.facts();
        // The size at open, if the system does not report the present one.
        let blocks =
            self.target.current_bytes().unwrap_or(facts.bytes) / u64::from(facts.lba_bytes);
        namespace.with_blocks(blocks).with_splitter(self.with_dataless(namespace.splitter()))
    }

    /// How blocks are zeroed and deallocated.
    pub(super) fn zero_methods(&self) -> &ZeroMethods {
        &self.zero_methods
    }

    /// Whether the kernel may be able to poll the device (IOPOLL): direct I/O on a disk with poll
    /// queues.
    pub(crate) fn may_poll(&self) -> bool {
        let facts = self.target.facts();
        self.features.io_poll
            && facts.direct
            && facts.disk.as_ref().is_some_and(|disk| disk.poll_queues)
    }

    /// Why `mode`, one of the kernel's own, is not supported here, as far as is known before a
    /// test. `None`: it is.
    pub(crate) fn unsupported_reason(&self, mode: Mode) -> Option<UnsupportedMode> {
        let facts = self.target.facts();
        let poll_queues = facts.disk.as_ref().is_some_and(|disk| disk.poll_queues);
        match mode {
            Mode::KERNEL_SQPOLL => {
                (!self.features.sq_poll).then_some(UnsupportedMode::NoSqPoll(mode))
            }
            Mode::KERNEL_HYBRID_IOPOLL if !self.features.hybrid_io_poll => {
                Some(UnsupportedMode::NoHybridPolling(mode))
            }
            Mode::KERNEL_HYBRID_IOPOLL if self.target.passthrough().is_some() => {
                Some(UnsupportedMode::Passthrough(mode))
            }
            Mode::KERNEL_IOPOLL if !self.features.io_poll => Some(UnsupportedMode::NoIoPoll(mode)),
            Mode::KERNEL_IOPOLL | Mode::KERNEL_HYBRID_IOPOLL if !facts.direct => {
                Some(UnsupportedMode::PageCache(mode))
            }
            Mode::KERNEL_IOPOLL | Mode::KERNEL_HYBRID_IOPOLL if !poll_queues => {
                Some(UnsupportedMode::NoPollQueues(mode))
            }
            _ => None,
        }
    }

    /// How `mode` differs here from what its name says; `None`: it does not.
    pub(crate) fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        let polls = mode == Mode::POLL || mode == Mode::HYBRID_MEAN || mode == Mode::HYBRID_MIN;
        match mode {
            _ if mode.moderation().is_some() => Some(ModeNote::NotCoalesced(mode)),
            _ if mode.facts().posted => Some(ModeNote::NotPosted(mode)),
            _ if mode.facts().drain_thread => Some(ModeNote::NotDrained(mode)),
            _ if !self.features.min_wait
                && matches!(mode.preset(), Preset::Suspend | Preset::Adaptive(_)) =>
            {
                Some(ModeNote::NapsCost(mode))
            }
            _ if polls && !self.may_poll() => Some(ModeNote::Interrupted(mode)),
            _ => None,
        }
    }

    /// Whether buffers are still registered.
    pub(super) fn registers_buffers(&self) -> bool {
        !self.unregistered.load(Relaxed)
    }

    /// Stops registering buffers. True the first time.
    pub(super) fn stop_registering(&self) -> bool {
        !self.unregistered.swap(true, Relaxed)
    }
}
