//! A job thread: carries out what the generator says.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use anyhow::{Context, Result, bail};
use completion::{Mode, Spin};
use reap::{
    Completion, Counters, Device, DmaBuf, Group, Instant, IoError, LocalQueue, Namespace, Nanos, Queue, Refused, Request, Wakeups,
    WouldDeadlock,
};
use units::Op;
use workload::{ErrorCode, Generator, Io, Job, Next};

use super::counted::{Completed, Counted, Mark};
use super::rig::scribble;

/// A thread that waits for the time of its next I/O polls this often whether it is to stop.
const STOP_EVERY: Nanos = Nanos::from_millis(50);
/// How often a thread says how far it is.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(100);
/// EINVAL: what a request that the library refuses counts as.
const REFUSED: ErrorCode = ErrorCode(22);

/// What reaches a thread from outside while it runs.
#[derive(Debug)]
pub struct Control<'a> {
    /// Any of them set: stop, once what is in flight has completed.
    pub stop: [&'a AtomicBool; 2],
    /// Where it says how far it is.
    pub progress: &'a Progress,
}

/// How far a thread is.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    /// I/Os so far.
    pub ios: AtomicU64,
    /// Bytes so far.
    pub bytes: AtomicU64,
    /// Of its work or time, in millionths.
    pub millionths: AtomicU64,
}

impl Control<'_> {
    fn is_set(&self) -> bool {
        self.stop.iter().any(|stop| stop.load(Relaxed))
    }
}

impl Progress {
    fn update(&self, generator: &Generator, now: Nanos) {
        let stats = generator.stats();
        self.ios.store(stats.read.ios + stats.write.ios + stats.trim.ios, Relaxed);
        self.bytes.store(stats.read.bytes + stats.write.bytes + stats.trim.bytes, Relaxed);
        self.millionths.store((generator.progress(now) * 1e6) as u64, Relaxed);
    }
}

/// What a run came to, next to what the generator has measured.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Cost and counts of the measured part.
    pub counted: Counted,
    /// The whole thread's.
    pub usage: hw::Usage,
    /// What the library said of the first I/O that failed.
    pub first_error: Option<IoError>,
    /// What wake-ups brought, of all its queues; empty unless [`Worker::count_wakeups`] was called.
    pub wakeups: Box<Wakeups>,
}

/// One thread's access to its devices: queues, and a buffer for each I/O in flight. Made once, on the thread that it is for; runs any
/// number of generators, one after the other.
pub struct Worker {
    queues: JobQueues,
    /// The mode that rings in use were made for, if that is one of the kernel's own.
    made_for: Option<Mode>,
    /// Queues whose rings were made for other modes, for when such a mode is asked for.
    unused: Vec<(Option<Mode>, JobQueues)>,
    counts_wakeups: bool,
    spin: Spin,
    targets: Vec<TargetState>,
    /// I/Os in flight at most.
    depth: usize,
    /// For each target `depth` of them: an I/O's slot number picks its own. `None`: in flight, or lost with its controller.
    buffers: Vec<Option<DmaBuf>>,
    found: Vec<Completion>,
    /// Of the last batch, slots of I/Os that were not submitted, and why.
    failed: Vec<(u32, ErrorCode)>,
    /// Latencies to or from the doorbell are measured, so that commits need a clock read: before the doorbell if completions may be found
    /// before the commit returns, and else after it, as fio has it.
    timed: bool,
    before: bool,
    /// Submitting and waiting can be one system call: what is submitted is announced once it is known whether a wait follows.
    fuses: bool,
    /// Buffers have data that the generator fills in and looks at.
    verifies: bool,
    /// Some I/Os are Flushes.
    flushes: bool,
    host_work: Nanos,
    first_error: Option<IoError>,
}

/// One of the job's targets.
struct TargetState {
    device: Device,
    namespace: Namespace,
    block_shift: u32,
    /// What its requests have in their tags besides the slot.
    tag: u64,
    /// Each I/O is marked urgent.
    urgent: bool,
    /// Force Unit Access: each write is durable when it completes.
    durable: bool,
    completed: Completed,
}

