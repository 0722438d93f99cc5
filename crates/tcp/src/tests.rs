use std::collections::HashMap;

use nvme::sgl::Descriptor;
use nvme::{Cid, Cqe, QueueId, Sqe, Status};
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    digests: Digests { header: true, data: true },
    in_capsule: 8192,
    h2c_data: 16_384,
    transfer: 1 << 20,
    r2t: 24_576,
    room: 8192,
};
const ALL: u64 = u64::MAX;

/// Passes bytes to a target in pieces, and returns the events.
fn give(target: &mut Target, bytes: &[u8], piece: usize) -> Vec<Event> {
    let (mut rest, mut events) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (mut n, most) = (0, piece.max(1));
        for space in target.space() {
            let len = space.len().min(rest.len()).min(most - n);
            space[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            n += len;
        }
        if n == 0 {
            break;
        }
        target.filled(n);
        events.extend(std::iter::from_fn(|| target.poll(ALL)));
    }
    events
}

/// A host: decodes what a target has sent.
struct Host {
    receiver: Receiver,
    digests: Digests,
}

impl Host {
    fn greeted(target: &mut Target, bits: u8, most_r2ts: u32) -> Host {
        let greeting =
            Greeting { digests: bits, limit: (most_r2ts - 1).into(), ..Greeting::default() };
        let events = give(
            target,
            &Pdu::new(Body::IcReq(greeting)).to_bytes(&[], Digests::default(), 0),
            1000,
        );
        let digests = Digests::from_bits(bits);
        assert_eq!(events, [Event::Greeted(digests)]);
        let mut host = Host { receiver: Receiver::new(Side::Host), digests: Digests::default() };
        let Some((Pdu { body: Body::IcResp(answer), .. }, _)) = host.take(target).pop() else {
            panic!("no ICResp")
        };
        assert_eq!((answer.digests, answer.limit.get()), (bits, LIMITS.h2c_data));
        host.receiver.begin(digests, 1 << 20);
        target.connect(128, true);
        Host { digests, ..host }
    }

    /// The PDUs sent, with their data.
    fn take(&mut self, target: &mut Target) -> Vec<(Pdu, Vec<u8>)> {
        let mut pdus = Vec::new();
        while target.output().left() > 0 {
            let bytes: Vec<u8> = target.output().slices().flatten().copied().take(4000).collect();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let mut n = 0;
                for space in self.receiver.space() {
                    let len = space.len().min(rest.len());
                    space[..len].copy_from_slice(&rest[..len]);
                    (rest, n) = (&rest[len..], n + len);
                }
                self.receiver.filled(n);
                while let Some(item) = self.receiver.take().unwrap() {
                    match item {
                        Item::Head(pdu) => {
                            if pdu.data > 0 && matches!(pdu.body, Body::C2hData(_)) {
                                self.receiver.place(vec![0; pdu.data as usize], 0, pdu.data);
                            }
                            pdus.push((pdu, Vec::new()));
                        }
                        Item::Data { buffer, intact } => {
                            assert!(intact);
                            pdus.last_mut().unwrap().1 = buffer;
                        }
                    }
                }
            }
            target.sent(bytes.len());
        }
        pdus
    }

    fn command(&self, cid: u16, opcode: u8, sgl: Descriptor, data: &[u8]) -> Vec<u8> {
        let dptr = sgl.dptr();
        let sqe = Sqe {
            opcode,
            flags: Sqe::PSDT_SGL,
            cid,
            prp1: dptr.prp1,
            prp2: dptr.prp2,
            ..Sqe::default()
        };
        Pdu::new(Body::CapsuleCmd(sqe)).to_bytes(data, self.digests, 0)
    }

    fn data(&self, r2t: Data, at: u32, data: &[u8], last: bool) -> Vec<u8> {
        let body = Data { offset: at.into(), len: (data.len() as u32).into(), ..r2t };
        Pdu { flags: if last { flags::LAST } else { 0 }, body: Body::H2cData(body), data: 0 }
            .to_bytes(data, self.digests, 0)
    }
}

