//! What a thread does for its application: post commands, hand over completions, and get the
//! generator's next I/O.

use driver::{Buffers, Completed, RetryDecision};
use units::{Nanos, Op};
use workload::{ErrorCode, Io, Next};

use super::super::multipath::{MultipathRequests, PathAction};
use super::super::{Effect, Progress, StepContext};
use super::{Thread, ThreadStep, WaitGoal};
use crate::requests::{CommandToken, RETRY, RequestError};
use crate::{Engine, HostStack, SimError};

impl Thread {
    /// Whether the application has what it waits for.
    pub(super) fn reached(&self, now: Nanos) -> bool {
        self.goal
            .is_none_or(|goal| self.app.finished.len() >= goal.min as usize || now >= goal.until)
    }

    /// The first that applies: posts waiting commands, hands over completions, or gets the
    /// generator's next I/O.
    #[inline(never)]
    pub(super) fn load(&mut self, cx: &mut StepContext) -> Result<Progress, SimError> {
        if self.app.can_post() {
            return Ok(self.enter(cx));
        }
        if let Some(goal) = self.goal.take()
            && !self.app.finished.is_empty()
        {
            return Ok(self.hand_over(cx, goal.max));
        }
        if self.app.commit_pending {
            return Ok(self.enter(cx));
        }
        let next = self.app.generator.next(cx.now);
        // I/Os of the ramp are not measured. The totals of CPUs and devices include them, so these
        // totals are subtracted.
        if !self.app.measured
            && self.app.generator.measured_since().is_some()
            && !matches!(next, Next::Done)
        {
            self.app.measured = true;
            cx.out.push(Effect::Measured);
        }
        match next {
            Next::Issue(io) => self.begin(cx, io),
            Next::Commit => {
                self.app.commit_pending = true;
                Ok(self.enter(cx))
            }
            // The generator waits for a free slot; I/Os may become due in that time.
            Next::Reap { min } => {
                let max = self.app.generator.complete_max().max(min);
                let next_due = self.app.generator.next_due();
                Ok(self.wait(cx, WaitGoal { min, max, until: Nanos::MAX, next_due }))
            }
            Next::Wait { until } => {
                Ok(self.wait(cx, WaitGoal { min: 1, max: u32::MAX, until, next_due: None }))
            }
            Next::Done => Ok(self.finish(cx)),
        }
    }

    /// Submits. In the kernel host this is a system call.
    fn enter(&mut self, cx: &StepContext) -> Progress {
        self.next_step = ThreadStep::Commit { sw_queue: 0, waited: false };
        let cold = std::mem::take(&mut self.app.cold);
        if cx.host == HostStack::User {
            return Progress::Private(Nanos::ZERO);
        }
        self.in_call = true;
        let engine = self.engine_costs(cx);
        let block = &cx.costs.block;
        // The block layer's work for the whole batch is charged here, before the first command is
        // posted.
        let each = (engine.submit + block.submit).0 * self.app.waiting as u64;
        // After a long pause, code and page structures are no longer in the caches.
        let (reload, memory) = if cold {
            (cx.costs.thread.cold, cx.costs.memory.line_memory)
        } else {
            (Nanos::ZERO, Nanos::ZERO)
        };
        let pages = (block.page + memory).0 * std::mem::take(&mut self.app.pages);
        Progress::Private(
            cx.costs.thread.syscall + engine.submit_call + reload + Nanos(each + pages),
        )
    }

    /// Hands at most `max` completions to the application, which computes for each.
    fn hand_over(&mut self, cx: &mut StepContext, max: u32) -> Progress {
        let n = self.app.finished.len().min(max as usize);
        self.app.update_cache_state(cx);
        let mut counting = Nanos::ZERO;
        for (io, result) in self.app.finished.drain(..n) {
            match result {
                // No result of a job counts a Flush as an I/O.
                Ok(()) => self.counts.completed += u64::from(io.op != Op::Flush),
                Err(RequestError::Status(_) | RequestError::NoPath) => self.counts.failed += 1,
                Err(RequestError::Cancelled) => self.counts.lost += 1,
            }
            if let Some(choice_only) = &mut self.app.choice_only {
                counting += choice_only.end(&io, cx);
            }
            let (requests, generator) = (&self.app.requests, &mut self.app.generator);
            let result = result.map_err(|_| ErrorCode::EIO);
            requests
                .with_buffer(&io, |buffer| generator.completed(io.slot, cx.now, result, buffer));
        }
        counting += self.pay_for_paths();
        // The application runs, so the thread is no longer in the system call.
        self.in_call = false;
        let work = Nanos(self.app.work.0 * n as u64);
        self.counts.application += work;
        let each = if cx.host == HostStack::User {
            cx.costs.library.deliver
        } else {
            self.engine_costs(cx).take
        };
        Progress::Private(work + counting + Nanos(each.0 * n as u64))
    }

