//! Namespaces: what can be read and written.

use driver::Splitter;
use nvme::Nsid;
use units::Op;

/// A namespace of an open device. Cheap to copy; requests carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    nsid: Nsid,
    splitter: Splitter,
    blocks: u64,
    /// The device it belongs to, by a number that no other device of the process has.
    device: u32,
}

impl Namespace {
    pub(crate) fn new(nsid: Nsid, splitter: Splitter, blocks: u64, device: u32) -> Namespace {
        Namespace { nsid, splitter, blocks, device }
    }

    /// The same in another size.
    pub(crate) fn with_blocks(self, blocks: u64) -> Namespace {
        Namespace { blocks, ..self }
    }

    /// The same where requests are split so.
    pub(crate) fn with_splitter(self, splitter: Splitter) -> Namespace {
        Namespace { splitter, ..self }
    }

    /// Its identifier (Base §3.2.1).
    #[inline]
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// Bytes of a logical block (NVM §4.1.5.1, LBADS).
    #[inline]
    pub fn block_bytes(&self) -> u32 {
        self.splitter.block_size() as u32
    }

    /// Size in logical blocks (NVM §4.1.5.1, NSZE), as of when the handle was had:
    /// [`crate::Device::current`] has a newer one. What is controller it is refused; what is
    /// controller the size that the controller knows fails there.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.splitter.block_size())
    }

    /// The most blocks of one Write Zeroes. `None`: the controller, block device or file system has
    /// none, and [`crate::Request::write_zeroes`] is refused. Longer requests are split. Of a file
    /// it may show at the first request that there is none: [`crate::Device::current`] says it
    /// then.
    pub fn supports_write_zeroes(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::WriteZeroes)
    }

    /// The same of Deallocate (Dataset Management) and [`crate::Request::deallocate`].
    pub fn supports_deallocate(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::Deallocate)
    }

    /// The most ranges of one [`crate::Request::deallocate_ranges`], a power of two from 1 to 256.
    /// Files, block devices and controllers that take no lists have 1.
    pub fn max_ranges(&self) -> u32 {
        self.splitter.max_ranges()
    }

    /// The most blocks of one Compare, and whether there is such a command at all: `None` where the
    /// controller has none, and of files and block devices, whose kernel has none.
    /// [`crate::Request::compare`] is then refused. Longer requests are split.
    pub fn supports_compare(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::Compare)
    }

    /// The same of Verify and [`crate::Request::verify`].
    pub fn supports_verify(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::Verify)
    }

    /// The same of Write Uncorrectable and [`crate::Request::write_uncorrectable`].
    pub fn supports_write_uncorrectable(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::WriteUncorrectable)
    }

    /// The same for a request of this kind, which is split in its own way.
    pub(crate) fn of(&self, op: Op) -> Namespace {
        Namespace { splitter: self.splitter.of(op), ..*self }
    }

    /// The same for a request whose parts are looked at one by one.
    pub(crate) fn without_fast_path(&self) -> Namespace {
        Namespace { splitter: self.splitter.without_fast_path(), ..*self }
    }

    /// The number of the device that it belongs to.
    #[inline]
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// How requests are split.
    #[inline]
    pub(crate) fn splitter(&self) -> Splitter {
        self.splitter
    }
}
