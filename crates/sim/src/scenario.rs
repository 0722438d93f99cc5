//! What a run simulates: a machine, its devices, the jobs, and the completion mode. A [`Scenario`]
//! is plain data; `file.rs` reads scenarios from TOML. All values are checked before a run.

use completion::Mode;
use driver::RecoveryConfig;
use driver::multipath::FailoverConfig;
use driver::paths::PathSet;
use emu::{Config, FaultPlan, Profile, Script};
use units::Nanos;
use workload::{Job, PerOp, Rate, RatePhase, RateProcess};

use crate::requests::MAX_REQUEST;
use crate::{Costs, DieLayout, Machine, SimError, Spin};

/// A machine, its devices, the jobs on it, and how completions are found.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// Which code drives the devices.
    pub host: HostStack,
    /// The devices, 1 to [`Scenario::MAX_DEVICES`].
    pub devices: Vec<DeviceSpec>,
    /// The jobs, each with `numjobs` threads.
    pub jobs: Vec<JobSpec>,
    /// The completion mode at the start.
    pub mode: Mode,
    /// When the mode changes, and to which.
    pub switches: Vec<(Nanos, Mode)>,
    /// Time-outs, Abort and reset. `None`: there are no time-outs, and a lost wake-up ends the run
    /// as a standstill.
    pub recovery: Option<RecoveryConfig>,
    /// Events of controllers that are paths, such as their loss, each at a time after the start.
    /// The path of a step is the number of the device. Needs [`Scenario::recovery`], whose
    /// time-outs notice the events.
    pub script: Script,
    /// What a spinning thread does while others are runnable.
    pub spin: Spin,
    /// Seed of all random generators: devices, jobs and timers.
    pub seed: u64,
    /// Virtual time after which the run fails.
    pub limit: Nanos,
    /// Length of the intervals of [`crate::Outcome::ticks`]. `None`: there are no ticks.
    pub ticks: Option<Nanos>,
}

/// Which code drives the devices. Both run the same policies, queue pairs and controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostStack {
    /// Reap: submission without a system call. The thread that waits reaps its completions; it
    /// spins, naps, or sleeps until a notification wakes it.
    #[default]
    User,
    /// A kernel's block layer: submission by system call. Completions are reaped in the hard
    /// interrupt (`interrupt`), in a softirq (`irq-poll`), in an interrupt thread (`threaded`), or
    /// by the waiting thread (modes that poll). They go to the ring of the thread that submitted,
    /// which is woken when the ring has as many as it waits for.
    Kernel,
}

/// A device, and how it is attached.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// The name that jobs use in `filename`.
    pub name: String,
    /// The controller. Its seed is replaced by one derived from the scenario's seed.
    pub config: Config,
    /// Size of its namespace in bytes.
    pub bytes: u64,
    /// Hardware queues, 1 to 128. Software queues are spread over them by `driver::QueueMap`.
    pub queues: u16,
    /// Maximum number of commands in flight on each hardware queue.
    pub tags: u32,
    /// Which CPUs take its interrupts.
    pub affinity: Affinity,
    /// The controller is a thread of the same process, with a CPU of its own, as Reap's embedded
    /// devices. To send a message, that thread makes a system call (a write to an eventfd), during
    /// which it does nothing else, and which wakes the sleeping thread without a device interrupt.
    /// To post a message, it sets a bit, and makes the call only if no notification is outstanding.
    /// User host only, and without [`Machine::posted`].
    pub in_process: bool,
    /// Its vectors can be masked. If not, as under VFIO without access to the MSI-X table, each
    /// hardware queue has two queue pairs: an interrupt queue, and a poll queue, which sends no
    /// messages. The policy chooses one of the two for each batch (`completion::Policy::route`),
    /// and "masking" means not to read the eventfd. `false`: user host only.
    pub masks: bool,
    /// How data is laid out on its dies.
    pub inside: DieLayout,
    /// Faults on its bus.
    pub faults: FaultPlan,
}

