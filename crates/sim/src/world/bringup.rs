//! Before the run: the controller is brought up by the driver's own sequence, and the thread gets its queues and its job.

use driver::{Bringup, BringupAsk, BringupConfig, Inventory, QueuePair, QueueSizes, Recovery, WantedQueues};
use nvme::QueueId;
use std::sync::Arc;
use workload::record::Replayer;
use workload::{Generator, Seat, Target};

use super::*;
use crate::Recorded;
use crate::lane::Pair;
use crate::port::Memory;
use crate::replay::Source;
use crate::requests::Requests;
use device::{Budget, Mem};

const ADMIN_SIZES: QueueSizes = QueueSizes { sq_entries: 32, cq_entries: 32, tags: 31 };

/// Rings and admin page, beside the buffers.
const OVERHEAD: usize = 1 << 20;

/// What bring-up needs and gives.
struct Setup<'a, P: Bus> {
    now: Nanos,
    controller: &'a mut Controller<P>,
    keeper: &'a mut Keeper,
    bells: &'a HostBar,
    pairs: Vec<Pair>,
}

impl<P: Bus> World<P> {
    /// A world whose controller is ready.
    pub(super) fn bring_up(scenario: &Scenario, wrap: impl FnOnce(SimPort) -> P, habits: Habits) -> Result<World<P>, SimError> {
        let (device, spec) = (&scenario.devices[0], &scenario.jobs[0]);
        let depth = spec.job.iodepth.max(1);
        let len = spec.job.block.read.max.max(spec.job.block.write.max);
        let rings = usize::from(spec.queues) * (device.tags as usize + 2) * 128;
        let memory = Memory::new(OVERHEAD + rings.next_multiple_of(1 << 16) + Requests::footprint(depth, len));
        let config = device::Config { seed: scenario.seed, ..device.config.clone() };
        let port = SimPort::new(memory.clone(), config.queue_pairs, config.vectors);
        let (bells, vectors, count) = (port.host_bar(), port.vectors(), config.vectors.max(1));
        let medium = Mem::new(device.bytes, Budget::new(device.bytes));
        let namespace = Namespace::mem(medium, 512).map_err(unfit)?;
        let mut controller = Controller::new(config, vec![namespace], wrap(port));

        let (admin_sq, admin_cq, admin) = make_pair(&memory, QueueId::ADMIN, ADMIN_SIZES)?;
        let page = memory.alloc(4096).ok_or_else(no_room)?;
        let mut keeper = Keeper::new(admin, page, memory.clone());
        let wanted = (1..=spec.queues).map(|n| Some(Vector(n.min(count - 1)))).collect();
        let queues = WantedQueues::New { depth: device.tags, vectors: wanted };
        let asked = BringupConfig {
            admin_sq,
            admin_cq,
            admin_sizes: ADMIN_SIZES,
            queues,
            admin_timeout: Nanos::from_secs(1),
            keep_alive: Nanos::ZERO,
        };
        let mut setup =
            Setup { now: Nanos::from_secs(1), controller: &mut controller, keeper: &mut keeper, bells: &bells, pairs: Vec::new() };
        let inventory = setup.run(asked.clone())?;
        let (now, pairs) = (setup.now, setup.pairs);
        if let Some(config) = scenario.recovery {
            let again = BringupConfig { queues: WantedQueues::Again(inventory.queues.clone()), ..asked };
            keeper.recovery = Some((Recovery::new(config, again, &inventory), config));
        }
        let app = application(scenario, &memory, &inventory, depth, len, pairs.len())?;
        let lines = inventory.queues.iter().map(|layout| layout.vector.unwrap_or_default()).collect();
        let notifier = Rc::new(PerVector::new(Rc::clone(&vectors), lines));
        let lanes =
            pairs.into_iter().enumerate().map(|(n, pair)| Lane::new(n, pair, scenario.mode, scenario.tuning(), &*notifier)).collect();
        let thread = Thread::new(lanes, Rc::clone(&notifier), app, scenario.group, habits);
        let mut events = Events::new();
        let run = Run::Busy { until: now, ticket: events.schedule(Nanos::MAX, Event::Step) };
        let seen_writes = bells.writes();
        let mut world = World {
            now,
            scenario: scenario.clone(),
            events,
            cpu: Cpu::default(),
            run,
            thread,
            controller,
            device_at: Nanos::MAX,
            device_ticket: None,
            keeper,
            keeper_ticket: None,
            bells,
            seen_writes,
            vectors,
            notifier,
            waiting: vec![false; usize::from(count)],
            raised: Vec::new(),
            interrupts: 0,
            started: now,
        };
        world.device_by(now);
        Ok(world)
    }
}

