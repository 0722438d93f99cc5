//! A job thread: carries out what the generator says.

mod outside;
mod places;

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, bail};
use completion::{LatencyPrice, Mode, Spin};
use reap::{Completion, Device, IoError, Namespace, Nanos, Queue, Wakeups};
use units::Op;
use workload::{ErrorCode, Generator, Io, Job, Next};

use super::counted::{Ended, Line, Mark};
use super::fill::scribble;
use super::lanes::{Held, Lanes};
use outside::since;
pub use outside::{Control, Progress, Ran};
use places::{Left, Place};

/// A thread that waits for the time of its next I/O looks this often whether it is to stop.
const STOP_EVERY: Nanos = Nanos::from_millis(50);
/// How often a thread says how far it is.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(100);
/// EINVAL: what a request that the library refuses counts as.
const REFUSED: ErrorCode = ErrorCode(22);

/// One thread's way to its devices: queues, and a buffer for each I/O in flight. Made once, on the thread that it is for; runs any
/// number of generators, one after the other.
pub struct Worker {
    lanes: Lanes,
    /// The mode that rings in use were made for, if that is one of the kernel's own.
    made_for: Option<Mode>,
    /// Queues whose rings were made for other modes, for when such a mode is asked for.
    beside: Vec<(Option<Mode>, Lanes)>,
    counts_wakeups: bool,
    spin: Option<Spin>,
    ways: Vec<Way>,
    /// I/Os in flight at most.
    depth: usize,
    /// For each target, `depth` places: an I/O's slot picks its own. The number of a place is its request's.
    places: Vec<Place>,
    found: Vec<Completion>,
    /// Latencies to or from the doorbell are measured, so that commits need a clock read.
    timed: bool,
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
struct Way {
    device: Device,
    namespace: Namespace,
    block_shift: u32,
    /// Places of I/Os that are posted and not yet committed.
    batch: Vec<u32>,
    ended: Ended,
}

/// A run under way, between two turns.
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

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("now", &self.now).field("report_at", &self.report_at).finish_non_exhaustive()
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
        let mut places = Vec::with_capacity(depth * devices.len());
        let mut queues = Vec::with_capacity(devices.len());
        let mut ways = Vec::with_capacity(devices.len());
        for device in devices {
            let namespace = first_namespace(&device)?;
            // A block larger than the device is the generator's to refuse.
            let len = len.min(namespace.bytes() as usize).next_multiple_of(namespace.block_bytes() as usize);
            for _ in 0..depth {
                let mut buf = device.buffer(len)?;
                scribble(&mut buf, places.len() as u64);
                places.push(Place::new(buf));
            }
            queues.push(Held::take(&device, mode)?);
            let batch = Vec::with_capacity(depth);
            ways.push(Way { device, namespace, block_shift: namespace.block_bytes().ilog2(), batch, ended: Ended::default() });
        }
        places::prepare(&queues, &mut places);
        let lanes = Lanes::new(queues).context("cannot join the job's queues")?;
        let made_for = Some(mode).filter(|mode| mode.is_the_kernels());
        let fuses = ways.len() == 1 && ways.iter().all(|way: &Way| way.device.embedded().is_none());
        Ok(Worker {
            lanes,
            made_for,
            beside: Vec::new(),
            counts_wakeups: false,
            spin: None,
            ways,
            depth,
            places,
            found: Vec::with_capacity(taken_at_once(job)),
            timed: job.measure.slat || job.measure.clat,
            fuses,
            urgent: job.urgent,
            durable: job.sync_writes,
            host_work,
            first_error: None,
        })
    }

    /// Counts what wake-ups bring, from now on.
    pub fn count_wakeups(&mut self) {
        self.counts_wakeups = true;
        self.lanes.queues().for_each(Queue::count_wakeups);
    }

    /// How late `adaptive` may be, from now on.
    pub fn set_latency_price(&self, price: LatencyPrice) {
        self.lanes.set_latency_price(price);
    }

    /// What spinning means where others want the CPU, from now on.
    pub fn set_spin(&mut self, spin: Spin) {
        self.spin = Some(spin);
        self.lanes.set_spin(spin);
    }

    /// From the next batch on, completions are found as `mode` says. Between two runs: a mode of the kernel's own has queues of its own.
    ///
    /// # Errors
    /// Such queues cannot be had.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        let made_for = Some(mode).filter(|mode| mode.is_the_kernels());
        if made_for != self.made_for {
            let lanes = match self.beside.iter().position(|(other, _)| *other == made_for) {
                Some(at) => self.beside.swap_remove(at).1,
                None => self.more_lanes(mode)?,
            };
            let left = std::mem::replace(&mut self.lanes, lanes);
            self.beside.push((self.made_for, left));
            self.made_for = made_for;
        }
        self.lanes.set_mode(mode);
        Ok(())
    }

    /// Queues of the same devices in `mode`.
    fn more_lanes(&mut self, mode: Mode) -> Result<Lanes> {
        let queues: Vec<Held> = self.ways.iter().map(|way| Held::take(&way.device, mode)).collect::<Result<_, _>>()?;
        places::prepare(&queues, &mut self.places);
        let lanes = Lanes::new(queues).context("cannot join the job's queues")?;
        self.spin.into_iter().for_each(|spin| lanes.set_spin(spin));
        if self.counts_wakeups {
            lanes.queues().for_each(Queue::count_wakeups);
        }
        Ok(lanes)
    }

    /// Runs `generator` to its end, on the calling thread.
    ///
    /// # Errors
    /// The library lost an I/O. That an I/O failed is no error here: the generator knows, and ends.
    pub fn run(&mut self, generator: &mut Generator, control: &Control<'_>) -> Result<Ran> {
        let mut run = self.begin();
        while self.turn(&mut run, generator, control)? {}
        Ok(self.end(run, generator, control))
    }

    /// Begins a run that the caller carries out turn by turn, and [`Worker::end`]s.
    pub fn begin(&mut self) -> Run {
        // Only jobs with a clock say so, and the last run may have been of one.
        self.lanes.set_wants_room_at(None);
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
        if control.stop.iter().any(|stop| stop.load(Relaxed)) {
            generator.stop();
        }
        let mut now = run.now;
        let next = loop {
            match generator.next(now) {
                Next::Issue(io) => {
                    self.post(generator, io, now);
                    while let Some(io) = generator.granted(now) {
                        self.post(generator, io, now);
                    }
                }
                next => break next,
            }
        };
        match next {
            Next::Issue(_) => {}
            Next::Commit => {
                if run.mark.is_none() && generator.measured_since().is_some() {
                    run.mark = Some(Mark::new(lines(&self.lanes, &self.ways)));
                    now = hw::now();
                }
                now = if self.fuses { self.commit_and_reap(generator, now)? } else { self.commit(generator, now) };
            }
            Next::Reap { min, .. } => {
                self.will_wait(generator);
                now = self.reap(generator, min, Nanos::MAX, now)?;
            }
            Next::Wait { until } => {
                // There is room.
                if generator.is_paced() {
                    self.lanes.set_wants_room_at(None);
                }
                // The job's own computing has nothing in flight, and looks at nothing.
                if let Some(end) = generator.computes_until().filter(|end| *end > now) {
                    now = spin(end.min(until).min(now + STOP_EVERY) - now);
                }
                now = self.reap(generator, 1, until.min(now + STOP_EVERY), now)?;
            }
            Next::Done => return Ok(false),
        }
        if now >= run.report_at {
            run.report_at = now + PROGRESS_EVERY;
            control.progress.tell(generator, now);
        }
        run.now = now;
        Ok(true)
    }

    /// What the run came to.
    pub fn end(&mut self, run: Run, generator: &Generator, control: &Control<'_>) -> Ran {
        control.progress.tell(generator, run.now);
        let host = self.lanes.take_counters();
        let counted = run.mark.map(|mark| mark.until_now(host, lines(&self.lanes, &self.ways))).unwrap_or_default();
        let first_error = self.first_error.take();
        let mut wakeups = Box::<Wakeups>::default();
        self.lanes.queues().for_each(|queue| wakeups.merge(&queue.wakeups()));
        Ran { counted, usage: since(run.usage, hw::thread_usage()), first_error, wakeups }
    }

    #[inline(always)] // Once for each I/O: a call would cost a fifth of it.
    fn post(&mut self, generator: &mut Generator, io: Io, now: Nanos) {
        let number = usize::from(io.target) * self.depth + io.slot as usize;
        let way = self.ways.get_mut(usize::from(io.target));
        let (Some(way), Some(place)) = (way, self.places.get_mut(number).filter(|place| place.buf.is_some())) else {
            // A lost controller keeps the buffers that it may still write to.
            generator.issued(&io, now);
            return generator.completed(io, now, Err(ErrorCode::EIO), &[]);
        };
        if io.op == Op::Write
            && generator.verifies()
            && let Some(data) = place.buf.as_mut().and_then(|buf| buf.get_mut(..io.len as usize))
        {
            generator.fill(&io, data);
        }
        place.set(&io);
        way.batch.push(number as u32);
        generator.issued(&io, now);
    }

    /// What the policies are told before a wait.
    #[inline(always)] // A question before each wait.
    fn will_wait(&mut self, generator: &Generator) {
        if generator.is_paced() {
            self.lanes.set_wants_room_at(generator.next_due());
        }
    }

    /// Rings the doorbell, and waits for completions if that is what follows. The clock read is from before the doorbell: after a
    /// wait there would be none that is the batch's.
    #[inline(never)] // What it needs of registers, other turns do without.
    fn commit_and_reap(&mut self, generator: &mut Generator, now: Nanos) -> Result<Nanos> {
        let now = if self.timed { hw::now() } else { now };
        generator.committed(now);
        let follows = generator.granted(now).map_or_else(|| generator.next(now), Next::Issue);
        let Next::Reap { min, .. } = follows else {
            self.submit(generator, now, false);
            return match follows {
                Next::Issue(io) => {
                    self.post(generator, io, now);
                    Ok(now)
                }
                // Whatever it is, it is said again at the next turn.
                _ => Ok(now),
            };
        };
        self.will_wait(generator);
        if self.ways.iter().all(|way| way.batch.is_empty()) {
            // All that was issued has ended by itself: a wait is left.
            return self.reap(generator, min, Nanos::MAX, now);
        }
        let refused = self.submit(generator, now, true);
        self.lanes.wait(min as usize, Nanos::MAX)?;
        self.lanes.reap(&mut self.found);
        // Those that were refused have ended, and nothing else may have.
        if refused && self.found.is_empty() { Ok(now) } else { self.take(generator, Nanos::MAX, now) }
    }

    /// Rings the doorbells. The clock read is the batch's: after the doorbell, as fio has it, unless completions may
    /// be found before the commit returns.
    #[inline]
    fn commit(&mut self, generator: &mut Generator, now: Nanos) -> Nanos {
        // Completions may be found during a commit: their latencies count from before it.
        let before = self.timed && self.lanes.looks_on_commit();
        let mut now = if before { hw::now() } else { now };
        self.submit(generator, now, false);
        if self.timed && !before {
            now = hw::now();
        }
        generator.committed(now);
        now
    }

    /// Submits the batches, before a wait if the thread `waits` next. Whether any was refused.
    #[inline(always)] // Of a batch of one a call would cost a fifth of it.
    fn submit(&mut self, generator: &mut Generator, now: Nanos, waits: bool) -> bool {
        let mut any = false;
        for target in 0..self.ways.len() {
            if self.ways[target].batch.is_empty() {
                continue;
            }
            any |= self.submit_to(target, generator, now, waits);
        }
        any
    }

    /// Submits the batch of one target, before a wait if the thread `waits` next. Whether any was refused.
    #[inline(always)]
    fn submit_to(&mut self, target: usize, generator: &mut Generator, now: Nanos, waits: bool) -> bool {
        let Some(way) = self.ways.get_mut(target) else { return false };
        let (namespace, block_shift, urgent, durable) = (&way.namespace, way.block_shift, self.urgent, self.durable);
        let mut left = Left { numbers: way.batch.iter(), places: &mut self.places, namespace, block_shift, urgent, durable };
        let mut any = false;
        // Those after one that is refused are submitted all the same.
        while let Err((why, request)) = self.lanes.submit(target, now, waits, &mut left) {
            any = true;
            self.first_error.get_or_insert(why.into());
            if let Some(io) = left.give_back(request) {
                generator.completed(io, now, Err(REFUSED), &[]);
            }
        }
        way.batch.clear();
        any
    }

    /// Waits for `min` completions, or until `until`, and hands on whatever there is.
    #[inline]
    fn reap(&mut self, generator: &mut Generator, min: u32, until: Nanos, now: Nanos) -> Result<Nanos> {
        self.lanes.wait(min as usize, until)?;
        self.lanes.reap(&mut self.found);
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
            let Some(place) = self.places.get_mut(tag as usize).filter(|place| place.buf.is_none()) else {
                bail!("a completion names I/O {tag}, which is not in flight");
            };
            let Io { slot, op, target, offset, len } = place.io();
            let at = Nanos(at.as_nanos());
            now = now.max(at);
            // There was none: nothing to drop.
            std::mem::forget(std::mem::replace(&mut place.buf, buf));
            let result = result.map_err(|error| {
                self.first_error.get_or_insert(error);
                ErrorCode(error.errno())
            });
            // The buffer is as long as the longest I/O.
            let data = if verifies { place.buf.as_deref().and_then(|buf| buf.get(..len as usize)) } else { None }.unwrap_or_default();
            generator.completed(Io { slot, op, target, offset, len }, at, result, data);
            if let Some(way) = self.ways.get_mut(usize::from(target)) {
                let count = if op == Op::Flush { &mut way.ended.flushes } else { &mut way.ended.ios };
                *count += 1;
            }
        }
        Ok(if self.host_work == Nanos::ZERO { now } else { spin(Nanos(self.host_work.0 * found)) })
    }
}

fn lines<'a>(lanes: &'a Lanes, ways: &'a [Way]) -> impl Iterator<Item = Line<'a>> {
    let line = |(queue, way): (&'a Queue, &'a Way)| Line { device: &way.device, queue, ended: way.ended };
    lanes.queues().zip(ways).map(line)
}

/// How many completions are taken before the next I/Os are issued: `iodepth_batch_complete_max`, which is as many as `_min` if it
/// is not given. A job that says nothing of batches gets whatever there is.
fn taken_at_once(job: &Job) -> usize {
    match job.complete_min.max(job.complete_max) {
        0 | 1 => job.iodepth.max(1) as usize,
        most => most as usize,
    }
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

#[cfg(test)]
mod tests;
