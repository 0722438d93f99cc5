//! A client: a connection to a server that many threads use, and a thread that hears what the server says.
//!
//! A request that is answered waits for its answer, with a deadline ([`Client::call`]), or the answer is fetched later ([`Client::ask`]). A write that
//! nobody waits for ([`Client::post_write`]) never blocks: where the socket takes nothing, the last value for each place is kept, and sent when there is
//! room. One thread receives, sends what was kept, and answers what the server asks of memory.

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
    self, Access, Capabilities, Command, Device, DmaAsk, DmaMap, DmaUnmap, Flags, Header, Interrupts, IrqAction, IrqData, Malformed,
    Message, Region, Request, SetIrqs, Version,
};
use crate::socket::{Received, Socket, SocketError};
use crate::{irq, region};

/// Messages that are received before the socket's other direction has its turn.
const MESSAGES: usize = 64;

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The server has closed it.
    #[error("the server has closed the connection")]
    Closed,
    /// What it sent cannot be followed.
    #[error("the server breaks the protocol: {0}")]
    Malformed(Malformed),
    /// It did not answer a request that nothing can be done without.
    #[error("the server has not answered {0} within {1:?}")]
    Silent(Command, Duration),
    /// The system says so.
    #[error("the connection is broken: {0}")]
    System(String),
    /// This side has closed it.
    #[error("the connection was closed")]
    Ours,
}

impl From<SocketError> for End {
    fn from(error: SocketError) -> End {
        match error {
            SocketError::Malformed(malformed) => End::Malformed(malformed),
            // It has closed its end, and something was sent.
            SocketError::System(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => End::Closed,
            error => End::System(error.to_string()),
        }
    }
}

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server says so.
    #[error("the server answers {0} with an error: {err}", err = io::Error::from(*.1))]
    Refused(Command, Errno),
    /// Its answer does not hang together, or does not fit the question.
    #[error("the server breaks the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// It speaks another version of the protocol.
    #[error("the server speaks version {major}.{minor} of vfio-user, and this client 0.0")]
    Version {
        /// Protocols of different major numbers do not understand each other.
        major: u16,
        /// Its minor number.
        minor: u16,
    },
    /// There is no connection any more.
    #[error(transparent)]
    Ended(#[from] End),
}

/// What came of a request: the answer's body and descriptors, or an error number.
pub type Answer = Result<(Vec<u8>, Vec<OwnedFd>), Errno>;

/// Names a request whose answer is fetched later. No connection gives one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Memory that the server reaches by messages, where it has no descriptor for it: carries out what the server asks. What was read, or
/// nothing of a write; `None`: not all of the range can be reached so.
pub type Memory = dyn Fn(&DmaAsk<'_>) -> Option<Vec<u8>> + Send + Sync;

/// A connection to a server. It is closed when this is dropped.
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
    /// Bytes that a message reads or writes at most, either way.
    pub const MOST_DATA: u32 = 0x1_0000;

    /// Agrees with the server of `stream` on version 0.0, the lowest of all, which each of major version 0 speaks. No answer is waited for
    /// longer than `patience`.
    ///
    /// # Errors
    /// The server speaks another protocol or another version of it, or none; or the system has no thread.
    pub fn new(stream: UnixStream, patience: Duration) -> Result<Client, CallError> {
        let system = |error: io::Error| End::System(error.to_string());
        let receiving = Socket::new(stream.try_clone().map_err(system)?, Client::MOST_DATA + 64).map_err(system)?;
        let sending = Socket::new(stream.try_clone().map_err(system)?, 0).map_err(system)?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|errno| system(errno.into()))?;
        let woken = wake.try_clone().map_err(system)?;
        let shared = Arc::new(Shared {
            out: Mutex::new(Out { socket: sending, unsent: Vec::new(), wake }),
            state: Mutex::default(),
            news: Condvar::new(),
            ended: AtomicBool::new(false),
            stream,
            receiver: OnceLock::new(),
            patience,
        });
        let mut receiver = Receiver { shared: shared.clone(), socket: receiving, wake: woken };
        let run = move || {
            let Err(end) = receiver.run();
            receiver.shared.end(end);
        };
        let thread = thread::Builder::new().name("reap-vfio-user".into()).spawn(run).map_err(system)?;
        _ = shared.receiver.set(thread.thread().id());
        let client = Client(shared);
        let capabilities =
            Capabilities { max_msg_fds: Socket::MOST_FDS as u64, max_data_xfer_size: Client::MOST_DATA.into(), ..Capabilities::default() };
        let (body, _) = client.call(&Request::Version(Version { major: 0, minor: 0, capabilities }), &[])?;
        let theirs = Version::from_bytes(&body)?;
        if theirs.major != 0 {
            return Err(CallError::Version { major: theirs.major, minor: theirs.minor });
        }
        client.0.state().server = theirs.capabilities;
        Ok(client)
    }

