//! Controller's end of one NVMe/TCP connection, that is, of one queue pair.
//!
//! ```text
//!   host                                    target
//!    │ ICReq (PFV, HPDA, digests, MAXR2T) ──► │  New
//!    │ ◄── ICResp (CPDA, digests, MAXH2CDATA) │  Open, Event::Greeted
//!    │ CapsuleCmd [+ in-capsule data] ──────► │  Event::Command, once all its data are here
//!    │ ◄── R2T (tag, offset, length)          │  a write without in-capsule data
//!    │ H2CData × n, LAST_PDU on the last ───► │  Event::Command
//!    │ ◄── C2HData (LAST_PDU [SUCCESS])       │  complete(), for a read
//!    │ ◄── CapsuleResp                        │  complete(), unless SUCCESS replaced it
//!    │ ◄── C2HTermReq                         │  Ended, on a protocol violation
//! ```
//!
//! A command that needs a payload buffer waits until the owner has memory for the buffer, so that a
//! server with many connections can bound the sum of their buffers.

use std::collections::VecDeque;

use nvme::fabrics::{Direction, direction_of};
use nvme::sgl::Descriptor;
use nvme::{Cid, Cqe, QueueId, Sqe, Status};

use crate::pdu::{
    Body, DIGEST, Data, Digests, Fes, Greeting, PLEN_AT, Pdu, Side, Term, Violation, flags,
};
use crate::receive::{Item, Receiver};
use crate::send::SendList;

/// Limits of one connection: offered in ICResp and Identify Controller, and enforced.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Digests to accept if the host requests them.
    pub digests: Digests,
    /// Maximum bytes of in-capsule data on an I/O queue (IOCCSZ). If it is less than
    /// [`Limits::CAPSULE`], [`Limits::CAPSULE`] bytes are accepted.
    pub in_capsule: u32,
    /// MAXH2CDATA: maximum bytes of data in an H2CData PDU; a multiple of 4, at least 4096.
    pub h2c_data: u32,
    /// Maximum bytes of data of one command.
    pub transfer: u32,
    /// Maximum bytes that one R2T requests.
    pub r2t: u32,
    /// Size of the receive buffer for headers, in bytes; payload has buffers of its own.
    pub room: usize,
}

impl Limits {
    /// Bytes of in-capsule data that an admin queue must accept: 8 KiB.
    pub const CAPSULE: u32 = 8192;
    /// Maximum number of outstanding R2Ts per command, even if the host's MAXR2T allows more.
    const MAX_R2TS: u32 = 16;
}

/// What [`Target::poll`] reports to the connection's owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// ICReq was accepted, with these digests.
    Greeted(Digests),
    /// A command is ready to be executed. For a read the buffer is zeroed, to be filled in and
    /// passed to [`Target::complete`].
    Command {
        /// The submission queue entry as received.
        sqe: Sqe,
        /// All data of a write, or the buffer for a read.
        data: Vec<u8>,
    },
    /// The connection has ended; close it once all output has been sent.
    Ended {
        /// The error, as in the TermReq.
        term: Term,
        /// The host sent H2CTermReq; otherwise this side terminates the connection.
        by_host: bool,
    },
}

/// A protocol error that the target makes on purpose, once (fault injection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// The next header digest is wrong.
    HeaderDigest,
    /// The next data digest is wrong.
    DataDigest,
    /// The next R2T requests data beyond the command's length.
    R2t,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Open,
    Ended,
}

/// A write whose data are transferred by R2T and H2CData.
#[derive(Debug)]
struct Transfer {
    sqe: Sqe,
    buffer: Vec<u8>,
    /// Bytes that R2Ts have requested so far.
    asked: u32,
    /// Bytes of the R2Ts whose data have been received completely.
    received: u32,
    /// Outstanding R2Ts, at most MAXR2T.
    r2ts: u32,
    /// A data digest was wrong: the command fails once all its data have arrived.
    spoilt: bool,
}

