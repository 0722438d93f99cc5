//! What a system has, as its sysfs tells: read below a root, so that a test can make one of files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hw::block::{Disk, Users};
use hw::pci::{Bus, Function};
use serde::Serialize;

use crate::bind::held::namespace_of;
use crate::harmless::harmless;

/// Processes that have one of these files open, each with the file.
type Openers<'a> = dyn Fn(&[PathBuf]) -> BTreeSet<(PathBuf, String)> + 'a;

/// Where it is looked.
pub struct System<'a> {
    /// `/sys` and `/proc` are below it.
    pub root: &'a Path,
    /// Allocated blocks of a namespace whose sysfs does not tell.
    pub used: &'a dyn Fn(&Disk) -> Option<u64>,
    /// See [`hw::block::openers`].
    pub openers: &'a Openers<'a>,
}

/// What there is. Names in JSON are those of nvme-cli, as far as it has them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Found {
    /// Namespaces that the kernel drives.
    pub devices: Vec<Namespace>,
    /// NVMe controllers, of the kernel's driver and of others.
    pub controllers: Vec<Controller>,
    /// Other block devices that `kernel:` can take.
    pub block_devices: Vec<Block>,
}

/// A namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Namespace {
    /// NSID.
    #[serde(rename = "NameSpace")]
    pub nsid: u32,
    pub device_path: String,
    /// `None`: a kernel without character devices of namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generic_path: Option<String>,
    pub firmware: String,
    pub model_number: String,
    pub serial_number: String,
    /// `None`: neither sysfs nor the controller tells it to this user.
    pub used_bytes: Option<u64>,
    #[serde(rename = "MaximumLBA")]
    pub blocks: u64,
    pub physical_size: u64,
    pub sector_size: u64,
    /// Bytes of metadata in a block.
    #[serde(rename = "MetadataSize")]
    pub metadata: u64,
    /// Controllers that lead to it.
    pub controllers: Vec<String>,
    #[serde(flatten)]
    pub use_: Use,
}

/// A controller.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Controller {
    /// The kernel's name; `None`: the kernel's NVMe driver does not have it.
    pub controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// `pcie`, `tcp`.
    pub transport: String,
    /// Its PCI address, or where it is on the network.
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(rename = "SubsystemNQN", skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// The driver that has the PCI function: `nvme`, `vfio-pci`.
    pub driver: Option<String>,
    pub iommu_group: Option<u32>,
    /// Vendor and device, as `lspci -n` prints them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
    pub namespaces: Vec<String>,
    /// Who drives it by VFIO.
    pub users: Vec<String>,
}

/// Another block device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Block {
    pub device_path: String,
    pub model_number: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    pub physical_size: u64,
    pub sector_size: u64,
    #[serde(flatten)]
    pub use_: Use,
}

/// How a block device is driven and used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Use {
    pub driver: Option<String>,
    pub read_only: bool,
    /// It has queues that the kernel can poll (`queue/io_poll`).
    pub polls: bool,
    /// Who uses it or one of its partitions.
    pub users: Vec<String>,
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Partition {
    pub device_path: String,
    pub physical_size: u64,
    pub users: Vec<String>,
}

impl Found {
    /// What there is.
    ///
    /// # Errors
    /// Sysfs cannot be read. Where there is none, nothing is found.
    pub fn look(system: &System) -> io::Result<Found> {
        let functions = Bus::at(&system.root.join("sys/bus/pci")).controllers()?;
        let disks: Vec<Disk> = Disk::all(system.root).into_iter().filter(|disk| disk.bytes() > 0).collect();
        let seen = Seen::look(system, &disks, &functions);
        let mut controllers = of_the_kernel(system.root, &functions);
        let others = functions.iter().filter(|function| !controllers.iter().any(|known| known.address == function.bdf.to_string()));
        let others: Vec<Controller> = others.map(|function| on_the_bus(function, &seen)).collect();
        controllers.extend(others);
        let (namespaces, plain): (Vec<&Disk>, Vec<&Disk>) = disks.iter().partition(|disk| disk.nsid().is_some());
        let devices = namespaces.into_iter().filter_map(|disk| namespace(system, disk, &controllers, &seen)).collect();
        let block = |disk: &Disk| {
            let identity = disk.identity();
            Block {
                device_path: path_of(disk),
                model_number: shown(identity.model),
                serial_number: identity.serial.map(|text| harmless(&text)),
                physical_size: disk.bytes(),
                sector_size: disk.queue("logical_block_size").unwrap_or(512),
                use_: seen.of_disk(disk),
            }
        };
        Ok(Found { devices, controllers, block_devices: plain.into_iter().map(block).collect() })
    }
}

/// Who uses what, read once for all of them.
struct Seen {
    users: Users,
    open: BTreeSet<(PathBuf, String)>,
}

impl Seen {
    fn look(system: &System, disks: &[Disk], functions: &[Function]) -> Seen {
        let nodes = disks.iter().flat_map(Disk::family).map(|member| member.node());
        let groups = functions.iter().filter_map(Function::iommu_group).map(group_file);
        let files: Vec<PathBuf> = nodes.chain(groups).collect();
        Seen { users: Users::at(system.root), open: (system.openers)(&files) }
    }

