//! `--record`: the run goes on as without, and a thread beside it writes down what job threads and devices note.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use completion::Mode;
use reap::{Profile, Stamp, Stamps};
use workload::Job;
use workload::plan::Plan;
use workload::record::{self, Coalescing, DeviceHead, End, Figures, Header, Join, Service, ServiceTimes, ThreadHead, Timing, Writer};

use super::ended::Ended;
use crate::bench::{Counted, Noted, Rig, Tap};
use crate::machine::Machine;
use crate::output::{Kept, say};
use crate::program::PROGRAM;

/// Blocks of events that may wait to be written, about 80 MB. Beyond that the recording ends.
const MOST_WAITING: usize = 512;
/// Stamps are looked for this often. Rarely, because it takes the CPU from a job thread.
const EVERY: Duration = Duration::from_millis(20);
/// A device that is closed has stopped by then.
const DEVICE_STOPS: Duration = Duration::from_secs(5);

/// A recording before the devices are open: whatever can go wrong with the file has.
pub struct Recorder {
    path: PathBuf,
    file: Kept,
    stamps: Vec<(Stamps, Receiver<Vec<Stamp>>)>,
}

/// A recording under way.
pub struct Recording {
    path: PathBuf,
    tell: SyncSender<Noted>,
    stopped: Arc<AtomicBool>,
    writer: JoinHandle<Result<Writer<Kept>>>,
}

impl Recorder {
    /// Opens the file. An earlier recording in it stays until this one begins.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(path: &Path, plan: &Plan) -> Result<Recorder> {
        let file = Kept::open(path).with_context(|| cannot_write(path))?;
        Ok(Recorder { path: path.to_owned(), file, stamps: plan.targets.iter().map(|_| Stamps::new()).collect() })
    }

    /// The handle for the device of this target.
    pub fn stamps(&self, target: usize) -> Option<Stamps> {
        self.stamps.get(target).map(|(stamps, _)| stamps.clone())
    }
}

impl Recorder {
    /// Begins, once the devices hold what the jobs read.
    ///
    /// # Errors
    /// The file cannot be written, or no thread be started.
    pub fn start(self, header: &Header) -> Result<Recording> {
        let Recorder { path, file, stamps } = self;
        let writer = Writer::new(file, header).with_context(|| cannot_write(&path))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (tell, told) = sync_channel(MOST_WAITING);
        stamps.iter().for_each(|(stamps, _)| stamps.start());
        let desk = Desk {
            join: Join::new(header),
            threads: header.threads.len(),
            writer,
            stamps: stamps.into_iter().map(|(_, arrived)| Some(arrived)).collect(),
            stopped: stopped.clone(),
        };
        let writer =
            Builder::new().name("reap-record".into()).spawn(move || desk.work(&told)).context("cannot start the recording thread")?;
        Ok(Recording { path, tell, stopped, writer })
    }
}

impl Recording {
    /// The notebook of this thread of the plan.
    pub fn tap(&self, thread: usize) -> Tap {
        Tap::new(thread, self.tell.clone(), self.stopped.clone())
    }

    /// Ends the recording. The threads have, and the devices are closed.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(self, run: Figures) -> Result<()> {
        let Recording { path, tell, stopped, writer } = self;
        drop(tell);
        let written = writer.join().map_err(|_| anyhow!("the recording thread did not end"))?;
        let stopped_early = stopped.load(Relaxed);
        let end = End { stopped_early, run: (run.ios > 0).then_some(run), ..End::default() };
        let finished = written.and_then(|writer| Ok(writer.finish(end)?));
        finished.with_context(|| cannot_write(&path))?;
        if stopped_early {
            say(format_args!("warning: the recording {} ends before the run: it could not be written as fast", path.display()));
        }
        Ok(())
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the recording to {}", path.display())
}

/// The thread that writes.
struct Desk {
    join: Join,
    threads: usize,
    writer: Writer<Kept>,
    /// `None`: the device is gone.
    stamps: Vec<Option<Receiver<Vec<Stamp>>>>,
    stopped: Arc<AtomicBool>,
}

