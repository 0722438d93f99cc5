//! A stream cut into PDUs.

use std::fmt::Debug;
use std::ops::Range;

use crate::digest;
use crate::pdu::{Common, DIGEST, Digests, Fes, Pdu, Side, Term, Violation};
use zerocopy::FromBytes;

/// Where payload is. A target has it on the heap; a host moves it between the socket and memory
/// that is lent to the device.
pub trait PayloadMemory: Debug {
    /// The payload of one command.
    type Buffer: Debug;

    /// Stores bytes from offset `at` on. False: the buffer is not there.
    fn write(&self, buffer: &mut Self::Buffer, at: usize, bytes: &[u8]) -> bool;

    /// The digest of a range; `None`: the buffer is not there.
    fn digest(&self, buffer: &Self::Buffer, range: Range<usize>) -> Option<u32>;

    /// A copy of a range; `None`: the buffer is not there.
    fn read(&self, buffer: &Self::Buffer, range: Range<usize>) -> Option<Vec<u8>>;
}

/// Payload on the heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl PayloadMemory for Heap {
    type Buffer = Vec<u8>;

    fn write(&self, buffer: &mut Vec<u8>, at: usize, bytes: &[u8]) -> bool {
        buffer.get_mut(at..at + bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
    }

    fn digest(&self, buffer: &Vec<u8>, range: Range<usize>) -> Option<u32> {
        buffer.get(range).map(digest)
    }

    fn read(&self, buffer: &Vec<u8>, range: Range<usize>) -> Option<Vec<u8>> {
        buffer.get(range).map(<[u8]>::to_vec)
    }
}

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<B = Vec<u8>> {
    /// A header. If it has data, [`Receiver::place`] says where they belong before anything else is
    /// asked.
    Head(Pdu),
    /// The data of the last header are in place.
    Data {
        /// The buffer that was given.
        buffer: B,
        /// Their digest is right, or there is none.
        intact: bool,
    },
}

/// Bytes on their way into a buffer.
#[derive(Debug)]
struct Filling<B> {
    buffer: B,
    from: usize,
    at: usize,
    end: usize,
    /// All that has come was stored.
    stored: bool,
}

/// Receives one direction of a connection.
#[derive(Debug)]
pub struct Receiver<M: PayloadMemory = Heap> {
    memory: M,
    side: Side,
    digests: Digests,
    /// Bytes that have come and are not used up: `staging[begin..end]`.
    staging: Box<[u8]>,
    begin: usize,
    end: usize,
    filling: Option<Filling<M::Buffer>>,
    /// The header before has data with a digest.
    has_digest: bool,
    /// The last header, for a TermReq to quote.
    last: Vec<u8>,
}

impl Receiver {
    /// The receiver of `side`, without digests, with payload on the heap.
    pub fn new(side: Side) -> Receiver {
        Receiver::with_memory(side, Heap)
    }

    /// Where the next bytes belong, in this order: payload that is awaited, then whatever follows
    /// it. Both are empty if what has come is to be taken first.
    pub fn space(&mut self) -> [&mut [u8]; 2] {
        self.compact();
        let payload = match &mut self.filling {
            Some(filling) if self.end == 0 => {
                filling.buffer.get_mut(filling.at..filling.end).unwrap_or_default()
            }
            _ => &mut [],
        };
        [payload, &mut self.staging[self.end..]]
    }
}

impl<M: PayloadMemory> Receiver<M> {
    /// Bytes for what has come and is not used up, before a greeting.
    pub const SMALL: usize = 512;

    /// The receiver of `side`, without digests, with payload in `memory`.
    pub fn with_memory(side: Side, memory: M) -> Receiver<M> {
        Receiver {
            memory,
            side,
            digests: Digests::default(),
            staging: vec![0; Self::SMALL].into(),
            begin: 0,
            end: 0,
            filling: None,
            has_digest: false,
            last: Vec::new(),
        }
    }

