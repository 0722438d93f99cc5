//! Options of an open.

use std::time::Duration;

use completion::Mode;
use smart_default::SmartDefault;
use units::Nanos;

use crate::transport::EmbeddedOptions;

/// Options for [`crate::Device::open_with`].
///
/// ```
/// use std::time::Duration;
/// use reap::{Device, Mode, OpenOptions};
///
/// let options = OpenOptions::new().mode(Mode::POLL).timeout(Duration::from_secs(5));
/// let device = Device::open_with("mem:64M?profile=null", &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, SmartDefault)]
#[must_use]
pub struct OpenOptions {
    /// `None`: one for each hardware queue.
    pub(crate) software_queues: Option<usize>,
    /// `None`: one for each software queue, or, where that number is not given, for each thread
    /// that is likely.
    pub(crate) hardware_queues: Option<usize>,
    #[default(256)]
    pub(crate) depth: u32,
    #[default(Mode::INTERRUPT)]
    pub(crate) mode: Mode,
    #[default(Nanos::from_secs(30))]
    pub(crate) timeout: Nanos,
    #[default(256 << 20)]
    pub(crate) pool_bytes: u64,
    pub(crate) embedded: EmbeddedOptions,
}

impl OpenOptions {
    /// The options of [`crate::Device::open`].
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// The number of threads that use the device at once, 1 to 256: [`crate::Device::queue`] grants
    /// this many queues. Where the device has fewer hardware queues, threads share them. A
    /// `kernel:` device allows 1 to 65,535.
    ///
    /// Default: one for each hardware queue, of which twice the machine's CPUs, at least 8, are
    /// requested. A `kernel:` device has 256.
    pub fn software_queues(self, queues: usize) -> OpenOptions {
        OpenOptions { software_queues: Some(queues), ..self }
    }

    /// The number of hardware queues that the software queues share: no more than there are
    /// software queues, and no more than the controller grants. Default: one for each software
    /// queue. A `kernel:` device always has one for each.
    pub fn hardware_queues(self, queues: usize) -> OpenOptions {
        OpenOptions { hardware_queues: Some(queues), ..self }
    }

    /// The maximum number of commands in flight on each hardware queue; the controller may allow
    /// fewer. Default: 256.
    pub fn depth(self, commands: u32) -> OpenOptions {
        OpenOptions { depth: commands, ..self }
    }

    /// The completion mode of new queues. Default: [`Mode::INTERRUPT`].
    pub fn mode(self, mode: Mode) -> OpenOptions {
        OpenOptions { mode, ..self }
    }

    /// A command without a completion for this long is aborted; if that fails, the controller is
    /// reset. Default: 30 s.
    ///
    /// Admin commands have the same time, but at least 0.5 s and at most 10 s. The time counts from
    /// the clock read of the submission. If the queue's thread computes for longer than this, its
    /// commands are announced and its completions reaped on its behalf before anything is aborted.
    pub fn timeout(self, timeout: Duration) -> OpenOptions {
        OpenOptions { timeout: timeout.into(), ..self }
    }

    /// The maximum number of bytes of all buffers and rings together. It reserves address space
    /// only: pages are allocated when first touched. Default: 256 MiB.
    pub fn pool_bytes(self, bytes: u64) -> OpenOptions {
        OpenOptions { pool_bytes: bytes, ..self }
    }

    /// Options for embedded controllers.
    pub fn embedded(self, embedded: EmbeddedOptions) -> OpenOptions {
        OpenOptions { embedded, ..self }
    }

    /// The number of software queues of a device that must know it before it has any.
    pub(crate) fn software(&self) -> usize {
        // Twice the CPUs: more threads than CPUs are common, and an unused queue costs little.
        self.software_queues
            .or(self.hardware_queues)
            .unwrap_or_else(|| (2 * hw::cpus()).clamp(8, 64))
    }

    /// The number of hardware queues to request from a controller.
    pub(crate) fn hardware(&self) -> usize {
        let software = self.software().max(1);
        self.hardware_queues.unwrap_or(software).clamp(1, software)
    }

    /// The number of software queues over `granted` hardware queues.
    pub(crate) fn software_over(&self, granted: usize) -> usize {
        self.software_queues.unwrap_or(granted)
    }
}
