//! Choosing the path of each request, where several lead to a namespace: the selectors of `blkmq`, and what the cache lines
//! cost that they touch. Each path ends at a controller of its own (`head.rs`), or one stands for all of them where only the
//! choice is studied.

use std::fmt;
use std::rc::Rc;

use blkmq::paths::{Counting, Line, PathId, PathSet, Paths, Place, Policy, Table, Token};
use units::{Class, Nanos};
use workload::Io;

use super::ground::Ground;
use crate::{Costs, Lines};

/// Tables of counters that selectors have.
const TABLES: usize = 5;
/// Lines of a hardware queue's context that reading its counter takes: blk-mq keeps it apart from the flags, which are asked
/// first.
const CONTEXT: u64 = 2;

/// A thread's way of choosing.
pub(crate) struct Chooser {
    paths: Rc<Paths>,
    place: Place,
    /// The number of its first line among the machine's, and how many each table has.
    first: usize,
    stride: usize,
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chooser").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Adds up what the lines cost.
struct Bill<'a> {
    lines: &'a mut Lines,
    cpu: usize,
    first: usize,
    stride: usize,
    /// The caches are empty: what a line from memory costs, and how many of them a counter takes.
    cold: Option<Nanos>,
    each: u64,
    sum: Nanos,
}

impl Bill<'_> {
    fn number(&self, line: Line) -> usize {
        self.first + (line.table as usize).min(TABLES - 1) * self.stride + line.at as usize % self.stride
    }
}

impl blkmq::paths::Lines for Bill<'_> {
    fn read(&mut self, line: Line) {
        let warm = self.lines.read(self.cpu, self.number(line));
        let lines = if line.table == Table::Counts { self.each } else { 1 };
        self.sum += self.cold.map_or(warm, |cold| Nanos(cold.0 * lines));
    }

    fn write(&mut self, line: Line) {
        let warm = self.lines.write(self.cpu, self.number(line));
        // It has just been read, or is about to be used: only the first touch is cold.
        self.sum += warm;
    }
}

impl Chooser {
    /// Lines of a machine that a shape's counters take.
    pub(crate) fn lines(paths: &Paths) -> usize {
        TABLES * Chooser::stride(paths)
    }

    fn stride(paths: &Paths) -> usize {
        let shape = paths.shape();
        let places = shape.queues.max(shape.cpus).max(shape.namespaces);
        // A line for each class is the most that a table has for a path and place.
        usize::from(shape.paths) * usize::from(places) * 8
    }

    pub(crate) fn new(paths: Rc<Paths>, place: Place, first: usize) -> Chooser {
        let stride = Chooser::stride(&paths);
        Chooser { paths, place, first, stride }
    }

    fn bill<'a>(&self, cpu: usize, cold: bool, lines: &'a mut Lines, costs: &Costs) -> Bill<'a> {
        let cold = cold.then_some(costs.memory.line_memory);
        let by_queue = matches!(self.paths.policy(), Policy::QueueDepth(Counting::Sum | Counting::Queue));
        let each = if by_queue { CONTEXT } else { 1 };
        Bill { lines, cpu, first: self.first, stride: self.stride, cold, each, sum: Nanos::ZERO }
    }

    /// Chooses a path among `usable`: it, and what that costs.
    pub(super) fn choose(&self, usable: PathSet, class: Class, g: &mut Ground, cold: bool) -> (Option<PathId>, Nanos) {
        let mut bill = self.bill(g.cpu, cold, g.lines, g.costs);
        let chosen = self.paths.choose(usable, &self.place, class, g.now, &mut bill);
        (chosen, bill.sum)
    }

    /// Counts a request that is sent by `path`: what says so, and what that costs.
    pub(super) fn start(&self, path: PathId, class: Class, g: &mut Ground, cold: bool) -> (Sent, Nanos) {
        let mut bill = self.bill(g.cpu, cold, g.lines, g.costs);
        let token = self.paths.start(path, &self.place, class, g.now, &mut bill);
        (Sent { token, at: g.now }, bill.sum)
    }

    /// The request was answered: what taking it back from its count costs.
    pub(super) fn end(&self, sent: Sent, g: &mut Ground, cold: bool) -> Nanos {
        let mut bill = self.bill(g.cpu, cold, g.lines, g.costs);
        self.paths.end(sent.token, &self.place, g.now - sent.at, g.now, &mut bill);
        bill.sum
    }

    /// It was taken back from its path.
    pub(super) fn abandon(&self, sent: Sent) {
        self.paths.abandon(sent.token, &self.place, &mut ());
    }

    /// What was learnt of a path holds no more.
    pub(super) fn forget(&self, path: PathId) {
        self.paths.forget(path);
    }

    /// All paths there are.
    pub(super) fn all(&self) -> PathSet {
        PathSet::below(self.paths.shape().paths.into())
    }
}

/// A request that is on its way by a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    token: Token,
    pub(super) at: Nanos,
}

/// Where only the choice is studied: all paths end at the same controller.
#[derive(Debug)]
pub(crate) struct Study {
    chooser: Chooser,
    /// By slot.
    sent: Vec<Option<Sent>>,
}

impl Study {
    /// Of requests of which at most `depth` are in flight.
    pub(crate) fn new(chooser: Chooser, depth: u32) -> Study {
        Study { chooser, sent: vec![None; depth as usize] }
    }

    /// A request is sent: what the choice of its path costs, and what the counting does.
    pub(super) fn send(&mut self, io: &Io, g: &mut Ground, cold: bool) -> (Nanos, Nanos) {
        let class = Class::new(io.op, io.len);
        let (chosen, choosing) = self.chooser.choose(self.chooser.all(), class, g, cold);
        let Some(path) = chosen else { return (choosing, Nanos::ZERO) };
        let (sent, counting) = self.chooser.start(path, class, g, cold);
        if let Some(slot) = self.sent.get_mut(io.slot as usize) {
            *slot = Some(sent);
        }
        (choosing, counting)
    }

    /// The request has ended.
    pub(super) fn end(&mut self, io: &Io, g: &mut Ground, cold: bool) -> Nanos {
        let sent = self.sent.get_mut(io.slot as usize).and_then(Option::take);
        sent.map_or(Nanos::ZERO, |sent| self.chooser.end(sent, g, cold))
    }
}
