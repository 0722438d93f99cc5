//! One controller that is served: its socket, its client if it has one, and who meddles with it.

use std::path::{Path, PathBuf};

use device::{Change, Order, Step};
use hw::{Interest, Poller};
use units::Nanos;

use super::control::{self, Control};
use super::event::ServeEvent;
use super::function::Function;
use super::place::{Place, SocketFault, no_room};
use super::session::{Heard, Session};

/// Messages that are dealt with before the controller gets its turn.
const MESSAGES: usize = 16;

/// Whoever is told of what happens.
pub(super) type Tell<'a> = &'a mut dyn FnMut(ServeEvent);

/// A controller at a socket.
pub(super) struct Outlet {
    function: Function,
    place: Place,
    control: Control,
    device: String,
    session: Option<Session>,
    /// One has come, and agreed on what is spoken.
    had_client: bool,
    /// Its keys in the poller.
    keys: Keys,
    /// What the poller has been told to look for at the client's socket.
    interest: Interest,
    /// Commands that clients before this one have had completed, and doorbells that they rang by messages.
    before: (u64, u64),
    /// Where it is, for events to name, if there are several.
    socket: Option<PathBuf>,
}

/// What the poller knows of one outlet.
#[derive(Clone, Copy, Debug)]
struct Keys {
    listener: u64,
    client: u64,
    control: u64,
}

impl Keys {
    /// Of outlet `n`. Smaller ones are the server's own.
    fn of(n: usize) -> Keys {
        let first = 4 * (n as u64 + 1);
        Keys { listener: first, client: first + 1, control: first + 2 }
    }
}

impl Outlet {
    /// A controller at `socket`, outlet `n` of a server. Whether the file of a server that is gone was replaced.
    ///
    /// # Errors
    /// The socket, or the control socket, at this path cannot be had.
    pub(super) fn new(function: Function, device: String, socket: &Path, n: usize) -> Result<(Outlet, bool), (PathBuf, SocketFault)> {
        let (place, stale) = Place::take(socket).map_err(|fault| (socket.to_owned(), fault))?;
        let control = Control::beside(socket, n).map_err(|fault| (control::path_of(socket), fault))?;
        let (keys, interest) = (Keys::of(n), Interest::READ);
        Ok((
            Outlet { function, place, control, device, session: None, had_client: false, keys, interest, before: (0, 0), socket: None },
            stale,
        ))
    }

    /// Events say from now on at which socket they were.
    pub(super) fn name(&mut self, socket: &Path) {
        self.socket = Some(socket.to_owned());
    }

    /// The poller looks for clients and callers.
    pub(super) fn listen_by(&self, poller: &Poller) -> std::io::Result<()> {
        poller.add(&self.place.listener, self.keys.listener)?;
        poller.add(&self.control.place.listener, self.keys.control)
    }

    /// Whether it has a client.
    pub(super) fn has_client(&self) -> bool {
        self.session.is_some()
    }

    /// Whether a client may ring it without a message, so that it has to be stepped all the time.
    pub(super) fn maps_doorbells(&self) -> bool {
        self.function.maps_doorbells()
    }

    /// Something happens to the controller at an instant.
    pub(super) fn change(&mut self, at: Nanos, change: Change) {
        self.function.change(at, change);
    }

    /// Lets the controller work.
    #[inline]
    pub(super) fn step(&mut self, now: Nanos) -> Step {
        self.function.step(now)
    }

    /// Before the thread sleeps: whether the client has gone on meanwhile, so that it must not.
    pub(super) fn arm(&mut self) -> bool {
        self.function.arm()
    }

    /// Whether a queue's memory turned out to be gone, which is the controller's failure.
    pub(super) fn lose_queue(&mut self, tell: Tell<'_>) -> bool {
        let lost = self.function.fail_without_queue();
        if lost {
            self.tell(ServeEvent::QueueLost, tell);
        }
        lost
    }

    /// Tells of a client that the controller has asked for memory in vain.
    pub(super) fn tell_of_silence(&self, tell: Tell<'_>) {
        if self.session.as_ref().is_some_and(|session| session.connection().take_given_up()) {
            self.tell(ServeEvent::GivesNoMemory, tell);
        }
    }

    fn tell(&self, event: ServeEvent, tell: Tell<'_>) {
        match &self.socket {
            None => tell(event),
            Some(socket) => tell(ServeEvent::At { socket: socket.clone(), event: Box::new(event) }),
        }
    }

