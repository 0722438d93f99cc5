//! What the device and a region's buffers know of a region, no matter who owns its memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::extent::Extent;
use super::lock::lock;

/// Where the device finds what was lent beside a region: see [`DmaPool::register_with`](super::DmaPool::register_with).
#[derive(Debug)]
pub struct Beside {
    /// Bus address of the region's first byte.
    pub base: u64,
    /// Bus address of what stands beside it.
    pub addr: u64,
    /// Which pages of it are written, for those who write it page by page.
    pub written: Box<[AtomicBool]>,
}

/// A region that is registered. Fields are dropped in this order: nobody names the memory any more when what it `keeps` goes.
pub(super) struct Registered<K: ?Sized> {
    /// The device's view of it.
    pub extent: Extent,
    /// Ranges that are given out: the first byte of each, and one past its last.
    out: Mutex<BTreeMap<u64, u64>>,
    pub beside: Option<Beside>,
    pub keeps: K,
}

/// Any of them, no matter who owns its memory.
pub(super) type AnyRegion = Registered<dyn Send + Sync>;

impl<K> Registered<K> {
    /// Nothing of it is given out.
    pub fn new(extent: Extent, keeps: K) -> Registered<K> {
        Registered { extent, out: Mutex::default(), beside: None, keeps }
    }
}

impl<K: ?Sized> Registered<K> {
    /// Gives out a range, unless one that is given out already is in the way: that one.
    pub fn give_out(&self, range: Range<u64>) -> Result<(), Range<u64>> {
        let mut out = lock(&self.out);
        if let Some((&from, &to)) = out.range(..range.end).next_back().filter(|&(_, &to)| to > range.start) {
            return Err(from..to);
        }
        out.insert(range.start, range.end);
        Ok(())
    }

    /// The range that begins at bus address `addr` is nobody's any more.
    #[cold] // buffers are kept: no I/O's code has room for it
    pub fn give_back(&self, addr: u64) {
        lock(&self.out).remove(&(addr - self.extent.base()));
    }
}

impl<K: ?Sized> fmt::Debug for Registered<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registered { extent, out, beside, .. } = self;
        f.debug_struct("Registered").field("extent", extent).field("out", out).field("beside", beside).finish_non_exhaustive()
    }
}
