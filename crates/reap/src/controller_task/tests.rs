use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hw::DmaBuf;
use nvme::Nsid;

use super::*;
use crate::error::{IoError, Refused};
use crate::queue::Queue;
use crate::request::Request;
use crate::shared::controller::OpenController;
use crate::shared::events::EventSource;
use crate::shared::future::Pending;
use crate::shared::queue_shared::FileQueues;
use crate::shared::queue_table::QueueTable;
use crate::shared::reports::Kick;
use crate::thread::queue_pair::QueuePair;
use crate::thread::ring_queue::RingQueue;
use crate::transport::{DmaContext, EmbeddedOptions, KEY_WAKE};

/// Time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Steps the task until `looked_for` returns something.
fn step_until<T>(
    task: &mut ControllerTask,
    mut looked_for: impl FnMut(&mut ControllerTask) -> Option<T>,
) -> T {
    let since = Instant::now();
    loop {
        task.step(hw::now());
        if let Some(found) = looked_for(task) {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "it does not come to that");
        std::thread::yield_now();
    }
}

/// A controller that is up, and its task without a housekeeping thread: the test makes each step.
fn up() -> (ControllerTask, Opened) {
    up_at("mem:1M?profile=null&namespaces=2", &OpenOptions::default())
}

fn up_at(uri: &str, options: &OpenOptions) -> (ControllerTask, Opened) {
    let uri = uri.parse().unwrap();
    let controller = RingController::embedded(
        &uri,
        &EmbeddedOptions::default(),
        DmaContext::new(8 << 20).unwrap(),
        None,
    )
    .unwrap();
    let control =
        Control::new(Arc::new(Kick::new().unwrap()), EventSource::new(Arc::default(), None));
    let (tell, told) = sync_channel(1);
    let mut task = ControllerTask::new(Arc::new(controller), None, options, control, tell).unwrap();
    let (opened, _) = step_until(&mut task, |_| told.try_recv().ok()).unwrap();
    (task, opened)
}

/// A controller that is up, with its first hardware queue.
fn controller(uri: &str, options: &OpenOptions) -> (ControllerTask, OpenController, Arc<HwQueue>) {
    let (task, opened) = up_at(uri, options);
    let hardware = opened.queues[0].clone();
    let free = (0..hardware.users.len()).rev().map(|me| (0, me as u8)).collect();
    let queue_table = QueueTable::new(opened.queues.clone(), free);
    (
        task,
        OpenController::new(opened, queue_table, Arc::new(FileQueues::new(0)), options),
        hardware,
    )
}

fn interrupt() -> OpenOptions {
    OpenOptions::default().mode(completion::Mode::INTERRUPT)
}

/// A Flush in flight.
fn flush(queue: &Queue) -> Pending {
    let future = queue.start(Request::flush(&queue.namespaces()[0]));
    queue.commit();
    future
}

/// A Flush for each tag, and as many again and three more, which wait for a tag.
fn more_than_tags(queue: &Queue, hardware: &HwQueue) -> Vec<Pending> {
    let futures = (0..2 * hardware.tags() + 3).map(|_| flush(queue)).collect();
    assert_eq!(hardware.users[0].open(), 2 * hardware.tags() + 3);
    futures
}

/// Waits until a CQE is visible, without polling.
fn wait_for_entries(hardware: &HwQueue) {
    let since = Instant::now();
    while !hardware.pending() {
        assert!(since.elapsed() < PATIENCE, "the controller does not answer");
        std::thread::yield_now();
    }
}

/// The result of the request; `None` while it is open.
fn result(future: &mut Pending) -> Option<Result<(), IoError>> {
    match Future::poll(std::pin::Pin::new(future), &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(completion) => Some(completion.result),
        Poll::Pending => None,
    }
}

/// Between the task's sweep and its decision to shut down, the last queue goes and the device
/// closes, with a completion in an inbox. `decide` makes the decision. The task must not end before
/// the completion has been taken.
fn closed_before(decide: impl FnOnce(&mut ControllerTask)) {
    let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let mut future = flush(&queue);
    wait_for_entries(&hardware);
    hardware.reap_for_owners(&mut Vec::with_capacity(8));
    assert_eq!((hardware.pair.in_flight(), hardware.users[0].open()), (0, 1));
    task.step(hw::now());
    drop((queue, controller));
    decide(&mut task);
    assert!(
        !matches!(task.phase, ControllerPhase::Ended),
        "a future waits for what lies in an inbox"
    );
    step_until(&mut task, |task| matches!(task.phase, ControllerPhase::Ended).then_some(()));
    assert_eq!(result(&mut future), Some(Ok(())));
}

