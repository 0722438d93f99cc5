use crate::instant::Instant;
use proptest::prelude::*;

use super::*;

fn done(tag: u64) -> Completion {
    Completion {
        tag,
        result: Ok(()),
        buf: None,
        submitted_at: Instant::from_nanos(0),
        completed_at: Instant::from_nanos(0),
    }
}

/// A step of the test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Issue,
    Complete(usize),
    Poll(usize),
    Drop(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..5u8, 0..8usize).prop_map(|(kind, which)| match kind {
        0 | 1 => Step::Issue,
        2 => Step::Complete(which),
        3 => Step::Poll(which),
        _ => Step::Drop(which),
    });
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Each future gets its own completion, once. There are no more tickets than there were futures
    /// and requests at a time, and the free list has each free ticket once.
    #[test]
    fn tickets_live_until_both_sides_drop(steps in steps()) {
        let tickets = FutureStates::default();
        // By ticket: open request, complete, future.
        let mut held: Vec<(u32, bool, bool)> = Vec::new();
        let mut most = 0;
        for step in steps {
            let pick = |which: usize, held: &[(u32, bool, bool)]| (!held.is_empty()).then(|| which % held.len());
            match step {
                Step::Issue => {
                    let at = tickets.issue();
                    prop_assert!(held.iter().all(|(other, ..)| *other != at));
                    held.push((at, false, true));
                }
                Step::Complete(which) => if let Some(n) = pick(which, &held).filter(|&n| !held[n].1) {
                    let told = tickets.complete(held[n].0, done(held[n].0.into()));
                    let told = told.map(|waker| waker.is_some()).map_err(|completion| completion.tag);
                    // No waker was stored. A completion without a future comes back.
                    prop_assert_eq!(told, if held[n].2 { Ok(false) } else { Err(held[n].0.into()) });
                    held[n].1 = true;
                },
                Step::Poll(which) => if let Some(n) = pick(which, &held).filter(|&n| held[n].1 && held[n].2) {
                    let found = tickets.poll(held[n].0, Waker::noop().clone()).map(|completion| completion.tag);
                    prop_assert_eq!(found.ok(), Some(held[n].0.into()));
                    held[n].2 = false;
                },
                Step::Drop(which) => if let Some(n) = pick(which, &held).filter(|&n| held[n].2) {
                    tickets.drop_one(held[n].0);
                    held[n].2 = false;
                },
            }
            held.retain(|(_, complete, future)| !complete || *future);
            most = most.max(held.len());
            let table = tickets.lock();
            prop_assert_eq!(table.tickets.len(), most);
            let mut free = table.free.clone();
            free.sort_unstable();
            let vacant = (0..).zip(&table.tickets).filter(|(_, ticket)| matches!(ticket, FutureState::Free)).map(|(at, _)| at);
            prop_assert_eq!(free, vacant.collect::<Vec<u32>>());
        }
    }
}

/// The completion returns the stored waker.
#[test]
fn polled_futures_are_woken() {
    let tickets = FutureStates::default();
    let at = tickets.issue();
    assert!(tickets.poll(at, Waker::noop().clone()).is_err_and(|before| before.is_none()));
    assert!(tickets.poll(at, Waker::noop().clone()).is_err_and(|before| before.is_some()));
    assert!(matches!(tickets.complete(at, done(1)), Ok(Some(_))));
    assert!(tickets.poll(at, Waker::noop().clone()).is_ok_and(|completion| completion.tag == 1));
}
