//! Choosing the path of each request, where several lead to a namespace: the selectors of `blkmq`, and what the cache lines
//! cost that they touch. Each path ends at a controller of its own, or one stands for all of them where only the choice is
//! studied.

use std::fmt;
use std::rc::Rc;

use blkmq::paths::{Counting, Line, PathSet, Paths, Place, Policy, Table, Token};
use units::{Class, Nanos};
use workload::Io;

use super::Ground;
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
    /// Whether each path is a target of its own.
    apart: bool,
    /// By slot.
    tokens: Vec<Option<(Token, Nanos)>>,
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

    pub(crate) fn new(paths: Rc<Paths>, place: Place, first: usize, (depth, apart): (u32, bool)) -> Chooser {
        let stride = Chooser::stride(&paths);
        Chooser { paths, place, first, stride, apart, tokens: vec![None; depth as usize] }
    }

    fn bill<'a>(&self, cpu: usize, cold: bool, lines: &'a mut Lines, costs: &Costs) -> Bill<'a> {
        let cold = cold.then_some(costs.memory.line_memory);
        let by_queue = matches!(self.paths.policy(), Policy::QueueDepth(Counting::Sum | Counting::Queue));
        let each = if by_queue { CONTEXT } else { 1 };
        Bill { lines, cpu, first: self.first, stride: self.stride, cold, each, sum: Nanos::ZERO }
    }

    /// Chooses, which may be the request's target, and counts it: what the choice costs, and what the counting does.
    pub(super) fn send(&mut self, io: &mut Io, g: &mut Ground, cold: bool) -> (Nanos, Nanos) {
        let now = g.now;
        let class = Class::new(io.op, io.len);
        let usable = PathSet::below(self.paths.shape().paths.into());
        let mut bill = self.bill(g.cpu, cold, g.lines, g.costs);
        let chosen = self.paths.choose(usable, &self.place, class, now, &mut bill);
        let choosing = std::mem::take(&mut bill.sum);
        let token = chosen.map(|path| (self.paths.start(path, &self.place, class, now, &mut bill), now));
        let counting = bill.sum;
        if let Some(path) = chosen.filter(|_| self.apart) {
            io.target = path.0.into();
        }
        if let Some(slot) = self.tokens.get_mut(io.slot as usize) {
            *slot = token;
        }
        (choosing, counting)
    }

    /// The request has ended, and is as it was before it was sent.
    pub(super) fn end(&mut self, io: &mut Io, g: &mut Ground, cold: bool) -> Nanos {
        if self.apart {
            io.target = 0;
        }
        let Some((token, sent)) = self.tokens.get_mut(io.slot as usize).and_then(Option::take) else { return Nanos::ZERO };
        let mut bill = self.bill(g.cpu, cold, g.lines, g.costs);
        self.paths.end(token, &self.place, g.now - sent, g.now, &mut bill);
        bill.sum
    }
}
