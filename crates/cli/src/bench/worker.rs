//! A job thread: submits the I/Os of its generator, and passes completions back. The loop around
//! [`Worker::turn`] is what `reap run` measures, so it does little else.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use anyhow::{Context, Result, bail};
use completion::{Mode, Spin};
use reap::{
    Completion, Counters, Device, DmaBuf, Group, Instant, IoError, LocalQueue, Namespace, Nanos,
    Queue, Refused, Request, Wakeups, WouldDeadlock,
};
use units::Op;
use workload::{ErrorCode, Generator, Io, Job, Next};

use super::counted::{Completed, Counted, Mark};
use super::rig::scribble;

/// How often a thread that waits for the start time of its next I/O checks whether to stop.
const STOP_EVERY: Nanos = Nanos::from_millis(50);
/// How often a thread updates its progress.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(100);
/// EINVAL, the result of requests that the library refuses.
const REFUSED: ErrorCode = ErrorCode(22);

/// Shared with the main thread while a job thread runs.
#[derive(Debug)]
pub struct ThreadControl<'a> {
    /// If any of these flags is set, the thread stops once its I/Os in flight have completed.
    pub stop: [&'a AtomicBool; 2],
    /// Updated by the thread.
    pub progress: &'a JobProgress,
}

/// Progress of a thread, which the main thread prints.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct JobProgress {
    /// I/Os so far.
    pub ios: AtomicU64,
    /// Bytes so far.
    pub bytes: AtomicU64,
    /// Fraction of its I/O or run time that is done, in millionths.
    pub millionths: AtomicU64,
}

impl ThreadControl<'_> {
    fn is_set(&self) -> bool {
        self.stop.iter().any(|stop| stop.load(Relaxed))
    }
}

impl JobProgress {
    fn update(&self, generator: &Generator, now: Nanos) {
        let stats = generator.stats();
        self.ios.store(stats.read.ios + stats.write.ios + stats.trim.ios, Relaxed);
        self.bytes.store(stats.read.bytes + stats.write.bytes + stats.trim.bytes, Relaxed);
        self.millionths.store((generator.progress(now) * 1e6) as u64, Relaxed);
    }
}

/// Results of a run, in addition to the statistics of the generator.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Cost and counts of the measured time.
    pub counted: Counted,
    /// Resource usage of the whole run.
    pub usage: hw::Usage,
    /// The library's error of the first failed I/O.
    pub first_error: Option<IoError>,
    /// Histograms of wake-ups, of all queues; empty unless [`Worker::count_wakeups`] was called.
    pub wakeups: Box<Wakeups>,
}

/// Queues and buffers of one thread. It is created on that thread, and can run several generators
/// one after the other.
pub struct Worker {
    queues: JobQueues,
    /// The kernel's completion mode for which the rings of `queues` were created; `None`: `queues`
    /// can be in any mode of the library.
    made_for: Option<Mode>,
    /// Queues with rings for other modes, for a later [`Worker::set_mode`].
    unused: Vec<(Option<Mode>, JobQueues)>,
    counts_wakeups: bool,
    spin: Spin,
    targets: Vec<TargetState>,
    /// Maximum I/Os in flight (`iodepth`).
    depth: usize,
    /// `depth` buffers per target, indexed by slot. `None`: the buffer is in flight, or was lost
    /// with its controller.
    buffers: Vec<Option<DmaBuf>>,
    found: Vec<Completion>,
    /// Slots of the last batch that were not submitted, with the error.
    failed: Vec<(u32, ErrorCode)>,
    /// slat or clat is measured, so each commit reads the clock.
    timed: bool,
    /// The clock is read before the commit writes the doorbell, because the commit may reap
    /// completions. False: after it, as in fio.
    timed_before_commit: bool,
    /// The device can submit and wait in one system call: submitting is delayed until it is known
    /// whether a wait follows.
    fuses_submit_and_wait: bool,
    /// The generator fills the buffers of writes and checks those of reads (`verify=`).
    verifies: bool,
    /// Some I/Os are Flushes.
    flushes: bool,
    /// CPU time that the thread spends per completion in place of an application.
    host_work: Nanos,
    first_error: Option<IoError>,
}

