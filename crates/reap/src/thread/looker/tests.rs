use completion::Mode;

use super::*;

/// The room for wakers is allocated once: what is lent comes back, and is not exchanged for less.
#[test]
fn room_for_wakers_is_given_back() {
    let mut looker = Looker::new(0, Policy::new(Mode::POLL));
    let room = looker.take_wakers();
    let all = room.capacity();
    assert!(all >= MOST && looker.wakers.capacity() == 0);
    looker.keep_wakers(room);
    assert_eq!(looker.wakers.capacity(), all);
    looker.keep_wakers(Vec::new());
    assert_eq!(looker.wakers.capacity(), all);
}
