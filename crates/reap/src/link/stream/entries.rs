//! Entries of a fixed size out of bytes that are cut anywhere.

/// What has come of an entry whose rest has not.
#[derive(Debug)]
pub(in crate::link) struct Entries<const BYTES: usize> {
    part: [u8; BYTES],
    /// Bytes of `part`, less than all.
    have: usize,
}

impl<const BYTES: usize> Default for Entries<BYTES> {
    fn default() -> Self {
        Entries { part: [0; BYTES], have: 0 }
    }
}

impl<const BYTES: usize> Entries<BYTES> {
    /// Bytes that have come of an entry whose rest has not.
    pub(in crate::link) fn have(&self) -> usize {
        self.have
    }

    /// Takes bytes, in the order in which they were sent: each entry that is whole with them goes to `each`, and what is left over
    /// waits for more.
    pub(in crate::link) fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut([u8; BYTES])) {
        if self.have > 0 {
            let (rest, others) = bytes.split_at(bytes.len().min(BYTES - self.have));
            self.part[self.have..self.have + rest.len()].copy_from_slice(rest);
            (self.have, bytes) = (self.have + rest.len(), others);
            if self.have < BYTES {
                return;
            }
            each(self.part);
        }
        let (whole, left) = bytes.as_chunks::<BYTES>();
        whole.iter().for_each(|entry| each(*entry));
        self.part[..left.len()].copy_from_slice(left);
        self.have = left.len();
    }
}

#[cfg(test)]
mod tests;
