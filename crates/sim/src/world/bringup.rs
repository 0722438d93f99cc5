//! Setting up a run: each controller is brought up by the driver's own code, queues are mapped to
//! threads and vectors to CPUs, and every thread gets its queues and its job.
//!
//! ```text
//! bring_up_device     reset, admin queue, Identify, I/O queues     (driver::Bringup)
//! add_controller      hardware queues, vectors
//! place_jobs          threads -> software queues -> hardware queues (driver::QueueMap)
//! place_vectors       vectors -> CPUs
//! place_others        interrupt threads, ksoftirqd, hogs
//! ```

use driver::multipath::{Failover, PathTraits, WriteMarks};
use driver::paths::{Distances, Paths, Selector};
use driver::{
    Bringup, BringupAction, BringupConfig, Inventory, QueueMap, QueuePair, QueueSizes, Recovery,
    WantedQueues,
};
use emu::{Ana, Budget, FaultInjector, FaultPlan, Mem, NamespaceConfig, Subsystem};
use nvme::QueueId;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::sync::Arc;
use workload::{Generator, TargetSize, plan};

use super::controller_task::PathState;
use super::tasks::{TaskKind, TaskState};
use super::*;
use crate::host::application::Application;
use crate::host::multipath::MultipathRequests;
use crate::host::paths::{ChoiceOnly, Chooser, DepthCounts};
use crate::host::sw_queue::SwQueue;
use crate::host::thread::Thread;
use crate::hw_queue::Pair;
use crate::port::{Memory, SimPort, Written};
use crate::requests::{DataBuffers, Requests};
use crate::softirq::Pollers;
use crate::{Affinity, DeviceSpec, HostStack, JobSpec, Multipath};

const ADMIN_SIZES: QueueSizes = QueueSizes { sq_entries: 32, cq_entries: 32, tags: 31 };

/// Bytes of a device's admin rings and admin page.
const DEVICE_OVERHEAD: usize = 64 << 10;

/// Xored to the scenario's seed, so that the random generator of timers differs from those of
/// devices and jobs.
const LATENESS: u64 = 0x6c61_7465;

/// Xored to a device's seed, for the random generator of the drive's dies.
const DIES: u64 = 0x6469_6573;

/// Virtual time at the start of the run. Not 0, so that an instant that was never set is detected.
const START: Nanos = Nanos::from_secs(1);

/// The path state that the threads of a job share.
struct JobPaths {
    paths: Arc<Paths>,
    choice_only: Option<Rc<DepthCounts>>,
    marks: WriteMarks,
    threads: usize,
}

/// The subsystem of a controller that is a path, and its keep-alive time-out.
type SubsystemMember<'a> = (&'a mut Subsystem, Nanos);

/// A controller after bring-up.
struct BroughtUp {
    attached: Attached,
    pairs: Vec<Pair>,
    inventory: Inventory,
    now: Nanos,
}

/// The host's memory, which all controllers reach.
struct HostMemory {
    memory: Memory,
    written: Written,
    data: DataBuffers,
}

/// The threads of all jobs, and where they run.
struct Layout {
    plan: Plan,
    /// By thread of a job: its CPU.
    cpus: Vec<usize>,
    /// By target of the plan: its device.
    targets: Vec<usize>,
    data: DataBuffers,
}

