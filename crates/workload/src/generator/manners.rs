//! When a job issues, apart from rates: pauses, turns, a depth that keeps a latency, an end by a steady state; and what it notes down.

use super::flow::Part;
use super::steady::Watch;
use super::trail::Trail;
use crate::job::{Job, LatencyTarget, Think};
use units::{Nanos, Op};

/// What only jobs with such options need.
#[derive(Debug, Default)]
pub(super) struct Manners {
    pub think: Option<Pauses>,
    pub flow: Option<Part>,
    pub depth: Option<Depth>,
    pub steady: Option<Watch>,
    pub trail: Option<Trail>,
}

/// What has to happen before the next I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nothing: so many may go.
    Go(u64),
    /// All that is in flight has to complete.
    Drain,
    /// One I/O has to complete.
    Reap,
    /// This instant has to come.
    Until(Nanos),
}

impl Manners {
    /// Those of `job`; `None`: it has none.
    pub fn new(job: &Job) -> Option<Manners> {
        let manners = Manners {
            think: job.think.map(Pauses::new),
            flow: None,
            depth: job.latency_target.map(|target| Depth::new(target, job.iodepth)),
            steady: job.steady.map(Watch::new),
            trail: Trail::new(job),
        };
        let any = manners.think.is_some() || manners.depth.is_some() || manners.steady.is_some() || manners.trail.is_some();
        (any || job.flow.is_some()).then_some(manners)
    }

    /// The job begins to issue.
    pub fn begin(&mut self, now: Nanos) {
        if let Some(think) = &mut self.think {
            think.resumed = now;
        }
        if let Some(flow) = &mut self.flow {
            flow.begin();
        }
        if let Some(trail) = &mut self.trail {
            trail.begin(now);
        }
    }

    /// The job has ended.
    pub fn end(&mut self, now: Nanos) {
        if let Some(flow) = &mut self.flow {
            flow.end();
        }
        if let Some(trail) = &mut self.trail {
            trail.end(now);
        }
    }

    /// What has to happen before the next I/O, with `in_flight` of them out.
    pub fn before(&mut self, now: Nanos, in_flight: u32) -> Hold {
        let mut most = u64::MAX;
        if let Some(think) = &mut self.think {
            match think.before(now, in_flight) {
                Hold::Go(n) => most = n,
                hold => return hold,
            }
        }
        if let Some(depth) = &mut self.depth {
            depth.judge(now);
            if in_flight >= depth.depth {
                return Hold::Reap;
            }
            most = most.min(u64::from(depth.depth - in_flight));
        }
        if let Some(flow) = &self.flow {
            match flow.room() {
                // A thread that is ahead has nothing to do for others but to complete its own.
                0 => return Hold::Until(now + flow.sleep()),
                room => most = most.min(room),
            }
        }
        Hold::Go(most)
    }

    /// An I/O of the job itself was issued.
    pub fn issued(&mut self) {
        if let Some(think) = &mut self.think {
            think.left = think.left.saturating_sub(1);
        }
        if let Some(flow) = &mut self.flow {
            flow.issued();
        }
    }

    /// An I/O completed after `latency`.
    pub fn completed(&mut self, op: Op, latency: Nanos) {
        if let Some(depth) = self.depth.as_mut().filter(|_| op != Op::Flush) {
            depth.completed(latency);
        }
        if let Some(steady) = &mut self.steady {
            steady.completed(latency);
        }
    }
}

/// `thinktime`.
#[derive(Debug)]
pub(super) struct Pauses {
    think: Think,
    /// I/Os until the next pause.
    left: u64,
    /// When the last pause ended.
    resumed: Nanos,
    /// The pause under way: from and until.
    pause: Option<(Nanos, Nanos)>,
}

impl Pauses {
    fn new(think: Think) -> Pauses {
        Pauses { think, left: think.blocks, resumed: Nanos::ZERO, pause: None }
    }

    fn before(&mut self, now: Nanos, in_flight: u32) -> Hold {
        if let Some((_, until)) = self.pause {
            if now < until {
                return Hold::Until(until);
            }
            (self.pause, self.left, self.resumed) = (None, self.think.blocks, now);
        }
        let over = self.think.every.is_some_and(|every| now >= self.resumed + every);
        if self.left > 0 && !over {
            return Hold::Go(self.left);
        }
        if in_flight > 0 {
            return Hold::Drain;
        }
        let until = now + self.think.time;
        self.pause = Some((now, until));
        Hold::Until(until)
    }

    /// Until when the thread computes, if it pauses.
    pub fn computes_until(&self) -> Option<Nanos> {
        self.pause.map(|(from, _)| from + self.think.spin).filter(|_| self.think.spin > Nanos::ZERO)
    }
}

/// `latency_target`: the largest depth that keeps the latency, looked for by doubling and halving.
#[derive(Debug)]
pub(super) struct Depth {
    target: LatencyTarget,
    /// The depth that is tried.
    pub depth: u32,
    most: u32,
    /// The largest that was fast enough, and the smallest that was not.
    good: u32,
    bad: Option<u32>,
    window_end: Option<Nanos>,
    /// I/Os of the window, and those that were fast enough.
    all: u64,
    fast: u64,
    /// It is known.
    pub found: bool,
}

impl Depth {
    fn new(target: LatencyTarget, most: u32) -> Depth {
        Depth { target, depth: 1, most: most.max(1), good: 0, bad: None, window_end: None, all: 0, fast: 0, found: false }
    }

    fn completed(&mut self, latency: Nanos) {
        self.all += 1;
        self.fast += u64::from(latency <= self.target.target);
    }

    /// Looks at the window that has ended, if one has, and chooses the next depth.
    fn judge(&mut self, now: Nanos) {
        let end = *self.window_end.get_or_insert(now + self.target.window);
        if now < end || self.all == 0 || self.found && !self.target.run {
            return;
        }
        let kept = self.fast as f64 * 100.0 >= self.all as f64 * self.target.percentile;
        (self.all, self.fast, self.window_end) = (0, 0, Some(now + self.target.window));
        if kept {
            self.good = self.good.max(self.depth);
        } else {
            self.bad = Some(self.bad.map_or(self.depth, |bad| bad.min(self.depth)));
            // What was fast enough once is not any more: begin below.
            if self.good >= self.depth {
                self.good = self.depth / 2;
            }
        }
        let next = match self.bad {
            Some(bad) => u32::midpoint(self.good, bad),
            None => self.depth.saturating_mul(2),
        };
        let next = next.clamp(1, self.most);
        self.found = next == self.depth || next == self.good;
        if self.found && self.target.run {
            self.bad = None;
        }
        self.depth = if self.found { self.good.max(1) } else { next };
    }

    /// The job has nothing left to find out.
    pub fn is_over(&self) -> bool {
        self.found && !self.target.run
    }
}
