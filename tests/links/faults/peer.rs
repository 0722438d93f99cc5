//! Servers of a controller that go: killed, stopped and continued, gone before a device is opened;
//! and memory that they do not reach.

use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use reap::serve;
use reap::{Device, IoError, Mode, MultipathUri, OpenError, Pages, RegisterError, VfioUserError};
use rustix::process::{Pid, Signal, kill_process};

use super::{Written, eventually, is_child, start, told};
use crate::happened::is_told;
use crate::place::{Scratch, Served, options};
use crate::table::watched;
use crate::work::{Job, begin, drain};

/// A server in a process of its own, for as long as that lives.
pub(super) struct Process {
    child: Child,
    sockets: Vec<Scratch>,
}

/// What they serve, unless a test says otherwise.
const DEVICE: &str = "mem:16M?profile=optane";

impl Process {
    fn new() -> Process {
        Process::serving(DEVICE, 1)
    }

    /// This many controllers of one subsystem.
    pub(super) fn several(sockets: usize) -> Process {
        Process::serving(DEVICE, sockets)
    }

    /// Controllers of this device, one at each socket.
    pub(super) fn serving(device: &str, sockets: usize) -> Process {
        Process::at(device, sockets, &[])
    }

    /// The same, started by the command `wrapper`.
    pub(super) fn several_within(wrapper: &[&str], sockets: usize) -> Process {
        Process::at(DEVICE, sockets, wrapper)
    }

    fn at(device: &str, sockets: usize, wrapper: &[&str]) -> Process {
        let sockets: Vec<_> = (0..sockets).map(|_| Scratch::short("process")).collect();
        let child = started(device, &sockets, wrapper);
        Process { child, sockets }
    }

    /// It is killed, whatever it does.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Another one serves this at the same sockets.
    pub(super) fn start(&mut self, device: &str) {
        self.child = started(device, &self.sockets, &[]);
    }

    /// The device at each socket.
    pub(super) fn uris(&self) -> impl Iterator<Item = String> {
        self.sockets.iter().map(|socket| format!("vfio-user:{}", socket.path().display()))
    }

