use proptest::collection::vec;
use proptest::prelude::*;

use crate::{DmaRequest, Flags, Header};

const MOST: u32 = 4096;

fn parts(message: &[u8]) -> (Header, &[u8]) {
    (Header::from_bytes(message).expect("a header"), &message[Header::SIZE..])
}

proptest! {
    /// Requests and replies round-trip; a reply with another range or length is refused.
    #[test]
    fn memory_requests_round_trip(id in any::<u16>(), address in any::<u64>(), data in vec(any::<u8>(), 0..64), reads in any::<bool>(), bit in 0..128usize) {
        let count = data.len() as u32;
        let ask = if reads { DmaRequest::Read { address, count } } else { DmaRequest::Write { address, data: &data } };
        let message = ask.to_bytes(id);
        let (header, body) = parts(&message);
        prop_assert!(header.id == id && header.size as usize == message.len() && !header.flags.is_reply());
        prop_assert_eq!(DmaRequest::from_message(&header, body, MOST), Ok(Some(ask)));
        prop_assert!(!ask.is_answered_by(&header));

        let told: &[u8] = if reads { &data } else { &[] };
        let answer = ask.reply(&header, told);
        let (header, body) = parts(&answer);
        prop_assert!(header.id == id && ask.is_answered_by(&header));
        prop_assert_eq!(ask.read_reply(&header, body), Ok(Some(told)));
        let mut other = body.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(ask.read_reply(&header, &other).is_err(), "another range");
        prop_assert!(ask.read_reply(&header, &[body, &[0]].concat()).is_err(), "too much");
        prop_assert!(ask.read_reply(&header, &body[..body.len() - 1]).is_err(), "too little");
        let refusal = Header { flags: Flags::ERROR, error: 14, ..header };
        prop_assert_eq!(ask.read_reply(&refusal, &[]), Ok(None));
        prop_assert!(!ask.is_answered_by(&Header { command: header.command ^ 7, ..header }), "another command");
    }
}
