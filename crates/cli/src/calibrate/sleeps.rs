//! Clock, system calls, sleeps and wake-ups, and cache lines between CPUs.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use anyhow::{Context, Result};
use hw::{EventFd, Poller};
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
/// In place of a number: the other thread is to end.
const END: u64 = u64::MAX;

/// What needs no other CPU.
///
/// # Errors
/// Too many open files.
pub fn on_this_cpu(sampler: &mut Sampler<'_>, found: &mut Found) -> Result<()> {
    let fd = EventFd::new()?;
    let (poller, vectors) = (Poller::new()?, hw::vectors(1, true)?);
    poller.add(&fd, 0)?;
    let mut events = Vec::with_capacity(8);
    found.clock = sampler.one(|| Some(time_each(MANY, || _ = hw::now())));
    found.syscall = sampler.one(|| Some(time_each(MANY, || _ = std::os::unix::process::parent_id())));
    found.signal = sampler.one(|| Some(time_each(MANY, || fd.signal())));
    // It returns at once, because a signal waits.
    found.signal_and_return = sampler.one(|| {
        Some(time_each(MANY, || {
            fd.signal();
            _ = poller.wait(None, &mut events);
        }))
    });
    if let Some(bell) = vectors.flag(0) {
        found.arm = sampler.one(|| Some(time_each(MANY, || bell.arm())));
        found.mask = sampler.one(|| Some(time_each(MANY, || bell.mask())));
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

/// An eventfd, and what sleeps on it.
fn event() -> Result<(EventFd, Poller)> {
    let (fd, poller) = (EventFd::new()?, Poller::new()?);
    poller.add(&fd, 0)?;
    Ok((fd, poller))
}

/// A round between two threads of one CPU: two of everything.
fn switch(sampler: &mut Sampler<'_>) -> Result<Option<Estimate>> {
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
        let mut events = Vec::with_capacity(8);
        let round = sampler.one(|| {
            let round = time_each(SLEEPS * 5, || {
                ping.signal();
                _ = ponged.wait(Some(LOST), &mut events);
            });
            Some(round / 2.0)
        });
        end.store(true, Release);
        ping.signal();
        Ok(round)
    })
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
    let (fd, poller) = event()?;
    // How many signals were asked for and given; when the next is due; when the last was given, and what that took.
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
        let (mut events, mut n) = (Vec::with_capacity(8), 0);
        let sleep = sampler.repeat(|| {
            let (mut delays, mut costs) = (Vec::new(), Vec::new());
            let cpu = hw::thread_cpu();
            for _ in 0..SLEEPS {
                n += 1;
                due.store((hw::now() + pause).0, Relaxed);
                asked.store(n, Release);
                poller.wait(Some(LOST), &mut events).ok()?;
                let woken = hw::now();
                if events.is_empty() {
                    return None;
                }
                // The giver may still be in its call.
                while given.load(Acquire) != n {
                    std::hint::spin_loop();
                }
                delays.push((woken - Nanos(at.load(Relaxed))).0 as f64);
                costs.push(took.load(Relaxed) as f64);
            }
            let cpu = (hw::thread_cpu() - cpu).0 as f64 / f64::from(SLEEPS);
            Some([cpu, median(&delays)?, median(&costs)?])
        });
        asked.store(END, Release);
        Ok(sleep.map(|[cpu, delay, signal]| Sleep { cpu, delay, signal }))
    })
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// A store on one CPU until the other, which spins on it, sees it: half of a round between two lines.
///
/// # Errors
/// A thread cannot be started.
pub fn line(sampler: &mut Sampler<'_>, other: usize) -> Result<Option<Estimate>> {
    let (ours, theirs, pinned) = (Line::default(), Line::default(), AtomicBool::new(false));
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
