//! The host's end of one connection: a queue pair (TCP 3.1).
//!
//! ```text
//!   ICReq ─►            ◄─ ICResp
//!   CapsuleCmd, with data up to the limit ─►
//!                       ◄─ R2T           for longer writes
//!   H2CData, each of MAXH2CDATA at most ─►
//!                       ◄─ C2HData       of reads; with SUCCESS no response follows
//!                       ◄─ CapsuleResp
//! ```
//!
//! A command completes once: its response, or the C2HData with SUCCESS, must name a command that is
//! out. A successful response must come after all data have moved, so that a short transfer is
//! never taken for a whole one.

use nvme::fabrics::{Direction, direction_of};
use nvme::sgl::Descriptor;
use nvme::{Cid, Cqe, QueueId, Sqe, Status, opcode};

use crate::pdu::{Body, Data, Digests, Fes, Greeting, Pdu, Side, Term, Violation, flags};
use crate::receive::{Item, PayloadMemory, Receiver};
use crate::send::SendList;

/// What a connection asks for, and how its queue is used.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorConfig {
    /// Digests to ask for.
    pub digests: Digests,
    /// Commands have identifiers that differ modulo this power of two.
    pub slots: u32,
    /// It is an I/O queue: a successful Read, Write or Compare must have moved all its data. Of
    /// other commands, such as Get Log Page, there may be fewer than the buffer has room for.
    pub io: bool,
    /// Bytes that are received at one time, besides payload.
    pub room: usize,
}

/// What a connection's owner has to know.
#[derive(Debug, PartialEq, Eq)]
pub enum InitiatorEvent<B> {
    /// The controller has agreed to these digests, of those that were asked for.
    Greeted(Digests),
    /// A command is over.
    Completed {
        /// Its entry; SQID and SQHD mean nothing.
        cqe: Cqe,
        /// Its buffer.
        buffer: Option<B>,
    },
    /// The connection is over once everything has been sent.
    Ended {
        /// What was wrong.
        term: Term,
        /// The controller has ended it, and not this side.
        by_controller: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Open,
    Ended,
}

/// A command that is out.
#[derive(Debug)]
struct Command<B> {
    cid: u16,
    direction: Direction,
    buffer: Option<B>,
    len: u32,
    /// Bytes that have been received, or that were sent or are about to be.
    moved: u32,
    /// Success means that all bytes have moved.
    exact: bool,
    /// C2HData with LAST_PDU has come.
    last: bool,
    /// No digest of data was wrong.
    intact: bool,
}

/// The state machine. The owner moves bytes between a socket and [`Initiator::room`],
/// [`Initiator::output`], and asks [`Initiator::poll`] what has come until there is nothing.
#[derive(Debug)]
pub struct Initiator<M: PayloadMemory> {
    config: InitiatorConfig,
    state: State,
    receiver: Receiver<M>,
    out: SendList,
    digests: Digests,
    /// CPDA.
    alignment: u8,
    /// MAXH2CDATA.
    h2c_data: u32,
    /// Most bytes of data in a capsule.
    in_capsule: u32,
    /// By identifier, modulo their number.
    commands: Box<[Option<Command<M::Buffer>>]>,
    /// Commands that are out.
    open: u32,
    /// Whose data are being received, with the flags of their PDU.
    placing: Option<(usize, u8)>,
}

impl<M: PayloadMemory> Initiator<M> {
    /// Bytes of data that a capsule of an admin queue, or of a Fabrics command, may have (TCP
    /// 3.3.2).
    pub const CAPSULE: u32 = 8192;
    /// Fewest bytes of MAXH2CDATA.
    const LEAST_H2C_DATA: u32 = 4096;

    /// A connection that has just been made. ICReq is to be sent.
    pub fn new(config: InitiatorConfig, memory: M) -> Initiator<M> {
        let slots = config.slots.next_power_of_two();
        let mut initiator = Initiator {
            config,
            state: State::New,
            receiver: Receiver::with_memory(Side::Host, memory),
            out: SendList::default(),
            digests: Digests::default(),
            alignment: 0,
            h2c_data: Self::LEAST_H2C_DATA,
            in_capsule: 0,
            commands: (0..slots).map(|_| None).collect(),
            open: 0,
            placing: None,
        };
        // HPDA 0: data may begin at any multiple of 4. MAXR2T 0: one R2T for a command at a time,
        // which is answered at once.
        initiator.push(Pdu::new(Body::IcReq(Greeting {
            digests: config.digests.bits(),
            ..Greeting::default()
        })));
        initiator
    }

    /// Room for the next bytes; see [`Receiver::room`].
    pub fn room(&mut self) -> &mut [u8] {
        self.receiver.room()
    }

    /// `n` bytes were received into the room.
    pub fn received(&mut self, n: usize) {
        self.receiver.stored(n);
    }

    /// What is to be sent.
    pub fn output(&self) -> &SendList {
        &self.out
    }

    /// `n` bytes of the output were sent.
    pub fn sent(&mut self, n: usize) {
        self.out.sent(n);
    }

    /// Most bytes of data in a capsule: 16 × IOCCSZ − 64 of an I/O queue, [`Initiator::CAPSULE`] of
    /// an admin queue. 0 until it is set.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes;
    }

