//! A device, as callers hold it: one controller, or several that are paths to one namespace.
//! Opening turns a URI into a transport, and hands that to a controller task, which brings the
//! controller up.

mod embedded;
mod uri;

use std::fmt;
use std::sync::{Arc, OnceLock};

use completion::Mode;
use driver::multipath::MultipathCounters as FailoverCounters;
use driver::paths::Policy;
use hw::{AllocError, DmaBuf, ForkGuard, Memory, Region, RegisterError};
use nvme::Sqe;
use nvme::admin::{GetLogPage, Identify};

use crate::admin;
use crate::controller_task::open as controller_task;
use crate::counters::DeviceCounters;
use crate::error::{AdminError, OpenError, OptionsError, QueueError};
use crate::health::{Health, PermanentFailure};
use crate::mode::{ModeNote, UnsupportedMode};
use crate::multipath::{self, Multipath, PathReport};
use crate::namespace::Namespace;
use crate::options::OpenOptions;
use crate::queue::{LocalQueue, Queue};
use crate::shared::controller::{Description, OpenController};
use crate::shared::events::Events;
use crate::thread::sleep_cost;
use crate::transport::{DmaContext, KernelFile, Messages, RingController, pci, vfio_user};

pub use embedded::Embedded;
pub use uri::Uri;

/// An open device. Cloning is cheap. Its controllers are shut down when the last clone and the last
/// queue are gone.
#[derive(Clone)]
pub struct Device {
    /// One for each path; without multipath, one.
    controllers: Arc<[OpenController]>,
    /// `Some` for a `multipath:` device.
    paths: Option<Arc<Multipath>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("uri", &self.description().uri)
            .field("namespaces", &self.namespaces())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device of `uri`: text, a [`Uri`], or one of the types that a [`Uri`] is made of.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(uri: impl TryInto<Uri, Error: Into<OpenError>>) -> Result<Device, OpenError> {
        Device::open_with(uri, &OpenOptions::default())
    }

