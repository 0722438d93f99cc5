//! Results: totals at the end of the run, ticks for the time line, and the placer of `adaptive` in
//! the kernel host.

use completion::{Decisions, Preset};
use driver::multipath::{Link, MultipathCounters, PathSnapshot, PathStatus};
use units::Op;
use workload::{ErrorCode, Generator, Histogram, Io, IoFailure, Latency, Stats};

use super::tasks::{Task, TaskKind};
use super::*;
use crate::host::multipath::MultipathRequests;
use crate::host::sw_queue::SwQueue;
use crate::placer::WINDOW;
use crate::{Counts, CpuOutcome, DeviceOutcome, HostStack, JobOutcome, PathOutcome, Tick};

impl World<'_> {
    /// The first thread is past its start delay and its ramp: measuring begins.
    pub(super) fn measure(&mut self) {
        if !matches!(self.baseline, Baseline::Pending) {
            return;
        }
        self.baseline = Baseline::Known(Box::new(self.so_far()));
        // Maxima cannot be subtracted later, so they are reset.
        self.cpus.iter_mut().for_each(|cpu| cpu.outcome.longest_away = Nanos::ZERO);
        self.drains.iter_mut().for_each(|drain| drain.counts.entries_per_drain_max = 0);
        self.tasks
            .iter_mut()
            .filter_map(Task::thread_mut)
            .for_each(|thread| thread.counts.entries_per_drain_max = 0);
    }

    /// What was measured, at the end of the run.
    pub(super) fn outcome(mut self) -> Result<Outcome, SimError> {
        let all = self.so_far();
        let ticks = std::mem::take(&mut self.ticks.completed);
        match self.baseline {
            Baseline::Zero => Ok(Outcome { ticks, ..all }),
            Baseline::Known(before) => Ok(Outcome { ticks, ..all.since(&before) }),
            Baseline::Pending => Err(SimError::Unmeasured(self.moment())),
        }
    }

    /// The totals since the start of the run, without the ticks.
    fn so_far(&mut self) -> Outcome {
        (0..self.cpus.len()).for_each(|cpu| self.account(cpu));
        let cpus: Vec<CpuOutcome> = self.cpus.iter().map(|cpu| cpu.until(self.now)).collect();
        let mut all_cpus = CpuOutcome::default();
        cpus.iter().for_each(|cpu| all_cpus.add(cpu));
        let counts = self.counts();
        let (devices, jobs) = (self.device_outcomes(), self.job_outcomes());
        let mut stats = Stats::default();
        jobs.iter().for_each(|job| stats.merge(&job.stats));
        let (mut poll_delays, mut per_cycle) = (Histogram::default(), Histogram::default());
        for drain in &self.drains {
            poll_delays.merge(&drain.cycles.delays);
            per_cycle.merge(&drain.cycles.entries);
        }
        let doorbells = || self.queues.iter().flat_map(HwQueue::pairs).map(|pair| pair.counters());
        let controller_tasks = || self.devices.iter().map(|device| &device.control);
        Outcome {
            elapsed: self.now - self.started,
            counts,
            failure: self
                .tasks
                .iter()
                .filter_map(Task::thread)
                .find_map(|thread| failure(&thread.app.generator)),
            messages: devices.iter().map(|device| device.messages).sum(),
            suppressed: devices.iter().map(|device| device.suppressed).sum(),
            silent: self.queues.iter().map(HwQueue::polled_finished).sum(),
            way: self.irq_path.as_ref().map(|path| path.counts).unwrap_or_default(),
            spins: self.spins(&counts),
            sq_doorbells: doorbells().map(|counters| counters.sq_doorbells).sum(),
            cq_doorbells: doorbells().map(|counters| counters.cq_doorbells).sum(),
            decisions: self.decisions(),
            state: self
                .tasks
                .iter()
                .filter_map(Task::thread)
                .flat_map(|thread| &thread.sw_queues)
                .find_map(SwQueue::state),
            thread: self.io_threads(&counts),
            resets: controller_tasks().map(|control| control.resets).sum(),
            aborts: controller_tasks().map(|control| control.aborts).sum(),
            missed_notifications: controller_tasks().map(|control| control.missed).sum(),
            injected: self.devices.iter().flat_map(|device| device.controller.injected()).collect(),
            stats,
            latency: self.latency(),
            poll_delays,
            per_cycle,
            paths: self.path_outcomes(),
            failover: self
                .multipaths()
                .map(MultipathRequests::counters)
                .fold(MultipathCounters::default(), MultipathCounters::merged),
            ticks: Vec::new(),
            all_cpus,
            cpus,
            jobs,
            devices,
        }
    }

    /// CPU time of the threads that do I/O, without the applications' own work.
    fn io_threads(&self, counts: &Counts) -> Nanos {
        let threads = self
            .tasks
            .iter()
            .filter(|task| !matches!(task.kind, TaskKind::Hog))
            .map(|task| task.runtime.0)
            .sum();
        // The subtraction saturates: the applications' time is counted when they begin to compute,
        // and the run may end before that time has passed.
        Nanos(threads) - counts.application - counts.away
    }

    /// The decisions of all threads' policies, together.
    pub(super) fn decisions(&self) -> Option<Decisions> {
        let sw_queues =
            self.tasks.iter().filter_map(Task::thread).flat_map(|thread| &thread.sw_queues);
        sw_queues.filter_map(SwQueue::decisions).reduce(|mut all, decisions| {
            all.add(&decisions);
            all
        })
    }

    /// The counts of threads and drains, together.
    pub(super) fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.tasks.iter().filter_map(Task::thread).for_each(|thread| all.add(&thread.counts));
        self.drains.iter().for_each(|drain| all.add(&drain.counts));
        all
    }

    /// The number of empty polls in the time spent spinning.
    fn spins(&self, counts: &Counts) -> u64 {
        counts.spun.0 / self.scenario.machine.costs.library.look.0.max(1)
    }

    /// Latencies of all threads' reads and writes, together.
    pub(super) fn latency(&self) -> Latency {
        let mut all = Latency::default();
        for stats in
            self.tasks.iter().filter_map(Task::thread).map(|thread| thread.app.generator.stats())
        {
            [&stats.read, &stats.write].into_iter().for_each(|op| all.merge(op.latency()));
        }
        all
    }

    fn device_outcomes(&self) -> Vec<DeviceOutcome> {
        let outcome = |(n, device): (usize, &Attached)| {
            let threads = self.tasks.iter().filter_map(Task::thread).zip(&self.targets);
            let by_target =
                threads.flat_map(|(thread, targets)| thread.app.completed.iter().zip(targets));
            DeviceOutcome {
                name: self.scenario.devices[n].name.clone(),
                completed: by_target
                    .filter(|(_, device)| **device == n)
                    .map(|(completed, _)| completed)
                    .sum(),
                messages: device.vectors.messages(),
                suppressed: device.vectors.suppressed(),
            }
        };
        self.devices.iter().enumerate().map(outcome).collect()
    }

    fn multipaths(&self) -> impl Iterator<Item = &MultipathRequests> {
        self.tasks
            .iter()
            .filter_map(Task::thread)
            .filter_map(|thread| thread.app.multipath.as_ref())
    }

    fn path_outcomes(&self) -> Vec<PathOutcome> {
        let outcome = |(n, device): (usize, &Attached)| {
            // Each thread has its own counters of the path.
            let tallies = || self.multipaths().filter_map(move |multipath| multipath.tally(n));
            tallies().next()?;
            let snapshot = device
                .control
                .path
                .as_ref()
                .map_or(PathSnapshot::NEVER_UP.with_link(Link::Live), |path| path.snapshot);
            Some(PathOutcome {
                device: self.scenario.devices[n].name.clone(),
                status: PathStatus { link: snapshot.link, ana: snapshot.ana, fits: snapshot.fits },
                ios: tallies().map(|tally| tally.ended).sum(),
                failed: tallies().map(|tally| tally.failed).sum(),
                time: Nanos(tallies().map(|tally| tally.time.0).sum()),
            })
        };
        self.devices.iter().enumerate().filter_map(outcome).collect()
    }

    fn job_outcomes(&self) -> Vec<JobOutcome> {
        let mut jobs: Vec<JobOutcome> = Vec::new();
        for (planned, thread) in
            self.plan.threads.iter().zip(self.tasks.iter().filter_map(Task::thread))
        {
            let stats = thread.app.generator.stats();
            let ios = stats.read.ios + stats.write.ios;
            match jobs.get_mut(planned.report) {
                Some(job) => {
                    job.stats.merge(stats);
                    job.ios.push(ios);
                }
                None => {
                    let name = self.scenario.jobs[planned.job].job.name.clone();
                    jobs.push(JobOutcome { name, ios: vec![ios], stats: stats.clone() });
                }
            }
        }
        jobs
    }

    /// Sets the timer of the next tick, if the scenario has ticks.
    pub(super) fn set_tick(&mut self) {
        if let Some(every) = self.scenario.ticks.filter(|&every| every > Nanos::ZERO) {
            self.calendar.set(self.sources.ticks, self.now + every);
        }
    }

    /// Ends a tick.
    pub(super) fn tick(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.account(cpu));
        let latency = self.latency().histogram.unwrap_or_default();
        let spans = latency.since(&self.ticks.latency).percentiles(&[50.0, 99.0]);
        let (p50, p99) = (spans.first().copied().unwrap_or(0), spans.last().copied().unwrap_or(0));
        let (counts, decisions) = (self.counts(), self.decisions().unwrap_or_default());
        let interrupts =
            Nanos(self.cpus.iter().map(|cpu| (cpu.outcome.hard + cpu.outcome.soft).0).sum());
        let so_far = Tick {
            counts,
            decisions,
            cpu: interrupts + self.io_threads(&counts),
            spins: self.spins(&counts),
            p50,
            p99,
        };
        let before = std::mem::replace(&mut self.ticks.totals, so_far);
        self.ticks.latency = latency;
        self.ticks.completed.push(so_far.since(&before));
        self.set_tick();
    }

    /// Starts or stops the placer after a switch of mode: with `adaptive` in the kernel host it
    /// decides whether completions are left to the CPUs that take the interrupts.
    pub(super) fn set_placer(&mut self) {
        let own = self.mode;
        // Only a CPU that takes interrupts and runs no job can take work from the jobs' CPUs.
        let asks = matches!(own.preset(), Preset::Adaptive(_))
            && self.scenario.host == HostStack::Kernel
            && self.interrupts_another_cpu();
        self.placing = asks.then(|| Placing {
            own,
            placer: Placer::default(),
            before: self.completed_and_waited(),
        });
        self.calendar.set(self.sources.placer, if asks { self.now + WINDOW } else { Nanos::MAX });
    }

    /// Ends a window of the placer.
    pub(super) fn place(&mut self) {
        let now = self.completed_and_waited();
        let Some(placing) = &mut self.placing else { return };
        let before = std::mem::replace(&mut placing.before, now);
        let moved = placing.placer.window(now.0 - before.0, now.1 - before.1, now.2 - before.2);
        let mode = if moved { Mode::IRQ_POLL } else { placing.own };
        self.calendar.set(self.sources.placer, self.now + WINDOW);
        // Only on a change, because a switch polls every queue once.
        if mode != self.mode {
            self.apply_mode(mode);
        }
    }

    /// Whether a vector interrupts a CPU on which no job runs.
    fn interrupts_another_cpu(&self) -> bool {
        let submits =
            |cpu| self.tasks.iter().any(|task| task.cpu == cpu && task.thread().is_some());
        let mut routes = self.devices.iter().flat_map(|device| &device.routes);
        routes.any(|route| !route.queues.is_empty() && !submits(route.cpu))
    }

    fn completed_and_waited(&self) -> (u64, u64, u64) {
        let (waits, sleeps) = self
            .decisions()
            .map_or((0, 0), |decisions| (decisions.waits, decisions.napped + decisions.slept));
        (self.counts().completed, waits, sleeps)
    }
}

/// Why a job ended early. A block that failed verification counts as well.
fn failure(generator: &Generator) -> Option<IoFailure> {
    generator.failure().copied().or_else(|| {
        let bad = generator.bad_blocks().first()?;
        let io = Io { slot: 0, op: Op::Read, target: bad.target, offset: bad.offset, len: bad.len };
        Some(IoFailure { code: ErrorCode::EILSEQ, io })
    })
}
