//! A client by hand, on the socket, against the whole server: what a guest does, and what no honest
//! one would.

mod client;
mod control;
mod descriptors;
mod lent;
mod mapped;
mod messages;
mod paths;
mod running;
mod shadow;

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use emu::{Change, Script};
use nvme::Status;
use nvme::regs::Csts;
use rustix::io::Errno;
use units::Nanos;
use vfio_user::{
    Capabilities, DmaMap, DmaUnmap, IrqAction, IrqData, RegionAccess, Request, SetIrqs, Version,
    irq, region,
};

use super::{ServeError, ServeEvent, ServerError, SocketFault};
use client::{Guest, memory};
use lent::RAM;
use running::Running;

const NULL: &str = "mem:16M?profile=null";

#[test]
fn guest_io_by_interrupts() {
    for (uri, sealed) in [
        ("mem:16M?profile=optane", true),
        ("mem:16M?profile=optane", false),
        ("mem:16M?profile=optane&doorbells=late", true),
    ] {
        let server = Running::new(uri, None);
        let mut guest = Guest::with_queues(&server, sealed);
        let data: Vec<u8> = (0..16384u32).map(|n| (n % 249) as u8).collect();
        guest.write_ram(0x4_0000, &data);
        assert_eq!(guest.write(0, 32, 0x4_0000), Status::SUCCESS);
        assert_eq!(guest.read(0, 32, 0x8_0000), Status::SUCCESS);
        assert_eq!(guest.read_ram(0x8_0000, data.len()), data, "{uri}");
        // Around the end of the rings, several times.
        for n in 0..100u64 {
            assert_eq!(guest.read(n % 16, 1, 0xc_0000), Status::SUCCESS);
            assert_eq!(guest.read_ram(0xc_0000, 512), data[(n % 16) as usize * 512..][..512]);
        }
        assert!(guest.messages() >= 102, "each completion sends a message");
        drop(guest);
        let told = server.stop();
        assert!(
            matches!(told.last(), Some(ServeEvent::Detached { why: None, commands, .. }) if *commands >= 104),
            "{told:?}"
        );
    }
}

#[test]
fn unmapped_data_is_a_transfer_error() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::with_queues(&server, true);
    let hole = DmaMap { readable: true, writable: true, offset: 0, address: RAM, size: 0x10000 };
    assert_eq!(guest.ask(&Request::DmaMap(hole), &[]), Ok(Vec::new()));
    let refused = Status::DATA_TRANSFER_ERROR;
    // Reads, because the null device does not move what is written.
    assert_eq!(guest.identify(RAM).kind(), refused);
    assert_eq!(guest.identify(RAM + 0x4000_0000).kind(), refused);
    assert_eq!(guest.identify(0x4_0000), Status::SUCCESS);
    // Memory that may only be read.
    let file = memory(0x1000, true);
    let map = DmaMap {
        readable: true,
        writable: false,
        offset: 0,
        address: RAM + 0x10_0000,
        size: 0x1000,
    };
    assert_eq!(guest.ask(&Request::DmaMap(map), &[file.as_fd()]), Ok(Vec::new()));
    assert_eq!(guest.identify(RAM + 0x10_0000).kind(), refused);
    // And after all of that the controller works.
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
}

#[test]
fn unmapped_queues_need_a_reset() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::with_queues(&server, true);
    guest.unmap_ram();
    guest.ring_io();
    guest.wait_for(|csts| csts.cfs());
    guest.map_ram();
    // By the function level reset, and by the message.
    for reset in [true, false] {
        if reset {
            guest.config_write(0x68, &0x8000u16.to_le_bytes());
        } else {
            assert_eq!(guest.ask(&Request::DeviceReset, &[]), Ok(Vec::new()));
        }
        assert_eq!(guest.csts(), Csts::new());
        guest.forget_queues();
        guest.enable();
        guest.make_queues();
        assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
    }
    drop(guest);
    assert!(server.stop().contains(&ServeEvent::QueueLost));
}

