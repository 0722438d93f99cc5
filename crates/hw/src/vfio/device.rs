//! A device of a group: its configuration space, its vectors, its registers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nvme::Vector;
use vfio_bindings::bindings::vfio as bind;

use super::call::{self, Call, word};
use super::container::Container;
use super::error::VfioError;
use super::registers::PciRegisters;
use super::reply::{self, RegionInfo};
use crate::EventFd;

/// Offset of the Command register in configuration space, and its bits (PCI Express Base 7.5.1.1.3).
const COMMAND: u64 = 4;
const MEMORY: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const NO_INTX: u16 = 1 << 10;

/// An NVMe controller that VFIO has handed over. When the last descriptor of it is closed the kernel resets it.
#[derive(Debug)]
pub struct PciDevice {
    file: Arc<File>,
    container: Arc<Container>,
    /// Its IOMMU group, which nobody else has meanwhile.
    _group: OwnedFd,
    config: RegionInfo,
    vectors: u32,
}

impl PciDevice {
    pub(super) fn new(fd: OwnedFd, group: OwnedFd, container: Arc<Container>) -> Result<PciDevice, VfioError> {
        let file = Arc::new(File::from(fd));
        let config = region(&file, bind::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let answer = call::ask(&*file, Call::IrqInfo, bind::VFIO_PCI_MSIX_IRQ_INDEX);
        // `vfio_irq_info`: argsz, flags, index, count. A function without MSI-X has none of that index.
        let vectors = answer.ok().and_then(|answer| Some(u32::from_ne_bytes(*answer.get(12..)?.first_chunk()?))).unwrap_or(0);
        Ok(PciDevice { file, container, _group: group, config, vectors })
    }

    /// The memory that it reaches.
    pub fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// MSI-X vectors that it has; 0: it knows no MSI-X.
    pub fn vectors(&self) -> u32 {
        self.vectors
    }

    /// Lets it reach memory and send messages, by the Command register.
    ///
    /// # Errors
    /// What the system says.
    pub fn become_master(&self) -> io::Result<()> {
        let mut command = [0; 2];
        self.file.read_exact_at(&mut command, self.config.offset + COMMAND)?;
        let command = u16::from_le_bytes(command) | MEMORY | BUS_MASTER | NO_INTX;
        self.file.write_all_at(&command.to_le_bytes(), self.config.offset + COMMAND)
    }

    /// Resets it (`VFIO_DEVICE_RESET`, a function-level reset where it has one) and returns once that is done. Its configuration space and
    /// its vectors are as before; memory that it was told to use it no longer touches.
    ///
    /// # Errors
    /// What the system says: it may have no reset.
    pub fn reset(&self) -> io::Result<()> {
        call::plain(self.file.as_fd(), Call::Reset, 0)?;
        self.become_master()
    }

    /// Its registers and doorbells (BAR0).
    ///
    /// # Errors
    /// They are too few, or the system refuses.
    pub fn registers(&self) -> Result<PciRegisters, VfioError> {
        PciRegisters::new(self.file.clone(), &region(&self.file, bind::VFIO_PCI_BAR0_REGION_INDEX)?)
    }

    /// From now on the messages of vector *n* signal `signals[n]`. How many of them the system has vectors for: the first so many.
    ///
    /// # Errors
    /// What the system says.
    pub fn signal(&self, signals: &[&EventFd]) -> io::Result<usize> {
        let mut count = signals.len();
        while count > 0 {
            match self.set_signals(0, &signals[..count])? as usize {
                0 => break,
                // It has set none, and says for how many there is room.
                fewer => count = fewer.min(count - 1),
            }
        }
        Ok(count)
    }

    /// From now on the messages of `vector`, for which the system has one, signal `signal`, which may be other vectors' too. A message
    /// that comes meanwhile may signal nothing: a look at what it tells of follows.
    ///
    /// # Errors
    /// What the system says. It may have let go of the signal that the vector had.
    pub fn signal_from(&self, vector: Vector, signal: &EventFd) -> io::Result<()> {
        match self.set_signals(vector.0.into(), &[signal])? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }

    /// What the system says: 0, or for how many there is room if it has set none.
    fn set_signals(&self, first: u32, signals: &[&EventFd]) -> io::Result<u32> {
        let descriptors = signals.iter().map(|signal| signal.as_fd().as_raw_fd() as u32);
        let flags = bind::VFIO_IRQ_SET_DATA_EVENTFD | bind::VFIO_IRQ_SET_ACTION_TRIGGER;
        // `vfio_irq_set`: argsz, flags, index, start, count, then a descriptor for each.
        let head = [0, flags, bind::VFIO_PCI_MSIX_IRQ_INDEX, first, signals.len() as u32];
        let fields: Vec<u32> = head.into_iter().chain(descriptors).collect();
        let mut words: Vec<u64> = fields.chunks(2).map(|pair| word(pair[0], pair.get(1).copied().unwrap_or(0))).collect();
        call::sized(&*self.file, Call::SetIrqs, &mut words)
    }
}

fn region(file: &Arc<File>, index: u32) -> Result<RegionInfo, VfioError> {
    let answer = call::ask(&**file, Call::RegionInfo, index).map_err(VfioError::system(format!("ask for region {index} of the device")))?;
    let page = rustix::param::page_size() as u64;
    reply::region_info(&answer, page).map_err(|source| VfioError::Malformed { what: "a region of the device", source })
}
