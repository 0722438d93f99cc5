//! One io_uring and its commands, used by one thread at a time.
//!
//! A sleep for several completions (`wait_for` > 1) has a problem: the kernel counts completions,
//! and a wake-up from another thread is only one. So before such a sleep the ring submits a poll of
//! the wake-up's eventfd, linked to entries that do nothing but complete:
//!
//! ```text
//!   POLL(wake) ─link─► NOP ─link─► NOP … (32 in all)
//!   wake-up arrives ─► 32 CQEs ─► wait_for ≤ 32 is satisfied ─► the sleep ends
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use driver::{Completed, clamp_posted_at};
use hw::uring::{
    Cq, CqState, Cqe, Enter, Entry, FileSlot, Options, Poll, Ring, RingError, Span, Sq,
};
use hw::{EventFd, ForkGuard, Lent};
use nvme::{Cid, QueueId, Status};
use units::{Nanos, Op};

use super::buffers::{BUFFER_SLOTS, RegisteredBuffers};
use super::command::{Progress, Remaining, RingCommand};
use super::file::KernelFile;
use super::namespace::Passthrough;
use super::passthrough;
use crate::error::QueueError;
use crate::request::{ERRNO, FLUSH_LOST, Token};
use crate::transport::Part;
use crate::transport::queue_transport::{SleepFor, TransportCounts};
use crate::transport::write_back::loses_others;
use crate::wake::Wake;

/// User data of SQEs that are no command: the poll of the queue's wake-up, cancellations, and the
/// chain of [`MAX_WAKE_CQES`]. Below them, user data is the command's slot.
const WAKE: u64 = 1 << 32;
const CANCEL: u64 = 2 << 32;
const WAKE_CQES: u64 = 3 << 32;

/// The most completions that a sleep can wait for: the length of the chain behind the wake-up.
const MAX_WAKE_CQES: u32 = 32;

/// SQEs for what is no command.
const SPARE_ENTRIES: u32 = 16;

/// ECANCELED: cancelled before it ran (io_uring_prep_cancel(3)).
const CANCELED: u32 = 125;

/// Slots in the ring's file table: the target, and the eventfd of the queue's wake-up.
const TARGET: FileSlot = FileSlot(0);
const WAKE_FILE: FileSlot = FileSlot(1);

/// A ring, and the commands on it.
pub(super) struct CommandRing {
    kernel_file: Arc<KernelFile>,
    ring: Ring,
    sq: Sq,
    cq: Cq,
    /// An IOPOLL ring: completions raise no interrupt, and only `io_uring_enter` finds them.
    iopoll: bool,
    commands: Box<[RingCommand]>,
    free: Vec<u16>,
    in_flight: u32,
    lba_log2: u32,
    buffers: RegisteredBuffers,
    /// Set for an NVMe character device: commands pass through the kernel.
    passthrough: Option<Passthrough>,
    /// SQEs pushed and not submitted yet.
    to_submit: u32,
    /// User data of SQEs that found no room in the ring. They are pushed first at the next chance.
    backlog: Vec<u64>,
    /// With the page cache, only one durable write or Flush is in flight at a time: the kernel
    /// reports a failed write-back to one `fsync`, and another one that runs next to it may succeed
    /// and be reaped first. The one in flight, and those that wait for it.
    durable: Option<u16>,
    durable_waiting: VecDeque<u16>,
    /// The file's size was checked since the last submission.
    size_checked: bool,
    /// The eventfd of the queue's wake-up.
    wake: EventFd,
    /// The number of the chain that is in the kernel, and of chains so far. It tells CQEs of an old
    /// chain from those of the current one.
    wake_cqes: Option<u32>,
    rounds: u32,
    /// The eventfd that completions signal, if requested.
    completion_event: Option<EventFd>,
    /// When late commands were last searched for.
    late_scan_at: Nanos,
    counts: Arc<TransportCounts>,
}

