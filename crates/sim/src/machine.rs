//! The machine that a scenario runs on.

use units::Nanos;

use crate::{Costs, InterruptPath, SimError};

/// CPUs, how they hang together, and what things cost on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs, 1 to [`Machine::MOST_CPUS`].
    pub cpus: usize,
    /// NUMA nodes, each with as many neighbouring CPUs as the next: at least 1, and no more than CPUs.
    pub nodes: usize,
    /// What things cost.
    pub costs: Costs,
    /// The fair scheduler of every CPU.
    pub scheduler: Scheduler,
    /// The poller that runs as a softirq.
    pub softirq: Softirq,
    /// What interrupts share on their way to the CPUs.
    pub interrupts: InterruptPath,
    /// Device vectors post into a bitmap per CPU and share one notification, whatever the mode: the hardware of posted
    /// MSI, switched on at boot. A mode whose delivery is posted asks for the same.
    pub posted: bool,
    /// A thread that computes for ever, at the priority of any other, on each of these CPUs; a CPU may be named more than
    /// once.
    pub hogs: Vec<usize>,
}

/// A fair scheduler: the thread that has had the least CPU time runs. Threads of interrupts come first, within a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// How long a thread runs before others of its CPU that are ready get their turn.
    #[serde(deserialize_with = "crate::values::lasting")]
    pub slice: Nanos,
    /// A thread that wakes takes the CPU from one that has had so much more of it.
    #[serde(deserialize_with = "crate::values::time")]
    pub wakeup_granularity: Nanos,
    /// A slice that is over is noticed at the next tick. 0: at once.
    #[serde(deserialize_with = "crate::values::time")]
    pub tick: Nanos,
    /// What the threads of interrupts may have of each `rt_period` while others are ready; they come before these. No less than
    /// the period: all of it.
    #[serde(deserialize_with = "crate::values::lasting")]
    pub rt_runtime: Nanos,
    /// See `rt_runtime`.
    #[serde(deserialize_with = "crate::values::lasting")]
    pub rt_period: Nanos,
}

/// irq_poll's softirq: round-robin over the queues on the CPU's list. How much a run takes is the mode's ([`completion::PollLimits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Softirq {
    /// Runs in a row, each of which raised the softirq again, before the rest is ksoftirqd's: a thread like any other.
    pub restarts: u32,
}

impl Default for Scheduler {
    /// Linux's base slice on eight CPUs and more; a waking thread preempts at a third of it. `sched_rt_runtime_us` and
    /// `sched_rt_period_us` as they come.
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
    /// As `__do_softirq` has it.
    fn default() -> Softirq {
        Softirq { restarts: 10 }
    }
}

impl Default for Machine {
    /// One CPU, the costs of a bare machine.
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

    /// A machine of this shape with the costs of a bare one.
    pub fn new(cpus: usize, nodes: usize) -> Machine {
        Machine { cpus, nodes, ..Machine::default() }
    }

    /// Whether most of a slice, and of interrupt threads' share of a period, is the thread's, not the switch's with which it begins: one that
    /// is shorter never gets anywhere.
    pub(crate) fn check_scheduler(&self) -> Result<(), SimError> {
        let Scheduler { slice, rt_runtime, rt_period, .. } = self.scheduler;
        self.holds_ten_switches("a scheduler's slice", slice)?;
        if rt_runtime >= rt_period { Ok(()) } else { self.holds_ten_switches("a share of real-time threads (rt_runtime)", rt_runtime) }
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
            "{what} of {span} µs, which begins with a switch of {switch} µs: threads would do little but switch; it has to be at least \
             ten times as long, {least} µs"
        )))
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: usize) -> usize {
        cpu * self.nodes / self.cpus.max(1)
    }

    /// Whether it can be.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let unfit = |what: String| Err(SimError::Unfit(what));
        if !(1..=Machine::MOST_CPUS).contains(&self.cpus) {
            return unfit(format!("a machine of {} CPUs: there must be 1 to {}", self.cpus, Machine::MOST_CPUS));
        }
        if !(1..=self.cpus).contains(&self.nodes) {
            return unfit(format!("{} NUMA nodes for {} CPUs: there must be 1 to {}", self.nodes, self.cpus, self.cpus));
        }
        if let Some(cpu) = self.hogs.iter().find(|&&cpu| cpu >= self.cpus) {
            return unfit(format!("a hog on CPU {cpu}: the machine has CPUs 0 to {}", self.cpus - 1));
        }
        self.check_scheduler()?;
        if self.scheduler.rt_period == Nanos::ZERO {
            return unfit("a scheduler's rt_period of 0: the quota of interrupt threads is of a period".into());
        }
        self.interrupts.check()?;
        Ok(())
    }
}
