//! NVMe by ioctl(2) on a namespace's character device (`/dev/ng0n1`): what is asked once, before the first request. Requests themselves
//! go by [`crate::uring::Command`].

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

/// Why a command has no answer, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The kernel has not passed it on: EACCES to users whom it does not trust, ENOTTY by a file that is no NVMe device.
    #[error("the kernel does not pass the command on: {0}")]
    System(#[from] io::Error),
    /// The controller has refused it.
    #[error("the controller answered: {0}")]
    Status(Status),
}

/// The namespace that `file` is. A multipath head (`nvme_core.multipath=Y`) asks whichever path it has.
///
/// # Errors
/// ENOTTY: it is none. Else the system's.
pub fn nsid(file: impl AsFd) -> io::Result<Nsid> {
    // SAFETY: the call takes no argument, and reaches no memory of this process.
    match unsafe { libc::ioctl(file.as_fd().as_raw_fd(), NVME_IOCTL_ID) } {
        id if id >= 0 => Ok(Nsid(id.unsigned_abs())),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The 4096 bytes that `what` names (Base 5.1.13); its data pointer means nothing.
pub fn identify(file: impl AsFd, what: &Identify) -> Result<Box<[u8; Identify::LEN]>, CommandError> {
    let mut page = Box::new([0; Identify::LEN]);
    admin(file, &what.to_sqe(), &mut *page)?;
    Ok(page)
}

/// An admin command whose `data` the controller reads or fills, as the opcode says; identifier and pointers are the kernel's. Dword 0 of the
/// completion.
pub fn admin(file: impl AsFd, command: &Sqe, data: &mut [u8]) -> Result<u32, CommandError> {
    // Whole pages of their own: what a command transfers beyond the bytes that it was given lies in them.
    let mut pages = Pages::new(data.len())?;
    pages[..data.len()].copy_from_slice(data);
    let addr = if data.is_empty() { 0 } else { pages.as_mut_ptr().expose_provenance() as u64 };
    let mut command = NvmeCommand::new(command, addr, data.len() as u32);
    // SAFETY: `command` begins with a `struct nvme_admin_cmd`, which the request's number names. The data that it names are the first bytes
    // of `pages`, which live until the call returns and are reached by no other thread.
    match unsafe { libc::ioctl(file.as_fd().as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &raw mut command) } {
        0 => {
            data.copy_from_slice(&pages[..data.len()]);
            Ok(command.result)
        }
        status @ 1.. => Err(CommandError::Status(Status(status as u16))),
        _ => Err(io::Error::last_os_error().into()),
    }
}

#[cfg(test)]
mod tests;
