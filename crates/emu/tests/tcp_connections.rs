//! NVMe/TCP connections of `reap serve --tcp`: their limit, and the memory of each.

use std::alloc::System;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use emu::serve::TcpServer;
use emu::{Budget, Config, Mem, NamespaceConfig, Profile, Subsystem};
use nvme::fabrics::{Connect, ConnectData, Property};
use nvme::io::{Flags, read};
use nvme::prp::Dptr;
use nvme::regs::{self, Cc};
use nvme::sgl::Descriptor;
use nvme::{Lba, Nsid, Page, QueueId, Sqe, Text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tcp::{Body, Digests, Greeting, Pdu};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NQN: &str = "nqn.2026-11.test:subsystem";
/// As in the server.
const MAX_CONNECTIONS: usize = 2048;
const MEMORY_OF_ONE: isize = 32 << 20;

fn pdu(body: Body, data: &[u8]) -> Vec<u8> {
    Pdu::new(body).to_bytes(data, Digests::default(), 0)
}

/// Sends a command and receives `answer` bytes.
fn send(stream: &mut TcpStream, sqe: Sqe, sgl: Descriptor, data: &[u8], answer: usize) -> Vec<u8> {
    let dptr = sgl.dptr();
    let sqe = Sqe { flags: Sqe::PSDT_SGL, prp1: dptr.prp1, prp2: dptr.prp2, ..sqe };
    stream.write_all(&pdu(Body::CapsuleCmd(sqe), data)).unwrap();
    let mut bytes = vec![0; answer];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn greeted(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    // Otherwise the commands of a host that reads nothing wait for a delayed ACK.
    stream.set_nodelay(true).unwrap();
    stream.write_all(&pdu(Body::IcReq(Greeting::default()), &[])).unwrap();
    stream.read_exact(&mut [0; 128]).unwrap();
    stream
}

/// Connects a queue of `entries` entries; returns CNTLID.
fn connect(address: SocketAddr, queue: u16, cntlid: u16, entries: u32) -> (TcpStream, u16) {
    let mut stream = greeted(address);
    let connect = Connect {
        format: 0,
        queue: QueueId(queue),
        entries,
        no_flow_control: false,
        kato: 0,
        data: Dptr::NONE,
    };
    let (subnqn, hostnqn) =
        (Text::nul_terminated(NQN), Text::nul_terminated("nqn.2026-11.test:host"));
    let data = ConnectData {
        host_id: [7; 16],
        cntlid: cntlid.into(),
        subnqn,
        hostnqn,
        ..ConnectData::default()
    };
    let answer =
        send(&mut stream, connect.to_sqe(), Descriptor::in_capsule(0, 1024), data.as_page(), 24);
    assert_eq!(answer[22..], [0, 0], "Connect succeeds");
    (stream, u16::from_le_bytes([answer[8], answer[9]]))
}

fn admin(address: SocketAddr) -> (TcpStream, u16) {
    let (mut stream, cntlid) = connect(address, 0, ConnectData::ANY, 32);
    let cc = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4).into_bits();
    send(&mut stream, Property::to_set(regs::CC, false, cc.into()), Descriptor::default(), &[], 24);
    while property(&mut stream)[8] & 1 == 0 {}
    (stream, cntlid)
}

/// A command that completes at once.
fn property(stream: &mut TcpStream) -> Vec<u8> {
    send(stream, Property::to_get(regs::CSTS, false), Descriptor::default(), &[], 24)
}

fn read_of(cid: u16, bytes: u32) -> (Sqe, Descriptor) {
    (
        Sqe { cid, ..read(Nsid(1), Lba(0), bytes / 512, Dptr::NONE, Flags::NONE) },
        Descriptor::transport(bytes),
    )
}

/// One test: it counts the allocations of the whole program.
#[test]
fn connections_are_bounded() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let (mut stop, stopped) = UnixStream::pair().unwrap();
    let (made, address) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut subsystem = Subsystem::new(NQN).unwrap();
        subsystem
            .share(NamespaceConfig::mem(Mem::new(4 << 20, Budget::new(8 << 20)), 512).unwrap())
            .unwrap();
        let mut server = TcpServer::new(subsystem, Vec::new()).unwrap();
        let config = Config {
            queue_pairs: 4,
            ..Config::new(Profile { moves_data: true, ..Profile::null() })
        };
        made.send(server.add("127.0.0.1:0".parse().unwrap(), "mem".into(), config).unwrap())
            .unwrap();
        server.run(&stopped, &mut |_| {}).unwrap();
    });
    let address = address.recv().unwrap();
    let (mut first, cntlid) = admin(address);
    let grown = |region: &Region<'_, System>| {
        let change = region.change();
        change.bytes_allocated as isize - change.bytes_deallocated as isize
    };

    // Before ICReq. The server accepts in order, so the response to the last connection implies
    // that all are accepted.
    let region = Region::new(COUNTED);
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    let last = greeted(address);
    let each = grown(&region) / 200;
    assert!(each <= 4096, "{each} bytes for a connection before ICReq");
    drop((silent, last));

    // Idle, after a full queue of outstanding commands.
    for (queue, entries) in [(1, 128), (2, 256)] {
        let region = Region::new(COUNTED);
        let (mut io, _) = connect(address, queue, cntlid, entries);
        let mut answer = vec![0; 24 + 512 + 24];
        for cid in 0..entries as u16 {
            let (sqe, sgl) = read_of(cid, 512);
            send(&mut io, sqe, sgl, &[], 0);
        }
        (0..entries).for_each(|_| io.read_exact(&mut answer).unwrap());
        // Its response implies that the server has handled the completion of the others.
        let (sqe, sgl) = read_of(0, 512);
        send(&mut io, sqe, sgl, &[], answer.len());
        drop(answer);
        let idle = grown(&region);
        assert!(idle <= 64 << 10, "{idle} bytes for an idle connection of {entries} entries");
        std::mem::forget(io);
    }

    // A host that does not read: unsent bytes are bounded.
    let region = Region::new(COUNTED);
    let (mut deaf, _) = connect(address, 3, cntlid, 128);
    for cid in 0..120 {
        let (sqe, sgl) = read_of(cid, 1 << 20);
        send(&mut deaf, sqe, sgl, &[], 0);
    }
    // Other commands complete, and by then the host's unsent bytes have reached their limit.
    for _ in 0..50 {
        property(&mut first);
    }
    let held = grown(&region);
    assert!(
        (1 << 20..MEMORY_OF_ONE + (1 << 20)).contains(&held),
        "{held} bytes for a host that reads nothing"
    );
    drop(deaf);

    // Beyond the limit connections are rejected; the others keep working.
    let wanted = 10_000.min(limit.maximum.map_or(10_000, |most| most as usize - 4096));
    // The server may reset one before `connect` has returned.
    let connect = |_| match TcpStream::connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        stream => Some(stream.unwrap()),
    };
    let many: Vec<TcpStream> = (0..wanted).filter_map(connect).collect();
    property(&mut first);
    let is_refused = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let refused = wanted - many.iter().filter(|stream| !is_refused(stream)).count();
    assert!(refused >= wanted - MAX_CONNECTIONS, "{refused} of {wanted} were refused");
    drop(many);
    drop(admin(address));
    stop.write_all(&[0]).unwrap();
    server.join().unwrap();
}
