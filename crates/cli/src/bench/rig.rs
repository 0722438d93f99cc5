//! The devices of a plan, and the workers of its threads.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use completion::{LatencyPrice, Mode, Spin};
use reap::{Device, DeviceUri, EmbeddedOptions, KernelUri, Nanos, OpenOptions};
use workload::plan::{Plan, Thread};
use workload::{Generator, Job, Region, Target};

use super::fill::{self, Filled};
use super::meant::Named;
use super::worker::{Worker, first_namespace};
use crate::machine::Machine;

/// Threads that can use a device at once.
const MOST_QUEUES: usize = 256;
/// What jobs may keep in flight on one hardware queue; the controller may allow less.
const MOST_TAGS: u64 = 4095;
/// Most that is filled, over all devices: a few seconds of writing.
const MOST_FILLED: u64 = 4 << 30;
/// Of what is larger, the part of that limit that is filled: for jobs that begin at the start of a device.
const PART_FILLED: u64 = 4;

/// How the devices of a run are opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// One for each of the plan's targets.
    pub devices: &'a [Named],
    /// The mode that queues start with.
    pub mode: Mode,
    /// How late `adaptive` may be.
    pub price: LatencyPrice,
    /// What spinning means where others want the CPU.
    pub spin: Spin,
    /// Hardware queues of each device; `None`: one for each thread.
    pub queues: Option<u16>,
    /// Count what wake-ups bring.
    pub histograms: bool,
}

/// Open devices, in the order of the plan's targets.
#[derive(Debug)]
pub struct Rig {
    devices: Vec<Device>,
    mode: Mode,
    price: LatencyPrice,
    spin: Spin,
    histograms: bool,
}

/// What the jobs need of one device at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Need {
    threads: usize,
    tags: u64,
    buffer_bytes: u64,
}

impl Rig {
    /// Opens the devices that `plan` names.
    ///
    /// # Errors
    /// A device cannot be opened, or the jobs need more of it than it has.
    pub fn open(jobs: &[Job], plan: &Plan, setup: Setup<'_>, machine: &Machine) -> Result<Rig> {
        let needs: Vec<Need> = (0..setup.devices.len()).map(|target| need(jobs, plan, target)).collect();
        let buffers: u64 = needs.iter().map(|need| need.buffer_bytes).fold(0, u64::saturating_add);
        if buffers > hw::memory_bytes() / 2 {
            bail!(
                "the jobs' buffers (iodepth × block size) take {} MiB, more than half of this machine's memory; lower iodepth, bs or numjobs",
                buffers >> 20
            );
        }
        let open = |(Named { uri, .. }, need): (&Named, Need)| {
            if need.threads > MOST_QUEUES {
                bail!("{} job threads use the device {uri} at once; it serves {MOST_QUEUES}: lower numjobs", need.threads);
            }
            let hardware_queues = setup.queues.map_or(need.threads, usize::from).clamp(1, need.threads);
            // On files queues are made as they are taken, and a mode of the kernel's own has queues of its own.
            let kinds = if uri.parse::<KernelUri>().is_ok() { 1 + Mode::KERNELS.len() } else { 1 };
            let options = OpenOptions::new()
                .software_queues(kinds * need.threads)
                .hardware_queues(hardware_queues)
                .depth(need.tags.div_ceil(hardware_queues as u64).clamp(16, MOST_TAGS) as u32)
                .mode(setup.mode)
                .latency_price(setup.price)
                .pool_bytes(need.buffer_bytes.saturating_mul(2).saturating_add(256 << 20))
                .embedded(EmbeddedOptions { device_cpu: machine.device, ..EmbeddedOptions::default() });
            Device::open_with(uri, &options).map_err(|error| {
                let said = error.to_string();
                // Most errors name the path, the address or the parameter themselves.
                let mut parts = uri.split(['?', '&']).filter_map(|part| Some(part.split_once([':', '='])?.1));
                match parts.any(|part| !part.is_empty() && said.contains(part)) {
                    true => error.into(),
                    false => anyhow::Error::from(error).context(format!("device {uri}")),
                }
            })
        };
        let devices: Vec<Device> = setup.devices.iter().zip(needs).map(open).collect::<Result<_>>()?;
        can_verify(jobs, plan, &devices)?;
        Ok(Rig { devices, mode: setup.mode, price: setup.price, spin: setup.spin, histograms: setup.histograms })
    }

    /// The devices, in the order of the plan's targets.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Workers that are hired from now on have queues in this mode.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// How late `adaptive` may be, unless a worker is told otherwise.
    pub fn latency_price(&self) -> LatencyPrice {
        self.price
    }

