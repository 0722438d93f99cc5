//! The choice of a path for each request. Either each path ends at a controller of its own
//! (`multipath.rs`), and threads choose as the library does ([`Chooser`]). Or all paths end at one
//! controller, and only the choice by `queue-depth` is simulated, with the cost of counting
//! requests in flight ([`ChoiceOnly`]): a published result that `xtask` compares with (its case
//! 004) measures that cost.

use std::cell::RefCell;
use std::rc::Rc;

use driver::paths::{PathId, PathSet, Policy, Selector, Token};
use units::{Class, Nanos};
use workload::Io;

use super::StepContext;
use crate::DepthCounter;

/// The selector of one thread, with the cost of its choices.
#[derive(Debug)]
pub(crate) struct Chooser {
    selector: Selector,
    policy: Policy,
}

/// The cost of reading cache lines that only this thread uses.
fn own_lines(lines: usize, cx: &StepContext, cold: bool) -> Nanos {
    let line = if cold { cx.costs.memory.line_memory } else { cx.costs.memory.line_own };
    Nanos(line.0 * lines as u64)
}

impl Chooser {
    pub(crate) fn new(selector: Selector, policy: Policy) -> Chooser {
        Chooser { selector, policy }
    }

    /// Chooses one of `usable`. Returns the path and the cost. [`Chooser::start`] follows.
    pub(super) fn choose(
        &mut self,
        usable: PathSet,
        class: Class,
        cx: &StepContext,
        cold: bool,
    ) -> (Option<PathId>, Nanos) {
        self.selector.begin(cx.now);
        let token = self.selector.send_next(usable, class, cx.now);
        self.selector.commit(cx.now);
        // The request is not counted yet, because the failover may still queue it.
        token.into_iter().for_each(|token| self.selector.abandon(token));
        let lines = match self.policy {
            _ if usable.is_at_most_one() => 0,
            Policy::Numa => 0,
            Policy::RoundRobin => 1,
            Policy::QueueDepth => usable.len(),
            // For each path: its count, the time of its last completion, and the latencies of the
            // class.
            Policy::Latency => 3 * usable.len(),
        };
        (token.map(|token| token.path()), own_lines(lines, cx, cold))
    }

    /// Counts a request that is sent on `path`. Returns the cost.
    pub(super) fn start(
        &mut self,
        path: PathId,
        class: Class,
        cx: &StepContext,
    ) -> (SentRequest, Nanos) {
        let token = self.selector.start(path, class, cx.now);
        (SentRequest { token, at: cx.now }, own_lines(self.counted_lines(), cx, false))
    }

    /// The request has ended. Returns the cost of decrementing the count.
    pub(super) fn end(&mut self, sent: SentRequest, cx: &StepContext) -> Nanos {
        self.selector.end(sent.token, cx.now - sent.at, cx.now);
        own_lines(self.counted_lines(), cx, false)
    }

    fn counted_lines(&self) -> usize {
        usize::from(matches!(self.policy, Policy::QueueDepth | Policy::Latency))
    }

    /// The request was cancelled on its path.
    pub(super) fn abandon(&mut self, sent: SentRequest) {
        self.selector.abandon(sent.token);
    }

    /// Resets the statistics of a path.
    pub(super) fn forget(&mut self, path: PathId) {
        self.selector.forget(path);
    }
}

/// A request that was sent on a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    token: Token,
    pub(super) at: Nanos,
}

/// Cache lines of a hardware context (`blk_mq_hw_ctx`) that reading its counter touches: the
/// counter is not on the line of the flags, which are read first.
const LINES_OF_CONTEXT: u64 = 2;

/// Requests in flight of all of a job's threads: counted by hardware queue and path, or by path.
#[derive(Debug)]
pub(crate) struct DepthCounts {
    counter: DepthCounter,
    paths: usize,
    counts: RefCell<Vec<u32>>,
    /// The cache line of the first count.
    first_line: usize,
}

impl DepthCounts {
    /// All counts are 0. Each is on a cache line of its own, which `grow` adds.
    pub(crate) fn new(
        counter: DepthCounter,
        paths: usize,
        queues: usize,
        grow: impl FnOnce(usize) -> usize,
    ) -> DepthCounts {
        let counts = match counter {
            DepthCounter::Sum => paths * queues,
            DepthCounter::Controller => paths,
        };
        DepthCounts {
            counter,
            paths,
            counts: RefCell::new(vec![0; counts]),
            first_line: grow(counts),
        }
    }
}

/// `queue-depth` of one thread where only the choice is simulated.
#[derive(Debug)]
pub(crate) struct ChoiceOnly {
    shared: Rc<DepthCounts>,
    /// The hardware queue that the thread posts to.
    queue: usize,
    /// By slot: index of the count that includes the slot's request.
    sent: Vec<Option<usize>>,
}

impl ChoiceOnly {
    /// The state for at most `depth` requests in flight.
    pub(crate) fn new(shared: Rc<DepthCounts>, queue: usize, depth: u32) -> ChoiceOnly {
        ChoiceOnly { shared, queue, sent: vec![None; depth as usize] }
    }

    /// A request is sent. Returns the cost of choosing its path, and of counting it.
    pub(super) fn send(&mut self, io: &Io, cx: &mut StepContext, cold: bool) -> (Nanos, Nanos) {
        let DepthCounts { counter, paths, counts, first_line } = &*self.shared;
        let mut counts = counts.borrow_mut();
        let lines_of_count = if *counter == DepthCounter::Sum { LINES_OF_CONTEXT } else { 1 };
        let mut choosing = Nanos::ZERO;
        let mut depth = |path: usize| -> u32 {
            let of_path = counts.iter().enumerate().skip(path).step_by(*paths);
            of_path
                .map(|(at, count)| {
                    let warm = cx.lines.read(cx.cpu, first_line + at);
                    choosing += if cold {
                        Nanos(cx.costs.memory.line_memory.0 * lines_of_count)
                    } else {
                        warm
                    };
                    count
                })
                .sum()
        };
        // Among equal paths each thread starts at a different one.
        let path = (0..*paths)
            .map(|n| (self.queue + n) % paths)
            .min_by_key(|&path| depth(path))
            .unwrap_or(0);
        let at = if *counter == DepthCounter::Sum { self.queue * paths + path } else { path };
        if let (Some(slot), Some(count)) = (self.sent.get_mut(io.slot as usize), counts.get_mut(at))
        {
            (*slot, *count) = (Some(at), *count + 1);
        }
        // The line has just been read, so it is warm.
        (choosing, cx.lines.write(cx.cpu, first_line + at))
    }

    /// The request has ended. Returns the cost.
    pub(super) fn end(&mut self, io: &Io, cx: &mut StepContext) -> Nanos {
        let Some(at) = self.sent.get_mut(io.slot as usize).and_then(Option::take) else {
            return Nanos::ZERO;
        };
        if let Some(count) = self.shared.counts.borrow_mut().get_mut(at) {
            *count -= 1;
        }
        cx.lines.write(cx.cpu, self.shared.first_line + at)
    }
}
