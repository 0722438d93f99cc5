//! Every interleaving of a thread that posts with one that reaps (`--cfg loom`). The controller
//! runs in the reaping thread, and sees each doorbell at once.

use std::sync::Mutex as Shared;

use sync::model::check;
use sync::{Arc, thread};

use super::*;
use crate::testing::{MemDoorbells, Pair, pair};

/// How a batch is committed: as the queue pair does, or the doorbell first.
#[derive(Clone, Copy)]
enum Commit {
    Right,
    DoorbellFirst,
}

fn submit(pair: &Pair, doorbells: &MemDoorbells, how: Commit, token: u64) {
    let mut sq = pair.lock_sq();
    while sq.post(Sqe::default(), token, Nanos(token)).is_err() {
        drop(sq);
        thread::yield_now();
        sq = pair.lock_sq();
    }
    match how {
        Commit::Right => assert_eq!(sq.commit(doorbells), 1),
        Commit::DoorbellFirst => {
            doorbells.ring_sq(pair.id, sq.side.producer.slot());
            sq.side.announced = sq.side.producer.slot();
            pair.announced.store(pair.announced.load(Relaxed) + 1, Release);
        }
    }
}

/// One tag, two commands: the second reuses the slot, the tag and the ring entries of the first.
/// Each completes once.
fn one_tag_two_commands(how: Commit) {
    check(move || {
        let (pair, device, doorbells) = pair(QueueSizes { sq_entries: 2, cq_entries: 2, tags: 1 });
        let (pair, device) = (Arc::new(pair), Shared::new(device));
        let reaper = {
            let (pair, doorbells) = (pair.clone(), doorbells.clone());
            thread::spawn(move || {
                let (mut device, mut out) = (device.lock().unwrap(), Vec::with_capacity(2));
                while out.len() < 2 {
                    match device.fetch() {
                        Some(sqe) => device.complete(sqe.cid),
                        None => thread::yield_now(),
                    }
                    if pair.pending() {
                        let reaped =
                            pair.try_reap(&doorbells, 2, &mut out).expect("nobody else reaps");
                        assert_eq!(reaped.violation, None, "a correct controller was accused");
                    }
                }
                out
            })
        };
        submit(&pair, &doorbells, how, 1);
        submit(&pair, &doorbells, how, 2);
        assert!(pair.in_flight() <= 2);
        let tokens: Vec<_> =
            reaper.join().unwrap().iter().map(|completed| completed.token).collect();
        assert_eq!(tokens, [1, 2]);
        assert_eq!(pair.in_flight(), 0);
    });
}

#[test]
fn each_command_comes_back_once() {
    one_tag_two_commands(Commit::Right);
}

#[test]
#[should_panic(expected = "a correct controller was accused")]
fn early_doorbell_is_caught() {
    one_tag_two_commands(Commit::DoorbellFirst);
}
