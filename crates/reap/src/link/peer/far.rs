//! The controller's end in another process, as the threads of this one reach it: by messages, with a connection that they share.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ::vfio_user::{Access, CallError, Client, ClientMemory, End, Request, region, region_data};
use driver::{Answer, Asked, Ticket};
use hw::vfio::RegisterCalls;
use hw::{Chunk, DmaPool, EventFd, Pinner};
use nvme::{Status, Vector};

/// A controller that another process serves.
pub(crate) struct Peer {
    client: Arc<Client>,
    socket: PathBuf,
    /// Properties that were asked for and not answered yet.
    open: Mutex<BTreeMap<Ticket, driver::Access>>,
    /// The end of the connection has been told of.
    told: AtomicBool,
    /// Where the Message Control of MSI-X is, once its messages are on.
    messages: OnceLock<u64>,
}

/// The connection ends with it, however many have the client still: buffers that outlive their device keep no server.
impl Drop for Peer {
    fn drop(&mut self) {
        self.part();
    }
}

impl Peer {
    pub(super) fn new(client: Arc<Client>, socket: &Path) -> Peer {
        Peer { client, socket: socket.to_owned(), open: Mutex::default(), told: AtomicBool::new(false), messages: OnceLock::new() }
    }

    /// Messages of `vector` signal `signal` from now on.
    ///
    /// # Errors
    /// The server refuses, or is gone.
    pub(in crate::link) fn signal_from(&self, vector: Vector, signal: &EventFd) -> Result<(), CallError> {
        self.client.signal(vector.0.into(), &[signal.as_fd()])
    }

    /// From now on the server's DMA messages are served from what of the pool and its regions is lent.
    pub(super) fn serve(&self, pool: &DmaPool) {
        self.client.serve_memory(Arc::new(LentMemory(pool.clone())));
    }

    /// `told` is called when an answer has come, and when the connection ends.
    pub(in crate::link) fn tell(&self, told: Arc<dyn Fn() + Send + Sync>) {
        self.client.tell(told);
    }

    /// No message travels any more, and the server is told so by the end of the connection.
    pub(in crate::link) fn close(&self) {
        // Nobody is told of an end that was wanted.
        self.told.store(true, Ordering::Relaxed);
        self.part();
    }

    /// Messages are on from now on, by the Message Control at this offset of the configuration space.
    pub(super) fn sends_messages(&self, control: u64) {
        _ = self.messages.set(control);
    }

    /// The server's configuration space outlives its clients: one that comes next may give no eventfds, and SPDK's target fails a controller that
    /// has none for a message. The kernel leaves a drive's MSI-X off as well. No answer is wanted: nobody would be there.
    fn part(&self) {
        if let Some(&offset) = self.messages.get()
            && !self.client.is_over()
        {
            _ = self.client.post(&Request::RegionWrite(Access { offset, region: region::CONFIG, count: 2 }, &[0, 0]));
        }
        self.client.close();
    }

