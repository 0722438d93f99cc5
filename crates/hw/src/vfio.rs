//! Drives a PCI function through VFIO's container, group and device (Linux
//! `Documentation/driver-api/vfio.rst`, `linux/vfio.h`): maps its registers, routes its MSI-X
//! messages to eventfds, and maps memory in the IOMMU.
//!
//! ```text
//! /dev/vfio/vfio   container: the IOMMU address space; memory is pinned and mapped here
//!   +- /dev/vfio/N   group: all functions that the IOMMU cannot tell apart; one user at a time
//!        +- device     registers (BAR0), configuration space, MSI-X eventfds, reset
//! ```
//!
//! However the process ends, the kernel closes the descriptors and thereby resets the function,
//! unmaps its memory in the IOMMU and unpins it.
//!
//! The crate `vfio-ioctls` is not used: it does not read the IOVA ranges of the IOMMU
//! (`VFIO_IOMMU_GET_INFO`), without which a bus address may be one that the IOMMU reserves, and its
//! read, write and reset functions do not return errors.

mod call;
mod registers;

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvme::Vector;
use units::Nanos;
use vfio_bindings::bindings::vfio as bind;

use crate::EventFd;
use crate::dma::{Chunk, Pinner};
use crate::pci::{Bdf, CLASS_NVME, Function, SysfsPci};
use call::word;
pub use registers::{PciRegisters, RegisterCalls, SharedArea};

/// Why a PCI function cannot be opened. Each message says how to solve it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no NVMe controller at this address.
    #[error("{0}")]
    NotFound(String),
    /// The machine, the kernel, another driver, another user, or a missing permission prevents it.
    #[error("{0}")]
    Unusable(String),
    /// The kernel or the device lacks a VFIO feature that Reap needs.
    #[error("it cannot be used with VFIO: {0}")]
    Unsupported(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl VfioError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> VfioError {
        let what = what.into();
        move |source| VfioError::System { what, source }
    }
}

/// How long to wait for another user to release the group: shutting down a controller and resetting
/// its function take seconds.
const RELEASE_TIMEOUT: Nanos = Nanos::from_secs(5);

/// The kernel driver that exposes devices to VFIO.
const VFIO_PCI: &str = "vfio-pci";

/// Opens the NVMe controller at `bdf` for exclusive use.
pub fn open(bdf: Bdf) -> Result<PciDevice, VfioError> {
    let bus = SysfsPci::system();
    let (function, group) = find(&bus, bdf)?;
    let control = Path::new("/dev/vfio/vfio");
    if !control.exists() {
        let why = match Path::new("/dev/iommu").exists() {
            true => {
                "this kernel has VFIO through iommufd only (/dev/iommu), which Reap does not use; use a kernel with CONFIG_VFIO_CONTAINER or CONFIG_IOMMUFD_VFIO_CONTAINER"
            }
            false => "VFIO is not loaded; run `modprobe vfio-pci`",
        };
        return Err(VfioError::Unusable(format!("no /dev/vfio/vfio: {why}")));
    }
    let path = PathBuf::from(format!("/dev/vfio/{group}"));
    let file = open_group(&path).map_err(|source| group_open_error(source, bdf, &path, group))?;
    // `vfio_group_status`: argsz, flags.
    let flags =
        call::query(&file, call::GROUP_STATUS, 0).and_then(|answer| call::u32_at(&answer, 4));
    let flags =
        flags.map_err(VfioError::system(format!("read the status of {}", path.display())))?;
    // Not viable: the kernel still drives a function of the group, which could then be attacked by
    // DMA from this one.
    if flags & bind::VFIO_GROUP_FLAGS_VIABLE == 0 {
        return Err(not_viable(&function, group)?);
    }
    let control = OpenOptions::new()
        .read(true)
        .write(true)
        .open(control)
        .map_err(|source| group_open_error(source, bdf, control, group))?;
    let container = Arc::new(Container::new(OwnedFd::from(control), file.as_fd())?);
    let name = std::ffi::CString::new(bdf.to_string())
        .map_err(|_| VfioError::Unsupported("its address is not a C string".into()))?;
    let fd = call::device_fd(file.as_fd(), &name)
        .map_err(VfioError::system("open the device of its group"))?;
    PciDevice::new(fd, OwnedFd::from(file), container)
}