/// Which CPUs take the interrupts of a device's I/O vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Each vector goes to a CPU that uses its queue, as with Linux's managed vectors. If several
    /// CPUs use it, the first device takes the first of them, the second device the second, and so
    /// on.
    #[default]
    Managed,
    /// The n-th I/O vector goes to the n-th of these CPUs; after the last CPU the first one
    /// follows.
    Cpus(Vec<usize>),
}

/// A job, and settings for which fio's job files have no option.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The fio job. `numjobs`, `cpus_allowed` and `cpus_allowed_policy` place its threads: each
    /// thread stays on the CPU, of those that it may use, with the fewest threads. `filename` names
    /// devices; without `filename` the job uses the first device.
    pub job: Job,
    /// The I/O interface, in the kernel host.
    pub engine: Engine,
    /// In each wait the application leaves the library and computes for this time.
    pub think: Nanos,
    /// CPU time that the application spends on each I/O that completes.
    pub work: Nanos,
    /// Load steps: the rate of each thread over time. Before the first phase the rate is 0. Empty:
    /// the job's own rate.
    pub phases: Vec<Phase>,
    /// Several paths for its I/Os, and how one is chosen. `None`: each device has one path.
    pub paths: Option<Multipath>,
    /// Software queues that each thread opens on each device, in the user host. I/Os are spread
    /// over them.
    pub queues: u16,
}

/// Where the policy `queue-depth` counts requests in flight, if only the choice is simulated. Each
/// count has its own cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DepthCounter {
    /// One count for each hardware queue of each path. A thread that chooses adds up the counts of
    /// a path.
    Sum,
    /// One count for each path, which all CPUs write.
    Controller,
}

/// Several paths to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// The number of paths.
    pub paths: u8,
    /// Hardware queues of each path, if only the choice is simulated (`choice_only`).
    pub queues: u16,
    /// How a path is chosen.
    pub policy: driver::paths::Policy,
    /// `None`: each path ends at a controller of its own. The job's devices, in order, are these
    /// controllers, and together one target. `Some`: all paths end at one controller, and only the
    /// choice by `queue-depth` is simulated, with the cost of these counters.
    pub choice_only: Option<DepthCounter>,
    /// What happens to requests whose path fails.
    pub failover: FailoverConfig,
    /// The keep-alive time-out of the controllers; zero: none. Only with [`Scenario::recovery`].
    pub keep_alive: Nanos,
}

impl Multipath {
    /// The default keep-alive time-out, as in the library.
    pub const KEEP_ALIVE: Nanos = Nanos::from_secs(1);

    /// A path for each of `devices`.
    pub fn over(devices: u8, policy: driver::paths::Policy) -> Multipath {
        let (failover, keep_alive) = (FailoverConfig::default(), Multipath::KEEP_ALIVE);
        Multipath { paths: devices, queues: 1, policy, choice_only: None, failover, keep_alive }
    }

    /// Time-outs for controllers that are paths, as in the library. A lost controller is never
    /// given up, since there are other paths.
    pub fn recovery(keep_alive: Nanos) -> RecoveryConfig {
        let (least, most) = (Nanos::from_millis(500), Nanos::from_secs(10));
        RecoveryConfig {
            command_timeout: Nanos::from_secs(30),
            grace: if keep_alive > Nanos::ZERO { keep_alive.clamp(least, most) } else { most },
            attempts: 3,
            health_interval: Nanos::from_millis(10),
            lost_timeout: Nanos::MAX,
        }
    }
}

/// A load step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// When it begins, from the job's start.
    #[serde(deserialize_with = "crate::values::time")]
    pub from: Nanos,
    /// I/Os per second of each thread. 0: none.
    pub iops: u64,
}

/// The kernel's interfaces for asynchronous I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// libaio: one system call submits a batch, another one waits.
    Libaio,
    /// io_uring: one system call does both.
    #[default]
    IoUring,
}

