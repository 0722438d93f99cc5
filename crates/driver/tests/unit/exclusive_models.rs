//! Every interleaving of the thread that owns a controller with those that post and reap (`--cfg
//! loom`).

use nvme::Sqe;
use sync::WakeFlag;
use sync::model::{EventFds, fails, holds};
use sync::{Arc, thread};
use units::Nanos;

use super::*;
use crate::command_table::CommandTable;
use crate::testing::{Far, MemDoorbells, Pair, pair};
use crate::{Completed, QueueSizes};

const SIZES: QueueSizes = QueueSizes { sq_entries: 2, cq_entries: 2, tags: 1 };

fn post(pair: &Pair, doorbells: &MemDoorbells, token: u64) -> Option<OutstandingCommand> {
    // As two calls, with other threads between them: futures post and commit like this.
    let posted_at = Nanos(token);
    let cid = pair.lock_sq().post(Sqe::default(), token, posted_at).ok()?;
    pair.lock_sq().commit(doorbells);
    Some(OutstandingCommand { cid, token, posted_at })
}

fn reap(pair: &Pair, doorbells: &MemDoorbells) -> Option<Vec<u64>> {
    let mut out: Vec<Completed> = Vec::with_capacity(2);
    let reaped = pair.try_reap(doorbells, 2, &mut out)?;
    assert_eq!(reaped.violation, None, "a correct controller was accused");
    Some(out.iter().map(|completed| completed.token).collect())
}

/// A step that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// The poll after both locks are released.
    LookAgain,
    /// The fence before that poll.
    Fence,
}

/// A command completes while it is being aborted. Its thread sleeps until it is woken by the
/// controller's message or, if it found the queue locked, by the aborting thread. Returns whether
/// it was woken, and whether its tag is free after, and not before, the Abort has completed.
fn aborted_while_it_completes(omit: Omit) -> bool {
    let (pair, mut device, doorbells) = pair(SIZES);
    let (pair, fds) = (Arc::new(pair), EventFds::new(1, 3));
    // The message's fence pairs with the poll's.
    let vector = WakeFlag::new();
    vector.arm();
    let Some(command) = post(&pair, &doorbells, 1) else { return false };
    let controller = {
        let fds = fds.clone();
        thread::spawn(move || {
            let sqe = device.fetch().expect("it was announced");
            device.complete(sqe.cid);
            if vector.should_wake() {
                fds.signal(0);
            }
            fds.end();
        })
    };
    let keeper = {
        let (pair, fds) = (pair.clone(), fds.clone());
        thread::spawn(move || {
            let recheck_pending = || {
                let more = match omit {
                    Omit::LookAgain => false,
                    Omit::Fence => pair.pending(),
                    _ => pair.recheck_pending(),
                };
                if more {
                    fds.signal(0);
                }
            };
            let mut begun = false;
            if let Some(mut both) = pair.try_exclusive() {
                begun = both.begin_abort(&command);
                drop(both);
                recheck_pending();
            }
            fds.end();
            begun
        })
    };
    let mut tokens = Vec::new();
    let mut told = true;
    while told && tokens.is_empty() {
        told = fds.block(&[0]).is_ok();
        // If another thread holds the lock this thread sleeps again: the holder polls once more.
        tokens.extend(reap(&pair, &doorbells).unwrap_or_default());
    }
    fds.end();
    controller.join().unwrap();
    let aborting = keeper.join().unwrap();
    let reserved = pair.lock_sq().exhausted();
    if aborting {
        pair.exclusive().end_abort(command.cid);
    }
    told && tokens == [1] && reserved == aborting && !pair.lock_sq().exhausted()
}

#[test]
fn aborted_command_completes_once() {
    holds(2, || aborted_while_it_completes(Omit::Nothing));
}

#[test]
fn missing_poll_after_unlock_is_caught() {
    fails(2, || aborted_while_it_completes(Omit::LookAgain));
}

#[test]
fn missing_fence_after_unlock_is_caught() {
    fails(2, || aborted_while_it_completes(Omit::Fence));
}

/// How a reset takes commands back.
#[derive(Clone, Copy, PartialEq)]
enum Reset {
    Right,
    /// Without the reapers' lock.
    ReapersGoOn,
    /// The tags are freed before the queue is reopened.
    TagsAtOnce,
}

fn take_back(pair: &Pair, how: Reset) -> Vec<OutstandingCommand> {
    if how == Reset::ReapersGoOn {
        let mut taken = Vec::new();
        let sq = lock(&pair.sq_side);
        pair.commands.abandon(&mut CommandTable::new(1).1, |command| taken.push(command));
        drop(sq);
        pair.exclusive().abandon();
        return taken;
    }
    let mut both = pair.exclusive();
    let taken = both.abandon();
    if how == Reset::TagsAtOnce {
        let Exclusive { sq, cq, .. } = &mut both;
        sq.taker.reset(&mut cq.returner, &pair.tags);
    }
    taken
}

/// A thread posts a command, commits it and polls, while the controller may complete it, stops, and
/// is reset. Returns whether the command, if it was accepted, came back once: completed, taken
/// back, or, if posted after the reset, executed after it. A later post gets a tag.
fn reset_while_it_is_used(how: Reset) -> bool {
    let (pair, device, doorbells) = pair(SIZES);
    let pair = Arc::new(pair);
    let user = {
        let (pair, doorbells) = (pair.clone(), doorbells.clone());
        thread::spawn(move || {
            let posted = post(&pair, &doorbells, 1).is_some();
            (posted, reap(&pair, &doorbells).unwrap_or_default())
        })
    };
    let controller = thread::spawn(move || {
        let mut device: Far = device;
        if let Some(sqe) = device.fetch() {
            device.complete(sqe.cid);
        }
        device
    });
    pair.exclusive().close();
    // It has stopped: it completes nothing more.
    let mut device = controller.join().unwrap();
    let mut back: Vec<_> = take_back(&pair, how).iter().map(|command| command.token).collect();
    device.reset();
    pair.exclusive().reopen();

    let (posted, answered) = user.join().unwrap();
    back.extend(answered);
    let mut carry_out = || {
        if let Some(sqe) = device.fetch() {
            device.complete(sqe.cid);
        }
        reap(&pair, &doorbells).unwrap_or_default()
    };
    back.extend(carry_out());
    let once = back == if posted { vec![1] } else { vec![] };
    once && post(&pair, &doorbells, 2).is_some() && carry_out() == [2] && pair.in_flight() == 0
}

#[test]
fn reset_takes_each_command_once() {
    holds(2, || reset_while_it_is_used(Reset::Right));
}

#[test]
#[should_panic(expected = "a correct controller was accused")]
fn abandoning_under_reapers_is_caught() {
    holds(3, || reset_while_it_is_used(Reset::ReapersGoOn));
}

#[test]
fn freeing_tags_early_is_caught() {
    fails(2, || reset_while_it_is_used(Reset::TagsAtOnce));
}
