//! NVMe admin commands by ioctl(2) on a namespace's character device (`/dev/ng0n1`), for set-up
//! before the first request. Requests use [`crate::uring::PassthroughCommand`].

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nvme::admin::Identify;
use nvme::{Nsid, Sqe, Status};

use crate::Pages;
use crate::uring::NvmeCommand;

/// `_IO('N', 0x40)` (linux/nvme_ioctl.h).
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xc048_4e41_u32 as libc::Ioctl;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The kernel did not send the command: EACCES for unprivileged users, ENOTTY if the file is
    /// not an NVMe device.
    #[error("the kernel refuses to send the command: {0}")]
    System(#[from] io::Error),
    /// The controller completed the command with an error status.
    #[error("the controller returned: {0}")]
    Status(Status),
}

/// The namespace identifier of `file`. For a multipath head (`nvme_core.multipath=Y`) the kernel
/// asks any path.
///
/// # Errors
/// ENOTTY: the file is not an NVMe namespace. Otherwise the error of the system.
pub fn nsid(file: impl AsFd) -> io::Result<Nsid> {
    // SAFETY: the call takes no argument, and reaches no memory of this process.
    match unsafe { libc::ioctl(file.as_fd().as_raw_fd(), NVME_IOCTL_ID) } {
        id if id >= 0 => Ok(Nsid(id.unsigned_abs())),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads the Identify data structure that `what` selects (Base 5.1.13). The data pointer in `what`
/// is ignored.
pub fn identify(
    file: impl AsFd,
    what: &Identify,
) -> Result<Box<[u8; Identify::LEN]>, CommandError> {
    let mut page = Box::new([0; Identify::LEN]);
    admin(file, &what.to_sqe(), &mut *page)?;
    Ok(page)
}

/// Sends an admin command; the controller reads or fills `data`, as the opcode says. The kernel
/// fills in command identifier and data pointers. Returns dword 0 of the completion.
pub fn admin(file: impl AsFd, command: &Sqe, data: &mut [u8]) -> Result<u32, CommandError> {
    // Whole pages, so that a command that transfers more bytes than it was given overwrites only
    // these pages.
    let mut pages = Pages::new(data.len())?;
    pages[..data.len()].copy_from_slice(data);
    let addr = if data.is_empty() { 0 } else { pages.as_mut_ptr().expose_provenance() as u64 };
    let mut command = NvmeCommand::new(command, addr, data.len() as u32);
    // SAFETY: `command` begins with a `struct nvme_admin_cmd`, which the request's number names.
    // The data that it names are the first bytes of `pages`, which live until the call returns and
    // are reached by no other thread.
    match unsafe { libc::ioctl(file.as_fd().as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &raw mut command) } {
        0 => {
            data.copy_from_slice(&pages[..data.len()]);
            Ok(command.result)
        }
        // Positive: the NVMe status field; negative: an errno (linux/nvme_ioctl.h).
        status @ 1.. => Err(CommandError::Status(Status(status as u16))),
        _ => Err(io::Error::last_os_error().into()),
    }
}

#[cfg(test)]
mod tests;
