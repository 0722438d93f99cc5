//! How a device is opened.

use completion::{LatencyPrice, Mode};
use units::Nanos;

use crate::link::EmbeddedOptions;

/// How a device is opened. Start from `OpenOptions::default()`.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Software queues: how many threads will use the device at once, 1 to 256.
    pub software_queues: usize,
    /// Hardware queues that they share; no more than there are software queues, and no more than the controller grants.
    pub hardware_queues: usize,
    /// Commands in flight on each hardware queue, as far as the controller allows.
    pub depth: u32,
    /// The completion mode that queues start with.
    pub mode: Mode,
    /// How much later than if polled a command may be found, as a share of its device time. Only
    /// [`Mode::ADAPTIVE`] asks.
    pub latency_price: LatencyPrice,
    /// After this long without an answer a command is aborted, then the controller reset. Admin commands are given as
    /// long, within half a second and ten. It counts from the clock read that the request was submitted with. Where the queue's
    /// thread computes for longer than this, what it has started is announced, and what has completed is taken for it, before
    /// anything is aborted.
    pub timeout: Nanos,
    /// Most bytes of buffers and rings. Address space only: memory is taken as it is first touched.
    pub pool_bytes: u64,
    /// What counts for controllers in this process alone.
    pub embedded: EmbeddedOptions,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            software_queues: 1,
            hardware_queues: 1,
            depth: 256,
            mode: Mode::INTERRUPT,
            latency_price: LatencyPrice::default(),
            timeout: Nanos::from_secs(30),
            pool_bytes: 256 << 20,
            embedded: EmbeddedOptions::default(),
        }
    }
}
