//! What the threads of a client have in common: what is asked and answered, what is to be sent, and why the connection is over.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use rustix::io::Errno;

use super::out::Out;
use crate::bytes::Malformed;
use crate::calls::Calls;
use crate::header::Command;
use crate::socket::SocketError;
use crate::version::Capabilities;

/// Bytes that a message reads or writes at most, either way.
pub(super) const MOST_DATA: u32 = 0x1_0000;

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The server has closed it.
    #[error("the server has closed the connection")]
    Closed,
    /// What it sent cannot be followed.
    #[error("the server breaks the protocol: {0}")]
    Malformed(Malformed),
    /// It did not answer a request that nothing can be done without.
    #[error("the server has not answered {0} within {1:?}")]
    Silent(Command, Duration),
    /// The system says so.
    #[error("the connection is broken: {0}")]
    System(String),
    /// This side has closed it.
    #[error("the connection was closed")]
    Ours,
}

impl From<SocketError> for End {
    fn from(error: SocketError) -> End {
        match error {
            SocketError::Malformed(malformed) => End::Malformed(malformed),
            // It has closed its end, and something was sent.
            SocketError::System(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => End::Closed,
            error => End::System(error.to_string()),
        }
    }
}

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server says so.
    #[error("the server answers {0} with an error: {err}", err = io::Error::from(*.1))]
    Refused(Command, Errno),
    /// Its answer does not hang together, or does not fit the question.
    #[error("the server breaks the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// It speaks another version of the protocol.
    #[error("the server speaks version {major}.{minor} of vfio-user, and this client 0.0")]
    Version {
        /// Protocols of different major numbers do not understand each other.
        major: u16,
        /// Its minor number.
        minor: u16,
    },
    /// There is no connection any more.
    #[error(transparent)]
    Ended(#[from] End),
}

/// What came of a request: the answer's body and descriptors, or an error number.
pub type Answer = Result<(Vec<u8>, Vec<OwnedFd>), Errno>;

/// Names a request whose answer is fetched later. No connection gives one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Memory that the server reaches by messages, where it has no descriptor for it.
pub trait ClientMemory: Send + Sync {
    /// Copies from a bus address on. False: not all of it can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
    /// Copies to a bus address. False: not all of it can be written to.
    fn write(&self, address: u64, from: &[u8]) -> bool;
}

pub(super) struct Shared {
    pub(super) out: Mutex<Out>,
    pub(super) state: Mutex<State>,
    /// An answer has come, or the connection has ended.
    pub(super) news: Condvar,
    /// The same as `State::end`, without a lock.
    pub(super) ended: AtomicBool,
    /// Shut down when the connection is over, so that a thread that reads or writes there is told.
    pub(super) stream: UnixStream,
    pub(super) ear: OnceLock<ThreadId>,
    /// Longest wait for an answer.
    pub(super) patience: Duration,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: Calls<Caller>,
    pub(super) tickets: u64,
    pub(super) answers: HashMap<u64, Answer>,
    /// Answers that no thread waits for.
    pub(super) late: Vec<(Ticket, Answer)>,
    pub(super) end: Option<End>,
    pub(super) hooks: Hooks,
    pub(super) server: Capabilities,
}

#[derive(Default)]
pub(super) struct Hooks {
    pub(super) memory: Option<Arc<dyn ClientMemory>>,
    pub(super) late: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Who is to have an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    Waits(u64),
    Fetches(Ticket),
    Nobody,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is over: the first reason counts.
    pub(super) fn end(&self, why: End) {
        let mut state = self.state();
        state.end.get_or_insert(why);
        state.calls.end();
        let told = state.hooks.late.clone();
        // What holds memory goes now, however long others keep the connection.
        let memory = state.hooks.memory.take();
        self.ended.store(true, Ordering::Release);
        drop(state);
        drop(memory);
        _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.out().stir();
        self.news.notify_all();
        if let Some(told) = told {
            told();
        }
    }
}

impl State {
    pub(super) fn begin(&mut self, command: Command, caller: Caller) -> Result<u16, CallError> {
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        let busy = || End::System(format!("{} requests wait for an answer", Calls::<Caller>::MOST));
        Ok(self.calls.begin(command as u16, caller).ok_or_else(busy)?)
    }
}
