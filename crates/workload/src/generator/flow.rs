//! `flow`: threads that take turns in the ratio of their weights.

use crate::job::{Flow, Job};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use units::Nanos;

/// The flows of a run, by `flow_id`. Threads of one flow have a generator each and share the count of what they issue.
#[derive(Debug, Default)]
pub struct Flows(BTreeMap<u64, Arc<Shared>>);

/// What the threads of one flow have in common. The counts decide when an I/O goes, not what it does: no order is needed among them.
#[derive(Debug, Default)]
struct Shared {
    /// Weights of the threads that run.
    weight: AtomicU64,
    /// I/Os of the threads that run.
    issued: AtomicU64,
}

/// One thread's part in a flow.
#[derive(Debug)]
pub(super) struct Part {
    shared: Arc<Shared>,
    flow: Flow,
    /// I/Os of this thread, those included that it would have issued had it been there from the start.
    issued: u64,
    running: bool,
}

/// Between two looks of a thread that is ahead and whose job names no `flow_sleep`.
const USUAL_SLEEP: Nanos = Nanos::from_micros(50);

impl Flows {
    /// The part of a thread of `job`, if the job has one.
    pub(super) fn part(&mut self, job: &Job) -> Option<Part> {
        let flow = job.flow?;
        let shared = Arc::clone(self.0.entry(flow.id).or_default());
        Some(Part { shared, flow, issued: 0, running: false })
    }
}

impl Part {
    /// The thread begins: from now on it takes turns with those that run already.
    pub fn begin(&mut self) {
        let (weight, issued) = (self.shared.weight.load(Relaxed), self.shared.issued.load(Relaxed));
        self.issued = (u128::from(issued) * u128::from(self.flow.weight)).checked_div(u128::from(weight)).unwrap_or(0) as u64;
        self.shared.weight.fetch_add(self.flow.weight, Relaxed);
        self.shared.issued.fetch_add(self.issued, Relaxed);
        self.running = true;
    }

    /// The thread has ended: the others go on without it.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.running) {
            self.shared.weight.fetch_sub(self.flow.weight, Relaxed);
            self.shared.issued.fetch_sub(self.issued, Relaxed);
        }
    }

    /// I/Os that may be issued now, at most; 0: others have to catch up.
    pub fn room(&self) -> u64 {
        let (weight, issued) = (self.shared.weight.load(Relaxed).max(1), self.shared.issued.load(Relaxed));
        // Each round of the flow, every thread may issue as many I/Os as it has weight.
        let most = (u128::from(issued) + u128::from(weight)) * u128::from(self.flow.weight) / u128::from(weight);
        most.saturating_sub(u128::from(self.issued)).min(u128::from(u64::MAX)) as u64
    }

    /// An I/O was issued.
    pub fn issued(&mut self) {
        self.issued += 1;
        self.shared.issued.fetch_add(1, Relaxed);
    }

    /// How long a thread waits that is ahead.
    pub fn sleep(&self) -> Nanos {
        self.flow.sleep.max(USUAL_SLEEP)
    }
}
