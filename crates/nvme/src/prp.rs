//! Physical Region Pages: where the data of a command are (Base 4.3.1).

use crate::Sqe;

/// DPTR as two PRP entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dptr {
    /// PRP1: where the data begin.
    pub prp1: u64,
    /// PRP2: the second page, or a PRP list of the second and later pages, or unused.
    pub prp2: u64,
}

impl Dptr {
    /// A command without data.
    pub const NONE: Dptr = Dptr { prp1: 0, prp2: 0 };

    /// An otherwise empty entry with this data pointer.
    #[inline]
    pub(crate) fn into_sqe(self) -> Sqe {
        Sqe { prp1: self.prp1, prp2: self.prp2, ..Sqe::default() }
    }
}
