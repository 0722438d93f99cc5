//! What a job says of reads, writes and trims apart.

use units::Op;

/// One value for reads, one for writes, and one for trims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerOp<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
    /// For trims: commands that deallocate blocks.
    pub trim: T,
}

impl<T> PerOp<T> {
    /// The same for all of them.
    pub fn both(value: T) -> PerOp<T>
    where
        T: Clone,
    {
        PerOp { read: value.clone(), write: value.clone(), trim: value }
    }

    /// The value for `op`; what only looks at blocks counts as a read, and whatever else is no trim as a write.
    #[inline]
    pub fn get(&self, op: Op) -> &T {
        match op {
            Op::Read | Op::Compare | Op::Verify => &self.read,
            Op::Write | Op::Flush | Op::WriteZeroes | Op::WriteUncorrectable => &self.write,
            Op::Deallocate => &self.trim,
        }
    }

    /// The value for `op`, to change it.
    #[inline]
    pub fn get_mut(&mut self, op: Op) -> &mut T {
        match op {
            Op::Read | Op::Compare | Op::Verify => &mut self.read,
            Op::Write | Op::Flush | Op::WriteZeroes | Op::WriteUncorrectable => &mut self.write,
            Op::Deallocate => &mut self.trim,
        }
    }
}
