//! Bus addresses: where a pool begins, and which regions follow it. They are never pointers, and none is wider than the
//! device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::lock;
use super::region::{AnyRegion, Registered};
use super::{CHUNK, PAGE};

/// What any device reaches.
pub(super) const USUAL_BITS: u32 = 48;
/// Below is nobody's: null pointers are found out, and x86 keeps addresses for messages there.
const FIRST: u64 = 1 << 32;
/// Pools take turns in this many ranges of bus addresses, none where Linux puts a process's memory. Two pools rarely share
/// one, so that an address of the wrong pool is noticed as well.
const TURNS: u64 = 32;
/// The widest of them.
const TURN: u64 = 1 << 41;

/// The bus addresses of one pool's device.
#[derive(Debug)]
pub(super) struct Space {
    pool: Range<u64>,
    /// What the device reaches, in ascending order.
    windows: Vec<Range<u64>>,
    regions: Mutex<BTreeMap<u64, Known>>,
}

/// A region by its first bus address.
#[derive(Debug)]
struct Known {
    end: u64,
    region: Weak<AnyRegion>,
}

impl Space {
    /// Bus addresses of `bits` bits in `windows` (none: all), with a pool of `bytes` bytes. The room there is in one piece, if it is too
    /// little.
    pub fn new(bytes: u64, bits: u32, windows: &[Range<u64>]) -> Result<Space, u64> {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        let limit = 1u64.checked_shl(bits).unwrap_or(1 << 63);
        let turn = 1 + POOLS.fetch_add(1, Ordering::Relaxed) % TURNS;
        let windows = usable(windows, limit);
        let fits = |base: &u64| {
            let inside = |window: &Range<u64>| window.contains(base) && window.end - base >= bytes;
            base.is_multiple_of(CHUNK) && windows.iter().any(inside)
        };
        let wanted = (turn * TURN.min(limit / 64)).max(FIRST);
        let begins = windows.iter().filter_map(|window| window.start.checked_next_multiple_of(CHUNK));
        let base = std::iter::once(wanted).chain(begins).find(fits);
        let base = base.ok_or_else(|| windows.iter().map(|window| window.end - window.start).max().unwrap_or(0))?;
        Ok(Space { pool: base..base + bytes, windows, regions: Mutex::default() })
    }

    /// Bus address of the pool's first byte.
    pub fn pool(&self) -> u64 {
        self.pool.start
    }

    /// One past the last bus address.
    pub fn limit(&self) -> u64 {
        self.windows.last().map_or(FIRST, |window| window.end)
    }

    /// Keeps `bytes` bus addresses for a region: the first that are free after the pool, or before it.
    pub fn reserve(&self, bytes: u64) -> Option<u64> {
        let mut regions = lock(&self.regions);
        let after = self.windows.iter().map(|window| window.start.max(self.pool.end)..window.end);
        let before = self.windows.iter().map(|window| window.start..window.end.min(self.pool.start));
        let base = after.chain(before).filter(|within| within.start < within.end).find_map(|within| gap(&regions, within, bytes))?;
        regions.insert(base, Known { end: base + bytes, region: Weak::<Registered<()>>::new() });
        Some(base)
    }

    /// From now on the device finds the region.
    pub fn know(&self, base: u64, region: Weak<AnyRegion>) {
        if let Some(known) = lock(&self.regions).get_mut(&base) {
            known.region = region;
        }
    }

    /// The bus addresses from `base` on are free again.
    pub fn forget(&self, base: u64) {
        lock(&self.regions).remove(&base);
    }

    /// The region with this bus address. While the result lives its memory does.
    pub fn find(&self, addr: u64) -> Option<Arc<AnyRegion>> {
        lock(&self.regions).range(..=addr).next_back().filter(|(_, known)| addr < known.end)?.1.region.upgrade()
    }
}

/// What of `windows` can be had of bus addresses from [`FIRST`] up to `limit`: whole pages, in ascending order, none twice.
fn usable(windows: &[Range<u64>], limit: u64) -> Vec<Range<u64>> {
    let all = FIRST..limit;
    let windows = if windows.is_empty() { std::slice::from_ref(&all) } else { windows };
    let page = |window: &Range<u64>| Some(window.start.max(FIRST).checked_next_multiple_of(PAGE)?..window.end.min(limit) / PAGE * PAGE);
    let mut usable: Vec<Range<u64>> = windows.iter().filter_map(page).filter(|window| window.start < window.end).collect();
    usable.sort_by_key(|window| window.start);
    let mut end = 0;
    usable.retain_mut(|window| {
        window.start = window.start.max(end);
        end = end.max(window.end);
        window.start < window.end
    });
    usable
}

/// The first `bytes` addresses of `within` that no region has.
fn gap(regions: &BTreeMap<u64, Known>, within: Range<u64>, bytes: u64) -> Option<u64> {
    let mut from = within.start;
    for (&base, known) in regions.range(within.clone()) {
        if base - from >= bytes {
            break;
        }
        from = known.end;
    }
    (within.end.saturating_sub(from) >= bytes).then_some(from)
}

#[cfg(test)]
mod tests;
