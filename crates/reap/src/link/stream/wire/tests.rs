use super::*;

fn received(end: &Socket) -> Vec<u8> {
    let (mut all, mut some) = (Vec::new(), [0; 100]);
    loop {
        let received = end.recv(&mut some);
        all.extend(&some[..received.bytes]);
        if received.drained {
            return all;
        }
    }
}

#[test]
fn what_a_full_socket_does_not_take_goes_later_and_in_order() {
    for (wire, most) in [(Wire::Stream, 40_000), (Wire::Trickle, 512)] {
        let (near, far) = Socket::pair(wire).unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
        let (mut sent, mut got, mut rounds) = (0, Vec::new(), 0);
        while sent < bytes.len() {
            let taken = near.send(&bytes[sent..]);
            assert!((1..=most).contains(&taken), "{wire:?}: {taken} at once");
            assert_eq!(near.send(&bytes[sent + taken..]), 0, "{wire:?}: it was not full");
            (sent, rounds) = (sent + taken, rounds + 1);
            got.extend(received(&far));
        }
        assert!(got == bytes && rounds > 2, "{wire:?}");
    }
}

#[test]
fn nothing_there_an_end_and_a_far_end_that_is_gone_are_told_apart_from_nothing() {
    let (near, far) = Socket::pair(Wire::Stream).unwrap();
    let nothing = Received { bytes: 0, drained: true };
    assert_eq!(near.recv(&mut [0; 8]), nothing);
    assert_eq!(far.send(&[1; 20]), 20);
    assert_eq!(near.recv(&mut [0; 8]), Received { bytes: 8, drained: false });
    near.discard();
    assert_eq!(near.recv(&mut [0; 8]), nothing);
    drop(far);
    assert_eq!(near.recv(&mut [0; 8]), nothing);
    assert_eq!(near.send(&[0; 64]), 64, "nobody waits for room that never comes");
}