/// Opens the group, which has one user at a time. A user that has just closed it may still be
/// resetting the device (EBUSY): wait for that.
fn open_group(path: &Path) -> io::Result<File> {
    let since = crate::now();
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && crate::now() - since < RELEASE_TIMEOUT =>
            {
                crate::sleep_until(crate::now() + Nanos::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// Finds the function and its group number, and checks in sysfs that VFIO can open it.
fn find(bus: &SysfsPci, bdf: Bdf) -> Result<(Function, u32), VfioError> {
    let available = || {
        let all = bus.controllers().map_err(VfioError::system("read /sys/bus/pci"))?;
        let all: Vec<_> = all.iter().map(|function| function.bdf.to_string()).collect();
        Ok(match all.as_slice() {
            [] => "this machine has no NVMe controller on PCI".to_owned(),
            all => format!("NVMe controllers are at {}", all.join(", ")),
        })
    };
    let Some(function) = bus.find(bdf).map_err(VfioError::system("read /sys/bus/pci"))? else {
        return Err(VfioError::NotFound(format!(
            "there is no such PCI function here; {}",
            available()?
        )));
    };
    if function.class != CLASS_NVME {
        let what = format!(
            "it is not an NVMe controller: its class is {:06x}h instead of 010802h; {}",
            function.class,
            available()?
        );
        return Err(VfioError::NotFound(what));
    }
    let group = function.iommu_group().ok_or_else(no_iommu)?;
    match function.driver() {
        Some(driver) if driver == VFIO_PCI => Ok((function, group)),
        driver => {
            let held = driver.map_or_else(
                || "it has no driver".to_owned(),
                |driver| format!("it is bound to the driver `{driver}`"),
            );
            Err(VfioError::Unusable(format!("{held}; `reap bind {bdf}` gives it to vfio-pci")))
        }
    }
}

fn group_open_error(source: io::Error, bdf: Bdf, path: &Path, group: u32) -> VfioError {
    let path = path.display();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => VfioError::Unusable(format!(
            "this user may not open {path}; `reap bind {bdf} --user NAME` gives a user access, or run as root"
        )),
        Some(libc::EBUSY) => VfioError::Unusable(format!(
            "{path} is open already: another process, or another device in this process, uses IOMMU group {group}; close that first"
        )),
        Some(libc::ENOENT) if Path::new(&format!("/dev/vfio/noiommu-{group}")).exists() => {
            no_iommu()
        }
        _ => VfioError::System { what: format!("open {path}"), source },
    }
}

fn no_iommu() -> VfioError {
    VfioError::Unusable(
        "no IOMMU translates its DMA, and Reap drives no device without one; enable the IOMMU in the firmware (VT-d, AMD-Vi), \
         and on Intel also with `intel_iommu=on` on the kernel's command line"
            .into(),
    )
}

/// The error for a group in which the kernel drives other functions. Bridges may keep their driver.
fn not_viable(function: &Function, group: u32) -> Result<VfioError, VfioError> {
    let members = function
        .group_members()
        .map_err(VfioError::system("read the members of its IOMMU group"))?;
    let others = members
        .into_iter()
        .filter(|member| !member.is_bridge())
        .filter_map(|member| Some((member.bdf, member.driver()?)));
    let others = others
        .filter(|(_, driver)| driver != VFIO_PCI)
        .map(|(bdf, driver)| format!("{bdf} ({driver})"));
    Ok(VfioError::Unusable(format!(
        "IOMMU group {group} cannot be used, because the kernel drives other functions of it: {}; an IOMMU isolates groups, not the functions within \
         one: bind each to vfio-pci (`reap bind` names them), or move the drive to another slot",
        others.collect::<Vec<_>>().join(", ")
    )))
}

/// A container with a type 1 IOMMU. Memory is pinned and mapped in it while its group is open,
/// which [`PciDevice`] keeps open. Closing the group unmaps everything, even if another thread
/// still has the container.
#[derive(Debug)]
pub struct Container {
    fd: OwnedFd,
    /// Bus addresses that the IOMMU can map; they exclude reserved ranges such as the MSI window.
    /// Empty: the kernel does not report them (before Linux 5.4).
    pub windows: Vec<Range<u64>>,
}

impl Container {
    /// Adds a group to a container and sets its IOMMU type.
    fn new(fd: OwnedFd, group: BorrowedFd<'_>) -> Result<Container, VfioError> {
        let version = call::call_value(fd.as_fd(), call::API_VERSION, 0)
            .map_err(VfioError::system("read the VFIO version"))?;
        if version != bind::VFIO_API_VERSION {
            return Err(VfioError::Unsupported(format!(
                "the kernel has VFIO version {version}, and Reap needs {}",
                bind::VFIO_API_VERSION
            )));
        }
        call::set_container(group, fd.as_fd())
            .map_err(VfioError::system("add the IOMMU group to a container"))?;
        let offered = call::call_value(fd.as_fd(), call::CHECK_EXTENSION, bind::VFIO_TYPE1v2_IOMMU);
        if offered.map_err(VfioError::system("read the IOMMU types of VFIO"))? == 0 {
            return Err(VfioError::Unsupported(
                "the kernel has no type 1 IOMMU driver; run `modprobe vfio_iommu_type1`".into(),
            ));
        }
        call::call_value(fd.as_fd(), call::SET_IOMMU, bind::VFIO_TYPE1v2_IOMMU).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => VfioError::Unusable(
                "this machine's IOMMU does not remap interrupts, so that a device could forge any; the kernel refuses it unless \
                 `/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts` is Y"
                    .into(),
            ),
            _ => VfioError::System { what: "set the IOMMU type of the container".into(), source },
        })?;
        let info =
            call::query(&fd, call::IOMMU_INFO, 0).and_then(|answer| call::iommu_info(&answer));
        let (windows, page_sizes) =
            info.map_err(VfioError::system("read what the IOMMU can map"))?;
        // A bitmap of page sizes. Any size up to 4 KiB will do: PRPs and ring memory are in pages
        // of 4 KiB.
        if page_sizes != 0 && page_sizes & (PAGE | (PAGE - 1)) == 0 {
            return Err(VfioError::Unsupported(format!(
                "the IOMMU cannot map pages of {PAGE} bytes (bitmap of its page sizes: {page_sizes:#x})"
            )));
        }
        Ok(Container { fd, windows })
    }
}

