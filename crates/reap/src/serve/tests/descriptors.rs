//! A server that may not open any more files, in a process of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::{env, fs};

use nvme::Status;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vfio_user::{DmaMap, Region, Request, region};

use super::super::ServeEvent;
use super::client::{Guest, memory};
use super::lent::RAM;
use super::running::Running;

const CHILD: &str = "REAP_TEST_NOFILE";
const TWO: &str = "multipath:?path=mem:16M&path=mem:16M";

/// Whether it is the child: otherwise the test of this name was run in one.
fn is_child(name: &str) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let mut own = Command::new(env::current_exe().expect("this program"));
    let child = own
        .args(["--exact", &format!("serve::tests::descriptors::{name}"), "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// No file can be opened from here on. With what it was before it can.
fn open_no_more() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // Every number below the limit is taken.
    let highest = fs::read_dir("/proc/self/fd")
        .expect("a list")
        .flatten()
        .filter_map(|fd| fd.file_name().to_str()?.parse().ok())
        .max();
    let limit = highest.unwrap_or(0u64) + 1;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).expect("lower");
    let taken: Vec<_> =
        std::iter::from_fn(|| std::io::stderr().as_fd().try_clone_to_owned().ok()).collect();
    std::mem::forget(taken);
    before
}

#[test]
fn without_descriptors_a_client_waits() {
    if !is_child("without_descriptors_a_client_waits") {
        return;
    }
    let server = Running::several(TWO, 2, None);
    let mut one = Guest::with_queues_at(&server, 0);
    let late = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let before = open_no_more();
    connect(&late, &SocketAddrUnix::new(server.socket_at(1)).expect("an address"))
        .expect("in the backlog");
    // The server goes on with who is there.
    for n in 0..20 {
        assert_eq!(one.read(n, 1, 0x4_0000), Status::SUCCESS);
    }
    setrlimit(Resource::Nofile, before).expect("higher");
    let mut late = Guest::greeting(UnixStream::from(late));
    late.enable();
    late.make_queues();
    assert_eq!(
        (late.read(0, 1, 0x4_0000), one.read(0, 1, 0x4_0000)),
        (Status::SUCCESS, Status::SUCCESS)
    );
    let events = server.stop();
    let waits = events
        .iter()
        .filter(|event| event.to_string().contains("waits to be accepted: this server has"))
        .count();
    assert_eq!(waits, 1, "{events:?}");
}

#[test]
fn without_descriptors_a_mapping_is_refused() {
    if !is_child("without_descriptors_a_mapping_is_refused") {
        return;
    }
    let server = Running::several(TWO, 2, None);
    let (mut one, mut other) =
        (Guest::with_queues_at(&server, 0), Guest::with_queues_at(&server, 1));
    let files: Vec<OwnedFd> = (0..2).map(|_| memory(0x1000, true).into()).collect();
    let before = open_no_more();
    let map = |n| {
        Request::DmaMap(DmaMap {
            readable: true,
            writable: true,
            offset: 0,
            address: RAM + n,
            size: 0x1000,
        })
    };
    assert_eq!(other.ask(&map(0), &[files[0].as_fd()]), Err(Errno::MFILE));
    // Neither client is let go.
    assert_eq!(
        (other.read(0, 1, 0x4_0000), one.read(0, 1, 0x4_0000)),
        (Status::SUCCESS, Status::SUCCESS)
    );
    setrlimit(Resource::Nofile, before).expect("higher");
    assert_eq!(
        other.ask(&map(0), &[files[0].as_fd()]),
        Ok(Vec::new()),
        "nothing was mapped before"
    );
    let events = server.stop();
    let refused = |event: &ServeEvent| {
        event.to_string().contains("refused: descriptors of a message: this server has")
    };
    assert!(events.iter().any(refused), "{events:?}");
}

#[test]
fn doorbells_need_client_descriptors() {
    if !is_child("doorbells_need_client_descriptors") {
        return;
    }
    let server = Running::new("mem:16M?profile=null&doorbells=mapped", None);
    let mut guest = Guest::with_queues(&server, true);
    let before = open_no_more();
    let ask = Request::RegionInfo { index: region::BAR0, room: Region::MAX_BYTES };
    // An answer without would say that there is one.
    assert_eq!(guest.ask(&ask, &[]), Err(Errno::MFILE));
    setrlimit(Resource::Nofile, before).expect("higher");
    guest.map_doorbells();
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
}
