//! A controller's registers and doorbells: BAR0, mapped as far as that can be, and by calls elsewhere. On the bus the kernel says what can be mapped,
//! and a call is a read or write of the device's file. Of a device that another process serves, `shared.rs` says it.
//!
//! Registers are reached by volatile accesses of 32 bits, little-endian. A doorbell is written behind a barrier: whatever was stored before
//! is in memory when the controller learns of it. A device that is gone reads as all ones.

use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::Birth;
use nvme::regs::{self, Cap};
use nvme::{Doorbells, QueueId, Registers};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::VfioError;
use super::reply::RegionInfo;

/// A part of BAR0 in this process's addresses.
#[derive(Debug)]
pub(super) struct Area {
    memory: NonNull<u8>,
    /// Where it begins in BAR0, and its bytes.
    start: u64,
    bytes: u64,
    /// The process that has it.
    born: Birth,
}

/// Registers and doorbells of a controller on the bus.
#[derive(Debug)]
pub struct PciRegisters {
    areas: Vec<Area>,
    rest: Box<dyn RegisterCalls>,
    bytes: u64,
    /// CAP.DSTRD.
    dstrd: u8,
}

/// The way to registers and doorbells that are not mapped.
pub trait RegisterCalls: Debug + Send + Sync {
    /// The 32 bits at an offset within BAR0; all ones if the device is gone.
    fn load(&self, offset: u32) -> u32;
    /// Sets the 32 bits at an offset within BAR0. One that cannot be done is as lost as a write to a device that is gone.
    fn store(&self, offset: u32, value: u32);
}

/// A device's file of VFIO, in which BAR0 begins at an offset.
#[derive(Debug)]
struct ByFile {
    file: Arc<File>,
    offset: u64,
}

impl RegisterCalls for ByFile {
    fn load(&self, offset: u32) -> u32 {
        let mut value = [0xff; 4];
        match self.file.read_exact_at(&mut value, self.offset + u64::from(offset)) {
            Ok(()) => u32::from_le_bytes(value),
            Err(_) => u32::MAX,
        }
    }

    fn store(&self, offset: u32, value: u32) {
        _ = self.file.write_all_at(&value.to_le_bytes(), self.offset + u64::from(offset));
    }
}

// SAFETY: the mappings are this process's until it drops, and are reached by single volatile accesses, which any thread may do.
unsafe impl Send for PciRegisters {}
// SAFETY: as above; nothing of them is ever behind a reference.
unsafe impl Sync for PciRegisters {}

impl PciRegisters {
    pub(super) fn new(file: Arc<File>, region: &RegionInfo) -> Result<PciRegisters, VfioError> {
        let areas = region.mappable.iter().map(|area| Area::map(file.as_fd(), region.offset + area.start, area.clone()));
        let areas = areas.collect::<Result<_, _>>().map_err(VfioError::system("map its registers"))?;
        PciRegisters::over(areas, Box::new(ByFile { file, offset: region.offset }), region.bytes)
    }

    /// BAR0 of this many bytes: `areas` of it are mapped.
    pub(super) fn over(areas: Vec<Area>, rest: Box<dyn RegisterCalls>, bytes: u64) -> Result<PciRegisters, VfioError> {
        let least = u64::from(regs::DOORBELLS) + 16;
        if bytes < least {
            let what = format!("its BAR0 has {bytes} bytes, and registers and doorbells of one queue take {least}");
            return Err(VfioError::Lacks(what));
        }
        let mut registers = PciRegisters { areas, rest, bytes, dstrd: 0 };
        registers.dstrd = Cap::from_bits(registers.read64(regs::CAP)).dstrd();
        Ok(registers)
    }

    /// Whether the doorbells of the first I/O queue are mapped, so that ringing them takes no call.
    pub fn maps_doorbells(&self) -> bool {
        self.mapped(regs::sq_tail_doorbell(QueueId(1), self.dstrd)).is_some()
    }

    /// CAP.DSTRD: doorbells are 2^(2 + so much) bytes apart.
    pub fn stride(&self) -> u8 {
        self.dstrd
    }

    /// Its bytes, and what of it is mapped.
    pub(super) fn extent(&self) -> (u64, &[Area]) {
        (self.bytes, &self.areas)
    }

    /// Where the 32 bits at `offset` are, if they are mapped.
    #[inline]
    fn mapped(&self, offset: u32) -> Option<NonNull<u32>> {
        let offset = u64::from(offset);
        if !offset.is_multiple_of(4) {
            return None;
        }
        let area = self.areas.iter().find(|area| offset.checked_sub(area.start).is_some_and(|at| at + 4 <= area.bytes))?;
        // SAFETY: the four bytes lie in the mapping, as was just found.
        Some(unsafe { area.memory.add((offset - area.start) as usize) }.cast())
    }