/// A vector without a descriptor keeps its message, and sends it once it has one.
#[test]
fn vectors_come_and_go() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::with_queues(&server, true);
    let set = |start, count, data| {
        Request::SetIrqs(SetIrqs {
            index: irq::MSIX,
            start,
            count,
            action: IrqAction::Trigger,
            data,
        })
    };
    assert_eq!(guest.ask(&set(1, 1, IrqData::Eventfds), &[]), Ok(Vec::new()));
    assert_eq!(guest.read_quietly(0, 1, 0x4_0000), Status::SUCCESS);
    let pending = RegionAccess { offset: 0x8000, region: region::BAR4, count: 1 };
    assert_eq!(guest.ask(&Request::RegionRead(pending), &[]).map(|body| body[16]), Ok(2));
    let before = guest.messages();
    guest.give_vectors();
    guest.wait_messages(before + 1);
    assert_eq!(guest.ask(&Request::RegionRead(pending), &[]).map(|body| body[16]), Ok(0));
    // A client may try one.
    assert_eq!(guest.ask(&set(1, 1, IrqData::None), &[]), Ok(Vec::new()));
    guest.wait_messages(before + 2);
    // All off.
    assert_eq!(guest.ask(&set(0, 0, IrqData::None), &[]), Ok(Vec::new()));
    assert_eq!(guest.read_quietly(0, 1, 0x4_0000), Status::SUCCESS);
    assert_eq!(guest.messages(), before + 2);
}

#[test]
fn malformed_messages_keep_the_stream() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::new(&server, true);
    let file = memory(0x2000, true);
    let (pipe, _other) = std::io::pipe().expect("a pipe");
    let map = |address, size, offset| {
        Request::DmaMap(DmaMap { readable: true, writable: true, offset, address, size })
    };
    let region_read =
        |region, offset, count| Request::RegionRead(RegionAccess { offset, region, count });
    let set = |index, start, count, data| {
        Request::SetIrqs(SetIrqs { index, start, count, action: IrqAction::Trigger, data })
    };
    let one = [file.as_fd()];
    let lies: [(Request<'_>, &[_], Errno); 16] = [
        (map(RAM, 0x3000, 0), &one, Errno::INVAL),
        (map(RAM, 0x1000, 0x2000), &one, Errno::INVAL),
        (map(RAM + 1, 0x1000, 0), &one, Errno::INVAL),
        (map(!0xfff, 0x2000, 0), &[], Errno::INVAL),
        (map(0, 0x1000, 0), &one, Errno::EXIST),
        (map(RAM, 0x1000, 0), &[file.as_fd(), file.as_fd()], Errno::INVAL),
        (map(RAM, 0x1000, 0), &[pipe.as_fd()], Errno::INVAL),
        (
            Request::DmaUnmap(DmaUnmap {
                all: false,
                bitmap: false,
                address: 0x1000,
                size: 0x1000,
            }),
            &[],
            Errno::INVAL,
        ),
        (
            Request::DmaUnmap(DmaUnmap { all: false, bitmap: true, address: 0, size: RAM }),
            &[],
            Errno::OPNOTSUPP,
        ),
        (Request::RegionInfo { index: 9, room: 32 }, &[], Errno::INVAL),
        (Request::IrqInfo { index: u32::MAX }, &[], Errno::INVAL),
        (region_read(region::BAR0, 0xffff_ffff_ffff_fffe, 4), &[], Errno::INVAL),
        (region_read(region::BAR5, 0, 1), &[], Errno::INVAL),
        (region_read(region::CONFIG, 4096, 1), &[], Errno::INVAL),
        (set(irq::MSIX, 60, 10, IrqData::Eventfds), &[], Errno::INVAL),
        (set(irq::MSIX, 0, 2, IrqData::Eventfds), &one, Errno::INVAL),
    ];
    for (lie, fds, errno) in &lies {
        assert_eq!(guest.ask(lie, fds), Err(*errno), "{lie:?}");
        assert!(guest.ask(&Request::DeviceInfo, &[]).is_ok());
    }
    // No eventfd.
    assert_eq!(
        guest.ask(&set(irq::MSIX, 0, 1, IrqData::Eventfds), &[pipe.as_fd()]),
        Err(Errno::INVAL)
    );
    // What is not known here has a body that is passed over.
    assert_eq!(guest.ask_raw(15, &[7; 100]), Err(Errno::NOTSUP));
    assert_eq!(guest.ask_raw(9, &[7; 3]), Err(Errno::INVAL));
    guest.enable();
    guest.make_queues();
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
    drop(guest);
    let told = server.stop();
    assert_eq!(told.iter().filter(|event| matches!(event, ServeEvent::Refused(_))).count(), 8);
    assert!(told.contains(&ServeEvent::MoreRefused));
}

