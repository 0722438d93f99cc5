//! What a job thread has to do with others while it runs, and what it came to.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use reap::{IoError, Nanos, Wakeups};
use workload::Generator;

use crate::bench::counted::Counted;

/// What reaches a thread from outside while it runs.
#[derive(Debug)]
pub struct Control<'a> {
    /// Any of them set: stop, once what is in flight has completed.
    pub stop: [&'a AtomicBool; 2],
    /// Where it says how far it is.
    pub progress: &'a Progress,
}

/// How far a thread is.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    /// I/Os so far.
    pub ios: AtomicU64,
    /// Bytes so far.
    pub bytes: AtomicU64,
    /// Of its work or time, in millionths.
    pub millionths: AtomicU64,
}

/// What a run came to, next to what the generator has measured.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Cost and counts of the measured part.
    pub counted: Counted,
    /// The whole thread's.
    pub usage: hw::Usage,
    /// What the library said of the first I/O that failed.
    pub first_error: Option<IoError>,
    /// What wake-ups brought, of all its queues; empty unless [`super::Worker::count_wakeups`] was called.
    pub wakeups: Box<Wakeups>,
}

impl Progress {
    /// Says how far the thread is.
    pub(super) fn tell(&self, generator: &Generator, now: Nanos) {
        let stats = generator.stats();
        self.ios.store(stats.read.ios + stats.write.ios + stats.trim.ios, Relaxed);
        self.bytes.store(stats.read.bytes + stats.write.bytes + stats.trim.bytes, Relaxed);
        self.millionths.store((generator.progress(now) * 1e6) as u64, Relaxed);
    }
}

/// What a thread cost between two readings.
pub(super) fn since(from: hw::Usage, to: hw::Usage) -> hw::Usage {
    hw::Usage {
        user: to.user - from.user,
        system: to.system - from.system,
        context_switches: to.context_switches - from.context_switches,
        sleeps: to.sleeps - from.sleeps,
        major_faults: to.major_faults - from.major_faults,
        minor_faults: to.minor_faults - from.minor_faults,
    }
}
