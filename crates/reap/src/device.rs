//! A device, as callers hold it: one controller, or several that are paths to one namespace.

mod embedded;
mod uri;

use std::fmt;
use std::sync::{Arc, OnceLock};

use completion::Mode;
use driver::multipath::Counters as FailoverCounters;
use driver::paths::Policy;
use hw::{AllocError, DmaBuf, ForkGuard, Memory, Region, RegisterError};
use nvme::Sqe;
use nvme::admin::{GetLogPage, Identify};

use crate::admin;
use crate::controller_task::open as controller_task;
use crate::counters::DeviceCounters;
use crate::error::{AdminError, OpenError, OptionsError, QueueError};
use crate::health::{GivenUp, Health};
use crate::mode::{ModeNote, UnsupportedMode};
use crate::multipath::{self, Multipath, PathReport};
use crate::namespace::Namespace;
use crate::options::OpenOptions;
use crate::queue::{LocalQueue, Queue};
use crate::shared::controller::{Controller, Description};
use crate::shared::events::Events;
use crate::thread::sleep_cost;
use crate::transport::{DmaContext, KernelFile, Messages, RingController, pci, vfio_user};

pub use embedded::Embedded;
pub use uri::Uri;

/// An open device. Cheap to clone; its controllers are shut down when the last clone and the last queue are gone.
#[derive(Clone)]
pub struct Device {
    /// One, or one for each path.
    controllers: Arc<[Controller]>,
    /// What makes several controllers one device.
    paths: Option<Arc<Multipath>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("uri", &self.description().uri).field("namespaces", &self.namespaces()).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device of `uri`, which is text, a [`Uri`], or one of the types that a [`Uri`] is made of.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(uri: impl TryInto<Uri, Error: Into<OpenError>>) -> Result<Device, OpenError> {
        Device::open_with(uri, &OpenOptions::default())
    }

