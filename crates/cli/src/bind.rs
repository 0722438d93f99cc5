//! `reap bind` and `reap unbind`: bind an NVMe drive to vfio-pci, and to the kernel's driver again.
//!
//! A drive in use is refused: all its namespaces are opened with O_EXCL, so that none can be
//! mounted, and kept open until the kernel's driver is unbound.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow, bail, ensure};
use hw::block::{Disk, Users, openers};
use hw::pci::{Bdf, CLASS_NVME, Function, SysfsPci};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::args::{BindArgs, UnbindArgs};
use crate::output;

/// The kernel's VFIO driver for PCI devices.
const VFIO_PCI: &str = "vfio-pci";

/// Runs `reap bind`. If it fails, other than by a failed write to stdout, the drive has its old
/// driver again.
pub fn bind(args: &BindArgs) -> Result<ExitCode> {
    let bus = SysfsPci::system();
    let function = controller(&bus, args.bdf)?;
    let bdf = function.bdf;
    let group = function.iommu_group().with_context(|| {
        format!(
            "{bdf}: no IOMMU, which vfio-pci requires; enable it in the firmware \
             (VT-d, AMD-Vi); for an Intel CPU also add intel_iommu=on to the kernel's command line"
        )
    })?;
    // Before anything is changed, so that a misspelled user changes nothing.
    let owner = args.user.as_deref().map(user).transpose()?;
    let members =
        function.group_members().with_context(|| format!("{bdf}: cannot read its IOMMU group"))?;
    // modprobe is not run if the driver is there: where vfio-pci is built into the kernel, modprobe
    // may not exist.
    if !bus.has_driver(VFIO_PCI) {
        let output = Command::new("modprobe").args(["-a", VFIO_PCI, "vfio_iommu_type1"]).output();
        let said = match output {
            Ok(output) => format!("says: {}", String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => format!("cannot be run: {error}"),
        };
        ensure!(
            bus.has_driver(VFIO_PCI),
            "the kernel has no driver vfio-pci, and `modprobe vfio-pci` {said}"
        );
    }
    let file = PathBuf::from(format!("/dev/vfio/{group}"));
    let give_file = || match &owner {
        Some((name, uid)) => chown(&file, Some(*uid), None)
            .with_context(|| format!("cannot give {} to user {name}", file.display())),
        None => Ok(()),
    };
    match function.driver() {
        Some(driver) if driver == VFIO_PCI => {
            give_file()?;
            print_line(&format!("{bdf}: already bound to vfio-pci"))?
        }
        driver => {
            bind_to_vfio(&bus, &function, driver.as_deref(), give_file)?;
            let from =
                driver.map_or_else(|| "no driver".to_owned(), |driver| format!("`{driver}`"));
            print_line(&format!(
                "{bdf}: moved from {from} to vfio-pci; undo with `reap unbind {bdf}`"
            ))?;
        }
    }
    if let Some((name, _)) = &owner {
        print_line(&format!(
            "{}: owned by user {name} until the next bind; `ulimit -l` limits the memory that it can map",
            file.display()
        ))?;
    }
    // VFIO refuses a group in which another device has a kernel driver.
    for member in members.iter().filter(|member| member.bdf != bdf && !member.is_bridge()) {
        let (other, class) = (member.bdf, member.class);
        print_line(&match member.driver().as_deref() {
            None | Some(VFIO_PCI) => {
                format!(
                    "IOMMU group {group} also has {other} (class {class:06x}h), which the user of the group can access as well"
                )
            }
            Some(driver) => format!(
                "IOMMU group {group} also has {other} (class {class:06x}h, driver `{driver}`), which must be bound to vfio-pci before any device of the group can be used"
            ),
        })?;
    }
    print_line(&format!("use it as pcie:{bdf}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `reap unbind`.
pub fn unbind(args: &UnbindArgs) -> Result<ExitCode> {
    let bus = SysfsPci::system();
    let function = controller(&bus, args.bdf)?;
    let bdf = function.bdf;
    let driver = function.driver();
    if let Some(driver) = driver.as_deref().filter(|driver| *driver != VFIO_PCI) {
        bail!("{bdf}: bound to `{driver}`, not to vfio-pci");
    }
    // Unbinding a device in use would block until its user closes it.
    if let Some(group) = function.iommu_group().filter(|_| driver.is_some()) {
        let path = format!("/dev/vfio/{group}");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        if opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error())) {
            let who: Vec<String> =
                openers(&[path.into()]).into_iter().map(|(_, process)| process).collect();
            let who = if who.is_empty() { String::new() } else { format!(": {}", who.join(", ")) };
            // The process is named, so that the user need not search for it with lsof.
            bail!(
                "{bdf}: IOMMU group {group} is in use through VFIO{who}; end the process that uses it first"
            )
        }
    }
    // While driver_override names vfio-pci, the kernel probes no other driver.
    function.set_override(None).with_context(|| refused(bdf))?;
    if driver.is_some() {
        function.unbind().with_context(|| refused(bdf))?;
    }
    bus.probe(bdf).with_context(|| format!("{bdf}: unbound, but no kernel driver claims it"))?;
    match function.driver() {
        Some(driver) => print_line(&format!("{bdf}: bound to `{driver}`"))?,
        None => bail!(
            "{bdf}: unbound from vfio-pci, but no kernel driver claims it; try `modprobe nvme`"
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_line(line: &str) -> Result<()> {
    output::print(&format!("{line}\n"))
}

/// The NVMe controller at this address.
fn controller(bus: &SysfsPci, bdf: Bdf) -> Result<Function> {
    let controllers_text = || -> Result<String> {
        let all: Vec<_> = bus
            .controllers()
            .context("cannot read /sys/bus/pci")?
            .iter()
            .map(|found| found.bdf.to_string())
            .collect();
        Ok(if all.is_empty() { "none".into() } else { all.join(", ") })
    };
    let Some(function) = bus.find(bdf).context("cannot read /sys/bus/pci")? else {
        bail!("{bdf}: no such PCI function; NVMe controllers: {}", controllers_text()?)
    };
    ensure!(
        function.class == CLASS_NVME,
        "{bdf}: not an NVMe controller (class {:06x}h); NVMe controllers: {}",
        function.class,
        controllers_text()?
    );
    Ok(function)
}

/// The user with this name or UID.
fn user(name: &str) -> Result<(String, u32)> {
    // Containers often have no entry in /etc/passwd for the user's UID.
    if let Ok(uid) = name.parse() {
        return Ok((name.to_owned(), uid));
    }
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let line = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name));
    let uid = line.and_then(|fields| fields.get(2)?.parse().ok());
    Ok((
        name.to_owned(),
        uid.with_context(|| {
            format!("--user {name}: no such user in /etc/passwd; a UID also works")
        })?,
    ))
}

/// Binds a drive to vfio-pci, and then calls `give_file`. If either fails, restores the drive's old
/// driver and returns the error.
fn bind_to_vfio(
    bus: &SysfsPci,
    function: &Function,
    old_driver: Option<&str>,
    give_file: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let bdf = function.bdf;
    let held = hold_namespaces(function)?;
    function.set_override(Some(VFIO_PCI)).with_context(|| refused(bdf))?;
    let bound = (|| {
        if old_driver.is_some() {
            function.unbind()?;
        }
        bus.probe(bdf)
    })();
    // Held open until here: otherwise a file system could be mounted between check and unbinding.
    drop(held);
    let result = match bound {
        // `probe` may fail for another reason although vfio-pci has claimed the drive.
        _ if function.driver().as_deref() == Some(VFIO_PCI) => give_file(),
        Err(error) => Err(error.into()),
        Ok(()) => Err(anyhow!("vfio-pci does not claim it; see dmesg")),
    };
    result.map_err(|error| {
        // Errors are ignored here: the text says which driver the drive has in the end.
        _ = function.set_override(None);
        if function.driver().as_deref() == Some(VFIO_PCI) {
            _ = function.unbind();
        }
        if function.driver().is_none() && old_driver.is_some() {
            _ = bus.probe(bdf);
        }
        let driver = function.driver();
        let driver = driver.as_deref().unwrap_or("no driver");
        error.context(format!("{bdf}: not bound to vfio-pci; it is bound to {driver} again"))
    })
}

fn refused(bdf: Bdf) -> String {
    format!("{bdf}: cannot change its driver; this needs root")
}

/// Opens with O_EXCL (open(2)) all namespaces of a controller that is bound to the kernel's driver.
/// This fails if one of them, or a partition of it, is mounted, or used as swap or by LVM, MD or
/// DM. While they are open, they cannot be used so.
fn hold_namespaces(function: &Function) -> Result<Vec<File>> {
    let disks = disks(function.path(), Path::new("/sys/class/nvme-subsystem"))
        .with_context(|| format!("{}: cannot read its namespaces in /sys", function.bdf))?;
    let hold = |name: &String| {
        let path = PathBuf::from("/dev").join(name);
        match OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                bail!("{}: {} is in use: {}", function.bdf, path.display(), users_of(name))
            }
            Err(error) => Err(error)
                .with_context(|| format!("{}: cannot hold {}", function.bdf, path.display())),
        }
    };
    disks.iter().map(hold).collect()
}

/// The block devices of a controller's namespaces. With native multipath they belong to the
/// subsystem.
fn disks(function: &Path, subsystems: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for controller in names(&function.join("nvme"))? {
        let at = function.join("nvme").join(&controller);
        found.extend(names(&at)?.iter().filter_map(|name| namespace_of(name)));
        // The kernel may hide the paths; the subsystem's namespaces are always shown.
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

/// The namespace that an entry of a controller's directory in /sys stands for. The entries
/// `nvme0n2`, and `nvme0c1n2` (a path to it), both give `nvme0n2`. `None` for other entries.
pub fn namespace_of(entry: &str) -> Option<String> {
    let (first, namespace) = entry.strip_prefix("nvme")?.rsplit_once('n')?;
    let name = format!(
        "nvme{}n{namespace}",
        first.split_once('c').map_or(first, |(subsystem, _)| subsystem)
    );
    is_head(&name).then_some(name)
}

/// Whether this is the name of a namespace, as `nvme0n1`, and not `nvme0` or `nvme0c1n1`.
fn is_head(name: &str) -> bool {
    let number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    name.strip_prefix("nvme")
        .and_then(|rest| rest.split_once('n'))
        .is_some_and(|(one, two)| number(one) && number(two))
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => Ok(entries?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()),
    }
}

/// The users of a disk and its partitions, if the system shows them.
fn users_of(disk: &str) -> String {
    let found = Disk::all(Path::new("/")).into_iter().find(|found| found.name() == disk);
    found.map_or_else(
        || "its user cannot be found".to_owned(),
        |disk| Users::at(Path::new("/")).holders(&disk).join(", "),
    )
}

#[cfg(test)]
mod tests;
