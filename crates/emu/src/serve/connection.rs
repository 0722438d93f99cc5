//! Connection to a vfio-user client. Requests go both ways: the client sends region accesses, and
//! the controller DMA_READ and DMA_WRITE for memory that came without a descriptor.
//!
//! ```text
//!   client                          server
//!     │ REGION_WRITE, … ─────────────► │ queued in `waiting` while a DMA reply is awaited
//!     │ ◄──────── DMA_READ (address, n)│
//!     │ reply (n bytes) ─────────────► │ the only message that ends the wait
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use units::Nanos;
use vfio_user::{DmaRequest, Message, Received, Socket, SocketError};

/// Maximum bytes of one access, in either direction.
pub(super) const MAX_DATA: u32 = 0x1_0000;

/// Time that a client has to reply to a DMA message. The thread waits for the reply.
const REPLY_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Time that the thread may wait for one client in total before it polls the sockets again.
const TURN: Nanos = Nanos::from_secs(5);
/// Maximum bytes of requests that are queued while a reply is awaited.
const MAX_WAITING: usize = 1 << 20;
/// Bytes that are counted for each queued request, in addition to its body, and for each
/// descriptor.
const REQUEST: usize = 64;
const DESCRIPTOR: usize = 4096;

/// Connection state that the session and the controller share.
pub(super) struct ClientConnection {
    /// The same socket as in `inner`, for the poller.
    stream: Arc<UnixStream>,
    inner: RefCell<ConnectionState>,
}

struct ConnectionState {
    socket: Socket,
    /// Requests received while a reply was awaited.
    waiting: VecDeque<Message<OwnedFd>>,
    /// Sum of the `weight` of these requests.
    waiting_bytes: usize,
    /// Result of the connection's end, to be returned after `waiting`.
    ended: Option<Result<Received, SocketError>>,
    /// Message ID of the last message sent.
    asked: u16,
    /// Message ID of a request that timed out; its late reply is ignored.
    late: Option<u16>,
    /// Maximum bytes of memory per message, as the client negotiated.
    max_data: usize,
    client: ClientState,
    /// Time waited since the sockets were polled last.
    waited: Nanos,
}

/// Whether a client replies to DMA messages correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// No DMA message has been sent to the client yet.
    New,
    /// The client follows the specification.
    Answers,
    /// The client did not reply correctly or in time: no more messages are sent. `told`: this was
    /// reported.
    PermanentFailure { told: bool },
}

impl ClientConnection {
    pub(super) fn new(stream: UnixStream) -> io::Result<ClientConnection> {
        let stream = Arc::new(stream);
        // Header, access header and data. A SET_IRQS with a byte for each vector is shorter.
        let socket = Socket::new(stream.clone(), MAX_DATA + 64)?;
        let inner = ConnectionState {
            socket,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ended: None,
            asked: 0,
            late: None,
            max_data: MAX_DATA as usize,
            client: ClientState::New,
            waited: Nanos::ZERO,
        };
        Ok(ClientConnection { stream, inner: RefCell::new(inner) })
    }

    /// Sets the negotiated maximum bytes of memory per message.
    pub(super) fn limit(&self, bytes: u64) {
        self.inner.borrow_mut().max_data = bytes.clamp(1, MAX_DATA.into()) as usize;
    }

    /// Receives the next message, queued ones first.
    pub(super) fn receive(&self) -> Result<Received, SocketError> {
        let mut inner = self.inner.borrow_mut();
        inner.waited = Nanos::ZERO;
        if let Some(message) = inner.waiting.pop_front() {
            inner.waiting_bytes -= weight(&message);
            return Ok(Received::Message(message));
        }
        match inner.ended.take() {
            Some(ended) => ended,
            None => inner.socket.receive(),
        }
    }

    /// Whether a queued message exists that the poller does not report.
    pub(super) fn has_waiting(&self) -> bool {
        let inner = self.inner.borrow();
        !inner.waiting.is_empty() || inner.ended.is_some()
    }

