//! How a controller is told what happens to it, from any thread.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::Nanos;

use super::change::Change;
use super::script::Script;

/// Changes on their way to one controller.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    news: AtomicBool,
    changes: Mutex<Vec<(Nanos, Change)>>,
}

impl Mailbox {
    fn changes(&self) -> MutexGuard<'_, Vec<(Nanos, Change)>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, changes: impl IntoIterator<Item = (Nanos, Change)>) {
        self.changes().extend(changes);
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
        std::mem::take(&mut self.changes())
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

/// A hand on the controllers of a subsystem while they run, wherever they run: clones may be used from any thread. A
/// controller that sleeps has to be stepped for a change to take effect.
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

    /// How many controllers there are.
    pub fn len(&self) -> usize {
        self.paths().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the controller of this path (they count from 0, in the order in which they were made) at its next step.
    pub fn apply(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.at(Nanos::ZERO, path, change)
    }

    /// The same at an instant, in the time that the controllers are stepped with.
    pub fn at(&self, at: Nanos, path: usize, change: Change) -> Result<(), NoSuchPath> {
        let paths = self.paths();
        let mailbox = paths.get(path).ok_or(NoSuchPath { path, paths: paths.len() })?;
        mailbox.send([(at, change)]);
        Ok(())
    }

    /// Lets a script happen, from the instant `start` on. Nothing of it does if it names a path that there is not.
    pub fn play(&self, script: &Script, start: Nanos) -> Result<(), NoSuchPath> {
        let paths = self.paths();
        if let Some(step) = script.steps.iter().find(|step| step.path >= paths.len()) {
            return Err(NoSuchPath { path: step.path, paths: paths.len() });
        }
        for (path, mailbox) in paths.iter().enumerate() {
            let own = script.steps.iter().filter(|step| step.path == path);
            mailbox.send(own.map(|step| (start + step.at, step.change)));
        }
        Ok(())
    }
}
