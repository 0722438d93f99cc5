//! A server that refuses to move a vector, as VFIO may: what stands between it and its client
//! refuses in its place, and passes everything else on.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use reap::{Device, Group, Mode, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use vfio_user::{Command, Flags, Header, Message, Received, Request as Asked, SetIrqs, Socket};

use super::eventually;
use crate::place::{Scratch, Served, options};
use crate::table::watched;
use crate::work::{Job, submit};

/// More than any message has.
const MOST_BYTES: u32 = 1 << 20;

/// Whether it moves one vector.
fn moves_a_vector(message: &Message<std::os::fd::OwnedFd>) -> bool {
    let command = Command::from_number(message.header.command);
    let asked = command.and_then(|command| Asked::from_bytes(command, &message.body).ok());
    matches!(asked, Some(Asked::SetIrqs(SetIrqs { count: 1, .. })))
}

/// Passes what has come on. False: there is an end to it.
fn pass(from: &mut Socket, to: &mut Socket, refuses: bool) -> bool {
    loop {
        let message = match from.receive() {
            Ok(Received::Message(message)) => message,
            Ok(Received::Nothing) => return true,
            _ => return false,
        };
        let passed = if refuses && moves_a_vector(&message) {
            let refusal = Header {
                flags: Flags::ERROR,
                error: Errno::NOSPC.raw_os_error() as u32,
                ..message.header
            };
            from.send(&refusal.with_body(&[]), &[])
        } else {
            let (bytes, fds) = (
                message.header.with_body(&message.body),
                message.fds.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
            );
            to.send(&bytes, &fds)
        };
        if passed.is_err() {
            return false;
        }
    }
}

/// One client's connection, until it ends.
fn stand_between(listener: &UnixListener, server: &str) {
    let streams = [listener.accept().unwrap().0, UnixStream::connect(server).unwrap()];
    let [mut client, mut server] = streams
        .each_ref()
        .map(|stream| Socket::new(stream.try_clone().unwrap(), MOST_BYTES).unwrap());
    while pass(&mut client, &mut server, true) && pass(&mut server, &mut client, false) {
        poll(&mut streams.each_ref().map(|stream| PollFd::new(stream, PollFlags::IN)), None)
            .unwrap();
    }
}

/// In `posted` each queue of a group is told by its own eventfd then, as in `interrupt`, and no
/// wake-up is lost.
#[test]
fn kept_vectors_notify_their_queues() {
    let (served, socket) = (Served::new("mem:16M?profile=optane"), Scratch::short("between"));
    let (listener, server) =
        (UnixListener::bind(socket.path()).unwrap(), served.socket().display().to_string());
    let between = thread::spawn(move || stand_between(&listener, &server));
    let device = Device::open_with(
        &format!("vfio-user:{}", socket.path().display()),
        &options(3).mode(Mode::POSTED),
    )
    .unwrap();
    let group = Group::new((0..3).map(|_| device.local_queue().unwrap()).collect()).unwrap();
    watched("a group whose vectors stay", || {
        for _ in 0..60 {
            let queues = group.queues();
            queues.iter().for_each(|queue| {
                submit(
                    queue,
                    [Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap())],
                )
            });
            assert_eq!(group.wait(queues.len(), None).unwrap(), queues.len());
            let mut done = Vec::with_capacity(8);
            queues.iter().for_each(|queue| _ = queue.reap(&mut done));
            assert!(
                done.len() == queues.len() && done.iter().all(|done| done.result.is_ok()),
                "{done:?}"
            );
        }
    });
    eventually("a queue's messages go elsewhere", || {
        group.queues().iter().all(|queue| queue.hardware_counters().messages > 0)
    });
    drop(group);
    watched("the queues alone", || Job::of(1).run(&device.local_queue().unwrap()));
    assert_eq!(device.health().resets, 0);
    drop(device);
    between.join().unwrap();
}
