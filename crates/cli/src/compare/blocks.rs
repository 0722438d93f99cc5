//! Runs blocks: short stretches of the job, each in one completion mode, on devices that stay open.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use completion::{LatencyPrice, Mode};
use reap::{Device, Measured, Nanos};
use workload::plan::{Plan, Thread};
use workload::report::PathFigures;
use workload::{Generator, Job, Latency};

use crate::bench::{Control, Counted, Hired, PathMark, Progress, Ran, Rig, over_all};
use crate::machine;

use super::host::{Clocks, Host};
use super::seats::Seats;

/// What one block measured, over all host threads.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// How long job threads waited for a CPU, and the hypervisor had theirs, where the device is outside this process.
    pub away: Option<Nanos>,
    /// CPU time that other threads of this process had meanwhile, there as well: the kernel's workers, and the library's.
    pub beside: Nanos,
    /// I/Os per second.
    pub iops: f64,
    /// What it cost.
    pub counted: Counted,
    /// From the decision to issue until the completion was found; with a rate, from the intended start.
    pub latency: Latency,
    /// How long it took, the ramp included.
    pub took: Nanos,
    /// CPU time that background threads had meanwhile.
    pub background: Option<Nanos>,
    /// What each path of devices that have several did.
    pub paths: Vec<PathFigures>,
}

/// How a block is run.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// How completions are found.
    pub mode: Mode,
    /// How late `adaptive` may be; `None`: as the device was opened.
    pub price: Option<LatencyPrice>,
    /// The jobs, prepared by [`prepare`].
    pub jobs: &'a [Job],
    /// Blocks of one seed issue the same I/Os.
    pub seed: u64,
}

/// A job as blocks run it: from start to end of the block without a pause, measured as blocks are compared.
pub fn prepare(job: &Job, ramp: Nanos, length: Nanos) -> Job {
    let timed = job.measure.slat || job.measure.clat || job.measure.lat;
    let mut job = job.clone();
    (job.ramp_time, job.runtime, job.time_based) = (ramp, Some(length), true);
    (job.start_delay, job.number_ios, job.io_size, job.loops) = ((Nanos::ZERO, Nanos::ZERO), None, None, 1);
    job.verify = None;
    job.measure.slat = false;
    job.measure.clat = false;
    (job.measure.lat, job.measure.lat_percentiles) = (timed, timed);
    job
}

/// The host threads, waiting for blocks.
pub struct Field {
    threads: Vec<Seat>,
    price: LatencyPrice,
    /// Keeps an embedded device awake between blocks.
    _measured: Option<Measured>,
    /// Where the device is outside this process.
    host: Option<Host>,
    devices: Vec<Device>,
    /// Their names in the jobs.
    names: Vec<Option<String>>,
    /// Threads of the plan, in order.
    plan: Vec<Thread>,
    targets: Vec<Vec<workload::Target>>,
}

struct Seat {
    orders: Sender<Order>,
    answers: Receiver<(Generator, Result<Ran>)>,
}

/// What a thread is to run.
struct Order {
    mode: Mode,
    price: LatencyPrice,
    generator: Generator,
}

impl Field {
    /// Starts a thread for each of the plan's, with its queues and buffers. They work until `stop` is set.
    ///
    /// # Errors
    /// A thread cannot be set up.
    pub fn new(jobs: &[Job], plan: &Plan, rig: &Rig, seats: &Seats, host_work: Nanos, stop: &Arc<AtomicBool>) -> Result<Field> {
        let Some(device) = rig.devices().first() else { bail!("the job uses no device") };
        let (mut threads, mut clocks) = (Vec::new(), Vec::new());
        for (thread, cpus) in plan.threads.iter().zip(&seats.threads) {
            let hired = rig.hire(jobs, thread, host_work);
            let ((orders, take), (answer, answers), (settled, settles)) = (channel(), channel(), channel());
            let (stop, cpus) = (stop.clone(), cpus.clone());
            thread::Builder::new()
                .name(format!("reap-job-{}", thread.number))
                .spawn(move || serve(hired, &cpus, &stop, (&settled, &take, &answer)))
                .context("cannot start a job thread")?;
            clocks.push(settles.recv().map_err(|_| gone())??);
            threads.push(Seat { orders, answers });
        }
        let targets = plan.threads.iter().map(|thread| rig.targets(thread)).collect::<Result<_>>()?;
        let (devices, names) = (rig.devices().to_vec(), plan.targets.clone());
        let _measured = device.embedded().map(|embedded| embedded.measure());
        let host = seats.outside.then(|| Host::new(clocks, seats.used.clone()));
        Ok(Field { threads, price: rig.latency_price(), _measured, host, devices, names, plan: plan.threads.clone(), targets })
    }

