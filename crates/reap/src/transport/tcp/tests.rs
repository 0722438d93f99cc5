use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use driver::multipath::Failure;

use crate::serve::{ServeEvent, ask_address, open_tcp};
use crate::{
    Completion, Device, DmaBuf, EventKind, IoError, MultipathUri, OpenOptions, Queue, Request,
};

/// `reap serve --tcp` in a thread.
struct Target {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    nqn: String,
}

impl Target {
    fn new(device: &str, paths: usize) -> Target {
        Target::at(device, &vec!["127.0.0.1:0".parse().unwrap(); paths])
    }

    fn at(device: &str, at: &[SocketAddr]) -> Target {
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (heard, events) = mpsc::channel();
        let (uri, at) = (MultipathUri::repeated(device, at.len()).unwrap(), at.to_vec());
        let paths = at.len();
        let thread = thread::spawn(move || {
            let mut server = open_tcp(&uri, &at, Vec::new(), None).unwrap();
            server.run(&stopped, &mut |event| _ = heard.send(event)).unwrap();
        });
        let mut target =
            Target { stop, thread: Some(thread), addresses: Vec::new(), nqn: String::new() };
        while target.addresses.len() < paths {
            if let ServeEvent::ListeningTcp { address, nqn, .. } = events.recv().unwrap() {
                target.addresses.push(address);
                target.nqn = nqn;
            }
        }
        target
    }

    fn uri(&self, path: usize, more: &str) -> String {
        format!(
            "tcp://{}/{}?keep_alive_tmo=1&cqt=100&reconnect_delay=1{more}",
            self.addresses[path], self.nqn
        )
    }

    fn status(&self, path: usize) -> String {
        ask_address(self.addresses[path], "status").unwrap()
    }

    fn fault(&self, path: usize, fault: &str) {
        ask_address(self.addresses[path], &format!("fault {fault}")).unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        _ = self.stop.write_all(&[0]);
        _ = self.thread.take().map(JoinHandle::join);
    }
}

fn options() -> OpenOptions {
    OpenOptions::default().hardware_queues(2).software_queues(2).depth(32).pool_bytes(64 << 20)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(7) ^ seed.wrapping_mul(131) ^ n >> 9) as u8).collect()
}

/// Writes, reads back and compares, in sizes on both sides of the limits of capsules and R2Ts.
fn write_and_read(device: &Device, queue: &Queue) {
    let ns = device.namespaces()[0];
    for (n, len) in [
        (1u64, 512usize),
        (2, 4096),
        (3, 8192),
        (4, 12_288),
        (5, 65_536),
        (6, 1 << 20),
        (7, 3 << 20),
    ] {
        let mut buffer = device.buffer(len).unwrap();
        buffer.copy_from_slice(&pattern(n, len));
        let (result, buffer) = queue.block_on(queue.write(&ns, n * 8192, buffer)).unwrap();
        result.unwrap();
        drop(buffer);
        let (result, buffer) =
            queue.block_on(queue.read(&ns, n * 8192, device.buffer(len).unwrap())).unwrap();
        result.unwrap();
        assert!(*buffer == *pattern(n, len), "{len} bytes");
    }
}

#[test]
fn data_come_back() {
    let target = Target::new("mem:64M?profile=optane", 1);
    for more in [
        "&host_traddr=127.0.0.1",
        "&hdr_digest=yes",
        "&data_digest=yes",
        "&hdr_digest=yes&data_digest=yes&queues=1",
    ] {
        let device = Device::open_with(&target.uri(0, more), &options()).unwrap();
        let queue = device.queue().unwrap();
        write_and_read(&device, &queue);
    }
}

#[test]
fn data_come_back_over_ipv6() {
    let at = "[::1]:0".parse().unwrap();
    if TcpListener::bind::<SocketAddr>(at).is_err() {
        return;
    }
    let target = Target::at("mem:64M?profile=optane", &[at]);
    let device = Device::open_with(&target.uri(0, ""), &options()).unwrap();
    write_and_read(&device, &device.queue().unwrap());
}