    /// What the server can take.
    pub fn server(&self) -> Capabilities {
        self.0.state().server
    }

    /// Why the connection is over, if it is.
    pub fn ended(&self) -> Option<End> {
        self.0.state().end.clone()
    }

    /// Whether the connection is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Ends the connection for a reason of the caller's: an answer that makes no sense to it.
    pub fn break_off(&self, why: End) {
        self.0.end(why);
    }

    /// Ends the connection. What the server was to reach by messages is let go of.
    pub fn close(&self) {
        self.0.end(End::Ours);
        let mut state = self.0.state();
        (state.memory, state.notify) = (None, None);
    }

    /// From now on the server's DMA_READ and DMA_WRITE are served from this memory. Before, they are refused.
    pub fn serve_memory(&self, memory: Arc<Memory>) {
        let mut state = self.0.state();
        if state.end.is_none() {
            state.memory = Some(memory);
        }
    }

    /// From now on `told` is called, by some thread, when an answer can be fetched and when the connection ends.
    pub fn tell(&self, told: Arc<dyn Fn() + Send + Sync>) {
        self.0.state().notify = Some(told);
    }

    /// Sends a request and waits for its answer. A server that does not answer in time is given up, and the connection with it. The thread that
    /// serves memory waits for nothing, and has an empty answer.
    pub fn call(&self, request: &Request<'_>, fds: &[BorrowedFd<'_>]) -> Result<(Vec<u8>, Vec<OwnedFd>), CallError> {
        let command = request.command();
        let deadline = Instant::now() + self.0.patience;
        let is_receiver = self.0.receiver.get() == Some(&thread::current().id());
        let mut state = self.0.state();
        state.tickets += 1;
        let number = state.tickets;
        let id = state.begin(command, if is_receiver { Caller::Discarded } else { Caller::Waits(number) })?;
        drop(state);
        self.send(&request.to_bytes(id, Flags::REQUEST), fds, deadline, command)?;
        if is_receiver {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut state = self.0.state();
        loop {
            if let Some(answer) = state.answers.remove(&number) {
                return answer.map_err(|errno| CallError::Refused(command, errno));
            }
            if let Some(end) = &state.end {
                return Err(end.clone().into());
            }
            let now = Instant::now();
            if now >= deadline {
                drop(state);
                return Err(self.give_up(End::Silent(command, self.0.patience)));
            }
            state = self.0.news.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a request whose answer [`Client::fetch`] gives.
    ///
    /// # Errors
    /// There is no connection any more, or too much is asked already.
    pub fn ask(&self, request: &Request<'_>) -> Result<Ticket, CallError> {
        let mut state = self.0.state();
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        let id = state.begin(request.command(), Caller::Fetches(ticket))?;
        drop(state);
        self.send(&request.to_bytes(id, Flags::REQUEST), &[], Instant::now(), request.command())?;
        Ok(ticket)
    }

    /// Sends a request that the server does not answer, if there is room for it now.
    ///
    /// # Errors
    /// There is no connection any more.
    pub fn post(&self, request: &Request<'_>) -> Result<(), CallError> {
        self.send(&request.to_bytes(0, Flags::NO_REPLY), &[], Instant::now(), request.command())
    }

    /// Answers to [`Client::ask`] that have come since this was called last.
    pub fn fetch(&self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut self.0.state().late)
    }

    /// Writes 32 bits, little-endian, to a region, and waits for nothing. What is written to a place where an earlier value has not been sent yet
    /// takes its place: doorbells, of which the last value says all.
    #[inline]
    pub fn post_write(&self, region: u32, offset: u64, value: u32) {
        if self.is_over() {
            return;
        }
        let sent = self.0.out().post(region, offset, value);
        if let Err(error) = sent {
            self.0.end(error.into());
        }
    }

    fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], deadline: Instant, command: Command) -> Result<(), CallError> {
        loop {
            let sent = self.0.out().send(bytes, fds);
            match sent {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                Ok(false) => return Err(self.give_up(End::Silent(command, self.0.patience))),
                Err(error) => return Err(self.give_up(error.into())),
            }
        }
    }

    /// The reason that counts: an earlier one, if there is one.
    fn give_up(&self, why: End) -> CallError {
        self.0.end(why.clone());
        self.ended().unwrap_or(why).into()
    }

    /// What the device is.
    pub fn device(&self) -> Result<Device, CallError> {
        let (body, _) = self.call(&Request::DeviceInfo, &[])?;
        Ok(Device::from_answer(&body)?)
    }

    /// What a region is, with the descriptors of its parts.
    pub fn region(&self, index: u32) -> Result<(Region, Vec<OwnedFd>), CallError> {
        let (body, fds) = self.call(&Request::RegionInfo { index, room: Region::MOST_BYTES }, &[])?;
        Ok((Region::from_answer(index, &body)?, fds))
    }

    /// What interrupts of a kind are.
    pub fn interrupts(&self, index: u32) -> Result<Interrupts, CallError> {
        let (body, _) = self.call(&Request::IrqInfo { index }, &[])?;
        Ok(Interrupts::from_answer(index, &body)?)
    }

    /// Bytes of a region, [`Client::MOST_DATA`] at most.
    pub fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), CallError> {
        let access = Access { offset, region, count: into.len() as u32 };
        let (body, _) = self.call(&Request::RegionRead(access), &[])?;
        into.copy_from_slice(codec::region_data(&access, &body)?);
        Ok(())
    }

    /// Writes bytes to a region, [`Client::MOST_DATA`] at most.
    pub fn write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), CallError> {
        let access = Access { offset, region, count: data.len() as u32 };
        self.call(&Request::RegionWrite(access, data), &[]).map(drop)
    }

    /// Memory appears at a bus address: of a file from `offset` on.
    pub fn map(&self, address: u64, bytes: u64, file: BorrowedFd<'_>, offset: u64) -> Result<(), CallError> {
        let map = DmaMap { readable: true, writable: true, offset, address, size: bytes };
        self.call(&Request::DmaMap(map), &[file]).map(drop)
    }

    /// Memory goes. Once this has returned the server has let go of it, if it keeps to the protocol.
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<(), CallError> {
        self.call(&Request::DmaUnmap(DmaUnmap { all: false, bitmap: false, address, size: bytes }), &[]).map(drop)
    }

    /// MSI-X vectors from `first` on signal these eventfds, by as many messages as the server's limit on descriptors makes of it.
    ///
    /// # Errors
    /// See [`CallError`]. Some may have been set.
    pub fn signal(&self, first: u32, eventfds: &[BorrowedFd<'_>]) -> Result<(), CallError> {
        let most = (self.server().max_msg_fds as usize).clamp(1, Socket::MOST_FDS);
        for (start, some) in (first..).step_by(most).zip(eventfds.chunks(most)) {
            let set = SetIrqs { index: irq::MSIX, start, count: some.len() as u32, action: IrqAction::Trigger, data: IrqData::Eventfds };
            self.call(&Request::SetIrqs(set), some)?;
        }
        Ok(())
    }

    /// The device as after power-on.
    pub fn reset(&self) -> Result<(), CallError> {
        self.call(&Request::DeviceReset, &[]).map(drop)
    }

    /// Bytes of the configuration space, as [`Client::read`].
    pub fn read_config<const N: usize>(&self, offset: u64) -> Result<[u8; N], CallError> {
        let mut bytes = [0; N];
        self.read(region::CONFIG, offset, &mut bytes)?;
        Ok(bytes)
    }
}

