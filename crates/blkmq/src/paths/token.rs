//! What a request was counted in, in one word: it is passed on, kept and looked at for every request.

use std::fmt;
use std::num::NonZeroU64;

use units::Class;

use super::count::NO_ROW;
use super::place::Kind;
use super::set::{PathId, PathSet};

/// What a request was counted in. It goes with the request, and back by [`Paths::end`](super::Paths::end) or
/// [`Paths::abandon`](super::Paths::abandon), once.
///
/// From the lowest bit: the row of counts (32 bits; `NO_ROW`: the policy does not count), path, class and kind (8 each), and a 1.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "what is counted has to be taken back"]
pub struct Token(NonZeroU64);

const PATH: u32 = 32;
const CLASS: u32 = 40;
const KIND: u32 = 48;
const SOME: NonZeroU64 = NonZeroU64::new(1 << 63).unwrap();

impl Token {
    #[inline]
    pub(super) fn new(row: u32, kind: Kind, class: Class, path: PathId) -> Token {
        Token(SOME | u64::from(row) | u64::from(path.0) << PATH | (class.index() as u64) << CLASS | (kind as u64) << KIND)
    }

    /// The path that the request took.
    #[inline]
    pub fn path(&self) -> PathId {
        PathId((self.0.get() >> PATH) as u8 % PathSet::MOST as u8)
    }

    #[inline]
    pub(super) fn row(&self) -> u32 {
        self.0.get() as u32
    }

    /// Whether it is counted at all.
    #[inline]
    pub(super) fn is_counted(&self) -> bool {
        self.row() != NO_ROW
    }

    #[inline]
    pub(super) fn kind(&self) -> Kind {
        Kind::of_number((self.0.get() >> KIND) as u8)
    }

    #[inline]
    pub(super) fn class(&self) -> Class {
        Class::of_index((self.0.get() >> CLASS) as u8)
    }

    /// What it is counted as.
    #[inline]
    pub(super) fn weight(&self) -> u32 {
        weight(self.kind(), self.class())
    }
}

/// What a request is counted as: one, or for `latency` so many times 4 KiB.
#[inline]
pub(super) fn weight(kind: Kind, class: Class) -> u32 {
    if kind == Kind::Loads { class.most_bytes().div_ceil(4096).max(1) } else { 1 }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = Some(self.row()).filter(|_| self.is_counted());
        f.debug_struct("Token").field("path", &self.path()).field("row", &row).field("kind", &self.kind()).finish_non_exhaustive()
    }
}