impl DeviceSpec {
    /// Bytes of a logical block.
    pub(crate) const BLOCK: u32 = 512;
    /// Maximum size of a device in bytes, as of embedded devices: the page table of the data is
    /// itself in memory.
    const MAX_BYTES: u64 = 1 << 50;

    /// A device with this profile: 64 MiB, one hardware queue of 256 tags, managed vectors.
    pub fn new(name: &str, profile: Profile) -> DeviceSpec {
        DeviceSpec {
            name: name.into(),
            config: Config { queue_pairs: 8, vectors: 9, ..Config::new(profile) },
            bytes: 64 << 20,
            queues: 1,
            tags: 256,
            affinity: Affinity::Managed,
            in_process: false,
            masks: true,
            inside: DieLayout::default(),
            faults: FaultPlan::new(),
        }
    }

    /// The same with vectors that cannot be masked.
    pub fn without_masks(mut self) -> DeviceSpec {
        self.masks = false;
        self.config.queue_pairs = self.config.queue_pairs.max(self.pairs());
        self
    }

    /// The queue pairs of its hardware queues.
    pub(crate) fn pairs(&self) -> u16 {
        if self.masks { self.queues } else { self.queues.saturating_mul(2) }
    }

    /// The same with `queues` hardware queues, each with its own vector.
    pub fn with_queues(mut self, queues: u16) -> DeviceSpec {
        self.queues = queues;
        self.config.queue_pairs = self.pairs();
        self.config.vectors = queues.saturating_add(1);
        self
    }
}

impl JobSpec {
    /// Maximum number of software queues of a thread on one device.
    pub const MAX_QUEUES: u16 = 256;

    /// A job with the interface that its `ioengine` names; io_uring by default.
    pub fn new(job: Job) -> JobSpec {
        let engine = if job.engine.name.as_deref() == Some("libaio") {
            Engine::Libaio
        } else {
            Engine::IoUring
        };
        JobSpec {
            job,
            engine,
            think: Nanos::ZERO,
            work: Nanos::ZERO,
            phases: Vec::new(),
            paths: None,
            queues: 1,
        }
    }

    /// The rate of each thread, in I/Os per second, at the time `at` after the start; 0 without
    /// phases.
    pub fn phase_at(&self, at: Nanos) -> u64 {
        self.phases.iter().rev().find(|phase| phase.from <= at).map_or(0, |phase| phase.iops)
    }

    /// The job with its phases in the generator's form: one rate, the highest, and for each phase a
    /// share of that rate.
    pub fn paced(&self) -> Job {
        let mut job = self.job.clone();
        // The generator multiplies the one rate by the share of the current phase.
        let highest = self.phases.iter().map(|phase| phase.iops).max().unwrap_or(0);
        if highest == 0 {
            return job;
        }
        let first = RatePhase { span: self.phases[0].from, share: 0.0 };
        let ends = self.phases.iter().skip(1).map(|next| next.from).chain([Nanos::MAX]);
        let rate_phase = |(phase, end): (&Phase, Nanos)| RatePhase {
            span: end - phase.from,
            share: phase.iops as f64 / highest as f64,
        };
        job.rate_phases =
            std::iter::once(first).chain(self.phases.iter().zip(ends).map(rate_phase)).collect();
        job.rate = PerOp::all(Some(Rate::Iops(highest)));
        job
    }
}

impl Scenario {
    /// Maximum number of devices of a scenario.
    pub const MAX_DEVICES: usize = 64;

    /// A job in a mode on one device: one CPU, the user host, the price list for bare metal.
    pub fn new(mode: Mode, profile: Profile, job: Job) -> Scenario {
        Scenario {
            machine: Machine::default(),
            host: HostStack::User,
            devices: vec![DeviceSpec::new("device", profile)],
            jobs: vec![JobSpec::new(job)],
            mode,
            switches: Vec::new(),
            recovery: None,
            script: Script::default(),
            spin: Spin::default(),
            seed: 1,
            limit: Nanos::from_secs(3_600),
            ticks: None,
        }
    }

