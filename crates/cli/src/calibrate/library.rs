//! What the library itself costs: the polled path, submission and completion timed apart. The embedded device has a CPU of
//! its own and is waited for in between, so that entries are there when they are looked for, in the other CPU's cache.

use anyhow::{Context, Result};
use reap::{Completion, Device, DmaBuf, EmbeddedOptions, Instant, Measured, Mode, Nanos, OpenOptions, Queue, Request};

use super::list::Found;
use super::{Sampler, time_each};
use crate::compare::statistics::median;

/// I/Os of a large batch.
const LARGE: usize = 32;
/// Batches of a sample.
const BATCHES: usize = 100;
/// The device is done with a large batch by then.
const DEVICE: Nanos = Nanos(20_000);

/// What is copied, and from how much.
const PAGE: usize = 4096;
const MEDIUM: usize = 64 << 20;

struct Rig {
    queue: Queue,
    /// Keeps the device awake.
    _measured: Option<Measured>,
    free: Vec<DmaBuf>,
    done: Vec<Completion>,
}

impl Rig {
    /// One batch of 4 KiB reads, waited for after `pause`: nanoseconds to submit, to poll and take, and to hand over.
    fn batch(&mut self, ios: usize, pause: Nanos) -> Option<[f64; 3]> {
        let ns = self.queue.namespaces().first().copied()?;
        let from = self.free.len().checked_sub(ios)?;
        let requests = self.free.drain(from..).zip(0..).map(|(buf, n)| Request::read(&ns, n * 8, buf));
        let begin = hw::now();
        self.queue.submit_at(Instant::from_nanos(begin.0), requests).ok()?;
        let submitted = hw::now();
        let mut polls = hw::now();
        while polls < submitted + pause {
            std::hint::spin_loop();
            polls = hw::now();
        }
        self.queue.wait(ios, None).ok()?;
        let taken = hw::now();
        self.queue.reap(&mut self.done);
        let handed = hw::now();
        if self.done.len() < ios {
            return None;
        }
        self.free.extend(self.done.drain(..).filter_map(|completion| completion.buf));
        Some([submitted - begin, taken - polls, handed - taken].map(|span| span.0 as f64))
    }

    /// The medians of many batches.
    fn medians(&mut self, ios: usize) -> Option<[f64; 3]> {
        let mut all: [Vec<f64>; 3] = Default::default();
        for _ in 0..BATCHES {
            let one = self.batch(ios, DEVICE)?;
            all.iter_mut().zip(one).for_each(|(list, ns)| list.push(ns));
        }
        let [a, b, c] = all.map(|list| median(&list));
        Some([a?, b?, c?])
    }
}

/// A batch of one and a large one: what a call costs, and what each I/O of it does.
///
/// # Errors
/// The device cannot be opened.
pub fn measure(sampler: &mut Sampler<'_>, device_cpu: usize, found: &mut Found) -> Result<()> {
    let embedded = EmbeddedOptions { device_cpu: Some(device_cpu), ..EmbeddedOptions::default() };
    let options = OpenOptions::new().mode(Mode::POLL).embedded(embedded);
    let device = Device::open_with("mem:64M?profile=null", &options).context("cannot open a device to measure the library on")?;
    let free = (0..LARGE).map(|_| device.buffer(4096)).collect::<Result<_, _>>().context("no room for buffers")?;
    let mut rig = Rig {
        queue: device.queue()?,
        _measured: device.embedded().map(|embedded| embedded.measure()),
        free,
        done: Vec::with_capacity(LARGE),
    };
    let clock = found.clock.map_or(0.0, |clock| clock.value);
    found.library = sampler.repeat(|| {
        let (one, many) = (rig.medians(1)?, rig.medians(LARGE)?);
        let more = (LARGE - 1) as f64;
        let each = |n: usize| ((many[n] - one[n]) / more).max(0.0);
        let call = |n: usize| (one[n] - each(n) - clock).max(0.0);
        Some([call(0), each(0), call(1), each(1), call(2), each(2)])
    });
    // Memory that is in no cache, as a medium's is.
    let (medium, mut buffer, mut at) = (vec![1u8; MEDIUM], vec![0u8; PAGE], 0);
    found.serve = sampler.one(|| {
        // Waited for at once: the device's nanoseconds for each command, without its data.
        let each: Vec<f64> = (0..BATCHES).map_while(|_| rig.batch(LARGE, Nanos::ZERO)).map(|[_, wait, _]| wait / LARGE as f64).collect();
        let copy = time_each(500, || {
            // A prime number of pages on, so that nothing is foreseen.
            at = (at + 5_003 * PAGE) % MEDIUM;
            if let Some(page) = medium.get(at..at + PAGE) {
                buffer.copy_from_slice(page);
                std::hint::black_box(&buffer);
            }
        });
        Some(median(&each)? + copy)
    });
    Ok(())
}
