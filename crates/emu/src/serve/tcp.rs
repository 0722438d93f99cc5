//! NVMe/TCP server: one subsystem at one or more addresses, with one controller per association.
//!
//! ```text
//!   socket ─► Target ─► Association: Controller<FabricPort> ─► media
//!          ◄─ (tcp)  ◄─ posted entries, data
//! ```
//!
//! A single thread receives, steps the controllers and sends; it sleeps in the poller when there is
//! no work. Memory for payload is bounded, for all connections together and for each.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hw::Poller;
use nvme::fabrics::{
    self, Connect, ConnectData, CrossControllerReset, DISCOVERY_NQN, DiscoveryEntry,
    DiscoveryHeader, fctype,
};
use nvme::{Cqe, Page, QueueId, Sqe, Status, Text, opcode};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::net::sockopt::set_socket_linger;
use tcp::{Digests, Event, Fes, Limits, Tamper, Target, Term, Violation};
use units::Nanos;

use super::association::{ADMIN_ENTRIES, Association, HostIdentity, QID_AT, SQSIZE_AT, invalid};
use super::control::{self, Control, ControlError};
use super::event::ServeEvent;
use super::served::ServeError;
use crate::{Change, Config, ControlCommand, Controller, Fabric, Loss, Script, Subsystem, Wire};

#[cfg(not(test))]
pub(super) use hw::now;
#[cfg(test)]
pub(super) use tests::now;

/// Callback for events.
type Report<'a> = &'a mut dyn FnMut(ServeEvent);

const STOP: u64 = 0;
/// Ranges of poller keys: the listeners of control sockets, the listeners of the addresses, and
/// connections. The keys of clients of control sockets are above all others.
const CONTROLS: u64 = 1 << 8;
const PORTS: u64 = 1 << 9;
const CONNECTIONS: u64 = 1 << 16;

/// Maximum open connections.
const MAX_CONNECTIONS: usize = 2048;
/// Maximum associations.
const MAX_ASSOCIATIONS: usize = 512;
/// Time from accept until Connect must have completed.
const GREETING: Nanos = Nanos::from_secs(5);
/// Time to wait for the host to close a connection after a TermReq.
const LINGER: Nanos = Nanos::from_secs(1);
/// Retry interval of accept() after it failed for want of descriptors or memory.
const AGAIN: Nanos = Nanos::from_millis(100);
/// Bytes of payload buffers, over all connections. A command that needs more waits.
const MEMORY: u64 = 256 << 20;
/// Maximum bytes of payload buffers of one connection.
const MEMORY_OF_ONE: u64 = 32 << 20;
/// From this many unsent bytes of headers and responses on, nothing more is read from a connection:
/// a host that does not read its responses could otherwise make the queue grow without bound.
const UNSENT: u64 = 1 << 20;
/// Time after which a connection is closed if the host has not sent data that it announced or that
/// were requested by R2T, or has not read data sent to it.
const PROGRESS: Nanos = Nanos::from_secs(30);
/// The reason that is reported if Cross-Controller Reset ends an association.
const RESET_BY_OTHER: &str = "another controller has reset it";
/// CQT of controllers whose configuration has none: the time beyond KATO after which a host may
/// assume that a lost controller is quiescent (TP4129).
const QUIESCE: Nanos = Nanos::from_secs(1);
/// A host at a low queue depth sends its next command sooner than a thread can sleep and be woken.
/// While messages come within SOON on average, the thread polls for POLL before it sleeps;
/// otherwise it tries that again after PAUSE waits.
const POLL: Nanos = Nanos::from_micros(20);
const SOON: Nanos = Nanos::from_micros(12);
const PAUSE: u32 = 1000;
/// Socket reads per connection and turn.
const READS: usize = 16;
/// Steps per controller and turn.
const STEPS: usize = 16;
/// Maximum entries of an I/O queue. The controller reserves a slot for each command, and an idle
/// connection should take at most 64 KiB.
const ENTRIES: u32 = 256;
/// Maximum bytes of one command.
const TRANSFER: u32 = 1 << 20;

const LIMITS: Limits = Limits {
    digests: Digests { header: true, data: true },
    in_capsule: 8192,
    h2c_data: 256 << 10,
    transfer: TRANSFER,
    r2t: 128 << 10,
    room: 16 << 10,
};

/// A listening address.
struct Port {
    address: SocketAddr,
    /// `None` if the path is lost: connections are refused.
    listener: Option<TcpListener>,
    config: Config,
    device: String,
    /// Changes to apply to each controller that is created here.
    changes: Vec<Change>,
    /// A connection is pending that could not be accepted.
    must_retry_accept: bool,
    /// Time until which nothing is read from the connections of this address.
    stalled: Option<Nanos>,
    /// Completions that are ready at the same time are sent in reverse order.
    reorders: bool,
    /// Protocol errors to make on I/O queues, with the number of times left.
    tampers: [(Tamper, u32); 3],
    completed: u64,
}

/// One TCP connection.
struct Connection {
    stream: TcpStream,
    target: Target,
    port: usize,
    /// CNTLID of the association; `None` before Connect.
    association: Option<u16>,
    queue: QueueId,
    watches_writes: bool,
    /// C2HTermReq was queued: received bytes are discarded until the host closes the connection.
    ended: bool,
    /// There are too many unsent bytes: nothing is received until the host reads.
    full: bool,
    /// Time of the last progress; `None` unless the host has to send or to read data. While it is
    /// `Some`, there is a deadline.
    progress: Option<Nanos>,
    /// Bytes that may still be sent before the connection is reset (fault injection).
    cut: Option<u64>,
    /// This connection's share of `TcpServer::held`, in bytes.
    counted: u64,
}

/// An NVMe/TCP server of one subsystem.
pub struct TcpServer {
    subsystem: Subsystem,
    ports: Vec<Port>,
    /// One control socket per address.
    controls: Vec<Control>,
    /// NQNs of the hosts that may connect; empty: all.
    allowed: Vec<String>,
    /// Address in the discovery log, in place of the listening ones.
    advertised: Option<IpAddr>,
    poller: Poller,
    connections: BTreeMap<u64, Connection>,
    next_key: u64,
    associations: BTreeMap<u16, Association>,
    next_cntlid: u16,
    /// Connections to receive from.
    ready: Vec<u64>,
    /// Connections with bytes to send.
    unsent: Vec<u64>,
    /// Connections with commands that wait for payload memory.
    waiting: Vec<u64>,
    /// Deadlines of connections: for Connect, for progress, and for the close after a TermReq.
    deadlines: VecDeque<(Nanos, u64)>,
    held: u64,
    /// Controllers that Cross-Controller Reset is resetting, with the time at which it completes.
    resets: Vec<(Nanos, u16)>,
    script: VecDeque<(Nanos, usize, Change)>,
    waiting_script: Option<Script>,
    rng: Xoshiro256PlusPlus,
    news: Vec<ServeEvent>,
}

