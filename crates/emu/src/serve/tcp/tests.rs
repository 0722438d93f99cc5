use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nvme::fabrics::Property;
use nvme::io::{Flags, read, write};
use nvme::prp::Dptr;
use nvme::regs::{self, Cc};
use nvme::sgl::Descriptor;
use nvme::{Lba, Nsid, admin};
use tcp::{Body, Data, Greeting, Item, Pdu, Receiver, Side, flags};

use super::*;
use crate::{Ana, Budget, Mem, NamespaceConfig, Profile};

thread_local! {
    /// Offset of this thread's server clock in nanoseconds.
    static AHEAD: RefCell<Arc<AtomicU64>> = RefCell::default();
}

/// The server's clock.
pub(in crate::serve) fn now() -> Nanos {
    hw::now() + Nanos(AHEAD.with_borrow(|ahead| ahead.load(Relaxed)))
}

const NQN: &str = "nqn.2026-11.test:subsystem";
const HOST: &str = "nqn.2026-11.test:host";

/// A server in its own thread.
struct Running {
    stop: UnixStream,
    thread: JoinHandle<Vec<ServeEvent>>,
    addresses: Vec<SocketAddr>,
    ahead: Arc<AtomicU64>,
}

impl Running {
    fn new(paths: usize, allowed: &[&str], script: &str) -> Running {
        Running::with(paths, allowed, script, |_| {})
    }

    fn with(
        paths: usize,
        allowed: &[&str],
        script: &str,
        change: impl FnOnce(&mut TcpServer) + Send + 'static,
    ) -> Running {
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (made, addresses) = mpsc::channel();
        let (allowed, script) =
            (allowed.iter().map(ToString::to_string).collect(), script.parse::<Script>().unwrap());
        let ahead = Arc::new(AtomicU64::new(0));
        let clock = ahead.clone();
        let thread = thread::spawn(move || {
            AHEAD.replace(clock);
            let mut subsystem = Subsystem::new(NQN).unwrap();
            subsystem
                .share(NamespaceConfig::mem(Mem::new(4 << 20, Budget::new(8 << 20)), 512).unwrap())
                .unwrap();
            let mut server = TcpServer::new(subsystem, allowed).unwrap();
            let config = Config {
                ana: Some(Ana::new(nvme::AnaState::OPTIMIZED)),
                quiesce_time: Nanos::from_secs(30),
                queue_pairs: 2,
                ..Config::new(Profile::null())
            };
            let config = Config {
                profile: Profile { moves_data: true, ..config.profile.clone() },
                ..config
            };
            let any = "127.0.0.1:0".parse().unwrap();
            made.send(
                (0..paths)
                    .map(|_| server.add(any, "mem".into(), config.clone()).unwrap())
                    .collect(),
            )
            .unwrap();
            server.play(script).unwrap();
            change(&mut server);
            let mut told = Vec::new();
            server.run(&stopped, &mut |event| told.push(event)).unwrap();
            told
        });
        Running { stop, thread, addresses: addresses.recv().unwrap(), ahead }
    }

    fn fault(&self, path: usize, fault: &str) {
        ask_address(self.addresses[path], &format!("fault {fault}")).unwrap();
    }

    /// Advances the server's clock and wakes the server.
    fn wait(&self, seconds: u64) {
        self.ahead.fetch_add(Nanos::from_secs(seconds).0, Relaxed);
        self.status(0);
    }

    fn status(&self, path: usize) -> String {
        ask_address(self.addresses[path], "status").unwrap()
    }

    /// Advances the clock until the address has no association.
    fn outwait(&self, path: usize) {
        while self.status(path).contains("controller") {
            self.wait(31);
        }
    }

    /// Stops the server and returns its events.
    fn end(mut self) -> Vec<ServeEvent> {
        self.stop.write_all(&[0]).unwrap();
        self.thread.join().unwrap()
    }
}

/// A host's connection.
struct Queue {
    stream: TcpStream,
    receiver: Receiver,
    digests: Digests,
    cid: u16,
    /// The received C2HTermReq.
    term: Option<Term>,
    wrong_digests: u32,
}

impl Queue {
    fn new(address: SocketAddr, bits: u8) -> Queue {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let digests = Digests::from_bits(bits);
        let mut queue = Queue {
            stream,
            receiver: Receiver::new(Side::Host),
            digests: Digests::default(),
            cid: 0,
            term: None,
            wrong_digests: 0,
        };
        queue.send(
            &Pdu::new(Body::IcReq(Greeting { digests: bits, ..Greeting::default() })).to_bytes(
                &[],
                Digests::default(),
                0,
            ),
        );
        assert!(matches!(queue.next(), Some((Pdu { body: Body::IcResp(_), .. }, _))));
        queue.receiver.begin(digests, 1 << 16);
        queue.digests = digests;
        queue
    }

    fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection.
        _ = self.stream.write_all(bytes);
    }

    /// Receives the next PDU with its data; `None`: the connection is closed.
    fn next(&mut self) -> Option<(Pdu, Vec<u8>)> {
        let mut head = None;
        loop {
            match self.receiver.take() {
                Ok(Some(Item::Head(pdu))) if matches!(pdu.body, Body::C2hData(_)) => {
                    self.receiver.place(vec![0; pdu.data as usize], 0, pdu.data);
                    head = Some(pdu);
                    continue;
                }
                Ok(Some(Item::Head(pdu))) => return Some((pdu, Vec::new())),
                Ok(Some(Item::Data { buffer, intact })) => {
                    self.wrong_digests += u32::from(!intact);
                    return head.map(|head| (head, buffer));
                }
                Ok(None) => {}
                Err(violation) => {
                    self.term = Some(violation.0);
                    return None;
                }
            }
            let mut spaces = self.receiver.space().map(IoSliceMut::new);
            match self.stream.read_vectored(&mut spaces) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.receiver.filled(n),
            }
        }
    }

    fn post(&mut self, sqe: Sqe, sgl: Descriptor, data: &[u8]) -> u16 {
        self.cid = self.cid.wrapping_add(1) & 0x7fff;
        let dptr = sgl.dptr();
        let sqe =
            Sqe { cid: self.cid, flags: Sqe::PSDT_SGL, prp1: dptr.prp1, prp2: dptr.prp2, ..sqe };
        let bytes = Pdu::new(Body::CapsuleCmd(sqe)).to_bytes(data, self.digests, 0);
        self.send(&bytes);
        self.cid
    }

    /// Completes the last command sent: answers R2Ts from `data`, and returns the entry and the
    /// data read. `None`: the connection is closed.
    fn finish(&mut self, data: &[u8]) -> Option<(Cqe, Vec<u8>)> {
        let mut come = Vec::new();
        loop {
            let (pdu, bytes) = self.next()?;
            match pdu.body {
                Body::CapsuleResp(cqe) => return Some((cqe, come)),
                Body::C2hData(_) => come = bytes,
                Body::R2t(r2t) => {
                    let at = r2t.offset.get() as usize;
                    let Some(piece) = data.get(at..at + r2t.len.get() as usize) else {
                        self.term = Some(Term { fes: Fes::OUT_OF_RANGE, fei: 0 });
                        return None;
                    };
                    let body = Body::H2cData(Data { ..r2t });
                    let bytes =
                        Pdu { flags: flags::LAST, body, data: 0 }.to_bytes(piece, self.digests, 0);
                    self.send(&bytes);
                }
                Body::C2hTermReq(term) => self.term = Some(term),
                body => panic!("{body:?}"),
            }
        }
    }

    fn do_to_host(&mut self, sqe: Sqe, len: u32) -> Option<(Cqe, Vec<u8>)> {
        self.post(sqe, Descriptor::transport(len), &[]);
        self.finish(&[])
    }

    fn connect(&mut self, change: impl FnOnce(&mut Connect, &mut ConnectData)) -> Cqe {
        let mut connect = Connect {
            format: 0,
            queue: QueueId(0),
            entries: 32,
            no_flow_control: false,
            kato: 0,
            data: Dptr::NONE,
        };
        let mut data = ConnectData {
            host_id: [7; 16],
            cntlid: ConnectData::ANY.into(),
            subnqn: Text::nul_terminated(NQN),
            hostnqn: Text::nul_terminated(HOST),
            ..ConnectData::default()
        };
        change(&mut connect, &mut data);
        self.post(connect.to_sqe(), Descriptor::in_capsule(0, 1024), data.as_page());
        self.finish(&[]).unwrap().0
    }

    /// Connects an admin queue and enables the controller; returns the queue and CNTLID.
    fn admin(address: SocketAddr, kato: u32) -> (Queue, u16) {
        let mut queue = Queue::new(address, 0);
        let cqe = queue.connect(|connect, _| connect.kato = kato);
        assert!(cqe.status().is_success(), "{cqe:?}");
        let cc = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4);
        queue.post(
            Property::to_set(regs::CC, false, cc.into_bits().into()),
            Descriptor::default(),
            &[],
        );
        assert!(queue.finish(&[]).unwrap().0.status().is_success());
        let get = Property::to_get(regs::CSTS, false);
        while queue.do_to_host(get, 0).unwrap().0.result & 1 == 0 {}
        (queue, cqe.result as u16)
    }

    fn io(address: SocketAddr, cntlid: u16, bits: u8) -> Queue {
        let mut queue = Queue::new(address, bits);
        let cqe = queue
            .connect(|connect, data| (connect.queue, data.cntlid) = (QueueId(1), cntlid.into()));
        assert!(cqe.status().is_success(), "{cqe:?}");
        queue
    }

    fn write(&mut self, lba: u64, data: &[u8]) -> Option<Status> {
        self.post(write_of(lba, data.len()), Descriptor::transport(data.len() as u32), &[]);
        self.finish(data).map(|(cqe, _)| cqe.status())
    }

    fn read(&mut self, lba: u64, len: usize) -> Option<Vec<u8>> {
        self.do_to_host(
            read(Nsid(1), Lba(lba), (len / 512) as u32, Dptr::NONE, Flags::NONE),
            len as u32,
        )
        .map(|(_, data)| data)
    }
}

