//! One served controller: its listening socket, its client, and the clients of its control socket.

use std::path::{Path, PathBuf};

use hw::Poller;

use super::control::{self, Control};
use super::event::ServeEvent;
use super::function::Function;
use super::listener::{Listener, SocketFault, no_room};
use super::session::{Session, TurnResult};
use crate::ControlCommand;

/// Messages handled before the controller is stepped.
const MESSAGES: usize = 16;

/// Callback for events.
pub(super) type Report<'a> = &'a mut dyn FnMut(ServeEvent);

/// A controller at a socket.
pub(super) struct Endpoint {
    pub(super) function: Function,
    listener: Listener,
    control: Control,
    device: String,
    pub(super) session: Option<Session>,
    /// At least one client has connected and negotiated the version.
    pub(super) had_client: bool,
    /// Poller keys.
    keys: Keys,
    /// Write events are enabled: the poller reports when the client's socket becomes writable.
    watches_writes: bool,
    /// Commands completed and doorbell messages received for earlier clients.
    before: (u64, u64),
    /// Path of the socket.
    socket: PathBuf,
    /// Events carry the socket's path, as there are several controllers.
    pub(super) is_named: bool,
}

/// Poller keys of one endpoint.
#[derive(Clone, Copy, Debug)]
struct Keys {
    listener: u64,
    client: u64,
    control: u64,
}

impl Keys {
    /// Keys of endpoint `n`; smaller keys are the server's own.
    fn of(n: usize) -> Keys {
        let first = 4 * (n as u64 + 1);
        Keys { listener: first, client: first + 1, control: first + 2 }
    }
}

impl Endpoint {
    /// Creates endpoint `n` of a server at `socket`. The second value is true if the file of a
    /// server that has exited was replaced.
    ///
    /// # Errors
    /// The socket or its control socket cannot be created.
    pub(super) fn new(
        function: Function,
        device: String,
        socket: &Path,
        n: usize,
    ) -> Result<(Endpoint, bool), (PathBuf, SocketFault)> {
        let (listener, stale) =
            Listener::bind(socket).map_err(|fault| (socket.to_owned(), fault))?;
        let control =
            Control::for_socket(socket, n).map_err(|fault| (control::path_of(socket), fault))?;
        let keys = Keys::of(n);
        Ok((
            Endpoint {
                function,
                listener,
                control,
                device,
                session: None,
                had_client: false,
                keys,
                watches_writes: false,
                before: (0, 0),
                socket: socket.to_owned(),
                is_named: false,
            },
            stale,
        ))
    }

    /// Adds the listening sockets to the poller.
    pub(super) fn add_to_poller(&self, poller: &Poller) -> std::io::Result<()> {
        poller.add(&self.listener.listener, self.keys.listener)?;
        poller.add(&self.control.listener.listener, self.keys.control)
    }

    /// Fails the controller if a queue's memory was unmapped. Returns whether it was.
    pub(super) fn fail_if_queue_lost(&mut self, report: Report<'_>) -> bool {
        let lost = self.function.fail_without_queue();
        if lost {
            self.report(ServeEvent::QueueLost, report);
        }
        lost
    }

    /// Reports a client that did not reply to a DMA message.
    pub(super) fn report_no_answer(&self, report: Report<'_>) {
        if self.session.as_ref().is_some_and(|session| session.connection().take_given_up()) {
            self.report(ServeEvent::GivesNoMemory, report);
        }
    }

    fn report(&self, event: ServeEvent, report: Report<'_>) {
        report(self.named(event));
    }

    fn named(&self, event: ServeEvent) -> ServeEvent {
        if self.is_named {
            ServeEvent::At { socket: self.socket.clone(), event: Box::new(event) }
        } else {
            event
        }
    }

    /// Handles the poller's events for new clients and for the control socket. Messages of the
    /// client are handled elsewhere.
    pub(super) fn handle_events(&mut self, arrived: &[u64], poller: &Poller, report: Report<'_>) {
        if arrived.contains(&self.keys.listener) || self.listener.must_retry_accept {
            self.admit(poller, report);
        }
        if arrived.contains(&self.keys.control) || self.control.listener.must_retry_accept {
            self.control.admit(poller);
        }
        for key in arrived {
            self.handle_control(*key, report);
        }
    }

