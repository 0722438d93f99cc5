//! Whether I/O passes the page cache, and what it has to be aligned to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::Errno;

use super::uri::Buffered;
use crate::error::TargetFault;
use hw::block::Disk;

/// What direct I/O has to be aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Offsets and lengths, in bytes.
    pub(super) offset: u32,
    /// Addresses of buffers, in bytes.
    pub(super) memory: u32,
}

/// How I/O goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the page cache.
    Direct(Alignment),
    /// Through the page cache; where that was not asked for, why.
    Buffered(Option<String>),
}

/// Sets the open file up for direct I/O where it is allowed and wanted, and clears O_NONBLOCK, with which io_uring would fail
/// requests instead of waiting.
///
/// # Errors
/// Direct I/O is asked for and refused, or the flags cannot be set.
pub(super) fn settle(file: &File, wanted: Buffered, disk: Option<&Disk>) -> Result<Way, TargetFault> {
    let fail = |what| move |e: Errno| TargetFault::System { what, source: e.into() };
    let plain = fcntl_getfl(file).map_err(fail("read its flags"))? - OFlags::NONBLOCK - OFlags::DIRECT;
    fcntl_setfl(file, plain).map_err(fail("set its flags"))?;
    if wanted == Buffered::Yes {
        return Ok(Way::Buffered(None));
    }
    let why = match fcntl_setfl(file, plain | OFlags::DIRECT) {
        Ok(()) => match alignment(file, disk) {
            Ok(alignment) => return Ok(Way::Direct(alignment)),
            Err(why) => why,
        },
        Err(Errno::INVAL) => "the file system takes no direct I/O".to_owned(),
        Err(e) => return Err(fail("switch it to direct I/O")(e)),
    };
    fcntl_setfl(file, plain).map_err(fail("set its flags"))?;
    if wanted == Buffered::No {
        return Err(TargetFault::NoDirect { why });
    }
    Ok(Way::Buffered(Some(format!("{why}, so I/O goes through the page cache"))))
}

/// From the file system, else from the device, else by trial; whatever it is, one read has to prove it.
fn alignment(file: &File, disk: Option<&Disk>) -> Result<Alignment, String> {
    let refused = "the kernel refuses direct I/O on this file";
    if let Some(said) = said_by_statx(file)? {
        return if takes(file, said) { Ok(said) } else { Err(refused.into()) };
    }
    let of_disk = disk.and_then(|disk| {
        let offset = u32::try_from(disk.queue("logical_block_size")?).ok()?;
        let memory = disk.queue("dma_alignment").and_then(|mask| u32::try_from(mask + 1).ok()).unwrap_or(offset);
        (offset.is_power_of_two() && memory.is_power_of_two()).then_some(Alignment { offset, memory })
    });
    let tried = [512, 4096].map(|n| Alignment { offset: n, memory: n });
    of_disk.into_iter().chain(tried).find(|&a| takes(file, a)).ok_or_else(|| refused.into())
}

/// STATX_DIOALIGN (Linux 6.1; ext4, xfs, f2fs, btrfs and block devices fill it in). `None`: not here.
fn said_by_statx(file: &File) -> Result<Option<Alignment>, String> {
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return Ok(None) };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(None);
    }
    match (stat.stx_dio_offset_align, stat.stx_dio_mem_align) {
        (0, _) | (_, 0) => Err("the file system takes no direct I/O on this file".into()),
        (offset, memory) if offset.is_power_of_two() && memory.is_power_of_two() => Ok(Some(Alignment { offset, memory })),
        (offset, memory) => Err(format!("direct I/O needs multiples of {offset} bytes at multiples of {memory}, which no block has")),
    }
}

/// Whether a read so aligned, and no better, is taken. A read that fails for another reason proves nothing against it.
fn takes(file: &File, alignment: Alignment) -> bool {
    let (length, memory) = (alignment.offset as usize, alignment.memory as usize);
    let mut bytes = vec![0; length + 3 * memory];
    // At an odd multiple, so that a stricter need shows.
    let at = bytes.as_ptr().align_offset(2 * memory) + memory;
    let buffer = &mut bytes[at..at + length];
    // A second block exists in every file that can be used at all, or the read finds the end, which is an answer too.
    let answer = file.read_at(buffer, u64::from(alignment.offset));
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP].map(|errno| Some(errno.raw_os_error()));
    !answer.is_err_and(|e: io::Error| refusals.contains(&e.raw_os_error()))
}
