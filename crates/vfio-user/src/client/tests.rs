//! A client against scripted servers, conforming and malicious.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;

use super::*;
use crate::Reply;

mod calls;

/// Longer than a reply takes, and short enough to test a time-out.
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

/// The reply of a server to a message, as bytes; empty: none.
type Act = Box<dyn FnMut(&Header, &[u8]) -> Vec<u8> + Send>;

/// A server that negotiates the version and then runs `act`. It ends with its client.
fn served(timeout: Duration, mut act: Act) -> Client {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    thread::spawn(move || {
        let mut socket = Socket::new(theirs, 1 << 20).expect("a socket");
        loop {
            let mut fds = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
            _ = rustix::event::poll(&mut fds, None);
            match socket.receive() {
                Ok(Received::Message(message))
                    if message.header.command == Command::Version as u16 =>
                {
                    let version = Version {
                        major: 0,
                        minor: 0,
                        capabilities: Capabilities { max_msg_fds: 3, ..Capabilities::default() },
                    };
                    socket
                        .send(&Reply::Version(version).to_bytes(&message.header), &[])
                        .expect("sent");
                }
                Ok(Received::Message(message)) => {
                    let bytes = act(&message.header, &message.body);
                    // `CLOSE` ends the connection.
                    if bytes == CLOSE || socket.send(&bytes, &[]).is_err() {
                        return;
                    }
                }
                Ok(Received::Nothing) => {}
                _ => return,
            }
        }
    });
    Client::new(ours, timeout).expect("they agree")
}

const CLOSE: &[u8] = b"close";

fn info(header: &Header) -> Vec<u8> {
    Reply::DeviceInfo(DeviceInfo { can_reset: true, is_pci: true, regions: 9, irqs: 5 })
        .to_bytes(header)
}

#[test]
fn threads_get_their_own_replies() {
    let client = served(
        LONG,
        Box::new(|header, body| {
            let command = Command::from_number(header.command).expect("a known one");
            let Ok(Request::RegionRead(access)) = Request::from_bytes(command, body) else {
                return info(header);
            };
            Reply::RegionRead(access, &access.offset.to_le_bytes()[..access.count as usize])
                .to_bytes(header)
        }),
    );
    thread::scope(|scope| {
        for n in 0..4u64 {
            let client = &client;
            scope.spawn(move || {
                for at in (0..200).map(|at| at * 4 + n) {
                    let mut bytes = [0; 8];
                    client.read(0, at, &mut bytes).expect("an answer");
                    assert_eq!(u64::from_le_bytes(bytes), at);
                }
            });
        }
    });
    assert_eq!(
        client.device(),
        Ok(DeviceInfo { can_reset: true, is_pci: true, regions: 9, irqs: 5 })
    );
    assert_eq!(client.server().max_msg_fds, 3);
}

/// With any malformed reply the request fails with the matching error, and later requests fail at
/// once.
#[test]
fn malformed_replies_are_errors() {
    let reply = |flags, id: u16, command: u16| {
        move |header: &Header, _: &[u8]| {
            Header {
                id: header.id.wrapping_add(id),
                command: header.command.wrapping_add(command),
                flags,
                size: 0,
                error: 0,
            }
            .with_body(&[])
        }
    };
    let lies: [(&str, Act, bool); 8] = [
        ("another identifier", Box::new(reply(Flags::REPLY, 1, 0)), true),
        ("another command", Box::new(reply(Flags::REPLY, 0, 1)), true),
        ("an answer without a body", Box::new(reply(Flags::REPLY, 0, 0)), false),
        ("an error of no number", Box::new(reply(Flags::ERROR, 0, 0)), false),
        ("a size below a header's", Box::new(|_, _| vec![0; 16]), true),
        (
            "a size beyond all",
            Box::new(|_, _| [0, 0, 4, 0, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0].to_vec()),
            true,
        ),
        ("half a header, and the end", Box::new(|_, _| CLOSE.to_vec()), true),
        (
            "the same answer twice",
            Box::new(|header, _| [info(header), info(header)].concat()),
            true,
        ),
    ];
    for (what, lie, ends) in lies {
        let client = served(LONG, lie);
        let first = client.device();
        assert!(first.is_err() || what.contains("twice"), "{what}: {first:?}");
        if ends {
            while !client.is_over() {
                thread::yield_now();
            }
            assert!(matches!(client.device(), Err(CallError::Ended(_))), "{what}");
            assert!(client.ask(&Request::DeviceInfo).is_err(), "{what}");
            client.post_write(0, 0x1000, 1);
        } else {
            assert_eq!(client.ended(), None, "{what}");
        }
    }
}

#[test]
fn missing_answer_ends_the_connection() {
    let client = served(SHORT, Box::new(|_, _| Vec::new()));
    let message = client.device().expect_err("no answer").to_string();
    assert_eq!(message, "the server has not replied to DEVICE_GET_INFO within 300ms");
    assert!(matches!(
        client.map(0, 0x1000, std::os::fd::AsFd::as_fd(&client.0.stream), 0),
        Err(CallError::Ended(End::TimedOut(..)))
    ));
}