impl<P: Bus> Setup<'_, P> {
    fn run(&mut self, config: BringupConfig) -> Result<Inventory, SimError> {
        let memory = self.keeper.memory.clone();
        let mut bringup = Bringup::new(config);
        loop {
            match bringup.step(self.now, self.bells) {
                BringupAsk::Wait { until } => {
                    self.wait(until);
                    self.keeper.replies(self.bells, |_, reply| bringup.completed(reply));
                }
                BringupAsk::Admin(command) => {
                    // Without a tag the reply never comes, and bring-up fails by its own deadline.
                    self.keeper.post(command, driver::Purpose::Sequence, self.now, self.bells);
                }
                BringupAsk::Rings { id, sizes } => {
                    let (sq, cq, pair) = make_pair(&memory, id, sizes)?;
                    self.pairs.push(pair);
                    bringup.rings(sq, cq);
                }
                BringupAsk::Ready(inventory) => return Ok(*inventory),
                BringupAsk::Failed(error) => return Err(error.into()),
            }
        }
    }

    /// Lets time pass until `until`, or until there is a reply.
    fn wait(&mut self, until: Nanos) {
        loop {
            self.controller.port().advance(self.now);
            let step = self.controller.step(self.now);
            if self.keeper.is_called() || self.now >= until {
                return;
            }
            let soon = self.now + Nanos::from_micros(1);
            let next = if step.worked { soon } else { step.next.unwrap_or(until).max(soon) };
            self.now = next.min(until);
        }
    }
}

fn application(
    scenario: &Scenario,
    memory: &Memory,
    inventory: &Inventory,
    depth: u32,
    len: u64,
    lanes: usize,
) -> Result<Application, SimError> {
    let (Some(namespace), Some(limits)) = (inventory.namespaces.first(), inventory.limits) else {
        return Err(SimError::Unfit("the controller has no namespace that can be used".into()));
    };
    let spec = &scenario.jobs[0];
    let target = Target { bytes: namespace.bytes(), block: namespace.block_size() as u32 };
    let seat = Seat { entropy: scenario.seed, ..Seat::default() };
    let job = workload::Job { seed: spec.job.seed.or(Some(scenario.seed)), ..spec.job.clone() };
    let generator = match &spec.replay {
        None => Source::Job(Generator::new(&job, seat, &[target])?),
        Some(Recorded { trace, thread }) => {
            let missing = || SimError::Unfit(format!("the recording has no thread {thread}"));
            Source::Trace(Replayer::new(Arc::clone(trace), *thread).ok_or_else(missing)?)
        }
    };
    let requests = Requests::new(memory, *namespace, &limits, depth, len)?;
    Ok(Application::new(generator, requests, lanes, spec.think, spec.work, !scenario.machine.hogs.is_empty()))
}

/// A queue pair in fresh, zeroed memory, and where it is.
fn make_pair(memory: &Memory, id: QueueId, sizes: QueueSizes) -> Result<(u64, u64, Pair), SimError> {
    let alloc = |entries: u32, log2: u8| memory.alloc((entries as usize) << log2).ok_or_else(no_room);
    let (sq_at, cq_at) = (alloc(sizes.sq_entries, nvme::Sqe::SIZE_LOG2)?, alloc(sizes.cq_entries, nvme::Cqe::SIZE_LOG2)?);
    let (sq, cq) = (memory.sq(sq_at, sizes.sq_entries).map_err(unfit)?, memory.cq(cq_at, sizes.cq_entries).map_err(unfit)?);
    Ok((sq_at, cq_at, QueuePair::new(id, sizes, sq, cq).map_err(unfit)?))
}

fn no_room() -> SimError {
    SimError::Unfit("rings and buffers do not fit the simulated memory".into())
}

fn unfit(error: impl std::error::Error) -> SimError {
    SimError::Unfit(error.to_string())
}
