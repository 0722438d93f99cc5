//! A connection, and an I/O queue over it: SQ and CQ rings in memory on one side, a socket on the
//! other.
//!
//! ```text
//! submit: SQ ring [head..tail] ─► Initiator: capsules, H2CData ─► sendmsg ─► socket
//! poll:   CQ ring ◄─ CQE ◄─ Initiator: CapsuleResp, C2HData, R2T ◄─ recv ◄─ socket
//! ```

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::tcp::{Initiator, InitiatorEvent, PayloadMemory};
use hw::{CqRing, DmaPool, Poller, SqRing};
use nvme::fabrics::{Direction, direction_of};
use nvme::sgl::Descriptor;
use nvme::{CqSlots, Cqe, QueueId, RingIndex, SqSlots, Sqe, opcode};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// Most I/O vectors of one `sendmsg`.
const PIECES: usize = 64;
/// Most `recv` calls of one poll that complete no command: a poll must not run as long as a large
/// transfer.
const READS: usize = 8;
/// Bytes of a receive buffer of an I/O queue.
pub(super) const ROOM: usize = 64 << 10;

/// The data of a command.
#[derive(Debug)]
pub(super) enum Payload {
    /// At this address in the pool. The request lends the buffer until it completes.
    Pool(u64),
    /// Owned data: of Connect, and of the discovery log.
    Bytes(Vec<u8>),
}

/// Access of a connection to buffers in the pool.
#[derive(Debug)]
pub(super) struct PoolMemory(pub(super) DmaPool);

impl PayloadMemory for PoolMemory {
    type Buffer = Payload;

    // Memory that no request has lent is refused. Commands in flight never use such memory.
    fn write(&self, buffer: &mut Payload, at: usize, bytes: &[u8]) -> bool {
        match buffer {
            Payload::Bytes(buffer) => ::tcp::Heap.write(buffer, at, bytes),
            Payload::Pool(addr) => self.0.dma_write(*addr + at as u64, bytes).is_ok(),
        }
    }

    fn digest(&self, buffer: &Payload, range: Range<usize>) -> Option<u32> {
        let mut bytes = Vec::new();
        self.read(buffer, range, &mut bytes).then(|| ::tcp::digest(&bytes))
    }

    fn read(&self, buffer: &Payload, range: Range<usize>, into: &mut Vec<u8>) -> bool {
        match buffer {
            Payload::Bytes(bytes) => ::tcp::Heap.read(bytes, range, into),
            Payload::Pool(addr) => {
                into.resize(range.len(), 0);
                self.0.dma_read(*addr + range.start as u64, into).is_ok()
            }
        }
    }
}

/// An established connection with a non-blocking socket.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) initiator: Initiator<PoolMemory>,
    /// EPOLLOUT is enabled, since the socket buffer was full.
    pub(super) watches_writes: bool,
}

