//! What a simulated thread's application is asked: a job's generator, or a thread of a recording that is submitted again.
//!
//! A replayed command brings the time that its device took along, in dwords 2 and 3 of its entry, which Read, Write and
//! Flush leave reserved (NVM 3.2): the simulated bus reads it there, and the controller takes it in place of the profile's
//! dice. Ceiling, link and channels stay the profile's, so that commands queue as they would under this mode.

use std::sync::Arc;

use completion::Mode;
use emu::{Config, Hidden, KnownTime, Profile, Service};
use nvme::Sqe;
use units::{Nanos, Op};
use workload::record::{Coalescing, DeviceHead, Replayer, ServiceTimes, Submission, ThreadHead, Timing, Trace};
use workload::{BlockSizes, ErrorCode, Failure, Generator, Io, Job, Next, PerOp, Stats};

use crate::{DeviceSpec, JobSpec, Machine, Recorded, Scenario, SimError};

impl Scenario {
    /// The threads of one stage of a recording on the devices it was made on, under `mode`. A CPU for each of those that
    /// its threads had.
    ///
    /// # Errors
    /// There is no such stage.
    pub fn replay(trace: &Arc<Trace>, stage: u32, mode: Mode) -> Result<Scenario, SimError> {
        let header = trace.header();
        let threads = header.threads.iter().enumerate().filter(|(_, thread)| thread.stage == stage);
        let late = header.devices.iter().all(|device| device.timing.is_none());
        let jobs: Vec<JobSpec> = threads.map(|(number, head)| job(trace, number, head, late)).collect();
        if jobs.is_empty() {
            return Err(SimError::Unfit(format!("the recording has no stage {stage}")));
        }
        let devices = header.devices.iter().enumerate().map(|(number, head)| device(number, head)).collect();
        let mut scenario = Scenario::new(mode, Profile::null(), Job::default());
        (scenario.jobs, scenario.devices) = (jobs, devices);
        scenario.machine = Machine { cpus: header.cpus.max(1), ..scenario.machine };
        // As long as a recording may be, and twice over: what it shows may be a device that hung for an hour.
        scenario.limit = Nanos(1 << 49);
        Ok(scenario)
    }
}

fn job(trace: &Arc<Trace>, thread: usize, head: &ThreadHead, late: bool) -> JobSpec {
    let longest = || BlockSizes::fixed(head.longest.into());
    let job = Job {
        name: head.job.clone(),
        options: head.options.clone(),
        iodepth: head.depth,
        block: PerOp::both(longest()),
        filenames: head.targets.iter().map(|&target| name(target)).collect(),
        cpus_allowed: Some(vec![head.cpu]),
        ..Job::default()
    };
    JobSpec { replay: Some(Recorded { trace: Arc::clone(trace), thread, late }), ..JobSpec::new(job) }
}

fn device(number: usize, head: &DeviceHead) -> DeviceSpec {
    let profile = head.timing.as_ref().map_or_else(unknown, profile);
    let queues = u16::try_from(head.hardware_queues).unwrap_or(u16::MAX).max(1);
    let spec = DeviceSpec::new(&name(number), profile);
    // More than any queue has are refused with everything else that does not go together.
    let queue_entries = head.tags.saturating_add(1).checked_next_power_of_two().unwrap_or(u32::MAX);
    let config = Config { queue_entries, ..spec.config };
    // Only an embedded device tells its timing.
    let in_process = head.timing.is_some();
    DeviceSpec { bytes: head.bytes, tags: head.tags, config, in_process, ..spec }.with_queues(queues)
}

/// What jobs call a device.
fn name(number: usize) -> String {
    format!("device{number}")
}

/// A profile's timing. Data are not moved: nobody looks at them.
fn profile(timing: &Timing) -> Profile {
    let Coalescing { entries, time_ns, announced_per_second, announced_burst, messages_per_second } = timing.hidden;
    let hidden = Hidden {
        entries,
        time: Nanos(time_ns),
        announced_per_s: announced_per_second,
        announced_burst,
        messages_per_s: messages_per_second,
    };
    Profile {
        name: timing.profile.clone(),
        read: service(&timing.read),
        write: service(&timing.write),
        flush: service(&timing.flush),
        channels: timing.channels,
        bandwidth: timing.bytes_per_second,
        iops: timing.iops,
        iops_burst: timing.iops_burst.max(1),
        moves_data: false,
        hidden,
    }
}

fn service(times: &ServiceTimes) -> Service {
    let ServiceTimes { base_ns, jitter_ns, tail_ppm, tail_ns, tail_run } = *times;
    Service { base: Nanos(base_ns), jitter: Nanos(jitter_ns), tail_ppm, tail: Nanos(tail_ns), tail_run, ..Service::default() }
}

/// Of a device of which only the recorded times are known. One nanosecond, so that none is taken to be instant.
fn unknown() -> Profile {
    let some = Service { base: Nanos(1), ..Service::default() };
    Profile { name: "recorded".into(), read: some, write: some, flush: some, ..Profile::null() }
}

