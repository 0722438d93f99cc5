//! VFIO's ioctls (`linux/vfio.h`): their numbers, arguments that begin with their own size, and
//! answers parsed from bytes: fixed fields followed by a chain of capabilities. Every offset and
//! size in an answer is checked.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::opcode;
use vfio_bindings::bindings::vfio as bind;

/// Limit on the size of an answer. The longest answer is the list of an IOMMU's IOVA ranges.
const MAX_BYTES: usize = 1 << 20;

/// Calls that take a number or nothing as argument: for [`call_value`].
pub(super) const API_VERSION: ValueCall = ValueCall(0);
pub(super) const CHECK_EXTENSION: ValueCall = ValueCall(1);
pub(super) const SET_IOMMU: ValueCall = ValueCall(2);
pub(super) const RESET: ValueCall = ValueCall(11);
pub(super) struct ValueCall(u8);

/// Calls that take a structure that begins with its size (`argsz`): for [`call_struct`] and
/// [`query`].
pub(super) const GROUP_STATUS: StructCall = StructCall(3);
pub(super) const REGION_INFO: StructCall = StructCall(8);
pub(super) const IRQ_INFO: StructCall = StructCall(9);
pub(super) const SET_IRQS: StructCall = StructCall(10);
pub(super) const IOMMU_INFO: StructCall = StructCall(12);
pub(super) const MAP_DMA: StructCall = StructCall(13);
pub(super) const UNMAP_DMA: StructCall = StructCall(14);
#[derive(Clone, Copy, Debug)]
pub(super) struct StructCall(u8);

fn opcode_of(call: u8) -> libc::Ioctl {
    opcode::none(bind::VFIO_TYPE, bind::VFIO_BASE as u8 + call) as libc::Ioctl
}

/// Makes a call whose argument is a number; returns its result.
pub(super) fn call_value(
    fd: BorrowedFd<'_>,
    ValueCall(call): ValueCall,
    value: u32,
) -> io::Result<u32> {
    // SAFETY: the kernel takes the argument of these calls as a number, never as an address, or
    // ignores it.
    to_result(unsafe { libc::ioctl(fd.as_raw_fd(), opcode_of(call), libc::c_ulong::from(value)) })
}

/// `VFIO_GROUP_SET_CONTAINER`.
pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let fd: RawFd = container.as_raw_fd();
    // SAFETY: the kernel reads an `int` at the address, and does not keep the address.
    to_result(unsafe { libc::ioctl(group.as_raw_fd(), opcode_of(4), &raw const fd) }).map(drop)
}

/// `VFIO_GROUP_GET_DEVICE_FD` of the device with this name.
pub(super) fn device_fd(group: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads a NUL-terminated string at the address.
    let fd = to_result(unsafe { libc::ioctl(group.as_raw_fd(), opcode_of(6), name.as_ptr()) })?;
    // SAFETY: the kernel has made this descriptor for this call, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Makes a call whose argument is a structure, given as words; `argsz`, the first four bytes, is
/// filled in here. Returns the result of the call. The kernel writes its answer into the words, and
/// into `argsz` the size that the whole answer needs.
pub(super) fn call_struct(
    fd: impl AsFd,
    StructCall(call): StructCall,
    words: &mut [u64],
) -> io::Result<u32> {
    assert!(
        !words.is_empty() && size_of_val(words) <= MAX_BYTES,
        "call {call} with {} words",
        words.len()
    );
    let bytes = (size_of_val(words) as u32).to_ne_bytes();
    let mut first = words[0].to_ne_bytes();
    first[..4].copy_from_slice(&bytes);
    words[0] = u64::from_ne_bytes(first);
    // SAFETY: the structure of each such call begins with `argsz`, and the kernel accesses at most
    // that many bytes of it. `argsz` is the size of `words`, and `u64` is aligned for every field
    // of the structure. Descriptors and addresses in it are checked by the kernel; memory that it
    // pins is the responsibility of the caller (`Container`).
    to_result(unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), opcode_of(call), words.as_mut_ptr().cast::<c_void>())
    })
}

/// The complete answer to a query, however long. `question` is the field after `argsz` and `flags`.
pub(super) fn query(fd: impl AsFd, call: StructCall, question: u32) -> io::Result<Vec<u8>> {
    let mut bytes = 256;
    loop {
        let mut words = vec![0; bytes / 8];
        words[1] = word(question, 0);
        call_struct(&fd, call, &mut words)?;
        let answer: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // `argsz`: the size that the kernel needs. Retry with that much room if the answer was cut
        // off.
        let wanted = u32_at(&answer, 0)? as usize;
        match wanted {
            _ if wanted <= bytes => return Ok(answer),
            _ if wanted > MAX_BYTES => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("an answer of {wanted} bytes to {call:?}"),
                ));
            }
            _ => bytes = wanted.next_multiple_of(8),
        }
    }
}

/// Two 32-bit fields as one word in memory order.
pub(super) fn word(low: u32, high: u32) -> u64 {
    u64::from_ne_bytes(
        [low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap_or_default(),
    )
}

fn to_result(value: libc::c_int) -> io::Result<u32> {
    u32::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// Parses the answer to `VFIO_IOMMU_GET_INFO` of a type 1 IOMMU: the mappable bus addresses (empty:
/// not reported), and a bitmap of page sizes (0: not reported).
pub(super) fn iommu_info(answer: &[u8]) -> io::Result<(Vec<Range<u64>>, u64)> {
    let flags = u32_at(answer, 4)?;
    let page_sizes =
        if flags & bind::VFIO_IOMMU_INFO_PGSIZES != 0 { u64_at(answer, 8)? } else { 0 };
    let mut windows = Vec::new();
    let mut at =
        if flags & bind::VFIO_IOMMU_INFO_CAPS != 0 { u32_at(answer, 16)? as usize } else { 0 };
    while at != 0 {
        // `vfio_info_cap_header`: id, version, offset of the next.
        if u32::from(u16::from_ne_bytes(field(answer, at)?))
            == bind::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE
        {
            // `vfio_iommu_type1_info_cap_iova_range`: how many, then the first and the last address
            // of each.
            for range in 0..u32_at(answer, at + 8)? as usize {
                let (first, last) =
                    (u64_at(answer, at + 16 + 16 * range)?, u64_at(answer, at + 24 + 16 * range)?);
                windows.push(first..last.saturating_add(1));
            }
        }
        let next = u32_at(answer, at + 4)? as usize;
        // The kernel builds the chain in ascending order. Requiring that guarantees an end.
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
    answer
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or_else(|| malformed(answer, at))
}

fn malformed(answer: &[u8], at: usize) -> io::Error {
    let what = format!("the kernel's answer is malformed at byte {at} of {}", answer.len());
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
