//! A connection of an NVMe/TCP target: commands, data and rubbish from a host, answers in any
//! order.

use std::collections::BTreeMap;

use nvme::sgl::Descriptor;
use nvme::{Cid, Cqe, QueueId, Sqe, Status};
use tcp::{Body, Data, Digests, Event, Greeting, Limits, Pdu, Target, flags};

use crate::source::Source;

const LIMITS: Limits = Limits {
    digests: Digests { header: true, data: true },
    in_capsule: 8192,
    h2c_data: 4096,
    transfer: 65_536,
    r2t: 8192,
    room: 4096,
};
const ENTRIES: u32 = 16;
/// What commands may have, besides what comes in capsules.
const MEMORY: u64 = 200_000;

struct Run {
    target: Target,
    /// Commands that have come and are not answered: bytes that go to the host.
    open: BTreeMap<u16, Vec<u8>>,
}

impl Run {
    /// False: the connection is over.
    fn give(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let mut n = 0;
            for space in self.target.space() {
                let len = space.len().min(bytes.len());
                space[..len].copy_from_slice(&bytes[..len]);
                (bytes, n) = (&bytes[len..], n + len);
            }
            assert!(n > 0);
            self.target.filled(n);
            if !self.listen() {
                return false;
            }
        }
        true
    }

    fn listen(&mut self) -> bool {
        loop {
            let free = MEMORY.saturating_sub(self.target.held());
            match self.target.poll(free) {
                None => break,
                Some(Event::Greeted(_)) => self.target.connect(ENTRIES, true),
                Some(Event::Ended { .. }) => return false,
                Some(Event::Command { sqe, data }) => {
                    let reads =
                        nvme::fabrics::direction_of(&sqe) == nvme::fabrics::Direction::ToHost;
                    let again = self.open.insert(sqe.cid, if reads { data } else { Vec::new() });
                    assert!(again.is_none(), "a command has come twice");
                }
            }
        }
        assert!(self.open.len() as u32 <= ENTRIES);
        assert!(
            self.target.held()
                <= MEMORY + u64::from(ENTRIES) * 8192 + self.target.output().left() as u64
        );
        true
    }
}

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let bits = source.u8() & 3;
    let digests = Digests::from_bits(bits);
    let mut run = Run { target: Target::new(LIMITS), open: BTreeMap::new() };
    let greeting = Greeting {
        digests: bits,
        alignment: source.u8() % 32,
        limit: u32::from(source.u8()).into(),
        ..Greeting::default()
    };
    assert!(run.give(&Pdu::new(Body::IcReq(greeting)).to_bytes(&[], Digests::default(), 0)));
    while !source.is_over() {
        let goes_on = match source.below(6) {
            0 => {
                let len = source.below(100);
                run.give(source.take(len))
            }
            1 => {
                let inside = source.below(2) == 1;
                let len = u32::from(source.u16());
                let sgl = if inside {
                    Descriptor::in_capsule(source.any_size(), len)
                } else {
                    Descriptor::transport(len)
                };
                let dptr = sgl.dptr();
                let sqe = Sqe {
                    opcode: source.u8(),
                    flags: Sqe::PSDT_SGL,
                    cid: source.u8().into(),
                    nsid: source.u8().into(),
                    prp1: dptr.prp1,
                    prp2: dptr.prp2,
                    ..Sqe::default()
                };
                let data = vec![7; if inside { usize::from(source.u16() % 9000) } else { 0 }];
                run.give(&Pdu::new(Body::CapsuleCmd(sqe)).to_bytes(&data, digests, 0))
            }
            2 => {
                let len = usize::from(source.u16() % 5000);
                let body = Data {
                    cid: u16::from(source.u8()).into(),
                    tag: u16::from(source.u8() % 8).into(),
                    offset: source.u32().into(),
                    len: (len as u32).into(),
                    ..Data::default()
                };
                let last = if source.below(2) == 1 { flags::LAST } else { 0 };
                run.give(&Pdu { flags: last, body: Body::H2cData(body), data: 0 }.to_bytes(
                    &vec![3; len],
                    digests,
                    0,
                ))
            }
            3 => {
                if let Some((cid, data)) = run.open.pop_first() {
                    let status = Status(u16::from(source.u8()) & 1);
                    run.target.complete(Cqe::new(Cid(cid), QueueId(1), 0, status, 0, false), data);
                }
                run.listen()
            }
            4 => {
                let n = usize::from(source.u16()).min(run.target.output().left());
                run.target.sent(n);
                run.listen()
            }
            _ => {
                // An entry for a command that was not sent.
                run.target.complete(
                    Cqe::new(Cid(source.u16() | 0x8000), QueueId(1), 0, Status::SUCCESS, 0, false),
                    Vec::new(),
                );
                true
            }
        };
        let left: usize = run.target.output().slices().map(<[u8]>::len).sum();
        assert_eq!(left, run.target.output().left());
        if !goes_on {
            return;
        }
    }
}
