//! How a device is opened.

use std::time::Duration;

use completion::Mode;
use smart_default::SmartDefault;
use units::Nanos;

use crate::transport::EmbeddedOptions;

/// How a device is opened, for [`crate::Device::open_with`].
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
    /// `None`: as many as there are hardware queues.
    pub(crate) software_queues: Option<usize>,
    /// `None`: one for each software queue, or as many as there are threads likely to be.
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
    /// What [`crate::Device::open`] takes.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// How many threads use the device at once, 1 to 256: this many queues [`crate::Device::queue`] grants. Where the device has fewer
    /// hardware queues, several threads share one. A `kernel:` device takes 1 to 65,535.
    ///
    /// Left out: a queue for each hardware queue, at least 8 and twice as many as the machine has CPUs, as far as the device grants
    /// them. A `kernel:` device has 256 then.
    pub fn software_queues(self, queues: usize) -> OpenOptions {
        OpenOptions { software_queues: Some(queues), ..self }
    }

    /// Hardware queues that the software queues share: no more than there are of these, and no more than the controller grants.
    /// Left out: one for each. A `kernel:` device has one for each always.
    pub fn hardware_queues(self, queues: usize) -> OpenOptions {
        OpenOptions { hardware_queues: Some(queues), ..self }
    }

    /// Commands in flight on each hardware queue, as far as the controller allows. Left out: 256.
    pub fn depth(self, commands: u32) -> OpenOptions {
        OpenOptions { depth: commands, ..self }
    }

    /// The completion mode that queues start with. Left out: [`Mode::INTERRUPT`].
    pub fn mode(self, mode: Mode) -> OpenOptions {
        OpenOptions { mode, ..self }
    }

    /// After this long without an answer a command is aborted, then the controller reset. Left out: 30 s.
    ///
    /// Admin commands are given as long, within half a second and ten. It counts from the clock read that the request was
    /// submitted with. Where the queue's thread computes for longer than this, what it has started is announced, and what has
    /// completed is taken for it, before anything is aborted.
    pub fn timeout(self, timeout: Duration) -> OpenOptions {
        OpenOptions { timeout: timeout.into(), ..self }
    }

    /// Most bytes of buffers and rings. Address space only: memory is taken as it is first touched. Left out: 256 MiB.
    pub fn pool_bytes(self, bytes: u64) -> OpenOptions {
        OpenOptions { pool_bytes: bytes, ..self }
    }

    /// What counts for controllers in this process alone.
    pub fn embedded(self, embedded: EmbeddedOptions) -> OpenOptions {
        OpenOptions { embedded, ..self }
    }

    /// Software queues of a device that has to say it before any is there.
    pub(crate) fn software(&self) -> usize {
        self.software_queues.or(self.hardware_queues).unwrap_or_else(|| (2 * hw::cpus()).clamp(8, 64))
    }

    /// Hardware queues to ask a controller for.
    pub(crate) fn hardware(&self) -> usize {
        let software = self.software().max(1);
        self.hardware_queues.unwrap_or(software).clamp(1, software)
    }

    /// The software queues over `granted` hardware queues: those that were asked for, or one for each.
    pub(crate) fn software_over(&self, granted: usize) -> usize {
        self.software_queues.unwrap_or(granted)
    }
}
