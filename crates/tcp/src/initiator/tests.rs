use nvme::fabrics::{Connect, disconnect};
use nvme::prp::Dptr;
use proptest::prelude::*;

use super::*;
use crate::receive::Heap;
use crate::target::{Event, Limits, Tamper, Target};

const LIMITS: Limits = Limits {
    digests: Digests { header: true, data: true },
    in_capsule: 8192,
    h2c_data: 16_384,
    transfer: 1 << 20,
    r2t: 24_576,
    room: 8192,
};

fn config(bits: u8) -> InitiatorConfig {
    InitiatorConfig { digests: Digests::from_bits(bits), slots: 16, io: true, room: 4096 }
}

/// A host and a controller, connected by a stream that carries `piece` bytes at a time.
struct Wire {
    host: Initiator<Heap>,
    target: Target,
    piece: usize,
    seen: Vec<InitiatorEvent<Vec<u8>>>,
    commands: Vec<(Sqe, Vec<u8>)>,
}

/// Passes bytes to a host in pieces, and returns the events.
fn give(host: &mut Initiator<Heap>, bytes: &[u8], piece: usize) -> Vec<InitiatorEvent<Vec<u8>>> {
    let (mut rest, mut events) = (bytes, Vec::new());
    while !rest.is_empty() {
        let room = host.room();
        let n = room.len().min(rest.len()).min(piece);
        if n == 0 {
            break;
        }
        room[..n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
        host.received(n);
        events.extend(std::iter::from_fn(|| host.poll()));
    }
    events
}

fn output(host: &mut Initiator<Heap>) -> Vec<u8> {
    let bytes: Vec<u8> = host.output().slices().flatten().copied().collect();
    host.sent(bytes.len());
    bytes
}

impl Wire {
    fn new(bits: u8, piece: usize) -> Wire {
        let (host, target) = (Initiator::new(config(bits), Heap), Target::new(LIMITS));
        let mut wire = Wire { host, target, piece, seen: Vec::new(), commands: Vec::new() };
        wire.run();
        assert_eq!(wire.seen.pop(), Some(InitiatorEvent::Greeted(Digests::from_bits(bits))));
        wire.target.connect(16, false);
        wire.host.set_in_capsule(4096);
        wire
    }

    /// Runs until no bytes are left to transfer.
    fn run(&mut self) {
        loop {
            let sent = output(&mut self.host);
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let mut n = 0;
                for space in self.target.space() {
                    let len = space.len().min(rest.len()).min(self.piece - n);
                    space[..len].copy_from_slice(&rest[..len]);
                    (rest, n) = (&rest[len..], n + len);
                }
                self.target.filled(n);
                while let Some(event) = self.target.poll(u64::MAX) {
                    match event {
                        Event::Command { sqe, data } => self.commands.push((sqe, data)),
                        Event::Greeted(_) => {}
                        Event::Ended { term, .. } => panic!("{term:?}"),
                    }
                }
            }
            let answer: Vec<u8> = self.target.output().slices().flatten().copied().collect();
            self.target.sent(answer.len());
            self.seen.extend(give(&mut self.host, &answer, self.piece));
            if sent.is_empty() && answer.is_empty() {
                return;
            }
        }
    }
}

fn sqe(cid: u16, opcode: u8) -> Sqe {
    Sqe { opcode, cid, ..Sqe::default() }
}

fn ok(cid: u16) -> Cqe {
    Cqe::new(Cid(cid), QueueId(1), 0, Status::SUCCESS, 0, false)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 5) as u8).collect()
}

#[test]
fn writes_arrive_whole() {
    for (bits, piece) in [(0, 4000), (1, 7), (2, 1000), (3, 129)] {
        for len in [512, 4096, 4100, 8192, 100_000] {
            let mut wire = Wire::new(bits, piece);
            assert!(wire.host.submit(sqe(3, 1), Some((bytes(len), len as u32))));
            wire.run();
            let (got, data) = wire.commands.pop().unwrap();
            assert!((got.cid, got.opcode) == (3, 1) && data == bytes(len), "{bits} {len}");
            wire.target.complete(ok(3), Vec::new());
            wire.run();
            let Some(InitiatorEvent::Completed { cqe, buffer }) = wire.seen.pop() else {
                panic!("{:?}", wire.seen)
            };
            assert!(cqe.cid == 3 && cqe.status().is_success() && buffer == Some(bytes(len)));
            assert_eq!(wire.host.open(), 0);
        }
    }
}

