//! What is so on this machine. Files are read below a root, so that a test can make some.

use std::fs;
use std::path::{Path, PathBuf};

use hw::block::Disk;
use hw::pci::{Bus, Function};
use hw::uring::{Features, Unavailable};
use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use crate::list::names;

/// CAP_IPC_LOCK (capabilities(7)): locked memory is not limited.
const CAP_IPC_LOCK: u32 = 14;

/// What is so.
#[derive(Debug)]
pub struct Facts {
    /// `6.18.44`.
    pub kernel: String,
    pub uring: Result<Features, Unavailable>,
    /// Character devices of namespaces, and whether this user may open them.
    pub characters: Vec<(PathBuf, bool)>,
    /// Namespaces of the kernel's driver, and whether they have poll queues.
    pub polls: Vec<(String, bool)>,
    pub controllers: Vec<Controller>,
    /// Whatever keeps `reap trace` from working.
    pub trace: Vec<String>,
    /// Bytes; `None`: not limited.
    pub memlock: Option<u64>,
    pub hugepages: u64,
    /// Transparent huge pages: `always`, `madvise`, `never`; empty: the kernel has none.
    pub transparent: String,
    pub iommu_groups: usize,
    pub vfio: Vfio,
    pub cpus: Cpus,
}

/// An NVMe controller on the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    pub bdf: String,
    pub driver: Option<String>,
    /// The file of its IOMMU group, and whether this user may open it.
    pub group: Option<(PathBuf, bool)>,
    /// Other functions of its group that the kernel drives.
    pub in_the_way: Vec<String>,
}

/// The kernel's VFIO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vfio {
    /// The driver is there.
    pub loaded: bool,
    /// It can be loaded.
    pub module: bool,
    /// There is /dev/vfio/vfio.
    pub container: bool,
    /// There is /dev/iommu.
    pub iommufd: bool,
}

/// What figures depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpus {
    /// Those that this process may use.
    pub allowed: usize,
    /// The machine is virtual.
    pub virtual_machine: bool,
    /// Idle states of the first CPU that are not switched off, by name, each with the microseconds that leaving it takes.
    pub idle: Vec<(String, u64)>,
    /// How the frequency is governed; `None`: the system does not.
    pub governor: Option<String>,
    /// The load average of a minute.
    pub load: f64,
}

impl Facts {
    /// What is so here, with files below `root`; what the kernel is asked is this machine's.
    pub fn at(root: &Path) -> Facts {
        let namespaces: Vec<Disk> = Disk::all(root).into_iter().filter(|disk| disk.nsid().is_some()).collect();
        let characters = names(&root.join("sys/class/nvme-generic"));
        let opens = |path: PathBuf| (path.clone(), access(&path, Access::READ_OK).is_ok());
        Facts {
            kernel: text(root, "proc/sys/kernel/osrelease"),
            uring: Features::probe(),
            characters: characters.iter().map(|name| opens(Path::new("/dev").join(name))).collect(),
            polls: namespaces.iter().map(|disk| (disk.name(), disk.queue("io_poll") == Some(1))).collect(),
            controllers: Bus::at(&root.join("sys/bus/pci")).controllers().unwrap_or_default().iter().map(controller).collect(),
            trace: trace::lacks().iter().map(ToString::to_string).collect(),
            memlock: memlock(&text(root, "proc/self/status")),
            hugepages: text(root, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").parse().unwrap_or(0),
            transparent: chosen(&text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
            iommu_groups: names(&root.join("sys/kernel/iommu_groups")).len(),
            vfio: vfio(root),
            cpus: cpus(root),
        }
    }
}

fn controller(function: &Function) -> Controller {
    let group = function.iommu_group().map(|group| PathBuf::from(format!("/dev/vfio/{group}")));
    let others = function.group_members().unwrap_or_default();
    let others = others.iter().filter(|other| other.bdf != function.bdf && !other.is_bridge());
    let in_the_way = others.filter_map(|other| Some(format!("{} ({})", other.bdf, other.driver().filter(|driver| driver != "vfio-pci")?)));
    Controller {
        bdf: function.bdf.to_string(),
        driver: function.driver(),
        group: group.map(|file| (file.clone(), access(&file, Access::READ_OK | Access::WRITE_OK).is_ok())),
        in_the_way: in_the_way.collect(),
    }
}

fn memlock(status: &str) -> Option<u64> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if effective >> CAP_IPC_LOCK & 1 == 1 { None } else { getrlimit(Resource::Memlock).current }
}

fn vfio(root: &Path) -> Vfio {
    let modules = root.join("lib/modules").join(text(root, "proc/sys/kernel/osrelease"));
    // With `-` and `_` for one another, as modprobe(8) takes them.
    let listed = |file: &str| fs::read_to_string(modules.join(file)).unwrap_or_default().replace('_', "-").contains("/vfio-pci.ko");
    Vfio {
        loaded: Bus::at(&root.join("sys/bus/pci")).has_driver("vfio-pci"),
        module: listed("modules.dep") || listed("modules.builtin"),
        container: root.join("dev/vfio/vfio").exists(),
        iommufd: root.join("dev/iommu").exists(),
    }
}

fn cpus(root: &Path) -> Cpus {
    let first = root.join("sys/devices/system/cpu/cpu0");
    let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let known = |path: &str| root.join(path).exists();
    let states = names(&first.join("cpuidle"));
    let state = |name: &String| {
        let said = |attribute: &str| text(&first, &format!("cpuidle/{name}/{attribute}"));
        (said("disable") != "1").then(|| (said("name"), said("latency").parse().unwrap_or(0)))
    };
    Cpus {
        allowed: hw::allowed_cpus().map_or(0, |cpus| cpus.len()),
        virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor")
            || known("sys/hypervisor/type")
            || known("proc/device-tree/hypervisor"),
        idle: states.iter().filter_map(state).collect(),
        governor: Some(text(&first, "cpufreq/scaling_governor")).filter(|text| !text.is_empty()),
        load: text(root, "proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
    }
}

/// The word in brackets, of a file that lists choices.
fn chosen(choices: &str) -> String {
    choices.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or_default().to_owned()
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests;
