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
    /// The device that the namespace belongs to, by a number that no other device of the process
    /// has.
    device: u32,
}

impl Namespace {
    pub(crate) fn new(nsid: Nsid, splitter: Splitter, blocks: u64, device: u32) -> Namespace {
        Namespace { nsid, splitter, blocks, device }
    }

    /// The same namespace with another size.
    pub(crate) fn with_blocks(self, blocks: u64) -> Namespace {
        Namespace { blocks, ..self }
    }

    /// The same namespace with another way to split requests.
    pub(crate) fn with_splitter(self, splitter: Splitter) -> Namespace {
        Namespace { splitter, ..self }
    }

    /// Its identifier (Base §3.2.1).
    #[inline]
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// The number of bytes of a logical block (NVM §4.1.5.1, LBADS).
    #[inline]
    pub fn block_bytes(&self) -> u32 {
        self.splitter.block_size() as u32
    }

    /// Size in logical blocks (NVM §4.1.5.1, NSZE), as of when this handle was made:
    /// [`crate::Device::current`] has a newer one. A request beyond this size is refused here; a
    /// request beyond the size that the controller knows fails on the controller.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.splitter.block_size())
    }

    /// The maximum number of blocks of one Write Zeroes command; longer requests are split. `None`:
    /// the controller, block device or file system does not support the command, and
    /// [`crate::Request::write_zeroes`] is refused. That a file system does not support it may be
    /// known only after the first request: [`crate::Device::current`] shows it then.
    pub fn supports_write_zeroes(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::WriteZeroes)
    }

    /// The same for Deallocate (Dataset Management) and [`crate::Request::deallocate`].
    pub fn supports_deallocate(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::Deallocate)
    }

    /// The maximum number of ranges of one [`crate::Request::deallocate_ranges`], a power of two
    /// from 1 to 256. It is 1 for files, block devices, and controllers that take no lists.
    pub fn max_ranges(&self) -> u32 {
        self.splitter.max_ranges()
    }

    /// The maximum number of blocks of one Compare command; longer requests are split. `None`: the
    /// controller does not support the command, or the device is a file or block device, for which
    /// the kernel has no such operation. [`crate::Request::compare`] is then refused.
    pub fn supports_compare(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::Compare)
    }

    /// The same for Verify and [`crate::Request::verify`].
    pub fn supports_verify(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::Verify)
    }

    /// The same for Write Uncorrectable and [`crate::Request::write_uncorrectable`].
    pub fn supports_write_uncorrectable(&self) -> Option<u32> {
        self.splitter.max_optional_blocks(Op::WriteUncorrectable)
    }

    /// The same namespace for a request of this kind, which is split in its own way.
    pub(crate) fn of(&self, op: Op) -> Namespace {
        Namespace { splitter: self.splitter.of(op), ..*self }
    }

    /// The same namespace for a request whose parts are looked at one by one.
    pub(crate) fn without_fast_path(&self) -> Namespace {
        Namespace { splitter: self.splitter.without_fast_path(), ..*self }
    }

    /// The number of the device that the namespace belongs to.
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