    fn uri(&self) -> String {
        self.uris().next().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Serves in a process of its own, and listens.
fn started(device: &str, sockets: &[Scratch], wrapper: &[&str]) -> Child {
    let paths: Vec<_> = sockets.iter().map(|socket| socket.path().display().to_string()).collect();
    let child = start(
        "faults::peer::serves_until_it_is_killed",
        wrapper,
        &format!("{device}\n{}", paths.join(":")),
    );
    eventually("the server does not listen", || {
        sockets.iter().all(|socket| UnixStream::connect(socket.path()).is_ok())
    });
    child
}

#[test]
#[ignore = "a server in a process of its own, which other tests start and kill"]
fn serves_until_it_is_killed() {
    if is_child() {
        let told = told();
        let (device, sockets) = told.split_once('\n').unwrap();
        let sockets: Vec<PathBuf> = sockets.split(':').map(PathBuf::from).collect();
        let mut server = match &sockets[..] {
            _ if device.starts_with("multipath:") => {
                serve::open_paths(&device.parse().unwrap(), &sockets, None).unwrap()
            }
            [socket] => serve::open(&device.parse().unwrap(), socket, None).unwrap(),
            several => serve::open_paths(
                &MultipathUri::repeated(device, several.len()).unwrap(),
                several,
                None,
            )
            .unwrap(),
        };
        let (never, _other) = UnixStream::pair().unwrap();
        server.run(&never, &mut |_| {}).unwrap();
    }
}

#[test]
fn killed_server_fails_requests() {
    for mode in
        [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE, Mode::POSTED, Mode::SUSPEND]
    {
        let (process, mut written) = (Process::new(), Written::default());
        let device = Device::open_with(&process.uri(), &options(1).mode(mode)).unwrap();
        let queue = device.queue().unwrap();
        let pid = Pid::from_child(&process.child);
        written.write_until(&queue, "a server that was killed", move || {
            kill_process(pid, Signal::KILL).unwrap()
        });
        assert!(
            written.errors.iter().all(|why| *why == IoError::DeviceLost),
            "{mode}: {:?}",
            written.errors
        );
        written.errors.clear();
        written.write(&queue, [0].into_iter(), 0);
        assert!(
            !written.errors.is_empty()
                && written.errors.iter().all(|why| *why == IoError::DeviceLost),
            "{:?}",
            written.errors
        );
        let health = device.health();
        assert!(health.dead.is_some() && device.in_flight() == 0, "{mode}: {health:?}");
        assert!(
            is_told(&device, "the server has closed the connection; open the device again"),
            "{health:?}"
        );
        drop((queue, device));
        // The next one is opened as if nothing had been.
        drop(process);
        let process = Process::new();
        let device = Device::open_with(&process.uri(), &options(1)).unwrap();
        Job::of(1).run(&device.local_queue().unwrap());
    }
}

/// Nothing is sent to ring a doorbell that the server lets this side map.
#[test]
fn mapped_doorbells_send_no_message() {
    for (more, mapped) in [("&doorbells=mapped", true), ("", false)] {
        let served = Served::new(&format!("mem:16M?profile=optane{more}"));
        let device =
            Device::open_with(&format!("vfio-user:{}", served.socket().display()), &options(1))
                .unwrap();
        Job::of(1).run(&device.local_queue().unwrap());
        let status = serve::ask(served.socket(), "status").unwrap();
        assert_eq!(status.contains("\ndoorbells mapped, 0 messages\n"), mapped, "{status}");
    }
}

/// Two devices, each with a controller of one subsystem: what one writes the other reads, and
/// neither needs the other.
#[test]
fn sockets_share_namespaces() {
    let served = Served::several("mem:16M?profile=optane", 2);
    let devices: Vec<_> =
        served.uris().map(|uri| Device::open_with(&uri, &options(1)).unwrap()).collect();
    let queues: Vec<_> = devices.iter().map(|device| device.local_queue().unwrap()).collect();
    for (generation, writer, reader) in [(1, 0, 1), (2, 1, 0)] {
        let job = Job { generation, ..Job::of(1) };
        job.pass(&queues[writer], true);
        job.pass(&queues[reader], false);
    }
    let job = Job { generation: 2, ..Job::of(1) };
    let mut left = queues.into_iter().zip(devices);
    drop(left.next());
    let (queue, device) = left.next().unwrap();
    job.pass(&queue, false);
    let again = Device::open_with(&served.uris().next().unwrap(), &options(1)).unwrap();
    job.pass(&again.local_queue().unwrap(), false);
    assert_eq!((device.health().resets, again.health().resets), (0, 0));
}

/// A server that does nothing for a while holds up nobody but who waits for its completions.
#[test]
fn stopped_server_goes_on() {
    for mode in [Mode::INTERRUPT, Mode::POLL] {
        let process = Process::new();
        let device = Device::open_with(&process.uri(), &options(1).mode(mode)).unwrap();
        let queue = device.local_queue().unwrap();
        Job::of(1).run(&queue);
        process.signal(Signal::STOP);
        begin(&queue, 30);
        std::thread::sleep(Duration::from_millis(200));
        assert!(device.health().dead.is_none());
        process.signal(Signal::CONT);
        watched("a server that was stopped", || drain(&queue))
            .into_iter()
            .for_each(|done| done.result.unwrap());
        Job::of(2).run(&queue);
    }
}

#[test]
fn resets_under_load_lose_nothing() {
    let served = Served::new("mem:16M?profile=optane");
    let device =
        Device::open_with(&format!("vfio-user:{}", served.socket().display()), &options(1))
            .unwrap();
    let queue = device.local_queue().unwrap();
    for generation in 1..=5 {
        begin(&queue, 30);
        device.reset();
        drain(&queue).into_iter().for_each(|done| done.result.unwrap());
        eventually("there is no reset", || device.health().resets >= generation);
        Job { generation: generation.into(), ..Job::of(1) }.run(&queue);
    }
    assert_eq!((device.health().dead, device.counters().leaked_bytes), (None, 0));
}

fn fault(socket: &Scratch) -> VfioUserError {
    match Device::open(&format!("vfio-user:{}", socket.path().display())) {
        Err(OpenError::VfioUser { fault, .. }) => {
            println!("{fault}");
            fault
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn non_servers_are_refused() {
    let socket = Scratch::short("none");
    assert!(matches!(fault(&socket), VfioUserError::NotFound(_)));
    std::fs::write(socket.path(), "text").unwrap();
    assert!(matches!(fault(&socket), VfioUserError::Unusable(_)));
    std::fs::remove_file(socket.path()).unwrap();
    drop(UnixListener::bind(socket.path()).unwrap());
    assert!(matches!(fault(&socket), VfioUserError::NotFound(_)));
    std::fs::remove_file(socket.path()).unwrap();
    // It says something, but not this.
    let listener = UnixListener::bind(socket.path()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example.org ESMTP ready\r\n").unwrap();
            _ = stream.read_to_end(&mut Vec::new());
        });
        assert!(matches!(fault(&socket), VfioUserError::Unusable(_)));
    });
    let long = Scratch::short(&"n".repeat(120));
    assert!(fault(&long).to_string().contains("107 bytes"));
}

#[test]
fn anonymous_memory_is_refused() {
    let served = Served::new("mem:16M?profile=optane");
    let device =
        Device::open_with(&format!("vfio-user:{}", served.socket().display()), &options(1))
            .unwrap();
    let (why, pages) = device.register(Pages::new(1 << 20).unwrap()).err().unwrap();
    assert!(
        matches!(why, RegisterError::NoFile) && why.to_string().contains("`Pages::shared`"),
        "{why}"
    );
    assert_eq!(pages.len(), 1 << 20);
    assert!(device.register(Pages::shared(1 << 20).unwrap()).is_ok());
    // One client at a time: the second is told so.
    let second = Device::open(&format!("vfio-user:{}", served.socket().display()));
    assert!(
        matches!(second, Err(OpenError::VfioUser { fault: VfioUserError::Busy, .. })),
        "{second:?}"
    );
}

#[test]
fn scarce_vectors_are_reported() {
    let served = Served::new("mem:16M?profile=optane&vectors=1");
    let device =
        Device::open_with(&format!("vfio-user:{}", served.socket().display()), &options(2))
            .unwrap();
    Job::of(1).run(&device.local_queue().unwrap());
    assert!(
        device.notes().iter().any(|note| note.contains("1 are available: queues share them")),
        "{:?}",
        device.notes()
    );
}
