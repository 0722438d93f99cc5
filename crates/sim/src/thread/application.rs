//! The thread's application: a job's generator, the requests it makes, and what has to wait for a tag.

use std::collections::VecDeque;

use driver::{Buffers, Fate};
use units::{Class, Nanos, Op};
use workload::{ErrorCode, Io, Next};

use super::{After, At, Goal, Ground, Progress, Thread};
use crate::SimError;
use crate::replay::Source;
use crate::requests::{Ended, Failed, RETRY, Requests, Token};

/// What a thread works for.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) generator: Source,
    pub(crate) requests: Requests,
    /// After each wait it computes for so long, away from the library.
    pub(crate) think: Nanos,
    /// What it computes for each I/O that completes.
    pub(crate) work: Nanos,
    /// Another thread wants the CPU, all the time.
    pub(crate) cpu_wanted: bool,
    /// Parts to be posted, first come, first served.
    backlog: VecDeque<Token>,
    /// No tag was free, or the queue is closed; since then nothing has changed.
    stuck: bool,
    /// The controller is given up.
    dead: bool,
    /// Posted and not announced.
    posted: u32,
    /// The generator waits to hear that its batch was announced.
    commits: bool,
    /// Per lane, the class of the batch's first command.
    classes: Vec<Option<Class>>,
    /// Completed, and not yet handed to the generator: what an aio ring holds.
    ready: VecDeque<Ended>,
    scratch: Vec<Token>,
}

