//! vfio-user server: an event loop in one thread that serves one or more controllers, each at a
//! Unix socket.

use std::os::fd::AsFd;
use std::path::Path;

use hw::Poller;
use units::Nanos;

use super::endpoint::{Endpoint, Report};
use super::event::ServeEvent;
use super::function::Function;
use super::served::{ServeError, Served};
use crate::Script;

/// Poller key of the stop descriptor; endpoints have larger keys.
const STOP: u64 = 0;

/// Controller steps before the sockets are polled again.
const STEPS: usize = 16;
/// Empty polls of mapped doorbells per reading of the clock. A command found in between gets a
/// start time that is too early, by at most the duration of these polls.
const LOOKS: u32 = 8;
/// The clock is read at every poll if an event is due within this time.
const SOON: Nanos = Nanos::from_micros(10);
/// Time for which mapped doorbells are polled before the sockets are, which takes a system call.
const POLL: Nanos = Nanos::from_micros(100);

/// Retry interval of accept() after it failed for want of descriptors, as the poller reports a
/// pending connection once.
const AGAIN: Nanos = Nanos::from_millis(100);

/// A vfio-user server.
pub struct Server {
    endpoints: Vec<Endpoint>,
    poller: Poller,
    /// The script, until it starts with the first client.
    script: Option<Script>,
    /// Events from before [`Server::run`], to be reported by it.
    news: Vec<ServeEvent>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("endpoints", &self.endpoints.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server without controllers.
    ///
    /// # Errors
    /// The poller cannot be created.
    pub fn new() -> Result<Server, ServeError> {
        Ok(Server { endpoints: Vec::new(), poller: Poller::new()?, script: None, news: Vec::new() })
    }

    /// Adds a controller at a socket.
    ///
    /// # Errors
    /// The socket or its control socket cannot be created, or the subsystem has no room for the
    /// controller.
    pub fn add(&mut self, socket: &Path, served: Served<'_>) -> Result<(), ServeError> {
        let device = served.device.clone();
        let function = Function::new(served)?;
        let fault = |(path, fault)| ServeError::Socket { path, fault };
        let (endpoint, stale) =
            Endpoint::new(function, device.clone(), socket, self.endpoints.len()).map_err(fault)?;
        endpoint.add_to_poller(&self.poller)?;
        if stale {
            self.news.push(ServeEvent::TookOver(socket.to_owned()));
        }
        self.news.push(ServeEvent::Listening { socket: socket.to_owned(), device });
        self.endpoints.push(endpoint);
        Ok(())
    }

    /// Plays a script, whose time starts when the first client connects to any controller.
    ///
    /// # Errors
    /// A step names a controller that does not exist.
    pub fn play(&mut self, script: Script) -> Result<(), ServeError> {
        let paths = self.endpoints.len();
        if let Some(step) = script.steps.iter().find(|step| step.path >= paths) {
            return Err(ServeError::Path { path: step.path, paths });
        }
        self.script = Some(script);
        Ok(())
    }

    /// Serves each socket, one client at a time, until `stop` is readable. The thread sleeps when
    /// no controller has work.
    ///
    /// # Errors
    /// The poller failed.
    pub fn run(&mut self, stop: impl AsFd, report: Report<'_>) -> Result<(), ServeError> {
        self.news.drain(..).for_each(&mut *report);
        if self.endpoints.iter().any(|endpoint| endpoint.function.maps) {
            report(ServeEvent::Polls);
        }
        let several = self.endpoints.len() > 1;
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.is_named = several);
        // Timers fire when a command is due: the kernel's default slack of 50 µs would add to its
        // latency.
        _ = hw::set_timer_slack(Nanos(1));
        self.poller.add(&stop, STOP)?;
        let (mut arrived, mut timeout) = (Vec::new(), Some(Nanos::ZERO));
        let done = loop {
            if let Err(error) = self.poller.wait(timeout, &mut arrived) {
                break Err(error.into());
            }
            if arrived.contains(&STOP) {
                // Reports a client that disconnected before the stop.
                self.handle_messages(report);
                break Ok(());
            }
            for endpoint in &mut self.endpoints {
                endpoint.handle_events(&arrived, &self.poller, report);
            }
            timeout = self.turn(report);
            if self.endpoints.iter().any(Endpoint::must_retry_accept) {
                timeout = Some(timeout.map_or(AGAIN, |timeout| timeout.min(AGAIN)));
            }
        };
        self.poller.remove(&stop)?;
        done
    }

