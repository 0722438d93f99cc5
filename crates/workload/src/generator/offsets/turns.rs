//! Which of a job's files has the next I/O.

use super::walk::{Walk, below};
use crate::job::{FileService, Job};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The order of the files.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    service: FileService,
    /// I/Os to a file before the next one's turn, and how many of them are left.
    run: u64,
    left: u64,
    at: usize,
}

impl Turns {
    /// Of `job`.
    pub fn new(job: &Job) -> Turns {
        let run = job.service_run.max(1);
        Turns { service: job.service, run, left: run, at: 0 }
    }

    /// Whether files are done: each has its bytes, and then no more until all have had theirs. One after the other, one I/O each,
    /// needs no count of bytes.
    pub fn counts(&self) -> bool {
        self.service != FileService::RoundRobin || self.run > 1
    }

    /// Begins anew.
    pub fn start_pass(&mut self, walks: &mut [Walk]) {
        (self.at, self.left) = (0, self.run);
        walks.iter_mut().for_each(|walk| walk.left = walk.region.len);
    }

    /// The index of the next file.
    #[inline]
    pub fn next(&mut self, walks: &mut [Walk], rng: &mut Xoshiro256PlusPlus) -> usize {
        if !self.counts() {
            let at = self.at;
            self.at = if at + 1 >= walks.len() { 0 } else { at + 1 };
            return at;
        }
        if walks.iter().all(|walk| walk.left == 0) {
            self.start_pass(walks);
        }
        let done = |at: usize| walks.get(at).is_none_or(|walk| walk.left == 0);
        let moves = match self.service {
            FileService::Sequential => false,
            FileService::RoundRobin | FileService::Random => self.left == 0,
        };
        if moves || done(self.at) {
            self.left = self.run;
            let from = match self.service {
                FileService::Random => below(rng, walks.len() as u64) as usize,
                FileService::RoundRobin | FileService::Sequential => self.at + 1,
            };
            let next = (0..walks.len()).map(|step| (from + step) % walks.len()).find(|at| !done(*at));
            self.at = next.unwrap_or(0);
        }
        self.left = self.left.saturating_sub(1);
        self.at
    }

    /// A file has had `bytes` bytes; of what is left of it, less than `unit` is nothing.
    pub fn had(&self, walk: &mut Walk, bytes: u64, unit: u64) {
        walk.left = walk.left.saturating_sub(bytes);
        if walk.left < unit {
            walk.left = 0;
        }
    }
}
