//! Shadow doorbells: the client writes doorbells to memory, and rings the register only when the
//! value passes EventIdx (Base 5.2.5, Doorbell Buffer Config).

use std::cell::Cell;

use hw::{GuestMemory, Rights};
use nvme::BusError;
use nvme::QueueId;
use sync::shadow::{self, ShadowDoorbell};

use crate::ShadowBuffers;

/// Both buffers, and the last value of each doorbell. Drivers write the admin queue's doorbells
/// only to registers, although the specification requires both. So these are read from their
/// registers until they first change in memory; so are doorbells that were rung before the buffers
/// were set.
pub(super) struct Shadow {
    buffers: ShadowBuffers,
    /// In the order of the registers: tail of queue 0, head of queue 0, tail of queue 1, and so on.
    doorbells: Box<[DoorbellState]>,
}

/// State of one doorbell.
struct DoorbellState {
    /// The last value read.
    seen: Cell<u32>,
    /// EventIdx as stored for the client, if known.
    armed: Cell<Option<u32>>,
    /// Whether the client writes this doorbell to memory.
    counts: Cell<bool>,
}

/// The doorbell and EventIdx words in client memory.
struct Words<'a> {
    memory: &'a GuestMemory,
    value: u64,
    event: u64,
}

impl ShadowDoorbell for Words<'_> {
    type Fault = BusError;

    fn value(&self) -> Result<u32, BusError> {
        self.memory.load(self.value).map(|[word]| word)
    }

    fn set_value(&self, value: u32) -> Result<(), BusError> {
        self.memory.store(self.value, [value])
    }

    fn event(&self) -> Result<u32, BusError> {
        self.memory.load(self.event).map(|[word]| word)
    }

    fn set_event(&self, value: u32) -> Result<(), BusError> {
        self.memory.store(self.event, [value])
    }
}

impl Shadow {
    /// Activates buffers for at most this many doorbells; `register` returns the register of each,
    /// by queue and whether it is a head.
    ///
    /// # Errors
    /// The buffers are not accessible client memory.
    pub(super) fn new(
        buffers: ShadowBuffers,
        memory: &GuestMemory,
        doorbells: u32,
        register: impl Fn(QueueId, bool) -> u32,
    ) -> Result<Shadow, BusError> {
        memory.check(
            buffers.doorbells,
            buffers.bytes,
            Rights { read: true, write: false },
            || false,
        )?;
        memory
            .check(buffers.events, buffers.bytes, Rights { read: false, write: true }, || false)?;
        let count = (buffers.bytes / buffers.stride).min(u64::from(doorbells));
        let doorbell = |n: u64| {
            let words = words(&buffers, memory, n);
            let queue = QueueId((n / 2) as u16);
            let rung = register(queue, n % 2 == 1);
            let seen = words.value()?;
            // A doorbell that was rung in its register and is 0 in memory has not been written to
            // memory yet.
            let counts = queue != QueueId::ADMIN && (rung == 0 || seen != 0);
            Ok(DoorbellState {
                seen: Cell::new(seen),
                armed: Cell::new(None),
                counts: Cell::new(counts),
            })
        };
        Ok(Shadow { doorbells: (0..count).map(doorbell).collect::<Result<_, _>>()?, buffers })
    }

    fn doorbell<'a>(
        &'a self,
        memory: &'a GuestMemory,
        queue: QueueId,
        completion: bool,
    ) -> Option<(&'a DoorbellState, Words<'a>)> {
        let n = 2 * u64::from(queue.0) + u64::from(completion);
        let doorbell = self.doorbells.get(n as usize)?;
        Some((doorbell, words(&self.buffers, memory, n)))
    }

    /// Reads a doorbell. Outer `None`: the buffers do not contain the doorbell; inner `None`: the
    /// client has not written it to memory yet.
    pub(super) fn value(
        &self,
        memory: &GuestMemory,
        queue: QueueId,
        completion: bool,
    ) -> Option<Result<Option<u32>, BusError>> {
        let (doorbell, words) = self.doorbell(memory, queue, completion)?;
        Some(words.value().map(|now| {
            // The first change in memory shows that the client has switched to it for this
            // doorbell.
            if doorbell.seen.replace(now) != now {
                doorbell.counts.set(true);
            }
            doorbell.counts.get().then_some(now)
        }))
    }

    /// Sets a doorbell when its queue is created.
    pub(super) fn set(
        &self,
        memory: &GuestMemory,
        queue: QueueId,
        completion: bool,
        value: u32,
    ) -> Result<(), BusError> {
        let Some((doorbell, words)) = self.doorbell(memory, queue, completion) else {
            return Ok(());
        };
        words.set_value(value)?;
        doorbell.seen.set(value);
        // The EventIdx of an earlier queue with this identifier is not valid for the new queue.
        doorbell.armed.set(None);
        Ok(())
    }

    /// Before the server sleeps: stores EventIdx, and returns whether the doorbell has moved since
    /// it was last read. `register`: value of its register.
    pub(super) fn arm(
        &self,
        memory: &GuestMemory,
        queue: QueueId,
        completion: bool,
        register: u32,
    ) -> Result<bool, BusError> {
        let Some((doorbell, words)) = self.doorbell(memory, queue, completion) else {
            return Ok(false);
        };
        let seen = doorbell.seen.get();
        let event = if doorbell.counts.get() { seen } else { register };
        // EventIdx is stored already and the doorbell was read after that: the client rings the
        // register at the next change.
        if doorbell.armed.get() == Some(event) {
            return Ok(false);
        }
        let now = shadow::arm(&words, event)?;
        doorbell.armed.set(Some(event));
        Ok(now != seen)
    }
}

fn words<'a>(buffers: &ShadowBuffers, memory: &'a GuestMemory, n: u64) -> Words<'a> {
    let at = n * buffers.stride;
    Words { memory, value: buffers.doorbells + at, event: buffers.events + at }
}
