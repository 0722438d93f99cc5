//! A server that runs, for clients of this process.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emu::Script;

use super::super::{ServeError, ServeEvent, Server};

/// Longer than anything here takes on a machine with much else to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a thread of its own.
pub(super) struct Running {
    stop: UnixStream,
    thread: JoinHandle<Vec<ServeEvent>>,
    sockets: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Running {
    pub(super) fn new(uri: &str, script: Option<Script>) -> Running {
        let uri = uri.parse().expect("a URI");
        Running::start(1, move |sockets| super::super::open(&uri, &sockets[0], script))
    }

    /// One of several controllers, each at a socket.
    pub(super) fn several(uri: &str, paths: usize, script: Option<Script>) -> Running {
        let uri = uri.parse().expect("a URI");
        Running::start(paths, move |sockets| super::super::open_paths(&uri, sockets, script))
    }

    fn start(
        sockets: usize,
        server: impl FnOnce(&[PathBuf]) -> Result<Server, ServeError> + Send + 'static,
    ) -> Running {
        let dir = tempfile::tempdir().expect("a directory");
        let sockets: Vec<PathBuf> =
            (0..sockets).map(|n| dir.path().join(format!("socket{n}"))).collect();
        let ((stop, stopped), paths) = (UnixStream::pair().expect("sockets"), sockets.clone());
        let (made, is_made) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut told = Vec::new();
            let mut server = server(&paths).expect("a server");
            made.send(()).expect("told");
            server.run(&stopped, &mut |event| told.push(event)).expect("served");
            told
        });
        // Its sockets are there.
        is_made.recv().expect("a server");
        Running { stop, thread, sockets, _dir: dir }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.sockets[0]
    }

    pub(super) fn socket_at(&self, path: usize) -> &Path {
        &self.sockets[path]
    }

    pub(super) fn connect(&self) -> UnixStream {
        self.connect_at(0)
    }

    pub(super) fn connect_at(&self, path: usize) -> UnixStream {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.sockets[path]) {
                Ok(stream) => return stream,
                Err(error) if begun.elapsed() > PATIENCE => panic!("{error}"),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Ends it; what it has told.
    pub(super) fn stop(mut self) -> Vec<ServeEvent> {
        self.stop.write_all(&[1]).expect("told");
        self.thread.join().expect("no panic")
    }
}