/// Software queues that share hardware queues, from as many threads.
#[test]
fn shared_queues_move_data() {
    let target = Target::new("mem:64M?profile=optane", 1);
    for mode in ["interrupt", "threaded", "adaptive"] {
        let options = options().hardware_queues(1).software_queues(4).mode(mode.parse().unwrap());
        let device = Device::open_with(&target.uri(0, ""), &options).unwrap();
        thread::scope(|scope| {
            for n in 0..4u64 {
                let device = &device;
                scope.spawn(move || {
                    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
                    for round in 0..50 {
                        let lba = n * 1000 + round * 8;
                        queue
                            .block_on(queue.write(&ns, lba, block(device, (n + round) as u8)))
                            .unwrap()
                            .0
                            .unwrap();
                        assert_eq!(first(device, &queue, lba), (n + round) as u8);
                    }
                });
            }
        });
    }
}

#[test]
fn every_mode_moves_data() {
    let target = Target::new("mem:64M?profile=optane", 1);
    for mode in [
        "interrupt",
        "poll",
        "threaded",
        "irq-poll",
        "hybrid-mean",
        "suspend",
        "adaptive",
        "posted",
        "coalesce",
    ] {
        let options = options().mode(mode.parse().unwrap());
        let device = Device::open_with(&target.uri(0, ""), &options).unwrap();
        let queue = device.queue().unwrap();
        write_and_read(&device, &queue);
    }
}

#[test]
fn resets_begin_another_association() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let device = Device::open_with(&target.uri(0, ""), &options()).unwrap();
    let queue = device.queue().unwrap();
    for _ in 0..3 {
        write_and_read(&device, &queue);
        let before = device.health().resets;
        device.reset();
        while device.health().resets == before {
            thread::yield_now();
        }
    }
    write_and_read(&device, &queue);
}

#[test]
fn what_refuses_is_named() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let address = target.addresses[0];
    let refused = |uri: String| Device::open_with(&uri, &options()).unwrap_err().to_string();
    let error = refused(format!("tcp://{address}/nqn.2026-11.test:other"));
    assert!(error.contains("there is no subsystem nqn.2026-11.test:other"), "{error}");
    drop(target);
    let error = refused(format!("tcp://{address}/nqn.2026-11.test:other"));
    assert!(error.contains("is a target listening there?"), "{error}");
}

#[test]
fn discovery_names_each_address() {
    let target = Target::new("mem:64M?profile=optane", 2);
    let at = target.addresses[1];
    let log = crate::discover(&crate::TcpUri::new(
        at.ip().to_string(),
        at.port(),
        nvme::fabrics::DISCOVERY_NQN,
    ))
    .unwrap();
    let found = |address: &SocketAddr| {
        let same = |entry: &&nvme::fabrics::DiscoveryEntry| {
            entry.service.to_string() == address.port().to_string()
        };
        log.entries.iter().filter(same).any(|entry| entry.subnqn.to_string() == target.nqn)
    };
    assert!(target.addresses.iter().all(found), "{log:?}");
}

/// One URI opens all addresses of a subsystem. A path that cannot be reached is left out.
#[test]
fn discovered_paths_are_opened() {
    let target = Target::new("mem:64M?profile=optane", 2);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let uri = target.uri(0, "&discover=yes");
    for (uri, left_out) in [
        (uri.clone(), false),
        (
            format!(
                "multipath:?path=tcp://{gone}/{}&path={}&keep_alive=1s",
                target.nqn,
                uri.replace('&', "%26")
            ),
            true,
        ),
    ] {
        let device = Device::open_with(&uri, &options()).unwrap();
        let paths: Vec<_> = device.paths().into_iter().map(|path| path.uri).collect();
        let found = |(at, uri): (&SocketAddr, &String)| uri.contains(&at.to_string());
        assert!(paths.len() == 2 && target.addresses.iter().zip(&paths).all(found), "{paths:?}");
        let note = device.events().try_next().unwrap().to_string();
        assert_eq!(note.contains(&format!("is left out: tcp://{gone}")), left_out, "{note}");
        let queue = device.queue().unwrap();
        write_and_read(&device, &queue);
        target.fault(0, "drop");
        write_and_read(&device, &queue);
    }
    let other = format!("tcp://{}/nqn.a?discover=yes", target.addresses[0]);
    let error = Device::open_with(&other, &options()).unwrap_err().to_string();
    assert!(error.contains("no address of nqn.a"), "{error}");
    let error = Device::open_with(&format!("tcp://{gone}/nqn.a"), &options()).unwrap_err();
    assert!(error.to_string().contains("is a target listening there?"), "{error}");
}

