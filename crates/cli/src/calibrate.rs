//! `reap calibrate`: measures costs of this machine for the simulator. It measures first
//! ([`Measurements`]) and then derives the simulator's costs, many of which are differences of two
//! measurements and have the noise of both.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use ::sim::Costs;
use anyhow::{Context, Result, anyhow, bail};
use hw::uring::{Cq, Enter, Entry, FileSlot, Options, Ring, Sq};
use hw::{EventFd, Poller};
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use reap::{Completion, Device, DmaBuf, EmbeddedOptions, Mode, OpenOptions, Queue, Request};
use serde_json::Value;
use units::Nanos;

use crate::args::CalibrateArgs;
use crate::compare::loops::IdleLoops;
use crate::compare::statistics::{self, median};
use crate::machine::{self, Machine};
use crate::output::{self, OptionalOutput, say};
use crate::rows::Estimate;
use crate::rows::table::{fitted, unruled, width, wrap};
use crate::{jobs, stop};

/// Samples per measurement. [`LONGEST`] limits the time of one measurement, [`ALL`] that of all.
const SAMPLES: usize = 31;
const LONGEST: Duration = Duration::from_millis(800);
const ALL: Duration = Duration::from_secs(17);
/// How often everything is measured at most: again if noise was greater than one of the prices.
const ATTEMPTS: u32 = 3;
/// Repetitions of cheap operations in a sample, and of sleeps.
const MANY: u32 = 2_000;
const SLEEPS: u32 = 100;
/// Length of a sleep that a timer ends.
const NAP: Nanos = Nanos(50_000);
/// Pause before each sample of what wake-ups take from a loop at idle priority.
const REST: Nanos = Nanos(2_000_000);
/// Pauses in nanoseconds after which a CPU without work is woken, to see from when on it is asleep.
const PAUSES: [u64; 8] = [0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000];
/// Timeout of a sleep that is not woken.
const LOST: Nanos = Nanos::from_secs(1);
/// Value that tells the other thread to end.
const END: u64 = u64::MAX;
/// I/Os of a large batch, and batches per sample. The device has completed a batch after
/// [`SERVED`].
const IOS: usize = 32;
const BATCHES: usize = 100;
const SERVED: Nanos = Nanos(20_000);
/// Bytes that the device's thread copies per I/O, and the size of its medium.
const PAGE: usize = 4096;
const MEDIUM: usize = 64 << 20;

/// Runs `reap calibrate`.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    let machine = Machine::here()?;
    let stop = stop::on_signal()?;
    let file = OptionalOutput::open(args.output.as_deref())?;
    machine::prepare_job_thread(&machine.job_cpus[..1]);
    let bar = output::bar(if machine.device.is_some() { 6 } else { 2 }, "steps");
    let (mut costs, mut prices) = measure(args, &machine, &stop, &bar)?;
    for _ in 1..ATTEMPTS {
        if free(&costs).is_none() && costs.thread.idle_exit > Nanos::ZERO {
            break;
        }
        bar.reset();
        (costs, prices) = measure(args, &machine, &stop, &bar)?;
    }
    bar.finish_and_clear();
    if machine.device.is_none() {
        say(
            "note: there is one CPU; costs between two CPUs are taken from the built-in price list",
        );
    }
    if stop.load(Relaxed) {
        bail!("stopped; nothing was written");
    }
    let (machine, wrong) = (machine.describe(), free(&costs));
    let written = match (&args.output, &wrong) {
        (Some(path), Some(wrong)) => Err(anyhow!(
            "{} is not written: {wrong}; calibrate again while less else runs",
            path.display()
        )),
        (None, Some(wrong)) => {
            say(format_args!("warning: {wrong}; calibrate again while less else runs"));
            Ok(())
        }
        (_, None) => file.write(|| Ok(toml(&prices, &machine))),
    };
    output::all([output::print(&table(&prices, &machine, width())), written])?;
    Ok(ExitCode::SUCCESS)
}