    /// Executes a command at the control socket, if the key belongs to one of its clients.
    fn handle_control(&mut self, key: u64, report: Report<'_>) {
        let Endpoint { function, control, session, device, .. } = self;
        let mut done = None;
        control.handle_input(key, |command| match command {
            ControlCommand::Fault(change) => function.try_change(change).map(|()| {
                done = Some(ServeEvent::Fault(change.to_string()));
                String::new()
            }),
            ControlCommand::Status => {
                let client = session.as_ref().map_or("none", |session| {
                    if session.is_agreed() { "attached" } else { "connected" }
                });
                Ok(format!("device {device}\nclient {client}\n{}", function.status()))
            }
        });
        if let Some(event) = done {
            self.report(event, report);
        }
    }

    /// Accepts a client, or rejects it if there is one already.
    fn admit(&mut self, poller: &Poller, report: Report<'_>) {
        let waited = self.listener.must_retry_accept;
        loop {
            let stream = match self.listener.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                Err(error) => {
                    if !waited {
                        self.report(ServeEvent::Waits(no_room(&error)), report);
                    }
                    break;
                }
            };
            // The previous client may have disconnected, which has not been read from its socket
            // yet.
            self.handle_messages(poller, report);
            // One client per controller, as a PCI function belongs to one driver.
            if self.session.is_some() {
                self.report(ServeEvent::Busy, report);
                continue;
            }
            let session = Session::new(stream)
                .and_then(|session| poller.add(&session, self.keys.client).map(|()| session));
            match session
                .and_then(|session| self.function.attach(session.connection()).map(|()| session))
            {
                Ok(session) => {
                    self.watches_writes = false;
                    self.session = Some(session);
                }
                Err(error) => {
                    self.report(ServeEvent::Refused(format!("a connection: {error}")), report)
                }
            }
        }
    }

    /// Whether a pending connection could not be accepted, so that accept() has to be retried.
    pub(super) fn must_retry_accept(&self) -> bool {
        self.listener.must_retry_accept || self.control.listener.must_retry_accept
    }

    /// Handles the client's messages. Returns whether more may be pending.
    pub(super) fn handle_messages(&mut self, poller: &Poller, report: Report<'_>) -> bool {
        for _ in 0..MESSAGES {
            let Some(session) = &mut self.session else { return false };
            // Events are collected and reported later, because the session borrows the endpoint.
            let agreed = session.is_agreed();
            let mut events = Vec::new();
            let result = session.turn(&mut self.function, &mut |event| events.push(event));
            let is_agreed = session.is_agreed();
            events.into_iter().for_each(|event| self.report(event, report));
            if !agreed && is_agreed {
                self.had_client = true;
                // The client is reported only after VERSION: before that the peer may be any
                // program.
                self.report(ServeEvent::Attached, report);
            }
            match result {
                Ok(TurnResult::Message) => {}
                Ok(TurnResult::Nothing) => {
                    self.update_write_watch(poller);
                    return false;
                }
                Ok(TurnResult::End) => {
                    self.detach(None, report);
                    return false;
                }
                Err(error) => {
                    self.detach(Some(error.to_string()), report);
                    return false;
                }
            }
        }
        true
    }

    /// Whether [`Endpoint::handle_messages`] has work that the poller does not report: messages
    /// that were received while the controller waited for a DMA response, or unsent bytes for which
    /// write events are not enabled yet. Once they are enabled, the next write event is waited for.
    pub(super) fn has_waiting(&self) -> bool {
        let connection = self.session.as_ref().map(Session::connection);
        connection.is_some_and(|connection| {
            !self.watches_writes && (connection.has_waiting() || connection.has_unsent())
        })
    }

    /// Enables the poller's write events while unsent bytes are queued, and disables them after.
    fn update_write_watch(&mut self, poller: &Poller) {
        let Some(session) = &self.session else { return };
        let watch = session.connection().has_unsent();
        if watch != self.watches_writes
            && poller.watch_writes(session, self.keys.client, watch).is_ok()
        {
            self.watches_writes = watch;
        }
    }

    fn detach(&mut self, why: Option<String>, report: Report<'_>) {
        let Some(session) = self.session.take() else { return };
        // The socket leaves the poller when its last descriptor is closed, so the controller's
        // reference has to be dropped too.
        drop(session);
        self.function.detach();
        let (completed, doorbells) =
            (self.function.controller.counters().completed, self.function.doorbells);
        self.report(
            ServeEvent::Detached {
                why,
                commands: completed - self.before.0,
                doorbells: doorbells - self.before.1,
            },
            report,
        );
        self.before = (completed, doorbells);
    }
}