struct Shared {
    out: Mutex<Out>,
    state: Mutex<State>,
    /// An answer has come, or the connection has ended.
    news: Condvar,
    /// The same as `State::end`, without a lock.
    ended: AtomicBool,
    /// Shut down when the connection is over, so that a thread that reads or writes there is told.
    stream: UnixStream,
    /// The thread of [`Receiver`].
    receiver: OnceLock<ThreadId>,
    /// Longest wait for an answer.
    patience: Duration,
}

#[derive(Default)]
struct State {
    calls: Calls<Caller>,
    tickets: u64,
    answers: HashMap<u64, Answer>,
    /// Answers that no thread waits for.
    late: Vec<(Ticket, Answer)>,
    end: Option<End>,
    /// What the server's DMA_READ and DMA_WRITE reach.
    memory: Option<Arc<Memory>>,
    /// Called when an answer can be fetched and when the connection ends.
    notify: Option<Arc<dyn Fn() + Send + Sync>>,
    server: Capabilities,
}

/// Who is to have an answer.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Waits(u64),
    Fetches(Ticket),
    Discarded,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is over: the first reason counts.
    fn end(&self, why: End) {
        let mut state = self.state();
        state.end.get_or_insert(why);
        state.calls.end();
        let notify = state.notify.clone();
        // What holds memory goes now, however long others keep the connection.
        let memory = state.memory.take();
        self.ended.store(true, Ordering::Release);
        drop(state);
        drop(memory);
        _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.out().wake_receiver();
        self.news.notify_all();
        if let Some(notify) = notify {
            notify();
        }
    }
}