/// One of the job's targets.
struct TargetState {
    device: Device,
    namespace: Namespace,
    block_shift: u32,
    /// Upper half of the tags of requests to this target; the lower half is the slot.
    tag: u64,
    /// `reap_urgent`: requests are marked urgent.
    urgent: bool,
    /// Writes have Force Unit Access, so each is durable when it completes.
    durable: bool,
    completed: Completed,
}

/// State of a run between two turns.
#[derive(Debug)]
pub struct Run {
    /// The thread's resource usage at the start.
    usage: hw::Usage,
    /// When the clock was last read.
    now: Nanos,
    /// When the progress is updated next.
    report_at: Nanos,
    /// Counters at the first measured commit; `None` before it.
    mark: Option<Mark>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates a worker on the calling thread, for `job` on `devices`, one per target, with queues
    /// in `mode`.
    ///
    /// # Errors
    /// No software queue or no memory is left.
    pub fn new(job: &Job, devices: Vec<Device>, mode: Mode, host_work: Nanos) -> Result<Worker> {
        let depth = job.iodepth.max(1) as usize;
        let len = job.block.read.max.max(job.block.write.max) as usize;
        let mut buffers = Vec::with_capacity(depth * devices.len());
        let mut targets = Vec::with_capacity(devices.len());
        for device in devices {
            let namespace = first_namespace(&device)?;
            // A block size larger than the device is not an error here: the generator reports it.
            let len = len
                .min(namespace.bytes() as usize)
                .next_multiple_of(namespace.block_bytes() as usize);
            for _ in 0..depth {
                let mut buf = device.buffer(len)?;
                scribble(&mut buf, buffers.len() as u64);
                buffers.push(Some(buf));
            }
            let block_shift = namespace.block_bytes().ilog2();
            let (tag, urgent, durable, completed) =
                ((targets.len() as u64) << 32, job.urgent, job.sync_writes, Completed::default());
            targets.push(TargetState {
                device,
                namespace,
                block_shift,
                tag,
                urgent,
                durable,
                completed,
            });
        }
        // Completions that one call returns: `iodepth_batch_complete_max`, or
        // `iodepth_batch_complete_min` if that is larger. Without either option there is no limit.
        let at_once = match job.complete_min.max(job.complete_max) {
            0 | 1 => depth,
            max => max as usize,
        };
        Ok(Worker {
            queues: JobQueues::open(&targets, &mut buffers, mode)?,
            made_for: Some(mode).filter(|mode| mode.is_the_kernels()),
            unused: Vec::new(),
            counts_wakeups: false,
            spin: Spin::default(),
            fuses_submit_and_wait: targets.len() == 1
                && targets.iter().all(|target| target.device.embedded().is_none()),
            targets,
            depth,
            buffers,
            found: Vec::with_capacity(at_once),
            failed: Vec::new(),
            timed: job.measure.slat || job.measure.clat,
            timed_before_commit: false,
            verifies: job.verify.is_some(),
            flushes: job.sync_every > 0
                || job.data_sync_every > 0
                || job.sync_at_end
                || job.iolog.is_some(),
            host_work,
            first_error: None,
        })
    }

    /// Enables histograms of wake-ups.
    pub fn count_wakeups(&mut self) {
        self.counts_wakeups = true;
        self.queues.all().for_each(Queue::count_wakeups);
    }

    /// Sets how polling modes spin while other threads are runnable on the CPU.
    pub fn set_spin(&mut self, spin: Spin) {
        self.spin = spin;
        self.queues.all().for_each(|queue| queue.set_spin(spin));
    }

