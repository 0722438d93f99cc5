//! The thread's application: a job's generator, the requests it makes, and what has to wait for a tag.

use std::collections::VecDeque;

use driver::{Buffers, Completed, Fate};
use units::{Class, Nanos, Op};
use workload::{ErrorCode, Io, Next};

use super::head::{Head, Todo};
use super::paths::Study;
use super::thread::{At, Goal, Thread};
use super::{Effect, Ground, Progress};
use crate::hw_queue::Pair;
use crate::replay::Source;
use crate::requests::{Ended, Failed, RETRY, Requests, Token};
use crate::{Engine, Host, SimError};

/// What a thread works for.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) generator: Source,
    pub(crate) requests: Requests,
    /// After each wait it computes for so long, away from the library.
    pub(crate) think: Nanos,
    /// What it computes for each I/O that completes.
    pub(crate) work: Nanos,
    /// Somebody waits for each of its commands.
    pub(crate) urgent: bool,
    /// It has told that it is measured.
    measured: bool,
    /// Several paths, each a target of its own.
    pub(crate) head: Option<Head>,
    /// Paths of which only the choice is studied.
    pub(crate) study: Option<Study>,
    /// Pages beyond the first of each part that waits to be submitted.
    pages: u64,
    /// When it submitted or took completions last, and whether its core has lost its caches since.
    touched: Option<Nanos>,
    cold: bool,
    /// Lanes for each target.
    spread: usize,
    /// Per lane, parts to be posted, first come, first served.
    backlog: Vec<VecDeque<Token>>,
    /// Parts in all of them.
    waiting: usize,
    /// Among them are some that ought to have been posted: left over from an earlier batch, or to be posted again.
    overdue: bool,
    /// No tag was free, or the queue is closed; since then nothing has changed.
    stuck: bool,
    /// The controller of each target is given up.
    dead: Vec<bool>,
    /// The generator waits to hear that its batch was announced.
    commits: bool,
    /// Completed, and not yet handed to the generator: what a completion ring holds.
    ready: VecDeque<Ended>,
    scratch: Vec<Token>,
}

