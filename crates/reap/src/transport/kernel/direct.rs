//! Direct or buffered I/O, and the alignment that direct I/O needs.
//!
//! What the file system or the disk claims is tested by one aligned read before it is used: some
//! devices need more than they claim, and some write outside of a buffer that is not page-aligned.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::Errno;

use super::uri::Buffered;
use crate::error::TargetFault;
use hw::GuardedBuffer;
use hw::block::Disk;

/// Bytes of a page.
const PAGE: u32 = 4096;

/// The alignment of direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Offsets and lengths, in bytes.
    pub(super) offset: u32,
    /// Addresses of buffers, in bytes.
    pub(super) memory: u32,
}

/// Direct or buffered I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IoPath {
    /// O_DIRECT, past the page cache.
    Direct(Alignment),
    /// Through the page cache; the reason, if that was not asked for.
    Buffered(Option<String>),
}

/// Enables direct I/O on an open file where it is allowed and wanted. Clears O_NONBLOCK, with which
/// io_uring would fail requests (EAGAIN) instead of waiting.
///
/// # Errors
/// Direct I/O is asked for and refused, or the flags cannot be set.
pub(super) fn choose(
    file: &File,
    wanted: Buffered,
    disk: Option<&Disk>,
) -> Result<IoPath, TargetFault> {
    let fail = |what| move |e: Errno| TargetFault::System { what, source: e.into() };
    let plain =
        fcntl_getfl(file).map_err(fail("read its flags"))? - OFlags::NONBLOCK - OFlags::DIRECT;
    fcntl_setfl(file, plain).map_err(fail("set its flags"))?;
    if wanted == Buffered::Yes {
        return Ok(IoPath::Buffered(None));
    }
    let why = match fcntl_setfl(file, plain | OFlags::DIRECT) {
        Ok(()) => match alignment(file, disk) {
            Ok(alignment) => return Ok(IoPath::Direct(alignment)),
            Err(why) => why,
        },
        // open(2): the file system does not support O_DIRECT.
        Err(Errno::INVAL) => "the file system takes no direct I/O".to_owned(),
        Err(e) => return Err(fail("switch it to direct I/O")(e)),
    };
    fcntl_setfl(file, plain).map_err(fail("set its flags"))?;
    if wanted == Buffered::No {
        return Err(TargetFault::Parameter(format!(
            "{why}, and `buffered=no` forbids the page cache; leave `buffered=no` out"
        )));
    }
    Ok(IoPath::Buffered(Some(format!("{why}, so I/O goes through the page cache"))))
}

/// The alignment: from the file system, else from the device, else by trial. One read must confirm
/// it.
fn alignment(file: &File, disk: Option<&Disk>) -> Result<Alignment, String> {
    let of_disk = || {
        let disk = disk?;
        let offset = u32::try_from(disk.queue("logical_block_size")?).ok()?;
        let memory = disk
            .queue("dma_alignment")
            .and_then(|mask| u32::try_from(mask + 1).ok())
            .unwrap_or(offset);
        (offset.is_power_of_two() && memory.is_power_of_two())
            .then_some(Alignment { offset, memory })
    };
    let claimed = match statx_alignment(file)? {
        Some(alignment) => vec![alignment],
        None => of_disk()
            .into_iter()
            .chain([512, 4096].map(|n| Alignment { offset: n, memory: n }))
            .collect(),
    };
    let read = |alignment: Alignment| {
        test_read(alignment, |buffer| file.read_at(buffer, u64::from(alignment.offset)))
    };
    for alignment in claimed {
        match read(alignment) {
            TestRead::Accepted => return Ok(alignment),
            TestRead::Refused => {}
            // The device writes whole pages: with page alignment nothing else is in them.
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

/// STATX_DIOALIGN (Linux 6.1; ext4, xfs, f2fs, btrfs and block devices report it). `None`: not
/// reported here.
fn statx_alignment(file: &File) -> Result<Option<Alignment>, String> {
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(None);
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(None);
    }
    match (stat.stx_dio_offset_align, stat.stx_dio_mem_align) {
        (0, _) | (_, 0) => Err("the file system takes no direct I/O on this file".into()),
        (offset, memory) if offset.is_power_of_two() && memory.is_power_of_two() => {
            Ok(Some(Alignment { offset, memory }))
        }
        (offset, memory) => Err(format!(
            "direct I/O needs multiples of {offset} bytes at multiples of {memory}, which no block has"
        )),
    }
}

/// The result of a test read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestRead {
    Accepted,
    Refused,
    WroteOutside,
}

/// One `read` with exactly this alignment, into guarded memory. A read that fails for any reason
/// other than its alignment is no evidence against it.
fn test_read(alignment: Alignment, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> TestRead {
    let Ok(mut memory) = GuardedBuffer::new(alignment.offset as usize, alignment.memory as usize)
    else {
        return TestRead::Refused;
    };
    // Every usable file has a second block, or the read ends at the end of the file, which proves
    // the alignment too.
    let answer = read(memory.bytes());
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP].map(|errno| Some(errno.raw_os_error()));
    match answer {
        _ if !memory.is_intact() => TestRead::WroteOutside,
        Err(e) if refusals.contains(&e.raw_os_error()) => TestRead::Refused,
        _ => TestRead::Accepted,
    }
}
