//! `reap bind` and `reap unbind`: an NVMe drive from the kernel's driver to vfio-pci, and back.
//!
//! A drive that is in use is never taken: each of its namespaces is opened so that nobody else can mount it or write to it, and held
//! until the kernel's driver has let go.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use hw::block::{Disk, Users, openers};
use hw::pci::{Bdf, Bus, CLASS_NVME, Function};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::args::{BindArgs, UnbindArgs};
use crate::output;

/// The driver that hands devices to VFIO.
const VFIO_PCI: &str = "vfio-pci";

/// Gives a drive to vfio-pci.
/// What is in use, or the system refuses, stays as it was.
pub fn bind(args: &BindArgs) -> Result<ExitCode> {
    let bus = Bus::system();
    let function = controller(&bus, args.bdf)?;
    let bdf = function.bdf;
    let group = function.iommu_group().with_context(|| {
        format!(
            "{bdf}: no IOMMU stands between it and memory, and vfio-pci takes no device without one; switch it on in the firmware \
             (VT-d, AMD-Vi), and by intel_iommu=on on the kernel's command line where it is Intel's"
        )
    })?;
    let owner = args.user.as_deref().map(user).transpose()?;
    if !bus.has_driver(VFIO_PCI) {
        let tried = Command::new("modprobe").args(["-a", VFIO_PCI, "vfio_iommu_type1"]).output();
        let said = match tried {
            Ok(said) => format!("says: {}", String::from_utf8_lossy(&said.stderr).trim()),
            Err(error) => format!("cannot be run: {error}"),
        };
        ensure!(bus.has_driver(VFIO_PCI), "the kernel has no driver vfio-pci, and `modprobe vfio-pci` {said}");
    }
    match function.driver() {
        Some(driver) if driver == VFIO_PCI => tell(&format!("{bdf}: vfio-pci has it already"))?,
        driver => {
            give(&bus, &function, driver.as_deref())?;
            let from = driver.map_or_else(|| "no driver".to_owned(), |driver| format!("`{driver}`"));
            tell(&format!("{bdf}: given from {from} to vfio-pci; `reap unbind {bdf}` gives it back"))?;
        }
    }
    let file = PathBuf::from(format!("/dev/vfio/{group}"));
    if let Some((name, uid)) = owner {
        chown(&file, Some(uid), None).with_context(|| format!("cannot give {} to user {name}", file.display()))?;
        tell(&format!(
            "{}: belongs to user {name} until it is bound again; `ulimit -l` limits what a drive may reach at once",
            file.display()
        ))?;
    }
    // What else has to be given to vfio-pci before the drive can be used.
    let members = function.group_members().context("cannot read its IOMMU group")?;
    for member in members.iter().filter(|member| member.bdf != bdf && !member.is_bridge()) {
        let (other, class) = (member.bdf, member.class);
        tell(&match member.driver().as_deref() {
            None | Some(VFIO_PCI) => {
                format!("IOMMU group {group} has {other} (class {class:06x}h) as well, which goes with it to the group's user")
            }
            Some(driver) => format!(
                "IOMMU group {group} has {other} (class {class:06x}h, driver `{driver}`) as well: nothing of the group can be used before that is vfio-pci's, too"
            ),
        })?;
    }
    tell(&format!("use it as pcie:{bdf}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Gives a drive back to the kernel's driver.
pub fn unbind(args: &UnbindArgs) -> Result<ExitCode> {
    let bus = Bus::system();
    let function = controller(&bus, args.bdf)?;
    let bdf = function.bdf;
    let driver = function.driver();
    if let Some(driver) = driver.as_deref().filter(|driver| *driver != VFIO_PCI) {
        bail!("{bdf}: the driver `{driver}` has it, not vfio-pci; there is nothing to give back");
    }
    // Taking away what is in use by VFIO would wait for its user.
    if let Some(group) = function.iommu_group().filter(|_| driver.is_some()) {
        let path = format!("/dev/vfio/{group}");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        if opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error())) {
            let who: Vec<String> = openers(&[path.into()]).into_iter().map(|(_, process)| process).collect();
            let who = if who.is_empty() { String::new() } else { format!(": {}", who.join(", ")) };
            bail!("{bdf}: IOMMU group {group} is in use by VFIO{who}; end that first")
        }
    }
    function.set_override(None).with_context(|| refused(bdf))?;
    if driver.is_some() {
        function.unbind().with_context(|| refused(bdf))?;
    }
    bus.probe(bdf).with_context(|| format!("{bdf}: it is free, and no driver of the kernel's takes it"))?;
    match function.driver() {
        Some(driver) => tell(&format!("{bdf}: given back to `{driver}`"))?,
        None => bail!("{bdf}: vfio-pci has let it go, and no driver of the kernel's takes it; `modprobe nvme` loads the usual one"),
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(line: &str) -> Result<()> {
    output::print(&format!("{line}\n"))
}

/// The NVMe controller there.
fn controller(bus: &Bus, bdf: Bdf) -> Result<Function> {
    let there = || -> Result<String> {
        let all: Vec<_> = bus.controllers().context("cannot read /sys/bus/pci")?.iter().map(|found| found.bdf.to_string()).collect();
        Ok(if all.is_empty() { "there is none on this machine's PCI bus".into() } else { format!("there are {}", all.join(", ")) })
    };
    let Some(function) = bus.find(bdf).context("cannot read /sys/bus/pci")? else {
        bail!("{bdf}: there is no such PCI function; of NVMe controllers {}", there()?)
    };
    ensure!(function.class == CLASS_NVME, "{bdf}: it is not an NVMe controller (class {:06x}h); of those {}", function.class, there()?);
    Ok(function)
}

/// Who is named so in /etc/passwd, or by number.
fn user(name: &str) -> Result<(String, u32)> {
    if let Ok(uid) = name.parse() {
        return Ok((name.to_owned(), uid));
    }
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let line = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.first() == Some(&name));
    let uid = line.and_then(|fields| fields.get(2)?.parse().ok());
    Ok((name.to_owned(), uid.with_context(|| format!("--user {name}: /etc/passwd has no such user; a number is taken as well"))?))
}

/// From the driver that has it to vfio-pci, or not at all.
fn give(bus: &Bus, function: &Function, driver: Option<&str>) -> Result<()> {
    let bdf = function.bdf;
    let held = hold_namespaces(function)?;
    function.set_override(Some(VFIO_PCI)).with_context(|| refused(bdf))?;
    let given = (|| {
        if driver.is_some() {
            function.unbind()?;
        }
        bus.probe(bdf)
    })();
    drop(held);
    if function.driver().as_deref() == Some(VFIO_PCI) {
        return Ok(());
    }
    let why = given.err().unwrap_or_else(|| io::Error::other("vfio-pci does not take it; the kernel's log (dmesg) may say why"));
    // As it was.
    _ = function.set_override(None);
    if function.driver().is_none() {
        _ = bus.probe(bdf);
    }
    Err(why).with_context(|| {
        format!("{bdf}: it could not be given to vfio-pci, and {} has it again", function.driver().as_deref().unwrap_or("no driver"))
    })
}

fn refused(bdf: Bdf) -> String {
    format!("{bdf}: its driver cannot be changed; that takes root")
}

/// The namespaces of a controller that the kernel's driver has, the whole of each, opened for this process alone (O_EXCL, open(2)): no file
/// system is mounted from it or from a partition of it, no swap, no volume, no other such user is there, and none comes. None of another
/// driver's.
fn hold_namespaces(function: &Function) -> Result<Vec<File>> {
    let disks = disks(function.path(), Path::new("/sys/class/nvme-subsystem")).context("cannot read its namespaces in /sys")?;
    let hold = |name: &String| {
        let path = PathBuf::from("/dev").join(name);
        match OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                bail!("{}: {} is in use: {}", function.bdf, path.display(), users_of(name))
            }
            Err(error) => Err(error).with_context(|| format!("{}: cannot hold {}", function.bdf, path.display())),
        }
    };
    disks.iter().map(hold).collect()
}

