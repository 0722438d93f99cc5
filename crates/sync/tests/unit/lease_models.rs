//! Every interleaving of users of a piece and an owner that takes it back.

use super::*;
use crate::Arc;
use crate::atomic::AtomicU32;
use crate::model::check;

const KIND: u8 = 1;

/// A step that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// The user only reads whether the piece is lent, and does not claim it.
    Claim,
    /// The user's release.
    Release,
    /// The owner's check whether the piece is in use.
    Check,
    /// The owner's acquire when it takes the piece back.
    Acquire,
}

/// One use: adds `what` to the memory in two steps. Returns whether the piece was acquired.
fn uses(mark: &AtomicU8, memory: &AtomicU32, what: u32, omit: Omit) -> bool {
    let used = match omit {
        Omit::Claim if kind_of(mark) == KIND => None,
        Omit::Claim => return false,
        _ => match try_acquire(mark, KIND) {
            Ok(used) => Some(used),
            Err(_) => return false,
        },
    };
    memory.store(memory.load(Relaxed) + what, Relaxed);
    if omit == Omit::Release {
        std::mem::forget(used);
        if mark.compare_exchange(KIND | IN_USE, KIND, Relaxed, Relaxed).is_err() {
            mark.store(RELEASED, Relaxed);
        }
    }
    true
}

/// Whether the owner has it back: checked twice, so that the model is bounded.
fn takes_back(mark: &AtomicU8, omit: Omit) -> bool {
    match omit {
        Omit::Check => {
            mark.store(PRIVATE, Release);
            true
        }
        Omit::Acquire => {
            mark.swap(PRIVATE, Relaxed) & IN_USE == 0 || mark.load(Relaxed) == RELEASED
        }
        _ => begin_revoke(mark) || try_finish_revoke(mark),
    }
}

/// When the owner has the piece back it sees the users' writes, and they do not change.
fn memory_is_the_owners(omit: Omit) {
    check(move || {
        let (mark, memory) = (Arc::new(AtomicU8::new(PRIVATE)), Arc::new(AtomicU32::new(0)));
        memory.store(100, Relaxed);
        grant(&mark, KIND);
        let users = [1, 10].map(|what| {
            let (mark, memory) = (mark.clone(), memory.clone());
            thread::spawn(move || if uses(&mark, &memory, what, omit) { what } else { 0 })
        });
        let found = takes_back(&mark, omit).then(|| memory.load(Relaxed));
        let wrote: u32 = users.into_iter().map(|user| user.join().unwrap()).sum();
        assert_eq!(memory.load(Relaxed), 100 + wrote, "two used it at once");
        assert!(
            found.is_some() || mark.load(Relaxed) == RELEASED || omit != Omit::Nothing,
            "the owner would wait for ever"
        );
        assert!(
            found.is_none_or(|found| found == 100 + wrote),
            "it was written to after it was taken back"
        );
    });
}

#[test]
fn reclaimed_piece_has_one_owner() {
    memory_is_the_owners(Omit::Nothing);
}

/// An owner that takes back a piece in use, by `take_back`, sees its user's writes.
fn an_owner_waits(take_back: fn(&AtomicU8)) {
    check(move || {
        let (mark, memory) = (Arc::new(AtomicU8::new(PRIVATE)), Arc::new(AtomicU32::new(100)));
        grant(&mark, KIND);
        let user = {
            let (mark, memory) = (mark.clone(), memory.clone());
            thread::spawn(move || uses(&mark, &memory, 1, Omit::Nothing))
        };
        take_back(&mark);
        let found = memory.load(Relaxed);
        let wrote = u32::from(user.join().unwrap());
        assert_eq!(
            (found, memory.load(Relaxed)),
            (100 + wrote, 100 + wrote),
            "it was written to after it was taken back"
        );
    });
}

/// [`revoke`] itself: loom bounds its loop, which yields.
#[test]
fn owner_sees_the_last_write() {
    an_owner_waits(revoke);
}

#[test]
#[should_panic(expected = "after it was taken back")]
fn taking_back_unwaited_is_caught() {
    an_owner_waits(|mark| _ = begin_revoke(mark));
}

#[test]
#[should_panic]
fn use_without_claim_is_caught() {
    memory_is_the_owners(Omit::Claim);
}

#[test]
#[should_panic(expected = "after it was taken back")]
fn leaving_without_a_release_is_caught() {
    memory_is_the_owners(Omit::Release);
}

#[test]
#[should_panic(expected = "after it was taken back")]
fn taking_back_unchecked_is_caught() {
    memory_is_the_owners(Omit::Check);
}

#[test]
#[should_panic(expected = "after it was taken back")]
fn taking_back_relaxed_is_caught() {
    memory_is_the_owners(Omit::Acquire);
}
