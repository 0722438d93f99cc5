//! The controller's end in another process, as the threads of this one reach it: by messages, with a connection that they share.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ::vfio_user::{Access, CallError, Client, DmaAsk, End, Request, region, region_data};
use driver::{Answer, Asked, Ticket};
use hw::{DmaPool, EventFd, Process};
use nvme::{Status, Vector};

use super::Connection;
use super::handshake;
use super::mapper::{Mapper, Pieces};
use super::reconnect::ReconnectTask;
use crate::error::PeerFault;

/// A controller that another process serves.
pub(crate) struct RemoteController {
    pub(super) connection: Arc<Connection>,
    pub(super) socket: PathBuf,
    /// Its server is believed to leave the length of its files alone.
    pub(super) trusted: bool,
    server: Mutex<Server>,
    accesses: Mutex<PendingAccesses>,
    /// The vector whose eventfd each vector's messages signal.
    routes: Mutex<Vec<Vector>>,
    /// What has happened, and whether the end of this connection is among it: changed together with the connection.
    events: Mutex<(VecDeque<ServerEvent>, bool)>,
    /// Who wants to hear when there is an answer, or the connection ends.
    notify: OnceLock<Arc<dyn Fn() + Send + Sync>>,
    /// The memory that it reaches, and who makes that known to it.
    memory: OnceLock<(DmaPool, Arc<Mapper>)>,
    pub(super) reconnect_task: ReconnectTask,
}

/// Who serves the controller.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// `None`: it cannot be seen from here.
    pub process: Option<Process>,
    /// Where the Message Control of MSI-X is, once its messages are on.
    pub messages: Option<u64>,
}

/// Properties that were asked for and not answered yet.
#[derive(Default)]
struct PendingAccesses {
    tickets: u64,
    /// By the connection's own tickets.
    open: BTreeMap<u64, (Ticket, driver::Access)>,
    /// Those of connections that are over.
    lost: Vec<(Ticket, driver::Access)>,
}

/// What has happened to the way to a controller.
#[derive(Debug)]
pub(crate) enum ServerEvent {
    /// The connection is over: a sentence.
    Ended(String),
    /// There is another one, to the same device as far as that can be said without a command.
    Back,
    /// Something else: a sentence.
    Note(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection ends with it, however many have the client still: buffers that outlive their device keep no server.
impl Drop for RemoteController {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl RemoteController {
    pub(super) fn new(client: Client, process: Option<Process>, socket: PathBuf, trusted: bool) -> RemoteController {
        RemoteController {
            connection: Arc::new(Connection::new(client)),
            socket,
            trusted,
            server: Mutex::new(Server { process, messages: None }),
            accesses: Mutex::default(),
            routes: Mutex::default(),
            events: Mutex::default(),
            notify: OnceLock::new(),
            memory: OnceLock::new(),
            reconnect_task: ReconnectTask::default(),
        }
    }

    /// Messages of `vector` signal `signal`, the eventfd of `home`, from now on. A server that is gone is told when there is one again.
    ///
    /// # Errors
    /// The server refuses.
    pub(in crate::transport) fn signal_from(&self, vector: Vector, home: Vector, signal: &EventFd) -> Result<(), CallError> {
        let client = {
            let mut routes = lock(&self.routes);
            if let Some(now) = routes.get_mut(usize::from(vector.0)) {
                *now = home;
            }
            // Under the lock: the client that takes its place later knows of it.
            self.connection.client()
        };
        match client.signal(vector.0.into(), &[signal.as_fd()]) {
            Err(CallError::Ended(_)) => Ok(()),
            answered => answered,
        }
    }

    /// The vector whose eventfd each vector's messages signal.
    pub(super) fn routes(&self) -> Vec<Vector> {
        lock(&self.routes).clone()
    }

    /// This many vectors signal each its own eventfd.
    pub(super) fn set_vectors(&self, count: u16) {
        *lock(&self.routes) = (0..count).map(Vector).collect();
    }

    /// Who serves it.
    pub(super) fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.server)
    }

    /// From now on the server's DMA messages are served from what of the pool and its regions is lent.
    pub(super) fn serve_dma(&self, pool: &DmaPool, mapper: &Arc<Mapper>) {
        _ = self.memory.set((pool.clone(), mapper.clone()));
        self.serve_dma_to(&self.connection.client());
    }

    fn serve_dma_to(&self, client: &Client) {
        if let Some((pool, _)) = self.memory.get() {
            let pool = pool.clone();
            client.serve_memory(Arc::new(move |ask: &DmaAsk<'_>| match *ask {
                DmaAsk::Read { address, count } => {
                    let mut data = vec![0; count as usize];
                    pool.dma_read(address, &mut data).ok().map(|()| data)
                }
                DmaAsk::Write { address, data } => pool.dma_write(address, data).ok().map(|()| Vec::new()),
            }));
        }
    }

