//! What a run leaves of its threads.

use reap::Nanos;
use workload::Generator;

use crate::bench::Ran;

/// What became of one thread.
pub struct Ended {
    /// With its statistics.
    pub generator: Generator,
    /// What it cost.
    pub ran: Ran,
    /// From the start of the run until it ended.
    pub elapsed: Nanos,
    /// It had to wait for other threads, because there are fewer CPUs: so many threads on so many CPUs.
    pub oversubscribed: Option<(usize, usize)>,
}
