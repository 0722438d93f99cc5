//! The registers and doorbells of a controller that is not embedded: BAR0. For a PCI device all of
//! it is mapped.
//!
//! For a device served by another process (vfio-user), parts of BAR0 are in files that the
//! untrusted server passes over. Touching a page that such a file has lost raises SIGBUS and ends
//! this process. So a part is mapped only if its file cannot lose pages (`mapping.rs`), or if the
//! caller trusts the server. All other registers are accessed by messages ([`RegisterCalls`]).
//!
//! Accesses are volatile, 32 bits wide and little-endian. A barrier before each store makes earlier
//! stores visible to the controller first. A device that has been removed reads as all ones.
//!
//! ```text
//! host                               controller
//! store SQE (ordinary memory)
//! barrier
//! store doorbell (MMIO)   ------->   fetch SQE: sees the new entry
//! ```

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nvme::regs::{self, Cap};
use nvme::{Doorbells, QueueId, Registers};
use rustix::mm::{Advice, MapFlags, mmap, mmap_anonymous};

use super::VfioError;
use crate::mapping::{Mapping, file_key_and_size, keeps_pages};

/// A mapped part of BAR0.
#[derive(Debug)]
struct Area {
    mapping: Mapping,
    /// Offset in BAR0.
    start: u64,
}

/// Registers and doorbells of a controller behind VFIO or vfio-user.
#[derive(Debug)]
pub struct PciRegisters {
    areas: Vec<Area>,
    /// Accesses the parts that are not mapped.
    unmapped: Option<Box<dyn RegisterCalls>>,
    bytes: u64,
    /// CAP.DSTRD.
    dstrd: u8,
}

/// Access to registers and doorbells that are not mapped, by messages to the server.
pub trait RegisterCalls: Debug + Send + Sync {
    /// The 32 bits at an offset within BAR0; all ones if the device is gone.
    fn load(&self, offset: u32) -> u32;
    /// Writes 32 bits at an offset within BAR0. A failure is not reported, like a posted write to a
    /// removed device.
    fn store(&self, offset: u32, value: u32);
}

// SAFETY: the mappings last until drop, and are accessed by single volatile loads and stores, which
// any thread may do.
unsafe impl Send for PciRegisters {}
// SAFETY: as above; no reference into them is ever made.
unsafe impl Sync for PciRegisters {}

impl PciRegisters {
    /// Maps all of BAR0, `bytes` bytes at `offset` in the device file.
    pub(super) fn mapped_whole(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
    ) -> Result<PciRegisters, VfioError> {
        // Rounding up to a page is safe: the kernel reserves the rest of the page of a shorter BAR.
        let area =
            Area::map(file, offset, 0..bytes.next_multiple_of(rustix::param::page_size() as u64));
        PciRegisters::with_areas(
            vec![area.map_err(VfioError::system("map its registers"))?],
            None,
            bytes,
        )
    }

    /// BAR0 of `bytes` bytes, of which `areas` are mapped.
    fn with_areas(
        areas: Vec<Area>,
        unmapped: Option<Box<dyn RegisterCalls>>,
        bytes: u64,
    ) -> Result<PciRegisters, VfioError> {
        let least = u64::from(regs::DOORBELLS) + 16;
        if bytes < least {
            let what = format!(
                "its BAR0 has {bytes} bytes; the registers and the doorbells of the admin and one I/O queue pair need {least}"
            );
            return Err(VfioError::Unsupported(what));
        }
        let mut registers = PciRegisters { areas, unmapped, bytes, dstrd: 0 };
        registers.dstrd = Cap::from_bits(registers.read64(regs::CAP)).dstrd();
        Ok(registers)
    }

    /// Whether the doorbells of the first I/O queue are mapped, so that ringing them takes no
    /// message.
    pub fn maps_doorbells(&self) -> bool {
        self.mapped(regs::sq_tail_doorbell(QueueId(1), self.dstrd)).is_some()
    }

    /// CAP.DSTRD: doorbells are 2^(2 + DSTRD) bytes apart.
    pub fn stride(&self) -> u8 {
        self.dstrd
    }

