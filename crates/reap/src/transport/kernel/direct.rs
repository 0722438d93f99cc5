//! Whether I/O passes the page cache, and what it has to be aligned to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::Errno;

use super::uri::Buffered;
use crate::error::TargetFault;
use hw::Guarded;
use hw::block::Disk;

/// Bytes of a page.
const PAGE: u32 = 4096;

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
pub(super) enum IoPath {
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
pub(super) fn choose(file: &File, wanted: Buffered, disk: Option<&Disk>) -> Result<IoPath, TargetFault> {
    let fail = |what| move |e: Errno| TargetFault::System { what, source: e.into() };
    let plain = fcntl_getfl(file).map_err(fail("read its flags"))? - OFlags::NONBLOCK - OFlags::DIRECT;
    fcntl_setfl(file, plain).map_err(fail("set its flags"))?;
    if wanted == Buffered::Yes {
        return Ok(IoPath::Buffered(None));
    }
    let why = match fcntl_setfl(file, plain | OFlags::DIRECT) {
        Ok(()) => match alignment(file, disk) {
            Ok(alignment) => return Ok(IoPath::Direct(alignment)),
            Err(why) => why,
        },
        Err(Errno::INVAL) => "the file system takes no direct I/O".to_owned(),
        Err(e) => return Err(fail("switch it to direct I/O")(e)),
    };
    fcntl_setfl(file, plain).map_err(fail("set its flags"))?;
    if wanted == Buffered::No {
        return Err(TargetFault::Parameter(format!("{why}, and `buffered=no` forbids the page cache; leave `buffered=no` out")));
    }
    Ok(IoPath::Buffered(Some(format!("{why}, so I/O goes through the page cache"))))
}

/// From the file system, else from the device, else by trial; whatever it is, one read has to prove it.
fn alignment(file: &File, disk: Option<&Disk>) -> Result<Alignment, String> {
    let of_disk = || {
        let disk = disk?;
        let offset = u32::try_from(disk.queue("logical_block_size")?).ok()?;
        let memory = disk.queue("dma_alignment").and_then(|mask| u32::try_from(mask + 1).ok()).unwrap_or(offset);
        (offset.is_power_of_two() && memory.is_power_of_two()).then_some(Alignment { offset, memory })
    };
    let claimed = match statx_alignment(file)? {
        Some(alignment) => vec![alignment],
        None => of_disk().into_iter().chain([512, 4096].map(|n| Alignment { offset: n, memory: n })).collect(),
    };
    let read = |alignment: Alignment| test_read(alignment, |buffer| file.read_at(buffer, u64::from(alignment.offset)));
    for alignment in claimed {
        match read(alignment) {
            TestRead::Accepted => return Ok(alignment),
            TestRead::Refused => {}
            // It copies whole pages: with page alignment there is nothing of others in them.
            TestRead::WroteOutside => {
                let pages = Alignment { memory: alignment.memory.max(PAGE), ..alignment };
                return match read(pages) {
                    TestRead::Accepted => Ok(pages),
                    _ => Err("the device writes outside of the memory that it is given".into()),
                };
            }
        }
    }
    Err("the kernel refuses direct I/O on this file".into())
}

/// STATX_DIOALIGN (Linux 6.1; ext4, xfs, f2fs, btrfs and block devices fill it in). `None`: not here.
fn statx_alignment(file: &File) -> Result<Option<Alignment>, String> {
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

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestRead {
    Accepted,
    Refused,
    WroteOutside,
}

/// One `read` so aligned, and no better, into memory that is the trial's own. A read that fails for another reason than its alignment
/// proves nothing against it.
fn test_read(alignment: Alignment, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> TestRead {
    let Ok(mut memory) = Guarded::new(alignment.offset as usize, alignment.memory as usize) else { return TestRead::Refused };
    // A second block exists in every file that can be used at all, or the read finds the end, which is an answer too.
    let answer = read(memory.bytes());
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP].map(|errno| Some(errno.raw_os_error()));
    match answer {
        _ if !memory.is_intact() => TestRead::WroteOutside,
        Err(e) if refusals.contains(&e.raw_os_error()) => TestRead::Refused,
        _ => TestRead::Accepted,
    }
}
