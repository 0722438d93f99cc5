//! The places of a job thread's I/Os: what each is while it is in flight, its buffer while it is not, and the request in between.

use reap::{DmaBuf, Namespace, Request};
use units::Op;
use workload::Io;

use crate::bench::lanes::Held;

/// Where an I/O is kept while it is in flight, and its buffer while it is not.
/// Field by field: copied as a whole, what is between an [`Io`]'s fields would be copied byte by byte.
pub(super) struct Place {
    offset: u64,
    slot: u32,
    len: u32,
    target: u16,
    op: Op,
    /// `None`: in flight, or lost with its controller.
    pub buf: Option<DmaBuf>,
}

impl Place {
    /// No I/O, and a buffer.
    pub(super) fn new(buf: DmaBuf) -> Place {
        Place { offset: 0, slot: 0, len: 0, target: 0, op: Op::Read, buf: Some(buf) }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, io: &Io) {
        (self.offset, self.slot, self.len, self.target, self.op) = (io.offset, io.slot, io.len, io.target, io.op);
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
    /// Force Unit Access of writes.
    pub durable: bool,
}

impl Iterator for Left<'_> {
    type Item = Request;

    #[inline(always)] // Once for each I/O, into the library's loop.
    fn next(&mut self) -> Option<Request> {
        loop {
            let number = *self.numbers.next()?;
            let Some(place) = self.places.get_mut(number as usize) else { continue };
            let (io, Some(buf)) = (place.io(), place.buf.take()) else { continue };
            let lba = io.offset >> self.block_shift;
            let request = Request::of(io.op, self.namespace, lba, buf);
            let request = if self.urgent { request.urgent() } else { request };
            let request = if self.durable && io.op == Op::Write { request.fua() } else { request };
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
