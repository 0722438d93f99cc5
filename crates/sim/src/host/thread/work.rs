//! What a thread does for its application: it posts what waits, hands over what has come, and asks for more.

use driver::{Buffers, Completed, RetryDecision};
use units::{Nanos, Op};
use workload::{ErrorCode, Io, Next};

use super::super::head::{Head, Todo};
use super::super::{Effect, Ground, Progress};
use super::{At, Goal, Thread};
use crate::requests::{Failed, RETRY, Token};
use crate::{Engine, Host, SimError};

impl Thread {
    /// Whether what the application waits for has come.
    pub(super) fn reached(&self, now: Nanos) -> bool {
        self.goal.is_none_or(|goal| self.app.ready.len() >= goal.min as usize || now >= goal.until)
    }

    /// Posts what waits, else hands over what was waited for, else asks the generator.
    #[inline(never)]
    pub(super) fn load(&mut self, g: &mut Ground) -> Result<Progress, SimError> {
        if self.app.can_post() {
            return Ok(self.enter(g));
        }
        if let Some(goal) = self.goal.take()
            && !self.app.ready.is_empty()
        {
            return Ok(self.hand_over(g, goal.max));
        }
        if self.app.commits {
            return Ok(self.enter(g));
        }
        let next = self.app.generator.next(g.now);
        // What a job did in its ramp counts once it is over, and CPUs and devices have no figures of that alone.
        if !self.app.measured && self.app.generator.measured_since().is_some() && !matches!(next, Next::Done) {
            self.app.measured = true;
            g.out.push(Effect::Measured);
        }
        match next {
            Next::Issue(io) => self.begin(g, io),
            Next::Commit => {
                self.app.commits = true;
                Ok(self.enter(g))
            }
            Next::Reap { min } => {
                let max = self.app.generator.complete_max().max(min);
                let next_due = self.app.generator.next_due();
                Ok(self.wait(g, Goal { min, max, until: Nanos::MAX, next_due }))
            }
            Next::Wait { until } => Ok(self.wait(g, Goal { min: 1, max: u32::MAX, until, next_due: None })),
            Next::Done => Ok(self.finish(g)),
        }
    }

    /// Submits: by a system call, in the kernel host.
    fn enter(&mut self, g: &Ground) -> Progress {
        self.at = At::Commit { lane: 0, waited: false };
        let cold = std::mem::take(&mut self.app.cold);
        if g.host == Host::User {
            return Progress::Private(Nanos::ZERO);
        }
        self.in_call = true;
        let engine = self.engine_costs(g);
        let block = &g.costs.block;
        let each = (engine.submit + block.submit).0 * self.app.waiting as u64;
        let (again, memory) = if cold { (g.costs.thread.cold, g.costs.memory.line_memory) } else { (Nanos::ZERO, Nanos::ZERO) };
        let pages = (block.page + memory).0 * std::mem::take(&mut self.app.pages);
        Progress::Private(g.costs.thread.syscall + engine.submit_call + again + Nanos(each + pages))
    }

    /// Hands over as many completions as the application takes at once; it computes for each. The others wait until it
    /// asks again.
    fn hand_over(&mut self, g: &mut Ground, most: u32) -> Progress {
        let n = self.app.ready.len().min(most as usize);
        self.app.touch(g);
        let mut counting = Nanos::ZERO;
        for (io, result) in self.app.ready.drain(..n) {
            match result {
                // A Flush is no I/O: in no figure of a job's is it one.
                Ok(()) => self.counts.completed += u64::from(io.op != Op::Flush),
                Err(Failed::Status(_) | Failed::NoPath) => self.counts.failed += 1,
                Err(Failed::TakenBack) => self.counts.lost += 1,
            }
            if let Some(study) = &mut self.app.study {
                counting += study.end(&io, g);
            }
            let (requests, generator) = (&self.app.requests, &mut self.app.generator);
            let result = result.map_err(|_| ErrorCode::EIO);
            requests.with_buffer(&io, |buffer| generator.completed(io.slot, g.now, result, buffer));
        }
        counting += self.pay_for_paths();
        self.in_call = false;
        let work = Nanos(self.app.work.0 * n as u64);
        self.counts.application += work;
        let each = if g.host == Host::User { g.costs.library.deliver } else { self.engine_costs(g).take };
        Progress::Private(work + counting + Nanos(each.0 * n as u64))
    }

