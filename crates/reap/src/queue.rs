//! The public type of a software queue: over one controller, or over several paths with the
//! multipath layer above them.
//!
//! ```text
//! Queue --- one controller ----------------> PathQueue
//!   `------ multipath: MultipathQueue -----> PathQueue for each path
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use completion::{AdaptiveState, Mode, Spin};
use hw::{AllocError, DmaBuf, DmaPool};
use nvme::Sqe;
use units::Nanos;

use crate::counters::{Counters, HardwareCounters};
use crate::error::{IoError, QueueError, Refused, WouldDeadlock};
use crate::instant::{Instant, deadline};
use crate::multipath::{Multipath, MultipathQueue};
use crate::namespace::Namespace;
use crate::request::{Completion, Request};
use crate::shared::controller::OpenController;
use crate::shared::future::{IoFuture, Pending};
use crate::shared::future_states::FutureStates;
use crate::thread::block_on::{self, Signal};
use crate::thread::path_queue::PathQueue;
use crate::thread::queue_pair::PollStatus;
use crate::wake;
use crate::wakeups::Wakeups;

/// A software queue. It may be sent to another thread, and is used by one thread at a time.
///
/// There are three ways to drive it. [`Queue::block_on`] and [`Queue::wait`] spin, nap or sleep as
/// the completion mode plans. An event loop of the application waits for the queue's file
/// descriptor ([`AsFd`]) and [`Queue::next_deadline`], and calls [`Queue::poll_events`], which
/// neither blocks nor spins. A [`crate::Reactor`] drives a queue on a thread of its own.
pub struct Queue {
    /// A queue for each path; without multipath, one queue.
    path_queues: Vec<PathQueue>,
    /// `None`: one controller. Tested once for each batch, so that a queue over one controller
    /// spends one branch on multipath.
    multipath: Option<Box<MultipathQueue>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight();
        f.debug_struct("Queue")
            .field("paths", &self.path_queues.len())
            .field("in_flight", &in_flight)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue over one controller. `bound`: no other thread will ever use it.
    pub(crate) fn over_one(
        controller: &OpenController,
        bound: bool,
        mode: Option<Mode>,
    ) -> Result<Queue, QueueError> {
        Ok(Queue { path_queues: vec![PathQueue::take(controller, bound, mode)?], multipath: None })
    }

    pub(crate) fn over_paths(paths: &Arc<Multipath>) -> Result<Queue, QueueError> {
        let (multipath, path_queues) = MultipathQueue::take(paths)?;
        Ok(Queue { path_queues, multipath: Some(Box::new(multipath)) })
    }

    /// The first path's queue. Used for what is the same on all paths, and without multipath, where
    /// it is the only one.
    #[inline]
    fn path_queue(&self) -> &PathQueue {
        &self.path_queues[0]
    }

    /// The queues of all paths.
    pub(crate) fn path_queues(&self) -> &[PathQueue] {
        &self.path_queues
    }

    /// The device's namespaces.
    pub fn namespaces(&self) -> &[Namespace] {
        self.multipath.as_ref().map_or_else(
            || self.path_queue().namespaces(),
            |multipath| multipath.shared().namespaces(),
        )
    }

    pub(crate) fn pool(&self) -> &DmaPool {
        self.path_queue().pool()
    }

