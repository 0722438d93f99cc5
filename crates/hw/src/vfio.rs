//! A PCI function by VFIO's container, group and device (Linux `Documentation/driver-api/vfio.rst`, `linux/vfio.h`): its registers, its
//! messages, and memory that it reaches through the IOMMU.
//!
//! Whatever ends the process, the kernel closes the descriptors: it resets the function, unmaps and unpins.
//!
//! The crate `vfio-ioctls` is not used: it does not ask for the IOMMU's windows (`VFIO_IOMMU_GET_INFO`), without which a bus address may be
//! one that the IOMMU reserves, and its reads, writes and reset do not say that they failed.

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
use crate::pci::{Bdf, Bus, CLASS_NVME, Function};
use call::word;
pub use registers::{PciRegisters, RegisterCalls, SharedArea};

/// Why a PCI function cannot be had by VFIO. Each says what mends it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no NVMe controller at this address.
    #[error("{0}")]
    NotFound(String),
    /// The machine, the kernel, another driver or user, or a right that this user lacks is in the way.
    #[error("{0}")]
    Unusable(String),
    /// The kernel's VFIO or the device's lacks something that Reap needs.
    #[error("it cannot be driven here: {0}")]
    Lacks(String),
    /// The system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
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

/// How long another user of a group has to let go of it: a controller that is shut down, and the reset of its function.
const LETTING_GO: Nanos = Nanos::from_secs(5);

/// The driver that hands devices to VFIO.
const VFIO_PCI: &str = "vfio-pci";

/// The NVMe controller at `bdf`, which is this process's from now on, and no other's.
pub fn open(bdf: Bdf) -> Result<PciDevice, VfioError> {
    let bus = Bus::system();
    let (function, group) = find(&bus, bdf)?;
    let control = Path::new("/dev/vfio/vfio");
    if !control.exists() {
        let why = match Path::new("/dev/iommu").exists() {
            true => {
                "this kernel has VFIO by iommufd alone (/dev/iommu), which Reap does not use; have one with CONFIG_VFIO_CONTAINER or CONFIG_IOMMUFD_VFIO_CONTAINER"
            }
            false => "the kernel's VFIO is not loaded; `modprobe vfio-pci` loads it",
        };
        return Err(VfioError::Unusable(format!("there is no /dev/vfio/vfio: {why}")));
    }
    let path = PathBuf::from(format!("/dev/vfio/{group}"));
    let file = open_group(&path).map_err(|source| refusal(source, bdf, &path, group))?;
    // `vfio_group_status`: argsz, flags.
    let flags = call::ask(&file, call::GROUP_STATUS, 0).and_then(|answer| call::u32_at(&answer, 4));
    let flags = flags.map_err(VfioError::system(format!("ask for the state of {}", path.display())))?;
    if flags & bind::VFIO_GROUP_FLAGS_VIABLE == 0 {
        return Err(not_viable(&function, group)?);
    }
    let control = OpenOptions::new().read(true).write(true).open(control).map_err(|source| refusal(source, bdf, control, group))?;
    let container = Arc::new(Container::new(OwnedFd::from(control), file.as_fd())?);
    let name = std::ffi::CString::new(bdf.to_string()).map_err(|_| VfioError::Lacks("its address has no name".into()))?;
    let fd = call::device_fd(file.as_fd(), &name).map_err(VfioError::system("open the device of its group"))?;
    PciDevice::new(fd, OwnedFd::from(file), container)
}

