//! Late writes, on emulated controllers: a write that a lost controller still has must not be
//! executed after the host has sent it again on another path and continued. Driver and device are
//! stepped manually in virtual time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use emu::{BusError, Change, Config, Loss, PathControl, Port, Profile, SendResult, Subsystem};
use nvme::prp::{Dptr, PageSize};
use nvme::{Doorbells, Lba, QueueId, Registers, Vector};
use proptest::prelude::*;

use super::*;
use crate::testing::controller::{MemRegisters, Memory};
use crate::testing::{MemCq, MemDoorbells, MemSq, Pair};
use crate::*;

const SIZES: QueueSizes = QueueSizes { sq_entries: 16, cq_entries: 16, tags: 15 };
const KEEP_ALIVE: Nanos = Nanos::from_millis(200);
const QUIESCE: Nanos = Nanos::from_millis(50);
const TICK: Nanos = Nanos::from_micros(500);
const BLOCK: usize = 512;

/// The host memory that a controller accesses: a page per buffer, rings by address.
#[derive(Clone)]
struct Bus {
    memory: Memory,
    registers: MemRegisters,
    doorbells: MemDoorbells,
    messages: Rc<Cell<u64>>,
}

impl Port for Bus {
    type Sq = MemSq;
    type Cq = MemCq;

    fn map_sq(&self, addr: u64, _: u32) -> Result<MemSq, BusError> {
        self.memory.sq(addr).ok_or(BusError { addr, len: 0 })
    }

    fn map_cq(&self, addr: u64, _: u32) -> Result<MemCq, BusError> {
        self.memory.cq(addr).ok_or(BusError { addr, len: 0 })
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        let page = self.memory.read(addr);
        let from = page.get(..into.len()).ok_or(BusError { addr, len: into.len() as u64 })?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        self.memory.write(addr, from);
        Ok(())
    }

    fn check(&self, _: u64, _: u64) -> Result<(), BusError> {
        Ok(())
    }

    fn doorbells(&self) -> &impl Doorbells {
        &self.doorbells
    }

    fn registers(&self) -> &impl Registers {
        &self.registers
    }

    fn send_message(&self, _: Vector) -> SendResult {
        self.messages.set(self.messages.get() + 1);
        SendResult::Sent
    }

    fn is_masked(&self, _: Vector) -> bool {
        false
    }
}

/// A controller and its host: the driver's own state machines, stepped.
struct PathHost {
    device: emu::Controller<Bus>,
    bus: Bus,
    admin: Pair,
    io: Option<Pair>,
    page: u64,
    recovery: Option<Recovery>,
    identity: Option<PathIdentity>,
    traits: Option<PathTraits>,
    keep_alive_at: Nanos,
}

fn recovery_config() -> RecoveryConfig {
    RecoveryConfig {
        command_timeout: Nanos::from_secs(30),
        grace: Nanos::from_secs(10),
        attempts: 3,
        health_interval: Nanos::from_millis(5),
        lost_timeout: Nanos::MAX,
    }
}

impl PathHost {
    fn new(subsystem: &mut Subsystem, id: u16) -> PathHost {
        let bus = Bus {
            memory: Memory::default(),
            registers: MemRegisters::default(),
            doorbells: MemDoorbells::new(4),
            messages: Rc::default(),
        };
        let config = Config {
            controller_id: id,
            quiesce_time: QUIESCE,
            ana: Some(emu::Ana::new(AnaState::OPTIMIZED)),
            ..Config::new(Profile::optane())
        };
        let device = subsystem.controller(config, vec![], bus.clone()).unwrap();
        let (.., sq, cq) = bus.memory.rings(SIZES);
        let admin = QueuePair::new(QueueId::ADMIN, SIZES, sq, cq).unwrap();
        let page = bus.memory.page();
        PathHost {
            device,
            bus,
            admin,
            io: None,
            page,
            recovery: None,
            identity: None,
            traits: None,
            keep_alive_at: Nanos::MAX,
        }
    }

