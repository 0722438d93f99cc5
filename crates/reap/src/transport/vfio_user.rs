//! `vfio-user:SOCKET[?…]`: an NVMe controller that another process serves (libvfio-user, SPDK's
//! target, `reap serve`).
//!
//! ```text
//!   this process                     UNIX socket                     server
//!   pool (memfd)  ──── DMA_MAP, descriptor ───────────────────►  maps the pool
//!   properties    ──── REGION_READ / REGION_WRITE ────────────►  BAR0
//!   doorbells     ──── store, where the server shares the page; else REGION_WRITE without a reply
//!   eventfds      ──── DEVICE_SET_IRQS, descriptors ──────────►  signals them as MSI-X
//! ```
//!
//! The controller's task never waits for a reply to a property access. Above that it is a
//! controller on the bus: `rings.rs`.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI mean? | `uri.rs` |
//! | how is a connection set up? | `handshake.rs` |
//! | how do threads talk to a connected server? | `remote.rs` |
//! | which memory can the server access? | `mapper.rs` |
//! | how is a lost connection replaced? | `reconnect.rs` |

mod handshake;
mod mapper;
mod reconnect;
mod remote;
mod uri;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use ::vfio_user::{Client, region};
use hw::vfio::{PciRegisters, RegisterCalls, VfioError};
use hw::{Backing, PoolOptions, Process, Vectors};
use units::Nanos;

use super::rings::{BusController, BusResources, DmaContext, RingController};
use crate::error::{OpenError, VfioUserError};
use crate::options::OpenOptions;
use mapper::Mapper;

pub(in crate::transport) use reconnect::Reconnect;
pub(in crate::transport) use remote::RemoteController;
pub(crate) use remote::ServerEvent;
pub(crate) use uri::SCHEME;
pub use uri::VfioUserUri;

/// How long to retry while the server still has its previous client: most servers take one at a
/// time.
const RELEASE_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Opens the controller of `uri`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(uri: &VfioUserUri, options: &OpenOptions) -> Result<RingController, OpenError> {
    let controller = ConnectedController::connect(uri, options)?;
    let (shared, note) = shared_pool(std::slice::from_ref(&controller), options)?;
    controller.join(&shared, note, options.pool_bytes)
}

/// The pool of a device, mapped at the servers of all its paths.
pub(crate) struct SharedPool {
    pub dma: DmaContext,
    mapper: Arc<Mapper>,
}

/// Makes the pool for these controllers, and a note if it is not of the memory that was asked for.
///
/// # Errors
/// The system has no such memory, a server refuses to map it, or huge pages would be shared with a
/// server that is not trusted.
pub(crate) fn shared_pool(
    controllers: &[ConnectedController],
    options: &OpenOptions,
) -> Result<(SharedPool, Option<String>), OpenError> {
    let huge_pages = controllers.iter().any(|controller| controller.uri.huge_pages);
    let backing = if huge_pages { Backing::HugeMemfd } else { Backing::Memfd };
    // All servers map the same pool, and each could take its huge pages away: touching one that is
    // gone raises SIGBUS here.
    let untrusted = controllers.iter().find(|controller| !controller.uri.trust);
    if let (true, Some(controller)) = (huge_pages, untrusted) {
        let what = "the pool has huge pages for another path (`hugepages=yes`), and this server could take them away; add `trust=yes` if it does not";
        return Err(OpenError::VfioUser {
            socket: controller.uri.socket.clone(),
            fault: VfioUserError::Unsupported(what.into()),
        });
    }
    let connections =
        controllers.iter().map(|controller| controller.remote.connection.clone()).collect();
    let mapper = Arc::new(Mapper::new(connections, untrusted.is_none()));
    let pool = PoolOptions { backing, pinner: Some(mapper.clone()), ..PoolOptions::default() };
    let dma = DmaContext::of(&pool, options.pool_bytes)?;
    let note = "too few huge pages are set aside for the pool, which has ordinary ones; `reap doctor` says how to set some aside";
    let otherwise = dma.pool.backing() != backing;
    Ok((SharedPool { dma, mapper }, otherwise.then(|| note.to_owned())))
}

/// A connected controller that has no memory yet: the pool is made when all paths are connected.
pub(crate) struct ConnectedController {
    uri: VfioUserUri,
    remote: RemoteController,
    registers: PciRegisters,
    vectors: Vectors,
    notes: Vec<String>,
}