/// A group has one user, and who has let go of it may be about to reset its device: that is waited for.
fn open_group(path: &Path) -> io::Result<File> {
    let since = crate::now();
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && crate::now() - since < LETTING_GO => {
                crate::sleep_until(crate::now() + Nanos::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// The function, as far as sysfs can say that it can be had: with its group's number.
fn find(bus: &Bus, bdf: Bdf) -> Result<(Function, u32), VfioError> {
    let there = || {
        let all = bus.controllers().map_err(VfioError::system("read /sys/bus/pci"))?;
        let all: Vec<_> = all.iter().map(|function| function.bdf.to_string()).collect();
        Ok(match all.as_slice() {
            [] => "this machine has no NVMe controller on PCI".to_owned(),
            all => format!("NVMe controllers are at {}", all.join(", ")),
        })
    };
    let Some(function) = bus.find(bdf).map_err(VfioError::system("read /sys/bus/pci"))? else {
        return Err(VfioError::NotFound(format!("there is no such PCI function here; {}", there()?)));
    };
    if function.class != CLASS_NVME {
        let what = format!("it is no NVMe controller: its class is {:06x}h, and those have 010802h; {}", function.class, there()?);
        return Err(VfioError::NotFound(what));
    }
    let group = function.iommu_group().ok_or_else(no_iommu)?;
    match function.driver() {
        Some(driver) if driver == VFIO_PCI => Ok((function, group)),
        driver => {
            let held = driver.map_or_else(|| "no driver has it".to_owned(), |driver| format!("it is bound to the driver `{driver}`"));
            Err(VfioError::Unusable(format!("{held}; `reap bind {bdf}` gives it to vfio-pci")))
        }
    }
}

fn refusal(source: io::Error, bdf: Bdf, path: &Path, group: u32) -> VfioError {
    let path = path.display();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => VfioError::Unusable(format!(
            "this user may not open {path}; `reap bind {bdf} --user NAME` gives the group's file to a user, or be root"
        )),
        Some(libc::EBUSY) => VfioError::Unusable(format!(
            "{path} is open already: another process, or another device of this one, uses IOMMU group {group}; close that first"
        )),
        Some(libc::ENOENT) if Path::new(&format!("/dev/vfio/noiommu-{group}")).exists() => no_iommu(),
        _ => VfioError::System { what: format!("open {path}"), source },
    }
}

fn no_iommu() -> VfioError {
    VfioError::Unusable(
        "no IOMMU stands between it and memory, and Reap drives no device without one; switch the IOMMU on in the firmware (VT-d, AMD-Vi), \
         and by `intel_iommu=on` on the kernel's command line where it is Intel's"
            .into(),
    )
}

/// Functions of the group are the kernel's, other than bridges.
fn not_viable(function: &Function, group: u32) -> Result<VfioError, VfioError> {
    let members = function.group_members().map_err(VfioError::system("read the members of its IOMMU group"))?;
    let others = members.into_iter().filter(|member| !member.is_bridge()).filter_map(|member| Some((member.bdf, member.driver()?)));
    let others = others.filter(|(_, driver)| driver != VFIO_PCI).map(|(bdf, driver)| format!("{bdf} ({driver})"));
    Ok(VfioError::Unusable(format!(
        "IOMMU group {group} cannot be used, because the kernel drives other functions of it: {}; an IOMMU keeps groups apart, not what is in \
         them: give each to vfio-pci (`reap bind` names them), or put the drive into another slot",
        others.collect::<Vec<_>>().join(", ")
    )))
}

/// A container with a type 1 IOMMU. Memory is pinned and mapped through it for as long as its group is open, which the device keeps: once
/// that is closed the kernel has unmapped everything, also where another thread still has a container.
#[derive(Debug)]
pub struct Container {
    fd: OwnedFd,
    /// Bus addresses that the IOMMU lets through; none of them is where it keeps addresses for messages. Empty: the kernel does not say
    /// (before Linux 5.4).
    pub windows: Vec<Range<u64>>,
}

impl Container {
    /// Puts a group into a container, and an IOMMU behind it.
    fn new(fd: OwnedFd, group: BorrowedFd<'_>) -> Result<Container, VfioError> {
        let version = call::plain(fd.as_fd(), call::API_VERSION, 0).map_err(VfioError::system("ask VFIO for its version"))?;
        if version != bind::VFIO_API_VERSION {
            return Err(VfioError::Lacks(format!("the kernel's VFIO has version {version}, and Reap speaks {}", bind::VFIO_API_VERSION)));
        }
        call::set_container(group, fd.as_fd()).map_err(VfioError::system("put the IOMMU group into a container"))?;
        let offered = call::plain(fd.as_fd(), call::CHECK_EXTENSION, bind::VFIO_TYPE1v2_IOMMU);
        if offered.map_err(VfioError::system("ask VFIO for its IOMMUs"))? == 0 {
            return Err(VfioError::Lacks("the kernel offers no type 1 IOMMU for it; `modprobe vfio_iommu_type1` loads it".into()));
        }
        call::plain(fd.as_fd(), call::SET_IOMMU, bind::VFIO_TYPE1v2_IOMMU).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => VfioError::Unusable(
                "this machine's IOMMU does not remap interrupts, so that a device could make up any; the kernel refuses it, unless \
                 `/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts` says Y"
                    .into(),
            ),
            _ => VfioError::System { what: "put a type 1 IOMMU behind the container".into(), source },
        })?;
        let info = call::ask(&fd, call::IOMMU_INFO, 0).and_then(|answer| call::iommu_info(&answer));
        let (windows, page_sizes) = info.map_err(VfioError::system("ask the IOMMU what it maps"))?;
        if page_sizes != 0 && page_sizes & (PAGE | (PAGE - 1)) == 0 {
            return Err(VfioError::Lacks(format!("the IOMMU maps no pages of {PAGE} bytes (its sizes, as bits: {page_sizes:#x})")));
        }
        Ok(Container { fd, windows })
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
        call::sized(&self.fd, call::MAP_DMA, &mut map).map(drop).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => io::Error::other(
                "the container has as many mappings as it may have; raise `dma_entry_limit` of the module vfio_iommu_type1, or use less memory",
            ),
            _ => error,
        })
    }

    /// `VFIO_IOMMU_UNMAP_DMA`.
    fn unpin(&self, chunk: Chunk) {
        // `vfio_iommu_type1_dma_unmap`: argsz, flags, iova, size.
        let mut unmap = [word(0, 0), chunk.addr, chunk.bytes];
        // It fails only where the kernel has unmapped everything by itself.
        _ = call::sized(&self.fd, call::UNMAP_DMA, &mut unmap);
    }
}

