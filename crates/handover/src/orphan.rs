//! What a queue's thread left in flight when it went: another thread ends it, while a third may have taken the queue.

/// A queue without a thread, or one that has a thread again of which the sweeper has not heard.
pub trait Orphan {
    /// Locks what is open, ends of it what other threads have left in the inbox, unlocks it and publishes what is still open. Whether
    /// anything was found. `None`: a thread has the lock, which has taken the queue and looks after it.
    fn end(&self) -> Option<bool>;

    /// Wakes the thread that has taken the queue, if there is one and it sleeps.
    fn tell(&self);

    /// Whether anything is open.
    fn is_open(&self) -> bool;
}

/// Ends what has come back. Whether anything is still open, so that the sweeper has to come again.
///
/// A thread that has taken the queue may have looked for mail after the sweeper took it out of the inbox, and at what is open before
/// the sweeper published it. It sleeps then, and is told. Its own look comes after its bell is armed, so that one that armed the
/// bell later sees that less is open than it thought.
pub fn sweep(orphan: &impl Orphan) -> bool {
    let Some(found) = orphan.end() else { return true };
    if found {
        orphan.tell();
    }
    orphan.is_open()
}

#[cfg(test)]
mod tests;
