//! PCI functions as sysfs shows them (`/sys/bus/pci`): address, class, driver and IOMMU group, and
//! binding a function to a driver.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The class code of an NVMe I/O controller: mass storage, non-volatile memory, NVM Express (PCIe
/// Transport 2.1.5).
pub const CLASS_NVME: u32 = 0x01_08_02;

/// The address of a PCI function: domain, bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    /// Domain (segment). The kernel assigns those above FFFFh itself, as for drives behind Intel
    /// VMD.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

/// A text that is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a PCI address; write it as `0000:01:00.0` (domain:bus:device.function, in hexadecimal digits), or without the domain"
)]
pub struct BdfError(pub String);

impl FromStr for Bdf {
    type Err = BdfError;

    fn from_str(text: &str) -> Result<Bdf, BdfError> {
        parse(text).ok_or_else(|| BdfError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Bdf> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.split_once(':').unwrap_or(("0", rest));
    // Check the digits: `u32::from_str_radix` accepts a sign.
    let hex = |digits: &str, max: usize| {
        let valid = (1..=max).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| valid)
    };
    let (device, function) =
        (hex(device, 2).filter(|&n| n < 32)?, hex(function, 1).filter(|&n| n < 8)?);
    Some(Bdf {
        domain: hex(domain, 8)?,
        bus: hex(bus, 2)? as u8,
        device: device as u8,
        function: function as u8,
    })
}

impl fmt::Display for Bdf {
    /// As the kernel writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// The directory /sys/bus/pci, with all PCI functions of the machine, or a copy of it in a test.
#[derive(Clone, Debug)]
pub struct SysfsPci(PathBuf);

impl SysfsPci {
    /// The directory of this machine, /sys/bus/pci.
    pub fn system() -> SysfsPci {
        SysfsPci("/sys/bus/pci".into())
    }

    /// A directory `root` in place of /sys/bus/pci.
    pub fn at(root: &Path) -> SysfsPci {
        SysfsPci(root.to_owned())
    }

    /// The function at `bdf`, if there is one.
    ///
    /// # Errors
    /// Sysfs cannot be read, or a class code is not a number.
    pub fn find(&self, bdf: Bdf) -> io::Result<Option<Function>> {
        let path = self.0.join("devices").join(bdf.to_string());
        match fs::read_to_string(path.join("class")) {
            Ok(text) => {
                Ok(Some(Function { bdf, class: number(text.trim())?, bus: self.clone(), path }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All NVMe controllers, sorted by address. Empty where there is no PCI bus.
    pub fn controllers(&self) -> io::Result<Vec<Function>> {
        let mut found = self.functions(&self.0.join("devices"))?;
        found.retain(|function| function.class == CLASS_NVME);
        Ok(found)
    }

    /// The functions named by the entries of a directory, sorted by address. A function that is
    /// unplugged in between is left out.
    fn functions(&self, directory: &Path) -> io::Result<Vec<Function>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let named = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut found =
            named.filter_map(|bdf| self.find(bdf).transpose()).collect::<io::Result<Vec<_>>>()?;
        found.sort_by_key(|function| function.bdf);
        Ok(found)
    }

    /// Asks the kernel to find and bind a driver for a function without one (`drivers_probe`).
    ///
    /// # Errors
    /// `EACCES` without privilege; otherwise the error of the driver's probe function.
    pub fn probe(&self, bdf: Bdf) -> io::Result<()> {
        fs::write(self.0.join("drivers_probe"), bdf.to_string())
    }

    /// Whether the kernel has registered a driver of this name.
    pub fn has_driver(&self, name: &str) -> bool {
        self.0.join("drivers").join(name).is_dir()
    }
}

fn number(text: &str) -> io::Result<u32> {
    let digits = text.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
    digits.and_then(Result::ok).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("`{text}` is not a hexadecimal number"))
    })
}

/// A PCI function; it may have been unplugged since it was found.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its address.
    pub bdf: Bdf,
    /// Its class code: class, subclass, programming interface.
    pub class: u32,
    bus: SysfsPci,
    path: PathBuf,
}

impl Function {
    /// Its directory in sysfs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the driver that it is bound to.
    pub fn driver(&self) -> Option<String> {
        self.link("driver")
    }

    /// Number of its IOMMU group. `None`: no IOMMU translates its DMA.
    pub fn iommu_group(&self) -> Option<u32> {
        self.link("iommu_group")?.parse().ok()
    }

    /// All functions of its IOMMU group including itself, sorted by address.
    pub fn group_members(&self) -> io::Result<Vec<Function>> {
        self.bus.functions(&self.path.join("iommu_group/devices"))
    }

    /// Whether its class is 06h (bridge). VFIO allows bridges with a driver in a viable group.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == 0x06
    }

    /// A sysfs attribute, trimmed.
    pub fn attribute(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.path.join(name)).ok()?.trim().to_owned())
    }

    /// Sets `driver_override`: the next probe binds this driver only. `None` removes the override.
    ///
    /// # Errors
    /// `EACCES` without privilege; otherwise the error of the system.
    pub fn set_override(&self, driver: Option<&str>) -> io::Result<()> {
        // An empty line removes the override.
        fs::write(self.path.join("driver_override"), format!("{}\n", driver.unwrap_or("")))
    }

    /// Unbinds the function from its driver.
    pub fn unbind(&self) -> io::Result<()> {
        fs::write(self.path.join("driver/unbind"), self.bdf.to_string())
    }

    /// The last component of the target of a symbolic link.
    fn link(&self, name: &str) -> Option<String> {
        Some(fs::read_link(self.path.join(name)).ok()?.file_name()?.to_str()?.to_owned())
    }
}

#[cfg(test)]
mod tests;
