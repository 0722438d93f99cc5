//! A client: a connection to a server, shared by many threads, and one thread that receives.
//!
//! [`Client::call`] sends a request and waits for its reply, with a deadline; after [`Client::ask`]
//! the reply is fetched later. A posted write ([`Client::post_write`]) has no reply and never
//! blocks: while the socket is full, only the last value of each register is kept, and sent when
//! there is room. The receiver thread passes replies to the threads that wait for them, sends
//! unsent writes, and executes the server's DMA_READ and DMA_WRITE requests.
//!
//! ```text
//! caller threads --call, ask, post_write--> Outbox --> socket --> server
//!       ^                                      ^                    |
//!       | condition variable, notify           | unsent writes      |
//!       +------------- receiver thread --------+ <------ socket <---+  replies, DMA_READ, DMA_WRITE
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::codec::{
    self, Capabilities, Command, DeviceInfo, DmaMap, DmaRequest, DmaUnmap, Flags, Header,
    Interrupts, IrqAction, IrqData, Malformed, Message, Region, RegionAccess, Request, SetIrqs,
    Version,
};
use crate::socket::{Received, Socket, SocketError};
use crate::{irq, region};

/// Maximum number of messages received before unsent writes are sent.
const MESSAGE_BUDGET: usize = 64;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The server closed it.
    #[error("the server has closed the connection")]
    Closed,
    /// The server broke the protocol.
    #[error("the server breaks the protocol: {0}")]
    Malformed(Malformed),
    /// The server did not reply in time.
    #[error("the server has not replied to {0} within {1:?}")]
    TimedOut(Command, Duration),
    /// A system call failed.
    #[error("the connection is broken: {0}")]
    System(String),
    /// This side closed it.
    #[error("the connection was closed")]
    ClosedHere,
}

