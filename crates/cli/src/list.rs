//! `reap list`: which NVMe controllers and block devices there are, namespaces among them, who drives them, and who uses them. All of it
//! is read from sysfs, below a root, so that a test can make one of files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use hw::block::{Disk, Users, openers};
use hw::pci::{Bus, Function};
use indicatif::DecimalBytes;
use serde::Serialize;

use crate::args::ListArgs;
use crate::bind::namespace_of;
use crate::output::{self, escape};
use crate::rows;

/// Shows them.
pub fn list(args: &ListArgs) -> Result<ExitCode> {
    let found = Found::look(Path::new("/"), &openers).context("cannot read /sys")?;
    output::print(&if args.layout.is_json() { serde_json::to_string_pretty(&found)? + "\n" } else { text(&found) })?;
    Ok(ExitCode::SUCCESS)
}

/// Open files, each with a process that has it open.
type Open = BTreeSet<(PathBuf, String)>;

/// What there is. Names in JSON are those of nvme-cli, as far as it has them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    /// NVMe controllers, of the kernel's driver and of others.
    controllers: Vec<Controller>,
    /// What `kernel:` can take.
    block_devices: Vec<Block>,
}

/// A controller.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Controller {
    /// The kernel's name; `None`: the kernel's NVMe driver does not have it.
    controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware: Option<String>,
    /// `pcie`, `tcp`.
    transport: String,
    /// Its PCI address, or where it is on the network.
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(rename = "SubsystemNQN", skip_serializing_if = "Option::is_none")]
    nqn: Option<String>,
    /// The driver that has the PCI function: `nvme`, `vfio-pci`.
    driver: Option<String>,
    iommu_group: Option<u32>,
    /// Vendor and device, as `lspci -n` prints them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pci_id: Option<String>,
    namespaces: Vec<String>,
    /// Who drives it by VFIO.
    users: Vec<String>,
}

/// A block device, which may be a namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Block {
    device_path: String,
    /// NSID; `None`: no namespace.
    #[serde(rename = "NameSpace", skip_serializing_if = "Option::is_none")]
    nsid: Option<u32>,
    /// The character device of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    generic_path: Option<String>,
    /// Of a namespace: the controllers that lead to it.
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
    /// It has queues that the kernel can poll (`queue/io_poll`).
    polls: bool,
    /// Who uses it or one of its partitions, which is named then.
    users: Vec<String>,
}

impl Found {
    /// What there is below `root`, of which `openers` says which processes have a file open ([`hw::block::openers`]).
    /// Where there is no sysfs, nothing is found.
    fn look(root: &Path, openers: &dyn Fn(&[PathBuf]) -> Open) -> io::Result<Found> {
        let functions = Bus::at(&root.join("sys/bus/pci")).controllers()?;
        let disks: Vec<Disk> = Disk::all(root).into_iter().filter(|disk| disk.bytes() > 0).collect();
        let nodes = disks.iter().flat_map(Disk::family).map(|member| member.node());
        let group_file = |group: u32| PathBuf::from(format!("/dev/vfio/{group}"));
        let groups = functions.iter().filter_map(Function::iommu_group).map(group_file);
        let seen = Seen { users: Users::at(root), open: openers(&nodes.chain(groups).collect::<Vec<PathBuf>>()) };
        let mut controllers = of_the_kernel(root, &functions);
        let others = functions.iter().filter(|function| !controllers.iter().any(|known| known.address == function.bdf.to_string()));
        // Another driver has them, or none.
        let on_the_bus = |function: &Function| Controller {
            transport: "pcie".to_owned(),
            address: function.bdf.to_string(),
            driver: function.driver(),
            iommu_group: function.iommu_group(),
            pci_id: pci_id(function),
            users: function.iommu_group().map(|group| seen.open_in(&group_file(group))).unwrap_or_default(),
            ..Controller::default()
        };
        let others: Vec<Controller> = others.map(on_the_bus).collect();
        controllers.extend(others);
        let block_devices = disks.iter().map(|disk| block(root, disk, &controllers, &seen)).collect();
        Ok(Found { controllers, block_devices })
    }
}

/// Who uses what, read once for all of them.
struct Seen {
    users: Users,
    open: Open,
}

impl Seen {
    fn open_in(&self, file: &Path) -> Vec<String> {
        let of_it = self.open.iter().filter(|(path, _)| path == file);
        of_it.map(|(_, process)| escape(&format!("open in {process}"))).collect()
    }

    /// Who uses this device itself.
    fn of(&self, disk: &Disk) -> Vec<String> {
        self.users.of(disk).iter().map(|user| escape(user)).chain(self.open_in(&disk.node())).collect()
    }
}