    /// Commands that are out.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Sends a command, whose data pointer is set here. `buffer`: its data, and how many bytes. The
    /// buffer stays as it is until the command is over. False: the connection is not open, or
    /// another command has this identifier,
    /// or its data are not there.
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
        // A command without data has a transport SGL of length 0, as Linux sends it.
        let sgl =
            if in_capsule { Descriptor::in_capsule(0, len) } else { Descriptor::transport(len) };
        let dptr = sgl.dptr();
        // PSDT is 01b also where there are no data (Base 4.1.1).
        (sqe.flags, sqe.prp1, sqe.prp2) =
            (sqe.flags & !0b1100_0000 | Sqe::PSDT_SGL, dptr.prp1, dptr.prp2);
        let capsule = match &buffer {
            Some(buffer) if in_capsule => {
                match self.receiver.memory().read(buffer, 0..len as usize) {
                    // Nothing else may be written in their place.
                    None => return false,
                    data => data,
                }
            }
            _ => None,
        };
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
        match capsule {
            Some(data) => {
                self.push_data(Pdu { flags: 0, body: Body::CapsuleCmd(sqe), data: len }, data)
            }
            None => self.push(Pdu::new(Body::CapsuleCmd(sqe))),
        }
        true
    }

    /// The next thing that has come.
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
            Body::IcResp(answer) if self.state == State::New => self.greeted(answer).map(Some),
            Body::C2hTermReq(term) => {
                self.state = State::Ended;
                Ok(Some(InitiatorEvent::Ended { term, by_controller: true }))
            }
            _ if self.state == State::New => Err(Violation::of(Fes::SEQUENCE_ERROR)),
            Body::CapsuleResp(cqe) => {
                // CID is at byte 12 of the entry, after the common header.
                let slot = self.find(cqe.cid, 20)?;
                self.complete(slot, cqe).map(Some)
            }
            Body::R2t(r2t) => self.r2t(r2t).map(|()| None),
            Body::C2hData(data) => self.c2h_data(pdu, data).map(|()| None),
            _ => Err(Violation::of(Fes::SEQUENCE_ERROR)),
        }
    }

    fn greeted(&mut self, answer: Greeting) -> Result<InitiatorEvent<M::Buffer>, Violation> {
        let (agreed, asked) = (Digests::from_bits(answer.digests), self.config.digests);
        if answer.version.get() != 0 {
            return Err(Violation::unsupported(Greeting::VERSION_AT));
        }
        if answer.alignment > 31 {
            return Err(Violation::field(Greeting::ALIGNMENT_AT));
        }
        // No digest that was not asked for.
        if answer.digests & !asked.bits() != 0 {
            return Err(Violation::field(Greeting::DIGESTS_AT));
        }
        let h2c_data = answer.limit.get();
        if h2c_data < Self::LEAST_H2C_DATA {
            return Err(Violation::field(Greeting::DIGESTS_AT + 1));
        }
        // Pieces end at a multiple of 4, as data do.
        (self.digests, self.alignment, self.h2c_data) = (agreed, answer.alignment, h2c_data & !3);
        self.state = State::Open;
        self.receiver.begin(agreed, self.config.room);
        Ok(InitiatorEvent::Greeted(agreed))
    }

    fn slot(&self, cid: u16) -> usize {
        usize::from(cid) & (self.commands.len() - 1)
    }

    /// The command that a PDU names at byte `at`.
    fn find(&self, cid: u16, at: u32) -> Result<usize, Violation> {
        let slot = self.slot(cid);
        match &self.commands[slot] {
            Some(command) if command.cid == cid => Ok(slot),
            _ => Err(Violation::field(at)),
        }
    }

    /// The controller is ready for data of a write.
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
        // Each byte is asked for once, in order. So what waits to be sent is no more than the data
        // of the commands that are out.
        if offset != command.moved {
            return Err(Violation::field(Data::OFFSET_AT));
        }
        command.moved = end;
        // Taken out for the loop, which sends.
        let Some(buffer) = command.buffer.take() else {
            return Err(Violation::field(Data::CID_AT));
        };
        let mut at = offset;
        while at < end {
            let piece = self.h2c_data.min(end - at);
            let data = self.receiver.memory().read(&buffer, at as usize..(at + piece) as usize);
            let data = data.ok_or(Violation::of(Fes::OUT_OF_RANGE))?;
            let body = Body::H2cData(Data {
                cid: r2t.cid,
                tag: r2t.tag,
                offset: at.into(),
                len: piece.into(),
                ..Data::default()
            });
            at += piece;
            self.push_data(
                Pdu { flags: if at == end { flags::LAST } else { 0 }, body, data: piece },
                data,
            );
        }
        if let Some(command) = &mut self.commands[slot] {
            command.buffer = Some(buffer);
        }
        Ok(())
    }

    /// The header of data of a read.
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
        // A C2HData with SUCCESS is the last one (TCP 3.6.2.9).
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

    /// Data of a read are in place.
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

    /// Ends the connection.
    fn terminate(&mut self, Violation(term): Violation) -> InitiatorEvent<M::Buffer> {
        let quoted = self.receiver.last_header().to_vec();
        self.push(Pdu { flags: 0, body: Body::H2cTermReq(term), data: quoted.len() as u32 });
        self.out.push_head(&quoted);
        self.state = State::Ended;
        InitiatorEvent::Ended { term, by_controller: false }
    }

    fn push(&mut self, pdu: Pdu) {
        let (head, len) = pdu.head(self.digests, self.alignment);
        self.out.push_head(&head[..len]);
    }

    fn push_data(&mut self, pdu: Pdu, data: Vec<u8>) {
        self.push(pdu);
        let digest = self.digests.data.then(|| crate::digest(&data));
        // Short data are copied next to their header, so that a batch is one piece.
        if data.len() <= 4096 {
            self.out.push_head(&data)
        } else {
            self.out.push_data(data)
        }
        if let Some(digest) = digest {
            self.out.push_head(&digest.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