    /// The same with this price list.
    pub fn with_costs(mut self, costs: Costs) -> Scenario {
        self.machine.costs = costs;
        self
    }

    /// Whether device vectors are posted in a mode.
    pub(crate) fn posts(&self, mode: Mode) -> bool {
        self.machine.posted || mode.facts().posted
    }

    /// Whether a device signals an eventfd itself instead of sending interrupts.
    pub(crate) fn signals_eventfd(&self, device: usize) -> bool {
        self.host == HostStack::User
            && self.devices.get(device).is_some_and(|device| device.in_process)
            && !self.machine.posted
    }

    /// Checks everything but what the jobs' threads need at run time.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        self.machine.check()?;
        if !(1..=Scenario::MAX_DEVICES).contains(&self.devices.len()) {
            return unfit(format!(
                "{} devices: there must be 1 to {}",
                self.devices.len(),
                Scenario::MAX_DEVICES
            ));
        }
        if self.jobs.is_empty() {
            return unfit("no job".into());
        }
        self.devices.iter().try_for_each(|device| device.check(self))?;
        self.jobs.iter().try_for_each(|job| self.check_job(job))?;
        let is_path = |device: usize| {
            self.jobs
                .iter()
                .filter_map(|job| self.paths_of(job))
                .any(|(_, devices)| devices.contains(&device))
        };
        if let Some(step) = self.script.steps.iter().find(|step| !is_path(step.path)) {
            return unfit(format!(
                "an event names device {}, which is not a path of any job",
                step.path
            ));
        }
        // Without time-outs a lost path would be a standstill, which is reported as a lost wake-up.
        if !self.script.steps.is_empty() && self.recovery.is_none() {
            return unfit("there are events of paths, and no `recovery` to notice them".into());
        }
        Ok(())
    }

    /// Checks that a job fits, and can end within the limit.
    pub(crate) fn check_job(&self, job: &JobSpec) -> Result<(), SimError> {
        job.check()?;
        self.check_paths(job)?;
        self.check_pace(job)?;
        let missing = [
            (job.job.pattern.trims(), "trims"),
            (job.job.sync_writes, "Force Unit Access (`sync`)"),
            (
                job.job.think.is_some_and(|think| think.spin > Nanos::ZERO),
                "`thinktime_spin` (use the scenario's `work`)",
            ),
        ];
        if let Some((_, what)) = missing.iter().find(|(asked, _)| *asked) {
            return unfit(format!(
                "job '{}': the simulated host does not support {what}",
                job.job.name
            ));
        }
        let (job, name) = (&job.job, &job.job.name);
        // A job that ends after a number of I/Os may end in its ramp, so only time-based jobs have
        // a minimum.
        let min_time = job
            .runtime
            .filter(|_| job.time_based)
            .map_or(Nanos::ZERO, |runtime| job.ramp_time + runtime);
        let least = job.start_delay.0 + min_time;
        if least > self.limit {
            return unfit(format!(
                "job '{name}': it takes at least {least}, and the run is given up after {} (`limit`)",
                self.limit
            ));
        }
        Ok(())
    }

    /// The devices of a job that are its paths.
    pub(crate) fn paths_of(&self, job: &JobSpec) -> Option<(Multipath, Vec<usize>)> {
        let paths = job.paths.filter(|paths| paths.choice_only.is_none())?;
        let number = |name: &String| self.devices.iter().position(|device| device.name == *name);
        Some((paths, job.job.filenames.iter().filter_map(number).collect()))
    }

    /// Checks that the paths of a job lead to one namespace, and that other jobs use them alike.
    fn check_paths(&self, job: &JobSpec) -> Result<(), SimError> {
        let name = &job.job.name;
        if let Some(Multipath { paths, queues, choice_only: Some(_), .. }) = job.paths
            && !((1..=PathSet::MAX).contains(&paths.into()) && (1..=1_024).contains(&queues))
        {
            return unfit(format!(
                "job '{name}': {paths} paths of {queues} hardware queues: there must be 1 to 64, each of 1 to 1024"
            ));
        }
        let Some((_, devices)) = self.paths_of(job) else { return Ok(()) };
        if !(2..=PathSet::MAX).contains(&devices.len()) {
            return unfit(format!(
                "job '{name}': {} devices as paths: there must be 2 to {}",
                devices.len(),
                PathSet::MAX
            ));
        }
        for (n, device) in devices.iter().map(|&device| &self.devices[device]).enumerate() {
            let first = &self.devices[devices[0]];
            if devices[..n].contains(&devices[n]) {
                return unfit(format!(
                    "job '{name}': `{}` is listed twice among the devices: each device is one path",
                    device.name
                ));
            }
            if device.bytes != first.bytes {
                return unfit(format!(
                    "`{}` and `{}` differ in size: paths lead to one namespace",
                    first.name, device.name
                ));
            }
        }
        for other in &self.jobs {
            let theirs = self.paths_of(other).map(|(_, theirs)| theirs);
            let same = theirs.as_ref() == Some(&devices);
            let theirs = theirs.unwrap_or_else(|| self.plain_devices(other));
            // All threads that use a path share the state of its failover, so jobs share all of
            // their paths or none.
            if !same && devices.iter().any(|device| theirs.contains(device)) {
                let other = &other.job.name;
                return unfit(format!(
                    "jobs '{name}' and '{other}' share a path: they have to list the same devices, in the same order"
                ));
            }
        }
        Ok(())
    }

    /// Checks that each device can complete one I/O of the job within the limit.
    fn check_pace(&self, job: &JobSpec) -> Result<(), SimError> {
        let block = &job.job.block;
        let least = block.read.min.min(block.write.min);
        for device in self.plain_devices(job).into_iter().filter_map(|n| self.devices.get(n)) {
            let (profile, name) = (&device.config.profile, &device.name);
            let takes = (u128::from(least) * 1_000_000_000)
                .checked_div(profile.bandwidth.into())
                .unwrap_or(0);
            if takes > u128::from(self.limit.0) {
                return unfit(format!(
                    "device '{name}': at {} bytes per second an I/O of {least} bytes of job '{}' takes longer than the run may ({}, `limit`)",
                    profile.bandwidth, job.job.name, self.limit
                ));
            }
            let service = profile.read.base.min(profile.write.base);
            if service > self.limit {
                return unfit(format!(
                    "device '{name}': a command takes {service}, and the run is given up after {} (`limit`)",
                    self.limit
                ));
            }
        }
        Ok(())
    }

    /// The devices of a job that are not paths.
    fn plain_devices(&self, job: &JobSpec) -> Vec<usize> {
        let named = |device: &DeviceSpec| job.job.filenames.contains(&device.name);
        match job.job.filenames.is_empty() {
            true => vec![0],
            false => (0..self.devices.len()).filter(|&n| named(&self.devices[n])).collect(),
        }
    }
}