    fn begin(&mut self, g: &mut Ground, io: Io) -> Result<Progress, SimError> {
        let app = &mut self.app;
        app.touch(g);
        if io.op == Op::Write && app.generator.verifies() {
            app.requests.with_buffer(&io, |buffer| app.generator.fill(&io, buffer));
        }
        let mut chosen = Nanos::ZERO;
        if let Some(study) = &mut app.study {
            let (choosing, counting) = study.send(&io, g, app.cold);
            self.counts.choosing += choosing;
            chosen = choosing + counting;
        }
        let parts = match app.head.as_mut().map_or(Some(Todo::Send(io)), |head| head.submit(io, g, app.cold)) {
            Some(Todo::Send(io)) => app.launch(io)?,
            Some(Todo::Over(ended)) => {
                app.ready.push_back(ended);
                0
            }
            None => {
                app.pump(g)?;
                0
            }
        };
        app.pages += u64::from(io.len.div_ceil(4096)).saturating_sub(parts as u64);
        let cost = if g.host == Host::User { g.costs.library.submit } else { Nanos::ZERO };
        chosen += self.pay_for_paths();
        Ok(Progress::Private(chosen + Nanos(cost.0 * parts as u64)))
    }

    /// What choosing paths and counting requests has cost since it was paid for last.
    fn pay_for_paths(&mut self) -> Nanos {
        let (choosing, counting) = self.app.head.as_mut().map(Head::take_costs).unwrap_or_default();
        self.counts.choosing += choosing;
        choosing + counting
    }

    /// If there is news of the paths, what was sent by those that are gone goes another way, and whatever waited goes on.
    pub(super) fn hear_of_paths(&mut self, g: &mut Ground) -> Result<(), SimError> {
        let Some(head) = self.app.head.as_ref().filter(|head| head.is_due(g.now)) else { return Ok(()) };
        let spread = self.app.spread;
        for path in head.closed() {
            for lane in path * spread..(path + 1) * spread {
                self.app.waiting -= self.app.backlog[lane].len();
                for token in std::mem::take(&mut self.app.backlog[lane]) {
                    self.app.end_taken_back(token, g.now)?;
                }
            }
        }
        let lanes = &self.lanes;
        if let Some(head) = &mut self.app.head {
            head.hear(g.now, |path| lanes[path * spread..(path + 1) * spread].iter().all(|lane| lane.mine == 0));
        }
        self.app.stuck = false;
        self.app.pump(g)
    }

    /// Waits: by a system call, in the kernel host, unless that of the submission does, or the ring has enough.
    fn wait(&mut self, g: &Ground, goal: Goal) -> Progress {
        self.wait_for(goal);
        let ring = self.engine != Engine::Libaio && (self.in_call || self.reached(g.now));
        if g.host == Host::User || ring {
            return Progress::Private(Nanos::ZERO);
        }
        Progress::Private(g.costs.thread.syscall + self.engine_costs(g).wait_call)
    }

    /// Waits for what the goal says; then it may leave the library to compute.
    pub(super) fn wait_for(&mut self, goal: Goal) {
        self.goal = Some(goal);
        self.leaving = self.app.think > Nanos::ZERO;
        self.at = At::Decide;
    }

    /// Tells what has completed from what is posted again.
    pub(super) fn sort(&mut self, g: &mut Ground, taken: &mut Vec<Completed>) -> Result<(), SimError> {
        self.app.stuck = false;
        for completed in taken.drain(..) {
            let token = Token::from_word(completed.token);
            let target = self.app.requests.target(token);
            let lane = self.app.lane_of(token);
            let lane_state = &mut self.lanes[lane];
            lane_state.mine = lane_state.mine.saturating_sub(1);
            let queue = lane_state.queue;
            if completed.status.is_success() {
                self.app.completed[target] += 1;
                self.app.end(token, Ok(()), g)?;
            } else {
                self.counts.bad_statuses += 1;
                let retries = self.app.requests.retries(token)?;
                match RETRY.after_status(completed.status, retries, true) {
                    RetryDecision::Retry => self.app.again(lane, token),
                    RetryDecision::Fail | RetryDecision::FailLeaked => self.app.end(token, Err(Failed::Status(completed.status)), g)?,
                }
            }
            if !g.queues[queue].stuck.is_empty() {
                g.out.push(Effect::TagsFree(queue));
            }
        }
        self.app.pump(g)
    }

    /// A reset took a command back: it is posted again, goes another way, or fails.
    pub(crate) fn taken_back(&mut self, word: u64, buffers: Buffers, now: Nanos) -> Result<(), SimError> {
        let token = Token::from_word(word);
        let retries = self.app.requests.retries(token)?;
        let lane = self.app.lane_of(token);
        self.lanes[lane].mine = self.lanes[lane].mine.saturating_sub(1);
        match RETRY.after_reset(buffers, retries, true) {
            RetryDecision::Retry if self.app.head.is_none() => self.app.again(lane, token),
            _ => self.app.end_taken_back(token, now)?,
        }
        Ok(())
    }
}
