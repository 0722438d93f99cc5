//! Clock, system calls, sleeps and wake-ups, and cache lines between CPUs.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use anyhow::{Context, Result};
use hw::{EventFd, Poller, Vector, Vectors};
use units::Nanos;

use super::list::{Found, Sleep};
use super::{Sampler, time_each};
use crate::compare::statistics::median;
use crate::rows::Estimate;

/// Cheap things of a sample.
const MANY: u32 = 2_000;
/// Sleeps of a sample.
const SLEEPS: u32 = 100;
/// Of timers.
const NAP: Nanos = Nanos(50_000);
/// Until a CPU that has nothing to do is asleep.
const PAUSES: [Nanos; 8] = [Nanos(0), Nanos(250), Nanos(500), Nanos(1_000), Nanos(2_000), Nanos(4_000), Nanos(8_000), Nanos(16_000)];
/// A sleeper that is not woken for so long is given up.
const LOST: Nanos = Nanos::from_secs(1);

/// What needs no other CPU.
///
/// # Errors
/// Too many open files.
pub fn on_this_cpu(sampler: &mut Sampler<'_>, found: &mut Found) -> Result<()> {
    let fd = EventFd::new()?;
    let (poller, vectors) = (Poller::new()?, Vectors::new(1, true)?);
    poller.add(&fd, 0)?;
    let mut events = Vec::with_capacity(8);
    found.clock = sampler.repeat(|| Some([time_each(MANY, || _ = hw::now())])).map(|[ns]| ns);
    found.syscall = sampler.repeat(|| Some([time_each(MANY, || _ = std::os::unix::process::parent_id())])).map(|[ns]| ns);
    found.signal = sampler.repeat(|| Some([time_each(MANY, || fd.signal())])).map(|[ns]| ns);
    // It returns at once, because a signal waits.
    let mut returns = || {
        let both = time_each(MANY, || {
            fd.signal();
            _ = poller.wait(None, &mut events);
        });
        Some([both])
    };
    found.signal_and_return = sampler.repeat(&mut returns).map(|[ns]| ns);
    if let Some(bell) = vectors.bell(Vector(0)) {
        found.arm = sampler.repeat(|| Some([time_each(MANY, || bell.arm())])).map(|[ns]| ns);
        found.mask = sampler.repeat(|| Some([time_each(MANY, || bell.mask())])).map(|[ns]| ns);
    }
    found.nap = sampler
        .repeat(|| {
            let (mut late, cpu) = (Vec::new(), hw::thread_cpu());
            for _ in 0..SLEEPS / 4 {
                let until = hw::now() + NAP;
                poller.wait(Some(NAP), &mut events).ok()?;
                late.push((hw::now() - until).0 as f64);
            }
            let cpu = (hw::thread_cpu() - cpu).0 as f64 / f64::from(SLEEPS / 4);
            Some([cpu, median(&late)?])
        })
        .map(|[cpu, late]| (cpu, late));
    found.switch = switch(sampler)?;
    Ok(())
}

/// A round between two threads of one CPU: two of everything.
fn switch(sampler: &mut Sampler<'_>) -> Result<Option<Estimate>> {
    let (ping, pong) = (Arc::new(Wire::new()?), Arc::new(Wire::new()?));
    let (heard, said) = (ping.clone(), pong.clone());
    // The thread inherits this CPU.
    let echo = thread::Builder::new().name("reap-echo".into()).spawn(move || {
        let mut events = Vec::with_capacity(8);
        while !heard.end.load(Acquire) && heard.poller.wait(Some(LOST), &mut events).is_ok() {
            said.fd.signal();
        }
    });
    let echo = echo.context("cannot start a thread")?;
    let mut events = Vec::with_capacity(8);
    let round = sampler.repeat(|| {
        let round = time_each(SLEEPS * 5, || {
            ping.fd.signal();
            _ = pong.poller.wait(Some(LOST), &mut events);
        });
        Some([round / 2.0])
    });
    ping.end.store(true, Release);
    ping.fd.signal();
    _ = echo.join();
    Ok(round.map(|[round]| round))
}

/// An eventfd that somebody sleeps on.
struct Wire {
    fd: EventFd,
    poller: Poller,
    end: AtomicBool,
    /// The sleeper is about to sleep, for the n-th time.
    sleeps: AtomicU64,
    /// When the signal is to be given, and was.
    due: AtomicU64,
    at: AtomicU64,
    /// What giving it took.
    took: AtomicU64,
    /// The n-th was given.
    given: AtomicU64,
}

impl Wire {
    fn new() -> Result<Wire> {
        let wire = Wire {
            fd: EventFd::new()?,
            poller: Poller::new()?,
            end: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            due: AtomicU64::new(0),
            at: AtomicU64::new(0),
            took: AtomicU64::new(0),
            given: AtomicU64::new(0),
        };
        wire.poller.add(&wire.fd, 0)?;
        Ok(wire)
    }
}

