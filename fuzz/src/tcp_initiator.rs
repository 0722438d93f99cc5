//! A host's and a controller's end of an NVMe/TCP connection, against each other: over a wire that
//! delivers bytes in any portions, and after a while changes some or adds rubbish.

use std::collections::BTreeMap;

use nvme::{Cid, Cqe, QueueId, Sqe, Status};
use tcp::{Digests, Event, Heap, Initiator, InitiatorConfig, InitiatorEvent, Limits, Target};

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

struct Run {
    host: Initiator<Heap>,
    target: Target,
    /// Commands that are out: whether they write, and how many bytes.
    open: BTreeMap<u16, (bool, usize)>,
    /// Those that have come to the target.
    come: BTreeMap<u16, (bool, usize)>,
    /// The wire has changed something: data may be wrong, where no digest says so.
    faulty: bool,
    over: bool,
}

fn byte(cid: u16, at: usize) -> u8 {
    (usize::from(cid) * 31 + at / 3) as u8
}

fn bytes(cid: u16, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(cid, at)).collect()
}

impl Run {
    fn to_host(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.over {
            let room = self.host.room();
            let n = room.len().min(bytes.len());
            assert!(n > 0, "no room, and nothing to take");
            room[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            self.host.received(n);
            while let Some(event) = self.host.poll() {
                match event {
                    InitiatorEvent::Greeted(_) => self.host.set_in_capsule(4096),
                    InitiatorEvent::Ended { .. } => {
                        assert!(self.faulty, "{event:?}");
                        self.over = true;
                    }
                    InitiatorEvent::Completed { cqe, buffer } => {
                        let (writes, len) = self.open.remove(&cqe.cid).expect("completed once");
                        let buffer = buffer.expect("each has a buffer");
                        assert_eq!(buffer.len(), len);
                        if !writes && cqe.status().is_success() && !self.faulty {
                            assert!(buffer == self::bytes(cqe.cid, len));
                        }
                    }
                }
            }
        }
        assert_eq!(self.host.open() as usize, self.open.len());
    }

    fn to_target(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.over {
            let mut n = 0;
            for space in self.target.space() {
                let len = space.len().min(bytes.len());
                space[..len].copy_from_slice(&bytes[..len]);
                (bytes, n) = (&bytes[len..], n + len);
            }
            self.target.filled(n);
            while let Some(event) = self.target.poll(u64::MAX) {
                match event {
                    Event::Greeted(_) => self.target.connect(ENTRIES, self.open.len() % 2 == 0),
                    Event::Ended { .. } => {
                        assert!(self.faulty, "{event:?}");
                        self.over = true;
                    }
                    Event::Command { sqe, data } => {
                        let (writes, len) = (sqe.opcode == 1, data.len());
                        if !self.faulty {
                            assert_eq!(self.open.get(&sqe.cid), Some(&(writes, len)));
                            assert!(!writes || data == self::bytes(sqe.cid, len));
                        }
                        self.come.insert(sqe.cid, (writes, len));
                    }
                }
            }
        }
    }
}

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let config = InitiatorConfig {
        digests: Digests::from_bits(source.u8() & 3),
        slots: ENTRIES,
        io: true,
        room: 4096,
    };
    let (host, target) = (Initiator::new(config, Heap), Target::new(LIMITS));
    let mut run = Run {
        host,
        target,
        open: BTreeMap::new(),
        come: BTreeMap::new(),
        faulty: false,
        over: false,
    };
    while !source.is_over() && !run.over {
        match source.below(7) {
            0 => {
                let (cid, writes, len) = (
                    u16::from(source.u8()),
                    source.below(2) == 1,
                    1 + usize::from(source.u16()) % 20_000,
                );
                let buffer = if writes { bytes(cid, len) } else { vec![0; len] };
                let sqe = Sqe { opcode: if writes { 1 } else { 2 }, cid, ..Sqe::default() };
                // The queue has one entry more than there may be commands.
                if run.open.len() + 1 < ENTRIES as usize
                    && run.host.submit(sqe, Some((buffer, len as u32)))
                {
                    assert!(run.open.insert(cid, (writes, len)).is_none());
                }
            }
            1 | 2 => {
                let n = usize::from(source.u16());
                let bytes: Vec<u8> =
                    run.host.output().slices().flatten().copied().take(n).collect();
                run.host.sent(bytes.len());
                run.to_target(&bytes);
            }
            3 | 4 => {
                let n = usize::from(source.u16());
                let bytes: Vec<u8> =
                    run.target.output().slices().flatten().copied().take(n).collect();
                run.target.sent(bytes.len());
                run.to_host(&bytes);
            }
            5 => {
                if let Some((cid, (writes, len))) = run.come.pop_first() {
                    let status = Status(u16::from(source.u8()) & 1);
                    let data = if writes { Vec::new() } else { bytes(cid, len) };
                    run.target.complete(Cqe::new(Cid(cid), QueueId(1), 0, status, 0, false), data);
                }
            }
            _ => {
                run.faulty = true;
                let n = source.below(40);
                let mut rubbish = source.take(n).to_vec();
                if source.below(2) == 0 {
                    // What the target sends, with one byte changed.
                    rubbish = run.target.output().slices().flatten().copied().collect();
                    run.target.sent(rubbish.len());
                    let (at, value) = (usize::from(source.u16()), source.u8());
                    if let Some(place) = rubbish.len().checked_sub(1).map(|last| at.min(last)) {
                        rubbish[place] = value;
                    }
                }
                run.to_host(&rubbish);
            }
        }
    }
}