impl CommandRing {
    /// A ring for `tags` commands in flight. `wake` ends a sleep in it. `owned`: only the calling
    /// thread will ever use it.
    ///
    /// # Errors
    /// The kernel refuses the ring.
    pub(super) fn new(
        kernel_file: &Arc<KernelFile>,
        id: QueueId,
        tags: u32,
        (wake, counts): (&Wake, &Arc<TransportCounts>),
        owned: bool,
        poll: Poll,
    ) -> Result<CommandRing, QueueError> {
        let refused = |e: &dyn std::fmt::Display| QueueError::Ring(e.to_string());
        let iopoll = matches!(poll, Poll::Io | Poll::HybridIo);
        let (target, passthrough) = (kernel_file.target(), kernel_file.target().passthrough());
        // Every command, the extra SQEs and one chain fit at once. The CQ is twice as large, so
        // that it does not overflow while the thread computes.
        let entries = (tags + SPARE_ENTRIES + MAX_WAKE_CQES).next_power_of_two();
        let owner = owned && kernel_file.features().owner;
        let options = Options {
            entries,
            cq_entries: 2 * entries,
            owner,
            poll,
            big: passthrough.is_some(),
            files: 2,
            buffers: BUFFER_SLOTS,
        };
        let (ring, sq, cq) = Ring::new(&options).map_err(|e| refused(&e))?;
        // The kernel reports a failed write-back once to each open file description, so each ring
        // has its own.
        if target.uses_page_cache() && !target.facts().read_only {
            ring.register_file(TARGET, &target.reopen().map_err(|e| refused(&e))?)
        } else {
            ring.register_file(TARGET, target.file())
        }
        .map_err(|e| refused(&e))?;
        ring.register_file(WAKE_FILE, wake).map_err(|e| refused(&e))?;
        let wake = wake.try_clone_signal().map_err(|e| refused(&e))?;
        tracing::trace!(queue = id.0, tags, ?poll, "an io_uring");
        let mut made = CommandRing {
            lba_log2: target.facts().lba_bytes.trailing_zeros(),
            kernel_file: kernel_file.clone(),
            ring,
            sq,
            cq,
            iopoll,
            commands: vec![RingCommand::NONE; tags as usize].into(),
            free: (0..tags as u16).rev().collect(),
            in_flight: 0,
            buffers: RegisteredBuffers::default(),
            passthrough,
            to_submit: 0,
            // An IOPOLL ring takes reads and writes only: no poll of the wake-up.
            backlog: if iopoll { Vec::new() } else { vec![WAKE] },
            durable: None,
            durable_waiting: VecDeque::with_capacity(tags as usize),
            size_checked: false,
            wake,
            wake_cqes: None,
            rounds: 0,
            completion_event: None,
            late_scan_at: hw::now(),
            counts: counts.clone(),
        };
        made.submit();
        if made.to_submit > 0 || !made.backlog.is_empty() {
            return Err(refused(&"the kernel takes no entry of a new io_uring"));
        }
        Ok(made)
    }

    /// Tests an IOPOLL ring with a Read of one block. `None`: the kernel cannot poll the device.
    pub(super) fn test_polling(mut self) -> Option<CommandRing> {
        let lent = self
            .kernel_file
            .pool()
            .alloc(self.kernel_file.target().facts().lba_bytes as usize)
            .ok()?
            .lend();
        self.commands[0] = RingCommand {
            op: Op::Read,
            remaining: Remaining::Data(Span::of(&lent, 0..lent.len())),
            ..RingCommand::NONE
        };
        if !self.push(0) || self.submit() == 0 {
            // The buffer stays lent (leaked), in case the kernel took the command after all.
            return None;
        }
        let cqe = loop {
            match self.cq.pop() {
                Some(cqe) => break cqe,
                None => _ = self.enter(Enter { wait_for: 1, ..Enter::default() }),
            }
        };
        self.cq.release();
        drop(lent.take_back());
        matches!(self.update(0, cqe.result), Progress::Done(Status::SUCCESS, _)).then_some(self)
    }

    pub(super) fn fork_guard(&self) -> ForkGuard {
        self.ring.fork_guard()
    }

    /// Registers the memory of a buffer before a command names it.
    pub(super) fn prepare(&mut self, lent: &Lent) {
        self.buffers.prepare(&self.ring, &self.kernel_file, lent);
    }

    /// Makes completions signal [`CommandRing::eventfd`] from now on.
    pub(super) fn notify_by_eventfd(&mut self) {
        if self.completion_event.is_some() {
            return;
        }
        let refused = |error: &dyn std::fmt::Display| tracing::error!(%error, "completions of a file wake no event loop");
        match EventFd::new().map(|event| self.ring.notify(&event).map(|()| event)) {
            Ok(Ok(event)) => self.completion_event = Some(event),
            Ok(Err(error)) => refused(&error),
            Err(error) => refused(&error),
        }
    }

    /// The eventfd that completions signal.
    pub(super) fn eventfd(&self) -> Option<&EventFd> {
        self.completion_event.as_ref()
    }

    /// Commands posted and not yet reaped.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether there may be something to reap. No system call.
    #[inline]
    pub(super) fn has_entries(&self) -> bool {
        match self.ring.cq_state() {
            CqState::None => false,
            CqState::Entries => true,
            // IORING_SQ_TASKRUN may be set after the last task has run: with nothing in flight it
            // means nothing.
            CqState::TaskWork => self.in_flight > 0,
        }
    }