/// For how long a CPU without work stays awake: the shortest pause after which a wake-up takes more than half as long as after
/// one of `sleep`, and the one before.
///
/// # Errors
/// Too many open files, or threads.
pub fn awake(sampler: &mut Sampler<'_>, other: usize, sleep: Nanos, delay: Estimate) -> Result<Option<Estimate>> {
    let mut low = 0.0;
    for pause in PAUSES.into_iter().filter(|&pause| pause < sleep) {
        let Some(woken) = across(sampler, other, pause)? else { return Ok(None) };
        let high = pause.0 as f64;
        if woken.delay.value > delay.value / 2.0 {
            return Ok(Some(Estimate { value: high, interval: Some([low, high]) }));
        }
        low = high;
    }
    let high = sleep.0 as f64;
    Ok(Some(Estimate { value: high, interval: Some([low, high]) }))
}

/// A sleep that the other CPU ends after `pause`: CPU time of the sleeper, delay, and what the signal costs its giver.
///
/// # Errors
/// Too many open files, or threads.
pub fn across(sampler: &mut Sampler<'_>, other: usize, pause: Nanos) -> Result<Option<Sleep>> {
    let mut ended = Ended::by(other)?;
    let sleep = sampler.repeat(|| {
        let (mut delays, mut costs) = (Vec::new(), Vec::new());
        let cpu = hw::thread_cpu();
        for _ in 0..SLEEPS {
            let (delay, signal) = ended.sleep(hw::now() + pause)?;
            delays.push(delay);
            costs.push(signal);
        }
        let cpu = (hw::thread_cpu() - cpu).0 as f64 / f64::from(SLEEPS);
        Some([cpu, median(&delays)?, median(&costs)?])
    });
    Ok(sleep.map(|[cpu, delay, signal]| Sleep { cpu, delay, signal }))
}

/// Sleeps that a thread on another CPU ends.
struct Ended {
    wire: Arc<Wire>,
    giving: Option<thread::JoinHandle<()>>,
    events: Vec<u64>,
    asked: u64,
}

impl Ended {
    fn by(other: usize) -> Result<Ended> {
        let wire = Arc::new(Wire::new()?);
        let giver = wire.clone();
        let giving = thread::Builder::new().name("reap-signal".into()).spawn(move || {
            if hw::pin(other).is_err() {
                return;
            }
            let mut given = 0;
            while !giver.end.load(Relaxed) {
                let asked = giver.sleeps.load(Acquire);
                if asked == given {
                    std::hint::spin_loop();
                    continue;
                }
                given = asked;
                let due = Nanos(giver.due.load(Relaxed));
                while hw::now() < due {
                    std::hint::spin_loop();
                }
                let at = hw::now();
                giver.at.store(at.0, Relaxed);
                giver.fd.signal();
                giver.took.store((hw::now() - at).0, Relaxed);
                giver.given.store(given, Release);
            }
        });
        let giving = giving.context("cannot start a thread")?;
        Ok(Ended { wire, giving: Some(giving), events: Vec::with_capacity(8), asked: 0 })
    }

    /// Sleeps until it is signalled at `due`. The delay from the signal, and what it took its giver.
    fn sleep(&mut self, due: Nanos) -> Option<(f64, f64)> {
        let wire = &*self.wire;
        self.asked += 1;
        wire.due.store(due.0, Relaxed);
        wire.sleeps.store(self.asked, Release);
        wire.poller.wait(Some(LOST), &mut self.events).ok()?;
        let woken = hw::now();
        if self.events.is_empty() {
            return None;
        }
        // The giver may still be in its call.
        while wire.given.load(Acquire) != self.asked {
            std::hint::spin_loop();
        }
        Some(((woken - Nanos(wire.at.load(Relaxed))).0 as f64, wire.took.load(Relaxed) as f64))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.wire.end.store(true, Relaxed);
        self.giving.take().map(thread::JoinHandle::join);
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

#[derive(Default)]
struct Lines {
    /// Written by this CPU.
    ours: Line,
    /// Written by the other one.
    theirs: Line,
    end: AtomicBool,
    pinned: AtomicBool,
}

/// A store on one CPU until the other, which spins on it, sees it: half of a round between two lines.
///
/// # Errors
/// A thread cannot be started.
pub fn line(sampler: &mut Sampler<'_>, other: usize) -> Result<Option<Estimate>> {
    let lines = Arc::new(Lines::default());
    let echo = lines.clone();
    let echoing = thread::Builder::new().name("reap-echo".into()).spawn(move || {
        echo.pinned.store(hw::pin(other).is_ok(), Release);
        let mut seen = 0;
        while !echo.end.load(Relaxed) {
            let now = echo.ours.0.load(Acquire);
            if now != seen {
                seen = now;
                echo.theirs.0.store(now, Release);
            }
            std::hint::spin_loop();
        }
    });
    let echoing = echoing.context("cannot start a thread")?;
    let mut n = 0;
    let found = sampler.repeat(|| {
        let round = time_each(MANY, || {
            n += 1;
            lines.ours.0.store(n, Release);
            while lines.theirs.0.load(Acquire) != n {
                std::hint::spin_loop();
            }
        });
        lines.pinned.load(Acquire).then_some([round / 2.0])
    });
    lines.end.store(true, Relaxed);
    _ = echoing.join();
    Ok(found.map(|[line]| line))
}
