//! The embedded controller: the `emu` crate's controller model in this process, stepped by a device
//! thread.
//!
//! Host threads and the device thread share only what hardware would: memory, registers and
//! doorbells (`hw::Bar`), and vectors. Nothing is passed by function call, so the host driver runs
//! the same code as on real hardware.
//!
//! | question | file |
//! | --- | --- |
//! | what can the controller access of its host? | `port.rs` |
//! | how do doorbell and register writes wake it? | `registers.rs` |
//! | which thread steps it? | `runner.rs` |
//! | how long do its commands take, and where is its data? | `profile.rs`, `media.rs` |
//! | what is its subsystem's NQN? | `name.rs` |
//! | how are faults injected? | `faults.rs` |

#[cfg(feature = "testing")]
mod faults;
mod media;
mod name;
mod port;
mod profile;
mod registers;
mod runner;

use std::sync::Arc;

use emu::{
    Ana, Config, Controller, FaultInjector, FaultPlan, Mem, NamespaceConfig, Port, Profile,
    Subsystem,
};
use hw::{Bar, DmaPool, Vectors};
use nvme::Vector;
use sync::Gate;
use units::Nanos;

use crate::error::{OpenError, OptionsError};
use crate::transport::file_lock::FileAccess;
use crate::uri::{Backing, DeviceUri};
use media::FileMedia;
use port::{Attachment, EmbeddedPort};
use runner::{Runner, Stepper};

#[cfg(feature = "testing")]
pub use faults::Faults;
pub(super) use registers::EmbeddedRegisters;
#[cfg(feature = "testing")]
pub use runner::ManualStepper;
pub use runner::Measured;

/// Options for embedded controllers only.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedOptions {
    /// The CPU to pin the device thread to. Only the first device of a process sets it.
    pub device_cpu: Option<usize>,
    /// Faults to inject, for tests. `None`: none, at no cost.
    #[cfg(feature = "testing")]
    pub faults: Option<Faults>,
    /// Faults for each path's controller of a `multipath:` device, by path.
    #[cfg(feature = "testing")]
    pub path_faults: Vec<Option<Faults>>,
    /// CAP.TO: how long the host waits for the controller to become ready or to stop, in steps of
    /// 500 ms. `None`: 10 s, as real drives report, because the device thread may be late. Tests of
    /// controllers that do neither set it lower.
    #[cfg(feature = "testing")]
    pub ready_timeout: Option<std::time::Duration>,
    /// The controller has no Write Zeroes.
    #[cfg(feature = "testing")]
    pub no_write_zeroes: bool,
    /// The controller has no Dataset Management, and so no Deallocate.
    #[cfg(feature = "testing")]
    pub no_deallocate: bool,
    /// The controller has neither Compare nor Verify.
    #[cfg(feature = "testing")]
    pub no_checks: bool,
    /// The controller has no Write Uncorrectable.
    #[cfg(feature = "testing")]
    pub no_uncorrectable: bool,
}

#[cfg(feature = "testing")]
impl EmbeddedOptions {
    /// The configuration and the faults of one controller. `path`: which of several it is.
    fn applied_to(
        &self,
        mut config: Config,
        uri: &DeviceUri,
        path: Option<usize>,
    ) -> (Config, Option<Faults>) {
        config.ready_timeout = self.ready_timeout.map_or(config.ready_timeout, Into::into);
        (config.write_zeroes, config.dataset_management) =
            (!self.no_write_zeroes, !self.no_deallocate);
        (config.checks, config.uncorrectable) = (!self.no_checks, !self.no_uncorrectable);
        let faults = path.map_or_else(
            || self.faults.clone(),
            |path| self.path_faults.get(path).cloned().flatten(),
        );
        if let Some(faults) = &faults {
            // The caller's injector replaces the one of `doorbells=late`, and takes over its delay.
            config.faults = Some(faults.injector.clone());
            if uri.late_doorbells {
                faults.injector.delay_doorbells(LATE_DOORBELL, uri.seed);
            }
        }
        (config, faults)
    }
}

