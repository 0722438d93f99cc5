//! `vfio-user:SOCKET[?…]`: an NVMe controller that another process serves, as libvfio-user, SPDK's target and `reap serve` do.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI say? | `uri.rs` |
//! | how is the server reached once it is there? | `far.rs` |
//!
//! Its rings and buffers are in a memory file that the server maps, its messages signal eventfds. Properties are messages that the keeper does not wait
//! for. Doorbells are stores where the server hands their page over, and messages without an answer elsewhere. Above that it is a controller on the bus:
//! `ring.rs`.

mod far;
mod uri;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::vfio_user::{CallError, Client, End, Region, irq, region};
use hw::vfio::{PciRegisters, SharedArea, VfioError};
use hw::{Backing, EventFd, PoolOptions, Vectors};
use nvme::Vector;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use units::Nanos;

use super::ring::{Beyond, OnBus, Reach, RingLink};
use crate::error::{OpenError, PeerFault};
use crate::options::OpenOptions;
use far::{Bar0, Mapper};

pub(in crate::link) use far::Peer;
pub(crate) use uri::SCHEME;
pub use uri::VfioUserUri;

/// The longest wait for an answer to what cannot be put off. The driver's own accesses to properties have the driver's deadlines.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the server has to let go of a client before this one.
const LETTING_GO: Nanos = Nanos::from_secs(5);

/// Class code of an NVMe controller (PCIe Transport 2.1.5).
const CLASS_NVME: u32 = 0x01_08_02;

/// In configuration space (PCI Express Base 7.5.1.1, 7.7.2.2): the Command register and its bits, the pointer to the first capability, MSI-X and its
/// Message Control.
const COMMAND: u64 = 4;
const MEMORY_MASTER_NO_PIN: u16 = 1 << 1 | 1 << 2 | 1 << 10;
const FIRST_CAPABILITY: u64 = 0x34;
const MSIX: u8 = 0x11;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_MASK_ALL: u16 = 1 << 14;

/// The controller behind `uri`, within reach.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(uri: &VfioUserUri, options: &OpenOptions) -> Result<RingLink, OpenError> {
    let half = Half::connect(uri, options)?;
    let (reach, note) = reach(std::slice::from_ref(&half), options)?;
    half.join(reach, note, options.pool_bytes)
}

/// Memory that all of these controllers reach, and what is otherwise with it than was asked for.
///
/// # Errors
/// The system has no such memory, or a server does not take it.
pub(crate) fn reach(controllers: &[Half], options: &OpenOptions) -> Result<(Reach, Option<String>), OpenError> {
    let huge_pages = controllers.iter().any(|half| half.uri.huge_pages);
    let backing = if huge_pages { Backing::HugeMemfd } else { Backing::Memfd };
    let clients = controllers.iter().map(|half| half.client.clone()).collect();
    let pool = PoolOptions { backing, pinner: Some(Arc::new(Mapper(clients))), ..PoolOptions::default() };
    let reach = Reach::of(&pool, options.pool_bytes)?;
    let note = "too few huge pages are set aside for the pool, which has ordinary ones; `reap doctor` says how to set some aside";
    let otherwise = reach.pool.backing() != backing;
    Ok((reach, otherwise.then(|| note.to_owned())))
}

/// A controller that is found, and reaches no memory yet.
pub(crate) struct Half {
    uri: VfioUserUri,
    client: Arc<Client>,
    peer: Peer,
    registers: PciRegisters,
    vectors: Vectors,
    notes: Vec<String>,
}

impl Half {
    /// Finds the controller behind `uri`. Whatever fails, or drops this, closes the connection.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn connect(uri: &VfioUserUri, options: &OpenOptions) -> Result<Half, OpenError> {
        let fault = |fault| OpenError::VfioUser { socket: uri.socket.clone(), fault };
        let client = Arc::new(connect(&uri.socket).map_err(fault)?);
        // From here on whatever fails closes the connection.
        let peer = Peer::new(client.clone(), &uri.socket);
        let mut notes = Vec::new();
        begin(&client, &mut notes).map_err(fault)?;
        let (registers, vectors) = (registers(&client, uri, &mut notes), vectors(&client, uri, options.hardware(), &mut notes));
        let (registers, vectors) = (registers.map_err(fault)?, vectors.map_err(fault)?);
        peer.sends_messages(enable_messages(&client).map_err(fault)?);
        Ok(Half { uri: uri.clone(), client, peer, registers, vectors, notes })
    }

    /// The link to it, over memory that it reaches ([`reach`]).
    ///
    /// # Errors
    /// The pool has no room for the doorbells.
    pub(crate) fn join(self, reach: Reach, note: Option<String>, pool_bytes: u64) -> Result<RingLink, OpenError> {
        let Half { uri, peer, registers, vectors, mut notes, .. } = self;
        notes.extend(note);
        peer.serve(&reach.pool);
        // Where a doorbell is a store, memory spares nothing: it would take a fence and a look more.
        let shadow = uri.shadow.unwrap_or(!registers.maps_doorbells());
        let (beyond, wants_sgls) = (Beyond::Peer(Arc::new(peer)), uri.sgl);
        RingLink::on_bus(OnBus { beyond, registers, vectors, reach, wants_sgls, notes, shadow }, pool_bytes)
    }
}

