//! One connection of a controller: a queue pair (TCP 3.1).

use std::collections::{HashMap, VecDeque};

use nvme::fabrics::{Direction, direction_of};
use nvme::sgl::Descriptor;
use nvme::{Cid, Cqe, QueueId, Sqe, Status};

use crate::pdu::{
    Body, DIGEST, Data, Digests, Fes, Greeting, PLEN_AT, Pdu, Side, Term, Violation, flags,
};
use crate::receive::{Item, Receiver};
use crate::send::SendList;

/// What a connection is offered, and kept within.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Digests that are agreed to.
    pub digests: Digests,
    /// Most bytes of data in a capsule of an I/O queue. Capsules of any queue have
    /// [`Limits::CAPSULE`] at least.
    pub in_capsule: u32,
    /// MAXH2CDATA: a multiple of 4, at least 4096.
    pub h2c_data: u32,
    /// Most bytes of one command.
    pub transfer: u32,
    /// Most bytes that one R2T asks for.
    pub r2t: u32,
    /// Bytes that are received at one time, besides payload.
    pub room: usize,
}

impl Limits {
    /// In-capsule data that an admin queue takes (TCP 3.3.2).
    pub const CAPSULE: u32 = 8192;
    /// R2Ts that are outstanding for one command at most, whatever the host takes.
    const R2TS: u32 = 16;
}

/// What a connection's owner has to know.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The host has introduced itself.
    Greeted(Digests),
    /// A command, with its data. Of one whose data go to the host, they are zeroes to be filled in.
    Command {
        /// As it came.
        sqe: Sqe,
        /// Its data.
        data: Vec<u8>,
    },
    /// The connection is over once everything has been sent: what went wrong, and whether the host
    /// says so.
    Ended {
        /// What was wrong.
        term: Term,
        /// The host has ended it, and not this side.
        by_host: bool,
    },
}

/// What is sent wrong on purpose, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// The next header digest.
    HeaderDigest,
    /// The next digest of data.
    DataDigest,
    /// The next R2T asks for data beyond the command's.
    R2t,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Open,
    Ended,
}

/// A command whose data are on their way.
#[derive(Debug)]
struct Transfer {
    sqe: Sqe,
    buffer: Vec<u8>,
    /// Bytes that R2Ts have asked for, and that have come.
    asked: u32,
    received: u32,
    /// R2Ts outstanding.
    r2ts: u32,
    /// Some of it had a wrong digest.
    spoilt: bool,
}

/// An R2T that is not answered in full. Its tag is its place.
#[derive(Clone, Copy, Debug)]
struct Asked {
    transfer: usize,
    offset: u32,
    len: u32,
    received: u32,
}

/// Whose data are awaited.
#[derive(Clone, Copy, Debug)]
enum Placing {
    Capsule(Sqe),
    Transfer { tag: usize },
}

/// The state machine. The owner moves bytes between a socket and [`Target::space`],
/// [`Target::output`], and asks [`Target::poll`] what has come until there is nothing; it answers
/// each command by [`Target::complete`].
#[derive(Debug)]
pub struct Target {
    limits: Limits,
    state: State,
    receiver: Receiver,
    out: SendList,
    digests: Digests,
    /// HPDA.
    alignment: u8,
    /// R2Ts that a command may have outstanding.
    most_r2ts: u32,
    /// Entries of the submission queue.
    entries: u32,
    flow_control: bool,
    /// SQHD: commands that are over, modulo `entries`.
    head: u32,
    /// Commands that are not over, and bytes of their buffers.
    open: HashMap<u16, u32>,
    /// Those that wait for memory.
    waiting: VecDeque<Sqe>,
    /// A capsule whose data wait for memory. Nothing behind it is read before.
    capsule: Option<(Sqe, u32)>,
    transfers: Vec<Option<Transfer>>,
    asked: Vec<Option<Asked>>,
    placing: Option<Placing>,
    /// Bytes of buffers.
    held: u64,
    /// What is sent wrong next.
    pub tamper: Option<Tamper>,
}

impl Target {
    /// A connection that has just been accepted.
    pub fn new(limits: Limits) -> Target {
        Target {
            limits,
            state: State::New,
            receiver: Receiver::new(Side::Controller),
            out: SendList::default(),
            digests: Digests::default(),
            alignment: 0,
            most_r2ts: 1,
            // Until Connect has said how many, one command: Connect.
            entries: 1,
            flow_control: true,
            head: 0,
            open: HashMap::new(),
            waiting: VecDeque::new(),
            capsule: None,
            transfers: Vec::new(),
            asked: Vec::new(),
            placing: None,
            held: 0,
            tamper: None,
        }
    }

