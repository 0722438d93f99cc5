//! Receive path: splits a TCP byte stream into PDU headers and payload.
//!
//! Headers are collected in a staging buffer. Once the owner has called [`Receiver::place`],
//! payload is written to the command's buffer, either directly ([`Receiver::space`]) or through
//! staging ([`Receiver::room`]).

use std::fmt::Debug;
use std::ops::Range;

use crate::digest;
use crate::pdu::{Common, DIGEST, Digests, Fes, Pdu, Side, Term, Violation};
use zerocopy::FromBytes;

/// Memory that holds payload. A target uses [`Heap`]; a host uses memory that is registered for
/// DMA.
pub trait PayloadMemory: Debug {
    /// Handle of one command's payload buffer.
    type Buffer: Debug;

    /// Stores bytes at offset `at`. Returns false if the buffer no longer exists.
    fn write(&self, buffer: &mut Self::Buffer, at: usize, bytes: &[u8]) -> bool;

    /// CRC32C of a range, or `None` if the buffer no longer exists.
    fn digest(&self, buffer: &Self::Buffer, range: Range<usize>) -> Option<u32>;

    /// Replaces the contents of `into` by a range of the buffer. Returns false if the buffer no
    /// longer exists.
    fn read(&self, buffer: &Self::Buffer, range: Range<usize>, into: &mut Vec<u8>) -> bool;
}

/// Payload in heap memory.
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

    fn read(&self, buffer: &Vec<u8>, range: Range<usize>, into: &mut Vec<u8>) -> bool {
        into.clear();
        buffer.get(range).map(|bytes| into.extend_from_slice(bytes)).is_some()
    }
}

/// A complete header or a complete payload.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<B = Vec<u8>> {
    /// A header. If it announces data, [`Receiver::place`] must be called before the next
    /// [`Receiver::take`].
    Head(Pdu),
    /// All data of the last header have been received.
    Data {
        /// The buffer that was passed to [`Receiver::place`].
        buffer: B,
        /// The data were stored, and their digest is correct or digests are off.
        intact: bool,
    },
}

/// Payload that is being received into a buffer.
#[derive(Debug)]
struct Filling<B> {
    buffer: B,
    /// Offsets in the buffer: where the data begin, where the next byte goes, where the data end.
    from: usize,
    at: usize,
    end: usize,
    /// Every [`PayloadMemory::write`] so far has succeeded.
    intact: bool,
}

/// Receive state of one direction of a connection.
#[derive(Debug)]
pub struct Receiver<M: PayloadMemory = Heap> {
    memory: M,
    side: Side,
    digests: Digests,
    /// The staging buffer; `staging[parsed..received]` are received bytes that are not parsed yet.
    staging: Box<[u8]>,
    parsed: usize,
    received: usize,
    filling: Option<Filling<M::Buffer>>,
    /// The data that the last header announced are followed by a digest.
    has_digest: bool,
    /// The last header, which a TermReq has to quote.
    last: Vec<u8>,
}

impl Receiver {
    /// A receiver of the host or of the controller (`side`), with digests off and payload on the
    /// heap.
    pub fn new(side: Side) -> Receiver {
        Receiver::with_memory(side, Heap)
    }

    /// Buffers for the next read of the socket, in this order: the rest of the current payload,
    /// then the staging buffer. After the read, pass the number of bytes to [`Receiver::filled`].
    /// Both are empty if the staging buffer is full: call [`Receiver::take`] first.
    pub fn space(&mut self) -> [&mut [u8]; 2] {
        self.compact();
        let payload = match &mut self.filling {
            Some(filling) if self.received == 0 => {
                filling.buffer.get_mut(filling.at..filling.end).unwrap_or_default()
            }
            _ => &mut [],
        };
        [payload, &mut self.staging[self.received..]]
    }
}

impl<M: PayloadMemory> Receiver<M> {
    /// Size of the staging buffer in bytes until [`Receiver::begin`] is called.
    pub const SMALL: usize = 512;

    /// A receiver of the host or of the controller (`side`), with digests off and payload in
    /// `memory`.
    pub fn with_memory(side: Side, memory: M) -> Receiver<M> {
        Receiver {
            memory,
            side,
            digests: Digests::default(),
            staging: vec![0; Self::SMALL].into(),
            parsed: 0,
            received: 0,
            filling: None,
            has_digest: false,
            last: Vec::new(),
        }
    }

