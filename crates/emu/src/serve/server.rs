//! The server: controllers at their sockets, and the thread that does it all.

use std::os::fd::AsFd;
use std::path::Path;

use hw::Poller;
use units::Nanos;

use super::endpoint::{Endpoint, Report};
use super::event::ServeEvent;
use super::function::Function;
use super::served::{ServeError, Served};
use crate::Script;

/// The poller's key of what ends the server; those of endpoints are above.
const STOP: u64 = 0;

/// Steps of the controllers before the sockets get their turn.
const STEPS: usize = 16;
/// Looks at mapped doorbells for one reading of the clock, as long as nothing happens: a command
/// begins so much too early at most.
const LOOKS: u32 = 8;
/// Unless something is due by then.
const SOON: Nanos = Nanos::from_micros(10);
/// For how long mapped doorbells are polled before the sockets get their turn, which is a system
/// call.
const POLL: Nanos = Nanos::from_micros(100);

/// How soon a connection is accepted that could not be, for want of a descriptor: the poller
/// reports it once.
const AGAIN: Nanos = Nanos::from_millis(100);

/// Controllers that wait for clients, or have some: one at each socket.
pub struct Server {
    endpoints: Vec<Endpoint>,
    poller: Poller,
    /// What is still to happen; it begins when the first client has come.
    script: Option<Script>,
    /// To be reported when it runs.
    news: Vec<ServeEvent>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("endpoints", &self.endpoints.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Without controllers.
    ///
    /// # Errors
    /// The system has no poller.
    pub fn new() -> Result<Server, ServeError> {
        Ok(Server { endpoints: Vec::new(), poller: Poller::new()?, script: None, news: Vec::new() })
    }

    /// One more controller, at a socket.
    ///
    /// # Errors
    /// The socket, or the control socket next to it, cannot be had, or the subsystem has no room
    /// for the controller.
    pub fn add(&mut self, socket: &Path, served: Served<'_>) -> Result<(), ServeError> {
        let device = served.device.clone();
        let function = Function::new(served)?;
        let fault = |(path, fault)| ServeError::Socket { path, fault };
        let (endpoint, stale) =
            Endpoint::new(function, device.clone(), socket, self.endpoints.len()).map_err(fault)?;
        endpoint.listen_by(&self.poller)?;
        if stale {
            self.news.push(ServeEvent::TookOver(socket.to_owned()));
        }
        self.news.push(ServeEvent::Listening { socket: socket.to_owned(), device });
        self.endpoints.push(endpoint);
        Ok(())
    }

    /// What the script says happens to the controllers, counted from when the first client has come
    /// to any.
    ///
    /// # Errors
    /// It names a controller that there is not.
    pub fn play(&mut self, script: Script) -> Result<(), ServeError> {
        let paths = self.endpoints.len();
        if let Some(step) = script.steps.iter().find(|step| step.path >= paths) {
            return Err(ServeError::Path { path: step.path, paths });
        }
        self.script = Some(script);
        Ok(())
    }

    /// Serves one client after another at each socket until `stop` can be read from. It sleeps
    /// where there is nothing to do.
    ///
    /// # Errors
    /// The thread cannot sleep.
    pub fn run(&mut self, stop: impl AsFd, report: Report<'_>) -> Result<(), ServeError> {
        self.news.drain(..).for_each(&mut *report);
        if self.endpoints.iter().any(|endpoint| endpoint.function.maps) {
            report(ServeEvent::Polls);
        }
        let several = self.endpoints.len() > 1;
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.is_named = several);
        // A command's time is that of its profile, not of timers that the kernel gathers.
        _ = hw::set_timer_slack(Nanos(1));
        self.poller.add(&stop, STOP)?;
        let (mut arrived, mut timeout) = (Vec::new(), Some(Nanos::ZERO));
        let done = loop {
            if let Err(error) = self.poller.wait(timeout, &mut arrived) {
                break Err(error.into());
            }
            if arrived.contains(&STOP) {
                // A client that went first is reported.
                self.listen(report);
                break Ok(());
            }
            for endpoint in &mut self.endpoints {
                endpoint.look(&arrived, &self.poller, report);
            }
            timeout = self.turn(report);
            if self.endpoints.iter().any(Endpoint::keeps_waiting) {
                timeout = Some(timeout.map_or(AGAIN, |timeout| timeout.min(AGAIN)));
            }
        };
        self.poller.remove(&stop)?;
        done
    }

    /// Messages, then the controllers: at most how long nothing will happen by itself.
    fn turn(&mut self, report: Report<'_>) -> Option<Nanos> {
        let more = self.listen(report);
        if self
            .endpoints
            .iter()
            .any(|endpoint| endpoint.session.is_some() && endpoint.function.maps)
        {
            self.poll();
            self.lose_queues(report);
            return Some(Nanos::ZERO);
        }
        let (mut worked, mut next) = (false, None);
        for _ in 0..STEPS {
            (worked, next) = self.step(hw::now());
            if !worked {
                break;
            }
        }
        // The last thing before a sleep: from here on a client that goes on sends a message, or has
        // been seen.
        worked |= !more
            && !worked
            && self.endpoints.iter_mut().fold(false, |moved, endpoint| {
                moved | endpoint.function.controller.arm_doorbells()
            });
        worked |= self.lose_queues(report);
        // What came while a controller asked for memory, the poller does not report.
        worked |= self.endpoints.iter().any(Endpoint::has_waiting);
        if more || worked { Some(Nanos::ZERO) } else { next.map(|next| next - hw::now()) }
    }

    /// One step of each controller: whether one has worked, and when the next thing happens by
    /// itself.
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

    /// Steps the controllers for a while: a mapped doorbell sends no message.
    fn poll(&mut self) {
        let mut now = hw::now();
        let (until, mut looks) = (now + POLL, 0);
        while now < until {
            let (worked, next) = self.step(now);
            looks += 1;
            // An empty poll costs less than the clock, which is not needed before something is due.
            if worked || looks == LOOKS || next.is_some_and(|next| next - now < SOON) {
                (now, looks) = (hw::now(), 0);
            }
        }
    }

    /// Whether memory of a queue turned out to be gone. Reports that, and clients that do not give
    /// memory.
    fn lose_queues(&mut self, report: Report<'_>) -> bool {
        self.endpoints.iter_mut().fold(false, |lost, endpoint| {
            endpoint.tell_of_silence(report);
            lost | endpoint.lose_queue(report)
        })
    }

    /// Deals with what clients have sent. Whether there may be more.
    fn listen(&mut self, report: Report<'_>) -> bool {
        let more = self
            .endpoints
            .iter_mut()
            .fold(false, |more, endpoint| more | endpoint.listen(&self.poller, report));
        if self.script.is_some() && self.endpoints.iter().any(|endpoint| endpoint.had_client) {
            self.begin_script();
        }
        more
    }

    /// What the script says counts from now.
    fn begin_script(&mut self) {
        let now = hw::now();
        for step in self.script.take().into_iter().flat_map(|script| script.steps) {
            if let Some(endpoint) = self.endpoints.get_mut(step.path) {
                endpoint.function.controller.change(now + step.at, step.change);
            }
        }
    }
}
