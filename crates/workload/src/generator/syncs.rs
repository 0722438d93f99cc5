//! Flushes between writes: `fsync`, `fdatasync` and `end_fsync`.

use crate::job::Job;

/// Which targets are to be flushed, and when. A Flush is an I/O like others: it makes durable what had completed when it was
/// issued, and does not wait for what is in flight.
#[derive(Debug)]
pub(super) struct Syncs {
    /// Writes between two; 0: only at the end.
    every: u32,
    at_end: bool,
    /// Writes since the last one.
    writes: u32,
    /// Of each target, whether there was one since its last Flush.
    written: Box<[bool]>,
    /// Targets whose turn it is.
    owed: Vec<u16>,
    /// Those of the end were taken, and nothing was written since.
    closed: bool,
}

impl Syncs {
    /// `None` if `job` asks for none or writes nothing.
    pub fn new(job: &Job, targets: usize) -> Option<Syncs> {
        let asked = job.sync_every > 0 || job.sync_at_end;
        (asked && job.pattern.writes()).then(|| Syncs {
            every: job.sync_every,
            at_end: job.sync_at_end,
            writes: 0,
            written: vec![false; targets].into(),
            owed: Vec::new(),
            closed: true,
        })
    }

    /// A write to `target` was issued.
    pub fn wrote(&mut self, target: u16) {
        self.writes = self.writes.saturating_add(1);
        self.closed = false;
        if let Some(written) = self.written.get_mut(usize::from(target)) {
            *written = true;
        }
    }

    /// The target to flush before the next I/O.
    pub fn due(&mut self) -> Option<u16> {
        if self.every > 0 && self.writes >= self.every {
            self.writes = 0;
            self.owed.extend(self.written.iter().zip(0..).filter(|(written, _)| **written).map(|(_, target)| target));
            self.written.fill(false);
        }
        self.owed.pop()
    }

    /// The target to flush now that all writes have completed: each of them, because an earlier Flush may have passed a write.
    pub fn last(&mut self) -> Option<u16> {
        if self.at_end && !self.closed {
            (self.closed, self.writes) = (true, 0);
            self.owed = (0..self.written.len() as u16).collect();
            self.written.fill(false);
        }
        if self.closed { self.owed.pop() } else { None }
    }
}
