//! From an address to a device: each thing that may be missing on the way is looked for before it is needed, and said by its name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use units::Nanos;
use vfio_bindings::bindings::vfio as bind;

use super::call::{self, Call, word};
use super::container::Container;
use super::device::PciDevice;
use super::error::VfioError;
use crate::pci::{Bdf, Bus, CLASS_NVME, Function};

/// How long another user of a group has to let go of it: a controller that is shut down, and the reset of its function.
const LETTING_GO: Nanos = Nanos::from_secs(5);

/// The driver that hands devices to VFIO.
const VFIO_PCI: &str = "vfio-pci";

/// The NVMe controller at `bdf`, which is this process's from now on, and no other's.
///
/// # Errors
/// See [`VfioError`].
pub fn open(bdf: Bdf) -> Result<PciDevice, VfioError> {
    let bus = Bus::system();
    let (function, group) = find(&bus, bdf)?;
    let control = Path::new("/dev/vfio/vfio");
    if !control.exists() {
        return Err(VfioError::NoContainer { iommufd: Path::new("/dev/iommu").exists() });
    }
    let path = PathBuf::from(format!("/dev/vfio/{group}"));
    let file = open_group(&path).map_err(|source| refusal(source, bdf, &path, group))?;
    let mut status = [word(0, 0)];
    call::sized(&file, Call::GroupStatus, &mut status).map_err(VfioError::system(format!("ask for the state of {}", path.display())))?;
    if (status[0].to_ne_bytes()[4..].first_chunk().map_or(0, |flags| u32::from_ne_bytes(*flags))) & bind::VFIO_GROUP_FLAGS_VIABLE == 0 {
        return Err(VfioError::NotViable { group, members: in_the_way(&function)? });
    }
    let control = open_file(control).map_err(|source| refusal(source, bdf, control, group))?;
    let container = Arc::new(Container::new(OwnedFd::from(control), file.as_fd())?);
    let name = std::ffi::CString::new(bdf.to_string()).map_err(|_| VfioError::Lacks("its address has no name".into()))?;
    let fd = call::device_fd(file.as_fd(), &name).map_err(VfioError::system("open the device of its group"))?;
    PciDevice::new(fd, OwnedFd::from(file), container)
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// A group has one user, and who has let go of it may be about to reset its device: that is waited for.
fn open_group(path: &Path) -> io::Result<File> {
    let since = crate::now();
    loop {
        match open_file(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && crate::now() - since < LETTING_GO => {
                crate::sleep_until(crate::now() + Nanos::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// The function, as far as sysfs can say that it can be had: with its group's number.
pub(super) fn find(bus: &Bus, bdf: Bdf) -> Result<(Function, u32), VfioError> {
    let others = || -> Result<Vec<Bdf>, VfioError> {
        Ok(bus.controllers().map_err(VfioError::system("read /sys/bus/pci"))?.iter().map(|function| function.bdf).collect())
    };
    let Some(function) = bus.find(bdf).map_err(VfioError::system("read /sys/bus/pci"))? else {
        return Err(VfioError::NotFound { controllers: others()? });
    };
    if function.class != CLASS_NVME {
        return Err(VfioError::NotNvme { class: function.class, controllers: others()? });
    }
    let group = function.iommu_group().ok_or(VfioError::NoIommu)?;
    match function.driver() {
        Some(driver) if driver == VFIO_PCI => Ok((function, group)),
        driver => Err(VfioError::OtherDriver { bdf, driver }),
    }
}

fn refusal(source: io::Error, bdf: Bdf, path: &Path, group: u32) -> VfioError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => VfioError::Permission { bdf, path },
        Some(libc::EBUSY) => VfioError::Busy { path, group },
        Some(libc::ENOENT) if Path::new(&format!("/dev/vfio/noiommu-{group}")).exists() => VfioError::NoIommu,
        _ => VfioError::System { what: format!("open {}", path.display()), source },
    }
}

/// Functions of its group that some driver of the kernel's has.
fn in_the_way(function: &Function) -> Result<Vec<(Bdf, Option<String>)>, VfioError> {
    let members = function.group_members().map_err(VfioError::system("read the members of its IOMMU group"))?;
    let others = members.into_iter().filter(|member| !member.is_bridge()).map(|member| (member.bdf, member.driver()));
    Ok(others.filter(|(_, driver)| !matches!(driver.as_deref(), None | Some(VFIO_PCI))).collect())
}

#[cfg(test)]
mod tests;
