//! The server: a socket, at most one client, and the thread that does it all.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use device::{Order, Script};
use hw::{Interest, Poller};
use units::Nanos;

use super::control::{self, Control};
use super::event::ServeEvent;
use super::function::Function;
use super::place::{Place, SocketFault};
use super::session::{Heard, Session};
use crate::error::OpenError;
use crate::uri::DeviceUri;

/// Why a device cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The device cannot be had.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The socket cannot be had.
    #[error("socket {}: {fault}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// What is wrong and what to do.
        #[source]
        fault: SocketFault,
    },
    /// The script is for devices with several paths.
    #[error("the script names path {path}, and a device that is served has one: write `path 0`")]
    Path {
        /// The path that it names.
        path: usize,
    },
    /// The thread cannot sleep.
    #[error("cannot wait for clients: {0}")]
    System(#[from] io::Error),
}

const LISTENER: u64 = 0;
const CLIENT: u64 = 1;
const STOP: u64 = 2;
const CONTROL: u64 = 3;

/// Messages that are dealt with before the controller gets its turn.
const MESSAGES: usize = 16;
/// Steps of the controller before the socket gets its turn.
const STEPS: usize = 16;
/// For how long mapped doorbells are polled before the socket gets its turn, which is a system call.
const POLL: Nanos = Nanos::from_micros(100);

/// A device that waits for clients, or has one.
///
/// ```no_run
/// let uri = "mem:1G?profile=tlc".parse()?;
/// let mut server = reap::serve::Server::new(&uri, "/run/nvme.sock".as_ref(), None)?;
/// // Until a byte can be read from the other end of `stop`.
/// let (stop, _other) = std::os::unix::net::UnixStream::pair()?;
/// server.run(&stop, &mut |event| eprintln!("{event}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    function: Function,
    place: Place,
    control: Control,
    device: String,
    session: Option<Session>,
    poller: Poller,
    /// What is still to happen; it begins when the first client has come.
    script: Option<Script>,
    /// To be told when it runs.
    news: Vec<ServeEvent>,
    /// What the poller has been told to look for at the client's socket.
    interest: Interest,
    /// Commands that clients before this one have had completed, and doorbells that they rang by messages.
    before: (u64, u64),
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("place", &self.place).field("has_client", &self.session.is_some()).finish_non_exhaustive()
    }
}

