//! NVMe/TCP: a stream cut into PDUs by either side, and each that is read laid out again.

use tcp::{Body, Common, Digests, Item, Receiver, Side};

use crate::source::Source;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let (piece, bits) = (usize::from(source.u8()).max(1), source.u8());
    let side = if bits & 4 == 0 { Side::Controller } else { Side::Host };
    let digests = Digests::from_bits(bits);
    let mut receiver = Receiver::new(side);
    receiver.begin(digests, 1024);
    let mut rest = source.rest();
    while !rest.is_empty() {
        let mut n = 0;
        for space in receiver.space() {
            let len = space.len().min(rest.len()).min(piece - n);
            space[..len].copy_from_slice(&rest[..len]);
            (rest, n) = (&rest[len..], n + len);
        }
        assert!(n > 0, "what has come is taken, so that there is room");
        receiver.filled(n);
        loop {
            match receiver.take() {
                Ok(None) => break,
                Ok(Some(Item::Data { .. })) => {}
                Ok(Some(Item::Head(pdu))) => {
                    let quoted = matches!(pdu.body, Body::H2cTermReq(_) | Body::C2hTermReq(_));
                    if pdu.data > 0 && !quoted {
                        // No more than one such buffer is had at a time, as a target limits it.
                        if pdu.data > 1 << 20 {
                            return;
                        }
                        receiver.place(vec![0; pdu.data as usize], 0, pdu.data);
                        continue;
                    }
                    let bytes = pdu.to_bytes(&[], digests, 0);
                    assert!(quoted || bytes[..Common::LEN][0] == receiver.last_header()[0]);
                }
                Err(violation) => {
                    assert!((1..=6).contains(&violation.0.fes.0));
                    return;
                }
            }
        }
    }
}