fn write_of(lba: u64, len: usize) -> Sqe {
    write(Nsid(1), Lba(lba), (len / 512) as u32, Dptr::NONE, Flags::NONE)
}

fn identify(queue: &mut Queue) -> nvme::identify::Controller {
    let sqe = admin::Identify::new(admin::cns::CONTROLLER, Nsid(0), Dptr::NONE).to_sqe();
    let (cqe, data) = queue.do_to_host(sqe, 4096).unwrap();
    assert!(cqe.status().is_success(), "{cqe:?}");
    nvme::identify::Controller::from_page(&data).unwrap()
}

#[test]
fn host_writes_and_reads() {
    let server = Running::new(1, &[], "");
    for bits in 0..4 {
        let (mut admin, cntlid) = Queue::admin(server.addresses[0], 0);
        let page = identify(&mut admin);
        assert_eq!((page.cntlid, page.ioccsz, page.sgls, page.kas), (cntlid, 516, 0x30_0001, 1));
        let mut io = Queue::io(server.addresses[0], cntlid, bits);
        let data: Vec<u8> = (0..700_416u32).map(|n| (n / 11) as u8).collect();
        assert_eq!(io.write(8, &data), Some(Status::SUCCESS));
        assert_eq!(io.read(8, data.len()), Some(data));
        io.post(write_of(0, 4096), Descriptor::in_capsule(0, 4096), &[bits; 4096]);
        assert!(io.finish(&[]).unwrap().0.status().is_success());
        assert_eq!(io.read(0, 4096), Some(vec![bits; 4096]));
        // More or less data than the SGL describes.
        let read = read(Nsid(1), Lba(0), 8, Dptr::NONE, Flags::NONE);
        assert_eq!(
            io.do_to_host(read, 512).unwrap().0.status().kind(),
            Status::DATA_SGL_LENGTH_INVALID
        );
        // On PCIe a log page of more than two memory pages needs a PRP list.
        let errors =
            admin::GetLogPage::new(nvme::log::lid::COMMANDS_SUPPORTED, 12_288, Dptr::NONE).to_sqe();
        assert_eq!(admin.do_to_host(errors, 12_288).unwrap().1.len(), 12_288);
    }
    server.end();
}

#[test]
fn discovery_names_every_address() {
    let named = discovered_addresses(Running::new(2, &[], ""));
    assert_eq!(named, ["127.0.0.1", "127.0.0.1"]);
}

#[test]
fn discovery_names_advertised_address() {
    let server = Running::with(2, &[], "", |server| server.advertise("10.0.2.2".parse().unwrap()));
    assert_eq!(discovered_addresses(server), ["10.0.2.2", "10.0.2.2"]);
}

