//! Opens the devices of a plan, creates the workers of its threads, and fills embedded devices
//! before measuring: reads of unwritten blocks return one shared page of zeros, which stays in the
//! CPU cache and makes results too good.

use std::fs::DirBuilder;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, bail};
use completion::{Mode, Spin};
use reap::{Backing, Device, DeviceUri, EmbeddedOptions, KernelUri, Nanos, OpenOptions, Request};
use workload::plan::{Plan, Thread};
use workload::{Generator, Job, TargetSize};

use super::target::TargetDevice;
use super::worker::{Worker, first_namespace};
use crate::machine::Machine;

/// Maximum threads that can use a device at once.
const MAX_QUEUES: usize = 256;
/// Maximum commands on one hardware queue; the controller may allow fewer.
const MAX_TAGS: u64 = 4095;
/// Maximum bytes that are filled over all devices, which takes a few seconds.
const MAX_FILLED: u64 = 4 << 30;
/// Of a region larger than the limit only the start is filled, up to the limit divided by this, so
/// that starting stays fast.
const LARGE_REGION_DIVISOR: u64 = 4;

/// Bytes of each write that fills a device.
const FILL_BLOCK: u64 = 256 << 10;
/// Fill writes in flight.
const FILL_DEPTH: usize = 8;
/// ENOSPC.
const NO_SPACE: i32 = 28;

/// How the devices of a run are opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// One per target of the plan.
    pub devices: &'a [TargetDevice],
    /// The mode that queues start with.
    pub mode: Mode,
    /// How polling modes spin while other threads are runnable on the CPU.
    pub spin: Spin,
    /// Hardware queues per device; `None`: one per thread.
    pub queues: Option<u16>,
    /// Record histograms of wake-ups.
    pub histograms: bool,
}

/// Open devices, in the order of the plan's targets.
#[derive(Debug)]
pub struct Rig<'a> {
    /// The devices, in the order of the plan's targets.
    pub devices: Vec<Device>,
    /// How they were opened. New workers use its mode.
    pub setup: Setup<'a>,
}

/// Requirements of the jobs on one device at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requirements {
    threads: usize,
    tags: u64,
    buffer_bytes: u64,
}

