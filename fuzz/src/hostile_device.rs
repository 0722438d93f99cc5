//! The driver's machines against a device that is right now and then: bring-up, queue pairs,
//! events, recovery and shutdown, as an engine carries them out.
//!
//! The device is the embedded controller, behind a bus that changes what it says: completion
//! entries, pages, answers to property accesses. Where the fuzzer's bytes are used up it says the
//! truth, and then everything comes to an end.

mod bus;

use std::collections::BTreeMap;

use driver::{
    AdminCommand, AdminReply, AnaLogReader, Answer, Bringup, BringupAction, BringupConfig, Buffers,
    Completed, EventRequests, Inventory, ProtocolViolation, Purpose, QueuePair, QueueSizes,
    Reading, Recovery, RecoveryAction, RecoveryConfig, Shutdown, ShutdownAction, Ticket,
    TimeoutScan, WantedQueues,
};
use emu::{Ana, Budget, Config, Controller, Mem, NamespaceConfig, Profile, Step};
use nvme::prp::Dptr;
use nvme::{Lba, Nsid, QueueId, Sqe, Vector};
use units::Nanos;

use crate::bus::{BASE, Bus, Ring};
use bus::{Twist, Twisted, Wire};

type Pair = QueuePair<Ring, Ring>;

const SECOND: Nanos = Nanos::from_secs(1);
const ADMIN: QueueSizes = QueueSizes { sq_entries: 16, cq_entries: 16, tags: 15 };
/// Commands in flight on each of two queue pairs.
const DEPTH: u32 = 8;
/// Where the admin commands' page is, that of data, and the rings of queue pair n.
const PAGE: u64 = BASE + 0x2000;
const DATA: u64 = BASE + 0x3000;
const fn rings(n: u16) -> [u64; 2] {
    let at = if n == 0 { BASE } else { BASE + 0x2000 + 0x2000 * n as u64 };
    [at, at + 0x1000]
}

/// Turns of the executor, all told. A controller's own deadlines are an hour at most, and are
/// looked at ten times a second.
const MOST_TURNS: u32 = 400_000;

struct Host {
    device: Controller<Twisted>,
    bus: Bus,
    twist: Twist,
    wire: Wire,
    now: Nanos,
    turns: u32,
    admin: Pair,
    io: BTreeMap<QueueId, Pair>,
    violation: Option<ProtocolViolation>,
    events: EventRequests,
    pieces: AnaLogReader,
    log_offsets: bool,
    /// Tokens that are out; each ends once.
    out: BTreeMap<u64, u32>,
    /// Aborts and commands of the keeper's own are posted only while the controller is up.
    up: bool,
}

pub fn run(data: &[u8]) {
    let twist = Twist::new(data);
    let mut host = Host::new(&twist);
    let config = BringupConfig {
        admin_sq: rings(0)[0],
        admin_cq: rings(0)[1],
        admin_sizes: ADMIN,
        queues: WantedQueues::New { depth: DEPTH, vectors: vec![Some(Vector(1)), None] },
        admin_timeout: SECOND,
        keep_alive: Nanos::ZERO,
        // Where nothing is: what it says of doorbells in memory moves none here.
        doorbells: Some((1 << 40, (1 << 40) + 4096)),
        quiesce_time: Nanos::ZERO,
    };
    let inventory = host.bring_up(&config).unwrap_or_default();
    if inventory.queues.is_empty() {
        return host.shut_down(&inventory);
    }
    let again =
        BringupConfig { queues: WantedQueues::Existing(inventory.queues.clone()), ..config };
    let (timeout, grace) = (SECOND, Nanos::from_millis(500));
    let lost_timeout = if twist.number(1) & 1 == 0 { Nanos::ZERO } else { SECOND };
    let config = RecoveryConfig {
        command_timeout: timeout,
        grace,
        attempts: 3,
        health_interval: SECOND,
        lost_timeout,
    };
    let mut recovery = Recovery::new(config, again, &inventory);
    (host.events, host.log_offsets, host.up) =
        (EventRequests::new(&inventory), inventory.log_offsets, true);
    let (mut token, mut dead) = (0, false);
    while !dead && (!twist.is_over() || !host.out.is_empty()) {
        if !twist.is_over() {
            host.submit(&mut token);
            host.mischief();
        }
        dead = host.run_timers(&mut recovery, &config);
    }
    assert!(host.out.is_empty(), "requests {:?} of a dead controller never end", host.out);
    if !dead {
        host.shut_down(&inventory);
    }
}

