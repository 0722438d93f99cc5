//! A software queue, as callers hold it: one on a controller, or one on each path and the head above them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use completion::{Decisions, Mode, Spin};
use hw::{AllocError, DmaBuf, DmaPool};
use nvme::Sqe;
use units::Nanos;

use crate::counters::{Counters, HardwareCounters};
use crate::error::{IoError, QueueError, Refused, WouldDeadlock};
use crate::instant::{Instant, deadline};
use crate::multipath::{Multipath, MultipathQueue};
use crate::namespace::Namespace;
use crate::request::{Completion, Request};
use crate::shared::controller::Controller;
use crate::shared::future::{IoFuture, Pending};
use crate::shared::future_states::FutureStates;
use crate::thread::block_on::{self, Signal};
use crate::thread::path_queue::PathQueue;
use crate::thread::queue_pair::PollStatus;
use crate::wake;
use crate::wakeups::Wakeups;

/// A software queue. It can be sent to another thread, and used by one at a time.
///
/// There are three ways to drive it. [`Queue::block_on`] and [`Queue::wait`] own the thread's idle time and do what the
/// completion mode plans: spin, nap, sleep. A foreign loop waits for the queue's file descriptor ([`AsFd`]) and
/// [`Queue::next_deadline`], and calls [`Queue::poll_events`], which neither blocks nor spins. A [`crate::Reactor`] drives a
/// queue on a thread of its own.
pub struct Queue {
    /// One, or one for each path.
    path_queues: Vec<PathQueue>,
    /// What is above several; which of the two it is costs one branch for each batch.
    multipath: Option<Box<MultipathQueue>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight();
        f.debug_struct("Queue").field("paths", &self.path_queues.len()).field("in_flight", &in_flight).finish_non_exhaustive()
    }
}

impl Queue {
    /// Over one controller. `bound`: no other thread will ever use it.
    pub(crate) fn over_one(controller: &Controller, bound: bool, mode: Option<Mode>) -> Result<Queue, QueueError> {
        Ok(Queue { path_queues: vec![PathQueue::take(controller, bound, mode)?], multipath: None })
    }

    pub(crate) fn over_paths(paths: &Arc<Multipath>) -> Result<Queue, QueueError> {
        let (multipath, path_queues) = MultipathQueue::take(paths)?;
        Ok(Queue { path_queues, multipath: Some(Box::new(multipath)) })
    }

    /// The first of the queues below: for what is the same of all, and for the only one.
    #[inline]
    fn path_queue(&self) -> &PathQueue {
        &self.path_queues[0]
    }

    /// The queues below, one for each path.
    pub(crate) fn path_queues(&self) -> &[PathQueue] {
        &self.path_queues
    }

    /// The device's namespaces.
    pub fn namespaces(&self) -> &[Namespace] {
        self.multipath.as_ref().map_or_else(|| self.path_queue().namespaces(), |multipath| multipath.shared().namespaces())
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

    /// Makes the queue ready for requests that name the memory of `buf`, which comes back as it was. On a file or block device
    /// (`kernel:`) the first request that names a chunk of the pool, or of a region, has the kernel pin and register all of its 4 MiB.
    /// That takes milliseconds, and a caller that measures wants them before its clock starts. Elsewhere there is nothing to do.
    ///
    /// ```
    /// let device = reap::Device::open("mem:64M?profile=null")?;
    /// let queue = device.queue()?;
    /// let buf = queue.prepare(device.buffer(4096)?);
    /// # assert_eq!(buf.len(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare(&self, buf: DmaBuf) -> DmaBuf {
        // Of another device's memory the requests are refused.
        if buf.is_empty() || !buf.is_of(self.pool().key()) {
            return buf;
        }
        let lent = buf.lend();
        self.path_queues.iter().for_each(|path_queue| path_queue.prepare(&lent));
        lent.take_back()
    }