impl Application {
    pub(crate) fn new(generator: Source, requests: Requests, lanes: usize, think: Nanos, work: Nanos, cpu_wanted: bool) -> Application {
        Application {
            generator,
            requests,
            think,
            work,
            cpu_wanted,
            backlog: VecDeque::new(),
            stuck: false,
            dead: false,
            posted: 0,
            commits: false,
            classes: vec![None; lanes],
            ready: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Whether something waits to be posted, and may.
    pub(super) fn can_post(&self) -> bool {
        !self.backlog.is_empty() && !self.stuck
    }

    /// Tags may be free again.
    pub(super) fn unblock(&mut self) {
        self.stuck = false;
    }

    pub(super) fn committed(&mut self, now: Nanos) {
        self.posted = 0;
        if std::mem::take(&mut self.commits) {
            self.generator.committed(now);
        }
    }

    /// The class of the batch that is being announced.
    pub(super) fn take_class(&mut self, lane: usize) -> Option<Class> {
        self.classes.get_mut(lane).and_then(Option::take)
    }

    /// A part has ended; with its last one the request is ready to be handed over.
    fn end(&mut self, token: Token, result: Result<(), Failed>) -> Result<(), SimError> {
        self.ready.extend(self.requests.end(token, result)?);
        Ok(())
    }

    /// The lane of a request: each has its own, so that they are used alike.
    fn lane_of(&self, token: Token) -> usize {
        token.slot() % self.classes.len().max(1)
    }
}

impl Thread {
    /// Whether what the application waits for has come.
    pub(super) fn reached(&self, now: Nanos) -> bool {
        self.goal.is_none_or(|goal| self.app.ready.len() >= goal.min as usize || now >= goal.until)
    }

    /// Posts what waits, else hands over what was waited for, else asks the generator.
    pub(super) fn load(&mut self, g: &Ground) -> Result<Progress, SimError> {
        self.in_round = false;
        if let Some(&token) = self.app.backlog.front()
            && !self.app.stuck
        {
            return self.post(g, token);
        }
        if let Some(goal) = self.goal.take()
            && !self.app.ready.is_empty()
        {
            return Ok(self.hand_over(g, goal.max));
        }
        match self.app.generator.next(g.now) {
            Next::Issue(io) => self.begin(g, io),
            Next::Commit => {
                self.app.commits = true;
                self.at = At::Commit(0);
                Ok(Progress::Busy(Nanos::ZERO))
            }
            Next::Reap { min, max } => Ok(self.wait_for(Goal { min, max, until: Nanos::MAX })),
            Next::Wait { until } => Ok(self.wait_for(Goal { min: 1, max: u32::MAX, until })),
            Next::Done => Ok(Progress::Finished),
        }
    }

    /// Hands over as many completions as the application takes at once; it computes for each. The others wait until it
    /// asks again.
    fn hand_over(&mut self, g: &Ground, most: u32) -> Progress {
        let n = self.app.ready.len().min(most as usize);
        for (io, result) in self.app.ready.drain(..n) {
            match result {
                Ok(()) => self.tally.completed += 1,
                Err(Failed::Status(_)) => self.tally.failed += 1,
                Err(Failed::TakenBack) => self.tally.lost += 1,
            }
            let (requests, generator) = (&self.app.requests, &mut self.app.generator);
            let result = result.map_err(|_| ErrorCode::EIO);
            requests.with_buffer(&io, |buffer| generator.completed(io, g.now, result, buffer));
        }
        let work = Nanos(self.app.work.0 * n as u64);
        self.tally.worked += work;
        Progress::Busy(work + Nanos(g.costs.library.deliver.0 * n as u64))
    }

    fn begin(&mut self, g: &Ground, io: Io) -> Result<Progress, SimError> {
        let app = &mut self.app;
        if io.op == Op::Write && app.generator.needs_fill() {
            app.requests.with_buffer(&io, |buffer| app.generator.fill(&io, buffer));
        }
        app.scratch.clear();
        app.requests.begin(io, &mut app.scratch)?;
        app.backlog.extend(&app.scratch);
        app.generator.issued(&io, g.now);
        Ok(Progress::Busy(app.generator.think(io.slot)))
    }

    fn post(&mut self, g: &Ground, token: Token) -> Result<Progress, SimError> {
        if self.app.dead {
            self.app.backlog.pop_front();
            self.app.end(token, Err(Failed::TakenBack))?;
            return Ok(Progress::Busy(Nanos::ZERO));
        }
        let at = self.app.lane_of(token);
        let sqe = self.app.generator.prepare(self.app.requests.command(token)?, token.slot());
        if self.lanes[at].pair.lock_sq().post(sqe, token.to_word(), g.now).is_ok() {
            self.app.backlog.pop_front();
            self.app.posted += 1;
            if self.app.classes[at].is_none() {
                self.app.classes[at] = Some(self.app.requests.class(token)?);
            }
            return Ok(Progress::Busy(g.costs.library.submit));
        }
        self.tally.no_tag += 1;
        if self.app.posted > 0 {
            self.at = At::Commit(0);
            return Ok(Progress::Busy(Nanos::ZERO));
        }
        self.app.stuck = true;
        Ok(self.wait_for(Goal { min: 1, max: u32::MAX, until: Nanos::MAX }))
    }

    /// Waits, after announcing whatever is still to be announced.
    fn wait_for(&mut self, goal: Goal) -> Progress {
        if self.app.posted > 0 {
            self.at = At::Commit(0);
        } else {
            self.goal = Some(goal);
            self.leaving = self.app.think > Nanos::ZERO;
            self.at = At::Decide;
        }
        Progress::Busy(Nanos::ZERO)
    }

    /// Tells what has completed from what is posted again.
    pub(super) fn sort(&mut self, g: &Ground, after: After) -> Result<Progress, SimError> {
        self.at = after.at();
        self.app.stuck = false;
        for completed in self.taken.drain(..) {
            let token = Token::from_word(completed.token);
            if completed.status.is_success() {
                self.app.end(token, Ok(()))?;
                continue;
            }
            self.tally.bad_statuses += 1;
            let retries = self.app.requests.retries(token)?;
            match RETRY.after_status(completed.status, retries, true) {
                Fate::Again => self.app.backlog.push_back(token),
                Fate::Fail | Fate::FailLeaked => self.app.end(token, Err(Failed::Status(completed.status)))?,
            }
        }
        self.step(g)
    }

    /// A reset took a command back: it is posted again, or fails.
    pub(crate) fn taken_back(&mut self, word: u64, buffers: Buffers) -> Result<(), SimError> {
        let token = Token::from_word(word);
        let retries = self.app.requests.retries(token)?;
        match RETRY.after_reset(buffers, retries, true) {
            Fate::Again => self.app.backlog.push_back(token),
            Fate::Fail | Fate::FailLeaked => self.app.end(token, Err(Failed::TakenBack))?,
        }
        Ok(())
    }

    /// The controller is given up: nothing is posted any more.
    pub(crate) fn give_up(&mut self) {
        self.app.dead = true;
    }
}