    /// The address of the 32 bits at `offset`, if they are mapped.
    #[inline]
    fn mapped(&self, offset: u32) -> Option<NonNull<u32>> {
        let offset = u64::from(offset);
        if !offset.is_multiple_of(4) {
            return None;
        }
        let area = self.areas.iter().find(|area| {
            offset.checked_sub(area.start).is_some_and(|at| at + 4 <= area.mapping.bytes as u64)
        })?;
        // SAFETY: the four bytes lie in the mapping, as was just found.
        Some(unsafe { area.mapping.at.add((offset - area.start) as usize) }.cast())
    }

    /// The calls for the 32 bits at `offset`, which are not mapped. `None`: the offset is past the
    /// end of BAR0.
    fn calls(&self, offset: u32) -> Option<&dyn RegisterCalls> {
        self.unmapped.as_deref().filter(|_| u64::from(offset) + 4 <= self.bytes)
    }

    /// Writes 32 bits; all earlier stores become visible to the device first.
    #[inline]
    fn store(&self, offset: u32, value: u32) {
        write_barrier();
        match self.mapped(offset) {
            // SAFETY: `at` is aligned and in a mapping of the device, which only volatile accesses
            // touch.
            Some(at) => unsafe { at.as_ptr().write_volatile(value.to_le()) },
            None => _ = self.calls(offset).map(|calls| calls.store(offset, value)),
        }
    }
}

impl Area {
    /// Maps whole pages of a file as the part `area` of BAR0.
    fn map(file: BorrowedFd<'_>, at: u64, area: Range<u64>) -> std::io::Result<Area> {
        let mut mapping = Mapping::shared(
            file,
            at,
            (area.end - area.start) as usize,
            Mapping::READ_WRITE,
            MapFlags::empty(),
        )?;
        // A forked child must not ring the doorbells of its parent.
        mapping.dont_fork()?;
        Ok(Area { mapping, start: area.start })
    }

    /// Replaces the pages of this area by pages of another file, at the same address. Other threads
    /// may ring doorbells at the same time: each access hits either the old or the new pages.
    fn renew(&self, file: BorrowedFd<'_>, at: u64) -> std::io::Result<()> {
        let (memory, bytes) = (self.mapping.at.as_ptr().cast(), self.mapping.bytes);
        // SAFETY: MAP_FIXED replaces this mapping only, atomically, and no reference into it
        // exists.
        let remapped = unsafe {
            mmap(memory, bytes, Mapping::READ_WRITE, MapFlags::SHARED | MapFlags::FIXED, file, at)
        };
        if let Err(error) = remapped {
            // A failed MAP_FIXED may have unmapped the old pages. Reserve the addresses: if another
            // mapping landed here, a doorbell would be written into it.
            // SAFETY: as above.
            if unsafe {
                mmap_anonymous(
                    memory,
                    bytes,
                    Mapping::READ_WRITE,
                    MapFlags::PRIVATE | MapFlags::FIXED,
                )
            }
            .is_err()
            {
                std::process::abort();
            }
            return Err(error.into());
        }
        self.mapping.advise(Advice::LinuxDontFork)
    }
}

/// Orders earlier stores to memory before a later store to a device register, like the barrier in
/// Linux's `writel`.
#[inline]
fn write_barrier() {
    // x86 does not reorder stores to write-back and uncached memory: only the compiler must not
    // either.
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    // SAFETY: a barrier accesses no memory.
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

/// Orders a load of a device register before later loads of memory, like the barrier in Linux's
/// `readl`: what the device wrote before it changed the register is visible.
#[inline]
fn read_barrier() {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Acquire);
    // SAFETY: a barrier accesses no memory.
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
    /// All ones past the end of BAR0, and if the device has been removed.
    fn read32(&self, offset: u32) -> u32 {
        let value = match self.mapped(offset) {
            // SAFETY: it is aligned and in a mapping of the device, which only volatile accesses
            // touch.
            Some(at) => u32::from_le(unsafe { at.as_ptr().read_volatile() }),
            None => self.calls(offset).map_or(u32::MAX, |calls| calls.load(offset)),
        };
        read_barrier();
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        self.store(offset, value);
    }
}

