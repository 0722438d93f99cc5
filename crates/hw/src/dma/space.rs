//! Allocation of bus addresses, for a pool and for the regions registered in addition to it. They never
//! equal pointers, and fit the address width of the device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::lock;
use super::region::{AnyRegion, Registered};
use super::{CHUNK, PAGE};

/// Default address width in bits.
pub(super) const USUAL_BITS: u32 = 48;
/// Lowest bus address in use. Lower addresses are left out, so that a null pointer is detected, and
/// because x86 has its MSI address range there.
const FIRST: u64 = 1 << 32;
/// Pools rotate through this many slots of bus addresses, away from where Linux places process
/// memory. Two pools rarely share one, so that an address of the wrong pool is detected too.
const SLOTS: u64 = 32;
/// Largest size of a slot in bytes.
const SLOT_BYTES: u64 = 1 << 41;

/// The bus addresses of one pool's device.
#[derive(Debug)]
pub(super) struct AddressSpace {
    pool: Range<u64>,
    /// Usable address ranges, in ascending order.
    windows: Vec<Range<u64>>,
    regions: Mutex<BTreeMap<u64, RegionEntry>>,
}

/// The end and the region of an address range, which is keyed by its first address.
#[derive(Debug)]
struct RegionEntry {
    end: u64,
    region: Weak<AnyRegion>,
}

impl AddressSpace {
    /// Bus addresses of `bits` bits within `windows` (empty: all), with a pool of `bytes` bytes. If
    /// that does not fit, returns the size of the largest window.
    pub fn new(bytes: u64, bits: u32, windows: &[Range<u64>]) -> Result<AddressSpace, u64> {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        let limit = 1u64.checked_shl(bits).unwrap_or(1 << 63);
        let slot = 1 + POOLS.fetch_add(1, Ordering::Relaxed) % SLOTS;
        let windows = usable(windows, limit);
        let fits = |base: &u64| {
            let inside = |window: &Range<u64>| window.contains(base) && window.end - base >= bytes;
            base.is_multiple_of(CHUNK) && windows.iter().any(inside)
        };
        // Preferably in the slot; else at the start of the first window that is large enough.
        let wanted = (slot * SLOT_BYTES.min(limit / 64)).max(FIRST);
        let begins =
            windows.iter().filter_map(|window| window.start.checked_next_multiple_of(CHUNK));
        let base = std::iter::once(wanted).chain(begins).find(fits);
        let base = base.ok_or_else(|| {
            windows.iter().map(|window| window.end - window.start).max().unwrap_or(0)
        })?;
        Ok(AddressSpace { pool: base..base + bytes, windows, regions: Mutex::default() })
    }

    /// Bus address of the pool's first byte.
    pub fn pool_base(&self) -> u64 {
        self.pool.start
    }

    /// One past the last bus address.
    pub fn limit(&self) -> u64 {
        self.windows.last().map_or(FIRST, |window| window.end)
    }

    /// Reserves `bytes` bus addresses for a region: the first that are free after the pool, or else
    /// before it.
    pub fn reserve(&self, bytes: u64) -> Option<u64> {
        let mut regions = lock(&self.regions);
        let after = self.windows.iter().map(|window| window.start.max(self.pool.end)..window.end);
        let before =
            self.windows.iter().map(|window| window.start..window.end.min(self.pool.start));
        let base = after
            .chain(before)
            .filter(|within| within.start < within.end)
            .find_map(|within| gap(&regions, within, bytes))?;
        regions
            .insert(base, RegionEntry { end: base + bytes, region: Weak::<Registered<()>>::new() });
        Some(base)
    }

    /// Makes a reserved region visible to [`AddressSpace::find`].
    pub fn publish(&self, base: u64, region: Weak<AnyRegion>) {
        if let Some(entry) = lock(&self.regions).get_mut(&base) {
            entry.region = region;
        }
    }

    /// Frees the addresses reserved at `base`.
    pub fn free(&self, base: u64) {
        lock(&self.regions).remove(&base);
    }

    /// The region that contains this bus address. The result keeps its memory alive.
    pub fn find(&self, addr: u64) -> Option<Arc<AnyRegion>> {
        lock(&self.regions)
            .range(..=addr)
            .next_back()
            .filter(|(_, entry)| addr < entry.end)?
            .1
            .region
            .upgrade()
    }
}

/// The usable part of `windows` between [`FIRST`] and `limit`: whole pages, ascending, without
/// overlaps.
fn usable(windows: &[Range<u64>], limit: u64) -> Vec<Range<u64>> {
    let all = FIRST..limit;
    let windows = if windows.is_empty() { std::slice::from_ref(&all) } else { windows };
    let page = |window: &Range<u64>| {
        Some(
            window.start.max(FIRST).checked_next_multiple_of(PAGE)?
                ..window.end.min(limit) / PAGE * PAGE,
        )
    };
    let mut usable: Vec<Range<u64>> =
        windows.iter().filter_map(page).filter(|window| window.start < window.end).collect();
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
fn gap(regions: &BTreeMap<u64, RegionEntry>, within: Range<u64>, bytes: u64) -> Option<u64> {
    let mut from = within.start;
    for (&base, entry) in regions.range(within.clone()) {
        if base - from >= bytes {
            break;
        }
        from = entry.end;
    }
    (within.end.saturating_sub(from) >= bytes).then_some(from)
}

#[cfg(test)]
mod tests;
