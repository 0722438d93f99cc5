//! Reconnecting after a server has gone, to the same server or to another one that serves the same
//! device.
//!
//! ```text
//!   connection ends ─► thread "reap-reconnect": every 10 ms … 1 s
//!     connect ─► is the old controller stopped for sure? ─no─► try again
//!                  │ yes: same process, or the old one ended, or `quiet_at` has passed
//!                  ▼
//!     handshake ─► BAR0, stride, vectors as before? ─► map memory ─► replace the client
//!                                                              ─► ServerEvent::Back
//! ```
//!
//! Commands of a stopped controller can be sent again elsewhere. But that a new server's controller
//! is stopped says nothing about the old one's: its process may still run and write to our memory.
//! So a server is accepted only if it is the same process, if the old process has ended, or if so
//! much time has passed that a controller without keep-alive has stopped.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ::vfio_user::{CallError, Client, End};
use hw::{Process, Vectors};
use nvme::Vector;
use units::Nanos;

use super::handshake;
use super::remote::{RemoteController, ServerEvent, ServerProcess};
use crate::error::VfioUserError;
use crate::transport::registers::BusRegisters;

/// The pause between attempts doubles from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What a new connection takes over from the old one.
pub(in crate::transport) struct Reconnect {
    pub remote: Arc<RemoteController>,
    pub registers: Arc<BusRegisters>,
    pub vectors: Arc<Vectors>,
    /// When the old controller has stopped even if its process still runs; MAX: never known.
    pub quiet_at: Nanos,
}

/// Why an attempt failed.
#[derive(Debug)]
enum ReconnectFailure {
    /// No server is there.
    Absent,
    /// The server is not accepted, and why.
    Refused(String),
}

impl From<VfioUserError> for ReconnectFailure {
    fn from(fault: VfioUserError) -> ReconnectFailure {
        match fault {
            // The usual states of a restart: no message for each attempt.
            VfioUserError::NotFound(_) | VfioUserError::Busy => ReconnectFailure::Absent,
            // It went away during the handshake.
            VfioUserError::Server {
                source: CallError::Ended(End::Closed | End::ClosedHere),
                ..
            } => ReconnectFailure::Absent,
            fault => ReconnectFailure::Refused(fault.to_string()),
        }
    }
}

impl From<CallError> for ReconnectFailure {
    fn from(source: CallError) -> ReconnectFailure {
        VfioUserError::Server { what: "give it memory", source }.into()
    }
}

impl Reconnect {
    /// Starts a thread that tries until there is a connection or the task is stopped. Does nothing
    /// if one is running.
    pub(in crate::transport) fn begin(self) {
        if !self.remote.reconnect_task.begin() {
            return;
        }
        let remote = self.remote.clone();
        if let Err(error) =
            thread::Builder::new().name("reap-reconnect".into()).spawn(move || self.run())
        {
            tracing::warn!(%error, "the thread that connects to the server again could not be started; it is tried again");
            remote.reconnect_task.end();
        }
    }

