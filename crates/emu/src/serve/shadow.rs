//! Doorbells that the client keeps in its memory, and what tells it when to ring (Base 5.2.5,
//! Doorbell Buffer Config).

use std::cell::Cell;

use hw::{GuestMemory, Rights};
use nvme::BusError;
use nvme::QueueId;
use sync::shadow::{self, ShadowDoorbell};

use crate::ShadowBuffers;

/// Both buffers, and what has been seen of each doorbell. Drivers write the admin queue's doorbells
/// to their registers alone, though the specification has them write both. So these count from when
/// they have first moved in memory, as do those that were rung before there was a buffer.
pub(super) struct Shadow {
    buffers: ShadowBuffers,
    /// The tail of queue 0, its head, the tail of queue 1, and so on.
    doorbells: Box<[DoorbellState]>,
}

/// One doorbell.
struct DoorbellState {
    /// What it said last.
    seen: Cell<u32>,
    /// The EventIdx that the client can read, if that is known.
    armed: Cell<Option<u32>>,
    /// Whether the client writes it to memory.
    counts: Cell<bool>,
}

/// Its two words in the client's memory.
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
    /// The client keeps its doorbells there from now on: at most this many, whose registers say
    /// this, by queue and whether it is a head.
    ///
    /// # Errors
    /// The client's memory is not that, or not to be read or written so.
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

    /// What a doorbell says. Outer `None`: it has no place here; inner: it has not been written
    /// here yet.
    pub(super) fn value(
        &self,
        memory: &GuestMemory,
        queue: QueueId,
        completion: bool,
    ) -> Option<Result<Option<u32>, BusError>> {
        let (doorbell, words) = self.doorbell(memory, queue, completion)?;
        Some(words.value().map(|now| {
            if doorbell.seen.replace(now) != now {
                doorbell.counts.set(true);
            }
            doorbell.counts.get().then_some(now)
        }))
    }

    /// A new queue begins there.
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
        doorbell.armed.set(None);
        Ok(())
    }

    /// Before the server sleeps. Whether the doorbell has moved since it was read last. `register`:
    /// what its register says.
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
        // The client has been told before, and has been looked at since: if it goes on from here it
        // rings.
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