/// The largest delay of a doorbell write with `doorbells=late`: a few commands of a fast drive.
const LATE_DOORBELL: Nanos = Nanos::from_micros(40);

/// Handle of an embedded controller for the host's threads.
pub(crate) struct EmbeddedHandle {
    attachment: Arc<Attachment>,
    runner: Arc<Runner>,
    profile: Profile,
}

impl EmbeddedHandle {
    /// Blocks the controller's access to host memory and waits for accesses under way. False: this
    /// controller has no gate.
    pub(super) fn block_dma(&self) -> bool {
        self.attachment.gate.as_ref().map(Gate::shut).is_some()
    }

    /// Allows access to host memory again.
    pub(super) fn allow_dma(&self) {
        if let Some(gate) = &self.attachment.gate {
            gate.open();
        }
    }

    /// The host closes the controller; the device thread drops it.
    pub(super) fn detach(&self) {
        self.attachment.detach();
        self.runner.kick();
    }

    /// The profile of its service times.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Time that the device thread spent sending messages: what the host's interrupts cost the
    /// sender.
    pub(crate) fn notify_time(&self) -> Nanos {
        self.attachment.notify_time()
    }

    /// When the oldest message of a vector that no one has collected was sent; clears it.
    pub(super) fn take_message_time(&self, vector: Vector) -> Option<Nanos> {
        self.attachment.take_message_time(vector)
    }

    /// Keeps the device thread from sleeping while the result lives, and counts gaps in its
    /// running.
    pub(crate) fn measure(&self) -> Measured {
        Measured::new(&self.runner)
    }

    /// Stops the device thread while the result lives; its controllers run one step at a time.
    #[cfg(feature = "testing")]
    pub(crate) fn manual_step(&self) -> ManualStepper {
        ManualStepper::new(&self.runner)
    }

    /// The CPU that the device thread is pinned to.
    pub(crate) fn device_cpu(&self) -> Option<usize> {
        self.runner.cpu()
    }

    /// Wakes the device thread to look for changes other than doorbells.
    pub(crate) fn kick(&self) {
        self.runner.kick();
    }
}

/// What the host lends the controller.
pub(super) struct HostResources<'a> {
    pub pool: &'a DmaPool,
    pub vectors: &'a Arc<Vectors>,
}

/// A controller's place in a subsystem, if it is one of several paths.
pub(crate) struct SubsystemMember<'a> {
    /// The subsystem, whose namespaces become the controller's.
    pub subsystem: &'a mut Subsystem,
    /// The state of its ANA group at power-on.
    pub ana: nvme::AnaState,
    /// Its controller identifier (CNTLID); `None`: the next free one.
    pub controller: Option<u16>,
    /// Its path's number.
    #[cfg_attr(
        not(feature = "testing"),
        expect(dead_code, reason = "only tests have faults by path")
    )]
    pub path: usize,
}

/// Creates the controller of `uri` and hands it to the device thread. Returns its registers and its
/// handle.
pub(super) fn attach(
    uri: &DeviceUri,
    options: &EmbeddedOptions,
    HostResources { pool, vectors }: HostResources<'_>,
    member: Option<SubsystemMember<'_>>,
) -> Result<(EmbeddedRegisters, EmbeddedHandle), OpenError> {
    if let Some(word) = uri.server_only_parameter() {
        return Err(OptionsError::ServerOnly(word).into());
    }
    // The shared thread's CPU is set by the first device.
    let runner = if uri.own_thread { Runner::own() } else { Runner::shared(options.device_cpu) };
    let runner = runner.map_err(|source| OpenError::System { what: "device thread", source })?;
    let config = config(uri)?;
    let profile = config.profile.clone();
    #[cfg(feature = "testing")]
    let (config, faults) =
        options.applied_to(config, uri, member.as_ref().map(|member| member.path));
    let bar = Arc::new(Bar::new(uri.queues + 1));
    // Only paths need a gate: a path that does not answer is given up while others go on, and its
    // buffers are sent again elsewhere.
    let attachment =
        Arc::new(Attachment::new(vectors.len(), member.as_ref().map(|_| Gate::default())));
    let port = EmbeddedPort {
        pool: pool.clone(),
        bar: bar.clone(),
        vectors: vectors.clone(),
        attachment: attachment.clone(),
    };
    let stepper: Box<dyn Stepper> = Box::new(controller(config, uri, member, port)?);
    #[cfg(feature = "testing")]
    let stepper: Box<dyn Stepper> = match faults {
        // Wrapped only on request: without faults the step has no extra branch.
        Some(faults) => {
            Box::new(faults::FaultyController { controller: stepper, faults, bar: bar.clone() })
        }
        None => stepper,
    };
    // Last: from here on the thread steps it.
    runner.attach(stepper, attachment.clone());
    Ok((
        EmbeddedRegisters::new(bar, runner.clone()),
        EmbeddedHandle { attachment, runner, profile },
    ))
}