    /// Clients and callers that the poller has seen come, and what callers say.
    pub(super) fn look(&mut self, arrived: &[u64], poller: &Poller, tell: Tell<'_>) {
        if arrived.contains(&self.keys.listener) || self.place.keeps_waiting {
            self.admit(poller, tell);
        }
        if arrived.contains(&self.keys.control) || self.control.place.keeps_waiting {
            self.control.admit(poller);
        }
        for key in arrived {
            self.hear(*key, tell);
        }
    }

    /// Something came at the control socket, if the key is that of a caller there.
    fn hear(&mut self, key: u64, tell: Tell<'_>) {
        let Outlet { function, control, session, device, .. } = self;
        let mut done = None;
        control.hear(key, |order| match order {
            Order::Fault(change) => function.try_change(change).map(|()| {
                done = Some(ServeEvent::Fault(change.to_string()));
                String::new()
            }),
            Order::Status => {
                let client = session.as_ref().map_or("none", |session| if session.is_agreed() { "attached" } else { "connected" });
                Ok(format!("device {device}\nclient {client}\n{}", function.status()))
            }
        });
        if let Some(event) = done {
            self.tell(event, tell);
        }
    }

    /// Takes in a client, or sends it away.
    fn admit(&mut self, poller: &Poller, tell: Tell<'_>) {
        let waited = self.place.keeps_waiting;
        loop {
            let stream = match self.place.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                Err(error) => {
                    if !waited {
                        self.tell(ServeEvent::Waits(no_room(&error)), tell);
                    }
                    break;
                }
            };
            // The client before may have gone first, and its end not been heard yet.
            self.listen(poller, tell);
            if self.session.is_some() {
                self.tell(ServeEvent::Busy, tell);
                continue;
            }
            let session = Session::new(stream).and_then(|session| poller.add(&session, self.keys.client).map(|()| session));
            match session.and_then(|session| self.function.attach(session.connection()).map(|()| session)) {
                Ok(session) => {
                    self.interest = Interest::READ;
                    self.session = Some(session);
                }
                Err(error) => self.tell(ServeEvent::Refused(format!("a connection: {error}")), tell),
            }
        }
    }

    /// Whether someone has connected and could not be accepted yet, so that it has to be tried again.
    pub(super) fn keeps_waiting(&self) -> bool {
        self.place.keeps_waiting || self.control.place.keeps_waiting
    }

    /// Deals with what the client has sent. Whether there may be more.
    pub(super) fn listen(&mut self, poller: &Poller, tell: Tell<'_>) -> bool {
        for _ in 0..MESSAGES {
            let Some(session) = &mut self.session else { return false };
            let agreed = session.is_agreed();
            let socket = &self.socket;
            let heard = session.turn(&mut self.function, &mut |event| match socket {
                None => tell(event),
                Some(socket) => tell(ServeEvent::At { socket: socket.clone(), event: Box::new(event) }),
            });
            if !agreed && session.is_agreed() {
                self.had_client = true;
                self.tell(ServeEvent::Attached, tell);
            }
            match heard {
                Ok(Heard::Message) => {}
                Ok(Heard::Nothing) => {
                    self.look_for_room(poller);
                    return false;
                }
                Ok(Heard::End) => {
                    self.detach(None, tell);
                    return false;
                }
                Err(error) => {
                    self.detach(Some(error.to_string()), tell);
                    return false;
                }
            }
        }
        true
    }

    /// Whether a client has come so far.
    pub(super) fn had_client(&self) -> bool {
        self.had_client
    }

    /// Whether the client has sent something, while the controller asked it for memory, that the poller does not report.
    pub(super) fn has_waiting(&self) -> bool {
        let connection = self.session.as_ref().map(Session::connection);
        connection.is_some_and(|connection| !self.interest.write && (connection.has_waiting() || connection.owes()))
    }

    /// Has the poller report when the client takes answers again, as long as some wait.
    fn look_for_room(&mut self, poller: &Poller) {
        let Some(session) = &self.session else { return };
        let interest = Interest { read: true, write: session.connection().owes() };
        if interest != self.interest && poller.change(session, self.keys.client, interest).is_ok() {
            self.interest = interest;
        }
    }

    fn detach(&mut self, why: Option<String>, tell: Tell<'_>) {
        let Some(session) = self.session.take() else { return };
        // The connection leaves the poller with its last descriptor. The controller lets go of it too.
        drop(session);
        self.function.detach();
        let (completed, doorbells) = (self.function.completed(), self.function.doorbells());
        self.tell(ServeEvent::Detached { why, commands: completed - self.before.0, doorbells: doorbells - self.before.1 }, tell);
        self.before = (completed, doorbells);
    }
}