    fn post_admin(&self, command: AdminCommand, purpose: Purpose, now: Nanos) {
        let mut sqe = command.sqe;
        sqe.prp1 = if command.needs_page { self.page } else { sqe.prp1 };
        let mut sq = self.admin.lock_sq();
        sq.post(sqe, purpose.to_token(), now).expect("an admin tag");
        sq.commit(&self.bus.doorbells);
    }

    fn admin_answers(&self) -> Vec<Completed> {
        let mut out = Vec::with_capacity(16);
        assert_eq!(self.admin.reap(&self.bus.doorbells, 16, &mut out).violation, None);
        out
    }

    /// The first bring-up.
    fn bring_up(&mut self, now: &mut Nanos) {
        let (admin_sq, admin_cq, sq, cq) = self.bus.memory.rings(SIZES);
        self.admin = QueuePair::new(QueueId::ADMIN, SIZES, sq, cq).unwrap();
        let config = BringupConfig {
            admin_sq,
            admin_cq,
            admin_sizes: SIZES,
            queues: WantedQueues::New { depth: 8, vectors: vec![Some(Vector(1))] },
            admin_timeout: Nanos::from_secs(1),
            keep_alive: KEEP_ALIVE,
            quiesce_time: Nanos::ZERO,
            doorbells: None,
        };
        let mut bringup = Bringup::new(config.clone());
        let inventory = loop {
            match bringup.step(*now, &self.bus.registers) {
                BringupAction::Wait { .. } => {
                    self.device.step(*now);
                    *now += TICK;
                    for answer in self.admin_answers() {
                        let page = self.bus.memory.read(self.page);
                        bringup.completed(&AdminReply {
                            status: answer.status,
                            result: answer.result,
                            page: &page,
                        });
                    }
                }
                BringupAction::Admin(command) => self.post_admin(command, Purpose::Sequence, *now),
                BringupAction::Rings { id, sizes } => {
                    let (sq_at, cq_at, sq, cq) = self.bus.memory.rings(sizes);
                    self.io = Some(QueuePair::new(id, sizes, sq, cq).unwrap());
                    bringup.rings(sq_at, cq_at);
                }
                BringupAction::Ready(inventory) => break *inventory,
                BringupAction::Failed(error) => panic!("{error}"),
                BringupAction::ReopenAdmin => {
                    unreachable!("asked only of controllers of before version 1.3")
                }
            }
        };
        let again =
            BringupConfig { queues: WantedQueues::Existing(inventory.queues.clone()), ..config };
        self.recovery = Some(Recovery::new(recovery_config(), again, &inventory));
        self.identity = Some(PathIdentity::new(&inventory, &inventory.namespaces[0]));
        let subsystem = &inventory.subsystem;
        self.traits = Some(PathTraits {
            quiesce_after: PathTraits::quiesce_after(
                inventory.keep_alive,
                subsystem.traffic_keep_alive,
                subsystem.quiesce_time,
            ),
            ana_transition: subsystem.ana_transition.unwrap_or_default(),
            volatile_cache: inventory.limits.is_some_and(|limits| limits.volatile_cache),
        });
        self.keep_alive_at = *now;
    }

    fn io(&self) -> &Pair {
        self.io.as_ref().unwrap()
    }