impl<'a> Rig<'a> {
    /// Opens the devices that `plan` names.
    ///
    /// # Errors
    /// A device cannot be opened, or the jobs need more of it than it has.
    pub fn open(jobs: &[Job], plan: &Plan, setup: Setup<'a>, machine: &Machine) -> Result<Rig<'a>> {
        // Of all devices before the first is opened, as their buffers share the memory.
        let needs: Vec<Requirements> =
            (0..setup.devices.len()).map(|target| need(jobs, plan, target)).collect();
        let buffers: u64 = needs.iter().map(|need| need.buffer_bytes).fold(0, u64::saturating_add);
        // An error here, rather than the OOM killer during the run.
        if buffers > hw::memory_bytes() / 2 {
            bail!(
                "the jobs' buffers (iodepth × block size) need {} MiB, more than half of the memory; lower iodepth, bs or numjobs",
                buffers >> 20
            );
        }
        let open = |(TargetDevice { uri, .. }, need): (&TargetDevice, Requirements)| {
            if need.threads > MAX_QUEUES {
                bail!(
                    "{} job threads use the device {uri} at once, and the maximum is {MAX_QUEUES}; lower numjobs",
                    need.threads
                );
            }
            // There are never more hardware queues than threads: idle ones would take tags and
            // memory.
            let hardware_queues =
                setup.queues.map_or(need.threads, usize::from).clamp(1, need.threads);
            // Each mode that the kernel carries out (`Mode::KERNELS`) needs io_urings of its own:
            // one more software queue per thread, whose rings are created only when the thread
            // takes that queue.
            let kinds = if uri.parse::<KernelUri>().is_ok() { 1 + Mode::KERNELS.len() } else { 1 };
            let options = OpenOptions::new()
                .software_queues(kinds * need.threads)
                .hardware_queues(hardware_queues)
                .depth(need.tags.div_ceil(hardware_queues as u64).clamp(16, MAX_TAGS) as u32)
                .mode(setup.mode)
                .pool_bytes(need.buffer_bytes.saturating_mul(2).saturating_add(256 << 20))
                .embedded(EmbeddedOptions {
                    device_cpu: machine.device,
                    ..EmbeddedOptions::default()
                });
            Device::open_with(uri, &options).map_err(|error| {
                let said = error.to_string();
                // Most errors have the path, the address or the parameter already.
                let mut parts =
                    uri.split(['?', '&']).filter_map(|part| Some(part.split_once([':', '='])?.1));
                match parts.any(|part| !part.is_empty() && said.contains(part)) {
                    true => error.into(),
                    false => anyhow::Error::from(error).context(format!("device {uri}")),
                }
            })
        };
        for (target, device) in
            setup.devices.iter().enumerate().filter(|(_, device)| device.laid_out)
        {
            // As in fio, directories in `filename=` are created, but not that of `directory=`.
            let uses = |thread: &&Thread| thread.targets.contains(&target);
            let there = |thread: &Thread| {
                jobs[thread.job].directory.as_ref().is_none_or(|place| Path::new(place).is_dir())
            };
            if let Ok(KernelUri { path, bytes: Some(_), .. }) = device.uri.parse()
                && let Some(place) = path.parent().filter(|place| !place.starts_with("/dev"))
                && plan.threads.iter().filter(uses).all(there)
            {
                // An error is ignored here: creating the file fails, too, and is reported.
                _ = DirBuilder::new().recursive(true).mode(0o700).create(place);
            }
        }
        let devices: Vec<Device> =
            setup.devices.iter().zip(needs).map(open).collect::<Result<_>>()?;
        // Verification would fail on a device that does not store data.
        for thread in plan.threads.iter().filter(|thread| jobs[thread.job].verify.is_some()) {
            let embedded = thread.targets.iter().filter_map(|&target| devices[target].embedded());
            if let Some(profile) = embedded
                .map(|embedded| embedded.profile().clone())
                .find(|profile| !profile.moves_data)
            {
                bail!(
                    "job '{}' has verify=, but profile `{}` does not store data; use another profile",
                    jobs[thread.job].name,
                    profile.name
                );
            }
        }
        Ok(Rig { devices, setup })
    }

    /// The targets of `thread`, for its generator.
    ///
    /// # Errors
    /// A device has no usable namespace.
    pub fn targets(&self, thread: &Thread) -> Result<Vec<TargetSize>> {
        let target = |(&index, &bytes): (&usize, &u64)| {
            let namespace = first_namespace(&self.devices[index])?;
            let size_at_setup = self.setup.devices[index].laid_out.then_some(bytes);
            Ok(TargetSize {
                bytes: namespace.bytes(),
                block: namespace.block_bytes(),
                size_at_setup,
            })
        };
        thread.targets.iter().zip(&thread.sizes_at_setup).map(target).collect()
    }

    /// Returns a function that creates the worker of `thread`. The function has to run on that
    /// thread, which will own the queues. `host_work`: CPU time that the worker spends per
    /// completion, in place of an application.
    pub fn worker(
        &self,
        jobs: &[Job],
        thread: &Thread,
        host_work: Nanos,
    ) -> impl FnOnce() -> Result<Worker> + Send + use<> {
        let devices: Vec<Device> =
            thread.targets.iter().map(|&target| self.devices[target].clone()).collect();
        let (job, Setup { mode, spin, histograms, .. }) = (jobs[thread.job].clone(), self.setup);
        move || {
            let mut worker = Worker::new(&job, devices, mode, host_work)
                .with_context(|| format!("job '{}'", job.name))?;
            worker.set_spin(spin);
            if histograms {
                worker.count_wakeups();
            }
            Ok(worker)
        }
    }

    /// Fills the regions that `readers` will read, on embedded devices in memory.
    ///
    /// # Errors
    /// A write fails.
    pub fn fill(&self, readers: &[(&Thread, &Generator)], stop: &AtomicBool) -> Result<Filled> {
        let max = MAX_FILLED.min(hw::memory_bytes() / 5) / self.devices.len().max(1) as u64;
        let mut all = Filled::default();
        for (target, device) in self.devices.iter().enumerate() {
            // Data of files and block devices must not be overwritten.
            if device.embedded().is_none() {
                continue;
            }
            // Of a multipath device, the embedded controller of its first path.
            let uri = DeviceUri::behind(&device.description().uri)?;
            let regions = readers
                .iter()
                .flat_map(|(thread, generator)| thread.targets.iter().zip(generator.regions()));
            let read = regions.filter(|(used, _)| **used == target).map(|(_, region)| region);
            // The smallest region that contains the regions of all readers.
            let read = read.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
            if let Some(region) = read.filter(|_| needs_fill(&uri)) {
                let whole = region.end - region.start <= max;
                let max = if whole { max } else { max / LARGE_REGION_DIVISOR };
                let filled = fill(device, region, max, stop)?;
                all.wanted += filled.wanted;
                all.written += filled.written;
            }
        }
        Ok(all)
    }
}

/// Result of filling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that jobs will read.
    pub wanted: u64,
    /// Bytes written, from the start of the regions on.
    pub written: u64,
}