impl<'a> World<'a> {
    /// A world with all controllers ready and no thread started.
    pub(super) fn bring_up(
        scenario: &'a Scenario,
        ablation: &'a Ablation,
    ) -> Result<World<'a>, SimError> {
        let layout = Layout::new(scenario)?;
        let memory = Memory::new(layout.memory(scenario));
        let host =
            HostMemory { memory: memory.clone(), written: Written::default(), data: layout.data };
        let mut ready = Vec::new();
        let mut subsystems = subsystems(scenario)?;
        for (n, device) in scenario.devices.iter().enumerate() {
            let member = subsystems.iter_mut().find(|(devices, ..)| devices.contains(&n));
            let member = member.map(|(_, subsystem, keep_alive)| (subsystem, *keep_alive));
            ready.push(bring_up_device(scenario, device, n, &host, member)?);
        }
        // Controllers come up in parallel: the run starts when the slowest is ready.
        let now = ready.iter().map(|device| device.now).fold(START, Nanos::max);
        let inventories: Vec<Inventory> =
            ready.iter().map(|device| device.inventory.clone()).collect();
        let mut world = World::empty(scenario, ablation, now, layout.plan.clone(), host.written);
        for device in ready {
            world.add_controller(device);
        }
        world.place_jobs(&layout, &memory, &inventories)?;
        world.place_vectors(&layout);
        // The modes of later switches are checked too.
        let mut modes = scenario.switches.iter().map(|&(_, mode)| mode).chain([scenario.mode]);
        if modes.any(|mode| scenario.posts(mode))
            && world.cpus.iter().any(|cpu| cpu.bits.len() > crate::posted::VECTORS)
        {
            return Err(SimError::Unfit(
                "more than 256 vectors on one CPU: a posted-interrupt descriptor has 256 bits"
                    .into(),
            ));
        }
        world.place_others();
        world.sources = Sources::new(world.cpus.len(), world.devices.len(), world.tasks.len());
        world.calendar = Calendar::new(world.sources.count);
        for device in 0..world.devices.len() {
            world.calendar.set(world.sources.devices + device, now);
            world.change_moderator(device);
        }
        Ok(world)
    }

    fn empty(
        scenario: &'a Scenario,
        ablation: &'a Ablation,
        now: Nanos,
        plan: Plan,
        written: Written,
    ) -> World<'a> {
        let machine = &scenario.machine;
        let queues = scenario.devices.iter().map(|device| usize::from(device.queues)).sum();
        let mut switches = scenario.switches.clone();
        switches.sort_by_key(|&(at, _)| std::cmp::Reverse(at));
        World {
            now,
            started: now,
            baseline: Baseline::of(scenario, &plan),
            scenario,
            ablation,
            mode: scenario.mode,
            context: Context::of(scenario.mode, scenario.host),
            calendar: Calendar::new(0),
            sources: Sources::new(0, 0, 0),
            cpus: (0..machine.cpus).map(|_| Cpu::new(now, Pollers::new(machine.softirq))).collect(),
            tasks: Vec::new(),
            owners: Vec::new(),
            first_ksoftirqd: 0,
            running: plan.threads.len(),
            plan,
            targets: Vec::new(),
            stage: 0,
            queues: Vec::new(),
            drains: Vec::new(),
            lines: Lines::new(machine, HwQueue::lines(queues)),
            devices: Vec::new(),
            written,
            messages: VecDeque::new(),
            raised: Vec::new(),
            irq_path: SharedPath::new(machine.interrupts),
            lateness: machine.costs.lateness(),
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed ^ LATENESS),
            reports_cpu_wanted: scenario.spin.reports_cpu_wanted_in(scenario.mode),
            switches,
            placing: None,
            effects: Vec::new(),
            ticks: Ticks::default(),
            changed_cpus: Vec::new(),
        }
    }

    /// Adds a controller and its hardware queues.
    fn add_controller(&mut self, ready: BroughtUp) {
        let (mut attached, device) = (ready.attached, self.devices.len());
        let first = self.queues.len();
        let spec = &self.scenario.devices[device];
        let mut pairs = ready.pairs;
        // The second half of the queue pairs has no vectors: the poll queues.
        let mut polled =
            if spec.masks { Vec::new() } else { pairs.split_off(pairs.len() / 2) }.into_iter();
        for (pair, layout) in pairs.into_iter().zip(&ready.inventory.queues) {
            let (index, vector) = (self.queues.len(), layout.vector.unwrap_or_default());
            self.drains.push(Drain::new(
                self.scenario.mode,
                self.scenario.machine.costs.cycle(),
                *self.ablation,
            ));
            let (bar, vectors) = (attached.bar.clone(), Rc::clone(&attached.vectors));
            self.queues.push(HwQueue::new(
                index,
                device,
                (pair, polled.next()),
                bar,
                vectors,
                vector,
            ));
            // A vector announces the entries of all queues that share it.
            if let Some(route) = attached.routes.get_mut(usize::from(vector.0)) {
                route.queues.push(index);
            }
        }
        for route in attached.routes.iter().filter(|route| route.queues.len() > 1) {
            route.queues.iter().for_each(|&queue| self.queues[queue].vector_shared = true);
        }
        attached.queues = first..self.queues.len();
        self.devices.push(attached);
    }

    /// Gives each thread its software queues, spread over the hardware queues of its devices.
    fn place_jobs(
        &mut self,
        layout: &Layout,
        memory: &Memory,
        inventories: &[Inventory],
    ) -> Result<(), SimError> {
        let scenario = self.scenario;
        let maps = self.maps(layout)?;
        let mut paths = self.paths(layout)?;
        let mut opened = vec![0; self.devices.len()];
        for (task, planned) in layout.plan.threads.iter().enumerate() {
            let spec = &scenario.jobs[planned.job];
            let cpu = layout.cpus[task];
            let spread = layout.spread(scenario, spec);
            let mut sw_queues = Vec::new();
            for &target in &planned.targets {
                let device = layout.targets[target];
                for _ in 0..spread {
                    // A kernel has one software queue for each CPU; the library opens one for each
                    // thread.
                    let software =
                        if scenario.host == HostStack::Kernel { cpu } else { opened[device] };
                    opened[device] += 1;
                    let queue =
                        self.devices[device].queues.start + maps[device].hardware_of(software);
                    sw_queues.push(SwQueue::new(
                        queue,
                        task,
                        sw_queues.len(),
                        scenario.mode,
                        scenario.machine.costs.cycle(),
                        *self.ablation,
                    ));
                    self.queues[queue].users.push(task);
                }
            }
            let mut app = layout.application(scenario, task, memory, inventories, spread)?;
            // Paths are shared by the threads of one job.
            if let Some(shared) = paths.get_mut(planned.job).and_then(Option::as_mut) {
                self.add_paths(&mut app, shared, spec, (cpu, inventories))?;
            }
            self.targets
                .push(planned.targets.iter().map(|&target| layout.targets[target]).collect());
            self.owners.push(Owner { cpu, engine: spec.engine });
            let thread = Thread::new(task, sw_queues, app, spec.engine);
            self.tasks.push(Task::new(
                cpu,
                TaskKind::Job(Box::new(thread)),
                TaskState::NotStarted,
                self.scenario.host,
            ));
        }
        self.share_queues(&maps);
        Ok(())
    }

    /// Gives a thread its paths, and the selector that chooses among them.
    fn add_paths(
        &self,
        app: &mut Application,
        shared: &mut JobPaths,
        spec: &JobSpec,
        (cpu, inventories): (usize, &[Inventory]),
    ) -> Result<(), SimError> {
        let (machine, depth) = (&self.scenario.machine, spec.job.iodepth.max(1));
        if let (Some(counts), Some(multipath)) = (&shared.choice_only, spec.paths) {
            let queue = cpu * usize::from(multipath.queues) / machine.cpus;
            app.choice_only = Some(ChoiceOnly::new(Rc::clone(counts), queue, depth));
            return Ok(());
        }
        let Some((multipath, devices)) = self.scenario.paths_of(spec) else { return Ok(()) };
        let mut selector = Selector::new(Arc::clone(&shared.paths), shared.threads);
        selector.set_node(machine.node_of(cpu) as u16);
        let chooser = Chooser::new(selector, multipath.policy);
        let mut config = multipath.failover;
        // The negative test sends writes again while the old controller may still carry them out.
        config.unsafe_fast_failover |= !self.ablation.delays_write_retry;
        let traits: Vec<PathTraits> =
            devices.iter().map(|&device| PathTraits::of(&inventories[device])).collect();
        let failover =
            Failover::new(config, &traits, &shared.marks, shared.threads, depth as usize)
                .map_err(unfit)?;
        shared.threads += 1;
        app.multipath = Some(MultipathRequests::new(failover, chooser, devices, depth, self.now));
        Ok(())
    }

    /// The paths of each job, for its threads to share.
    fn paths(&mut self, layout: &Layout) -> Result<Vec<Option<JobPaths>>, SimError> {
        let scenario = self.scenario;
        let mut all: Vec<Option<JobPaths>> = Vec::new();
        for (job, spec) in scenario.jobs.iter().enumerate() {
            let Some(Multipath { paths, queues, policy, choice_only, .. }) = spec.paths else {
                all.push(None);
                continue;
            };
            let shared = Paths::new(paths.into(), Distances::default(), policy)
                .map(Arc::new)
                .map_err(unfit)?;
            let grow = |lines| self.lines.grow(lines);
            let choice_only = choice_only.map(|counter| {
                Rc::new(DepthCounts::new(counter, paths.into(), queues.into(), grow))
            });
            let threads = layout.plan.threads.iter().filter(|thread| thread.job == job).count();
            let marks = WriteMarks::new(threads, paths.into());
            all.push(Some(JobPaths { paths: shared, choice_only, marks, threads: 0 }));
        }
        Ok(all)
    }

    /// By device: how software queues are spread over hardware queues. The kernel host has one
    /// software queue for each CPU; the user host has the software queues that its threads open.
    fn maps(&self, layout: &Layout) -> Result<Vec<QueueMap>, SimError> {
        let scenario = self.scenario;
        let opened = |device: usize| -> usize {
            let threads = layout.plan.threads.iter();
            let on_device = |thread: &&plan::Thread| {
                thread.targets.iter().filter(|&&t| layout.targets[t] == device).count()
            };
            threads
                .map(|thread| {
                    on_device(&thread) * layout.spread(scenario, &scenario.jobs[thread.job])
                })
                .sum()
        };
        let map = |(n, device): (usize, &Attached)| {
            let software = if scenario.host == HostStack::Kernel {
                scenario.machine.cpus
            } else {
                opened(n).max(1)
            };
            QueueMap::new(software, device.queues.len()).map_err(unfit)
        };
        self.devices.iter().enumerate().map(map).collect()
    }

    /// Finds the queues that several threads use, and sets the initial state of every notification.
    fn share_queues(&mut self, maps: &[QueueMap]) {
        for queue in &mut self.queues {
            let first = self.devices[queue.device].queues.start;
            // Threads on one CPU share that CPU's software queue too.
            let mapped = self.scenario.host == HostStack::Kernel
                && maps[queue.device].is_shared(queue.index - first);
            queue.shared = mapped || queue.users.len() > 1;
        }
        // All notifications are armed. Below, threads whose mode masks while awake mask theirs.
        let waiter = self.context == Context::Waiter;
        for queue in &self.queues {
            queue.arm();
        }
        for sw_queue in self
            .tasks
            .iter_mut()
            .filter_map(Task::thread_mut)
            .flat_map(|thread| &mut thread.sw_queues)
        {
            (sw_queue.waiter.owner, sw_queue.waiter.others_look) =
                (!self.queues[sw_queue.queue].shared, !waiter);
        }
        for thread in self.tasks.iter_mut().filter_map(Task::thread_mut).filter(|_| waiter) {
            for sw_queue in &mut thread.sw_queues {
                let queue = &self.queues[sw_queue.queue];
                // No thread owns the notification of a shared queue yet.
                if queue.shared && sw_queue.waiter.policy.facts().masks {
                    queue.mask();
                } else {
                    let (waiter, mut bound) = sw_queue.bind(queue);
                    waiter.settle(&mut bound);
                }
            }
        }
    }

    /// Decides which CPU takes the interrupts of each vector.
    fn place_vectors(&mut self, layout: &Layout) {
        let cpus = self.cpus.len();
        for n in 0..self.devices.len() {
            let (affinity, range) =
                (&self.scenario.devices[n].affinity, self.devices[n].queues.clone());
            for vector in 1..self.devices[n].routes.len() {
                let cpu = match affinity {
                    Affinity::Cpus(list) => list[(vector - 1) % list.len()],
                    // One CPU of the queue's set, a different one for each further device, as
                    // Linux's managed affinity does.
                    Affinity::Managed => {
                        let first = self.devices[n].routes[vector]
                            .queues
                            .first()
                            .copied()
                            .unwrap_or(range.start);
                        let set = self.cpus_of(first, layout, range.start, range.len());
                        set.get(n % set.len().max(1)).copied().unwrap_or(vector % cpus)
                    }
                };
                // Bits are handed out per CPU: each has its own posted descriptor.
                let bit = self.cpus[cpu].bits.len();
                self.cpus[cpu].bits.push((n, vector));
                let route = &mut self.devices[n].routes[vector];
                (route.cpu, route.bit) = (cpu, bit);
                let queues = route.queues.clone();
                self.cpus[cpu].pollers.add(queues);
            }
        }
    }

    /// The CPUs that use a queue.
    fn cpus_of(&self, queue: usize, layout: &Layout, first: usize, queues: usize) -> Vec<usize> {
        if self.scenario.host == HostStack::User {
            return self.queues[queue].users.iter().map(|&task| layout.cpus[task]).collect();
        }
        match QueueMap::new(self.cpus.len(), queues) {
            Ok(map) => map.software_of(queue - first).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Adds an interrupt thread for each vector, ksoftirqd for each CPU, and the hogs.
    fn place_others(&mut self) {
        for n in 0..self.devices.len() {
            for vector in 1..self.devices[n].routes.len() {
                let task = self.tasks.len();
                let route = &mut self.devices[n].routes[vector];
                // Created for every mode, as a switch may need them at any time; they sleep until
                // then.
                route.thread = task;
                let kind = TaskKind::Vector {
                    queues: route.queues.clone(),
                    n: 0,
                    until: Nanos::MAX,
                    notified: false,
                };
                self.tasks.push(Task::new(
                    route.cpu,
                    kind,
                    TaskState::Blocked(Nanos::MAX),
                    self.scenario.host,
                ));
            }
        }
        self.first_ksoftirqd = self.tasks.len();
        for cpu in 0..self.cpus.len() {
            self.tasks.push(Task::new(
                cpu,
                TaskKind::Ksoftirqd,
                TaskState::Blocked(Nanos::MAX),
                self.scenario.host,
            ));
        }
        for &cpu in &self.scenario.machine.hogs {
            let task = self.tasks.len();
            self.tasks.push(Task::new(cpu, TaskKind::Hog, TaskState::Ready, self.scenario.host));
            self.make_ready(None, task);
        }
    }
}

impl Layout {
    fn new(scenario: &Scenario) -> Result<Layout, SimError> {
        let jobs: Vec<_> = scenario.jobs.iter().map(|spec| spec.job.clone()).collect();
        let available: Vec<u32> = (0..scenario.machine.cpus as u32).collect();
        let plan = plan::plan(&jobs, &available);
        let device = |name: &Option<String>| match name {
            None => Ok(0),
            Some(name) => {
                scenario.devices.iter().position(|device| device.name == *name).ok_or_else(|| {
                    let names: Vec<_> =
                        scenario.devices.iter().map(|device| device.name.as_str()).collect();
                    SimError::Unfit(format!(
                        "a job's filename is '{name}'; the devices are {}",
                        names.join(", ")
                    ))
                })
            }
        };
        let targets: Result<Vec<usize>, SimError> = plan.targets.iter().map(device).collect();
        let mut load = vec![0; scenario.machine.cpus];
        let all: Vec<u32> = available;
        let mut place = |thread: &plan::Thread| {
            let may = if thread.cpus.is_empty() { &all } else { &thread.cpus };
            let cpu = may
                .iter()
                .map(|&cpu| cpu as usize)
                .min_by_key(|&cpu| (load[cpu], cpu))
                .unwrap_or(0);
            load[cpu] += 1;
            cpu
        };
        let cpus = plan.threads.iter().map(&mut place).collect();
        let read = scenario.jobs.iter().any(|spec| spec.job.verify.is_some());
        Ok(Layout {
            cpus,
            targets: targets?,
            plan,
            data: if read { DataBuffers::PerSlot } else { DataBuffers::Shared },
        })
    }

    /// Software queues that a thread of the job opens on each device.
    fn spread(&self, scenario: &Scenario, spec: &JobSpec) -> usize {
        if scenario.host == HostStack::Kernel { 1 } else { spec.queues.into() }
    }

    /// Bytes of host memory that rings and buffers take.
    fn memory(&self, scenario: &Scenario) -> usize {
        let rings = |device: &DeviceSpec| {
            let entries = (device.tags as usize + 2).next_power_of_two();
            DEVICE_OVERHEAD + usize::from(device.pairs()) * (entries * 80 + 3 * 4096)
        };
        let buffers = |thread: &plan::Thread| {
            let job = &scenario.jobs[thread.job].job;
            Requests::footprint(job.iodepth.max(1), longest(job), self.data) + 4096
        };
        scenario.devices.iter().map(rings).sum::<usize>()
            + self.plan.threads.iter().map(buffers).sum::<usize>()
    }

    /// The application of a thread: generator, requests, buffers.
    fn application(
        &self,
        scenario: &Scenario,
        task: usize,
        memory: &Memory,
        inventories: &[Inventory],
        spread: usize,
    ) -> Result<Application, SimError> {
        let planned = &self.plan.threads[task];
        let spec = &scenario.jobs[planned.job];
        let mut namespaces = Vec::new();
        for &target in &planned.targets {
            let inventory = &inventories[self.targets[target]];
            let (Some(namespace), Some(limits)) = (inventory.namespaces.first(), inventory.limits)
            else {
                return Err(SimError::Unfit(
                    "the controller has no namespace that can be used".into(),
                ));
            };
            namespaces.push((*namespace, limits));
        }
        let target = |(namespace, _): &(driver::Namespace, driver::Limits)| TargetSize {
            bytes: namespace.bytes(),
            block: namespace.block_size() as u32,
            size_at_setup: None,
        };
        let targets: Vec<TargetSize> = namespaces.iter().map(target).collect();
        // Devices that are paths are one target to the job.
        let seen = if spec.paths.is_some_and(|paths| paths.choice_only.is_none()) {
            1
        } else {
            targets.len()
        };
        let seen = targets.get(..seen).unwrap_or(&targets);
        let mut job = spec.paced();
        job.seed.get_or_insert(scenario.seed);
        // The tables of `reap sim` show percentiles of it, whether the job prints them or not.
        job.measure.lat_percentiles |= job.measure.lat;
        let generator = Generator::new(&job, planned.id(scenario.seed), seen)?;
        let requests =
            Requests::new(memory, task, &namespaces, job.iodepth.max(1), longest(&job), self.data)?;
        let mut app =
            Application::new(generator, requests, targets.len(), spread, spec.think, spec.work);
        app.urgent = job.urgent;
        Ok(app)
    }
}

fn longest(job: &workload::Job) -> u64 {
    job.block.read.max.max(job.block.write.max)
}

/// The subsystems of jobs with several paths: the devices that are its controllers, and the
/// keep-alive time-out. The controllers share the subsystem's namespace.
fn subsystems(scenario: &Scenario) -> Result<Vec<(Vec<usize>, Subsystem, Nanos)>, SimError> {
    let mut subsystems: Vec<(Vec<usize>, Subsystem, Nanos)> = Vec::new();
    for (multipath, devices) in scenario.jobs.iter().filter_map(|job| scenario.paths_of(job)) {
        if subsystems.iter().any(|(known, ..)| *known == devices) {
            continue;
        }
        let mut subsystem =
            Subsystem::new(format!("nqn.2026-11.reap:simulated:{}", subsystems.len()))
                .map_err(unfit)?;
        if let Some(first) = devices.first().and_then(|&first| scenario.devices.get(first)) {
            subsystem.share(namespace(first)?).map_err(unfit)?;
        }
        subsystems.push((devices, subsystem, multipath.keep_alive));
    }
    Ok(subsystems)
}

fn namespace(device: &DeviceSpec) -> Result<NamespaceConfig, SimError> {
    NamespaceConfig::mem(Mem::new(device.bytes, Budget::new(device.bytes)), DeviceSpec::BLOCK)
        .map_err(unfit)
}

fn bring_up_device(
    scenario: &Scenario,
    device: &DeviceSpec,
    n: usize,
    host: &HostMemory,
    member: Option<SubsystemMember<'_>>,
) -> Result<BroughtUp, SimError> {
    let memory = &host.memory;
    let mut config =
        emu::Config { seed: scenario.seed.wrapping_add(n as u64), ..device.config.clone() };
    if scenario.machine.interrupts.is_shared() || device.in_process {
        // One entry per step, because its message may delay the controller's later writes.
        config.step_budget = 1;
    }
    config.faults =
        (device.faults != FaultPlan::default()).then(|| FaultInjector::new(device.faults.clone()));
    // Without verification no data are copied. The transfer takes device time all the same.
    config.profile.moves_data &= host.data == DataBuffers::PerSlot;
    let dies = DieTimes::new(device.inside, &config.profile, DeviceSpec::BLOCK, config.seed ^ DIES);
    let port = SimPort::new(memory.clone(), config.queue_pairs, config.vectors, dies.clone());
    // A drive that coalesces although the feature is off (`hidden`) does so by when the host has
    // reaped completions.
    let heads_matter = config.profile.hidden.announced_per_s > 0;
    let (bar, vectors, count) = (
        port.host_bar(n, &host.written, heads_matter),
        Rc::clone(&port.vectors),
        config.vectors.max(1),
    );
    let (dma_blocked, is_path) = (Rc::clone(&port.dma_blocked), member.is_some());
    let keep_alive = member
        .as_ref()
        .filter(|_| scenario.recovery.is_some())
        .map_or(Nanos::ZERO, |(_, keep_alive)| *keep_alive);
    let mut controller = match member {
        // A path: controller of a subsystem, with ANA.
        Some((subsystem, _)) => {
            (config.controller_id, config.ana) =
                (subsystem.next_controller_id(), Some(Ana::new(nvme::AnaState::OPTIMIZED)));
            subsystem.controller(config, Vec::new(), port).map_err(unfit)?
        }
        None => Controller::new(config, vec![namespace(device)?], port),
    };

    let (admin_sq, admin_cq, admin) = make_pair(memory, QueueId::ADMIN, ADMIN_SIZES)?;
    let page = memory.alloc(4096).ok_or_else(no_room)?;
    let mut control = ControllerTask::new(admin, page, memory.clone());
    // Poll queues have interrupts disabled (IEN = 0).
    let polled = std::iter::repeat_n(None, usize::from(device.pairs() - device.queues));
    let wanted = (1..=device.queues)
        .map(|n| Some(Vector((n - 1) % (count - 1) + 1)))
        .chain(polled)
        .collect();
    let queues = WantedQueues::New { depth: device.tags, vectors: wanted };
    let admin_timeout = Nanos::from_secs(1);
    let asked = BringupConfig {
        admin_sq,
        admin_cq,
        admin_sizes: ADMIN_SIZES,
        queues,
        admin_timeout,
        keep_alive,
        quiesce_time: Nanos::ZERO,
        doorbells: None,
    };
    let mut setup = Setup {
        now: START,
        controller: &mut controller,
        control: &mut control,
        bar: &bar,
        pairs: Vec::new(),
    };
    let inventory = setup.run(asked.clone())?;
    let (now, pairs) = (setup.now, setup.pairs);
    if let Some(config) = scenario.recovery {
        // After a reset the same queues are created again.
        let again =
            BringupConfig { queues: WantedQueues::Existing(inventory.queues.clone()), ..asked };
        control.recovery = Some((Recovery::new(config, again, &inventory), config));
        control.path = is_path.then(|| PathState::new(&inventory, dma_blocked, now));
    }
    // Bring-up has stepped the controller for these writes.
    host.written.take(n);
    let route = Route { cpu: 0, bit: 0, queues: Vec::new(), thread: 0, pending: false };
    let routes = vec![route; usize::from(count)];
    Ok(BroughtUp {
        attached: Attached {
            controller,
            bar,
            vectors,
            control,
            queues: 0..0,
            routes,
            dies,
            writes_free_at: Nanos::ZERO,
        },
        pairs,
        inventory,
        now,
    })
}

/// What the bring-up of one controller works on.
struct Setup<'a> {
    now: Nanos,
    controller: &'a mut Controller<SimPort>,
    control: &'a mut ControllerTask,
    bar: &'a HostBar,
    pairs: Vec<Pair>,
}