    /// Where the next bytes belong; see [`Receiver::space`].
    pub fn space(&mut self) -> [&mut [u8]; 2] {
        self.receiver.space()
    }

    /// `n` bytes were received into the space.
    pub fn filled(&mut self, n: usize) {
        self.receiver.filled(n);
    }

    /// What is to be sent.
    pub fn output(&self) -> &SendList {
        &self.out
    }

    /// `n` bytes of the output were sent.
    pub fn sent(&mut self, n: usize) {
        self.held -= (self.out.sent(n) as u64).min(self.held);
    }

    /// Bytes of buffers that commands of this connection have, and that its owner is to give
    /// commands by [`Target::poll`].
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Whether the host has introduced itself.
    pub fn is_greeted(&self) -> bool {
        self.state == State::Open
    }

    /// The digests that have been agreed on.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Whether a command waits for memory.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.capsule.is_some()
    }

    /// Whether a capsule waits for memory: nothing more is to be received until [`Target::poll`]
    /// has admitted it.
    pub fn is_blocked(&self) -> bool {
        self.capsule.is_some()
    }

    /// Whether data that the host has announced or was asked for have not arrived in full.
    pub fn awaits_data(&self) -> bool {
        self.placing.is_some() || self.asked.iter().any(Option::is_some)
    }

    /// Connect has made it a queue of `entries` entries.
    pub fn connect(&mut self, entries: u32, flow_control: bool) {
        (self.entries, self.flow_control) = (entries.max(1), flow_control);
    }

    /// The next thing that has come. `free` bytes are left for buffers: a command that needs more
    /// waits.
    pub fn poll(&mut self, free: u64) -> Option<Event> {
        // Admitting one command leaves less for the next.
        let most = self.held.saturating_add(free);
        while self.state != State::Ended {
            let free = most.saturating_sub(self.held);
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
                // Counted from now on, as a slow host may take its time to send them.
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
            Body::IcReq(greeting) if self.state == State::New => self.greet(greeting).map(Some),
            Body::H2cTermReq(term) => {
                self.state = State::Ended;
                Ok(Some(Event::Ended { term, by_host: true }))
            }
            _ if self.state == State::New => Err(Violation::of(Fes::SEQUENCE_ERROR)),
            Body::CapsuleCmd(sqe) => {
                // A full submission queue: on a bus the host could not have rung the doorbell.
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

    fn greet(&mut self, asked: Greeting) -> Result<Event, Violation> {
        if asked.version.get() != 0 {
            return Err(Violation::unsupported(Greeting::VERSION_AT));
        }
        // HPDA is 0's based, in dwords: 31 is 128 bytes, the most that PDO can express (TCP
        // 3.6.2.2).
        if asked.alignment > 31 {
            return Err(Violation::field(Greeting::ALIGNMENT_AT));
        }
        if asked.digests > 3 {
            return Err(Violation::field(Greeting::DIGESTS_AT));
        }
        let wanted = Digests::from_bits(asked.digests);
        let agreed = Digests {
            header: wanted.header && self.limits.digests.header,
            data: wanted.data && self.limits.digests.data,
        };
        let answer = Greeting {
            digests: agreed.bits(),
            limit: self.limits.h2c_data.into(),
            ..Greeting::default()
        };
        self.push(Pdu::new(Body::IcResp(answer)));
        (self.digests, self.alignment, self.state) = (agreed, asked.alignment, State::Open);
        // MAXR2T is 0's based.
        self.most_r2ts = asked.limit.get().saturating_add(1).min(Limits::R2TS);
        self.receiver.begin(agreed, self.limits.room);
        Ok(Event::Greeted(agreed))
    }

    /// A command has come, with what was in its capsule.
    fn capsule(&mut self, sqe: Sqe, data: Option<(Vec<u8>, bool)>) -> Option<Event> {
        let sgl = Descriptor::of(sqe.dptr());
        let direction = direction_of(&sqe);
        let status = match (&data, direction) {
            _ if self.open.contains_key(&sqe.cid)
                || self.waiting.iter().any(|other| other.cid == sqe.cid) =>
            {
                Status::COMMAND_ID_CONFLICT
            }
            (Some((_, false)), _) => Status::TRANSIENT_TRANSPORT_ERROR,
            _ if sqe.flags & 0b1100_0000 != Sqe::PSDT_SGL => Status::INVALID_FIELD.with_dnr(),
            (_, Direction::None | Direction::Both) => Status::SUCCESS,
            _ if sgl.len == 0 => Status::SUCCESS,
            (Some((bytes, _)), Direction::ToController) if sgl.is_in_capsule() => {
                let end = sgl.addr.checked_add(sgl.len.into());
                let fits = end.is_some_and(|end| end <= bytes.len() as u64);
                if fits { Status::SUCCESS } else { Status::SGL_OFFSET_INVALID.with_dnr() }
            }
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
        self.open.insert(sqe.cid, bytes as u32);
        self.held += bytes as u64;
    }

    /// There is memory for a command: one whose data go to the host is ready, others are asked for
    /// their data.
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

    /// Sends as many R2Ts for a command as its host takes at one time.
    fn ask(&mut self, place: usize) {
        loop {
            let Some(Some(transfer)) = self.transfers.get_mut(place) else { return };
            let size = transfer.buffer.len() as u32;
            // MAXR2T bounds what the host tracks; R2T length bounds what one answer keeps in the
            // socket.
            if transfer.r2ts == self.most_r2ts || transfer.asked == size {
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

    /// The header of data that were asked for.
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
        // Data of one R2T arrive in order: a gap could never be filled (TCP 3.3.2.1).
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

    /// Data that were asked for are in place.
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
        // Only now, as the host must not reuse the CID while data of it are still arriving.
        if spoilt {
            self.complete(
                Cqe::new(Cid(sqe.cid), QueueId(0), 0, Status::TRANSIENT_TRANSPORT_ERROR, 0, false),
                Vec::new(),
            );
            return None;
        }
        Some(Event::Command { sqe, data: buffer })
    }

    /// A command is over: this is its entry, and these are its data, if they go to the host. SQHD
    /// is filled in here.
    pub fn complete(&mut self, cqe: Cqe, data: Vec<u8>) {
        let held = self.open.remove(&cqe.cid).unwrap_or(0);
        self.held -= u64::from(held).min(self.held);
        if self.open.is_empty() && self.waiting.is_empty() {
            self.shrink();
        }
        // After a TermReq nothing else may be sent.
        if self.state == State::Ended {
            return;
        }
        if !data.is_empty() && cqe.status().is_success() {
            let len = data.len() as u32;
            // Without flow control the host learns nothing from the response but that the command
            // has succeeded.
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
                self.out.push_head(&digest.to_le_bytes());
            }
            if alone {
                self.head = (self.head + 1) % self.entries;
                return;
            }
        }
        self.respond(cqe);
    }

    /// Gives back what a burst of commands took: an idle connection is to be small, whatever it has
    /// done before.
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
        let sq_head = if self.flow_control { self.head as u16 } else { u16::MAX };
        self.push(Pdu::new(Body::CapsuleResp(Cqe {
            sq_head,
            ..cqe.with_status(cqe.status(), false)
        })));
    }

    /// Ends the connection.
    pub fn terminate(&mut self, Violation(term): Violation) -> Event {
        let quoted = self.receiver.last_header().to_vec();
        self.push(Pdu { flags: 0, body: Body::C2hTermReq(term), data: quoted.len() as u32 });
        self.out.push_head(&quoted);
        self.state = State::Ended;
        Event::Ended { term, by_host: false }
    }

    fn tampers(&mut self, with: Tamper) -> bool {
        self.tamper.take_if(|tamper| *tamper == with).is_some()
    }

    fn push(&mut self, pdu: Pdu) {
        let (mut head, len) = pdu.head(self.digests, self.alignment);
        let digest_at = usize::from(head[2]);
        if head[1] & flags::HEADER_DIGEST != 0 && self.tampers(Tamper::HeaderDigest) {
            head[digest_at..digest_at + DIGEST].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        self.out.push_head(&head[..len]);
    }
}

/// Bytes that the transport moves for a command.
fn len_of(sqe: &Sqe) -> u32 {
    let sgl = Descriptor::of(sqe.dptr());
    let moves = matches!(direction_of(sqe), Direction::ToController | Direction::ToHost);
    if moves && sgl.is_transport() { sgl.len } else { 0 }
}

/// Puts something where there is room.
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
