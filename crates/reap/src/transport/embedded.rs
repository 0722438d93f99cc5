//! The embedded controller: `emu`'s, in this process, stepped by a thread of its own.
//!
//! | question | file |
//! | --- | --- |
//! | what does the controller see of its host? | `port.rs` |
//! | how is it told of doorbells and registers? | `registers.rs` |
//! | which thread steps it? | `runner.rs` |
//! | how long do its commands take, and where is its data? | `profile.rs`, `media.rs` |
//! | what is its subsystem called? | `name.rs` |
//! | what goes wrong on access? | `faults.rs` |

mod faults;
mod media;
mod name;
mod port;
mod profile;
mod registers;
mod runner;

use std::sync::Arc;
use std::time::Duration;

use emu::{Ana, Config, Controller, FaultInjector, FaultPlan, Mem, Namespace, Port, Profile, Subsystem};
use hw::{Bar, DmaPool, Vectors};
use nvme::Vector;
use sync::Gate;
use units::Nanos;

use crate::error::{OpenError, OptionsError};
use crate::transport::file_lock::FileAccess;
use crate::uri::{Backing, DeviceUri};
use faults::FaultyController;
use media::FileMedia;
use port::{Attachment, EmbeddedPort};
use runner::{Runner, Stepper};

pub use faults::Faults;
pub(super) use registers::EmbeddedRegisters;
pub use runner::{ByHand, Measured};

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
    fn faults_of(&self, path: Option<usize>) -> Option<Faults> {
        path.map_or_else(|| self.faults.clone(), |path| self.path_faults.get(path).cloned().flatten())
    }
}

/// How late a doorbell write is at most where they are late: a few commands of a fast drive.
const LATE_DOORBELL: Nanos = Nanos::from_micros(40);

pub(crate) type End = EmbeddedHandle;

/// The controller's end of the transport, as the host's threads reach it.
pub(crate) struct EmbeddedHandle {
    attachment: Arc<Attachment>,
    runner: Arc<Runner>,
    profile: Profile,
}

impl EmbeddedHandle {
    /// Keeps the controller from the host's memory. False: nothing can.
    pub(super) fn cut_off(&self) -> bool {
        self.attachment.gate.as_ref().map(Gate::shut).is_some()
    }

    /// Lets the controller reach the host's memory again.
    pub(super) fn let_in(&self) {
        if let Some(gate) = &self.attachment.gate {
            gate.open();
        }
    }

    /// The host is gone.
    pub(super) fn detach(&self) {
        self.attachment.detach();
        self.runner.kick();
    }

    /// How the controller behaves.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Time that the device spent on sending messages: what the host's notifications cost somebody else.
    pub(crate) fn notify_time(&self) -> Nanos {
        self.attachment.notify_time()
    }

    /// When the first message of a vector was sent that nobody has asked after yet.
    pub(super) fn take_message_time(&self, vector: Vector) -> Option<Nanos> {
        self.attachment.take_message_time(vector)
    }

    /// While it is measured, the device thread never sleeps, and gaps in its running are counted.
    pub(crate) fn measure(&self) -> Measured {
        Measured::new(&self.runner)
    }

    /// From now on all embedded controllers that have this one's thread run by hand.
    pub(crate) fn by_hand(&self) -> ByHand {
        ByHand::new(&self.runner)
    }

    /// The CPU that the device thread is pinned to.
    pub(crate) fn device_cpu(&self) -> Option<usize> {
        self.runner.cpu()
    }

    /// The device thread is to look at what happens to its controllers.
    pub(crate) fn kick(&self) {
        self.runner.kick();
    }
}

/// What a controller can reach of its host.
pub(super) struct HostResources<'a> {
    pub pool: &'a DmaPool,
    pub vectors: &'a Arc<Vectors>,
}

/// What a controller that is one of several paths has beside what its URI says.
pub(crate) struct SubsystemMember<'a> {
    /// Whose controller it becomes; its namespaces are the controller's.
    pub subsystem: &'a mut Subsystem,
    /// The state of its ANA group at power-on.
    pub ana: nvme::AnaState,
    /// Its controller identifier; `None`: the next.
    pub controller: Option<u16>,
    /// Which of the paths it is.
    pub path: usize,
}