    /// Where payload is.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Digests are in force from the next PDU on, and there is room for this many bytes.
    pub fn begin(&mut self, digests: Digests, room: usize) {
        self.digests = digests;
        let mut staging = vec![0; room.max(Self::SMALL)];
        let rest = self.begin..self.end;
        staging[..rest.len()].copy_from_slice(&self.staging[rest.clone()]);
        (self.begin, self.end) = (0, rest.len());
        self.staging = staging.into();
    }

    /// Moves what is staged to the front, so that a header is never split by the end of the buffer.
    fn compact(&mut self) {
        if self.begin > 0 {
            self.staging.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
    }

    /// Room for the next bytes, payload included, where payload is no slice. What has come is to be
    /// taken before more is stored; [`Receiver::stored`] says how much was.
    pub fn room(&mut self) -> &mut [u8] {
        self.compact();
        &mut self.staging[self.end..]
    }

    /// `n` bytes were stored in the room.
    pub fn stored(&mut self, n: usize) {
        self.end = (self.end + n).min(self.staging.len());
    }

    /// `n` bytes were stored in the space, payload first.
    pub fn filled(&mut self, n: usize) {
        let mut rest = n;
        if let Some(filling) = &mut self.filling
            && self.begin == self.end
        {
            let payload = rest.min(filling.end - filling.at);
            filling.at += payload;
            rest -= payload;
        }
        self.end = (self.end + rest).min(self.staging.len());
    }

    /// Bytes of data of the last header that [`Receiver::place`] is to be called for go to
    /// `buffer`, from `at` on. It has room for them.
    pub fn place(&mut self, buffer: M::Buffer, at: usize, len: u32) {
        self.filling = Some(Filling { buffer, from: at, at, end: at + len as usize, stored: true });
    }

    /// The next thing that is complete.
    ///
    /// # Errors
    /// What came cannot be followed, and neither can anything after it.
    pub fn take(&mut self) -> Result<Option<Item<M::Buffer>>, Violation> {
        if let Some(filling) = &mut self.filling {
            let n = (filling.end - filling.at).min(self.end - self.begin);
            let come = &self.staging[self.begin..self.begin + n];
            filling.stored &= self.memory.write(&mut filling.buffer, filling.at, come);
            (filling.at, self.begin) = (filling.at + n, self.begin + n);
            if filling.at < filling.end {
                return Ok(None);
            }
            // A wrong data digest fails its command, not the connection (TCP 3.3.1.1).
            let mut intact = filling.stored;
            if self.has_digest {
                let Some(sent) = self.staging[self.begin..self.end].first_chunk() else {
                    return Ok(None);
                };
                intact &= Some(u32::from_le_bytes(*sent))
                    == self.memory.digest(&filling.buffer, filling.from..filling.end);
                self.begin += DIGEST;
            }
            return Ok(self
                .filling
                .take()
                .map(|filling| Item::Data { buffer: filling.buffer, intact }));
        }
        let come = &self.staging[self.begin..self.end];
        let Ok((common, _)) = Common::read_from_prefix(come) else { return Ok(None) };
        let shape = common
            .shape(self.side, self.digests, 0)
            .inspect_err(|_| self.last = come[..Common::LEN].to_vec())?;
        let Some(head) = come.get(..shape.head) else { return Ok(None) };
        self.last.clear();
        self.last.extend_from_slice(&head[..shape.hlen]);
        if shape.header_digest {
            let sent = head[shape.hlen..].first_chunk().map_or(0, |sent| u32::from_le_bytes(*sent));
            if sent != digest(&head[..shape.hlen]) {
                return Err(Violation(Term { fes: Fes::HEADER_DIGEST, fei: sent }));
            }
        }
        let pdu = Pdu::read(head, common, shape);
        self.begin += shape.head;
        self.has_digest = shape.data_digest;
        Ok(pdu.map(Item::Head))
    }

    /// The header that came last, or what there is of it: for a TermReq to quote.
    pub fn last_header(&self) -> &[u8] {
        &self.last
    }
}