impl std::fmt::Debug for TcpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpServer").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}

impl TcpServer {
    /// Creates a server of `subsystem` for the hosts with these NQNs, or for all hosts if the list
    /// is empty.
    ///
    /// # Errors
    /// The poller cannot be created.
    pub fn new(subsystem: Subsystem, allowed: Vec<String>) -> Result<TcpServer, ServeError> {
        Ok(TcpServer {
            subsystem,
            ports: Vec::new(),
            controls: Vec::new(),
            allowed,
            advertised: None,
            poller: Poller::new()?,
            connections: BTreeMap::new(),
            next_key: CONNECTIONS,
            associations: BTreeMap::new(),
            next_cntlid: 1,
            ready: Vec::new(),
            unsent: Vec::new(),
            waiting: Vec::new(),
            deadlines: VecDeque::new(),
            held: 0,
            resets: Vec::new(),
            script: VecDeque::new(),
            waiting_script: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(
                hw::now().0 ^ u64::from(std::process::id()) << 40,
            ),
            news: Vec::new(),
        })
    }

    /// Listens at one more address, whose controllers have this configuration. Returns the bound
    /// address; port 0 selects a free port.
    ///
    /// # Errors
    /// The address cannot be bound, or other machines could reach it while no hosts are named.
    pub fn add(
        &mut self,
        address: SocketAddr,
        device: String,
        config: Config,
    ) -> Result<SocketAddr, ServeError> {
        let fault = |source| ServeError::Address { address, source };
        // HOSTNQN is no authentication, but a server without even that filter must not be reachable
        // from other machines.
        if !address.ip().is_loopback() && self.allowed.is_empty() {
            return Err(ServeError::Open(address));
        }
        let n = self.ports.len() as u64;
        let listener = listen(address).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let control = control_path(address);
        let fault = |fault| ServeError::Socket { path: control::path_of(&control), fault };
        let control = Control::for_socket(&control, n as usize).map_err(fault)?;
        self.poller.add(&listener, PORTS + n)?;
        self.poller.add(&control.listener.listener, CONTROLS + n)?;
        self.news.push(ServeEvent::ListeningTcp {
            address,
            device: device.clone(),
            nqn: self.subsystem.nqn().to_owned(),
        });
        if !address.ip().is_loopback() {
            self.news.push(ServeEvent::OnlyFilters);
        }
        let config = Config {
            // A fabric controller has no doorbells and no MSI-X vectors.
            doorbell_stride: 0,
            vectors: 1,
            shadow_doorbells: false,
            sgls: true,
            max_transfer: config.max_transfer.min(TRANSFER),
            queue_entries: config.queue_entries.min(ENTRIES),
            quiesce_time: if config.quiesce_time == Nanos::ZERO {
                QUIESCE
            } else {
                config.quiesce_time
            },
            ..config
        };
        let (listener, changes) = (Some(listener), Vec::new());
        self.controls.push(control);
        self.ports.push(Port {
            address,
            listener,
            config,
            device,
            changes,
            must_retry_accept: false,
            stalled: None,
            reorders: false,
            tampers: [Tamper::HeaderDigest, Tamper::DataDigest, Tamper::R2t]
                .map(|tamper| (tamper, 0)),
            completed: 0,
        });
        Ok(address)
    }

    /// Sets the address that the discovery log reports, for hosts that reach the server through
    /// address translation. Ports are not changed.
    pub fn advertise(&mut self, address: IpAddr) {
        self.advertised = Some(address);
    }

    /// Plays a script, whose time starts when the first host connects. Path n is the nth address.
    ///
    /// # Errors
    /// A step names an address that does not exist, or a change that is not possible over TCP.
    pub fn play(&mut self, script: Script) -> Result<(), ServeError> {
        let paths = self.ports.len();
        if let Some(step) = script.steps.iter().find(|step| step.path >= paths) {
            return Err(ServeError::Path { path: step.path, paths });
        }
        if let Some(why) = script.steps.iter().find_map(|step| not_here(step.change)) {
            return Err(ServeError::NotHere(why));
        }
        self.waiting_script = Some(script);
        Ok(())
    }

    /// Serves until `stop` is readable.
    ///
    /// # Errors
    /// The poller failed.
    pub fn run(&mut self, stop: impl AsFd, report: Report<'_>) -> Result<(), ServeError> {
        self.news.drain(..).for_each(&mut *report);
        // Timers fire when a command is due: the kernel's default slack of 50 µs would add to its
        // latency.
        _ = hw::set_timer_slack(Nanos(1));
        self.poller.add(&stop, STOP)?;
        let (mut arrived, mut timeout) = (Vec::new(), Some(Nanos::ZERO));
        // The average of the last waits while polling, and the number of waits until polling is
        // tried again.
        let (mut usual, mut pause) = (Nanos::ZERO, 0u32);
        loop {
            let begun = hw::now();
            let due = timeout.map_or(Nanos::MAX, |timeout| begun + timeout);
            let polls = pause == 0 && timeout != Some(Nanos::ZERO);
            arrived.clear();
            while polls && arrived.is_empty() && hw::now() < due.min(begun + POLL) {
                self.poller.wait(Some(Nanos::ZERO), &mut arrived)?;
            }
            if arrived.is_empty() {
                self.poller.wait(timeout.map(|_| due - hw::now()), &mut arrived)?;
            }
            if polls {
                let waited = (hw::now() - begun).min(Nanos(4 * POLL.0));
                usual = Nanos((7 * usual.0 + waited.0) / 8);
                if usual > SOON {
                    (usual, pause) = (Nanos::ZERO, PAUSE);
                }
            } else {
                pause = pause.saturating_sub(1);
            }
            if arrived.contains(&STOP) {
                self.poller.remove(&stop)?;
                return Ok(());
            }
            self.dispatch(&arrived, report);
            timeout = self.turn(report);
        }
    }