/// Puts together the controller of `uri` and hands it to the device thread: the host's way to its registers, and its end.
pub(super) fn attach(
    uri: &DeviceUri,
    options: &EmbeddedOptions,
    HostResources { pool, vectors }: HostResources<'_>,
    member: Option<SubsystemMember<'_>>,
) -> Result<(EmbeddedRegisters, EmbeddedHandle), OpenError> {
    if let Some(word) = uri.server_only_parameter() {
        return Err(OptionsError::OfServers(word).into());
    }
    let runner = if uri.own_thread { Runner::own() } else { Runner::shared(options.device_cpu) };
    let runner = runner.map_err(|source| OpenError::System { what: "device thread", source })?;
    let mut config = config(uri)?;
    let profile = config.profile.clone();
    config.ready_timeout = options.ready_timeout.map_or(config.ready_timeout, Into::into);
    (config.write_zeroes, config.dataset_management) = (!options.no_write_zeroes, !options.no_deallocate);
    (config.checks, config.uncorrectable) = (!options.no_checks, !options.no_uncorrectable);
    let bar = Arc::new(Bar::new(uri.queues + 1));
    let attachment = Arc::new(Attachment::new(vectors.len(), member.as_ref().map(|_| Gate::default())));
    let port = EmbeddedPort { pool: pool.clone(), bar: bar.clone(), vectors: vectors.clone(), attachment: attachment.clone() };
    let faults = options.faults_of(member.as_ref().map(|member| member.path));
    if let Some(faults) = &faults {
        config.faults = Some(faults.injector.clone());
        if uri.late_doorbells {
            faults.injector.delay_doorbells(LATE_DOORBELL, uri.seed);
        }
    }
    let mut stepper: Box<dyn Stepper> = Box::new(controller(config, uri, member, port)?);
    if let Some(faults) = faults {
        stepper = Box::new(FaultyController { controller: stepper, faults, bar: bar.clone() });
    }
    runner.attach(stepper, attachment.clone());
    Ok((EmbeddedRegisters::new(bar, runner.clone()), EmbeddedHandle { attachment, runner, profile }))
}

/// What the URI says of a controller.
pub(crate) fn config(uri: &DeviceUri) -> Result<Config, OpenError> {
    let mut config = Config::new(profile::load(&uri.profile)?);
    config.seed = uri.seed;
    config.queue_pairs = uri.queues;
    config.queue_entries = uri.entries;
    (config.vectors, config.sgls) = (uri.vectors, uri.sgls);
    (config.pending, config.fetch, config.aborts) = (uri.pending, uri.fetch, uri.aborts);
    if uri.late_doorbells {
        config.faults = Some(FaultInjector::new(FaultPlan::new().with_late_doorbells(LATE_DOORBELL, uri.seed)));
    }
    Ok(config)
}

/// A controller of its own, or one of a subsystem.
fn controller<P: Port>(
    mut config: Config,
    uri: &DeviceUri,
    member: Option<SubsystemMember<'_>>,
    port: P,
) -> Result<Controller<P>, OpenError> {
    let Some(SubsystemMember { subsystem, ana, controller, .. }) = member else {
        let namespaces = namespaces(uri)?;
        config.serial = serial(uri)?;
        return Ok(Controller::new(config, namespaces, port));
    };
    config.controller_id = controller.unwrap_or_else(|| subsystem.next_controller_id());
    config.ana = Some(Ana::new(ana));
    subsystem.controller(config, Vec::new(), port).map_err(|e| OptionsError::Paths(e.to_string()).into())
}

/// The serial number of a controller that is the only one of its subsystem.
pub(crate) fn serial(uri: &DeviceUri) -> Result<String, OpenError> {
    Ok(name::serial(&name::nqn(uri)?))
}

/// A subsystem with the namespaces of `uri`, and no controller yet.
pub(crate) fn subsystem(uri: &DeviceUri) -> Result<Subsystem, OpenError> {
    let options = |e: emu::SubsystemError| OptionsError::Paths(e.to_string());
    let namespaces = namespaces(uri)?;
    let mut subsystem = Subsystem::new(name::nqn(uri)?).map_err(options)?;
    for namespace in namespaces {
        subsystem.share(namespace).map_err(options)?;
    }
    Ok(subsystem)
}

/// The namespaces of `uri`, on their media.
pub(crate) fn namespaces(uri: &DeviceUri) -> Result<Vec<Namespace>, OpenError> {
    match &uri.backing {
        Backing::Mem { bytes } => {
            let budget = emu::Budget::new(uri.alloc_limit.unwrap_or_else(|| hw::memory_bytes() / 4));
            let bad = |e: emu::NamespaceError| OpenError::Profile { name: uri.to_string(), what: e.to_string() };
            let namespace = |_| Namespace::mem(Mem::new(*bytes, budget.clone()), uri.lba_bytes).map_err(bad);
            (0..uri.namespaces).map(namespace).collect()
        }
        Backing::File { path, bytes } => {
            if uri.namespaces != 1 {
                return Err(media(path, "a file holds one namespace; leave `namespaces=` out"));
            }
            let access = if uri.share { FileAccess::Share } else { FileAccess::Write };
            let file = FileMedia::open(path, *bytes, uri.lba_bytes, access)?;
            Ok(vec![Namespace::new(file, uri.lba_bytes).map_err(|e| media(path, &e.to_string()))?])
        }
    }
}

fn media(path: &std::path::Path, what: &str) -> OpenError {
    OpenError::Media { path: path.to_owned(), what: what.to_owned(), source: None }
}
