//! Counters: of a software queue's thread, of a hardware queue, of a device.

use units::Nanos;

/// Counters of one software queue's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Polls of the completion queue.
    pub polls: u64,
    /// Polls that found no entry.
    pub empty_polls: u64,
    /// Entries reaped from the completion queue, other threads' included.
    pub entries: u64,
    /// Polls that found entries.
    pub drains: u64,
    /// The largest number of entries that one poll found.
    pub drain_max: u32,
    /// Times that the thread blocked, or was about to and found an entry.
    pub sleeps: u64,
    /// Times that the queue's notification woke it.
    pub wakeups: u64,
    /// Sleeps on a timer, with the notification masked; `sleeps` counts them too.
    pub naps: u64,
    /// Stretches of polling without a pause.
    pub spins: u64,
    /// Polls after a commit.
    pub submit_checks: u64,
}

impl Counters {
    /// The sum of `self` and `other`.
    #[must_use]
    pub fn and(self, other: Counters) -> Counters {
        Counters {
            polls: self.polls + other.polls,
            empty_polls: self.empty_polls + other.empty_polls,
            entries: self.entries + other.entries,
            drains: self.drains + other.drains,
            drain_max: self.drain_max.max(other.drain_max),
            sleeps: self.sleeps + other.sleeps,
            wakeups: self.wakeups + other.wakeups,
            naps: self.naps + other.naps,
            spins: self.spins + other.spins,
            submit_checks: self.submit_checks + other.submit_checks,
        }
    }
}

/// Counters of a device, over all queues and paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// Messages of I/O vectors that the host has received, by the system's count, where it has one
    /// ([`crate::Device::counts_messages`]).
    pub messages: u64,
    /// Notifications that the messages caused: fewer than messages where interrupts are posted.
    pub notifications: u64,
    /// Time that the device spent on sending messages.
    pub notify: Nanos,
    /// Writes to submission queue doorbells.
    pub sq_doorbells: u64,
    /// Writes to completion queue doorbells.
    pub cq_doorbells: u64,
    /// Doorbell writes that went to a register. The others went to shadow doorbells in memory
    /// (Doorbell Buffer Config). `None`: all went to a register.
    pub doorbell_registers: Option<u64>,
    /// System calls of its queues; only for `kernel:` devices.
    pub system_calls: Option<u64>,
    /// Bytes of buffers that a lost controller may still write to.
    pub leaked_bytes: u64,
}

impl DeviceCounters {
    /// The sum of `self` and `other`.
    pub(crate) fn and(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            messages: self.messages + other.messages,
            notifications: self.notifications + other.notifications,
            notify: self.notify + other.notify,
            sq_doorbells: self.sq_doorbells + other.sq_doorbells,
            cq_doorbells: self.cq_doorbells + other.cq_doorbells,
            doorbell_registers: self.doorbell_registers.map_or(other.doorbell_registers, |rung| {
                Some(rung + other.doorbell_registers.unwrap_or(0))
            }),
            system_calls: self
                .system_calls
                .map_or(other.system_calls, |calls| Some(calls + other.system_calls.unwrap_or(0))),
            // Paths share their pool.
            leaked_bytes: self.leaked_bytes.max(other.leaked_bytes),
        }
    }
}

/// Counters of one hardware queue, for all software queues that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HardwareCounters {
    /// Commands that have completed.
    pub finished: u64,
    /// Writes to its submission queue doorbell.
    pub sq_doorbells: u64,
    /// Writes to its completion queue doorbell.
    pub cq_doorbells: u64,
    /// Messages of its vector, which other queues may share.
    pub messages: u64,
    /// CPU time of its drain thread, in `threaded`.
    pub drain_cpu: Nanos,
    /// Commands that have completed on all queues of that vector.
    pub vector_finished: u64,
}

impl HardwareCounters {
    /// The sum of `self` and `other`.
    pub(crate) fn and(self, other: HardwareCounters) -> HardwareCounters {
        HardwareCounters {
            finished: self.finished + other.finished,
            sq_doorbells: self.sq_doorbells + other.sq_doorbells,
            cq_doorbells: self.cq_doorbells + other.cq_doorbells,
            messages: self.messages + other.messages,
            drain_cpu: self.drain_cpu + other.drain_cpu,
            vector_finished: self.vector_finished + other.vector_finished,
        }
    }
}
