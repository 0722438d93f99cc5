//! Connecting again to a server that has gone: the one of before, or another that serves the same device.
//!
//! A controller that is stopped carries out nothing more, and what was sent to it can be sent elsewhere. But that a new server's controller is stopped
//! says nothing of the old one's, whose process may live and write still. So a server is taken only where it is the same process, the old one has ended,
//! or so much time has passed that a controller without keep-alive has stopped.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ::vfio_user::{CallError, Client, End};
use hw::{Process, Vectors};
use nvme::Vector;
use units::Nanos;

use super::handshake;
use super::remote::{RemoteController, Server, ServerEvent};
use crate::error::PeerFault;
use crate::transport::registers::BusRegisters;

/// Between two tries: at first, and in the end.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What a new connection takes over.
pub(in crate::transport) struct Reconnect {
    pub remote: Arc<RemoteController>,
    pub registers: Arc<BusRegisters>,
    pub vectors: Arc<Vectors>,
    /// When a controller that nobody can ask after has come to rest; MAX: nobody knows.
    pub quiet_at: Nanos,
}

/// Why a try came to nothing.
#[derive(Debug)]
enum ReconnectFailure {
    /// Nobody is there, or no longer.
    Absent,
    /// Whoever is there is not taken: why.
    Refused(String),
}

impl From<PeerFault> for ReconnectFailure {
    fn from(fault: PeerFault) -> ReconnectFailure {
        match fault {
            PeerFault::NotFound(_) | PeerFault::Busy => ReconnectFailure::Absent,
            PeerFault::Server { source: CallError::Ended(End::Closed | End::Ours), .. } => ReconnectFailure::Absent,
            fault => ReconnectFailure::Refused(fault.to_string()),
        }
    }
}

impl From<CallError> for ReconnectFailure {
    fn from(source: CallError) -> ReconnectFailure {
        PeerFault::Server { what: "give it memory", source }.into()
    }
}

impl Reconnect {
    /// Has a thread try until there is a connection, or nobody wants one any more. Nothing where one tries already.
    pub(in crate::transport) fn begin(self) {
        if !self.remote.reconnect_task.begin() {
            return;
        }
        let remote = self.remote.clone();
        if let Err(error) = thread::Builder::new().name("reap-reconnect".into()).spawn(move || self.run()) {
            tracing::warn!(%error, "no thread connects to the server again; it is attempt anew");
            remote.reconnect_task.end();
        }
    }

    fn run(self) {
        hw::roam();
        let (mut pause, mut reported) = (FIRST_PAUSE, String::new());
        while self.remote.reconnect_task.pause(pause) {
            match self.attempt() {
                Ok(()) => break,
                Err(ReconnectFailure::Absent) => {}
                // Once, however often it is attempt.
                Err(ReconnectFailure::Refused(why)) if why == reported => {}
                Err(ReconnectFailure::Refused(why)) => {
                    self.remote.push_event(ServerEvent::Note(format!("{}: the server there is not taken: {why}", self.remote.uri())));
                    reported = why;
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        self.remote.reconnect_task.end();
    }

    fn attempt(&self) -> Result<(), ReconnectFailure> {
        let stream = handshake::connect(&self.remote.socket, Nanos::ZERO)?;
        self.remote.reconnect_task.set_attempt(&stream);
        let process = Process::behind(&stream).ok();
        self.check_process(process.as_ref())?;
        let client = handshake::negotiate(stream)?;
        handshake::set_up(&client, &mut Vec::new())?;
        self.check_unchanged(&client)?;
        let server = Server { process, messages: Some(handshake::enable_messages(&client)?) };
        self.remote.replace_client(client, server, |client, routes: &[Vector]| Ok(handshake::signal(client, &self.vectors, routes)?))
    }

    /// Whether nothing that the server of before was given is carried out any more once this one's controller is stopped.
    fn check_process(&self, now: Option<&Process>) -> Result<(), ReconnectFailure> {
        let server = self.remote.server();
        let before = server.process.as_ref();
        let is_it = before.zip(now).is_some_and(|(before, now)| before.id() == now.id());
        if is_it || before.is_some_and(Process::has_ended) || hw::now() >= self.quiet_at {
            return Ok(());
        }
        let what = match before {
            Some(before) => {
                format!("process {}, the old server of this path, still runs, and may carry out the commands that it has", before.id())
            }
            None => "nobody can say whether the process that served before has ended: it is in a PID namespace of its own".to_owned(),
        };
        let until = if self.quiet_at == Nanos::MAX { "end it" } else { "end it, or wait until its keep-alive has run out" };
        Err(ReconnectFailure::Refused(format!("{what}; {until}")))
    }

    /// What the driver above has once and for all: registers where they were, as many vectors.
    fn check_unchanged(&self, client: &Client) -> Result<(), ReconnectFailure> {
        let bar = handshake::bar0(client, &mut Vec::new())?;
        let registers = self.registers.registers();
        let (stride, before) = (handshake::stride(client)?, registers.stride());
        if stride != before {
            return Err(ReconnectFailure::Refused(format!("its doorbells are 2^{} bytes apart, and were 2^{}", 2 + stride, 2 + before)));
        }
        let (interrupts, used) = (handshake::interrupts(client)?, self.vectors.len());
        if !interrupts.by_eventfd || interrupts.count < used.into() {
            return Err(ReconnectFailure::Refused(format!("it has {} MSI-X vectors, and {used} are in use", interrupts.count)));
        }
        registers.renew(bar.bytes, bar.areas, self.remote.trusted).map_err(ReconnectFailure::Refused)
    }
}

/// What the thread that tries has in common with those that may stop it.
#[derive(Debug, Default)]
pub(super) struct ReconnectTask {
    state: Mutex<ReconnectState>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct ReconnectState {
    /// Nobody wants a connection any more.
    stopped: bool,
    running: bool,
    /// What is being attempt: it is shut down when nobody wants it any more, so that no answer is waited for.
    attempt: Option<UnixStream>,
}

impl ReconnectTask {
    fn state(&self) -> MutexGuard<'_, ReconnectState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to begin now: true once, until it has ended.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        !state.stopped && !std::mem::replace(&mut state.running, true)
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        (state.running, state.attempt) = (false, None);
    }

    /// Whether somebody wants a connection: it stays so for as long as this is held.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted(self.state())
    }

    /// Waits. False: nobody wants a connection any more.
    pub(super) fn pause(&self, span: Duration) -> bool {
        let waited = self.stopped.wait_timeout_while(self.state(), span, |state| !state.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    /// This is attempt next.
    pub(super) fn set_attempt(&self, stream: &UnixStream) {
        let mut state = self.state();
        state.attempt = stream.try_clone().ok();
        if state.stopped {
            state.stop();
        }
    }

    /// Nobody wants a connection any more.
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
