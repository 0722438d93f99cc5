//! A connection, and an I/O queue over it: rings in memory on one side, a socket on the other.

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

/// Pieces of one `sendmsg`.
const PIECES: usize = 64;
/// `recv` calls of one poll that find bytes but no completion.
const READS: usize = 8;
/// Bytes of one `recv` at most.
pub(super) const ROOM: usize = 64 << 10;

/// The data of a command.
#[derive(Debug)]
pub(super) enum Payload {
    /// At this address of the pool, lent by the request.
    Pool(u64),
    /// Here: of a Connect, of a discovery log.
    Bytes(Vec<u8>),
}

/// The pool, as connections reach it.
#[derive(Debug)]
pub(super) struct PoolMemory(pub(super) DmaPool);

impl PayloadMemory for PoolMemory {
    type Buffer = Payload;

    // Memory that is not lent is refused. No command that is out has such.
    fn write(&self, buffer: &mut Payload, at: usize, bytes: &[u8]) -> bool {
        match buffer {
            Payload::Bytes(buffer) => ::tcp::Heap.write(buffer, at, bytes),
            Payload::Pool(addr) => self.0.dma_write(*addr + at as u64, bytes).is_ok(),
        }
    }

    fn digest(&self, buffer: &Payload, range: Range<usize>) -> Option<u32> {
        self.read(buffer, range).map(|bytes| ::tcp::digest(&bytes))
    }

    fn read(&self, buffer: &Payload, range: Range<usize>) -> Option<Vec<u8>> {
        match buffer {
            Payload::Bytes(bytes) => ::tcp::Heap.read(bytes, range),
            Payload::Pool(addr) => {
                let mut bytes = vec![0; range.len()];
                self.0.dma_read(*addr + range.start as u64, &mut bytes).is_ok().then_some(bytes)
            }
        }
    }
}

/// A connection that is up. The socket is non-blocking.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) initiator: Initiator<PoolMemory>,
    /// The poller reports when the socket can be written to.
    pub(super) watches_writes: bool,
}

impl Connection {
    /// Sends what there is, and has `poller` report when the rest can be sent.
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
        if wants != self.watches_writes {
            poller.watch_writes(&self.stream, key, wants)?;
            self.watches_writes = wants;
        }
        Ok(())
    }

    /// Receives once. `None`: there is nothing. The flag: there may be more.
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

    /// Ends the connection at once. What has not been sent is discarded, so that nothing of it
    /// arrives after the fence.
    pub(super) fn reset(self) {
        _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}

/// One `sendmsg` of what is to be sent.
pub(super) fn send(stream: &TcpStream, initiator: &Initiator<PoolMemory>) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let mut count = 0;
    for (piece, bytes) in pieces.iter_mut().zip(initiator.output().slices()) {
        *piece = IoSlice::new(bytes);
        count += 1;
    }
    // A peer that has gone is an error, not a signal.
    Ok(sendmsg(stream, &pieces[..count], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

/// Why a connection is over.
pub(super) fn violation(event: &InitiatorEvent<Payload>) -> Option<String> {
    let InitiatorEvent::Ended { term, by_controller } = event else { return None };
    let by = if *by_controller {
        "the target says that this host has broken"
    } else {
        "the target has broken"
    };
    Some(format!("{by} the protocol (FES {}, FEI {})", term.fes.0, term.fei))
}

/// An I/O queue.
pub(crate) struct TcpQueue {
    /// The queue's interrupt: it has the socket, and can be polled itself.
    poller: Poller,
    state: Mutex<QueueState>,
    /// The last `recv` was filled, so that there may be more.
    more: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    connection: Option<Connection>,
    rings: Option<QueueRings>,
}

/// The rings of a queue, and how far this side is.
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

    /// The next command before `tail`.
    pub(super) fn take(&mut self, tail: u32) -> Option<Sqe> {
        (self.head.slot() != tail).then(|| {
            let sqe = self.sq.load(self.head.slot());
            self.head.advance();
            sqe
        })
    }

    /// Posts an entry. There is always room: each command is completed once.
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

    /// What a thread that sleeps on this queue waits for.
    pub(crate) fn interrupt(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Whether the socket may have bytes that its poller will not report again.
    pub(crate) fn has_more(&self) -> bool {
        // Relaxed: a thread that polls has set it itself, or takes the lock of who has.
        self.more.load(Relaxed)
    }

    /// The queue is connected.
    pub(super) fn connect(&self, connection: Connection, rings: QueueRings) -> io::Result<()> {
        let mut state = self.state();
        self.poller.add(&connection.stream, 0)?;
        *state = QueueState { connection: Some(connection), rings: Some(rings) };
        Ok(())
    }

    /// Ends the connection at once. From here on nothing is sent, and neither buffers nor rings are
    /// accessed.
    pub(super) fn disconnect(&self) {
        if let Some(connection) = std::mem::take(&mut *self.state()).connection {
            connection.reset();
        }
    }

    /// Sends the commands before `tail`. `bytes` says how many bytes of data a command has.
    ///
    /// # Errors
    /// Why the connection is over.
    pub(super) fn submit(&self, tail: u32, bytes: impl Fn(&Sqe) -> u32) -> Result<(), String> {
        let mut state = self.state();
        // Without a connection the commands stay where they are: the reset that is due takes them
        // back.
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
        if sent.is_err() {
            state.connection.take().into_iter().for_each(Connection::reset);
        }
        sent
    }

    /// Receives, and posts completions. Whether the CQ is to be polled.
    ///
    /// # Errors
    /// Why the connection is over.
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

/// Receives until a command is over. Returns whether one is, and whether there may be more to
/// receive.
fn poll(
    connection: &mut Connection,
    poller: &Poller,
    mut done: impl FnMut(InitiatorEvent<Payload>),
) -> Result<(bool, bool), String> {
    let text = |error: io::Error| error.to_string();
    // Bytes that a full socket did not take before.
    if connection.watches_writes {
        connection.flush(poller, 0).map_err(text)?;
    }
    for _ in 0..READS {
        let Some(more) = connection.receive().map_err(text)? else { return Ok((false, false)) };
        let mut found = false;
        while let Some(event) = connection.initiator.poll() {
            if let Some(why) = violation(&event) {
                // H2CTermReq, as far as the socket takes it.
                _ = connection.flush(poller, 0);
                return Err(why);
            }
            found = true;
            done(event);
        }
        // R2Ts are answered at once.
        connection.flush(poller, 0).map_err(text)?;
        // A read that was not filled has emptied the socket: what comes later is reported.
        if found || !more {
            return Ok((found, more));
        }
    }
    Ok((false, true))
}

/// The buffer of a command of a ring, of this many bytes.
pub(super) fn payload(sqe: &Sqe, bytes: u32) -> Option<(Payload, u32)> {
    let addr =
        if sqe.flags & Sqe::PSDT_SGL != 0 { Descriptor::of(sqe.dptr()).addr } else { sqe.prp1 };
    (bytes > 0).then_some((Payload::Pool(addr), bytes))
}

/// Bytes of data of an I/O command as `rings` builds it: an SGL data block says how many. PRPs,
/// which it uses for short transfers, do not. `block_log2`: of a namespace.
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
