//! What callers hold: a device and its queues, of one controller or over several paths. Which of the two it is costs one
//! branch for each batch.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use blkmq::paths::Policy;
use completion::{Decisions, LatencySlack, Mode};
use driver::multipath;
use hw::{AllocError, DmaBuf, DmaPool, Memory, Region, RegisterError};
use units::Nanos;

use crate::device::{Description, DeviceCounters, HardwareCounters, OpenOptions, Single};
use crate::error::{OpenError, QueueError, Refused, WouldDeadlock};
use crate::executor::{self, Signal};
use crate::future::{FlushFuture, IoFuture, Pending};
use crate::health::Health;
use crate::link::{ByHand, Measured};
use crate::looker::Counters;
use crate::multipath::{Multipath, PathReport, Queue as Paths, SCHEME, open};
use crate::namespace::Namespace;
use crate::queue::{Queue as Lane, Turned};
use crate::request::{Completion, Request};
use crate::wakeups::Wakeups;

/// An open device. Cheap to clone; its controllers are shut down when the last clone and the last queue are gone.
#[derive(Clone)]
pub struct Device(Kind);

#[derive(Clone)]
enum Kind {
    One(Single),
    Paths(Arc<Multipath>),
}

impl Device {
    /// Opens the device of `uri` with one software queue.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(uri: &str) -> Result<Device, OpenError> {
        Device::open_with(uri, &OpenOptions::default())
    }

    /// Opens the device of `uri`: a [`crate::DeviceUri`], or a [`crate::MultipathUri`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(uri: &str, options: &OpenOptions) -> Result<Device, OpenError> {
        Ok(Device(match uri.starts_with(SCHEME) {
            true => Kind::Paths(Arc::new(open(uri, options)?)),
            false => Kind::One(Single::open_with(uri, options)?),
        }))
    }

    /// A software queue for one thread.
    ///
    /// # Errors
    /// All of them are taken, or the system is out of descriptors.
    pub fn queue(&self) -> Result<Queue, QueueError> {
        Ok(Queue(match &self.0 {
            Kind::One(single) => Way::One(single.queue()?),
            Kind::Paths(paths) => Way::Paths(paths.queue()?),
        }))
    }

    /// The controllers: one, or one for each path.
    fn singles(&self) -> &[Single] {
        match &self.0 {
            Kind::One(single) => std::slice::from_ref(single),
            Kind::Paths(paths) => paths.singles(),
        }
    }

    /// The first controller: there is always one.
    fn first(&self) -> &Single {
        &self.singles()[0]
    }

    /// The namespaces that can be used. Several paths lead to one.
    pub fn namespaces(&self) -> &[Namespace] {
        match &self.0 {
            Kind::One(single) => single.namespaces(),
            Kind::Paths(paths) => paths.namespaces(),
        }
    }

    /// The namespace in the size that its controller shows now: it may have grown or shrunk since the handle was had, as
    /// [`Health::events`] tells. A handle goes on with its own size: requests beyond it are refused, those beyond the
    /// controller's fail.
    pub fn current(&self, namespace: &Namespace) -> Namespace {
        match &self.0 {
            Kind::One(single) => single.current(namespace),
            Kind::Paths(paths) => paths.current(namespace),
        }
    }

    /// A buffer that the device can reach, by whatever path, of `len` bytes.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.first().buffer(len)
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
        self.first().register(memory)
    }

    /// Changes the completion mode of every queue, with requests in flight or without.
    pub fn set_mode(&self, mode: Mode) {
        self.singles().iter().for_each(|single| single.set_mode(mode));
    }

    /// Which controller it is; of several, the first path's.
    pub fn description(&self) -> &Description {
        match &self.0 {
            Kind::One(single) => single.description(),
            Kind::Paths(paths) => paths.description(),
        }
    }

    /// How the embedded controller behaves; of several, the first path's.
    pub fn profile(&self) -> Option<&device::Profile> {
        self.first().profile()
    }

    /// Whether the controller works, and what has happened to it. Of several: what has happened to any; given up only if
    /// all are.
    pub fn health(&self) -> Health {
        let all: Vec<Health> = self.singles().iter().map(Single::health).collect();
        let dead = all.iter().map(|health| health.dead.clone()).collect::<Option<Vec<_>>>();
        all.into_iter().reduce(Health::and).map(|health| Health { dead: dead.map(|why| why.join("; ")), ..health }).unwrap_or_default()
    }

    /// What has been counted since it was opened, over all queues and paths.
    pub fn counters(&self) -> DeviceCounters {
        self.singles().iter().map(Single::counters).reduce(DeviceCounters::and).unwrap_or_default()
    }

    /// Keeps the embedded device's thread from sleeping, and counts its gaps, for as long as the guard lives.
    pub fn measure(&self) -> Measured {
        self.first().measure()
    }

    /// Stops the embedded devices' thread: from now on all embedded controllers of the process run by hand.
    pub fn by_hand(&self) -> ByHand {
        self.first().by_hand()
    }

    /// The CPU that the embedded device's thread is pinned to.
    pub fn device_cpu(&self) -> Option<usize> {
        self.first().device_cpu()
    }

    /// Resets the controller now, of several all. Requests in flight are posted again.
    pub fn reset(&self) {
        self.singles().iter().for_each(Single::reset);
    }

    /// For whoever wants to stop: from now on no request is sent again, and none waits for a path that may never come, but fails. What is
    /// in flight still has its time ([`OpenOptions::timeout`]). May be called from any thread.
    pub fn lose_patience(&self) {
        match &self.0 {
            Kind::One(single) => single.lose_patience(),
            Kind::Paths(paths) => paths.lose_patience(),
        }
    }

    /// Requests on their way, over all queues and paths; those that wait for a path are not.
    pub fn in_flight(&self) -> u32 {
        self.singles().iter().map(Single::in_flight).sum()
    }

    fn multipath(&self) -> Option<&Multipath> {
        match &self.0 {
            Kind::One(_) => None,
            Kind::Paths(paths) => Some(paths),
        }
    }

    /// How each path stands, and what it has done; nothing of a device that is not `multipath:`.
    pub fn paths(&self) -> Vec<PathReport> {
        self.multipath().map(Multipath::report).unwrap_or_default()
    }

    /// What has gone wrong with paths and was made good, over all software queues, as of their last wait; nothing of a
    /// device that is not `multipath:`.
    pub fn failover(&self) -> multipath::Counters {
        self.multipath().map(Multipath::counters).unwrap_or_default()
    }

    /// The policy by which paths are chosen.
    pub fn path_policy(&self) -> Option<Policy> {
        self.multipath().map(|paths| paths.selector().policy())
    }

    /// From the next request on, paths are chosen by this policy. May be called at any time, from any thread; does
    /// nothing to a device that is not `multipath:`.
    pub fn set_path_policy(&self, policy: Policy) {
        if let Some(paths) = self.multipath() {
            paths.selector().set_policy(policy);
        }
    }

    /// What is counted of requests in flight, over all paths and policies: zero when nothing is.
    pub fn paths_counted(&self) -> u64 {
        self.multipath().map_or(0, |paths| paths.selector().counted())
    }

    /// Something happens to a path's embedded controller, the first being number 0: for tests of what stands above it.
    ///
    /// # Errors
    /// There is no such path.
    pub fn change_path(&self, path: usize, change: device::Change) -> Result<(), device::NoSuchPath> {
        self.multipath().map_or(Err(device::NoSuchPath { path, paths: 0 }), |paths| paths.change(path, change))
    }

    /// The same by the clock: steps are counted from now on.
    ///
    /// # Errors
    /// The script names a path that there is not.
    pub fn play(&self, script: &device::Script) -> Result<(), device::NoSuchPath> {
        let none = device::NoSuchPath { path: script.steps.first().map_or(0, |step| step.path), paths: 0 };
        self.multipath().map_or(Err(none), |paths| paths.play(script))
    }
}