/// Measures everything once. After a signal to stop the rest is not measured.
fn measure(
    args: &CalibrateArgs,
    machine: &Machine,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<(Costs, Vec<Price>)> {
    let sleep = Nanos(args.sleep_us.saturating_mul(1_000));
    let mut sampler =
        Sampler { stop, rng: Xoshiro256PlusPlus::seed_from_u64(1), until: Instant::now() + ALL };
    let mut found = Measurements::default();
    on_this_cpu(&mut sampler, &mut found)?;
    bar.inc(1);
    found.wake_up = wake_ups(&mut sampler, machine, sleep)?;
    bar.inc(1);
    if let Some(other) = machine.device {
        found.line = line(&mut sampler, other)?;
        bar.inc(1);
        found.sleep = across(&mut sampler, other, sleep, Waiter::poller, None)?
            .map(|[cpu, delay, signal, _]| [cpu, delay, signal]);
        bar.inc(1);
        found.awake = awake(&mut sampler, other, sleep.0, found.sleep)?;
        bar.inc(1);
        library(&mut sampler, other, &mut found)?;
    }
    let prices = prices(&found)?;
    Ok((::sim::file::read_costs("the prices", &toml(&prices, ""))?, prices))
}

/// Measurements in nanoseconds; `None` if not possible here.
#[derive(Clone, Debug, Default)]
struct Measurements {
    /// Reading the clock.
    clock: Option<Estimate>,
    /// A system call that does nothing.
    syscall: Option<Estimate>,
    /// Signalling an eventfd on which no thread sleeps; and with a wait that returns at once.
    signal: Option<Estimate>,
    signal_and_return: Option<Estimate>,
    /// Switch between two threads of one CPU by eventfd: half a round trip.
    switch: Option<Estimate>,
    /// A sleep of 50 µs that a timer ends: CPU time, and how late it ended.
    nap: Option<[Estimate; 2]>,
    /// A sleep ended by another CPU: the sleeper's CPU time, the delay from the signal until it
    /// runs, and the cost of the signal.
    sleep: Option<[Estimate; 3]>,
    /// CPU time that a wake-up takes from other work beyond the woken thread's: by an eventfd,
    /// io_uring and a timer.
    wake_up: [Option<Estimate>; 3],
    /// For how long a CPU without work stays awake.
    awake: Option<Estimate>,
    arm: Option<Estimate>,
    mask: Option<Estimate>,
    /// Transfer of a cache line between two CPUs.
    line: Option<Estimate>,
    /// Cost of the library's submit, poll and delivery, each per call and per I/O.
    library: Option<[Estimate; 6]>,
    /// Cost of a 4 KiB command for an embedded device's thread: processing, and copying data.
    serve: Option<Estimate>,
}

/// Repeats measurements until there are enough samples or the time is over.
struct Sampler<'a> {
    stop: &'a AtomicBool,
    rng: Xoshiro256PlusPlus,
    until: Instant,
}

impl Sampler<'_> {
    /// The median of the values that `sample` returns.
    fn one(&mut self, mut sample: impl FnMut() -> Option<f64>) -> Option<Estimate> {
        self.repeat(|| Some([sample()?])).map(|[figure]| figure)
    }

    /// The medians of the values that `sample` returns. A failed sample is `None`.
    fn repeat<const N: usize>(
        &mut self,
        mut sample: impl FnMut() -> Option<[f64; N]>,
    ) -> Option<[Estimate; N]> {
        let until = self.until.min(Instant::now() + LONGEST);
        let mut samples: Vec<[f64; N]> = Vec::with_capacity(SAMPLES);
        // The first one warms up caches and code.
        sample();
        while samples.len() < SAMPLES && (samples.len() < 3 || Instant::now() < until) {
            if self.stop.load(Relaxed) {
                return None;
            }
            samples.push(sample()?);
        }
        let mut figures = [Estimate { value: 0.0, interval: None }; N];
        for (n, figure) in figures.iter_mut().enumerate() {
            let values: Vec<f64> = samples.iter().map(|sample| sample[n]).collect();
            *figure = statistics::estimate(&values, &mut self.rng)?;
        }
        Some(figures)
    }
}