/// Memory page size in bytes, as Reap sets it in CC.MPS.
const PAGE: u64 = 4096;

impl Pinner for Container {
    /// `VFIO_IOMMU_MAP_DMA`, readable and writable.
    fn pin(&self, chunk: Chunk, _: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        let flags = bind::VFIO_DMA_MAP_FLAG_READ | bind::VFIO_DMA_MAP_FLAG_WRITE;
        // `vfio_iommu_type1_dma_map`: argsz, flags, vaddr, iova, size.
        let mut map = [word(0, flags), chunk.memory.addr().get() as u64, chunk.addr, chunk.bytes];
        call::call_struct(&self.fd, call::MAP_DMA, &mut map).map(drop).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => io::Error::other(
                "the container is at its limit of mappings; raise `dma_entry_limit` of the module vfio_iommu_type1, or use less memory",
            ),
            _ => error,
        })
    }

    /// `VFIO_IOMMU_UNMAP_DMA`.
    fn unpin(&self, chunk: Chunk) {
        // `vfio_iommu_type1_dma_unmap`: argsz, flags, iova, size.
        let mut unmap = [word(0, 0), chunk.addr, chunk.bytes];
        // Fails only if the group is closed: then the kernel has unmapped everything.
        _ = call::call_struct(&self.fd, call::UNMAP_DMA, &mut unmap);
    }
}

/// Offset of the Command register in configuration space, and its bits (PCI Express Base
/// 7.5.1.1.3).
const COMMAND: u64 = 4;
const MEMORY: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const NO_INTX: u16 = 1 << 10;

/// An NVMe controller opened through VFIO. Closing its last descriptor resets it.
#[derive(Debug)]
pub struct PciDevice {
    file: File,
    container: Arc<Container>,
    /// The IOMMU group, kept open: no other process can open it, and the mappings of the container
    /// last.
    _group: OwnedFd,
    /// Offset of the configuration space in `file`.
    config: u64,
    vectors: u32,
}

impl PciDevice {
    fn new(fd: OwnedFd, group: OwnedFd, container: Arc<Container>) -> Result<PciDevice, VfioError> {
        let file = File::from(fd);
        // Configuration space and BARs are regions of the device file, each at its own offset.
        let config = region(&file, bind::VFIO_PCI_CONFIG_REGION_INDEX)?.offset;
        let answer = call::query(&file, call::IRQ_INFO, bind::VFIO_PCI_MSIX_IRQ_INDEX);
        // `vfio_irq_info`: argsz, flags, index, count. A function without MSI-X has none of that
        // index.
        let vectors = answer.and_then(|answer| call::u32_at(&answer, 12)).unwrap_or(0);
        Ok(PciDevice { file, container, _group: group, config, vectors })
    }

    /// The container that maps memory for the device.
    pub fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// Number of MSI-X vectors; 0: the device has no MSI-X.
    pub fn vectors(&self) -> u32 {
        self.vectors
    }

