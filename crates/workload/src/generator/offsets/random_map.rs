//! Two ways to visit each block once per pass in random order: [`Shuffle`] if all I/Os have one
//! size, [`Bitmap`] if I/Os may have several blocks or the order is to be fio's.

/// A pseudo-random permutation of the numbers below `n`, another one in each pass, without a
/// bitmap.
///
/// A linear congruential generator modulo `2^k` (`2^(k-1) < n <= 2^k`) visits all numbers of `k`
/// bits before it repeats. Its lowest bits alternate, so the upper half of the bits is XORed into
/// the lower half, which is reversible. Results that are not below `n`, fewer than half, are
/// skipped. fio has a bitmap instead, which takes 32 MiB for a terabyte of 4 KiB blocks, cache
/// misses, and a search when few blocks are left.
#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    n: u64,
    mask: u64,
    shift: u32,
    state: u64,
    /// An odd number: with a multiplier that is 1 modulo 4 this gives the full period.
    increment: u64,
}

/// Odd constants with well-spread bits: the fractional parts of the golden ratio and of √2.
const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909];

impl Shuffle {
    /// The permutation of the numbers below `n` (0 counts as 1) that belongs to `seed`.
    pub fn new(n: u64, seed: u64) -> Shuffle {
        // Above 2^63 the next power of two overflows, and the mask becomes all ones.
        let n = n.max(1);
        let mask = n.checked_next_power_of_two().unwrap_or(0).wrapping_sub(1);
        let bits = 64 - mask.leading_zeros();
        Shuffle { n, mask, shift: (bits / 2).max(1), state: seed, increment: (seed >> 20) | 1 }
    }

    /// The next number of the pass.
    #[inline]
    pub fn next(&mut self) -> u64 {
        loop {
            self.state = self.state.wrapping_mul(ODD[0]).wrapping_add(self.increment);
            let x = self.state & self.mask;
            let x = x ^ (x >> self.shift);
            // Fewer than half of the numbers are skipped, so the loop takes fewer than two rounds
            // on average.
            if x < self.n {
                return x;
            }
        }
    }

    /// Begins another permutation. Returns how many numbers it has.
    pub fn start_pass(&mut self) -> u64 {
        self.state = self.state.rotate_left(29) ^ ODD[1];
        // The product of two odd numbers is odd, as the full period requires.
        self.increment = self.increment.wrapping_mul(ODD[1]);
        self.n
    }
}

/// Which blocks were visited in this pass: fio's random map (`axmap` in its lib/).
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    /// Which of `words` are full, so that the last free block of a large map is found fast.
    full: Vec<u64>,
    blocks: u64,
}

impl Bitmap {
    /// A map of `blocks` blocks, none of which is visited.
    pub fn new(blocks: u64) -> Bitmap {
        let blocks = blocks.max(1);
        let words = blocks.div_ceil(64) as usize;
        Bitmap { words: vec![0; words], full: vec![0; words.div_ceil(64)], blocks }
    }

    /// The first unvisited block at or after `hint`, else from the start; `None`: all are visited.
    pub fn free(&self, hint: u64) -> Option<u64> {
        self.free_from(hint).or_else(|| self.free_from(0))
    }

    /// Marks up to `wanted` blocks from `first` on as visited; stops before a block that is visited
    /// already. Returns the number of blocks marked.
    pub fn visit(&mut self, first: u64, wanted: u64) -> u64 {
        let mut n = 0;
        while n < wanted && first + n < self.blocks && !self.visited(first + n) {
            let index = ((first + n) / 64) as usize;
            self.words[index] |= 1 << ((first + n) % 64);
            // A search skips 64 words, 4096 blocks, for each word of `full`.
            if self.words[index] == !0 {
                self.full[index / 64] |= 1 << (index % 64);
            }
            n += 1;
        }
        n
    }

    /// Marks all blocks as unvisited. Returns how many there are.
    pub fn start_pass(&mut self) -> u64 {
        self.words.fill(0);
        self.full.fill(0);
        self.blocks
    }

    fn visited(&self, block: u64) -> bool {
        self.words[(block / 64) as usize] >> (block % 64) & 1 != 0
    }

    fn free_from(&self, block: u64) -> Option<u64> {
        let first = (block / 64) as usize;
        let here = !*self.words.get(first)? & (!0 << (block % 64));
        let (index, free) = if here != 0 {
            (first, here)
        } else {
            let next = zero_from(&self.full, first as u64 + 1)? as usize;
            (next, !*self.words.get(next)?)
        };
        let found = index as u64 * 64 + u64::from(free.trailing_zeros());
        (found < self.blocks).then_some(found)
    }
}

/// The first bit at or after `bit` that is 0.
fn zero_from(words: &[u64], bit: u64) -> Option<u64> {
    let mut index = (bit / 64) as usize;
    let mut zeros = !*words.get(index)? & (!0 << (bit % 64));
    while zeros == 0 {
        index += 1;
        zeros = !*words.get(index)?;
    }
    Some(index as u64 * 64 + u64::from(zeros.trailing_zeros()))
}

#[cfg(test)]
mod tests;