/// Nanoseconds per operation, if `work` does `n` of them.
fn time_each(n: u32, mut work: impl FnMut()) -> f64 {
    let began = hw::now();
    (0..n).for_each(|_| work());
    (hw::now() - began).0 as f64 / f64::from(n)
}

/// Measurements on one CPU: clock, system calls, timers, a switch between two threads.
fn on_this_cpu(sampler: &mut Sampler<'_>, found: &mut Measurements) -> Result<()> {
    let ((fd, poller), vectors) = (event()?, hw::vectors(1, true)?);
    let mut events = Vec::with_capacity(8);
    found.clock = sampler.one(|| Some(time_each(MANY, || _ = hw::now())));
    found.syscall =
        sampler.one(|| Some(time_each(MANY, || _ = std::os::unix::process::parent_id())));
    found.signal = sampler.one(|| Some(time_each(MANY, || fd.signal())));
    found.signal_and_return = sampler.one(|| {
        Some(time_each(MANY, || {
            fd.signal();
            _ = poller.wait(None, &mut events);
        }))
    });
    if let Some(flag) = vectors.flag(0) {
        found.arm = sampler.one(|| Some(time_each(MANY, || flag.arm())));
        found.mask = sampler.one(|| Some(time_each(MANY, || flag.disarm())));
    }
    found.nap = sampler.repeat(|| {
        let (mut late, cpu) = (Vec::new(), hw::thread_cpu());
        for _ in 0..SLEEPS / 4 {
            let until = hw::now() + NAP;
            poller.wait(Some(NAP), &mut events).ok()?;
            late.push((hw::now() - until).0 as f64);
        }
        Some([(hw::thread_cpu() - cpu).0 as f64 / f64::from(SLEEPS / 4), median(&late)?])
    });
    // A round trip has two switches, two writes and two reads.
    let ((ping, pinged), (pong, ponged), end) = (event()?, event()?, AtomicBool::new(false));
    thread::scope(|scope| {
        // The thread inherits this CPU.
        let echo = thread::Builder::new().name("reap-echo".into()).spawn_scoped(scope, || {
            let mut events = Vec::with_capacity(8);
            while !end.load(Acquire) && pinged.wait(Some(LOST), &mut events).is_ok() {
                pong.signal();
            }
        });
        echo.context("cannot start a thread")?;
        found.switch = sampler.one(|| {
            let round = time_each(SLEEPS * 5, || {
                ping.signal();
                _ = ponged.wait(Some(LOST), &mut events);
            });
            Some(round / 2.0)
        });
        end.store(true, Release);
        ping.signal();
        Ok(())
    })
}

/// An eventfd, and the file descriptor to sleep on.
fn event() -> Result<(EventFd, Poller)> {
    let (fd, poller) = (EventFd::new()?, Poller::new()?);
    poller.add(&fd, 0)?;
    Ok((fd, poller))
}

/// How long an idle CPU stays awake: between the shortest pause after which a wake-up takes more
/// than half as long as after `sleep`, and the pause before.
fn awake(
    sampler: &mut Sampler<'_>,
    other: usize,
    sleep: u64,
    deep: Option<[Estimate; 3]>,
) -> Result<Option<Estimate>> {
    let Some([_, delay, _]) = deep else { return Ok(None) };
    let between = |low, high| Some(Estimate { value: high, interval: Some([low, high]) });
    let mut low = 0.0;
    for pause in PAUSES.into_iter().filter(|&pause| pause < sleep) {
        let Some([_, woken, ..]) = across(sampler, other, Nanos(pause), Waiter::poller, None)?
        else {
            return Ok(None);
        };
        if woken.value > delay.value / 2.0 {
            return Ok(between(low, pause as f64));
        }
        low = pause as f64;
    }
    Ok(between(low, sleep as f64))
}

/// An eventfd, and how a thread waits for it.
struct Waiter {
    fd: EventFd,
    by: WaitMethod,
}

