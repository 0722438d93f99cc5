//! The I/Os of a list (`read_iolog`), in their order.

use super::super::io::Place;
use crate::job::{Iolog, IologStep};
use units::Nanos;

/// How far a list has been gone through.
#[derive(Clone, Debug)]
pub(super) struct List {
    list: Box<Iolog>,
    at: usize,
    /// Pauses so far, where the list says them.
    waited: Nanos,
}

impl List {
    pub fn new(list: Box<Iolog>) -> List {
        List { list, at: 0, waited: Nanos::ZERO }
    }

    /// I/Os of the whole list, and their bytes.
    pub fn amount(&self) -> (u64, u64) {
        let bytes = |step: &IologStep| if let IologStep::Io { len, .. } = step { Some(*len) } else { None };
        self.list.steps.iter().filter_map(bytes).fold((0, 0), |(ios, sum), len| (ios + 1, u64::saturating_add(sum, len)))
    }

    /// The longest I/O in bytes.
    pub fn longest(&self) -> u64 {
        let len = |step: &IologStep| if let IologStep::Io { len, .. } = step { *len } else { 0 };
        self.list.steps.iter().map(len).max().unwrap_or(0)
    }

    pub fn start_pass(&mut self) {
        (self.at, self.waited) = (0, Nanos::ZERO);
    }

    /// The next I/O, on `targets` targets, and when it is due from the start; after the last one the first.
    pub fn next(&mut self, targets: usize) -> (Place, Option<Nanos>) {
        for _ in 0..=self.list.steps.len() {
            let step = self.list.steps.get(self.at).copied();
            self.at += 1;
            match step {
                Some(IologStep::Io { op, file, offset, len, at }) => {
                    let target = (usize::from(file) % targets.max(1)) as u16;
                    let due = at.or(Some(self.waited).filter(|waited| *waited > Nanos::ZERO));
                    return (Place { op, target, offset, len: len.min(u64::from(u32::MAX)) as u32 }, due);
                }
                Some(IologStep::Wait(span)) => self.waited += span,
                None => self.start_pass(),
            }
        }
        (Place { op: units::Op::Read, target: 0, offset: 0, len: 0 }, None)
    }
}
