//! Trims of several ranges: `num_range`.

use super::Target;
use super::offsets::{Misfit, Place, Stream};
use crate::job::Job;

/// The ranges of what is in flight.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Ranges of each I/O.
    most: usize,
    /// Those of the I/O that is issued next: offset and length.
    next: Vec<(u64, u32)>,
    /// Those of the I/O in each slot.
    of: Box<[Vec<(u64, u32)>]>,
}

impl Ranges {
    /// Those of `job`, which has so many slots; `None`: each of its I/Os is one range.
    pub(super) fn new(job: &Job, targets: &[Target], slots: u32) -> Result<Option<Ranges>, Misfit> {
        let most = job.ranges_of_each() as usize;
        if most > 1 && targets.len() > 1 {
            return Err(Misfit::SeveralTargets { job: job.name.clone(), targets: targets.len() });
        }
        let of = || vec![Vec::with_capacity(most); slots as usize].into();
        Ok((most > 1).then(|| Ranges { most, next: Vec::with_capacity(most), of: of() }))
    }

    /// Takes the next I/Os of `stream` together, fewer where `left` bytes are all that is left.
    pub(super) fn gather(&mut self, stream: &mut Stream, left: u64) -> Place {
        let first = stream.next();
        self.next.clear();
        self.next.push((first.offset, first.len));
        let mut len = u64::from(first.len);
        while self.next.len() < self.most && len < left {
            let place = stream.next();
            self.next.push((place.offset, place.len));
            len += u64::from(place.len);
        }
        // No job has I/Os of more than 2 GiB.
        Place { len: len as u32, ..first }
    }

    /// What was gathered last is issued in this slot.
    pub(super) fn issued(&mut self, slot: u32) {
        if let Some(ranges) = self.of.get_mut(slot as usize) {
            ranges.clone_from(&self.next);
        }
    }

    /// The ranges of what was gathered last.
    pub(super) fn gathered(&self) -> &[(u64, u32)] {
        &self.next
    }

    pub(super) fn of(&self, slot: u32) -> &[(u64, u32)] {
        self.of.get(slot as usize).map_or(&[], Vec::as_slice)
    }
}