impl Connection {
    /// Sends all output. If the socket buffer is full, `poller` reports `key` when it is writable
    /// again.
    pub(super) fn flush(&mut self, poller: &Poller, key: u64) -> io::Result<()> {
        while self.initiator.output().left() > 0 {
            match send(&self.stream, &self.initiator) {
                Ok(n) => self.initiator.sent(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let wants = self.initiator.output().left() > 0;
        // EPOLLOUT is enabled only while output is left: an idle socket is always writable.
        if wants != self.watches_writes {
            poller.watch_writes(&self.stream, key, wants)?;
            self.watches_writes = wants;
        }
        Ok(())
    }

    /// One `recv`. `None`: no data. `Some(true)`: the buffer was filled, so there may be more.
    pub(super) fn receive(&mut self) -> io::Result<Option<bool>> {
        let room = self.initiator.room();
        let len = room.len();
        match (&self.stream).read(room) {
            Ok(0) => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the target has closed the connection",
            )),
            Ok(n) => {
                self.initiator.received(n);
                Ok(Some(n == len))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Closes the connection with a TCP reset. Data in the socket buffer are discarded: a command
    /// that arrived after the fence could overwrite newer data.
    pub(super) fn reset(self) {
        _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}

/// One `sendmsg` of the output. Returns the number of bytes sent.
pub(super) fn send(stream: &TcpStream, initiator: &Initiator<PoolMemory>) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let mut count = 0;
    for (piece, bytes) in pieces.iter_mut().zip(initiator.output().slices()) {
        *piece = IoSlice::new(bytes);
        count += 1;
    }
    // MSG_NOSIGNAL: a closed peer is EPIPE, not SIGPIPE.
    Ok(sendmsg(stream, &pieces[..count], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

/// The reason if `event` ends the connection: a protocol error of either side.
pub(super) fn violation(event: &InitiatorEvent<Payload>) -> Option<String> {
    let InitiatorEvent::Ended { term, by_controller } = event else { return None };
    let by = if *by_controller {
        "the target says that this host has broken"
    } else {
        "the target has broken"
    };
    Some(format!("{by} the protocol (FES {}, FEI {})", term.fes.0, term.fei))
}

/// An I/O queue over one connection.
pub(crate) struct TcpQueue {
    /// Epoll instance with the socket. Its descriptor is the queue's interrupt.
    poller: Poller,
    state: Mutex<QueueState>,
    /// The last poll left data in the socket, for which epoll reports no new event.
    more: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    connection: Option<Connection>,
    rings: Option<QueueRings>,
}

/// The rings of a queue, with the indices of this side: SQ head and CQ tail.
pub(super) struct QueueRings {
    id: QueueId,
    sq: SqRing,
    cq: CqRing,
    head: RingIndex,
    tail: RingIndex,
}

impl QueueRings {
    pub(super) fn new(
        id: QueueId,
        (sq, sq_entries): (SqRing, u32),
        (cq, cq_entries): (CqRing, u32),
    ) -> QueueRings {
        QueueRings {
            id,
            sq,
            cq,
            head: RingIndex::new(sq_entries),
            tail: RingIndex::new(cq_entries),
        }
    }

    /// The next SQE before `tail`; `None`: all were taken.
    pub(super) fn take(&mut self, tail: u32) -> Option<Sqe> {
        (self.head.slot() != tail).then(|| {
            let sqe = self.sq.load(self.head.slot());
            self.head.advance();
            sqe
        })
    }

    /// Posts a CQE. The CQ cannot overflow: it has an entry for each command.
    pub(super) fn post(&mut self, cqe: Cqe) {
        let cqe = Cqe { sq_id: self.id.0, sq_head: self.head.slot() as u16, ..cqe };
        self.cq.store(self.tail.slot(), &cqe.with_status(cqe.status(), self.tail.phase()));
        self.tail.advance();
    }
}

impl TcpQueue {
    pub(super) fn new() -> io::Result<TcpQueue> {
        Ok(TcpQueue {
            poller: Poller::new()?,
            state: Mutex::default(),
            more: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// File descriptor that becomes readable when the queue has work.
    pub(crate) fn interrupt(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Whether the socket may have data that the poller does not report again.
    pub(crate) fn has_more(&self) -> bool {
        // Relaxed: the polling thread has set it itself, or takes the lock of the thread that has.
        self.more.load(Relaxed)
    }

    /// Installs a new connection.
    ///
    /// # Errors
    /// The socket cannot be added to the epoll instance.
    pub(super) fn connect(&self, connection: Connection, rings: QueueRings) -> io::Result<()> {
        let mut state = self.state();
        self.poller.add(&connection.stream, 0)?;
        *state = QueueState { connection: Some(connection), rings: Some(rings) };
        Ok(())
    }

    /// Closes the connection. After that nothing is sent, and neither buffers nor rings are
    /// accessed.
    pub(super) fn disconnect(&self) {
        if let Some(connection) = std::mem::take(&mut *self.state()).connection {
            connection.reset();
        }
    }

    /// Sends the commands before `tail`. `bytes`: length of a command's data.
    ///
    /// # Errors
    /// Why the connection was closed.
    pub(super) fn submit(&self, tail: u32, bytes: impl Fn(&Sqe) -> u32) -> Result<(), String> {
        let mut state = self.state();
        // Without a connection the commands stay in the ring; the reset that follows fails or
        // retries them.
        let QueueState { connection: Some(connection), rings: Some(rings) } = &mut *state else {
            return Ok(());
        };
        let mut sent = Ok(());
        while let Some(sqe) = rings.take(tail) {
            if !connection.initiator.submit(sqe, payload(&sqe, bytes(&sqe))) {
                sent = Err("a command could not be sent".to_owned());
            }
        }
        let sent = sent
            .and_then(|()| connection.flush(&self.poller, 0).map_err(|error| error.to_string()));
        // Part of a PDU may have been sent, so the connection cannot be used any more.
        if sent.is_err() {
            state.connection.take().into_iter().for_each(Connection::reset);
        }
        sent
    }

    /// Receives, and posts completions. Returns whether the CQ should be polled.
    ///
    /// # Errors
    /// Why the connection was closed.
    pub(super) fn poll(&self) -> Result<bool, String> {
        let mut state = self.state();
        self.more.store(false, Relaxed);
        let QueueState { connection: Some(connection), rings: Some(rings) } = &mut *state else {
            return Ok(false);
        };
        let polled = poll(connection, &self.poller, |event| {
            if let InitiatorEvent::Completed { cqe, .. } = event {
                rings.post(cqe);
            }
        });
        match polled {
            Ok((found, more)) => {
                self.more.store(more, Relaxed);
                Ok(found || more)
            }
            Err(why) => {
                state.connection.take().into_iter().for_each(Connection::reset);
                Err(why)
            }
        }
    }
}

/// Receives until a command completes. Returns whether one has, and whether there may be more data.
fn poll(
    connection: &mut Connection,
    poller: &Poller,
    mut done: impl FnMut(InitiatorEvent<Payload>),
) -> Result<(bool, bool), String> {
    let text = |error: io::Error| error.to_string();
    // Output that did not fit into the socket buffer before.
    if connection.watches_writes {
        connection.flush(poller, 0).map_err(text)?;
    }
    for _ in 0..READS {
        let Some(more) = connection.receive().map_err(text)? else { return Ok((false, false)) };
        let mut found = false;
        while let Some(event) = connection.initiator.poll() {
            if let Some(why) = violation(&event) {
                // Send H2CTermReq if the socket buffer has room; errors no longer matter.
                _ = connection.flush(poller, 0);
                return Err(why);
            }
            found = true;
            done(event);
        }
        // Send data for R2Ts now: the target waits for them.
        connection.flush(poller, 0).map_err(text)?;
        // A partial read has emptied the socket, so epoll reports later data.
        if found || !more {
            return Ok((found, more));
        }
    }
    Ok((false, true))
}

/// Data buffer of a command in a ring, with its length; `None` without data.
pub(super) fn payload(sqe: &Sqe, bytes: u32) -> Option<(Payload, u32)> {
    let addr =
        if sqe.flags & Sqe::PSDT_SGL != 0 { Descriptor::of(sqe.dptr()).addr } else { sqe.prp1 };
    (bytes > 0).then_some((Payload::Pool(addr), bytes))
}

/// Length of the data of an I/O command that `rings` has built, in bytes. An SGL data block has a
/// length; PRPs, used for short transfers, do not, so it is computed from the command.
/// `block_log2`: log2 of the block size of a namespace.
pub(super) fn io_bytes(sqe: &Sqe, block_log2: impl Fn(u32) -> u8) -> u32 {
    if !matches!(direction_of(sqe), Direction::ToController | Direction::ToHost) {
        return 0;
    }
    if sqe.flags & Sqe::PSDT_SGL != 0 {
        return Descriptor::of(sqe.dptr()).len;
    }
    match sqe.opcode {
        opcode::io::READ | opcode::io::WRITE | opcode::io::COMPARE => {
            ((sqe.cdw12 & 0xffff) + 1) << block_log2(sqe.nsid)
        }
        opcode::io::DATASET_MANAGEMENT => nvme::io::DatasetManagement::from_sqe(sqe).bytes() as u32,
        _ => 0,
    }
}