    /// Posts a Read, a Write or a Compare. False: no free slot.
    #[inline]
    pub(super) fn push_data(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        let Some(lent) = part.buf else { return false };
        let Some(at) = self.free.pop() else { return false };
        let start = (part.addr - lent.addr()) as usize;
        let span = self.buffers.span(
            &self.ring,
            &self.kernel_file,
            lent,
            (start, start + part.bytes as usize),
        );
        if part.op != Op::Read || self.passthrough.is_some() {
            self.begin(at, part, Remaining::Data(span), token, now);
            return true;
        }
        // A Read needs no size check and no ordering with durable writes, so it goes straight into
        // the ring.
        let offset = part.lba << self.lba_log2;
        self.commands[usize::from(at)] =
            RingCommand::new(token.0, now, part, offset, Remaining::Data(span));
        self.in_flight += 1;
        match self.sq.push(Entry::read(TARGET, offset, span).user_data(at.into())) {
            true => self.to_submit += 1,
            // The slot is taken either way: the command waits here for room in the SQ.
            false => self.backlog.push(at.into()),
        }
        true
    }

    /// Posts any other operation.
    pub(super) fn push_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // Pass-through commands bring their data: what is compared, or the list of ranges.
        let passes = self.passthrough.is_some() && matches!(part.op, Op::Compare | Op::Deallocate);
        if part.op.transfers_blocks() || passes {
            return self.push_data(part, token, now);
        }
        let Some(at) = self.free.pop() else { return false };
        let bytes = u64::from(part.blocks) << self.lba_log2;
        let remaining = match part.op {
            Op::WriteZeroes | Op::Deallocate => {
                let (method, fallback) = self.kernel_file.zero_methods().choose(part.op, part.keep);
                Remaining::Range { bytes, method, fallback }
            }
            Op::Compare | Op::Verify | Op::WriteUncorrectable => Remaining::Check { bytes },
            Op::Read | Op::Write | Op::Flush => Remaining::Sync,
        };
        self.begin(at, part, remaining, token, now);
        true
    }

    /// Starts command `at`: checks the file's size before a write, and queues it behind a durable
    /// one.
    fn begin(
        &mut self,
        at: u16,
        part: &Part<'_>,
        mut remaining: Remaining,
        token: Token,
        now: Nanos,
    ) {
        if part.op != Op::Read && !self.size_checked {
            // A system call, so once per batch. A write to a truncated file would make it grow
            // again.
            self.size_checked = !self.kernel_file.target().is_truncated();
            if !self.size_checked {
                remaining = Remaining::Refused;
            }
        }
        self.commands[usize::from(at)] =
            RingCommand::new(token.0, now, part, part.lba << self.lba_log2, remaining);
        self.in_flight += 1;
        if (part.fua || part.op == Op::Flush) && self.kernel_file.target().uses_page_cache() {
            if self.durable.is_some() {
                self.durable_waiting.push_back(at);
                return;
            }
            self.durable = Some(at);
        }
        if !self.push(at) {
            self.backlog.push(at.into());
        }
    }

    /// Pushes the SQE of command `at`. False: no room.
    #[inline]
    fn push(&mut self, at: u16) -> bool {
        let command = &self.commands[usize::from(at)];
        let pushed = match self
            .passthrough
            .as_ref()
            .and_then(|passthrough| passthrough.entry(command, TARGET))
        {
            None => self.sq.push(command.entry(TARGET).user_data(at.into())),
            Some(entry) => self.sq.push_command(entry.user_data(at.into())),
        };
        self.to_submit += u32::from(pushed);
        pushed
    }

    /// Pushes the SQEs that found no room before.
    #[cold]
    fn push_backlog(&mut self) {
        while let Some(&user_data) = self.backlog.last() {
            let pushed = match user_data {
                WAKE => self.push_entry(Entry::poll(WAKE_FILE, true).user_data(WAKE)),
                cancel if cancel >= CANCEL => {
                    self.push_entry(Entry::cancel(cancel & !CANCEL).user_data(cancel))
                }
                command => self.push(command as u16),
            };
            if !pushed {
                tracing::debug!("an entry waits for room");
                return;
            }
            self.backlog.pop();
        }
    }

    fn push_entry(&mut self, entry: Entry) -> bool {
        let pushed = self.sq.push(entry);
        self.to_submit += u32::from(pushed);
        pushed
    }

    /// Submits what was pushed; what the kernel has no room for goes with a later call. Returns the
    /// number of SQEs submitted.
    #[inline]
    pub(super) fn submit(&mut self) -> u32 {
        let submit = self.to_submit;
        if submit > 0 || !self.backlog.is_empty() {
            // Run deferred completions in the same call, instead of one of their own.
            let run_tasks = self.ring.cq_state() == CqState::TaskWork;
            self.enter(Enter { run_tasks, ..Enter::default() });
        }
        submit - self.to_submit.min(submit)
    }

    /// Calls `io_uring_enter`, which submits what was pushed. False: it failed.
    #[inline]
    fn enter(&mut self, enter: Enter) -> bool {
        if !self.backlog.is_empty() {
            self.push_backlog();
        }
        if self.to_submit > 0 {
            self.counts.submits.add(1);
            // What is posted after this is a new batch.
            self.size_checked = false;
        }
        self.counts.system_calls.add(1);
        match self.ring.enter(Enter { submit: self.to_submit, ..enter }) {
            Ok(submitted) => {
                self.to_submit -= submitted;
                true
            }
            Err(error) => {
                self.log_enter_error(&error);
                false
            }
        }
    }

    #[cold]
    fn log_enter_error(&self, error: &RingError) {
        match error {
            // EBUSY: completions must be reaped first, and the poll that follows does that.
            RingError::Busy => tracing::debug!("requests wait for the kernel"),
            error => tracing::error!(%error, "a queue of a file cannot enter the kernel"),
        }
    }

    /// Reaps at most `budget` completions of commands. Returns how many there were.
    #[inline]
    pub(super) fn reap(&mut self, budget: u32, sink: &mut impl FnMut(&mut Completed)) -> u32 {
        if self.iopoll && self.in_flight > 0 || self.ring.cq_state() == CqState::TaskWork {
            // Completions wait in the device (IOPOLL), in this task, or for room in the CQ: enter
            // fetches them, and submits as well.
            self.enter(Enter { run_tasks: true, ..Enter::default() });
        }
        let mut found = 0;
        while found < budget {
            let Some(cqe) = self.cq.pop() else { break };
            if let Some(mut completed) = self.complete(&cqe) {
                found += 1;
                sink(&mut completed);
            }
        }
        self.cq.release();
        self.in_flight -= found;
        if found > 0 {
            self.counts.reaped.add(found.into());
            self.counts.takes.add(1);
        }
        // What was resubmitted, or waited for a durable write, goes out now.
        self.submit();
        found
    }

    /// Handles a CQE. `None`: its command goes on, or it belongs to none.
    #[inline]
    fn complete(&mut self, cqe: &Cqe) -> Option<Completed> {
        if cqe.user_data >= WAKE {
            match cqe.user_data {
                // The multishot poll has ended (CQ overflow): submit it again.
                WAKE if !cqe.more() => self.backlog.push(WAKE),
                // The first CQE of a chain ends it: what is left would be too few for another
                // sleep.
                round if round >= WAKE_CQES && self.wake_cqes == Some(round as u32) => {
                    self.wake_cqes = None
                }
                _ => {}
            }
            return None;
        }
        let at = cqe.user_data as u16;
        // A CQE that names no open command is ignored: user data comes back from the kernel.
        self.commands.get(usize::from(at)).filter(|command| command.open)?;
        let Progress::Done(mut status, result) = self.update(at, cqe.result) else {
            self.backlog.push(at.into());
            return None;
        };
        if self.commands[usize::from(at)].is_durable() && self.passthrough.is_none() {
            status = self.durable_done(at, status, result);
        }
        let command = &mut self.commands[usize::from(at)];
        command.open = false;
        self.free.push(at);
        Some(Completed {
            token: command.token,
            cid: Cid(at),
            status,
            result,
            posted_at: command.posted_at,
        })
    }

    /// Updates command `at` with the result of its CQE.
    #[inline]
    fn update(&mut self, at: u16, result: i32) -> Progress {
        let command = &mut self.commands[usize::from(at)];
        if self.passthrough.is_some() {
            passthrough::update(command, result)
        } else {
            command.update(result, self.kernel_file.zero_methods())
        }
    }

    /// A Flush, or a write with FUA, has completed: starts the next one, and returns the status in
    /// view of the writes before it.
    #[cold]
    fn durable_done(&mut self, at: u16, status: Status, errno: u32) -> Status {
        if self.durable == Some(at) {
            self.durable = self.durable_waiting.pop_front();
            self.backlog.extend(self.durable.map(u64::from));
        }
        let target = self.kernel_file.target();
        let lost = match self.commands[usize::from(at)].op {
            // A cancelled Flush has not collected the kernel's error report.
            Op::Flush => status == ERRNO && errno != CANCELED,
            _ => status == ERRNO && loses_others(errno.cast_signed(), target.uses_page_cache()),
        };
        if lost {
            target.write_back().fail();
            return status;
        }
        // Another ring may have collected the error report: this success says nothing of those
        // writes.
        if status.is_success() && target.write_back().has_failed() { FLUSH_LOST } else { status }
    }

    /// Submits what was pushed and sleeps. True: completions ended the sleep.
    pub(super) fn sleep(&mut self, sleep: SleepFor, timeout: Option<Nanos>) -> bool {
        let (wants, min_wait) = match sleep {
            SleepFor::Completions(n) | SleepFor::Nap(n) => (n, None),
            SleepFor::NapThenFirst(nap, n) => (n, Some(nap)),
        };
        let wait_for = match if wants == 0 { self.in_flight } else { wants.min(self.in_flight) } {
            0 | 1 => 1,
            // A durable write that waits is not in the kernel; it is submitted when the one before
            // it is reaped.
            _ if self.iopoll || !self.durable_waiting.is_empty() => 1,
            several => match self.push_wake_cqes(several) {
                Some(most) => most,
                None => {
                    // A wake-up has come: do not sleep.
                    self.submit();
                    return false;
                }
            },
        };
        // Completions that are there already save the call.
        if self.to_submit > 0 || !self.backlog.is_empty() || self.ring.ready() < wait_for {
            let entered = self.enter(Enter { wait_for, timeout, min_wait, ..Enter::default() });
            if !entered && timeout.is_none() {
                // EBUSY: completions must be reaped first. They are there, or will be in a moment.
                std::thread::yield_now();
            }
        }
        let notified = self.has_entries() && !matches!(sleep, SleepFor::Nap(_));
        if notified {
            self.counts.notified.add(1);
        }
        notified
    }

    /// Before a sleep for `several` completions: submits the chain of the wake-up unless one is in
    /// the kernel. Returns how many to wait for; `None`: the wake-up has come already and would not
    /// come again.
    #[cold]
    fn push_wake_cqes(&mut self, several: u32) -> Option<u32> {
        if self.wake_cqes.is_none() {
            // The poll is level-triggered: a count left in the eventfd would end every sleep at
            // once. Draining it here takes note of all wake-ups so far.
            if self.wake.drain() > 0 {
                return None;
            }
            if self.sq.room() < MAX_WAKE_CQES + self.backlog.len() as u32 {
                // No room for the chain: wait for one completion, which the ordinary poll of the
                // wake-up provides.
                return Some(1);
            }
            self.rounds = self.rounds.wrapping_add(1);
            self.wake_cqes = Some(self.rounds);
            let user_data = WAKE_CQES | u64::from(self.rounds);
            let chain: [Entry; MAX_WAKE_CQES as usize] = std::array::from_fn(|n| {
                if n == 0 { Entry::poll(WAKE_FILE, false) } else { Entry::nop() }
            });
            match self.sq.push_chain(chain.map(|entry| entry.user_data(user_data))) {
                true => self.to_submit += MAX_WAKE_CQES,
                false => tracing::debug!("a wake-up will not end a sleep for several completions"),
            }
        }
        Some(several.min(MAX_WAKE_CQES))
    }

    /// Submits cancellations of commands posted at least `timeout` before `now`, once each. Returns
    /// how many, and when the next command becomes late.
    #[cold]
    pub(super) fn cancel_overdue(&mut self, now: Nanos, timeout: Nanos) -> (u32, Nanos) {
        let (before, mut late, mut next) =
            (std::mem::replace(&mut self.late_scan_at, now), 0, Nanos::MAX);
        for (at, command) in (0..).zip(self.commands.iter_mut()) {
            if !command.open || command.cancelled {
                continue;
            }
            // The caller's clock may be wrong: bound it by the times of the searches.
            let since = *command
                .since
                .get_or_insert_with(|| clamp_posted_at(command.posted_at, Some(before), now));
            if now >= since + timeout {
                command.cancelled = true;
                late += 1;
                self.backlog.push(CANCEL | at);
            } else {
                next = next.min(since + timeout);
            }
        }
        self.submit();
        (late, next)
    }
}

impl Drop for CommandRing {
    fn drop(&mut self) {
        // The kernel closes a ring some time after its descriptor; the file must be free at once.
        if let Err(error) = self.ring.unregister_file(TARGET) {
            tracing::debug!(%error, "a file stays open until its ring is closed");
        }
    }
}

#[cfg(test)]
mod tests;
