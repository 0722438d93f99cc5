//! Subsystems: several controllers, each on a port of its own, with namespaces that they share and
//! such that they do not.
//!
//! Controllers of a subsystem are stepped one by one, by the thread that steps controllers, and
//! know of each other only what they share: the media of shared namespaces. [`PathControl`] reaches
//! each of them while they run; a [`Script`] does so by the clock.

mod ana;
mod control;
mod script;

use std::collections::BTreeSet;

use nvme::Nsid;

use crate::{Config, Controller, Namespace, Port};

pub use ana::Ana;
pub(crate) use ana::AnaStates;
pub(crate) use control::Mailbox;
pub use control::{NoSuchPath, PathControl};
pub use script::{Change, Loss, Order, Script, ScriptError, Timed, Wire};

/// A subsystem that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubsystemError {
    /// A name that is no NQN.
    #[error(
        "`{0}` is no NVMe Qualified Name: it has 1 to 223 bytes and starts with `nqn.` (Base 4.7)"
    )]
    Nqn(String),
    /// A namespace identifier that is taken, or is not one.
    #[error("namespace identifier {0} is taken, 0, or above {most}: each is used once in a subsystem", most = Subsystem::MOST_NAMESPACES)]
    Nsid(Nsid),
    /// A controller identifier that is taken.
    #[error(
        "controller identifier {0:#06x} is taken: each controller of a subsystem has one of its own, below FFF0h"
    )]
    ControllerId(u16),
}

/// What the controllers of a subsystem have in common. Namespaces that are to be shared are added
/// first, then controllers are made.
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
        Ok(Subsystem {
            nqn,
            shared: Vec::new(),
            nsids: BTreeSet::new(),
            controllers: BTreeSet::new(),
            control,
        })
    }

    /// SUBNQN.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// A handle on the controllers, those that will be made too.
    pub fn control(&self) -> PathControl {
        self.control.clone()
    }

    /// Adds a namespace that every controller made from now on is attached to. Unless it has one
    /// already ([`Namespace::with_nsid`]) it gets the next free identifier.
    pub fn share(&mut self, mut namespace: Namespace) -> Result<Nsid, SubsystemError> {
        let nsid = self.admit(&mut namespace)?;
        self.shared.push(namespace);
        Ok(nsid)
    }

    /// One more controller, with `private` namespaces of its own next to the shared ones. `config`
    /// says what it is; its NQN is replaced, and its controller identifier has to be one that no
    /// other has.
    pub fn controller<P: Port>(
        &mut self,
        config: Config,
        private: Vec<Namespace>,
        port: P,
    ) -> Result<Controller<P>, SubsystemError> {
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
        controller.listen_to(self.control.add());
        Ok(controller)
    }

    /// A controller that one association has: it may go, and another one have its identifier. It is
    /// reached by who made it, not by [`PathControl`].
    #[cfg(feature = "serve")]
    pub(crate) fn dynamic_controller<P: Port>(&mut self, config: Config, port: P) -> Controller<P> {
        let namespaces = self.shared.iter_mut().map(Namespace::share).collect();
        Controller::new(Config { nqn: Some(self.nqn.clone()), ..config }, namespaces, port)
    }

    /// Whether there is such a namespace that controllers share.
    #[cfg(feature = "serve")]
    pub(crate) fn has(&self, nsid: Nsid) -> bool {
        self.shared.iter().any(|namespace| namespace.nsid == Some(nsid))
    }

    /// The medium of a shared namespace misbehaves. False: there is no such namespace, or no such
    /// block.
    #[cfg(feature = "serve")]
    pub(crate) fn expect(&mut self, nsid: Nsid, fault: crate::MediaFault) -> bool {
        let namespace = self.shared.iter_mut().find(|namespace| namespace.nsid == Some(nsid));
        namespace.is_some_and(|namespace| {
            namespace.medium.expect(fault, 1 << namespace.block_shift).is_ok()
        })
    }

    /// Caches of shared media are lost.
    #[cfg(feature = "serve")]
    pub(crate) fn lose_power(&mut self) {
        for namespace in &mut self.shared {
            if let Err(error) = namespace.medium.lose_power() {
                tracing::warn!(%error, "a cache could not be emptied");
            }
        }
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

#[cfg(test)]
mod tests;
