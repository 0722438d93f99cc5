//! What verification needs of a job, and what it has found.

use super::offsets::{Misfit, Stream};
use super::standing::Standing;
use super::verify::{BadBlock, Layout};
use crate::job::{Backlog, Job};

/// What verification needs and found.
#[derive(Debug)]
pub(super) struct Checks {
    /// What blocks look like; `None`: nothing is looked at.
    pub(super) layout: Option<Box<Layout>>,
    pub(super) fatal: bool,
    /// Reads of the running phase are checked: a job that only reads.
    pub(super) reads: bool,
    /// What a writing job wrote earlier is read, and nothing is written.
    pub(super) only: bool,
    /// What is written is read back.
    pub(super) after_write: bool,
    /// Seeds and numbers of writes are compared.
    pub(super) seeds: bool,
    pub(super) numbers: bool,
    /// The thread's number, as headers have it.
    pub(super) thread: u16,
    /// Writes so far.
    pub(super) sequence: u64,
    /// The verification phase: writes still to be read back, and whether a block was written once only.
    pub(super) left: u64,
    pub(super) exact: bool,
    /// Where writes may overwrite one another in part: those that can still be read back.
    pub(super) standing: Option<Standing>,
    /// `verify_backlog`, and whether its reads are what is issued now: writes follow.
    pub(super) backlog: Option<Backlog>,
    pub(super) interim: bool,
    pub(super) bad: Vec<BadBlock>,
    pub(super) count: u64,
}

impl Checks {
    pub(super) fn new(job: &Job, thread: u32, stream: &Stream, passes: u64, (ios, bytes): (u64, u64)) -> Result<Checks, Misfit> {
        let layout = Layout::new(job)?.map(Box::new);
        let given = job.verify.clone().unwrap_or_default();
        let writes = job.pattern.writes();
        let only = given.only && writes;
        let known = if only {
            given.header_seed.unwrap_or_else(|| stream.is_reproducible(passes))
        } else if writes {
            given.header_seed.unwrap_or(true)
        } else {
            // A reader is not the writer, unless it says so.
            given.header_seed.unwrap_or(false)
        };
        let at_most = if ios == u64::MAX { stream.most_ios(bytes) } else { ios };
        let standing = layout.as_ref().filter(|_| writes).and_then(|layout| Standing::of(job, layout.interval()));
        Ok(Checks {
            layout,
            standing,
            fatal: given.fatal,
            reads: job.verify.is_some() && !writes,
            only,
            after_write: given.after_write,
            seeds: known,
            numbers: writes && !only,
            thread: thread as u16,
            sequence: 0,
            left: 0,
            // A pass that writes is judged when it is over.
            exact: stream.touches_once(at_most, bytes),
            backlog: given.backlog.filter(|_| writes && given.after_write && !only),
            interim: false,
            bad: Vec::new(),
            count: 0,
        })
    }
}