/// An outstanding R2T. Its index is the Transfer Tag (TTAG).
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Index in [`Target::transfers`].
    transfer: usize,
    offset: u32,
    len: u32,
    received: u32,
}

/// Destination of the payload that is being received.
#[derive(Clone, Copy, Debug)]
enum Placing {
    Capsule(Sqe),
    Transfer { tag: usize },
}

/// State machine of one connection. The owner reads from the socket into [`Target::space`], sends
/// [`Target::output`], calls [`Target::poll`] until it returns `None`, and completes each command
/// by [`Target::complete`].
#[derive(Debug)]
pub struct Target {
    limits: Limits,
    state: State,
    receiver: Receiver,
    out: SendList,
    digests: Digests,
    /// HPDA: alignment of data that are sent to the host, in dwords, 0's based.
    alignment: u8,
    /// Maximum number of outstanding R2Ts per command: the host's MAXR2T, at most
    /// [`Limits::MAX_R2TS`].
    max_r2ts: u32,
    /// Entries of the submission queue, from Connect.
    entries: u32,
    /// SQ flow control is on: responses report SQHD.
    flow_control: bool,
    /// SQHD: completed commands modulo `entries`.
    head: u32,
    /// CIDs of outstanding commands, with the bytes of their buffers. There are so few that a
    /// linear search is cheaper than a hash table.
    open: Vec<(u16, u32)>,
    /// Commands that wait for buffer memory.
    waiting: VecDeque<Sqe>,
    /// A command whose in-capsule data wait for buffer memory, and the bytes of data. Nothing is
    /// received until then, as these data come next in the stream.
    capsule: Option<(Sqe, u32)>,
    transfers: Vec<Option<Transfer>>,
    asked: Vec<Option<Asked>>,
    placing: Option<Placing>,
    /// Bytes of all payload buffers of this connection, including data that are being sent.
    held: u64,
    /// The next protocol error to make on purpose.
    pub tamper: Option<Tamper>,
}

impl Target {
    /// State of a connection that was just accepted.
    pub fn new(limits: Limits) -> Target {
        Target {
            limits,
            state: State::New,
            receiver: Receiver::new(Side::Controller),
            out: SendList::default(),
            digests: Digests::default(),
            alignment: 0,
            max_r2ts: 1,
            // One entry until Connect, which must be the first command, sets the queue size.
            entries: 1,
            flow_control: true,
            head: 0,
            open: Vec::new(),
            waiting: VecDeque::new(),
            capsule: None,
            transfers: Vec::new(),
            asked: Vec::new(),
            placing: None,
            held: 0,
            tamper: None,
        }
    }

    /// Buffers for the next read of the socket; see [`Receiver::space`].
    pub fn space(&mut self) -> [&mut [u8]; 2] {
        self.receiver.space()
    }

    /// `n` bytes were read into [`Target::space`].
    pub fn filled(&mut self, n: usize) {
        self.receiver.filled(n);
    }

    /// Bytes to be sent.
    pub fn output(&self) -> &SendList {
        &self.out
    }

    /// `n` bytes of [`Target::output`] were sent.
    pub fn sent(&mut self, n: usize) {
        self.held -= (self.out.advance(n) as u64).min(self.held);
    }

