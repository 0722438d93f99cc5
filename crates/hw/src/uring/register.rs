//! Files and buffers that the kernel knows before they are used.
//!
//! On a ring of kind owner only its thread registers. A place may be filled anew at any time: requests that are under way
//! keep what they have found there.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, getrlimit};

use super::error::RegistrationError;
use super::file::FileSlot;
use super::ring::Ring;
use super::span::Fixed;
use crate::EventFd;
use crate::dma::{Lent, lock};

impl Ring {
    /// Puts a file into a place of the table, which keeps it open.
    ///
    /// # Errors
    /// See [`RegistrationError`].
    pub fn register_file(&self, slot: FileSlot, file: impl AsFd) -> Result<(), RegistrationError> {
        self.set_file(slot, file.as_fd().as_raw_fd())
    }

    /// Empties a place of the table.
    ///
    /// # Errors
    /// See [`RegistrationError`].
    pub fn unregister_file(&self, slot: FileSlot) -> Result<(), RegistrationError> {
        self.set_file(slot, -1)
    }

    fn set_file(&self, FileSlot(slot): FileSlot, fd: i32) -> Result<(), RegistrationError> {
        self.here()?;
        self.0.rings.submitter().register_files_update(slot, &[fd]).map(drop).map_err(|error| failed(error, 0))
    }

    /// Puts the chunk of memory that `lent` lies in into a place of the table: 4 MiB, or less at the end of a region. All of
    /// it is touched and pinned, and counts against RLIMIT_MEMLOCK.
    ///
    /// The kernel holds the pages, not the mapping: a pool or region that goes takes no page away from a request. Its place
    /// is of no use from then on, and [`Ring::forget_gone`] gives the pages back.
    ///
    /// # Errors
    /// See [`RegistrationError`]; after [`RegistrationError::Memlock`] the buffer can be used unregistered.
    pub fn register_buffer(&self, slot: u16, lent: &Lent) -> Result<Fixed, RegistrationError> {
        let (piece, at, bytes) = lent.chunk().ok_or(RegistrationError::Crosses)?;
        // Locked while the kernel is asked: nobody else fills the place meanwhile.
        let mut buffers = lock(&self.0.buffers);
        self.set_buffer(slot, libc::iovec { iov_base: at.as_ptr().cast(), iov_len: bytes })?;
        buffers.insert(slot, lent.owner());
        Ok(Fixed { slot, piece })
    }

    /// Empties a place of the table. Entries that name it complete with EFAULT.
    ///
    /// # Errors
    /// See [`RegistrationError`].
    pub fn unregister_buffer(&self, slot: u16) -> Result<(), RegistrationError> {
        let mut buffers = lock(&self.0.buffers);
        self.set_buffer(slot, NOTHING)?;
        buffers.remove(&slot);
        Ok(())
    }

    /// Empties the places whose pool or region has gone, and tells which.
    ///
    /// # Errors
    /// See [`RegistrationError`].
    pub fn forget_gone(&self) -> Result<Vec<u16>, RegistrationError> {
        let mut buffers = lock(&self.0.buffers);
        let gone: Vec<u16> = buffers.iter().filter(|(_, owner)| owner.is_gone()).map(|(&slot, _)| slot).collect();
        for slot in &gone {
            self.set_buffer(*slot, NOTHING)?;
            buffers.remove(slot);
        }
        Ok(gone)
    }

    fn set_buffer(&self, slot: u16, buffer: libc::iovec) -> Result<(), RegistrationError> {
        self.here()?;
        // SAFETY: the buffer is mapped now, which is all that is needed: the kernel pins its pages, and compares the
        // addresses of later requests with the range without following them.
        let registered = unsafe { self.0.rings.submitter().register_buffers_update(slot.into(), &[buffer], None) };
        registered.map_err(|error| failed(error, buffer.iov_len as u64))
    }

    /// From now on `event` is signalled when a completion is posted, or begins to wait in the task; with `None`, nothing is.
    /// Of a ring with an owner this is all that wakes an epoll instance: its own descriptor is found readable when it is
    /// looked at, and wakes nobody who sleeps already (seen with 6.18).
    ///
    /// # Errors
    /// See [`RegistrationError`]; EBUSY if there is one, ENXIO if there was none.
    pub fn notify(&self, event: Option<&EventFd>) -> Result<(), RegistrationError> {
        self.here()?;
        let submitter = self.0.rings.submitter();
        match event {
            Some(event) => submitter.register_eventfd(event.as_fd().as_raw_fd()),
            None => submitter.unregister_eventfd(),
        }
        .map_err(|error| failed(error, 0))
    }

    fn here(&self) -> Result<(), RegistrationError> {
        if self.0.birth.is_here() { Ok(()) } else { Err(RegistrationError::Forked) }
    }
}

/// An empty place.
const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn failed(error: io::Error, wanted: u64) -> RegistrationError {
    match (error.raw_os_error(), getrlimit(Resource::Memlock).current) {
        (Some(libc::EEXIST), _) => RegistrationError::WrongThread,
        (Some(libc::ENOMEM), Some(limit)) if wanted > 0 => RegistrationError::Memlock { wanted, limit },
        _ => RegistrationError::System(error),
    }
}
