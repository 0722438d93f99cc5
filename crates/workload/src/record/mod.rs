//! Recordings: what the threads of a run submitted, what each submission waited for, and how long the device took over it.
//!
//! - [`Header`] says what was recorded: jobs, devices and their profiles, mode, machine, clock;
//! - [`Submission`] is one request of one thread;
//! - [`Join`] makes submissions of what a thread and its devices noted down on their own;
//! - [`Writer`] and [`Trace`] write and read the file format of `docs/record.md`;
//! - [`Replayer`] submits again what a trace says, under whatever finds the completions this time.
//!
//! A submission waits for a *completion*, not for the completions that a wake-up happened to bring: another completion
//! mode would have brought others together. So a trace holds, for each submission, the earlier one whose place it took,
//! and for each wait the number that the application insisted on.

mod codec;
mod error;
mod header;
mod join;
mod reader;
mod replayer;
mod writer;

pub use error::TraceError;
pub use header::{Coalescing, DeviceHead, End, Figures, Header, ServiceTimes, ThreadHead, Timing};
pub use join::{Event, Join, Stamp};
pub use reader::{Submissions, Trace};
pub use replayer::Replayer;
pub use writer::Writer;

use units::{Nanos, Op};

/// What a submission waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing: the first ones, up to the depth.
    Start,
    /// The completion of the thread's submission of this number, counted from 0, whose place it took.
    After(u64),
    /// This instant, from the thread's start: the job's rate.
    At(Nanos),
}

/// How long a device took over a submission. Of one that was split into several commands: the slowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// From the fetch, waiting for other commands: for a ceiling, the link, a channel.
    pub queued: Nanos,
    /// By the device's own measure, its transfer included.
    pub service: Nanos,
    /// How much later than due the entry was posted.
    pub late: Nanos,
    /// Only the host's clock was there to look at: `service` is from the doorbell until the completion was found, and the
    /// device took that long at most.
    pub bound: bool,
}

/// One request of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// What it does.
    pub op: Op,
    /// Where: an index into the thread's targets.
    pub target: u16,
    /// First byte there.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// What it waited for.
    pub cause: Cause,
    /// Since the thread's submission before this one, the application waited until so many had completed; 0: it did not
    /// wait, or for the clock.
    pub wait: u32,
    /// What the application computed for it, between the library's giving it completions and this submission.
    pub think: Nanos,
    /// The doorbell was rung after it.
    pub ends_batch: bool,
    /// How long the device took.
    pub service: Service,
}

#[cfg(test)]
mod tests;