/// Addresses of the discovery log entries, which have the server's ports.
fn discovered_addresses(server: Running) -> Vec<String> {
    let mut queue = Queue::new(server.addresses[1], 0);
    let cqe = queue.connect(|_, data| data.subnqn = Text::nul_terminated(DISCOVERY_NQN));
    assert!(cqe.status().is_success());
    let cc = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4);
    queue.post(
        Property::to_set(regs::CC, false, cc.into_bits().into()),
        Descriptor::default(),
        &[],
    );
    assert!(queue.finish(&[]).is_some());
    while queue.do_to_host(Property::to_get(regs::CSTS, false), 0).unwrap().0.result & 1 == 0 {}
    assert_eq!(identify(&mut queue).cntrltype, nvme::identify::Controller::TYPE_DISCOVERY);
    let sqe = Sqe {
        nsid: 0,
        ..admin::GetLogPage::new(nvme::log::lid::DISCOVERY, 3072, Dptr::NONE).to_sqe()
    };
    let (cqe, log) = queue.do_to_host(sqe, 3072).unwrap();
    assert!(cqe.status().is_success(), "{cqe:?}");
    assert_eq!(DiscoveryHeader::from_page(&log).unwrap().records.get(), 2);
    let mut named = Vec::new();
    for (entry, address) in log[1024..].chunks(1024).zip(&server.addresses) {
        let entry = DiscoveryEntry::from_page(entry).unwrap();
        assert_eq!(entry.service.to_string(), address.port().to_string());
        named.push(entry.address.to_string());
        assert_eq!(fabrics::nqn(&entry.subnqn), Some(NQN));
    }
    let mut io = Queue::new(server.addresses[1], 0);
    let cqe = io.connect(|connect, data| (connect.queue, data.cntlid) = (QueueId(1), 1.into()));
    assert_eq!(
        cqe.status().kind(),
        fabrics::INVALID_PARAMETERS,
        "a discovery controller has no I/O queues"
    );
    server.end();
    named
}

#[test]
fn connect_parameters_are_checked() {
    let server = Running::new(2, &[HOST], "");
    let refused = |change: &dyn Fn(&mut Connect, &mut ConnectData)| {
        let cqe = Queue::new(server.addresses[0], 0).connect(change);
        (cqe.status().kind(), cqe.result)
    };
    let invalid =
        |at, in_data| (fabrics::INVALID_PARAMETERS, fabrics::invalid_parameter(at, in_data));
    assert_eq!(refused(&|connect, _| connect.format = 1).0, fabrics::INCOMPATIBLE_FORMAT);
    assert_eq!(
        refused(&|_, data| data.hostnqn = Text::nul_terminated("nqn.x:other")).0,
        fabrics::INVALID_HOST
    );
    assert_eq!(refused(&|_, data| data.hostnqn = Text([1; 256])), invalid(512, true));
    assert_eq!(
        refused(&|_, data| data.subnqn = Text::nul_terminated("nqn.x:other")),
        invalid(256, true)
    );
    assert_eq!(refused(&|_, data| data.cntlid = 1.into()), invalid(16, true));
    assert_eq!(refused(&|connect, _| connect.entries = 1), invalid(44, false));
    assert_eq!(refused(&|connect, _| connect.entries = 65_536), invalid(44, false));
    assert_eq!(
        refused(&|connect, data| (connect.queue, data.cntlid) = (QueueId(1), 77.into())),
        invalid(16, true)
    );
    let (admin, cntlid) = Queue::admin(server.addresses[0], 0);
    let io = |path: usize, queue, entries, id| {
        let mut io = Queue::new(server.addresses[path], 0);
        let change = |connect: &mut Connect, data: &mut ConnectData| {
            (connect.queue, connect.entries, data.cntlid, data.host_id) =
                (QueueId(queue), entries, cntlid.into(), [id; 16]);
        };
        let cqe = io.connect(change);
        (cqe.status().kind(), cqe.result)
    };
    assert_eq!(io(0, 1, 32, 8), invalid(16, true), "another host");
    assert_eq!(io(1, 1, 32, 7), invalid(16, true), "another address");
    assert_eq!(io(0, 3, 32, 7), invalid(42, false));
    assert_eq!(io(0, 1, 2048, 7), invalid(44, false));
    let mut stranger = Queue::new(server.addresses[0], 0);
    assert_eq!(
        stranger.do_to_host(Property::to_get(regs::CAP, true), 0).unwrap().0.status().kind(),
        Status::COMMAND_SEQUENCE_ERROR
    );
    drop(admin);
    server.end();
    let mut open = TcpServer::new(Subsystem::new(NQN).unwrap(), Vec::new()).unwrap();
    let error = open
        .add("0.0.0.0:0".parse().unwrap(), "mem".into(), Config::new(Profile::null()))
        .unwrap_err();
    assert!(error.to_string().contains("--allow"), "{error}");
}

