//! Who meddles while it runs.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use nvme::Status;

use super::super::{ControlError, ServeEvent, ask};
use super::client::Guest;
use super::running::{PATIENCE, Running};

/// The control socket's path.
fn path_of(socket: &Path) -> PathBuf {
    format!("{}.ctl", socket.display()).into()
}

const OPTANE: &str = "mem:16M?profile=optane&namespaces=2";

/// The answer, once the server listens.
fn ask_soon(server: &Running, order: &str) -> Result<String, ControlError> {
    drop(server.connect());
    ask(server.socket(), order)
}

#[test]
fn status_reports_injected_faults() {
    let server = Running::new(OPTANE, None);
    let idle = ask_soon(&server, "status").expect("an answer");
    assert!(
        idle.starts_with(&format!("device {OPTANE}\n")) && idle.contains("\ncsts 0x00000000\n"),
        "{idle}"
    );
    let mut guest = Guest::new(&server, true);
    guest.enable();
    guest.make_queues();
    let order = |order: &str| ask(server.socket(), order);
    let refused = Status(0x281);
    assert_eq!(order("fault wrong-status 0x281").expect("done"), "");
    assert_eq!(
        (guest.read(0, 1, 0x4_0000), guest.read(0, 1, 0x4_0000)),
        (refused, Status::SUCCESS)
    );
    assert_eq!(order("fault hold reads").expect("done"), "");
    guest.post_read(0, 1, 0x4_0000);
    assert_eq!(guest.write(0, 1, 0x4_0000), Status::SUCCESS, "a read before it is held");
    let status = order("status").expect("an answer");
    for line in ["client attached", "csts 0x00000001 ready", "faults hold reads"] {
        assert!(status.lines().any(|there| there == line), "{line}: {status}");
    }
    order("fault release").expect("done");
    guest.take_reads(1);
    order("fault fail").expect("done");
    guest.wait_for(|csts| csts.cfs());
    assert!(order("status").expect("an answer").contains("failed"));
    drop(guest);
    assert!(server.stop().contains(&ServeEvent::Fault("hold reads".into())));
}

#[test]
fn impossible_orders_are_refused() {
    let server = Running::new(OPTANE, None);
    drop(server.connect());
    for (order, words) in [
        ("", "the commands are `status` and `fault CHANGE`"),
        ("fault", "`` is not a change"),
        ("fault gone", "`gone` is not a change; the changes are ana STATE"),
        ("fault hold trims", "`trims` cannot be held"),
        ("fault ana change", "no ANA groups"),
        ("fault resize 5 namespace 3", "there is no namespace 3: namespaces are 1 to 2"),
        ("status\nfault fail", "`status fault fail` is not a control command"),
    ] {
        match ask(server.socket(), order) {
            Err(ControlError::Refused(why)) if why.contains(words) => {}
            other => panic!("{order:?}: {other:?}"),
        }
    }
    assert!(ask(server.socket(), "status").expect("an answer").contains("faults none"));
}

#[test]
fn random_orders_get_one_answer() {
    let server = Running::new(OPTANE, None);
    drop(server.connect());
    let path = path_of(server.socket());
    let silent: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(&path).expect("connected")).collect();
    for (bytes, words) in [
        (vec![b'x'; 4096], "at most 1024 bytes"),
        (b"fault \xff\n".to_vec(), "not UTF-8"),
        (b"fault fa".to_vec(), ""),
    ] {
        let mut caller = UnixStream::connect(&path).expect("connected");
        caller.write_all(&bytes).expect("sent");
        caller.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut answer = String::new();
        // What is not read of a long line may end the connection, once the answer has been read or
        // before.
        _ = caller.read_to_string(&mut answer);
        assert!(answer.contains(words), "{answer}");
    }
    assert!(ask(server.socket(), "status").expect("an answer").contains("faults none"));
    drop(silent);
    assert!(ask(server.socket(), "status").is_ok());
}

#[test]
fn absent_servers_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket: PathBuf = dir.path().join("socket");
    assert!(matches!(ask(&socket, "status"), Err(ControlError::NoServer { .. })));
    let listener = UnixListener::bind(path_of(&socket)).expect("a socket");
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        stream.write_all(b"220 mail\x1b[2J\n").expect("said");
    });
    assert!(matches!(ask(&socket, "status"), Err(ControlError::BadReply { .. })));
    other.join().expect("no panic");
    // A child that another test starts at this moment has the listener, too, until it runs its
    // program.
    let begun = Instant::now();
    while !matches!(ask(&socket, "status"), Err(ControlError::NoServer { .. })) {
        assert!(begun.elapsed() < PATIENCE, "the socket has a listener still");
    }
}
