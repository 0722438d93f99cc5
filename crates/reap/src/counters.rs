//! What is counted: by a software queue's thread, of a hardware queue, of a device.

use units::Nanos;

/// What one software queue's thread has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks at the completion queue.
    pub looks: u64,
    /// Looks that found nothing.
    pub empty_looks: u64,
    /// Entries taken off the completion queue, others' included.
    pub entries: u64,
    /// Looks that found something.
    pub drains: u64,
    /// Most entries of one look.
    pub drain_max: u32,
    /// Times the thread blocked, or found on the point of blocking that it need not.
    pub sleeps: u64,
    /// Times it came back because of the queue's notification.
    pub wakeups: u64,
    /// Of the times it blocked, those with the notification masked, on a timer.
    pub naps: u64,
    /// Stretches of spinning.
    pub spins: u64,
    /// Looks that a commit gave rise to.
    pub submit_checks: u64,
}

impl Counters {
    /// Of both together.
    #[must_use]
    pub fn and(self, other: Counters) -> Counters {
        Counters {
            looks: self.looks + other.looks,
            empty_looks: self.empty_looks + other.empty_looks,
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

/// What has been counted of a device, over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// Messages that the host has received from the I/O vectors, where it can tell ([`crate::Device::counts_messages`]): the system's count,
    /// and not the device's.
    pub messages: u64,
    /// Notifications that came of them: fewer, where messages are posted.
    pub notifications: u64,
    /// Time that sending them took the device.
    pub notify: Nanos,
    /// Writes to submission queue doorbells.
    pub sq_doorbells: u64,
    /// Writes to completion queue doorbells.
    pub cq_doorbells: u64,
    /// Of these writes, how many went to a register. The others went to memory alone, where the controller reads them (Doorbell Buffer Config).
    /// `None`: all.
    pub doorbell_registers: Option<u64>,
    /// System calls of its queues, where they reach the device by these: `kernel:` devices.
    pub system_calls: Option<u64>,
    /// Bytes of buffers that a lost controller may still write to.
    pub leaked_bytes: u64,
}

impl DeviceCounters {
    /// Of both together.
    pub(crate) fn and(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            messages: self.messages + other.messages,
            notifications: self.notifications + other.notifications,
            notify: self.notify + other.notify,
            sq_doorbells: self.sq_doorbells + other.sq_doorbells,
            cq_doorbells: self.cq_doorbells + other.cq_doorbells,
            doorbell_registers: self
                .doorbell_registers
                .map_or(other.doorbell_registers, |rung| Some(rung + other.doorbell_registers.unwrap_or(0))),
            system_calls: self.system_calls.map_or(other.system_calls, |calls| Some(calls + other.system_calls.unwrap_or(0))),
            // Paths share their pool.
            leaked_bytes: self.leaked_bytes.max(other.leaked_bytes),
        }
    }
}

/// What has been counted of one hardware queue, for all the software queues that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HardwareCounters {
    /// Commands that have ended.
    pub finished: u64,
    /// Writes to its submission queue doorbell.
    pub sq_doorbells: u64,
    /// Writes to its completion queue doorbell.
    pub cq_doorbells: u64,
    /// Messages of its vector, which other queues may share.
    pub messages: u64,
    /// CPU time of its drain thread, in `threaded`.
    pub drain_cpu: Nanos,
    /// Commands that have ended on all the queues of that vector.
    pub vector_finished: u64,
}

impl HardwareCounters {
    /// Of both together.
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
