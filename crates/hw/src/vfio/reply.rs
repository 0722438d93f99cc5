//! What the kernel answers, as bytes: fixed fields, then a chain of capabilities (`linux/vfio.h`). Nothing is believed that does not lie
//! within the bytes.

use std::io;
use std::ops::Range;

use vfio_bindings::bindings::vfio as bind;

/// `VFIO_IOMMU_GET_INFO` of a type 1 IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IommuInfo {
    /// Bus addresses that can be mapped, in ascending order. Empty: the kernel does not say.
    pub windows: Vec<Range<u64>>,
    /// Page sizes of the IOMMU, as bits; 0: not said.
    pub page_sizes: u64,
    /// Mappings that can still be made; `None`: not said.
    pub mappings_left: Option<u32>,
}

/// `VFIO_DEVICE_GET_REGION_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionInfo {
    /// Bytes of the region; 0: there is none.
    pub bytes: u64,
    /// Where it begins in the device's file.
    pub offset: u64,
    /// Parts of the region that can be mapped, in ascending order: whole pages of the machine.
    pub mappable: Vec<Range<u64>>,
}

/// Reads what `VFIO_IOMMU_GET_INFO` has answered.
pub(super) fn iommu_info(answer: &[u8]) -> io::Result<IommuInfo> {
    let answer = Answer(answer);
    let flags = answer.u32(4)?;
    let mut info = IommuInfo::default();
    if flags & bind::VFIO_IOMMU_INFO_PGSIZES != 0 {
        info.page_sizes = answer.u64(8)?;
    }
    if flags & bind::VFIO_IOMMU_INFO_CAPS != 0 {
        for capability in answer.capabilities(answer.u32(16)?)? {
            match u32::from(capability.id) {
                bind::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => {
                    info.windows = answer.pairs(capability.at, |first, last| first..last.saturating_add(1))?
                }
                bind::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => info.mappings_left = Some(answer.u32(capability.at + 8)?),
                _ => {}
            }
        }
    }
    Ok(info)
}

/// Reads what `VFIO_DEVICE_GET_REGION_INFO` has answered. `page`: bytes of the machine's pages, a power of two.
pub(super) fn region_info(answer: &[u8], page: u64) -> io::Result<RegionInfo> {
    let answer = Answer(answer);
    let (flags, bytes, offset) = (answer.u32(4)?, answer.u64(16)?, answer.u64(24)?);
    let mut areas = Vec::new();
    if flags & bind::VFIO_REGION_INFO_FLAG_MMAP != 0 {
        areas.push(0..bytes);
        if flags & bind::VFIO_REGION_INFO_FLAG_CAPS != 0 {
            for capability in answer.capabilities(answer.u32(12)?)? {
                // Around the MSI-X table, say, which is the kernel's.
                if u32::from(capability.id) == bind::VFIO_REGION_INFO_CAP_SPARSE_MMAP {
                    areas = answer.pairs(capability.at, |from, bytes| from..from.saturating_add(bytes))?;
                }
            }
        }
    }
    let whole = |area: Range<u64>| {
        let (start, end) = (area.start.checked_next_multiple_of(page)?, area.end.min(bytes) / page * page);
        (start < end && offset.checked_add(end).is_some() && end <= isize::MAX as u64).then_some(start..end)
    };
    Ok(RegionInfo { bytes, offset, mappable: ascending(areas.into_iter().filter_map(whole).collect()) })
}

/// In ascending order, without those that overlap the one before.
fn ascending(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut end = 0;
    ranges.retain(|range| {
        let apart = range.start >= end;
        end = if apart { range.end } else { end };
        apart
    });
    ranges
}

struct Answer<'a>(&'a [u8]);

/// A capability of a chain: where its header begins.
struct Capability {
    id: u16,
    at: usize,
}

impl Answer<'_> {
    /// An answer that does not hang together.
    fn malformed(&self, at: usize) -> io::Error {
        let what = format!("the kernel's answer makes no sense at byte {at} of {}", self.0.len());
        io::Error::new(io::ErrorKind::InvalidData, what)
    }

    fn bytes<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        self.0.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or_else(|| self.malformed(at))
    }

    fn u32(&self, at: usize) -> io::Result<u32> {
        Ok(u32::from_ne_bytes(self.bytes(at)?))
    }

    fn u64(&self, at: usize) -> io::Result<u64> {
        Ok(u64::from_ne_bytes(self.bytes(at)?))
    }

    /// The chain that begins at `first`; 0: there is none. It goes forward, as the kernel makes it, and so has an end.
    fn capabilities(&self, first: u32) -> io::Result<Vec<Capability>> {
        let (mut found, mut at) = (Vec::new(), first as usize);
        while at != 0 {
            let next = self.u32(at + 4)? as usize;
            found.push(Capability { id: u16::from_ne_bytes(self.bytes(at)?), at });
            if next != 0 && next <= at {
                return Err(self.malformed(at + 4));
            }
            at = next;
        }
        Ok(found)
    }

    /// The pairs of a capability that counts them: `{ header, u32 count, u32 reserved, { u64, u64 } … }`.
    fn pairs(&self, at: usize, range: impl Fn(u64, u64) -> Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let (count, first) = (self.u32(at + 8)? as usize, at + 16);
        let pairs = (0..count).map(|n| io::Result::Ok(range(self.u64(first + 16 * n)?, self.u64(first + 16 * n + 8)?)));
        Ok(ascending(pairs.collect::<io::Result<_>>()?))
    }
}

#[cfg(test)]
mod tests;
