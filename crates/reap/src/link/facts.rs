//! What a link can do, and what not: decided when it is opened, and the same until it is closed.

/// What a link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How its notifications are held off.
    pub mask: Mask,
    /// Who may post to its lanes, and take completions.
    pub reaper: Reaper,
    /// What its counts of messages are.
    pub messages: Messages,
}

/// How a thread that is awake is spared notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// Each vector has a mask: while it is set no message is sent.
    Bit,
    /// Nothing holds messages back. "Masked" means that nobody reads them; they cost all the same, and are counted. Queues
    /// have a second lane then, whose completions send none.
    Unread,
}

/// What a count of messages is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// As many as the host has received, by the count that the system keeps in each vector's eventfd.
    Exact,
    /// Waits or looks that brought something. How many messages there were is the kernel's secret, or there are none.
    Wakeups,
    /// Nothing: the system does not show what eventfds have counted.
    Unknown,
}

/// Which threads may post to a lane, announce, and take its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaper {
    /// Any, one at a time.
    Any,
    /// The thread that has taken the queue, and no other, as an io_uring ring with `IORING_SETUP_DEFER_TASKRUN` has it. Others
    /// ask it.
    Owner,
}
