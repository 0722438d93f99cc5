//! Two ways to visit each block once per pass.

/// The numbers below `n` in a random order, each once, then in another order; without a map of what was visited.
///
/// A linear congruential generator modulo `2^k` (`2^(k-1) < n <= 2^k`) visits all numbers of `k` bits before it repeats
/// itself; folding the upper half of the bits into the lower one, which can be undone, hides that the lowest bits of such
/// a generator alternate. What falls on or above `n` is skipped, which is less than half. fio keeps a bitmap instead;
/// this costs no memory (32 MiB for a terabyte of 4 KiB blocks), no cache misses, and no search when few blocks are left.
#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    n: u64,
    mask: u64,
    shift: u32,
    state: u64,
    /// Odd, which together with a multiplier of 1 modulo 4 gives the full period.
    increment: u64,
}

/// Odd, with well-spread bits: the fractional parts of the golden ratio, and of the square root of 2.
const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909];

impl Shuffle {
    /// The numbers below `n`, in the order of `seed`; 0 counts as 1.
    pub fn new(n: u64, seed: u64) -> Shuffle {
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
            if x < self.n {
                return x;
            }
        }
    }

    /// Starts over, in another order: how many numbers there are.
    pub fn start_pass(&mut self) -> u64 {
        self.state = self.state.rotate_left(29) ^ ODD[1];
        // Stays odd.
        self.increment = self.increment.wrapping_mul(ODD[1]);
        self.n
    }
}

/// Which blocks were visited in this pass, for I/Os of several blocks and for those that fio's map decides.
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    /// Which words are full, so that the last free block of a large map is found soon.
    full: Vec<u64>,
    blocks: u64,
}

impl Bitmap {
    /// No block of `blocks` visited.
    pub fn new(blocks: u64) -> Bitmap {
        let blocks = blocks.max(1);
        let words = blocks.div_ceil(64) as usize;
        Bitmap { words: vec![0; words], full: vec![0; words.div_ceil(64)], blocks }
    }

    /// The first block that is not visited, at or after `hint` or else from the start; `None`: all are.
    pub fn free(&self, hint: u64) -> Option<u64> {
        self.free_from(hint).or_else(|| self.free_from(0))
    }

    /// Visits up to `wanted` blocks from `first` on, up to one that was visited: how many.
    pub fn visit(&mut self, first: u64, wanted: u64) -> u64 {
        let mut n = 0;
        while n < wanted && first + n < self.blocks && !self.visited(first + n) {
            let index = ((first + n) / 64) as usize;
            self.words[index] |= 1 << ((first + n) % 64);
            if self.words[index] == !0 {
                self.full[index / 64] |= 1 << (index % 64);
            }
            n += 1;
        }
        n
    }

    /// Forgets what was visited: how many blocks there are.
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
