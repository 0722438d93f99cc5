//! Where Identify is asked: an open device of Reap's, or a file of the kernel's NVMe driver.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use hw::block::Disk;
use hw::passthrough;
use nvme::Nsid;
use nvme::admin::Identify;
use reap::{Device, IdentifyError, KernelUri, OpenOptions as DeviceOptions};
use rustix::fs::{OFlags, major, minor};

use super::fields::Fields;
use super::plain;

/// The scheme of what the kernel drives, with its colon.
const KERNEL: &str = "kernel:";

/// Where it is asked.
pub enum Source {
    /// Reap drives it.
    Open(Device),
    /// The kernel drives it. With the namespace that the file is; `None`: it is the controller's.
    File(File, Option<Nsid>),
    /// There is no controller to ask. This is known.
    Plain(Fields),
}

impl Source {
    /// Asks.
    ///
    /// # Errors
    /// Whatever keeps the answer.
    pub fn identify(&self, what: &Identify) -> Result<Box<[u8; Identify::LEN]>, IdentifyError> {
        match self {
            Source::Open(device) => device.identify(what),
            Source::File(file, _) => Ok(passthrough::identify(file, what)?),
            Source::Plain(_) => Err(IdentifyError::NoController("it".into())),
        }
    }

    /// The namespace that the path names.
    pub fn nsid(&self) -> Option<Nsid> {
        if let Source::File(_, nsid) = self { *nsid } else { None }
    }
}

/// Opens what `uri` names, which may be a path below /dev.
///
/// # Errors
/// It cannot be opened.
pub fn open(uri: &str) -> Result<Source> {
    if uri.starts_with("/dev/") {
        return of_kernel(Path::new(uri));
    }
    if uri.starts_with(KERNEL) {
        return of_kernel(&uri.parse::<KernelUri>()?.path);
    }
    // One queue, which nothing is posted to.
    let options = DeviceOptions::new().software_queues(1).hardware_queues(1).depth(2).pool_bytes(8 << 20);
    Ok(Source::Open(Device::open_with(uri, &options)?))
}

fn of_kernel(path: &Path) -> Result<Source> {
    let shown = path.display();
    let meta = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{shown}: there is no such file or device; `reap list` shows what there is")
        }
        meta => meta.with_context(|| format!("cannot look at {shown}"))?,
    };
    let kind = meta.file_type();
    if kind.is_file() {
        return Ok(Source::Plain(plain::file(path, &meta)?));
    }
    if kind.is_block_device() {
        let disk = Disk::of(meta.rdev()).ok_or_else(|| anyhow!("{shown}: the system has no block device of its number any more"))?;
        return match disk.nsid() {
            // A partition's commands would need more privilege than its disk's.
            Some(nsid) => Ok(Source::File(asked(&Path::new("/dev").join(disk.whole_name()))?, Some(Nsid(nsid)))),
            None => Ok(Source::Plain(plain::disk(&disk))),
        };
    }
    // Other drivers may have other meanings for the same request.
    match class_of(meta.rdev()).filter(|_| kind.is_char_device()).as_deref() {
        Some("nvme") => Ok(Source::File(asked(path)?, None)),
        Some("nvme-generic") => {
            let file = asked(path)?;
            let nsid = passthrough::nsid(&file).with_context(|| format!("{shown}: its namespace is not told"))?;
            Ok(Source::File(file, Some(nsid)))
        }
        _ => bail!("{shown}: it is neither a file nor a block device, and no NVMe device"),
    }
}

fn asked(path: &Path) -> Result<File> {
    // No medium is waited for.
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    opened.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow!("cannot open {}: {error}; it takes root, or the group that the file belongs to", path.display())
        }
        _ => anyhow!("cannot open {}: {error}", path.display()),
    })
}

/// The class of the character device of this number: `nvme`, `nvme-generic`.
fn class_of(number: u64) -> Option<String> {
    let class = fs::read_link(format!("/sys/dev/char/{}:{}/subsystem", major(number), minor(number))).ok()?;
    Some(class.file_name()?.to_str()?.to_owned())
}
