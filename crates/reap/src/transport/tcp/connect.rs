//! Connects a queue. Blocks for a few seconds at most.
//!
//! ```text
//! host                                        target
//!  │ resolve, connect(2)                        │
//!  ├── ICReq: digests, PDU alignment ──────────►│
//!  │◄────────────── ICResp: digests, MAXH2CDATA ┤
//!  ├── Connect: QID, SQSIZE, KATO, NQNs ───────►│
//!  │◄─────────────────────────── CQE with CNTLID┤
//! ```

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ::tcp::{Digests, Initiator, InitiatorConfig, InitiatorEvent};
use hw::DmaPool;
use nvme::fabrics::{Connect, ConnectData, INVALID_PARAMETERS};
use nvme::prp::Dptr;
use nvme::{Cqe, Page, QueueId, Sqe, Text};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::queue::{Connection, Payload, PoolMemory, ROOM, send, violation};
use super::uri::TcpUri;
use crate::error::TcpError;

/// Time limit of connect(2), and of ICReq and Connect together.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// Identity of this host in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) nqn: String,
    pub(super) id: [u8; 16],
}

/// The 16 bytes of a UUID in text, with or without hyphens.
pub(super) fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    (digits.len() == 32)
        .then(|| u128::from_str_radix(&digits, 16).ok())
        .flatten()
        .map(u128::to_be_bytes)
}

impl Host {
    /// From the URI, else from the files of nvme-cli, else generated once per process.
    ///
    /// # Errors
    /// The kernel provides no random UUID.
    pub(super) fn of(uri: &TcpUri) -> io::Result<Host> {
        static OF_PROCESS: OnceLock<String> = OnceLock::new();
        let file = |path: &str| {
            std::fs::read_to_string(path)
                .ok()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let id = uri.host_id.clone().or_else(|| file("/etc/nvme/hostid"));
        let id = match id.as_deref().and_then(uuid) {
            Some(id) => id,
            None => {
                let made = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
                uuid(OF_PROCESS.get_or_init(|| made)).unwrap_or_default()
            }
        };
        let n = u128::from_be_bytes(id);
        // An NQN with this UUID, in the format that nvme-cli generates.
        let made = || {
            let [a, b, c, d, e] = [
                n >> 96,
                n >> 80 & 0xffff,
                n >> 64 & 0xffff,
                n >> 48 & 0xffff,
                n & 0xffff_ffff_ffff,
            ];
            format!("nqn.2014-08.org.nvmexpress:uuid:{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
        };
        Ok(Host {
            nqn: uri.host_nqn.clone().or_else(|| file("/etc/nvme/hostnqn")).unwrap_or_else(made),
            id,
        })
    }
}

/// Parameters of Connect for one queue.
pub(super) struct NewQueue {
    pub(super) id: QueueId,
    /// Entries of the submission queue.
    pub(super) entries: u32,
    /// Controller ID; [`ConnectData::ANY`] for an admin queue, so that the target chooses.
    pub(super) cntlid: u16,
    /// Most bytes of in-capsule data.
    pub(super) in_capsule: u32,
}

/// Connects a queue. Returns the connection, non-blocking, and CNTLID.
///
/// # Errors
/// See [`TcpError`].
pub(super) fn connect(
    uri: &TcpUri,
    host: &Host,
    pool: &DmaPool,
    queue: &NewQueue,
) -> Result<(Connection, u16), TcpError> {
    let stream = reach(uri)?;
    let set = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(STEP)))
        .and_then(|()| stream.set_write_timeout(Some(STEP)));
    set.map_err(TcpError::Connect)?;
    // TCP itself resends for 15 minutes by default. With this limit the connection fails no later
    // than by keep-alive.
    _ = sockopt::set_tcp_user_timeout(
        &stream,
        (uri.keep_alive_tmo.0 / 1_000_000).clamp(1, u64::from(u32::MAX)) as u32,
    );
    let digests = Digests { header: uri.hdr_digest, data: uri.data_digest };
    let io = queue.id != QueueId::ADMIN;
    let config = InitiatorConfig {
        digests,
        slots: queue.entries,
        io,
        room: if io { ROOM } else { 16 << 10 },
    };
    let mut initiator = Initiator::new(config, PoolMemory(pool.clone()));
    let until = Instant::now() + STEP;
    match exchange(&stream, &mut initiator, until)? {
        InitiatorEvent::Greeted(agreed) if agreed == digests => {}
        // Without the digests that were requested, corruption on the way would not be detected.
        InitiatorEvent::Greeted(_) => return Err(TcpError::Digests),
        _ => return Err(TcpError::Protocol("ICResp is missing".into())),
    }
    initiator.set_in_capsule(queue.in_capsule);
    let data = ConnectData {
        host_id: host.id,
        cntlid: queue.cntlid.into(),
        subnqn: Text::nul_terminated(&uri.nqn),
        hostnqn: Text::nul_terminated(&host.nqn),
        ..ConnectData::default()
    };
    // The keep-alive timer belongs to the controller: only the admin queue sets it. Rounded up to
    // milliseconds.
    let kato = if io { 0 } else { uri.keep_alive_tmo.0.div_ceil(1_000_000) as u32 };
    let command = Connect {
        format: 0,
        queue: queue.id,
        entries: queue.entries,
        no_flow_control: true,
        kato,
        data: Dptr::NONE,
    };
    // The only command in flight, so any CID is free.
    let payload = Payload::Bytes(data.as_page().to_vec());
    initiator.submit(Sqe { cid: 0, ..command.to_sqe() }, Some((payload, ConnectData::LEN as u32)));
    let InitiatorEvent::Completed { cqe, .. } = exchange(&stream, &mut initiator, until)? else {
        return Err(TcpError::Protocol("Connect was not answered".into()));
    };
    let cntlid = accepted(&cqe, uri)?;
    stream.set_nonblocking(true).map_err(TcpError::Connect)?;
    Ok((Connection { stream, initiator, watches_writes: false }, cntlid))
}

