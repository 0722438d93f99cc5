//! `emu::Port` for the embedded controller: DMA, registers and interrupts as the device thread
//! performs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use emu::{BusError, Port, SendResult};
use hw::{Bar, CqRing, DmaPool, SqRing, Vectors};
use nvme::{Doorbells, Registers, Vector};
use sync::Gate;
use units::Nanos;

/// What the host's threads and the device thread share of one controller, besides memory and
/// registers.
pub(super) struct Attachment {
    detached: AtomicBool,
    /// Nanoseconds spent on sending messages.
    notify_ns: AtomicU64,
    /// By vector, in nanoseconds: when the first message was sent since the last
    /// [`Attachment::take_message_time`]; 0: none was.
    message_at: Box<[AtomicU64]>,
    /// The gate to host memory, if access can be blocked.
    pub gate: Option<Gate>,
}

impl Attachment {
    pub(super) fn new(vectors: u16, gate: Option<Gate>) -> Attachment {
        let message_at = (0..vectors).map(|_| AtomicU64::new(0)).collect();
        Attachment {
            detached: AtomicBool::new(false),
            notify_ns: AtomicU64::new(0),
            message_at,
            gate,
        }
    }

    /// Call before a message is sent, so that the thread that it wakes finds the time. Keeps that
    /// of the first message only, which is the one that wakes the thread.
    fn record_message_time(&self, vector: Vector, at: Nanos) {
        if let Some(first) = self.message_at.get(usize::from(vector.0))
            && first.load(Ordering::Relaxed) == 0
        {
            first.store(at.0, Ordering::Relaxed);
        }
    }

    pub(super) fn take_message_time(&self, vector: Vector) -> Option<Nanos> {
        let at = self.message_at.get(usize::from(vector.0))?.swap(0, Ordering::Relaxed);
        (at > 0).then_some(Nanos(at))
    }

    /// Time spent on sending messages.
    pub(super) fn notify_time(&self) -> Nanos {
        Nanos(self.notify_ns.load(Ordering::Relaxed))
    }

    pub(super) fn detach(&self) {
        self.detached.store(true, Ordering::Release);
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }
}

/// The controller's access to its host.
pub(super) struct EmbeddedPort {
    pub pool: DmaPool,
    pub bar: Arc<Bar>,
    pub vectors: Arc<Vectors>,
    pub attachment: Arc<Attachment>,
}

impl Port for EmbeddedPort {
    type Sq = SqRing;
    type Cq = CqRing;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<SqRing, BusError> {
        self.pool
            .sq(addr, entries)
            .ok_or(BusError { addr, len: u64::from(entries) << nvme::Sqe::SIZE_LOG2 })
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<CqRing, BusError> {
        self.pool
            .cq(addr, entries)
            .ok_or(BusError { addr, len: u64::from(entries) << nvme::Cqe::SIZE_LOG2 })
    }

    #[inline]
    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        // Held during the copy: the host takes the memory back only after every access has ended.
        let _inside = self.enter(addr, into.len())?;
        self.pool.dma_read(addr, into)
    }

    #[inline]
    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        let _inside = self.enter(addr, from.len())?;
        self.pool.dma_write(addr, from)
    }

    #[inline]
    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.pool.check(addr, len)
    }

    #[inline]
    fn doorbells(&self) -> &impl Doorbells {
        &*self.bar
    }

    #[inline]
    fn registers(&self) -> &impl Registers {
        &*self.bar
    }

    fn send_message(&self, vector: Vector) -> SendResult {
        // A hint, without ordering, so that the clock is read only where a message is likely to be
        // sent. `Vectors::message` below decides, with the needed ordering.
        let armed = self.vectors.flag(vector.0).is_some_and(sync::WakeFlag::is_armed);
        let before = if armed { hw::now() } else { Nanos::ZERO };
        if armed {
            self.attachment.record_message_time(vector, before);
        }
        let sent = self.vectors.message(vector.0);
        if armed && sent {
            // Load and store instead of an atomic add: the device thread is the only writer.
            let spent = self.attachment.notify_ns.load(Ordering::Relaxed) + (hw::now() - before).0;
            self.attachment.notify_ns.store(spent, Ordering::Relaxed);
        }
        if sent { SendResult::Sent } else { SendResult::Masked }
    }

    fn is_masked(&self, vector: Vector) -> bool {
        self.vectors.is_masked(vector.0)
    }

    fn send_pending(&self, vector: Vector) -> SendResult {
        self.vectors.clear_pending(vector.0);
        self.send_message(vector)
    }

    fn clear_pending(&self, vector: Vector) {
        self.vectors.clear_pending(vector.0);
    }
}

impl EmbeddedPort {
    /// Passes the gate. The host does not take memory back while the result lives.
    #[inline]
    fn enter(&self, addr: u64, len: usize) -> Result<Option<sync::Pass<'_>>, BusError> {
        let Some(gate) = &self.attachment.gate else { return Ok(None) };
        gate.enter().map(Some).ok_or(BusError { addr, len: len as u64 })
    }
}
