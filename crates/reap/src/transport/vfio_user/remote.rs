//! A connected vfio-user controller: property accesses, events and reconnection, shared by the
//! threads of this process.
//!
//! Locks are taken in this order: the mapper's memory, the reconnect task's state, `routes`,
//! `accesses`, `server`, `events`, then the connection. Replacing a client
//! ([`RemoteController::replace_client`]) takes them all, so that no thread sees half of it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ::vfio_user::{CallError, Client, DmaRequest, End, RegionAccess, Request, region, region_data};
use driver::{AccessPoll, Answer, Ticket};
use hw::{DmaPool, EventFd, Process};
use nvme::{QueueId, Status, Vector};

use super::CurrentClient;
use super::handshake;
use super::mapper::{Mapper, Pieces};
use super::reconnect::ReconnectTask;
use crate::error::VfioUserError;

/// A controller that another process serves.
pub(crate) struct RemoteController {
    pub(super) connection: Arc<CurrentClient>,
    pub(super) socket: PathBuf,
    /// The server is trusted not to truncate the files that it shares (`trust=yes`).
    pub(super) trusted: bool,
    server: Mutex<ServerProcess>,
    accesses: Mutex<PendingAccesses>,
    /// By vector, the vector whose eventfd its messages signal.
    routes: Mutex<Vec<Vector>>,
    /// Events not yet collected, and whether the end of the current connection was reported.
    /// Changed together with the connection.
    events: Mutex<(VecDeque<ServerEvent>, bool)>,
    /// Called when a reply arrives or the connection ends.
    notify: OnceLock<Arc<dyn Fn() + Send + Sync>>,
    /// The pool and the mapper that maps it at the server.
    memory: OnceLock<(DmaPool, Arc<Mapper>)>,
    pub(super) reconnect_task: ReconnectTask,
}

/// The process that serves the controller.
#[derive(Debug, Default)]
pub(super) struct ServerProcess {
    /// `None`: it is not visible from this PID namespace.
    pub process: Option<Process>,
    /// Offset of MSI-X Message Control in configuration space, once MSI-X is enabled.
    pub messages: Option<u64>,
}

/// Property accesses without a reply yet.
#[derive(Default)]
struct PendingAccesses {
    tickets: u64,
    /// By the client's ticket.
    open: BTreeMap<u64, (Ticket, driver::Access)>,
    /// Accesses of connections that have ended: they will be answered with all ones.
    lost: Vec<(Ticket, driver::Access)>,
}