    /// Bytes of this connection's payload buffers. From it the owner computes the `free` memory
    /// that it passes to [`Target::poll`].
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The negotiated digests.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Whether a command waits for buffer memory.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.capsule.is_some()
    }

    /// Whether in-capsule data wait for buffer memory. Nothing more may be read from the socket
    /// until [`Target::poll`] has allocated the buffer.
    pub fn is_blocked(&self) -> bool {
        self.capsule.is_some()
    }

    /// Whether the host still has to send data, announced in a capsule or requested by R2T.
    pub fn awaits_data(&self) -> bool {
        self.placing.is_some() || self.asked.iter().any(Option::is_some)
    }

    /// To be called when Connect has succeeded: the queue has `entries` entries; without
    /// `flow_control` SQHD is not reported.
    pub fn connect(&mut self, entries: u32, flow_control: bool) {
        (self.entries, self.flow_control) = (entries.max(1), flow_control);
    }

    /// The next event, or `None` if more bytes or more memory are needed. `free`: bytes of buffer
    /// memory still available; a command that needs more waits.
    pub fn poll(&mut self, free: u64) -> Option<Event> {
        // A command that is admitted in this loop reduces the memory that is left for the next.
        let limit = self.held.saturating_add(free);
        while self.state != State::Ended {
            let free = limit.saturating_sub(self.held);
            if let Some(sqe) =
                self.waiting.front().copied().filter(|sqe| u64::from(len_of(sqe)) <= free)
            {
                self.waiting.pop_front();
                if let Some(event) = self.admit(sqe) {
                    return Some(event);
                }
                continue;
            }
            if let Some((sqe, len)) = self.capsule {
                if u64::from(len) > free {
                    return None;
                }
                self.capsule = None;
                // Allocated before its data arrive; a slow host may hold the memory for long.
                self.held += u64::from(len);
                self.receiver.place(vec![0; len as usize], 0, len);
                self.placing = Some(Placing::Capsule(sqe));
            }
            match self.receiver.take() {
                Ok(None) => return None,
                Ok(Some(item)) => match self.take(item) {
                    Ok(None) => {}
                    Ok(event) => return event,
                    Err(violation) => return Some(self.terminate(violation)),
                },
                Err(violation) => return Some(self.terminate(violation)),
            }
        }
        None
    }

    fn take(&mut self, item: Item) -> Result<Option<Event>, Violation> {
        let pdu = match item {
            Item::Head(pdu) => pdu,
            Item::Data { buffer, intact } => {
                return Ok(match self.placing.take() {
                    Some(Placing::Capsule(sqe)) => {
                        self.held -= (buffer.len() as u64).min(self.held);
                        self.capsule(sqe, Some((buffer, intact)))
                    }
                    Some(Placing::Transfer { tag }) => self.transferred(tag, buffer, intact),
                    None => None,
                });
            }
        };
        match pdu.body {
            Body::IcReq(request) if self.state == State::New => self.greet(request).map(Some),
            Body::H2cTermReq(term) => {
                self.state = State::Ended;
                Ok(Some(Event::Ended { term, by_host: true }))
            }
            _ if self.state == State::New => Err(Violation::of(Fes::SEQUENCE_ERROR)),
            Body::CapsuleCmd(sqe) => {
                // More commands than the queue has entries: on PCIe the tail would have overtaken
                // the head.
                if self.open.len() as u32 + self.waiting.len() as u32 >= self.entries {
                    return Err(Violation::of(Fes::SEQUENCE_ERROR));
                }
                if pdu.data > self.limits.in_capsule.max(Limits::CAPSULE) {
                    return Err(Violation::field(PLEN_AT));
                }
                if pdu.data == 0 {
                    return Ok(self.capsule(sqe, None));
                }
                self.capsule = Some((sqe, pdu.data));
                Ok(None)
            }
            Body::H2cData(data) => self.h2c_data(&pdu, data).map(|()| None),
            _ => Err(Violation::of(Fes::SEQUENCE_ERROR)),
        }
    }

    fn greet(&mut self, request: Greeting) -> Result<Event, Violation> {
        if request.version.get() != 0 {
            return Err(Violation::unsupported(Greeting::VERSION_AT));
        }
        // HPDA is 0's based, in dwords: 31 means 128 bytes, the largest alignment that the 8-bit
        // PDO can express (TCP 3.6.2.2).
        if request.alignment > 31 {
            return Err(Violation::field(Greeting::ALIGNMENT_AT));
        }
        if request.digests > 3 {
            return Err(Violation::field(Greeting::DIGESTS_AT));
        }
        let requested = Digests::from_bits(request.digests);
        let agreed = Digests {
            header: requested.header && self.limits.digests.header,
            data: requested.data && self.limits.digests.data,
        };
        let response = Greeting {
            digests: agreed.bits(),
            limit: self.limits.h2c_data.into(),
            ..Greeting::default()
        };
        self.push(Pdu::new(Body::IcResp(response)));
        (self.digests, self.alignment, self.state) = (agreed, request.alignment, State::Open);
        // MAXR2T is 0's based.
        self.max_r2ts = request.limit.get().saturating_add(1).min(Limits::MAX_R2TS);
        self.receiver.begin(agreed, self.limits.room);
        Ok(Event::Greeted(agreed))
    }

    /// Validates a command whose capsule is complete. A command that fails is completed here.
    fn capsule(&mut self, sqe: Sqe, data: Option<(Vec<u8>, bool)>) -> Option<Event> {
        let sgl = Descriptor::of(sqe.dptr());
        let direction = direction_of(&sqe);
        let status = match (&data, direction) {
            _ if self.open.iter().any(|(cid, _)| *cid == sqe.cid)
                || self.waiting.iter().any(|other| other.cid == sqe.cid) =>
            {
                Status::COMMAND_ID_CONFLICT
            }
            (Some((_, false)), _) => Status::TRANSIENT_TRANSPORT_ERROR,
            // NVMe/TCP has no PRPs.
            _ if sqe.flags & 0b1100_0000 != Sqe::PSDT_SGL => Status::INVALID_FIELD.with_dnr(),
            (_, Direction::None | Direction::Both) => Status::SUCCESS,
            _ if sgl.len == 0 => Status::SUCCESS,
            (Some((bytes, _)), Direction::ToController) if sgl.is_in_capsule() => {
                let end = sgl.addr.checked_add(sgl.len.into());
                let fits = end.is_some_and(|end| end <= bytes.len() as u64);
                if fits { Status::SUCCESS } else { Status::SGL_OFFSET_INVALID.with_dnr() }
            }
            // Checked before the buffer is allocated.
            (None, _) if sgl.is_transport() && sgl.len > self.limits.transfer => {
                Status::INVALID_FIELD.with_dnr()
            }
            (None, _) if sgl.is_transport() => Status::SUCCESS,
            _ => Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr(),
        };
        if status != Status::SUCCESS {
            self.respond(Cqe::new(Cid(sqe.cid), QueueId(0), 0, status, 0, false));
            return None;
        }
        match data {
            Some((mut bytes, _)) if direction == Direction::ToController && sgl.len > 0 => {
                bytes.truncate((sgl.addr + u64::from(sgl.len)) as usize);
                bytes.drain(..sgl.addr as usize);
                self.begin(&sqe, bytes.len());
                Some(Event::Command { sqe, data: bytes })
            }
            None if len_of(&sqe) > 0 => {
                // Admitted by poll(), in order of arrival, when buffer memory is available.
                self.waiting.push_back(sqe);
                None
            }
            _ => {
                self.begin(&sqe, 0);
                Some(Event::Command { sqe, data: Vec::new() })
            }
        }
    }

    fn begin(&mut self, sqe: &Sqe, bytes: usize) {
        self.open.push((sqe.cid, bytes as u32));
        self.held += bytes as u64;
    }

    /// Allocates a command's buffer. A read is ready to be executed; for a write the data are
    /// requested by R2T.
    fn admit(&mut self, sqe: Sqe) -> Option<Event> {
        let len = len_of(&sqe);
        self.begin(&sqe, len as usize);
        let buffer = vec![0; len as usize];
        if direction_of(&sqe) == Direction::ToHost {
            return Some(Event::Command { sqe, data: buffer });
        }
        let transfer = Transfer { sqe, buffer, asked: 0, received: 0, r2ts: 0, spoilt: false };
        let place = put(&mut self.transfers, transfer);
        self.ask(place);
        None
    }

    /// Sends R2Ts for a command, up to the host's MAXR2T.
    fn ask(&mut self, place: usize) {
        loop {
            let Some(Some(transfer)) = self.transfers.get_mut(place) else { return };
            let size = transfer.buffer.len() as u32;
            // MAXR2T limits the number of outstanding R2Ts; `limits.r2t` limits the bytes that the
            // host sends for each.
            if transfer.r2ts == self.max_r2ts || transfer.asked == size {
                return;
            }
            let (offset, len, cid) =
                (transfer.asked, self.limits.r2t.min(size - transfer.asked), transfer.sqe.cid);
            transfer.asked += len;
            transfer.r2ts += 1;
            let tag = put(&mut self.asked, Asked { transfer: place, offset, len, received: 0 });
            let mut r2t = Data {
                cid: cid.into(),
                tag: (tag as u16).into(),
                offset: offset.into(),
                len: len.into(),
                ..Data::default()
            };
            if self.tamper.take_if(|tamper| *tamper == Tamper::R2t).is_some() {
                r2t.offset = size.into();
            }
            self.push(Pdu::new(Body::R2t(r2t)));
        }
    }

    /// Validates an H2CData header against its R2T and sets the payload's destination.
    fn h2c_data(&mut self, pdu: &Pdu, data: Data) -> Result<(), Violation> {
        let tag = usize::from(data.tag.get());
        let asked = self.asked.get(tag).copied().flatten().ok_or(Violation::field(Data::TAG_AT))?;
        let transfer = self
            .transfers
            .get_mut(asked.transfer)
            .and_then(Option::as_mut)
            .ok_or(Violation::field(Data::TAG_AT))?;
        if data.cid.get() != transfer.sqe.cid {
            return Err(Violation::field(Data::CID_AT));
        }
        let (offset, len) = (data.offset.get(), data.len.get());
        if len != pdu.data {
            return Err(Violation::field(Data::LEN_AT));
        }
        if len > self.limits.h2c_data {
            return Err(Violation::of(Fes::LIMIT_EXCEEDED));
        }
        let end = offset.checked_add(len).filter(|end| *end <= asked.offset + asked.len);
        if offset < asked.offset || end.is_none() {
            return Err(Violation::of(Fes::OUT_OF_RANGE));
        }
        // Data of one R2T must arrive in order: an out-of-order PDU would leave a gap.
        if offset != asked.offset + asked.received {
            return Err(Violation::field(Data::OFFSET_AT));
        }
        if (pdu.flags & flags::LAST != 0) != (end == Some(asked.offset + asked.len)) {
            return Err(Violation::field(1));
        }
        self.receiver.place(std::mem::take(&mut transfer.buffer), offset as usize, len);
        self.asked[tag] = Some(Asked { received: asked.received + len, ..asked });
        self.placing = Some(Placing::Transfer { tag });
        Ok(())
    }

    /// The payload of an H2CData has been received.
    fn transferred(&mut self, tag: usize, buffer: Vec<u8>, intact: bool) -> Option<Event> {
        let asked = self.asked.get(tag).copied().flatten()?;
        let transfer = self.transfers.get_mut(asked.transfer)?.as_mut()?;
        transfer.buffer = buffer;
        transfer.spoilt |= !intact;
        if asked.received < asked.len {
            return None;
        }
        self.asked[tag] = None;
        transfer.received += asked.len;
        transfer.r2ts -= 1;
        if (transfer.received as usize) < transfer.buffer.len() {
            self.ask(asked.transfer);
            return None;
        }
        let Transfer { sqe, buffer, spoilt, .. } = self.transfers[asked.transfer].take()?;
        // The command fails only now: after an earlier completion the host could reuse the CID
        // while data of this command still arrive.
        if spoilt {
            self.complete(
                Cqe::new(Cid(sqe.cid), QueueId(0), 0, Status::TRANSIENT_TRANSPORT_ERROR, 0, false),
                Vec::new(),
            );
            return None;
        }
        Some(Event::Command { sqe, data: buffer })
    }

    /// Completes a command. `cqe`: its completion queue entry, whose SQHD is filled in here;
    /// `data`: sent to the host if the command succeeded.
    pub fn complete(&mut self, cqe: Cqe, data: Vec<u8>) {
        let at = self.open.iter().position(|(cid, _)| *cid == cqe.cid);
        let held = at.map_or(0, |at| self.open.swap_remove(at).1);
        self.held -= u64::from(held).min(self.held);
        if self.open.is_empty() && self.waiting.is_empty() {
            self.shrink();
        }
        // No PDU may follow a TermReq.
        if self.state == State::Ended {
            return;
        }
        if !data.is_empty() && cqe.status().is_success() {
            let len = data.len() as u32;
            // SUCCESS replaces the response only if the response would carry no information: no
            // SQHD (flow control is off), and DW0 and DW1 zero.
            let alone = !self.flow_control && cqe.result == 0 && cqe.dw1 == 0;
            let body =
                Body::C2hData(Data { cid: cqe.cid.into(), len: len.into(), ..Data::default() });
            let flags = flags::LAST | if alone { flags::SUCCESS } else { 0 };
            self.push(Pdu { flags, body, data: len });
            let digest = self
                .digests
                .data
                .then(|| crate::digest(&data) ^ u32::from(self.tampers(Tamper::DataDigest)));
            self.held += u64::from(len);
            self.out.push_data(data);
            if let Some(digest) = digest {
                self.out.push_header(&digest.to_le_bytes());
            }
            if alone {
                self.head = (self.head + 1) % self.entries;
                return;
            }
        }
        self.respond(cqe);
    }

    /// Frees tables that a burst of commands has grown, as a server may hold thousands of idle
    /// connections.
    fn shrink(&mut self) {
        const KEPT: usize = 64;
        self.open.shrink_to(KEPT);
        self.waiting.shrink_to(KEPT);
        if self.transfers.len() > KEPT {
            self.transfers = Vec::new();
        }
        if self.asked.len() > KEPT && self.asked.iter().all(Option::is_none) {
            self.asked = Vec::new();
        }
    }

    fn respond(&mut self, cqe: Cqe) {
        self.head = (self.head + 1) % self.entries;
        // SQHD is not valid if SQ flow control is disabled.
        let sq_head = if self.flow_control { self.head as u16 } else { u16::MAX };
        self.push(Pdu::new(Body::CapsuleResp(Cqe {
            sq_head,
            ..cqe.with_status(cqe.status(), false)
        })));
    }

    /// Terminates the connection: sends C2HTermReq with the offending header.
    pub fn terminate(&mut self, Violation(term): Violation) -> Event {
        let quoted = self.receiver.last_header().to_vec();
        self.push(Pdu { flags: 0, body: Body::C2hTermReq(term), data: quoted.len() as u32 });
        self.out.push_header(&quoted);
        self.state = State::Ended;
        Event::Ended { term, by_host: false }
    }

    /// Whether this error is to be made now; it is then made only once.
    fn tampers(&mut self, with: Tamper) -> bool {
        self.tamper.take_if(|tamper| *tamper == with).is_some()
    }

    fn push(&mut self, pdu: Pdu) {
        let (mut prefix, len) = pdu.encode_prefix(self.digests, self.alignment);
        // Bytes 1 and 2 of the common header are FLAGS and HLEN.
        let digest_at = usize::from(prefix[2]);
        if prefix[1] & flags::HEADER_DIGEST != 0 && self.tampers(Tamper::HeaderDigest) {
            // Corrupts the digest only: the header itself stays correct.
            prefix[digest_at..digest_at + DIGEST].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        self.out.push_header(&prefix[..len]);
    }
}

/// Bytes of a command's data outside of the capsule: the length of its transport SGL, else 0.
fn len_of(sqe: &Sqe) -> u32 {
    let sgl = Descriptor::of(sqe.dptr());
    let moves = matches!(direction_of(sqe), Direction::ToController | Direction::ToHost);
    if moves && sgl.is_transport() { sgl.len } else { 0 }
}

/// Stores an item at the first free index, and returns the index.
fn put<T>(into: &mut Vec<Option<T>>, what: T) -> usize {
    match into.iter().position(Option::is_none) {
        Some(place) => {
            into[place] = Some(what);
            place
        }
        None => {
            into.push(Some(what));
            into.len() - 1
        }
    }
}
