//! Access to controllers that are in this process, for tests and benchmarks.

use std::fmt;
use std::sync::Arc;

use emu::Profile;
#[cfg(feature = "testing")]
use emu::{Change, NoSuchPath, Script};

#[cfg(feature = "testing")]
use crate::multipath::Multipath;
use crate::shared::controller::OpenController;
#[cfg(feature = "testing")]
use crate::transport::ManualStepper;
use crate::transport::Measured;
use crate::transport::embedded::EmbeddedHandle;

/// The embedded controllers of a device. It keeps the device open.
#[derive(Clone)]
pub struct Embedded {
    pub(super) controllers: Arc<[OpenController]>,
    #[cfg(feature = "testing")]
    pub(super) paths: Option<Arc<Multipath>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("controllers", &self.controllers.len())
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// The first controller's end in this process. [`crate::Device::embedded`] has checked that
    /// there is one.
    fn end(&self) -> &EmbeddedHandle {
        match self.controllers[0].transport().end() {
            Some(end) => end,
            None => unreachable!("an embedded controller has an end in this process"),
        }
    }

    /// The timing profile of the controller; of several, the first path's.
    pub fn profile(&self) -> &Profile {
        self.end().profile()
    }

    /// Keeps the device thread awake while the guard lives.
    pub fn measure(&self) -> Measured {
        self.end().measure()
    }

    /// Stops the device thread: all embedded controllers of the process are then stepped by the
    /// caller.
    #[cfg(feature = "testing")]
    pub fn manual_step(&self) -> ManualStepper {
        self.end().manual_step()
    }

    /// The CPU that the device thread is pinned to.
    pub fn device_cpu(&self) -> Option<usize> {
        self.end().device_cpu()
    }

    /// Applies a change to the controller of a path, counted from 0.
    ///
    /// # Errors
    /// There is no such path.
    #[cfg(feature = "testing")]
    pub fn change_path(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.paths
            .as_ref()
            .map_or(Err(NoSuchPath { path, paths: 0 }), |paths| paths.change(path, change))
    }

    /// Plays a script of changes, with times from now on.
    ///
    /// # Errors
    /// The script names a path that does not exist.
    #[cfg(feature = "testing")]
    pub fn play(&self, script: &Script) -> Result<(), NoSuchPath> {
        let none = NoSuchPath { path: script.steps.first().map_or(0, |step| step.path), paths: 0 };
        self.paths.as_ref().map_or(Err(none), |paths| paths.play(script))
    }
}
