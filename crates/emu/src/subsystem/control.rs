//! Delivery of changes to running controllers, from any thread.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::Nanos;

use super::script::{Change, Script};

/// Queue of changes for one controller.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    news: AtomicBool,
    changes: Mutex<Vec<(Nanos, Change)>>,
}

impl Mailbox {
    fn send(&self, changes: impl IntoIterator<Item = (Nanos, Change)>) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).extend(changes);
        self.news.store(true, Release);
    }

    /// Whether changes are queued. A single load, as every step calls this.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Acquire)
    }

    /// Removes the queued changes and returns them. A change that is queued at the same time is
    /// returned now, or `has_news` returns true again.
    pub(crate) fn take(&self) -> Vec<(Nanos, Change)> {
        self.news.store(false, Release);
        std::mem::take(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The subsystem has no such path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no path {path}: the subsystem has {paths} controllers, counted from 0")]
pub struct NoSuchPath {
    /// The path requested.
    pub path: usize,
    /// Number of paths.
    pub paths: usize,
}

/// A handle on the running controllers of a subsystem; clones may be used from any thread. A change
/// takes effect at the controller's next step, so a sleeping controller has to be stepped.
#[derive(Clone, Debug, Default)]
pub struct PathControl(Arc<Mutex<Vec<Arc<Mailbox>>>>);

impl PathControl {
    fn paths(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the queue of a new controller.
    pub(super) fn add(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::default());
        self.paths().push(mailbox.clone());
        mailbox
    }

    /// Applies a change at the next step of a path's controller. Paths count from 0 in the order in
    /// which the controllers were created.
    pub fn apply(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.at(Nanos::ZERO, path, change)
    }

    /// Applies a change at the instant `at`, in the time that the controllers are stepped with.
    pub fn at(&self, at: Nanos, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.play(&Script::default().with(Nanos::ZERO, path, change), at)
    }

    /// Plays a script whose time starts at `start`. If it names a path that does not exist, none of
    /// its steps is played.
    pub fn play(&self, script: &Script, start: Nanos) -> Result<(), NoSuchPath> {
        let paths = self.paths();
        if let Some(step) = script.steps.iter().find(|step| step.path >= paths.len()) {
            return Err(NoSuchPath { path: step.path, paths: paths.len() });
        }
        for step in &script.steps {
            paths[step.path].send([(start + step.at, step.change)]);
        }
        Ok(())
    }
}