    /// Handles the events of the poller, and accepts connections.
    fn dispatch(&mut self, arrived: &[u64], report: Report<'_>) {
        for key in arrived {
            match key & !Poller::WRITABLE {
                key @ CONNECTIONS..0x1_0000_0000 => self.ready.push(key),
                key @ PORTS..CONNECTIONS => self.admit((key - PORTS) as usize, report),
                key @ CONTROLS..PORTS => {
                    self.controls[(key - CONTROLS) as usize].admit(&self.poller)
                }
                key => self.handle_control(key, report),
            }
            if key & Poller::WRITABLE != 0 {
                self.unsent.push(key & !Poller::WRITABLE);
            }
        }
        for n in 0..self.ports.len() {
            if self.ports[n].must_retry_accept {
                self.admit(n, report);
            }
            if self.controls[n].listener.must_retry_accept {
                self.controls[n].admit(&self.poller);
            }
        }
    }

    /// One turn of the event loop: receives, steps the controllers, sends. Returns the longest time
    /// to sleep; `None`: until the next socket event.
    fn turn(&mut self, report: Report<'_>) -> Option<Nanos> {
        let now = now();
        while let Some((_, path, change)) = self.script.pop_front_if(|(at, ..)| *at <= now) {
            if let Err(why) = self.apply_change(path, change, report) {
                report(ServeEvent::Refused(format!("{change}: {why}")));
            }
        }
        // An expired deadline closes the connection only if the host has made no progress since.
        while let Some((_, key)) = self.deadlines.pop_front_if(|(at, _)| *at <= now) {
            let Some(connection) = self.connections.get_mut(&key) else { continue };
            // Before Connect, and after a TermReq, the deadline is absolute: no progress extends
            // it.
            if connection.ended || connection.association.is_none() {
                self.close(key, "Connect did not arrive in time", report);
            } else if let Some(progress) = connection.progress.take() {
                let awaits = connection.target.awaits_data();
                // Nothing is outstanding in either direction: an idle host may stay silent.
                if !awaits && !connection.watches_writes {
                    continue;
                }
                if progress + PROGRESS <= now {
                    let why = if awaits {
                        "requested data did not arrive"
                    } else {
                        "the host does not read the responses"
                    };
                    self.give_up(key, why, report);
                } else {
                    connection.progress = Some(progress);
                    self.set_deadline(progress + PROGRESS, key);
                }
            }
        }
        while let Some((_, id)) = self.resets.iter().find(|(at, _)| *at <= now).copied() {
            self.end(id, None, RESET_BY_OTHER, report);
        }
        for n in 0..self.ports.len() {
            if self.ports[n].stalled.take_if(|until| *until <= now).is_some() {
                self.ready.extend(
                    self.connections
                        .iter()
                        .filter(|(_, connection)| connection.port == n)
                        .map(|(key, _)| *key),
                );
            }
        }
        let mut ready = each_once(&mut self.ready);
        for key in ready.drain(..) {
            self.receive(key, report);
        }
        // The capacity of the list is kept.
        if self.ready.is_empty() {
            self.ready = ready;
        }
        let mut next = self.step(report);
        let held = self.held;
        let mut unsent = each_once(&mut self.unsent);
        for key in unsent.drain(..) {
            self.send(key, report);
        }
        if self.unsent.is_empty() {
            self.unsent = unsent;
        }
        if self.held < held {
            // Memory was freed: commands that wait for some are retried.
            self.ready.append(&mut self.waiting);
        }
        if !self.ready.is_empty() {
            return Some(Nanos::ZERO);
        }
        let others =
            [self.script.front().map(|(at, ..)| *at), self.deadlines.front().map(|(at, _)| *at)];
        let others = others.into_iter().chain([self.resets.iter().map(|(at, _)| *at).min()]);
        next = next
            .into_iter()
            .chain(others.flatten())
            .chain(self.ports.iter().filter_map(|port| port.stalled))
            .min();
        next = next.filter(|next| *next != Nanos::MAX);
        let again = self.ports.iter().any(|port| port.must_retry_accept)
            || self.controls.iter().any(|control| control.listener.must_retry_accept);
        let next = next.map(|next| next - self::now());
        if again { Some(next.map_or(AGAIN, |next| next.min(AGAIN))) } else { next }
    }