/// Fills a buffer with pseudo-random data, which also faults in its pages. Buffers get the same
/// data only if `seed` is the same.
pub fn scribble(buf: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buf.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

/// Whether a device has to be filled. False for a device on a file, and for the profile `null`,
/// which transfers no data.
fn needs_fill(uri: &DeviceUri) -> bool {
    matches!(uri.backing, Backing::Mem { .. }) && uri.profile != "null"
}

/// Fills at most `max` bytes of `region`. Ends early if `stop` is set, or if no memory is left for
/// the medium.
///
/// # Errors
/// A write failed for another reason.
fn fill(device: &Device, region: Range<u64>, max: u64, stop: &AtomicBool) -> Result<Filled> {
    let namespace = first_namespace(device)?;
    let unit = u64::from(namespace.block_bytes());
    // A queue of its own, dropped before the jobs open theirs.
    let queue = device.queue()?;
    let wanted = region.end - region.start;
    let (mut at, end) = (region.start / unit * unit, region.start + wanted.min(max) / unit * unit);
    let mut filled = Filled { wanted, written: 0 };
    let mut idle = Vec::with_capacity(FILL_DEPTH);
    for seed in 0..FILL_DEPTH as u64 {
        let mut buf = device
            .buffer(FILL_BLOCK as usize)
            .context("no memory for buffers to fill the medium")?;
        scribble(&mut buf, seed + 1);
        idle.push(buf);
    }
    let mut found = Vec::with_capacity(FILL_DEPTH);
    loop {
        while at < end
            && !stop.load(Relaxed)
            && let Some(buf) = idle.pop()
        {
            let bytes = FILL_BLOCK.min(end - at);
            let request = Request::write(&namespace, at / unit, buf).bytes(bytes as u32).tag(bytes);
            queue.submit([request]).map_err(|(why, _)| why)?;
            at += bytes;
        }
        if queue.in_flight() == 0 && queue.finished() == 0 {
            return Ok(filled);
        }
        queue.wait(1, None)?;
        queue.reap(&mut found);
        for completion in found.drain(..) {
            match completion.result {
                Ok(()) => filled.written += completion.tag,
                // The limit of memory for media is reached; the rest stays unwritten.
                Err(error) if error.errno() == NO_SPACE => at = end,
                // Stopping makes pending requests fail, which is not an error.
                Err(_) if stop.load(Relaxed) => {}
                Err(error) => return Err(error).context("cannot fill the medium"),
            }
            idle.extend(completion.buf);
        }
    }
}

/// What the jobs require of `target` at most: the maximum of each number over all stages.
fn need(jobs: &[Job], plan: &Plan, target: usize) -> Requirements {
    let mut max = Requirements::default();
    for stage in 0..plan.stages {
        let mut need = Requirements::default();
        for thread in
            plan.threads.iter().filter(|t| t.stage == stage && t.targets.contains(&target))
        {
            let job = &jobs[thread.job];
            let depth = u64::from(job.iodepth.max(1));
            let bytes = job.block.read.max.max(job.block.write.max);
            need.threads += 1;
            // Long I/Os are split into commands of at most 1 MiB, plus a remainder.
            need.tags += depth.saturating_mul(1 + (bytes >> 20));
            need.buffer_bytes = need.buffer_bytes.saturating_add(
                depth.saturating_mul(bytes.clamp(512, 1 << 40).next_power_of_two()),
            );
        }
        // Stages run one after the other, so the device must serve the largest, not their sum.
        max = Requirements {
            threads: max.threads.max(need.threads),
            tags: max.tags.max(need.tags),
            buffer_bytes: max.buffer_bytes.max(need.buffer_bytes),
        };
    }
    max
}

#[cfg(test)]
mod tests;
