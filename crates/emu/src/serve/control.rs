//! Control socket of a server: fault injection and status while it runs.
//!
//! A client (`reap ctl`) sends one line, a [`ControlCommand`], and reads the reply until end of
//! file. The first word of the reply is `ok`, or `refused:` followed by the reason.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hw::Poller;

use super::listener::{Listener, SocketFault};
use crate::ControlCommand;

/// Maximum clients at one time; one more replaces the oldest.
const MAX_CLIENTS: usize = 8;
/// Maximum bytes of a command line, without its newline.
const MAX_LINE: usize = 1024;
/// Time that a client waits for the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const OK: &str = "ok\n";
const REFUSED: &str = "refused: ";

/// Path of the control socket that belongs to a server's socket.
pub(super) fn path_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".ctl");
    path.into()
}

/// Server side of the control socket.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) listener: Listener,
    clients: Vec<ControlClient>,
    /// Poller key of the next client.
    next_key: u64,
}

#[derive(Debug)]
struct ControlClient {
    key: u64,
    stream: UnixStream,
    line: Vec<u8>,
}

impl Control {
    /// Listens at the path that belongs to endpoint `n`'s socket, replacing the file of a server
    /// that has exited.
    pub(super) fn for_socket(socket: &Path, n: usize) -> Result<Control, SocketFault> {
        let (listener, _) = Listener::bind(&path_of(socket))?;
        // Each endpoint has its own range of keys in the poller.
        Ok(Control { listener, clients: Vec::new(), next_key: (n as u64 + 1) << 32 })
    }

    /// Accepts pending clients.
    pub(super) fn admit(&mut self, poller: &Poller) {
        while let Ok(Some(stream)) = self.listener.accept() {
            let key = self.next_key;
            self.next_key += 1;
            if stream.set_nonblocking(true).and_then(|()| poller.add(&stream, key)).is_err() {
                continue;
            }
            if self.clients.len() == MAX_CLIENTS {
                // The oldest client is dropped: one that never sends its line must not keep further
                // clients out.
                self.clients.remove(0);
            }
            self.clients.push(ControlClient { key, stream, line: Vec::new() });
        }
    }

    /// Reads from the client with this key, if there is one. Once its line is complete, `execute`
    /// executes the command and returns the reply, which is sent, and the connection is closed.
    pub(super) fn handle_input(
        &mut self,
        key: u64,
        execute: impl FnOnce(ControlCommand) -> Result<String, String>,
    ) {
        let Some(at) = self.clients.iter().position(|client| client.key == key) else { return };
        let Some(client) = self.clients.get_mut(at) else { return };
        let line = match client.read() {
            ReadResult::More => return,
            ReadResult::Line(line) => line,
            ReadResult::End => {
                self.clients.remove(at);
                return;
            }
        };
        let command =
            line.and_then(|line| line.parse::<ControlCommand>().map_err(|error| error.what));
        let reply = match command.and_then(execute) {
            Ok(more) => format!("{OK}{more}"),
            Err(why) => format!("{REFUSED}{why}\n"),
        };
        let mut client = self.clients.remove(at);
        // The reply fits in an empty socket buffer. It is lost if the client has closed the
        // connection.
        _ = client.stream.write_all(reply.as_bytes());
        _ = client.stream.shutdown(Shutdown::Write);
    }
}

enum ReadResult {
    More,
    Line(Result<String, String>),
    End,
}

impl ControlClient {
    /// Reads until the line is complete or no bytes are left.
    fn read(&mut self) -> ReadResult {
        let mut bytes = [0; 256];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return ReadResult::End,
                Ok(len) => self.line.extend(bytes.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return ReadResult::More,
                Err(_) => return ReadResult::End,
            }
            if let Some(end) =
                self.line.iter().position(|byte| *byte == b'\n').filter(|end| *end <= MAX_LINE)
            {
                let line = self.line.get(..end).unwrap_or_default().to_vec();
                return ReadResult::Line(
                    String::from_utf8(line).map_err(|_| "the line is not UTF-8".into()),
                );
            }
            if self.line.len() > MAX_LINE {
                return ReadResult::Line(Err(format!("a line has at most {MAX_LINE} bytes")));
            }
        }
    }
}

/// Why a control command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No server listens at this path.
    #[error("no server listens at {}: {source}; use the socket (--vfio-user) or the ADDR:PORT (--tcp) with which `reap serve` was started", path.display())]
    NoServer {
        /// Path of the control socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another program listens there, or the server did not reply in time.
    #[error("no valid reply from {}, which may not be a control socket of `reap serve`: {what}", path.display())]
    BadReply {
        /// Path of the socket.
        path: PathBuf,
        /// What went wrong, or what was received instead of a reply.
        what: String,
    },
    /// The server refused the command.
    #[error("{0}")]
    Refused(String),
}

/// Sends a [`ControlCommand`] in text form to a server, and returns the reply, which may be empty.
/// `socket`: the server's vfio-user socket; its control socket is that path with `.ctl` appended.
///
/// # Errors
/// See [`ControlError`].
pub fn ask(socket: &Path, command: &str) -> Result<String, ControlError> {
    let path = path_of(socket);
    let bad_reply = |what: String| ControlError::BadReply { path: path.clone(), what };
    let line: String = command.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    let mut stream = UnixStream::connect(&path)
        .map_err(|source| ControlError::NoServer { path: path.clone(), source })?;
    let mut reply = Vec::new();
    let exchanged = stream
        .set_read_timeout(Some(REPLY_TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(REPLY_TIMEOUT)))
        .and_then(|()| stream.write_all(format!("{line}\n").as_bytes()))
        .and_then(|()| stream.take(1 << 16).read_to_end(&mut reply));
    exchanged.map_err(|error| bad_reply(error.to_string()))?;
    // Another program may have sent the text: control characters must not reach the terminal.
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    let reply: String = String::from_utf8(reply)
        .map_err(|_| bad_reply("the reply is not UTF-8".into()))?
        .chars()
        .map(shown)
        .collect();
    match (reply.strip_prefix(OK), reply.strip_prefix(REFUSED)) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(why)) => Err(ControlError::Refused(why.trim_end().to_owned())),
        (None, None) => Err(bad_reply("the reply starts with neither `ok` nor `refused:`".into())),
    }
}