    /// Enables memory space and bus mastering and disables INTx, in the Command register: DMA and
    /// MSI-X need this.
    pub fn enable_bus_master(&self) -> io::Result<()> {
        let mut command = [0; 2];
        self.file.read_exact_at(&mut command, self.config + COMMAND)?;
        let command = u16::from_le_bytes(command) | MEMORY | BUS_MASTER | NO_INTX;
        self.file.write_all_at(&command.to_le_bytes(), self.config + COMMAND)
    }

    /// Resets the function (`VFIO_DEVICE_RESET`, a function-level reset if it has one) and returns
    /// once that is done. Configuration space and vectors are restored; the device no longer
    /// accesses any memory.
    ///
    /// # Errors
    /// The error of the system; a function may have no reset method.
    pub fn reset(&self) -> io::Result<()> {
        // Then set again what the reset may have cleared: memory space and bus mastering.
        call::call_value(self.file.as_fd(), call::RESET, 0)?;
        self.enable_bus_master()
    }

    /// Maps the controller's registers and doorbells (BAR0).
    pub fn registers(&self) -> Result<PciRegisters, VfioError> {
        let RegionInfo { maps, bytes, offset } =
            region(&self.file, bind::VFIO_PCI_BAR0_REGION_INDEX)?;
        if !maps {
            return Err(VfioError::Unsupported(
                "the kernel does not allow its registers (BAR0) to be mapped (CONFIG_VFIO_PCI_MMAP)".into(),
            ));
        }
        PciRegisters::mapped_whole(self.file.as_fd(), offset, bytes)
    }

    /// Routes the messages of vector *n* to `signals[n]`. Returns how many vectors, from the first
    /// on, the system had interrupts for.
    pub fn signal(&self, signals: &[&EventFd]) -> io::Result<usize> {
        let mut count = signals.len();
        while count > 0 {
            match self.set_signals(0, &signals[..count])? as usize {
                0 => break,
                // A positive result: none was set, and this is the number of available interrupts.
                // Retry with fewer; `min` guarantees progress.
                fewer => count = fewer.min(count - 1),
            }
        }
        Ok(count)
    }

    /// Routes the messages of `vector`, which must have an interrupt already, to `signal`; several
    /// vectors may share one. A message sent during the change may be lost: poll the completion
    /// queues of the vector afterwards.
    ///
    /// # Errors
    /// The error of the system. The vector may have lost its previous signal.
    pub fn signal_from(&self, vector: Vector, signal: &EventFd) -> io::Result<()> {
        match self.set_signals(vector.0.into(), &[signal])? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }

    /// `VFIO_DEVICE_SET_IRQS`: 0, or the number of available interrupts if none was set.
    fn set_signals(&self, first: u32, signals: &[&EventFd]) -> io::Result<u32> {
        let descriptors = signals.iter().map(|signal| signal.as_fd().as_raw_fd() as u32);
        let flags = bind::VFIO_IRQ_SET_DATA_EVENTFD | bind::VFIO_IRQ_SET_ACTION_TRIGGER;
        // `vfio_irq_set`: argsz, flags, index, start, count, then a descriptor for each.
        let head = [0, flags, bind::VFIO_PCI_MSIX_IRQ_INDEX, first, signals.len() as u32];
        let fields: Vec<u32> = head.into_iter().chain(descriptors).collect();
        let mut words: Vec<u64> =
            fields.chunks(2).map(|pair| word(pair[0], pair.get(1).copied().unwrap_or(0))).collect();
        call::call_struct(&self.file, call::SET_IRQS, &mut words)
    }
}

/// The answer to `VFIO_DEVICE_GET_REGION_INFO`.
struct RegionInfo {
    /// The region can be mapped.
    maps: bool,
    /// Size in bytes; 0: the device has no such region.
    bytes: u64,
    /// Offset in the device file.
    offset: u64,
}

fn region(file: &File, index: u32) -> Result<RegionInfo, VfioError> {
    let read = |answer: Vec<u8>| {
        // `vfio_region_info`: argsz, flags, index, cap_offset, size, offset. Since Linux 4.16 no
        // part of a region that can be mapped is left out, as the MSI-X table was before.
        let maps = call::u32_at(&answer, 4)? & bind::VFIO_REGION_INFO_FLAG_MMAP != 0;
        Ok(RegionInfo {
            maps,
            bytes: call::u64_at(&answer, 16)?,
            offset: call::u64_at(&answer, 24)?,
        })
    };
    let info = call::query(file, call::REGION_INFO, index).and_then(read);
    info.map_err(VfioError::system(format!("read the layout of region {index} of the device")))
}

#[cfg(test)]
mod tests;