    /// Runs one block.
    ///
    /// # Errors
    /// An I/O failed.
    pub fn run(&mut self, block: Block<'_>) -> Result<Sample> {
        let mut generators = Vec::with_capacity(self.plan.len());
        for (thread, targets) in self.plan.iter().zip(&self.targets) {
            let job = Job { seed: Some(block.seed), ..block.jobs[thread.job].clone() };
            generators.push(Generator::new(&job, thread.seat(block.seed), targets)?);
        }
        let began = hw::now();
        let paths = PathMark::new(&self.devices);
        let host = self.host.as_ref().map(Host::read);
        for (seat, generator) in self.threads.iter().zip(generators) {
            let order = Order { mode: block.mode, price: block.price.unwrap_or(self.price), generator };
            seat.orders.send(order).map_err(|_| gone())?;
        }
        let mut sample = Sample::default();
        for (seat, thread) in self.threads.iter().zip(&self.plan) {
            let (generator, ran) = seat.answers.recv().map_err(|_| gone())?;
            let mut ran = ran?;
            if let Some(failure) = generator.failure() {
                let said = ran.first_error.take().map_or(String::new(), |error| format!(" ({error})"));
                bail!("job '{}', thread {}: {failure}{said}", block.jobs[thread.job].name, thread.number);
            }
            sample.add(&generator, &ran);
        }
        if let Some((host, before)) = self.host.as_ref().zip(host) {
            let after = host.read();
            (sample.away, sample.beside) = (Some(before.away(&after)), before.beside(&after));
        }
        sample.took = hw::now() - began;
        sample.paths = paths.since(&self.devices, &self.names);
        Ok(sample)
    }
}

impl Sample {
    /// Adds a thread.
    fn add(&mut self, generator: &Generator, ran: &Ran) {
        let stats = generator.stats();
        let span = stats.read.runtime.max(stats.write.runtime);
        if span > Nanos::ZERO {
            self.iops += (stats.read.ios + stats.write.ios) as f64 / span.as_secs_f64();
        }
        self.counted.merge(&ran.counted);
        for op in [&stats.read, &stats.write] {
            self.latency.merge(op.latency());
        }
    }

    /// Puts what other threads of this process did into the price of the I/Os, but for `others` (nanoseconds), who are no part of the
    /// host: as much of it as of the block was measured.
    pub fn charge(&mut self, others: Nanos) {
        let part = self.counted.wall.0 as f64 / self.took.0.max(1) as f64;
        let beside = self.beside.0.saturating_sub(others.0);
        self.counted.cpu += Nanos((beside as f64 * part.min(1.0)) as u64);
    }

    /// Blocks of one mode, equally long, as if they were one; `None` of none.
    pub fn in_turn(blocks: &[&Sample]) -> Option<Sample> {
        let (first, later) = blocks.split_first()?;
        let mut sum = (*first).clone();
        for block in later {
            sum.away = sum.away.zip(block.away).map(|(a, b)| a + b);
            sum.beside += block.beside;
            sum.iops += block.iops;
            sum.counted.then(&block.counted);
            sum.latency.merge(&block.latency);
            sum.took += block.took;
            sum.background = sum.background.zip(block.background).map(|(a, b)| a + b);
        }
        sum.iops /= blocks.len() as f64;
        sum.paths = over_all(&blocks.iter().map(|block| block.paths.as_slice()).collect::<Vec<_>>());
        Some(sum)
    }
}

fn gone() -> anyhow::Error {
    anyhow!("a job thread has ended")
}

/// A thread's life: block after block.
fn serve(hired: Hired, cpus: &[usize], stop: &AtomicBool, (settled, orders, answers): Desk<'_>) {
    machine::settle(cpus);
    let mut worker = match hired.settle() {
        Ok(worker) => worker,
        Err(error) => {
            _ = settled.send(Err(error));
            return;
        }
    };
    if settled.send(Clocks::of_current()).is_err() {
        return;
    }
    let progress = Progress::default();
    while let Ok(Order { mode, price, mut generator }) = orders.recv() {
        let ran = worker.set_mode(mode).and_then(|()| {
            worker.set_latency_price(price);
            worker.run(&mut generator, &Control { stop: [stop, stop], progress: &progress })
        });
        if answers.send((generator, ran)).is_err() {
            return;
        }
    }
}

/// Where a thread says that it has what it needs, takes orders, and answers.
type Desk<'a> = (&'a Sender<Result<Clocks>>, &'a Receiver<Order>, &'a Sender<(Generator, Result<Ran>)>);