    /// The targets of `thread`, as its generator sees them.
    ///
    /// # Errors
    /// A device without a namespace that can be used.
    pub fn targets(&self, thread: &Thread) -> Result<Vec<Target>> {
        let target = |&index: &usize| {
            let namespace = first_namespace(&self.devices[index])?;
            Ok(Target { bytes: namespace.bytes(), block: namespace.block_bytes() })
        };
        thread.targets.iter().map(target).collect()
    }

    /// What makes the worker of `thread`, there: its queues belong to the thread that takes them.
    pub fn hire(&self, jobs: &[Job], thread: &Thread, host_work: Nanos) -> Hired {
        let devices = thread.targets.iter().map(|&target| self.devices[target].clone()).collect();
        Hired { job: jobs[thread.job].clone(), devices, mode: self.mode, host_work, spin: self.spin, histograms: self.histograms }
    }

    /// Writes over what `readers` are going to read, where that matters.
    ///
    /// # Errors
    /// A write fails.
    pub fn fill(&self, readers: &[(&Thread, &Generator)], stop: &AtomicBool) -> Result<Filled> {
        let most = MOST_FILLED.min(hw::memory_bytes() / 5) / self.devices.len().max(1) as u64;
        let mut all = Filled::default();
        for (target, device) in self.devices.iter().enumerate() {
            // What files and block devices hold is theirs.
            if device.embedded().is_none() {
                continue;
            }
            let uri = DeviceUri::behind(&device.description().uri)?;
            let regions = readers.iter().flat_map(|(thread, generator)| thread.targets.iter().zip(generator.regions()));
            let read = regions.filter(|(used, _)| **used == target).map(|(_, region)| region).reduce(cover);
            if let Some(region) = read.filter(|_| fill::matters(&uri)) {
                let most = if region.len <= most { most } else { most / PART_FILLED };
                let filled = fill::fill(device, region, most, stop)?;
                all.wanted += filled.wanted;
                all.written += filled.written;
            }
        }
        Ok(all)
    }
}

/// A worker to be, on its way to its thread.
#[derive(Debug)]
pub struct Hired {
    job: Job,
    devices: Vec<Device>,
    mode: Mode,
    host_work: Nanos,
    spin: Spin,
    histograms: bool,
}

impl Hired {
    /// The calling thread's worker.
    ///
    /// # Errors
    /// As [`Worker::new`].
    pub fn settle(self) -> Result<Worker> {
        let mut worker =
            Worker::new(&self.job, self.devices, self.mode, self.host_work).with_context(|| format!("job '{}'", self.job.name))?;
        worker.set_spin(self.spin);
        if self.histograms {
            worker.count_wakeups();
        }
        Ok(worker)
    }
}

/// The smallest region that holds both.
fn cover(a: Region, b: Region) -> Region {
    let start = a.start.min(b.start);
    Region { start, len: (a.start + a.len).max(b.start + b.len) - start }
}

/// A device that moves no data gives back nothing of what was written.
fn can_verify(jobs: &[Job], plan: &Plan, devices: &[Device]) -> Result<()> {
    for thread in plan.threads.iter().filter(|thread| jobs[thread.job].verify.is_some()) {
        let embedded = thread.targets.iter().filter_map(|&target| devices[target].embedded());
        if let Some(profile) = embedded.map(|embedded| embedded.profile().clone()).find(|profile| !profile.moves_data) {
            let job = &jobs[thread.job].name;
            bail!(
                "job '{job}': verify: the device's profile `{}` moves no data, so nothing of what is written can be read back",
                profile.name
            );
        }
    }
    Ok(())
}

/// The most that the threads of any one stage need of `target`.
fn need(jobs: &[Job], plan: &Plan, target: usize) -> Need {
    let mut most = Need::default();
    for stage in 0..plan.stages {
        let mut need = Need::default();
        for thread in plan.threads.iter().filter(|t| t.stage == stage && t.targets.contains(&target)) {
            let job = &jobs[thread.job];
            let depth = u64::from(job.iodepth.max(1));
            let bytes = job.block.read.max.max(job.block.write.max);
            need.threads += 1;
            // Long I/Os are split into commands of at most 1 MiB, and then some.
            need.tags += depth.saturating_mul(1 + (bytes >> 20));
            need.buffer_bytes = need.buffer_bytes.saturating_add(depth.saturating_mul(bytes.clamp(512, 1 << 40).next_power_of_two()));
        }
        most = Need {
            threads: most.threads.max(need.threads),
            tags: most.tags.max(need.tags),
            buffer_bytes: most.buffer_bytes.max(need.buffer_bytes),
        };
    }
    most
}

#[cfg(test)]
mod tests;
