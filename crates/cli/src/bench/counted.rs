//! What the completions of one job thread cost during the measured time (CPU time, wake-ups,
//! interrupt messages, doorbells, system calls), and statistics of the paths of multipath devices.

use completion::{AdaptiveState, Decisions};
use reap::{Counters, Device, DeviceCounters, HardwareCounters, Nanos, PathReport, Queue};
use workload::report::PathStats;

/// Counts of one thread. Counters of a shared hardware queue are divided in proportion to I/Os.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Completed reads and writes, failed ones included. Flushes are not counted, but their cost is
    /// part of the cost of these.
    pub ios: u64,
    /// Measured time.
    pub wall: Nanos,
    /// CPU time of the thread (CLOCK_THREAD_CPUTIME_ID), the load generator included.
    pub cpu: Nanos,
    /// CPU time of the whole process in that time.
    pub process: Nanos,
    /// Counters that the thread's software queues keep: wake-ups, polls, naps.
    pub queues: Counters,
    /// Decisions of the queues' policies, if counted.
    pub decisions: Option<Decisions>,
    /// State of `adaptive` at the end, of the first queue in that mode.
    pub state: Option<AdaptiveState>,
    /// At least one device does not count its interrupt messages, so `messages` and `notify_ns` are
    /// invalid.
    pub messages_unknown: bool,
    /// Interrupt messages (MSI-X, or their equivalent) of the device for these I/Os.
    pub messages: f64,
    /// Time that the software device's thread spent on sending them, in nanoseconds.
    pub notify_ns: f64,
    /// Writes of submission queue doorbells.
    pub sq_doorbells: f64,
    /// Writes of completion queue doorbells.
    pub cq_doorbells: f64,
    /// System calls of the transport, if counted.
    pub system_calls: Option<f64>,
}

impl Counted {
    /// Adds another thread's counts of the same time.
    pub fn merge(&mut self, other: &Counted) {
        self.ios += other.ios;
        // The threads ran at the same time: elapsed time and process CPU time are not added.
        self.wall = self.wall.max(other.wall);
        self.cpu += other.cpu;
        self.process = self.process.max(other.process);
        self.queues = self.queues.and(other.queues);
        if let Some(theirs) = &other.decisions {
            self.decisions.get_or_insert_default().add(theirs);
        }
        self.state = self.state.or(other.state);
        // A sum of known and unknown numbers of messages is unknown.
        self.messages_unknown |= other.messages_unknown;
        self.messages += other.messages;
        self.notify_ns += other.notify_ns;
        self.sq_doorbells += other.sq_doorbells;
        self.cq_doorbells += other.cq_doorbells;
        self.add_system_calls(other.system_calls);
    }

    /// Adds system calls. `None`, from a transport that does not count them, adds nothing: the
    /// result is then the sum over the transports that count.
    fn add_system_calls(&mut self, more: Option<f64>) {
        if let Some(more) = more {
            *self.system_calls.get_or_insert_default() += more;
        }
    }

    /// `total` divided by the number of I/Os; `None` without I/Os.
    pub fn per_io(&self, total: f64) -> Option<f64> {
        (self.ios > 0).then(|| total / self.ios as f64)
    }

    /// `total` divided by the measured seconds; 0 if nothing was measured.
    pub fn per_second(&self, total: f64) -> f64 {
        if self.wall == Nanos::ZERO { 0.0 } else { total / self.wall.as_secs_f64() }
    }

    /// CPU time per I/O in nanoseconds.
    pub fn cpu_ns_per_io(&self) -> Option<f64> {
        self.per_io(self.cpu.0 as f64)
    }

    /// I/Os per wake-up; `None` without wake-ups.
    pub fn completions_per_wakeup(&self) -> Option<f64> {
        (self.queues.wakeups > 0).then(|| self.ios as f64 / self.queues.wakeups as f64)
    }
}

