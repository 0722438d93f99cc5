//! Numbers out of a fuzzer's bytes. Where they end there are zeroes: each target takes zero for "as
//! it should be".

/// The bytes that have not been used.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Source<'a> {
        Source(bytes)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// At most so many bytes.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn u64(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    pub fn u8(&mut self) -> u8 {
        self.u64(1) as u8
    }

    pub fn u16(&mut self) -> u16 {
        self.u64(2) as u16
    }

    pub fn u32(&mut self) -> u32 {
        self.u64(4) as u32
    }

    /// Below `n`, of which there are at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n
    }

    /// A number whose magnitude is as random as its digits.
    pub fn any_size(&mut self) -> u64 {
        let bits = self.u8() % 65;
        let number = self.u64(usize::from(bits.div_ceil(8)));
        if bits == 64 { number } else { number & ((1 << bits) - 1) }
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
