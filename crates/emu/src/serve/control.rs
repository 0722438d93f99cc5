//! Control socket of a server: fault injection and status while it runs.
//!
//! A client sends one line, an [`Order`], and reads the response until end of file. The first word
//! of the response is `ok`, or `refused:` followed by the reason.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hw::Poller;

use super::listener::{Listener, SocketFault};
use crate::Order;

/// Most clients at one time; one more replaces the oldest.
const MOST_CALLERS: usize = 8;
/// Most bytes of a request line, without its newline.
const MOST_LINE: usize = 1024;
/// Time that a client waits for the response.
const PATIENCE: Duration = Duration::from_secs(5);
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
    callers: Vec<Caller>,
    next: u64,
}

#[derive(Debug)]
struct Caller {
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
        Ok(Control { listener, callers: Vec::new(), next: (n as u64 + 1) << 32 })
    }

    /// Accepts pending clients.
    pub(super) fn admit(&mut self, poller: &Poller) {
        while let Ok(Some(stream)) = self.listener.accept() {
            let key = self.next;
            self.next += 1;
            if stream.set_nonblocking(true).and_then(|()| poller.add(&stream, key)).is_err() {
                continue;
            }
            if self.callers.len() == MOST_CALLERS {
                // The oldest one goes: a client that never sends its line must not lock out the
                // others.
                self.callers.remove(0);
            }
            self.callers.push(Caller { key, stream, line: Vec::new() });
        }
    }

    /// Reads a client's request. Once the line is complete `execute` returns the response, which is
    /// sent, and the connection is closed.
    pub(super) fn handle_request(
        &mut self,
        key: u64,
        execute: impl FnOnce(Order) -> Result<String, String>,
    ) {
        let Some(at) = self.callers.iter().position(|caller| caller.key == key) else { return };
        let Some(caller) = self.callers.get_mut(at) else { return };
        let line = match caller.read() {
            ReadResult::More => return,
            ReadResult::Line(line) => line,
            ReadResult::End => {
                self.callers.remove(at);
                return;
            }
        };
        let order = line.and_then(|line| line.parse::<Order>().map_err(|error| error.what));
        let answer = match order.and_then(execute) {
            Ok(more) => format!("{OK}{more}"),
            Err(why) => format!("{REFUSED}{why}\n"),
        };
        let mut caller = self.callers.remove(at);
        // The response fits in an empty socket buffer; if the client has closed the connection it
        // is dropped.
        _ = caller.stream.write_all(answer.as_bytes());
        _ = caller.stream.shutdown(Shutdown::Write);
    }
}

enum ReadResult {
    More,
    Line(Result<String, String>),
    End,
}

impl Caller {
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
                self.line.iter().position(|byte| *byte == b'\n').filter(|end| *end <= MOST_LINE)
            {
                let line = self.line.get(..end).unwrap_or_default().to_vec();
                return ReadResult::Line(
                    String::from_utf8(line).map_err(|_| "the line is not UTF-8".into()),
                );
            }
            if self.line.len() > MOST_LINE {
                return ReadResult::Line(Err(format!("a line has at most {MOST_LINE} bytes")));
            }
        }
    }
}

/// Why a request to a server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No server listens at this path.
    #[error("no server listens at {} (name what a running `reap serve` was given: the socket of --vfio-user, or the ADDR:PORT of --tcp): {source}", path.display())]
    NoServer {
        /// Path of the control socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another program listens there, or the server did not respond in time.
    #[error("{} is not a control socket of `reap serve`, or its server does not respond: {what}", path.display())]
    NoAnswer {
        /// Path of the socket.
        path: PathBuf,
        /// What was received instead of a response.
        what: String,
    },
    /// The server refused the request.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request, an [`Order`] in text form, to the server of this socket (the path that clients
/// connect to). Returns the response, which may be empty.
///
/// # Errors
/// See [`ControlError`].
pub fn ask(socket: &Path, order: &str) -> Result<String, ControlError> {
    let path = path_of(socket);
    let no_answer = |what: String| ControlError::NoAnswer { path: path.clone(), what };
    let line: String = order.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    let mut stream = UnixStream::connect(&path)
        .map_err(|source| ControlError::NoServer { path: path.clone(), source })?;
    let mut said = Vec::new();
    let asked = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.write_all(format!("{line}\n").as_bytes()))
        .and_then(|()| stream.take(1 << 16).read_to_end(&mut said));
    asked.map_err(|error| no_answer(error.to_string()))?;
    // Another program may have sent the text: control characters must not reach the terminal.
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    let said: String = String::from_utf8(said)
        .map_err(|_| no_answer("an answer that is not UTF-8".into()))?
        .chars()
        .map(shown)
        .collect();
    match (said.strip_prefix(OK), said.strip_prefix(REFUSED)) {
        (Some(answer), _) => Ok(answer.to_owned()),
        (None, Some(why)) => Err(ControlError::Refused(why.trim_end().to_owned())),
        (None, None) => Err(no_answer("another answer than it gives".into())),
    }
}