fn ok(cid: u16) -> Cqe {
    Cqe::new(Cid(cid), QueueId(1), 0, Status::SUCCESS, 0, false)
}

/// The TermReq that these bytes cause.
fn ends(bytes: &[u8]) -> Term {
    let mut target = Target::new(LIMITS);
    let mut host = Host::greeted(&mut target, 0, 1);
    ends_with(&mut target, &mut host, bytes)
}

fn ends_with(target: &mut Target, host: &mut Host, bytes: &[u8]) -> Term {
    let event = give(target, bytes, 1 << 20).pop();
    let Some(Event::Ended { term, by_host: false }) = event else { panic!("{event:?}") };
    assert_eq!(host.take(target).pop().map(|(pdu, _)| pdu.body), Some(Body::C2hTermReq(term)));
    assert!(give(target, bytes, 100).is_empty(), "nothing is done after the end");
    term
}

fn field(at: u32) -> Term {
    Term { fes: Fes::INVALID_FIELD, fei: at }
}

#[test]
fn headers_are_where_the_figures_say() {
    let r2t = Data {
        cid: 0x1234.into(),
        tag: 7.into(),
        offset: 4096.into(),
        len: 512.into(),
        ..Data::default()
    };
    let bytes = Pdu::new(Body::R2t(r2t)).to_bytes(&[], Digests::default(), 0);
    assert_eq!(
        bytes,
        [9, 0, 24, 0, 24, 0, 0, 0, 0x34, 0x12, 7, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    );
    let both = Digests { header: true, data: true };
    let bytes = Pdu { flags: flags::LAST, body: Body::C2hData(r2t), data: 0 }.to_bytes(
        &[1, 2, 3, 4],
        both,
        7,
    );
    assert_eq!((bytes[..8].to_vec(), bytes.len()), (vec![7, 7, 24, 32, 40, 0, 0, 0], 40));
    assert_eq!(bytes[24..28], digest(&bytes[..24]).to_le_bytes());
    assert_eq!(bytes[36..], digest(&[1, 2, 3, 4]).to_le_bytes());
    assert_eq!(digest(b"123456789"), 0xe306_9283);
    let greeting = Greeting { alignment: 3, digests: 2, limit: 5.into(), ..Greeting::default() };
    let bytes = Pdu::new(Body::IcReq(greeting)).to_bytes(&[], both, 0);
    assert_eq!(
        (bytes.len(), &bytes[..16]),
        (128, &[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 2, 5, 0, 0, 0][..])
    );
}

#[test]
fn read_is_answered_with_its_data() {
    let mut target = Target::new(LIMITS);
    let mut host = Host::greeted(&mut target, 3, 1);
    let events = give(&mut target, &host.command(5, 2, Descriptor::transport(4096), &[]), 7);
    let [Event::Command { sqe, data }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((sqe.cid, data.len(), target.held()), (5, 4096, 4096));
    target.complete(ok(5), vec![7; 4096]);
    let sent = host.take(&mut target);
    assert_eq!(sent[0].1, [7; 4096]);
    assert_eq!(sent[0].0.flags, flags::LAST);
    assert!(matches!(sent[1].0.body, Body::CapsuleResp(Cqe { cid: 5, sq_head: 1, .. })));
    assert_eq!((sent.len(), target.held()), (2, 0));
}

#[test]
fn without_flow_control_no_response_follows() {
    let mut target = Target::new(LIMITS);
    let mut host = Host::greeted(&mut target, 0, 1);
    target.connect(4, false);
    for cid in 0..9 {
        give(&mut target, &host.command(cid, 2, Descriptor::transport(512), &[]), 1000);
        target.complete(ok(cid), vec![1; 512]);
        let sent = host.take(&mut target);
        assert_eq!((sent.len(), sent[0].0.flags), (1, flags::LAST | flags::SUCCESS));
    }
    give(&mut target, &host.command(9, 0, Descriptor::default(), &[]), 1000);
    target.complete(ok(9), Vec::new());
    assert!(matches!(
        host.take(&mut target)[0].0.body,
        Body::CapsuleResp(Cqe { sq_head: 0xffff, .. })
    ));
}

#[test]
fn write_comes_in_its_capsule() {
    let mut target = Target::new(LIMITS);
    let host = Host::greeted(&mut target, 3, 1);
    let bytes: Vec<u8> = (0..4096u32).map(|n| n as u8).collect();
    let events =
        give(&mut target, &host.command(1, 1, Descriptor::in_capsule(512, 1024), &bytes), 100);
    let [Event::Command { data, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(data[..], bytes[512..1536]);
}

#[test]
fn write_is_asked_for_in_pieces() {
    for (most, together) in [(1, 1), (3, 3), (100, 5)] {
        let mut target = Target::new(LIMITS);
        let mut host = Host::greeted(&mut target, 2, most);
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
        assert!(
            give(&mut target, &host.command(1, 1, Descriptor::transport(100_000), &[]), 1000)
                .is_empty()
        );
        let mut rounds = Vec::new();
        let data = loop {
            let r2ts = host.take(&mut target);
            rounds.push(r2ts.len());
            let mut events = Vec::new();
            for (pdu, _) in r2ts {
                let Body::R2t(r2t) = pdu.body else { panic!("{pdu:?}") };
                let (mut at, end) = (r2t.offset.get(), r2t.offset.get() + r2t.len.get());
                while at < end {
                    let n = LIMITS.h2c_data.min(end - at);
                    events.extend(give(
                        &mut target,
                        &host.data(r2t, at, &bytes[at as usize..(at + n) as usize], at + n == end),
                        3000,
                    ));
                    at += n;
                }
            }
            if let Some(Event::Command { data, .. }) = events.pop() {
                break data;
            }
        };
        assert!(data == bytes && rounds[0] == together, "{rounds:?}");
        target.complete(ok(1), Vec::new());
        assert!(!target.awaits_data() && target.held() == 0);
    }
}

#[test]
fn data_with_wrong_digest_fails_its_command() {
    let mut target = Target::new(LIMITS);
    let mut host = Host::greeted(&mut target, 2, 1);
    let mut capsule = host.command(1, 1, Descriptor::in_capsule(0, 512), &[1; 512]);
    *capsule.last_mut().unwrap() ^= 1;
    assert!(give(&mut target, &capsule, 1000).is_empty());
    give(&mut target, &host.command(2, 1, Descriptor::transport(512), &[]), 1000);
    let sent = host.take(&mut target);
    let (Body::CapsuleResp(cqe), Body::R2t(r2t)) = (sent[0].0.body, sent[1].0.body) else {
        panic!("{sent:?}")
    };
    assert_eq!((cqe.cid, cqe.status()), (1, Status::TRANSIENT_TRANSPORT_ERROR));
    let mut data = host.data(r2t, 0, &[1; 512], true);
    *data.last_mut().unwrap() ^= 1;
    assert!(give(&mut target, &data, 1000).is_empty());
    let Body::CapsuleResp(cqe) = host.take(&mut target)[0].0.body else { panic!() };
    assert_eq!((cqe.cid, cqe.status(), target.held()), (2, Status::TRANSIENT_TRANSPORT_ERROR, 0));
}

#[test]
fn commands_that_cannot_be_are_answered() {
    let mut target = Target::new(LIMITS);
    let mut host = Host::greeted(&mut target, 0, 1);
    let dnr = |status: Status| status.with_dnr();
    let block = Descriptor::data_block(0x1000, 512);
    for (n, (opcode, sgl, data, status)) in [
        (2, block, 0, dnr(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
        (2, Descriptor::in_capsule(0, 512), 512, dnr(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
        (1, Descriptor::in_capsule(0, 512), 0, dnr(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
        (1, Descriptor::in_capsule(u64::MAX, 512), 512, dnr(Status::SGL_OFFSET_INVALID)),
        (1, Descriptor::in_capsule(0, 1024), 512, dnr(Status::SGL_OFFSET_INVALID)),
        (2, Descriptor::transport(u32::MAX), 0, dnr(Status::INVALID_FIELD)),
        (1, Descriptor::transport(2 << 20), 0, dnr(Status::INVALID_FIELD)),
    ]
    .into_iter()
    .enumerate()
    {
        let events = give(&mut target, &host.command(n as u16, opcode, sgl, &vec![0; data]), 1000);
        assert!(events.is_empty(), "{n}: {events:?}");
        let sent = host.take(&mut target);
        let Body::CapsuleResp(cqe) = sent[0].0.body else { panic!("{sent:?}") };
        assert_eq!((cqe.cid, cqe.status()), (n as u16, status));
    }
    give(&mut target, &host.command(50, 2, Descriptor::transport(512), &[]), 1000);
    assert!(
        give(&mut target, &host.command(50, 2, Descriptor::transport(512), &[]), 1000).is_empty()
    );
    let Body::CapsuleResp(cqe) = host.take(&mut target)[0].0.body else { panic!() };
    assert_eq!(cqe.status(), Status::COMMAND_ID_CONFLICT);
    let mut prps = host.command(51, 2, Descriptor::transport(512), &[]);
    prps[9] = 0;
    assert!(give(&mut target, &prps, 1000).is_empty());
}

#[test]
fn commands_wait_for_memory() {
    let mut target = Target::new(LIMITS);
    let host = Host::greeted(&mut target, 0, 1);
    for cid in 0..3 {
        let bytes = host.command(cid, 2, Descriptor::transport(4096), &[]);
        target.space()[1][..bytes.len()].copy_from_slice(&bytes);
        target.filled(bytes.len());
        assert_eq!(target.poll(4095), None);
    }
    assert!(matches!(target.poll(4096), Some(Event::Command { .. })));
    assert_eq!(target.poll(0), None);
    assert_eq!(target.held(), 4096);
}

#[test]
fn what_cannot_be_followed_ends_the_connection() {
    let mut target = Target::new(LIMITS);
    let host = Host::greeted(&mut target, 0, 1);
    let good = host.command(1, 2, Descriptor::transport(512), &[]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(ends(&with(0, 0x44)), field(0));
    assert_eq!(ends(&with(0, kind::R2T)).fes, Fes::SEQUENCE_ERROR);
    assert_eq!(ends(&with(0, kind::IC_REQ)), field(2));
    assert_eq!(ends(&with(1, 1)), field(1));
    assert_eq!(ends(&with(2, 71)), field(2));
    assert_eq!(ends(&with(4, 71)), field(4));
    assert_eq!(ends(&with(7, 0xff)), field(4));
    let greeting = Pdu::new(Body::IcReq(Greeting::default())).to_bytes(&[], Digests::default(), 0);
    assert_eq!(ends(&greeting).fes, Fes::SEQUENCE_ERROR, "a second one");
    let capsule = host.command(1, 1, Descriptor::in_capsule(0, 512), &[0; 512]);
    let with = |at: usize, value: u8| {
        let mut bytes = capsule.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(ends(&with(1, 2)), field(1));
    assert_eq!(ends(&with(3, 71)), field(3));
    assert_eq!(ends(&with(3, 74)), field(3));
    assert_eq!(ends(&with(6, 0xff)), field(4), "more than a capsule may have");
    let many: Vec<u8> =
        (0..200).flat_map(|cid| host.command(cid, 2, Descriptor::transport(512), &[])).collect();
    assert_eq!(ends(&many).fes, Fes::SEQUENCE_ERROR, "more commands than the queue has entries");
}

#[test]
fn greetings_that_cannot_be() {
    let refused = |change: fn(&mut Greeting)| {
        let mut greeting = Greeting::default();
        change(&mut greeting);
        let event = give(
            &mut Target::new(LIMITS),
            &Pdu::new(Body::IcReq(greeting)).to_bytes(&[], Digests::default(), 0),
            200,
        )
        .pop();
        let Some(Event::Ended { term, .. }) = event else { panic!("{event:?}") };
        term
    };
    assert_eq!(
        refused(|greeting| greeting.version = 1.into()),
        Term { fes: Fes::UNSUPPORTED_PARAMETER, fei: 8 }
    );
    assert_eq!(refused(|greeting| greeting.alignment = 32), field(10));
    assert_eq!(refused(|greeting| greeting.digests = 4), field(11));
    let mut target = Target::new(LIMITS);
    let early = Pdu::new(Body::CapsuleCmd(Sqe::default())).to_bytes(&[], Digests::default(), 0);
    assert!(matches!(
        give(&mut target, &early, 100)[..],
        [Event::Ended { term: Term { fes: Fes::SEQUENCE_ERROR, .. }, .. }]
    ));
}

#[test]
fn data_that_were_not_asked_for() {
    let asked = || {
        let mut target = Target::new(LIMITS);
        let mut host = Host::greeted(&mut target, 0, 1);
        give(&mut target, &host.command(1, 1, Descriptor::transport(20_000), &[]), 1000);
        let Body::R2t(r2t) = host.take(&mut target)[0].0.body else { panic!() };
        (target, host, r2t)
    };
    let (mut target, mut host, r2t) = asked();
    let other = Data { tag: 9.into(), ..r2t };
    let bytes = host.data(other, 0, &[0; 512], false);
    assert_eq!(ends_with(&mut target, &mut host, &bytes), field(10));
    type Case = fn(&Host, Data) -> Vec<u8>;
    let cases: [(Case, Term); 7] = [
        (|host, r2t| host.data(Data { cid: 8.into(), ..r2t }, 0, &[0; 512], false), field(8)),
        (|host, r2t| host.data(r2t, 512, &[0; 512], false), field(12)),
        (|host, r2t| host.data(r2t, 0, &[0; 512], true), field(1)),
        (
            |host, r2t| host.data(r2t, 19_999, &[0; 2], true),
            Term { fes: Fes::OUT_OF_RANGE, fei: 0 },
        ),
        (
            |host, r2t| host.data(r2t, u32::MAX, &[0; 2], true),
            Term { fes: Fes::OUT_OF_RANGE, fei: 0 },
        ),
        (
            |host, r2t| host.data(r2t, 0, &[0; 20_000], true),
            Term { fes: Fes::LIMIT_EXCEEDED, fei: 0 },
        ),
        (
            |host, r2t| {
                let mut bytes = host.data(r2t, 0, &[0; 512], false);
                bytes[16] = 1;
                bytes
            },
            field(16),
        ),
    ];
    for (bytes, term) in cases {
        let (mut target, mut host, r2t) = asked();
        let bytes = bytes(&host, r2t);
        assert_eq!(ends_with(&mut target, &mut host, &bytes), term);
    }
}

#[test]
fn header_digests_are_checked() {
    let mut target = Target::new(LIMITS);
    let mut host = Host::greeted(&mut target, 1, 1);
    let mut bytes = host.command(1, 2, Descriptor::transport(512), &[]);
    bytes[72] ^= 1;
    let sent = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
    assert_eq!(
        ends_with(&mut target, &mut host, &bytes),
        Term { fes: Fes::HEADER_DIGEST, fei: sent }
    );
}

#[test]
fn host_may_end_it() {
    let mut target = Target::new(LIMITS);
    Host::greeted(&mut target, 0, 1);
    let term = Term { fes: Fes::OUT_OF_RANGE, fei: 3 };
    let bytes = Pdu::new(Body::H2cTermReq(term)).to_bytes(&[9; 24], Digests::default(), 0);
    assert_eq!(give(&mut target, &bytes, 5), [Event::Ended { term, by_host: true }]);
}

#[test]
fn tampered_pdus_are_wrong_once() {
    let mut target = Target::new(LIMITS);
    let host = Host::greeted(&mut target, 3, 1);
    let wrong = |target: &mut Target, tamper, cid| {
        give(target, &host.command(cid, 2, Descriptor::transport(512), &[]), 1000);
        target.tamper = tamper;
        target.complete(ok(cid), vec![3; 512]);
        let bytes: Vec<u8> = target.output().slices().flatten().copied().collect();
        target.sent(bytes.len());
        assert_eq!(target.tamper, None);
        let header = digest(&bytes[..24]).to_le_bytes() != bytes[24..28];
        (header, digest(&bytes[28..540]).to_le_bytes() != bytes[540..544])
    };
    assert_eq!(wrong(&mut target, Some(Tamper::HeaderDigest), 1), (true, false));
    assert_eq!(wrong(&mut target, Some(Tamper::DataDigest), 2), (false, true));
    assert_eq!(wrong(&mut target, None, 3), (false, false));
}

proptest! {
    /// For any bytes, in any pieces: no panic, bounded memory, and the same events as in one piece.
    #[test]
    fn any_bytes_end_or_wait(bytes in prop::collection::vec(any::<u8>(), 0..600), bits in 0u8..4, piece in 1usize..200) {
        let run = |piece| {
            let mut target = Target::new(LIMITS);
            Host::greeted(&mut target, bits, 1);
            (give(&mut target, &bytes, piece), target.held())
        };
        prop_assert_eq!(run(piece), run(1 << 20));
        prop_assert!(run(piece).1 <= 8192);
    }

    /// Commands of every kind, split anywhere: each is reported once, with its data.
    #[test]
    fn each_command_comes_once(
        commands in prop::collection::vec((0u8..3, 1u32..60_000, any::<u8>()), 1..12),
        bits in 0u8..4, piece in 1usize..9000, most_r2ts in 1u32..4,
    ) {
        let mut target = Target::new(LIMITS);
        let mut host = Host::greeted(&mut target, bits, most_r2ts);
        let mut bytes = Vec::new();
        for (cid, (kind, len, fill)) in (0u16..).zip(&commands) {
            bytes.extend(match kind {
                0 => host.command(cid, 2, Descriptor::transport(*len), &[]),
                1 => host.command(cid, 1, Descriptor::transport(*len), &[]),
                _ => host.command(cid, 1, Descriptor::in_capsule(0, len % 8000 + 1), &vec![*fill; (len % 8000 + 1) as usize]),
            });
        }
        let mut done = HashMap::new();
        let mut events = give(&mut target, &bytes, piece);
        for _ in 0..200 {
            for event in events.drain(..) {
                let Event::Command { sqe, data } = event else { panic!("{event:?}") };
                let (kind, len, fill) = commands[usize::from(sqe.cid)];
                prop_assert_eq!(data.len() as u32, if kind == 2 { len % 8000 + 1 } else { len });
                prop_assert!(kind == 0 || data.iter().all(|byte| *byte == fill));
                prop_assert!(done.insert(sqe.cid, ()).is_none());
                target.complete(ok(sqe.cid), if kind == 0 { data } else { Vec::new() });
            }
            for (pdu, _) in host.take(&mut target) {
                let Body::R2t(r2t) = pdu.body else { continue };
                let fill = commands[usize::from(r2t.cid.get())].2;
                let (mut at, end) = (r2t.offset.get(), r2t.offset.get() + r2t.len.get());
                while at < end {
                    let n = LIMITS.h2c_data.min(end - at);
                    events.extend(give(&mut target, &host.data(r2t, at, &vec![fill; n as usize], at + n == end), piece));
                    at += n;
                }
            }
        }
        prop_assert_eq!(done.len(), commands.len());
        prop_assert_eq!(target.held(), 0);
    }
}

#[test]
fn capsule_waits_for_memory() {
    let mut target = Target::new(LIMITS);
    let host = Host::greeted(&mut target, 0, 1);
    let bytes = host.command(1, 1, Descriptor::in_capsule(0, 4096), &[7; 4096]);
    let mut rest = &bytes[..];
    for space in target.space() {
        let len = space.len().min(rest.len());
        space[..len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
    }
    target.filled(bytes.len());
    assert_eq!(target.poll(4095), None);
    assert!(target.is_blocked() && target.waits() && target.held() == 0);
    let Some(Event::Command { data, .. }) = target.poll(4096) else { panic!("no command") };
    assert_eq!((data, target.held(), target.is_blocked()), (vec![7; 4096], 4096, false));
    target.complete(ok(1), Vec::new());
    assert_eq!(target.held(), 0);
}
