//! Namespaces: what can be read and written.

use blkmq::Splitter;
use nvme::Nsid;

/// A namespace of an open device. Cheap to copy; requests carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    nsid: Nsid,
    splitter: Splitter,
    blocks: u64,
}

impl Namespace {
    pub(crate) fn new(nsid: Nsid, splitter: Splitter, blocks: u64) -> Namespace {
        Namespace { nsid, splitter, blocks }
    }

    /// Its identifier (Base 3.2.1).
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// Bytes of a logical block (NVM 4.1.5.1, LBADS).
    pub fn block_bytes(&self) -> u32 {
        self.splitter.block_size() as u32
    }

    /// Size in logical blocks (NVM 4.1.5.1, NSZE).
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.splitter.block_size())
    }

    /// How requests are split.
    pub(crate) fn splitter(&self) -> Splitter {
        self.splitter
    }
}
