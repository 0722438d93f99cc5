//! Several controllers of one subsystem, each at a socket of its own.

use nvme::Status;

use super::super::{ServeError, ServeEvent, ask};
use super::client::Guest;
use super::running::Running;
use crate::multipath::MultipathUri;

const TWO: &str = "multipath:?path=mem:16M&path=mem:16M?ana=non-optimized";

/// SUBNQN and CNTLID of a controller (Identify Controller, Base §5.1.13.2.1).
fn identity(guest: &mut Guest) -> (Vec<u8>, u16) {
    assert_eq!(guest.identify(0x4_0000), Status::SUCCESS);
    let page = guest.read_ram(0x4_0000, 4096);
    (page[768..1024].to_vec(), u16::from_le_bytes([page[78], page[79]]))
}

#[test]
fn clients_share_the_namespace() {
    let server = Running::several(TWO, 2, None);
    let (mut one, mut other) =
        (Guest::with_queues_at(&server, 0), Guest::with_queues_at(&server, 1));
    let (first, second) = (identity(&mut one), identity(&mut other));
    assert!(first.0 == second.0 && first.1 != second.1, "one subsystem, two controllers");
    for n in 0..20u8 {
        one.write_ram(0x4_0000, &[n; 512]);
        assert_eq!(one.write(n.into(), 1, 0x4_0000), Status::SUCCESS);
        assert_eq!(other.read(n.into(), 1, 0x8_0000), Status::SUCCESS);
        assert_eq!(other.read_ram(0x8_0000, 512), [n; 512]);
    }
    // Clients come and go on their own.
    drop(one);
    assert_eq!(other.read(1, 1, 0x8_0000), Status::SUCCESS);
    let mut next = Guest::with_queues_at(&server, 0);
    assert_eq!(next.read(1, 1, 0x8_0000), Status::SUCCESS);
    assert_eq!(next.read_ram(0x8_0000, 512), [1; 512]);
    drop((next, other));
    let (first, told) = (server.socket().to_owned(), server.stop());
    let gone = |at: &ServeEvent| matches!(at, ServeEvent::At { socket, event } if *socket == first && matches!(**event, ServeEvent::Detached { .. }));
    assert_eq!(told.iter().filter(|event| gone(event)).count(), 2, "{told:?}");
}

/// Nothing of one controller's is the other's: not its ANA state, its faults, nor a queue that is
/// gone.
#[test]
fn path_faults_stay_isolated() {
    let server = Running::several(
        "multipath:?path=mem:16M&path=mem:16M&script=at%200s%20path%201%20wrong-status%200x281",
        2,
        None,
    );
    let (mut one, mut other) =
        (Guest::with_queues_at(&server, 0), Guest::with_queues_at(&server, 1));
    assert_eq!(
        (one.read(0, 1, 0x8_0000), other.read(0, 1, 0x8_0000)),
        (Status::SUCCESS, Status(0x281)),
        "the script's"
    );
    ask(server.socket_at(1), "fault ana inaccessible").expect("done");
    assert_eq!(other.read(0, 1, 0x8_0000).kind(), Status::ANA_INACCESSIBLE);
    assert_eq!(one.read(0, 1, 0x8_0000), Status::SUCCESS);
    let faults = |path| {
        let status = ask(server.socket_at(path), "status").expect("an answer");
        status
            .lines()
            .find_map(|line| line.strip_prefix("faults ").map(str::to_owned))
            .expect("a line")
    };
    assert_eq!((faults(0), faults(1)), ("none".into(), "ana inaccessible".into()));
    ask(server.socket_at(1), "fault ana optimized").expect("done");
    assert_eq!(faults(1), "none");
    assert_eq!(other.read(0, 1, 0x8_0000), Status::SUCCESS);
    one.unmap_ram();
    one.ring_io();
    one.wait_for(|csts| csts.cfs());
    assert_eq!(other.read(0, 1, 0x8_0000), Status::SUCCESS);
    assert!(ask(server.socket_at(0), "status").expect("an answer").contains(" failed"));
    assert!(!ask(server.socket_at(1), "status").expect("an answer").contains(" failed"));
}

/// One that may be rung without a message has the thread poll, and the other is served as well.
#[test]
fn one_path_may_map_doorbells() {
    let server = Running::several("multipath:?path=mem:16M&path=mem:16M?doorbells=mapped", 2, None);
    let (mut one, mut other) = (Guest::with_queues_at(&server, 0), Guest::new_at(&server, 1));
    other.map_doorbells();
    other.enable();
    other.make_queues();
    one.keep_doorbells(1);
    for n in 0..50 {
        assert_eq!(
            (one.read(n % 16, 1, 0x8_0000), other.read(n % 16, 1, 0x8_0000)),
            (Status::SUCCESS, Status::SUCCESS)
        );
    }
    drop(other);
    (0..50).for_each(|n| assert_eq!(one.read(n % 16, 1, 0x8_0000), Status::SUCCESS));
}

#[test]
fn as_many_sockets_as_paths() {
    let dir = tempfile::tempdir().expect("a directory");
    let sockets = ["a", "b", "c"].map(|name| dir.path().join(name));
    let uri: MultipathUri = TWO.parse().expect("a URI");
    let said = |sockets: &[_], script: &str| {
        super::super::open_paths(&uri, sockets, Some(script.parse().expect("a script")))
            .map(|_| ())
            .expect_err("refused")
            .to_string()
    };
    assert!(said(&sockets, "").contains("has 2 paths, and 3 sockets are named"));
    assert!(said(&sockets[..1], "").contains("has 2 paths, and 1 sockets are named"));
    assert!(said(&sockets[..2], "at 1s path 2 hold").contains("names path 2, and there are 2"));
    assert!(
        said(&[sockets[0].clone(), sockets[0].clone()], "")
            .contains("another process serves at this socket")
    );
    assert!(!sockets[0].exists(), "what failed leaves nothing behind");
    for (parameter, uri) in [
        ("policy", format!("{TWO}&policy=latency")),
        ("keep_alive", format!("{TWO}&keep_alive=2s")),
        ("no_path_timeout", format!("{TWO}&no_path_timeout=2s")),
        ("node", "multipath:?path=mem:16M?node=0&path=mem:16M".to_owned()),
    ] {
        let error = super::super::open_paths(&uri.parse().expect("a URI"), &sockets[..2], None)
            .map(|_| ())
            .expect_err("refused");
        assert!(
            matches!(&error, ServeError::OfTheHost { parameter: named } if *named == parameter),
            "{error}"
        );
    }
    let apart: MultipathUri = "multipath:?path=mem:16M&path=mem:32M".parse().expect("a URI");
    assert!(matches!(
        super::super::open_paths(&apart, &sockets[..2], None),
        Err(ServeError::Open(_))
    ));
    let same = MultipathUri::repeated("mem:16M?profile=null", 2).expect("a device");
    assert_eq!(same.paths.len(), 2);
    super::super::open_paths(&same, &sockets[..2], None).expect("a server");
    assert!(
        MultipathUri::repeated("mem:16M?profil=null", 2)
            .expect_err("refused")
            .to_string()
            .contains("did you mean")
    );
}