/// What a thread's application is asked.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one to a thread, and never moved")]
pub(crate) enum Source {
    /// A job's generator.
    Job(Generator),
    /// A recorded thread, and whether its commands are posted as late as they were.
    Trace(Replayer, bool),
}

impl Source {
    /// What to do next.
    pub(crate) fn next(&mut self, now: Nanos) -> Next {
        match self {
            Source::Job(generator) => generator.next(now),
            Source::Trace(replayer, _) => replayer.next(now),
        }
    }

    /// Whether it is past its start delay and its ramp. A recording has neither.
    pub(crate) fn is_measured(&self) -> bool {
        match self {
            Source::Job(generator) => generator.measured_since().is_some(),
            Source::Trace(..) => true,
        }
    }

    /// When the next I/O is due for which there is no room. A recording does not say.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        match self {
            Source::Job(generator) => generator.next_due(),
            Source::Trace(..) => None,
        }
    }

    /// Whether written buffers must be filled. A recording does not say with what.
    pub(crate) fn needs_fill(&self) -> bool {
        matches!(self, Source::Job(generator) if generator.verifies())
    }

    /// Fills one.
    pub(crate) fn fill(&self, io: &Io, buffer: &mut [u8]) {
        if let Source::Job(generator) = self {
            generator.fill(io, buffer);
        }
    }

    /// `io` was posted.
    pub(crate) fn issued(&mut self, io: &Io, now: Nanos) {
        match self {
            Source::Job(generator) => generator.issued(io, now),
            Source::Trace(replayer, _) => replayer.issued(io, now),
        }
    }

    /// What was posted was announced.
    pub(crate) fn committed(&mut self, now: Nanos) {
        match self {
            Source::Job(generator) => generator.committed(now),
            Source::Trace(replayer, _) => replayer.committed(now),
        }
    }

    /// `io` completed.
    pub(crate) fn completed(&mut self, io: Io, now: Nanos, result: Result<(), ErrorCode>, buffer: &[u8]) {
        match self {
            Source::Job(generator) => generator.completed(io, now, result, buffer),
            Source::Trace(replayer, _) => replayer.completed(io, now, result),
        }
    }

    /// Stops as soon as what is in flight has completed. A recording has stopped by itself.
    pub(crate) fn stop(&mut self) {
        if let Source::Job(generator) = self {
            generator.stop();
        }
    }

    /// What was measured.
    pub(crate) fn stats(&self) -> &Stats {
        match self {
            Source::Job(generator) => generator.stats(),
            Source::Trace(replayer, _) => replayer.stats(),
        }
    }

    /// What ended it early; a block that was not what had been written is a failure, too.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Source::Job(generator) => generator.failure().copied().or_else(|| {
                let bad = generator.bad_blocks().first()?;
                Some(Failure { code: ErrorCode::EILSEQ, op: Op::Read, target: bad.target, offset: bad.offset, len: bad.len })
            }),
            Source::Trace(replayer, _) => replayer.failure().copied(),
        }
    }

    /// What the application computed for the I/O that it has just issued in this slot, load generator included.
    pub(crate) fn think(&self, slot: u32) -> Nanos {
        self.recorded(slot).map_or(Nanos::ZERO, |submission| submission.think)
    }

    /// A command of the I/O in this slot, which brings its time along if that is known.
    pub(crate) fn prepare(&self, mut sqe: Sqe, slot: usize) -> Sqe {
        if let Some(submission) = self.recorded(slot as u32) {
            let workload::record::Service { service, late, .. } = submission.service;
            let late = if matches!(self, Source::Trace(_, true)) { late } else { Nanos::ZERO };
            bring(&mut sqe, KnownTime { service, late });
        }
        sqe
    }

    fn recorded(&self, slot: u32) -> Option<&Submission> {
        match self {
            Source::Job(_) => None,
            Source::Trace(replayer, _) => replayer.submission(slot),
        }
    }
}

/// Marks dword 3 of an entry that brings its time along.
const BROUGHT: u32 = 1 << 31;

/// In dword 3 as well: both times are in units of 16 µs, because one has no room in nanoseconds. So there is room for all that a
/// recording may have.
const COARSE: u32 = 1 << 30;
const UNIT: u32 = 14;

/// Has a command bring its time along: how long it takes in dword 2, and how late it is in dword 3.
fn bring(sqe: &mut Sqe, time: KnownTime) {
    let (service, late) = (time.service.0, time.late.0);
    let (unit, coarse) = if service <= u32::MAX.into() && late < COARSE.into() { (0, 0) } else { (UNIT, COARSE) };
    let units = |nanos: u64, most: u32| (nanos >> unit).min(most.into()) as u32;
    sqe.cdw2 = [units(service, u32::MAX), units(late, COARSE - 1) | coarse | BROUGHT];
}

/// The time that it brings.
pub(crate) fn brought(sqe: &Sqe) -> Option<KnownTime> {
    let [service, late] = sqe.cdw2;
    let unit = if late & COARSE == 0 { 0 } else { UNIT };
    let time = |units: u32| Nanos(u64::from(units) << unit);
    (late & BROUGHT != 0).then_some(KnownTime { service: time(service), late: time(late & (COARSE - 1)) })
}

#[cfg(test)]
mod tests;