#[test]
fn non_server_is_recognised() {
    // Silent; another protocol; another version; closing.
    let speak = |message: &'static [u8], closes: bool| {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let speaker = thread::spawn(move || {
            // Only after the request: a reply without a request would be another error.
            theirs.read_exact(&mut [0; 16]).expect("a question");
            _ = theirs.write_all(message);
            if closes { None } else { Some(theirs) }
        });
        let error = Client::new(ours, SHORT).expect_err("no server");
        drop(speaker.join());
        error
    };
    assert!(matches!(speak(b"", false), CallError::Ended(End::TimedOut(Command::Version, _))));
    assert!(matches!(
        speak(b"SSH-2.0-OpenSSH_10.0p2\r\n", false),
        CallError::Ended(End::Malformed(_))
    ));
    assert!(matches!(speak(b"", true), CallError::Ended(End::Closed)));
    let version = Header { id: 1, command: 1, size: 0, flags: Flags::REPLY, error: 0 }
        .with_body(&[2, 0, 1, 0]);
    assert_eq!(speak(version.leak(), false), CallError::Version { major: 2, minor: 1 });
}

/// A server that does not read does not block doorbell writes, and gets the last value of each
/// doorbell once it reads again.
#[test]
fn full_socket_keeps_last_doorbell() {
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    let answer = thread::spawn(move || {
        let mut header = [0; 16];
        theirs.read_exact(&mut header).expect("VERSION");
        let header = Header::from_bytes(&header).expect("a header");
        let mut rest = vec![0; header.size as usize - 16];
        theirs.read_exact(&mut rest).expect("its body");
        let version = Version { major: 0, minor: 0, capabilities: Capabilities::default() };
        theirs.write_all(&Reply::Version(version).to_bytes(&header)).expect("sent");
        theirs
    });
    let client = Client::new(ours, LONG).expect("they agree");
    let mut theirs = answer.join().expect("answered");
    const RINGS: u32 = 200_000;
    for value in 1..=RINGS {
        client.post_write(0, 0x1000 + u64::from(value % 4) * 4, value);
    }
    let (mut last, mut messages) = ([0; 4], 0);
    while last != [RINGS, RINGS - 3, RINGS - 2, RINGS - 1] {
        let mut message = [0; 36];
        theirs.read_exact(&mut message).expect("a whole message");
        let header = Header::from_bytes(&message).expect("a header");
        assert!(!header.flags.wants_reply());
        let Ok(Request::RegionWrite(access, data)) =
            Request::from_bytes(Command::RegionWrite, &message[16..])
        else {
            panic!("{header:?}")
        };
        let value = u32::from_le_bytes(data.try_into().expect("a word"));
        let place = &mut last[(access.offset as usize - 0x1000) / 4];
        assert!(*place < value, "an old value after a newer one");
        (*place, messages) = (value, messages + 1);
    }
    assert!(messages < RINGS, "the socket accepted all messages: nothing was tested");
}

/// 16 bytes of memory at address 0x1000.
fn sixteen() -> Arc<Memory> {
    let memory = Mutex::new([0; 16]);
    Arc::new(move |ask: &DmaRequest<'_>| {
        let (address, count) = ask.range();
        let from = address.checked_sub(0x1000)? as usize;
        let mut memory = memory.lock().expect("no panic");
        let lent = memory.get_mut(from..from.checked_add(count as usize)?)?;
        match ask {
            DmaRequest::Read { .. } => Some(lent.to_vec()),
            DmaRequest::Write { data, .. } => {
                lent.copy_from_slice(data);
                Some(Vec::new())
            }
        }
    })
}

/// Memory requests of a server: lent memory is served; all else is an error, after which the
/// connection continues.
#[test]
fn server_reaches_only_lent_memory() {
    let (heard, hears) = mpsc::channel();
    let client = served(
        LONG,
        Box::new(move |header, body| {
            if header.flags.is_reply() {
                heard.send((header.id, header.flags.is_error(), body.to_vec())).expect("heard");
                return Vec::new();
            }
            let ask = |id, command, address: u64, count: u64, data: &[u8]| {
                let body = [&address.to_ne_bytes()[..], &count.to_ne_bytes(), data].concat();
                Header { id, command, size: 0, flags: Flags::REQUEST, error: 0 }.with_body(&body)
            };
            [
                ask(1, 12, 0x1004, 3, b"abc"),
                ask(2, 11, 0x1003, 5, b""),
                ask(3, 11, 0x1000, 17, b""),
                ask(4, 12, u64::MAX, 3, b"abc"),
                ask(5, 12, 0x1000, 9, b"abc"),
                ask(6, 11, 0x1000, 1 << 40, b""),
                ask(7, 99, 0, 0, b""),
                info(header),
            ]
            .concat()
        }),
    );
    client.serve_memory(sixteen());
    assert!(client.device().is_ok());
    let answers: Vec<_> = (0..7).map(|_| hears.recv_timeout(LONG).expect("an answer")).collect();
    assert_eq!(
        answers.iter().map(|(id, error, _)| (*id, *error)).collect::<Vec<_>>(),
        [(1, false), (2, false), (3, true), (4, true), (5, true), (6, true), (7, true)]
    );
    assert_eq!(answers[1].2[16..], *b"\0abc\0");
    // Released once the connection is closed.
    let memory = sixteen();
    client.serve_memory(memory.clone());
    client.close();
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn late_replies_are_received() {
    let client = served(LONG, Box::new(|header, _| info(header)));
    let (tell, told) = mpsc::channel();
    client.set_notify(Arc::new(move || _ = tell.send(())));
    let ticket = client.ask(&Request::DeviceInfo).expect("asked");
    told.recv_timeout(LONG).expect("told");
    let mut answers = client.fetch();
    assert_eq!((answers.len(), client.fetch().len()), (1, 0));
    let (fetched, answer) = answers.remove(0);
    assert!(fetched == ticket && answer.is_ok_and(|(body, _)| body.len() == 16));
}
