//! The URI of any device: parsed from text, or made from the type of its kind.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use crate::error::OpenError;
use crate::multipath::MultipathUri;
use crate::transport::kernel::KernelUri;
use crate::transport::pci::PcieUri;
use crate::transport::tcp::TcpUri;
use crate::transport::vfio_user::VfioUserUri;
use crate::transport::{KERNEL, PCIE, TCP, VFIO_USER};
use crate::uri::{DeviceUri, MULTIPATH, UriError};

/// A device, by its URI or by the fields of its kind, for [`Device::open`](crate::Device::open).
///
/// ```
/// use reap::{Device, DeviceUri, Uri};
///
/// let mut small = DeviceUri::memory(64 << 20);
/// small.queues = 2;
/// assert_eq!(Uri::from(small.clone()).to_string(), "mem:64M?profile=optane&queues=2");
/// let device = Device::open(small)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Uri {
    /// `mem:`, `file:`: a controller in this process.
    Embedded(DeviceUri),
    /// `kernel:`: a file or block device.
    Kernel(KernelUri),
    /// `pcie:`: a drive on the bus.
    Pcie(PcieUri),
    /// `vfio-user:`: a controller that another process serves.
    VfioUser(VfioUserUri),
    /// `tcp:`: a controller over NVMe/TCP.
    Tcp(TcpUri),
    /// `multipath:`: several controllers of one subsystem.
    Multipath(MultipathUri),
}

impl Uri {
    /// Checks values that text could not have expressed.
    pub(super) fn check(&self) -> Result<(), UriError> {
        let checked = match self {
            Uri::Embedded(uri) => uri.check(),
            Uri::Kernel(uri) => uri.check(),
            Uri::Pcie(uri) => uri.check(),
            Uri::VfioUser(uri) => uri.check(),
            Uri::Tcp(uri) => uri.check(),
            Uri::Multipath(uri) => uri.check(),
        };
        checked.map_err(|what| UriError { uri: self.to_string(), column: 1, what })
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Uri, UriError> {
        match () {
            () if text.starts_with(KERNEL) => text.parse().map(Uri::Kernel),
            () if text.starts_with(PCIE) => text.parse().map(Uri::Pcie),
            () if text.starts_with(VFIO_USER) => text.parse().map(Uri::VfioUser),
            () if text.starts_with(TCP) => text.parse().map(Uri::Tcp),
            () if text.starts_with(MULTIPATH) => text.parse().map(Uri::Multipath),
            () => text.parse().map(Uri::Embedded),
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uri::Embedded(uri) => uri.fmt(f),
            Uri::Kernel(uri) => uri.fmt(f),
            Uri::Pcie(uri) => uri.fmt(f),
            Uri::VfioUser(uri) => uri.fmt(f),
            Uri::Tcp(uri) => uri.fmt(f),
            Uri::Multipath(uri) => uri.fmt(f),
        }
    }
}

impl TryFrom<&str> for Uri {
    type Error = UriError;

    fn try_from(text: &str) -> Result<Uri, UriError> {
        text.parse()
    }
}

impl TryFrom<&String> for Uri {
    type Error = UriError;

    fn try_from(text: &String) -> Result<Uri, UriError> {
        text.parse()
    }
}

impl From<DeviceUri> for Uri {
    fn from(uri: DeviceUri) -> Uri {
        Uri::Embedded(uri)
    }
}

impl From<KernelUri> for Uri {
    fn from(uri: KernelUri) -> Uri {
        Uri::Kernel(uri)
    }
}

impl From<PcieUri> for Uri {
    fn from(uri: PcieUri) -> Uri {
        Uri::Pcie(uri)
    }
}

impl From<VfioUserUri> for Uri {
    fn from(uri: VfioUserUri) -> Uri {
        Uri::VfioUser(uri)
    }
}

impl From<TcpUri> for Uri {
    fn from(uri: TcpUri) -> Uri {
        Uri::Tcp(uri)
    }
}

impl From<MultipathUri> for Uri {
    fn from(uri: MultipathUri) -> Uri {
        Uri::Multipath(uri)
    }
}

impl From<Infallible> for OpenError {
    fn from(never: Infallible) -> OpenError {
        match never {}
    }
}