impl Desk {
    /// Until the threads have told everything, and then until the devices have.
    fn work(mut self, told: &Receiver<Noted>) -> Result<Writer<Kept>> {
        loop {
            match told.recv_timeout(EVERY) {
                Ok((thread, events)) => {
                    self.join.noted(thread, &events);
                    told.try_iter().for_each(|(thread, events)| self.join.noted(thread, &events));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.take_stamps();
            self.write(false)?;
        }
        let until = Instant::now() + DEVICE_STOPS;
        while self.take_stamps() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.write(false)?;
        // The tail of a recording that was broken off is not all there.
        if !self.stopped.load(Relaxed) {
            self.write(true)?;
        }
        Ok(self.writer)
    }

    /// Whether there are more to come.
    fn take_stamps(&mut self) -> bool {
        for (device, arrived) in self.stamps.iter_mut().enumerate() {
            while let Some(channel) = arrived {
                match channel.try_recv() {
                    Ok(stamps) => self.join.stamped(device, stamps.iter().map(stamp)),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => *arrived = None,
                }
            }
        }
        if self.stopped.load(Relaxed) {
            self.join.forget_early();
        }
        self.stamps.iter().any(Option::is_some)
    }

    fn write(&mut self, all: bool) -> Result<()> {
        for thread in 0..self.threads {
            while let Some(submission) = self.join.pop(thread, all) {
                self.writer.push(thread, &submission)?;
            }
        }
        Ok(())
    }
}

fn stamp(stamp: &Stamp) -> record::Stamp {
    let Stamp { op, offset, bytes, fetched, queued, service, late } = *stamp;
    record::Stamp { op, offset, bytes, fetched, service: Service { queued, service, late, bound: false } }
}

/// What the file says of the run before it begins.
///
/// # Errors
/// A device without a namespace that can be used.
pub fn header(jobs: &[Job], plan: &Plan, rig: &Rig, mode: Mode, machine: &Machine, unix_ms: u64) -> Result<Header> {
    let device = |device: &reap::Device| {
        let (description, embedded) = (device.description(), device.embedded());
        let namespace = crate::bench::first_namespace(device)?;
        Ok(DeviceHead {
            uri: description.uri.clone(),
            bytes: namespace.bytes(),
            block_bytes: namespace.block_bytes(),
            hardware_queues: description.hardware_queues,
            tags: description.depth,
            stamped: embedded.is_some(),
            timing: embedded.map(|embedded| timing(embedded.profile())),
        })
    };
    let cpus = cpus(plan, machine);
    let thread = |(thread, cpu): (&workload::plan::Thread, u32)| {
        let job = &jobs[thread.job];
        let depth = if job.complete_min == 0 { 1 } else { job.iodepth.max(1) };
        let batch = if job.batch_submit == 0 { depth } else { job.batch_submit.min(depth) };
        let longest = job.block.read.max.max(job.block.write.max).try_into().unwrap_or(u32::MAX);
        let (options, targets) = (job.options.clone(), thread.targets.clone());
        // A verification reads what a pass wrote: the depth is for both.
        ThreadHead { job: job.name.clone(), options, stage: thread.stage, cpu, targets, depth, batch, longest }
    };
    Ok(Header {
        program: PROGRAM.into(),
        unix_ms,
        mode: mode.to_string(),
        machine: machine.describe(),
        clock: "CLOCK_MONOTONIC, ns".into(),
        devices: rig.devices().iter().map(device).collect::<Result<_>>()?,
        threads: plan.threads.iter().zip(cpus).map(thread).collect(),
        cpus: machine.host.len(),
    })
}

/// Where each thread of the plan runs, as an index into the host's CPUs.
fn cpus(plan: &Plan, machine: &Machine) -> Vec<u32> {
    let mut cpus = vec![0; plan.threads.len()];
    for stage in 0..plan.stages {
        let threads = plan.threads.iter().enumerate().filter(|(_, thread)| thread.stage == stage);
        let (numbers, wishes): (Vec<usize>, Vec<Vec<u32>>) = threads.map(|(number, thread)| (number, thread.cpus.clone())).unzip();
        for (number, cpu) in numbers.into_iter().zip(machine.place(&wishes)) {
            cpus[number] = machine.host.iter().position(|&host| host == cpu).unwrap_or(0) as u32;
        }
    }
    cpus
}

fn timing(profile: &Profile) -> Timing {
    let times = |s: &reap::Service| ServiceTimes {
        base_ns: s.base.0,
        jitter_ns: s.jitter.0,
        tail_ppm: s.tail_ppm,
        tail_ns: s.tail.0,
        tail_run: s.tail_run,
    };
    let hidden = &profile.hidden;
    Timing {
        profile: profile.name.clone(),
        channels: profile.channels,
        bytes_per_second: profile.bandwidth,
        iops: profile.iops,
        iops_burst: profile.iops_burst,
        moves_data: profile.moves_data,
        hidden: Coalescing {
            entries: hidden.entries,
            time_ns: hidden.time.0,
            announced_per_second: hidden.announced_per_s,
            announced_burst: hidden.announced_burst,
            messages_per_second: hidden.messages_per_s,
        },
        read: times(&profile.read),
        write: times(&profile.write),
        flush: times(&profile.flush),
    }
}

/// What the run itself measured.
pub fn figures(ended: &[Ended]) -> Figures {
    let mut all = Counted::default();
    let mut latency = workload::Latency::default();
    for end in ended {
        all.merge(&end.ran.counted);
        let stats = end.generator.stats();
        for op in [&stats.read, &stats.write] {
            latency.merge(if op.lat.histogram.is_some() { &op.lat } else { &op.clat });
        }
    }
    let at = latency.histogram.map(|h| h.percentiles(&[50.0, 99.0, 99.9])).unwrap_or_default();
    let percentile = |n: usize| at.get(n).copied().unwrap_or_default();
    Figures {
        ios: all.ios,
        wall_ns: all.wall.0,
        cpu_ns_per_io: all.cpu_ns_per_io().unwrap_or(0.0),
        notify_ns_per_io: all.per_io(all.notify_ns).unwrap_or(0.0),
        messages: all.messages,
        wakeups: all.host.wakeups,
        sq_doorbells: all.sq_doorbells,
        p50_ns: percentile(0),
        p99_ns: percentile(1),
        p999_ns: percentile(2),
    }
}