impl Host {
    fn new(twist: &Twist) -> Host {
        let bus = Bus::new(64 << 10);
        let twisted = Twisted::new(bus.clone(), twist.clone());
        let media = |block| {
            NamespaceConfig::mem(Mem::new(1 << 20, Budget::new(1 << 20)), block)
                .expect("whole blocks")
        };
        let config = Config {
            queue_pairs: 4,
            queue_entries: 64,
            ana: Some(Ana::new(nvme::AnaState::OPTIMIZED)),
            ..Config::new(Profile::optane())
        };
        let device = Controller::new(config, vec![media(512), media(4096)], twisted);
        Host {
            device,
            twist: twist.clone(),
            wire: Wire::new(bus.clone(), twist.clone()),
            now: Nanos::from_secs(100),
            turns: 0,
            admin: pair(&bus, QueueId::ADMIN, ADMIN),
            io: BTreeMap::new(),
            violation: None,
            events: EventRequests::default(),
            pieces: AnaLogReader::default(),
            log_offsets: false,
            out: BTreeMap::new(),
            up: false,
            bus,
        }
    }

    /// Lets time pass until `until`, or until there is an answer.
    fn sleep(&mut self, until: Nanos) -> (Vec<Completed>, Vec<(Ticket, Answer)>) {
        let mut out = Vec::with_capacity(64);
        loop {
            self.turns += 1;
            assert!(self.turns < MOST_TURNS, "the driver turns for ever at {}", self.now);
            let Step { worked, next } = self.device.step(self.now);
            let answers = self.wire.come();
            let reaped = self.admin.reap(&self.bus, 32, &mut out);
            let violation = reaped.violation.map(|violation| *violation);
            self.violation = self.violation.or(violation);
            if !out.is_empty() || violation.is_some() || !answers.is_empty() || self.now >= until {
                return (out, answers);
            }
            if !worked {
                self.now = next.unwrap_or(until).max(Nanos(self.now.0 + 1)).min(until);
            }
        }
    }

    fn post_admin(&self, command: AdminCommand, purpose: Purpose) -> bool {
        let prp1 = if command.needs_page { PAGE } else { command.sqe.prp1 };
        let mut sq = self.admin.lock_sq();
        let posted = sq.post(Sqe { prp1, ..command.sqe }, purpose.to_token(), self.now).is_ok();
        sq.commit(&self.bus);
        posted
    }

    fn page(&self) -> Vec<u8> {
        let mut page = vec![0; 4096];
        self.bus.read(PAGE, &mut page).expect("in memory");
        page
    }

    fn rings(&mut self, id: QueueId, sizes: QueueSizes) -> [u64; 2] {
        assert!(
            sizes.tags <= DEPTH
                && sizes.sq_entries <= 64
                && sizes.cq_entries <= 64
                && (1..=2).contains(&id.0),
            "{id} of {sizes:?}"
        );
        self.io.insert(id, pair(&self.bus, id, sizes));
        rings(id.0)
    }