/// An event of the connection to a server.
#[derive(Debug)]
pub(crate) enum ServerEvent {
    /// The connection has ended, and why.
    Ended(String),
    /// The connection of an I/O queue has ended, and why: NVMe/TCP has one for each.
    QueueEnded(QueueId, String),
    /// A new connection has replaced it, to the same device as far as can be told without a
    /// command.
    Back,
    /// A note for the user.
    Note(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the connection although others may still hold the client: buffers that outlive their
/// device must not keep the server busy.
impl Drop for RemoteController {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl RemoteController {
    pub(super) fn new(
        client: Client,
        process: Option<Process>,
        socket: PathBuf,
        trusted: bool,
    ) -> RemoteController {
        RemoteController {
            connection: Arc::new(CurrentClient::new(client)),
            socket,
            trusted,
            server: Mutex::new(ServerProcess { process, messages: None }),
            accesses: Mutex::default(),
            // Filled by `set_vectors`, when the number of vectors is known.
            routes: Mutex::default(),
            events: Mutex::default(),
            notify: OnceLock::new(),
            memory: OnceLock::new(),
            reconnect_task: ReconnectTask::default(),
        }
    }

    /// Makes the messages of `vector` signal `signal`, the eventfd of `home`, from now on. While
    /// there is no server, it is only recorded for the next one.
    ///
    /// # Errors
    /// The server refuses.
    pub(in crate::transport) fn signal_from(
        &self,
        vector: Vector,
        home: Vector,
        signal: &EventFd,
    ) -> Result<(), CallError> {
        let client = {
            let mut routes = lock(&self.routes);
            if let Some(now) = routes.get_mut(usize::from(vector.0)) {
                // Recorded even if the server refuses: the caller then directs it back.
                *now = home;
            }
            // Under the lock: a client that replaces this one later reads the new route.
            self.connection.client()
        };
        match client.signal(vector.0.into(), &[signal.as_fd()]) {
            // No server now. The next one gets the recorded route.
            Err(CallError::Ended(_)) => Ok(()),
            answered => answered,
        }
    }

    /// By vector, the vector whose eventfd its messages signal.
    pub(super) fn routes(&self) -> Vec<Vector> {
        lock(&self.routes).clone()
    }

    /// Each of `count` vectors signals its own eventfd.
    pub(super) fn set_vectors(&self, count: u16) {
        *lock(&self.routes) = (0..count).map(Vector).collect();
    }

    /// The process that serves it.
    pub(super) fn server(&self) -> MutexGuard<'_, ServerProcess> {
        lock(&self.server)
    }

    /// Serves the server's DMA_READ and DMA_WRITE messages from the lent memory of the pool and its
    /// regions.
    pub(super) fn serve_dma(&self, pool: &DmaPool, mapper: &Arc<Mapper>) {
        _ = self.memory.set((pool.clone(), mapper.clone()));
        self.serve_dma_to(&self.connection.client());
    }

    fn serve_dma_to(&self, client: &Client) {
        if let Some((pool, _)) = self.memory.get() {
            let pool = pool.clone();
            // `dma_read` and `dma_write` check that the address is lent memory: a server must not
            // read the rest of the pool.
            client.serve_memory(Arc::new(move |ask: &DmaRequest<'_>| match *ask {
                DmaRequest::Read { address, count } => {
                    let mut data = vec![0; count as usize];
                    pool.dma_read(address, &mut data).ok().map(|()| data)
                }
                DmaRequest::Write { address, data } => {
                    pool.dma_write(address, data).ok().map(|()| Vec::new())
                }
            }));
        }
    }

    /// Maps all memory at a new client and replaces the old client by it. `prepare` is called with
    /// the vectors' routes, again after each change of them.
    ///
    /// # Errors
    /// `prepare` fails, or the server refuses to map memory.
    pub(super) fn replace_client<E: From<CallError>>(
        &self,
        client: Client,
        server: ServerProcess,
        mut prepare: impl FnMut(&Client, &[Vector]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Not opened yet: there is nothing to take over.
        let Some((_, mapper)) = self.memory.get() else { return Ok(()) };
        let client = Arc::new(client);
        self.serve_dma_to(&client);
        let (mut routes, mut given, mut server) = (self.routes(), Pieces::new(), Some(server));
        prepare(&client, &routes)?;
        // The routes may change while memory is mapped: prepare again until they have not.
        while !mapper.give(&client, &mut given, || self.replace(&client, &routes, &mut server))? {
            routes = self.routes();
            prepare(&client, &routes)?;
        }
        self.push_event(ServerEvent::Back);
        Ok(())
    }

    /// Replaces the client. False: the routes have changed since `prepare` saw them. If the device
    /// has been closed the new client is dropped, which closes it.
    fn replace(
        &self,
        client: &Arc<Client>,
        given: &[Vector],
        server: &mut Option<ServerProcess>,
    ) -> bool {
        let (wanted, routes, mut accesses) =
            (self.reconnect_task.wanted(), lock(&self.routes), lock(&self.accesses));
        // Closed: claim success and let the client drop.
        if !wanted.get() {
            return true;
        }
        if *routes != given {
            return false;
        }
        // Before the client is visible: no reply may come without a notification.
        if let Some(notify) = self.notify.get() {
            client.set_notify(notify.clone());
        }
        // The old connection answers nothing more.
        let open = std::mem::take(&mut accesses.open);
        accesses.lost.extend(open.into_values());
        if let Some(server) = server.take() {
            *self.server() = server;
        }
        let mut events = lock(&self.events);
        self.connection.replace(client.clone());
        // The end of the new connection is a new event.
        events.1 = false;
        true
    }

    /// Calls `notify` when a reply arrives and when the connection ends, on this connection and
    /// those that replace it.
    pub(in crate::transport) fn notify_by(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.connection.client().set_notify(notify.clone());
        _ = self.notify.set(notify);
    }

    /// Resets the device (DEVICE_RESET). Mappings and eventfds stay; bus mastering and MSI-X are
    /// enabled again.
    ///
    /// # Errors
    /// The server has no reset, or refuses.
    pub(in crate::transport) fn reset(&self) -> Result<(), VfioUserError> {
        let (client, mut notes) = (self.connection.client(), Vec::new());
        handshake::set_up(&client, &mut notes)?;
        handshake::enable_messages(&client)?;
        // `set_up` notes a refused reset instead of failing, which at open is enough. Here it is
        // not.
        notes.pop().map_or(Ok(()), |refused| Err(VfioUserError::Unsupported(refused)))
    }

    /// Closes the connection.
    pub(in crate::transport) fn close(&self) {
        // An end that was asked for is no event.
        lock(&self.events).1 = true;
        self.disconnect();
    }

    /// Disables MSI-X and closes the connection. The server's configuration space outlives its
    /// clients: the next one may set no eventfds, and SPDK's target fails a controller that has
    /// MSI-X enabled but no eventfd for a message. The kernel leaves a drive's MSI-X disabled as
    /// well. No reply is requested, because no one would read it.
    fn disconnect(&self) {
        // First: a reconnect that succeeds now would open a connection that no one closes.
        self.reconnect_task.stop();
        let (client, messages) = (self.connection.client(), self.server().messages);
        if let Some(offset) = messages
            && !client.is_over()
        {
            _ = client.post(&Request::RegionWrite(
                RegionAccess { offset, region: region::CONFIG, count: 2 },
                &[0, 0],
            ));
        }
        client.close();
    }

    /// Whether the connection has ended.
    pub(in crate::transport) fn is_over(&self) -> bool {
        self.connection.client().is_over()
    }

    /// Adds an event and notifies.
    pub(super) fn push_event(&self, event: ServerEvent) {
        lock(&self.events).0.push_back(event);
        self.notify.get().into_iter().for_each(|notify| notify());
    }

    /// The next event that was not collected yet.
    pub(in crate::transport) fn news(&self) -> Option<ServerEvent> {
        let mut events = lock(&self.events);
        if let Some(first) = events.0.pop_front() {
            return Some(first);
        }
        // Under the lock: between the check that a client has ended and the note of it, another one
        // may replace it.
        let client = self.connection.client();
        let end = client.is_over().then(|| client.ended()).flatten()?;
        let known = std::mem::replace(&mut events.1, true);
        (!known).then(|| ServerEvent::Ended(format!("{}: {end}", self.uri())))
    }

    /// Its URI, without parameters.
    pub(super) fn uri(&self) -> String {
        format!("vfio-user:{}", self.socket.display())
    }

    /// Begins a property access. After the connection has ended all bits read as ones, as from a
    /// drive that was removed.
    pub(in crate::transport) fn ask(&self, access: driver::Access) -> AccessPoll {
        let (property, value) = match access {
            driver::Access::Get(property) => (property, None),
            driver::Access::Set(property, value) => (property, Some(value.to_le_bytes())),
        };
        let at = RegionAccess {
            offset: property.offset().into(),
            region: region::BAR0,
            count: property.width(),
        };
        let request = match &value {
            None => Request::RegionRead(at),
            Some(bytes) => Request::RegionWrite(at, &bytes[..property.width() as usize]),
        };
        // Held across the request, so that its reply cannot be fetched before it is recorded.
        let mut accesses = lock(&self.accesses);
        let Ok(theirs) = self.connection.client().ask(&request) else {
            return AccessPoll::Ready(Ok(all_ones(access)));
        };
        accesses.tickets += 1;
        let ticket = Ticket(accesses.tickets);
        accesses.open.insert(theirs.0, (ticket, access));
        AccessPoll::Pending(ticket)
    }

    /// The replies that have arrived.
    pub(in crate::transport) fn answers(&self) -> Vec<(Ticket, Answer)> {
        let mut accesses = lock(&self.accesses);
        let client = self.connection.client();
        let mut answers: Vec<(Ticket, Answer)> = accesses
            .lost
            .drain(..)
            .map(|(ticket, access)| (ticket, Ok(all_ones(access))))
            .collect();
        for (theirs, answer) in client.fetch() {
            // Replies to other requests (memory, vectors) are awaited by their callers.
            let Some((ticket, access)) = accesses.open.remove(&theirs.0) else { continue };
            let answer = match answer {
                Ok((body, _)) => match value(access, &body) {
                    Ok(value) => Ok(value),
                    Err(malformed) => {
                        // A server that breaks the protocol is treated as one that is gone.
                        client.end_with(End::Malformed(malformed));
                        Ok(all_ones(access))
                    }
                },
                Err(errno) => {
                    tracing::warn!(%access, %errno, "the server refuses an access to a property");
                    Err(Status::INTERNAL_ERROR)
                }
            };
            answers.push((ticket, answer));
        }
        if client.is_over() {
            // After the fetch above: replies that arrived before the end count.
            answers.extend(
                std::mem::take(&mut accesses.open)
                    .into_values()
                    .map(|(ticket, access)| (ticket, Ok(all_ones(access)))),
            );
        }
        answers
    }
}

/// The result of an access to a controller that is gone.
fn all_ones(access: driver::Access) -> u64 {
    match access {
        driver::Access::Get(property) if property.width() == 8 => u64::MAX,
        driver::Access::Get(_) => u32::MAX.into(),
        driver::Access::Set(..) => 0,
    }
}

/// Decodes the reply to an access.
fn value(access: driver::Access, body: &[u8]) -> Result<u64, ::vfio_user::Malformed> {
    let driver::Access::Get(property) = access else { return Ok(0) };
    let asked = RegionAccess {
        offset: property.offset().into(),
        region: region::BAR0,
        count: property.width(),
    };
    let data = region_data(&asked, body)?;
    Ok(data.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
