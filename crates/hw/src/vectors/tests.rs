use super::*;

const V: Vector = Vector(1);

#[test]
fn a_message_goes_out_for_each_entry_while_the_vector_is_armed() {
    let vectors = Vectors::new(2, true).unwrap();
    assert!(!vectors.message(V));
    vectors.bell(V).unwrap().arm();
    assert!(vectors.message(V) && vectors.message(V));
    vectors.bell(V).unwrap().mask();
    assert!(!vectors.message(V));
    assert!(vectors.are_counted());
    assert_eq!([V, Vector(0)].map(|vector| (vectors.messages(vector), vectors.notifications(vector))), [(2, 2), (0, 0)]);
}

#[test]
fn a_vector_that_does_not_exist_sends_nothing() {
    let vectors = Vectors::new(2, true).unwrap();
    assert_eq!(vectors.len(), 2);
    assert!(!vectors.message(Vector(2)) && vectors.bell(Vector(2)).is_none() && vectors.eventfd(Vector(2)).is_none());
    assert_eq!(vectors.messages(Vector(2)), 0);
}

#[test]
fn posted_messages_share_one_notification_and_go_their_own_way_again() {
    let (vectors, home) = (Vectors::new(4, true).unwrap(), Vector(1));
    for vector in [Vector(1), Vector(2)] {
        vectors.route(vector, Some(home));
        assert!(!vectors.arm(vector));
    }
    assert!(vectors.message(Vector(2)) && vectors.message(Vector(1)) && vectors.message(Vector(2)));
    let posted = vectors.posted(home).unwrap();
    assert!(posted.take(1) && posted.take(2) && !posted.take(2));
    assert_eq!((vectors.messages(Vector(2)), vectors.notifications(Vector(2)), vectors.notifications(home)), (2, 0, 1));
    assert_eq!(vectors.messages(home), 1, "its own alone, though its eventfd has told of all three");
    assert!(!vectors.arm(Vector(2)));
    assert!(vectors.message(Vector(2)), "and notifies, since that is allowed again");
    assert_eq!(vectors.notifications(home), 2);
    vectors.route(Vector(2), None);
    assert!(vectors.message(Vector(2)));
    assert_eq!((vectors.messages(Vector(2)), vectors.notifications(Vector(2))), (4, 1));
}