    fn bring_up(&mut self, config: &BringupConfig) -> Option<Inventory> {
        let mut bringup = Bringup::new(config.clone());
        loop {
            match bringup.step(self.now, &self.wire) {
                BringupAction::Wait { until } => {
                    let (completed, answers) = self.sleep(until);
                    answers
                        .into_iter()
                        .for_each(|(ticket, answer)| bringup.answered(ticket, answer));
                    let page = self.page();
                    completed
                        .iter()
                        .for_each(|completed| bringup.completed(&reply(completed, &page)));
                    self.violation
                        .take()
                        .into_iter()
                        .for_each(|violation| bringup.violated(violation));
                }
                // One command at a time: there is a tag, unless earlier ones were never answered.
                BringupAction::Admin(command) => {
                    assert!(self.post_admin(command, Purpose::Sequence), "no admin tag")
                }
                BringupAction::Rings { id, sizes } => {
                    let [sq, cq] = self.rings(id, sizes);
                    bringup.rings(sq, cq);
                }
                BringupAction::ReopenAdmin => {
                    self.admin.exclusive().close();
                    self.admin.exclusive().abandon();
                    self.admin.exclusive().reopen();
                }
                BringupAction::Ready(inventory) => return Some(*inventory),
                BringupAction::Failed(error) => {
                    assert!(!error.to_string().is_empty());
                    return None;
                }
            }
        }
    }

    fn shut_down(&mut self, inventory: &Inventory) {
        let mut shutdown = Shutdown::new(inventory, SECOND);
        loop {
            match shutdown.step(self.now, &self.wire) {
                ShutdownAction::Wait { until } => {
                    let (completed, answers) = self.sleep(until);
                    answers
                        .into_iter()
                        .for_each(|(ticket, answer)| shutdown.answered(ticket, answer));
                    let sequence = completed.iter().filter(|completed| {
                        Purpose::from_token(completed.token) == Purpose::Sequence
                    });
                    sequence.for_each(|completed| shutdown.completed(&reply(completed, &[])));
                }
                ShutdownAction::Admin(command) => drop(self.post_admin(command, Purpose::Sequence)),
                ShutdownAction::Stopped => return,
                ShutdownAction::Failed(error) => return assert!(!error.to_string().is_empty()),
            }
        }
    }

    /// Some reads, as far as there are tags.
    fn submit(&mut self, token: &mut u64) {
        for _ in 0..self.twist.number(1) % 6 {
            *token += 1;
            let pair = &self.io[&QueueId(1 + (*token % self.io.len() as u64) as u16)];
            let mut sq = pair.lock_sq();
            let sqe = nvme::io::read(
                Nsid(1),
                Lba(*token % 100),
                1,
                Dptr { prp1: DATA, prp2: 0 },
                nvme::io::Flags::NONE,
            );
            if sq.post(sqe, *token, self.now).is_ok() {
                self.out.insert(*token, 0);
            }
            sq.commit(&self.bus);
        }
    }

    /// What no device would do: an entry of any bytes in any slot, a register that changes.
    fn mischief(&mut self) {
        match self.twist.number(1) {
            0xf0.. => {
                let queue = (self.twist.number(1) % 3) as u16;
                let slot = self.twist.number(1) % 64;
                let words = [self.twist.number(8), self.twist.number(8)];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.bus.write(rings(queue)[1] + slot * 16, &bytes).expect("in memory");
            }
            0xe8..0xf0 => self.device.fail(),
            _ => {}
        }
    }

    /// A request ends.
    fn end(&mut self, token: u64) {
        assert!(self.out.remove(&token).is_some(), "request {token} ends twice, or never was");
    }

    fn reap(&mut self, recovery: &mut Recovery) {
        let mut out = Vec::with_capacity(64);
        for pair in self.io.values() {
            if let Some(violation) = pair.reap(&self.bus, 32, &mut out).violation {
                assert!(!violation.to_string().is_empty());
                recovery.violated(*violation);
            }
        }
        out.iter().for_each(|completed| self.end(completed.token));
    }

