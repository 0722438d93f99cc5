use std::sync::Arc;

use driver::Property;
use hw::Bar;

use super::*;
use crate::transport::embedded;

const SET: Access = Access::Set(Property::Acq, 0x1234_5678_9abc_d000);
const GET: Access = Access::Get(Property::Acq);

fn properties(late: Option<u64>) -> HostProperties {
    HostProperties::new(
        ControllerRegisters::Embedded(embedded::EmbeddedRegisters::of(Arc::new(Bar::new(2)))),
        late,
    )
}

/// Asks, and takes turns until the answer comes: which turn that is, and what it says.
fn turns(properties: &HostProperties, access: Access) -> (u64, Answer) {
    let AccessPoll::Pending(ticket) = properties.ask(access) else {
        panic!("the answer is there at once")
    };
    for turn in 1..=MAX_TURNS {
        // Before its time: turns alone count.
        if let Some((of, answer)) = properties.answers(Nanos::ZERO).pop() {
            assert_eq!(of, ticket);
            return (turn, answer);
        }
    }
    panic!("no answer in {MAX_TURNS} turns");
}

#[test]
fn registers_answer_at_once() {
    let properties = properties(None);
    assert_eq!(properties.ask(SET), AccessPoll::Ready(Ok(0)));
    assert_eq!(properties.ask(GET), AccessPoll::Ready(Ok(0x1234_5678_9abc_d000)));
    assert_eq!(
        (properties.answers(Nanos::MAX), properties.next_answer()),
        (Vec::new(), Nanos::MAX)
    );
}

#[test]
fn late_answers_follow_their_seed() {
    let of_seed = |seed| {
        let properties = properties(Some(seed));
        let asked = |n| {
            let (set, written) = turns(&properties, Access::Set(Property::Acq, n << 12));
            let (get, read) = turns(&properties, GET);
            assert_eq!((written, read), (Ok(0), Ok(n << 12)), "what is set is read");
            [set, get]
        };
        (1..50u64).flat_map(asked).collect::<Vec<_>>()
    };
    let first = of_seed(1);
    assert!((1..=MAX_TURNS).all(|turn| first.contains(&turn)), "{first:?}");
    assert_eq!(of_seed(1), first);
    assert_ne!(of_seed(2), first);
}

/// A controller task with nothing else to do takes a turn for it, and one is enough.
#[test]
fn delayed_answers_have_deadlines() {
    let properties = properties(Some(1));
    for _ in 0..50 {
        let before = hw::now();
        let AccessPoll::Pending(ticket) = properties.ask(GET) else {
            panic!("the answer is there at once")
        };
        let by = properties.next_answer();
        assert!(by >= before && by <= hw::now() + MAX_DELAY);
        assert_eq!(properties.answers(by), [(ticket, Ok(0))]);
        assert_eq!(properties.next_answer(), Nanos::MAX);
    }
}
