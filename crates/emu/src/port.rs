//! The bus: what a controller can reach of its host.

use nvme::{BusError, CqSlots, Doorbells, QueueId, Registers, SqSlots, Sqe, Vector};
use units::Nanos;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// It went out.
    Sent,
    /// Its vector is masked: the controller sets the vector's Pending bit.
    Masked,
    /// It is gone, or on a way of its own.
    Lost,
}

/// Where a host writes the doorbells of I/O queues, rather than to registers (Base 5.2.5, Doorbell
/// Buffer Config). Each buffer has the doorbells in the order and the distance of the registers, as
/// far as they fit in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowBuffers {
    /// Bus address of the doorbells.
    pub doorbells: u64,
    /// Bus address of the EventIdx of each.
    pub events: u64,
    /// Bytes of each buffer: a memory page.
    pub bytes: u64,
    /// Bytes from one doorbell to the next.
    pub stride: u64,
}

/// Everything that a controller can reach of its host: its memory, its doorbell and register
/// writes, its vectors.
pub trait Port {
    /// A submission queue's memory.
    type Sq: SqSlots;
    /// A completion queue's memory.
    type Cq: CqSlots;

    /// Resolves the memory of a submission queue at bus address `addr` once, when the queue is
    /// created.
    fn map_sq(&self, addr: u64, entries: u32) -> Result<Self::Sq, BusError>;
    /// Resolves the memory of a completion queue.
    fn map_cq(&self, addr: u64, entries: u32) -> Result<Self::Cq, BusError>;
    /// Copies host memory into the controller (the data of a Write, a PRP list).
    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError>;
    /// Copies from the controller into host memory (the data of a Read, an Identify page).
    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError>;
    /// Whether a range lies in registered memory: what `dma_read` would answer, without copying.
    fn check(&self, addr: u64, len: u64) -> Result<(), BusError>;
    /// The doorbells, of which a controller reads tails and heads.
    fn doorbells(&self) -> &impl Doorbells;
    /// The registers. The host's writes appear here; the controller writes CAP, VS and CSTS.
    fn registers(&self) -> &impl Registers;
    /// Sends the message of a vector unless the host masks it: fence(SeqCst), read the mask,
    /// signal. The caller has stored every entry that the message announces.
    fn message(&self, vector: Vector) -> Message;
    /// Whether the host masks a vector whose Pending bit is set.
    fn is_masked(&self, vector: Vector) -> bool;
    /// Sends the message that a vector's Pending bit stands for, as [`Port::message`] does, and
    /// clears the bit.
    fn send_pending(&self, vector: Vector) -> Message {
        self.message(vector)
    }
    /// A vector's Pending bit is cleared, and no message goes out for it.
    fn clear_pending(&self, _vector: Vector) {}

    /// From now on [`Port::doorbells`] are those that the host writes there, the admin queue's
    /// excepted as long as the host writes that one to its register alone. `None`: they are
    /// registers.
    ///
    /// # Errors
    /// The buffers cannot be reached; nothing has changed.
    fn shadow_doorbells(&self, buffers: Option<ShadowBuffers>) -> Result<(), BusError> {
        buffers.map_or(Ok(()), |ShadowBuffers { doorbells, bytes, .. }| {
            Err(BusError { addr: doorbells, len: bytes })
        })
    }
    /// Before the controller sleeps: has the host wake it when it goes on from the value of this
    /// doorbell that was read last. Whether it has gone on already, maybe without knowing of the
    /// wish. A register's write wakes the controller in any case.
    fn arm_doorbell(&self, _queue: QueueId, _completion: bool) -> bool {
        false
    }

    /// How long an I/O command takes, its transfer and the wait for a channel not included. `None`:
    /// the profile's dice say.
    #[inline]
    fn service_time(&self, _command: &Sqe) -> Option<Nanos> {
        None
    }
}
