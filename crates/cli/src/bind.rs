//! `reap bind` and `reap unbind`: an NVMe drive from the kernel's driver to vfio-pci, and back.
//!
//! A drive that is in use is never taken: each of its namespaces is opened so that nobody else can mount it or write to it, and held
//! until the kernel's driver has let go.

pub mod held;

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use hw::block::openers;
use hw::pci::{Bdf, Bus, CLASS_NVME, Function};
use rustix::io::Errno;

use crate::args::{BindArgs, UnbindArgs};
use crate::output;

/// The driver that hands devices to VFIO.
const VFIO_PCI: &str = "vfio-pci";

/// Gives a drive to vfio-pci.
///
/// # Errors
/// It is in use, or the system refuses; it is then as it was.
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
    load(&bus)?;
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
    in_the_way(&function, group)?.iter().try_for_each(|line| tell(line))?;
    tell(&format!("use it as pcie:{bdf}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Gives a drive back to the kernel's driver.
///
/// # Errors
/// Somebody uses it by VFIO, or the system refuses.
pub fn unbind(args: &UnbindArgs) -> Result<ExitCode> {
    let bus = Bus::system();
    let function = controller(&bus, args.bdf)?;
    let bdf = function.bdf;
    match function.driver() {
        Some(driver) if driver == VFIO_PCI => {}
        Some(driver) => bail!("{bdf}: the driver `{driver}` has it, not vfio-pci; there is nothing to give back"),
        None => {}
    }
    if function.driver().is_some() {
        is_free(&function)?;
        function.set_override(None).with_context(|| refused(bdf))?;
        function.unbind().with_context(|| refused(bdf))?;
    } else {
        function.set_override(None).with_context(|| refused(bdf))?;
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
    ensure!(function.class == CLASS_NVME, "{bdf}: it is no NVMe controller (class {:06x}h); of those {}", function.class, there()?);
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

/// Sees to it that the kernel has vfio-pci.
fn load(bus: &Bus) -> Result<()> {
    if bus.has_driver(VFIO_PCI) {
        return Ok(());
    }
    let tried = Command::new("modprobe").args(["-a", VFIO_PCI, "vfio_iommu_type1"]).output();
    ensure!(
        bus.has_driver(VFIO_PCI),
        "the kernel has no driver vfio-pci, and `modprobe vfio-pci` {}",
        match tried {
            Ok(said) => format!("says: {}", String::from_utf8_lossy(&said.stderr).trim()),
            Err(error) => format!("cannot be run: {error}"),
        }
    );
    Ok(())
}

/// From the driver that has it to vfio-pci, or not at all.
fn give(bus: &Bus, function: &Function, driver: Option<&str>) -> Result<()> {
    let bdf = function.bdf;
    let held = held::Held::namespaces(function)?;
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

/// Refuses a drive that somebody has by VFIO: taking it away would wait for them.
fn is_free(function: &Function) -> Result<()> {
    let Some(group) = function.iommu_group() else { return Ok(()) };
    let path = format!("/dev/vfio/{group}");
    match fs::OpenOptions::new().read(true).write(true).open(&path) {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            let who: Vec<String> = openers(&[path.clone().into()]).into_iter().map(|(_, process)| process).collect();
            let who = if who.is_empty() { String::new() } else { format!(": {}", who.join(", ")) };
            bail!("{}: IOMMU group {group} is in use by VFIO{who}; end that first", function.bdf)
        }
        _ => Ok(()),
    }
}

/// What else has to be given to vfio-pci before the drive can be used: a line for each.
fn in_the_way(function: &Function, group: u32) -> Result<Vec<String>> {
    let members = function.group_members().context("cannot read its IOMMU group")?;
    let others = members.iter().filter(|member| member.bdf != function.bdf && !member.is_bridge());
    let line = |member: &Function| {
        let (bdf, class) = (member.bdf, member.class);
        match member.driver().as_deref() {
            None | Some(VFIO_PCI) => {
                format!("IOMMU group {group} has {bdf} (class {class:06x}h) as well, which goes with it to the group's user")
            }
            Some(driver) => format!(
                "IOMMU group {group} has {bdf} (class {class:06x}h, driver `{driver}`) as well: nothing of the group can be used before that is vfio-pci's, too"
            ),
        }
    };
    Ok(others.map(line).collect())
}