#[test]
fn hosts_without_keep_alive_lose_controllers() {
    let server = Running::new(1, &[], "");
    let (mut admin, cntlid) = Queue::admin(server.addresses[0], 300);
    let mut io = Queue::io(server.addresses[0], cntlid, 0);
    // Any command restarts the Keep Alive Timer.
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(100));
        assert!(io.read(0, 512).is_some());
    }
    assert!(admin.next().is_none() && io.next().is_none());
    let told = server.end();
    assert!(
        told.iter().any(|event| event.to_string().contains("Keep Alive did not arrive in time")),
        "{told:?}"
    );
}

#[test]
fn held_write_outlives_its_path() {
    let server = Running::new(2, &[], "");
    let (_admin, first) = Queue::admin(server.addresses[0], 60_000);
    let (_other_admin, second) = Queue::admin(server.addresses[1], 60_000);
    let mut io = Queue::io(server.addresses[0], first, 0);
    let mut other = Queue::io(server.addresses[1], second, 0);
    server.fault(0, "hold writes");
    io.post(write_of(0, 512), Descriptor::in_capsule(0, 512), &[0xaa; 512]);
    // Commands are fetched in order: once the following Read has completed, this one has been
    // fetched.
    io.post(read(Nsid(1), Lba(0), 1, Dptr::NONE, Flags::NONE), Descriptor::transport(512), &[]);
    assert!(io.finish(&[]).is_some());
    server.fault(0, "lost");
    assert!(io.next().is_none() && TcpStream::connect(server.addresses[0]).is_err());
    assert_eq!(other.write(0, &[0xbb; 512]), Some(Status::SUCCESS));
    assert_eq!(other.read(0, 512), Some(vec![0xbb; 512]));
    server.fault(0, "release");
    while other.read(0, 512).unwrap()[0] != 0xaa {}
    server.fault(0, "back");
    Queue::admin(server.addresses[0], 0);
    server.end();
}

#[test]
fn cross_controller_reset_forgets_held_writes() {
    let server = Running::new(2, &[], "at 0s path 0 hold writes");
    let (mut admin, first) = Queue::admin(server.addresses[0], 60_000);
    let (mut other_admin, second) = Queue::admin(server.addresses[1], 60_000);
    let mut io = Queue::io(server.addresses[0], first, 0);
    let mut other = Queue::io(server.addresses[1], second, 0);
    io.post(write_of(0, 512), Descriptor::in_capsule(0, 512), &[0xaa; 512]);
    assert!(io.read(0, 512).is_some());
    let page = identify(&mut admin);
    assert_eq!(page.ccrl, 1);
    server.fault(0, "lost");
    let wrong = CrossControllerReset { ciu: page.ciu, icid: first, cirn: page.cirn ^ 1 };
    assert_eq!(
        other_admin.do_to_host(wrong.to_sqe(), 0).unwrap().0.status().kind(),
        Status::INVALID_FIELD
    );
    let reset = CrossControllerReset { cirn: page.cirn, ..wrong };
    let (cqe, _) = other_admin.do_to_host(reset.to_sqe(), 0).unwrap();
    assert_eq!((cqe.status(), cqe.result), (Status::SUCCESS, CrossControllerReset::RESET));
    assert_eq!(other.write(0, &[0xbb; 512]), Some(Status::SUCCESS));
    server.fault(0, "release");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(other.read(0, 512), Some(vec![0xbb; 512]));
    server.end();
}

#[test]
fn wire_faults_reach_io_queues() {
    let server = Running::new(1, &[], "");
    let again = |bits| {
        let (admin, cntlid) = Queue::admin(server.addresses[0], 0);
        (admin, Queue::io(server.addresses[0], cntlid, bits))
    };
    let (_admin, mut io) = again(3);
    server.fault(0, "wrong-data-digest");
    assert!(io.read(0, 512).is_some());
    assert_eq!(io.wrong_digests, 1);
    assert!(io.read(0, 512).is_some());
    assert_eq!(io.wrong_digests, 1);
    server.fault(0, "wrong-header-digest");
    assert!(io.read(0, 512).is_none());
    assert_eq!(io.term.unwrap().fes, Fes::HEADER_DIGEST);
    let (_admin, mut io) = again(0);
    server.fault(0, "wrong-r2t");
    assert!(io.write(0, &[0; 512]).is_none());
    assert_eq!(io.term.unwrap().fes, Fes::OUT_OF_RANGE);
    let (mut admin, mut io) = again(0);
    server.fault(0, "terminate 4");
    assert!(admin.next().is_none());
    io.stream.set_nonblocking(true).unwrap();
    assert!(io.finish(&[]).is_none(), "C2HTermReq comes before the other queue closes");
    assert_eq!(io.term.unwrap().fes, Fes(4));
    let (_admin, mut io) = again(0);
    server.fault(0, "cut 1000");
    assert!(
        io.read(0, 512).is_some() && io.read(0, 512).is_none(),
        "560 bytes have been sent, and then 440"
    );
    let (mut admin, mut io) = again(0);
    server.fault(0, "stall 300ms");
    let begun = hw::now();
    assert!(io.read(0, 512).is_some() && hw::now() - begun >= Nanos::from_millis(250));
    server.fault(0, "drop");
    assert!(io.read(0, 512).is_none() && admin.next().is_none());
    server.end();
}

