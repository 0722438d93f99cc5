use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    /// For any order of taking and returning, a tag has one holder, and none is lost.
    #[test]
    fn tags_have_one_holder_each(count in 1u32..200, steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..400)) {
        let (tags, mut taker, mut returner) = Tags::new(count);
        let mut held = Vec::new();
        for (take, which) in steps {
            if take {
                match taker.take(&tags) {
                    Some(tag) => {
                        prop_assert!(u32::from(tag.0) < count);
                        prop_assert!(!held.contains(&tag));
                        held.push(tag);
                    }
                    None => {
                        prop_assert_eq!(held.len(), count as usize);
                        prop_assert!(taker.exhausted(&tags));
                    }
                }
            } else if !held.is_empty() {
                // A batch: everything from some point on.
                held.split_off(which.index(held.len())).into_iter().for_each(|tag| returner.add(&tags, tag));
                returner.flush(&tags);
            }
        }
        held.into_iter().for_each(|tag| returner.add(&tags, tag));
        let mut all: BTreeSet<_> = std::iter::from_fn(|| taker.take(&tags)).collect();
        returner.flush(&tags);
        all.extend(std::iter::from_fn(|| taker.take(&tags)));
        prop_assert_eq!(all.len(), count as usize);
    }
}

#[test]
fn a_reset_frees_every_tag() {
    let (tags, mut taker, mut returner) = Tags::new(70);
    assert!((0..50).all(|_| taker.take(&tags).is_some()));
    returner.add(&tags, Tag(3));
    taker.reset(&mut returner, &tags);
    let all: BTreeSet<_> = std::iter::from_fn(|| taker.take(&tags)).collect();
    assert_eq!(all.len(), 70);
    all.into_iter().for_each(|tag| returner.add(&tags, tag));
    returner.flush(&tags);
    assert_eq!(std::iter::from_fn(|| taker.take(&tags)).count(), 70);
}