/// Resolves the name, and connects to the first address that accepts. `host_traddr` selects the
/// address family.
fn reach(uri: &TcpUri) -> Result<TcpStream, TcpError> {
    let addresses = (uri.host.as_str(), uri.port).to_socket_addrs().map_err(TcpError::Resolve)?;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in addresses
        .filter(|address| uri.host_traddr.is_none_or(|local| local.is_ipv4() == address.is_ipv4()))
    {
        match reach_one(address, uri) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(TcpError::Connect(last))
}

/// Connects to one address, within [`STEP`].
fn reach_one(address: SocketAddr, uri: &TcpUri) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // SO_SNDTIMEO limits connect(2) too, which then returns EINPROGRESS.
    sockopt::set_socket_timeout(&fd, Timeout::Send, Some(STEP))?;
    if let Some(local) = uri.host_traddr {
        rustix::net::bind(&fd, &SocketAddr::new(local, 0))?;
    }
    match rustix::net::connect(&fd, &address) {
        Err(rustix::io::Errno::INPROGRESS) => Err(ErrorKind::TimedOut.into()),
        connected => connected.map(|()| TcpStream::from(fd)).map_err(Into::into),
    }
}

/// Sends all output, and receives until the next event or `until`. The socket is blocking.
///
/// # Errors
/// See [`TcpError`].
pub(super) fn exchange(
    mut stream: &TcpStream,
    initiator: &mut Initiator<PoolMemory>,
    until: Instant,
) -> Result<InitiatorEvent<Payload>, TcpError> {
    while initiator.output().left() > 0 {
        let sent = send(stream, initiator).map_err(TcpError::Connect)?;
        initiator.sent(sent);
    }
    loop {
        if let Some(event) = initiator.poll() {
            return violation(&event).map_or(Ok(event), |why| Err(TcpError::Protocol(why)));
        }
        // Checked per recv: a peer that sends one byte at a time never reaches the read time-out.
        if Instant::now() >= until {
            return Err(TcpError::NoAnswer);
        }
        match stream.read(initiator.room()) {
            Ok(0) => return Err(TcpError::Closed),
            Ok(n) => initiator.received(n),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(TcpError::NoAnswer);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Err(TcpError::Closed);
            }
            Err(error) => return Err(TcpError::Connect(error)),
        }
    }
}

/// CNTLID from the completion of Connect.
///
/// # Errors
/// The target refuses the connection, or requires authentication.
fn accepted(cqe: &Cqe, uri: &TcpUri) -> Result<u16, TcpError> {
    let status = cqe.status();
    if status.kind() == INVALID_PARAMETERS.kind() {
        // Connect Invalid Parameters: DW0 has the byte offset of the wrong field, and whether it is
        // in the data.
        let place = match (cqe.result >> 16 & 1, cqe.result & 0xffff) {
            (1, at) if at == ConnectData::SUBNQN_AT as u32 => {
                format!("there is no subsystem {}", uri.nqn)
            }
            (1, at) if at == ConnectData::HOSTNQN_AT as u32 => {
                "the host NQN is not allowed there".to_owned()
            }
            (data, at) => format!(
                "byte {at} of the {} is invalid",
                if data == 1 { "data" } else { "command" }
            ),
        };
        return Err(TcpError::Refused(format!("{status}: {place}")));
    }
    if !status.is_success() {
        return Err(TcpError::Refused(status.to_string()));
    }
    // AUTHREQ (ASCR and ATR): authentication is required, which is not supported.
    if cqe.result >> 16 & 3 != 0 {
        return Err(TcpError::Authentication);
    }
    Ok(cqe.result as u16)
}