#[test]
fn close_after_poll_finishes_futures() {
    closed_before(|task| {
        assert!(!task.may_shut_down(), "a future waits for what lies in an inbox")
    });
}

#[test]
fn controller_failure_finishes_futures() {
    closed_before(|task| task.give_up(driver::Dead::Gone));
}

/// One of two threads of a hardware queue is gone; the sweep reaps completions of the other, which
/// sleeps, and wakes it.
#[test]
fn sweep_wakes_the_sleeping_thread() {
    let options = interrupt().software_queues(2).hardware_queues(1);
    let (mut task, controller, hardware) = controller("mem:1M?profile=null&queues=1", &options);
    let [gone, sleeper] = [(); 2].map(|()| Queue::over_one(&controller, false, None).unwrap());
    let (mut left, mut waits) = (flush(&gone), flush(&sleeper));
    drop(gone);
    let wake = &hardware.users[1].wake;
    wake.arm();
    step_until(&mut task, |_| (!wake.flag().is_armed()).then_some(()));
    step_until(&mut task, |_| (!hardware.users[0].is_orphaned()).then_some(()));
    assert_eq!((result(&mut left), result(&mut waits)), (Some(Ok(())), None));
    assert_eq!(sleeper.block_on(waits).unwrap().result, Ok(()));
}

/// Requests that a thread leaves in flight are finished, and their buffers return.
#[test]
fn orphaned_requests_return_their_buffers() {
    let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let ns = queue.namespaces()[0];
    let buffers: Vec<_> = (0..20).map(|_| queue.buffer(4096).unwrap()).collect();
    let addrs: Vec<u64> = buffers.iter().map(DmaBuf::addr).collect();
    let are_free = || {
        addrs.iter().map(|&addr| controller.pool().check(addr, 4096).is_err()).collect::<Vec<_>>()
    };
    queue
        .submit(buffers.into_iter().map(|buf| Request::read(&ns, 0, buf)))
        .map_err(|(why, _)| why)
        .unwrap();
    let mut future = flush(&queue);
    drop(queue);
    let user = &hardware.users[0];
    assert_eq!((user.open(), user.is_orphaned(), are_free()), (21, true, vec![false; 20]));
    step_until(&mut task, |_| (user.open() == 0).then_some(()));
    assert_eq!((are_free(), result(&mut future)), (vec![true; 20], Some(Ok(()))));
    assert!(!user.is_orphaned() && user.left().is_none());
    assert!(!orphans::sweep(&task.queues, &mut Vec::new()));
    // The queue can be taken again.
    let queue = Queue::over_one(&controller, false, None).unwrap();
    assert_eq!(queue.block_on(queue.flush(&ns)), Ok(Ok(())));
}

/// A thread that takes a queue takes its open requests too. A sweep that has seen the queue without
/// a thread just before finds none.
#[test]
fn next_thread_takes_left_requests() {
    let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let mut futures = more_than_tags(&queue, &hardware);
    drop(queue);
    wait_for_entries(&hardware);
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let (user, open) = (&hardware.users[0], futures.len() as u32);
    assert_eq!((user.open(), user.is_orphaned(), user.left().is_none()), (open, false, true));
    user.set_orphaned(true);
    task.step(hw::now());
    user.set_orphaned(false);
    assert_eq!(user.open(), open);
    assert!(futures.iter_mut().all(|future| result(future).is_none()));
    for future in futures {
        assert_eq!(queue.block_on(future).unwrap().result, Ok(()));
    }
    assert_eq!((queue.in_flight(), hardware.pair.in_flight()), (0, 0));
}

/// If taking a queue fails, the requests stay for the next thread.
#[test]
fn failed_takes_leave_requests() {
    let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let mut future = flush(&queue);
    drop(queue);
    let user = hardware.users[0].clone();
    let poller = Arc::new(hw::Poller::new().unwrap());
    // The poller has the wake-up already, and refuses it.
    poller.add(&*user.wake, KEY_WAKE).unwrap();
    let rings = RingQueue::new(hardware.clone(), 0, poller.clone());
    assert!(
        QueuePair::new(
            controller.clone(),
            user.clone(),
            0,
            rings,
            poller,
            hardware.pair.fork_guard()
        )
        .is_err()
    );
    assert!(user.is_orphaned() && user.left().is_some());
    step_until(&mut task, |_| (user.open() == 0).then_some(()));
    assert_eq!(result(&mut future), Some(Ok(())));
}