    /// A buffer from the device's pool.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.pool().alloc(len)
    }

    /// Registers the memory of `buf` with the queue, and returns `buf`. On `kernel:` devices the
    /// first request that uses a 4 MiB chunk of the pool, or of a region, makes the kernel pin and
    /// register the whole chunk. That takes milliseconds; a benchmark calls this so that it happens
    /// before the measurement. Other devices need no preparation.
    ///
    /// ```
    /// let device = reap::Device::open("mem:64M?profile=null")?;
    /// let queue = device.queue()?;
    /// let buf = queue.prepare(device.buffer(4096)?);
    /// # assert_eq!(buf.len(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare(&self, buf: DmaBuf) -> DmaBuf {
        // Requests with another device's memory are refused when they are submitted.
        if buf.is_empty() || !buf.is_of(self.pool().key()) {
            return buf;
        }
        let lent = buf.lend();
        self.path_queues.iter().for_each(|path_queue| path_queue.prepare(&lent));
        lent.take_back()
    }

    /// Submits requests: posts as many as there are tags, queues the others, and rings the doorbell
    /// once (once for each path that is used). Latencies and time-outs count from this call.
    ///
    /// ```
    /// use reap::Request;
    ///
    /// let device = reap::Device::open("mem:64M?profile=null")?;
    /// let (queue, ns) = (device.queue()?, device.namespaces()[0]);
    /// let bufs = [device.buffer(4096)?, device.buffer(4096)?];
    /// queue.submit(bufs.into_iter().zip(0..).map(|(buf, n)| Request::read(&ns, n * 8,
    /// buf).tag(n))).map_err(|(why, _)| why)?;
    /// queue.wait(2, None)?;
    /// let mut done = Vec::with_capacity(2);
    /// queue.reap(&mut done);
    /// assert!(done.iter().all(|completion| completion.result.is_ok()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The iterator runs before anything is posted, and no lock is held while it runs. It must not
    /// use the queue: requests that it submits there are refused ([`Refused::InsideSubmit`]), and
    /// waiting is an error ([`WouldDeadlock`]). If it panics, the requests that it has yielded are
    /// submitted.
    ///
    /// # Errors
    /// The first request that is refused, and why. Those before it are submitted, those after it
    /// stay in the iterator.
    #[inline]
    pub fn submit(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        self.submit_at(Instant::now(), requests)
    }

    /// As [`Queue::submit`], for a caller that has just read the clock: latencies and time-outs
    /// count from `now`. This saves a clock read for each batch, if `now` is
    /// [`Completion::completed_at`] of the last completion.
    ///
    /// # Errors
    /// As of [`Queue::submit`].
    #[inline]
    pub fn submit_at(
        &self,
        now: Instant,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        self.submit_or_post(now, false, requests)
    }

    /// As [`Queue::submit`], for a caller that is about to wait. If submitting and sleeping can be
    /// one system call, as on `kernel:`, the requests are only queued, and the next [`Queue::wait`]
    /// makes that call. [`Queue::commit`] submits them without waiting.
    ///
    /// # Errors
    /// As of [`Queue::submit`].
    #[inline]
    pub fn post(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        self.post_at(Instant::now(), requests)
    }

    /// As [`Queue::post`], for a caller that has just read the clock.
    ///
    /// # Errors
    /// As of [`Queue::submit`].
    #[inline]
    pub fn post_at(
        &self,
        now: Instant,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        self.submit_or_post(now, true, requests)
    }

    #[inline]
    fn submit_or_post(
        &self,
        now: Instant,
        waits: bool,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        let now = now.nanos();
        // By reference below, because the iterator may be large and each call would move it.
        let mut requests = requests.into_iter();
        match &self.multipath {
            None => self.path_queue().submit(now, waits, &mut requests),
            Some(multipath) => multipath.submit(&self.path_queues, now, &mut requests),
        }
    }

    /// Moves finished requests to `out`, as many as fit into its capacity (at least one), and
    /// returns their number. Does not poll the device; [`Queue::wait`] and [`Queue::poll_events`]
    /// do.
    #[inline]
    pub fn reap(&self, out: &mut Vec<Completion>) -> usize {
        match &self.multipath {
            None => self.path_queue().reap(out),
            Some(multipath) => multipath.reap(&self.path_queues, out),
        }
    }

    /// Finished requests that [`Queue::reap`] would move.
    pub fn finished(&self) -> usize {
        match &self.multipath {
            None => self.path_queue().finished(),
            Some(multipath) => multipath.finished(&self.path_queues),
        }
    }

    /// Requests that are not finished.
    pub fn in_flight(&self) -> u32 {
        self.multipath
            .as_ref()
            .map_or_else(|| self.path_queue().in_flight(), |multipath| multipath.in_flight())
    }

    /// Drives the queue as its completion mode plans, until at least `min` requests can be reaped,
    /// or until `until`. Returns how many can be reaped.
    ///
    /// With nothing in flight it waits until `until`. If `until` is `None`, it then returns at
    /// once, since nothing can complete.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`, whose futures could not proceed.
    #[inline]
    pub fn wait(&self, min: usize, until: Option<Instant>) -> Result<usize, WouldDeadlock> {
        self.wait_until(min, deadline(until), until.is_some())
    }

    /// As [`Queue::wait`], but it also returns once nothing is in flight, before `until`.
    ///
    /// # Errors
    /// As of [`Queue::wait`].
    #[inline]
    pub fn wait_or_idle(&self, min: usize, until: Option<Instant>) -> Result<usize, WouldDeadlock> {
        self.wait_until(min, deadline(until), false)
    }

    #[inline(always)]
    fn wait_until(&self, min: usize, until: Nanos, idle: bool) -> Result<usize, WouldDeadlock> {
        match &self.multipath {
            None => self.path_queue().wait(min, until, idle),
            Some(multipath) => self.wait_for_paths(multipath, min, until, idle),
        }
    }

    fn wait_for_paths(
        &self,
        multipath: &MultipathQueue,
        min: usize,
        until: Nanos,
        idle: bool,
    ) -> Result<usize, WouldDeadlock> {
        // The iterator holds requests of this queue, which would never complete.
        if multipath.is_submitting() {
            return Err(WouldDeadlock);
        }
        let _inside = block_on::enter()?;
        Ok(multipath.wait(&self.path_queues, min, until, idle))
    }

    /// Whether [`Queue::submit`] is running the application's iterator, which must not wait on this
    /// queue.
    pub(crate) fn is_submitting(&self) -> bool {
        self.multipath.as_ref().map_or_else(
            || self.path_queue().is_submitting(),
            |multipath| multipath.is_submitting(),
        )
    }

    /// Starts a request as a future. It is posted at once. The doorbell is rung when the queue is
    /// next driven, or by [`Queue::commit`].
    ///
    /// ```
    /// use reap::Request;
    ///
    /// let device = reap::Device::open("mem:64M")?;
    /// let (queue, ns) = (device.queue()?, device.namespaces()[0]);
    /// let mut buf = device.buffer(4096)?;
    /// buf.fill(1);
    /// let compared = queue.block_on(queue.start(Request::compare(&ns, 0, buf)))?;
    /// assert!(compared.result.is_err_and(|why| why.is_miscompare()), "new blocks are zeroes");
    /// queue.block_on(queue.start(Request::verify(&ns, 0, 8)))?.result?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&self, request: Request) -> Pending {
        self.start_with(|ticket| self.start_as(ticket, request))
    }

    /// Makes a future. `start` submits its request with the future's ticket.
    fn start_with(&self, start: impl FnOnce(u32) -> Result<(), (Refused, Request)>) -> Pending {
        // In a forked child the lock of the tickets may be held for ever, by a thread that exists
        // only in the parent.
        let tickets =
            if self.path_queue().same_process() { self.tickets() } else { Arc::default() };
        let ticket = tickets.issue();
        if let Err((why, request)) = start(ticket) {
            refuse(&tickets, ticket, why, request);
        }
        Pending::new(tickets, ticket, self.pool().clone())
    }

    /// Submits the request of the future with `ticket`.
    ///
    /// # Errors
    /// The request is refused.
    pub(crate) fn start_as(&self, ticket: u32, request: Request) -> Result<(), (Refused, Request)> {
        match &self.multipath {
            None => self.path_queue().start(ticket, request, None),
            Some(multipath) => multipath.start(&self.path_queues, ticket, request),
        }
    }

    /// The states of the queue's futures.
    pub(crate) fn tickets(&self) -> Arc<FutureStates> {
        self.multipath
            .as_ref()
            .map_or_else(|| self.path_queue().tickets(), |multipath| multipath.tickets().clone())
    }

    /// Reads blocks from `lba` on into `buf`.
    pub fn read(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        self.start(Request::read(namespace, lba, buf)).with_buffer()
    }

    /// Writes `buf` to the blocks from `lba` on.
    pub fn write(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        self.start(Request::write(namespace, lba, buf)).with_buffer()
    }

    /// Makes every completed write to the namespace durable.
    pub fn flush(&self, namespace: &Namespace) -> Pending<Result<(), IoError>> {
        self.start(Request::flush(namespace)).without_buffer()
    }

    /// Reads blocks from `lba` on into several buffers, one after the other, as readv(2). Each
    /// buffer is a request of its own, and all are submitted together. The length of each buffer
    /// must be a multiple of the block size; otherwise nothing is read. The future returns the
    /// result (of several failures the first) and the buffers in order.
    ///
    /// ```
    /// let device = reap::Device::open("mem:64M")?;
    /// let (queue, ns) = (device.queue()?, device.namespaces()[0]);
    /// let (header, body) = (device.buffer(512)?, device.buffer(65_536)?);
    /// let (result, bufs) = queue.block_on(queue.read_vectored(&ns, 0, vec![header, body]))?;
    /// result?;
    /// assert_eq!(bufs.iter().map(|buf| buf.len()).sum::<usize>(), 512 + 65_536);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_vectored(
        &self,
        namespace: &Namespace,
        lba: u64,
        bufs: Vec<DmaBuf>,
    ) -> impl Future<Output = (Result<(), IoError>, Vec<DmaBuf>)> + Send + use<> {
        self.start_vectored(namespace, lba, bufs, Request::read)
    }

    /// Writes several buffers, one after the other, to the blocks from `lba` on, as writev(2). See
    /// [`Queue::read_vectored`]. After a power loss some of them may have been written.
    pub fn write_vectored(
        &self,
        namespace: &Namespace,
        lba: u64,
        bufs: Vec<DmaBuf>,
    ) -> impl Future<Output = (Result<(), IoError>, Vec<DmaBuf>)> + Send + use<> {
        self.start_vectored(namespace, lba, bufs, Request::write)
    }

    fn start_vectored(
        &self,
        namespace: &Namespace,
        lba: u64,
        bufs: Vec<DmaBuf>,
        request: fn(&Namespace, u64, DmaBuf) -> Request,
    ) -> impl Future<Output = (Result<(), IoError>, Vec<DmaBuf>)> + Send + use<> {
        let (block, blocks) = (namespace.block_bytes(), namespace.blocks());
        // All buffers are checked before the first request starts, so that an error means that
        // nothing was done.
        let unfit = bufs.iter().find_map(|buf| {
            let length = || Refused::Length {
                bytes: buf.len().try_into().unwrap_or(u32::MAX),
                block,
                buffer: buf.len(),
            };
            (buf.is_empty() || !buf.len().is_multiple_of(block as usize)).then(length)
        });
        let foreign = || {
            bufs.iter().any(|buf| !buf.is_of(self.pool().key())).then_some(Refused::ForeignBuffer)
        };
        let end = bufs
            .iter()
            .map(|buf| buf.len() as u64 / u64::from(block))
            .fold(lba, u64::saturating_add);
        let outside = || (end > blocks).then_some(Refused::OutOfRange { lba, end, blocks });
        let started = match unfit.or_else(foreign).or_else(outside) {
            Some(why) => Err((why, bufs)),
            None => {
                let mut at = lba;
                let start = |buf: DmaBuf| {
                    let first = at;
                    at += buf.len() as u64 / u64::from(block);
                    self.start(request(namespace, first, buf)).with_buffer()
                };
                Ok(bufs.into_iter().map(start).collect::<Vec<IoFuture>>())
            }
        };
        async move {
            let parts = match started {
                Ok(parts) => parts,
                // Nothing was started, so the buffers come back untouched.
                Err((why, bufs)) => return (Err(why.into()), bufs),
            };
            let (mut all, mut bufs) = (Ok(()), Vec::with_capacity(parts.len()));
            for part in parts {
                // All parts are awaited even after a failure: their buffers are in use until then.
                let (result, buf) = part.await;
                all = all.and(result);
                bufs.push(buf);
            }
            (all, bufs)
        }
    }

    /// Sends an I/O command that the caller built. The future returns dword 0 of the completion,
    /// and the buffer. The opcode, NSID and dwords 2, 3 and 10 to 15 of `command` are sent; the
    /// library sets CID, flags and data pointers. The opcode says whether the controller reads the
    /// buffer (bits 1:0 are 01b) or fills it (10b).
    /// [`Device::admin_command`](crate::Device::admin_command) is the same for admin commands.
    ///
    /// The buffer must have room for all data that the command transfers. The library checks this
    /// if it knows the length: for Read, Write and Compare of the device's namespaces, and for the
    /// commands that receive reports. For other commands that fill the buffer, such as a vendor's,
    /// a controller with SGLs gets the buffer's length in the descriptor; without SGLs the buffer
    /// has to be one whole page. If the controller writes more than that, only an IOMMU stops it.
    ///
    /// The caller is responsible for what the command does to blocks that other requests use. The
    /// command is never retried: it fails if the controller is reset, or returns a status that
    /// would allow a retry. `kernel:` and `multipath:` devices refuse such commands.
    ///
    /// ```
    /// let device = reap::Device::open("mem:64M")?;
    /// let queue = device.queue()?;
    /// let read = reap::Sqe { opcode: nvme::opcode::io::READ, nsid: 1, cdw10: 8, cdw12: 7,
    /// ..Default::default() };
    /// let (result, buf) = queue.block_on(queue.io_command(&read, Some(device.buffer(4096)?)))?;
    /// assert_eq!((result?, buf.map(|buf| buf.len())), (0, Some(4096)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn io_command(
        &self,
        command: &Sqe,
        buf: Option<DmaBuf>,
    ) -> Pending<(Result<u32, IoError>, Option<DmaBuf>)> {
        let dword = Arc::new(AtomicU32::new(0));
        let request = Request::command(command, self.namespaces().first(), buf);
        let pending = self.start_with(|ticket| match &self.multipath {
            None => self.path_queue().io_command(ticket, command, request, dword.clone()),
            Some(_) => {
                let why = "the device has several controllers; open one of its paths as a device";
                Err((Refused::Command { opcode: command.opcode, why }, request))
            }
        });
        pending.with_dword(dword)
    }

    /// Runs a future to its end on this thread, driving the queue while it waits.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside another `block_on` of this thread.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WouldDeadlock> {
        if self.is_submitting() {
            return Err(WouldDeadlock);
        }
        block_on::block_on(self.signal(), future, |signal| {
            self.drive(Nanos::MAX, || signal.is_signalled())
        })
    }

    /// Drives the queue until `enough` returns true, which may depend on other queues or threads.
    pub(crate) fn drive(&self, until: Nanos, enough: impl Fn() -> bool) {
        match &self.multipath {
            None => self.path_queue().drive(until, None, enough),
            Some(multipath) => multipath.drive(&self.path_queues, until, true, enough),
        }
    }

    /// For an event loop of the application: submits what is posted, and reaps at most `budget`
    /// entries of each path. Call it again when the queue's file descriptor is readable, and when
    /// [`Queue::next_deadline`] has come. Never blocks or spins.
    ///
    /// The event loop must observe the deadline, because the policy may leave notifications masked
    /// until then. Call [`Queue::leave_loop`] before the loop stops watching the descriptor.
    pub fn poll_events(&self, budget: u32) -> PollStatus {
        match &self.multipath {
            None => self.path_queue().poll_events(budget),
            Some(multipath) => multipath.poll_events(&self.path_queues, budget),
        }
    }

    /// For an event loop that stops watching the descriptor for a while. If the hardware queue is
    /// shared, [`Queue::poll_events`] may have made this thread the one that its interrupt wakes;
    /// this makes another waiting thread that one (invariant 6).
    pub fn leave_loop(&self) {
        self.path_queues.iter().for_each(PathQueue::leave_loop);
    }

    /// For an event loop: when to call [`Queue::poll_events`] at the latest, even if the file
    /// descriptor stays quiet.
    pub fn next_deadline(&self) -> Option<Instant> {
        let above = self.multipath.as_ref().and_then(|multipath| multipath.next_deadline());
        self.path_queues
            .iter()
            .filter_map(PathQueue::next_deadline)
            .chain(above)
            .min()
            .map(Instant::of)
    }

    /// Changes the completion mode, with or without requests in flight. Every request still
    /// completes exactly once. The kernel's own modes ([`Mode::KERNELS`]) cannot be set here,
    /// because an io_uring is made for them: [`crate::Device::local_queue_in`] makes a queue in
    /// such a mode.
    pub fn set_mode(&self, mode: Mode) {
        self.path_queues.iter().for_each(|path_queue| path_queue.set_mode(mode));
    }

    /// What `poll` and `hybrid-*` do on this queue when other threads want the CPU: nap for 50 µs
    /// (the default), yield the CPU between polls, or spin until the scheduler takes it.
    pub fn set_spin(&self, spin: Spin) {
        self.path_queues.iter().for_each(|path_queue| path_queue.set_spin(spin));
    }

    /// Tells `adaptive` that the caller has had a request to start since `due`, and waits only for a
    /// free slot. This is for callers that start requests at given times: while such a caller is far
    /// behind, its waits poll instead of sleeping. Holds until the next call; `None`: no request is
    /// due.
    pub fn set_next_due(&self, due: Option<Instant>) {
        let due = due.map(Instant::nanos);
        self.path_queues.iter().for_each(|path_queue| path_queue.set_next_due(due));
    }

    /// The value of the last [`Queue::set_next_due`].
    #[cfg(feature = "testing")]
    pub fn next_due(&self) -> Option<Instant> {
        self.path_queue().next_due().map(Instant::of)
    }

    /// The completion mode in force.
    pub fn mode(&self) -> Mode {
        self.path_queue().mode()
    }

    /// Counters of this queue's thread.
    pub fn counters(&self) -> Counters {
        self.path_queues.iter().map(PathQueue::counters).fold(Counters::default(), Counters::and)
    }

    /// Counters since the last call, or since the queue was taken.
    pub fn take_counters(&self) -> Counters {
        self.path_queues
            .iter()
            .map(PathQueue::take_counters)
            .fold(Counters::default(), Counters::and)
    }

    /// Counters of the hardware queue that this queue posts to, including what other software
    /// queues that share it did; summed over paths.
    pub fn hardware_counters(&self) -> HardwareCounters {
        self.path_queues
            .iter()
            .map(PathQueue::hardware_counters)
            .fold(HardwareCounters::default(), HardwareCounters::and)
    }

    /// The action of `adaptive` in force, its reason, the cost and latency of each action tried, and
    /// the counts of its decisions; displayed as one line, without the counts. With several paths,
    /// those of the first path. `None` in every other mode.
    pub fn adaptive_state(&self) -> Option<AdaptiveState> {
        self.path_queue().adaptive_state()
    }

    /// Starts counting for [`Queue::wakeups`].
    pub fn count_wakeups(&self) {
        self.path_queues.iter().for_each(PathQueue::count_wakeups);
    }

    /// Histograms of the wake-ups since [`Queue::count_wakeups`].
    pub fn wakeups(&self) -> Wakeups {
        let mut sum = Wakeups::default();
        self.path_queues.iter().for_each(|path_queue| sum.merge(&path_queue.wakeups()));
        sum
    }

    /// The number, from 0, of the hardware queue that this queue posts to; the same on every path.
    pub fn hardware_queue(&self) -> u16 {
        self.path_queue().hardware_queue()
    }

    /// Rings the doorbell for the requests that [`Queue::start`] and [`Queue::post`] have posted.
    pub fn commit(&self) {
        match &self.multipath {
            None => self.path_queue().commit(),
            Some(multipath) => multipath.commit(&self.path_queues),
        }
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        self.path_queue().signal()
    }

    /// Does what is due on paths: retries, and requests that wait for a path. Returns when to call
    /// this again; [`Nanos::MAX`] without multipath, or with no open request.
    pub(crate) fn poll_paths(&self) -> Nanos {
        self.multipath
            .as_ref()
            .map_or(Nanos::MAX, |multipath| multipath.run_timers(&self.path_queues))
    }
}

