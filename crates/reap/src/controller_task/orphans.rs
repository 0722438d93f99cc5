//! Queues of a controller whose thread is gone with requests in flight. The housekeeping thread
//! reaps them, so that their futures end and their buffers return to the pool.

use std::sync::Arc;

use driver::Completed;
use units::Nanos;

use crate::shared::hw_queue::HwQueue;
use crate::shared::queue_shared::QueueShared;
use crate::shared::requests::Failure;
use crate::thread::block_on;
use crate::transport::Post;
use crate::wake::{on_another_thread, wake_all};

/// Interval of polls while a queue without a thread has requests in flight. Their latency does not
/// matter.
pub(super) const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

/// Reaps for queues without a thread. Returns whether any has requests open.
pub(super) fn sweep(queues: &[Arc<HwQueue>], taken: &mut Vec<Completed>) -> bool {
    let mut open = false;
    for queue in queues {
        for user in queue.users.iter().filter(|user| user.is_orphaned()) {
            queue.reap_for_owners(taken);
            open |= sweep_one(queue, user);
        }
    }
    open
}

/// Processes the inbox of a queue without a thread, and posts its waiting requests. Returns whether
/// any request is open.
fn sweep_one(queue: &HwQueue, user: &QueueShared) -> bool {
    // Held until the end: a thread that takes the queue waits here for its requests.
    let mut left = user.left();
    // Empty: a thread has taken the queue since `is_orphaned`.
    let Some(requests) = &mut *left else { return false };
    let (mut wakers, mut completed, now) = (Vec::new(), Vec::new(), hw::now());
    user.inbox.take(usize::MAX, &mut completed);
    requests.defer_drops();
    if user.fails_retries() {
        requests.fail_retries();
    }
    requests.complete(&completed, now, &mut wakers);
    if user.fails_all() {
        requests.fail_waiting(Failure::DeviceLost, now);
    } else if requests.is_waiting()
        // Only if no thread is posting: this thread waits for no lock of the data path.
        && let Some(mut posting) = queue.pair.try_posting()
    {
        // Everything goes to the interrupt queue. The poll queue may have no thread that polls it.
        let room = queue.tags() - requests.posted();
        requests.post_waiting(&mut posting, now, room);
        posting.commit();
    }
    requests.take_ended(&mut wakers);
    let (memory, open) = (requests.take_deferred_drops(), requests.open());
    user.set_open(open);
    if open == 0 {
        user.set_orphaned(false);
        *left = None;
    }
    // The rest runs without the lock: it wakes other threads, and runs the application's code.
    drop(left);
    queue.tags_returned();
    on_another_thread("reap-wake", wakers, wake_all);
    on_another_thread("reap-drop", memory, block_on::drop_buffers);
    open > 0
}