/// The controller's configuration from its URI.
pub(crate) fn config(uri: &DeviceUri) -> Result<Config, OpenError> {
    let mut config = Config::new(profile::load(&uri.profile)?);
    config.seed = uri.seed;
    config.queue_pairs = uri.queues;
    config.queue_entries = uri.entries;
    (config.vectors, config.sgls) = (uri.vectors, uri.sgls);
    (config.pending, config.fetch, config.aborts) = (uri.pending, uri.fetch, uri.aborts);
    if uri.late_doorbells {
        config.faults =
            Some(FaultInjector::new(FaultPlan::new().with_late_doorbells(LATE_DOORBELL, uri.seed)));
    }
    Ok(config)
}

/// A controller with a subsystem of its own, or one of `member`'s subsystem.
fn controller<P: Port>(
    mut config: Config,
    uri: &DeviceUri,
    member: Option<SubsystemMember<'_>>,
    port: P,
) -> Result<Controller<P>, OpenError> {
    // Without a subsystem of several controllers it has its own namespaces and serial number.
    let Some(SubsystemMember { subsystem, ana, controller, .. }) = member else {
        let namespaces = namespaces(uri)?;
        config.serial = serial(uri)?;
        return Ok(Controller::new(config, namespaces, port));
    };
    config.controller_id = controller.unwrap_or_else(|| subsystem.next_controller_id());
    config.ana = Some(Ana::new(ana));
    subsystem
        .controller(config, Vec::new(), port)
        .map_err(|e| OptionsError::Paths(e.to_string()).into())
}

/// The serial number of a controller that is alone in its subsystem.
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

/// The namespaces of `uri` with their media.
pub(crate) fn namespaces(uri: &DeviceUri) -> Result<Vec<NamespaceConfig>, OpenError> {
    match &uri.backing {
        Backing::Mem { bytes } => {
            // Memory is sparse. The limit keeps a test that writes everywhere from exhausting the
            // machine.
            let budget =
                emu::Budget::new(uri.alloc_limit.unwrap_or_else(|| hw::memory_bytes() / 4));
            let bad = |e: emu::NamespaceError| OpenError::Profile {
                name: uri.to_string(),
                what: e.to_string(),
            };
            let namespace = |_| {
                NamespaceConfig::mem(Mem::new(*bytes, budget.clone()), uri.lba_bytes).map_err(bad)
            };
            (0..uri.namespaces).map(namespace).collect()
        }
        Backing::File { path, bytes } => {
            // Namespaces of one file would overlap.
            if uri.namespaces != 1 {
                return Err(media(path, "a file holds one namespace; leave `namespaces=` out"));
            }
            let access = if uri.share { FileAccess::Share } else { FileAccess::Write };
            let file = FileMedia::open(path, *bytes, uri.lba_bytes, access)?;
            Ok(vec![
                NamespaceConfig::new(file, uri.lba_bytes)
                    .map_err(|e| media(path, &e.to_string()))?,
            ])
        }
    }
}

fn media(path: &std::path::Path, what: &str) -> OpenError {
    OpenError::Media { path: path.to_owned(), what: what.to_owned(), source: None }
}
