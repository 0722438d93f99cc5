//! Queues of a controller whose thread is gone: what they have in flight is still reaped, and its buffers come back.

use std::sync::Arc;

use driver::Completed;
use units::Nanos;

use crate::shared::hw_queue::HwQueue;
use crate::shared::queue_shared::QueueShared;
use crate::shared::requests::Failure;
use crate::thread::block_on;
use crate::transport::Post;
use crate::wake::{on_another_thread, wake_all};

/// How often queues without a thread are polled while something of theirs is in flight.
pub(super) const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

/// Reaps for the queues of `queues` that have no thread. Whether anything of theirs is still open.
pub(super) fn sweep(queues: &[Arc<HwQueue>], taken: &mut Vec<Completed>) -> bool {
    let mut open = false;
    for queue in queues {
        for user in queue.users.iter().filter(|user| user.is_orphaned()) {
            queue.take_for_owners(taken);
            open |= sweep_one(queue, user);
        }
    }
    open
}

/// Ends what other threads have left for a queue without a thread, and posts what waits. Whether anything of it is still open.
fn sweep_one(queue: &HwQueue, user: &QueueShared) -> bool {
    let mut left = user.left();
    // Another thread has taken the queue, and its requests.
    let Some(requests) = &mut *left else { return false };
    let (mut wakers, mut completed, now) = (Vec::new(), Vec::new(), hw::now());
    user.inbox.take(usize::MAX, &mut completed);
    requests.keep_registered();
    if user.fails_retries() {
        requests.fail_retries();
    }
    requests.answered(&completed, now, &mut wakers);
    if user.fails_all() {
        requests.fail_waiting(Failure::DeviceLost, now);
    } else if requests.is_waiting()
        && let Some(mut posting) = queue.pair.try_posting()
    {
        let room = queue.tags() - requests.posted();
        requests.post_waiting(&mut posting, now, room);
        posting.commit();
    }
    requests.take_ended(&mut wakers);
    let (memory, open) = (requests.take_kept(), requests.open());
    user.set_open(open);
    if open == 0 {
        user.set_orphaned(false);
        *left = None;
    }
    drop(left);
    queue.tags_returned();
    on_another_thread("reap-wake", wakers, wake_all);
    on_another_thread("reap-let-go", memory, block_on::let_go);
    open > 0
}