enum WaitMethod {
    Poller(Poller, Vec<u64>),
    Ring(Ring, Sq, Cq),
}

impl Waiter {
    /// A thread that waits by epoll, as for embedded controllers and drives.
    fn poller() -> Result<Waiter> {
        let (fd, poller) = event()?;
        Ok(Waiter { fd, by: WaitMethod::Poller(poller, Vec::with_capacity(8)) })
    }

    /// A thread that waits by io_uring, as for `kernel:` devices.
    fn ring() -> Result<Waiter> {
        let (fd, (ring, sq, cq)) = (
            EventFd::new()?,
            Ring::new(&Options { entries: 2, owner: true, files: 1, ..Options::default() })?,
        );
        ring.register_file(FileSlot(0), &fd)?;
        Ok(Waiter { fd, by: WaitMethod::Ring(ring, sq, cq) })
    }

    /// Sleeps until the eventfd is signalled; `None` if it was not signalled in time.
    fn wait(&mut self) -> Option<()> {
        match &mut self.by {
            WaitMethod::Poller(poller, events) => {
                poller.wait(Some(LOST), events).ok()?;
                (!events.is_empty()).then_some(())
            }
            WaitMethod::Ring(ring, sq, cq) => {
                sq.push(Entry::poll(FileSlot(0), false)).then_some(())?;
                ring.enter(Enter {
                    submit: sq.unsubmitted(),
                    wait_for: 1,
                    timeout: Some(LOST),
                    ..Enter::default()
                })
                .ok()?;
                cq.pop()?;
                cq.release();
                // The signal is read, so that the next poll does not find it.
                self.fd.drain();
                Some(())
            }
        }
    }
}

/// Measures [`Measurements::wake_up`]: the CPU time that is charged to a loop at idle priority on
/// the sleeper's CPU while the loop does not count. The loop keeps the CPU from idling, so the time
/// to leave an idle state is not included.
fn wake_ups(
    sampler: &mut Sampler<'_>,
    machine: &Machine,
    pause: Nanos,
) -> Result<[Option<Estimate>; 3]> {
    let loops = match IdleLoops::start(&machine.job_cpus[..1]) {
        Ok(loops) => loops,
        Err(error) => {
            say(format_args!(
                "note: what wake-ups take from other work is not measured: {error:#}"
            ));
            return Ok([None; 3]);
        }
    };
    let (_fd, poller) = event()?;
    let mut events = Vec::with_capacity(8);
    let timer = sampler.one(|| {
        taken(&loops, SLEEPS / 4, || {
            for _ in 0..SLEEPS / 4 {
                poller.wait(Some(NAP), &mut events).ok()?;
            }
            Some(())
        })
    });
    let Some(other) = machine.device else { return Ok([None, None, timer]) };
    let mut by = |waiter: fn() -> Result<Waiter>| {
        anyhow::Ok(across(sampler, other, pause, waiter, Some(&loops))?.map(|[.., taken]| taken))
    };
    Ok([by(Waiter::poller)?, by(Waiter::ring)?, timer])
}

/// CPU time that each of `n` wake-ups of `work` takes from the loops, in addition to the calling
/// thread's own. It is time that the scheduler charges to the loops; while other work runs the loops
/// wait and are charged nothing.
fn taken(loops: &IdleLoops, n: u32, work: impl FnOnce() -> Option<()>) -> Option<f64> {
    let rest = loops.read();
    hw::sleep_until(hw::now() + REST);
    let from = loops.read();
    work()?;
    Some(from.charged(&loops.read(), &rest)? / f64::from(n))
}