/// The task posts requests that wait for a tag, for the thread that is gone. It does not wait for a
/// thread that is posting.
#[test]
fn waiting_orphans_are_posted() {
    let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let futures = more_than_tags(&queue, &hardware);
    drop(queue);
    let posting = hardware.pair.posting();
    wait_for_entries(&hardware);
    task.step(hw::now());
    drop(posting);
    step_until(&mut task, |_| (hardware.users[0].open() == 0).then_some(()));
    assert_eq!(hardware.pair.counters().finished, futures.len() as u64);
    assert!(futures.into_iter().all(|mut future| result(&mut future) == Some(Ok(()))));
}

/// Requests that wait for a tag fail when the controller is given up, also without a thread.
#[test]
fn given_up_controllers_fail_orphans() {
    let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let mut futures = more_than_tags(&queue, &hardware);
    drop(queue);
    task.give_up(driver::Dead::Gone);
    task.step(hw::now());
    let mut waiting = futures.split_off(hardware.tags() as usize);
    assert!(waiting.iter_mut().all(|future| result(future) == Some(Err(IoError::DeviceLost))));
    step_until(&mut task, |_| (hardware.users[0].open() == 0).then_some(()));
    assert!(futures.iter_mut().all(|future| result(future) == Some(Ok(()))));
    assert_eq!(hardware.pair.counters().finished, futures.len() as u64);
}

/// Requests are retried after a reset of a controller that was given up and is back, but not after
/// `fail_retries`, whichever thread has the queue.
#[test]
fn revived_queues_post_again() {
    for (patient, same_thread) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut task, controller, hardware) = controller("mem:1M?profile=null", &interrupt());
        let mut queue = Queue::over_one(&controller, false, None).unwrap();
        let user = &hardware.users[0];
        if !patient {
            controller.fail_retries();
        }
        user.fail_all();
        let future = flush(&queue);
        assert_eq!(queue.block_on(future).unwrap().result, Ok(()), "a tag was free");
        user.revive();
        if !same_thread {
            drop(queue);
            queue = Queue::over_one(&controller, false, None).unwrap();
        }
        // Posted, without a doorbell.
        let future = queue.start(Request::flush(&queue.namespaces()[0]));
        controller.reset();
        step_until(&mut task, |_| (!user.inbox.is_empty()).then_some(()));
        let expected = if patient { Ok(()) } else { Err(IoError::TimedOut) };
        assert_eq!(
            queue.block_on(future).unwrap().result,
            expected,
            "patient: {patient}, the same thread: {same_thread}"
        );
    }
}

/// A task that is dropped while it is live, because a step has panicked, fails all requests and
/// wakes their threads.
#[test]
fn task_exit_ends_all_waits() {
    let (task, controller, _) = controller("mem:1M?profile=null", &interrupt());
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let ns = queue.namespaces()[0];
    queue
        .submit((0..300).map(|_| Request::read(&ns, 0, queue.buffer(512).unwrap())))
        .map_err(|(why, _)| why)
        .unwrap();
    drop(task);
    let since = Instant::now();
    let mut ended = Vec::new();
    while ended.len() < 300 {
        queue
            .wait_or_idle(1, Some(crate::Instant::now() + std::time::Duration::from_millis(100)))
            .unwrap();
        queue.reap(&mut ended);
        assert!(since.elapsed() < PATIENCE, "{} of 300 have ended", ended.len());
    }
    let lost = |done: &crate::Completion| done.result == Err(crate::IoError::DeviceLost);
    assert!(ended.iter().all(lost), "no thread has polled before");
    assert!(controller.health().dead.is_some());
}

/// A namespace that cannot be used is reported; the others can be used.
#[test]
fn oversized_blocks_disable_one_namespace() {
    let (mut task, opened) = up();
    let usable = opened.namespaces.len();
    task.inventory.namespaces.push(driver::Namespace {
        nsid: Nsid(77),
        block_log2: 24,
        ..task.inventory.namespaces[0]
    });
    let namespaces = task.namespaces();
    assert_eq!(namespaces.len(), usable);
    let refused = task.description().refused;
    assert!(
        refused.iter().any(|why| why.contains("namespace 77") && why.contains("16777216")),
        "{refused:?}"
    );
}

