//! A controller's registers and doorbells: BAR0. On the bus all of it is mapped.
//!
//! Of a device that another process serves, parts of BAR0 lie in files that it hands over, and it is not trusted. Touching a page that a file
//! no longer has would be a signal that ends this process. So a part is mapped only where its file keeps its pages (`mapping.rs`), or where the
//! caller says that the other process is trusted to take none away. Elsewhere its registers are reached by calls.
//!
//! Registers are reached by volatile accesses of 32 bits, little-endian. A doorbell is written behind a barrier: whatever was stored before
//! is in memory when the controller learns of it. A device that is gone reads as all ones.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nvme::regs::{self, Cap};
use nvme::{Doorbells, QueueId, Registers};
use rustix::mm::{Advice, MapFlags, mmap, mmap_anonymous};

use super::VfioError;
use crate::mapping::{Mapping, examine, keeps_pages};

/// A part of BAR0 in this process's addresses.
#[derive(Debug)]
struct Area {
    mapping: Mapping,
    /// Where it begins in BAR0.
    start: u64,
}

/// Registers and doorbells of a controller on the bus.
#[derive(Debug)]
pub struct PciRegisters {
    areas: Vec<Area>,
    /// The way to what is not mapped.
    rest: Option<Box<dyn RegisterCalls>>,
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

// SAFETY: the mappings are this process's until it drops, and are reached by single volatile accesses, which any thread may do.
unsafe impl Send for PciRegisters {}
// SAFETY: as above; nothing of them is ever behind a reference.
unsafe impl Sync for PciRegisters {}

impl PciRegisters {
    /// BAR0 of this many bytes, which begins at an offset in a file.
    pub(super) fn mapped_whole(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<PciRegisters, VfioError> {
        // Of a BAR shorter than a page the kernel keeps the rest of the page free.
        let area = Area::map(file, offset, 0..bytes.next_multiple_of(rustix::param::page_size() as u64));
        PciRegisters::over(vec![area.map_err(VfioError::system("map its registers"))?], None, bytes)
    }

    /// BAR0 of this many bytes: `areas` of it are mapped.
    fn over(areas: Vec<Area>, rest: Option<Box<dyn RegisterCalls>>, bytes: u64) -> Result<PciRegisters, VfioError> {
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

    /// Where the 32 bits at `offset` are, if they are mapped.
    #[inline]
    fn mapped(&self, offset: u32) -> Option<NonNull<u32>> {
        let offset = u64::from(offset);
        if !offset.is_multiple_of(4) {
            return None;
        }
        let area = self.areas.iter().find(|area| offset.checked_sub(area.start).is_some_and(|at| at + 4 <= area.mapping.bytes as u64))?;
        // SAFETY: the four bytes lie in the mapping, as was just found.
        Some(unsafe { area.mapping.at.add((offset - area.start) as usize) }.cast())
    }

    /// The way to the 32 bits at `offset`, which are not mapped. `None`: BAR0 ends before them.
    fn calls(&self, offset: u32) -> Option<&dyn RegisterCalls> {
        self.rest.as_deref().filter(|_| u64::from(offset) + 4 <= self.bytes)
    }

    /// Writes 32 bits, after everything that was stored before.
    #[inline]
    fn store(&self, offset: u32, value: u32) {
        stores_before_device();
        match self.mapped(offset) {
            // SAFETY: `at` is in a mapping of the device's, aligned, and reached by nothing but such accesses.
            Some(at) => unsafe { at.as_ptr().write_volatile(value.to_le()) },
            None => _ = self.calls(offset).map(|calls| calls.store(offset, value)),
        }
    }
}

impl Area {
    /// Maps whole pages of a file, which are `area` of BAR0.
    fn map(file: BorrowedFd<'_>, at: u64, area: Range<u64>) -> std::io::Result<Area> {
        let mut mapping = Mapping::shared(file, at, (area.end - area.start) as usize, Mapping::READ_WRITE, MapFlags::empty())?;
        // A forked child has no business there.
        mapping.keep_from_children()?;
        Ok(Area { mapping, start: area.start })
    }

    /// Other pages of a file take the place of these, at the same addresses. Threads may ring meanwhile: an access meets one or the other.
    fn renew(&self, file: BorrowedFd<'_>, at: u64) -> std::io::Result<()> {
        let (memory, bytes) = (self.mapping.at.as_ptr().cast(), self.mapping.bytes);
        // SAFETY: what is replaced is this mapping, of which nothing is behind a reference; there is memory at each moment.
        let renewed = unsafe { mmap(memory, bytes, Mapping::READ_WRITE, MapFlags::SHARED | MapFlags::FIXED, file, at) };
        if let Err(error) = renewed {
            // The old pages may be gone. Should anything else ever lie there a doorbell would be written into it.
            // SAFETY: as above.
            if unsafe { mmap_anonymous(memory, bytes, Mapping::READ_WRITE, MapFlags::PRIVATE | MapFlags::FIXED) }.is_err() {
                std::process::abort();
            }
            return Err(error.into());
        }
        self.mapping.advise(Advice::LinuxDontFork)
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
            None => self.calls(offset).map_or(u32::MAX, |calls| calls.load(offset)),
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

/// A part of BAR0 in a file.
#[derive(Debug)]
pub struct SharedArea {
    /// Which part.
    pub range: Range<u64>,
    /// The file that it is a part of.
    pub file: OwnedFd,
    /// Where the part begins there.
    pub at: u64,
}

impl PciRegisters {
    /// BAR0 of `bytes` bytes, of which `areas` lie in files, and everything is reached by calls. `trusted`: the server is believed
    /// to take no pages of a file away where it could. With it, why a part is not mapped: a sentence each.
    ///
    /// # Errors
    /// It has no room for registers and doorbells.
    pub fn shared(
        bytes: u64,
        areas: Vec<SharedArea>,
        rest: Box<dyn RegisterCalls>,
        trusted: bool,
    ) -> Result<(PciRegisters, Vec<String>), VfioError> {
        let (mut mapped, mut notes) = (Vec::<Area>::new(), Vec::new());
        for area in areas {
            let SharedArea { range: Range { start, end }, .. } = area;
            let map = || Area::map(area.file.as_fd(), area.at, start..end).map_err(|error| format!("their file cannot be mapped: {error}"));
            match area.check(bytes, trusted).and_then(|()| map()) {
                Ok(area) => mapped.push(area),
                Err(why) => notes.push(format!("bytes {start:#x} to {end:#x} of BAR0 are reached by messages: {why}")),
            }
        }
        PciRegisters::over(mapped, Some(rest), bytes).map(|registers| (registers, notes))
    }

    /// A server has taken the place of the one before: what is mapped of BAR0 is mapped of its files from now on. What else it could have mapped is
    /// left to calls.
    ///
    /// # Errors
    /// Its BAR0 is not the same, or a part cannot be mapped any more: why. The parts before it have been renewed.
    pub fn renew(&self, bytes: u64, areas: Vec<SharedArea>, trusted: bool) -> Result<(), String> {
        if bytes != self.bytes {
            return Err(format!("its BAR0 has {bytes:#x} bytes, and had {:#x}", self.bytes));
        }
        let mut areas: BTreeMap<u64, SharedArea> = areas.into_iter().map(|area| (area.range.start, area)).collect();
        for area in &self.areas {
            let (start, end) = (area.start, area.start + area.mapping.bytes as u64);
            let refused = |why: String| format!("bytes {start:#x} to {end:#x} of BAR0 cannot be mapped again: {why}");
            let given = areas.remove(&start).filter(|given| given.range.end == end);
            let given = given.ok_or_else(|| refused("the server does not hand them over".into()))?;
            given.check(bytes, trusted).map_err(refused)?;
            area.renew(given.file.as_fd(), given.at).map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }
}

impl SharedArea {
    /// Whether mapping it is safe.
    fn check(&self, bytes: u64, trusted: bool) -> Result<(), String> {
        let page = rustix::param::page_size() as u64;
        let SharedArea { range, file, at } = self;
        let len = range.end.checked_sub(range.start).filter(|len| *len > 0 && range.end <= bytes && isize::try_from(*len).is_ok());
        let Some(end) = len.and_then(|len| at.checked_add(len)) else { return Err("they are no part of it".into()) };
        if !(range.start | range.end | at).is_multiple_of(page) {
            return Err(format!("they are no whole pages of {page} bytes"));
        }
        // Before its size.
        let pages = keeps_pages(file);
        let (_, size) = examine(file).map_err(|error| format!("what the server hands over for them cannot be used: {error}"))?;
        if end > size {
            return Err(format!("their file has {size:#x} bytes, and they would end at {end:#x}"));
        }
        match pages {
            Err(why) if !trusted => Err(format!("their file may lose pages, which would end this process: {why}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
