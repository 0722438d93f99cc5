//! The application of a thread: a job's generator, its requests, and the commands that wait for a
//! tag.
//!
//! ```text
//! generator --I/O--> queue_request --parts--> backlog --tags--> queue pair
//!     ^                                                            |
//!     '------ finished <--last part-- end <-------completion-------'
//! ```

use std::collections::VecDeque;

use units::{Class, Nanos};
use workload::{Generator, Io};

use super::StepContext;
use super::multipath::{MultipathRequests, PathAction};
use super::paths::ChoiceOnly;
use crate::SimError;
use crate::hw_queue::Pair;
use crate::requests::{CommandToken, Finished, RequestError, Requests};

/// The application of a thread.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) generator: Generator,
    pub(crate) requests: Requests,
    /// In each wait the application computes for this time, outside the library, instead of
    /// blocking.
    pub(crate) think: Nanos,
    /// CPU time that the application spends on each I/O that completes.
    pub(crate) work: Nanos,
    /// The application waits for each of its commands.
    pub(crate) urgent: bool,
    /// The application has reported that it is past its ramp.
    pub(super) measured: bool,
    /// Requests over several paths, each of which is a target.
    pub(crate) multipath: Option<MultipathRequests>,
    /// The state of paths of which only the choice is simulated.
    pub(crate) choice_only: Option<ChoiceOnly>,
    /// Number of pages of the parts in the backlog, without the first page of each part.
    pub(super) pages: u64,
    /// When the application last submitted or took completions.
    touched: Option<Nanos>,
    /// The core has been idle for so long that it has lost its caches. Until the next submission.
    pub(super) cold: bool,
    /// Commands that succeeded, by target.
    pub(crate) completed: Vec<u64>,
    /// Number of software queues for each target.
    pub(super) spread: usize,
    /// By software queue: parts to be posted, in order.
    pub(super) backlog: Vec<VecDeque<CommandToken>>,
    /// Number of parts in all backlogs.
    pub(super) waiting: usize,
    /// Some parts have waited for a tag, or have to be retried, so they are posted before new I/Os.
    overdue: bool,
    /// At the last attempt no tag was free, or the queue was closed, and nothing has changed since.
    pub(super) no_tag: bool,
    /// By target: the host has given its controller up.
    pub(crate) dead: Vec<bool>,
    /// The generator waits for its batch to be submitted.
    pub(super) commit_pending: bool,
    /// Ended requests that the generator has not taken yet: the contents of a completion ring.
    pub(super) finished: VecDeque<Finished>,
    scratch: Vec<CommandToken>,
}

impl Application {
    /// An application with `spread` software queues for each of `targets`.
    pub(crate) fn new(
        generator: Generator,
        requests: Requests,
        targets: usize,
        spread: usize,
        think: Nanos,
        work: Nanos,
    ) -> Application {
        Application {
            generator,
            requests,
            think,
            work,
            urgent: false,
            measured: false,
            multipath: None,
            choice_only: None,
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

    /// Whether there are overdue parts, and an attempt to post them may succeed.
    pub(super) fn can_post(&self) -> bool {
        self.overdue && !self.no_tag
    }

    /// For an application that runs now: updates `cold`, by the time since the application ran
    /// last.
    pub(super) fn update_cache_state(&mut self, cx: &StepContext) {
        self.cold |= self
            .touched
            .replace(cx.now)
            .is_some_and(|touched| cx.now - touched > cx.costs.thread.cold_after);
    }

    /// After posting: returns whether all of the batch was posted. If so, tells the generator.
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

    /// Posts parts of a software queue's backlog while there are tags. Returns the class of the
    /// last command, the number of commands posted, and whether any part is left.
    pub(super) fn post(
        &mut self,
        sw_queue: usize,
        pair: &Pair,
        now: Nanos,
    ) -> Result<(Option<Class>, u32, bool), SimError> {
        let (mut class, mut posted) = (None, 0);
        let dead = self.dead.get(sw_queue / self.spread).copied().unwrap_or_default();
        let mut sq = pair.lock_sq();
        while let Some(&token) = self.backlog[sw_queue].front() {
            // A dead controller would never complete it.
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

    /// A part has ended. If it was the request's last open part, the request is finished or goes to
    /// another path.
    pub(super) fn end(
        &mut self,
        token: CommandToken,
        result: Result<(), RequestError>,
        cx: &mut StepContext,
    ) -> Result<(), SimError> {
        let Some(ended) = self.requests.end(token, result)? else { return Ok(()) };
        match &mut self.multipath {
            Some(multipath) => self.finished.extend(multipath.completed(ended, cx)),
            None => self.finished.push_back(ended),
        }
        Ok(())
    }

    /// A part was cancelled, and is not retried on its path.
    pub(super) fn end_cancelled(
        &mut self,
        token: CommandToken,
        now: Nanos,
    ) -> Result<(), SimError> {
        let Some(ended) = self.requests.end(token, Err(RequestError::Cancelled))? else {
            return Ok(());
        };
        match &mut self.multipath {
            Some(multipath) => multipath.cancelled(&ended.0, now),
            None => self.finished.push_back(ended),
        }
        Ok(())
    }

    /// Splits a request and adds its parts to the backlog. Returns their number.
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

    /// Carries out the decisions of the multipath requests.
    pub(super) fn run_multipath(&mut self, cx: &mut StepContext) -> Result<(), SimError> {
        while let Some(todo) =
            self.multipath.as_mut().and_then(|multipath| multipath.next(cx, self.cold))
        {
            match todo {
                PathAction::Send(io) => {
                    self.queue_request(io)?;
                    // The request may go to another queue than the one that had no tag.
                    (self.overdue, self.no_tag) = (true, false);
                }
                PathAction::Finish(ended) => self.finished.push_back(ended),
            }
        }
        Ok(())
    }

    pub(super) fn requeue(&mut self, sw_queue: usize, token: CommandToken) {
        self.backlog[sw_queue].push_back(token);
        self.waiting += 1;
        self.overdue = true;
    }

    /// The software queue of a part: slots are spread over the queues of their target.
    pub(super) fn sw_queue_of(&self, token: CommandToken) -> usize {
        let target = self.requests.target(token);
        target * self.spread + token.slot() % self.spread
    }
}