    /// What has happened to the connection and nobody was told of: a sentence.
    pub(in crate::link) fn news(&self) -> Option<String> {
        let end = self.client.is_over().then(|| self.client.ended()).flatten()?;
        (!self.told.swap(true, Ordering::Relaxed)).then(|| format!("vfio-user:{}: {end}; open the device again", self.socket.display()))
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Ticket, driver::Access>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an access to a property. Of a server that is gone all bits read as ones, as of a drive that was pulled out.
    pub(in crate::link) fn ask(&self, access: driver::Access) -> Asked {
        let (property, value) = match access {
            driver::Access::Get(property) => (property, None),
            driver::Access::Set(property, value) => (property, Some(value.to_le_bytes())),
        };
        let at = Access { offset: property.offset().into(), region: region::BAR0, count: property.width() };
        let asked = match &value {
            None => self.client.ask(&Request::RegionRead(at)),
            Some(bytes) => self.client.ask(&Request::RegionWrite(at, &bytes[..property.width() as usize])),
        };
        let Ok(ticket) = asked else { return Asked::Now(Ok(gone(access))) };
        let ticket = Ticket(ticket.0);
        self.open().insert(ticket, access);
        Asked::Later(ticket)
    }

    /// Answers that have come.
    pub(in crate::link) fn answers(&self) -> Vec<(Ticket, Answer)> {
        let mut answers = Vec::new();
        let mut open = self.open();
        for (ticket, answer) in self.client.fetch() {
            let ticket = Ticket(ticket.0);
            let Some(access) = open.remove(&ticket) else { continue };
            let answer = match answer {
                Ok((body, _)) => match value(access, &body) {
                    Ok(value) => Ok(value),
                    Err(malformed) => {
                        self.client.break_off(End::Malformed(malformed));
                        Ok(gone(access))
                    }
                },
                Err(errno) => {
                    tracing::warn!(%access, %errno, "the server refuses an access to a property");
                    Err(Status::INTERNAL_ERROR)
                }
            };
            answers.push((ticket, answer));
        }
        if self.client.is_over() {
            answers.extend(std::mem::take(&mut *open).into_iter().map(|(ticket, access)| (ticket, Ok(gone(access)))));
        }
        answers
    }
}

/// What is read where nothing is.
fn gone(access: driver::Access) -> u64 {
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

/// BAR0 where it is not mapped.
#[derive(Debug)]
pub(super) struct Bar0(pub(super) Arc<Client>);

impl RegisterCalls for Bar0 {
    fn load(&self, offset: u32) -> u32 {
        let mut word = [0xff; 4];
        match self.0.read(region::BAR0, offset.into(), &mut word) {
            Ok(()) => u32::from_le_bytes(word),
            Err(_) => u32::MAX,
        }
    }

    /// Nobody waits for it: a doorbell.
    #[inline]
    fn store(&self, offset: u32, value: u32) {
        self.0.post_write(region::BAR0, offset.into(), value);
    }
}

/// Makes memory known to servers: the one of a device, or those of all its paths.
#[derive(Debug)]
pub(super) struct Mapper(pub(super) Vec<Arc<Client>>);

impl Mapper {
    /// Servers that are there. One that is gone stands in nobody's way.
    fn there(&self) -> impl Iterator<Item = &Arc<Client>> {
        let alone = self.0.len() == 1;
        self.0.iter().filter(move |client| alone || !client.is_over())
    }
}

impl Pinner for Mapper {
    fn pin(&self, chunk: Chunk, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        let (file, offset) = file.ok_or_else(|| io::Error::other("no file stands behind it, and the device is another process's"))?;
        for (n, client) in self.there().enumerate() {
            match client.map(chunk.addr, chunk.bytes, file, offset) {
                Ok(()) => {}
                Err(_) if self.0.len() > 1 && client.is_over() => {}
                Err(error) => {
                    self.there().take(n).for_each(|client| unmap(client, chunk));
                    return Err(io::Error::other(error));
                }
            }
        }
        Ok(())
    }

    fn unpin(&self, chunk: Chunk) {
        self.0.iter().for_each(|client| unmap(client, chunk));
    }

    fn wants_file(&self) -> bool {
        true
    }

    /// All at once: nothing of it is touched by that.
    fn chunk_bytes(&self) -> u64 {
        u64::MAX
    }
}

fn unmap(client: &Client, chunk: Chunk) {
    if client.is_over() {
        return;
    }
    if let Err(error) = client.unmap(chunk.addr, chunk.bytes) {
        tracing::warn!(%error, addr = chunk.addr, bytes = chunk.bytes, "the server has not let go of memory");
    }
}

/// What the server's DMA messages reach.
struct LentMemory(DmaPool);

impl ClientMemory for LentMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.dma_read(address, into).is_ok()
    }

    fn write(&self, address: u64, from: &[u8]) -> bool {
        self.0.dma_write(address, from).is_ok()
    }
}