    /// One turn of the event loop: messages, then controllers. Returns the longest time to sleep;
    /// `None`: until the next socket event.
    fn turn(&mut self, report: Report<'_>) -> Option<Nanos> {
        let more = self.handle_messages(report);
        if self
            .endpoints
            .iter()
            .any(|endpoint| endpoint.session.is_some() && endpoint.function.maps)
        {
            self.poll();
            self.check_clients(report);
            // Mapped doorbells send no message, so the thread must not sleep while a client has
            // them.
            return Some(Nanos::ZERO);
        }
        let (mut worked, mut next) = (false, None);
        for _ in 0..STEPS {
            // Controllers are stepped several times per poll of the sockets: an epoll_wait per step
            // would cost more than the step.
            (worked, next) = self.step(hw::now());
            if !worked {
                break;
            }
        }
        // Last check before a sleep: once doorbells are armed, a client that rings one sends a
        // message; one that was rung before is seen here.
        worked |= !more
            && !worked
            && self.endpoints.iter_mut().fold(false, |moved, endpoint| {
                moved | endpoint.function.controller.arm_doorbells()
            });
        worked |= self.check_clients(report);
        // Messages that were queued while the controller waited for a DMA response are not reported
        // by the poller.
        worked |= self.endpoints.iter().any(Endpoint::has_waiting);
        if more || worked { Some(Nanos::ZERO) } else { next.map(|next| next - hw::now()) }
    }

    /// Steps each controller once. Returns whether one had work, and the time of the next
    /// controller event.
    #[inline]
    fn step(&mut self, now: Nanos) -> (bool, Option<Nanos>) {
        let (mut worked, mut next) = (false, None);
        for endpoint in &mut self.endpoints {
            let step = endpoint.function.controller.step(now);
            worked |= step.worked;
            next = next.into_iter().chain(step.next).min();
        }
        (worked, next)
    }

    /// Polls mapped doorbells for [`POLL`], as writes to them send no message.
    fn poll(&mut self) {
        let mut now = hw::now();
        let (until, mut looks) = (now + POLL, 0);
        while now < until {
            let (worked, next) = self.step(now);
            looks += 1;
            // An empty poll is cheaper than reading the clock, which is only needed when an event
            // may be due.
            if worked || looks == LOOKS || next.is_some_and(|next| next - now < SOON) {
                (now, looks) = (hw::now(), 0);
            }
        }
    }

    /// Fails controllers whose client has unmapped a queue's memory, and reports them and clients
    /// that do not answer DMA messages. Returns whether a controller has failed.
    fn check_clients(&mut self, report: Report<'_>) -> bool {
        self.endpoints.iter_mut().fold(false, |lost, endpoint| {
            endpoint.report_no_answer(report);
            lost | endpoint.fail_if_queue_lost(report)
        })
    }

    /// Handles the clients' messages. Returns whether more may be pending.
    fn handle_messages(&mut self, report: Report<'_>) -> bool {
        let more = self
            .endpoints
            .iter_mut()
            .fold(false, |more, endpoint| more | endpoint.handle_messages(&self.poller, report));
        if self.script.is_some() && self.endpoints.iter().any(|endpoint| endpoint.had_client) {
            self.begin_script();
        }
        more
    }

    /// Starts the script's time.
    fn begin_script(&mut self) {
        let now = hw::now();
        for step in self.script.take().into_iter().flat_map(|script| script.steps) {
            if let Some(endpoint) = self.endpoints.get_mut(step.path) {
                // All steps are scheduled at once; each controller applies its changes when they
                // are due.
                endpoint.function.controller.change(now + step.at, step.change);
            }
        }
    }
}