    /// Starts an I/O of the generator.
    fn begin(&mut self, cx: &mut StepContext, io: Io) -> Result<Progress, SimError> {
        let app = &mut self.app;
        app.update_cache_state(cx);
        // The pattern is written before the command can be posted.
        if io.op == Op::Write && app.generator.verifies() {
            app.requests.with_buffer(&io, |buffer| app.generator.fill(&io, buffer));
        }
        let mut chosen = Nanos::ZERO;
        if let Some(choice_only) = &mut app.choice_only {
            let (choosing, counting) = choice_only.send(&io, cx, app.cold);
            self.counts.choosing += choosing;
            chosen = choosing + counting;
        }
        // Without multipath the request goes to its target's device.
        let parts = match app
            .multipath
            .as_mut()
            .map_or(Some(PathAction::Send(io)), |multipath| multipath.submit(io, cx, app.cold))
        {
            Some(PathAction::Send(io)) => app.queue_request(io)?,
            Some(PathAction::Finish(ended)) => {
                app.finished.push_back(ended);
                0
            }
            None => {
                app.run_multipath(cx)?;
                0
            }
        };
        app.pages += u64::from(io.len.div_ceil(4096)).saturating_sub(parts as u64);
        let cost = if cx.host == HostStack::User { cx.costs.library.submit } else { Nanos::ZERO };
        chosen += self.pay_for_paths();
        Ok(Progress::Private(chosen + Nanos(cost.0 * parts as u64)))
    }

    /// Returns the cost of choosing paths and counting requests since the last call, and records
    /// the cost of choosing.
    fn pay_for_paths(&mut self) -> Nanos {
        let (choosing, counting) =
            self.app.multipath.as_mut().map(MultipathRequests::take_costs).unwrap_or_default();
        self.counts.choosing += choosing;
        choosing + counting
    }

    /// Applies changes of the paths: requests of lost paths move to others, and waiting ones go on.
    pub(super) fn apply_path_changes(&mut self, cx: &mut StepContext) -> Result<(), SimError> {
        let Some(multipath) =
            self.app.multipath.as_ref().filter(|multipath| multipath.is_due(cx.now))
        else {
            return Ok(());
        };
        let spread = self.app.spread;
        for path in multipath.closed() {
            for sw_queue in path * spread..(path + 1) * spread {
                // Commands that were not posted yet must not reach the lost controller.
                self.app.waiting -= self.app.backlog[sw_queue].len();
                for token in std::mem::take(&mut self.app.backlog[sw_queue]) {
                    self.app.end_cancelled(token, cx.now)?;
                }
            }
        }
        let sw_queues = &self.sw_queues;
        if let Some(multipath) = &mut self.app.multipath {
            multipath.apply_path_changes(cx.now, |path| {
                sw_queues[path * spread..(path + 1) * spread]
                    .iter()
                    .all(|sw_queue| sw_queue.mine == 0)
            });
        }
        self.app.no_tag = false;
        self.app.run_multipath(cx)
    }

    /// Waits. In the kernel host this is a system call, unless the system call that submitted waits
    /// too, or the completion ring has enough completions.
    fn wait(&mut self, cx: &StepContext, goal: WaitGoal) -> Progress {
        self.wait_for(goal);
        let no_call = self.engine != Engine::Libaio && (self.in_call || self.reached(cx.now));
        if cx.host == HostStack::User || no_call {
            return Progress::Private(Nanos::ZERO);
        }
        Progress::Private(cx.costs.thread.syscall + self.engine_costs(cx).wait_call)
    }

    /// Waits for the goal. With a think time the thread leaves instead of blocking.
    pub(super) fn wait_for(&mut self, goal: WaitGoal) {
        self.goal = Some(goal);
        self.leaving = self.app.think > Nanos::ZERO;
        self.next_step = ThreadStep::Decide;
    }

    /// Ends the requests whose last part has completed, and queues the parts that are retried.
    pub(super) fn sort(
        &mut self,
        cx: &mut StepContext,
        taken: &mut Vec<Completed>,
    ) -> Result<(), SimError> {
        self.app.no_tag = false;
        for completed in taken.drain(..) {
            let token = CommandToken::from_word(completed.token);
            let target = self.app.requests.target(token);
            let sw_queue = self.app.sw_queue_of(token);
            let own = &mut self.sw_queues[sw_queue];
            // In flight is counted by software queue, because threads may share the hardware queue.
            own.mine = own.mine.saturating_sub(1);
            let queue = own.queue;
            if completed.status.is_success() {
                self.app.completed[target] += 1;
                self.app.end(token, Ok(()), cx)?;
            } else {
                self.counts.bad_statuses += 1;
                let retries = self.app.requests.count_retry(token)?;
                match RETRY.after_status(completed.status, retries, true) {
                    RetryDecision::Retry => self.app.requeue(sw_queue, token),
                    RetryDecision::Fail | RetryDecision::FailLeaked => {
                        self.app.end(token, Err(RequestError::Status(completed.status)), cx)?
                    }
                }
            }
            // The completion has freed a tag.
            if !cx.queues[queue].tag_waiters.is_empty() {
                cx.out.push(Effect::TagsFree(queue));
            }
        }
        self.app.run_multipath(cx)
    }

    /// A reset has cancelled a command: queues it for a retry, gives it to another path, or fails
    /// it.
    pub(crate) fn cancelled(
        &mut self,
        word: u64,
        buffers: Buffers,
        now: Nanos,
    ) -> Result<(), SimError> {
        let token = CommandToken::from_word(word);
        let retries = self.app.requests.count_retry(token)?;
        let sw_queue = self.app.sw_queue_of(token);
        self.sw_queues[sw_queue].mine = self.sw_queues[sw_queue].mine.saturating_sub(1);
        match RETRY.after_reset(buffers, retries, true) {
            // With several paths the failover decides where it goes next.
            RetryDecision::Retry if self.app.multipath.is_none() => {
                self.app.requeue(sw_queue, token)
            }
            _ => self.app.end_cancelled(token, now)?,
        }
        Ok(())
    }
}