    /// Whether this is the late reply to a request that timed out.
    pub(super) fn is_late(&self, id: u16) -> bool {
        self.inner.borrow_mut().late.take_if(|late| *late == id).is_some()
    }

    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        self.inner.borrow_mut().socket.send(bytes, fds)
    }

    /// Sends queued bytes. Returns whether all have been sent.
    pub(super) fn flush(&self) -> Result<bool, SocketError> {
        self.inner.borrow_mut().socket.flush()
    }

    /// Whether unsent bytes are queued.
    pub(super) fn has_unsent(&self) -> bool {
        self.inner.borrow().socket.has_unsent()
    }

    /// Whether DMA messages may be sent: the client is connected, and has replied to each so far.
    pub(super) fn answers(&self) -> bool {
        let inner = self.inner.borrow();
        !matches!(inner.client, ClientState::PermanentFailure { .. }) && inner.ended.is_none()
    }

    /// Whether the client has stopped replying since the last call.
    pub(super) fn take_given_up(&self) -> bool {
        let client = &mut self.inner.borrow_mut().client;
        let news = *client == ClientState::PermanentFailure { told: false };
        if news {
            *client = ClientState::PermanentFailure { told: true };
        }
        news
    }

    /// Reads client memory by DMA_READ. Returns false on failure.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut inner = self.inner.borrow_mut();
        let max = inner.max_data;
        into.chunks_mut(max).enumerate().all(|(n, piece)| {
            let address = address + (n * max) as u64;
            inner.transfer(&DmaRequest::Read { address, count: piece.len() as u32 }, piece)
        })
    }

    /// Writes client memory by DMA_WRITE. Returns false on failure.
    pub(super) fn write(&self, address: u64, from: &[u8]) -> bool {
        let mut inner = self.inner.borrow_mut();
        let max = inner.max_data;
        from.chunks(max).enumerate().all(|(n, data)| {
            let address = address + (n * max) as u64;
            inner.transfer(&DmaRequest::Write { address, data }, &mut [])
        })
    }
}

impl ConnectionState {
    /// Sends DMA messages, after a first DMA_WRITE of no bytes has shown that the client follows
    /// the specification. QEMU 11 does not: its reply to DMA_WRITE lacks the range, and it reads
    /// data four bytes too early.
    fn transfer(&mut self, ask: &DmaRequest<'_>, into: &mut [u8]) -> bool {
        if self.client == ClientState::New {
            if !self.ask(&DmaRequest::Write { address: ask.range().0, data: &[] }, &mut []) {
                return false;
            }
            self.client = ClientState::Answers;
        }
        self.ask(ask, into)
    }

    /// Sends a DMA message and waits for the reply, which fills `into`. Returns false if the client
    /// refuses, replies with something else, or times out.
    fn ask(&mut self, ask: &DmaRequest<'_>, into: &mut [u8]) -> bool {
        if matches!(self.client, ClientState::PermanentFailure { .. }) || self.ended.is_some() {
            return false;
        }
        // Each request has a new ID: a late reply to an earlier request must not be taken for the
        // reply to this one.
        self.asked = self.asked.wrapping_add(1);
        let begun = hw::now();
        let sent = self.socket.send(&ask.to_bytes(self.asked), &[]);
        let answer = sent.and_then(|()| self.answer(begun + REPLY_TIMEOUT.min(TURN - self.waited)));
        self.waited += hw::now() - begun;
        match answer {
            Ok(Some(message)) => self.take(ask, message, into),
            Ok(None) if self.ended.is_some() => false,
            Ok(None) => {
                // The reply may still come; it is ignored then instead of ending the connection.
                self.late = Some(self.asked);
                self.give_up()
            }
            Err(error) => {
                // The next `receive` reports the error; here only the data transfer fails.
                self.ended = Some(Err(error));
                false
            }
        }
    }

    fn give_up(&mut self) -> bool {
        self.client = ClientState::PermanentFailure { told: false };
        false
    }

    /// Waits for a reply and queues requests that arrive before it. `None` on a timeout, if too
    /// many bytes are queued, or if the client has disconnected.
    fn answer(&mut self, until: Nanos) -> Result<Option<Message<OwnedFd>>, SocketError> {
        loop {
            match self.socket.receive()? {
                Received::Message(message) if message.header.flags.is_reply() => {
                    return Ok(Some(message));
                }
                Received::Message(message) => {
                    self.waiting_bytes += weight(&message);
                    self.waiting.push_back(message);
                }
                Received::End => {
                    self.ended = Some(Ok(Received::End));
                    return Ok(None);
                }
                Received::Nothing => {
                    self.socket.wait((until - hw::now()).into())?;
                    // The client may itself wait for a reply that did not fit into its socket
                    // buffer.
                    self.socket.flush()?;
                }
            }
            if hw::now() >= until || self.waiting_bytes > MAX_WAITING {
                return Ok(None);
            }
        }
    }

    /// Handles a reply. A reply with an unexpected message ID ends the connection.
    fn take(&mut self, ask: &DmaRequest<'_>, message: Message<OwnedFd>, into: &mut [u8]) -> bool {
        if message.header.id != self.asked || !ask.is_answered_by(&message.header) {
            self.waiting_bytes += weight(&message);
            self.waiting.push_back(message);
            return self.give_up();
        }
        match ask.read_reply(&message.header, &message.body) {
            Ok(Some(data)) => {
                into.copy_from_slice(data);
                true
            }
            Ok(None) => false,
            Err(_) => self.give_up(),
        }
    }
}

/// Bytes that a queued message counts towards [`MAX_WAITING`].
fn weight(message: &Message<OwnedFd>) -> usize {
    REQUEST + message.body.len() + message.fds.len() * DESCRIPTOR
}

/// The descriptor for the poller.
impl AsFd for ClientConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