/// A run under way, between two turns.
#[derive(Debug)]
pub struct Run {
    /// The thread's, when it began.
    usage: hw::Usage,
    /// The clock read of the last batch.
    now: Nanos,
    report_at: Nanos,
    mark: Option<Mark>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Worker {
    /// The calling thread's, for `job` on `devices`, one for each of its targets, which are open in `mode`.
    ///
    /// # Errors
    /// No software queue left, or no room for the buffers.
    pub fn new(job: &Job, devices: Vec<Device>, mode: Mode, host_work: Nanos) -> Result<Worker> {
        let depth = job.iodepth.max(1) as usize;
        let len = job.block.read.max.max(job.block.write.max) as usize;
        let mut buffers = Vec::with_capacity(depth * devices.len());
        let mut targets = Vec::with_capacity(devices.len());
        for device in devices {
            let namespace = first_namespace(&device)?;
            // A block larger than the device is the generator's to refuse.
            let len = len.min(namespace.bytes() as usize).next_multiple_of(namespace.block_bytes() as usize);
            for _ in 0..depth {
                let mut buf = device.buffer(len)?;
                scribble(&mut buf, buffers.len() as u64);
                buffers.push(Some(buf));
            }
            let block_shift = namespace.block_bytes().ilog2();
            let (tag, urgent, durable, completed) = ((targets.len() as u64) << 32, job.urgent, job.sync_writes, Completed::default());
            targets.push(TargetState { device, namespace, block_shift, tag, urgent, durable, completed });
        }
        // How many completions are taken before the next I/Os are issued: `iodepth_batch_complete_max`, which is as many as `_min` if it
        // is not given. A job that says nothing of batches gets whatever there is.
        let at_once = match job.complete_min.max(job.complete_max) {
            0 | 1 => depth,
            most => most as usize,
        };
        Ok(Worker {
            queues: JobQueues::open(&targets, &mut buffers, mode)?,
            made_for: Some(mode).filter(|mode| mode.is_the_kernels()),
            unused: Vec::new(),
            counts_wakeups: false,
            spin: Spin::default(),
            fuses: targets.len() == 1 && targets.iter().all(|target| target.device.embedded().is_none()),
            targets,
            depth,
            buffers,
            found: Vec::with_capacity(at_once),
            failed: Vec::new(),
            timed: job.measure.slat || job.measure.clat,
            before: false,
            verifies: job.verify.is_some(),
            flushes: job.sync_every > 0 || job.data_sync_every > 0 || job.sync_at_end || job.iolog.is_some(),
            host_work,
            first_error: None,
        })
    }

    /// Counts what wake-ups bring, from now on.
    pub fn count_wakeups(&mut self) {
        self.counts_wakeups = true;
        self.queues.all().for_each(Queue::count_wakeups);
    }

    /// What spinning means where others want the CPU, from now on.
    pub fn set_spin(&mut self, spin: Spin) {
        self.spin = spin;
        self.queues.all().for_each(|queue| queue.set_spin(spin));
    }

    /// From the next batch on, completions are found as `mode` says. Between two runs: a mode of the kernel's own has queues of its own.
    ///
    /// # Errors
    /// Such queues cannot be had.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        let made_for = Some(mode).filter(|mode| mode.is_the_kernels());
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
    /// The library lost an I/O. That an I/O failed is no error here: the generator knows, and ends.
    pub fn run(&mut self, generator: &mut Generator, control: &Control<'_>) -> Result<Ran> {
        let mut run = self.begin();
        // Later stages of a run that is stopped issue nothing.
        if control.is_set() {
            generator.stop();
        }
        while self.turn(&mut run, generator, control)? {}
        Ok(self.end(run, generator, control))
    }

    /// Begins a run that the caller carries out turn by turn, and [`Worker::end`]s.
    pub fn begin(&mut self) -> Run {
        // Only jobs with a clock say so, and the last run may have been of one.
        self.queues.set_next_due(None);
        self.before = self.queues.all().any(|queue| queue.mode().facts().submit_check);
        let usage = hw::thread_usage();
        let now = hw::now();
        Run { usage, now, report_at: now, mark: None }
    }

    /// Does what `generator` says, up to and including the next commit or the next wait for completions. False: there is
    /// nothing left to do.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn turn(&mut self, run: &mut Run, generator: &mut Generator, control: &Control<'_>) -> Result<bool> {
        let mut now = run.now;
        let mut next = loop {
            match generator.next(now) {
                Next::Issue(io) if self.verifies => self.fill(generator, &io),
                Next::Issue(_) => {}
                next => break next,
            }
        };
        if next == Next::Commit {
            if run.mark.is_none() && generator.measured_since().is_some() {
                run.mark = Some(Mark::new(counted_targets(&self.queues, &self.targets)));
                now = hw::now();
            }
            now = self.commit(generator, now);
            run.now = now;
            if !self.fuses {
                return Ok(true);
            }
            next = generator.next(now);
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
            // The next turn goes on with it.
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
                // There is room.
                if generator.is_paced() {
                    self.queues.set_next_due(None);
                }
                // The job's own computing has nothing in flight, and polls nothing.
                if let Some(end) = generator.computes_until().filter(|end| *end > now) {
                    now = spin(end.min(until).min(now + STOP_EVERY) - now);
                }
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

    /// What the run came to.
    pub fn end(&mut self, run: Run, generator: &Generator, control: &Control<'_>) -> Ran {
        control.progress.update(generator, run.now);
        let host = self.queues.all().map(Queue::take_counters).reduce(Counters::and).unwrap_or_default();
        let counted = run.mark.map(|mark| mark.until_now(host, counted_targets(&self.queues, &self.targets))).unwrap_or_default();
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

    /// Puts into its buffer what a write is to write.
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

    /// Submits what the generator has issued. The clock read of the commit.
    #[inline]
    fn commit(&mut self, generator: &mut Generator, mut now: Nanos) -> Nanos {
        // A clock read after the doorbell would be after a wait, or after completions were found.
        let early = self.fuses || self.before;
        if early && self.timed {
            now = hw::now();
        }
        let one = self.targets.len() == 1;
        for (number, target) in self.targets.iter().enumerate() {
            if !one && !generator.queued().any(|io| usize::from(io.target) == number) {
                continue;
            }
            let only = if one { None } else { Some(number as u16) };
            let buffers = self.buffers.get_mut(number * self.depth..).unwrap_or_default();
            let mut requests = Requests { ios: generator.queued(), only, target, buffers, failed: &mut self.failed };
            // Those after one that is refused are submitted all the same.
            while let Err((why, request)) = self.queues.submit(number, now, &mut requests) {
                self.first_error.get_or_insert(why.into());
                requests.refused(request);
            }
        }
        if !one {
            self.queues.commit();
        }
        if !early && self.timed {
            now = hw::now();
        }
        generator.committed(now);
        if !self.failed.is_empty() {
            self.failed.drain(..).for_each(|(slot, code)| generator.completed(slot, now, Err(code), &[]));
        }
        now
    }

    /// Waits for `min` completions, or until `until`, and hands on whatever there is.
    #[inline]
    fn reap(&mut self, generator: &mut Generator, min: u32, until: Nanos, mut now: Nanos) -> Result<Nanos> {
        self.queues.wait_and_reap(min as usize, until, &mut self.found, &mut self.targets)?;
        if self.found.is_empty() {
            if until == Nanos::MAX {
                bail!("an I/O was lost: {} are due, and none is in flight", generator.in_flight());
            }
            return Ok(hw::now());
        }
        let found = self.found.len() as u64;
        for Completion { tag, result, buf, completed_at: at, .. } in self.found.drain(..) {
            let (target, slot) = ((tag >> 32) as usize, tag as u32);
            let Some(place) = self.buffers.get_mut(target * self.depth + slot as usize).filter(|buf| buf.is_none()) else {
                bail!("a completion names I/O {tag:#x}, which is not in flight");
            };
            let at = Nanos(at.as_nanos());
            now = now.max(at);
            // There was none: nothing to drop.
            std::mem::forget(std::mem::replace(place, buf));
            let result = result.map_err(|error| {
                self.first_error.get_or_insert(error);
                ErrorCode(error.errno())
            });
            if self.flushes
                && generator.op(slot) == Some(Op::Flush)
                && let Some(target) = self.targets.get_mut(target)
            {
                target.completed.ios -= 1;
                target.completed.flushes += 1;
            }
            let data = if self.verifies { place.as_deref().unwrap_or_default() } else { &[] };
            generator.completed(slot, at, result, data);
        }
        Ok(if self.host_work == Nanos::ZERO { now } else { spin(Nanos(self.host_work.0 * found)) })
    }
}

fn counted_targets<'a>(queues: &'a JobQueues, targets: &'a [TargetState]) -> impl Iterator<Item = (&'a Device, &'a Queue, Completed)> {
    queues.all().zip(targets).map(|(queue, target)| (&target.device, queue, target.completed))
}

/// The namespace that jobs use.
pub fn first_namespace(device: &Device) -> Result<Namespace> {
    let description = device.description();
    match device.namespaces().first() {
        Some(namespace) => Ok(*namespace),
        None => bail!("{} has no namespace that can be used: {}", description.uri, description.refused.join("; ")),
    }
}

/// Application work: computes for so long. Returns when it ended.
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

/// I/Os as requests of one target: each takes its slot's buffer.
struct Requests<'a, I> {
    ios: I,
    /// I/Os of other targets are passed over. `None`: there is but one.
    only: Option<u16>,
    target: &'a TargetState,
    /// The target's.
    buffers: &'a mut [Option<DmaBuf>],
    /// Slots of I/Os that were not submitted, and why.
    failed: &'a mut Vec<(u32, ErrorCode)>,
}

impl<'a, I: Iterator<Item = &'a Io>> Iterator for Requests<'a, I> {
    type Item = Request;

