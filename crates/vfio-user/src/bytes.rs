//! Numbers out of bytes, and into them.

/// A message that cannot be what its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The size in its header. What follows cannot be told apart any more.
    #[error("a message says that it has {size} bytes; one has 16 to {most}")]
    Size {
        /// What the header says.
        size: u32,
        /// The most that a message may have.
        most: u32,
    },
    /// A body that ends within a field.
    #[error("the {what} ends after {len} bytes, within a field")]
    Short {
        /// What was read.
        what: &'static str,
        /// Bytes that there are.
        len: usize,
    },
    /// A field that contradicts another, or that no sender may set so.
    #[error("the {what} is {value:#x}, which cannot be")]
    Field {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// Too many descriptors.
    #[error("a message comes with more than {most} descriptors")]
    Descriptors {
        /// The most that a message may have.
        most: usize,
    },
    /// The capabilities are no JSON object, or one of them has no value that can be.
    #[error("the capabilities of a VERSION message cannot be read: {0}")]
    Capabilities(&'static str),
    /// A reply to a request that nobody made.
    #[error("message {id} is a reply, and nothing was asked")]
    Unasked {
        /// Its identifier.
        id: u16,
    },
}

/// What is left of a message, field by field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    len: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, len: bytes.len(), rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short { what: self.what, len: self.len })?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Fields of four bytes and of eight, one after another.
pub(crate) trait Put {
    fn u16(&mut self, value: u16) -> &mut Self;
    fn u32(&mut self, value: u32) -> &mut Self;
    fn u64(&mut self, value: u64) -> &mut Self;
}

impl Put for Vec<u8> {
    fn u16(&mut self, value: u16) -> &mut Self {
        self.extend(value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.extend(value.to_ne_bytes());
        self
    }
}