    /// Accepts pending connections of an address.
    fn admit(&mut self, n: usize, report: Report<'_>) {
        let now = now();
        loop {
            let Some(listener) = self.ports[n]
                .listener
                .as_ref()
                .filter(|_| self.ports[n].stalled != Some(Nanos::MAX))
            else {
                return;
            };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    let waits = error.kind() != ErrorKind::WouldBlock;
                    if waits && !std::mem::replace(&mut self.ports[n].must_retry_accept, true) {
                        report(ServeEvent::Waits(super::listener::no_room(&error)));
                    }
                    self.ports[n].must_retry_accept = waits;
                    return;
                }
            };
            // RST instead of FIN, so that the server keeps no TIME_WAIT state for rejected hosts.
            if self.connections.len() >= MAX_CONNECTIONS {
                reset(&stream);
                continue;
            }
            let key = self.next_key;
            // Nagle's algorithm would delay a response until the previous one is acknowledged.
            let set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            if set.and_then(|()| self.poller.add(&stream, key)).is_err() {
                continue;
            }
            // Keys are not reused soon: the poller may still report an event of a closed
            // connection.
            self.next_key = if key + 1 == 1 << 32 { CONNECTIONS } else { key + 1 };
            self.set_deadline(now + GREETING, key);
            let connection = Connection {
                stream,
                target: Target::new(LIMITS),
                port: n,
                association: None,
                queue: QueueId::ADMIN,
                watches_writes: false,
                ended: false,
                full: false,
                progress: None,
                cut: None,
                counted: 0,
            };
            self.connections.insert(key, connection);
        }
    }

    /// Executes a command at a control socket.
    fn handle_control(&mut self, key: u64, report: Report<'_>) {
        let n = ((key >> 32) as usize).wrapping_sub(1);
        if n >= self.ports.len() {
            return;
        }
        // The list is taken out, because the closure needs the whole server.
        let mut controls = std::mem::take(&mut self.controls);
        controls[n].handle_input(key, |command| match command {
            ControlCommand::Status => Ok(self.status(n)),
            ControlCommand::Fault(change) => {
                self.apply_change(n, change, report).map(|()| String::new())
            }
        });
        self.controls = controls;
    }

    /// Status of an address, one property per line.
    fn status(&self, n: usize) -> String {
        let port = &self.ports[n];
        let lost = match port.listener {
            None => ", lost",
            _ if port.stalled == Some(Nanos::MAX) => ", lost frozen",
            _ => "",
        };
        let mut text = format!("device {}\naddress {}{lost}\n", port.device, port.address);
        for (group, state) in port.config.ana.iter().flat_map(|ana| &ana.groups) {
            text += &format!("ana group {group} {state}\n");
        }
        let mut completed = port.completed;
        for (id, association) in
            self.associations.iter().filter(|(_, association)| association.port == n)
        {
            let csts = association.csts();
            let state = match () {
                () if association.alone => "alone",
                () if csts.cfs() => "failed",
                () if csts.rdy() => "ready",
                () => "connected",
            };
            let changes: Vec<String> =
                association.controller.circumstances().iter().map(ToString::to_string).collect();
            let faults = if changes.is_empty() {
                String::new()
            } else {
                format!(", faults {}", changes.join("; "))
            };
            text += &format!(
                "controller {id} {state}, host {}, {} queues{faults}\n",
                association.host.nqn,
                association.queues.len()
            );
            completed += association.controller.counters().completed;
        }
        let stall = port.stalled.filter(|until| *until != Nanos::MAX);
        let cut = self.connections.values().filter(|connection| connection.port == n);
        let [(_, header), (_, data), (_, r2t)] = port.tampers;
        let tampers = [Wire::HeaderDigest(header), Wire::DataDigest(data), Wire::R2t(r2t)];
        let wires = (stall
            .map(|until| Wire::Stall(Nanos::from_millis((until - now()).0.div_ceil(1_000_000))))
            .into_iter())
        .chain(cut.filter_map(|connection| connection.cut).max().map(Wire::Cut))
        .chain(port.reorders.then_some(Wire::Reorder(true)))
        .chain(
            tampers
                .into_iter()
                .zip(port.tampers)
                .filter(|(_, (_, times))| *times > 0)
                .map(|(wire, _)| wire),
        );
        let changes: Vec<String> = (port.changes.iter().copied())
            .chain(wires.map(Change::Wire))
            .chain(self.subsystem.active_faults())
            .map(|change| change.to_string())
            .collect();
        text + &format!(
            "commands {completed}\nfaults {}\n",
            if changes.is_empty() { "none".to_owned() } else { changes.join("; ") }
        )
    }

    /// Applies a change to an address: to its present and future controllers, or to its
    /// connections.
    ///
    /// # Errors
    /// The change is not possible over TCP, or there is nothing that it could apply to.
    fn apply_change(&mut self, n: usize, change: Change, report: Report<'_>) -> Result<(), String> {
        let now = now();
        match change {
            Change::Media { nsid, .. } | Change::Resize { nsid, .. }
                if !self.subsystem.has(nsid) =>
            {
                return Err(format!("there is no namespace {nsid}"));
            }
            Change::Ana { group: Some(group), .. }
                if !self.ports[n]
                    .config
                    .ana
                    .as_ref()
                    .is_some_and(|ana| ana.groups.contains_key(&group)) =>
            {
                return Err(format!("there is no ANA group {group}"));
            }
            Change::Fault { .. } | Change::Fail
                if !self.associations.values().any(|association| association.port == n) =>
            {
                return Err("no host is connected".into());
            }
            Change::Wire(Wire::Cut(_) | Wire::Terminate(_))
                if !self.connections.values().any(|connection| {
                    connection.port == n && connection.queue != QueueId::ADMIN
                }) =>
            {
                return Err("no host has an I/O queue".into());
            }
            change => not_here(change).map_or(Ok(()), Err)?,
        }
        report(ServeEvent::At {
            socket: self.ports[n].address.to_string().into(),
            event: Box::new(ServeEvent::Fault(change.to_string())),
        });
        let port = &mut self.ports[n];
        let same =
            |other: &Change| std::mem::discriminant(other) == std::mem::discriminant(&change);
        match change {
            Change::Delay(_) | Change::Hold(_) | Change::ResetTakes(_) | Change::ExceedCqt(_) => {
                // The change is kept for controllers created later, so that a reconnect does not
                // end the fault. A new value replaces the old one, as it does in a running
                // controller.
                port.changes.retain(|other| !same(other));
                let ends = [
                    Change::Delay(Nanos::ZERO),
                    Change::ExceedCqt(false),
                    Change::ResetTakes(port.config.ready_delay),
                ];
                if !ends.contains(&change) {
                    port.changes.push(change);
                }
            }
            Change::Resize { nsid, .. } => {
                let same = |other: &Change| matches!(other, Change::Resize { nsid: of, .. } if *of == nsid);
                port.changes.retain(|other| !same(other));
                port.changes.push(change);
            }
            Change::Release => port.changes.retain(|other| !matches!(other, Change::Hold(_))),
            Change::Ana { group, state } => {
                for (of, current) in port.config.ana.iter_mut().flat_map(|ana| &mut ana.groups) {
                    if group.is_none_or(|group| group == *of) {
                        *current = state;
                    }
                }
            }
            Change::Wire(wire) => {
                self.apply_wire_change(n, wire, report);
                return Ok(());
            }
            Change::Media { nsid, fault } => {
                return self.subsystem.inject_fault(nsid, fault).map_err(|error| error.to_string());
            }
            Change::Lost(_) | Change::PowerLost => {
                if change == Change::Lost(Loss::Frozen) {
                    // Connections stay open, but nothing is received or sent.
                    port.stalled = Some(Nanos::MAX);
                } else {
                    port.listener = None;
                }
                let keys = if port.listener.is_none() { self.keys_at(n) } else { Vec::new() };
                for association in
                    self.associations.values_mut().filter(|association| association.port == n)
                {
                    association.controller.change(now, change);
                    // The controller stays, as it may execute writes until KATO and CQT have
                    // passed.
                    (association.alone, association.moved) = (true, true);
                    association.queues.clear();
                }
                for key in keys {
                    if let Some(connection) = self.connections.remove(&key) {
                        self.held -= connection.counted;
                        reset(&connection.stream);
                    }
                }
                if change == Change::PowerLost {
                    self.subsystem.lose_power();
                    self.associations.retain(|_, association| association.port != n);
                }
                return Ok(());
            }
            Change::Back => {
                let frozen = port.stalled.take_if(|until| *until == Nanos::MAX).is_some();
                if port.listener.is_none() {
                    let listener = listen(port.address).and_then(|listener| {
                        self.poller.add(&listener, PORTS + n as u64).map(|()| listener)
                    });
                    port.listener = Some(listener.map_err(|error| error.to_string())?);
                }
                if frozen {
                    self.keys_at(n)
                        .into_iter()
                        .for_each(|key| self.give_up(key, "its path was lost", report));
                    self.admit(n, report);
                }
                return Ok(());
            }
            _ => {}
        }
        for association in
            self.associations.values_mut().filter(|association| association.port == n)
        {
            association.controller.change(now, change);
            association.moved = true;
        }
        Ok(())
    }

    fn keys_at(&self, n: usize) -> Vec<u64> {
        self.connections
            .iter()
            .filter(|(_, connection)| connection.port == n)
            .map(|(key, _)| *key)
            .collect()
    }

    /// Applies a fault to the connections of an address.
    fn apply_wire_change(&mut self, n: usize, wire: Wire, report: Report<'_>) {
        let keys = self.keys_at(n);
        let port = &mut self.ports[n];
        match wire {
            // A frozen path stays so until `back`.
            Wire::Stall(_) if port.stalled == Some(Nanos::MAX) => {}
            Wire::Stall(time) => port.stalled = Some(now() + time),
            Wire::Reorder(reorders) => port.reorders = reorders,
            Wire::HeaderDigest(times) => port.tampers[0].1 = times,
            Wire::DataDigest(times) => port.tampers[1].1 = times,
            Wire::R2t(times) => port.tampers[2].1 = times,
            Wire::Drop => {
                for key in keys {
                    if let Some(connection) = self.connections.get(&key) {
                        reset(&connection.stream);
                        self.close(key, "it was dropped", report);
                    }
                }
            }
            Wire::Cut(_) | Wire::Terminate(_) => {
                for key in keys {
                    let Some(connection) = self
                        .connections
                        .get_mut(&key)
                        .filter(|connection| connection.queue != QueueId::ADMIN)
                    else {
                        continue;
                    };
                    if let Wire::Terminate(fes) = wire {
                        let term = Term { fes: Fes(fes), fei: 0 };
                        connection.target.terminate(Violation(term));
                        self.terminated(key, term, false, report);
                    } else if let Wire::Cut(bytes) = wire {
                        connection.cut = Some(bytes);
                    }
                }
            }
        }
    }

    /// Receives from a connection and handles its events.
    fn receive(&mut self, key: u64, report: Report<'_>) {
        for _ in 0..READS {
            let stalled = self
                .connections
                .get(&key)
                .is_some_and(|connection| self.ports[connection.port].stalled.is_some());
            // Events of bytes received earlier are handled first: they may close the connection or
            // free
            // its buffers.
            if stalled || !self.listen(key, report) {
                return;
            }
            let Some(connection) = self.connections.get_mut(&key) else { return };
            connection.full =
                connection.target.output().left() as u64 > connection.target.held() + UNSENT;
            // Unread bytes stay in the socket buffers, so that TCP flow control stops the host.
            if connection.full || connection.target.is_blocked() {
                return;
            }
            // After a TermReq the rest of the stream has no meaning, but unread bytes would cause
            // RST.
            let (result, room) = if connection.ended {
                let mut scrap = [0; 4096];
                (connection.stream.read(&mut scrap), scrap.len())
            } else {
                let mut spaces = connection.target.space().map(IoSliceMut::new);
                let room = spaces.iter().map(|space| space.len()).sum();
                (connection.stream.read_vectored(&mut spaces), room)
            };
            match result {
                Ok(0) if room > 0 => return self.close(key, "the host has closed it", report),
                Ok(n) => {
                    if !connection.ended {
                        connection.target.filled(n);
                    }
                    // A short read has emptied the socket buffer: skip the read that would return
                    // EAGAIN.
                    if n < room {
                        self.listen(key, report);
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.close(key, &error.to_string(), report),
            }
        }
        self.ready.push(key);
    }

    /// Handles the events of a connection. Returns false if it has been closed.
    fn listen(&mut self, key: u64, report: Report<'_>) -> bool {
        loop {
            let Some(connection) = self.connections.get_mut(&key) else { return false };
            let held = connection.target.held();
            // One connection must not use up the memory of all others.
            let free = MEMORY.saturating_sub(self.held).min(MEMORY_OF_ONE.saturating_sub(held));
            let port = &mut self.ports[connection.port];
            let event = tampered(port, connection, |target| target.poll(free));
            self.held = self.held + connection.target.held() - connection.counted;
            // The total is adjusted by the difference, so that it never has to be summed over all
            // connections.
            connection.counted = connection.target.held();
            if connection.target.output().left() > 0 {
                self.unsent.push(key);
            }
            match event {
                None => {
                    if connection.target.waits() {
                        self.waiting.push(key);
                    }
                    if connection.target.awaits_data() {
                        self.moved_bytes(key);
                    }
                    return true;
                }
                // The connection has no controller before Connect, so ICReq needs no further
                // action.
                Some(Event::Greeted(_)) => {}
                Some(Event::Ended { term, by_host }) => {
                    self.terminated(key, term, by_host, report);
                    return self.connections.contains_key(&key);
                }
                Some(Event::Command { sqe, data }) => self.command(key, &sqe, data, report),
            }
        }
    }

    /// Handles the termination of a connection.
    fn terminated(&mut self, key: u64, term: Term, by_host: bool, report: Report<'_>) {
        let who = if by_host { "the host ended it" } else { "it was terminated" };
        let why = format!("{who}: FES {:#x}, FEI {:#x}", term.fes.0, term.fei);
        if by_host {
            return self.give_up(key, &why, report);
        }
        // Closing now could send RST and discard the TermReq: wait for the host to close its end.
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.ended = true;
            // The association ends now, although the socket stays open for the TermReq.
            let id = connection.association.take();
            self.set_deadline(now() + LINGER, key);
            // This is sent before the others are closed: a host that sees one close resets this
            // one, and never receives the TermReq.
            self.send(key, report);
            match id {
                Some(id) => self.end(id, Some(key), &why, report),
                None => report(ServeEvent::Refused(format!("a connection: {why}"))),
            }
        }
    }

    /// Closes a connection. With an admin queue the association ends, with an I/O queue only that
    /// queue: Linux closes I/O queues first when it disconnects, and shuts the controller down
    /// after that.
    fn close(&mut self, key: u64, why: &str, report: Report<'_>) {
        let Some(connection) = self.connections.remove(&key) else { return };
        self.held -= connection.counted;
        let (Some(id), queue) = (connection.association, connection.queue) else { return };
        match self.associations.get_mut(&id) {
            Some(association) if queue != QueueId::ADMIN => association.disconnect(queue),
            _ => self.end(id, Some(key), why, report),
        }
    }

    /// Closes a connection and ends its association, whichever queue it had.
    fn give_up(&mut self, key: u64, why: &str, report: Report<'_>) {
        let id = self.connections.get(&key).and_then(|connection| connection.association);
        self.close(key, why, report);
        if let Some(id) = id {
            self.end(id, None, why, report);
        }
    }

    /// Records progress of a connection that has more bytes to receive or to send.
    fn moved_bytes(&mut self, key: u64) {
        let now = now();
        // An existing deadline is not moved now, but checked against `progress` when it expires.
        let is_new = self
            .connections
            .get_mut(&key)
            .is_some_and(|connection| connection.progress.replace(now).is_none());
        if is_new {
            self.set_deadline(now + PROGRESS, key);
        }
    }

    fn set_deadline(&mut self, at: Nanos, key: u64) {
        let place = self.deadlines.partition_point(|(other, _)| *other <= at);
        self.deadlines.insert(place, (at, key));
    }

    /// Ends an association: closes its other connections and drops the commands of its controller.
    fn end(&mut self, id: u16, but: Option<u64>, why: &str, report: Report<'_>) {
        let Some(association) = self.associations.remove(&id) else { return };
        // Completes a Cross-Controller Reset of this controller, whatever has ended the
        // association.
        self.resets.retain(|(_, other)| *other != id);
        for other in self.associations.values_mut() {
            other.moved |= other.controller.end_cross_reset(id);
        }
        let commands = association.controller.counters().completed;
        self.ports[association.port].completed += commands;
        for key in association.queues.into_values().filter(|key| Some(*key) != but) {
            if let Some(connection) = self.connections.remove(&key) {
                self.held -= connection.counted;
            }
        }
        report(ServeEvent::Dissociated {
            controller: id,
            host: association.host.nqn,
            why: why.to_owned(),
            commands,
        });
    }

    /// Executes or queues a received command.
    fn command(&mut self, key: u64, sqe: &Sqe, data: Vec<u8>, report: Report<'_>) {
        let Some(connection) = self.connections.get(&key) else { return };
        let (queue, id) = (connection.queue, connection.association);
        let of_fabrics = fabrics::fctype_of(sqe);
        let mut association = id.and_then(|id| self.associations.get_mut(&id));
        if let Some(association) = &mut association {
            // Every command restarts the Keep Alive Timer (CTRATT.TBKAS, traffic based keep alive).
            association.controller.restart_keep_alive(now());
        }
        let end = |result, status: Status| Cqe::new(sqe.cid(), queue, 0, status, result, false);
        let done = match (of_fabrics, association) {
            (Some(fctype::CONNECT), _) => {
                let (result, status) = match self.connect(key, sqe, &data, report) {
                    Ok(id) => (id.into(), Status::SUCCESS),
                    Err(refusal) => refusal,
                };
                end(result, status)
            }
            // Connect must be the first command of each queue.
            (_, None) => end(0, Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
            (Some(fctype::PROPERTY_GET), Some(association)) => association.property(sqe, false),
            (Some(fctype::PROPERTY_SET), Some(association)) => association.property(sqe, true),
            // The queue is deleted at once. The host closes the connection after the response; if
            // it does not, the connection is closed at the deadline.
            (Some(fctype::DISCONNECT), Some(association)) if queue != QueueId::ADMIN => {
                association.disconnect(queue);
                if let Some(connection) = self.connections.get_mut(&key) {
                    connection.association = None;
                }
                self.set_deadline(now() + LINGER, key);
                end(0, Status::SUCCESS)
            }
            (Some(_), _) => end(0, Status::INVALID_OPCODE.with_dnr()),
            // Only Fabrics commands are allowed before CSTS.RDY is 1.
            (None, Some(association)) if !association.controller.is_ready() => {
                end(0, Status::COMMAND_SEQUENCE_ERROR.with_dnr())
            }
            (None, Some(association)) => match sqe.opcode {
                opcode::admin::CROSS_CONTROLLER_RESET if queue == QueueId::ADMIN => {
                    let host = association.host.clone();
                    let (result, status) =
                        self.reset_other(id, &host, &CrossControllerReset::from_sqe(sqe), report);
                    end(result, status)
                }
                // On a fabric queues are created by Connect and deleted with their connection.
                opcode::admin::DELETE_SQ
                | opcode::admin::CREATE_SQ
                | opcode::admin::DELETE_CQ
                | opcode::admin::CREATE_CQ
                    if queue == QueueId::ADMIN =>
                {
                    end(0, Status::INVALID_OPCODE.with_dnr())
                }
                _ if association.link.post(queue, *sqe, data) => {
                    association.moved = true;
                    return;
                }
                _ => end(0, Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
            },
        };
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.target.complete(done, Vec::new());
            self.unsent.push(key);
        }
    }

    /// Executes Connect. Returns CNTLID, or DW0 and the status of the failure.
    fn connect(
        &mut self,
        key: u64,
        sqe: &Sqe,
        data: &[u8],
        report: Report<'_>,
    ) -> Result<u16, (u32, Status)> {
        let Some(connection) = self.connections.get(&key) else {
            return Err((0, Status::INTERNAL_ERROR));
        };
        let (n, local) = (connection.port, connection.stream.local_addr());
        let connect = Connect::from_sqe(sqe);
        let data = ConnectData::from_page(data)
            .map_err(|_| (0, Status::DATA_SGL_LENGTH_INVALID.with_dnr()))?;
        // A second Connect on a connection would leave the first queue without one.
        if connection.association.is_some() {
            return Err((0, Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
        }
        if connect.format != 0 {
            return Err((0, fabrics::INCOMPATIBLE_FORMAT.with_dnr()));
        }
        // An invalid parameter is named by its offset (Connect Invalid Parameters), so that a host
        // can report which one.
        let nqn = fabrics::nqn(&data.hostnqn).ok_or(invalid(ConnectData::HOSTNQN_AT, true))?;
        let host = HostIdentity { nqn: nqn.to_owned(), id: data.host_id };
        if !self.allowed.is_empty() && !self.allowed.contains(&host.nqn) {
            report(ServeEvent::Refused(format!("host {}, which no --allow names", host.nqn)));
            return Err((0, fabrics::INVALID_HOST.with_dnr()));
        }
        let subnqn = fabrics::nqn(&data.subnqn)
            .filter(|nqn| *nqn == DISCOVERY_NQN || *nqn == self.subsystem.nqn());
        let subnqn = subnqn.ok_or(invalid(ConnectData::SUBNQN_AT, true))?.to_owned();
        let id = if connect.queue == QueueId::ADMIN {
            // Only the dynamic controller model is supported (CNTLID FFFFh).
            if data.cntlid.get() != ConnectData::ANY {
                return Err(invalid(ConnectData::CNTLID_AT, true));
            }
            if !(2..=ADMIN_ENTRIES).contains(&connect.entries) {
                return Err(invalid(SQSIZE_AT, false));
            }
            if self.associations.len() >= MAX_ASSOCIATIONS {
                // Without DNR: the host may try again once another association has ended.
                return Err((0, fabrics::CONTROLLER_BUSY));
            }
            let id = self.free_cntlid();
            let association = self.associate(id, n, host, subnqn, &connect, local.ok());
            self.associations.insert(id, association);
            id
        } else {
            let id = data.cntlid.get();
            let association = self
                .associations
                .get_mut(&id)
                .filter(|association| association.is_of(&host, &data, n));
            let association = association.ok_or(invalid(ConnectData::CNTLID_AT, true))?;
            // A discovery controller has no I/O queues.
            if association.subnqn == DISCOVERY_NQN {
                return Err(invalid(QID_AT, false));
            }
            association.connect(&connect)?;
            id
        };
        if let Some(association) = self.associations.get_mut(&id) {
            association.queues.insert(connect.queue, key);
            if connect.queue == QueueId::ADMIN {
                report(ServeEvent::Associated {
                    controller: id,
                    host: association.host.nqn.clone(),
                    address: self.ports[n].address,
                });
            }
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            (connection.association, connection.queue) = (Some(id), connect.queue);
            // From here on the connection knows how many commands the host may have outstanding.
            connection.target.connect(connect.entries, !connect.no_flow_control);
            connection.progress = None;
        }
        // The deadline for Connect is removed: it would wake the server for nothing.
        self.deadlines.retain(|(_, other)| *other != key);
        let now = now();
        // The first Connect starts the script's time; `take` makes it the only one.
        for step in self.waiting_script.take().into_iter().flat_map(|script| script.steps) {
            let at = now + step.at;
            let place = self.script.partition_point(|(other, ..)| *other <= at);
            self.script.insert(place, (at, step.path, step.change));
        }
        Ok(id)
    }

    fn free_cntlid(&mut self) -> u16 {
        loop {
            let id = self.next_cntlid;
            // CNTLIDs FFF0h to FFFFh are reserved. Cyclic, so that an identifier is not reused at
            // once.
            self.next_cntlid = if id >= 0xffef { 1 } else { id + 1 };
            if !self.associations.contains_key(&id) {
                return id;
            }
        }
    }

    /// Creates the controller of an association.
    fn associate(
        &mut self,
        id: u16,
        n: usize,
        host: HostIdentity,
        subnqn: String,
        connect: &Connect,
        local: Option<SocketAddr>,
    ) -> Association {
        let is_discovery = subnqn == DISCOVERY_NQN;
        let discovery = is_discovery.then(|| self.discovery_log(local));
        let instance = (self.rng.next_u64() as u8, self.rng.next_u64());
        let port = &self.ports[n];
        let config = Config {
            controller_id: id,
            fabric: Some(Fabric { in_capsule: LIMITS.in_capsule, instance, discovery }),
            ana: port.config.ana.clone().filter(|_| !is_discovery),
            nqn: Some(subnqn.clone()),
            ..port.config.clone()
        };
        let subsystem = &mut self.subsystem;
        let mut association = Association::new(host, subnqn, n, connect, config, |config, link| {
            if is_discovery {
                Controller::new(config, Vec::new(), link)
            } else {
                subsystem.dynamic_controller(config, link)
            }
        });
        if !is_discovery {
            for change in &port.changes {
                association.controller.change(Nanos::ZERO, *change);
            }
        }
        association
    }

    /// The discovery log page, for a host that connected to the address `local`.
    fn discovery_log(&self, local: Option<SocketAddr>) -> Arc<[u8]> {
        let ports = || self.ports.iter().enumerate().filter(|(_, port)| port.listener.is_some());
        let header = DiscoveryHeader {
            generation: 1.into(),
            records: (ports().count() as u64).into(),
            ..DiscoveryHeader::default()
        };
        let mut log = header.as_page().to_vec();
        for (n, port) in ports() {
            // Behind a wildcard address, report the address to which the host has connected.
            let own = port.address.ip();
            let reached = local.filter(|_| own.is_unspecified()).map_or(own, |local| local.ip());
            let address = self.advertised.unwrap_or(reached);
            let entry = DiscoveryEntry {
                transport: DiscoveryEntry::TCP,
                family: if address.is_ipv6() { DiscoveryEntry::IPV6 } else { DiscoveryEntry::IPV4 },
                kind: DiscoveryEntry::NVM,
                requirements: DiscoveryEntry::OPEN,
                port: (n as u16 + 1).into(),
                cntlid: ConnectData::ANY.into(),
                admin_entries: (ADMIN_ENTRIES as u16).into(),
                service: Text::ascii(&port.address.port().to_string()),
                subnqn: Text::nul_terminated(self.subsystem.nqn()),
                address: Text::ascii(&address.to_string()),
                ..DiscoveryEntry::default()
            };
            log.extend_from_slice(entry.as_page());
        }
        log.into()
    }

    /// Cross-Controller Reset: when it completes, the other controller no longer executes commands.
    fn reset_other(
        &mut self,
        own: Option<u16>,
        host: &HostIdentity,
        asked: &CrossControllerReset,
        report: Report<'_>,
    ) -> (u32, Status) {
        let other = self
            .associations
            .get(&asked.icid)
            .filter(|other| other.host.id == host.id && own != Some(asked.icid));
        match other {
            // CIU and CIRN identify the instance: a CNTLID alone may by now belong to a new
            // association of the same host.
            Some(other) if other.instance == (asked.ciu, asked.cirn) => {
                let takes = self.ports[other.port].changes.iter().find_map(|change| match change {
                    Change::ResetTakes(time) => Some(*time),
                    _ => None,
                });
                let Some(takes) = takes.filter(|time| *time > Nanos::ZERO) else {
                    self.end(asked.icid, None, RESET_BY_OTHER, report);
                    return (CrossControllerReset::RESET, Status::SUCCESS);
                };
                if self.resets.iter().any(|(_, id)| *id == asked.icid) {
                    return (0, Status::CROSS_RESET_IN_PROGRESS);
                }
                let own = own.and_then(|own| self.associations.get_mut(&own));
                if let Err(status) = own
                    .map_or(Ok(()), |own| own.controller.begin_cross_reset(asked.icid, asked.ciu))
                {
                    return (0, status);
                }
                // The other controller stays active until then. The host is notified by an event
                // and reads the result from the log.
                self.resets.push((now() + takes, asked.icid));
                (0, Status::SUCCESS)
            }
            // The controller does not exist any more, or its CNTLID belongs to another association.
            _ => (0, Status::INVALID_FIELD.with_dnr()),
        }
    }

    /// Steps the controllers that are due and queues their completions. Returns the time of the
    /// next controller event.
    fn step(&mut self, report: Report<'_>) -> Option<Nanos> {
        let mut now = now();
        let (mut next, mut over) = (None, Vec::new());
        for (id, association) in &mut self.associations {
            // Idle controllers are skipped: with hundreds of associations stepping all of them
            // would cost more than the I/O.
            if !association.moved && association.next.is_none_or(|next| next > now) {
                next = next.into_iter().chain(association.next).min();
                continue;
            }
            let mut worked = true;
            for _ in 0..STEPS {
                if association.controller.keep_alive_expired(now) && !association.alone {
                    over.push((*id, "Keep Alive did not arrive in time"));
                    break;
                }
                let was_ready = association.csts().rdy();
                let step = association.controller.step(now);
                // The Keep Alive Timer only runs while the controller is enabled.
                let keep_alive = (!association.alone)
                    .then_some(association.controller.keep_alive)
                    .filter(|at| *at != Nanos::MAX);
                (worked, association.next) =
                    (step.worked, step.next.into_iter().chain(keep_alive).min());
                if was_ready && !association.csts().rdy() && !association.alone {
                    // The host has reset the controller (CC.EN = 0), which deletes the I/O queues.
                    association.link.forget(None);
                    for key in
                        association.queues.extract_if(QueueId(1).., |_, _| true).map(|(_, key)| key)
                    {
                        if let Some(connection) = self.connections.remove(&key) {
                            self.held -= connection.counted;
                        }
                    }
                }
                let port = &mut self.ports[association.port];
                let mut posted: VecDeque<_> =
                    std::iter::from_fn(|| association.link.take_posted()).collect();
                while let Some((queue, cqe, data)) =
                    if port.reorders { posted.pop_back() } else { posted.pop_front() }
                {
                    // The host has disconnected this queue; its responses have no receiver.
                    let Some(key) = association.queues.get(&queue) else { continue };
                    let Some(connection) = self.connections.get_mut(key) else { continue };
                    tampered(port, connection, |target| target.complete(cqe, data));
                    self.unsent.push(*key);
                }
                if !worked {
                    break;
                }
                // Each step takes time, and commands that became due in it complete in the next.
                now = self::now();
            }
            association.moved = worked;
            if worked {
                // The step limit was reached: continue in the next turn, after other connections.
                association.next = Some(now);
            }
            if association.alone && association.controller.is_dead() {
                over.push((*id, "it has executed the commands that it had received"));
            }
            next = next.into_iter().chain(association.next).min();
        }
        for (id, why) in over {
            self.end(id, None, why, report);
        }
        next
    }

    /// Sends until the socket's buffer is full or everything is sent.
    fn send(&mut self, key: u64, report: Report<'_>) {
        let mut moved = false;
        loop {
            let Some(connection) = self.connections.get_mut(&key) else { return };
            let left = connection.target.output().left();
            if left == 0 {
                break;
            }
            if connection.cut == Some(0) {
                reset(&connection.stream);
                return self.give_up(key, "the connection was cut by a fault", report);
            }
            let mut slices = [IoSlice::new(&[]); 64];
            let (mut n, mut most) = (0, connection.cut.unwrap_or(u64::MAX));
            for (slice, bytes) in slices.iter_mut().zip(connection.target.output().slices()) {
                if most == 0 {
                    break;
                }
                let bytes = bytes.get(..most as usize).unwrap_or(bytes);
                (*slice, n, most) = (IoSlice::new(bytes), n + 1, most - bytes.len() as u64);
            }
            match connection.stream.write_vectored(slices.get(..n).unwrap_or_default()) {
                Ok(n) => {
                    // Payload buffers are freed as soon as their last byte has been accepted by the
                    // socket.
                    connection.target.sent(n);
                    connection.cut = connection.cut.map(|cut| cut - n as u64);
                    self.held = self.held + connection.target.held() - connection.counted;
                    connection.counted = connection.target.held();
                    moved |= n > 0;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !std::mem::replace(&mut connection.watches_writes, true) {
                        _ = self.poller.watch_writes(&connection.stream, key, true);
                        moved = true;
                    }
                    // The progress deadline counts from the last byte that the socket accepted.
                    if moved {
                        self.moved_bytes(key);
                    }
                    return;
                }
                Err(error) => return self.close(key, &error.to_string(), report),
            }
        }
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if std::mem::replace(&mut connection.watches_writes, false) {
            _ = self.poller.watch_writes(&connection.stream, key, false);
        }
        if connection.ended {
            // The TermReq is out. FIN lets the host read it before it closes its own end.
            _ = connection.stream.shutdown(Shutdown::Write);
        } else if connection.full {
            // Unsent bytes have fallen below the limit: receive again.
            self.ready.push(key);
        }
    }
}

/// Takes the keys of a list, each once.
fn each_once(keys: &mut Vec<u64>) -> Vec<u64> {
    let mut keys = std::mem::take(keys);
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Runs `act` with the next protocol error of the address armed, and counts it if it was used.
fn tampered<T>(
    port: &mut Port,
    connection: &mut Connection,
    act: impl FnOnce(&mut Target) -> T,
) -> T {
    let digests = connection.target.digests();
    let next = port.tampers.iter_mut().find(|(tamper, times)| {
        *times > 0
            && connection.queue != QueueId::ADMIN
            && match tamper {
                Tamper::HeaderDigest => digests.header,
                Tamper::DataDigest => digests.data,
                Tamper::R2t => true,
            }
    });
    let Some((tamper, times)) = next else { return act(&mut connection.target) };
    connection.target.tamper = Some(*tamper);
    let done = act(&mut connection.target);
    // The target has used it on a PDU; otherwise it is armed again by the next call.
    if connection.target.tamper.take().is_none() {
        *times -= 1;
    }
    done
}

/// The reason why a change is not possible for a fabric controller, or `None` if it is.
fn not_here(change: Change) -> Option<String> {
    use crate::Fault::{DelayMessage, DoubleMessage, LoseMessage, WrongPhase};
    match change {
        Change::Fault {
            fault: LoseMessage | DelayMessage(_) | DoubleMessage | WrongPhase, ..
        } => Some(format!(
            "`{change}` applies to controllers on a bus: over TCP there are no interrupts and no phase tags"
        )),
        _ => None,
    }
}

/// Path of the control socket of an address, without its suffix.
fn control_path(address: SocketAddr) -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    folder.join(format!("reap-{address}"))
}

/// Sends a control command to the server at this address; see [`ask`](super::ask).
///
/// # Errors
/// See [`ControlError`].
pub fn ask_address(address: SocketAddr, command: &str) -> Result<String, ControlError> {
    control::ask(&control_path(address), command)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Closes a socket by RST (SO_LINGER 0) instead of FIN.
fn reset(stream: &TcpStream) {
    _ = set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests;
