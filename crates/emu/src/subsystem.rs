//! NVM subsystems: several controllers, each with its own port, with shared and private namespaces.
//!
//! Controllers are stepped one by one by the owner's thread; they share only the media of shared
//! namespaces. [`PathControl`] applies changes to a running controller, a [`Script`] does so at
//! given times.

mod ana;
mod control;
mod script;

use std::collections::BTreeSet;

use nvme::Nsid;

use crate::{Config, Controller, NamespaceConfig, Port};

pub use ana::Ana;
pub(crate) use ana::AnaStates;
pub(crate) use control::Mailbox;
pub use control::{NoSuchPath, PathControl};
pub use script::{Change, ControlCommand, Loss, Script, ScriptError, Timed, Wire};

/// Why a subsystem cannot have this configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubsystemError {
    /// The name is not a valid NQN.
    #[error(
        "`{0}` is not an NVMe Qualified Name: it has 1 to 223 bytes and starts with `nqn.` (Base 4.7)"
    )]
    Nqn(String),
    /// The namespace identifier is in use or invalid.
    #[error("namespace identifier {0} is in use, 0, or above {max}; choose one that the subsystem does not use", max = Subsystem::MAX_NSID)]
    Nsid(Nsid),
    /// The controller identifier is in use.
    #[error(
        "controller identifier {0:#06x} is in use or not below FFF0h; each controller of a subsystem needs its own"
    )]
    ControllerId(u16),
}

/// State common to the controllers of a subsystem. Shared namespaces must be added before the
/// controllers are created.
#[derive(Debug)]
pub struct Subsystem {
    nqn: String,
    shared: Vec<NamespaceConfig>,
    nsids: BTreeSet<Nsid>,
    controllers: BTreeSet<u16>,
    control: PathControl,
}

impl Subsystem {
    /// The highest namespace identifier.
    pub const MAX_NSID: u32 = NamespaceConfig::MAX_NSID;

    /// A subsystem without controllers and namespaces.
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

    /// A handle on all its controllers, present and future.
    pub fn control(&self) -> PathControl {
        self.control.clone()
    }

    /// Adds a namespace that is attached to every controller created later. Its NSID is that of
    /// [`NamespaceConfig::with_nsid`], or the next free one.
    pub fn share(&mut self, mut namespace: NamespaceConfig) -> Result<Nsid, SubsystemError> {
        let nsid = self.admit(&mut namespace)?;
        self.shared.push(namespace);
        Ok(nsid)
    }

    /// Creates a controller, with `private` namespaces in addition to the shared ones. In `config`
    /// the NQN is replaced; the controller identifier must be unique.
    pub fn controller<P: Port>(
        &mut self,
        config: Config,
        private: Vec<NamespaceConfig>,
        port: P,
    ) -> Result<Controller<P>, SubsystemError> {
        let id = config.controller_id;
        if id >= 0xfff0 || self.controllers.contains(&id) {
            return Err(SubsystemError::ControllerId(id));
        }
        // All controllers share the medium. Each has its own copy of the size and of the ANA group,
        // so that a fault can change these on one path only.
        let mut namespaces: Vec<_> = self.shared.iter_mut().map(NamespaceConfig::share).collect();
        for mut namespace in private {
            self.admit(&mut namespace)?;
            namespaces.push(namespace);
        }
        // The identifier is taken only now: if a private namespace is refused, it stays free.
        self.controllers.insert(id);
        let config = Config { nqn: Some(self.nqn.clone()), ..config };
        let mut controller = Controller::new(config, namespaces, port);
        controller.listen_to(self.control.add());
        Ok(controller)
    }

    /// Creates a controller for one association. It is not reached by [`PathControl`], and its
    /// identifier may be reused once it is gone.
    #[cfg(feature = "serve")]
    pub(crate) fn dynamic_controller<P: Port>(&mut self, config: Config, port: P) -> Controller<P> {
        let namespaces = self.shared.iter_mut().map(NamespaceConfig::share).collect();
        Controller::new(Config { nqn: Some(self.nqn.clone()), ..config }, namespaces, port)
    }

    /// Whether there is a shared namespace with this NSID.
    #[cfg(feature = "serve")]
    pub(crate) fn has(&self, nsid: Nsid) -> bool {
        self.shared.iter().any(|namespace| namespace.nsid == Some(nsid))
    }

    /// Injects a fault into the medium of a shared namespace.
    ///
    /// # Errors
    /// There is no such block.
    #[cfg(feature = "serve")]
    pub(crate) fn inject_fault(
        &mut self,
        nsid: Nsid,
        fault: crate::MediaFault,
    ) -> Result<(), crate::MediaError> {
        let namespace = self.shared.iter_mut().find(|namespace| namespace.nsid == Some(nsid));
        namespace.map_or(Ok(()), |namespace| {
            namespace.medium.inject_fault(fault, 1 << namespace.block_shift)
        })
    }

    /// The injected faults of shared media that are still in effect.
    #[cfg(feature = "serve")]
    pub(crate) fn active_faults(&self) -> impl Iterator<Item = Change> {
        self.shared.iter().flat_map(|namespace| {
            let nsid = namespace.nsid.unwrap_or(Nsid(0));
            namespace
                .medium
                .active_faults()
                .into_iter()
                .map(move |fault| Change::Media { nsid, fault })
        })
    }

    /// Power loss: drops the caches of shared media.
    #[cfg(feature = "serve")]
    pub(crate) fn lose_power(&mut self) {
        for namespace in &mut self.shared {
            if let Err(error) = namespace.medium.lose_power() {
                tracing::warn!(%error, "a cache could not be emptied");
            }
        }
    }

    /// The next controller identifier.
    pub fn next_controller_id(&self) -> u16 {
        self.controllers.last().map_or(1, |last| last + 1)
    }

    fn admit(&mut self, namespace: &mut NamespaceConfig) -> Result<Nsid, SubsystemError> {
        let next = Nsid(self.nsids.last().map_or(1, |last| last.0 + 1));
        let nsid = *namespace.nsid.get_or_insert(next);
        if !(1..=Subsystem::MAX_NSID).contains(&nsid.0) || !self.nsids.insert(nsid) {
            return Err(SubsystemError::Nsid(nsid));
        }
        Ok(nsid)
    }
}

#[cfg(test)]
mod tests;
