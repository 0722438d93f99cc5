use super::*;

/// A list that these queues have joined, in this order.
fn joined_by(queues: &[u8]) -> TagWaitList {
    let list = TagWaitList::new();
    for &queue in queues {
        list.join(queue);
    }
    list
}

/// Returns tags: the queues that are woken, in order.
fn woken(list: &TagWaitList) -> Vec<u8> {
    let mut woken = Vec::new();
    list.returned(|queue| woken.push(queue));
    woken
}

#[test]
fn list_has_waiters_until_all_leave() {
    let list = TagWaitList::new();
    assert!(!list.has_waiters());
    list.join(3);
    list.join(5);
    list.leave(3);
    assert!(list.has_waiters());
    list.leave(5);
    assert!(!list.has_waiters());
    list.join(3);
    assert!(list.has_waiters());
}

#[test]
fn returned_tags_wake_every_waiter() {
    let list = joined_by(&[2, 0, 255]);
    assert_eq!(woken(&list), [2, 0, 255]);
    list.leave(0);
    assert_eq!(woken(&list), [2, 255], "a queue waits until it leaves");
}

#[test]
fn empty_list_wakes_no_queue() {
    let list = TagWaitList::default();
    assert_eq!(woken(&list), []);
    list.join(0);
    list.leave(0);
    assert_eq!(woken(&list), []);
}

#[test]
fn queue_that_joins_twice_leaves_once() {
    let list = joined_by(&[1, 4, 1]);
    assert_eq!(woken(&list), [1, 4]);
    list.leave(1);
    assert_eq!(woken(&list), [4]);
}

#[test]
fn leave_without_join_changes_nothing() {
    let list = joined_by(&[1]);
    list.leave(2);
    assert_eq!((list.has_waiters(), woken(&list)), (true, vec![1]));
}

#[test]
fn first_queues_are_next() {
    let list = joined_by(&[7, 3, 5]);
    assert_eq!([7, 3, 5, 9].map(|queue| list.is_among_first(queue, 2)), [true, true, false, false]);
    list.leave(7);
    assert_eq!([7, 3, 5].map(|queue| list.is_among_first(queue, 2)), [false, true, true]);
}
