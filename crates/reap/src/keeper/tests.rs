use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use completion::Route;

use super::*;
use crate::link::{EmbeddedOptions, new_pool};
use crate::request::Request;
use crate::shared::book::Claim;
use crate::shared::future::Pending;
use crate::shared::reports::Kick;

/// What has not happened by then does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes turns until there is what `looked_for` finds.
fn turn_until<T>(keeper: &mut Keeper, mut looked_for: impl FnMut(&mut Keeper) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        keeper.turn(hw::now());
        if let Some(found) = looked_for(keeper) {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "it does not come to that");
        std::thread::yield_now();
    }
}

/// A controller that is up, and its keeper without a housekeeping thread: a test takes each of its turns.
fn up() -> (Keeper, Opened) {
    let uri = "mem:1M?profile=null".parse().unwrap();
    let link = RingLink::embedded(&uri, &EmbeddedOptions::default(), new_pool(8 << 20).unwrap(), None).unwrap();
    let control = Control::new(Arc::new(Kick::new().unwrap()));
    let (tell, told) = sync_channel(1);
    let mut keeper = Keeper::new(Arc::new(link), None, &OpenOptions::default(), control, tell).unwrap();
    let (opened, _) = turn_until(&mut keeper, |_| told.try_recv().ok()).unwrap();
    (keeper, opened)
}

/// A future whose completion another thread has taken, and left in its queue's inbox: nothing is in flight any more.
fn in_an_inbox(opened: &Opened) -> Pending {
    let (queue, pool, ns) = (&opened.queues[0], opened.link.pool(), opened.namespaces[0]);
    let mut book = queue.softs[0].requests();
    let (tickets, at) = (book.tickets().clone(), book.tickets().issue());
    let ways = (|request: Request| request.check(pool), |_: &completion::Batch| Route::Notify);
    let submitted = queue.submit(0, &mut book, hw::now(), (true, Claim::Future(at)), [Request::flush(&ns)], ways);
    assert!(submitted.refused.is_none());
    drop(book);
    let since = Instant::now();
    while !queue.shows() {
        assert!(since.elapsed() < PATIENCE, "the controller does not answer");
        std::thread::yield_now();
    }
    queue.take_for_owners(&mut Vec::with_capacity(8));
    assert_eq!((queue.lane.in_flight(), queue.softs[0].open()), (0, 1));
    Pending::new(tickets, at)
}

fn is_complete(future: &mut Pending) -> bool {
    let polled = Future::poll(std::pin::Pin::new(future), &mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(completion) if completion.result.is_ok())
}

/// Between the keeper's look at what has changed and its decision the last queue goes and the device closes, with a completion in an
/// inbox: the keeper has it taken out before it shuts down.
#[test]
fn a_close_between_look_and_decision_strands_no_future() {
    let (mut keeper, opened) = up();
    let mut future = in_an_inbox(&opened);
    keeper.turn(hw::now());
    let Opened { queues, control, .. } = opened;
    control.orphan(&queues[0], 0);
    drop(control);
    assert!(!keeper.may_shut_down(), "a future waits for what lies in an inbox");
    turn_until(&mut keeper, |keeper| matches!(keeper.life, Life::Ended).then_some(()));
    assert!(is_complete(&mut future));
}

/// The same where the controller is given up at that moment.
#[test]
fn nor_does_the_end_of_a_controller() {
    let (mut keeper, opened) = up();
    let mut future = in_an_inbox(&opened);
    keeper.turn(hw::now());
    let Opened { queues, control, .. } = opened;
    control.orphan(&queues[0], 0);
    drop(control);
    keeper.give_up("as a test says");
    assert!(!matches!(keeper.life, Life::Ended), "a future waits for what lies in an inbox");
    turn_until(&mut keeper, |keeper| matches!(keeper.life, Life::Ended).then_some(()));
    assert!(is_complete(&mut future));
}