#[test]
fn lost_device_comes_back() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let device = Device::open_with(&target.uri(0, ""), &options()).unwrap();
    let queue = device.queue().unwrap();
    write_and_read(&device, &queue);
    target.fault(0, "drop");
    write_and_read(&device, &queue);
    assert!(device.failover().failed == 0 && device.health().dead.is_none());
}

/// A device of two paths, the first of which is preferred.
fn two_paths(target: &Target, more: &str) -> Device {
    let path = |n| target.uri(n, "").replace('&', "%26");
    let uri = format!(
        "multipath:?path={}&path={}&keep_alive=1s&policy=round-robin{more}",
        path(0),
        path(1)
    );
    Device::open_with(&uri, &options()).unwrap()
}

fn block(device: &Device, byte: u8) -> DmaBuf {
    let mut buffer = device.buffer(4096).unwrap();
    buffer.fill(byte);
    buffer
}

/// The first byte of a block.
fn first(device: &Device, queue: &Queue, lba: u64) -> u8 {
    let (result, buffer) =
        queue.block_on(queue.read(&device.namespaces()[0], lba, block(device, 0))).unwrap();
    result.unwrap();
    buffer[0]
}

/// Writes AA, which path 0 holds while it is lost, then BB; lets the held write go, and returns
/// what the medium has in the end. A read in between must not wait. `takes`: how long a reset of
/// path 0's controller takes that path 1 is asked for.
fn held_write(more: &str, takes: &str) -> (u8, Device, Target) {
    let target = Target::new("mem:64M?profile=optane", 2);
    let device = two_paths(&target, more);
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    target.fault(0, "hold writes");
    target.fault(0, &format!("reset-takes {takes}"));
    // The policy sends one of two requests on each path.
    let writes = [0, 8].map(|lba| Request::write(&ns, lba, block(&device, 0xaa)));
    queue.submit(writes).map_err(|(why, _)| why).unwrap();
    queue.wait(1, None).unwrap();
    let mut done = Vec::new();
    queue.reap(&mut done);
    assert!(done.len() == 1 && done[0].result.is_ok());
    let mut events = device.events();
    target.fault(0, "lost");
    // From the other path, while a write is held or has been sent again.
    first(&device, &queue, 64);
    if takes == NEVER && !more.contains("unsafe") {
        while !events.next(None).unwrap().to_string().contains("path 0 has started") {}
        assert_eq!(queue.in_flight(), 1, "the write waits for the fence");
        // Its old controller carries it out before the fence is over.
        target.fault(0, "release");
    } else if takes != NEVER {
        let told = std::iter::from_fn(|| events.next(None)).map(|event| event.to_string());
        let told: Vec<_> = told.take_while(|event| !event.contains("has been reset")).collect();
        // Not when the reset has started: the old controller is gone.
        assert!(!target.status(0).contains("alone"));
        let started = told.iter().any(|event| event.ends_with("path 0 has started"));
        assert_eq!(started, takes != "0s");
    }
    queue.wait(1, None).unwrap();
    queue.reap(&mut done);
    assert!(done.len() == 2 && done[1].result.is_ok());
    for lba in [0, 8] {
        queue.block_on(queue.write(&ns, lba, block(&device, 0xbb))).unwrap().0.unwrap();
        assert_eq!(first(&device, &queue, lba), 0xbb);
    }
    target.fault(0, "release");
    // The old controller is gone once it has carried out what it had.
    while target.status(0).contains("alone") {
        thread::yield_now();
    }
    let least = [0, 8].map(|lba| first(&device, &queue, lba)).into_iter().min().unwrap();
    drop(queue);
    (least, device, target)
}