/// Adds the CPU time of kernel workers (io-wq, SQPOLL) to that of the job threads, in proportion to
/// their I/Os. Kernel workers are threads of the process: their time is that of the process minus
/// that of the job threads and minus `others`, the CPU time of threads that do no I/O for jobs.
pub fn charge_kernel_workers<'a>(threads: impl Iterator<Item = &'a mut Counted>, others: Nanos) {
    let threads: Vec<&mut Counted> = threads.collect();
    let process = threads.iter().map(|thread| thread.process).max().unwrap_or_default();
    let (jobs, ios) =
        threads.iter().fold((0, 0), |(cpu, ios), thread| (cpu + thread.cpu.0, ios + thread.ios));
    // Saturating: the clocks are read one after the other, so the sum may exceed the total.
    let workers = process.0.saturating_sub(jobs + others.0);
    for thread in threads {
        thread.cpu +=
            Nanos((u128::from(workers) * u128::from(thread.ios) / u128::from(ios.max(1))) as u64);
    }
}

/// I/Os that a thread has completed on a target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completed {
    /// Reads and writes.
    pub ios: u64,
    /// Flushes.
    pub flushes: u64,
}

/// Counters at the start of measuring.
#[derive(Debug)]
pub struct Mark {
    at: Nanos,
    cpu: Nanos,
    process: Nanos,
    /// Per target, the counters of its queue and its device.
    targets: Vec<(Completed, Option<Decisions>, HardwareCounters, DeviceCounters)>,
}

impl Mark {
    /// Starts measuring for the calling thread. `targets`: for each target its device, queue, and
    /// completed I/Os.
    pub fn new<'a>(targets: impl Iterator<Item = (&'a Device, &'a Queue, Completed)>) -> Mark {
        let read = |(device, queue, completed): (&Device, &Queue, Completed)| {
            // Counters of the ramp are discarded.
            queue.take_counters();
            (completed, decisions(queue), queue.hardware_counters(), device.counters())
        };
        let targets = targets.map(read).collect();
        Mark { at: hw::now(), cpu: hw::thread_cpu(), process: hw::process_cpu(), targets }
    }

    /// The counts since [`Mark::new`], which reset the counters of the queues; to be called on the
    /// same thread. `queues`: what [`Queue::take_counters`] has returned since, added up.
    pub fn until_now<'a>(
        self,
        queues: Counters,
        targets: impl Iterator<Item = (&'a Device, &'a Queue, Completed)>,
    ) -> Counted {
        // CPU clocks are read first, so that reading the other counters is not measured.
        let cpu = hw::thread_cpu() - self.cpu;
        let process = hw::process_cpu() - self.process;
        let mut counted =
            Counted { wall: hw::now() - self.at, cpu, process, queues, ..Counted::default() };
        for ((device, queue, completed), (before, decisions_before, hardware, counters)) in
            targets.zip(self.targets)
        {
            if let Some(decisions) = decisions(queue) {
                let since = decisions.since(&decisions_before.unwrap_or_default());
                counted.decisions.get_or_insert_default().add(&since);
            }
            counted.state = counted.state.or(queue.adaptive_state());
            counted.messages_unknown |= !device.counts_messages();
            let completed = Completed {
                ios: completed.ios - before.ios,
                flushes: completed.flushes - before.flushes,
            };
            counted.add_target(
                completed,
                (hardware, counters),
                (queue.hardware_counters(), device.counters()),
            );
        }
        counted
    }
}

/// The decisions of `adaptive` on a queue.
fn decisions(queue: &Queue) -> Option<Decisions> {
    queue.adaptive_state().map(|state| state.decisions)
}

