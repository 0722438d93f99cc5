//! Host's end of one NVMe/TCP connection, that is, of one queue pair.
//!
//! ```text
//!   ICReq ─►            ◄─ ICResp
//!   CapsuleCmd, with the data of a short write ─►
//!                       ◄─ R2T           of a longer write
//!   H2CData, at most MAXH2CDATA each ─►
//!                       ◄─ C2HData       of a read; with SUCCESS no response follows
//!                       ◄─ CapsuleResp
//! ```
//!
//! Each command completes exactly once: a response, or a C2HData with SUCCESS, must name an
//! outstanding CID. If a Read, Write or Compare succeeds without having transferred all its data,
//! that is a protocol error, so that a short transfer is never reported as success.

use nvme::fabrics::{Direction, direction_of};
use nvme::sgl::Descriptor;
use nvme::{Cid, Cqe, QueueId, Sqe, Status, opcode};

use crate::pdu::{Body, Data, Digests, Fes, Greeting, Pdu, Side, Term, Violation, flags};
use crate::receive::{Item, PayloadMemory, Receiver};
use crate::send::SendList;

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorConfig {
    /// Digests to request in ICReq.
    pub digests: Digests,
    /// Size of the command table, rounded up to a power of two. The CIDs of outstanding commands
    /// must differ modulo this size.
    pub slots: u32,
    /// This is an I/O queue: a successful Read, Write or Compare must have transferred all its
    /// data. Other commands, such as Get Log Page, may return less than the buffer holds.
    pub io: bool,
    /// Size of the receive buffer, in bytes, through which headers and payload pass.
    pub room: usize,
}

/// What [`Initiator::poll`] reports to the connection's owner.
#[derive(Debug, PartialEq, Eq)]
pub enum InitiatorEvent<B> {
    /// ICResp was accepted. The digests that are in use: at most those requested.
    Greeted(Digests),
    /// A command has completed.
    Completed {
        /// Its entry. SQID is not valid on a fabric, and SQHD is not used.
        cqe: Cqe,
        /// The buffer that was passed to [`Initiator::submit`].
        buffer: Option<B>,
    },
    /// The connection has ended; close it once all output has been sent.
    Ended {
        /// The error, as in the TermReq.
        term: Term,
        /// The controller sent C2HTermReq; otherwise this side terminates the connection.
        by_controller: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Open,
    Ended,
}

/// An outstanding command.
#[derive(Debug)]
struct Command<B> {
    cid: u16,
    direction: Direction,
    buffer: Option<B>,
    len: u32,
    /// Bytes of data that were received, or queued for sending.
    moved: u32,
    /// The command may only succeed once all `len` bytes have been transferred.
    exact: bool,
    /// C2HData with LAST_PDU was received.
    last: bool,
    /// Every data digest so far was correct.
    intact: bool,
}

/// State machine of one connection. The owner reads from the socket into [`Initiator::room`], sends
/// [`Initiator::output`], and calls [`Initiator::poll`] until it returns `None`.
#[derive(Debug)]
pub struct Initiator<M: PayloadMemory> {
    config: InitiatorConfig,
    state: State,
    receiver: Receiver<M>,
    out: SendList,
    digests: Digests,
    /// CPDA: alignment of data that are sent to the controller, in dwords, 0's based.
    alignment: u8,
    /// MAXH2CDATA: maximum bytes of data in an H2CData PDU.
    h2c_data: u32,
    /// Maximum bytes of in-capsule data.
    in_capsule: u32,
    /// Outstanding commands by CID modulo the table's size.
    commands: Box<[Option<Command<M::Buffer>>]>,
    /// Number of outstanding commands.
    open: u32,
    /// Data to be queued by [`Initiator::push_data`]. Kept, so that all short data share one
    /// allocation.
    data: Vec<u8>,
    /// Command whose data are being received, and the FLAGS of their PDU.
    placing: Option<(usize, u8)>,
}

impl<M: PayloadMemory> Initiator<M> {
    /// Bytes of in-capsule data that every controller accepts on an admin queue, and for Fabrics
    /// commands: 8 KiB.
    pub const CAPSULE: u32 = 8192;
    /// The smallest MAXH2CDATA that a controller may report, in bytes.
    const MIN_H2C_DATA: u32 = 4096;

