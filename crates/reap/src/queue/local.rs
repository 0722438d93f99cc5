//! A software queue that never leaves its thread.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::Queue;

/// A software queue that belongs to the thread that has taken it. It does all that a [`Queue`] does, and cannot be sent.
///
/// Where a link lets one thread alone submit and take completions, as an io_uring ring with `DEFER_TASKRUN` does, a device has no
/// other queues. When it is dropped it stays for a second at most for what is in flight, because nobody else can take it.
///
/// ```compile_fail
/// let queue = reap::Device::open("mem:64M")?.local_queue()?;
/// std::thread::spawn(move || queue.in_flight());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalQueue {
    queue: Queue,
    stays: PhantomData<*const ()>,
}

impl LocalQueue {
    /// The calling thread's from now on.
    pub(crate) fn new(queue: Queue) -> LocalQueue {
        LocalQueue { queue, stays: PhantomData }
    }
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalQueue").field(&self.queue).finish()
    }
}

impl Deref for LocalQueue {
    type Target = Queue;
    #[inline]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl AsRef<Queue> for LocalQueue {
    fn as_ref(&self) -> &Queue {
        &self.queue
    }
}