/// A sleep that the other CPU ends after `pause`: CPU time, delay and signal as in
/// [`Measurements::sleep`], and the CPU time that the sleep takes from the `loops` in addition.
fn across(
    sampler: &mut Sampler<'_>,
    other: usize,
    pause: Nanos,
    waiter: fn() -> Result<Waiter>,
    loops: Option<&IdleLoops>,
) -> Result<Option<[Estimate; 4]>> {
    let mut waiter = waiter()?;
    let fd = waiter.fd.try_clone()?;
    // The number of signals asked for, and of signals given; when the next one is due; when the last
    // one was given, and how long giving it took.
    let [asked, given, due, at, took] = [const { AtomicU64::new(0) }; 5];
    thread::scope(|scope| {
        let giver = thread::Builder::new().name("reap-signal".into()).spawn_scoped(scope, || {
            let pinned = hw::pin(other).is_ok();
            loop {
                let n = asked.load(Acquire);
                if n == END || !pinned {
                    return;
                }
                if n != given.load(Relaxed) {
                    while hw::now().0 < due.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                    let began = hw::now();
                    at.store(began.0, Relaxed);
                    fd.signal();
                    took.store((hw::now() - began).0, Relaxed);
                    given.store(n, Release);
                }
                std::hint::spin_loop();
            }
        });
        giver.context("cannot start a thread")?;
        // The measured CPU time of a sleep includes one read of the thread's clock.
        let read: Vec<f64> =
            (0..SLEEPS).map(|_| -(hw::thread_cpu().0 as f64) + hw::thread_cpu().0 as f64).collect();
        let (read, mut n) = (median(&read).unwrap_or(0.0), 0);
        let sleep = sampler.repeat(|| {
            let (mut delays, mut costs, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
            let mut sleeps = || {
                for _ in 0..SLEEPS {
                    n += 1;
                    due.store((hw::now() + pause).0, Relaxed);
                    asked.store(n, Release);
                    let cpu = hw::thread_cpu();
                    waiter.wait()?;
                    let woken = hw::now();
                    cpus.push((hw::thread_cpu() - cpu).0 as f64 - read);
                    // The giver may still be in its call, which is not a part of the sleep.
                    while given.load(Acquire) != n {
                        std::hint::spin_loop();
                    }
                    delays.push((woken - Nanos(at.load(Relaxed))).0 as f64);
                    costs.push(took.load(Relaxed) as f64);
                }
                Some(())
            };
            let taken = match loops {
                Some(loops) => taken(loops, SLEEPS, sleeps)?,
                None => sleeps().map(|()| 0.0)?,
            };
            Some([median(&cpus)?, median(&delays)?, median(&costs)?, taken])
        });
        asked.store(END, Release);
        Ok(sleep)
    })
}

/// A counter on its own cache lines.
#[derive(Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

/// Delay from a store on one CPU until another CPU that spins sees it: half a round trip.
fn line(sampler: &mut Sampler<'_>, other: usize) -> Result<Option<Estimate>> {
    let (ours, theirs, pinned) =
        (PaddedCounter::default(), PaddedCounter::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let echo = thread::Builder::new().name("reap-echo".into()).spawn_scoped(scope, || {
            pinned.store(hw::pin(other).is_ok(), Release);
            let mut seen = 0;
            while seen != END {
                let now = ours.0.load(Acquire);
                if now != seen {
                    seen = now;
                    theirs.0.store(now, Release);
                }
                std::hint::spin_loop();
            }
        });
        echo.context("cannot start a thread")?;
        let mut n = 0;
        let found = sampler.one(|| {
            let round = time_each(MANY, || {
                n += 1;
                ours.0.store(n, Release);
                while theirs.0.load(Acquire) != n {
                    std::hint::spin_loop();
                }
            });
            pinned.load(Acquire).then_some(round / 2.0)
        });
        ours.0.store(END, Release);
        Ok(found)
    })
}

/// An embedded device on its own CPU, used by polling.
struct LibraryRig {
    queue: Queue,
    free: Vec<DmaBuf>,
    done: Vec<Completion>,
}