    fn is_inside(&self, offset: u32) -> bool {
        u64::from(offset) + 4 <= self.bytes
    }

    /// Writes 32 bits, after everything that was stored before.
    #[inline]
    fn store(&self, offset: u32, value: u32) {
        match self.mapped(offset) {
            Some(at) => {
                stores_before_device();
                // SAFETY: `at` is in a mapping of the device's, aligned, and reached by nothing but such accesses.
                unsafe { at.as_ptr().write_volatile(value.to_le()) };
            }
            None => self.store_by_call(offset, value),
        }
    }

    #[cold]
    fn store_by_call(&self, offset: u32, value: u32) {
        stores_before_device();
        if self.is_inside(offset) {
            self.rest.store(offset, value);
        }
    }

    #[cold]
    fn load_by_call(&self, offset: u32) -> u32 {
        if self.is_inside(offset) { self.rest.load(offset) } else { u32::MAX }
    }
}

impl Area {
    /// Maps whole pages of a file, which are `area` of BAR0.
    pub(super) fn map(file: BorrowedFd<'_>, at: u64, area: Range<u64>) -> std::io::Result<Area> {
        let (start, bytes) = (area.start, area.end - area.start);
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing. It is the device's, and reached as such alone.
        let memory = unsafe { mmap(ptr::null_mut(), bytes as usize, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, at) }?;
        let memory = NonNull::new(memory.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let area = Area { memory, start, bytes, born: Birth::here() };
        area.keep_from_children();
        Ok(area)
    }

    /// Which part of BAR0 it is.
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes
    }

    /// Other pages of a file take the place of these, at the same addresses. Threads may ring meanwhile: an access meets one or the other.
    pub(super) fn renew(&self, file: BorrowedFd<'_>, at: u64) -> std::io::Result<()> {
        let (memory, bytes, access) = (self.memory.as_ptr().cast(), self.bytes as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: what is replaced is this mapping, of which nothing is behind a reference; there is memory at each moment.
        let renewed = unsafe { mmap(memory, bytes, access, MapFlags::SHARED | MapFlags::FIXED, file, at) };
        if let Err(error) = renewed {
            // The old pages may be gone. Should anything else ever lie there a doorbell would be written into it.
            // SAFETY: as above.
            if unsafe { mmap_anonymous(memory, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED) }.is_err() {
                std::process::abort();
            }
            return Err(error.into());
        }
        self.keep_from_children();
        Ok(())
    }

    /// A forked child has no business there.
    fn keep_from_children(&self) {
        // SAFETY: the range is this mapping, and the advice does not change what it holds.
        _ = unsafe { rustix::mm::madvise(self.memory.as_ptr().cast(), self.bytes as usize, rustix::mm::Advice::LinuxDontFork) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.born.is_here() {
            // A child has other memory at these addresses, its own.
            return;
        }
        // SAFETY: the mapping was made with this size, and is reached by its owner alone.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Normal stores before this are visible to a device before a store to its registers that follows.
#[inline]
fn stores_before_device() {
    // x86 keeps stores to memory and to uncached registers in order: the compiler has to as well.
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    // SAFETY: a barrier, which touches nothing.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags))
    };
    // SAFETY: as above.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        std::arch::asm!("fence w, o", options(nostack, preserves_flags))
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// What the device has written before it changed the register that was read is seen by loads that follow.
#[inline]
fn device_before_loads() {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Acquire);
    // SAFETY: a barrier, which touches nothing.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags))
    };
    // SAFETY: as above.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        std::arch::asm!("fence i, r", options(nostack, preserves_flags))
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

impl Registers for PciRegisters {
    /// All ones where nothing is, and of a device that is gone.
    fn read32(&self, offset: u32) -> u32 {
        let value = match self.mapped(offset) {
            // SAFETY: it is in a mapping of the device's, aligned, and reached by nothing but such accesses.
            Some(at) => u32::from_le(unsafe { at.as_ptr().read_volatile() }),
            None => self.load_by_call(offset),
        };
        device_before_loads();
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        self.store(offset, value);
    }
}

/// Doorbells beyond BAR0 ring nothing. Doorbells are written only (PCIe Transport 3.1.2): reading one says 0.
impl Doorbells for PciRegisters {
    #[inline]
    fn ring_sq(&self, queue: QueueId, tail: u32) {
        self.store(regs::sq_tail_doorbell(queue, self.dstrd), tail);
    }

    #[inline]
    fn ring_cq(&self, queue: QueueId, head: u32) {
        self.store(regs::cq_head_doorbell(queue, self.dstrd), head);
    }

    fn sq_tail(&self, _: QueueId) -> u32 {
        0
    }

    fn cq_head(&self, _: QueueId) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests;
