//! The state of a job's verification.

use super::standing::Standing;
use super::verify::{BadBlock, Layout};
use crate::job::Backlog;

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