    /// Changes the completion mode, between two runs. Each mode of the kernel needs queues of its
    /// own, which are created when the mode is first used.
    ///
    /// # Errors
    /// The queues of a mode of the kernel cannot be created.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        let made_for = Some(mode).filter(|mode| mode.is_the_kernels());
        // Rings of other modes stay open: `compare` switches back and forth between modes.
        if made_for != self.made_for {
            let queues = match self.unused.iter().position(|(other, _)| *other == made_for) {
                Some(at) => self.unused.swap_remove(at).1,
                None => {
                    let queues = JobQueues::open(&self.targets, &mut self.buffers, mode)?;
                    queues.all().for_each(|queue| queue.set_spin(self.spin));
                    if self.counts_wakeups {
                        queues.all().for_each(Queue::count_wakeups);
                    }
                    queues
                }
            };
            self.unused.push((self.made_for, std::mem::replace(&mut self.queues, queues)));
            self.made_for = made_for;
        }
        self.queues.all().for_each(|queue| queue.set_mode(mode));
        Ok(())
    }

    /// Runs `generator` to its end, on the calling thread.
    ///
    /// # Errors
    /// The library lost an I/O. A failed I/O is not an error here; the generator reports it.
    pub fn run(&mut self, generator: &mut Generator, control: &ThreadControl<'_>) -> Result<Ran> {
        let mut run = self.begin();
        // If a previous stage was stopped, this one issues nothing.
        if control.is_set() {
            generator.stop();
        }
        while self.turn(&mut run, generator, control)? {}
        Ok(self.end(run, generator, control))
    }

    /// Begins a run. The caller then calls [`Worker::turn`] until it returns false, and
    /// [`Worker::end`].
    pub fn begin(&mut self) -> Run {
        // The previous run may have left the start time of an I/O, if it had a rate (`rate_iops`).
        self.queues.set_next_due(None);
        self.timed_before_commit = self.queues.all().any(|queue| queue.mode().facts().submit_check);
        // Resource usage covers the whole run; costs are counted from the first measured commit.
        let usage = hw::thread_usage();
        let now = hw::now();
        Run { usage, now, report_at: now, mark: None }
    }

    /// Executes the next actions of `generator`, up to a commit or wait. Returns false at the end.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn turn(
        &mut self,
        run: &mut Run,
        generator: &mut Generator,
        control: &ThreadControl<'_>,
    ) -> Result<bool> {
        let mut now = run.now;
        let mut next = loop {
            match generator.next(now) {
                Next::Issue(io) if self.verifies => self.fill(generator, &io),
                Next::Issue(_) => {}
                next => break next,
            }
        };
        // Everything up to a commit or a wait is one turn, so that a caller with several workers
        // can alternate between them.
        if next == Next::Commit {
            // The ramp is over: counters start with the first commit that is measured.
            if run.mark.is_none() && generator.measured_since().is_some() {
                run.mark = Some(Mark::new(counted_targets(&self.queues, &self.targets)));
                now = hw::now();
            }
            now = self.commit(generator, now);
            run.now = now;
            // The requests are submitted already, except on devices that need a system call for
            // that.
            if !self.fuses_submit_and_wait {
                return Ok(true);
            }
            next = generator.next(now);
            // No wait follows that would submit the posted requests, so submit them now.
            if !matches!(next, Next::Reap { .. }) {
                self.queues.commit();
            }
            if let Next::Issue(io) = next
                && self.verifies
            {
                self.fill(generator, &io);
            }
        }
        let (min, until) = match next {
            // The generator has queued an I/O; the next turn submits it.
            Next::Issue(_) | Next::Commit => {
                if control.is_set() {
                    generator.stop();
                }
                return Ok(true);
            }
            Next::Reap { min } => {
                if generator.is_paced() {
                    self.queues.set_next_due(generator.next_due());
                }
                (min, Nanos::MAX)
            }
            Next::Wait { until } => {
                // The time until the next I/O is known: it ends the wait, and the policies need no
                // hint.
                if generator.is_paced() {
                    self.queues.set_next_due(None);
                }
                // thinktime_spin: no I/O is in flight, so there is nothing to poll.
                if let Some(end) = generator.spins_until().filter(|end| *end > now) {
                    now = spin(end.min(until).min(now + STOP_EVERY) - now);
                }
                // Completions are reaped during the wait: otherwise their latencies would include
                // the rest of it.
                (1, until.min(now + STOP_EVERY))
            }
            Next::Done => return Ok(false),
        };
        now = self.reap(generator, min, until, now)?;
        if control.is_set() {
            generator.stop();
        }
        if now >= run.report_at {
            run.report_at = now + PROGRESS_EVERY;
            control.progress.update(generator, now);
        }
        run.now = now;
        Ok(true)
    }

    /// Ends a run, and returns its results.
    pub fn end(&mut self, run: Run, generator: &Generator, control: &ThreadControl<'_>) -> Ran {
        control.progress.update(generator, run.now);
        let host =
            self.queues.all().map(Queue::take_counters).reduce(Counters::and).unwrap_or_default();
        let counted = run
            .mark
            .map(|mark| mark.until_now(host, counted_targets(&self.queues, &self.targets)))
            .unwrap_or_default();
        let mut wakeups = Box::<Wakeups>::default();
        self.queues.all().for_each(|queue| wakeups.merge(&queue.wakeups()));
        let (from, to) = (run.usage, hw::thread_usage());
        let usage = hw::Usage {
            user: to.user - from.user,
            system: to.system - from.system,
            context_switches: to.context_switches - from.context_switches,
            sleeps: to.sleeps - from.sleeps,
            major_faults: to.major_faults - from.major_faults,
            minor_faults: to.minor_faults - from.minor_faults,
        };
        Ran { counted, usage, first_error: self.first_error.take(), wakeups }
    }

    /// Fills the buffer of a write.
    #[inline(never)]
    fn fill(&mut self, generator: &Generator, io: &Io) {
        let place = self.buffers.get_mut(usize::from(io.target) * self.depth + io.slot as usize);
        if io.op == Op::Write
            && let Some(Some(buf)) = place
            && let Some(data) = buf.get_mut(..io.len as usize)
        {
            generator.fill(io, data);
        }
    }

    /// Submits the I/Os that the generator has issued. Returns the time of their submission.
    #[inline]
    fn commit(&mut self, generator: &mut Generator, mut now: Nanos) -> Nanos {
        // The submission may wait or reap, so the time after it would be too late.
        let early = self.fuses_submit_and_wait || self.timed_before_commit;
        if early && self.timed {
            now = hw::now();
        }
        let one = self.targets.len() == 1;
        for (number, target) in self.targets.iter().enumerate() {
            // Skip targets without an I/O in this batch: a submission has a fixed cost.
            if !one && !generator.queued().any(|io| usize::from(io.target) == number) {
                continue;
            }
            let only = if one { None } else { Some(number as u16) };
            let buffers = self.buffers.get_mut(number * self.depth..).unwrap_or_default();
            // The library takes an iterator and fills its ring while it runs, so no list of
            // requests is built here.
            let mut requests = RequestBuilder {
                ios: generator.queued(),
                only,
                target,
                buffers,
                failed: &mut self.failed,
            };
            // A refused request must not keep the ones after it from being submitted.
            while let Err((why, request)) = self.queues.submit(number, now, &mut requests) {
                self.first_error.get_or_insert(why.into());
                requests.refused(request);
            }
        }
        // With one target the caller submits, possibly in one system call with a wait.
        if !one {
            self.queues.commit();
        }
        if !early && self.timed {
            now = hw::now();
        }
        generator.committed(now);
        if !self.failed.is_empty() {
            self.failed
                .drain(..)
                .for_each(|(slot, code)| generator.completed(slot, now, Err(code), &[]));
        }
        now
    }

    /// Waits for `min` completions or until `until`, and passes all completions to the generator.
    #[inline]
    fn reap(
        &mut self,
        generator: &mut Generator,
        min: u32,
        until: Nanos,
        mut now: Nanos,
    ) -> Result<Nanos> {
        self.queues.wait_and_reap(min as usize, until, &mut self.found, &mut self.targets)?;
        if self.found.is_empty() {
            // A wait without a limit ends only if nothing is in flight.
            if until == Nanos::MAX {
                bail!(
                    "lost completions: the job waits for {}, and none is in flight",
                    generator.in_flight()
                );
            }
            return Ok(hw::now());
        }
        let found = self.found.len() as u64;
        for Completion { tag, result, buf, completed_at: at, .. } in self.found.drain(..) {
            let (target, slot) = ((tag >> 32) as usize, tag as u32);
            let Some(place) = self
                .buffers
                .get_mut(target * self.depth + slot as usize)
                .filter(|buf| buf.is_none())
            else {
                bail!("a completion names I/O {tag:#x}, which is not in flight");
            };
            let at = Nanos(at.as_nanos());
            now = now.max(at);
            // `place` was `None`: there is nothing to drop, and `forget` saves the test for it.
            std::mem::forget(std::mem::replace(place, buf));
            let result = result.map_err(|error| {
                self.first_error.get_or_insert(error);
                ErrorCode(error.errno())
            });
            if self.flushes
                && generator.op(slot) == Some(Op::Flush)
                && let Some(target) = self.targets.get_mut(target)
            {
                // `wait_and_reap` has counted it as a read or write.
                target.completed.ios -= 1;
                target.completed.flushes += 1;
            }
            // Borrowing the data of each read would touch its buffer's cache lines.
            let data = if self.verifies { place.as_deref().unwrap_or_default() } else { &[] };
            generator.completed(slot, at, result, data);
        }
        Ok(if self.host_work == Nanos::ZERO { now } else { spin(Nanos(self.host_work.0 * found)) })
    }
}

