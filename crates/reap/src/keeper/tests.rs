use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use completion::Route;
use nvme::Nsid;

use super::*;
use crate::error::Refused;
use crate::link::{EmbeddedOptions, Reach};
use crate::queue::Queue;
use crate::request::Request;
use crate::shared::book::Claim;
use crate::shared::controller::Controller;
use crate::shared::future::Pending;
use crate::shared::queue_shared::FileQueues;
use crate::shared::reports::Kick;
use crate::shared::roster::Roster;

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
    up_at("mem:1M?profile=null&namespaces=2")
}

fn up_at(uri: &str) -> (Keeper, Opened) {
    let uri = uri.parse().unwrap();
    let link = RingLink::embedded(&uri, &EmbeddedOptions::default(), Reach::new(8 << 20).unwrap(), None).unwrap();
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
    while !queue.hint() {
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
/// inbox. What the keeper decides is `decide`'s; it ends only when the completion has been taken out.
fn closed_before(decide: impl FnOnce(&mut Keeper)) {
    let (mut keeper, opened) = up();
    let mut future = in_an_inbox(&opened);
    keeper.turn(hw::now());
    let Opened { queues, control, .. } = opened;
    control.orphan(&queues[0], 0);
    drop(control);
    decide(&mut keeper);
    assert!(!matches!(keeper.life, Life::Ended), "a future waits for what lies in an inbox");
    turn_until(&mut keeper, |keeper| matches!(keeper.life, Life::Ended).then_some(()));
    assert!(is_complete(&mut future));
}

#[test]
fn close_after_poll_finishes_futures() {
    closed_before(|keeper| assert!(!keeper.may_shut_down(), "a future waits for what lies in an inbox"));
}

#[test]
fn controller_failure_finishes_futures() {
    closed_before(|keeper| keeper.give_up(driver::Dead::Gone));
}

/// A thread has taken the queue and sleeps, and the keeper has not heard of it. What the keeper ends the thread would wait for.
#[test]
fn sweep_wakes_the_sleeping_thread() {
    let (mut keeper, opened) = up();
    let mut future = in_an_inbox(&opened);
    let soft = &opened.queues[0].softs[0];
    soft.wake.arm();
    keeper.turn(hw::now());
    assert!(soft.wake.bell().is_armed(), "nothing has been ended yet");
    opened.control.orphan(&opened.queues[0], 0);
    keeper.turn(hw::now());
    assert!(is_complete(&mut future));
    assert!(!soft.wake.bell().is_armed(), "the bell is rung once");
}

/// A keeper goes in the middle of things where one of its turns has panicked. Each thread that waits for a request hears of it.
#[test]
fn keeper_exit_ends_all_waits() {
    let (keeper, opened) = up();
    let ns = opened.namespaces[0];
    let roster = Roster::new(opened.queues.clone(), vec![(0, 0)]);
    let controller =
        Controller::new(opened, roster, Arc::new(FileQueues::new(0)), &OpenOptions::default().mode(completion::Mode::INTERRUPT));
    let queue = Queue::over_one(&controller, false, None).unwrap();
    queue.submit((0..300).map(|_| Request::read(&ns, 0, queue.buffer(512).unwrap()))).map_err(|(why, _)| why).unwrap();
    drop(keeper);
    let since = Instant::now();
    let mut ended = Vec::new();
    while ended.len() < 300 {
        queue.wait_or_idle(1, Some(crate::Instant::now() + std::time::Duration::from_millis(100))).unwrap();
        queue.reap(&mut ended);
        assert!(since.elapsed() < PATIENCE, "{} of 300 have ended", ended.len());
    }
    let lost = |done: &crate::Completion| done.result == Err(crate::IoError::DeviceLost);
    assert!(ended.iter().all(lost), "nobody has looked before");
    assert!(controller.health().dead.is_some());
}

/// One namespace that cannot be used is named, and the others are had.
#[test]
fn oversized_blocks_disable_one_namespace() {
    let (mut keeper, opened) = up();
    let usable = opened.namespaces.len();
    keeper.inventory.namespaces.push(driver::Namespace { nsid: Nsid(77), block_log2: 24, ..keeper.inventory.namespaces[0] });
    let namespaces = keeper.namespaces();
    assert_eq!(namespaces.len(), usable);
    let refused = keeper.description().refused;
    assert!(refused.iter().any(|why| why.contains("namespace 77") && why.contains("16777216")), "{refused:?}");
}

/// A handle counts blocks of the size that the namespace had: with another format its requests would go astray.
#[test]
fn stale_namespace_handles_are_refused() {
    let (mut keeper, opened) = up();
    let ns = opened.namespaces[0];
    let roster = Roster::new(opened.queues.clone(), vec![(0, 0)]);
    let controller = Controller::new(opened, roster, Arc::new(FileQueues::new(0)), &OpenOptions::default().mode(completion::Mode::POLL));
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let read = || queue.submit([Request::read(&ns, 0, queue.buffer(4096).unwrap())]).map_err(|(why, _)| why);
    assert_eq!(read(), Ok(()));
    assert_eq!(queue.wait(1, None), Ok(1));
    let format = |keeper: &mut Keeper, log2| {
        let mut identify = nvme::identify::Namespace::default();
        (identify.nsze, identify.ncap) = (ns.bytes() >> log2, ns.bytes() >> log2);
        identify.lbaf[0].set_lbads(log2);
        let known = keeper.inventory.namespaces[0];
        (identify.nguid, identify.eui64) = (known.nguid, known.eui64);
        keeper.namespace_was_read(ns.nsid(), &identify);
    };
    let log2 = ns.block_bytes().ilog2() as u8;
    format(&mut keeper, 24 - log2);
    assert_eq!(read(), Err(Refused::Changed(ns.nsid().0)));
    // The other namespace is what it was: its requests before one of the first are carried out, and all of a batch of its own.
    let other = queue.namespaces()[1];
    let mixed = [other, other, ns, other].map(|ns| Request::read(&ns, 0, queue.buffer(4096).unwrap()));
    let mut mixed = mixed.into_iter();
    assert_eq!(queue.submit(&mut mixed).map_err(|(why, _)| why), Err(Refused::Changed(ns.nsid().0)));
    assert_eq!((queue.wait(3, None), mixed.len()), (Ok(3), 1));
    queue.submit(mixed).map_err(|(why, _)| why).unwrap();
    assert_eq!(queue.wait(4, None), Ok(4));
    assert_eq!(queue.block_on(queue.flush(&other)), Ok(Ok(())));
    let foreign = crate::Device::open("mem:1M?profile=null").unwrap().namespaces()[0];
    let foreign = Request::read(&foreign, 0, queue.buffer(4096).unwrap());
    assert!(matches!(queue.submit([foreign]), Err((Refused::NoNamespace(_), _))));
    queue.reap(&mut Vec::with_capacity(8));
    assert_eq!(controller.current(&ns).blocks(), 0);
    // Nothing is lost of one that is what it was again.
    format(&mut keeper, log2);
    assert_eq!(read(), Ok(()));
    assert_eq!(queue.wait(1, None), Ok(1));
    drop((queue, controller));
    turn_until(&mut keeper, |keeper| matches!(keeper.life, Life::Ended).then_some(()));
}

/// What a controller says of SGLs is what its lanes keep to, and after a reset what it says then.
#[test]
fn sgls_need_controller_support() {
    let (keeper, _opened) = up();
    assert!(!keeper.link.sgls());
    let (mut keeper, _opened) = up_at("mem:1M?profile=null&sgl=yes");
    assert!(keeper.link.sgls());
    let mut inventory = keeper.inventory.clone();
    inventory.limits.as_mut().unwrap().sgls = false;
    keeper.recover(RecoveryAsk::Restored(Box::new(inventory)), hw::now());
    assert!(!keeper.link.sgls());
}

/// Data of more than two pages need a PRP list, or an SGL descriptor where the controller has SGLs.
#[test]
fn long_transfers_use_sgls() {
    for (uri, lists) in [("mem:1M?profile=null", true), ("mem:1M?profile=null&sgl=yes", false)] {
        let device = crate::Device::open(uri).unwrap();
        let queue = device.queue().unwrap();
        let hardware = &queue.lanes()[0].controller().queue;
        let touched = || !hardware.lane.lists().is_untouched();
        for (bytes, lists) in [(8192, false), (65_536, lists)] {
            let (result, _) = queue.block_on(queue.read(&device.namespaces()[0], 0, queue.buffer(bytes).unwrap())).unwrap();
            result.unwrap();
            assert_eq!(touched(), lists, "{uri}, {bytes} bytes");
        }
    }
}
