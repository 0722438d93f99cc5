use rustix::event::{EventfdFlags, eventfd};

use super::{EventFd, vectors};

#[test]
fn adopted_eventfds_never_block() {
    // Blocking, and full.
    let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let full = (u64::MAX - 1).to_ne_bytes();
    rustix::io::write(&fd, &full).expect("written");
    let adopted = EventFd::adopt(fd).expect("adopted");
    adopted.signal();
    assert_eq!(adopted.drain(), u64::MAX - 1);
    adopted.signal();
    assert_eq!(adopted.drain(), 1);
}

#[test]
fn other_descriptors_are_refused() {
    let (pipe, _other) = std::io::pipe().expect("a pipe");
    assert!(EventFd::adopt(pipe.into()).is_err());
    let file = tempfile::tempfile().expect("a file");
    assert!(EventFd::adopt(file.into()).is_err());
}

const V: u16 = 1;

#[test]
fn armed_vectors_send_each_message() {
    let vectors = vectors(2, true).unwrap();
    assert!(!vectors.message(V));
    vectors.flag(V).unwrap().arm();
    assert!(vectors.message(V) && vectors.message(V));
    vectors.flag(V).unwrap().disarm();
    assert!(!vectors.message(V));
    assert!(vectors.are_counted());
    assert_eq!(
        [V, 0].map(|vector| (vectors.messages(vector), vectors.notifications(vector))),
        [(2, 2), (0, 0)]
    );
}

#[test]
fn missing_vectors_send_nothing() {
    let vectors = vectors(2, true).unwrap();
    assert_eq!(vectors.len(), 2);
    assert!(!vectors.message(2) && vectors.flag(2).is_none() && vectors.signal(2).is_none());
    assert_eq!(vectors.messages(2), 0);
}

#[test]
fn posted_messages_share_one_notification() {
    let (vectors, home) = (vectors(4, true).unwrap(), 1);
    for vector in [1, 2] {
        vectors.route(vector, Some(home));
        assert!(!vectors.arm(vector));
    }
    assert!(vectors.message(2) && vectors.message(1) && vectors.message(2));
    let posted = vectors.posted(home).unwrap();
    assert!(posted.take(1) && posted.take(2) && !posted.take(2));
    assert_eq!(
        (vectors.messages(2), vectors.notifications(2), vectors.notifications(home)),
        (2, 0, 1)
    );
    assert_eq!(
        vectors.messages(home),
        1,
        "only its own, although its eventfd was signalled for all three"
    );
    assert!(!vectors.arm(2));
    assert!(vectors.message(2), "and notifies, since that is allowed again");
    assert_eq!(vectors.notifications(home), 2);
    vectors.route(2, None);
    assert!(vectors.message(2));
    assert_eq!((vectors.messages(2), vectors.notifications(2)), (4, 1));
}