impl LibraryRig {
    /// One batch of 4 KiB reads, polled after `pause`: nanoseconds to submit, to poll, and to
    /// deliver.
    fn batch(&mut self, ios: usize, pause: Nanos) -> Option<[f64; 3]> {
        let ns = self.queue.namespaces().first().copied()?;
        let from = self.free.len().checked_sub(ios)?;
        let requests =
            self.free.drain(from..).zip(0..).map(|(buf, n)| Request::read(&ns, n * 8, buf));
        let begin = hw::now();
        self.queue.submit_at(reap::Instant::from_nanos(begin.0), requests).ok()?;
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

    /// The medians of many batches. Their completions are in the other CPU's cache when polled.
    fn medians(&mut self, ios: usize) -> Option<[f64; 3]> {
        let mut all: [Vec<f64>; 3] = Default::default();
        for _ in 0..BATCHES {
            let one = self.batch(ios, SERVED)?;
            all.iter_mut().zip(one).for_each(|(list, ns)| list.push(ns));
        }
        let [a, b, c] = all.map(|list| median(&list));
        Some([a?, b?, c?])
    }
}

/// Separates the library's costs per call and per I/O by a batch of one and a large one.
fn library(sampler: &mut Sampler<'_>, device_cpu: usize, found: &mut Measurements) -> Result<()> {
    let embedded = EmbeddedOptions { device_cpu: Some(device_cpu), ..EmbeddedOptions::default() };
    let options = OpenOptions::new().mode(Mode::POLL).embedded(embedded);
    let device = Device::open_with("mem:64M?profile=null", &options)
        .context("cannot open a device to measure the library on")?;
    let free = (0..IOS)
        .map(|_| device.buffer(PAGE))
        .collect::<Result<_, _>>()
        .context("no room for buffers")?;
    // Keeps the device's thread polling.
    let _measured = device.embedded().map(|embedded| embedded.measure());
    let mut rig = LibraryRig { queue: device.queue()?, free, done: Vec::with_capacity(IOS) };
    let clock = found.clock.map_or(0.0, |clock| clock.value);
    found.library = sampler.repeat(|| {
        let (one, many) = (rig.medians(1)?, rig.medians(IOS)?);
        let each = |n: usize| ((many[n] - one[n]) / (IOS - 1) as f64).max(0.0);
        let call = |n: usize| (one[n] - each(n) - clock).max(0.0);
        Some([call(0), each(0), call(1), each(1), call(2), each(2)])
    });
    // Too large for caches, as a medium is.
    let (medium, mut buffer, mut at) = (vec![1u8; MEDIUM], vec![0u8; PAGE], 0);
    found.serve = sampler.one(|| {
        // Polled at once, so the time is the device's, without copying data.
        let each: Vec<f64> = (0..BATCHES)
            .map_while(|_| rig.batch(IOS, Nanos::ZERO))
            .map(|[_, wait, _]| wait / IOS as f64)
            .collect();
        let copy = time_each(500, || {
            // Step by a prime number of pages, which defeats prefetching.
            at = (at + 5_003 * PAGE) % MEDIUM;
            buffer.copy_from_slice(&medium[at..at + PAGE]);
            std::hint::black_box(&buffer);
        });
        Some(median(&each)? + copy)
    });
    Ok(())
}

/// A cost of the simulator.
#[derive(Clone, Debug)]
struct Price {
    group: String,
    name: String,
    ns: u64,
    /// How it was measured; `None`: a built-in value.
    how: Option<String>,
}

/// An error text if a price is 0 that cannot be 0 on any machine; `None` if there is no such price.
/// Prices are differences of measurements, and come out as 0 if the noise is greater than the
/// difference. `thread.idle_exit` may be 0: a sleep that is too short to reach an idle state leaves
/// none.
fn free(costs: &Costs) -> Option<String> {
    let (thread, wake_up) = (&costs.thread, &costs.wake_up);
    let prices = [
        ("thread.timer", thread.timer),
        ("wake_up.eventfd", wake_up.eventfd),
        ("wake_up.io_uring", wake_up.io_uring),
        ("wake_up.timer", wake_up.timer),
    ];
    let free: Vec<&str> =
        prices.into_iter().filter(|(_, price)| price.0 == 0).map(|(name, _)| name).collect();
    (!free.is_empty()).then(|| {
        format!(
            "{} came out as 0, which no machine has: the noise was greater than the cost",
            free.join(" and ")
        )
    })
}

/// The price list in a file that [`run`] has written.
pub fn price_list(path: &Path) -> Result<Costs> {
    let name = path.display().to_string();
    let text = jobs::text(path).with_context(|| format!("price list {name}"))?;
    let costs = ::sim::file::read_costs(&name, &String::from_utf8_lossy(&text))?;
    match free(&costs) {
        Some(wrong) => {
            bail!("price list {name}: {wrong}; run `reap calibrate` again while less else runs")
        }
        None => Ok(costs),
    }
}

/// The whole list: the measured costs, and for the rest the built-in costs of virtual machines.
fn prices(found: &Measurements) -> Result<Vec<Price>> {
    let shipped = Costs::VIRTUAL;
    let mut prices = Vec::new();
    if let Value::Object(groups) = serde_json::to_value(shipped)? {
        for (group, list) in groups {
            for (name, ns) in list.as_object().into_iter().flatten() {
                prices.push(Price {
                    group: group.clone(),
                    name: name.clone(),
                    ns: ns.as_u64().unwrap_or(0),
                    how: None,
                });
            }
        }
    }
    for (group, name, ns, how) in measured(found, &shipped) {
        let price = prices.iter_mut().find(|price| price.group == group && price.name == name);
        let price = price.with_context(|| format!("there is no price {group}.{name}"))?;
        (price.ns, price.how) = (ns.round().max(0.0) as u64, Some(how));
    }
    Ok(prices)
}

/// Group, name, nanoseconds and origin of each measured cost. `shipped` has the built-in ones.
fn measured(
    found: &Measurements,
    shipped: &Costs,
) -> Vec<(&'static str, &'static str, f64, String)> {
    let value = |e: Option<Estimate>, shipped: Nanos| e.map_or(shipped.0 as f64, |e| e.value);
    let library = |n: usize| found.library.map(|parts| parts[n]);
    let direct = [
        ("thread", "syscall", found.syscall),
        ("thread", "signal", found.signal),
        ("thread", "rouse", found.sleep.map(|[.., signal]| signal)),
        ("memory", "line_node", found.line),
        ("memory", "device_line", found.line),
        // A doorbell of an embedded device is a cache line, and part of the measured submission.
        ("memory", "mmio_delay", found.line),
        ("memory", "mmio", library(0)),
        ("library", "submit", library(1)),
        ("library", "entry", library(3)),
        ("library", "deliver", library(5)),
        ("library", "serve", found.serve),
        ("library", "arm", found.arm),
        ("library", "mask", found.mask),
        ("wake_up", "eventfd", found.wake_up[0]),
        ("wake_up", "io_uring", found.wake_up[1]),
        ("wake_up", "timer", found.wake_up[2]),
    ];
    let directly = |e: Estimate| {
        let between = e
            .interval
            .map_or(", too few samples".to_owned(), |[low, high]| format!(", {low:.0}–{high:.0}"));
        format!("measured{between}")
    };
    let mut list: Vec<_> = direct
        .into_iter()
        .filter_map(|(group, name, e)| Some((group, name, e?.value, directly(e?))))
        .collect();
    let mut put = |group, name, ns: f64, how: String| list.push((group, name, ns.max(0.0), how));

    // The cost of blocking without that of the system call.
    let (syscall, signal) =
        (value(found.syscall, shipped.thread.syscall), value(found.signal, shipped.thread.signal));
    let mut block = shipped.thread.block.0 as f64;
    if let (Some(signal), Some(both)) = (found.signal, found.signal_and_return) {
        block = (both.value - signal.value - syscall).max(0.0);
        put(
            "thread",
            "block",
            block,
            format!(
                "a wait that returns at once, {:.0}, less system call",
                both.value - signal.value
            ),
        );
    }

    if let Some([cpu, delay, _]) = found.sleep {
        // The simulator charges wake-up and switch to the thread that wakes. Two threads of one CPU
        // never idle: one signals, the other wakes, and the first blocks.
        let (back, wake) = ((cpu.value - syscall - block).max(0.0), shipped.thread.wake.0 as f64);
        let (switch, how) = match found.switch {
            Some(half) => (
                (half.value - signal - wake - syscall - block).clamp(0.0, back),
                format!(
                    "from thread to thread, {:.0}, less signal, wake, system call and block",
                    half.value
                ),
            ),
            None => (back, format!("CPU of a sleep, {:.0}, less system call and block", cpu.value)),
        };
        put("thread", "switch", switch, how);
        put(
            "thread",
            "from_idle",
            back - switch,
            format!("CPU of a sleep, {:.0}, less system call, block and switch", cpu.value),
        );
        if let Some(awake) = found.awake {
            let how = format!(
                "a signal {:.0} after the call finds the CPU asleep, less system call and block",
                awake.value
            );
            put("thread", "idle_after", awake.value - syscall - block, how);
        }
        // In the simulator a signal takes effect after its cost and two cache-line transfers.
        let effect = signal + 2.0 * value(found.line, shipped.memory.line_node);
        let idle = (delay.value - back - effect).max(0.0);
        put(
            "thread",
            "idle_exit",
            idle,
            format!(
                "delay of a wake-up, {:.0}, less switch, from_idle and the signal",
                delay.value
            ),
        );
        if let Some([nap, late]) = found.nap {
            put(
                "thread",
                "timer",
                nap.value - cpu.value,
                format!("CPU of a nap, {:.0}, less that of a sleep", nap.value),
            );
            let i = &shipped.interrupt;
            let around = (i.entry + i.timer + i.end + i.exit).0 as f64;
            // The median of an exponential delay is ln 2 times its mean.
            let jitter = shipped.thread.timer_jitter.0 as f64 * std::f64::consts::LN_2;
            let rest = (late.value - around - jitter - wake - back).max(0.0);
            let how = format!(
                "a timer is {:.0} late, less interrupt, jitter, wake-up and the way back",
                late.value
            );
            put("thread", "timer_exit", rest.min(idle), how);
            let how = format!("a timer is {:.0} late, less those and the idle exit", late.value);
            put("thread", "timer_slack", rest - idle, how);
        }
    }

    if let Some([submit, _, take, _, hand, _]) = found.library {
        let reap = take.value + hand.value - submit.value - shipped.library.decide.0 as f64;
        put(
            "library",
            "reap",
            reap,
            format!("a wait that finds one, {:.0}, less its doorbell", take.value),
        );
    }
    list
}

/// The costs as a TOML file for scenarios.
fn toml(prices: &[Price], machine: &str) -> String {
    let mut text = format!("# Written by reap calibrate. Prices in nanoseconds.\n# {machine}\n");
    let mut group = "";
    for price in prices {
        if price.group != group {
            group = &price.group;
            _ = write!(text, "\n[{group}]\n");
        }
        let how = price.how.as_deref().unwrap_or("not measured here: built-in value");
        _ = writeln!(text, "{} = {} # {how}", price.name, price.ns);
    }
    text
}

/// The costs as text.
fn table(prices: &[Price], machine: &str, width: u16) -> String {
    let cells = |price: &Price| {
        Some(vec![
            format!("{}.{}", price.group, price.name),
            price.ns.to_string(),
            price.how.clone()?,
        ])
    };
    let list = unruled(["price", "ns", "how"], prices.iter().filter_map(cells).collect());
    let rest: Vec<String> = prices
        .iter()
        .filter(|p| p.how.is_none())
        .map(|p| format!("{}.{} {}", p.group, p.name, p.ns))
        .collect();
    let rest =
        format!("Not measured here; built-in values for virtual machines: {}.", rest.join(", "));
    let [rest, machine] =
        [rest, format!("Machine: {machine}.")].map(|line| wrap(&line, width.into()));
    format!("{}{rest}\n{machine}\n", fitted(list, width))
}

#[cfg(test)]
mod tests;