fn counted_targets<'a>(
    queues: &'a JobQueues,
    targets: &'a [TargetState],
) -> impl Iterator<Item = (&'a Device, &'a Queue, Completed)> {
    queues.all().zip(targets).map(|(queue, target)| (&target.device, queue, target.completed))
}

/// The namespace that jobs use: the first active one.
pub fn first_namespace(device: &Device) -> Result<Namespace> {
    let description = device.description();
    match device.namespaces().first() {
        Some(namespace) => Ok(*namespace),
        None => bail!(
            "{} has no namespace that can be used: {}",
            description.uri,
            description.refused.join("; ")
        ),
    }
}

/// Spins for `span`. Returns the time at the end.
#[inline]
fn spin(span: Nanos) -> Nanos {
    let mut now = hw::now();
    let end = now + span;
    while now < end {
        std::hint::spin_loop();
        now = hw::now();
    }
    now
}

/// Converts I/Os to requests of one target.
struct RequestBuilder<'a, I> {
    ios: I,
    /// The target whose I/Os are converted; those of other targets are skipped. `None`: there is
    /// only one target.
    only: Option<u16>,
    target: &'a TargetState,
    /// The target's buffers.
    buffers: &'a mut [Option<DmaBuf>],
    /// Slots that were not submitted, with the error.
    failed: &'a mut Vec<(u32, ErrorCode)>,
}

