//! Clock, system calls, sleeps and wake-ups.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use anyhow::{Context, Result};
use hw::{EventFd, Poller, Vector, Vectors};
use units::Nanos;

use super::list::{Found, Sleep};
use super::sampler::{Sampler, time_each};

/// Cheap things of a sample.
const MANY: u32 = 2_000;
/// Sleeps of a sample.
const SLEEPS: u32 = 100;
/// Of timers.
const NAP: Nanos = Nanos(50_000);
/// A sleeper that is not woken for so long is given up.
const LOST: Nanos = Nanos::from_secs(1);

/// What needs no other CPU.
///
/// # Errors
/// Too many open files.
pub fn on_this_cpu(sampler: &mut Sampler<'_>, found: &mut Found) -> Result<()> {
    let fd = EventFd::new()?;
    let (poller, vectors) = (Poller::new()?, Vectors::new(1)?);
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
            Some([cpu, crate::compare::statistics::median(&late)?])
        })
        .map(|[cpu, late]| (cpu, late));
    found.switch = switch(sampler)?;
    Ok(())
}

/// A round between two threads of one CPU: two of everything.
fn switch(sampler: &mut Sampler<'_>) -> Result<Option<crate::rows::Estimate>> {
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
    /// When the signal was given.
    at: AtomicU64,
    /// What giving it took.
    took: AtomicU64,
}

impl Wire {
    fn new() -> Result<Wire> {
        let wire = Wire {
            fd: EventFd::new()?,
            poller: Poller::new()?,
            end: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            at: AtomicU64::new(0),
            took: AtomicU64::new(0),
        };
        wire.poller.add(&wire.fd, 0)?;
        Ok(wire)
    }
}

/// A sleep that the other CPU ends after `pause`: CPU time of the sleeper, delay, and what the signal costs its giver.
///
/// # Errors
/// Too many open files, or threads.
pub fn across(sampler: &mut Sampler<'_>, other: usize, pause: Nanos) -> Result<Option<Sleep>> {
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
            let at = hw::now() + pause;
            while hw::now() < at {
                std::hint::spin_loop();
            }
            let at = hw::now();
            giver.at.store(at.0, Release);
            giver.fd.signal();
            giver.took.store((hw::now() - at).0, Release);
        }
    });
    let giving = giving.context("cannot start a thread")?;
    let (mut events, mut n) = (Vec::with_capacity(8), 0);
    let sleep = sampler
        .repeat(|| {
            let (mut delays, mut costs) = (Vec::new(), Vec::new());
            let cpu = hw::thread_cpu();
            for _ in 0..SLEEPS {
                n += 1;
                wire.sleeps.store(n, Release);
                wire.poller.wait(Some(LOST), &mut events).ok()?;
                let woken = hw::now();
                if events.is_empty() {
                    return None;
                }
                delays.push((woken - Nanos(wire.at.load(Acquire))).0 as f64);
                costs.push(wire.took.load(Acquire) as f64);
            }
            let cpu = (hw::thread_cpu() - cpu).0 as f64 / f64::from(SLEEPS);
            let median = crate::compare::statistics::median;
            Some([cpu, median(&delays)?, median(&costs)?])
        })
        .map(|[cpu, delay, signal]| Sleep { cpu, delay, signal });
    wire.end.store(true, Relaxed);
    _ = giving.join();
    Ok(sleep)
}