    /// State of a connection that was just established; queues ICReq.
    pub fn new(config: InitiatorConfig, memory: M) -> Initiator<M> {
        let slots = config.slots.next_power_of_two();
        let mut initiator = Initiator {
            config,
            state: State::New,
            receiver: Receiver::with_memory(Side::Host, memory),
            out: SendList::default(),
            digests: Digests::default(),
            alignment: 0,
            h2c_data: Self::MIN_H2C_DATA,
            in_capsule: 0,
            commands: (0..slots).map(|_| None).collect(),
            open: 0,
            data: Vec::new(),
            placing: None,
        };
        // HPDA 0: data are dword aligned. MAXR2T 0: one outstanding R2T per command is enough, as
        // `r2t` queues the data of each R2T at once.
        initiator.push(Pdu::new(Body::IcReq(Greeting {
            digests: config.digests.bits(),
            ..Greeting::default()
        })));
        initiator
    }

    /// Buffer for the next read of the socket; see [`Receiver::room`].
    pub fn room(&mut self) -> &mut [u8] {
        self.receiver.room()
    }

    /// `n` bytes were read into [`Initiator::room`].
    pub fn received(&mut self, n: usize) {
        self.receiver.stored(n);
    }

    /// Bytes to be sent.
    pub fn output(&self) -> &SendList {
        &self.out
    }

    /// `n` bytes of [`Initiator::output`] were sent.
    pub fn sent(&mut self, n: usize) {
        self.out.advance(n);
    }

    /// Sets the limit of in-capsule data in bytes: 16 × IOCCSZ − 64 for an I/O queue,
    /// [`Initiator::CAPSULE`] for an admin queue. 0 until then.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes;
    }

    /// Number of outstanding commands.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Queues a command, and fills in its data pointer. `buffer`: the payload buffer and its length
    /// in bytes; the contents must not change until the command completes. Returns false if the
    /// connection is not open, the CID is in use, or the buffer no longer exists.
    pub fn submit(&mut self, mut sqe: Sqe, buffer: Option<(M::Buffer, u32)>) -> bool {
        let slot = self.slot(sqe.cid);
        if self.state != State::Open || self.commands[slot].is_some() {
            return false;
        }
        let direction = direction_of(&sqe);
        let (buffer, len) = buffer.map_or((None, 0), |(buffer, len)| (Some(buffer), len));
        let limit =
            if sqe.opcode == opcode::admin::FABRICS { Self::CAPSULE } else { self.in_capsule };
        let in_capsule = direction == Direction::ToController && len > 0 && len <= limit;
        // A command without data has a transport SGL of length 0, as in Linux
        // (`nvme_tcp_set_sg_null`).
        let sgl =
            if in_capsule { Descriptor::in_capsule(0, len) } else { Descriptor::transport(len) };
        let dptr = sgl.dptr();
        // On a fabric every command uses an SGL (PSDT = 01b), with or without data.
        (sqe.flags, sqe.prp1, sqe.prp2) =
            (sqe.flags & !0b1100_0000 | Sqe::PSDT_SGL, dptr.prp1, dptr.prp2);
        // If the buffer is gone, the command fails: sending zeroes instead would corrupt the
        // medium.
        if in_capsule
            && let Some(buffer) = &buffer
            && !self.receiver.memory().read(buffer, 0..len as usize, &mut self.data)
        {
            return false;
        }
        let moved = if in_capsule { len } else { 0 };
        let exact = self.config.io
            && matches!(sqe.opcode, opcode::io::READ | opcode::io::WRITE | opcode::io::COMPARE);
        self.commands[slot] = Some(Command {
            cid: sqe.cid,
            direction,
            buffer,
            len,
            moved,
            exact,
            last: false,
            intact: true,
        });
        self.open += 1;
        if in_capsule {
            self.push_data(Pdu { flags: 0, body: Body::CapsuleCmd(sqe), data: len });
        } else {
            self.push(Pdu::new(Body::CapsuleCmd(sqe)));
        }
        true
    }

    /// The next event, or `None` if more bytes are needed.
    pub fn poll(&mut self) -> Option<InitiatorEvent<M::Buffer>> {
        while self.state != State::Ended {
            let taken = match self.receiver.take() {
                Ok(None) => return None,
                Ok(Some(Item::Head(pdu))) => self.take(&pdu),
                Ok(Some(Item::Data { buffer, intact })) => self.placed(buffer, intact),
                Err(violation) => Err(violation),
            };
            match taken {
                Ok(None) => {}
                Ok(event) => return event,
                Err(violation) => return Some(self.terminate(violation)),
            }
        }
        None
    }

