//! Clocks: monotonic time for event loops, CPU time and resource usage for the results.

use std::io;
use std::num::NonZeroU64;

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use units::Nanos;

const PER_SECOND: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC.
#[inline]
pub fn now() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread, user and system (CLOCK_THREAD_CPUTIME_ID).
pub fn thread_cpu() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of the whole process (CLOCK_PROCESS_CPUTIME_ID).
pub fn process_cpu() -> Nanos {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of all waited-for children and their descendants (`getrusage`, RUSAGE_CHILDREN); zero
/// if the kernel refuses.
pub fn children_cpu() -> Nanos {
    let usage = rusage(libc::RUSAGE_CHILDREN);
    usage.user + usage.system
}

/// Resource usage of a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode, as the kernel's accounting divides it.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Context switches, voluntary or not.
    pub context_switches: u64,
    /// Voluntary context switches: the thread went to sleep.
    pub sleeps: u64,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Other page faults.
    pub minor_faults: u64,
}

/// Resource usage of the calling thread (`getrusage`, RUSAGE_THREAD); zero if the kernel refuses.
pub fn thread_usage() -> Usage {
    rusage(libc::RUSAGE_THREAD)
}

fn rusage(who: libc::c_int) -> Usage {
    // SAFETY: all zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the write.
    if unsafe { libc::getrusage(who, &raw mut usage) } != 0 {
        return Usage::default();
    }
    let time = |t: libc::timeval| Nanos(t.tv_sec as u64 * PER_SECOND + t.tv_usec as u64 * 1_000);
    Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        // A voluntary switch is a sleep; an involuntary one is a preemption.
        sleeps: usage.ru_nvcsw as u64,
        major_faults: usage.ru_majflt as u64,
        minor_faults: usage.ru_minflt as u64,
    }
}

/// The CPU clock of one thread, readable from every thread of the process. It identifies the thread
/// by its kernel thread id, which a later thread may get after this one has ended.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCpuClock(libc::clockid_t);

impl ThreadCpuClock {
    /// The CPU clock of the calling thread.
    pub fn of_current() -> io::Result<ThreadCpuClock> {
        let mut id = 0;
        // SAFETY: the calling thread is alive, and `id` is valid for the write.
        match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) } {
            0 => Ok(ThreadCpuClock(id)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// CPU time of the thread so far; `None` once it has ended.
    pub fn read(self) -> Option<Nanos> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for the write. A clock of a thread that has ended is refused, not
        // misread.
        let failed = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (failed == 0).then(|| nanos(Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec }))
    }
}

/// Sleeps until CLOCK_MONOTONIC reads `instant`; signals do not cut it short.
pub fn sleep_until(instant: Nanos) {
    // An absolute deadline: restarting after EINTR does not lengthen the sleep.
    while clock_nanosleep_absolute(ClockId::Monotonic, &timespec(instant)) == Err(Errno::INTR) {}
}

/// Sets the timer slack of the calling thread: how late its timers may fire so that the kernel can
/// batch them. The default is 50 µs, the minimum 1 ns; zero restores the default.
pub fn set_timer_slack(slack: Nanos) -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(slack.0))?)
}

fn nanos(time: Timespec) -> Nanos {
    Nanos(time.tv_sec as u64 * PER_SECOND + time.tv_nsec as u64)
}

pub(crate) fn timespec(span: Nanos) -> Timespec {
    Timespec { tv_sec: (span.0 / PER_SECOND) as i64, tv_nsec: (span.0 % PER_SECOND) as i64 }
}

#[cfg(test)]
mod tests;
