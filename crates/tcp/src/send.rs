//! Send queue of one connection: headers and payload, in order, for a vectored send.

use std::collections::VecDeque;

/// Bytes to send, in order. Payload is not copied; adjacent headers are merged into one buffer, so
/// that a batch of commands needs few `iovec`s.
#[derive(Debug, Default)]
pub struct SendList {
    pieces: VecDeque<Piece>,
    /// Bytes of the first buffer that have been sent.
    sent: usize,
    /// Unsent bytes.
    left: usize,
}

#[derive(Debug)]
enum Piece {
    Heads(Vec<u8>),
    Data(Vec<u8>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Heads(bytes) | Piece::Data(bytes) => bytes,
        }
    }
}

impl SendList {
    /// A header buffer of at least so many bytes is full: the next header begins a new one.
    const FULL: usize = 4096;

    /// Appends a header, or short data that are cheaper to copy than to reference.
    pub fn push_head(&mut self, head: &[u8]) {
        self.left += head.len();
        match self.pieces.back_mut() {
            // The first buffer may be partly sent; appending to it does not move `sent`.
            Some(Piece::Heads(heads)) if heads.len() < SendList::FULL => {
                heads.extend_from_slice(head)
            }
            _ => {
                // Room for two headers, such as a response and the header of the data after it.
                let mut heads = Vec::with_capacity(head.len().max(64));
                heads.extend_from_slice(head);
                self.pieces.push_back(Piece::Heads(heads));
            }
        }
    }

    /// Appends payload, without copying it.
    pub fn push_data(&mut self, data: Vec<u8>) {
        self.left += data.len();
        self.pieces.push_back(Piece::Data(data));
    }

    /// Unsent bytes.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The unsent bytes as slices, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.sent;
        self.pieces.iter().map(move |piece| &piece.bytes()[std::mem::take(&mut skip)..])
    }

    /// `n` bytes were sent. Returns the bytes of payload that were freed.
    pub fn sent(&mut self, mut n: usize) -> usize {
        self.left = self.left.saturating_sub(n);
        let mut freed = 0;
        while let Some(first) = self.pieces.front() {
            let rest = first.bytes().len() - self.sent;
            if n < rest {
                self.sent += n;
                break;
            }
            n -= rest;
            self.sent = 0;
            if let Some(Piece::Data(data)) = self.pieces.pop_front() {
                freed += data.len();
            }
        }
        if self.left == 0 {
            // A burst's capacity is released, as a server may hold thousands of idle connections.
            self.pieces.shrink_to(64);
        }
        freed
    }
}
