use super::*;
use nvme::{CqSlots, Cqe, SqSlots, Sqe};

const V: Vector = Vector(1);

#[test]
fn memory_refuses_what_lies_outside_it() {
    let memory = Memory::new(8192);
    let first = memory.alloc(10).unwrap();
    assert_eq!(memory.alloc(4096), Some(first + 4096));
    assert_eq!(memory.alloc(1), None);
    assert!(memory.check(first + 8191, 1).is_ok());
    for (addr, len) in [(first + 8191, 2), (first - 1, 1), (0, 1), (u64::MAX, 1), (first, u64::MAX)]
    {
        assert_eq!(memory.check(addr, len), Err(BusError { addr, len }));
    }
}

#[test]
fn both_sides_see_the_same_rings() {
    let memory = Memory::new(1 << 16);
    let (sq, cq) = (memory.alloc(4096).unwrap(), memory.alloc(4096).unwrap());
    let port = SimPort::new(memory.clone(), 1, 1, None);
    let sqe = Sqe { opcode: 2, cid: 7, prp1: 0x1234_5678_9abc, ..Sqe::default() };
    memory.sq(sq, 64).unwrap().store(63, &sqe);
    assert_eq!(port.map_sq(sq, 64).unwrap().load(63), sqe);
    let cqe = Cqe { cid: 7, status_and_phase: 1, ..Cqe::default() };
    let host = memory.cq(cq, 64).unwrap();
    assert!(!host.is_new(5, true));
    port.map_cq(cq, 64).unwrap().store(5, &cqe);
    assert!(host.is_new(5, true));
    assert_eq!(host.load(5, true), Some(cqe));
    assert!(port.map_sq(sq, 1 << 16).is_err());
}

#[test]
fn masked_vector_counts_messages() {
    let port = SimPort::new(Memory::new(4096), 1, 2, None);
    let vectors = &port.vectors;
    assert_eq!(port.send_message(Vector(1)), SendResult::Masked);
    assert!(vectors.arm(Vector(1)), "the first has left the Pending bit");
    assert_eq!(port.send_message(Vector(1)), SendResult::Sent);
    vectors.mask(Vector(1));
    assert_eq!(port.send_message(Vector(1)), SendResult::Masked);
    assert_eq!(port.send_message(Vector(9)), SendResult::Lost);
    assert_eq!(
        port.send_message(Vector(0)),
        SendResult::Masked,
        "the admin queue's, and not counted"
    );
    assert_eq!((vectors.messages(), vectors.suppressed()), (1, 2));
    let mut raised = Vec::new();
    vectors.take_raised(&mut raised);
    assert_eq!(raised, [Vector(1)]);
}

#[test]
fn unmasking_sends_pending_message() {
    let port = SimPort::new(Memory::new(4096), 1, 2, None);
    let vectors = &port.vectors;
    assert!(!vectors.arm(V) && !port.is_masked(V), "nothing is pending");
    vectors.mask(V);
    assert_eq!([port.send_message(V), port.send_message(V)], [SendResult::Masked; 2]);
    assert!(port.is_masked(V));
    assert!(vectors.arm(V));
    vectors.mask(V);
    assert!(!port.is_masked(V), "the mask comes behind the unmasking");
    assert_eq!(
        (port.send_pending(V), vectors.messages(), vectors.suppressed()),
        (SendResult::Sent, 1, 1)
    );
    assert!(port.is_masked(V));
    port.send_message(V);
    port.clear_pending(V);
    assert!(!vectors.arm(V));
}