/// Longer than any test.
const NEVER: &str = "1000s";

/// A device of paths whose keep-alive runs out after the test: no fence ends by time.
const NO_TIME: &str = "&keep_alive=1000s";

#[test]
fn newer_data_outlive_held_writes() {
    assert_eq!(held_write("", NEVER).0, 0xbb);
}

/// The fence ends by a reset through the other path, which completes at once, or later as its log
/// page says. The path is connected again at once.
#[test]
fn cross_controller_reset_ends_fence() {
    for takes in ["0s", "200ms"] {
        let (byte, device, target) = held_write(NO_TIME, takes);
        assert_eq!(byte, 0xbb);
        let mut events = device.events();
        target.fault(0, "back");
        while events.next(None).unwrap().kind != EventKind::Restored {}
        write_and_read(&device, &device.queue().unwrap());
    }
}

/// What the fence is there for: without it the write that was lost is carried out last.
#[test]
fn unsafe_failover_loses_newer_data() {
    assert_eq!(held_write("&unsafe_fast_failover=yes", NEVER).0, 0xaa);
}

/// A write that had been sent fails by `fast_io_fail_tmo` as one of unknown outcome, one that had
/// not as one without a path. Later data outlive the first, since nothing is sent before the fence
/// is over.
#[test]
fn unknown_outcome_is_reported() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let uri = target.uri(0, "&queues=1&fast_io_fail_tmo=1");
    let device = Device::open_with(&uri, &options()).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    target.fault(0, "hold writes");
    queue.submit([Request::write(&ns, 0, block(&device, 0xaa))]).map_err(|(why, _)| why).unwrap();
    // Commands are fetched in order: the target has the write.
    first(&device, &queue, 64);
    target.fault(0, "lost");
    queue.wait(1, None).unwrap();
    let mut done = Vec::new();
    queue.reap(&mut done);
    assert!(matches!(done[..], [Completion { result: Err(IoError::OutcomeUnknown { .. }), .. }]));
    let unsent = queue.block_on(queue.write(&ns, 8, block(&device, 0xaa))).unwrap().0;
    assert!(matches!(unsent, Err(IoError::Path(Failure::NoPath { .. }))), "{unsent:?}");
    target.fault(0, "back");
    // Zeroes are not held.
    let zeroes = || queue.block_on(queue.start(Request::write_zeroes(&ns, 0, 8))).unwrap().result;
    while zeroes().is_err() {}
    target.fault(0, "release");
    while target.status(0).contains("alone") {
        thread::yield_now();
    }
    assert_eq!(first(&device, &queue, 0), 0);
}

/// An I/O queue's connection alone is lost: the admin queue stops the controller, and nothing
/// waits.
#[test]
fn broken_queues_end_by_reset() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let device = Device::open_with(&target.uri(0, "&queues=1"), &options()).unwrap();
    let queue = device.queue().unwrap();
    for fault in ["wrong-r2t", "cut 1000", "terminate 4"] {
        write_and_read(&device, &queue);
        let before = device.health().resets;
        target.fault(0, fault);
        write_and_read(&device, &queue);
        assert!(device.health().resets > before, "{fault}");
    }
    assert_eq!(device.failover().failed, 0);
}

/// Keep Alive does not depend on the application's threads: one that computes loses nothing.
#[test]
fn idle_threads_keep_their_controller() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let device = Device::open_with(&target.uri(0, ""), &options()).unwrap();
    let queue = device.queue().unwrap();
    write_and_read(&device, &queue);
    // KATO is 1 s.
    thread::sleep(Duration::from_millis(3500));
    write_and_read(&device, &queue);
    assert_eq!(device.health().resets, 0);
}

