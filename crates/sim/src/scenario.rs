//! What is simulated, and how a run can fail.

use completion::{Group, LatencySlack, Mode, Plan, QueueSet, Tuning};
use device::{Config, FaultPlan, Profile};
use driver::{BringupError, ProtocolViolation, RecoveryConfig};
use units::Nanos;
use workload::{Job, Misfit, PerOp, Rate, RateProcess};

use crate::Costs;
use crate::requests::BUFFER;

/// One CPU, one thread on it, one device.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How completions are found, to begin with.
    pub mode: Mode,
    /// How much later than if polled the user lets commands be found; `adaptive` asks.
    pub latency_slack: LatencySlack,
    /// When the mode is switched, and to which.
    pub switches: Vec<(Nanos, Mode)>,
    /// How the thread's queues share it.
    pub group: Group,
    /// What things cost.
    pub costs: Costs,
    /// The controller.
    pub device: Config,
    /// Bytes of its one namespace.
    pub bytes: u64,
    /// Hardware queues of the thread; its requests are spread over them.
    pub queues: u16,
    /// Commands in flight per hardware queue.
    pub tags: u32,
    /// The fio job. `numjobs` counts as 1.
    pub job: Job,
    /// After each wait the application leaves the library and computes for so long.
    pub think: Nanos,
    /// Another thread wants the CPU all the time. The policies are told; its own time is not modelled.
    pub cpu_wanted: bool,
    /// What goes wrong on the bus.
    pub faults: FaultPlan,
    /// What is done about commands that do not come back. `None`: nothing, so that a lost wake-up is a standstill.
    pub recovery: Option<RecoveryConfig>,
    /// Seeds the device's dice and the job's.
    pub seed: u64,
    /// Virtual time after which the run is given up.
    pub limit: Nanos,
}

impl Scenario {
    /// A job under a mode on a device of this profile, with the costs of a bare machine.
    pub fn new(mode: Mode, profile: Profile, job: Job) -> Scenario {
        Scenario {
            mode,
            latency_slack: LatencySlack::default(),
            switches: Vec::new(),
            group: Group::default(),
            costs: Costs::BARE_METAL,
            device: Config { queue_pairs: 8, vectors: 9, ..Config::new(profile) },
            bytes: 64 << 20,
            queues: 1,
            tags: 256,
            job,
            think: Nanos::ZERO,
            cpu_wanted: false,
            faults: FaultPlan::new(),
            recovery: None,
            seed: 1,
            limit: Nanos::from_secs(3_600),
        }
    }
}

impl Scenario {
    /// What policies are told of the user, and of the machine: its price list.
    pub(crate) fn tuning(&self) -> Tuning {
        Tuning { slack: self.latency_slack, machine: self.costs.cycle() }
    }

    /// Whether everything fits the simulator.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let unfit = |what: String| Err(SimError::Unfit(what));
        let largest = self.job.block.read.max.max(self.job.block.write.max);
        if self.queues == 0 || usize::from(self.queues) > QueueSet::MOST {
            return unfit(format!("{} hardware queues for one thread: there have to be 1 to {}", self.queues, QueueSet::MOST));
        }
        if self.device.vectors < 2 {
            return unfit("a device with one vector: that is the admin queue's, and I/O queues need another".into());
        }
        if !(1..=u32::from(u16::MAX)).contains(&self.job.iodepth) {
            return unfit(format!("iodepth {}: it has to be 1 to 65535", self.job.iodepth));
        }
        if largest > BUFFER {
            return unfit(format!("requests of {largest} bytes: a buffer has {BUFFER}"));
        }
        Ok(())
    }
}

/// A job of `ios` random 4 KiB reads, `depth` in flight, refilled as they complete.
pub fn closed_loop(depth: u32, ios: u64) -> Job {
    let pattern = workload::Pattern { random: true, step: 1, ..workload::Pattern::default() };
    Job {
        name: "closed".into(),
        pattern,
        random_map: false,
        iodepth: depth,
        batch_submit: depth,
        complete_max: depth,
        number_ios: Some(ios),
        io_size: Some(workload::Amount::Bytes(u64::MAX)),
        ..Job::default()
    }
}

/// A job of `ios` random 4 KiB reads that arrive as a Poisson process of `rate` per second, whatever is in flight.
pub fn open_loop(rate: u64, ios: u64) -> Job {
    let rate = PerOp::both(Some(Rate::Iops(rate)));
    Job { name: "open".into(), rate, rate_process: RateProcess::Poisson, batch_submit: 16, ..closed_loop(256, ios) }
}

/// How a run can fail. All but [`SimError::Unfit`], [`SimError::Misfit`] and [`SimError::BringUp`] are broken laws.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The scenario does not go together.
    #[error("the scenario cannot be run: {0}")]
    Unfit(String),
    /// The job does not fit the device.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The controller did not come up.
    #[error(transparent)]
    BringUp(#[from] BringupError),
    /// Nothing will ever happen again, and commands are in flight: a lost wake-up.
    #[error(
        "standstill at {at} (seed {seed}, mode {mode}): {in_flight} commands in flight, {pending} queues with entries that nobody looks at"
    )]
    Standstill {
        /// When.
        at: Nanos,
        /// The scenario's seed.
        seed: u64,
        /// The mode in force.
        mode: Mode,
        /// Commands in flight.
        in_flight: u32,
        /// Queues on which entries wait.
        pending: usize,
    },
    /// More virtual time than the scenario allows.
    #[error("not done after {limit} of virtual time (seed {seed}): {in_flight} commands in flight")]
    TooLong {
        /// The limit.
        limit: Nanos,
        /// The scenario's seed.
        seed: u64,
        /// Commands in flight.
        in_flight: u32,
    },
    /// A command completed twice, or one that was never posted.
    #[error("a completion for command {token:#x}, which is not in flight (law 3)")]
    NotOnce {
        /// What it was posted with.
        token: u64,
    },
    /// The thread left the library without arming a queue that has commands in flight.
    #[error("at {at} the thread leaves the library and the policies plan {plan:?}")]
    LeftUnarmed {
        /// When.
        at: Nanos,
        /// What was planned.
        plan: Plan,
    },
    /// The controller broke the protocol and the scenario has no recovery.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Virtual time stands still.
    #[error("at {at} the thread takes steps for ever without any time passing (seed {seed})")]
    Livelock {
        /// When.
        at: Nanos,
        /// The scenario's seed.
        seed: u64,
    },
}