/// A connection to the server, once it has let go of the client before. As VFIO's group is waited for.
fn connect(socket: &Path) -> Result<Client, PeerFault> {
    let (since, mut pause) = (hw::now(), Nanos::from_millis(2));
    loop {
        let stream = stream(socket)?;
        match Client::new(stream, PATIENCE) {
            Ok(client) => return Ok(client),
            Err(CallError::Ended(End::Closed)) if hw::now() - since < LETTING_GO => {
                hw::sleep_until(hw::now() + pause);
                pause = Nanos(pause.0 * 2).min(Nanos::from_millis(500));
            }
            Err(CallError::Ended(End::Closed)) => return Err(PeerFault::Busy),
            Err(CallError::Version { major, minor }) => return Err(PeerFault::Version { major, minor }),
            Err(CallError::Refused(_, errno)) => {
                let source = CallError::Refused(::vfio_user::Command::Version, errno);
                return Err(PeerFault::Server { what: "agree on version 0.0 of vfio-user", source });
            }
            Err(error) => return Err(PeerFault::NoServer(error)),
        }
    }
}

/// Connects, and never waits for a listener that does not accept.
fn stream(socket: &Path) -> Result<UnixStream, PeerFault> {
    let system = |source: rustix::io::Errno| PeerFault::System { what: "connect to it", source: source.into() };
    let address = SocketAddrUnix::new(socket).map_err(|_| PeerFault::System {
        what: "connect to it",
        source: io::Error::new(io::ErrorKind::InvalidInput, "the path of a socket has 107 bytes at most; name it by a shorter one"),
    })?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let since = hw::now();
    loop {
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(system)?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(UnixStream::from(fd)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if hw::now() - since < LETTING_GO => {
                hw::sleep_until(hw::now() + Nanos::from_millis(5));
            }
            Err(rustix::io::Errno::NOENT) => return Err(PeerFault::NoSocket),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => return Err(PeerFault::Permission),
            Err(rustix::io::Errno::CONNREFUSED) => {
                let is_socket = std::fs::metadata(socket).is_ok_and(|found| found.file_type().is_socket());
                return Err(if is_socket { PeerFault::NobodyListens } else { PeerFault::NotASocket });
            }
            Err(rustix::io::Errno::PROTOTYPE) => return Err(PeerFault::NotASocket),
            Err(errno) => return Err(system(errno)),
        }
    }
}

fn server(what: &'static str) -> impl FnOnce(CallError) -> PeerFault {
    move |source| PeerFault::Server { what, source }
}

/// Is it an NVMe controller? It begins as after power-on, and may reach memory.
fn begin(client: &Client, notes: &mut Vec<String>) -> Result<(), PeerFault> {
    let device = client.device().map_err(server("ask what the device is"))?;
    if !device.is_pci || device.regions <= region::CONFIG || device.irqs <= irq::MSIX {
        return Err(PeerFault::Lacks("the server says that it is no PCI device with a configuration space and MSI-X".into()));
    }
    let config = |what| move |source| PeerFault::Server { what, source };
    let class = u32::from_le_bytes(client.read_config(8).map_err(config("read its class code"))?) >> 8;
    if class != CLASS_NVME {
        return Err(PeerFault::NotNvme { class });
    }
    if device.can_reset
        && let Err(error) = client.reset()
    {
        match error {
            CallError::Refused(..) => notes.push(format!("the device was not reset when it was opened: {error}")),
            source => return Err(PeerFault::Server { what: "reset the device", source }),
        }
    }
    let command = u16::from_le_bytes(client.read_config(COMMAND).map_err(config("read its Command register"))?);
    let command = (command | MEMORY_MASTER_NO_PIN).to_le_bytes();
    client.write(region::CONFIG, COMMAND, &command).map_err(server("let the device reach memory"))
}

