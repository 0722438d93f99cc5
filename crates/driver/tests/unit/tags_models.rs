//! Every interleaving of one taker and two reapers, which share a lock (`--cfg loom`, see
//! `docs/testing.md`).

use sync::atomic::AtomicU32;
use sync::model::check;
use sync::{Arc, Mutex, lock, thread};

use super::*;

/// How a reaper returns a tag: as [`Returner`] does, or as a mutant.
#[derive(Clone, Copy)]
enum Return {
    Right,
    /// Published before it is stored: the taker takes the old value.
    PublishedFirst,
    /// Without the release: what the reaper read of the slot may be overwritten before it is read.
    Relaxed,
}

impl Return {
    fn give_back(self, returner: &mut Returner, tags: &Tags, tag: Tag) {
        match self {
            Return::Right => {
                returner.add(tags, tag);
                returner.flush(tags);
            }
            Return::PublishedFirst => {
                tags.returned.store(returner.stored.wrapping_add(1), Release);
                returner.add(tags, tag);
            }
            Return::Relaxed => {
                returner.add(tags, tag);
                tags.returned.store(returner.stored, Relaxed);
            }
        }
    }
}

/// Two tags are in use; two reapers write a mark into each slot and return its tag, in either
/// order. The taker gets each tag once, and sees the mark.
fn two_reapers(how: Return) {
    check(move || {
        let (tags, mut taker, returner) = Tags::new(2);
        let (tags, returner) = (Arc::new(tags), Arc::new(Mutex::new(returner)));
        let slots = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let used = [taker.take(&tags).unwrap(), taker.take(&tags).unwrap()];
        let reapers = used.map(|tag| {
            let (tags, slots, returner) = (tags.clone(), slots.clone(), returner.clone());
            thread::spawn(move || {
                slots[usize::from(tag.0)].store(1, Relaxed);
                how.give_back(&mut lock(&returner), &tags, tag);
            })
        });
        let mut taken = Vec::new();
        let mut take = || {
            while let Some(tag) = taker.take(&tags) {
                assert!(!taken.contains(&tag), "a tag was taken twice");
                assert_eq!(
                    slots[usize::from(tag.0)].load(Relaxed),
                    1,
                    "a slot was reused before its reaper was done"
                );
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
fn tags_return_once_in_order() {
    two_reapers(Return::Right);
}

#[test]
#[should_panic]
fn publishing_before_storing_is_caught() {
    two_reapers(Return::PublishedFirst);
}

#[test]
#[should_panic(expected = "a slot was reused before its reaper was done")]
fn returning_without_a_release_is_caught() {
    two_reapers(Return::Relaxed);
}