    /// Submits requests: posts as many as there are tags, the others wait, and rings the doorbell once (once for
    /// each path that is taken). Latencies and time-outs count from now on.
    ///
    /// ```
    /// use reap::Request;
    ///
    /// let device = reap::Device::open("mem:64M?profile=null")?;
    /// let (queue, ns) = (device.queue()?, device.namespaces()[0]);
    /// let bufs = [device.buffer(4096)?, device.buffer(4096)?];
    /// queue.submit(bufs.into_iter().zip(0..).map(|(buf, n)| Request::read(&ns, n * 8, buf).tag(n))).map_err(|(why, _)| why)?;
    /// queue.wait(2, None)?;
    /// let mut done = Vec::with_capacity(2);
    /// queue.reap(&mut done);
    /// assert!(done.iter().all(|completion| completion.result.is_ok()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The iterator runs before anything is posted, and holds nobody up, however long it takes. It cannot use the queue: what it
    /// submits there is refused ([`Refused::InsideSubmit`]), and waiting is an error ([`WouldDeadlock`]). If it panics, the requests
    /// that it has yielded are submitted.
    ///
    /// # Errors
    /// The first request that cannot be carried out, and why; those before it are submitted, those after it stay in
    /// the iterator.
    #[inline]
    pub fn submit(&self, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.submit_at(Instant::now(), requests)
    }

    /// The same for a caller that has just read the clock: latencies and time-outs count from `now`. Spares a clock read for each
    /// batch, where the last completion's [`Completion::completed_at`] will do.
    ///
    /// # Errors
    /// As of [`Queue::submit`].
    #[inline]
    pub fn submit_at(&self, now: Instant, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.submit_or_post(now, false, requests)
    }

    /// Submits requests, all of them or as [`Queue::submit`] says, for a caller that is about to wait: where submitting and sleeping can
    /// be one system call, as on `kernel:`, the next [`Queue::wait`] makes it. [`Queue::commit`] announces them without waiting.
    ///
    /// # Errors
    /// As of [`Queue::submit`].
    #[inline]
    pub fn post(&self, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.post_at(Instant::now(), requests)
    }

    /// The same for a caller that has just read the clock, as [`Queue::submit_at`].
    ///
    /// # Errors
    /// As of [`Queue::submit`].
    #[inline]
    pub fn post_at(&self, now: Instant, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.submit_or_post(now, true, requests)
    }

    #[inline]
    fn submit_or_post(&self, now: Instant, waits: bool, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        let now = now.nanos();
        // Lent, because it may be large, and each floor below would move it.
        let mut requests = requests.into_iter();
        match &self.multipath {
            None => self.path_queue().submit(now, waits, &mut requests),
            Some(multipath) => multipath.submit(&self.path_queues, now, &mut requests),
        }
    }

