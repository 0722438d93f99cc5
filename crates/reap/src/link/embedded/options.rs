//! What counts for controllers in this process alone, when a device is opened.

use std::time::Duration;

use super::faults::Faults;

/// What counts for controllers in this process alone, when a device is opened.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedOptions {
    /// The CPU of the device thread; counts for the first device of a process.
    pub device_cpu: Option<usize>,
    /// Faults for the controller to commit: for tests. Without, it has none, and pays nothing for the possibility.
    pub faults: Option<Faults>,
    /// Of a `multipath:` device: faults for each path's controller, by path.
    pub path_faults: Vec<Option<Faults>>,
    /// How long a host waits for the controller to become ready, or to stop (CAP.TO), in steps of half a second; `None`: ten seconds, as
    /// drives say, because the device thread may be late. For tests of controllers that do neither.
    pub ready_timeout: Option<Duration>,
    /// The controller has no Write Zeroes.
    pub no_write_zeroes: bool,
    /// The controller has no Dataset Management, and so no Deallocate.
    pub no_deallocate: bool,
    /// The controller has neither Compare nor Verify.
    pub no_checks: bool,
    /// The controller has no Write Uncorrectable.
    pub no_uncorrectable: bool,
}

impl EmbeddedOptions {
    /// The faults of one controller.
    pub(super) fn faults_of(&self, path: Option<usize>) -> Option<Faults> {
        path.map_or_else(|| self.faults.clone(), |path| self.path_faults.get(path).cloned().flatten())
    }
}
