//! Subsystems: several controllers, each on a port of its own, with namespaces that they share and such that they do not.
//!
//! Controllers of a subsystem are stepped one by one, by the thread that steps controllers, and know of each other only what they
//! share: the media of shared namespaces. [`PathControl`] reaches each of them while they run; a [`Script`] does so
//! by the clock.

mod ana;
mod script;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::Nsid;
use units::Nanos;

use crate::{Config, Controller, Namespace, Port};

pub use ana::Ana;
pub(crate) use ana::AnaStates;
pub use script::{Change, Loss, Order, Script, ScriptError, Timed};

/// A subsystem that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubsystemError {
    /// A name that is no NQN.
    #[error("`{0}` is no NVMe Qualified Name: it has 1 to 223 bytes and starts with `nqn.` (Base 4.7)")]
    Nqn(String),
    /// A namespace identifier that is taken, or is not one.
    #[error("namespace identifier {0} is taken, 0, or above {most}: each is used once in a subsystem", most = Subsystem::MOST_NAMESPACES)]
    Nsid(Nsid),
    /// A controller identifier that is taken.
    #[error("controller identifier {0:#06x} is taken: each controller of a subsystem has one of its own, below FFF0h")]
    ControllerId(u16),
}

/// What the controllers of a subsystem have in common. Namespaces that are to be shared are added first, then controllers
/// are made.
#[derive(Debug)]
pub struct Subsystem {
    nqn: String,
    shared: Vec<Namespace>,
    nsids: BTreeSet<Nsid>,
    controllers: BTreeSet<u16>,
    control: PathControl,
}

impl Subsystem {
    /// The highest namespace identifier.
    pub const MOST_NAMESPACES: u32 = Namespace::MOST;

    /// No controllers and no namespaces yet.
    pub fn new(nqn: impl Into<String>) -> Result<Subsystem, SubsystemError> {
        let nqn = nqn.into();
        if !nqn.starts_with("nqn.") || nqn.len() > 223 {
            return Err(SubsystemError::Nqn(nqn));
        }
        let control = PathControl::default();
        Ok(Subsystem { nqn, shared: Vec::new(), nsids: BTreeSet::new(), controllers: BTreeSet::new(), control })
    }

    /// SUBNQN.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// A handle on the controllers, those that will be made too.
    pub fn control(&self) -> PathControl {
        self.control.clone()
    }

    /// Adds a namespace that every controller made from now on is attached to. Unless it has one already
    /// ([`Namespace::with_nsid`]) it gets the next free identifier.
    pub fn share(&mut self, mut namespace: Namespace) -> Result<Nsid, SubsystemError> {
        let nsid = self.admit(&mut namespace)?;
        self.shared.push(namespace);
        Ok(nsid)
    }

    /// One more controller, with `private` namespaces of its own beside the shared ones. `config` says what it is; its NQN
    /// is replaced, and its controller identifier has to be one that no other has.
    pub fn controller<P: Port>(&mut self, config: Config, private: Vec<Namespace>, port: P) -> Result<Controller<P>, SubsystemError> {
        let id = config.controller_id;
        if id >= 0xfff0 || self.controllers.contains(&id) {
            return Err(SubsystemError::ControllerId(id));
        }
        let mut namespaces: Vec<_> = self.shared.iter_mut().map(Namespace::share).collect();
        for mut namespace in private {
            self.admit(&mut namespace)?;
            namespaces.push(namespace);
        }
        self.controllers.insert(id);
        let config = Config { nqn: Some(self.nqn.clone()), ..config };
        let mut controller = Controller::new(config, namespaces, port);
        let mailbox = Arc::new(Mailbox::default());
        self.control.paths().push(mailbox.clone());
        controller.listen_to(mailbox);
        Ok(controller)
    }

    /// The controller identifier that comes next.
    pub fn next_controller_id(&self) -> u16 {
        self.controllers.last().map_or(1, |last| last + 1)
    }

    fn admit(&mut self, namespace: &mut Namespace) -> Result<Nsid, SubsystemError> {
        let next = Nsid(self.nsids.last().map_or(1, |last| last.0 + 1));
        let nsid = *namespace.nsid.get_or_insert(next);
        if !(1..=Subsystem::MOST_NAMESPACES).contains(&nsid.0) || !self.nsids.insert(nsid) {
            return Err(SubsystemError::Nsid(nsid));
        }
        Ok(nsid)
    }
}

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

/// A handle on the controllers of a subsystem while they run, wherever they run: clones may be used from any thread. A
/// controller that sleeps has to be stepped for a change to take effect.
#[derive(Clone, Debug, Default)]
pub struct PathControl(Arc<Mutex<Vec<Arc<Mailbox>>>>);

impl PathControl {
    fn paths(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the controller of this path (they count from 0, in the order in which they were made) at its next step.
    pub fn apply(&self, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.at(Nanos::ZERO, path, change)
    }

    /// The same at an instant, in the time that the controllers are stepped with.
    pub fn at(&self, at: Nanos, path: usize, change: Change) -> Result<(), NoSuchPath> {
        self.play(&Script::default().with(Nanos::ZERO, path, change), at)
    }

    /// Lets a script happen, from the instant `start` on. Nothing of it does if it names a path that there is not.
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

#[cfg(test)]
mod tests;
