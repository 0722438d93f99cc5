//! Delivers changes to a controller, from any thread.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::Nanos;

use super::script::{Change, Script};

/// Changes on their way to one controller.
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

    /// Whether anything has come. One load: this is asked at every step.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Acquire)
    }

    /// The changes that have come. One that comes while this looks is among them, or is news again.
    pub(crate) fn take(&self) -> Vec<(Nanos, Change)> {
        self.news.store(false, Release);
        std::mem::take(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A path that a subsystem does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no path {path}: the subsystem has {paths} controllers, counted from 0")]
pub struct NoSuchPath {
    /// The path.
    pub path: usize,
    /// How many there are.
    pub paths: usize,
}

/// A handle on the controllers of a subsystem while they run, wherever they run: clones may be used
/// from any thread. A controller that sleeps has to be stepped for a change to take effect.
#[derive(Clone, Debug, Default)]
pub struct PathControl(Arc<Mutex<Vec<Arc<Mailbox>>>>);

impl PathControl {
    fn paths(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mailbox of one more controller.
    pub(super) fn add(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::default());
        self.paths().push(mailbox.clone());
        mailbox
    }

    /// Changes the controller of this path (they count from 0, in the order in which they were
    /// made) at its next step.
    pub fn apply(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.at(Nanos::ZERO, path, change)
    }

    /// The same at an instant, in the time that the controllers are stepped with.
    pub fn at(&self, at: Nanos, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.play(&Script::default().with(Nanos::ZERO, path, change), at)
    }

    /// Lets a script happen, from the instant `start` on. Nothing of it does if it names a path
    /// that there is not.
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