/// What a host may only read it does not change, and the controller goes on.
#[test]
fn registers_that_are_read_only() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::new(&server, true);
    let cap = guest.register(0);
    for at in (0..0x14).step_by(4).chain([0x18, 0x1c, 0x20, 0x40, 0xffc]) {
        guest.set_register(at, u32::MAX);
    }
    assert_eq!((guest.register(0), guest.register(0x1c)), (cap, 0));
    guest.set_register(0x1ffc, 7);
    guest.enable();
    guest.make_queues();
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
    // NSSR, and the bit that it leaves.
    guest.set_register(0x20, 0x4e56_4d65);
    guest.wait_for(|csts| csts.nssro() && !csts.rdy());
    guest.forget_queues();
    guest.enable();
}

#[test]
fn next_client_gets_a_fresh_controller() {
    let server = Running::new(NULL, None);
    let mut first = Guest::new(&server, true);
    first.enable();
    let mut second = UnixStream::connect(server.socket()).expect("connected");
    assert_eq!(std::io::Read::read(&mut second, &mut [0; 16]).expect("an end"), 0);
    drop(first);
    // It says half a header, and nothing more; then it goes.
    let mut silent = server.connect();
    std::io::Write::write_all(&mut silent, &[1, 0, 1]).expect("sent");
    drop(silent);
    // It speaks another version, of an older protocol than any; and one that answers what nobody
    // asked is let go.
    let mut other = Guest::silent(&server);
    let version = Version { major: 1, minor: 0, capabilities: Capabilities::default() };
    assert_eq!(other.ask(&Request::DeviceInfo, &[]), Err(Errno::INVAL));
    assert_eq!(other.ask(&Request::Version(version), &[]), Err(Errno::INVAL));
    drop(other);
    let mut last = Guest::new(&server, true);
    assert_eq!((last.csts(), last.register(0x14)), (Csts::new(), 0));
    last.enable();
    last.make_queues();
    assert_eq!(last.read(0, 1, 0x4_0000), Status::SUCCESS);
    drop(last);
    let told = server.stop();
    assert_eq!(told.iter().filter(|event| **event == ServeEvent::Busy).count(), 1, "{told:?}");
}

/// A client that comes once the one before has hung up is taken in, however soon that is.
#[test]
fn gone_clients_free_the_server() {
    let server = Running::new(NULL, None);
    for _ in 0..200 {
        let mut guest = Guest::silent(&server);
        let version = Version { major: 0, minor: 0, capabilities: Capabilities::default() };
        assert!(guest.ask(&Request::Version(version), &[]).is_ok());
    }
    assert!(!server.stop().contains(&ServeEvent::Busy));
}

#[test]
fn a_script_happens_to_the_controller() {
    let script = Script::default().with(Nanos::ZERO, 0, Change::Hold(Some(units::Op::Read)));
    let server = Running::new("mem:16M?profile=optane", Some(script));
    let mut guest = Guest::with_queues(&server, true);
    assert_eq!(guest.write(0, 1, 0x4_0000), Status::SUCCESS);
    guest.post_read(0, 1, 0x4_0000);
    // Held as long as it is not aborted, which it is by its identifier.
    assert_eq!(guest.write(0, 1, 0x4_0000), Status::SUCCESS);
    assert!(guest.abort_first_read());
}

#[test]
fn sockets_that_cannot_be_had() {
    let dir = tempfile::tempdir().expect("a directory");
    let uri = NULL.parse().expect("a URI");
    let fault = |path: &std::path::Path| match super::open(&uri, path, None) {
        Err(ServeError::Server(ServerError::Socket { fault, .. })) => fault,
        other => panic!("{other:?}"),
    };
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    assert!(matches!(fault(&path), SocketFault::InUse));
    drop(listener);
    // Nobody listens any more.
    drop(super::open(&uri, &path, None).expect("a server"));
    assert!(!path.exists());
    std::fs::write(&path, "precious").expect("a file");
    assert!(matches!(fault(&path), SocketFault::NoSocket));
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), "precious");
    assert!(matches!(fault(&dir.path().join("none/socket")), SocketFault::System(_)));
    let script = Script::default().with(Nanos::ZERO, 1, Change::Back);
    assert!(matches!(
        super::open(&uri, &dir.path().join("other"), Some(script)),
        Err(ServeError::Server(ServerError::Path { path: 1, paths: 1 }))
    ));
    let late = "mem:16M?properties=late".parse().expect("a URI");
    let said =
        super::open(&late, &dir.path().join("other"), None).expect_err("refused").to_string();
    assert!(said.contains("`properties=late`") && said.contains("leave it out"), "{said}");
}