#[test]
fn reads_arrive_whole() {
    for (bits, piece, flow_control) in
        [(0, 4000, true), (1, 7, false), (2, 1000, true), (3, 129, false)]
    {
        let mut wire = Wire::new(bits, piece);
        wire.target.connect(16, flow_control);
        for cid in 0..5 {
            assert!(wire.host.submit(sqe(cid, 2), Some((vec![0; 70_000], 70_000))));
        }
        wire.run();
        for cid in [4, 0, 3, 1, 2] {
            wire.target.complete(ok(cid), bytes(70_000));
        }
        wire.run();
        let cids = wire.seen.iter().map(|event| match event {
            InitiatorEvent::Completed { cqe, buffer: Some(buffer) } if *buffer == bytes(70_000) => {
                cqe.cid
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(cids.collect::<Vec<_>>(), [4, 0, 3, 1, 2]);
    }
}

#[test]
fn wrong_data_digest_fails_the_read() {
    for flow_control in [true, false] {
        let mut wire = Wire::new(2, 1000);
        wire.target.connect(16, flow_control);
        wire.target.tamper = Some(Tamper::DataDigest);
        wire.host.submit(sqe(1, 2), Some((vec![0; 512], 512)));
        wire.run();
        wire.target.complete(ok(1), bytes(512));
        wire.run();
        let Some(InitiatorEvent::Completed { cqe, .. }) = wire.seen.pop() else {
            panic!("{:?}", wire.seen)
        };
        assert_eq!(cqe.status(), Status::TRANSIENT_TRANSPORT_ERROR);
    }
}

#[test]
fn commands_without_data_and_fabrics() {
    let mut wire = Wire::new(3, 50);
    wire.host.set_in_capsule(0);
    let connect = Connect {
        format: 0,
        queue: QueueId(1),
        entries: 16,
        no_flow_control: true,
        kato: 0,
        data: Dptr::NONE,
    };
    assert!(wire.host.submit(Sqe { cid: 1, ..connect.to_sqe() }, Some((bytes(1024), 1024))));
    assert!(wire.host.submit(Sqe { cid: 2, ..disconnect() }, None));
    assert!(wire.host.submit(sqe(5, 0), None), "Flush");
    assert!(!wire.host.submit(sqe(5 + 16, 0), None), "its slot is taken");
    wire.run();
    let lens: Vec<_> = wire.commands.iter().map(|(sqe, data)| (sqe.cid, data.len())).collect();
    assert_eq!(lens, [(1, 1024), (2, 0), (5, 0)]);
}

/// A host with an open connection and three outstanding commands: a 64 KiB write (1), a 4 KiB read
/// (2) and a Flush (3).
fn busy() -> Initiator<Heap> {
    let mut host = Initiator::new(config(0), Heap);
    let greeting = Greeting { limit: 8192.into(), ..Greeting::default() };
    let events = give(
        &mut host,
        &Pdu::new(Body::IcResp(greeting)).to_bytes(&[], Digests::default(), 0),
        200,
    );
    assert_eq!(events, [InitiatorEvent::Greeted(Digests::default())]);
    assert!(host.submit(sqe(1, 1), Some((bytes(65_536), 65_536))));
    assert!(host.submit(sqe(2, 2), Some((vec![0; 4096], 4096))));
    assert!(host.submit(sqe(3, 0), None));
    output(&mut host);
    host
}

fn r2t(cid: u16, offset: u32, len: u32) -> Vec<u8> {
    let r2t = Data {
        cid: cid.into(),
        tag: 9.into(),
        offset: offset.into(),
        len: len.into(),
        ..Data::default()
    };
    Pdu::new(Body::R2t(r2t)).to_bytes(&[], Digests::default(), 0)
}

fn c2h(cid: u16, offset: u32, data: &[u8], flags: u8) -> Vec<u8> {
    let body = Data {
        cid: cid.into(),
        offset: offset.into(),
        len: (data.len() as u32).into(),
        ..Data::default()
    };
    Pdu { flags, body: Body::C2hData(body), data: 0 }.to_bytes(data, Digests::default(), 0)
}

fn response(cid: u16, status: Status) -> Vec<u8> {
    Pdu::new(Body::CapsuleResp(ok(cid).with_status(status, false))).to_bytes(
        &[],
        Digests::default(),
        0,
    )
}

#[test]
fn data_are_sent_in_pieces() {
    let mut host = busy();
    assert!(give(&mut host, &r2t(1, 0, 20_000), 5).is_empty());
    let sent = output(&mut host);
    // Three PDUs, the last one with LAST_PDU.
    assert_eq!(sent.len(), 3 * 24 + 20_000);
    assert_eq!((sent[1], sent[24 + 8192 + 1], sent[2 * (24 + 8192) + 1]), (0, 0, flags::LAST));
    assert_eq!(sent[24..24 + 8192], bytes(65_536)[..8192]);
    assert_eq!(sent[10], 9, "TTAG");
}

#[test]
fn what_no_controller_may_send() {
    let last = flags::LAST;
    let field = |fei| Term { fes: Fes::INVALID_FIELD, fei };
    let of = |fes| Term { fes, fei: 0 };
    let cases: Vec<(&str, Vec<Vec<u8>>, Term)> = vec![
        ("R2T without a command", vec![r2t(7, 0, 512)], field(8)),
        ("R2T of an old generation", vec![r2t(17, 0, 512)], field(8)),
        ("R2T of a read", vec![r2t(2, 0, 512)], field(8)),
        ("R2T of no bytes", vec![r2t(1, 0, 0)], field(16)),
        ("R2T beyond the end", vec![r2t(1, 65_000, 1000)], of(Fes::OUT_OF_RANGE)),
        ("R2T that wraps", vec![r2t(1, u32::MAX, 2)], of(Fes::OUT_OF_RANGE)),
        ("R2T twice", vec![r2t(1, 0, 512), r2t(1, 0, 512)], field(12)),
        ("R2T that overlaps", vec![r2t(1, 0, 512), r2t(1, 256, 512)], field(12)),
        ("data without a command", vec![c2h(7, 0, &[0; 512], last)], field(8)),
        ("data of a write", vec![c2h(1, 0, &[0; 512], last)], field(8)),
        ("data of a Flush", vec![c2h(3, 0, &[0; 512], last)], field(8)),
        ("data beyond the end", vec![c2h(2, 0, &[0; 4100], last)], of(Fes::OUT_OF_RANGE)),
        ("data twice", vec![c2h(2, 0, &[0; 512], 0), c2h(2, 0, &[0; 512], last)], field(12)),
        (
            "data after the last",
            vec![c2h(2, 0, &[0; 512], last), c2h(2, 512, &[0; 512], last)],
            field(8),
        ),
        ("SUCCESS without LAST_PDU", vec![c2h(2, 0, &[0; 4096], flags::SUCCESS)], field(1)),
        (
            "SUCCESS of half the data",
            vec![c2h(2, 0, &[0; 2048], last | flags::SUCCESS)],
            of(Fes::SEQUENCE_ERROR),
        ),
        (
            "a response after SUCCESS",
            vec![c2h(2, 0, &[0; 4096], last | flags::SUCCESS), response(2, Status::SUCCESS)],
            field(20),
        ),
        ("a response without data", vec![response(2, Status::SUCCESS)], of(Fes::SEQUENCE_ERROR)),
        (
            "success before all was asked for",
            vec![r2t(1, 0, 512), response(1, Status::SUCCESS)],
            of(Fes::SEQUENCE_ERROR),
        ),
        ("a response without a command", vec![response(9, Status::SUCCESS)], field(20)),
        (
            "a response twice",
            vec![response(3, Status::SUCCESS), response(3, Status::SUCCESS)],
            field(20),
        ),
        (
            "ICResp twice",
            vec![Pdu::new(Body::IcResp(Greeting::default())).to_bytes(&[], Digests::default(), 0)],
            of(Fes::SEQUENCE_ERROR),
        ),
        (
            "a host's PDU",
            vec![Pdu::new(Body::CapsuleCmd(Sqe::default())).to_bytes(&[], Digests::default(), 0)],
            of(Fes::SEQUENCE_ERROR),
        ),
    ];
    for (what, pdus, expected) in cases {
        let mut host = busy();
        let events: Vec<_> = pdus.iter().flat_map(|pdu| give(&mut host, pdu, 1000)).collect();
        assert_eq!(
            events.last(),
            Some(&InitiatorEvent::Ended { term: expected, by_controller: false }),
            "{what}"
        );
        let sent = output(&mut host);
        assert!(sent.windows(2).any(|at| at == [2, 0]), "{what}: H2CTermReq");
        assert!(
            give(&mut host, &response(3, Status::SUCCESS), 100).is_empty()
                && !host.submit(sqe(6, 0), None),
            "{what}"
        );
    }
}

#[test]
fn errors_may_come_early() {
    let mut host = busy();
    let events = give(
        &mut host,
        &[response(1, Status::INTERNAL_ERROR), response(2, Status::INTERNAL_ERROR)].concat(),
        1000,
    );
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| matches!(event, InitiatorEvent::Completed { cqe, .. } if cqe.status() == Status::INTERNAL_ERROR)));
}

#[test]
fn greetings_that_cannot_be() {
    let refused = |answer: Greeting| {
        let mut host = Initiator::new(config(1), Heap);
        let events = give(
            &mut host,
            &Pdu::new(Body::IcResp(answer)).to_bytes(&[], Digests::default(), 0),
            200,
        );
        let [InitiatorEvent::Ended { term, by_controller: false }] = events[..] else {
            panic!("{events:?}")
        };
        term.fei
    };
    let good = Greeting { limit: 4096.into(), ..Greeting::default() };
    assert_eq!(refused(Greeting { version: 1.into(), ..good }), 8);
    assert_eq!(refused(Greeting { alignment: 32, ..good }), 10);
    assert_eq!(refused(Greeting { digests: 2, ..good }), 11);
    assert_eq!(refused(Greeting { limit: 4092.into(), ..good }), 12);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_survived(noise in prop::collection::vec(any::<u8>(), 0..400), at in 0..400usize, value in any::<u8>(), piece in 1..300usize) {
        let mut host = busy();
        give(&mut host, &noise, piece);
        // A valid stream with one wrong byte: each command completes at most once.
        let mut host = busy();
        let mut stream = [r2t(1, 0, 512), c2h(2, 0, &[1; 64], 0), response(3, Status::SUCCESS), response(1, Status::INTERNAL_ERROR)].concat();
        let at = at % stream.len();
        stream[at] = value;
        let events = give(&mut host, &stream, piece);
        let done = events.iter().filter(|event| matches!(event, InitiatorEvent::Completed { .. })).count();
        prop_assert!(done <= 3 && host.open() as usize == 3 - done);
    }
}