impl Server {
    /// The controller of `uri`, with a socket at `path`. What `script` says happens to it, counted from when the first client has come.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn new(uri: &DeviceUri, path: &Path, script: Option<Script>) -> Result<Server, ServeError> {
        if let Some(step) = script.iter().flat_map(|script| &script.steps).find(|step| step.path != 0) {
            return Err(ServeError::Path { path: step.path });
        }
        let function = Function::new(uri)?;
        let (place, stale) = Place::take(path).map_err(|fault| ServeError::Socket { path: path.to_owned(), fault })?;
        let control = Control::beside(path).map_err(|fault| ServeError::Socket { path: control::path_of(path), fault })?;
        let poller = Poller::new()?;
        poller.add(&place.listener, LISTENER)?;
        poller.add(&control.place.listener, CONTROL)?;
        let mut news = Vec::new();
        if stale {
            news.push(ServeEvent::TookOver(path.to_owned()));
        }
        news.push(ServeEvent::Listening { socket: path.to_owned(), device: uri.to_string() });
        if function.maps_doorbells() {
            news.push(ServeEvent::Polls);
        }
        let device = uri.to_string();
        Ok(Server { function, place, control, device, session: None, poller, script, news, interest: Interest::READ, before: (0, 0) })
    }

    /// Serves one client after another until `stop` can be read from. It sleeps where there is nothing to do.
    ///
    /// # Errors
    /// The thread cannot sleep.
    pub fn run(&mut self, stop: impl AsFd, tell: &mut dyn FnMut(ServeEvent)) -> Result<(), ServeError> {
        self.news.drain(..).for_each(&mut *tell);
        // A command's time is that of its profile, not of timers that the kernel gathers.
        _ = hw::set_timer_slack(Nanos(1));
        self.poller.add(&stop, STOP)?;
        let (mut arrived, mut timeout) = (Vec::new(), Some(Nanos::ZERO));
        let done = loop {
            if let Err(error) = self.poller.wait(timeout, &mut arrived) {
                break Err(error.into());
            }
            if arrived.contains(&STOP) {
                // A client that went first is told of.
                self.listen(tell);
                break Ok(());
            }
            if arrived.contains(&LISTENER) {
                self.admit(tell);
            }
            if arrived.contains(&CONTROL) {
                self.control.admit(&self.poller);
            }
            for key in arrived.iter().filter(|key| **key >= control::CALLERS) {
                self.hear(*key, tell);
            }
            timeout = self.turn(tell);
        };
        self.poller.remove(&stop)?;
        done
    }

    /// Something came at the control socket.
    fn hear(&mut self, key: u64, tell: &mut dyn FnMut(ServeEvent)) {
        let Server { function, control, session, device, .. } = self;
        control.hear(key, |order| match order {
            Order::Fault(change) => function.try_change(change).map(|()| {
                tell(ServeEvent::Fault(change.to_string()));
                String::new()
            }),
            Order::Status => {
                let client = session.as_ref().map_or("none", |session| if session.is_agreed() { "attached" } else { "connected" });
                Ok(format!("device {device}\nclient {client}\n{}", function.status()))
            }
        });
    }

    /// Takes in a client, or sends it away.
    fn admit(&mut self, tell: &mut dyn FnMut(ServeEvent)) {
        while let Ok((stream, _)) = self.place.listener.accept() {
            // The client before may have gone first, and its end not been heard yet.
            self.listen(tell);
            if self.session.is_some() {
                tell(ServeEvent::Busy);
                continue;
            }
            let session = Session::new(stream).and_then(|session| self.poller.add(&session, CLIENT).map(|()| session));
            match self.function.attach().and(session) {
                Ok(session) => {
                    self.interest = Interest::READ;
                    self.session = Some(session);
                }
                Err(error) => tell(ServeEvent::Refused(format!("a connection: {error}"))),
            }
        }
    }

    /// Messages, then the controller: at most how long nothing will happen by itself.
    fn turn(&mut self, tell: &mut dyn FnMut(ServeEvent)) -> Option<Nanos> {
        let more = self.listen(tell);
        if self.function.maps_doorbells() && self.session.is_some() {
            self.poll(tell);
            return Some(Nanos::ZERO);
        }
        let (mut worked, mut next) = (false, None);
        for _ in 0..STEPS {
            let step = self.function.step(hw::now());
            (worked, next) = (step.worked, step.next);
            if !worked {
                break;
            }
        }
        // The last thing before a sleep: from here on a client that goes on tells, or has been seen.
        worked |= !more && !worked && self.function.arm();
        worked |= self.lose_queue(tell);
        if more || worked { Some(Nanos::ZERO) } else { next.map(|next| next - hw::now()) }
    }

    /// The controller for a while, of whose doorbells nobody tells.
    fn poll(&mut self, tell: &mut dyn FnMut(ServeEvent)) {
        let mut now = hw::now();
        let until = now + POLL;
        while now < until {
            self.function.step(now);
            now = hw::now();
        }
        self.lose_queue(tell);
    }

    /// Whether a queue's memory turned out to be gone.
    fn lose_queue(&mut self, tell: &mut dyn FnMut(ServeEvent)) -> bool {
        let lost = self.function.fail_without_queue();
        if lost {
            tell(ServeEvent::QueueLost);
        }
        lost
    }

    /// Deals with what the client has sent. Whether there may be more.
    fn listen(&mut self, tell: &mut dyn FnMut(ServeEvent)) -> bool {
        for _ in 0..MESSAGES {
            let Some(session) = &mut self.session else { return false };
            let agreed = session.is_agreed();
            let heard = session.turn(&mut self.function, tell);
            if !agreed && session.is_agreed() {
                tell(ServeEvent::Attached);
                self.begin_script();
            }
            match heard {
                Ok(Heard::Message) => {}
                Ok(Heard::Nothing) => {
                    self.look_for_room();
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

    /// Has the poller report when the client takes answers again, as long as some wait.
    fn look_for_room(&mut self) {
        let Some(session) = &self.session else { return };
        let interest = Interest { read: true, write: session.owes() };
        if interest != self.interest && self.poller.change(session, CLIENT, interest).is_ok() {
            self.interest = interest;
        }
    }

    /// What the script says counts from now.
    fn begin_script(&mut self) {
        let now = hw::now();
        for step in self.script.take().into_iter().flat_map(|script| script.steps) {
            self.function.change(now + step.at, step.change);
        }
    }

    fn detach(&mut self, why: Option<String>, tell: &mut dyn FnMut(ServeEvent)) {
        let Some(session) = self.session.take() else { return };
        // The descriptor leaves the poller with its last copy, which is this one.
        drop(session);
        self.function.detach();
        let (completed, doorbells) = (self.function.completed(), self.function.doorbells());
        tell(ServeEvent::Detached { why, commands: completed - self.before.0, doorbells: doorbells - self.before.1 });
        self.before = (completed, doorbells);
    }
}