    fn take(&mut self, pdu: &Pdu) -> Result<Option<InitiatorEvent<M::Buffer>>, Violation> {
        match pdu.body {
            Body::IcResp(response) if self.state == State::New => self.greeted(response).map(Some),
            Body::C2hTermReq(term) => {
                self.state = State::Ended;
                Ok(Some(InitiatorEvent::Ended { term, by_controller: true }))
            }
            _ if self.state == State::New => Err(Violation::of(Fes::SEQUENCE_ERROR)),
            Body::CapsuleResp(cqe) => {
                // The CID's offset in the PDU: 8 bytes of common header, 12 bytes into the entry.
                let slot = self.find(cqe.cid, 20)?;
                self.complete(slot, cqe).map(Some)
            }
            Body::R2t(r2t) => self.r2t(r2t).map(|()| None),
            Body::C2hData(data) => self.c2h_data(pdu, data).map(|()| None),
            _ => Err(Violation::of(Fes::SEQUENCE_ERROR)),
        }
    }

    fn greeted(&mut self, response: Greeting) -> Result<InitiatorEvent<M::Buffer>, Violation> {
        let (agreed, requested) = (Digests::from_bits(response.digests), self.config.digests);
        if response.version.get() != 0 {
            return Err(Violation::unsupported(Greeting::VERSION_AT));
        }
        if response.alignment > 31 {
            return Err(Violation::field(Greeting::ALIGNMENT_AT));
        }
        // The controller may only enable digests that were requested.
        if response.digests & !requested.bits() != 0 {
            return Err(Violation::field(Greeting::DIGESTS_AT));
        }
        let h2c_data = response.limit.get();
        if h2c_data < Self::MIN_H2C_DATA {
            return Err(Violation::field(Greeting::DIGESTS_AT + 1));
        }
        // MAXH2CDATA is rounded down, so that each H2CData ends dword aligned.
        (self.digests, self.alignment, self.h2c_data) = (agreed, response.alignment, h2c_data & !3);
        self.state = State::Open;
        self.receiver.begin(agreed, self.config.room);
        Ok(InitiatorEvent::Greeted(agreed))
    }

    fn slot(&self, cid: u16) -> usize {
        usize::from(cid) & (self.commands.len() - 1)
    }

    /// The slot of the outstanding command with this CID. `at`: byte offset of the CID in the PDU,
    /// for the TermReq.
    fn find(&self, cid: u16, at: u32) -> Result<usize, Violation> {
        let slot = self.slot(cid);
        match &self.commands[slot] {
            Some(command) if command.cid == cid => Ok(slot),
            _ => Err(Violation::field(at)),
        }
    }

