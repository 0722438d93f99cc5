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
    /// For each target `depth` of them: an I/O's slot number picks its own. The index of a slot is its request's tag.
    slots: Vec<IoSlot>,
    found: Vec<Completion>,
    /// Latencies to or from the doorbell are measured, so that commits need a clock read: before the doorbell if completions may be found
    /// before the commit returns, and else after it, as fio has it.
    timed: bool,
    before: bool,
    /// Submitting and waiting can be one system call: a commit is put off until it is known whether a wait follows.
    fuses: bool,
    /// Each I/O is marked urgent.
    urgent: bool,
    /// Force Unit Access: each write is durable when it completes.
    durable: bool,
    host_work: Nanos,
    first_error: Option<IoError>,
}

/// One of the job's targets.
struct TargetState {
    device: Device,
    namespace: Namespace,
    block_shift: u32,
    /// Slots of I/Os that are posted and not yet committed.
    batch: Vec<u32>,
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
        let mut slots = Vec::with_capacity(depth * devices.len());
        let mut targets = Vec::with_capacity(devices.len());
        for device in devices {
            let namespace = first_namespace(&device)?;
            // A block larger than the device is the generator's to refuse.
            let len = len.min(namespace.bytes() as usize).next_multiple_of(namespace.block_bytes() as usize);
            for _ in 0..depth {
                let mut buf = device.buffer(len)?;
                scribble(&mut buf, slots.len() as u64);
                slots.push(IoSlot { io: Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 0 }, buf: Some(buf) });
            }
            let (block_shift, batch) = (namespace.block_bytes().ilog2(), Vec::with_capacity(depth));
            targets.push(TargetState { device, namespace, block_shift, batch, completed: Completed::default() });
        }
        // How many completions are taken before the next I/Os are issued: `iodepth_batch_complete_max`, which is as many as `_min` if it
        // is not given. A job that says nothing of batches gets whatever there is.
        let at_once = match job.complete_min.max(job.complete_max) {
            0 | 1 => depth,
            most => most as usize,
        };
        Ok(Worker {
            queues: JobQueues::open(&targets, &mut slots, mode)?,
            made_for: Some(mode).filter(|mode| mode.is_the_kernels()),
            unused: Vec::new(),
            counts_wakeups: false,
            spin: Spin::default(),
            fuses: targets.len() == 1 && targets.iter().all(|target| target.device.embedded().is_none()),
            targets,
            depth,
            slots,
            found: Vec::with_capacity(at_once),
            timed: job.measure.slat || job.measure.clat,
            before: false,
            urgent: job.urgent,
            durable: job.sync_writes,
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
                    let queues = JobQueues::open(&self.targets, &mut self.slots, mode)?;
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
        self.queues.set_wants_room_at(None);
        self.before = self.queues.all().any(Queue::looks_on_commit);
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
        let next = loop {
            match generator.next(now) {
                Next::Issue(io) => self.post(generator, io, now),
                next => break next,
            }
        };
        if run.mark.is_none() && next == Next::Commit && generator.measured_since().is_some() {
            run.mark = Some(Mark::new(counted_targets(&self.queues, &self.targets)));
            now = hw::now();
        }
        match next {
            Next::Issue(_) => {}
            Next::Commit if self.fuses => now = self.commit_and_reap(generator, now)?,
            Next::Commit => {
                run.now = self.commit(generator, now);
                return Ok(true);
            }
            Next::Reap { min } => {
                if generator.is_paced() {
                    self.queues.set_wants_room_at(generator.next_due());
                }
                now = self.reap(generator, min, Nanos::MAX, now)?;
            }
            Next::Wait { until } => {
                // There is room.
                if generator.is_paced() {
                    self.queues.set_wants_room_at(None);
                }
                // The job's own computing has nothing in flight, and polls nothing.
                if let Some(end) = generator.computes_until().filter(|end| *end > now) {
                    now = spin(end.min(until).min(now + STOP_EVERY) - now);
                }
                now = self.reap(generator, 1, until.min(now + STOP_EVERY), now)?;
            }
            Next::Done => return Ok(false),
        }
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

    #[inline(always)] // Once for each I/O: a call would cost a fifth of it.
    fn post(&mut self, generator: &mut Generator, io: Io, now: Nanos) {
        let number = usize::from(io.target) * self.depth + io.slot as usize;
        let Some(slot) = self.slots.get_mut(number).filter(|slot| slot.buf.is_some()) else {
            // A lost controller keeps the buffers that it may still write to.
            return generator.completed(&io, now, Err(ErrorCode::EIO), &[]);
        };
        if io.op == Op::Write
            && generator.verifies()
            && let Some(data) = slot.buf.as_mut().and_then(|buf| buf.get_mut(..io.len as usize))
        {
            generator.fill(&io, data);
        }
        slot.io = io;
        if let Some(target) = self.targets.get_mut(usize::from(io.target)) {
            target.batch.push(number as u32);
        }
    }

    /// Rings the doorbell, and waits for completions if that is what follows. The clock read is from before the doorbell: after a
    /// wait there would be none that is the batch's.
    #[inline(never)] // What it needs of registers, other turns do without.
    fn commit_and_reap(&mut self, generator: &mut Generator, now: Nanos) -> Result<Nanos> {
        let now = if self.timed { hw::now() } else { now };
        generator.committed(now);
        let follows = generator.next(now);
        let Next::Reap { min } = follows else {
            self.submit(generator, now, false);
            // Whatever else follows, it is said again at the next turn.
            if let Next::Issue(io) = follows {
                self.post(generator, io, now);
            }
            return Ok(now);
        };
        if generator.is_paced() {
            self.queues.set_wants_room_at(generator.next_due());
        }
        if self.targets.iter().all(|target| target.batch.is_empty()) {
            // All that was issued has ended by itself: a wait is left.
            return self.reap(generator, min, Nanos::MAX, now);
        }
        let refused = self.submit(generator, now, true);
        self.queues.wait(min as usize, Nanos::MAX)?;
        self.queues.reap(&mut self.found, &mut self.targets);
        // Those that were refused have ended, and nothing else may have.
        if refused && self.found.is_empty() { Ok(now) } else { self.take(generator, Nanos::MAX, now) }
    }

    /// Rings the doorbells. The clock read is the batch's.
    #[inline]
    fn commit(&mut self, generator: &mut Generator, now: Nanos) -> Nanos {
        let mut now = if self.timed && self.before { hw::now() } else { now };
        self.submit(generator, now, false);
        if self.timed && !self.before {
            now = hw::now();
        }
        generator.committed(now);
        now
    }

    /// Submits the batches, before a wait if the thread `waits` next. Whether any was refused.
    #[inline(always)] // Of a batch of one a call would cost a fifth of it.
    fn submit(&mut self, generator: &mut Generator, now: Nanos, waits: bool) -> bool {
        let mut any = false;
        for (number, target) in self.targets.iter_mut().enumerate() {
            if target.batch.is_empty() {
                continue;
            }
            let (namespace, block_shift, urgent, durable) = (&target.namespace, target.block_shift, self.urgent, self.durable);
            let mut requests = Requests { numbers: target.batch.iter(), slots: &mut self.slots, namespace, block_shift, urgent, durable };
            // Those after one that is refused are submitted all the same.
            while let Err((why, request)) = self.queues.submit(number, now, waits, &mut requests) {
                any = true;
                self.first_error.get_or_insert(why.into());
                if let Some(io) = requests.give_back(request) {
                    generator.completed(io, now, Err(REFUSED), &[]);
                }
            }
            target.batch.clear();
        }
        any
    }

    /// Waits for `min` completions, or until `until`, and hands on whatever there is.
    #[inline]
    fn reap(&mut self, generator: &mut Generator, min: u32, until: Nanos, now: Nanos) -> Result<Nanos> {
        self.queues.wait(min as usize, until)?;
        self.queues.reap(&mut self.found, &mut self.targets);
        self.take(generator, until, now)
    }

    /// Hands on what was found, waiting until `until`.
    #[inline]
    fn take(&mut self, generator: &mut Generator, until: Nanos, now: Nanos) -> Result<Nanos> {
        if self.found.is_empty() {
            if until == Nanos::MAX {
                bail!("an I/O was lost: {} are due, and none is in flight", generator.in_flight());
            }
            return Ok(hw::now());
        }
        let mut now = now;
        let found = self.found.len() as u64;
        let verifies = generator.verifies();
        for Completion { tag, result, buf, completed_at: at, .. } in self.found.drain(..) {
            let Some(slot) = self.slots.get_mut(tag as usize).filter(|slot| slot.buf.is_none()) else {
                bail!("a completion names I/O {tag}, which is not in flight");
            };
            let io = &slot.io;
            let at = Nanos(at.as_nanos());
            now = now.max(at);
            // There was none: nothing to drop.
            std::mem::forget(std::mem::replace(&mut slot.buf, buf));
            let result = result.map_err(|error| {
                self.first_error.get_or_insert(error);
                ErrorCode(error.errno())
            });
            // The buffer is as long as the longest I/O.
            let data = if verifies { slot.buf.as_deref().and_then(|buf| buf.get(..io.len as usize)) } else { None }.unwrap_or_default();
            generator.completed(io, at, result, data);
            if io.op == Op::Flush
                && let Some(target) = self.targets.get_mut(usize::from(io.target))
            {
                target.completed.ios -= 1;
                target.completed.flushes += 1;
            }
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

/// An I/O while it is in flight, and its buffer while it is not.
struct IoSlot {
    io: Io,
    /// `None`: in flight, or lost with its controller.
    buf: Option<DmaBuf>,
}

/// What has yet to be submitted of a batch, as requests: each takes its slot's buffer.
struct Requests<'a> {
    numbers: std::slice::Iter<'a, u32>,
    slots: &'a mut [IoSlot],
    namespace: &'a Namespace,
    block_shift: u32,
    urgent: bool,
    durable: bool,
}

impl Iterator for Requests<'_> {
    type Item = Request;

    #[inline(always)] // Once for each I/O, into the library's loop.
    fn next(&mut self) -> Option<Request> {
        loop {
            let number = *self.numbers.next()?;
            let Some(slot) = self.slots.get_mut(number as usize) else { continue };
            let (io, Some(buf)) = (slot.io, slot.buf.take()) else { continue };
            let lba = io.offset >> self.block_shift;
            let request = Request::of(io.op, self.namespace, lba, buf);
            let request = if self.urgent { request.urgent() } else { request };
            let request = if self.durable && io.op == Op::Write { request.fua() } else { request };
            return Some(request.bytes(io.len).tag(number.into()));
        }
    }
}

impl Requests<'_> {
    /// One that was refused: its buffer is its slot's again.
    #[cold]
    fn give_back(&mut self, request: Request) -> Option<&Io> {
        let slot = self.slots.get_mut(request.number() as usize)?;
        slot.buf = request.into_buffer();
        Some(&slot.io)
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
    /// The calling thread's queues of `targets`, of which there is at least one, for `mode`; the buffers of `slots` are registered with them
    /// before anything is measured, as fio registers its own before its clock starts.
    fn open(targets: &[TargetState], slots: &mut [IoSlot], mode: Mode) -> Result<JobQueues> {
        let depth = slots.len() / targets.len().max(1);
        let mut queues = Vec::with_capacity(targets.len());
        for (TargetState { device, .. }, slots) in targets.iter().zip(slots.chunks_mut(depth.max(1))) {
            // Of a device in this process any thread may drain any queue; the kernel's are one thread's, unless they are asked for otherwise.
            let drained = mode.facts().drain_thread && device.embedded().is_none();
            let queue = if drained { JobQueue::Any(device.queue()?) } else { JobQueue::Own(device.local_queue_in(mode)?) };
            for slot in slots {
                slot.buf = slot.buf.take().map(|buf| queue.as_ref().prepare(buf));
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
    fn set_wants_room_at(&self, due: Option<Nanos>) {
        self.all().for_each(|queue| queue.set_wants_room_at(due.map(instant)));
    }

    /// Submits `requests` on the queue of `target`. Where the thread `waits` next, the wait may announce them, in one system call.
    ///
    /// # Errors
    /// The first that is refused: those after it stay in the iterator.
    #[inline(never)]
    fn submit(&self, target: usize, now: Nanos, waits: bool, requests: impl Iterator<Item = Request>) -> Result<(), (Refused, Request)> {
        match self.slice().get(target) {
            Some(queue) => queue.as_ref().submit_or_post_at(instant(now), waits, requests),
            None => Ok(()),
        }
    }

    /// Waits as the completion mode plans, until `min` requests are finished, until `until`, or, without that limit,
    /// until nothing is in flight.
    #[inline(never)]
    fn wait(&self, min: usize, until: Nanos) -> Result<(), WouldDeadlock> {
        let limit = (until < Nanos::MAX).then(|| instant(until));
        match self {
            JobQueues::One(queue) => queue.as_ref().wait(min, limit),
            JobQueues::Many(group) => group.wait(min, limit),
        }
        .map(drop)
    }

    /// Moves what is finished to `found`, and counts it: none of it is taken for a Flush yet.
    #[inline(never)]
    fn reap(&self, found: &mut Vec<Completion>, targets: &mut [TargetState]) {
        for (queue, target) in self.all().zip(targets) {
            if found.len() < found.capacity() {
                let before = found.len();
                queue.reap(found);
                target.completed.ios += (found.len() - before) as u64;
            }
        }
    }
}

/// An instant of [`hw::now`], as the library has it: they read the same clock.
#[inline]
fn instant(at: Nanos) -> Instant {
    Instant::from_nanos(at.0)
}

#[cfg(test)]
mod tests;
