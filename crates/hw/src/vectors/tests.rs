use super::*;

const V: Vector = Vector(1);

#[test]
fn a_message_goes_out_for_each_entry_while_the_vector_is_armed() {
    let vectors = Vectors::new(2).unwrap();
    assert!(!vectors.message(V));
    vectors.bell(V).unwrap().arm();
    assert!(vectors.message(V) && vectors.message(V));
    vectors.bell(V).unwrap().mask();
    assert!(!vectors.message(V));
    assert_eq!((vectors.messages(V), vectors.eventfd(V).unwrap().drain()), (2, 2));
    assert_eq!((vectors.messages(Vector(0)), vectors.eventfd(Vector(0)).unwrap().drain()), (0, 0));
}

#[test]
fn a_vector_that_does_not_exist_sends_nothing() {
    let vectors = Vectors::new(2).unwrap();
    assert_eq!(vectors.len(), 2);
    assert!(!vectors.message(Vector(2)) && vectors.bell(Vector(2)).is_none() && vectors.eventfd(Vector(2)).is_none());
    assert_eq!(vectors.messages(Vector(2)), 0);
}
