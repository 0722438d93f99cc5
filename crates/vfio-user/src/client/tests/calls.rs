use proptest::prelude::*;

use crate::{Calls, Flags, Header, Malformed};

fn header(id: u16, command: u16) -> Header {
    Header { id, command, size: 16, flags: Flags::REPLY, error: 0 }
}

#[test]
fn unexpected_reply_is_refused() {
    let mut calls = Calls::default();
    let id = calls.begin(9, "reader").expect("room");
    assert_eq!(
        calls.complete(&header(id.wrapping_add(1), 9)),
        Err(Malformed::UnexpectedReply { id: id.wrapping_add(1) })
    );
    assert_eq!(calls.complete(&header(id, 9)), Ok("reader"));
    assert_eq!(
        calls.complete(&header(id, 9)),
        Err(Malformed::UnexpectedReply { id }),
        "a second reply is unexpected"
    );
    let id = calls.begin(9, "reader").expect("room");
    assert!(matches!(
        calls.complete(&header(id, 10)),
        Err(Malformed::Field { what: "command of a reply", .. })
    ));
}

#[test]
fn outstanding_requests_are_bounded() {
    let mut calls = Calls::default();
    assert!((0..Calls::<()>::MAX).all(|_| calls.begin(1, ()).is_some()));
    assert_eq!(calls.begin(1, ()), None);
    assert_eq!(calls.end().len(), Calls::<()>::MAX);
    assert!(calls.begin(1, ()).is_some());
}

proptest! {
    /// Replies in any order reach their callers, also after identifiers wrap around.
    #[test]
    fn replies_reach_their_callers(picks in proptest::collection::vec((any::<u16>(), 0..3u8), 1..300), early in any::<u16>()) {
        let (mut calls, mut open) = (Calls::default(), Vec::new());
        for _ in 0..early {
            let id = calls.begin(1, u32::MAX).expect("room");
            prop_assert_eq!(calls.complete(&header(id, 1)), Ok(u32::MAX));
        }
        for (n, (pick, kind)) in picks.into_iter().enumerate() {
            if kind == 0 && !open.is_empty() {
                let (id, caller) = open.swap_remove(usize::from(pick) % open.len());
                prop_assert_eq!(calls.complete(&header(id, 7)), Ok(caller));
            } else {
                let id = calls.begin(7, n as u32).expect("room");
                prop_assert!(open.iter().all(|(other, _)| *other != id));
                open.push((id, n as u32));
            }
        }
    }
}
