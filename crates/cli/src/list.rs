//! `reap list`: NVMe controllers and block devices with their drivers and users. Everything is read
//! from sysfs below a root directory, so tests run it on a made-up one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use hw::block::{Disk, Users, openers};
use hw::pci::{Function, SysfsPci};
use indicatif::DecimalBytes;
use serde::Serialize;

use crate::args::ListArgs;
use crate::bind::namespace_of;
use crate::output::{self, escape};
use crate::rows;

/// Runs `reap list`.
pub fn list(args: &ListArgs) -> Result<ExitCode> {
    let found = DeviceList::read(Path::new("/"), &openers).context("cannot read /sys")?;
    output::print(&if args.layout.is_json() {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        text(&found)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Open files, each with a process that has it open.
type Open = BTreeSet<(PathBuf, String)>;

/// The devices found. JSON keys are those of nvme-cli where it has them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceList {
    /// NVMe controllers, with any driver or none.
    controllers: Vec<ControllerEntry>,
    /// Block devices, which `kernel:` can use.
    block_devices: Vec<BlockDevice>,
}

/// A controller.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ControllerEntry {
    /// The kernel's name, as nvme0; `None` without the kernel's nvme driver.
    controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware: Option<String>,
    /// `pcie`, `tcp`.
    transport: String,
    /// PCI address, or network address.
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(rename = "SubsystemNQN", skip_serializing_if = "Option::is_none")]
    nqn: Option<String>,
    /// Driver of the PCI function: `nvme`, `vfio-pci`.
    driver: Option<String>,
    iommu_group: Option<u32>,
    /// Vendor and device, as `lspci -n` prints them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pci_id: Option<String>,
    namespaces: Vec<String>,
    /// Processes that use the controller through VFIO.
    users: Vec<String>,
}

/// A block device, which may be a namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BlockDevice {
    device_path: String,
    /// NSID; `None`: not an NVMe namespace.
    #[serde(rename = "NameSpace", skip_serializing_if = "Option::is_none")]
    nsid: Option<u32>,
    /// The character device of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    generic_path: Option<String>,
    /// The controllers of a namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    controllers: Vec<String>,
    model_number: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware: Option<String>,
    physical_size: u64,
    sector_size: u64,
    driver: Option<String>,
    read_only: bool,
    /// The kernel can poll the device for completions (`queue/io_poll`).
    polls: bool,
    /// Users of the device, and users of its partitions with the partition's name.
    users: Vec<String>,
}

impl DeviceList {
    /// Reads the devices below `root`. `openers` finds the processes that have files open
    /// ([`hw::block::openers`]). Without sysfs nothing is found.
    fn read(root: &Path, openers: &dyn Fn(&[PathBuf]) -> Open) -> io::Result<DeviceList> {
        let functions = SysfsPci::at(&root.join("sys/bus/pci")).controllers()?;
        let disks: Vec<Disk> =
            Disk::all(root).into_iter().filter(|disk| disk.bytes() > 0).collect();
        let nodes = disks.iter().flat_map(Disk::family).map(|member| member.node());
        let group_file = |group: u32| PathBuf::from(format!("/dev/vfio/{group}"));
        let groups = functions.iter().filter_map(Function::iommu_group).map(group_file);
        let seen = Seen {
            users: Users::at(root),
            open: openers(&nodes.chain(groups).collect::<Vec<PathBuf>>()),
        };
        let mut controllers = of_the_kernel(root, &functions);
        let others = functions.iter().filter(|function| {
            !controllers.iter().any(|known| known.address == function.bdf.to_string())
        });
        // Controllers with another driver than nvme, or none, have no entry in sys/class/nvme.
        let on_the_bus = |function: &Function| ControllerEntry {
            transport: "pcie".to_owned(),
            address: function.bdf.to_string(),
            driver: function.driver(),
            iommu_group: function.iommu_group(),
            pci_id: pci_id(function),
            users: function
                .iommu_group()
                .map(|group| seen.open_in(&group_file(group)))
                .unwrap_or_default(),
            ..ControllerEntry::default()
        };
        let others: Vec<ControllerEntry> = others.map(on_the_bus).collect();
        controllers.extend(others);
        let block_devices =
            disks.iter().map(|disk| block(root, disk, &controllers, &seen)).collect();
        Ok(DeviceList { controllers, block_devices })
    }
}

/// Users of all devices, read once because scanning /proc is slow.
struct Seen {
    users: Users,
    open: Open,
}

impl Seen {
    fn open_in(&self, file: &Path) -> Vec<String> {
        let of_it = self.open.iter().filter(|(path, _)| path == file);
        of_it.map(|(_, process)| escape(&format!("open in {process}"))).collect()
    }

    /// Users of this device, without its partitions.
    fn of(&self, disk: &Disk) -> Vec<String> {
        self.users
            .of(disk)
            .iter()
            .map(|user| escape(user))
            .chain(self.open_in(&disk.node()))
            .collect()
    }
}