/// A handle is refused after the block size has changed: its requests would address other data.
#[test]
fn stale_namespace_handles_are_refused() {
    let (mut task, controller, _) = controller(
        "mem:1M?profile=null&namespaces=2",
        &OpenOptions::default().mode(completion::Mode::POLL),
    );
    let queue = Queue::over_one(&controller, false, None).unwrap();
    let ns = queue.namespaces()[0];
    let read = || {
        queue.submit([Request::read(&ns, 0, queue.buffer(4096).unwrap())]).map_err(|(why, _)| why)
    };
    assert_eq!(read(), Ok(()));
    assert_eq!(queue.wait(1, None), Ok(1));
    let format = |task: &mut ControllerTask, log2| {
        let mut identify = nvme::identify::IdentifyNamespace::default();
        (identify.nsze, identify.ncap) = (ns.bytes() >> log2, ns.bytes() >> log2);
        identify.lbaf[0].set_lbads(log2);
        let known = task.inventory.namespaces[0];
        (identify.nguid, identify.eui64) = (known.nguid, known.eui64);
        task.namespace_was_read(ns.nsid(), &identify);
    };
    let log2 = ns.block_bytes().ilog2() as u8;
    format(&mut task, 24 - log2);
    assert_eq!(read(), Err(Refused::Changed(ns.nsid().0)));
    // The other namespace has not changed: its requests are accepted up to the first that is
    // refused.
    let other = queue.namespaces()[1];
    let mixed =
        [other, other, ns, other].map(|ns| Request::read(&ns, 0, queue.buffer(4096).unwrap()));
    let mut mixed = mixed.into_iter();
    assert_eq!(
        queue.submit(&mut mixed).map_err(|(why, _)| why),
        Err(Refused::Changed(ns.nsid().0))
    );
    assert_eq!((queue.wait(3, None), mixed.len()), (Ok(3), 1));
    queue.submit(mixed).map_err(|(why, _)| why).unwrap();
    assert_eq!(queue.wait(4, None), Ok(4));
    assert_eq!(queue.block_on(queue.flush(&other)), Ok(Ok(())));
    let foreign = crate::Device::open("mem:1M?profile=null").unwrap().namespaces()[0];
    let foreign = Request::read(&foreign, 0, queue.buffer(4096).unwrap());
    assert!(matches!(queue.submit([foreign]), Err((Refused::NoNamespace(_), _))));
    queue.reap(&mut Vec::with_capacity(8));
    assert_eq!(controller.current(&ns).blocks(), 0);
    // With the old format the handle is valid again.
    format(&mut task, log2);
    assert_eq!(read(), Ok(()));
    assert_eq!(queue.wait(1, None), Ok(1));
    drop((queue, controller));
    step_until(&mut task, |task| matches!(task.phase, ControllerPhase::Ended).then_some(()));
}

/// SGLs are used only if the controller reports them, also after a reset.
#[test]
fn sgls_need_controller_support() {
    let (task, _opened) = up();
    assert!(!task.controller.sgls());
    let (mut task, _opened) = up_at("mem:1M?profile=null&sgl=yes", &OpenOptions::default());
    assert!(task.controller.sgls());
    let mut inventory = task.inventory.clone();
    inventory.limits.as_mut().unwrap().sgls = false;
    task.recover(RecoveryAction::Restored(Box::new(inventory)), hw::now());
    assert!(!task.controller.sgls());
}

/// Transfers of more than two pages need a PRP list, or one SGL descriptor if the controller has
/// SGLs.
#[test]
fn long_transfers_use_sgls() {
    for (uri, lists) in [("mem:1M?profile=null", true), ("mem:1M?profile=null&sgl=yes", false)] {
        let device = crate::Device::open(uri).unwrap();
        let queue = device.queue().unwrap();
        let hardware = queue.path_queues()[0].controller().transport().hardware().clone();
        let touched = || !hardware.pair.lists().is_untouched();
        for (bytes, lists) in [(8192, false), (65_536, lists)] {
            let (result, _) = queue
                .block_on(queue.read(&device.namespaces()[0], 0, queue.buffer(bytes).unwrap()))
                .unwrap();
            result.unwrap();
            assert_eq!(touched(), lists, "{uri}, {bytes} bytes");
        }
    }
}