    /// As [`Device::open`], with options.
    ///
    /// A forked child of a process that has opened devices can open none ([`OpenError::Forked`]).
    /// The parent's devices refuse its requests ([`Refused::Forked`](crate::Refused::Forked)), give
    /// it no buffers ([`AllocError::Forked`], [`RangeError::Forked`](crate::RangeError::Forked))
    /// and register none of its memory ([`RegisterError::Forked`]). The memory of buffers that were
    /// taken before the fork does not exist in the child: reading or writing it panics, dropping
    /// the buffers does not.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(
        uri: impl TryInto<Uri, Error: Into<OpenError>>,
        options: &OpenOptions,
    ) -> Result<Device, OpenError> {
        Device::open_uri(uri.try_into().map_err(Into::into)?, options)
    }

    fn open_uri(uri: Uri, options: &OpenOptions) -> Result<Device, OpenError> {
        // The housekeeping and device threads exist only in the process that opened the first
        // device. A forked child has none of them, and locks in whatever state they were in.
        static PROCESS: OnceLock<ForkGuard> = OnceLock::new();
        if !PROCESS.get_or_init(ForkGuard::current).same_process() {
            return Err(OpenError::Forked);
        }
        uri.check()?;
        // Before anything is opened: the kernel's own modes exist only where it drives the device.
        if options.mode.is_the_kernels() && !matches!(uri, Uri::Kernel(_)) {
            return Err(OptionsError::from(UnsupportedMode::NotTheKernels(options.mode)).into());
        }
        let text = uri.to_string();
        let transport = match uri {
            Uri::Multipath(uri) => {
                let paths = multipath::open(uri, options)?;
                return Ok(Device {
                    controllers: paths.controllers().clone(),
                    paths: Some(Arc::new(paths)),
                });
            }
            // One path: the device outlives its connections.
            Uri::Tcp(uri) => {
                let paths = multipath::open(uri.into(), options)?;
                return Ok(Device {
                    controllers: paths.controllers().clone(),
                    paths: Some(Arc::new(paths)),
                });
            }
            Uri::Kernel(uri) => {
                let file = KernelFile::open(&uri, options.pool_bytes)?;
                // Known only now: it depends on the kernel and on what the path leads to.
                if let Some(why) = file.unsupported_reason(options.mode) {
                    return Err(OptionsError::from(why).into());
                }
                return Ok(Device {
                    controllers: [controller_task::open_file(file, &text, options)?].into(),
                    paths: None,
                });
            }
            Uri::Pcie(uri) => pci::open(&uri, options)?,
            Uri::VfioUser(uri) => vfio_user::open(&uri, options)?,
            Uri::Embedded(uri) => RingController::embedded(
                &uri,
                &options.embedded,
                DmaContext::new(options.pool_bytes)?,
                None,
            )?,
        };
        let (controller, _) = controller_task::open(transport, None, &text, options)?;
        Ok(Device { controllers: [controller].into(), paths: None })
    }

    /// A software queue for one thread.
    ///
    /// # Errors
    /// All queues are in use, or the system has no descriptors left.
    pub fn queue(&self) -> Result<Queue, QueueError> {
        match &self.paths {
            None => Queue::over_one(self.first(), false, None),
            Some(paths) => Queue::over_paths(paths),
        }
    }

    /// A software queue that only the calling thread uses. On `kernel:` it is cheaper than
    /// [`Device::queue`], as completions are reaped by the thread that submitted.
    ///
    /// # Errors
    /// The same as of [`Device::queue`].
    pub fn local_queue(&self) -> Result<LocalQueue, QueueError> {
        match &self.paths {
            None => Queue::over_one(self.first(), true, None),
            Some(paths) => Queue::over_paths(paths),
        }
        .map(LocalQueue::new)
    }

    /// As [`Device::local_queue`], in another completion mode than the device's. One of the
    /// kernel's own modes ([`Mode::KERNELS`]) stays for the queue's life, because the ring is made
    /// for it.
    ///
    /// # Errors
    /// As of [`Device::queue`]; [`QueueError::Mode`] and [`QueueError::Ring`] where the kernel or
    /// the device does not support the mode.
    pub fn local_queue_in(&self, mode: Mode) -> Result<LocalQueue, QueueError> {
        sleep_cost::prepare(mode);
        match &self.paths {
            None => Queue::over_one(self.first(), true, Some(mode)),
            Some(_) if mode.is_the_kernels() => Err(UnsupportedMode::NotTheKernels(mode).into()),
            Some(paths) => Queue::over_paths(paths).inspect(|queue| queue.set_mode(mode)),
        }
        .map(LocalQueue::new)
    }

    /// The first controller; there always is one.
    fn first(&self) -> &OpenController {
        &self.controllers[0]
    }

    /// The namespaces that can be used. Several paths lead to one namespace.
    pub fn namespaces(&self) -> &[Namespace] {
        self.paths.as_deref().map_or_else(|| self.first().namespaces(), Multipath::namespaces)
    }

    /// The namespace with its current size, which may have changed since the handle was made
    /// ([`EventKind::Resized`](crate::EventKind::Resized)). A handle keeps its size: requests
    /// beyond it are refused here, and requests beyond the current size fail on the controller. For
    /// a file it also shows what the file system has refused since
    /// ([`Namespace::supports_write_zeroes`]).
    pub fn current(&self, namespace: &Namespace) -> Namespace {
        self.paths
            .as_ref()
            .map_or_else(|| self.first().current(namespace), |paths| paths.current(namespace))
    }

    /// A buffer of `len` bytes that the device can reach on all its paths.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.first().pool().alloc(len)
    }

    /// Registers memory that the caller owns, so that requests may use ranges of it
    /// ([`Region::buffer`]) on all paths. It consists of whole pages: [`crate::Pages`], memory that
    /// other code frees ([`crate::RawMemory`]), or a type that says where its bytes are
    /// ([`Memory`]).
    ///
    /// The region and each buffer of it share ownership of the memory, in flight or not. So it is
    /// freed only when nothing can reach it any more, in whatever order they are dropped. A buffer
    /// that a lost controller may still write to keeps it for ever.
    ///
    /// Registering writes a table of 1/256 of the memory's size: register once, and keep the
    /// buffers.
    ///
    /// ```
    /// let device = reap::Device::open("mem:64M?profile=null")?;
    /// let queue = device.queue()?;
    /// let ns = device.namespaces()[0];
    /// let mut frames = reap::Pages::new(1 << 20)?;
    /// frames[8192] = 7;
    /// let frames = device.register(frames).map_err(|(why, _)| why)?;
    /// let page = frames.buffer(8192..16384)?;
    /// let (result, page) = queue.block_on(queue.write(&ns, 0, page))?;
    /// result?;
    /// drop(page);
    /// let frames = frames.into_owner().expect("no buffer of it is left");
    /// assert_eq!(frames[8192], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`RegisterError`]; the memory comes back with it.
    pub fn register<M: Memory>(&self, memory: M) -> Result<Region<M>, (RegisterError, M)> {
        self.first().transport().register(memory)
    }

    /// Changes the completion mode of every queue, with or without requests in flight.
    pub fn set_mode(&self, mode: Mode) {
        sleep_cost::prepare(mode);
        self.controllers.iter().for_each(|controller| controller.set_mode(mode));
    }

    /// How a mode differs on this device from what its name says. `None`: it does not.
    pub fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        self.first().transport().mode_note(mode)
    }

    /// Unexpected findings when the device was opened, a sentence each. Later ones are
    /// [`Device::events`].
    pub fn notes(&self) -> Vec<String> {
        self.controllers
            .iter()
            .flat_map(|controller| controller.transport().notes().iter().cloned())
            .collect()
    }

    /// Why this device does not support a mode, as far as is known without a trial. `None`: it
    /// does.
    pub fn unsupported_reason(&self, mode: Mode) -> Option<UnsupportedMode> {
        self.first().transport().unsupported_reason(mode)
    }

    /// Whether [`DeviceCounters::messages`] are all messages that the host has received, on all
    /// paths. Otherwise they count waits or polls that found something, or are 0 where the system
    /// does not show its counts, and [`DeviceCounters::notify`] is no cost of the host.
    pub fn counts_messages(&self) -> bool {
        self.controllers
            .iter()
            .all(|controller| controller.transport().messages() == Messages::Exact)
    }

    /// The description of the controller; with several paths, of the first path's controller.
    pub fn description(&self) -> &Description {
        self.paths.as_deref().map_or_else(|| self.first().description(), Multipath::description)
    }

    /// Sends an admin command and blocks until it completes. Returns dword 0 of the completion.
    /// `data` has at most 4096 bytes. The opcode says whether the controller reads it (bits 1:0 are
    /// 01b), fills it (10b), or there is none (00b). The opcode, NSID and dwords 2, 3 and 10 to 15
    /// of `command` are sent; CID, flags and data pointers are the library's. With several paths
    /// the first one's controller gets it. Of `kernel:` devices only NVMe character devices take
    /// commands.
    ///
    /// Commands that would break what the library relies on are refused: those of queues, Abort,
    /// Asynchronous Event Request, Keep Alive, Doorbell Buffer Config, Fabrics commands, Controller
    /// Data Queue, Migration Send, Virtualization, Capacity and Namespace Management, Namespace
    /// Attachment, Firmware Commit, Format NVM, and Set Features of what the library sets (queues,
    /// interrupts, events, keep-alive), of a Host Memory Buffer and of command sets. All others are
    /// sent, Sanitize and vendor commands too: what they do to data, to other I/O, or to memory
    /// whose addresses are in their dwords is the caller's risk. A command that takes longer than
    /// other admin commands may (0.5 to 10 s, by [`OpenOptions::timeout`]) counts as lost, and the
    /// controller is reset. Get Log Page keeps the event for the library (RAE).
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn admin_command(&self, command: &Sqe, data: &mut [u8]) -> Result<u32, AdminError> {
        self.first().admin_command(admin::checked(command, data.len())?, data)
    }

    /// Reads a log page (Base §5.1.12) into `data`, from `what.offset` on. The length of `data` is
    /// a multiple of 4; length and data pointer of `what` are ignored. The types of [`nvme::log`]
    /// parse the bytes.
    ///
    /// ```
    /// use nvme::Page as _;
    /// use nvme::log::{Smart, lid};
    /// let device = reap::Device::open("mem:64M")?;
    /// let mut page = [0; Smart::LEN];
    /// device.log_page(&reap::GetLogPage::new(lid::SMART, 512, nvme::prp::Dptr::NONE), &mut page)?;
    /// assert!(Smart::from_page(&page)?.power_cycles.get() < 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn log_page(&self, what: &GetLogPage, data: &mut [u8]) -> Result<(), AdminError> {
        // A length that the command cannot express is refused by [`Device::admin_command`].
        let len = (data.len().min(admin::MAX_DATA) as u64).next_multiple_of(4).max(4);
        self.admin_command(&GetLogPage { len, ..*what }.to_sqe(), data).map(drop)
    }

    /// Reads an Identify structure (Base §5.1.13): 4096 bytes, which the types of
    /// [`nvme::identify`] parse. The data pointer of `what` is ignored.
    ///
    /// ```
    /// use nvme::Page as _;
    /// use nvme::admin::{Identify, cns};
    /// let device = reap::Device::open("mem:64M")?;
    /// let page = device.identify(&Identify::new(cns::CONTROLLER, nvme::Nsid(0),
    /// nvme::prp::Dptr::NONE))?;
    /// let controller = nvme::identify::Controller::from_page(&*page)?;
    /// assert_eq!(controller.mn.to_string(), device.description().model);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn identify(&self, what: &Identify) -> Result<Box<[u8; Identify::LEN]>, AdminError> {
        let mut page = Box::new([0; Identify::LEN]);
        self.admin_command(&what.to_sqe(), &mut *page)?;
        Ok(page)
    }

    /// A receiver of the device's events, from its opening on.
    pub fn events(&self) -> Events {
        self.first().reporter().events()
    }

    /// The state of the controller, and how often it has failed. With several, the sum over all;
    /// the device has failed for good only if all have.
    pub fn health(&self) -> Health {
        let all: Vec<Health> = self.controllers.iter().map(OpenController::health).collect();
        let dead = all.iter().map(|health| health.dead.clone()).collect::<Option<Vec<_>>>();
        all.into_iter()
            .reduce(Health::and)
            .map(|health| Health { dead: dead.map(PermanentFailure::of_all), ..health })
            .unwrap_or_default()
    }

    /// Counters since the device was opened, over all queues and paths.
    pub fn counters(&self) -> DeviceCounters {
        self.controllers
            .iter()
            .map(OpenController::counters)
            .reduce(DeviceCounters::and)
            .unwrap_or_default()
    }

    /// The controllers of the device, if they are in this process, for tests and benchmarks.
    /// `None`: they are not.
    pub fn embedded(&self) -> Option<Embedded> {
        self.first().transport().end()?;
        Some(Embedded {
            controllers: self.controllers.clone(),
            #[cfg(feature = "testing")]
            paths: self.paths.clone(),
        })
    }

    /// Resets all controllers of the device now. Requests in flight are posted again, however often
    /// this is called.
    pub fn reset(&self) {
        self.controllers.iter().for_each(OpenController::reset);
    }

    /// For an application that wants to stop: from now on no request is retried or waits for a
    /// path; such requests fail. Requests in flight keep their time-out ([`OpenOptions::timeout`]).
    /// May be called from any thread.
    pub fn fail_pending(&self) {
        match &self.paths {
            None => self.first().fail_retries(),
            Some(paths) => paths.fail_pending(),
        }
    }

    /// Requests in flight, over all queues and paths, without those that wait for a path.
    pub fn in_flight(&self) -> u32 {
        self.controllers.iter().map(OpenController::in_flight).sum()
    }

    /// State and counters of each path; empty for devices that are not `multipath:`.
    pub fn paths(&self) -> Vec<PathReport> {
        self.paths.as_deref().map(Multipath::report).unwrap_or_default()
    }

    /// Failures of paths that were handled, over all software queues, as of their last wait; zero
    /// for devices that are not `multipath:`.
    pub fn failover(&self) -> FailoverCounters {
        self.paths.as_deref().map(Multipath::counters).unwrap_or_default()
    }

    /// The policy that chooses paths.
    pub fn path_policy(&self) -> Option<Policy> {
        self.paths.as_ref().map(|paths| paths.selector().policy())
    }

    /// Changes the policy that chooses paths, from the next request on. May be called from any
    /// thread. No effect on devices that are not `multipath:`.
    pub fn set_path_policy(&self, policy: Policy) {
        if let Some(paths) = &self.paths {
            paths.selector().set_policy(policy);
        }
    }
}
