use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::{Received, Socket, SocketError};
use crate::{Flags, Malformed, RegionAccess, Request};

fn pair() -> (Socket, UnixStream) {
    let (here, there) = UnixStream::pair().expect("a pair of sockets");
    (Socket::new(here, 4096).expect("a socket"), there)
}

fn next(socket: &mut Socket) -> (u16, usize) {
    match socket.receive() {
        Ok(Received::Message(message)) => (message.header.id, message.fds.len()),
        other => panic!("{other:?}"),
    }
}

/// Messages sent in one write keep their descriptors apart.
#[test]
fn descriptors_stay_with_their_message() {
    let (mut here, there) = pair();
    let mut there = Socket::new(there, 4096).expect("a socket");
    let file = tempfile::tempfile().expect("a file");
    let fds = [file.as_fd(), file.as_fd()];
    there.send(&Request::DeviceInfo.to_bytes(1, Flags::REQUEST), &[]).expect("sent");
    there.send(&Request::DeviceReset.to_bytes(2, Flags::REQUEST), &fds).expect("sent");
    there.send(&Request::DeviceInfo.to_bytes(3, Flags::REQUEST), &[]).expect("sent");
    there.send(&Request::DeviceReset.to_bytes(4, Flags::REQUEST), &fds[..1]).expect("sent");
    assert_eq!(
        [next(&mut here), next(&mut here), next(&mut here), next(&mut here)],
        [(1, 0), (2, 2), (3, 0), (4, 1)]
    );
    assert!(matches!(here.receive(), Ok(Received::Nothing)));
    drop(there);
    assert!(matches!(here.receive(), Ok(Received::End)));
}

#[test]
fn partial_messages_are_not_delivered() {
    let (mut here, mut there) = pair();
    let bytes = Request::RegionRead(RegionAccess { offset: 0, region: 7, count: 4 })
        .to_bytes(9, Flags::REQUEST);
    for byte in &bytes[..bytes.len() - 1] {
        there.write_all(&[*byte]).expect("sent");
        assert!(matches!(here.receive(), Ok(Received::Nothing)));
    }
    there.write_all(&bytes[bytes.len() - 1..]).expect("sent");
    assert_eq!(next(&mut here), (9, 0));
}

#[test]
fn too_many_descriptors_end_the_connection() {
    let (mut here, there) = pair();
    let file = tempfile::tempfile().expect("a file");
    let (mut space, fds) = ([std::mem::MaybeUninit::uninit(); 1024], vec![file.as_fd(); 40]);
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
    let bytes = Request::DeviceInfo.to_bytes(1, Flags::REQUEST);
    let open = || {
        std::fs::read_dir("/proc/self/fd")
            .expect("a list")
            .flatten()
            .filter(|fd| is_file(&fd.path(), &file))
            .count()
    };
    rustix::net::sendmsg(
        &there,
        &[std::io::IoSlice::new(&bytes)],
        &mut control,
        rustix::net::SendFlags::empty(),
    )
    .expect("sent");
    assert!(matches!(
        here.receive(),
        Err(SocketError::Malformed(Malformed::Descriptors { max: Socket::MAX_FDS }))
    ));
    assert_eq!(open(), 1);
}

fn is_file(path: &std::path::Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata().expect("metadata");
    path.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
}

/// Replies to a peer that does not read are kept, are sent whole once it reads, and have a limit.
#[test]
fn replies_wait_for_the_reader() {
    let (mut here, mut there) = pair();
    let message = vec![7; 1000];
    let mut sent = 0;
    while !here.has_unsent() {
        here.send(&message, &[]).expect("taken");
        sent += message.len();
    }
    let file = tempfile::tempfile().expect("a file");
    assert!(matches!(here.send(&message, &[file.as_fd()]), Err(SocketError::System(_))));
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; sent];
        there.read_exact(&mut all).expect("read");
        (there, all.iter().all(|byte| *byte == 7))
    });
    while !here.flush().expect("a flush") {
        std::thread::yield_now();
    }
    let (there, whole) = reader.join().expect("a reader");
    assert!(whole);
    let error = (0..).find_map(|_| here.send(&message, &[]).err()).expect("an end");
    assert!(matches!(error, SocketError::PeerNotReading(waiting) if waiting > 1 << 20));
    drop(there);
}