#[test]
fn lasting_faults_are_in_status() {
    let server = Running::new(1, &[], "");
    for (fault, why) in [
        ("cut 1", "no host has an I/O queue"),
        ("fail", "no host is connected"),
        ("wrong-cid", "no host is connected"),
        ("rot 99999999", "beyond the medium"),
        ("resize 1 namespace 2", "no namespace 2"),
        ("ana optimized group 7", "no ANA group 7"),
        ("terminate 99999", "too large"),
    ] {
        let error = ask_address(server.addresses[0], &format!("fault {fault}")).unwrap_err();
        assert!(error.to_string().contains(why), "{fault}: {error}");
    }
    server.fault(0, "stall 900s");
    assert!(server.status(0).contains("faults stall "), "what is left of it, in milliseconds");
    let lasting = [
        "reset-takes 3s",
        "resize 1024",
        "reorder",
        "wrong-r2t times 2",
        "volatile-cache",
        "phantom-write times 3",
    ];
    lasting.iter().for_each(|fault| server.fault(0, fault));
    let status = server.status(0);
    for fault in lasting {
        assert!(status.contains(fault), "{fault}: {status}");
    }
    ["reset-takes 0s", "stall 0s", "in-order", "ana non-optimized"]
        .iter()
        .for_each(|fault| server.fault(0, fault));
    let status = server.status(0);
    assert!(status.contains("ana group 1 non-optimized"), "{status}");
    for fault in ["reset-takes", "stall", "reorder"] {
        assert!(!status.contains(fault), "{fault}: {status}");
    }
    // Both losses end with `back`, and a new controller has the size that was asked for.
    server.fault(0, "lost");
    assert!(server.status(0).contains(", lost\n"));
    server.fault(0, "lost frozen");
    server.fault(0, "back");
    let (_admin, cntlid) = Queue::admin(server.addresses[0], 0);
    let mut io = Queue::io(server.addresses[0], cntlid, 0);
    let read = |lba| read(Nsid(1), Lba(lba), 1, Dptr::NONE, Flags::NONE);
    assert!(io.do_to_host(read(1023), 512).unwrap().0.status().is_success());
    let (cqe, _) = io.do_to_host(read(1024), 512).unwrap();
    assert_eq!(cqe.status().kind(), Status::LBA_OUT_OF_RANGE);
    server.end();
}

#[test]
fn answers_come_last_first() {
    let server = Running::new(1, &[], "at 0s path 0 reorder; at 0s path 0 hold writes");
    let (_admin, cntlid) = Queue::admin(server.addresses[0], 0);
    let mut io = Queue::io(server.addresses[0], cntlid, 0);
    let posted: Vec<u16> = (0..5)
        .map(|lba| io.post(write_of(lba, 512), Descriptor::in_capsule(0, 512), &[1; 512]))
        .collect();
    // Commands are fetched in order: once the following Read has completed, these have been
    // fetched.
    assert!(io.read(9, 512).is_some());
    server.fault(0, "release");
    let done: Vec<u16> = posted.iter().map(|_| io.finish(&[]).unwrap().0.cid).collect();
    assert!(done.is_sorted_by(|a, b| a > b), "{done:?}");
    server.end();
}

#[test]
fn power_loss_empties_the_cache() {
    let server = Running::new(2, &[], "at 0s path 0 volatile-cache; at 0s path 0 lying-flush");
    let (mut admin, cntlid) = Queue::admin(server.addresses[0], 0);
    assert!(identify(&mut admin).vwc.present());
    let mut io = Queue::io(server.addresses[0], cntlid, 0);
    assert_eq!(io.write(0, &[1; 512]), Some(Status::SUCCESS));
    assert!(io.do_to_host(nvme::io::flush(Nsid(1)), 0).unwrap().0.status().is_success());
    server.fault(0, "power-lost");
    assert!(io.next().is_none());
    server.fault(0, "back");
    let (_admin, cntlid) = Queue::admin(server.addresses[0], 0);
    assert_eq!(Queue::io(server.addresses[0], cntlid, 0).read(0, 512), Some(vec![0; 512]));
    assert!(ask_address(server.addresses[1], "fault rot 0 namespace 2").is_err());
    assert!(ask_address(server.addresses[1], "fault lose-message").is_err());
    server.end();
}