    /// One turn of housekeeping. Whether the controller has been given up.
    fn run_timers(&mut self, recovery: &mut Recovery, config: &RecoveryConfig) -> bool {
        self.turns += 1;
        assert!(self.turns < MOST_TURNS, "the driver turns for ever at {}", self.now);
        self.device.step(self.now);
        self.reap(recovery);
        if self.up {
            self.ask_for_events();
        }
        let mut watch = TimeoutScan::new();
        watch.scan(&self.admin, self.now, config);
        self.io.values().for_each(|pair| watch.scan(pair, self.now, config));
        match recovery.step(self.now, &self.wire, &watch) {
            RecoveryAction::Wait { until } => {
                let (completed, answers) = self.sleep(until.min(self.events.until(self.now)));
                answers.into_iter().for_each(|(ticket, answer)| recovery.answered(ticket, answer));
                completed.iter().for_each(|completed| self.answered(recovery, completed));
                self.violation
                    .take()
                    .into_iter()
                    .for_each(|violation| recovery.violated(violation));
            }
            RecoveryAction::Abort { queue, command, sqe } => {
                let purpose = Purpose::Abort { queue, cid: command.cid };
                let begun = self.io[&queue].exclusive().begin_abort(&command);
                if !(begun && self.post_admin(AdminCommand { sqe, needs_page: false }, purpose)) {
                    self.io[&queue].exclusive().end_abort(command.cid);
                    recovery.abort_ended();
                }
            }
            RecoveryAction::Close(_) => {
                self.up = false;
                self.io.values().chain([&self.admin]).for_each(|pair| pair.exclusive().close());
            }
            RecoveryAction::Lost(_) => {}
            RecoveryAction::Abandon(buffers) => self.abandon(buffers),
            RecoveryAction::Admin(command) => {
                assert!(self.post_admin(command, Purpose::Sequence), "no admin tag")
            }
            RecoveryAction::Rings { .. } => panic!("the queues are known"),
            RecoveryAction::Restored(inventory) => {
                self.io.values().for_each(|pair| pair.exclusive().reopen());
                (self.events, self.log_offsets, self.up) =
                    (EventRequests::new(&inventory), inventory.log_offsets, true);
            }
            RecoveryAction::Dead(_) => return true,
        }
        false
    }

    fn abandon(&mut self, buffers: Buffers) {
        let taken: Vec<_> = self.io.values().flat_map(|pair| pair.exclusive().abandon()).collect();
        taken.iter().for_each(|command| self.end(command.token));
        self.admin.exclusive().abandon();
        if buffers == Buffers::Returned {
            self.admin.exclusive().reopen();
        }
        self.violation = None;
        self.events.forget();
    }

    fn ask_for_events(&mut self) {
        while let Some((command, purpose)) = self.events.next_command(self.now) {
            if !self.post_admin(command, purpose) {
                return self.events.not_posted(purpose);
            }
        }
    }

    fn answered(&mut self, recovery: &mut Recovery, completed: &Completed) {
        match Purpose::from_token(completed.token) {
            Purpose::Abort { queue, cid } => {
                self.io[&queue].exclusive().end_abort(cid);
                recovery.abort_ended();
            }
            Purpose::Sequence => recovery.completed(&reply(completed, &self.page())),
            Purpose::AsyncEvent => {
                _ = self.events.event_completed(completed.status, completed.result)
            }
            Purpose::Own(number) => {
                self.events.read_completed();
                let (what, page) = (Reading::from_number(number), self.page());
                if matches!(what, Reading::Log(nvme::log::lid::ANA) | Reading::Rest(..)) {
                    let piece = if completed.status.is_success() { &page[..] } else { &[] };
                    if let Err(more) = self.pieces.add(what, piece, self.log_offsets) {
                        self.events.read_next(more);
                    }
                }
            }
            Purpose::KeepAlive => {}
        }
    }
}

fn pair(bus: &Bus, id: QueueId, sizes: QueueSizes) -> Pair {
    let [sq, cq] = rings(id.0);
    let sq = Ring::at(bus, sq, sizes.sq_entries, 64).expect("in memory");
    QueuePair::new(id, sizes, sq, Ring::at(bus, cq, sizes.cq_entries, 16).expect("in memory"))
        .expect("legal sizes")
}

fn reply<'a>(completed: &Completed, page: &'a [u8]) -> AdminReply<'a> {
    AdminReply { status: completed.status, result: completed.result, page }
}
