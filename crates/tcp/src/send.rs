//! What is to be sent.

use std::collections::VecDeque;

/// Heads and data in the order in which they are sent. Data stay where they are; heads next to one
/// another are one piece.
#[derive(Debug, Default)]
pub struct SendList {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been sent.
    sent: usize,
    /// Bytes that are still to be sent.
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
    /// Bytes of heads in one piece, roughly.
    const TOGETHER: usize = 4096;

    /// A head, or anything else that is short.
    pub fn push_head(&mut self, head: &[u8]) {
        self.left += head.len();
        match self.pieces.back_mut() {
            // The first piece may be under way, which growing does not change.
            Some(Piece::Heads(heads)) if heads.len() < SendList::TOGETHER => {
                heads.extend_from_slice(head)
            }
            _ => self.pieces.push_back(Piece::Heads(head.to_vec())),
        }
    }

    /// Data.
    pub fn push_data(&mut self, data: Vec<u8>) {
        self.left += data.len();
        self.pieces.push_back(Piece::Data(data));
    }

    /// Bytes that are still to be sent.
    pub fn left(&self) -> usize {
        self.left
    }

    /// What is to be sent next, piece by piece.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.sent;
        self.pieces.iter().map(move |piece| &piece.bytes()[std::mem::take(&mut skip)..])
    }

    /// `n` bytes were sent. Returns how many bytes of data were freed.
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
            // Idle connections are many: what a burst took is given back.
            self.pieces.shrink_to(64);
        }
        freed
    }
}