impl State {
    /// A request goes out: its identifier.
    fn begin(&mut self, command: Command, caller: Caller) -> Result<u16, CallError> {
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        let busy = || End::System(format!("{} requests wait for an answer", Calls::<Caller>::MOST));
        Ok(self.calls.begin(command as u16, caller).ok_or_else(busy)?)
    }
}

/// What was asked and is not answered yet: by identifier, each with something of the caller's.
#[derive(Debug)]
pub struct Calls<T> {
    next: u16,
    open: HashMap<u16, (u16, T)>,
}

impl<T> Default for Calls<T> {
    fn default() -> Calls<T> {
        Calls { next: 0, open: HashMap::new() }
    }
}

impl<T> Calls<T> {
    /// Requests that may be out at a time.
    pub const MOST: usize = 1024;

    /// A request of this command goes out: its identifier, which none has that is out. `None`: too many are.
    pub fn begin(&mut self, command: u16, caller: T) -> Option<u16> {
        if self.open.len() >= Calls::<T>::MOST {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.open.contains_key(&self.next) {
                break;
            }
        }
        self.open.insert(self.next, (command, caller));
        Some(self.next)
    }

    /// An answer has come.
    ///
    /// # Errors
    /// Nothing of that identifier is out, or it was another command.
    pub fn answered(&mut self, header: &Header) -> Result<T, Malformed> {
        let Some((command, caller)) = self.open.remove(&header.id) else { return Err(Malformed::Unasked { id: header.id }) };
        if command != header.command {
            return Err(Malformed::Field { what: "command of an answer", value: header.command.into() });
        }
        Ok(caller)
    }

    /// No answer comes any more.
    pub fn end(&mut self) -> Vec<T> {
        self.open.drain().map(|(_, (_, caller))| caller).collect()
    }
}

/// What goes out.
struct Out {
    socket: Socket,
    /// Writes that the socket has not taken: region, offset, value. Each place once, in the order of their first value.
    unsent: Vec<(u32, u64, u32)>,
    /// Wakes the receiver, which waits for room.
    wake: OwnedFd,
}