    /// The same with options.
    ///
    /// A process that was forked from one that has opened devices opens none ([`OpenError::Forked`]). The parent's refuse its requests
    /// ([`Refused::Forked`](crate::Refused::Forked)), give it no buffers ([`AllocError::Forked`], [`RangeError::Forked`](crate::RangeError::Forked))
    /// and register no memory of its ([`RegisterError::Forked`]). It does not have the memory of buffers that were taken before: to read or write one
    /// is a panic. It may drop all of them.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(uri: impl TryInto<Uri, Error: Into<OpenError>>, options: &OpenOptions) -> Result<Device, OpenError> {
        Device::open_uri(uri.try_into().map_err(Into::into)?, options)
    }

    fn open_uri(uri: Uri, options: &OpenOptions) -> Result<Device, OpenError> {
        // The threads that look after devices are those of the process that opened the first one: a forked child has none of them, and
        // locks as they were at that moment.
        static HOME: OnceLock<ForkGuard> = OnceLock::new();
        if !HOME.get_or_init(ForkGuard::current).same_process() {
            return Err(OpenError::Forked);
        }
        uri.check()?;
        if options.mode.is_the_kernels() && !matches!(uri, Uri::Kernel(_)) {
            return Err(OptionsError::from(UnsupportedMode::NotTheKernels(options.mode)).into());
        }
        let text = uri.to_string();
        let transport = match uri {
            Uri::Multipath(uri) => {
                let paths = multipath::open(uri, options)?;
                return Ok(Device { controllers: paths.controllers().clone(), paths: Some(Arc::new(paths)) });
            }
            Uri::Kernel(uri) => {
                let file = KernelFile::open(&uri, options.pool_bytes)?;
                if let Some(why) = file.lacks(options.mode) {
                    return Err(OptionsError::from(why).into());
                }
                return Ok(Device { controllers: [controller_task::open_file(file, &text, options)?].into(), paths: None });
            }
            Uri::Pcie(uri) => pci::open(&uri, options)?,
            Uri::VfioUser(uri) => vfio_user::open(&uri, options)?,
            Uri::Embedded(uri) => RingController::embedded(&uri, &options.embedded, DmaContext::new(options.pool_bytes)?, None)?,
        };
        let (controller, _) = controller_task::open(transport, None, &text, options)?;
        Ok(Device { controllers: [controller].into(), paths: None })
    }

    /// A software queue for one thread.
    ///
    /// # Errors
    /// All of them are taken, or the system is out of descriptors.
    pub fn queue(&self) -> Result<Queue, QueueError> {
        match &self.paths {
            None => Queue::over_one(self.first(), false, None),
            Some(paths) => Queue::over_paths(paths),
        }
    }

    /// A software queue that the calling thread keeps, and that no other thread drives. Where completions are cheaper to take by
    /// the thread that has submitted, as on `kernel:`, this is the cheaper queue.
    ///
    /// # Errors
    /// As of [`Device::queue`].
    pub fn local_queue(&self) -> Result<LocalQueue, QueueError> {
        match &self.paths {
            None => Queue::over_one(self.first(), true, None),
            Some(paths) => Queue::over_paths(paths),
        }
        .map(LocalQueue::new)
    }

    /// The same in another completion mode than the device's. One of [`Mode::KERNELS`] it keeps for good, because its ring is made for it.
    ///
    /// # Errors
    /// As of [`Device::queue`]; [`QueueError::Mode`] and [`QueueError::Ring`] where the kernel or the device lacks what the mode needs.
    pub fn local_queue_in(&self, mode: Mode) -> Result<LocalQueue, QueueError> {
        sleep_cost::prepare(mode);
        match &self.paths {
            None => Queue::over_one(self.first(), true, Some(mode)),
            Some(_) if mode.is_the_kernels() => Err(UnsupportedMode::NotTheKernels(mode).into()),
            Some(paths) => Queue::over_paths(paths).inspect(|queue| queue.set_mode(mode)),
        }
        .map(LocalQueue::new)
    }

    /// The first controller: there is always one.
    fn first(&self) -> &Controller {
        &self.controllers[0]
    }

    /// The namespaces that can be used. Several paths lead to one.
    pub fn namespaces(&self) -> &[Namespace] {
        self.paths.as_deref().map_or_else(|| self.first().namespaces(), Multipath::namespaces)
    }

    /// The namespace in the size that its controller shows now: it may have grown or shrunk since the handle was had, as
    /// [`EventKind::Resized`](crate::EventKind::Resized) tells. A handle goes on with its own size: requests controller it are refused, those controller the
    /// controller's fail. Of a file, it also shows what the file system has refused since ([`Namespace::supports_write_zeroes`]).
    pub fn current(&self, namespace: &Namespace) -> Namespace {
        self.paths.as_ref().map_or_else(|| self.first().current(namespace), |paths| paths.current(namespace))
    }

    /// A buffer that the device can reach, by whatever path, of `len` bytes.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.first().pool().alloc(len)
    }

    /// Registers memory that the caller owns, at any time: requests may carry ranges of it ([`Region::buffer`]), by whatever
    /// path. It is somebody else's to free ([`crate::RawMemory`]), or [`crate::Pages`], or of a type that says where its bytes are
    /// ([`Memory`]): whole pages.
    ///
    /// The region owns the memory, and so does each buffer of it, held or on its way. Whatever is dropped or forgotten, and in
    /// whichever order, the memory is freed only when nothing can reach it any more. A buffer that a lost controller may
    /// still write to keeps it for ever.
    ///
    /// Registering writes a table of a 256th of the memory: register once, and keep the buffers.
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

    /// Changes the completion mode of every queue, with requests in flight or without.
    pub fn set_mode(&self, mode: Mode) {
        sleep_cost::prepare(mode);
        self.controllers.iter().for_each(|controller| controller.set_mode(mode));
    }

    /// What a mode comes to on this device, where that is something else than its name says. `None`: nothing else.
    pub fn mode_note(&self, mode: Mode) -> Option<ModeNote> {
        self.first().transport().mode_note(mode)
    }

    /// What was found when it was opened, and is otherwise than one would expect: a sentence each. What happens later is
    /// one of [`Device::events`].
    pub fn notes(&self) -> Vec<String> {
        self.controllers.iter().flat_map(|controller| controller.transport().notes().iter().cloned()).collect()
    }

    /// Why queues in this mode cannot be had on this device, as far as that is known before a trial. `None`: they can.
    pub fn lacks(&self, mode: Mode) -> Option<UnsupportedMode> {
        self.first().transport().lacks(mode)
    }

    /// Whether [`DeviceCounters::messages`] are all the messages that the host has received, of all its paths. Otherwise they are waits or
    /// looks that brought something, or 0 where the system does not show its counts, and [`DeviceCounters::notify`] is none of the host's affair.
    pub fn counts_messages(&self) -> bool {
        self.controllers.iter().all(|controller| controller.transport().messages() == Messages::Exact)
    }

    /// Which controller it is; of several, the first path's.
    pub fn description(&self) -> &Description {
        self.paths.as_deref().map_or_else(|| self.first().description(), Multipath::description)
    }

    /// Sends an admin command, and waits for its answer, so that no thread calls it that must not wait. The result is dword 0 of the
    /// completion. `data` are at most 4096 bytes: the opcode says whether the controller reads them (bits 1:0 are 01b), fills them (10b), or
    /// there are none (00b). Of `command` the opcode, NSID and dwords 2, 3 and 10 to 15 are sent; identifier, flags and pointers are the library's.
    /// Of several controllers the first path's answers. Of the kernel's devices only namespaces that commands pass through to have it.
    ///
    /// Commands that would take the controller from under the library are refused: those of queues, Abort, Asynchronous Event Request, Keep
    /// Alive, Doorbell Buffer Config, Fabrics commands, Controller Data Queue, Migration Send, Virtualization, Capacity and Namespace Management,
    /// Namespace Attachment, Firmware Commit, Format NVM, and Set Features of what the library sets (queues, interrupts, events, keep-alive), of
    /// a Host Memory Buffer and of command sets. All others pass, Sanitize and vendors' own too: what those do to the data, to I/O, or to memory
    /// whose addresses stand in their dwords is the caller's risk. One that takes longer than other admin commands may (0.5 to 10 s, by
    /// [`OpenOptions::timeout`]) counts as lost, and the controller is reset. Get Log Page leaves the event that it is about to the library (RAE).
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn admin_command(&self, command: &Sqe, data: &mut [u8]) -> Result<u32, AdminError> {
        self.first().admin_command(admin::checked(command, data.len())?, data)
    }

    /// Reads a log page (Base 5.1.12) by [`Device::admin_command`]: as many bytes from `what.offset` on as `data` has, a multiple of 4, which the
    /// types of [`nvme::log`] read. Length and data pointer of `what` mean nothing.
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
        // What the command cannot say is refused by what it does say.
        let len = (data.len().min(admin::MOST_DATA) as u64).next_multiple_of(4).max(4);
        self.admin_command(&GetLogPage { len, ..*what }.to_sqe(), data).map(drop)
    }

    /// What the controller says of itself, or of a namespace, now, by [`Device::admin_command`]: the 4096 bytes of an Identify structure (Base
    /// 5.1.13), which the types of [`nvme::identify`] read. The data pointer of `what` means nothing.
    ///
    /// ```
    /// use nvme::Page as _;
    /// use nvme::admin::{Identify, cns};
    /// let device = reap::Device::open("mem:64M")?;
    /// let page = device.identify(&Identify::new(cns::CONTROLLER, nvme::Nsid(0), nvme::prp::Dptr::NONE))?;
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

    /// A receiver of what has happened to the device since it was opened, and of what happens from now on.
    pub fn events(&self) -> Events {
        self.first().reporter().events()
    }

    /// Whether the controller works, and how often it has failed. Of several: what has happened to any; given up only if
    /// all are.
    pub fn health(&self) -> Health {
        let all: Vec<Health> = self.controllers.iter().map(Controller::health).collect();
        let dead = all.iter().map(|health| health.dead.clone()).collect::<Option<Vec<_>>>();
        all.into_iter().reduce(Health::and).map(|health| Health { dead: dead.map(GivenUp::of_all), ..health }).unwrap_or_default()
    }

    /// What has been counted since it was opened, over all queues and paths.
    pub fn counters(&self) -> DeviceCounters {
        self.controllers.iter().map(Controller::counters).reduce(DeviceCounters::and).unwrap_or_default()
    }

    /// Where its controllers are in this process: what only tests and benchmarks need of them.
    pub fn embedded(&self) -> Option<Embedded> {
        self.first().transport().end()?;
        Some(Embedded {
            controllers: self.controllers.clone(),
            #[cfg(feature = "testing")]
            paths: self.paths.clone(),
        })
    }

    /// Resets the controller now, of several all. Requests in flight are posted again, however often this is called.
    pub fn reset(&self) {
        self.controllers.iter().for_each(Controller::reset);
    }

    /// For an application that wants to stop: from now on no request is sent again, and none waits for a path that may never come,
    /// but fails. What is in flight still has its time ([`OpenOptions::timeout`]). May be called from any thread.
    pub fn fail_pending(&self) {
        match &self.paths {
            None => self.first().fail_retries(),
            Some(paths) => paths.fail_pending(),
        }
    }

    /// Requests on their way, over all queues and paths; those that wait for a path are not.
    pub fn in_flight(&self) -> u32 {
        self.controllers.iter().map(Controller::in_flight).sum()
    }

    /// How each path stands, and what it has done; nothing of a device that is not `multipath:`.
    pub fn paths(&self) -> Vec<PathReport> {
        self.paths.as_deref().map(Multipath::report).unwrap_or_default()
    }

    /// What has gone wrong with paths and was made good, over all software queues, as of their last wait; nothing of a
    /// device that is not `multipath:`.
    pub fn failover(&self) -> FailoverCounters {
        self.paths.as_deref().map(Multipath::counters).unwrap_or_default()
    }

    /// The policy by which paths are chosen.
    pub fn path_policy(&self) -> Option<Policy> {
        self.paths.as_ref().map(|paths| paths.selector().policy())
    }

    /// From the next request on, paths are chosen by this policy. May be called at any time, from any thread; does
    /// nothing to a device that is not `multipath:`.
    pub fn set_path_policy(&self, policy: Policy) {
        if let Some(paths) = &self.paths {
            paths.selector().set_policy(policy);
        }
    }
}
