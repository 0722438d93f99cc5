//! The server: controllers at their sockets, and the thread that does it all.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use device::{Change, Script};
use hw::Poller;
use units::Nanos;

use super::event::ServeEvent;
use super::function::Function;
use super::outlet::{Outlet, Tell};
use super::place::SocketFault;
use crate::error::OpenError;
use crate::link::embedded::Member;
use crate::multipath::{self, MultipathUri};
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
    /// The script names a controller that there is not.
    #[error("the script names path {path}, and there are {paths}, counted from 0: one for each socket")]
    Path {
        /// The path that it names.
        path: usize,
        /// How many there are.
        paths: usize,
    },
    /// Each path is a controller at a socket of its own.
    #[error("the device has {paths} paths, and {sockets} sockets are named: each path takes one")]
    Sockets {
        /// How many paths there are.
        paths: usize,
        /// How many sockets.
        sockets: usize,
    },
    /// How paths are chosen, and how long requests wait for one, is the business of the host that has them.
    #[error(
        "`{parameter}` says how a host uses several paths, and each client of a server is a host of its own: leave it out here, and give it to the client"
    )]
    OfTheHost {
        /// The parameter.
        parameter: &'static str,
    },
    /// The thread cannot sleep.
    #[error("cannot wait for clients: {0}")]
    System(#[from] io::Error),
}

/// The poller's key of what ends the server; those of outlets are above.
const STOP: u64 = 0;

/// Steps of the controllers before the sockets get their turn.
const STEPS: usize = 16;
/// Looks at mapped doorbells for one reading of the clock, as long as nothing happens: a command begins so much too early at most.
const LOOKS: u32 = 8;
/// Unless something is due by then.
const SOON: Nanos = Nanos::from_micros(10);
/// For how long mapped doorbells are polled before the sockets get their turn, which is a system call.
const POLL: Nanos = Nanos::from_micros(100);

/// How soon a connection is accepted that could not be, for want of a descriptor: the poller reports it once.
const AGAIN: Nanos = Nanos::from_millis(100);

/// A device that waits for clients, or has some: one at each socket.
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
    outlets: Vec<Outlet>,
    poller: Poller,
    /// What is still to happen; it begins when the first client has come.
    script: Option<Script>,
    /// To be told when it runs.
    news: Vec<ServeEvent>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let clients = self.outlets.iter().filter(|outlet| outlet.has_client()).count();
        f.debug_struct("Server").field("outlets", &self.outlets.len()).field("clients", &clients).finish_non_exhaustive()
    }
}

