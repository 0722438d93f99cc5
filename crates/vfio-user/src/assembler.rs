//! Messages out of a stream of bytes.

use crate::bytes::Malformed;
use crate::header::Header;

/// A message, whole.
#[derive(Debug)]
pub struct Message<F> {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub body: Vec<u8>,
    /// The descriptors that came with it, in their order.
    pub fds: Vec<F>,
    /// It came with more, for which this process, or the system, had no room (EMFILE, ENFILE).
    pub lost_fds: bool,
}

/// Cuts a stream into messages. It asks for the bytes of one message at a time and never for one more: descriptors travel beside the bytes that
/// they were sent with, so those that come with a message's bytes are the message's own.
#[derive(Debug)]
pub struct Assembler<F> {
    /// As long as what is read now: a header, or a whole message.
    bytes: Vec<u8>,
    filled: usize,
    header: Option<Header>,
    fds: Vec<F>,
    most_bytes: u32,
    most_fds: usize,
}

impl<F> Assembler<F> {
    /// For messages of at most so many bytes, the header included, with at most so many descriptors.
    pub fn new(most_bytes: u32, most_fds: usize) -> Assembler<F> {
        Assembler { bytes: vec![0; Header::SIZE], filled: 0, header: None, fds: Vec::new(), most_bytes, most_fds }
    }

    /// Where the next bytes go. Never empty.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Whether some of a message has come, and not all of it.
    pub fn is_within(&self) -> bool {
        self.filled > 0
    }

    /// The first `len` bytes of [`Assembler::space`] have been filled, at most all of them, and these descriptors came with them. Gives the
    /// message that they complete.
    ///
    /// # Errors
    /// The stream cannot be followed any further.
    pub fn filled(&mut self, len: usize, fds: impl IntoIterator<Item = F>) -> Result<Option<Message<F>>, Malformed> {
        self.fds.extend(fds);
        if self.fds.len() > self.most_fds {
            return Err(Malformed::Descriptors { most: self.most_fds });
        }
        self.filled = (self.filled + len).min(self.bytes.len());
        if self.filled < self.bytes.len() {
            return Ok(None);
        }
        let header = match self.header {
            Some(header) => header,
            None => self.begin()?,
        };
        if self.filled < self.bytes.len() {
            return Ok(None);
        }
        self.header = None;
        self.filled = 0;
        let bytes = std::mem::replace(&mut self.bytes, vec![0; Header::SIZE]);
        Ok(Some(Message { header, body: bytes[Header::SIZE..].to_vec(), fds: std::mem::take(&mut self.fds), lost_fds: false }))
    }

    /// The header is there.
    fn begin(&mut self) -> Result<Header, Malformed> {
        let header = Header::from_bytes(&self.bytes)?;
        if header.size < Header::SIZE as u32 || header.size > self.most_bytes {
            return Err(Malformed::Size { size: header.size, most: self.most_bytes });
        }
        self.bytes.resize(header.size as usize, 0);
        self.header = Some(header);
        Ok(header)
    }
}

#[cfg(test)]
mod tests;
