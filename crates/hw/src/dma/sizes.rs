//! The sizes that memory comes in.

/// What the device's bus addresses and the kernel's mappings are counted in.
pub(super) const PAGE: u64 = 4096;
/// The smallest block: one logical block of the smallest LBA format.
pub(super) const MIN_BLOCK: u64 = 512;
/// The largest block that is split; larger ones are runs of these. Memory is pinned by as much.
pub(super) const CHUNK: u64 = 4 << 20;
/// The largest pool, and the largest region.
pub(super) const MAX_POOL: u64 = 1 << 40;