    fn run(self) {
        // The thread that starts this one may be pinned to a CPU that it needs for polling.
        hw::clear_affinity();
        let (mut pause, mut reported) = (FIRST_PAUSE, String::new());
        while self.remote.reconnect_task.pause(pause) {
            match self.attempt() {
                Ok(()) => break,
                Err(ReconnectFailure::Absent) => {}
                // Reported once, not at every attempt.
                Err(ReconnectFailure::Refused(why)) if why == reported => {}
                Err(ReconnectFailure::Refused(why)) => {
                    self.remote.push_event(ServerEvent::Note(format!(
                        "{}: the server is not accepted: {why}",
                        self.remote.uri()
                    )));
                    reported = why;
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        // The next loss of the connection may start a thread again.
        self.remote.reconnect_task.end();
    }

    fn attempt(&self) -> Result<(), ReconnectFailure> {
        // No waiting for a full backlog: the loop waits anyway.
        let stream = handshake::connect(&self.remote.socket, Nanos::ZERO)?;
        self.remote.reconnect_task.set_attempt(&stream);
        let process = Process::peer_of(&stream).ok();
        // Before anything is sent: an unsuitable server must not be reset.
        self.check_process(process.as_ref())?;
        let client = handshake::negotiate(stream)?;
        handshake::set_up(&client, &mut Vec::new())?;
        self.check_unchanged(&client)?;
        let server =
            ServerProcess { process, messages: Some(handshake::enable_messages(&client)?) };
        self.remote.replace_client(client, server, |client, routes: &[Vector]| {
            Ok(handshake::signal(client, &self.vectors, routes)?)
        })
    }

    /// Checks that no command given to the old server can still be carried out once the new
    /// server's controller is stopped.
    fn check_process(&self, now: Option<&Process>) -> Result<(), ReconnectFailure> {
        let server = self.remote.server();
        let before = server.process.as_ref();
        let same_process = before.zip(now).is_some_and(|(before, now)| before.id() == now.id());
        if same_process || before.is_some_and(Process::has_ended) || hw::now() >= self.quiet_at {
            return Ok(());
        }
        let what = match before {
            Some(before) => {
                format!("process {}, the old server of this path, still runs, and may carry out the commands that it has", before.id())
            }
            None => "it is unknown whether the process that served before has ended: it is in a PID namespace of its own".to_owned(),
        };
        let until = if self.quiet_at == Nanos::MAX {
            "end it"
        } else {
            "end it, or wait until its keep-alive has run out"
        };
        Err(ReconnectFailure::Refused(format!("{what}; {until}")))
    }

    /// Checks what the driver cannot change after open: BAR0, doorbell stride and the number of
    /// vectors.
    fn check_unchanged(&self, client: &Client) -> Result<(), ReconnectFailure> {
        let bar = handshake::bar0(client, &mut Vec::new())?;
        let registers = self.registers.registers();
        let (stride, before) = (handshake::stride(client)?, registers.stride());
        // Doorbell addresses were computed from the stride at open.
        if stride != before {
            return Err(ReconnectFailure::Refused(format!(
                "its doorbells are 2^{} bytes apart, and were 2^{}",
                2 + stride,
                2 + before
            )));
        }
        let (interrupts, used) = (handshake::interrupts(client)?, self.vectors.len());
        // More vectors than before do no harm.
        if !interrupts.by_eventfd || interrupts.count < used.into() {
            return Err(ReconnectFailure::Refused(format!(
                "it has {} MSI-X vectors, and {used} are in use",
                interrupts.count
            )));
        }
        registers
            .renew(bar.bytes, bar.areas, self.remote.trusted)
            .map_err(ReconnectFailure::Refused)
    }
}

/// State that the reconnect thread shares with those that start and stop it.
#[derive(Debug, Default)]
pub(super) struct ReconnectTask {
    state: Mutex<ReconnectState>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct ReconnectState {
    /// The device is closed: no connection is wanted.
    stopped: bool,
    running: bool,
    /// The socket of the current attempt. Stopping shuts it down, so that the thread does not
    /// wait for a reply.
    attempt: Option<UnixStream>,
}

impl ReconnectTask {
    fn state(&self) -> MutexGuard<'_, ReconnectState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread is to be started now; true at most once until [`ReconnectTask::end`].
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        // Two tasks may see the loss of one connection: only one of them starts the thread.
        !state.stopped && !std::mem::replace(&mut state.running, true)
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        (state.running, state.attempt) = (false, None);
    }

    /// Whether a connection is still wanted. That cannot change while the result is held.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted(self.state())
    }

    /// Waits for `span`. False: stopped.
    pub(super) fn pause(&self, span: Duration) -> bool {
        let waited = self.stopped.wait_timeout_while(self.state(), span, |state| !state.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    /// Records the socket of an attempt, or shuts it down if the task was stopped before.
    pub(super) fn set_attempt(&self, stream: &UnixStream) {
        let mut state = self.state();
        // A clone: shutting it down ends the calls of the thread that uses the original.
        state.attempt = stream.try_clone().ok();
        if state.stopped {
            state.stop();
        }
    }

    /// Stops the task and interrupts its current attempt.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.stop();
        self.stopped.notify_all();
    }
}

/// See [`ReconnectTask::wanted`].
pub(super) struct Wanted<'a>(MutexGuard<'a, ReconnectState>);

impl Wanted<'_> {
    pub(super) fn get(&self) -> bool {
        !self.0.stopped
    }
}

impl ReconnectState {
    fn stop(&mut self) {
        if let Some(stream) = self.attempt.take() {
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
