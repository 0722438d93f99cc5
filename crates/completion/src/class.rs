//! Kinds of operation, and classes of commands with similar device times.

/// The operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Moves data to the host.
    Read,
    /// Moves data to the device.
    Write,
    /// Moves no data; makes earlier writes durable.
    Flush,
    /// Moves no data; makes blocks read as zeroes.
    WriteZeroes,
    /// Moves no data; hints that the blocks' contents are no longer needed (TRIM).
    Deallocate,
    /// Moves data to the device, which compares it with the blocks' contents and writes nothing.
    Compare,
    /// Moves no data; the device checks that blocks are readable.
    Verify,
    /// Moves no data; makes blocks unreadable until they are written again.
    WriteUncorrectable,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 8] = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::WriteZeroes,
        Op::Deallocate,
        Op::Compare,
        Op::Verify,
        Op::WriteUncorrectable,
    ];

    /// Its name as in the NVMe specification; Deallocate is an attribute of Dataset Management.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "Read",
            Op::Write => "Write",
            Op::Flush => "Flush",
            Op::WriteZeroes => "Write Zeroes",
            Op::Deallocate => "Deallocate",
            Op::Compare => "Compare",
            Op::Verify => "Verify",
            Op::WriteUncorrectable => "Write Uncorrectable",
        }
    }

    /// Whether it is Read or Write: the contents of blocks are transferred. Compare has a data
    /// buffer too, but only compares it with the blocks.
    pub fn transfers_blocks(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Whether it changes the blocks' contents. If the controller executes it late, after a newer
    /// write to the same blocks, it destroys the newer data.
    pub fn changes_blocks(self) -> bool {
        matches!(self, Op::Write | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable)
    }
}

/// Commands with similar device times: Reads, or Writes, of one power-of-two band of sizes. Each
/// other operation is one class, for any number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(u8);

impl Class {
    /// Number of classes. Every [`Class::index`] is below it.
    pub const COUNT: usize = Self::SIZELESS + 6;
    const BANDS: usize = 12;
    /// The first of the classes that do not depend on the size.
    const SIZELESS: usize = 2 * Self::BANDS;

    /// The class of a command of `bytes` bytes. Bands: up to 512 B, up to 1 KiB, … up to 512 KiB,
    /// larger. `bytes` is ignored for operations other than Read and Write.
    pub fn new(op: Op, bytes: u32) -> Class {
        if !op.transfers_blocks() {
            return Class((Self::SIZELESS + op as usize - Op::Flush as usize) as u8);
        }
        // Minus 1, as the upper limit of a band is inclusive.
        let band = match bytes.saturating_sub(1) >> 9 {
            0 => 0,
            n => ((32 - n.leading_zeros()) as usize).min(Self::BANDS - 1),
        };
        Class((op as usize * Self::BANDS + band) as u8)
    }

    /// The class of an index from [`Class::index`].
    pub fn from_index(index: u8) -> Class {
        // Limited, not asserted: the index may be unpacked from a 64-bit token, and an invalid one
        // must not panic.
        Class(index.min(Self::COUNT as u8 - 1))
    }

    /// The largest size of the class in bytes: 1 MiB for the last band, which has no upper limit,
    /// and 512 for a class that does not depend on the size.
    pub fn most_bytes(self) -> u32 {
        if usize::from(self.0) >= Self::SIZELESS {
            // Never 0: callers use it as a weight.
            return 512;
        }
        512 << (usize::from(self.0) % Self::BANDS)
    }

    /// A dense index below [`Class::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests;