    /// Steps the recovery. Returns the events to report to the failover.
    fn step_recovery(&mut self, now: Nanos) -> Vec<PathEvent> {
        let mut events = Vec::new();
        let mut recovery = self.recovery.take().unwrap();
        for answer in self.admin_answers() {
            if Purpose::from_token(answer.token) == Purpose::Sequence {
                let page = self.bus.memory.read(self.page);
                recovery.completed(&AdminReply {
                    status: answer.status,
                    result: answer.result,
                    page: &page,
                });
            }
        }
        for _ in 0..100 {
            let mut watch = TimeoutScan::new();
            watch.scan(&self.admin, now, &recovery_config());
            watch.scan(self.io(), now, &recovery_config());
            match recovery.step(now, &self.bus.registers, &watch) {
                RecoveryAction::Wait { .. } => break,
                RecoveryAction::Close(_) => {
                    [&self.admin, self.io()].into_iter().for_each(|pair| pair.exclusive().close());
                    self.keep_alive_at = Nanos::MAX;
                    events.push(PathEvent::Resetting);
                }
                RecoveryAction::Lost(_) => events.push(PathEvent::Lost),
                RecoveryAction::Abandon(buffers) => {
                    assert_eq!(
                        buffers,
                        Buffers::Returned,
                        "a patient host takes back only what has stopped"
                    );
                    [&self.admin, self.io()]
                        .into_iter()
                        .for_each(|pair| drop(pair.exclusive().abandon()));
                    self.admin.exclusive().reopen();
                    events.push(PathEvent::Quiesced);
                }
                RecoveryAction::Admin(command) => self.post_admin(command, Purpose::Sequence, now),
                RecoveryAction::Restored(_) => {
                    self.io().exclusive().reopen();
                    self.keep_alive_at = now;
                    events.push(PathEvent::Up);
                }
                other => panic!("{other:?}"),
            }
        }
        self.recovery = Some(recovery);
        if now >= self.keep_alive_at {
            self.post_admin(
                AdminCommand { sqe: nvme::admin::keep_alive(), needs_page: false },
                Purpose::KeepAlive,
                now,
            );
            self.keep_alive_at = now + Nanos(KEEP_ALIVE.0 / 2);
        }
        events
    }
}

/// An event of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PathEvent {
    Resetting,
    Lost,
    Quiesced,
    Up,
}

struct World {
    now: Nanos,
    ends: Vec<PathHost>,
    control: PathControl,
    failover: Failover,
    /// By token: the operation, the block, and the buffer or value.
    requests: BTreeMap<u64, (Op, u64, u64)>,
    done: BTreeMap<u64, Status>,
    /// Each command sent: token, path and time.
    sent: Vec<(u64, PathId, Nanos)>,
}

