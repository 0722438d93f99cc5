//! One client's session: version negotiation first, then requests, in order.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use rustix::io::Errno;
use vfio_user::{
    Capabilities, Command, Malformed, Message, Received, Reply, Request, Socket, SocketError,
    Version,
};

use super::connection::{ClientConnection, MAX_DATA};
use super::event::ServeEvent;
use super::function::{Function, Refusal};
use super::listener::no_room;

/// How many refused requests of one client are reported.
const TOLD: u32 = 8;

/// This side's capabilities.
const OURS: Capabilities = Capabilities {
    max_msg_fds: Socket::MAX_FDS as u64,
    max_data_xfer_size: MAX_DATA as u64,
    max_dma_maps: hw::GuestMemory::MAX_RANGES as u64,
};

/// A connected client.
pub(super) struct Session {
    connection: Rc<ClientConnection>,
    /// The version has been negotiated.
    agreed: bool,
    refused: u32,
}

/// Result of one read of the socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TurnResult {
    /// A message was handled.
    Message,
    /// No message is pending, or unsent responses have to go first.
    Nothing,
    /// The client has disconnected.
    End,
}

impl Session {
    pub(super) fn new(stream: UnixStream) -> std::io::Result<Session> {
        Ok(Session {
            connection: Rc::new(ClientConnection::new(stream)?),
            agreed: false,
            refused: 0,
        })
    }

    /// Whether the version has been negotiated.
    pub(super) fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// Connection for DMA messages.
    pub(super) fn connection(&self) -> &Rc<ClientConnection> {
        &self.connection
    }

    /// Handles the next message, if there is one.
    pub(super) fn turn(
        &mut self,
        function: &mut Function,
        tell: &mut dyn FnMut(ServeEvent),
    ) -> Result<TurnResult, SocketError> {
        match self.try_turn(function, tell) {
            // The client disconnected before it had read all responses, which is not necessarily an
            // error.
            Err(SocketError::System(error))
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                Ok(TurnResult::End)
            }
            turn => turn,
        }
    }

    fn try_turn(
        &mut self,
        function: &mut Function,
        tell: &mut dyn FnMut(ServeEvent),
    ) -> Result<TurnResult, SocketError> {
        // A client that does not read its replies gets no further requests executed, which bounds
        // the memory for replies.
        if !self.connection.flush()? {
            return Ok(TurnResult::Nothing);
        }
        match self.connection.receive()? {
            Received::End => Ok(TurnResult::End),
            Received::Nothing => Ok(TurnResult::Nothing),
            Received::Message(message) => {
                self.answer(message, function, tell).map(|()| TurnResult::Message)
            }
        }
    }

    fn answer(
        &mut self,
        message: Message<OwnedFd>,
        function: &mut Function,
        tell: &mut dyn FnMut(ServeEvent),
    ) -> Result<(), SocketError> {
        let Message { header, body, fds, lost_fds } = message;
        if header.flags.is_reply() {
            if self.connection.is_late(header.id) {
                return Ok(());
            }
            return Err(Malformed::UnexpectedReply { id: header.id }.into());
        }
        let command = Command::from_number(header.command);
        let unknown =
            || Refusal::new(Errno::NOTSUP, format!("command {} is not supported", header.command));
        let request = command.ok_or_else(unknown).and_then(|command| {
            Request::from_bytes(command, &body).map_err(|error| Refusal::new(Errno::INVAL, error))
        });
        // `agreed` is read before the request is handled, which may change it.
        let agreed = self.agreed;
        let reply = match &request {
            Err(_) => None,
            Ok(Request::Version(theirs)) if !agreed => Some(self.agree(theirs)),
            Ok(_) if !agreed => {
                Some(Err(Refusal::new(Errno::INVAL, "the first message is not VERSION")))
            }
            // Without its descriptor a request can mean something else: DMA_MAP without one
            // requests access by messages.
            Ok(_) if lost_fds => {
                let why = format!("descriptors of a message: {}", no_room(&Errno::MFILE.into()));
                Some(Err(Refusal::new(Errno::MFILE, why)))
            }
            Ok(request) => Some(function.answer(request, fds)),
        };
        let reply = match (reply, request) {
            (Some(reply), _) => reply,
            (None, Err(refusal)) => Err(refusal),
            (None, Ok(_)) => Err(Refusal::new(Errno::INVAL, "no answer")),
        };
        let mut bytes = match &reply {
            Ok(reply) => reply.to_bytes(&header),
            Err(refusal) => Reply::Error(refusal.errno).to_bytes(&header),
        };
        let hands_over = matches!(&reply, Ok(Reply::RegionInfo(info)) if info.has_descriptor());
        let mut refused = reply.err();
        let file = if hands_over { function.doorbell_file() } else { Ok(None) };
        let file = file.unwrap_or_else(|error| {
            bytes = Reply::Error(Errno::MFILE).to_bytes(&header);
            refused = Some(Refusal::new(
                Errno::MFILE,
                format!("a descriptor of the doorbells: {}", no_room(&error)),
            ));
            None
        });
        if let Some(refusal) = refused {
            // Only the first ones are reported in full, so that a client cannot fill the log.
            self.refused += 1;
            match self.refused {
                0..=TOLD => tell(ServeEvent::Refused(refusal.why)),
                n if n == TOLD + 1 => tell(ServeEvent::MoreRefused),
                _ => {}
            }
        }
        match file {
            _ if !header.flags.wants_reply() => Ok(()),
            Some(file) => self.connection.send(&bytes, &[file.as_fd()]),
            None => self.connection.send(&bytes, &[]),
        }
    }

    /// Version 0.0 is the lowest, which every client of major version 0 supports.
    fn agree(&mut self, theirs: &Version) -> Result<Reply<'static>, Refusal> {
        if theirs.major != 0 {
            let why = format!(
                "the client has version {}.{} of the protocol; this server supports 0.0",
                theirs.major, theirs.minor
            );
            return Err(Refusal::new(Errno::INVAL, why));
        }
        // From here on other requests are accepted. After a refused VERSION the client may try
        // again.
        self.agreed = true;
        self.connection.limit(theirs.capabilities.max_data_xfer_size);
        Ok(Reply::Version(Version { major: 0, minor: 0, capabilities: OURS }))
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