impl From<SocketError> for End {
    fn from(error: SocketError) -> End {
        match error {
            SocketError::Malformed(malformed) => End::Malformed(malformed),
            // EPIPE and ECONNRESET on a send mean that the peer has closed.
            SocketError::System(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                End::Closed
            }
            error => End::System(error.to_string()),
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server replied with an error number.
    #[error("the server refused {0}: {err}", err = io::Error::from(*.1))]
    Refused(Command, Errno),
    /// The reply is malformed, or does not match the request.
    #[error("the server breaks the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// The server has another version of the protocol.
    #[error("the server has version {major}.{minor} of vfio-user, and this client has 0.0")]
    Version {
        /// Different major versions are incompatible.
        major: u16,
        /// Minor version of the server.
        minor: u16,
    },
    /// The connection has ended.
    #[error(transparent)]
    Ended(#[from] End),
}

/// The reply to a request: its body and descriptors, or its error number.
pub type Answer = Result<(Vec<u8>, Vec<OwnedFd>), Errno>;

/// Identifies a request whose reply is fetched later. Unique per connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Executes DMA_READ and DMA_WRITE of a server that has no descriptor for the memory. Returns the
/// bytes read, or an empty vector for a write; `None`: not all of the range is accessible.
pub type Memory = dyn Fn(&DmaRequest<'_>) -> Option<Vec<u8>> + Send + Sync;

/// A connection to a server; closed on drop.
pub struct Client(Arc<Shared>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("ended", &self.ended()).finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

impl Client {
    /// Maximum number of data bytes in one message, in either direction.
    pub const MAX_DATA: u32 = 0x1_0000;

    /// Negotiates version 0.0, which every server of major version 0 supports. `timeout`: maximum
    /// time to wait for a reply.
    ///
    /// # Errors
    /// The server has an incompatible version, or does not speak vfio-user; or the system has no
    /// resources for a thread.
    pub fn new(stream: UnixStream, timeout: Duration) -> Result<Client, CallError> {
        let system = |error: io::Error| End::System(error.to_string());
        let receiving = Socket::new(stream.try_clone().map_err(system)?, Client::MAX_DATA + 64)
            .map_err(system)?;
        // A separate `Socket` to send: senders and receiver do not share a lock.
        let sending = Socket::new(stream.try_clone().map_err(system)?, 0).map_err(system)?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|errno| system(errno.into()))?;
        let woken = wake.try_clone().map_err(system)?;
        let shared = Arc::new(Shared {
            outbox: Mutex::new(Outbox { socket: sending, unsent: Vec::new(), wake }),
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
            stream,
            receiver: OnceLock::new(),
            timeout,
        });
        let mut receiver = Receiver { shared: shared.clone(), socket: receiving, wake: woken };
        let run = move || {
            let Err(end) = receiver.run();
            receiver.shared.end(end);
        };
        let thread =
            thread::Builder::new().name("reap-vfio-user".into()).spawn(run).map_err(system)?;
        _ = shared.receiver.set(thread.thread().id());
        let client = Client(shared);
        let capabilities = Capabilities {
            max_msg_fds: Socket::MAX_FDS as u64,
            max_data_xfer_size: Client::MAX_DATA.into(),
            ..Capabilities::default()
        };
        let (body, _) =
            client.call(&Request::Version(Version { major: 0, minor: 0, capabilities }), &[])?;
        // The minor version need not be checked: both sides use the lower one, which is 0.
        let theirs = Version::from_bytes(&body)?;
        if theirs.major != 0 {
            return Err(CallError::Version { major: theirs.major, minor: theirs.minor });
        }
        client.0.state().server = theirs.capabilities;
        Ok(client)
    }

    /// The capabilities of the server.
    pub fn server(&self) -> Capabilities {
        self.0.state().server
    }

    /// Why the connection has ended; `None`: it is open.
    pub fn ended(&self) -> Option<End> {
        self.0.state().end.clone()
    }

    /// Whether the connection has ended. Takes no lock.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Ends the connection with a reason, for a caller that finds a reply invalid.
    pub fn end_with(&self, why: End) {
        self.0.end(why);
    }

    /// Closes the connection, and drops the memory and notification callbacks.
    pub fn close(&self) {
        self.0.end(End::ClosedHere);
        let mut state = self.0.state();
        (state.memory, state.notify) = (None, None);
    }

    /// Executes the server's DMA_READ and DMA_WRITE with `memory`. Until this is called they are
    /// refused.
    pub fn serve_memory(&self, memory: Arc<Memory>) {
        let mut state = self.0.state();
        // After the end the memory must not be held again: `Shared::end` has released it.
        if state.end.is_none() {
            state.memory = Some(memory);
        }
    }

    /// Sets a callback for when a reply can be fetched and when the connection ends. Any thread may
    /// call it.
    pub fn set_notify(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.0.state().notify = Some(notify);
    }

    /// Sends a request and waits for its reply. A time-out ends the connection. If the caller is
    /// the receiver thread, which cannot wait for itself, it gets an empty reply at once.
    pub fn call(
        &self,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), CallError> {
        let command = request.command();
        let deadline = Instant::now() + self.0.timeout;
        let is_receiver = self.0.receiver.get() == Some(&thread::current().id());
        let mut state = self.0.state();
        state.tickets += 1;
        let number = state.tickets;
        // Register the request before sending: the reply may come before `send` returns.
        let id = state
            .begin(command, if is_receiver { ReplyTo::Nowhere } else { ReplyTo::Waiter(number) })?;
        drop(state);
        self.send(&request.to_bytes(id, Flags::REQUEST), fds, deadline, command)?;
        if is_receiver {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut state = self.0.state();
        loop {
            // A reply that has arrived counts even if the connection has ended since.
            if let Some(answer) = state.answers.remove(&number) {
                return answer.map_err(|errno| CallError::Refused(command, errno));
            }
            if let Some(end) = &state.end {
                return Err(end.clone().into());
            }
            let now = Instant::now();
            if now >= deadline {
                drop(state);
                return Err(self.fail(End::TimedOut(command, self.0.timeout)));
            }
            state = self
                .0
                .changed
                .wait_timeout(state, deadline - now)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Sends a request; [`Client::fetch`] returns its reply.
    ///
    /// # Errors
    /// The connection has ended, or there are too many requests without a reply.
    pub fn ask(&self, request: &Request<'_>) -> Result<Ticket, CallError> {
        let mut state = self.0.state();
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        let id = state.begin(request.command(), ReplyTo::Fetch(ticket))?;
        drop(state);
        self.send(&request.to_bytes(id, Flags::REQUEST), &[], Instant::now(), request.command())?;
        Ok(ticket)
    }

    /// Sends a request that has no reply, without waiting.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn post(&self, request: &Request<'_>) -> Result<(), CallError> {
        self.send(&request.to_bytes(0, Flags::NO_REPLY), &[], Instant::now(), request.command())
    }

    /// Replies to requests of [`Client::ask`] that have arrived since the last `fetch`.
    pub fn fetch(&self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut self.0.state().fetchable)
    }

    /// Writes 32 bits, little-endian, to a region without waiting. It replaces a value for the same
    /// offset that is not sent yet, which is right for doorbells: only the last value matters.
    #[inline]
    pub fn post_write(&self, region: u32, offset: u64, value: u32) {
        if self.is_over() {
            return;
        }
        let sent = self.0.outbox().post(region, offset, value);
        if let Err(error) = sent {
            self.0.end(error.into());
        }
    }

    fn send(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
        command: Command,
    ) -> Result<(), CallError> {
        loop {
            let sent = self.0.outbox().send(bytes, fds);
            match sent {
                Ok(true) => return Ok(()),
                // The message has descriptors, and the socket is full. Such messages are only sent
                // at set-up, so a short sleep will do.
                Ok(false) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                Ok(false) => return Err(self.fail(End::TimedOut(command, self.0.timeout))),
                Err(error) => return Err(self.fail(error.into())),
            }
        }
    }

    /// Ends the connection; returns the first reason, which may be an earlier one.
    fn fail(&self, why: End) -> CallError {
        self.0.end(why.clone());
        self.ended().unwrap_or(why).into()
    }

    /// Reads the device description.
    pub fn device(&self) -> Result<DeviceInfo, CallError> {
        let (body, _) = self.call(&Request::DeviceInfo, &[])?;
        Ok(DeviceInfo::from_reply(&body)?)
    }

    /// Reads the description of a region, with the descriptors of its mappable areas.
    pub fn region(&self, index: u32) -> Result<(Region, Vec<OwnedFd>), CallError> {
        let (body, fds) =
            self.call(&Request::RegionInfo { index, room: Region::MAX_BYTES }, &[])?;
        Ok((Region::from_reply(index, &body)?, fds))
    }

    /// Reads the description of an interrupt type.
    pub fn interrupts(&self, index: u32) -> Result<Interrupts, CallError> {
        let (body, _) = self.call(&Request::IrqInfo { index }, &[])?;
        Ok(Interrupts::from_reply(index, &body)?)
    }

    /// Reads bytes of a region, at most [`Client::MAX_DATA`].
    pub fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), CallError> {
        let access = RegionAccess { offset, region, count: into.len() as u32 };
        let (body, _) = self.call(&Request::RegionRead(access), &[])?;
        into.copy_from_slice(codec::region_data(&access, &body)?);
        Ok(())
    }

    /// Writes bytes to a region, at most [`Client::MAX_DATA`].
    pub fn write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), CallError> {
        let access = RegionAccess { offset, region, count: data.len() as u32 };
        self.call(&Request::RegionWrite(access, data), &[]).map(drop)
    }

    /// Maps memory at a bus address: `bytes` bytes of a file from `offset` on.
    pub fn map(
        &self,
        address: u64,
        bytes: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), CallError> {
        let map = DmaMap { readable: true, writable: true, offset, address, size: bytes };
        self.call(&Request::DmaMap(map), &[file]).map(drop)
    }

    /// Unmaps memory. A conforming server no longer accesses it once it has replied.
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<(), CallError> {
        self.call(
            &Request::DmaUnmap(DmaUnmap { all: false, bitmap: false, address, size: bytes }),
            &[],
        )
        .map(drop)
    }

    /// Routes MSI-X vectors from `first` on to these eventfds. Sends several messages if the server
    /// limits descriptors per message.
    ///
    /// # Errors
    /// See [`CallError`]. Some of the vectors may be routed nevertheless.
    pub fn signal(&self, first: u32, eventfds: &[BorrowedFd<'_>]) -> Result<(), CallError> {
        // The server chooses the limit; `chunks(0)` would panic.
        let max = (self.server().max_msg_fds as usize).clamp(1, Socket::MAX_FDS);
        for (start, some) in (first..).step_by(max).zip(eventfds.chunks(max)) {
            let set = SetIrqs {
                index: irq::MSIX,
                start,
                count: some.len() as u32,
                action: IrqAction::Trigger,
                data: IrqData::Eventfds,
            };
            self.call(&Request::SetIrqs(set), some)?;
        }
        Ok(())
    }

    /// Resets the device to its state after power-on.
    pub fn reset(&self) -> Result<(), CallError> {
        self.call(&Request::DeviceReset, &[]).map(drop)
    }

    /// Reads bytes of the configuration space.
    pub fn read_config<const N: usize>(&self, offset: u64) -> Result<[u8; N], CallError> {
        let mut bytes = [0; N];
        self.read(region::CONFIG, offset, &mut bytes)?;
        Ok(bytes)
    }
}

struct Shared {
    outbox: Mutex<Outbox>,
    state: Mutex<ClientState>,
    /// Signalled when a reply has come or the connection has ended.
    changed: Condvar,
    /// Whether `ClientState::end` is set; can be read without a lock.
    ended: AtomicBool,
    /// Shut down when the connection ends, which wakes threads that wait for this socket.
    stream: UnixStream,
    /// The thread that runs [`Receiver`].
    receiver: OnceLock<ThreadId>,
    /// Maximum time to wait for a reply.
    timeout: Duration,
}

#[derive(Default)]
struct ClientState {
    calls: Calls<ReplyTo>,
    /// The last number given to a caller of [`Client::call`] or [`Client::ask`].
    tickets: u64,
    /// Replies for threads that wait in [`Client::call`], by that number.
    answers: HashMap<u64, Answer>,
    /// Replies for [`Client::fetch`].
    fetchable: Vec<(Ticket, Answer)>,
    end: Option<End>,
    /// Executes the server's DMA_READ and DMA_WRITE.
    memory: Option<Arc<Memory>>,
    /// Called when a reply can be fetched and when the connection ends.
    notify: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The server's capabilities.
    server: Capabilities,
}

/// Where a reply goes.
#[derive(Clone, Copy, Debug)]
enum ReplyTo {
    Waiter(u64),
    Fetch(Ticket),
    Nowhere,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection; the first reason is kept.
    fn end(&self, why: End) {
        let mut state = self.state();
        // Later errors are consequences of the first.
        state.end.get_or_insert(why);
        // No more replies are expected: waiting callers see `state.end` and return the reason.
        state.calls.end();
        let notify = state.notify.clone();
        // Release the memory now, however long `Client` lives on. It is dropped without the lock,
        // as the drop runs foreign code.
        let memory = state.memory.take();
        // Set after `state.end`, so that a thread that sees the flag finds the reason.
        self.ended.store(true, Ordering::Release);
        drop(state);
        drop(memory);
        // Shut down, not closed: other threads may be using the descriptor, and wake up.
        _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.outbox().wake_receiver();
        self.changed.notify_all();
        if let Some(notify) = notify {
            notify();
        }
    }
}

impl ClientState {
    /// Registers a request; returns its identifier.
    fn begin(&mut self, command: Command, caller: ReplyTo) -> Result<u16, CallError> {
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        let full = || End::System(format!("{} requests have no reply yet", Calls::<ReplyTo>::MAX));
        Ok(self.calls.begin(command as u16, caller).ok_or_else(full)?)
    }
}

/// Requests that wait for their reply, by identifier, each with a value of the caller.
#[derive(Debug)]
pub struct Calls<T> {
    /// The identifier that was used last.
    last: u16,
    /// By identifier: the command, and the caller's value.
    open: HashMap<u16, (u16, T)>,
}

impl<T> Default for Calls<T> {
    fn default() -> Calls<T> {
        Calls { last: 0, open: HashMap::new() }
    }
}

impl<T> Calls<T> {
    /// Maximum number of requests that wait for their reply.
    pub const MAX: usize = 1024;

    /// Registers a request; returns an identifier that is not in use. `None`: there are too many.
    pub fn begin(&mut self, command: u16, caller: T) -> Option<u16> {
        if self.open.len() >= Calls::<T>::MAX {
            return None;
        }
        loop {
            // This loop ends: at most 1024 of the 65536 identifiers are in use.
            self.last = self.last.wrapping_add(1);
            if !self.open.contains_key(&self.last) {
                break;
            }
        }
        self.open.insert(self.last, (command, caller));
        Some(self.last)
    }

    /// Removes the request to which a reply with this header belongs. Returns the caller's value.
    ///
    /// # Errors
    /// No request has this identifier, or the request had another command.
    pub fn complete(&mut self, header: &Header) -> Result<T, Malformed> {
        let Some((command, caller)) = self.open.remove(&header.id) else {
            return Err(Malformed::UnexpectedReply { id: header.id });
        };
        // The identifier matches, but a reply to another command has another layout.
        if command != header.command {
            return Err(Malformed::Field {
                what: "command of a reply",
                value: header.command.into(),
            });
        }
        Ok(caller)
    }

    /// Removes all requests: no more replies will come.
    pub fn end(&mut self) -> Vec<T> {
        self.open.drain().map(|(_, (_, caller))| caller).collect()
    }
}

/// The sending side.
struct Outbox {
    socket: Socket,
    /// Writes that the socket has not accepted: region, offset, value. One entry per register,
    /// ordered by first write.
    unsent: Vec<(u32, u64, u32)>,
    /// Eventfd that wakes the receiver thread, so that it waits until the socket is writable.
    wake: OwnedFd,
}

impl Outbox {
    fn wake_receiver(&self) {
        _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Whether anything is unsent.
    fn has_unsent(&self) -> bool {
        self.socket.has_unsent() || !self.unsent.is_empty()
    }

    /// Sends a write, or keeps its value while anything is unsent.
    fn post(&mut self, region: u32, offset: u64, value: u32) -> Result<(), SocketError> {
        if self.has_unsent() {
            // One entry per register limits the list, however long the server does not read.
            match self.unsent.iter_mut().find(|(r, o, _)| (*r, *o) == (region, offset)) {
                Some((_, _, last)) => *last = value,
                None => self.unsent.push((region, offset, value)),
            }
            return Ok(());
        }
        self.socket.send(&region_write(region, offset, value), &[])?;
        // If the message was only sent partly, the receiver thread sends the rest.
        if self.socket.has_unsent() {
            self.wake_receiver();
        }
        Ok(())
    }

    /// Sends a message after everything unsent. Returns false, and sends nothing, if the message
    /// has descriptors and the socket is full.
    fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, SocketError> {
        let sent = match fds {
            [] => {
                // Posted writes first: a later request, such as a reset, must not overtake them.
                for (region, offset, value) in std::mem::take(&mut self.unsent) {
                    self.socket.send(&region_write(region, offset, value), &[])?;
                }
                self.socket.send(bytes, &[])?;
                true
            }
            // Descriptors cannot be kept for later, so everything unsent must go first.
            fds if self.flush()? => match self.socket.send(bytes, fds) {
                Ok(()) => true,
                Err(SocketError::System(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    false
                }
                Err(error) => return Err(error),
            },
            _ => false,
        };
        if self.has_unsent() {
            self.wake_receiver();
        }
        Ok(sent)
    }

    /// Sends unsent bytes and writes, as far as the socket accepts them. Returns whether all were
    /// sent.
    fn flush(&mut self) -> Result<bool, SocketError> {
        while self.socket.flush()? {
            if self.unsent.is_empty() {
                return Ok(true);
            }
            let (region, offset, value) = self.unsent.remove(0);
            self.socket.send(&region_write(region, offset, value), &[])?;
        }
        Ok(false)
    }
}

/// A REGION_WRITE message without reply.
fn region_write(region: u32, offset: u64, value: u32) -> Vec<u8> {
    Request::RegionWrite(RegionAccess { offset, region, count: 4 }, &value.to_le_bytes())
        .to_bytes(0, Flags::NO_REPLY)
}

/// The receiver thread: passes replies to callers, executes DMA_READ and DMA_WRITE, and sends
/// unsent writes when the socket is writable.
struct Receiver {
    shared: Arc<Shared>,
    socket: Socket,
    wake: OwnedFd,
}

impl Receiver {
    /// Runs until the connection ends; returns why.
    fn run(&mut self) -> Result<Infallible, End> {
        while !self.shared.ended.load(Ordering::Acquire) {
            let unsent = self.shared.outbox().has_unsent();
            // POLLOUT only if anything is unsent, or poll(2) would always return at once.
            let events = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut fds =
                [PollFd::new(&self.socket, events), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(End::System(errno.to_string())),
            }
            // The events are copied, so that the borrow of the socket ends here.
            let (ready, woken) = (fds[0].revents(), fds[1].revents());
            if !woken.is_empty() {
                // This only resets the eventfd: the next turn of the loop checks for unsent data.
                _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
            }
            if unsent && ready.contains(PollFlags::OUT) {
                self.shared.outbox().flush()?;
            }
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                // Limited, so that unsent writes are sent even if the server never stops sending.
                for _ in 0..MESSAGE_BUDGET {
                    match self.socket.receive()? {
                        Received::Nothing => break,
                        Received::End => return Err(End::Closed),
                        Received::Message(message) if message.header.flags.is_reply() => {
                            self.handle_reply(message)?
                        }
                        Received::Message(message) => {
                            self.handle_request(&message.header, &message.body)?
                        }
                    }
                }
            }
        }
        Err(End::ClosedHere)
    }

    fn handle_reply(&self, message: Message<OwnedFd>) -> Result<(), End> {
        let Message { header, body, fds, lost_fds } = message;
        if lost_fds {
            // Without its descriptors the reply would mean something else.
            return Err(End::System(format!("{}, for a reply with descriptors", Errno::MFILE)));
        }
        let mut state = self.shared.state();
        let caller = state.calls.complete(&header).map_err(End::Malformed)?;
        let answer =
            if header.flags.is_error() { Err(errno(header.error)) } else { Ok((body, fds)) };
        // The callback is called after the lock is released, as it may call `fetch`.
        let notify = match caller {
            ReplyTo::Nowhere => None,
            ReplyTo::Waiter(number) => {
                state.answers.insert(number, answer);
                None
            }
            ReplyTo::Fetch(ticket) => {
                state.fetchable.push((ticket, answer));
                state.notify.clone()
            }
        };
        drop(state);
        self.shared.changed.notify_all();
        if let Some(notify) = notify {
            notify();
        }
        Ok(())
    }

    /// Handles a request of the server: DMA_READ, DMA_WRITE, or an unknown command.
    fn handle_request(&self, header: &Header, body: &[u8]) -> Result<(), End> {
        // A clone, so that the lock is not held while memory is copied.
        let memory = self.shared.state().memory.clone();
        let bytes = match DmaRequest::from_message(header, body, Client::MAX_DATA) {
            Ok(Some(request)) => memory
                .and_then(|memory| memory(&request))
                .map(|data| request.reply(header, &data))
                .ok_or(Errno::FAULT),
            // Unknown commands get an error and do not end the connection.
            Ok(None) => Err(Errno::NOTSUP),
            Err(_) => Err(Errno::INVAL),
        };
        let bytes = bytes.unwrap_or_else(|errno| {
            Header { flags: Flags::ERROR, error: errno.raw_os_error() as u32, ..*header }
                .with_body(&[])
        });
        if header.flags.wants_reply() {
            self.shared.outbox().send(&bytes, &[])?;
        }
        Ok(())
    }
}

/// The error number that a server sent, or EIO if that is invalid.
fn errno(said: u32) -> Errno {
    let said = i32::try_from(said).ok().filter(|said| (1..4096).contains(said));
    said.map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests;
