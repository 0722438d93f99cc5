//! A client: a connection to a server that many threads use, and a thread that hears what the server says.
//!
//! A request that is answered waits for its answer, with a deadline ([`Client::call`]), or the answer is fetched later ([`Client::ask`]). A write that
//! nobody waits for ([`Client::post_write`]) never blocks: where the socket takes nothing, the last value for each place is kept, and sent when there is
//! room. One thread receives, sends what was kept, and answers what the server asks of memory.

mod ear;
mod out;
mod shared;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self};
use std::time::{Duration, Instant};

use crate::answers::{self, Device, Interrupts, Region};
use crate::header::{Command, Flags};
use crate::irqs::{IrqAction, IrqData, SetIrqs};
use crate::request::{Access, DmaMap, DmaUnmap, Request};
use crate::socket::Socket;
use crate::version::{Capabilities, Version};
use crate::{irq, region};
use out::Out;
pub use shared::{Answer, CallError, ClientMemory, End, Ticket};
use shared::{Caller, Hooks, Shared};

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
    pub const MOST_DATA: u32 = shared::MOST_DATA;

    /// Agrees with the server of `stream` on version 0.0, the lowest of all, which each of major version 0 speaks. No answer is waited for
    /// longer than `patience`.
    ///
    /// # Errors
    /// The server speaks another protocol or another version of it, or none; or the system has no thread.
    pub fn new(stream: UnixStream, patience: Duration) -> Result<Client, CallError> {
        let system = |error: io::Error| End::System(error.to_string());
        let receiving = Socket::new(stream.try_clone().map_err(system)?, Client::MOST_DATA + 64).map_err(system)?;
        let sending = Socket::new(stream.try_clone().map_err(system)?, 0).map_err(system)?;
        let out = Out::new(sending).map_err(system)?;
        let wake = out.wake().map_err(system)?;
        let shared = Arc::new(Shared {
            out: Mutex::new(out),
            state: Mutex::default(),
            news: Condvar::new(),
            ended: AtomicBool::new(false),
            stream,
            ear: OnceLock::new(),
            patience,
        });
        let ear = ear::Ear::new(shared.clone(), receiving, wake);
        let thread = thread::Builder::new().name("reap-vfio-user".into()).spawn(move || ear.run()).map_err(system)?;
        _ = shared.ear.set(thread.thread().id());
        let client = Client(shared);
        client.agree()?;
        Ok(client)
    }

    fn agree(&self) -> Result<(), CallError> {
        let capabilities =
            Capabilities { max_msg_fds: Socket::MOST_FDS as u32, max_data_xfer_size: Client::MOST_DATA, ..Capabilities::default() };
        let (body, _) = self.call(&Request::Version(Version { major: 0, minor: 0, capabilities }), &[])?;
        let theirs = Version::from_bytes(&body)?;
        if theirs.major != 0 {
            return Err(CallError::Version { major: theirs.major, minor: theirs.minor });
        }
        self.0.state().server = theirs.capabilities;
        Ok(())
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
        self.0.state().hooks = Hooks::default();
    }

    /// From now on the server's DMA_READ and DMA_WRITE are served from this memory. Before, they are refused.
    pub fn serve_memory(&self, memory: Arc<dyn ClientMemory>) {
        let mut state = self.0.state();
        if state.end.is_none() {
            state.hooks.memory = Some(memory);
        }
    }

    /// From now on `told` is called, by some thread, when an answer can be fetched and when the connection ends.
    pub fn tell(&self, told: Arc<dyn Fn() + Send + Sync>) {
        self.0.state().hooks.late = Some(told);
    }

    /// Sends a request and waits for its answer. A server that does not answer in time is given up, and the connection with it. The thread that
    /// serves memory waits for nothing, and has an empty answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&self, request: &Request<'_>, fds: &[BorrowedFd<'_>]) -> Result<(Vec<u8>, Vec<OwnedFd>), CallError> {
        let command = request.command();
        let deadline = Instant::now() + self.0.patience;
        let is_ear = self.0.ear.get() == Some(&thread::current().id());
        let mut state = self.0.state();
        state.tickets += 1;
        let number = state.tickets;
        let id = state.begin(command, if is_ear { Caller::Nobody } else { Caller::Waits(number) })?;
        drop(state);
        self.send(&request.to_bytes(id, Flags::REQUEST), fds, deadline, command)?;
        if is_ear {
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
                let end = End::Silent(command, self.0.patience);
                self.0.end(end.clone());
                return Err(end.into());
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
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn device(&self) -> Result<Device, CallError> {
        let (body, _) = self.call(&Request::DeviceInfo, &[])?;
        Ok(Device::from_answer(&body)?)
    }

    /// What a region is, with the descriptors of its parts.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn region(&self, index: u32) -> Result<(Region, Vec<OwnedFd>), CallError> {
        let (body, fds) = self.call(&Request::RegionInfo { index, room: Region::MOST_BYTES }, &[])?;
        Ok((Region::from_answer(index, &body)?, fds))
    }

    /// What interrupts of a kind are.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn interrupts(&self, index: u32) -> Result<Interrupts, CallError> {
        let (body, _) = self.call(&Request::IrqInfo { index }, &[])?;
        Ok(Interrupts::from_answer(index, &body)?)
    }

    /// Bytes of a region, [`Client::MOST_DATA`] at most.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), CallError> {
        let access = Access { offset, region, count: into.len() as u32 };
        let (body, _) = self.call(&Request::RegionRead(access), &[])?;
        into.copy_from_slice(answers::region_data(&access, &body)?);
        Ok(())
    }

    /// Writes bytes to a region, [`Client::MOST_DATA`] at most.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), CallError> {
        let access = Access { offset, region, count: data.len() as u32 };
        self.call(&Request::RegionWrite(access, data), &[]).map(drop)
    }

    /// Memory appears at a bus address: of a file from `offset` on.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn map(&self, address: u64, bytes: u64, file: BorrowedFd<'_>, offset: u64) -> Result<(), CallError> {
        let map = DmaMap { readable: true, writable: true, offset, address, size: bytes };
        self.call(&Request::DmaMap(map), &[file]).map(drop)
    }

    /// Memory goes. Once this has returned the server has let go of it, if it keeps to the protocol.
    ///
    /// # Errors
    /// See [`CallError`].
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
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn reset(&self) -> Result<(), CallError> {
        self.call(&Request::DeviceReset, &[]).map(drop)
    }

    /// Bytes of the configuration space, as [`Client::read`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn read_config<const N: usize>(&self, offset: u64) -> Result<[u8; N], CallError> {
        let mut bytes = [0; N];
        self.read(region::CONFIG, offset, &mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
