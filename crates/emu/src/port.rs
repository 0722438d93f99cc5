//! The interface between controller and host: memory, doorbells, registers, interrupts.

use nvme::{BusError, CqSlots, Doorbells, QueueId, Registers, SqSlots, Sqe, Vector};
use units::Nanos;

/// Result of sending an interrupt message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The message was sent.
    Sent,
    /// The vector is masked, and nothing was sent: the caller sets the vector's Pending bit.
    Masked,
    /// Fault injection has dropped or delayed the message.
    Lost,
}

/// The two buffers of Doorbell Buffer Config (Base 5.2.5): the host writes doorbell values to one
/// instead of to the registers, and the controller writes EventIdx values to the other. Both
/// buffers have the layout of the doorbell registers, limited to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowBuffers {
    /// Bus address of the doorbell values.
    pub doorbells: u64,
    /// Bus address of the EventIdx values.
    pub events: u64,
    /// Bytes of each buffer: one memory page (CC.MPS).
    pub bytes: u64,
    /// Bytes between doorbells.
    pub stride: u64,
}

/// Access to the host: its memory, doorbells, registers and interrupt vectors.
pub trait Port {
    /// Memory of a submission queue.
    type Sq: SqSlots;
    /// Memory of a completion queue.
    type Cq: CqSlots;

    /// Maps a submission queue of `entries` entries at bus address `addr`, when the queue is
    /// created.
    fn map_sq(&self, addr: u64, entries: u32) -> Result<Self::Sq, BusError>;
    /// Maps a completion queue.
    fn map_cq(&self, addr: u64, entries: u32) -> Result<Self::Cq, BusError>;
    /// Reads host memory (data of a Write, a PRP list).
    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError>;
    /// Writes host memory (data of a Read, an Identify page).
    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError>;
    /// Checks that a range of host memory is accessible, without copying it.
    fn check(&self, addr: u64, len: u64) -> Result<(), BusError>;
    /// The doorbells.
    fn doorbells(&self) -> &impl Doorbells;
    /// The registers. The host writes CC and others; the controller writes CAP, VS and CSTS.
    fn registers(&self) -> &impl Registers;
    /// Sends the message of a vector unless it is masked: fence(SeqCst), read the mask, signal. All
    /// entries that the message announces must have been stored before.
    fn send_message(&self, vector: Vector) -> SendResult;
    /// Whether a vector is masked. Called only while its Pending bit is set.
    fn is_masked(&self, vector: Vector) -> bool;
    /// Sends the message of a vector whose Pending bit is set, as [`Port::send_message`] does, and
    /// clears the bit.
    fn send_pending(&self, vector: Vector) -> SendResult {
        self.send_message(vector)
    }
    /// Clears a vector's Pending bit without a message.
    fn clear_pending(&self, _vector: Vector) {}

    /// Selects the source of [`Port::doorbells`]: memory buffers, or with `None` the registers. The
    /// admin queue's doorbells are read from the registers until the host writes them to memory.
    ///
    /// # Errors
    /// The buffers are not accessible; the source is unchanged.
    fn shadow_doorbells(&self, buffers: Option<ShadowBuffers>) -> Result<(), BusError> {
        buffers.map_or(Ok(()), |ShadowBuffers { doorbells, bytes, .. }| {
            Err(BusError { addr: doorbells, len: bytes })
        })
    }
    /// Before the controller sleeps: sets EventIdx of a shadow doorbell to its last value, so that
    /// the host rings the register at the next change. Returns whether the doorbell has moved
    /// already, in which case the host might not ring, and the controller must read the doorbell
    /// again. Registers notify at every write and need no arming.
    fn arm_doorbell(&self, _queue: QueueId, _completion: bool) -> bool {
        false
    }

    /// Service time of an I/O command, without transfer and queueing. `None`: drawn from the
    /// profile.
    #[inline]
    fn service_time(&self, _command: &Sqe) -> Option<Nanos> {
        None
    }
}
