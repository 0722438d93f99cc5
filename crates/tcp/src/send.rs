//! Send queue of one connection: headers and payload, in order, for a vectored send.

use std::collections::VecDeque;

/// Bytes to send, in order. Payload is not copied; adjacent headers are merged into one buffer, so
/// that a batch of commands needs few `iovec`s.
#[derive(Debug, Default)]
pub struct SendList {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been sent.
    first_offset: usize,
    /// Unsent bytes.
    left: usize,
}

#[derive(Debug)]
enum Piece {
    /// PDU headers, digests and short data, copied into one buffer.
    Headers(Vec<u8>),
    Data(Vec<u8>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Headers(bytes) | Piece::Data(bytes) => bytes,
        }
    }
}

impl SendList {
    /// A header buffer with this many bytes or more is full: the next header begins a new buffer.
    const FULL: usize = 4096;

    /// Appends a PDU header, or short data that are cheaper to copy than to reference.
    pub fn push_header(&mut self, header: &[u8]) {
        self.left += header.len();
        match self.pieces.back_mut() {
            // The first piece may be partly sent; appending to it leaves `first_offset` valid.
            Some(Piece::Headers(headers)) if headers.len() < SendList::FULL => {
                headers.extend_from_slice(header)
            }
            _ => {
                // At least 64 bytes: room for two headers of 24 bytes, such as a CapsuleResp and
                // the C2HData header of the next command.
                let mut headers = Vec::with_capacity(header.len().max(64));
                headers.extend_from_slice(header);
                self.pieces.push_back(Piece::Headers(headers));
            }
        }
    }

    /// Appends payload, without copying it.
    pub fn push_data(&mut self, data: Vec<u8>) {
        self.left += data.len();
        self.pieces.push_back(Piece::Data(data));
    }

    /// Number of unsent bytes.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The unsent bytes as slices, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.first_offset;
        self.pieces.iter().map(move |piece| &piece.bytes()[std::mem::take(&mut skip)..])
    }

    /// Removes the first `n` bytes, which were sent. Returns the bytes of payload that this freed.
    pub fn advance(&mut self, mut n: usize) -> usize {
        self.left = self.left.saturating_sub(n);
        let mut freed = 0;
        while let Some(first) = self.pieces.front() {
            let rest = first.bytes().len() - self.first_offset;
            if n < rest {
                self.first_offset += n;
                break;
            }
            n -= rest;
            self.first_offset = 0;
            if let Some(Piece::Data(data)) = self.pieces.pop_front() {
                freed += data.len();
            }
        }
        if self.left == 0 {
            // Frees the capacity that a burst has needed, as a server may hold thousands of idle
            // connections.
            self.pieces.shrink_to(64);
        }
        freed
    }
}