    /// Gives a new client all memory, and has it take the place of the one that is over. `prepare` is called until the vectors of `routes` are those that
    /// it was last called with.
    ///
    /// # Errors
    /// `prepare`'s, or the server does not take memory.
    pub(super) fn replace_client<E: From<CallError>>(
        &self,
        client: Client,
        server: Server,
        mut prepare: impl FnMut(&Client, &[Vector]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((_, mapper)) = self.memory.get() else { return Ok(()) };
        let client = Arc::new(client);
        self.serve_dma_to(&client);
        let (mut routes, mut given, mut server) = (self.routes(), Pieces::new(), Some(server));
        prepare(&client, &routes)?;
        while !mapper.give(&client, &mut given, || self.replace(&client, &routes, &mut server))? {
            routes = self.routes();
            prepare(&client, &routes)?;
        }
        self.push_event(ServerEvent::Back);
        Ok(())
    }

    /// False: vectors have moved meanwhile. A client that comes when nobody wants one any more is not taken, and closed by that.
    fn replace(&self, client: &Arc<Client>, given: &[Vector], server: &mut Option<Server>) -> bool {
        let (wanted, routes, mut accesses) = (self.reconnect_task.wanted(), lock(&self.routes), lock(&self.accesses));
        if !wanted.get() {
            return true;
        }
        if *routes != given {
            return false;
        }
        if let Some(tell) = self.notify.get() {
            client.tell(tell.clone());
        }
        // What the last one was asked it never answers.
        let open = std::mem::take(&mut accesses.open);
        accesses.lost.extend(open.into_values());
        if let Some(server) = server.take() {
            *self.server() = server;
        }
        let mut events = lock(&self.events);
        self.connection.replace(client.clone());
        events.1 = false;
        true
    }

    /// `told` is called when an answer has come, and when the connection ends.
    pub(in crate::transport) fn notify_by(&self, told: Arc<dyn Fn() + Send + Sync>) {
        self.connection.client().tell(told.clone());
        _ = self.notify.set(told);
    }

    /// Has the server reset the device, which keeps memory and eventfds, and lets it reach memory and send messages again.
    ///
    /// # Errors
    /// The server has no reset, or refuses.
    pub(in crate::transport) fn reset(&self) -> Result<(), PeerFault> {
        let (client, mut notes) = (self.connection.client(), Vec::new());
        handshake::set_up(&client, &mut notes)?;
        handshake::enable_messages(&client)?;
        notes.pop().map_or(Ok(()), |refused| Err(PeerFault::Lacks(refused)))
    }

    /// No message travels any more, and the server is told so by the end of the connection.
    pub(in crate::transport) fn close(&self) {
        // Nobody is told of an end that was wanted.
        lock(&self.events).1 = true;
        self.disconnect();
    }

    /// The server's configuration space outlives its clients: one that comes next may give no eventfds, and SPDK's target fails a controller that
    /// has none for a message. The kernel leaves a drive's MSI-X off as well. No answer is wanted: nobody would be there.
    fn disconnect(&self) {
        self.reconnect_task.stop();
        let (client, messages) = (self.connection.client(), self.server().messages);
        if let Some(offset) = messages
            && !client.is_over()
        {
            _ = client.post(&Request::RegionWrite(Access { offset, region: region::CONFIG, count: 2 }, &[0, 0]));
        }
        client.close();
    }

    /// Whether the connection is over.
    pub(in crate::transport) fn is_over(&self) -> bool {
        self.connection.client().is_over()
    }

    /// Something has happened.
    pub(super) fn push_event(&self, event: ServerEvent) {
        lock(&self.events).0.push_back(event);
        self.notify.get().into_iter().for_each(|tell| tell());
    }

    /// What has happened and nobody was told of.
    pub(in crate::transport) fn news(&self) -> Option<ServerEvent> {
        let mut events = lock(&self.events);
        if let Some(first) = events.0.pop_front() {
            return Some(first);
        }
        // Under the lock: between the look at a client that is over and the note that it is, another may take its place.
        let client = self.connection.client();
        let end = client.is_over().then(|| client.ended()).flatten()?;
        let known = std::mem::replace(&mut events.1, true);
        (!known).then(|| ServerEvent::Ended(format!("{}: {end}", self.uri())))
    }

    /// As its URI says it.
    pub(super) fn uri(&self) -> String {
        format!("vfio-user:{}", self.socket.display())
    }

    /// Begins an access to a property. Of a server that is gone all bits read as ones, as of a drive that was pulled out.
    pub(in crate::transport) fn ask(&self, access: driver::Access) -> Asked {
        let (property, value) = match access {
            driver::Access::Get(property) => (property, None),
            driver::Access::Set(property, value) => (property, Some(value.to_le_bytes())),
        };
        let at = Access { offset: property.offset().into(), region: region::BAR0, count: property.width() };
        let request = match &value {
            None => Request::RegionRead(at),
            Some(bytes) => Request::RegionWrite(at, &bytes[..property.width() as usize]),
        };
        let mut accesses = lock(&self.accesses);
        let Ok(theirs) = self.connection.client().ask(&request) else { return Asked::Now(Ok(all_ones(access))) };
        accesses.tickets += 1;
        let ticket = Ticket(accesses.tickets);
        accesses.open.insert(theirs.0, (ticket, access));
        Asked::Later(ticket)
    }

    /// Answers that have come.
    pub(in crate::transport) fn answers(&self) -> Vec<(Ticket, Answer)> {
        let mut accesses = lock(&self.accesses);
        let client = self.connection.client();
        let mut answers: Vec<(Ticket, Answer)> = accesses.lost.drain(..).map(|(ticket, access)| (ticket, Ok(all_ones(access)))).collect();
        for (theirs, answer) in client.fetch() {
            let Some((ticket, access)) = accesses.open.remove(&theirs.0) else { continue };
            let answer = match answer {
                Ok((body, _)) => match value(access, &body) {
                    Ok(value) => Ok(value),
                    Err(malformed) => {
                        client.break_off(End::Malformed(malformed));
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
            answers.extend(std::mem::take(&mut accesses.open).into_values().map(|(ticket, access)| (ticket, Ok(all_ones(access)))));
        }
        answers
    }
}

/// What is read where nothing is.
fn all_ones(access: driver::Access) -> u64 {
    match access {
        driver::Access::Get(property) if property.width() == 8 => u64::MAX,
        driver::Access::Get(_) => u32::MAX.into(),
        driver::Access::Set(..) => 0,
    }
}

/// The value in the answer to an access.
fn value(access: driver::Access, body: &[u8]) -> Result<u64, ::vfio_user::Malformed> {
    let driver::Access::Get(property) = access else { return Ok(0) };
    let asked = Access { offset: property.offset().into(), region: region::BAR0, count: property.width() };
    let data = region_data(&asked, body)?;
    Ok(data.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
