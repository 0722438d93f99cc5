//! The thread's application: a job's generator, the requests it makes, and what has to wait for a tag.

use std::collections::VecDeque;

use units::{Class, Nanos};
use workload::{Generator, Io};

use super::StepContext;
use super::multipath::{MultipathRequests, PathAction};
use super::paths::Study;
use crate::SimError;
use crate::hw_queue::Pair;
use crate::requests::{Finished, RequestError, Requests, Token};

/// What a thread works for.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) generator: Generator,
    pub(crate) requests: Requests,
    /// After each wait it computes for so long, away from the library.
    pub(crate) think: Nanos,
    /// What it computes for each I/O that completes.
    pub(crate) work: Nanos,
    /// Somebody waits for each of its commands.
    pub(crate) urgent: bool,
    /// It has told that it is measured.
    pub(super) measured: bool,
    /// Several paths, each a target of its own.
    pub(crate) multipath: Option<MultipathRequests>,
    /// Paths of which only the choice is studied.
    pub(crate) study: Option<Study>,
    /// Pages beyond the first of each part that waits to be submitted.
    pub(super) pages: u64,
    /// When it submitted or took completions last, and whether its core has lost its caches since.
    touched: Option<Nanos>,
    pub(super) cold: bool,
    /// Commands that succeeded, by target.
    pub(crate) completed: Vec<u64>,
    /// Lanes for each target.
    pub(super) spread: usize,
    /// Per lane, parts to be posted, first come, first served.
    pub(super) backlog: Vec<VecDeque<Token>>,
    /// Parts in all of them.
    pub(super) waiting: usize,
    /// Among them are some that ought to have been posted: left over from an earlier batch, or to be posted again.
    overdue: bool,
    /// No tag was free, or the queue is closed; since then nothing has changed.
    pub(super) no_tag: bool,
    /// The controller of each target is given up.
    pub(crate) dead: Vec<bool>,
    /// The generator waits to hear that its batch was announced.
    pub(super) commit_pending: bool,
    /// Completed, and not yet handed to the generator: what a completion ring holds.
    pub(super) finished: VecDeque<Finished>,
    scratch: Vec<Token>,
}

impl Application {
    /// An application with `spread` lanes for each of `targets`.
    pub(crate) fn new(generator: Generator, requests: Requests, targets: usize, spread: usize, think: Nanos, work: Nanos) -> Application {
        Application {
            generator,
            requests,
            think,
            work,
            urgent: false,
            measured: false,
            multipath: None,
            study: None,
            pages: 0,
            touched: None,
            cold: false,
            completed: vec![0; targets],
            spread,
            backlog: (0..targets * spread).map(|_| VecDeque::new()).collect(),
            waiting: 0,
            overdue: false,
            no_tag: false,
            dead: vec![false; targets],
            commit_pending: false,
            finished: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Whether something ought to be posted, and may be.
    pub(super) fn can_post(&self) -> bool {
        self.overdue && !self.no_tag
    }

    /// It runs: whether its core has lost its caches since it did last.
    pub(super) fn touch(&mut self, cx: &StepContext) {
        self.cold |= self.touched.replace(cx.now).is_some_and(|touched| cx.now - touched > cx.costs.thread.cold_after);
    }

    /// The batch was announced, as far as there were tags. Whether all of it was.
    pub(super) fn committed(&mut self, now: Nanos) -> bool {
        if self.waiting > 0 {
            return false;
        }
        self.overdue = false;
        if std::mem::take(&mut self.commit_pending) {
            self.generator.committed(now);
        }
        true
    }

    /// Posts what waits for a lane, as far as there are tags: the class of the last command, how many were posted, and
    /// whether any is left.
    pub(super) fn post(&mut self, sw_queue: usize, pair: &Pair, now: Nanos) -> Result<(Option<Class>, u32, bool), SimError> {
        let (mut class, mut posted) = (None, 0);
        let dead = self.dead.get(sw_queue / self.spread).copied().unwrap_or_default();
        let mut sq = pair.lock_sq();
        while let Some(&token) = self.backlog[sw_queue].front() {
            if dead {
                self.end_cancelled(token, now)?;
            } else {
                let sqe = self.requests.command(token)?;
                if sq.post(sqe, token.to_word(), now).is_err() {
                    (self.no_tag, self.overdue) = (true, true);
                    return Ok((class, posted, true));
                }
                class = Some(self.requests.class(token)?);
                posted += 1;
            }
            self.backlog[sw_queue].pop_front();
            self.waiting -= 1;
        }
        Ok((class, posted, false))
    }

    /// A part has ended; with its last one the request is ready to be handed over, or goes another way.
    pub(super) fn end(&mut self, token: Token, result: Result<(), RequestError>, cx: &mut StepContext) -> Result<(), SimError> {
        let Some(ended) = self.requests.end(token, result)? else { return Ok(()) };
        match &mut self.multipath {
            Some(multipath) => self.finished.extend(multipath.completed(ended, cx)),
            None => self.finished.push_back(ended),
        }
        Ok(())
    }

    /// A part was taken back for good.
    pub(super) fn end_cancelled(&mut self, token: Token, now: Nanos) -> Result<(), SimError> {
        let Some(ended) = self.requests.end(token, Err(RequestError::Cancelled))? else { return Ok(()) };
        match &mut self.multipath {
            Some(multipath) => multipath.cancelled(&ended.0, now),
            None => self.finished.push_back(ended),
        }
        Ok(())
    }

    /// Puts the parts of a request among those that are to be posted: how many they are.
    pub(super) fn queue_request(&mut self, io: Io) -> Result<usize, SimError> {
        self.scratch.clear();
        self.requests.begin(io, &mut self.scratch)?;
        let parts = self.scratch.len();
        if let Some(&first) = self.scratch.first() {
            let sw_queue = self.sw_queue_of(first);
            self.backlog[sw_queue].extend(&self.scratch);
            self.waiting += parts;
        }
        Ok(parts)
    }

    /// Does what the paths' head asks for.
    pub(super) fn run_multipath(&mut self, cx: &mut StepContext) -> Result<(), SimError> {
        while let Some(todo) = self.multipath.as_mut().and_then(|multipath| multipath.next(cx, self.cold)) {
            match todo {
                PathAction::Send(io) => {
                    self.queue_request(io)?;
                    (self.overdue, self.no_tag) = (true, false);
                }
                PathAction::Finish(ended) => self.finished.push_back(ended),
            }
        }
        Ok(())
    }

    pub(super) fn requeue(&mut self, sw_queue: usize, token: Token) {
        self.backlog[sw_queue].push_back(token);
        self.waiting += 1;
        self.overdue = true;
    }

    /// The lane of a part: each request has its own, so that they are used alike.
    pub(super) fn sw_queue_of(&self, token: Token) -> usize {
        let target = self.requests.target(token);
        target * self.spread + token.slot() % self.spread
    }
}
