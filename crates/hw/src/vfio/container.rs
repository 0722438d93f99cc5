//! A container: an IOMMU, and the memory that it maps for the devices of a group.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use vfio_bindings::bindings::vfio as bind;

use super::call::{self, Call, word};
use super::error::VfioError;
use super::reply::{self, IommuInfo};
use crate::dma::{Chunk, Pinner};

/// A container with a type 1 IOMMU. Memory is pinned and mapped through it for as long as its group is open, which the device keeps: once
/// that is closed the kernel has unmapped everything, also where another thread still has a container.
#[derive(Debug)]
pub struct Container {
    fd: OwnedFd,
    info: IommuInfo,
}

impl Container {
    /// Puts a group into a container, and an IOMMU behind it.
    pub(super) fn new(fd: OwnedFd, group: BorrowedFd<'_>) -> Result<Container, VfioError> {
        let version = call::plain(fd.as_fd(), Call::ApiVersion, 0).map_err(VfioError::system("ask VFIO for its version"))?;
        if version != bind::VFIO_API_VERSION {
            return Err(VfioError::Lacks(format!("the kernel's VFIO has version {version}, and Reap speaks {}", bind::VFIO_API_VERSION)));
        }
        call::set_container(group, fd.as_fd()).map_err(VfioError::system("put the IOMMU group into a container"))?;
        let offered = call::plain(fd.as_fd(), Call::CheckExtension, bind::VFIO_TYPE1v2_IOMMU);
        if offered.map_err(VfioError::system("ask VFIO for its IOMMUs"))? == 0 {
            return Err(VfioError::Lacks("the kernel offers no type 1 IOMMU for it; `modprobe vfio_iommu_type1` loads it".into()));
        }
        call::plain(fd.as_fd(), Call::SetIommu, bind::VFIO_TYPE1v2_IOMMU).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => VfioError::UnsafeInterrupts,
            _ => VfioError::System { what: "put a type 1 IOMMU behind the container".into(), source },
        })?;
        let answer = call::ask(&fd, Call::IommuInfo, 0).map_err(VfioError::system("ask the IOMMU what it maps"))?;
        let info = reply::iommu_info(&answer).map_err(|source| VfioError::Malformed { what: "what the IOMMU maps", source })?;
        if info.page_sizes != 0 && info.page_sizes & (PAGE | (PAGE - 1)) == 0 {
            return Err(VfioError::Lacks(format!("the IOMMU maps no pages of {PAGE} bytes (its sizes, as bits: {:#x})", info.page_sizes)));
        }
        Ok(Container { fd, info })
    }

    /// Bus addresses that the IOMMU lets through, in ascending order; none of them is where it keeps addresses for messages. Empty: the
    /// kernel does not say (before Linux 5.4).
    pub fn windows(&self) -> &[Range<u64>] {
        &self.info.windows
    }
}

/// Bytes of a page of NVMe's, as Reap sets it.
const PAGE: u64 = 4096;

impl Pinner for Container {
    /// `VFIO_IOMMU_MAP_DMA`, for reading and writing.
    fn pin(&self, chunk: Chunk, _: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        let flags = bind::VFIO_DMA_MAP_FLAG_READ | bind::VFIO_DMA_MAP_FLAG_WRITE;
        // `vfio_iommu_type1_dma_map`: argsz, flags, vaddr, iova, size.
        let mut map = [word(0, flags), chunk.memory.addr().get() as u64, chunk.addr, chunk.bytes];
        call::sized(&self.fd, Call::MapDma, &mut map).map(drop).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => io::Error::other(format!(
                "the container has as many mappings as it may have ({}); raise `dma_entry_limit` of the module vfio_iommu_type1, or use less memory",
                self.info.mappings_left.map_or("their number is not said".to_owned(), |left| format!("{left} at first"))
            )),
            _ => error,
        })
    }

    /// `VFIO_IOMMU_UNMAP_DMA`.
    fn unpin(&self, chunk: Chunk) {
        // `vfio_iommu_type1_dma_unmap`: argsz, flags, iova, size.
        let mut unmap = [word(0, 0), chunk.addr, chunk.bytes];
        // It fails only where the kernel has unmapped everything by itself.
        _ = call::sized(&self.fd, Call::UnmapDma, &mut unmap);
    }
}
