//! Where a test's device stands: in memory, in a file of its own, on a loop device of its own, or
//! where the environment says.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reap::serve::{self, ServeError, ServeEvent, Server};
use reap::{Device, Mode, MultipathUri, Nanos, OpenError, OpenOptions, Queue};

/// Bytes of every device that a test makes.
pub const BYTES: u64 = 16 << 20;

/// Kinds of places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// An embedded controller's, over memory.
    Memory,
    /// An embedded controller's, over a file.
    Media,
    /// A regular file.
    File,
    /// A loop device over a file.
    Loop,
    /// A controller in memory, that a thread serves over vfio-user, with these parameters.
    Served(&'static str),
    /// A controller in memory, that a thread serves over NVMe/TCP.
    Tcp,
    /// This URI.
    Given(String),
}

/// A place for a device, gone with it.
pub struct Place {
    base: String,
    more: &'static str,
    /// The file, or the file behind the loop device.
    pub file: Option<Scratch>,
    pub looped: Option<Loop>,
    /// Serves for as long as this lives.
    _served: Option<Box<dyn std::any::Any + Send + Sync>>,
    /// A device that was given is one test's at a time.
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Place {
    /// Makes one. Why there is none here, where that is no fault.
    pub fn new(stand: &Stand, more: &'static str) -> Result<Place, String> {
        static TURN: Mutex<()> = Mutex::new(());
        let place = |base: String| Place {
            base,
            more,
            file: None,
            looped: None,
            _served: None,
            _turn: None,
        };
        Ok(match stand {
            Stand::Memory => place("mem:16M?profile=optane".into()),
            Stand::Media => {
                let file = Scratch::new("media", BYTES);
                let base = format!("file:{}?profile=optane", file.path().display());
                Place { file: Some(file), ..place(base) }
            }
            Stand::File => {
                let file = Scratch::new("link", BYTES);
                Place { file: Some(file), ..place(String::new()) }.rebased()
            }
            Stand::Loop => {
                let file = Scratch::new("looped", BYTES);
                let looped = Loop::over(file.path())?;
                Place { looped: Some(looped), file: Some(file), ..place(String::new()) }.rebased()
            }
            Stand::Served(more) => {
                let served = Served::new(&format!("mem:16M?profile=optane{more}"));
                let base = format!("vfio-user:{}", served.socket().display());
                Place { _served: Some(Box::new(served)), ..place(base) }
            }
            Stand::Tcp => {
                let target = Target::new("mem:16M?profile=optane");
                Place {
                    base: target.uri.clone(),
                    _served: Some(Box::new(target)),
                    ..place(String::new())
                }
            }
            Stand::Given(uri) => {
                let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                Place { _turn: Some(turn), ..place(uri.clone()) }
            }
        })
    }

    fn rebased(mut self) -> Place {
        let path = self
            .looped
            .as_ref()
            .map(|looped| looped.node.clone())
            .or_else(|| Some(self.file.as_ref()?.path().to_owned()));
        self.base = format!("kernel:{}", path.unwrap().display());
        self
    }

    /// The kernel drives it.
    pub fn is_kernel(&self) -> bool {
        self.base.starts_with("kernel:")
    }

    /// It is a drive that Reap drives itself.
    pub fn is_on_bus(&self) -> bool {
        self.base.starts_with("pcie:") || self.base.starts_with("vfio-user:")
    }

    /// The device's URI, with `extra` parameters.
    pub fn uri(&self, extra: &str) -> String {
        let said: Vec<_> = [self.more, extra].into_iter().filter(|said| !said.is_empty()).collect();
        match said.is_empty() {
            true => self.base.clone(),
            false => format!(
                "{}{}{}",
                self.base,
                if self.base.contains('?') { '&' } else { '?' },
                said.join("&")
            ),
        }
    }

    /// Opens the device for this many threads.
    pub fn open(&self, queues: usize, mode: Mode) -> Device {
        self.open_with(options(queues).mode(mode))
    }

    pub fn open_with(&self, options: OpenOptions) -> Device {
        self.try_open("", options).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn try_open(&self, extra: &str, options: OpenOptions) -> Result<Device, OpenError> {
        Device::open_with(&self.uri(extra), &options)
    }

    /// The same, once what is still in flight of the last device here lets go of it.
    pub fn open_when_free(&self, options: &OpenOptions) -> Device {
        let since = Instant::now();
        loop {
            match self.try_open("", options.clone()) {
                Ok(device) => return device,
                Err(why) if since.elapsed() > Duration::from_secs(60) => panic!("{why}"),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Gives `work` a queue of either kind: one that was sent to its thread, and one that was not.
    pub fn on_each_kind(&self, device: &Device, work: impl Fn(&Queue, Kind) + Sync) {
        let queue = device.queue().unwrap();
        std::thread::scope(|scope| scope.spawn(|| work(&{ queue }, Kind::Sent)).join().unwrap());
        work(&device.local_queue().unwrap(), Kind::Kept);
    }

    /// Makes it this many bytes long, while others use it.
    pub fn resize(&self, bytes: u64) {
        let file = self.file.as_ref().expect("it has the feature Resizing");
        file.resize(bytes);
        if let Some(looped) = &self.looped {
            looped.reread();
        }
    }
}

/// How a queue came to its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Device::queue`.
    Sent,
    /// `Device::local_queue`.
    Kept,
}

/// Options for this many threads: fewer tags than tests have requests at once, and a time-out that
/// saves nobody. A wake-up that is lost is a test that hangs, and is told by
/// [`super::table::watched`].
pub fn options(queues: usize) -> OpenOptions {
    let (timeout, pool_bytes) = (Nanos::from_secs(3600), 32 << 20);
    OpenOptions::new()
        .software_queues(queues)
        .hardware_queues(queues)
        .depth(16)
        .timeout(timeout.into())
        .pool_bytes(pool_bytes)
}

/// Another device, in memory, for requests that lead astray and groups that are mixed.
pub fn companion() -> Device {
    Device::open_with("mem:16M?profile=optane", &options(1)).unwrap()
}

/// A device that a thread of this process serves, gone with it.
pub struct Served {
    sockets: Vec<Scratch>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn new(uri: &str) -> Served {
        let uri = uri.parse().unwrap();
        Served::start(1, move |sockets| serve::open(&uri, &sockets[0], None))
    }

    /// This many controllers of one subsystem, each at a socket.
    pub fn several(device: &str, sockets: usize) -> Served {
        let uri = MultipathUri::repeated(device, sockets).unwrap();
        Served::start(sockets, move |sockets| serve::open_paths(&uri, sockets, None))
    }

    fn start(
        sockets: usize,
        server: impl FnOnce(&[PathBuf]) -> Result<Server, ServeError> + Send + 'static,
    ) -> Served {
        let sockets: Vec<_> = (0..sockets).map(|_| Scratch::short("sock")).collect();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let ((tell, told), paths) = (
            std::sync::mpsc::channel(),
            sockets.iter().map(|socket| socket.path().to_owned()).collect::<Vec<_>>(),
        );
        let thread = std::thread::spawn(move || {
            let mut server = server(&paths).unwrap();
            tell.send(()).unwrap();
            server.run(&stopped, &mut |_| {}).unwrap();
        });
        told.recv().unwrap();
        Served { sockets, stop, thread: Some(thread) }
    }

    pub fn socket(&self) -> &Path {
        self.sockets[0].path()
    }

    /// The device at each socket.
    pub fn uris(&self) -> impl Iterator<Item = String> {
        self.sockets.iter().map(|socket| format!("vfio-user:{}", socket.path().display()))
    }
}

/// A target over NVMe/TCP that a thread of this process serves, gone with it.
pub struct Target {
    pub uri: String,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    pub fn new(device: &str) -> Target {
        let uri = MultipathUri::repeated(device, 1).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server =
                serve::open_tcp(&uri, &["127.0.0.1:0".parse().unwrap()], Vec::new(), None).unwrap();
            server.run(&stopped, &mut |event| _ = tell.send(event)).unwrap();
        });
        let uri = told.iter().find_map(|event| match event {
            ServeEvent::ListeningTcp { address, nqn, .. } => Some(format!("tcp://{address}/{nqn}")),
            _ => None,
        });
        Target { uri: uri.unwrap(), stop, thread: Some(thread) }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        _ = self.stop.write_all(&[1]);
        _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        _ = self.stop.write_all(&[1]);
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A file of a test's own, gone with it.
pub struct Scratch {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Scratch {
    /// A name that nothing has yet.
    pub fn name(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = if dir.exists() { dir.to_owned() } else { std::env::temp_dir() };
        let path = dir.join(format!(
            "{name}-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        Scratch { path, _folder: None }
    }

    /// A name that is short enough for a socket, in a folder of its own: a server that is killed
    /// leaves its control socket, too.
    pub fn short(name: &str) -> Scratch {
        let folder = tempfile::Builder::new().prefix("reap-").tempdir().unwrap();
        Scratch { path: folder.path().join(name), _folder: Some(folder) }
    }

    /// A file without holes, all of it 5Ah.
    pub fn new(name: &str, bytes: u64) -> Scratch {
        let file = Scratch::name(name);
        fs::write(&file.path, vec![0x5a; bytes as usize]).unwrap();
        file
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn uri(&self) -> String {
        format!("kernel:{}", self.path.display())
    }

    pub fn resize(&self, bytes: u64) {
        fs::OpenOptions::new().write(true).open(&self.path).unwrap().set_len(bytes).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
        _ = fs::remove_dir(&self.path);
    }
}

/// A loop device of a test's own, gone with it.
pub struct Loop {
    pub node: PathBuf,
}

impl Loop {
    /// Why there is none here: no privilege, no driver, no program.
    pub fn over(file: &Path) -> Result<Loop, String> {
        let said = run("losetup", &["--find", "--show", &file.display().to_string()])?;
        Ok(Loop { node: said.trim().into() })
    }

    fn reread(&self) {
        run("losetup", &["--set-capacity", &self.node.display().to_string()]).unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        _ = run("losetup", &["--detach", &self.node.display().to_string()]);
    }
}

/// What a program prints; why it fails.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let said = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|e| format!("no `{program}` here: {e}"))?;
    match said.status.success() {
        true => Ok(String::from_utf8_lossy(&said.stdout).into_owned()),
        false => Err(format!(
            "`{program} {}`: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&said.stderr).trim()
        )),
    }
}