impl Setup<'_> {
    fn run(&mut self, config: BringupConfig) -> Result<Inventory, SimError> {
        let memory = self.control.memory.clone();
        let mut bringup = Bringup::new(config);
        loop {
            match bringup.step(self.now, self.bar) {
                BringupAction::Wait { until } => {
                    self.wait(until);
                    let violation =
                        self.control.replies(self.bar, |_, reply| bringup.completed(reply));
                    violation.into_iter().for_each(|violation| bringup.violated(violation));
                }
                BringupAction::Admin(command) => {
                    // If no tag is free the reply never comes, and bring-up fails by its own
                    // deadline.
                    self.control.post(command, driver::Purpose::Sequence, self.now, self.bar);
                }
                BringupAction::Rings { id, sizes } => {
                    let (sq, cq, pair) = make_pair(&memory, id, sizes)?;
                    self.pairs.push(pair);
                    bringup.rings(sq, cq);
                }
                BringupAction::ReopenAdmin => {
                    unreachable!("asked only of controllers of before version 1.3")
                }
                BringupAction::Ready(inventory) => return Ok(*inventory),
                BringupAction::Failed(error) => return Err(error.into()),
            }
        }
    }

    /// Advances time to `until`, or until there is a reply.
    fn wait(&mut self, until: Nanos) {
        loop {
            let step = self.controller.step(self.now);
            if self.control.has_replies() || self.now >= until {
                return;
            }
            // Time must advance even if the controller has more work at this instant.
            let soon = self.now + Nanos::from_micros(1);
            let own = step.next.unwrap_or(until);
            let next = if step.worked { soon } else { own.max(soon) };
            self.now = next.min(until);
        }
    }
}

/// A queue pair in fresh, zeroed memory, with the addresses of its rings.
fn make_pair(
    memory: &Memory,
    id: QueueId,
    sizes: QueueSizes,
) -> Result<(u64, u64, Pair), SimError> {
    let alloc =
        |entries: u32, log2: u8| memory.alloc((entries as usize) << log2).ok_or_else(no_room);
    let (sq_at, cq_at) = (
        alloc(sizes.sq_entries, nvme::Sqe::SIZE_LOG2)?,
        alloc(sizes.cq_entries, nvme::Cqe::SIZE_LOG2)?,
    );
    let (sq, cq) = (
        memory.sq(sq_at, sizes.sq_entries).map_err(unfit)?,
        memory.cq(cq_at, sizes.cq_entries).map_err(unfit)?,
    );
    Ok((sq_at, cq_at, QueuePair::new(id, sizes, sq, cq).map_err(unfit)?))
}

fn no_room() -> SimError {
    SimError::Unfit("rings and buffers do not fit the simulated memory".into())
}

fn unfit(error: impl std::error::Error) -> SimError {
    SimError::Unfit(error.to_string())
}
