use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_queue_set_is_a_set(queues in prop::collection::btree_set(0usize..300, 0..40)) {
        let set: QueueSet = queues.iter().copied().collect();
        let kept: BTreeSet<usize> = queues.into_iter().filter(|&q| q < QueueSet::MOST).collect();
        prop_assert!(set.iter().eq(kept.iter().copied()));
        prop_assert!((0..300).all(|q| set.contains(q) == kept.contains(&q)));
        prop_assert_eq!(set.is_empty(), kept.is_empty());
    }
}