impl Counted {
    /// Adds this thread's share of the counters of a hardware queue, its vector and its device.
    fn add_target(
        &mut self,
        completed: Completed,
        from: (HardwareCounters, DeviceCounters),
        to: (HardwareCounters, DeviceCounters),
    ) {
        self.ios += completed.ios;
        let mine = (completed.ios + completed.flushes) as f64;
        // Counters are read one after the other, so the quotient may slightly exceed 1.
        let share = |count: u64, of: u64| {
            if of == 0 { 0.0 } else { count as f64 * (mine / of as f64).min(1.0) }
        };
        let ((queue0, device0), (queue, device)) = (from, to);
        let finished = queue.finished - queue0.finished;
        let doorbells = share(queue.sq_doorbells - queue0.sq_doorbells, finished);
        self.sq_doorbells += doorbells;
        // The drain thread, if there is one, reaps completions for all threads that share the
        // hardware queue.
        self.cpu += Nanos(share((queue.drain_cpu - queue0.drain_cpu).0, finished).round() as u64);
        self.cq_doorbells += share(queue.cq_doorbells - queue0.cq_doorbells, finished);
        // System calls are counted per device only: this thread's part of them is taken to be its
        // part of the device's doorbells.
        let calls = device
            .system_calls
            .map(|calls| calls.saturating_sub(device0.system_calls.unwrap_or(0)));
        let all = device.sq_doorbells.saturating_sub(device0.sq_doorbells).max(1);
        self.add_system_calls(calls.map(|calls| calls as f64 * (doorbells / all as f64).min(1.0)));
        let messages = share(
            queue.messages.saturating_sub(queue0.messages),
            queue.vector_finished - queue0.vector_finished,
        );
        self.messages += messages;
        let all_messages = device.messages.saturating_sub(device0.messages);
        // The time that the device spent on sending messages is known in total only: divide it in
        // proportion to messages.
        if all_messages > 0 {
            self.notify_ns +=
                (device.notify - device0.notify).0 as f64 * messages / all_messages as f64;
        }
    }
}

/// Counters of the paths of multipath devices when the jobs started.
#[derive(Debug)]
pub struct PathMark {
    at: Nanos,
    before: Vec<Vec<PathReport>>,
}

impl PathMark {
    /// Reads the counters.
    pub fn new(devices: &[Device]) -> PathMark {
        PathMark { at: hw::now(), before: devices.iter().map(Device::paths).collect() }
    }

    /// Statistics since [`PathMark::new`], of devices with several paths. `names`: the devices'
    /// names in the jobs.
    pub fn since(&self, devices: &[Device], names: &[Option<String>]) -> Vec<PathStats> {
        let elapsed = (hw::now() - self.at).0.max(1);
        let mut all = Vec::new();
        for ((device, before), name) in devices.iter().zip(&self.before).zip(names) {
            for (after, before) in device.paths().into_iter().zip(before) {
                let (ios, time) =
                    (after.ios.saturating_sub(before.ios), (after.time - before.time).0);
                all.push(PathStats {
                    device: name.clone().unwrap_or_default(),
                    state: after.status.to_string(),
                    path: after.uri,
                    ios,
                    failed: after.failed.saturating_sub(before.failed),
                    // Little's law: `time`, the sum of all latencies, divided by the elapsed time
                    // is the mean number in flight.
                    in_flight: time as f64 / elapsed as f64,
                    lat_ns: time.checked_div(ios).unwrap_or(0),
                });
            }
        }
        all
    }
}

/// Adds up the statistics of the same paths over several time spans.
pub fn merge_spans(spans: &[&[PathStats]]) -> Vec<PathStats> {
    let Some(last) = spans.last() else { return Vec::new() };
    let of_path = |(at, last): (usize, &PathStats)| {
        let each = || spans.iter().filter_map(move |paths| paths.get(at));
        let (ios, time) = each()
            .fold((0, 0), |(ios, time), path| (ios + path.ios, time + path.ios * path.lat_ns));
        PathStats {
            ios,
            failed: each().map(|path| path.failed).sum(),
            in_flight: each().map(|path| path.in_flight).sum::<f64>() / spans.len() as f64,
            lat_ns: time.checked_div(ios).unwrap_or(0),
            ..last.clone()
        }
    };
    last.iter().enumerate().map(of_path).collect()
}

#[cfg(test)]
mod tests;