    /// R2T: queues the requested data of a write.
    fn r2t(&mut self, r2t: Data) -> Result<(), Violation> {
        let slot = self.find(r2t.cid.get(), Data::CID_AT)?;
        let Some(command) = &mut self.commands[slot] else { return Ok(()) };
        let (offset, len) = (r2t.offset.get(), r2t.len.get());
        if command.direction != Direction::ToController {
            return Err(Violation::field(Data::CID_AT));
        }
        if len == 0 {
            return Err(Violation::field(Data::LEN_AT));
        }
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= command.len)
            .ok_or(Violation::of(Fes::OUT_OF_RANGE))?;
        // R2Ts of a command must be in order and must not overlap, so that the queued bytes never
        // exceed the data of the outstanding commands.
        if offset != command.moved {
            return Err(Violation::field(Data::OFFSET_AT));
        }
        command.moved = end;
        // Taken out of the table, as `push_data` borrows `self`.
        let Some(buffer) = command.buffer.take() else {
            return Err(Violation::field(Data::CID_AT));
        };
        let mut at = offset;
        while at < end {
            let piece = self.h2c_data.min(end - at);
            let range = at as usize..(at + piece) as usize;
            if !self.receiver.memory().read(&buffer, range, &mut self.data) {
                return Err(Violation::of(Fes::OUT_OF_RANGE));
            }
            let body = Body::H2cData(Data {
                cid: r2t.cid,
                tag: r2t.tag,
                offset: at.into(),
                len: piece.into(),
                ..Data::default()
            });
            at += piece;
            let flags = if at == end { flags::LAST } else { 0 };
            self.push_data(Pdu { flags, body, data: piece });
        }
        if let Some(command) = &mut self.commands[slot] {
            command.buffer = Some(buffer);
        }
        Ok(())
    }

    /// Validates a C2HData header and sets the payload's destination.
    fn c2h_data(&mut self, pdu: &Pdu, data: Data) -> Result<(), Violation> {
        let slot = self.find(data.cid.get(), Data::CID_AT)?;
        let Some(command) = &mut self.commands[slot] else { return Ok(()) };
        let (offset, len) = (data.offset.get(), data.len.get());
        if command.direction != Direction::ToHost || command.last {
            return Err(Violation::field(Data::CID_AT));
        }
        if len != pdu.data {
            return Err(Violation::field(Data::LEN_AT));
        }
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= command.len)
            .ok_or(Violation::of(Fes::OUT_OF_RANGE))?;
        if offset != command.moved {
            return Err(Violation::field(Data::OFFSET_AT));
        }
        // SUCCESS is only valid with LAST_PDU (TCP 3.6.2.9).
        if pdu.flags & flags::SUCCESS != 0 && pdu.flags & flags::LAST == 0 {
            return Err(Violation::field(1));
        }
        let Some(buffer) = command.buffer.take() else {
            return Err(Violation::field(Data::CID_AT));
        };
        (command.moved, command.last) = (end, pdu.flags & flags::LAST != 0);
        self.receiver.place(buffer, offset as usize, len);
        self.placing = Some((slot, pdu.flags));
        Ok(())
    }

    /// The payload of a C2HData has been received.
    fn placed(
        &mut self,
        buffer: M::Buffer,
        intact: bool,
    ) -> Result<Option<InitiatorEvent<M::Buffer>>, Violation> {
        let Some((slot, flags)) = self.placing.take() else { return Ok(None) };
        let Some(command) = &mut self.commands[slot] else { return Ok(None) };
        command.buffer = Some(buffer);
        command.intact &= intact;
        if flags & flags::SUCCESS == 0 {
            return Ok(None);
        }
        let cqe = Cqe::new(Cid(command.cid), QueueId(0), 0, Status::SUCCESS, 0, false);
        self.complete(slot, cqe).map(Some)
    }

    fn complete(&mut self, slot: usize, cqe: Cqe) -> Result<InitiatorEvent<M::Buffer>, Violation> {
        let short = self.commands[slot]
            .as_ref()
            .is_some_and(|command| command.exact && command.len > command.moved);
        if short && cqe.status().is_success() {
            return Err(Violation::of(Fes::SEQUENCE_ERROR));
        }
        let command = self.commands[slot].take();
        self.open -= 1;
        let spoilt =
            command.as_ref().is_some_and(|command| !command.intact) && cqe.status().is_success();
        let status = if spoilt { Status::TRANSIENT_TRANSPORT_ERROR } else { cqe.status() };
        Ok(InitiatorEvent::Completed {
            cqe: cqe.with_status(status, false),
            buffer: command.and_then(|command| command.buffer),
        })
    }

    /// Terminates the connection: sends H2CTermReq with the offending header.
    fn terminate(&mut self, Violation(term): Violation) -> InitiatorEvent<M::Buffer> {
        let quoted = self.receiver.last_header().to_vec();
        self.push(Pdu { flags: 0, body: Body::H2cTermReq(term), data: quoted.len() as u32 });
        self.out.push_header(&quoted);
        self.state = State::Ended;
        InitiatorEvent::Ended { term, by_controller: false }
    }

    fn push(&mut self, pdu: Pdu) {
        let (prefix, len) = pdu.encode_prefix(self.digests, self.alignment);
        self.out.push_header(&prefix[..len]);
    }

    /// Queues a PDU: its header, the contents of `self.data`, and their digest.
    fn push_data(&mut self, pdu: Pdu) {
        self.push(pdu);
        let digest = self.digests.data.then(|| crate::digest(&self.data));
        // Short data are copied next to their header, so that a batch is sent from one buffer.
        if self.data.len() <= 4096 {
            self.out.push_header(&self.data)
        } else {
            self.out.push_data(std::mem::take(&mut self.data))
        }
        if let Some(digest) = digest {
            self.out.push_header(&digest.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
