//! The simulated machine: its CPUs and their topology, the scheduler, the softirq of irq_poll, and
//! the price list ([`Costs`]: what each operation costs in CPU time and delay).

use units::Nanos;

use crate::{Costs, InterruptPath, SimError};

/// CPUs, their topology, and what operations cost on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Number of CPUs, 1 to [`Machine::MAX_CPUS`].
    pub cpus: usize,
    /// Number of NUMA nodes, 1 to `cpus`. Each node has consecutive CPUs; the nodes differ in size
    /// by at most one CPU.
    pub nodes: usize,
    /// The price list: what each operation costs.
    pub costs: Costs,
    /// The fair scheduler of every CPU.
    pub scheduler: Scheduler,
    /// The softirq of irq_poll.
    pub softirq: Softirq,
    /// The stages between devices and CPUs at which interrupts wait for each other.
    pub interrupts: InterruptPath,
    /// `true`: posted MSI is on in all modes, as with Linux's boot option `posted_msi`: device
    /// vectors are posted into a bitmap per CPU and share one notification. `false`: only in modes
    /// with posted delivery.
    pub posted: bool,
    /// The CPU of each thread that computes for ever (*hog*), at normal priority. A CPU that is
    /// listed n times has n such threads.
    pub hogs: Vec<usize>,
}

/// A fair scheduler: of the ready threads the one with the least CPU time runs. Interrupt threads
/// run first (SCHED_FIFO), within a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// How long a thread runs before another ready thread of its CPU gets its turn.
    #[serde(deserialize_with = "crate::values::nonzero_time")]
    pub slice: Nanos,
    /// A thread that wakes preempts the running thread if that has used this much more CPU time.
    #[serde(deserialize_with = "crate::values::time")]
    pub wakeup_granularity: Nanos,
    /// Period of the scheduler's tick, at which the end of a slice is noticed. 0: it is noticed at
    /// once.
    #[serde(deserialize_with = "crate::values::time")]
    pub tick: Nanos,
    /// CPU time that interrupt threads may use in each `rt_period` while other threads are ready. A
    /// value of at least `rt_period` means no limit.
    #[serde(deserialize_with = "crate::values::nonzero_time")]
    pub rt_runtime: Nanos,
    /// The period of the quota `rt_runtime`.
    #[serde(deserialize_with = "crate::values::nonzero_time")]
    pub rt_period: Nanos,
}

/// The softirq of irq_poll, which polls the scheduled queues of its CPU round-robin. The mode says
/// how many entries and how much time one run may take ([`completion::PollLimits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Softirq {
    /// Maximum number of runs in a row, each because the last one raised the softirq again, before
    /// ksoftirqd does the rest.
    pub restarts: u32,
}

impl Default for Scheduler {
    /// Linux's base slice on eight or more CPUs, a wake-up granularity of a third of that, and the
    /// defaults of `sched_rt_runtime_us` and `sched_rt_period_us`.
    fn default() -> Scheduler {
        Scheduler {
            slice: Nanos::from_micros(3_000),
            wakeup_granularity: Nanos::from_micros(1_000),
            tick: Nanos::ZERO,
            rt_runtime: Nanos::from_millis(950),
            rt_period: Nanos::from_secs(1),
        }
    }
}

impl Default for Softirq {
    /// As in `__do_softirq`.
    fn default() -> Softirq {
        Softirq { restarts: 10 }
    }
}

impl Default for Machine {
    /// One CPU, with the price list for bare metal.
    fn default() -> Machine {
        Machine {
            cpus: 1,
            nodes: 1,
            costs: Costs::BARE_METAL,
            scheduler: Scheduler::default(),
            softirq: Softirq::default(),
            interrupts: InterruptPath::default(),
            posted: false,
            hogs: Vec::new(),
        }
    }
}

impl Machine {
    /// Maximum number of CPUs.
    pub const MAX_CPUS: usize = 256;

    /// A machine of this many CPUs and NUMA nodes, with the price list for bare metal.
    pub fn new(cpus: usize, nodes: usize) -> Machine {
        Machine { cpus, nodes, ..Machine::default() }
    }

    /// Refuses slices so short that context switches would use them up: no thread would progress.
    pub(crate) fn check_scheduler(&self) -> Result<(), SimError> {
        let Scheduler { slice, rt_runtime, rt_period, .. } = self.scheduler;
        self.holds_ten_switches("a scheduler's slice", slice)?;
        // Without a limit there is no quota to check.
        if rt_runtime >= rt_period {
            Ok(())
        } else {
            self.holds_ten_switches("a share of real-time threads (rt_runtime)", rt_runtime)
        }
    }

    fn holds_ten_switches(&self, what: &str, span: Nanos) -> Result<(), SimError> {
        let thread = &self.costs.thread;
        let switch = thread.switch + thread.from_idle;
        let least = Nanos(switch.0.saturating_mul(10).max(1));
        if span >= least {
            return Ok(());
        }
        let [span, switch, least] = [span, switch, least].map(|span| span.0 as f64 / 1e3);
        Err(SimError::Unfit(format!(
            "{what} of {span} µs begins with a context switch of {switch} µs: it must be at least ten times as long, {least} µs"
        )))
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: usize) -> usize {
        cpu * self.nodes / self.cpus.max(1)
    }

    pub(crate) fn check(&self) -> Result<(), SimError> {
        let unfit = |what: String| Err(SimError::Unfit(what));
        if !(1..=Machine::MAX_CPUS).contains(&self.cpus) {
            return unfit(format!(
                "a machine of {} CPUs: there must be 1 to {}",
                self.cpus,
                Machine::MAX_CPUS
            ));
        }
        if !(1..=self.cpus).contains(&self.nodes) {
            return unfit(format!(
                "{} NUMA nodes for {} CPUs: there must be 1 to {}",
                self.nodes, self.cpus, self.cpus
            ));
        }
        if let Some(cpu) = self.hogs.iter().find(|&&cpu| cpu >= self.cpus) {
            return unfit(format!(
                "a hog on CPU {cpu}: the machine has CPUs 0 to {}",
                self.cpus - 1
            ));
        }
        self.check_scheduler()?;
        if self.scheduler.rt_period == Nanos::ZERO {
            return unfit(
                "rt_period is 0: it must be greater, because rt_runtime is the quota per period"
                    .into(),
            );
        }
        self.interrupts.check()?;
        Ok(())
    }
}
