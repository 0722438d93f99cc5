//! Reads the discovery log page of a target: its subsystems, and the addresses of each (Base
//! 3.1.3.3, 5.1.12.3.1).

use std::time::{Duration, Instant};

use ::tcp::InitiatorEvent;
use hw::DmaPool;
use nvme::admin::GetLogPage;
use nvme::fabrics::{ConnectData, DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, Property};
use nvme::log::lid;
use nvme::prp::Dptr;
use nvme::regs::{self, Cc, Csts};
use nvme::{Cqe, Page, QueueId, Sqe};

use super::connect::{Host, NewQueue, STEP, connect, exchange};
use super::queue::{Connection, Payload};
use super::uri::TcpUri;
use crate::error::TcpError;

/// A target's discovery log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveryLog {
    /// Generation Counter (GENCTR): incremented when the log changes.
    pub generation: u64,
    /// The entries of the log.
    pub entries: Vec<DiscoveryEntry>,
}

/// Most entries that are read, since a faulty target may report any number.
const MOST: u64 = 4096;
/// Attempts to read the log while it changes.
const CHANGES: u32 = 8;

/// Reads the discovery log of the discovery subsystem of `uri` ([`nvme::fabrics::DISCOVERY_NQN`]).
/// Blocks for some seconds at most.
///
/// # Errors
/// See [`TcpError`].
pub fn discover(uri: &TcpUri) -> Result<DiscoveryLog, TcpError> {
    uri.check().map_err(TcpError::Protocol)?;
    let host = Host::of(uri).map_err(TcpError::Connect)?;
    let pool = DmaPool::new(1 << 20).map_err(TcpError::Connect)?;
    let queue =
        NewQueue { id: QueueId::ADMIN, entries: 32, cntlid: ConnectData::ANY, in_capsule: 0 };
    let (mut connection, _) = connect(uri, &host, &pool, &queue)?;
    connection.stream.set_nonblocking(false).map_err(TcpError::Connect)?;
    let cc = Cc::new().with_iosqes(Sqe::SIZE_LOG2).with_iocqes(Cqe::SIZE_LOG2).with_en(true);
    command(&mut connection, Property::to_set(regs::CC, false, cc.into_bits().into()), 0)?;
    let until = Instant::now() + STEP;
    loop {
        let (csts, _) = command(&mut connection, Property::to_get(regs::CSTS, false), 0)?;
        if Csts::from_bits(csts.result).rdy() {
            break;
        }
        if Instant::now() >= until {
            return Err(TcpError::Protocol(
                "the discovery controller does not become ready (CSTS.RDY)".into(),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..CHANGES {
        // The header has the number of entries, and GENCTR.
        let header = header(&mut connection)?;
        let count = header.records.get().min(MOST);
        let entries = (0..count).map(|n| {
            let bytes =
                log(&mut connection, (1 + n) * DiscoveryEntry::LEN as u64, DiscoveryEntry::LEN)?;
            DiscoveryEntry::from_page(&bytes).map_err(short)
        });
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        // The entries are consistent only if GENCTR has not changed.
        if self::header(&mut connection)?.generation == header.generation {
            return Ok(DiscoveryLog { generation: header.generation.get(), entries });
        }
    }
    Err(TcpError::Protocol("the discovery log changes all the time".into()))
}

/// The subsystem of `uri` at each address that the discovery controller of `uri` names.
///
/// # Errors
/// See [`TcpError`].
pub(crate) fn addresses(uri: &TcpUri) -> Result<Vec<TcpUri>, TcpError> {
    let log = discover(&TcpUri { nqn: DISCOVERY_NQN.to_owned(), ..uri.clone() })?;
    addresses_in(&log.entries, uri)
}

/// The addresses among `entries` of the subsystem of `uri`. Those for TLS are left out.
fn addresses_in(entries: &[DiscoveryEntry], uri: &TcpUri) -> Result<Vec<TcpUri>, TcpError> {
    let (mut found, mut tls): (Vec<TcpUri>, bool) = (Vec::new(), false);
    for entry in entries {
        let (host, port) = (entry.address.to_string(), entry.service.to_string().parse());
        if (entry.transport, entry.kind) != (DiscoveryEntry::TCP, DiscoveryEntry::NVM)
            || entry.subnqn.to_string() != uri.nqn
        {
            continue;
        }
        if entry.requires_tls() {
            tls = true;
            continue;
        }
        let Ok(port) = port else { continue };
        let path = TcpUri { host, port, discover: false, ..uri.clone() };
        if !found.contains(&path) {
            found.push(path);
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let nqn = &uri.nqn;
    Err(TcpError::Protocol(if tls {
        format!("its discovery log has {nqn} over TCP only with TLS, which Reap does not support")
    } else {
        format!("its discovery log has no address of {nqn} over TCP")
    }))
}

fn short(error: nvme::TooShort) -> TcpError {
    TcpError::Protocol(error.to_string())
}

fn header(connection: &mut Connection) -> Result<DiscoveryHeader, TcpError> {
    let bytes = log(connection, 0, DiscoveryHeader::LEN)?;
    DiscoveryHeader::from_page(&bytes).map_err(short)
}

/// Reads `len` bytes of the log page at `offset`.
fn log(connection: &mut Connection, offset: u64, len: usize) -> Result<Vec<u8>, TcpError> {
    let page = GetLogPage { offset, ..GetLogPage::new(lid::DISCOVERY, len as u64, Dptr::NONE) };
    command(connection, page.to_sqe(), len).map(|(_, bytes)| bytes)
}

/// Sends a command with a buffer of `len` bytes, and waits for its completion.
///
/// # Errors
/// See [`TcpError`].
fn command(connection: &mut Connection, sqe: Sqe, len: usize) -> Result<(Cqe, Vec<u8>), TcpError> {
    let buffer = (len > 0).then(|| (Payload::Bytes(vec![0; len]), len as u32));
    connection.initiator.submit(sqe, buffer);
    match exchange(&connection.stream, &mut connection.initiator, Instant::now() + STEP)? {
        InitiatorEvent::Completed { cqe, .. } if !cqe.status().is_success() => {
            Err(TcpError::Refused(cqe.status().to_string()))
        }
        InitiatorEvent::Completed { cqe, buffer: Some(Payload::Bytes(bytes)) } => Ok((cqe, bytes)),
        InitiatorEvent::Completed { cqe, .. } => Ok((cqe, Vec::new())),
        _ => Err(TcpError::Protocol("a command was not answered".into())),
    }
}

#[cfg(test)]
mod tests;