/// Writes to doorbells past the end of BAR0 are ignored. Doorbells are write-only (PCIe Transport
/// 3.1.2): reads return 0.
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

/// A part of BAR0 that can be mapped from a file.
#[derive(Debug)]
pub struct SharedArea {
    /// Its bytes in BAR0.
    pub range: Range<u64>,
    /// The file.
    pub file: OwnedFd,
    /// Offset of the part in the file.
    pub at: u64,
}

impl PciRegisters {
    /// BAR0 of `bytes` bytes. `areas` are mapped where that is safe; everything else is accessed
    /// through `unmapped`. `trusted`: the server is trusted not to take pages of its files away.
    /// Also returns one sentence for each area that was not mapped.
    ///
    /// # Errors
    /// BAR0 is too small for registers and doorbells.
    pub fn shared(
        bytes: u64,
        areas: Vec<SharedArea>,
        unmapped: Box<dyn RegisterCalls>,
        trusted: bool,
    ) -> Result<(PciRegisters, Vec<String>), VfioError> {
        let (mut mapped, mut notes) = (Vec::<Area>::new(), Vec::new());
        for area in areas {
            let SharedArea { range: Range { start, end }, .. } = area;
            let map = || {
                Area::map(area.file.as_fd(), area.at, start..end)
                    .map_err(|error| format!("the file cannot be mapped: {error}"))
            };
            match area.check(bytes, trusted).and_then(|()| map()) {
                Ok(area) => mapped.push(area),
                Err(why) => notes.push(format!(
                    "bytes {start:#x} to {end:#x} of BAR0 are accessed by messages: {why}"
                )),
            }
        }
        PciRegisters::with_areas(mapped, Some(unmapped), bytes).map(|registers| (registers, notes))
    }

    /// After a reconnect: maps the areas again, from the files of the new server. Areas that were
    /// not mapped before stay unmapped.
    ///
    /// # Errors
    /// The size of BAR0 changed, or an area cannot be mapped any more. The areas before it have
    /// been remapped.
    pub fn renew(&self, bytes: u64, areas: Vec<SharedArea>, trusted: bool) -> Result<(), String> {
        if bytes != self.bytes {
            return Err(format!("its BAR0 has {bytes:#x} bytes, and had {:#x} before", self.bytes));
        }
        let mut areas: BTreeMap<u64, SharedArea> =
            areas.into_iter().map(|area| (area.range.start, area)).collect();
        for area in &self.areas {
            let (start, end) = (area.start, area.start + area.mapping.bytes as u64);
            let refused = |why: String| {
                format!("bytes {start:#x} to {end:#x} of BAR0 cannot be mapped again: {why}")
            };
            let given = areas.remove(&start).filter(|given| given.range.end == end);
            let given = given.ok_or_else(|| refused("the server does not share them".into()))?;
            given.check(bytes, trusted).map_err(refused)?;
            area.renew(given.file.as_fd(), given.at).map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }
}

impl SharedArea {
    /// Checks that the range is valid and that mapping it is safe.
    fn check(&self, bytes: u64, trusted: bool) -> Result<(), String> {
        let page = rustix::param::page_size() as u64;
        let SharedArea { range, file, at } = self;
        let len = range
            .end
            .checked_sub(range.start)
            .filter(|len| *len > 0 && range.end <= bytes && isize::try_from(*len).is_ok());
        let Some(end) = len.and_then(|len| at.checked_add(len)) else {
            return Err("they are not within BAR0".into());
        };
        if !(range.start | range.end | at).is_multiple_of(page) {
            return Err(format!("they are not whole pages of {page} bytes"));
        }
        // Before the size: see `keeps_pages`.
        let pages = keeps_pages(file);
        let (_, size) = file_key_and_size(file)
            .map_err(|error| format!("the file of the server cannot be used: {error}"))?;
        if end > size {
            return Err(format!("the file has {size:#x} bytes, and the range ends at {end:#x}"));
        }
        match pages {
            Err(why) if !trusted => {
                Err(format!("the file may lose pages, which would end this process: {why}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
