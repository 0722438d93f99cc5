//! The places of a job thread's I/Os: what each is while it is in flight, its buffer while it is not, and the request in between.

use std::ops::Range;
use std::os::unix::fs::FileTypeExt;

use anyhow::{Result, bail};
use reap::{Device, DmaBuf, KernelUri, Namespace, Request};
use units::Op;
use workload::{Io, Job};

use crate::bench::lanes::Held;

/// Whether the job may have what it asks for: files and block devices of the kernel have no flag for reads of what is durable.
///
/// # Errors
/// It asks for such reads, and there are none.
pub(super) fn may_read_durably(job: &Job, device: &Device) -> Result<()> {
    let uri = &device.description().uri;
    let kernel = uri.starts_with("kernel:").then(|| uri.parse::<KernelUri>().ok()).flatten();
    let passes_through = |uri: KernelUri| std::fs::metadata(&uri.path).is_ok_and(|node| node.file_type().is_char_device());
    if job.durable_reads && !kernel.is_none_or(passes_through) {
        bail!("readfua=1: {uri} has no such reads; take it out, or name a namespace as kernel:/dev/ng0n1");
    }
    Ok(())
}

/// Whether the device takes trims of as many ranges as the job's.
///
/// # Errors
/// It takes fewer.
pub(super) fn may_list_ranges(job: &Job, device: &Device, namespace: &Namespace) -> Result<()> {
    let (wanted, most) = (job.ranges_of_each(), namespace.most_ranges());
    if wanted > most {
        let uri = &device.description().uri;
        let why = if most == 1 { "trims of one range each".into() } else { format!("trims of up to {most} ranges") };
        bail!("num_range={wanted}: {uri} takes {why}; give a smaller one, or name an NVMe controller or a namespace as kernel:/dev/ng0n1");
    }
    Ok(())
}

/// Where an I/O is kept while it is in flight, and its buffer while it is not.
/// Field by field: copied as a whole, what is between an [`Io`]'s fields would be copied byte by byte.
pub(super) struct Place {
    offset: u64,
    slot: u32,
    len: u32,
    target: u16,
    op: Op,
    /// What the device is asked for: of a write perhaps another command.
    command: Op,
    /// Of a trim of several ranges: their blocks.
    pub ranges: Vec<Range<u64>>,
    /// `None`: in flight, or lost with its controller.
    pub buf: Option<DmaBuf>,
}

impl Place {
    /// No I/O, and a buffer.
    pub(super) fn new(buf: DmaBuf) -> Place {
        Place { offset: 0, slot: 0, len: 0, target: 0, op: Op::Read, command: Op::Read, ranges: Vec::new(), buf: Some(buf) }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, io: &Io, command: Op) {
        (self.offset, self.slot, self.len, self.target, self.op) = (io.offset, io.slot, io.len, io.target, io.op);
        self.command = command;
    }

    /// The I/O as the device has it.
    pub(super) fn asked(&self) -> Io {
        Io { op: self.command, ..self.io() }
    }

    #[inline(always)]
    pub(super) fn io(&self) -> Io {
        Io { slot: self.slot, op: self.op, target: self.target, offset: self.offset, len: self.len }
    }
}

/// What has yet to be submitted of a batch, as requests: each takes its place's buffer.
pub(super) struct Left<'a> {
    pub numbers: std::slice::Iter<'a, u32>,
    pub places: &'a mut [Place],
    pub namespace: &'a Namespace,
    pub block_shift: u32,
    pub urgent: bool,
    /// I/Os may have several ranges.
    pub ranged: bool,
    /// Force Unit Access of writes and of reads.
    pub durable: [bool; 2],
}

impl Iterator for Left<'_> {
    type Item = Request;

    #[inline(always)] // Once for each I/O, into the library's loop.
    fn next(&mut self) -> Option<Request> {
        loop {
            let number = *self.numbers.next()?;
            let Some(place) = self.places.get_mut(number as usize) else { continue };
            let (io, Some(buf)) = (place.asked(), place.buf.take()) else { continue };
            let lba = io.offset >> self.block_shift;
            if self.ranged && io.op == Op::Deallocate {
                let request = Request::deallocate_ranges(self.namespace, &place.ranges, buf).tag(number.into());
                return Some(if self.urgent { request.urgent() } else { request });
            }
            let request = Request::of(io.op, self.namespace, lba, buf);
            let request = if self.urgent { request.urgent() } else { request };
            let [writes, reads] = self.durable;
            let durable = writes && matches!(io.op, Op::Write | Op::WriteZeroes) || reads && io.op == Op::Read;
            let request = if durable { request.fua() } else { request };
            return Some(request.bytes(io.len).tag(number.into()));
        }
    }
}

impl Left<'_> {
    /// One that was refused: its buffer is its place's again.
    #[cold]
    pub(super) fn give_back(&mut self, request: Request) -> Option<Io> {
        let place = self.places.get_mut(request.number() as usize)?;
        place.buf = request.into_buffer();
        Some(place.io())
    }
}

/// Makes each of `queues` ready for the buffers of its places before anything is measured, as fio registers its own before its clock
/// starts.
pub(super) fn prepare(queues: &[Held], places: &mut [Place]) {
    let depth = places.len() / queues.len().max(1);
    for (queue, places) in queues.iter().zip(places.chunks_mut(depth.max(1))) {
        for place in places {
            place.buf = place.buf.take().map(|buf| queue.as_ref().prepare(buf));
        }
    }
}