impl<'a, I: Iterator<Item = &'a Io>> Iterator for RequestBuilder<'a, I> {
    type Item = Request;

    #[inline(always)] // Called for each I/O in the library's loop.
    fn next(&mut self) -> Option<Request> {
        loop {
            let io = self.ios.next()?;
            if self.only.is_some_and(|target| target != io.target) {
                continue;
            }
            let Some(buf) = self.buffers.get_mut(io.slot as usize).and_then(Option::take) else {
                // The buffer was lost with its controller, which may still write to it.
                self.failed.push((io.slot, ErrorCode::EIO));
                continue;
            };
            let &TargetState { ref namespace, block_shift, tag, urgent, durable, .. } = self.target;
            let request = Request::of(io.op, namespace, io.offset >> block_shift, buf);
            let request = if urgent { request.urgent() } else { request };
            let request = if durable && io.op == Op::Write { request.fua() } else { request };
            return Some(request.bytes(io.len).tag(tag | u64::from(io.slot)));
        }
    }
}

impl<I> RequestBuilder<'_, I> {
    /// Takes back the buffer of a refused request.
    #[cold]
    fn refused(&mut self, request: Request) {
        let slot = request.number() as u32;
        if let Some(place) = self.buffers.get_mut(slot as usize) {
            *place = request.into_buffer();
        }
        self.failed.push((slot, REFUSED));
    }
}

/// One queue of a thread.
enum JobQueue {
    /// A queue that only this thread uses, which costs less.
    Own(LocalQueue),
    /// A queue whose completions another thread (the drain thread) may reap.
    Any(Queue),
}

