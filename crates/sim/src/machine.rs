//! The simulated machine: its CPUs and their topology, the scheduler, the softirq of irq_poll, and
//! the price list.

use units::Nanos;

use crate::{Costs, InterruptPath, SimError};

/// CPUs, their topology, and what operations cost on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs, 1 to [`Machine::MOST_CPUS`].
    pub cpus: usize,
    /// NUMA nodes of neighbouring CPUs, all of the same size. 1 to the number of CPUs.
    pub nodes: usize,
    /// The price list.
    pub costs: Costs,
    /// The fair scheduler of every CPU.
    pub scheduler: Scheduler,
    /// The softirq of irq_poll.
    pub softirq: Softirq,
    /// What interrupts share on their way to the CPUs.
    pub interrupts: InterruptPath,
    /// Posted MSI is enabled at boot: in every mode, device vectors are posted into a bitmap per
    /// CPU and share one notification. Otherwise only modes with posted delivery do so.
    pub posted: bool,
    /// CPUs with a thread that computes for ever, at normal priority. A CPU may be named several
    /// times.
    pub hogs: Vec<usize>,
}

/// A fair scheduler: of the ready threads the one with the least CPU time runs. Interrupt threads
/// run first (SCHED_FIFO), within a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// How long a thread runs before others of its CPU that are ready get their turn.
    #[serde(deserialize_with = "crate::values::lasting")]
    pub slice: Nanos,
    /// A thread that wakes preempts one that has used this much more CPU time.
    #[serde(deserialize_with = "crate::values::time")]
    pub wakeup_granularity: Nanos,
    /// The end of a slice is noticed at the next tick. 0: at once.
    #[serde(deserialize_with = "crate::values::time")]
    pub tick: Nanos,
    /// CPU time that interrupt threads may have in each `rt_period` while others are ready. From
    /// the period on there is no limit.
    #[serde(deserialize_with = "crate::values::lasting")]
    pub rt_runtime: Nanos,
    /// See `rt_runtime`.
    #[serde(deserialize_with = "crate::values::lasting")]
    pub rt_period: Nanos,
}

/// The softirq of irq_poll: round-robin over the scheduled queues of its CPU. The mode says how
/// much one run may take ([`completion::PollLimits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Softirq {
    /// Runs in a row, each of which raised the softirq again, before ksoftirqd does the rest.
    pub restarts: u32,
}

impl Default for Scheduler {
    /// Linux's base slice on eight and more CPUs, preemption at a third of it, and the defaults of
    /// `sched_rt_runtime_us` and `sched_rt_period_us`.
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
    /// One CPU with the price list of a bare machine.
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
    /// The most CPUs of a machine.
    pub const MOST_CPUS: usize = 256;

    /// A machine of this shape with the price list of a bare one.
    pub fn new(cpus: usize, nodes: usize) -> Machine {
        Machine { cpus, nodes, ..Machine::default() }
    }

    /// Refuses slices that context switches would use up: a thread would never get anywhere.
    pub(crate) fn check_scheduler(&self) -> Result<(), SimError> {
        let Scheduler { slice, rt_runtime, rt_period, .. } = self.scheduler;
        self.holds_ten_switches("a scheduler's slice", slice)?;
        // Without a quota there is no share to check.
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
        if !(1..=Machine::MOST_CPUS).contains(&self.cpus) {
            return unfit(format!(
                "a machine of {} CPUs: there must be 1 to {}",
                self.cpus,
                Machine::MOST_CPUS
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
                "a scheduler's rt_period of 0: the quota of interrupt threads is of a period"
                    .into(),
            );
        }
        self.interrupts.check()?;
        Ok(())
    }
}