/// Offset of the Command register in configuration space, and its bits (PCI Express Base 7.5.1.1.3).
const COMMAND: u64 = 4;
const MEMORY: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const NO_INTX: u16 = 1 << 10;

/// An NVMe controller that VFIO has handed over. When the last descriptor of it is closed the kernel resets it.
#[derive(Debug)]
pub struct PciDevice {
    file: File,
    container: Arc<Container>,
    /// Its IOMMU group, which nobody else has meanwhile.
    _group: OwnedFd,
    /// Where its configuration space begins in `file`.
    config: u64,
    vectors: u32,
}

impl PciDevice {
    fn new(fd: OwnedFd, group: OwnedFd, container: Arc<Container>) -> Result<PciDevice, VfioError> {
        let file = File::from(fd);
        let config = region(&file, bind::VFIO_PCI_CONFIG_REGION_INDEX)?.offset;
        let answer = call::ask(&file, call::IRQ_INFO, bind::VFIO_PCI_MSIX_IRQ_INDEX);
        // `vfio_irq_info`: argsz, flags, index, count. A function without MSI-X has none of that index.
        let vectors = answer.and_then(|answer| call::u32_at(&answer, 12)).unwrap_or(0);
        Ok(PciDevice { file, container, _group: group, config, vectors })
    }

    /// The memory that it reaches.
    pub fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// MSI-X vectors that it has; 0: it knows no MSI-X.
    pub fn vectors(&self) -> u32 {
        self.vectors
    }

    /// Lets it reach memory and send messages, by the Command register.
    pub fn become_master(&self) -> io::Result<()> {
        let mut command = [0; 2];
        self.file.read_exact_at(&mut command, self.config + COMMAND)?;
        let command = u16::from_le_bytes(command) | MEMORY | BUS_MASTER | NO_INTX;
        self.file.write_all_at(&command.to_le_bytes(), self.config + COMMAND)
    }

