use super::*;

#[test]
fn events_come_in_order_of_time_then_of_scheduling() {
    let mut events = Events::new();
    for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
        events.schedule(Nanos(at), name);
    }
    events.schedule(Nanos::MAX, 'z');
    let order: Vec<char> = std::iter::from_fn(|| events.pop()).map(|(_, _, name)| name).collect();
    assert_eq!(order, ['a', 'b', 'c', 'd']);
}