impl DeviceSpec {
    pub(crate) fn check(&self, scenario: &Scenario) -> Result<(), SimError> {
        let (name, cpus) = (&self.name, scenario.machine.cpus);
        let offered = self.config.queue_pairs.min(Config::MAX_QUEUE_PAIRS);
        // If vectors cannot be masked, each hardware queue takes two queue pairs.
        if self.queues == 0 || self.pairs() > offered {
            let (queues, pairs) = (self.queues, self.pairs());
            return unfit(format!(
                "device '{name}': {queues} hardware queues take {pairs} queue pairs of a controller that offers {offered}"
            ));
        }
        if (!self.masks || self.in_process) && scenario.host == HostStack::Kernel {
            return unfit(format!(
                "device '{name}': `in_process` and `masks = false` are for the user host: leave out host = \"kernel\""
            ));
        }
        // Vector 0 is the admin queue's.
        if !(2..=2_048).contains(&self.config.vectors) {
            let vectors = self.config.vectors.saturating_sub(1);
            return unfit(format!(
                "device '{name}': {vectors} I/O vectors: there must be 1 to 2047"
            ));
        }
        // A ring of n entries holds n - 1 commands.
        if self.tags == 0 || self.tags >= self.config.queue_entries {
            let most = self.config.queue_entries - 1;
            return unfit(format!(
                "device '{name}': {} commands in flight per queue: there must be 1 to {most}",
                self.tags
            ));
        }
        let channels = self.config.profile.channels;
        if channels > Profile::MAX_CHANNELS {
            return unfit(format!(
                "device '{name}': {channels} channels: there are at most {}",
                Profile::MAX_CHANNELS
            ));
        }
        if self.bytes > DeviceSpec::MAX_BYTES {
            return unfit(format!(
                "device '{name}': {} bytes: a device has at most 1024T",
                self.bytes
            ));
        }
        if scenario.devices.iter().filter(|other| other.name == *name).count() > 1 {
            return unfit(format!("two devices are called '{name}'"));
        }
        self.inside.check(name)?;
        match &self.affinity {
            Affinity::Managed => Ok(()),
            Affinity::Cpus(list) if list.is_empty() => {
                unfit(format!("device '{name}': `affinity` lists no CPU"))
            }
            Affinity::Cpus(list) => match list.iter().find(|&&cpu| cpu >= cpus) {
                Some(cpu) => unfit(format!(
                    "device '{name}': interrupts on CPU {cpu}; the machine has CPUs 0 to {}",
                    cpus - 1
                )),
                None => Ok(()),
            },
        }
    }
}

