//! Choosing the path of each request, where several lead to a namespace. Each path ends at a controller of its own (`head.rs`), and a
//! thread chooses as the engine's do ([`Chooser`]); or one stands for all of them, and only what post 004 compares is simulated: what
//! it costs to count requests in flight in one place or another ([`Study`]).

use std::cell::RefCell;
use std::rc::Rc;

use driver::paths::{PathId, PathSet, Policy, Selector, Token};
use units::{Class, Nanos};
use workload::Io;

use super::StepContext;
use crate::DepthCounter;

/// A thread's way of choosing.
#[derive(Debug)]
pub(crate) struct Chooser {
    selector: Selector,
    policy: Policy,
}

/// What some cache lines of the thread's own cost.
fn own_lines(lines: usize, cx: &StepContext, cold: bool) -> Nanos {
    let line = if cold { cx.costs.memory.line_memory } else { cx.costs.memory.line_own };
    Nanos(line.0 * lines as u64)
}

impl Chooser {
    pub(crate) fn new(selector: Selector, policy: Policy) -> Chooser {
        Chooser { selector, policy }
    }

    /// Chooses a path among `usable`: it, and what that costs. [`Chooser::start`] follows.
    pub(super) fn choose(&mut self, usable: PathSet, class: Class, cx: &StepContext, cold: bool) -> (Option<PathId>, Nanos) {
        self.selector.begin(cx.now);
        let token = self.selector.send_next(usable, class, cx.now);
        self.selector.commit(cx.now);
        token.into_iter().for_each(|token| self.selector.abandon(token));
        let lines = match self.policy {
            _ if usable.is_at_most_one() => 0,
            Policy::Numa => 0,
            Policy::RoundRobin => 1,
            Policy::QueueDepth => usable.len(),
            // The count, when it answered, and the class's latencies.
            Policy::Latency => 3 * usable.len(),
        };
        (token.map(|token| token.path()), own_lines(lines, cx, cold))
    }

    /// Counts a request that is sent by `path`: what says so, and what that costs.
    pub(super) fn start(&mut self, path: PathId, class: Class, cx: &StepContext) -> (SentRequest, Nanos) {
        let token = self.selector.start(path, class, cx.now);
        (SentRequest { token, at: cx.now }, own_lines(self.counted_lines(), cx, false))
    }

    /// The request was answered: what taking it back from its count costs.
    pub(super) fn end(&mut self, sent: SentRequest, cx: &StepContext) -> Nanos {
        self.selector.end(sent.token, cx.now - sent.at, cx.now);
        own_lines(self.counted_lines(), cx, false)
    }

    fn counted_lines(&self) -> usize {
        usize::from(matches!(self.policy, Policy::QueueDepth | Policy::Latency))
    }

    /// It was taken back from its path.
    pub(super) fn abandon(&mut self, sent: SentRequest) {
        self.selector.abandon(sent.token);
    }

    /// What was learnt of a path holds no more.
    pub(super) fn forget(&mut self, path: PathId) {
        self.selector.forget(path);
    }
}

/// A request that is on its way by a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    token: Token,
    pub(super) at: Nanos,
}

/// Lines of a hardware queue's context that reading its counter takes: blk-mq keeps it apart from the flags, which are asked
/// first.
const CONTEXT: u64 = 2;

/// What is in flight, as a job's threads count it: by hardware queue and path, or by path.
#[derive(Debug)]
pub(crate) struct DepthCounts {
    counter: DepthCounter,
    paths: usize,
    counts: RefCell<Vec<u32>>,
    /// The number of the first count's cache line among the machine's.
    first_line: usize,
}

impl DepthCounts {
    /// Counts, each on a cache line that `grow` makes.
    pub(crate) fn new(counter: DepthCounter, paths: usize, queues: usize, grow: impl FnOnce(usize) -> usize) -> DepthCounts {
        let counts = match counter {
            DepthCounter::Sum => paths * queues,
            DepthCounter::Controller => paths,
        };
        DepthCounts { counter, paths, counts: RefCell::new(vec![0; counts]), first_line: grow(counts) }
    }
}

/// One thread's `queue-depth` where only the choice is studied: all paths end at the same controller.
#[derive(Debug)]
pub(crate) struct Study {
    shared: Rc<DepthCounts>,
    /// The hardware queue that the thread posts to.
    queue: usize,
    /// By slot: what the request is counted in.
    sent: Vec<Option<usize>>,
}

impl Study {
    /// Of requests of which at most `depth` are in flight.
    pub(crate) fn new(shared: Rc<DepthCounts>, queue: usize, depth: u32) -> Study {
        Study { shared, queue, sent: vec![None; depth as usize] }
    }

    /// A request is sent: what the choice of its path costs, and what the counting does.
    pub(super) fn send(&mut self, io: &Io, cx: &mut StepContext, cold: bool) -> (Nanos, Nanos) {
        let DepthCounts { counter, paths, counts, first_line } = &*self.shared;
        let mut counts = counts.borrow_mut();
        let lines_of_count = if *counter == DepthCounter::Sum { CONTEXT } else { 1 };
        let mut choosing = Nanos::ZERO;
        let mut depth = |path: usize| -> u32 {
            let of_path = counts.iter().enumerate().skip(path).step_by(*paths);
            of_path
                .map(|(at, count)| {
                    let warm = cx.lines.read(cx.cpu, first_line + at);
                    choosing += if cold { Nanos(cx.costs.memory.line_memory.0 * lines_of_count) } else { warm };
                    count
                })
                .sum()
        };
        // Of several the first from the queue's own on, so that not all begin with the same.
        let path = (0..*paths).map(|n| (self.queue + n) % paths).min_by_key(|&path| depth(path)).unwrap_or(0);
        let at = if *counter == DepthCounter::Sum { self.queue * paths + path } else { path };
        if let (Some(slot), Some(count)) = (self.sent.get_mut(io.slot as usize), counts.get_mut(at)) {
            (*slot, *count) = (Some(at), *count + 1);
        }
        // It has just been read: it is not cold.
        (choosing, cx.lines.write(cx.cpu, first_line + at))
    }

    /// The request has ended.
    pub(super) fn end(&mut self, io: &Io, cx: &mut StepContext) -> Nanos {
        let Some(at) = self.sent.get_mut(io.slot as usize).and_then(Option::take) else { return Nanos::ZERO };
        if let Some(count) = self.shared.counts.borrow_mut().get_mut(at) {
            *count -= 1;
        }
        cx.lines.write(cx.cpu, self.shared.first_line + at)
    }
}