/// Completes the future of a refused request.
#[cold]
pub(crate) fn refuse(tickets: &FutureStates, ticket: u32, why: Refused, request: Request) {
    let waker = tickets.complete(ticket, Completion::refused(why, request));
    wake::wake_all(waker.into_iter().flatten());
}

impl AsRef<Queue> for Queue {
    fn as_ref(&self) -> &Queue {
        self
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let path_queues = std::mem::take(&mut self.path_queues);
        // Without multipath the housekeeping thread finishes the requests that are still open.
        let Some(multipath) = self.multipath.take() else {
            return path_queues.into_iter().for_each(PathQueue::close);
        };
        if !path_queues.first().is_some_and(PathQueue::same_process) {
            // This is a forked child: the requests are the parent's.
            return;
        }
        if !multipath.has_futures(&path_queues) {
            return multipath.close(path_queues);
        }
        // Requests of futures may have to be retried, and only a thread with the queue can do that.
        let left = move || {
            multipath.drive(&path_queues, Nanos::MAX, false, || false);
            multipath.close(path_queues);
        };
        if let Err(error) = std::thread::Builder::new().name("reap-multipath".into()).spawn(left) {
            tracing::error!(%error, "futures outlive their queue, and no thread could be started to drive it");
        }
    }
}

/// Readable when [`Queue::poll_events`] has work.
impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.multipath
            .as_ref()
            .map_or_else(|| self.path_queue().as_fd(), |multipath| multipath.as_fd())
    }
}

/// The same descriptor as a number.
impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A software queue that stays with its thread: a [`Queue`] that is not `Send`.
///
/// On `kernel:` its io_uring is made for one thread (`SINGLE_ISSUER`, `DEFER_TASKRUN`), which makes
/// completions cheaper. No other thread can reap them, so dropping the queue waits for the requests
/// in flight, for at most their time-out and one second. Requests that have not completed by then
/// fail with [`IoError::DeviceLost`](crate::IoError::DeviceLost), and their buffers are leaked.
///
/// ```compile_fail
/// let queue = reap::Device::open("mem:64M")?.local_queue()?;
/// std::thread::spawn(move || queue.in_flight());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalQueue {
    queue: Queue,
    not_send: PhantomData<*const ()>,
}

impl LocalQueue {
    /// The queue belongs to the calling thread from now on.
    pub(crate) fn new(queue: Queue) -> LocalQueue {
        LocalQueue { queue, not_send: PhantomData }
    }
}

impl Deref for LocalQueue {
    type Target = Queue;
    #[inline]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl AsRef<Queue> for LocalQueue {
    fn as_ref(&self) -> &Queue {
        &self.queue
    }
}
