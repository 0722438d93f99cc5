//! `reap list`: which NVMe controllers, namespaces and block devices there are, who drives them, and who uses them.

mod found;
mod show;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use hw::block::{Disk, openers};
use hw::passthrough;
use nvme::admin::{Identify, cns};
use nvme::prp::Dptr;
use nvme::{Nsid, Page, identify};

use crate::args::ListArgs;
use crate::output;
use found::{Found, System};

/// Shows them.
///
/// # Errors
/// The system cannot be read.
pub fn list(args: &ListArgs) -> Result<ExitCode> {
    let found = Found::look(&System { root: Path::new("/"), used: &used, openers: &openers }).context("cannot read /sys")?;
    let text = if args.layout.is_json() { serde_json::to_string_pretty(&found)? + "\n" } else { show::text(&found) };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// How many blocks of a namespace are allocated (NUSE). Kernels before 6.8 do not show it in sysfs, and those who may are told by the
/// controller. `None`: it is not told.
fn used(disk: &Disk) -> Option<u64> {
    let file = std::fs::File::open(disk.node()).ok()?;
    let page = passthrough::identify(file, &Identify::new(cns::NAMESPACE, Nsid(disk.nsid()?), Dptr::NONE)).ok()?;
    Some(identify::Namespace::from_page(&*page).ok()?.nuse)
}
