//! The connection to a client, which carries requests both ways: the client's, and the controller's
//! for memory that came without a descriptor.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use units::Nanos;
use vfio_user::{DmaRequest, Message, Received, Socket, SocketError};

/// Bytes of one access at most, either way: more than any client needs.
pub(super) const MOST_DATA: u32 = 0x1_0000;

/// How long a client may take for an answer. The thread does nothing else until then.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// How long the thread waits for one client, in all, before it looks at the sockets again.
const TURN: Nanos = Nanos::from_secs(5);
/// Bytes of requests that may come before an answer does.
const MOST_WAITING: usize = 1 << 20;
/// What a request takes besides its body, and each of its descriptors, in terms of these bytes.
const REQUEST: usize = 64;
const DESCRIPTOR: usize = 4096;

/// One end of the connection. The session hears it, and the controller asks for memory by it.
pub(super) struct Connection {
    /// For the poller: the same as `inner`'s.
    stream: Arc<UnixStream>,
    inner: RefCell<Inner>,
}

struct Inner {
    socket: Socket,
    /// Requests that came while an answer was waited for, and their bytes.
    waiting: VecDeque<Message<OwnedFd>>,
    waiting_bytes: usize,
    /// The state of the connection after that.
    ended: Option<Result<Received, SocketError>>,
    /// Identifier of the last message that was sent.
    asked: u16,
    /// One that was not answered in time.
    late: Option<u16>,
    /// Bytes of memory that a message is about, at most.
    most: usize,
    client: Client,
    /// How long the thread has waited since it looked at the sockets.
    waited: Nanos,
}

/// What is known of how a client answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    New,
    /// As the specification has it.
    Answers,
    /// Not, or not in time: it is not asked again.
    GivenUp {
        told: bool,
    },
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Connection> {
        let stream = Arc::new(stream);
        // Header and access header, and data behind them; a SET_IRQS with a byte for each vector is
        // shorter.
        let socket = Socket::new(stream.clone(), MOST_DATA + 64)?;
        let inner = Inner {
            socket,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ended: None,
            asked: 0,
            late: None,
            most: MOST_DATA as usize,
            client: Client::New,
            waited: Nanos::ZERO,
        };
        Ok(Connection { stream, inner: RefCell::new(inner) })
    }

    /// The client takes messages about this many bytes.
    pub(super) fn limit(&self, bytes: u64) {
        self.inner.borrow_mut().most = bytes.clamp(1, MOST_DATA.into()) as usize;
    }

    /// The next message, if it is there.
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

    /// Whether there is something to hear that the poller knows nothing of.
    pub(super) fn has_waiting(&self) -> bool {
        let inner = self.inner.borrow();
        !inner.waiting.is_empty() || inner.ended.is_some()
    }

    /// Whether this is the answer that was waited for too long.
    pub(super) fn is_late(&self, id: u16) -> bool {
        self.inner.borrow_mut().late.take_if(|late| *late == id).is_some()
    }

    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        self.inner.borrow_mut().socket.send(bytes, fds)
    }

    /// Sends what waits, as far as the client takes it. Whether all of it has been sent.
    pub(super) fn flush(&self) -> Result<bool, SocketError> {
        self.inner.borrow_mut().socket.flush()
    }

    /// Whether something waits for the client to take it.
    pub(super) fn has_unsent(&self) -> bool {
        self.inner.borrow().socket.has_unsent()
    }

    /// Whether the client can be asked for its memory, as far as is known.
    pub(super) fn answers(&self) -> bool {
        let inner = self.inner.borrow();
        !matches!(inner.client, Client::GivenUp { .. }) && inner.ended.is_none()
    }

    /// Whether it has turned out, since this was asked last, that the client cannot be asked.
    pub(super) fn take_given_up(&self) -> bool {
        let client = &mut self.inner.borrow_mut().client;
        let news = *client == Client::GivenUp { told: false };
        if news {
            *client = Client::GivenUp { told: true };
        }
        news
    }

    /// Reads the client's memory by messages. False: it does not give all of it.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut inner = self.inner.borrow_mut();
        let most = inner.most;
        into.chunks_mut(most).enumerate().all(|(n, piece)| {
            let address = address + (n * most) as u64;
            inner.transfer(&DmaRequest::Read { address, count: piece.len() as u32 }, piece)
        })
    }

    /// Writes to it. False: the client does not take all of it.
    pub(super) fn write(&self, address: u64, from: &[u8]) -> bool {
        let mut inner = self.inner.borrow_mut();
        let most = inner.most;
        from.chunks(most).enumerate().all(|(n, data)| {
            let address = address + (n * most) as u64;
            inner.transfer(&DmaRequest::Write { address, data }, &mut [])
        })
    }
}

impl Inner {
    /// Asks, once it is known that the client answers as the specification has it. QEMU 11 does
    /// not: it leaves the range out of an answer to DMA_WRITE, and has data four bytes before their
    /// place. So the first message writes no bytes.
    fn transfer(&mut self, ask: &DmaRequest<'_>, into: &mut [u8]) -> bool {
        if self.client == Client::New {
            if !self.ask(&DmaRequest::Write { address: ask.range().0, data: &[] }, &mut []) {
                return false;
            }
            self.client = Client::Answers;
        }
        self.ask(ask, into)
    }

    /// Asks, and waits for the answer, with which `into` is filled. False: the client refuses,
    /// answers something else, or nothing in time.
    fn ask(&mut self, ask: &DmaRequest<'_>, into: &mut [u8]) -> bool {
        if matches!(self.client, Client::GivenUp { .. }) || self.ended.is_some() {
            return false;
        }
        self.asked = self.asked.wrapping_add(1);
        let begun = hw::now();
        let sent = self.socket.send(&ask.to_bytes(self.asked), &[]);
        let answer = sent.and_then(|()| self.answer(begun + PATIENCE.min(TURN - self.waited)));
        self.waited += hw::now() - begun;
        match answer {
            Ok(Some(message)) => self.take(ask, message, into),
            Ok(None) if self.ended.is_some() => false,
            Ok(None) => {
                self.late = Some(self.asked);
                self.give_up()
            }
            Err(error) => {
                self.ended = Some(Err(error));
                false
            }
        }
    }

    fn give_up(&mut self) -> bool {
        self.client = Client::GivenUp { told: false };
        false
    }

    /// Waits for an answer; requests that arrive before it are queued. `None`: none comes in time,
    /// or too much does before it, or the client has gone.
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
                    self.socket.flush()?;
                }
            }
            if hw::now() >= until || self.waiting_bytes > MOST_WAITING {
                return Ok(None);
            }
        }
    }

    /// An answer has come. One to what was not asked ends the connection, as it does at any other
    /// time.
    fn take(&mut self, ask: &DmaRequest<'_>, message: Message<OwnedFd>, into: &mut [u8]) -> bool {
        if message.header.id != self.asked || !ask.is_answered_by(&message.header) {
            self.waiting_bytes += weight(&message);
            self.waiting.push_back(message);
            return self.give_up();
        }
        match ask.read_answer(&message.header, &message.body) {
            Ok(Some(data)) => {
                into.copy_from_slice(data);
                true
            }
            Ok(None) => false,
            Err(_) => self.give_up(),
        }
    }
}

/// What a message that waits takes.
fn weight(message: &Message<OwnedFd>) -> usize {
    REQUEST + message.body.len() + message.fds.len() * DESCRIPTOR
}

/// What the poller looks at.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
