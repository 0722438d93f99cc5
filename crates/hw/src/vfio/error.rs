//! What keeps a PCI function from being opened, and what mends it.

use std::io;
use std::path::PathBuf;

use super::reply::Malformed;
use crate::pci::Bdf;

/// Why a PCI function cannot be had by VFIO.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no such function.
    #[error("there is no such PCI function here; {}", there(.controllers))]
    NotFound {
        /// The NVMe controllers that there are.
        controllers: Vec<Bdf>,
    },
    /// It is something else.
    #[error("it is no NVMe controller: its class is {class:06x}h, and those have 010802h; {}", there(.controllers))]
    NotNvme {
        /// Its class code.
        class: u32,
        /// The NVMe controllers that there are.
        controllers: Vec<Bdf>,
    },
    /// Nothing stands between it and this machine's memory.
    #[error(
        "no IOMMU stands between it and memory, and Reap drives no device without one; \
         switch the IOMMU on in the firmware (VT-d, AMD-Vi), and by `intel_iommu=on` on the kernel's command line where it is Intel's"
    )]
    NoIommu,
    /// The kernel has another driver for it, or none.
    #[error("{}; `reap bind {bdf}` gives it to vfio-pci", match .driver { Some(driver) => format!("it is bound to the driver `{driver}`"), None => "no driver has it".to_owned() })]
    OtherDriver {
        /// Which function.
        bdf: Bdf,
        /// The driver that has it.
        driver: Option<String>,
    },
    /// The kernel has no VFIO containers.
    #[error(
        "there is no /dev/vfio/vfio: {}",
        if *.iommufd { "this kernel has VFIO by iommufd alone (/dev/iommu), which Reap does not use; have one with CONFIG_VFIO_CONTAINER or CONFIG_IOMMUFD_VFIO_CONTAINER" }
        else { "the kernel's VFIO is not loaded; `modprobe vfio-pci` loads it" }
    )]
    NoContainer {
        /// There is /dev/iommu.
        iommufd: bool,
    },
    /// This user may not open a file of VFIO's.
    #[error("this user may not open {}; `reap bind {bdf} --user NAME` gives the group's file to a user, or be root", .path.display())]
    Permission {
        /// Which function.
        bdf: Bdf,
        /// The file.
        path: PathBuf,
    },
    /// Somebody has the group open.
    #[error("{} is open already: another process, or another device of this one, uses IOMMU group {group}; close that first", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// The group.
        group: u32,
    },
    /// A function of its group is the kernel's.
    #[error(
        "IOMMU group {group} cannot be used, because the kernel drives other functions of it: {}; an IOMMU keeps groups apart, not what is in \
         them: give each to vfio-pci (`reap bind` names them), or put the drive into another slot", list(.members)
    )]
    NotViable {
        /// The group.
        group: u32,
        /// Functions of the group that are not vfio-pci's, each with its driver.
        members: Vec<(Bdf, Option<String>)>,
    },
    /// The IOMMU does not keep a device from making up interrupts.
    #[error(
        "this machine's IOMMU does not remap interrupts, so that a device could make up any; the kernel refuses it, unless \
         `/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts` says Y"
    )]
    UnsafeInterrupts,
    /// The kernel's VFIO or the device's lacks something that Reap needs.
    #[error("it cannot be driven here: {0}")]
    Lacks(String),
    /// The kernel's answer makes no sense.
    #[error("{what}: {source}")]
    Malformed {
        /// What was asked.
        what: &'static str,
        /// Where it makes none.
        #[source]
        source: Malformed,
    },
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
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> VfioError {
        let what = what.into();
        move |source| VfioError::System { what, source }
    }
}

/// Which controllers there are.
fn there(controllers: &[Bdf]) -> String {
    let all: Vec<_> = controllers.iter().map(Bdf::to_string).collect();
    match all.as_slice() {
        [] => "this machine has no NVMe controller on PCI".to_owned(),
        all => format!("NVMe controllers are at {}", all.join(", ")),
    }
}

fn list(members: &[(Bdf, Option<String>)]) -> String {
    let member = |(bdf, driver): &(Bdf, Option<String>)| format!("{bdf} ({})", driver.as_deref().unwrap_or("no driver"));
    members.iter().map(member).collect::<Vec<_>>().join(", ")
}
