//! Two ways to visit each block once per pass.

/// The numbers below `n` in a random order, each once, then in another order; without a map of what was visited.
///
/// A counter runs through a bijection of the numbers of `k` bits (`2^(k-1) < n <= 2^k`): odd multiplications and
/// xor-shifts, each of which can be undone, keyed by a seed. What falls on or above `n` is skipped, which is less than
/// half. fio keeps a bitmap instead; this costs no memory (32 MiB for a terabyte of 4 KiB blocks), no cache misses,
/// and no search when few blocks are left.
#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    n: u64,
    mask: u64,
    shift: u32,
    key: u64,
    count: u64,
}

/// Odd, with well-spread bits: the fractional parts of the golden ratio and of the square root of 2.
const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909];

impl Shuffle {
    /// The numbers below `n`, in the order of `seed`; 0 counts as 1.
    pub fn new(n: u64, seed: u64) -> Shuffle {
        let n = n.max(1);
        let mask = n.checked_next_power_of_two().unwrap_or(0).wrapping_sub(1);
        let bits = 64 - mask.leading_zeros();
        Shuffle { n, mask, shift: (bits / 2).max(1), key: seed, count: 0 }
    }

    /// How many numbers there are; never 0.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// The next number; after the last one, the first one of another order.
    #[inline]
    pub fn next(&mut self) -> u64 {
        loop {
            let x = self.mix(self.count);
            if self.count == self.mask {
                self.start_pass();
            } else {
                self.count += 1;
            }
            if x < self.n {
                return x;
            }
        }
    }

    /// Starts over, in another order.
    pub fn start_pass(&mut self) {
        self.count = 0;
        // Any other key will do.
        self.key = self.key.wrapping_mul(ODD[0]).wrapping_add(ODD[1]);
    }

    /// Where `i < n` lands in this order: a bijection of the numbers below `n`.
    pub fn at(&self, i: u64) -> u64 {
        // Walking the cycle of the larger bijection until it comes back below n is again a bijection.
        let mut x = self.mix(i);
        while x >= self.n {
            x = self.mix(x);
        }
        x
    }

    #[inline]
    fn mix(&self, x: u64) -> u64 {
        let mut x = x ^ (self.key & self.mask);
        for (odd, salt) in ODD.into_iter().zip([self.key >> 32, self.key.rotate_left(17)]) {
            x = x.wrapping_mul(odd) & self.mask;
            x ^= x >> self.shift;
            x = x.wrapping_add(salt) & self.mask;
        }
        x.wrapping_mul(ODD[0]) & self.mask ^ (self.key >> 7 & self.mask)
    }
}

/// Which blocks were visited in this pass, for I/Os of several blocks.
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    blocks: u64,
    left: u64,
}

impl Bitmap {
    /// No block of `blocks` visited.
    pub fn new(blocks: u64) -> Bitmap {
        let blocks = blocks.max(1);
        Bitmap { words: vec![0; blocks.div_ceil(64) as usize], blocks, left: blocks }
    }

    /// How many blocks there are; never 0.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Visits up to `wanted` (at least 1) blocks in a row, from the first one at or after `hint` that is not visited:
    /// where, and how many.
    pub fn take(&mut self, hint: u64, wanted: u64) -> (u64, u64) {
        if self.left == 0 {
            self.start_pass();
        }
        let first = self.free_from(hint).or_else(|| self.free_from(0)).unwrap_or(0);
        let mut n = 0;
        while n < wanted.max(1) && first + n < self.blocks && !self.visited(first + n) {
            self.words[((first + n) / 64) as usize] |= 1 << ((first + n) % 64);
            n += 1;
        }
        self.left -= n;
        (first, n.max(1))
    }

    /// Forgets what was visited.
    pub fn start_pass(&mut self) {
        self.words.fill(0);
        self.left = self.blocks;
    }

    fn visited(&self, block: u64) -> bool {
        self.words[(block / 64) as usize] >> (block % 64) & 1 != 0
    }

    fn free_from(&self, block: u64) -> Option<u64> {
        let first = (block / 64) as usize;
        let ahead = !0 << (block % 64);
        let mut free = !*self.words.get(first)? & ahead;
        let mut index = first;
        while free == 0 {
            index += 1;
            free = !*self.words.get(index)?;
        }
        let found = index as u64 * 64 + u64::from(free.trailing_zeros());
        (found < self.blocks).then_some(found)
    }
}

#[cfg(test)]
mod tests;