/// The block devices of a controller's namespaces. With native multipath the namespace is the subsystem's, whichever controllers lead to it.
fn disks(function: &Path, subsystems: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for controller in names(&function.join("nvme"))? {
        let at = function.join("nvme").join(&controller);
        found.extend(names(&at)?.iter().filter_map(|name| namespace_of(name)));
        // The heads of its subsystem, should a path not be shown.
        for subsystem in names(subsystems)? {
            let at = subsystems.join(&subsystem);
            if at.join(&controller).exists() {
                found.extend(names(&at)?.into_iter().filter(|name| is_head(name)));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The namespace that an entry of a controller's directory is, or is a path to: `nvme0n2` for `nvme0n2`, and for `nvme0c1n2`, a path to a
/// namespace of subsystem 0. `None`: the entry is something else.
pub fn namespace_of(entry: &str) -> Option<String> {
    let (first, namespace) = entry.strip_prefix("nvme")?.rsplit_once('n')?;
    let name = format!("nvme{}n{namespace}", first.split_once('c').map_or(first, |(subsystem, _)| subsystem));
    is_head(&name).then_some(name)
}

/// `nvme0n1`, not `nvme0` nor `nvme0c1n1`.
fn is_head(name: &str) -> bool {
    let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')).is_some_and(|(one, two)| number(one) && number(two))
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => Ok(entries?.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()),
    }
}

/// Who has a disk or a partition of it, as far as the system tells.
fn users_of(disk: &str) -> String {
    let found = Disk::all(Path::new("/")).into_iter().find(|found| found.name() == disk);
    found.map_or_else(|| "the system does not say by whom".to_owned(), |disk| Users::at(Path::new("/")).holders(&disk).join(", "))
}

#[cfg(test)]
mod tests;