impl Server {
    /// The controller of `uri`, with a socket at `path`. What `script` says happens to it, counted from when the first client has come.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn new(uri: &DeviceUri, path: &Path, script: Option<Script>) -> Result<Server, ServeError> {
        let script = checked(script.unwrap_or_default(), 1)?;
        let mut server = Server { outlets: Vec::new(), poller: Poller::new()?, script: Some(script), news: Vec::new() };
        server.add(Function::new(uri, None)?, uri.to_string(), path)?;
        server.tell_of_polls();
        Ok(server)
    }

    /// The controllers of one subsystem, with the namespaces that they share: path `n` at `sockets[n]`, each with clients of its own. Both the
    /// URI's script and `script` count from when the first client has come to any.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn with_paths(uri: &MultipathUri, sockets: &[PathBuf], script: Option<Script>) -> Result<Server, ServeError> {
        let paths = uri.paths.len();
        if sockets.len() != paths {
            return Err(ServeError::Sockets { paths, sockets: sockets.len() });
        }
        let node = uri.paths.iter().any(|path| path.node.is_some()).then_some("node");
        if let Some(&parameter) = uri.of_the_host.iter().chain(&node).next() {
            return Err(ServeError::OfTheHost { parameter });
        }
        let mut steps = uri.script.clone();
        steps.steps.extend(script.unwrap_or_default().steps);
        let script = checked(steps, paths)?;
        let mut server = Server { outlets: Vec::new(), poller: Poller::new()?, script: Some(script), news: Vec::new() };
        let mut subsystem = multipath::the_subsystem(&uri.paths)?;
        for (n, (path, socket)) in uri.paths.iter().zip(sockets).enumerate() {
            let member = Member { subsystem: &mut subsystem, ana: path.ana, controller: path.controller, path: n };
            let function = Function::new(multipath::of_this_process(path)?, Some(member))?;
            let outlet = server.add(function, path.text.clone(), socket)?;
            outlet.name(socket);
            if path.delay > Nanos::ZERO {
                outlet.change(Nanos::ZERO, Change::Delay(path.delay));
            }
        }
        server.tell_of_polls();
        Ok(server)
    }

    /// One more controller at a socket.
    fn add(&mut self, function: Function, device: String, socket: &Path) -> Result<&mut Outlet, ServeError> {
        let fault = |(path, fault)| ServeError::Socket { path, fault };
        let (outlet, stale) = Outlet::new(function, device.clone(), socket, self.outlets.len()).map_err(fault)?;
        outlet.listen_by(&self.poller)?;
        if stale {
            self.news.push(ServeEvent::TookOver(socket.to_owned()));
        }
        self.news.push(ServeEvent::Listening { socket: socket.to_owned(), device });
        Ok(self.outlets.push_mut(outlet))
    }

    fn tell_of_polls(&mut self) {
        if self.outlets.iter().any(Outlet::maps_doorbells) {
            self.news.push(ServeEvent::Polls);
        }
    }

    /// Serves one client after another at each socket until `stop` can be read from. It sleeps where there is nothing to do.
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
            for outlet in &mut self.outlets {
                outlet.look(&arrived, &self.poller, tell);
            }
            timeout = self.turn(tell);
            if self.outlets.iter().any(Outlet::keeps_waiting) {
                timeout = Some(timeout.map_or(AGAIN, |timeout| timeout.min(AGAIN)));
            }
        };
        self.poller.remove(&stop)?;
        done
    }

    /// Messages, then the controllers: at most how long nothing will happen by itself.
    fn turn(&mut self, tell: Tell<'_>) -> Option<Nanos> {
        let more = self.listen(tell);
        if self.outlets.iter().any(|outlet| outlet.has_client() && outlet.maps_doorbells()) {
            self.poll();
            self.lose_queues(tell);
            return Some(Nanos::ZERO);
        }
        let (mut worked, mut next) = (false, None);
        for _ in 0..STEPS {
            (worked, next) = self.step(hw::now());
            if !worked {
                break;
            }
        }
        // The last thing before a sleep: from here on a client that goes on tells, or has been seen.
        worked |= !more && !worked && self.outlets.iter_mut().fold(false, |moved, outlet| moved | outlet.arm());
        worked |= self.lose_queues(tell);
        // What came while a controller asked for memory, the poller does not report.
        worked |= self.outlets.iter().any(Outlet::has_waiting);
        if more || worked { Some(Nanos::ZERO) } else { next.map(|next| next - hw::now()) }
    }

    /// One step of each controller: whether one has worked, and when the next thing happens by itself.
    #[inline]
    fn step(&mut self, now: Nanos) -> (bool, Option<Nanos>) {
        let (mut worked, mut next) = (false, None);
        for outlet in &mut self.outlets {
            let step = outlet.step(now);
            worked |= step.worked;
            next = next.into_iter().chain(step.next).min();
        }
        (worked, next)
    }

    /// The controllers for a while, of whose doorbells nobody tells.
    fn poll(&mut self) {
        let mut now = hw::now();
        let (until, mut looks) = (now + POLL, 0);
        while now < until {
            let (worked, next) = self.step(now);
            looks += 1;
            // A look in vain costs less than the clock, which nobody needs before something is due.
            if worked || looks == LOOKS || next.is_some_and(|next| next - now < SOON) {
                (now, looks) = (hw::now(), 0);
            }
        }
    }

    /// Whether memory of a queue turned out to be gone. Tells of that, and of clients that do not give memory.
    fn lose_queues(&mut self, tell: Tell<'_>) -> bool {
        self.outlets.iter_mut().fold(false, |lost, outlet| {
            outlet.tell_of_silence(tell);
            lost | outlet.lose_queue(tell)
        })
    }

    /// Deals with what clients have sent. Whether there may be more.
    fn listen(&mut self, tell: Tell<'_>) -> bool {
        let more = self.outlets.iter_mut().fold(false, |more, outlet| more | outlet.listen(&self.poller, tell));
        if self.script.is_some() && self.outlets.iter().any(Outlet::had_client) {
            self.begin_script();
        }
        more
    }

    /// What the script says counts from now.
    fn begin_script(&mut self) {
        let now = hw::now();
        for step in self.script.take().into_iter().flat_map(|script| script.steps) {
            if let Some(outlet) = self.outlets.get_mut(step.path) {
                outlet.change(now + step.at, step.change);
            }
        }
    }
}

/// The script, if each controller that it names is there.
fn checked(script: Script, paths: usize) -> Result<Script, ServeError> {
    match script.steps.iter().find(|step| step.path >= paths) {
        Some(step) => Err(ServeError::Path { path: step.path, paths }),
        None => Ok(script),
    }
}
