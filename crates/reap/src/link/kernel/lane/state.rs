//! What the lock of a ring guards: its two sides, and what is out on it.

use std::collections::VecDeque;

use driver::Completed;
use hw::EventFd;
use hw::uring::{Cq, Cqe, Entry, FileSlot, Sq};
use nvme::{Cid, Status};
use units::{Nanos, Op};

use crate::link::kernel::buffers::Buffers;
use crate::link::kernel::command::{Answer, Command};
use crate::link::kernel::link::KernelLink;
use crate::link::kernel::namespace::Passthrough;
use crate::link::kernel::passthrough;
use crate::link::kernel::ways::Ways;
use crate::link::write_back::loses_others;
use crate::request::{ERRNO, FLUSH_LOST};

/// User data of what is no command: the bell of the queue's thread, and cancelling.
pub(super) const BELL: u64 = 1 << 32;
pub(super) const CANCEL: u64 = 2 << 32;

/// User data of a peal, which is numbered.
const PEAL: u64 = 3 << 32;

/// Completions that a bell comes with, once a thread has slept for more than one: as many as a sleep may be for. The kernel counts
/// completions, and a bell's own is one. So a poll of the bell is followed by entries that do nothing but complete.
pub(super) const MOST_AT_ONCE: u32 = 32;

/// ECANCELED: what was cancelled before it ran (io_uring_prep_cancel(3)).
const CANCELED: u32 = 125;

/// Entries that are taken off the ring at a time.
pub(super) const RUN: usize = 16;

/// The target's slot in the ring's table of files, and that of the queue's bell.
pub(super) const TARGET: FileSlot = FileSlot(0);
pub(super) const BELL_FILE: FileSlot = FileSlot(1);

/// The two sides of a ring, and the commands that are out on it.
pub(super) struct State {
    pub sq: Sq,
    pub cq: Cq,
    /// Where they are taken to: room that each look made anew would cost a look at one entry more than the entry.
    pub taken: Box<[Cqe; RUN]>,
    pub commands: Box<[Command]>,
    pub free: Vec<u16>,
    pub buffers: Buffers,
    /// The counter behind the bell.
    pub signal: EventFd,
    /// The peal that is in the kernel, and comes when the bell rings; peals so far.
    pub peal: Option<u32>,
    pub peals: u32,
    /// How its commands pass through the kernel, if they do.
    pub passthrough: Option<Passthrough>,
    /// When late commands were last looked for.
    pub looked: Option<Nanos>,
    /// What could not be pushed, to be pushed first: user data.
    pub left: Vec<u64>,
    /// Through the page cache one durable write or Flush at a time: the kernel reports a failed write-back to one `fsync`, and
    /// another one that runs next to it may succeed and be taken first. The one that is out, and those that wait for it.
    pub durable: Option<u16>,
    pub waiting: VecDeque<u16>,
    /// Whether the size of the file was looked at since entries were last submitted.
    pub sized: bool,
}

/// What the kernel's answer to a command means.
#[inline]
pub(super) fn answered(passes: bool, command: &mut Command, result: i32, ways: &Ways) -> Answer {
    if passes { passthrough::answered(command, result) } else { command.answered(result, ways) }
}

impl State {
    /// A command's completion; `None`: it goes on, or it is something else's.
    #[inline]
    pub(super) fn end(&mut self, cqe: &Cqe, link: &KernelLink) -> Option<Completed> {
        if cqe.user_data >= BELL {
            match cqe.user_data {
                BELL if !cqe.more() => self.left.push(BELL),
                // The first of it is enough: what is left of it would be too few for another sleep.
                peal if peal >= PEAL && self.peal == Some(peal as u32) => self.peal = None,
                _ => {}
            }
            return None;
        }
        self.answer(cqe.user_data as u16, cqe.result, link)
    }

    /// The kernel's answer to command `at`; `None`: it goes on.
    #[inline]
    pub(super) fn answer(&mut self, at: u16, result: i32, link: &KernelLink) -> Option<Completed> {
        let command = self.commands.get_mut(usize::from(at)).filter(|command| command.open)?;
        match answered(self.passthrough.is_some(), command, result, link.ways()) {
            Answer::Over(mut status, result) => {
                command.open = false;
                if command.is_durable() && self.passthrough.is_none() {
                    status = self.durable_over(at, (status, result), link);
                }
                let command = &self.commands[usize::from(at)];
                self.free.push(at);
                Some(Completed { token: command.token, cid: Cid(at), status, result, posted_at: command.posted_at })
            }
            Answer::Again => {
                self.left.push(at.into());
                None
            }
        }
    }

    /// A Flush, or a write with FUA, is over: the next one goes. Its status is what it says of the writes before it.
    #[cold]
    fn durable_over(&mut self, at: u16, (status, errno): (Status, u32), link: &KernelLink) -> Status {
        if self.durable == Some(at) {
            self.durable = self.waiting.pop_front();
            self.left.extend(self.durable.map(u64::from));
        }
        let (command, target) = (&self.commands[usize::from(at)], link.target());
        let lost = match command.op {
            // One that was cancelled has not asked for the kernel's report.
            Op::Flush => status == ERRNO && errno != CANCELED,
            _ => status == ERRNO && loses_others(errno.cast_signed(), target.is_cached()),
        };
        if lost {
            target.write_back().fail();
            return status;
        }
        if status.is_success() && target.write_back().has_failed() { FLUSH_LOST } else { status }
    }

    /// Pushes the command at `at`, by what its target takes. False: there is no room.
    #[inline(always)] // Once for each request.
    pub(super) fn push(&mut self, at: u16) -> bool {
        let command = &self.commands[usize::from(at)];
        match self.passthrough.and_then(|passthrough| passthrough.entry(command, TARGET)) {
            None => self.sq.push(command.entry(TARGET).user_data(at.into())),
            Some(entry) => self.sq.push_command(entry.user_data(at.into())),
        }
    }

    /// Before a sleep for `several` completions: sees to it that the bell comes with as many. For how many to sleep; `None`: it has rung
    /// since it was last heard.
    #[cold]
    pub(super) fn pealed(&mut self, several: u32) -> Option<u32> {
        if self.peal.is_none() {
            // The counter is level: what it holds would ring the peal at once, for ever. Signals until now are heard hereby.
            if self.signal.drain() > 0 {
                return None;
            }
            if self.sq.room() < MOST_AT_ONCE + self.left.len() as u32 {
                return Some(1);
            }
            self.peals = self.peals.wrapping_add(1);
            self.peal = Some(self.peals);
            let user_data = PEAL | u64::from(self.peals);
            let chain: [Entry; MOST_AT_ONCE as usize] =
                std::array::from_fn(|n| if n == 0 { Entry::poll(BELL_FILE, false) } else { Entry::nop() });
            if !self.sq.push_chain(chain.map(|entry| entry.user_data(user_data))) {
                tracing::debug!("a bell will not end a sleep for several completions");
            }
        }
        Some(several.min(MOST_AT_ONCE))
    }

    /// Pushes what was left.
    #[cold]
    pub(super) fn push_left(&mut self) {
        while let Some(&user_data) = self.left.last() {
            let pushed = match user_data {
                BELL => self.sq.push(Entry::poll(BELL_FILE, true).user_data(BELL)),
                cancel if cancel >= CANCEL => self.sq.push(Entry::cancel(cancel & !CANCEL).user_data(cancel)),
                command => self.push(command as u16),
            };
            if !pushed {
                tracing::debug!("an entry waits for room");
                return;
            }
            self.left.pop();
        }
    }
}
