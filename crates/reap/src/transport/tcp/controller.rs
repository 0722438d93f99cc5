//! A controller over NVMe/TCP: admin queue, properties, associations and I/O queues.
//!
//! The thread "reap-tcp" receives on the admin queue's socket, and makes connections, which block.
//!
//! ```text
//!                    CC.EN = 0 by the host, then CSTS.RDY = 0
//!        ┌── Up ─────────────────────────────────────────────► Ended
//!        │   ▲ ▲                                                 │ access to CAP, or CC.EN = 1
//!   lost │   │ └───────────────── connected ────────────────── Renewing
//!        ▼   │ connected, after the fence                        │ cannot connect
//!       Down ┴───────────────────────────────────────────────────┘
//! ```
//! Lock order: `admin`, then a queue's lock; `news` last.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ::tcp::InitiatorEvent;
use driver::{Access, AccessPoll, Answer, Namespace, Property, Ticket};
use hw::{DmaPool, EventFd, Poller, Vectors};
use nvme::admin::{CreateCq, CreateSq, GetLogPage, cns};
use nvme::fabrics::{ConnectData, Direction, Property as PropertyCommand, direction_of};
use nvme::features::fid;
use nvme::regs::{Aqa, Cc, Csts};
use nvme::{Cid, Cqe, Page, QueueId, Sqe, Status, identify, opcode};
use units::Nanos;

use super::connect::{Host, NewQueue, connect};
use super::queue::{Connection, Payload, QueueRings, TcpQueue, io_bytes, payload, violation};
use super::uri::TcpUri;
use crate::error::{OpenError, TcpError};
use crate::transport::ServerEvent;

/// Keys of `TcpController::poller`.
const KEY_WAKE: u64 = 0;
const KEY_ADMIN: u64 = 1;

/// Tag (low six bits of the CID) of property commands. The driver uses tags 0 to 62.
const OWN: u16 = 63;
/// Entries of the admin queue: 63 commands of the driver, one property command, and the one that a
/// ring leaves empty.
const ADMIN_ENTRIES: u32 = 65;
/// First delay between attempts to reconnect. It is doubled up to `reconnect_delay`.
const FIRST_PAUSE: Nanos = Nanos::from_millis(100);

/// See the module's documentation.
pub(crate) struct TcpController {
    uri: TcpUri,
    host: Host,
    pool: DmaPool,
    vectors: Arc<Vectors>,
    queues: Box<[TcpQueue]>,
    admin: Mutex<Admin>,
    /// Events that the controller task has not taken yet.
    news: Mutex<VecDeque<ServerEvent>>,
    /// Epoll instance of the thread: `wake`, and the admin queue's socket.
    poller: Poller,
    wake: EventFd,
    /// log2 of the block size by NSID - 1, to compute the length of PRP transfers.
    block_log2: Box<[AtomicU32]>,
}

/// Most namespaces whose block size is stored.
const NAMESPACES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Association {
    /// Connected.
    Up,
    /// The host has cleared CC.EN, and the controller has reported CSTS.RDY = 0.
    Ended,
    /// The host accesses properties again, so a new association is being made.
    Renewing,
    /// The connection was lost, or could not be made.
    Down,
}

