//! VFIO's ioctls (`linux/vfio.h`): numbers, arguments that say how long they are, and what the kernel answers, as bytes: fixed fields, then a
//! chain of capabilities. Nothing is believed that does not lie within the bytes.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::opcode;
use vfio_bindings::bindings::vfio as bind;

/// More than any answer takes: the longest lists the ranges of an IOMMU.
const MOST_BYTES: usize = 1 << 20;

/// Calls whose argument is a number, not an address, or that have none: for [`plain`].
pub(super) const API_VERSION: Plain = Plain(0);
pub(super) const CHECK_EXTENSION: Plain = Plain(1);
pub(super) const SET_IOMMU: Plain = Plain(2);
pub(super) const RESET: Plain = Plain(11);
pub(super) struct Plain(u8);

/// Calls whose argument is a structure that begins with the bytes that it has (`argsz`): for [`sized`] and [`ask`].
pub(super) const GROUP_STATUS: Sized = Sized(3);
pub(super) const REGION_INFO: Sized = Sized(8);
pub(super) const IRQ_INFO: Sized = Sized(9);
pub(super) const SET_IRQS: Sized = Sized(10);
pub(super) const IOMMU_INFO: Sized = Sized(12);
pub(super) const MAP_DMA: Sized = Sized(13);
pub(super) const UNMAP_DMA: Sized = Sized(14);
#[derive(Clone, Copy, Debug)]
pub(super) struct Sized(u8);

fn opcode_of(call: u8) -> libc::Ioctl {
    opcode::none(bind::VFIO_TYPE, bind::VFIO_BASE as u8 + call) as libc::Ioctl
}

/// What the call returns.
pub(super) fn plain(fd: BorrowedFd<'_>, Plain(call): Plain, value: u32) -> io::Result<u32> {
    // SAFETY: the kernel takes the argument of these calls for a number, not for an address, or has none.
    returned(unsafe { libc::ioctl(fd.as_raw_fd(), opcode_of(call), libc::c_ulong::from(value)) })
}

/// `VFIO_GROUP_SET_CONTAINER`.
pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let fd: RawFd = container.as_raw_fd();
    // SAFETY: the kernel reads an `int` behind the address, and keeps nothing of it.
    returned(unsafe { libc::ioctl(group.as_raw_fd(), opcode_of(4), &raw const fd) }).map(drop)
}

/// `VFIO_GROUP_GET_DEVICE_FD` of the device with this name.
pub(super) fn device_fd(group: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads a string behind the address up to its NUL.
    let fd = returned(unsafe { libc::ioctl(group.as_raw_fd(), opcode_of(6), name.as_ptr()) })?;
    // SAFETY: the kernel has made this descriptor for this call, so that nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A call whose argument is a structure, here as words: `argsz` in the first is filled in. What the call returns; what the kernel has to
/// say is in the words afterwards, with the bytes that it has for it in the first.
pub(super) fn sized(fd: impl AsFd, Sized(call): Sized, words: &mut [u64]) -> io::Result<u32> {
    assert!(!words.is_empty() && size_of_val(words) <= MOST_BYTES, "call {call} with {} words", words.len());
    let bytes = (size_of_val(words) as u32).to_ne_bytes();
    let mut first = words[0].to_ne_bytes();
    first[..4].copy_from_slice(&bytes);
    words[0] = u64::from_ne_bytes(first);
    // SAFETY: the structure of each such call begins with `argsz`, and the kernel reads and writes that many bytes of it at most, which are
    // the words', aligned as its widest field. What it names beside itself is checked by the kernel: descriptors, and addresses of memory
    // that it pins (`Container`, which vouches for them).
    returned(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), opcode_of(call), words.as_mut_ptr().cast::<c_void>()) })
}

/// The answer to a call that only asks: all of it, however long. `question` stands behind `argsz` and `flags`.
pub(super) fn ask(fd: impl AsFd, call: Sized, question: u32) -> io::Result<Vec<u8>> {
    let mut bytes = 256;
    loop {
        let mut words = vec![0; bytes / 8];
        words[1] = word(question, 0);
        sized(&fd, call, &mut words)?;
        let answer: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // What the kernel would have said, had there been room.
        let wanted = u32_at(&answer, 0)? as usize;
        match wanted {
            _ if wanted <= bytes => return Ok(answer),
            _ if wanted > MOST_BYTES => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of {wanted} bytes to {call:?}")));
            }
            _ => bytes = wanted.next_multiple_of(8),
        }
    }
}

/// Two fields of 32 bits as the word that holds them.
pub(super) fn word(low: u32, high: u32) -> u64 {
    u64::from_ne_bytes([low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap_or_default())
}

fn returned(value: libc::c_int) -> io::Result<u32> {
    u32::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// What `VFIO_IOMMU_GET_INFO` of a type 1 IOMMU has answered: bus addresses that can be mapped (none: the kernel does not say), and its page
/// sizes, as bits (0: not said).
pub(super) fn iommu_info(answer: &[u8]) -> io::Result<(Vec<Range<u64>>, u64)> {
    let flags = u32_at(answer, 4)?;
    let page_sizes = if flags & bind::VFIO_IOMMU_INFO_PGSIZES != 0 { u64_at(answer, 8)? } else { 0 };
    let mut windows = Vec::new();
    let mut at = if flags & bind::VFIO_IOMMU_INFO_CAPS != 0 { u32_at(answer, 16)? as usize } else { 0 };
    while at != 0 {
        // `vfio_info_cap_header`: id, version, offset of the next.
        if u32::from(u16::from_ne_bytes(field(answer, at)?)) == bind::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            // `vfio_iommu_type1_info_cap_iova_range`: how many, then the first and the last address of each.
            for range in 0..u32_at(answer, at + 8)? as usize {
                let (first, last) = (u64_at(answer, at + 16 + 16 * range)?, u64_at(answer, at + 24 + 16 * range)?);
                windows.push(first..last.saturating_add(1));
            }
        }
        let next = u32_at(answer, at + 4)? as usize;
        // The chain goes forward, as the kernel makes it, and so has an end.
        if next != 0 && next <= at {
            return Err(malformed(answer, at + 4));
        }
        at = next;
    }
    Ok((windows, page_sizes))
}

pub(super) fn u32_at(answer: &[u8], at: usize) -> io::Result<u32> {
    Ok(u32::from_ne_bytes(field(answer, at)?))
}

pub(super) fn u64_at(answer: &[u8], at: usize) -> io::Result<u64> {
    Ok(u64::from_ne_bytes(field(answer, at)?))
}

fn field<const N: usize>(answer: &[u8], at: usize) -> io::Result<[u8; N]> {
    answer.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or_else(|| malformed(answer, at))
}

fn malformed(answer: &[u8], at: usize) -> io::Error {
    let what = format!("the kernel's answer makes no sense at byte {at} of {}", answer.len());
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