/// CSTS and log pages are not polled.
#[test]
fn idle_host_sends_only_keep_alive() {
    let target = Target::new("mem:64M?profile=optane", 1);
    let device = Device::open_with(&target.uri(0, ""), &options()).unwrap();
    write_and_read(&device, &device.queue().unwrap());
    let commands = || -> u64 {
        let status = target.status(0);
        status.lines().find_map(|line| line.strip_prefix("commands ")).unwrap().parse().unwrap()
    };
    let (begun, before) = (Instant::now(), commands());
    let sent = loop {
        thread::sleep(Duration::from_millis(100));
        let sent = commands() - before;
        if sent >= 8 {
            break sent;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{sent} commands in a minute");
    };
    // Four times in KATO, which is 1 s. The bring-up may still have read log pages.
    let most = begun.elapsed().as_millis() as u64 / 250 + 4;
    assert!(sent <= most, "{sent} commands, {most} at most");
}

/// A relay between host and target that ends its first connections, a given number of them, after some bytes
/// of the target's, and refuses later ones.
fn relay(to: SocketAddr, bytes: u64, times: u32) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let relay = thread::spawn(move || {
        let mut listener = Some(listener);
        for left in (0..times).rev() {
            let (host, _) = listener.as_ref().unwrap().accept().unwrap();
            if left == 0 {
                listener = None;
            }
            let target = TcpStream::connect(to).unwrap();
            let (mut from, mut into) = (host.try_clone().unwrap(), target.try_clone().unwrap());
            let there = thread::spawn(move || _ = std::io::copy(&mut from, &mut into));
            _ = std::io::copy(&mut (&target).take(bytes), &mut &host);
            _ = (host.shutdown(Shutdown::Both), target.shutdown(Shutdown::Both));
            there.join().unwrap();
        }
    });
    (at, relay)
}

/// A target that goes away between Connect and the end of the bring-up is one that cannot be reached.
#[test]
fn paths_lost_while_opening_are_left_out() {
    let target = Target::new("mem:64M?profile=optane", 1);
    for (bytes, times) in [(200, 1), (200, 2), (13_000, 1)] {
        let (at, relay) = relay(target.addresses[0], bytes, times);
        let uri = format!(
            "multipath:?path=tcp://{at}/{}?cqt=100&path={}&keep_alive=1s",
            target.nqn,
            target.uri(0, "").replace('&', "%26")
        );
        let device = Device::open_with(&uri, &options()).unwrap();
        write_and_read(&device, &device.queue().unwrap());
        assert_eq!(device.paths().len(), 1);
        relay.join().unwrap();
    }
}

/// After ICResp, during Connect, at bring-up, or later. What cannot be opened says why.
#[test]
fn connections_that_end_in_each_state() {
    let target = Target::new("mem:64M?profile=optane", 1);
    for bytes in [1, 100, 128, 140, 152, 200, 500, 2000, 5000, 13_000, 17_000] {
        let (at, relay) = relay(target.addresses[0], bytes, 1);
        let uri = format!("tcp://{at}/{}?keep_alive_tmo=1&cqt=100&ctrl_loss_tmo=0", target.nqn);
        match Device::open_with(&uri, &options()) {
            Ok(_) => panic!("no I/O queue can be connected"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        relay.join().unwrap();
    }
}

/// Peers that are no target, or that stop in the middle.
#[test]
fn odd_peers_are_survived() {
    for (bytes, what) in [
        (&b""[..], "the target closes the connection"),
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "has broken the protocol"),
        (&[1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0][..], "the target closes the connection"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("tcp://{}/nqn.2026-11.test:none", listener.local_addr().unwrap());
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 128]).unwrap();
            stream.write_all(bytes).unwrap();
        });
        let error = Device::open_with(&uri, &options()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        peer.join().unwrap();
    }
}