impl Out {
    fn wake_receiver(&self) {
        _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Whether something waits for room.
    fn has_unsent(&self) -> bool {
        self.socket.has_unsent() || !self.unsent.is_empty()
    }

    /// Writes 32 bits to a region, or keeps the value.
    fn post(&mut self, region: u32, offset: u64, value: u32) -> Result<(), SocketError> {
        if self.has_unsent() {
            match self.unsent.iter_mut().find(|(r, o, _)| (*r, *o) == (region, offset)) {
                Some((_, _, last)) => *last = value,
                None => self.unsent.push((region, offset, value)),
            }
            return Ok(());
        }
        self.socket.send(&region_write(region, offset, value), &[])?;
        // What it did not take waits for room.
        if self.socket.has_unsent() {
            self.wake_receiver();
        }
        Ok(())
    }

    /// Sends a message behind everything that is unsent. False: it has descriptors, and the socket takes nothing now.
    fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, SocketError> {
        let sent = match fds {
            [] => {
                // In this order: a write that comes after what was to follow it would be another one.
                for (region, offset, value) in std::mem::take(&mut self.unsent) {
                    self.socket.send(&region_write(region, offset, value), &[])?;
                }
                self.socket.send(bytes, &[])?;
                true
            }
            fds if self.flush()? => match self.socket.send(bytes, fds) {
                Ok(()) => true,
                Err(SocketError::System(error)) if error.kind() == io::ErrorKind::WouldBlock => false,
                Err(error) => return Err(error),
            },
            _ => false,
        };
        if self.has_unsent() {
            self.wake_receiver();
        }
        Ok(sent)
    }

    /// Sends what is unsent, as far as the server takes it. Whether all of it has been sent.
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

/// A write that is not answered.
fn region_write(region: u32, offset: u64, value: u32) -> Vec<u8> {
    Request::RegionWrite(Access { offset, region, count: 4 }, &value.to_le_bytes()).to_bytes(0, Flags::NO_REPLY)
}

/// The thread that receives: answers go to those who asked, requests for memory are served, and what is unsent goes when there is room.
struct Receiver {
    shared: Arc<Shared>,
    socket: Socket,
    wake: OwnedFd,
}

impl Receiver {
    /// Sleeps until there is something and deals with it, until the connection is over: why.
    fn run(&mut self) -> Result<Infallible, End> {
        while !self.shared.ended.load(Ordering::Acquire) {
            let unsent = self.shared.out().has_unsent();
            let events = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut fds = [PollFd::new(&self.socket, events), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(End::System(errno.to_string())),
            }
            let (ready, woken) = (fds[0].revents(), fds[1].revents());
            if !woken.is_empty() {
                _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
            }
            if unsent && ready.contains(PollFlags::OUT) {
                self.shared.out().flush()?;
            }
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                // A server that sends many gets no more than its turn.
                for _ in 0..MESSAGES {
                    match self.socket.receive()? {
                        Received::Nothing => break,
                        Received::End => return Err(End::Closed),
                        Received::Message(message) if message.header.flags.is_reply() => self.answered(message)?,
                        Received::Message(message) => self.asked(&message.header, &message.body)?,
                    }
                }
            }
        }
        Err(End::Ours)
    }

    fn answered(&self, message: Message<OwnedFd>) -> Result<(), End> {
        let Message { header, body, fds, lost_fds } = message;
        if lost_fds {
            // Without them the answer means something else.
            return Err(End::System(format!("{}, of an answer with descriptors", Errno::MFILE)));
        }
        let mut state = self.shared.state();
        let caller = state.calls.answered(&header).map_err(End::Malformed)?;
        let answer = if header.flags.is_error() { Err(errno(header.error)) } else { Ok((body, fds)) };
        let notify = match caller {
            Caller::Discarded => None,
            Caller::Waits(number) => {
                state.answers.insert(number, answer);
                None
            }
            Caller::Fetches(ticket) => {
                state.late.push((ticket, answer));
                state.notify.clone()
            }
        };
        drop(state);
        self.shared.news.notify_all();
        if let Some(notify) = notify {
            notify();
        }
        Ok(())
    }

    /// The server asks something of this side: its memory, or what is not known here.
    fn asked(&self, header: &Header, body: &[u8]) -> Result<(), End> {
        let memory = self.shared.state().memory.clone();
        let bytes = match DmaAsk::from_message(header, body, Client::MOST_DATA) {
            Ok(Some(ask)) => memory.and_then(|memory| memory(&ask)).map(|data| ask.answer(header, &data)).ok_or(Errno::FAULT),
            Ok(None) => Err(Errno::NOTSUP),
            Err(_) => Err(Errno::INVAL),
        };
        let bytes =
            bytes.unwrap_or_else(|errno| Header { flags: Flags::ERROR, error: errno.raw_os_error() as u32, ..*header }.with_body(&[]));
        if header.flags.wants_reply() {
            self.shared.out().send(&bytes, &[])?;
        }
        Ok(())
    }
}

/// An error number as a server says it: one that there is.
fn errno(said: u32) -> Errno {
    let said = i32::try_from(said).ok().filter(|said| (1..4096).contains(said));
    said.map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests;
