use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use super::*;

#[test]
fn peer_process_is_identified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let process = Process::peer_of(UnixStream::connect(&path).unwrap()).unwrap();
    assert_eq!((process.id(), process.has_ended()), (std::process::id(), false));
}

#[test]
fn killed_processes_have_ended() {
    let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let id = Pid::from_child(&child);
    let process = Process { id, fd: pidfd_open(id, PidfdFlags::empty()).unwrap() };
    assert!(!process.has_ended());
    child.kill().unwrap();
    // A zombie until waited for, but ended.
    while !process.has_ended() {
        std::thread::yield_now();
    }
    child.wait().unwrap();
    assert!(process.has_ended());
}

#[test]
fn unconnected_sockets_have_no_peer() {
    assert!(Process::peer_of(std::io::pipe().unwrap().0).is_err());
}