    fn open_in(&self, file: &Path) -> Vec<String> {
        let of_it = self.open.iter().filter(|(path, _)| path == file);
        of_it.map(|(_, process)| harmless(&format!("open in {process}"))).collect()
    }

    /// Who uses this device itself.
    fn of(&self, disk: &Disk) -> Vec<String> {
        self.users.of(disk).iter().map(|user| harmless(user)).chain(self.open_in(&disk.node())).collect()
    }

    fn of_disk(&self, disk: &Disk) -> Use {
        let parts: Vec<Disk> = disk.family().into_iter().skip(1).collect();
        let of_part = |part: &Disk| Partition { device_path: path_of(part), physical_size: part.bytes(), users: self.of(part) };
        let partitions: Vec<Partition> = parts.iter().map(of_part).collect();
        let mut users = self.of(disk);
        for (part, told) in parts.iter().zip(&partitions) {
            users.extend(told.users.iter().map(|user| format!("{}: {user}", part.name())));
        }
        let polls = disk.queue("io_poll") == Some(1);
        Use { driver: disk.driver(), read_only: disk.read_only(), polls, users, partitions }
    }
}

fn group_file(group: u32) -> PathBuf {
    PathBuf::from(format!("/dev/vfio/{group}"))
}

/// Controllers of the kernel's NVMe drivers, over whatever transport, in the order of their numbers.
fn of_the_kernel(root: &Path, functions: &[Function]) -> Vec<Controller> {
    let class = root.join("sys/class/nvme");
    let mut named = names(&class);
    named.sort_by_key(|name| name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(u32::MAX));
    let one = |name: String| {
        let at = class.join(&name);
        let said = |attribute: &str| attribute_of(&at, attribute);
        // The address of one on the network is a list of what leads to it.
        let function = fs::canonicalize(at.join("device")).ok().and_then(|device| {
            let bdf = device.file_name()?.to_str()?.parse().ok()?;
            functions.iter().find(|function| function.bdf == bdf)
        });
        let mut namespaces: Vec<String> = names(&at).iter().filter_map(|entry| namespace_of(entry)).collect();
        namespaces.sort();
        Controller {
            serial_number: said("serial"),
            model_number: said("model"),
            firmware: said("firmware_rev"),
            transport: said("transport").unwrap_or_else(|| "unknown".to_owned()),
            address: function.map(|function| function.bdf.to_string()).or_else(|| said("address")).unwrap_or_default(),
            state: said("state"),
            nqn: said("subsysnqn"),
            driver: function.and_then(Function::driver),
            iommu_group: function.and_then(Function::iommu_group),
            pci_id: function.and_then(pci_id),
            namespaces,
            users: Vec::new(),
            controller: Some(name),
        }
    };
    named.into_iter().map(one).collect()
}

/// A controller that another driver has, or none.
fn on_the_bus(function: &Function, seen: &Seen) -> Controller {
    let group = function.iommu_group();
    Controller {
        transport: "pcie".to_owned(),
        address: function.bdf.to_string(),
        driver: function.driver(),
        iommu_group: group,
        pci_id: pci_id(function),
        users: group.map(|group| seen.open_in(&group_file(group))).unwrap_or_default(),
        ..Controller::default()
    }
}

fn pci_id(function: &Function) -> Option<String> {
    let digits = |name: &str| Some(function.attribute(name)?.trim_start_matches("0x").to_owned());
    Some(harmless(&format!("{}:{}", digits("vendor")?, digits("device")?)))
}

/// `None`: the kernel tells no NSID of it.
fn namespace(system: &System, disk: &Disk, controllers: &[Controller], seen: &Seen) -> Option<Namespace> {
    let (identity, name, sector) = (disk.identity(), disk.name(), disk.queue("logical_block_size").unwrap_or(512).max(1));
    let generic = name.strip_prefix("nvme").map(|rest| format!("ng{rest}"));
    let generic = generic.filter(|generic| system.root.join("sys/class/nvme-generic").join(generic).exists());
    let used = disk.attribute("nuse").and_then(|text| text.parse::<u64>().ok()).or_else(|| (system.used)(disk));
    let leads = |controller: &&Controller| controller.namespaces.contains(&name);
    Some(Namespace {
        nsid: disk.nsid()?,
        device_path: path_of(disk),
        generic_path: generic.map(|generic| format!("/dev/{generic}")),
        firmware: shown(identity.firmware),
        model_number: shown(identity.model),
        serial_number: shown(identity.serial),
        used_bytes: used.map(|blocks| blocks.saturating_mul(sector)),
        blocks: disk.bytes() / sector,
        physical_size: disk.bytes(),
        sector_size: sector,
        metadata: disk.attribute("metadata_bytes").and_then(|text| text.parse().ok()).unwrap_or(0),
        controllers: controllers.iter().filter(leads).filter_map(|controller| controller.controller.clone()).collect(),
        use_: Use { driver: Some("nvme".to_owned()), ..seen.of_disk(disk) },
    })
}

fn path_of(disk: &Disk) -> String {
    harmless(&disk.node().display().to_string())
}

fn shown(text: Option<String>) -> String {
    text.map(|text| harmless(&text)).unwrap_or_default()
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn attribute_of(directory: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(directory.join(name)).ok()?;
    Some(harmless(String::from_utf8_lossy(&bytes).trim())).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
