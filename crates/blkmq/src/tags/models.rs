//! Every interleaving of one taker and two reapers (`--cfg loom`, see `docs/testing.md`).

use handover::sync::atomic::AtomicU32;
use handover::sync::{Arc, model, thread};

use super::*;

/// How a reaper returns a tag: as [`Returner`] does, or in one of the ways that do not work.
#[derive(Clone, Copy)]
enum Return {
    Right,
    /// Load, then store: another reaper's tag may come in between.
    TwoSteps,
    /// Without the release: what the reaper read of the slot may be overwritten before it is read.
    Relaxed,
}

impl Return {
    fn give_back(self, tags: &Tags, tag: Tag) {
        let (at, bit) = split(tag);
        let word = &tags.returned[at as usize];
        match self {
            Return::Right => {
                let mut returner = tags.returner();
                returner.add([tag]);
                returner.flush(tags);
            }
            Return::TwoSteps => word.store(word.load(Relaxed) | bit, Release),
            Return::Relaxed => drop(word.fetch_or(bit, Relaxed)),
        }
    }
}

/// Two tags are in use; two reapers note in each slot that they are done with it, and return it. The taker gets each
/// tag back once, and sees that note in its slot.
fn two_reapers(how: Return) {
    model(move || {
        let (tags, mut taker) = Tags::new(2);
        let (tags, slots) = (Arc::new(tags), Arc::new([AtomicU32::new(0), AtomicU32::new(0)]));
        let used = [taker.take(&tags).unwrap(), taker.take(&tags).unwrap()];
        let reapers = used.map(|tag| {
            let (tags, slots) = (tags.clone(), slots.clone());
            thread::spawn(move || {
                slots[usize::from(tag.0)].store(1, Relaxed);
                how.give_back(&tags, tag);
            })
        });
        let mut taken = Vec::new();
        let mut take = || {
            while let Some(tag) = taker.take(&tags) {
                assert!(!taken.contains(&tag), "a tag was taken twice");
                assert_eq!(slots[usize::from(tag.0)].load(Relaxed), 1, "a slot was reused before its reaper was done");
                taken.push(tag);
            }
        };
        take();
        reapers.into_iter().for_each(|reaper| reaper.join().unwrap());
        take();
        assert_eq!(taken.len(), 2, "a tag was lost");
    });
}

#[test]
fn tags_travel_back_once_and_in_order() {
    two_reapers(Return::Right);
}

#[test]
#[should_panic(expected = "a tag was lost")]
fn returning_in_two_steps_is_caught() {
    two_reapers(Return::TwoSteps);
}

#[test]
#[should_panic(expected = "a slot was reused before its reaper was done")]
fn returning_without_a_release_is_caught() {
    two_reapers(Return::Relaxed);
}