impl World {
    fn new(config: FailoverConfig) -> World {
        let mut subsystem = Subsystem::new("nqn.2026-11.test:late-write").unwrap();
        let medium = emu::Mem::new(1 << 20, emu::Budget::new(1 << 22));
        subsystem.share(emu::NamespaceConfig::mem(medium, BLOCK as u32).unwrap()).unwrap();
        let mut now = Nanos::from_secs(1);
        let mut ends: Vec<_> = [1, 2].map(|id| PathHost::new(&mut subsystem, id)).into();
        ends.iter_mut().for_each(|end| end.bring_up(&mut now));
        join(&ends.iter().filter_map(|end| end.identity.clone()).collect::<Vec<_>>())
            .expect("two paths to one namespace");
        let traits: Vec<_> = ends.iter().filter_map(|end| end.traits).collect();
        let mut failover = Failover::new(config, &traits, &WriteMarks::new(1, 2), 0, 16).unwrap();
        (0..2).for_each(|path| failover.path_up(now, PathId(path), AnaState::OPTIMIZED));
        World {
            now,
            ends,
            control: subsystem.control(),
            failover,
            requests: BTreeMap::new(),
            done: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    fn send(&mut self, request: RequestId, token: u64, path: PathId) {
        let (op, lba, value) = self.requests[&token];
        let end = &self.ends[path.index()];
        let at = end.bus.memory.page();
        let data = Dptr::short(at, BLOCK as u64, PageSize::MIN).unwrap();
        end.bus.memory.write(at, &[value as u8; BLOCK]);
        if op == Op::Deallocate {
            end.bus.memory.write(at, &nvme::io::Range::new(Lba(lba), 1).to_bytes());
        }
        let sqe = match op {
            Op::Write => nvme::io::write(Nsid(1), Lba(lba), 1, data, nvme::io::Flags::NONE),
            Op::WriteZeroes => {
                nvme::io::write_zeroes(Nsid(1), Lba(lba), 1, nvme::io::Flags::DEALLOCATE)
            }
            Op::Deallocate => nvme::io::deallocate(Nsid(1), 1, data),
            _ => nvme::io::read(Nsid(1), Lba(lba), 1, data, nvme::io::Flags::NONE),
        };
        let mut sq = end.io().lock_sq();
        sq.post(sqe, request.to_bits(), self.now).expect("a tag");
        sq.commit(&end.bus.doorbells);
        self.requests.insert(token, (op, lba, if op == Op::Read { at } else { value }));
        self.sent.push((token, path, self.now));
    }

    fn submit(&mut self, token: u64, op: Op, lba: u64, value: u8) {
        self.requests.insert(token, (op, lba, value.into()));
        match self.failover.submit(self.now, token, op, first) {
            Submitted::Send { request, path } => self.send(request, token, path),
            Submitted::Queued => {}
            Submitted::Refused(why) => panic!("{why}"),
        }
    }

    /// Steps everything once, then advances the time.
    fn step(&mut self) {
        for n in 0..self.ends.len() {
            let (end, path) = (&mut self.ends[n], PathId(n as u8));
            end.device.step(self.now);
            for event in end.step_recovery(self.now) {
                match event {
                    PathEvent::Resetting => self.failover.path_resetting(self.now, path),
                    PathEvent::Lost => self.failover.path_lost(self.now, path),
                    PathEvent::Quiesced => self.failover.quiesced(self.now, path),
                    PathEvent::Up => self.failover.path_up(self.now, path, AnaState::OPTIMIZED),
                }
            }
            let mut out = Vec::with_capacity(16);
            let end = &self.ends[n];
            end.io().reap(&end.bus.doorbells, 16, &mut out);
            for completed in out {
                let request = RequestId::from_bits(completed.token);
                if let CompletionOutcome::Done { token, status } =
                    self.failover.ended(self.now, request, path, completed.status)
                {
                    assert_eq!(self.done.insert(token, status), None, "request {token} ends twice");
                }
            }
        }
        self.failover.tick(self.now);
        while let Some(action) = self.failover.poll(self.now, |_, among| first(among)) {
            match action {
                Action::Send { request, token, path } => self.send(request, token, path),
                other => panic!("{other:?}"),
            }
        }
        self.now += TICK;
    }

    fn run_until(&mut self, done: impl Fn(&World) -> bool) {
        for _ in 0..20_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("it does not happen: done {:?}, sent {:?}", self.done, self.sent);
    }

    fn pass(&mut self, span: Nanos) {
        let until = self.now + span;
        self.run_until(|world| world.now >= until);
    }

    fn change(&mut self, path: usize, change: Change) {
        self.control.apply(path, change).unwrap();
        self.step();
    }

    fn read(&mut self, token: u64, lba: u64) -> u8 {
        self.submit(token, Op::Read, lba, 0);
        self.run_until(|world| world.done.contains_key(&token));
        assert_eq!(self.done[&token], Status::SUCCESS);
        let at = self.requests[&token].2;
        let path = self.sent.iter().rev().find(|(sent, ..)| *sent == token).unwrap().1;
        self.ends[path.index()].bus.memory.read(at)[0]
    }
}

/// What happens to the path of the held write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    /// It stays lost until its keep-alive has expired.
    StaysAway,
    /// It returns after this time, and is reset.
    ComesBack(Nanos),
}

/// The controller of path 0 has a write when it is lost. The host sends the write again when it
/// may, then writes other data to the same block. After that the controller executes the first
/// write. Returns the block's contents, and the time from the loss to the retry.
fn write_late(
    config: FailoverConfig,
    loss: Loss,
    after: After,
    released_after: Nanos,
) -> (u8, Nanos) {
    write_late_op(Op::Write, config, loss, after, released_after)
}

/// The same with any operation that changes blocks.
fn write_late_op(
    op: Op,
    config: FailoverConfig,
    loss: Loss,
    after: After,
    released_after: Nanos,
) -> (u8, Nanos) {
    let mut world = World::new(config);
    world.change(0, Change::Hold(Some(op)));
    world.submit(1, op, 0, 1);
    world.pass(Nanos::from_millis(2));
    assert!(world.done.is_empty() && world.sent[0].1 == PathId(0), "it is in flight");
    let lost_at = world.now;
    world.change(0, Change::Lost(loss));
    if let After::ComesBack(span) = after {
        world.control.at(lost_at + span, 0, Change::Back).unwrap();
    }
    if loss == Loss::Frozen {
        // Found by a time-out only: the host's reset is not acknowledged.
        world.ends[0].recovery.as_mut().unwrap().reset();
    }
    world.run_until(|world| world.done.contains_key(&1));
    assert_eq!(world.done[&1], Status::SUCCESS);
    let sent_again =
        world.sent.iter().filter(|(token, ..)| *token == 1).nth(1).map(|(.., at)| *at - lost_at);
    world.submit(2, Op::Write, 0, 2);
    world.run_until(|world| world.done.contains_key(&2));
    assert_eq!(world.read(3, 0), 2);
    world.pass(released_after);
    world.change(0, Change::Release);
    world.pass(Nanos::from_secs(2));
    let counters = world.failover.counters();
    assert_eq!(counters.held > 0, !config.unsafe_fast_failover);
    (world.read(4, 0), sent_again.unwrap_or_default())
}

#[test]
fn quiesce_time_protects_later_write() {
    let (value, waited) =
        write_late(FailoverConfig::default(), Loss::Gone, After::StaysAway, Nanos::ZERO);
    assert_eq!(value, 2);
    // Two keep-alive time-outs and the quiesce time, from when the loss was noticed.
    let least = KEEP_ALIVE + KEEP_ALIVE + QUIESCE;
    assert!(waited >= least && waited < least + Nanos::from_millis(20), "{waited}");
}

#[test]
fn acknowledged_reset_protects_later_write() {
    for loss in [Loss::Gone, Loss::Frozen] {
        let back = Nanos::from_millis(40);
        let (value, waited) =
            write_late(FailoverConfig::default(), loss, After::ComesBack(back), Nanos::ZERO);
        assert_eq!(value, 2, "{loss:?}");
        assert!(waited >= back && waited < back + Nanos::from_millis(50), "{loss:?}: {waited}");
    }
}

/// Late zeroes destroy as much as late data.
#[test]
fn zeroing_is_held_like_writes() {
    let unsafe_config = FailoverConfig { unsafe_fast_failover: true, ..FailoverConfig::default() };
    for op in [Op::WriteZeroes, Op::Deallocate] {
        let (value, waited) =
            write_late_op(op, FailoverConfig::default(), Loss::Gone, After::StaysAway, Nanos::ZERO);
        assert_eq!(value, 2, "{op:?}");
        assert!(waited >= KEEP_ALIVE + KEEP_ALIVE + QUIESCE, "{op:?}: {waited}");
        let back = After::ComesBack(Nanos::from_millis(40));
        assert_eq!(
            write_late_op(op, FailoverConfig::default(), Loss::Frozen, back, Nanos::ZERO).0,
            2,
            "{op:?}"
        );
        let (value, _) =
            write_late_op(op, unsafe_config, Loss::Gone, After::StaysAway, Nanos::ZERO);
        assert_eq!(value, 0, "{op:?}: unsafe failover should lose the later write");
    }
}

/// Mutant without the wait: the late write destroys the later one.
#[test]
fn unheld_write_undoes_later_write() {
    let unsafe_config = FailoverConfig { unsafe_fast_failover: true, ..FailoverConfig::default() };
    let (value, waited) = write_late(unsafe_config, Loss::Gone, After::StaysAway, Nanos::ZERO);
    assert_eq!(value, 1, "unsafe failover should lose the later write");
    assert!(waited < Nanos::from_millis(20), "{waited}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// For any time at which the path returns and the controller executes its write.
    #[test]
    fn the_later_write_always_stands(
        frozen in any::<bool>(), back in prop::option::of(0u64..700), released in 0u64..600,
    ) {
        let loss = if frozen && back.is_some() { Loss::Frozen } else { Loss::Gone };
        let after = back.map_or(After::StaysAway, |millis| After::ComesBack(Nanos::from_millis(millis)));
        let (value, _) = write_late(FailoverConfig::default(), loss, after, Nanos::from_millis(released));
        prop_assert_eq!(value, 2);
    }
}