    #[inline(always)] // Once for each I/O, into the library's loop.
    fn next(&mut self) -> Option<Request> {
        loop {
            let io = self.ios.next()?;
            if self.only.is_some_and(|target| target != io.target) {
                continue;
            }
            let Some(buf) = self.buffers.get_mut(io.slot as usize).and_then(Option::take) else {
                // A lost controller keeps the buffers that it may still write to.
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

impl<I> Requests<'_, I> {
    /// One was refused: its buffer is its slot's again.
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
    /// The thread's own: the cheapest there is.
    Own(LocalQueue),
    /// One that other threads may drain.
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

/// The queues of one thread, in the order of its job's targets. What it has the library do is never inlined: it is called
/// once per batch, and a count of instructions can tell it from the load generator.
enum JobQueues {
    /// The usual case: the queue drives itself.
    One(JobQueue),
    /// They take turns.
    Many(Group<JobQueue>),
}

impl JobQueues {
    /// The calling thread's queues of `targets`, of which there is at least one, for `mode`; `buffers` are registered with them
    /// before anything is measured, as fio registers its own before its clock starts.
    fn open(targets: &[TargetState], buffers: &mut [Option<DmaBuf>], mode: Mode) -> Result<JobQueues> {
        let depth = buffers.len() / targets.len().max(1);
        let mut queues = Vec::with_capacity(targets.len());
        for (TargetState { device, .. }, buffers) in targets.iter().zip(buffers.chunks_mut(depth.max(1))) {
            // Of a device in this process any thread may drain any queue; the kernel's are one thread's, unless they are asked for otherwise.
            let drained = mode.facts().drain_thread && device.embedded().is_none();
            let queue = if drained { JobQueue::Any(device.queue()?) } else { JobQueue::Own(device.local_queue_in(mode)?) };
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

    /// In the order of the job's targets.
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

    /// Tells the policies since when an I/O has waited for room.
    fn set_next_due(&self, due: Option<Nanos>) {
        self.all().for_each(|queue| queue.set_next_due(due.map(instant)));
    }

    /// Submits `requests` on the queue of `target`. Where submitting and waiting can be one system call, a wait announces them, or a commit.
    ///
    /// # Errors
    /// The first that is refused: those after it stay in the iterator.
    #[inline(never)]
    fn submit(&self, target: usize, now: Nanos, requests: impl Iterator<Item = Request>) -> Result<(), (Refused, Request)> {
        match self.slice().get(target) {
            Some(queue) => queue.as_ref().post_at(instant(now), requests),
            None => Ok(()),
        }
    }

    /// Announces what was submitted and was left for a wait to announce.
    fn commit(&self) {
        self.all().for_each(Queue::commit);
    }

    /// Waits as the completion mode plans, until `min` requests are finished, until `until`, or, without that limit, until nothing is in
    /// flight. Moves what is finished to `found`, and counts it: none of it is taken for a Flush yet.
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
            if found.len() < found.capacity() {
                target.completed.ios += queue.reap(found) as u64;
            }
        }
        Ok(())
    }
}

/// An instant of [`hw::now`], as the library has it: they read the same clock.
#[inline]
fn instant(at: Nanos) -> Instant {
    Instant::from_nanos(at.0)
}

#[cfg(test)]
mod tests;