struct Admin {
    association: Association,
    connection: Option<Connection>,
    rings: Option<QueueRings>,
    aqa: Aqa,
    asq: u64,
    cntlid: u16,
    /// Most bytes of in-capsule data of I/O queues (IOCCSZ).
    in_capsule: u32,
    /// The last value set in CC had EN = 0.
    disabled: bool,
    tickets: u64,
    generation: u16,
    /// Property accesses not sent yet, the one in flight, and answers.
    waiting: VecDeque<(Ticket, Access)>,
    sent: Option<(Ticket, Access)>,
    answers: Vec<(Ticket, Answer)>,
    /// CID of an Identify Controller in flight, and the address of its data.
    identify: Option<(u16, u64)>,
    /// CID of the last Keep Alive in flight.
    keep_alive: Option<u16>,
    /// Address and entries of each completion queue, by queue ID.
    cqs: Vec<(u64, u32)>,
    /// I/O queues to connect, with the CID of their Create I/O Submission Queue.
    wanted: VecDeque<(u16, CreateSq)>,
    /// The association has had an I/O queue, so the fence applies when it ends.
    used: bool,
    /// When the connections of the last lost association with I/O queues were closed: the fence
    /// counts from here.
    closed_at: Nanos,
    /// When to connect again; `None`: no reconnect is requested.
    again_at: Option<Nanos>,
    pause: Nanos,
    closing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpController {
    /// Connects to a controller, and starts its thread. `vectors`: one per I/O queue, and one for
    /// the admin queue.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) fn open(
        uri: &TcpUri,
        pool: DmaPool,
        vectors: Arc<Vectors>,
    ) -> Result<Arc<TcpController>, OpenError> {
        let system = |source| OpenError::System { what: "connection", source };
        let host = Host::of(uri).map_err(system)?;
        let queues = (1..vectors.len())
            .map(|_| TcpQueue::new())
            .collect::<Result<_, _>>()
            .map_err(system)?;
        let controller = Arc::new(TcpController {
            uri: uri.clone(),
            host,
            pool,
            queues,
            admin: Mutex::new(Admin {
                association: Association::Down,
                connection: None,
                rings: None,
                aqa: Aqa::default(),
                asq: 0,
                cntlid: 0,
                in_capsule: 0,
                disabled: false,
                tickets: 0,
                generation: 0,
                waiting: VecDeque::new(),
                sent: None,
                answers: Vec::new(),
                identify: None,
                keep_alive: None,
                cqs: vec![(0, 0); usize::from(vectors.len())],
                wanted: VecDeque::new(),
                used: false,
                closed_at: Nanos::ZERO,
                again_at: None,
                pause: FIRST_PAUSE,
                closing: false,
            }),
            vectors,
            news: Mutex::default(),
            poller: Poller::new().map_err(system)?,
            wake: EventFd::new().map_err(system)?,
            block_log2: (0..NAMESPACES).map(|_| AtomicU32::new(0)).collect(),
        });
        controller.poller.add(&controller.wake, KEY_WAKE).map_err(system)?;
        let connected = controller
            .associate()
            .map_err(|fault| OpenError::Tcp { address: uri.address(), fault })?;
        controller.install(&mut lock(&controller.admin), connected);
        let thread = controller.clone();
        thread::Builder::new()
            .name("reap-tcp".into())
            .spawn(move || thread.run())
            .map_err(system)?;
        Ok(controller)
    }

    /// Its URI.
    pub(crate) fn uri(&self) -> &TcpUri {
        &self.uri
    }