impl JobSpec {
    fn check(&self) -> Result<(), SimError> {
        let (job, name) = (&self.job, &self.job.name);
        let largest = job.block.read.max.max(job.block.write.max);
        if self.queues == 0 || self.queues > JobSpec::MAX_QUEUES {
            return unfit(format!(
                "job '{name}': {} software queues for one thread: there must be 1 to {}",
                self.queues,
                JobSpec::MAX_QUEUES
            ));
        }
        if !(1..=u32::from(u16::MAX)).contains(&job.iodepth) {
            return unfit(format!(
                "job '{name}': iodepth {}: it has to be 1 to 65535",
                job.iodepth
            ));
        }
        if job.numjobs > 4_096 {
            return unfit(format!(
                "job '{name}': {} threads: there must be at most 4096",
                job.numjobs
            ));
        }
        if largest > MAX_REQUEST {
            return unfit(format!(
                "job '{name}': requests of {largest} bytes: a buffer has {MAX_REQUEST}"
            ));
        }
        if !self.phases.is_sorted_by(|a, b| a.from < b.from) {
            return unfit(format!(
                "job '{name}': each phase has to begin later than the one before it"
            ));
        }
        if !self.phases.is_empty() && self.phases.iter().all(|phase| phase.iops == 0) {
            return unfit(format!("job '{name}': all its phases are off, so it would do nothing"));
        }
        // Such a job reaches neither a run time nor its number of I/Os.
        if self.phases.last().is_some_and(|last| last.iops == 0) && job.runtime.is_none() {
            return unfit(format!(
                "job '{name}': its last phase is off and it has no runtime, so it would never end"
            ));
        }
        Ok(())
    }
}

fn unfit(what: String) -> Result<(), SimError> {
    Err(SimError::Unfit(what))
}

/// A closed-loop job: `ios` random 4 KiB reads, with `depth` in flight at all times.
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

/// An open-loop job: `ios` random 4 KiB reads, which arrive as a Poisson process of `rate` per
/// second, whatever the number in flight.
pub fn open_loop(rate: u64, ios: u64) -> Job {
    let rate = PerOp::all(Some(Rate::Iops(rate)));
    Job {
        name: "open".into(),
        rate,
        rate_process: RateProcess::Poisson,
        batch_submit: 16,
        ..closed_loop(256, ios)
    }
}