    /// The payload memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// To be called after ICReq and ICResp: applies the negotiated digests from the next PDU on,
    /// and resizes the staging buffer to `room` bytes.
    pub fn begin(&mut self, digests: Digests, room: usize) {
        self.digests = digests;
        let mut staging = vec![0; room.max(Self::SMALL)];
        let rest = self.parsed..self.received;
        staging[..rest.len()].copy_from_slice(&self.staging[rest.clone()]);
        (self.parsed, self.received) = (0, rest.len());
        self.staging = staging.into();
    }

    /// Moves unparsed bytes to the front, so that a header is always contiguous in the staging
    /// buffer.
    fn compact(&mut self) {
        if self.parsed > 0 {
            self.staging.copy_within(self.parsed..self.received, 0);
            (self.parsed, self.received) = (0, self.received - self.parsed);
        }
    }

    /// Staging buffer for the next read of the socket, for payload memory that is not a slice.
    /// After the read, pass the number of bytes to [`Receiver::stored`], and call
    /// [`Receiver::take`] until it returns `None`.
    pub fn room(&mut self) -> &mut [u8] {
        self.compact();
        &mut self.staging[self.received..]
    }

    /// `n` bytes were read into [`Receiver::room`].
    pub fn stored(&mut self, n: usize) {
        self.received = (self.received + n).min(self.staging.len());
    }

    /// `n` bytes were read into [`Receiver::space`], payload first.
    pub fn filled(&mut self, n: usize) {
        let mut rest = n;
        if let Some(filling) = &mut self.filling
            && self.parsed == self.received
        {
            let payload = rest.min(filling.end - filling.at);
            filling.at += payload;
            rest -= payload;
        }
        self.received = (self.received + rest).min(self.staging.len());
    }

    /// Sets the destination of the `len` bytes of data that the last header announced: `buffer`,
    /// from offset `at`. The buffer must have at least `at + len` bytes.
    pub fn place(&mut self, buffer: M::Buffer, at: usize, len: u32) {
        self.filling = Some(Filling { buffer, from: at, at, end: at + len as usize, intact: true });
    }

    /// The next complete header or payload; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The stream is malformed. The connection must be terminated, as the start of the next PDU is
    /// unknown.
    pub fn take(&mut self) -> Result<Option<Item<M::Buffer>>, Violation> {
        if let Some(filling) = &mut self.filling {
            let n = (filling.end - filling.at).min(self.received - self.parsed);
            let bytes = &self.staging[self.parsed..self.parsed + n];
            // Payload that was read into the staging buffer; `space` lets the rest be read directly
            // into the payload buffer.
            filling.intact &= self.memory.write(&mut filling.buffer, filling.at, bytes);
            (filling.at, self.parsed) = (filling.at + n, self.parsed + n);
            if filling.at < filling.end {
                return Ok(None);
            }
            // A wrong data digest is not fatal: it fails the command, and the connection goes on.
            let mut intact = filling.intact;
            if self.has_digest {
                let Some(sent) = self.staging[self.parsed..self.received].first_chunk() else {
                    return Ok(None);
                };
                intact &= Some(u32::from_le_bytes(*sent))
                    == self.memory.digest(&filling.buffer, filling.from..filling.end);
                self.parsed += DIGEST;
            }
            return Ok(self
                .filling
                .take()
                .map(|filling| Item::Data { buffer: filling.buffer, intact }));
        }
        let bytes = &self.staging[self.parsed..self.received];
        // A header is decoded once it is complete; until then its bytes stay in the staging buffer.
        let Ok((common, _)) = Common::read_from_prefix(bytes) else { return Ok(None) };
        let shape = common
            .validate(self.side, self.digests, 0)
            .inspect_err(|_| self.last = bytes[..Common::LEN].to_vec())?;
        let Some(prefix) = bytes.get(..shape.prefix) else { return Ok(None) };
        self.last.clear();
        // Saved before the digest is checked, as a TermReq quotes the header that failed.
        self.last.extend_from_slice(&prefix[..shape.hlen]);
        if shape.header_digest {
            let sent =
                prefix[shape.hlen..].first_chunk().map_or(0, |sent| u32::from_le_bytes(*sent));
            if sent != digest(&prefix[..shape.hlen]) {
                return Err(Violation(Term { fes: Fes::HEADER_DIGEST, fei: sent }));
            }
        }
        let pdu = Pdu::read(prefix, common, shape);
        self.parsed += shape.prefix;
        self.has_digest = shape.data_digest;
        Ok(pdu.map(Item::Head))
    }

    /// The last header, or the part of it that was parsed, for a TermReq to quote.
    pub fn last_header(&self) -> &[u8] {
        &self.last
    }
}
