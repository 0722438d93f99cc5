use proptest::collection::vec;
use proptest::prelude::*;

use crate::{Assembler, Flags, Header, Malformed};

/// A message: header, body, descriptors.
type Got = (Header, Vec<u8>, Vec<u32>);

/// Feeds a stream in pieces of these sizes, each byte with its descriptors, as a socket would:
/// never more than requested.
fn feed(
    assembler: &mut Assembler<u32>,
    stream: &[u8],
    fds: &[Vec<u32>],
    pieces: &[usize],
) -> Result<Vec<Got>, Malformed> {
    let (mut at, mut out) = (0, Vec::new());
    let mut pieces = pieces.iter().cycle();
    while at < stream.len() {
        let space = assembler.space();
        let len = pieces.next().copied().unwrap_or(1).clamp(1, space.len()).min(stream.len() - at);
        space[..len].copy_from_slice(&stream[at..at + len]);
        let came = fds[at..at + len].concat();
        at += len;
        out.extend(
            assembler.filled(len, came)?.map(|message| (message.header, message.body, message.fds)),
        );
    }
    Ok(out)
}

proptest! {
    /// However a stream is split, the messages are those sent, each with its own descriptors.
    #[test]
    fn messages_are_what_was_sent(
        sent in vec((vec(any::<u8>(), 0..60), vec(any::<u32>(), 0..4)), 1..12),
        pieces in vec(1usize..40, 1..20),
    ) {
        let (mut stream, mut fds) = (Vec::new(), Vec::new());
        for (n, (body, own)) in sent.iter().enumerate() {
            let header = Header { id: n as u16, command: 9, size: 0, flags: Flags::REQUEST, error: 0 };
            let begin = stream.len();
            stream.extend(header.with_body(body));
            fds.resize(stream.len(), Vec::new());
            fds[begin] = own.clone();
        }
        let got = feed(&mut Assembler::new(4096, 4), &stream, &fds, &pieces).expect("possible messages");
        prop_assert_eq!(got.len(), sent.len());
        for (n, ((header, body, fds), (sent_body, sent_fds))) in got.iter().zip(&sent).enumerate() {
            prop_assert_eq!(header.id, n as u16);
            prop_assert_eq!((body, fds), (sent_body, sent_fds));
        }
    }

    /// Any bytes give messages or an error, without allocating more than one message may have.
    #[test]
    fn any_bytes_use_bounded_memory(bytes in vec(any::<u8>(), 0..400), pieces in vec(1usize..40, 1..8)) {
        let mut assembler = Assembler::new(128, 2);
        let fds = vec![Vec::new(); bytes.len()];
        match feed(&mut assembler, &bytes, &fds, &pieces) {
            Ok(messages) => prop_assert!(messages.iter().all(|(header, body, _)| header.size as usize == 16 + body.len())),
            Err(Malformed::Size { size, max }) => prop_assert!(max == 128 && !(16..=128).contains(&size)),
            Err(other) => prop_assert!(false, "{other}"),
        }
        prop_assert!(assembler.space().len() <= 128);
    }
}

#[test]
fn descriptor_limit_spans_a_message() {
    let mut assembler = Assembler::new(64, 2);
    let message =
        Header { id: 1, command: 8, size: 0, flags: Flags::REQUEST, error: 0 }.with_body(&[0; 8]);
    let mut fds = vec![Vec::new(); message.len()];
    (fds[0], fds[20]) = (vec![1, 2], vec![3]);
    assert_eq!(feed(&mut assembler, &message, &fds, &[64]), Err(Malformed::Descriptors { max: 2 }));
}

#[test]
fn size_limits_are_inclusive() {
    for (size, fits) in
        [(0, false), (15, false), (16, true), (64, true), (65, false), (u32::MAX, false)]
    {
        let mut assembler = Assembler::<u32>::new(64, 2);
        let mut bytes =
            Header { id: 1, command: 13, size: 0, flags: Flags::REQUEST, error: 0 }.with_body(&[]);
        bytes[4..8].copy_from_slice(&u32::to_ne_bytes(size));
        assembler.space().copy_from_slice(&bytes);
        assert_eq!(
            assembler.filled(16, []).map(|_| ()),
            if fits { Ok(()) } else { Err(Malformed::Size { size, max: 64 }) },
            "{size}"
        );
    }
}