/// Controllers of the kernel's NVMe drivers with any transport, by number.
fn of_the_kernel(root: &Path, functions: &[Function]) -> Vec<ControllerEntry> {
    let class = root.join("sys/class/nvme");
    let mut named = names(&class);
    // nvme10 comes after nvme9.
    named.sort_by_key(|name| {
        name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(u32::MAX)
    });
    let one = |name: String| {
        let at = class.join(&name);
        let said = |attribute: &str| {
            let bytes = fs::read(at.join(attribute)).ok()?;
            Some(escape(String::from_utf8_lossy(&bytes).trim())).filter(|text| !text.is_empty())
        };
        // Only PCI controllers have a device with a PCI address as its name.
        let function = fs::canonicalize(at.join("device")).ok().and_then(|device| {
            let bdf = device.file_name()?.to_str()?.parse().ok()?;
            functions.iter().find(|function| function.bdf == bdf)
        });
        // With multipath the directory has paths (nvme0c1n1), which stand for nvme0n1.
        let mut namespaces: Vec<String> =
            names(&at).iter().filter_map(|entry| namespace_of(entry)).collect();
        namespaces.sort_unstable();
        ControllerEntry {
            serial_number: said("serial"),
            model_number: said("model"),
            firmware: said("firmware_rev"),
            transport: said("transport").unwrap_or_else(|| "unknown".to_owned()),
            address: function
                .map(|function| function.bdf.to_string())
                .or_else(|| said("address"))
                .unwrap_or_default(),
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

fn pci_id(function: &Function) -> Option<String> {
    let digits = |name: &str| Some(function.attribute(name)?.trim_start_matches("0x").to_owned());
    Some(escape(&format!("{}:{}", digits("vendor")?, digits("device")?)))
}

fn block(root: &Path, disk: &Disk, controllers: &[ControllerEntry], seen: &Seen) -> BlockDevice {
    let (identity, name, nsid) = (disk.identity(), disk.name(), disk.nsid());
    let text = |text: Option<String>| text.map(|text| escape(&text));
    // Linux names the character device of nvme0n1 ng0n1; older kernels do not have it.
    let generic = nsid.and(name.strip_prefix("nvme")).map(|rest| format!("ng{rest}"));
    let generic =
        generic.filter(|generic| root.join("sys/class/nvme-generic").join(generic).exists());
    let leads = controllers.iter().filter(|controller| controller.namespaces.contains(&name));
    let parts: Vec<Disk> = disk.family().into_iter().skip(1).collect();
    let of_parts = parts.iter().flat_map(|part| {
        seen.of(part).into_iter().map(|user| format!("{}: {user}", escape(&part.name())))
    });
    BlockDevice {
        device_path: escape(&disk.node().display().to_string()),
        nsid,
        generic_path: generic.map(|generic| format!("/dev/{generic}")),
        controllers: leads.filter_map(|controller| controller.controller.clone()).collect(),
        model_number: text(identity.model).unwrap_or_default(),
        serial_number: text(identity.serial),
        firmware: text(identity.firmware),
        physical_size: disk.bytes(),
        sector_size: disk.queue("logical_block_size").unwrap_or(512),
        driver: if nsid.is_some() { Some("nvme".to_owned()) } else { disk.driver() },
        read_only: disk.read_only(),
        polls: disk.queue("io_poll") == Some(1),
        users: seen.of(disk).into_iter().chain(of_parts).collect(),
    }
}

/// The entries of a directory, sorted; empty if it cannot be read.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    found.sort_unstable();
    found
}

/// Two tables in the layout of nvme-cli.
fn text(found: &DeviceList) -> String {
    let controllers: Vec<_> = found.controllers.iter().map(controller_row).collect();
    let blocks: Vec<_> = found.block_devices.iter().map(block_row).collect();
    let controllers = match controllers.is_empty() {
        true => "No NVMe controllers found.\n".to_owned(),
        false => table(
            ["Device", "Address", "Driver", "Group", "Model", "Serial", "Namespaces"],
            &controllers,
        ),
    };
    let blocks = match blocks.is_empty() {
        true => "No block devices found for `kernel:`.\n".to_owned(),
        false => {
            let names = ["Node", "Generic", "Size", "Block", "Polls", "Model", "Users"];
            format!("Block devices, usable as kernel:NODE:\n{}", table(names, &blocks))
        }
    };
    format!("{controllers}\n{blocks}")
}

/// A table with padded cells and a line of dashes. Empty columns are omitted.
fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let width = |at: usize| {
        rows.iter()
            .map(|row| row[at].chars().count())
            .max()
            .filter(|most| *most > 0)
            .map(|most| most.max(names[at].len()))
    };
    let columns: Vec<(usize, usize)> = (0..N).filter_map(|at| Some((at, width(at)?))).collect();
    let line = |cells: &[String; N]| {
        let padded: String =
            columns.iter().map(|&(at, width)| format!("{:width$} ", cells[at])).collect();
        padded.trim_end().to_owned() + "\n"
    };
    let dashes = std::array::from_fn(|at| "-".repeat(width(at).unwrap_or(0)));
    let head = [names.map(str::to_owned), dashes];
    head.iter().chain(rows).map(line).collect()
}

fn controller_row(c: &ControllerEntry) -> [String; 7] {
    // A controller of the kernel has namespaces, one of VFIO has users: one column is enough.
    let used = if c.namespaces.is_empty() { c.users.join("; ") } else { c.namespaces.join(", ") };
    let model = c.model_number.clone().or_else(|| Some(format!("PCI {}", c.pci_id.as_ref()?)));
    [
        c.controller.clone().unwrap_or_else(|| "-".to_owned()),
        c.address.clone(),
        c.driver.clone().unwrap_or_else(|| "none".to_owned()),
        c.iommu_group.map_or_else(|| "none".to_owned(), |group| group.to_string()),
        model.unwrap_or_default(),
        c.serial_number.clone().unwrap_or_default(),
        used,
    ]
}

fn block_row(b: &BlockDevice) -> [String; 7] {
    [
        b.device_path.clone(),
        b.generic_path.clone().unwrap_or_default(),
        DecimalBytes(b.physical_size).to_string(),
        rows::bytes(b.sector_size),
        if b.polls { "yes" } else { "no" }.to_owned(),
        if b.read_only {
            format!("{} (read-only)", b.model_number)
        } else {
            b.model_number.clone()
        },
        b.users.join("; "),
    ]
}

#[cfg(test)]
mod tests;
