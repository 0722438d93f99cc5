//! Writes over a device before it is measured: a read of blocks that were never written is served from one page of
//! zeroes, which stays in the cache and flatters every figure.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};
use reap::{Backing, Device, DeviceUri, Request};
use workload::Region;

use super::worker::first_namespace;

/// Bytes of each write.
const BLOCK: u64 = 256 << 10;
/// Writes in flight.
const DEPTH: usize = 8;

/// ENOSPC.
const NO_SPACE: i32 = 28;

/// What filling came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that jobs may read.
    pub wanted: u64,
    /// Bytes written, from the start of that.
    pub written: u64,
}

/// Fills a buffer with something that does not compress, and so brings its pages into memory. `seed` tells buffers apart.
pub fn scribble(buf: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buf.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

/// Whether reads of never-written blocks would flatter this device: not a file, which holds what it holds, nor the
/// `null` profile, which moves no data.
pub fn matters(uri: &DeviceUri) -> bool {
    matches!(uri.backing, Backing::Mem { .. }) && uri.profile != "null"
}

/// Writes over `region` of `device`, at most `most` bytes of it. Ends early if `stop` is set or the medium is full.
///
/// # Errors
/// A write failed for another reason.
pub fn fill(device: &Device, region: Region, most: u64, stop: &AtomicBool) -> Result<Filled> {
    let namespace = first_namespace(device)?;
    let unit = u64::from(namespace.block_bytes());
    let queue = device.queue()?;
    let (mut at, end) = (region.start / unit * unit, region.start + region.len.min(most) / unit * unit);
    let mut filled = Filled { wanted: region.len, written: 0 };
    let mut idle = Vec::with_capacity(DEPTH);
    for seed in 0..DEPTH as u64 {
        let mut buf = device.buffer(BLOCK as usize).context("no room for the buffers that fill the medium")?;
        scribble(&mut buf, seed + 1);
        idle.push(buf);
    }
    let mut found = Vec::with_capacity(DEPTH);
    loop {
        while at < end
            && !stop.load(Relaxed)
            && let Some(buf) = idle.pop()
        {
            let bytes = BLOCK.min(end - at);
            let request = Request::write(&namespace, at / unit, buf).bytes(bytes as u32).tag(bytes);
            queue.submit([request]).map_err(|(why, _)| why)?;
            at += bytes;
        }
        if queue.in_flight() == 0 && queue.finished() == 0 {
            return Ok(filled);
        }
        queue.wait(1, None)?;
        queue.reap(&mut found);
        for completion in found.drain(..) {
            match completion.result {
                Ok(()) => filled.written += completion.tag,
                // The limit on what memory media allocate: the rest stays as it is.
                Err(error) if error.errno() == NO_SPACE => at = end,
                // What is given up on request is no mistake.
                Err(_) if stop.load(Relaxed) => {}
                Err(error) => return Err(error).context("cannot fill the medium"),
            }
            idle.extend(completion.buf);
        }
    }
}

#[cfg(test)]
mod tests;