#[test]
fn rubbish_harms_no_other_connection() {
    let server = Running::new(1, &[], "");
    let (_admin, cntlid) = Queue::admin(server.addresses[0], 0);
    let mut io = Queue::io(server.addresses[0], cntlid, 0);
    let silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(server.addresses[0]).unwrap()).collect();
    for n in 0..100u8 {
        let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
        let rubbish: Vec<u8> = (0..200u8).map(|at| at.wrapping_mul(n) ^ n).collect();
        _ = stream.write_all(&rubbish);
        let (mut admin, _) = Queue::admin(server.addresses[0], 0);
        _ = admin.stream.write_all(&rubbish);
        assert!(io.read(0, 512).is_some());
    }
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Closed, as no ICReq was received in time.
        assert!(matches!(stream.read(&mut [0; 200]), Ok(0)) || stream.peer_addr().is_err());
    }
    assert!(io.read(0, 512).is_some());
    server.end();
}

#[test]
fn frozen_path_answers_nothing() {
    let server = Running::new(2, &[], "");
    let (_admin, first) = Queue::admin(server.addresses[0], 0);
    let (_other_admin, second) = Queue::admin(server.addresses[1], 0);
    let mut io = Queue::io(server.addresses[0], first, 0);
    let mut other = Queue::io(server.addresses[1], second, 0);
    server.fault(0, "hold writes");
    io.post(write_of(0, 512), Descriptor::in_capsule(0, 512), &[0xaa; 512]);
    assert!(io.read(9, 512).is_some());
    server.fault(0, "lost frozen");
    // The kernel completes the handshake; the server does not call accept().
    let mut late = TcpStream::connect(server.addresses[0]).unwrap();
    late.write_all(&Pdu::new(Body::IcReq(Greeting::default())).to_bytes(
        &[],
        Digests::default(),
        0,
    ))
    .unwrap();
    io.post(read(Nsid(1), Lba(0), 1, Dptr::NONE, Flags::NONE), Descriptor::transport(512), &[]);
    late.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(late.read(&mut [0; 128]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(server.status(0).contains("alone, host") && server.status(0).contains("lost frozen"));
    assert_eq!(other.write(0, &[0xbb; 512]), Some(Status::SUCCESS));
    server.fault(0, "release");
    while other.read(0, 512).unwrap()[0] != 0xaa {}
    server.fault(0, "back");
    assert!(io.next().is_none(), "nothing that was sent meanwhile is answered");
    late.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    late.read_exact(&mut [0; 128]).unwrap();
    server.end();
}

/// Whether a held write of a lost path is executed after KATO and CQT.
fn write_after_quiesce_time(faults: &[&str]) -> bool {
    let server = Running::new(2, &[], "");
    let (_admin, first) = Queue::admin(server.addresses[0], 60_000);
    let (_other_admin, second) = Queue::admin(server.addresses[1], 0);
    let mut io = Queue::io(server.addresses[0], first, 0);
    let mut other = Queue::io(server.addresses[1], second, 0);
    faults.iter().for_each(|fault| server.fault(0, fault));
    server.fault(0, "hold writes");
    io.post(write_of(0, 512), Descriptor::in_capsule(0, 512), &[0xaa; 512]);
    assert!(io.read(9, 512).is_some());
    server.fault(0, "lost");
    // KATO is 60 s, CQT 30 s.
    server.wait(89);
    assert!(server.status(0).contains("alone"));
    server.wait(2);
    assert_eq!(other.write(0, &[0xbb; 512]), Some(Status::SUCCESS));
    server.fault(0, "release");
    // The controller is deleted when it has no writes left, or may not execute them any more.
    while server.status(0).contains("controller") {}
    let late = other.read(0, 512) == Some(vec![0xaa; 512]);
    server.end();
    late
}

#[test]
fn quiesce_time_is_kept() {
    assert!(!write_after_quiesce_time(&[]));
    assert!(!write_after_quiesce_time(&["exceed-cqt", "keep-cqt"]));
}

#[test]
fn quiesce_time_is_exceeded() {
    assert!(write_after_quiesce_time(&["exceed-cqt"]));
}

#[test]
fn missing_data_end_connections() {
    let server = Running::new(1, &[], "");
    let begin = || {
        let (admin, cntlid) = Queue::admin(server.addresses[0], 0);
        (admin, Queue::io(server.addresses[0], cntlid, 0))
    };
    // An R2T without H2CData.
    let (_admin, mut io) = begin();
    io.post(write_of(0, 16_384), Descriptor::transport(16_384), &[]);
    assert!(matches!(io.next(), Some((Pdu { body: Body::R2t(_), .. }, _))));
    server.outwait(0);
    assert!(io.next().is_none());
    // An incomplete capsule.
    let (_admin, mut io) = begin();
    let dptr = Descriptor::in_capsule(0, 4096).dptr();
    let sqe =
        Sqe { cid: 1, flags: Sqe::PSDT_SGL, prp1: dptr.prp1, prp2: dptr.prp2, ..write_of(0, 4096) };
    io.send(&Pdu::new(Body::CapsuleCmd(sqe)).to_bytes(&[0; 4096], Digests::default(), 0)[..2000]);
    server.outwait(0);
    assert!(io.next().is_none());
    let told = server.end();
    assert_eq!(
        told.iter()
            .filter(|event| event.to_string().contains("requested data did not arrive"))
            .count(),
        2,
        "{told:?}"
    );
}

#[test]
fn host_that_never_reads_is_disconnected() {
    let server = Running::new(1, &[], "");
    let (_admin, cntlid) = Queue::admin(server.addresses[0], 0);
    let mut io = Queue::io(server.addresses[0], cntlid, 0);
    for _ in 0..30 {
        let read = read(Nsid(1), Lba(0), 2048, Dptr::NONE, Flags::NONE);
        io.post(read, Descriptor::transport(1 << 20), &[]);
    }
    server.outwait(0);
    let told = server.end();
    assert!(told.iter().any(|event| event.to_string().contains("does not read")), "{told:?}");
}

#[test]
fn cross_controller_reset_takes_time() {
    let server = Running::new(2, &[], "");
    let (mut first, icid) = Queue::admin(server.addresses[0], 0);
    let (mut third, other_icid) = Queue::admin(server.addresses[0], 0);
    let (mut admin, _) = Queue::admin(server.addresses[1], 0);
    let resets = [(&mut first, icid), (&mut third, other_icid)].map(|(queue, icid)| {
        let page = identify(queue);
        CrossControllerReset { ciu: page.ciu, icid, cirn: page.cirn }.to_sqe()
    });
    server.fault(0, "reset-takes 5s");
    let set =
        Sqe { opcode: opcode::admin::SET_FEATURES, cdw10: 0x0b, cdw11: 1 << 20, ..Sqe::default() };
    assert!(admin.do_to_host(set, 0).unwrap().0.status().is_success());
    let event = admin.post(admin::async_event_request(), Descriptor::default(), &[]);
    let mut reset = |n: usize| {
        admin.do_to_host(resets[n], 0).map(|(cqe, _)| (cqe.status().kind(), cqe.result)).unwrap()
    };
    assert_eq!(reset(0), (Status::SUCCESS, 0), "not at once");
    assert_eq!(reset(0).0, Status::CROSS_RESET_IN_PROGRESS);
    assert_eq!(reset(1).0, Status::CROSS_RESET_LIMIT_EXCEEDED);
    let log = |queue: &mut Queue, lsp: u32| {
        let sqe = admin::GetLogPage::new(nvme::log::lid::CROSS_CONTROLLER_RESET, 4096, Dptr::NONE)
            .to_sqe();
        let data = queue.do_to_host(Sqe { cdw10: sqe.cdw10 | lsp << 8, ..sqe }, 4096).unwrap().1;
        (data[0], data[8..16].to_vec())
    };
    let [low, high] = icid.to_le_bytes();
    let ciu = (resets[0].cdw10 >> 16) as u8;
    assert_eq!(log(&mut admin, 0), (1, vec![low, high, ciu, 0, 0xff, 0xff, 0, 3]));
    // The other controller stays active until then.
    identify(&mut first);
    server.wait(6);
    let (cqe, _) = admin.finish(&[]).unwrap();
    assert_eq!((cqe.cid, cqe.result), (event, 0x1e_f402));
    assert!(first.next().is_none());
    assert_eq!(log(&mut admin, 1), (1, vec![low, high, ciu, 0, 0xff, 0xff, 1, 3]));
    assert_eq!(log(&mut admin, 0).0, 0, "completed entries were removed");
    server.end();
}