    /// Resets it (`VFIO_DEVICE_RESET`, a function-level reset where it has one) and returns once that is done. Its configuration space and
    /// its vectors are as before; memory that it was told to use it no longer touches.
    ///
    /// # Errors
    /// What the system says: it may have no reset.
    pub fn reset(&self) -> io::Result<()> {
        call::plain(self.file.as_fd(), call::RESET, 0)?;
        self.become_master()
    }

    /// Its registers and doorbells (BAR0).
    pub fn registers(&self) -> Result<PciRegisters, VfioError> {
        let RegionInfo { maps, bytes, offset } = region(&self.file, bind::VFIO_PCI_BAR0_REGION_INDEX)?;
        if !maps {
            return Err(VfioError::Lacks("the kernel does not have its registers (BAR0) mapped (CONFIG_VFIO_PCI_MMAP)".into()));
        }
        PciRegisters::mapped_whole(self.file.as_fd(), offset, bytes)
    }

    /// From now on the messages of vector *n* signal `signals[n]`. How many of them, from the first on, the system has vectors for.
    pub fn signal(&self, signals: &[&EventFd]) -> io::Result<usize> {
        let mut count = signals.len();
        while count > 0 {
            match self.set_signals(0, &signals[..count])? as usize {
                0 => break,
                // It has set none, and says for how many there is room.
                fewer => count = fewer.min(count - 1),
            }
        }
        Ok(count)
    }

    /// From now on the messages of `vector`, for which the system has one, signal `signal`, which may be other vectors' too. A message
    /// that comes meanwhile may signal nothing: a look at what it tells of follows.
    ///
    /// # Errors
    /// What the system says. It may have let go of the signal that the vector had.
    pub fn signal_from(&self, vector: Vector, signal: &EventFd) -> io::Result<()> {
        match self.set_signals(vector.0.into(), &[signal])? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }

    /// What the system says: 0, or for how many there is room if it has set none.
    fn set_signals(&self, first: u32, signals: &[&EventFd]) -> io::Result<u32> {
        let descriptors = signals.iter().map(|signal| signal.as_fd().as_raw_fd() as u32);
        let flags = bind::VFIO_IRQ_SET_DATA_EVENTFD | bind::VFIO_IRQ_SET_ACTION_TRIGGER;
        // `vfio_irq_set`: argsz, flags, index, start, count, then a descriptor for each.
        let head = [0, flags, bind::VFIO_PCI_MSIX_IRQ_INDEX, first, signals.len() as u32];
        let fields: Vec<u32> = head.into_iter().chain(descriptors).collect();
        let mut words: Vec<u64> = fields.chunks(2).map(|pair| word(pair[0], pair.get(1).copied().unwrap_or(0))).collect();
        call::sized(&self.file, call::SET_IRQS, &mut words)
    }
}

/// What `VFIO_DEVICE_GET_REGION_INFO` says.
struct RegionInfo {
    /// The region can be mapped.
    maps: bool,
    /// Bytes of the region; 0: there is none.
    bytes: u64,
    /// Where it begins in the device's file.
    offset: u64,
}

fn region(file: &File, index: u32) -> Result<RegionInfo, VfioError> {
    let read = |answer: Vec<u8>| {
        // `vfio_region_info`: argsz, flags, index, cap_offset, size, offset. Since Linux 4.16 no part of a region that can be mapped is
        // left out, as the MSI-X table was before.
        let maps = call::u32_at(&answer, 4)? & bind::VFIO_REGION_INFO_FLAG_MMAP != 0;
        Ok(RegionInfo { maps, bytes: call::u64_at(&answer, 16)?, offset: call::u64_at(&answer, 24)? })
    };
    let info = call::ask(file, call::REGION_INFO, index).and_then(read);
    info.map_err(VfioError::system(format!("ask for region {index} of the device")))
}

#[cfg(test)]
mod tests;