/// Its BAR0: what of it the server hands over is mapped if that is safe, and the rest is messages.
fn registers(client: &Arc<Client>, uri: &VfioUserUri, notes: &mut Vec<String>) -> Result<PciRegisters, PeerFault> {
    let (Region { readable, writable, bytes, file_offset, areas }, fds) =
        client.region(region::BAR0).map_err(server("ask for its registers"))?;
    if !(readable && writable) {
        return Err(PeerFault::Lacks("the server lets nobody read and write its registers (BAR0) by messages".into()));
    }
    let one_for_all = fds.len() == 1 && areas.len() > 1;
    if !areas.is_empty() && fds.is_empty() {
        notes.push(
            "the server says that parts of BAR0 can be mapped, and hands no descriptor over: they are reached by messages".to_owned(),
        );
    }
    let (mut shared, mut fds) = (Vec::new(), fds.into_iter());
    let first = if one_for_all { fds.next() } else { None };
    for area in areas {
        let file = match &first {
            Some(first) => first.try_clone().ok(),
            None => fds.next(),
        };
        let Some(file) = file else { break };
        // Checked when the answer was read: no end is beyond 64 bits.
        let range = area.offset..area.offset + area.bytes;
        shared.push(SharedArea { range, file, at: file_offset + area.offset });
    }
    let (registers, why_not) =
        PciRegisters::shared(bytes, shared, Box::new(Bar0(client.clone())), uri.trust).map_err(|error| match error {
            VfioError::Lacks(what) => PeerFault::Lacks(what),
            other => PeerFault::Lacks(other.to_string()),
        })?;
    notes.extend(why_not);
    match client.ended() {
        Some(end) => Err(PeerFault::Server { what: "read its capabilities (CAP)", source: end.into() }),
        None => Ok(registers),
    }
}

/// Vectors for `queues` queues and the admin queue, as far as there are so many.
fn vectors(client: &Client, uri: &VfioUserUri, queues: usize, notes: &mut Vec<String>) -> Result<Vectors, PeerFault> {
    let has = client.interrupts(irq::MSIX).map_err(server("ask for its interrupts"))?;
    let wanted = queues + 1;
    let count = wanted.min(has.count as usize).min(uri.vectors.map_or(usize::MAX, usize::from)).min(super::pcie::MOST_VECTORS as usize);
    if count == 0 || !has.by_eventfd {
        return Err(PeerFault::Lacks("it has no MSI-X vectors that signal eventfds, and Reap uses no other interrupts".into()));
    }
    let vectors = Vectors::new(count as u16, false).map_err(|source| PeerFault::System { what: "make eventfds", source })?;
    let signals: Vec<BorrowedFd<'_>> = (0..count as u16).filter_map(|n| vectors.eventfd(Vector(n))).map(EventFd::as_fd).collect();
    client.signal(0, &signals).map_err(server("have its messages sent to eventfds"))?;
    if count < wanted {
        notes.push(format!(
            "{wanted} interrupt vectors are wanted for {queues} queues and the admin queue, and {count} can be had: queues share them"
        ));
    }
    Ok(vectors)
}

/// Lets the function send messages, by its MSI-X capability; where its Message Control is. What a vector's own mask says the server does not ask: eventfds take its place.
fn enable_messages(client: &Client) -> Result<u64, PeerFault> {
    let failed = |source| PeerFault::Server { what: "switch MSI-X on", source };
    let [mut at] = client.read_config(FIRST_CAPABILITY).map_err(failed)?;
    // There is room for so many. A chain that has more goes in a circle.
    for _ in 0..48 {
        at &= !3;
        if at < 0x40 {
            break;
        }
        let [id, next, low, high] = client.read_config(at.into()).map_err(failed)?;
        if id == MSIX {
            let control = u16::from_le_bytes([low, high]) & !MSIX_MASK_ALL | MSIX_ENABLE;
            let offset = u64::from(at) + 2;
            return client.write(region::CONFIG, offset, &control.to_le_bytes()).map(|()| offset).map_err(failed);
        }
        at = next;
    }
    Err(PeerFault::Lacks("its configuration space has no MSI-X capability".into()))
}

#[cfg(test)]
mod tests;