    /// Moves finished requests of [`Queue::submit`] to `out`, as many as fit into its capacity (at least one). Only
    /// what has been found already: [`Queue::wait`] and [`Queue::poll_events`] look. Returns how many.
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
        self.multipath.as_ref().map_or_else(|| self.path_queue().in_flight(), |multipath| multipath.in_flight())
    }

    /// Drives the queue, as its completion mode plans, until at least `min` requests can be reaped, or until `until`. Returns how
    /// many can be reaped.
    ///
    /// With nothing in flight it stays until `until`; without that limit it returns, because nothing can come any more.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`: the futures of this thread could not go on.
    #[inline]
    pub fn wait(&self, min: usize, until: Option<Instant>) -> Result<usize, WouldDeadlock> {
        self.wait_so(min, deadline(until), until.is_some())
    }

    /// The same, and returns as well once nothing is in flight, although `until` has not come.
    ///
    /// # Errors
    /// As of [`Queue::wait`].
    #[inline]
    pub fn wait_or_idle(&self, min: usize, until: Option<Instant>) -> Result<usize, WouldDeadlock> {
        self.wait_so(min, deadline(until), false)
    }

    #[inline(always)]
    fn wait_so(&self, min: usize, until: Nanos, idle: bool) -> Result<usize, WouldDeadlock> {
        match &self.multipath {
            None => self.path_queue().wait(min, until, idle),
            Some(multipath) => self.wait_for_paths(multipath, min, until, idle),
        }
    }

    fn wait_for_paths(&self, multipath: &MultipathQueue, min: usize, until: Nanos, idle: bool) -> Result<usize, WouldDeadlock> {
        if multipath.is_submitting() {
            return Err(WouldDeadlock);
        }
        let _inside = block_on::enter()?;
        Ok(multipath.wait(&self.path_queues, min, until, idle))
    }

    /// Whether the application's iterator runs, which cannot wait for this queue.
    pub(crate) fn is_submitting(&self) -> bool {
        self.multipath.as_ref().map_or_else(|| self.path_queue().is_submitting(), |multipath| multipath.is_submitting())
    }

    /// A request as a future. It is posted at once; the doorbell rings when the queue is next driven, or by
    /// [`Queue::commit`].
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

    /// A future, whose request `start` submits with the future's ticket.
    fn start_with(&self, start: impl FnOnce(u32) -> Result<(), (Refused, Request)>) -> Pending {
        // In a forked child another thread of the parent's may have the lock of the tickets for good.
        let tickets = if self.path_queue().same_process() { self.tickets() } else { Arc::default() };
        let ticket = tickets.issue();
        if let Err((why, request)) = start(ticket) {
            refuse(&tickets, ticket, why, request);
        }
        Pending::new(tickets, ticket, self.pool().clone())
    }

    /// A request whose future has `ticket`.
    ///
    /// # Errors
    /// It cannot be carried out.
    pub(crate) fn start_as(&self, ticket: u32, request: Request) -> Result<(), (Refused, Request)> {
        match &self.multipath {
            None => self.path_queue().start(ticket, request, None),
            Some(multipath) => multipath.start(&self.path_queues, ticket, request),
        }
    }

    /// What futures have.
    pub(crate) fn tickets(&self) -> Arc<FutureStates> {
        self.multipath.as_ref().map_or_else(|| self.path_queue().tickets(), |multipath| multipath.tickets().clone())
    }

    /// Reads blocks from `lba` on into `buf`.
    pub fn read(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        self.start(Request::read(namespace, lba, buf)).with_buffer()
    }

    /// Writes `buf` to the blocks from `lba` on.
    pub fn write(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        self.start(Request::write(namespace, lba, buf)).with_buffer()
    }

    /// Makes every write that has completed durable.
    pub fn flush(&self, namespace: &Namespace) -> Pending<Result<(), IoError>> {
        self.start(Request::flush(namespace)).without_buffer()
    }

    /// Reads blocks from `lba` on into several buffers, one after the other (readv(2)): a request for each, all of them announced together. Each
    /// buffer has whole blocks. Where one is not fit nothing is read. The future is the result, which is that of the first that has failed, and
    /// the buffers in their order.
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

    /// Writes several buffers, one after the other, to the blocks from `lba` on (writev(2)), as [`Queue::read_vectored`] reads. A controller that
    /// loses its power may have written some of them.
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
        let unfit = bufs.iter().find_map(|buf| {
            let length = || Refused::Length { bytes: buf.len().try_into().unwrap_or(u32::MAX), block, buffer: buf.len() };
            (buf.is_empty() || !buf.len().is_multiple_of(block as usize)).then(length)
        });
        let foreign = || bufs.iter().any(|buf| !buf.is_of(self.pool().key())).then_some(Refused::ForeignBuffer);
        let end = bufs.iter().map(|buf| buf.len() as u64 / u64::from(block)).fold(lba, u64::saturating_add);
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
                Err((why, bufs)) => return (Err(why.into()), bufs),
            };
            let (mut all, mut bufs) = (Ok(()), Vec::with_capacity(parts.len()));
            for part in parts {
                let (result, buf) = part.await;
                all = all.and(result);
                bufs.push(buf);
            }
            (all, bufs)
        }
    }

    /// Sends an I/O command of the caller's own, as [`Device::admin_command`](crate::Device::admin_command) sends an admin command, as a future:
    /// dword 0 of the completion, and the buffer. Of `command` the opcode, NSID and dwords 2, 3 and 10 to 15 are sent; identifier, flags and
    /// pointers are the library's. The opcode says whether the controller reads the buffer (bits 1:0 are 01b) or fills it (10b).
    ///
    /// The buffer has room for all that the command transfers. Where the library knows how much that is, it looks: Read, Write and Compare of
    /// the device's namespaces, and the commands that receive reports. Of another command that fills its buffer, a vendor's for example, it
    /// does not know: a controller with SGLs gets the length in the descriptor, and any other one takes one whole page at a page's start. One that writes
    /// more than that is stopped by nothing but an IOMMU.
    ///
    /// The caller answers for what a command does to blocks that requests read and write. It is never sent twice: where the controller is
    /// reset, or answers that it may be tried again, it fails. `kernel:` and `multipath:` devices refuse all of them.
    ///
    /// ```
    /// let device = reap::Device::open("mem:64M")?;
    /// let queue = device.queue()?;
    /// let read = reap::Sqe { opcode: nvme::opcode::io::READ, nsid: 1, cdw10: 8, cdw12: 7, ..Default::default() };
    /// let (result, buf) = queue.block_on(queue.io_command(&read, Some(device.buffer(4096)?)))?;
    /// assert_eq!((result?, buf.map(|buf| buf.len())), (0, Some(4096)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn io_command(&self, command: &Sqe, buf: Option<DmaBuf>) -> Pending<(Result<u32, IoError>, Option<DmaBuf>)> {
        let dword = Arc::new(AtomicU32::new(0));
        let request = Request::command(command, self.namespaces().first(), buf);
        let pending = self.start_with(|ticket| match &self.multipath {
            None => self.path_queue().io_command(ticket, command, request, dword.clone()),
            Some(_) => {
                let why = "the device has several controllers; open the path that is meant";
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
        block_on::block_on(self.signal(), future, |signal| self.drive(Nanos::MAX, || signal.is_signalled()))
    }

    /// Drives the queue until `enough`; what the caller waits for may come from elsewhere.
    pub(crate) fn drive(&self, until: Nanos, enough: impl Fn() -> bool) {
        match &self.multipath {
            None => self.path_queue().drive(until, None, enough),
            Some(multipath) => multipath.drive(&self.path_queues, until, true, enough),
        }
    }

    /// For a foreign loop: commits and takes at most `budget` entries (of each path). Then the queue's file descriptor becomes readable
    /// when there is more, or the loop calls again at [`Queue::next_deadline`]. Never blocks, never spins.
    ///
    /// The deadline is part of the contract: a policy may leave the notification masked until then, because a loop that computes is told
    /// in vain. Call [`Queue::leave_loop`] before the loop stops watching.
    pub fn poll_events(&self, budget: u32) -> PollStatus {
        match &self.multipath {
            None => self.path_queue().poll_events(budget),
            Some(multipath) => multipath.poll_events(&self.path_queues, budget),
        }
    }

    /// For a foreign loop on a shared hardware queue, before it stops watching the descriptor for a while: hands on the
    /// role of being woken by the queue's vector, which [`Queue::poll_events`] took, to a thread that waits for it (law 6).
    pub fn leave_loop(&self) {
        self.path_queues.iter().for_each(PathQueue::leave_loop);
    }

    /// For a foreign loop: when to call [`Queue::poll_events`] at the latest although the file descriptor is quiet. What completes before is found
    /// then.
    pub fn next_deadline(&self) -> Option<Instant> {
        let above = self.multipath.as_ref().and_then(|multipath| multipath.next_deadline());
        self.path_queues.iter().filter_map(PathQueue::next_deadline).chain(above).min().map(Instant::of)
    }

    /// Changes the completion mode, with requests in flight or without. Nothing is lost and nothing comes twice. Modes of the kernel's
    /// own ([`Mode::KERNELS`]) are those of a queue's ring: it has what [`crate::Device::local_queue_in`] has taken it in.
    pub fn set_mode(&self, mode: Mode) {
        self.path_queues.iter().for_each(|path_queue| path_queue.set_mode(mode));
    }

    /// Says what `poll` and `hybrid-*` do on this queue about other threads that want the CPU: nap for 50 µs (from the start), give the
    /// CPU to them between looks, or spin on, until the scheduler takes it.
    pub fn set_spin(&self, spin: Spin) {
        self.path_queues.iter().for_each(|path_queue| path_queue.set_spin(spin));
    }

    /// Tells `adaptive` that the caller, when it waits on this queue, only waits for room, and since when: it has a request that was
    /// to start at `due`, or is to. A caller with a clock of its own is then not slowed down for good by sleeps that take longer
    /// than it has time: once it is late by much, and half of that is theirs, waits that follow stay awake until it has caught up,
    /// at prices up to the default. It stays told until the next call; `None`, as if this were never called: nothing is due.
    pub fn set_next_due(&self, due: Option<Instant>) {
        let due = due.map(Instant::nanos);
        self.path_queues.iter().for_each(|path_queue| path_queue.set_next_due(due));
    }

    /// What [`Queue::set_next_due`] told last.
    #[cfg(feature = "testing")]
    pub fn next_due(&self) -> Option<Instant> {
        self.path_queue().next_due().map(Instant::of)
    }

    /// The completion mode in force.
    pub fn mode(&self) -> Mode {
        self.path_queue().mode()
    }

    /// What this queue's thread has counted.
    pub fn counters(&self) -> Counters {
        self.path_queues.iter().map(PathQueue::counters).fold(Counters::default(), Counters::and)
    }

    /// What this queue's thread has counted since the last call, or since the queue was taken.
    pub fn take_counters(&self) -> Counters {
        self.path_queues.iter().map(PathQueue::take_counters).fold(Counters::default(), Counters::and)
    }

    /// What has been counted of the hardware queue that this one posts to (of several paths, of all of theirs), for all
    /// the software queues that share it.
    pub fn hardware_counters(&self) -> HardwareCounters {
        self.path_queues.iter().map(PathQueue::hardware_counters).fold(HardwareCounters::default(), HardwareCounters::and)
    }

    /// What `adaptive` has decided, and why; of several paths, on the first.
    pub fn decisions(&self) -> Option<Decisions> {
        self.path_queue().decisions()
    }

    /// From now on counts what wake-ups bring ([`Queue::wakeups`]).
    pub fn count_wakeups(&self) {
        self.path_queues.iter().for_each(PathQueue::count_wakeups);
    }

    /// What wake-ups have brought since [`Queue::count_wakeups`].
    pub fn wakeups(&self) -> Wakeups {
        let mut sum = Wakeups::default();
        self.path_queues.iter().for_each(|path_queue| sum.merge(&path_queue.wakeups()));
        sum
    }

    /// The hardware queue that this one posts to, from 0; the same on every path.
    pub fn hardware_queue(&self) -> u16 {
        self.path_queue().hardware_queue()
    }

    /// Rings the doorbell for what [`Queue::start`] has posted.
    pub fn commit(&self) {
        match &self.multipath {
            None => self.path_queue().commit(),
            Some(multipath) => multipath.commit(&self.path_queues),
        }
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        self.path_queue().signal()
    }

    /// Does what is due about paths. When there is more at the latest; [`Nanos::MAX`] of a queue of one controller, and
    /// when nothing is open.
    pub(crate) fn look_after_paths(&self) -> Nanos {
        self.multipath.as_ref().map_or(Nanos::MAX, |multipath| multipath.look_after(&self.path_queues))
    }
}

/// The request of a future is not carried out.
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
        let Some(multipath) = self.multipath.take() else { return path_queues.into_iter().for_each(PathQueue::close) };
        if !path_queues.first().is_some_and(PathQueue::same_process) {
            // A child: what would be told or waited for is the parent's.
            return;
        }
        if !multipath.has_futures(&path_queues) {
            return multipath.close(path_queues);
        }
        // Their requests may have to be sent again: somebody has to be there for that.
        let left = move || {
            multipath.drive(&path_queues, Nanos::MAX, false, || false);
            multipath.close(path_queues);
        };
        if let Err(error) = std::thread::Builder::new().name("reap-multipath".into()).spawn(left) {
            tracing::error!(%error, "futures outlive their queue, and nobody can drive it");
        }
    }
}

/// Readable when [`Queue::poll_events`] has something to do.
impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.multipath.as_ref().map_or_else(|| self.path_queue().as_fd(), |multipath| multipath.as_fd())
    }
}

/// The same descriptor, for loops that want it raw.
impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A software queue that belongs to the thread that has taken it. It does all that a [`Queue`] does, and cannot be sent.
///
/// On `kernel:` its io_uring belongs to the thread (`SINGLE_ISSUER`, `DEFER_TASKRUN`), which makes completions cheaper. No other thread can
/// reap them, so that dropping it waits for requests in flight: for their time-out and a second at most. What has no answer by then
/// fails with [`IoError::DeviceLost`](crate::IoError::DeviceLost), and its buffers are leaked.
///
/// ```compile_fail
/// let queue = reap::Device::open("mem:64M")?.local_queue()?;
/// std::thread::spawn(move || queue.in_flight());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalQueue {
    queue: Queue,
    stays: PhantomData<*const ()>,
}

impl LocalQueue {
    /// The calling thread's from now on.
    pub(crate) fn new(queue: Queue) -> LocalQueue {
        LocalQueue { queue, stays: PhantomData }
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