impl Application {
    /// An application with `spread` lanes for each of `targets`.
    pub(crate) fn new(generator: Source, requests: Requests, targets: usize, spread: usize, think: Nanos, work: Nanos) -> Application {
        Application {
            generator,
            requests,
            think,
            work,
            urgent: false,
            measured: false,
            head: None,
            study: None,
            pages: 0,
            touched: None,
            cold: false,
            spread,
            backlog: (0..targets * spread).map(|_| VecDeque::new()).collect(),
            waiting: 0,
            overdue: false,
            stuck: false,
            dead: vec![false; targets],
            commits: false,
            ready: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Whether something ought to be posted, and may be.
    pub(super) fn can_post(&self) -> bool {
        self.overdue && !self.stuck
    }

    /// Whether something waits to be posted on this lane.
    pub(super) fn waits_for(&self, lane: usize) -> bool {
        self.backlog.get(lane).is_some_and(|parts| !parts.is_empty())
    }

    /// Completions that the application may take.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// It runs: whether its core has lost its caches since it did last.
    fn touch(&mut self, g: &Ground) {
        self.cold |= self.touched.replace(g.now).is_some_and(|touched| g.now - touched > g.costs.thread.cold_after);
    }

    /// Tags may be free again.
    pub(super) fn unblock(&mut self) {
        self.stuck = false;
    }

    /// The batch was announced, as far as there were tags. Whether all of it was.
    pub(super) fn committed(&mut self, now: Nanos) -> bool {
        if self.waiting > 0 {
            return false;
        }
        self.overdue = false;
        if std::mem::take(&mut self.commits) {
            self.generator.committed(now);
        }
        true
    }

    /// Posts what waits for a lane, as far as there are tags: the class of the last command, how many were posted, and
    /// whether any is left.
    pub(super) fn post(&mut self, lane: usize, pair: &Pair, now: Nanos) -> Result<(Option<Class>, u32, bool), SimError> {
        let (mut class, mut posted) = (None, 0);
        let dead = self.dead.get(lane / self.spread).copied().unwrap_or_default();
        let mut sq = pair.lock_sq();
        while let Some(&token) = self.backlog[lane].front() {
            if dead {
                self.end_taken_back(token, now)?;
            } else {
                let sqe = self.generator.prepare(self.requests.command(token)?, token.slot());
                if sq.post(sqe, token.to_word(), now).is_err() {
                    (self.stuck, self.overdue) = (true, true);
                    return Ok((class, posted, true));
                }
                class = Some(self.requests.class(token)?);
                posted += 1;
            }
            self.backlog[lane].pop_front();
            self.waiting -= 1;
        }
        Ok((class, posted, false))
    }

    /// A part has ended; with its last one the request is ready to be handed over, or goes another way.
    fn end(&mut self, token: Token, result: Result<(), Failed>, g: &mut Ground) -> Result<(), SimError> {
        let Some(ended) = self.requests.end(token, result)? else { return Ok(()) };
        match &mut self.head {
            Some(head) => self.ready.extend(head.came_back(ended, g, self.cold)),
            None => self.ready.push_back(ended),
        }
        Ok(())
    }

    /// A part was taken back for good.
    fn end_taken_back(&mut self, token: Token, now: Nanos) -> Result<(), SimError> {
        let Some(ended) = self.requests.end(token, Err(Failed::TakenBack))? else { return Ok(()) };
        match &mut self.head {
            Some(head) => head.taken_back(&ended.0, now),
            None => self.ready.push_back(ended),
        }
        Ok(())
    }

    /// Puts the parts of a request among those that are to be posted: how many they are.
    fn launch(&mut self, io: Io) -> Result<usize, SimError> {
        self.scratch.clear();
        self.requests.begin(io, &mut self.scratch)?;
        let parts = self.scratch.len();
        if let Some(&first) = self.scratch.first() {
            let lane = self.lane_of(first);
            self.backlog[lane].extend(&self.scratch);
            self.waiting += parts;
        }
        Ok(parts)
    }

    /// Does what the paths' head asks for.
    fn pump(&mut self, g: &mut Ground) -> Result<(), SimError> {
        while let Some(todo) = self.head.as_mut().and_then(|head| head.next(g, self.cold)) {
            match todo {
                Todo::Send(io) => {
                    self.launch(io)?;
                    (self.overdue, self.stuck) = (true, false);
                }
                Todo::Over(ended) => self.ready.push_back(ended),
            }
        }
        Ok(())
    }

    /// When the paths' head has to be asked at the latest.
    pub(super) fn head_deadline(&self) -> Nanos {
        self.head.as_ref().map_or(Nanos::MAX, Head::next_deadline)
    }

    fn again(&mut self, lane: usize, token: Token) {
        self.backlog[lane].push_back(token);
        self.waiting += 1;
        self.overdue = true;
    }

    /// The lane of a part: each request has its own, so that they are used alike.
    fn lane_of(&self, token: Token) -> usize {
        let target = self.requests.target(token);
        target * self.spread + token.slot() % self.spread
    }
}

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
        if !self.app.measured && self.app.generator.is_measured() {
            self.app.measured = true;
            g.out.push(Effect::Measured);
        }
        match next {
            Next::Issue(io) => self.begin(g, io),
            Next::Commit => {
                self.app.commits = true;
                Ok(self.enter(g))
            }
            Next::Reap { min, max } => {
                let wants_room_at = self.app.generator.next_due();
                Ok(self.wait(g, Goal { min, max, until: Nanos::MAX, wants_room_at }))
            }
            Next::Wait { until } => Ok(self.wait(g, Goal { min: 1, max: u32::MAX, until, wants_room_at: None })),
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
        self.tally.syscalls += 1;
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
        let cold = self.app.cold;
        let mut counting = Nanos::ZERO;
        for (io, result) in self.app.ready.drain(..n) {
            match result {
                // A Flush is no I/O: in no figure of a job's is it one.
                Ok(()) => self.tally.completed += u64::from(io.op != Op::Flush),
                Err(Failed::Status(_) | Failed::NoPath) => self.tally.failed += 1,
                Err(Failed::TakenBack) => self.tally.lost += 1,
            }
            if let Some(study) = &mut self.app.study {
                counting += study.end(&io, g, cold);
            }
            let (requests, generator) = (&self.app.requests, &mut self.app.generator);
            let result = result.map_err(|_| ErrorCode::EIO);
            requests.with_buffer(&io, |buffer| generator.completed(io, g.now, result, buffer));
        }
        counting += self.pay_for_paths();
        self.in_call = false;
        let work = Nanos(self.app.work.0 * n as u64);
        self.tally.worked += work;
        let each = if g.host == Host::User { g.costs.library.deliver } else { self.engine_costs(g).take };
        Progress::Private(work + counting + Nanos(each.0 * n as u64))
    }

    fn begin(&mut self, g: &mut Ground, io: Io) -> Result<Progress, SimError> {
        let app = &mut self.app;
        app.touch(g);
        if io.op == Op::Write && app.generator.needs_fill() {
            app.requests.with_buffer(&io, |buffer| app.generator.fill(&io, buffer));
        }
        let mut chosen = Nanos::ZERO;
        if let Some(study) = &mut app.study {
            let (choosing, counting) = study.send(&io, g, app.cold);
            self.tally.choosing += choosing;
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
        app.generator.issued(&io, g.now);
        let cost = if g.host == Host::User { g.costs.library.submit } else { Nanos::ZERO };
        let think = app.generator.think(io.slot);
        chosen += self.pay_for_paths();
        Ok(Progress::Private(think + chosen + Nanos(cost.0 * parts as u64)))
    }

    /// What choosing paths and counting requests has cost since it was paid for last.
    fn pay_for_paths(&mut self) -> Nanos {
        let (choosing, counting) = self.app.head.as_mut().map(Head::take_costs).unwrap_or_default();
        self.tally.choosing += choosing;
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
        let ring = self.engine == Engine::IoUring && (self.in_call || self.reached(g.now));
        if g.host == Host::User || ring {
            return Progress::Private(Nanos::ZERO);
        }
        self.tally.syscalls += 1;
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
                self.tally.by_target(target);
                self.app.end(token, Ok(()), g)?;
            } else {
                self.tally.bad_statuses += 1;
                let retries = self.app.requests.retries(token)?;
                match RETRY.after_status(completed.status, retries, true) {
                    Fate::Again => self.app.again(lane, token),
                    Fate::Fail | Fate::FailLeaked => self.app.end(token, Err(Failed::Status(completed.status)), g)?,
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
            Fate::Again if self.app.head.is_none() => self.app.again(lane, token),
            _ => self.app.end_taken_back(token, now)?,
        }
        Ok(())
    }

    /// The controller of a target is given up: nothing is posted to it any more.
    pub(crate) fn give_up(&mut self, target: usize) {
        if let Some(dead) = self.app.dead.get_mut(target) {
            *dead = true;
        }
    }
}
