//! PCI functions as the system shows them (`/sys/bus/pci`): which there are, who drives them, and which share an IOMMU group.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The class code of an NVMe I/O controller: mass storage, non-volatile memory, NVM Express (PCIe Transport 2.1.5).
pub const CLASS_NVME: u32 = 0x01_08_02;

/// Where a function is: domain, bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    /// Domain (segment). Those above FFFFh are made up by the kernel, as for drives behind Intel's VMD.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

/// A text that is no [`Bdf`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no PCI address; write it as `0000:01:00.0` (domain:bus:device.function, in hexadecimal digits), or without the domain")]
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
    // `u32::from_str_radix` would take a sign.
    let hex = |digits: &str, most: usize| {
        let plain = (1..=most).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    let (device, function) = (hex(device, 2).filter(|&n| n < 32)?, hex(function, 1).filter(|&n| n < 8)?);
    Some(Bdf { domain: hex(domain, 8)?, bus: hex(bus, 2)? as u8, device: device as u8, function: function as u8 })
}

impl fmt::Display for Bdf {
    /// As the kernel writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// The system's PCI bus, or one that a test has made of files.
#[derive(Clone, Debug)]
pub struct Bus(PathBuf);

impl Bus {
    /// The system's.
    pub fn system() -> Bus {
        Bus("/sys/bus/pci".into())
    }

    /// One that is described below `root` as sysfs describes it.
    pub fn at(root: &Path) -> Bus {
        Bus(root.to_owned())
    }

    /// What is at `bdf`; `None`: nothing.
    ///
    /// # Errors
    /// Sysfs cannot be read, or says what it never does.
    pub fn find(&self, bdf: Bdf) -> io::Result<Option<Function>> {
        let path = self.0.join("devices").join(bdf.to_string());
        match fs::read_to_string(path.join("class")) {
            Ok(text) => Ok(Some(Function { bdf, class: number(text.trim())?, bus: self.clone(), path })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every NVMe controller, by address. Empty where there is no PCI bus.
    pub fn controllers(&self) -> io::Result<Vec<Function>> {
        let mut found = self.functions(&self.0.join("devices"))?;
        found.retain(|function| function.class == CLASS_NVME);
        Ok(found)
    }

    /// The functions whose names stand in a directory, by address. One that goes meanwhile is left out.
    fn functions(&self, directory: &Path) -> io::Result<Vec<Function>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let named = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut found = named.filter_map(|bdf| self.find(bdf).transpose()).collect::<io::Result<Vec<_>>>()?;
        found.sort_by_key(|function| function.bdf);
        Ok(found)
    }

    /// Has the kernel look for a driver for a function that has none, and bind it.
    ///
    /// # Errors
    /// What the system says: `EACCES` to users other than root, and whatever the driver's probe fails with.
    pub fn probe(&self, bdf: Bdf) -> io::Result<()> {
        fs::write(self.0.join("drivers_probe"), bdf.to_string())
    }

    /// Whether a driver of this name is there.
    pub fn has_driver(&self, name: &str) -> bool {
        self.0.join("drivers").join(name).is_dir()
    }
}

fn number(text: &str) -> io::Result<u32> {
    let digits = text.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
    digits.and_then(Result::ok).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("`{text}` is no hexadecimal number")))
}

/// A function that was there when it was looked for.
#[derive(Clone, Debug)]
pub struct Function {
    /// Where it is.
    pub bdf: Bdf,
    /// Its class code: class, subclass, programming interface.
    pub class: u32,
    bus: Bus,
    path: PathBuf,
}

impl Function {
    /// Its directory in sysfs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The driver that it is bound to now, by name.
    pub fn driver(&self) -> Option<String> {
        self.link("driver")
    }

    /// The number of its IOMMU group; `None`: no IOMMU stands between it and memory.
    pub fn iommu_group(&self) -> Option<u32> {
        self.link("iommu_group")?.parse().ok()
    }

    /// Every function of its IOMMU group, itself included, by address.
    pub fn group_members(&self) -> io::Result<Vec<Function>> {
        self.bus.functions(&self.path.join("iommu_group/devices"))
    }

    /// Bridges stay with their driver, or none, in a group that VFIO has: class 06h.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == 0x06
    }

    /// The text of one of its attributes, without white space around it.
    pub fn attribute(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.path.join(name)).ok()?.trim().to_owned())
    }

    /// Has the kernel bind it to this driver and no other when it is probed; `None`: to whichever knows it.
    ///
    /// # Errors
    /// What the system says: `EACCES` to users other than root.
    pub fn set_override(&self, driver: Option<&str>) -> io::Result<()> {
        // An empty line takes the override away.
        fs::write(self.path.join("driver_override"), format!("{}\n", driver.unwrap_or("")))
    }

    /// Takes it from the driver that it has.
    pub fn unbind(&self) -> io::Result<()> {
        fs::write(self.path.join("driver/unbind"), self.bdf.to_string())
    }

    /// The last part of what a symbolic link leads to.
    fn link(&self, name: &str) -> Option<String> {
        Some(fs::read_link(self.path.join(name)).ok()?.file_name()?.to_str()?.to_owned())
    }
}

#[cfg(test)]
mod tests;