/// A software queue. It can be sent to another thread, and used by one at a time.
///
/// There are three ways to drive it. [`Queue::block_on`] and [`Queue::wait`] own the thread's idle time and do what the
/// completion mode plans: spin, nap, sleep. A foreign loop waits for the queue's file descriptor ([`AsFd`]) and
/// [`Queue::next_deadline`], and calls [`Queue::turn`], which neither blocks nor spins. A [`crate::Reactor`] drives a
/// queue on a thread of its own.
pub struct Queue(Way);

#[expect(clippy::large_enum_variant, reason = "one to a thread, and never moved")]
enum Way {
    One(Lane),
    Paths(Paths),
}

impl Queue {
    /// The device's namespaces.
    pub fn namespaces(&self) -> &[Namespace] {
        match &self.0 {
            Way::One(lane) => lane.namespaces(),
            Way::Paths(paths) => paths.shared().namespaces(),
        }
    }

    fn pool(&self) -> &DmaPool {
        match &self.0 {
            Way::One(lane) => lane.pool(),
            Way::Paths(paths) => paths.shared().pool(),
        }
    }

    /// A buffer from the device's pool.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.pool().alloc(len)
    }

    /// Submits requests: posts as many as there are tags, the others wait in line, and rings the doorbell once (once for
    /// each path that is taken). `now` is the clock read of the batch ([`crate::now`]): latencies and time-outs count from
    /// it, so that commands submitted at an instant of another clock may be late at once, and the controller be reset for it.
    ///
    /// # Errors
    /// The first request that cannot be carried out, and why; those before it are submitted, those after it stay in
    /// the iterator. The iterator runs while the queue is locked and must not use it.
    #[inline]
    pub fn submit(&self, now: Nanos, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        match &self.0 {
            Way::One(lane) => lane.submit(now, requests),
            Way::Paths(paths) => paths.submit(now, requests),
        }
    }

    /// Moves finished requests of [`Queue::submit`] to `out`, as many as fit into its capacity (at least one). Only
    /// what has been found already: [`Queue::wait`] and [`Queue::turn`] look. Returns how many.
    #[inline]
    pub fn reap(&self, out: &mut Vec<Completion>) -> usize {
        match &self.0 {
            Way::One(lane) => lane.reap(out),
            Way::Paths(paths) => paths.reap(out),
        }
    }

    /// Finished requests that [`Queue::reap`] would move.
    pub fn finished(&self) -> usize {
        match &self.0 {
            Way::One(lane) => lane.finished(),
            Way::Paths(paths) => paths.finished(),
        }
    }

    /// Requests that are not finished.
    pub fn in_flight(&self) -> u32 {
        match &self.0 {
            Way::One(lane) => lane.in_flight(),
            Way::Paths(paths) => paths.in_flight(),
        }
    }

    /// Drives the queue, as its completion mode plans, until at least `min` requests can be reaped, until `until`
    /// ([`Nanos::MAX`]: no limit), or until nothing is in flight. Returns how many can be reaped.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`: the futures of this thread could not go on.
    #[inline]
    pub fn wait(&self, min: usize, until: Nanos) -> Result<usize, WouldDeadlock> {
        let paths = match &self.0 {
            Way::One(lane) => return lane.wait(min, until),
            Way::Paths(paths) => paths,
        };
        let _inside = executor::enter()?;
        Ok(paths.wait(min, until, false))
    }

    /// Sleeps or spins until `until`, driving the queue meanwhile, even with nothing in flight.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`.
    pub fn wait_until(&self, min: usize, until: Nanos) -> Result<usize, WouldDeadlock> {
        let paths = match &self.0 {
            Way::One(lane) => return lane.wait_until(min, until),
            Way::Paths(paths) => paths,
        };
        let _inside = executor::enter()?;
        Ok(paths.wait(min, until, true))
    }

    /// A request as a future. It is posted at once; the doorbell rings when the queue is next driven, or by
    /// [`Queue::commit`].
    pub fn start(&self, request: Request) -> Pending {
        match &self.0 {
            Way::One(lane) => lane.start(request),
            Way::Paths(paths) => paths.start(request),
        }
    }

    /// Reads blocks from `lba` on into `buf`.
    pub fn read(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        IoFuture::new(self.start(Request::read(namespace, lba, buf)), self.pool().clone())
    }

    /// Writes `buf` to the blocks from `lba` on.
    pub fn write(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        IoFuture::new(self.start(Request::write(namespace, lba, buf)), self.pool().clone())
    }

    /// Makes every write that has completed durable.
    pub fn flush(&self, namespace: &Namespace) -> FlushFuture {
        FlushFuture(self.start(Request::flush(namespace)))
    }

    /// Runs a future to its end on this thread, driving the queue while it waits.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside another `block_on` of this thread.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WouldDeadlock> {
        executor::block_on(self, self.signal(), future)
    }

    /// Drives the queue until `enough`; what the caller waits for may come from elsewhere.
    pub(crate) fn drive(&self, until: Nanos, enough: impl Fn() -> bool) {
        match &self.0 {
            Way::One(lane) => lane.drive(until, enough),
            Way::Paths(paths) => paths.drive(until, true, enough),
        }
    }

    /// For a foreign loop: commits, takes at most `budget` entries (of each path), and leaves the notification armed, so
    /// that the queue's file descriptor becomes readable when there is more. Never blocks, never spins. See
    /// [`Queue::leave_loop`] before the loop stops watching.
    pub fn turn(&self, budget: u32) -> Turned {
        match &self.0 {
            Way::One(lane) => lane.turn(budget),
            Way::Paths(paths) => paths.turn(budget),
        }
    }

    /// For a foreign loop on a shared hardware queue, before it stops watching the descriptor for a while: hands on the
    /// role of being woken by the queue's vector, which [`Queue::turn`] took, to a thread that waits for it (law 6).
    pub fn leave_loop(&self) {
        match &self.0 {
            Way::One(lane) => lane.leave_loop(),
            Way::Paths(paths) => paths.leave_loop(),
        }
    }

    /// For a foreign loop: when to call [`Queue::turn`] at the latest even though the file descriptor is quiet.
    pub fn next_deadline(&self) -> Option<Nanos> {
        match &self.0 {
            Way::One(lane) => lane.next_deadline(),
            Way::Paths(paths) => paths.next_deadline(),
        }
    }

    /// Changes the completion mode, with requests in flight or without. Nothing is lost and nothing comes twice.
    pub fn set_mode(&self, mode: Mode) {
        match &self.0 {
            Way::One(lane) => lane.set_mode(mode),
            Way::Paths(paths) => paths.set_mode(mode),
        }
    }

    /// Changes how much later than if it were polled a request may be found under `adaptive`.
    pub fn set_latency_slack(&self, slack: LatencySlack) {
        self.lanes().for_each(|lane| lane.set_latency_slack(slack));
    }

    /// Tells `adaptive` that whoever waits on this queue only waits for room, and since when: it has a request that was to start at
    /// `due`, or is to. A caller with a clock of his own is then not slowed down for good by sleeps that take longer than he has time:
    /// once he is late by much, and half of that is theirs, waits that follow stay awake until he has caught up, at slacks up to the
    /// default. It stays told until the next call; `None`, as if this were never called: nothing is due.
    pub fn set_wants_room_at(&self, due: Option<Nanos>) {
        self.lanes().for_each(|lane| lane.set_wants_room_at(due));
    }

    /// What [`Queue::set_wants_room_at`] told last.
    pub fn wants_room_at(&self) -> Option<Nanos> {
        self.lane().wants_room_at()
    }

    /// One of the queues below: for what is the same of all.
    fn lane(&self) -> &Lane {
        match &self.0 {
            Way::One(lane) => lane,
            Way::Paths(paths) => paths.lane(),
        }
    }

    /// The completion mode in force.
    pub fn mode(&self) -> Mode {
        self.lane().mode()
    }

    /// Whether the next commit may look for completions before it returns, so that some are found before a clock read that
    /// follows it.
    pub fn looks_on_commit(&self) -> bool {
        match &self.0 {
            Way::One(lane) => lane.looks_on_commit(),
            Way::Paths(_) => self.lanes().any(Lane::looks_on_commit),
        }
    }

    /// What this queue's thread has counted.
    pub fn counters(&self) -> Counters {
        match &self.0 {
            Way::One(lane) => lane.counters(),
            Way::Paths(paths) => paths.counters(Lane::counters),
        }
    }

    /// What this queue's thread has counted since the last call, or since the queue was taken.
    pub fn take_counters(&self) -> Counters {
        match &self.0 {
            Way::One(lane) => lane.take_counters(),
            Way::Paths(paths) => paths.counters(Lane::take_counters),
        }
    }

    /// What has been counted of the hardware queue that this one posts to (of several paths, of all of theirs), for all
    /// the software queues that share it.
    pub fn hardware_counters(&self) -> HardwareCounters {
        match &self.0 {
            Way::One(lane) => lane.hardware_counters(),
            Way::Paths(paths) => paths.hardware_counters(),
        }
    }

    /// What `adaptive` has decided, and why; of several paths, on the first.
    pub fn decisions(&self) -> Option<Decisions> {
        self.lane().decisions()
    }

    /// From now on counts what wake-ups bring ([`Queue::wakeups`]).
    pub fn count_wakeups(&self) {
        match &self.0 {
            Way::One(lane) => lane.count_wakeups(),
            Way::Paths(paths) => paths.count_wakeups(),
        }
    }

    /// What wake-ups have brought since [`Queue::count_wakeups`].
    pub fn wakeups(&self) -> Wakeups {
        match &self.0 {
            Way::One(lane) => lane.wakeups(),
            Way::Paths(paths) => paths.wakeups(),
        }
    }

    /// The hardware queue that this one posts to, from 0; the same on every path.
    pub fn hardware_queue(&self) -> u16 {
        self.lane().hardware_queue()
    }

    /// Rings the doorbell for what [`Queue::start`] has posted.
    pub fn commit(&self) {
        match &self.0 {
            Way::One(lane) => lane.commit(),
            Way::Paths(paths) => paths.commit(),
        }
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        match &self.0 {
            Way::One(lane) => lane.signal(),
            Way::Paths(paths) => paths.signal(),
        }
    }

    /// The queues below, one for each path.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> + Clone {
        let lanes = match &self.0 {
            Way::One(lane) => std::slice::from_ref(lane),
            Way::Paths(paths) => paths.lanes(),
        };
        lanes.iter()
    }

    /// Does what is due about paths. When there is more at the latest; [`Nanos::MAX`] of a queue of one controller, and
    /// when nothing is open.
    pub(crate) fn look_after_paths(&self) -> Nanos {
        match &self.0 {
            Way::One(_) => Nanos::MAX,
            Way::Paths(paths) => paths.look_after(),
        }
    }
}

/// Readable when [`Queue::turn`] has something to do.
impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Way::One(lane) => lane.as_fd(),
            Way::Paths(paths) => paths.as_fd(),
        }
    }
}

/// The same descriptor, for loops that want it raw.
impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