impl ConnectedController {
    /// Connects to the controller of `uri`. An error, or dropping the result, closes the
    /// connection.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn connect(
        uri: &VfioUserUri,
        options: &OpenOptions,
    ) -> Result<ConnectedController, OpenError> {
        let fault = |fault| OpenError::VfioUser { socket: uri.socket.clone(), fault };
        let (client, process) = connect(&uri.socket).map_err(fault)?;
        // From here on, every error drops `remote`, which closes the connection.
        let remote = RemoteController::new(client, process, uri.socket.clone(), uri.trust);
        let (client, mut notes) = (remote.connection.client(), Vec::new());
        handshake::set_up(&client, &mut notes).map_err(fault)?;
        let registers = registers(&remote, &client, uri, &mut notes).map_err(fault)?;
        let vectors = vectors(&client, uri, options.hardware(), &mut notes).map_err(fault)?;
        remote.set_vectors(vectors.len());
        handshake::signal(&client, &vectors, &remote.routes()).map_err(fault)?;
        remote.server().messages = Some(handshake::enable_messages(&client).map_err(fault)?);
        Ok(ConnectedController { uri: uri.clone(), remote, registers, vectors, notes })
    }

    /// Gives the controller its memory ([`shared_pool`]) and makes a transport of it.
    ///
    /// # Errors
    /// The pool has no room for the doorbells.
    pub(crate) fn join(
        self,
        shared: &SharedPool,
        note: Option<String>,
        pool_bytes: u64,
    ) -> Result<RingController, OpenError> {
        let ConnectedController { uri, remote, registers, vectors, mut notes } = self;
        notes.extend(note);
        let dma = shared.dma.clone();
        remote.serve_dma(&dma.pool, &shared.mapper);
        // A mapped doorbell is a plain store already. Shadow doorbells would only add a fence and a
        // read of EventIdx.
        let shadow = uri.shadow.unwrap_or(!registers.maps_doorbells());
        let (controller, wants_sgls) = (BusController::VfioUser(Arc::new(remote)), uri.sgl);
        RingController::on_bus(
            BusResources { controller, registers, vectors, dma, wants_sgls, notes, shadow },
            pool_bytes,
        )
    }
}

/// Connects, and waits up to [`RELEASE_TIMEOUT`] for the server to drop its previous client.
fn connect(socket: &Path) -> Result<(Client, Option<Process>), VfioUserError> {
    let (until, mut pause) = (hw::now() + RELEASE_TIMEOUT, Nanos::from_millis(2));
    loop {
        let stream = handshake::connect(socket, until)?;
        // The process is needed at a reconnect: has the old server ended?
        let process = Process::peer_of(&stream).ok();
        match handshake::negotiate(stream) {
            Err(VfioUserError::Busy) if hw::now() < until => {
                hw::sleep_until(hw::now() + pause);
                pause = Nanos(pause.0 * 2).min(Nanos::from_millis(500));
            }
            agreed => return agreed.map(|client| (client, process)),
        }
    }
}

/// BAR0: parts that the server shares are mapped if that is safe; the rest is accessed by messages.
fn registers(
    remote: &RemoteController,
    client: &Client,
    uri: &VfioUserUri,
    notes: &mut Vec<String>,
) -> Result<PciRegisters, VfioUserError> {
    let handshake::BarRegion { bytes, areas } = handshake::bar0(client, notes)?;
    let calls = Box::new(Bar0(remote.connection.clone()));
    let (registers, why_not) =
        PciRegisters::shared(bytes, areas, calls, uri.trust).map_err(|error| match error {
            VfioError::Unsupported(what) => VfioUserError::Unsupported(what),
            other => VfioUserError::Unsupported(other.to_string()),
        })?;
    notes.extend(why_not);
    // CAP was read while `registers` was made, and a failed read returns all ones: check the
    // connection itself.
    match client.ended() {
        Some(end) => {
            Err(VfioUserError::Server { what: "read its capabilities (CAP)", source: end.into() })
        }
        None => Ok(registers),
    }
}

/// Vectors for `queues` queues and the admin queue, or as many as the server has.
fn vectors(
    client: &Client,
    uri: &VfioUserUri,
    queues: usize,
    notes: &mut Vec<String>,
) -> Result<Vectors, VfioUserError> {
    let has = handshake::interrupts(client)?;
    let wanted = queues + 1;
    let count = wanted
        .min(has.count as usize)
        .min(uri.vectors.map_or(usize::MAX, usize::from))
        .min(super::pci::MAX_VECTORS as usize);
    if count == 0 || !has.by_eventfd {
        return Err(VfioUserError::Unsupported(
            "it has no MSI-X vectors that signal eventfds, and Reap uses no other interrupts"
                .into(),
        ));
    }
    let vectors = hw::vectors(count as u16, false)
        .map_err(|source| VfioUserError::System { what: "make eventfds", source })?;
    if count < wanted {
        notes.push(format!(
            "{wanted} interrupt vectors are wanted for {queues} queues and the admin queue, and {count} are available: queues share them"
        ));
    }
    Ok(vectors)
}

/// The connection to a server; it is replaced after a reconnect.
#[derive(Debug)]
struct CurrentClient(RwLock<Arc<Client>>);

impl CurrentClient {
    fn new(client: Client) -> CurrentClient {
        CurrentClient(RwLock::new(Arc::new(client)))
    }

    /// The current client.
    fn client(&self) -> Arc<Client> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, client: Arc<Client>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = client;
    }
}

/// Accesses to BAR0 by messages.
#[derive(Debug)]
struct Bar0(Arc<CurrentClient>);

impl RegisterCalls for Bar0 {
    fn load(&self, offset: u32) -> u32 {
        // All ones if the connection is over, as a removed PCI device reads.
        let mut word = [0xff; 4];
        match self.0.client().read(region::BAR0, offset.into(), &mut word) {
            Ok(()) => u32::from_le_bytes(word),
            Err(_) => u32::MAX,
        }
    }

    /// Without a reply: it is a doorbell, and the posting thread must not wait for the server.
    #[inline]
    fn store(&self, offset: u32, value: u32) {
        self.0.client().post_write(region::BAR0, offset.into(), value);
    }
}

#[cfg(test)]
mod tests;