    /// Most I/O queues.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn queue(&self, id: QueueId) -> Option<&TcpQueue> {
        self.queues.get(usize::from(id.0).checked_sub(1)?)
    }

    /// Stores the block sizes of namespaces that bring-up has identified.
    pub(crate) fn learn(&self, namespaces: &[Namespace]) {
        for namespace in namespaces {
            if let Some(log2) = self.block_log2.get((namespace.nsid.0 as usize).wrapping_sub(1)) {
                log2.store(namespace.block_log2.into(), Relaxed);
            }
        }
    }

    /// Wakes the controller task.
    fn notify(&self) {
        self.vectors.signal(0).into_iter().for_each(EventFd::signal);
    }

    fn report(&self, event: ServerEvent) {
        lock(&self.news).push_back(event);
        self.notify();
    }

    /// Takes the next event.
    pub(crate) fn news(&self) -> Option<ServerEvent> {
        lock(&self.news).pop_front()
    }

    /// SQ tail doorbell: sends the commands before `tail`.
    pub(crate) fn ring_sq(&self, id: QueueId, tail: u32) {
        let Some(queue) = self.queue(id) else { return self.ring_admin(tail) };
        let log2 = |nsid: u32| {
            self.block_log2
                .get((nsid as usize).wrapping_sub(1))
                .map_or(0, |log2| log2.load(Relaxed) as u8)
        };
        if let Err(why) = queue.submit(tail, |sqe| io_bytes(sqe, log2)) {
            self.report(ServerEvent::QueueEnded(id, format!("{}: {why}", self.uri.address())));
        }
    }

    /// Receives on an I/O queue. Returns whether its CQ should be polled.
    pub(crate) fn poll(&self, id: QueueId) -> bool {
        let Some(queue) = self.queue(id) else { return false };
        queue.poll().unwrap_or_else(|why| {
            self.report(ServerEvent::QueueEnded(id, format!("{}: {why}", self.uri.address())));
            false
        })
    }

    /// Closes the connections of all I/O queues. After that their rings and buffers are not
    /// accessed.
    pub(crate) fn disconnect_queues(&self) {
        self.queues.iter().for_each(TcpQueue::disconnect);
    }

    /// Closes all connections of the association: nothing more is sent.
    pub(crate) fn disconnect(&self) {
        let mut admin = lock(&self.admin);
        if admin.association != Association::Down {
            self.end(&mut admin);
        }
    }

    /// Requests a new association after the fence. `quiet`: time after which the controller has
    /// certainly stopped executing commands, from the last byte sent.
    pub(crate) fn start_reconnect(&self, quiet: Nanos) {
        let mut admin = lock(&self.admin);
        if admin.association == Association::Down && admin.again_at.is_none() {
            admin.again_at = Some(admin.closed_at + quiet);
            self.wake.signal();
        }
    }

    /// The controller of the lost association has stopped: connects again at once.
    pub(crate) fn end_fence(&self) {
        let mut admin = lock(&self.admin);
        if admin.association == Association::Down {
            admin.again_at = Some(hw::now());
            self.wake.signal();
        }
    }

    /// Ends the thread, because the device is closed.
    pub(crate) fn close(&self) {
        lock(&self.admin).closing = true;
        self.wake.signal();
    }

    /// Closes all connections, and answers pending property accesses.
    fn end(&self, admin: &mut Admin) {
        admin.connection.take().into_iter().for_each(Connection::reset);
        self.disconnect_queues();
        (admin.association, admin.again_at) = (Association::Down, None);
        if std::mem::take(&mut admin.used) {
            // Read after the connections were closed, so no byte is sent later.
            admin.closed_at = hw::now();
        }
        admin.wanted.clear();
        // All ones, as PCI reads of a removed drive return: the driver treats both alike.
        for (ticket, access) in admin.sent.take().into_iter().chain(admin.waiting.drain(..)) {
            admin.answers.push((ticket, Ok(all_ones(access))));
        }
        self.notify();
    }

    /// Ends the association after an error, and reports why.
    fn lost(&self, admin: &mut Admin, why: &str) {
        self.end(admin);
        self.report(ServerEvent::Ended(format!("{}: {why}", self.uri.address())));
    }

    /// SQ tail doorbell of the admin queue.
    fn ring_admin(&self, tail: u32) {
        let mut admin = lock(&self.admin);
        while let Some(sqe) = admin.rings.as_mut().and_then(|rings| rings.take(tail)) {
            if let Some(status) = self.handle_here(&mut admin, &sqe) {
                self.complete(&mut admin, Cqe::new(sqe.cid(), QueueId::ADMIN, 0, status, 0, false));
                continue;
            }
            // The thread completes it once the queue is connected.
            if sqe.opcode == opcode::admin::CREATE_SQ {
                continue;
            }
            // IOCCSZ is in the data of Identify Controller.
            if sqe.opcode == opcode::admin::IDENTIFY
                && sqe.cdw10 & 0xff == u32::from(cns::CONTROLLER)
            {
                admin.identify = Some((sqe.cid, sqe.prp1));
            }
            if sqe.opcode == opcode::admin::KEEP_ALIVE {
                admin.keep_alive = Some(sqe.cid);
            }
            // Without a connection the command is never completed, as on a removed drive; its
            // time-out handles that.
            if let Some(connection) = &mut admin.connection {
                connection.initiator.submit(sqe, payload(&sqe, admin_bytes(&sqe)));
            }
        }
        self.flush(&mut admin);
    }

    /// Handles commands that do not exist on fabrics: queues are created by Connect, and deleted by
    /// closing the connection. `Some`: complete the command with this status.
    fn handle_here(&self, admin: &mut Admin, sqe: &Sqe) -> Option<Status> {
        match sqe.opcode {
            opcode::admin::CREATE_CQ => {
                let create = CreateCq::from_sqe(sqe);
                let place = admin.cqs.get_mut(usize::from(create.queue.0))?;
                *place = (create.addr, create.entries);
                Some(Status::SUCCESS)
            }
            opcode::admin::CREATE_SQ => {
                admin.wanted.push_back((sqe.cid, CreateSq::from_sqe(sqe)));
                self.wake.signal();
                None
            }
            opcode::admin::DELETE_SQ => {
                self.queue(QueueId(sqe.cdw10 as u16)).into_iter().for_each(TcpQueue::disconnect);
                Some(Status::SUCCESS)
            }
            opcode::admin::DELETE_CQ => Some(Status::SUCCESS),
            _ => None,
        }
    }

    fn complete(&self, admin: &mut Admin, cqe: Cqe) {
        if let Some(rings) = &mut admin.rings {
            rings.post(cqe);
        }
        // The task takes the completion of a Keep Alive when it sends the next one. So an idle
        // connection has a wake-up less.
        let kept_alive = admin.keep_alive.take_if(|cid| *cid == cqe.cid).is_some();
        if !kept_alive || !cqe.status().is_success() {
            self.notify();
        }
    }

    fn flush(&self, admin: &mut Admin) {
        let Some(connection) = &mut admin.connection else { return };
        if let Err(error) = connection.flush(&self.poller, KEY_ADMIN) {
            self.lost(admin, &error.to_string());
        }
    }

    /// Starts a property access. Pending accesses are answered by [`TcpController::answers`].
    pub(crate) fn ask(&self, access: Access) -> AccessPoll {
        let mut admin = lock(&self.admin);
        match access {
            // Rings are local, so AQA, ASQ and ACQ are not sent.
            Access::Set(Property::Aqa, value) => admin.aqa = Aqa::from_bits(value as u32),
            Access::Set(Property::Asq, value) => admin.asq = value,
            Access::Set(Property::Acq, acq) => {
                let (sq, cq) = (admin.aqa.sq_entries(), admin.aqa.cq_entries());
                let rings = self.pool.sq(admin.asq, sq).zip(self.pool.cq(acq, cq));
                admin.rings = rings.map(|(sq_ring, cq_ring)| {
                    QueueRings::new(QueueId::ADMIN, (sq_ring, sq), (cq_ring, cq))
                });
            }
            // After a stop CC and CSTS read 0, as after a reset.
            Access::Get(Property::Csts | Property::Cc)
                if admin.association == Association::Ended => {}
            Access::Set(Property::Cc, value)
                if admin.association == Association::Ended && !Cc::from_bits(value as u32).en() => {
            }
            access if admin.association == Association::Down => {
                return AccessPoll::Ready(Ok(all_ones(access)));
            }
            access => {
                // Any other access is the start of bring-up, which needs a new association.
                if admin.association == Association::Ended {
                    admin.association = Association::Renewing;
                    self.wake.signal();
                }
                admin.tickets += 1;
                let ticket = Ticket(admin.tickets);
                admin.waiting.push_back((ticket, access));
                self.send_property(&mut admin);
                return AccessPoll::Pending(ticket);
            }
        }
        AccessPoll::Ready(Ok(0))
    }

    /// Sends the next property access. Only one is in flight, since they share a tag.
    fn send_property(&self, admin: &mut Admin) {
        if admin.association != Association::Up || admin.sent.is_some() {
            return;
        }
        let Some((ticket, access)) = admin.waiting.pop_front() else { return };
        let sqe = match access {
            Access::Get(property) => {
                PropertyCommand::to_get(property.offset(), property.width() == 8)
            }
            Access::Set(property, value) => {
                PropertyCommand::to_set(property.offset(), property.width() == 8, value)
            }
        };
        admin.generation = admin.generation.wrapping_add(1);
        let cid = OWN | admin.generation << 6;
        admin.sent = Some((ticket, access));
        if let Some(connection) = &mut admin.connection {
            connection.initiator.submit(Sqe { cid, ..sqe }, None);
        }
        self.flush(admin);
    }

    /// Takes the answers to property accesses.
    pub(crate) fn answers(&self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut lock(&self.admin).answers)
    }

    fn property_answered(&self, admin: &mut Admin, cqe: &Cqe) {
        let Some((ticket, access)) = admin.sent.take() else { return };
        let value = u64::from(cqe.result) | u64::from(cqe.dw1) << 32;
        let answer = match cqe.status() {
            status if status.is_success() => Ok(value),
            // CRTO is optional on fabrics; with 0 the driver uses CAP.TO.
            _ if access == Access::Get(Property::Crto) => Ok(0),
            status => Err(status),
        };
        match (access, &answer) {
            (Access::Set(Property::Cc, value), Ok(_)) => {
                admin.disabled = !Cc::from_bits(value as u32).en()
            }
            (Access::Get(Property::Csts), Ok(csts))
                if admin.disabled && !Csts::from_bits(*csts as u32).rdy() =>
            {
                // CSTS.RDY = 0 completes the stop, and ends the association (Base 3.3.1). No fence
                // is needed: a stopped controller executes no commands.
                admin.connection.take();
                (admin.association, admin.used) = (Association::Ended, false);
                for (ticket, _) in std::mem::take(&mut admin.waiting) {
                    admin.answers.push((ticket, Ok(0)));
                }
            }
            _ => {}
        }
        admin.answers.push((ticket, answer));
        self.notify();
        self.send_property(admin);
    }

    /// Receives on the admin queue until its socket is empty.
    fn poll_admin(&self, admin: &mut Admin) {
        loop {
            let Some(connection) = &mut admin.connection else { return };
            match connection.receive() {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) => return self.lost(admin, &error.to_string()),
            }
            while let Some(event) =
                admin.connection.as_mut().and_then(|connection| connection.initiator.poll())
            {
                // Flush sends H2CTermReq, which names the error.
                if let Some(why) = violation(&event) {
                    self.flush(admin);
                    return self.lost(admin, &why);
                }
                self.admin_event(admin, event);
            }
        }
        self.flush(admin);
    }

    /// Handles a completion on the admin queue.
    fn admin_event(&self, admin: &mut Admin, event: InitiatorEvent<Payload>) {
        let InitiatorEvent::Completed { cqe, .. } = event else { return };
        if cqe.cid & OWN == OWN {
            return self.property_answered(admin, &cqe);
        }
        if let Some((_, addr)) = admin.identify.take_if(|(cid, _)| *cid == cqe.cid)
            && cqe.status().is_success()
        {
            let mut page = vec![0; identify::Controller::LEN];
            if self.pool.dma_read(addr, &mut page).is_ok()
                && let Ok(controller) = identify::Controller::from_page(&page)
            {
                // IOCCSZ is in units of 16 bytes, and includes the SQE of 64 bytes. With an
                // in-capsule data offset (ICDOFF) in-capsule data are not used.
                let most = controller.ioccsz.saturating_mul(16).saturating_sub(64);
                admin.in_capsule = if controller.icdoff == 0 { most } else { 0 };
            }
        }
        self.complete(admin, cqe);
    }

    /// Connects the admin queue. Blocks.
    fn associate(&self) -> Result<(Connection, u16), TcpError> {
        let queue = NewQueue {
            id: QueueId::ADMIN,
            entries: ADMIN_ENTRIES,
            cntlid: ConnectData::ANY,
            in_capsule: 8192,
        };
        connect(&self.uri, &self.host, &self.pool, &queue)
    }

    /// Takes over the connection of a new association.
    fn install(&self, admin: &mut Admin, (connection, cntlid): (Connection, u16)) {
        if let Err(error) = self.poller.add(&connection.stream, KEY_ADMIN) {
            return self.lost(admin, &error.to_string());
        }
        (admin.connection, admin.cntlid, admin.association) =
            (Some(connection), cntlid, Association::Up);
        (admin.disabled, admin.again_at, admin.pause, admin.identify) =
            (false, None, FIRST_PAUSE, None);
        admin.wanted.clear();
        self.send_property(admin);
    }

    /// Body of the thread "reap-tcp".
    fn run(&self) {
        // A new thread inherits the affinity of its creator, which may be pinned to a job's CPU.
        hw::clear_affinity();
        let mut events = Vec::new();
        loop {
            let mut admin = lock(&self.admin);
            if admin.closing {
                self.disconnect_queues();
                admin.connection = None;
                return;
            }
            self.poll_admin(&mut admin);
            let (now, up) = (hw::now(), admin.association == Association::Up);
            if admin.association == Association::Renewing
                || admin.again_at.is_some_and(|at| at <= now)
            {
                drop(admin);
                self.begin_again();
                continue;
            }
            if let Some((cid, create)) = admin.wanted.pop_front().filter(|_| up) {
                drop(admin);
                self.connect_queue(cid, &create);
                continue;
            }
            let timeout = admin.again_at.filter(|at| *at != Nanos::MAX).map(|at| at - now);
            drop(admin);
            if let Err(error) = self.poller.wait(timeout, &mut events) {
                tracing::error!(%error, "the thread of an NVMe/TCP controller cannot sleep");
            }
        }
    }

    /// Makes a new association, or schedules the next attempt.
    fn begin_again(&self) {
        let connected = self.associate();
        let mut admin = lock(&self.admin);
        if admin.closing || admin.association == Association::Up {
            return;
        }
        // After a loss attempts are repeated until `ctrl_loss_tmo`; a failed reset is reported to
        // the host.
        let was_lost = admin.association == Association::Down;
        match connected {
            Ok(connected) => {
                self.install(&mut admin, connected);
                if was_lost && admin.association == Association::Up {
                    self.report(ServerEvent::Back);
                }
            }
            Err(fault) if was_lost => {
                tracing::debug!(%fault, address = self.uri.address(), "the target cannot be reached yet");
                admin.again_at = Some(hw::now() + admin.pause);
                admin.pause = Nanos(admin.pause.0 * 2).min(self.uri.reconnect_delay);
            }
            Err(fault) => self.lost(&mut admin, &fault.to_string()),
        }
    }

    /// Connects an I/O queue for Create I/O Submission Queue, and completes that command.
    fn connect_queue(&self, cid: u16, create: &CreateSq) {
        let (cntlid, in_capsule, cq) = {
            let admin = lock(&self.admin);
            (
                admin.cntlid,
                admin.in_capsule,
                admin.cqs.get(usize::from(create.queue.0)).copied().unwrap_or_default(),
            )
        };
        let new = NewQueue { id: create.queue, entries: create.entries, cntlid, in_capsule };
        let connected = connect(&self.uri, &self.host, &self.pool, &new);
        let mut admin = lock(&self.admin);
        // The association may have ended since. It cannot be another one, since only this thread
        // makes them.
        if admin.association != Association::Up {
            return;
        }
        let rings = self.pool.sq(create.addr, create.entries).zip(self.pool.cq(cq.0, cq.1));
        let status = match (connected, rings, self.queue(create.queue)) {
            (Ok((connection, _)), Some((sq_ring, cq_ring)), Some(queue)) => {
                let rings =
                    QueueRings::new(create.queue, (sq_ring, create.entries), (cq_ring, cq.1));
                admin.used = true;
                if queue.connect(connection, rings).is_ok() {
                    Status::SUCCESS
                } else {
                    Status::INTERNAL_ERROR
                }
            }
            (Err(fault), ..) => {
                self.report(ServerEvent::Note(format!(
                    "{}: I/O queue {}: {fault}",
                    self.uri.address(),
                    create.queue
                )));
                Status::INTERNAL_ERROR
            }
            _ => Status::INVALID_QUEUE_ID,
        };
        self.complete(&mut admin, Cqe::new(Cid(cid), QueueId::ADMIN, 0, status, 0, false));
    }
}

/// Length of the data of an admin command in bytes: a page at PRP 1 or nothing, unless the command
/// has a length of its own. Controllers may refuse another length.
fn admin_bytes(sqe: &Sqe) -> u32 {
    if sqe.prp1 == 0 || !matches!(direction_of(sqe), Direction::ToController | Direction::ToHost) {
        return 0;
    }
    match sqe.opcode {
        opcode::admin::GET_LOG_PAGE => (GetLogPage::from_sqe(sqe).len as u32).min(4096),
        opcode::admin::GET_FEATURES | opcode::admin::SET_FEATURES => match sqe.cdw10 as u8 {
            fid::HOST_BEHAVIOR => 512,
            // Timestamp, Host Identifier.
            0x0e => 8,
            0x81 => 8 << (sqe.cdw11 & 1),
            _ => 4096,
        },
        _ => 4096,
    }
}

/// Result of an access without a controller: all ones, as PCI returns for a removed device.
fn all_ones(access: Access) -> u64 {
    match access {
        Access::Get(property) if property.width() == 8 => u64::MAX,
        Access::Get(_) => u32::MAX.into(),
        Access::Set(..) => 0,
    }
}