/// Controllers of the kernel's NVMe drivers, over whatever transport, in the order of their numbers.
fn of_the_kernel(root: &Path, functions: &[Function]) -> Vec<Controller> {
    let class = root.join("sys/class/nvme");
    let mut named = names(&class);
    named.sort_by_key(|name| name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(u32::MAX));
    let one = |name: String| {
        let at = class.join(&name);
        let said = |attribute: &str| {
            let bytes = fs::read(at.join(attribute)).ok()?;
            Some(escape(String::from_utf8_lossy(&bytes).trim())).filter(|text| !text.is_empty())
        };
        // The address of one on the network is a list of what leads to it.
        let function = fs::canonicalize(at.join("device")).ok().and_then(|device| {
            let bdf = device.file_name()?.to_str()?.parse().ok()?;
            functions.iter().find(|function| function.bdf == bdf)
        });
        let mut namespaces: Vec<String> = names(&at).iter().filter_map(|entry| namespace_of(entry)).collect();
        namespaces.sort_unstable();
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

fn pci_id(function: &Function) -> Option<String> {
    let digits = |name: &str| Some(function.attribute(name)?.trim_start_matches("0x").to_owned());
    Some(escape(&format!("{}:{}", digits("vendor")?, digits("device")?)))
}

fn block(root: &Path, disk: &Disk, controllers: &[Controller], seen: &Seen) -> Block {
    let (identity, name, nsid) = (disk.identity(), disk.name(), disk.nsid());
    let text = |text: Option<String>| text.map(|text| escape(&text));
    let generic = nsid.and(name.strip_prefix("nvme")).map(|rest| format!("ng{rest}"));
    let generic = generic.filter(|generic| root.join("sys/class/nvme-generic").join(generic).exists());
    let leads = controllers.iter().filter(|controller| controller.namespaces.contains(&name));
    let parts: Vec<Disk> = disk.family().into_iter().skip(1).collect();
    let of_parts = parts.iter().flat_map(|part| seen.of(part).into_iter().map(|user| format!("{}: {user}", escape(&part.name()))));
    Block {
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

/// What is in a directory, sorted; nothing where it cannot be read.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    found.sort_unstable();
    found
}

/// For people: two tables, in columns as nvme-cli has them, each as wide as it has to be.
fn text(found: &Found) -> String {
    let controllers: Vec<_> = found.controllers.iter().map(controller_row).collect();
    let blocks: Vec<_> = found.block_devices.iter().map(block_row).collect();
    let controllers = match controllers.is_empty() {
        true => "There is no NVMe controller here, on PCI or at a driver of the kernel's.\n".to_owned(),
        false => table(["Device", "Address", "Driver", "Group", "Model", "Serial", "Namespaces"], &controllers),
    };
    let blocks = match blocks.is_empty() {
        true => "There is no block device here that `kernel:` could take.\n".to_owned(),
        false => {
            let names = ["Node", "Generic", "Size", "Block", "Polls", "Model", "Users"];
            format!("Block devices, each to be used as kernel:NODE:\n{}", table(names, &blocks))
        }
    };
    format!("{controllers}\n{blocks}")
}

/// Padded cells, a blank between them, dashes below the names. A column without anything in it is left out.
fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let width =
        |at: usize| rows.iter().map(|row| row[at].chars().count()).max().filter(|most| *most > 0).map(|most| most.max(names[at].len()));
    let columns: Vec<(usize, usize)> = (0..N).filter_map(|at| Some((at, width(at)?))).collect();
    let line = |cells: &[String; N]| {
        let padded: String = columns.iter().map(|&(at, width)| format!("{:width$} ", cells[at])).collect();
        padded.trim_end().to_owned() + "\n"
    };
    let dashes = std::array::from_fn(|at| "-".repeat(width(at).unwrap_or(0)));
    let head = [names.map(str::to_owned), dashes];
    head.iter().chain(rows).map(line).collect()
}

fn controller_row(c: &Controller) -> [String; 7] {
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

fn block_row(b: &Block) -> [String; 7] {
    [
        b.device_path.clone(),
        b.generic_path.clone().unwrap_or_default(),
        DecimalBytes(b.physical_size).to_string(),
        rows::bytes(b.sector_size),
        if b.polls { "yes" } else { "no" }.to_owned(),
        if b.read_only { format!("{} (read-only)", b.model_number) } else { b.model_number.clone() },
        b.users.join("; "),
    ]
}

#[cfg(test)]
mod tests;