impl AsRef<Queue> for JobQueue {
    #[inline]
    fn as_ref(&self) -> &Queue {
        match self {
            JobQueue::Own(queue) => queue,
            JobQueue::Any(queue) => queue,
        }
    }
}

/// The queues of one thread, in the order of its targets. Calls into the library are not inlined,
/// so that instruction counts separate it from the load generator.
enum JobQueues {
    /// One target: no group is needed.
    One(JobQueue),
    /// Several targets, polled and waited for together.
    Many(Group<JobQueue>),
}

impl JobQueues {
    /// Opens queues of the calling thread for `targets`, and registers `buffers` with them before
    /// anything is measured, as fio does.
    fn open(
        targets: &[TargetState],
        buffers: &mut [Option<DmaBuf>],
        mode: Mode,
    ) -> Result<JobQueues> {
        let depth = buffers.len() / targets.len().max(1);
        let mut queues = Vec::with_capacity(targets.len());
        for (TargetState { device, .. }, buffers) in
            targets.iter().zip(buffers.chunks_mut(depth.max(1)))
        {
            // A ring of the kernel belongs to one thread unless it is opened as shared. On embedded
            // devices the drain thread can reap completions of any queue.
            let drained = mode.facts().drain_thread && device.embedded().is_none();
            let queue = if drained {
                JobQueue::Any(device.queue()?)
            } else {
                JobQueue::Own(device.local_queue_in(mode)?)
            };
            for buf in buffers {
                *buf = buf.take().map(|buf| queue.as_ref().prepare(buf));
            }
            queues.push(queue);
        }
        Ok(match queues.len() {
            0 => bail!("a thread without a queue"),
            1 => JobQueues::One(queues.remove(0)),
            _ => JobQueues::Many(Group::new(queues).context("cannot join the job's queues")?),
        })
    }

    /// The queues, in the order of the targets.
    #[inline]
    fn slice(&self) -> &[JobQueue] {
        match self {
            JobQueues::One(queue) => std::slice::from_ref(queue),
            JobQueues::Many(group) => group.queues(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Queue> {
        self.slice().iter().map(AsRef::as_ref)
    }

    /// Passes the intended start of the next I/O to the policies.
    fn set_next_due(&self, due: Option<Nanos>) {
        self.all().for_each(|queue| queue.set_next_due(due.map(instant)));
    }

    /// Posts `requests` to the queue of `target`, which submits them. Exception: where one system
    /// call can submit and wait, the next `commit` or `wait_and_reap` submits them.
    ///
    /// # Errors
    /// The first refused request. Those after it stay in the iterator.
    #[inline(never)]
    fn submit(
        &self,
        target: usize,
        now: Nanos,
        requests: impl Iterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        match self.slice().get(target) {
            Some(queue) => queue.as_ref().post_at(instant(now), requests),
            None => Ok(()),
        }
    }

    /// Submits the requests that were posted.
    fn commit(&self) {
        self.all().for_each(Queue::commit);
    }

    /// Waits as the completion mode plans, for `min` completions, until `until`, or until nothing
    /// is in flight. Moves completions to `found`, and counts them as reads and writes; the caller
    /// corrects the count for Flushes.
    #[inline(never)]
    fn wait_and_reap(
        &self,
        min: usize,
        until: Nanos,
        found: &mut Vec<Completion>,
        targets: &mut [TargetState],
    ) -> Result<(), WouldDeadlock> {
        let limit = (until < Nanos::MAX).then(|| instant(until));
        match self {
            JobQueues::One(queue) => queue.as_ref().wait(min, limit)?,
            JobQueues::Many(group) => group.wait(min, limit)?,
        };
        for (queue, target) in self.all().zip(targets) {
            // Completions beyond the capacity stay in the queue for the next call, so that nothing
            // allocates.
            if found.len() < found.capacity() {
                target.completed.ios += queue.reap(found) as u64;
            }
        }
        Ok(())
    }
}

/// Converts a time of [`hw::now`]; both types have the same clock.
#[inline]
fn instant(at: Nanos) -> Instant {
    Instant::from_nanos(at.0)
}

#[cfg(test)]
mod tests;
