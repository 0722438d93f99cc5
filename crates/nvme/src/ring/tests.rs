use proptest::prelude::*;

use super::*;
use crate::tests::counterexample;

/// Runs the index arithmetic against a reference queue: `true` to produce, `false` to consume. Both
/// must agree on full and empty and on the order of entries, and the phase tag must distinguish new
/// entries from old ones.
fn is_a_queue(entries: u32, steps: &[bool], advance: impl Fn(&mut RingIndex)) -> bool {
    let (mut producer, mut consumer) = (RingIndex::new(entries), RingIndex::new(entries));
    let mut slots = vec![(0u32, false); entries as usize];
    let mut queue = std::collections::VecDeque::new();
    for (value, &produce) in (1u32..).zip(steps) {
        let fits = queue.len() < entries as usize - 1;
        if (producer.room(consumer.slot()) > 0) != fits
            || consumer.available(producer.slot()) != Some(queue.len() as u32)
        {
            return false;
        }
        if produce && fits {
            slots[producer.slot() as usize] = (value, producer.phase());
            advance(&mut producer);
            queue.push_back(value);
        } else if !produce {
            let (found, phase) = slots[consumer.slot() as usize];
            let is_new = phase == consumer.phase();
            if is_new == queue.is_empty() || (is_new && queue.pop_front() != Some(found)) {
                return false;
            }
            if is_new {
                consumer.advance();
            }
        }
    }
    true
}

fn steps() -> impl Strategy<Value = (u32, Vec<bool>)> {
    (2..9u32, proptest::collection::vec(any::<bool>(), 0..200))
}

#[test]
fn ring_holds_one_entry_less() {
    assert_eq!(
        counterexample(500, steps(), |(entries, steps)| is_a_queue(
            *entries,
            steps,
            RingIndex::advance
        )),
        None
    );
}

#[test]
fn stuck_phase_is_caught() {
    let keeps_phase = |producer: &mut RingIndex| {
        producer.advance();
        producer.phase = true;
    };
    assert!(
        counterexample(500, steps(), |(entries, steps)| is_a_queue(*entries, steps, keeps_phase))
            .is_some()
    );
}

#[test]
fn tail_outside_the_ring_is_refused() {
    let consumer = RingIndex::new(4);
    assert_eq!(
        [0, 3, 4, u32::MAX].map(|tail| consumer.available(tail)),
        [Some(0), Some(3), None, None]
    );
}
