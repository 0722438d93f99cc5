//! One io_uring and the commands on it, for the one thread that uses it.

use std::collections::VecDeque;
use std::sync::Arc;

use driver::{Completed, believable};
use hw::uring::{Cq, Cqe, Enter, Entry, FileSlot, Hint, Options, Poll, Ring, RingError, Span, Sq};
use hw::{Birth, EventFd, Lent};
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

/// User data of entries that are no command: the poll of the queue's wake-up, cancelling, and the entries behind [`MAX_WAKE_CQES`].
const WAKE: u64 = 1 << 32;
const CANCEL: u64 = 2 << 32;
const WAKE_CQES: u64 = 3 << 32;

/// For how many completions a sleep can be. The kernel counts completions, and that of the wake-up is one: so a poll of the wake-up is
/// followed by this many entries that do nothing but complete.
const MAX_WAKE_CQES: u32 = 32;

/// Entries of the ring for what is no command.
const SPARE_ENTRIES: u32 = 16;

/// ECANCELED: what was cancelled before it ran (io_uring_prep_cancel(3)).
const CANCELED: u32 = 125;

/// The target's slot in the ring's table of files, and that of the queue's wake-up.
const TARGET: FileSlot = FileSlot(0);
const WAKE_FILE: FileSlot = FileSlot(1);

/// A ring, and the commands on it.
pub(super) struct CommandRing {
    kernel_file: Arc<KernelFile>,
    ring: Ring,
    sq: Sq,
    cq: Cq,
    /// The kernel polls the device for it: no completion notifies, and only an enter finds one.
    iopoll: bool,
    commands: Box<[RingCommand]>,
    free: Vec<u16>,
    in_flight: u32,
    lba_log2: u32,
    buffers: RegisteredBuffers,
    /// How commands pass through the kernel to an NVMe namespace, if they do.
    passthrough: Option<Passthrough>,
    /// Entries that were pushed and not yet submitted.
    to_submit: u32,
    /// User data of entries that found no room: pushed first.
    backlog: Vec<u64>,
    /// Through the page cache one durable write or Flush at a time: the kernel reports a failed write-back to one `fsync`, and another one
    /// that runs next to it may succeed and be reaped first. The one that is out, and those that wait for it.
    durable: Option<u16>,
    durable_waiting: VecDeque<u16>,
    /// Whether the size of the file was checked since entries were last submitted.
    size_checked: bool,
    /// The counter behind the queue's wake-up.
    wake: EventFd,
    /// The round of [`WAKE_CQES`] that is in the kernel; rounds so far.
    wake_cqes: Option<u32>,
    rounds: u32,
    /// What is signalled for completions, once it was asked for.
    completion_event: Option<EventFd>,
    /// When late commands were last searched for.
    late_scan_at: Nanos,
    counts: Arc<TransportCounts>,
}

impl CommandRing {
    /// A ring for `tags` commands at once. `wake` ends a sleep in it. With `owned` the calling thread is the only one that may ever use it.
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
        let entries = (tags + SPARE_ENTRIES + MAX_WAKE_CQES).next_power_of_two();
        let owner = owned && kernel_file.features().owner;
        let options =
            Options { entries, cq_entries: 2 * entries, owner, poll, big: passthrough.is_some(), files: 2, buffers: BUFFER_SLOTS };
        let (ring, sq, cq) = Ring::new(&options).map_err(|e| refused(&e))?;
        // A failed write-back is reported once to each open file: each ring has its own.
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

    /// Reads a block. `None`: the kernel says that it cannot poll for it.
    pub(super) fn test_polling(mut self) -> Option<CommandRing> {
        let lent = self.kernel_file.pool().alloc(self.kernel_file.target().facts().lba_bytes as usize).ok()?.lend();
        self.commands[0] = RingCommand { op: Op::Read, remaining: Remaining::Data(Span::of(&lent, 0..lent.len())), ..RingCommand::NONE };
        if !self.push(0) || self.submit() == 0 {
            // Lent for good, should the kernel have it after all.
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

    pub(super) fn birth(&self) -> Birth {
        self.ring.birth()
    }

    /// Registers the memory of a buffer before a command names it.
    pub(super) fn prepare(&mut self, lent: &Lent) {
        self.buffers.prepare(&self.ring, &self.kernel_file, lent);
    }

    /// From now on completions signal [`CommandRing::eventfd`].
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

    /// What is signalled for completions.
    pub(super) fn eventfd(&self) -> Option<&EventFd> {
        self.completion_event.as_ref()
    }

    /// Commands posted and not yet reaped.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether something may be there to reap, without a system call.
    #[inline]
    pub(super) fn has_entries(&self) -> bool {
        match self.ring.hint() {
            Hint::None => false,
            Hint::Entries => true,
            // The kernel may set the flag after it has run the last task: with nothing in flight it says nothing.
            Hint::TaskWork => self.in_flight > 0,
        }
    }

    /// Posts a Read, a Write or a Compare. False: there is no room.
    #[inline]
    pub(super) fn push_data(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        let Some(lent) = part.buf else { return false };
        let Some(at) = self.free.pop() else { return false };
        let start = (part.addr - lent.addr()) as usize;
        let span = self.buffers.span(&self.ring, &self.kernel_file, lent, (start, start + part.bytes as usize));
        if part.op != Op::Read || self.passthrough.is_some() {
            self.begin(at, part, Remaining::Data(span), token, now);
            return true;
        }
        // Nothing stands between a read and the ring.
        let offset = part.lba << self.lba_log2;
        self.commands[usize::from(at)] = RingCommand::new(token.0, now, part, offset, Remaining::Data(span));
        self.in_flight += 1;
        match self.sq.push(Entry::read(TARGET, offset, span).user_data(at.into())) {
            true => self.to_submit += 1,
            false => self.backlog.push(at.into()),
        }
        true
    }

    /// Posts any other part.
    pub(super) fn push_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        // A command that passes through brings its data: what is compared, or the list of ranges.
        let passes = self.passthrough.is_some() && matches!(part.op, Op::Compare | Op::Deallocate);
        if part.op.moves_data() && part.op != Op::Compare || passes {
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

    /// Pushes what asks for a part, as command `at`.
    fn begin(&mut self, at: u16, part: &Part<'_>, mut remaining: Remaining, token: Token, now: Nanos) {
        if part.op != Op::Read && !self.size_checked {
            // Once for each batch, because it is a system call: a write to a file that was truncated would make it grow again.
            self.size_checked = !self.kernel_file.target().is_truncated();
            if !self.size_checked {
                remaining = Remaining::Refused;
            }
        }
        self.commands[usize::from(at)] = RingCommand::new(token.0, now, part, part.lba << self.lba_log2, remaining);
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

    /// Pushes the entry of command `at`. False: there is no room.
    #[inline]
    fn push(&mut self, at: u16) -> bool {
        let command = &self.commands[usize::from(at)];
        let pushed = match self.passthrough.as_ref().and_then(|passthrough| passthrough.entry(command, TARGET)) {
            None => self.sq.push(command.entry(TARGET).user_data(at.into())),
            Some(entry) => self.sq.push_command(entry.user_data(at.into())),
        };
        self.to_submit += u32::from(pushed);
        pushed
    }

    /// Pushes what found no room before.
    #[cold]
    fn push_backlog(&mut self) {
        while let Some(&user_data) = self.backlog.last() {
            let pushed = match user_data {
                WAKE => self.push_entry(Entry::poll(WAKE_FILE, true).user_data(WAKE)),
                cancel if cancel >= CANCEL => self.push_entry(Entry::cancel(cancel & !CANCEL).user_data(cancel)),
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

    /// Has the kernel take what was pushed; what it has no room for now goes with a later call. How many entries that were.
    #[inline]
    pub(super) fn submit(&mut self) -> u32 {
        let submit = self.to_submit;
        if submit > 0 || !self.backlog.is_empty() {
            // Completions that wait in this task come with the same call, and not with one of their own.
            let run_tasks = self.ring.hint() == Hint::TaskWork;
            self.enter(Enter { run_tasks, ..Enter::default() });
        }
        submit - self.to_submit.min(submit)
    }

    /// Enters the kernel, which takes what was pushed. False: it could not begin.
    #[inline]
    fn enter(&mut self, enter: Enter) -> bool {
        if !self.backlog.is_empty() {
            self.push_backlog();
        }
        if self.to_submit > 0 {
            self.counts.submits.add(1);
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
            // Completions have to be reaped first: the poll that follows does.
            RingError::Busy => tracing::debug!("requests wait for the kernel"),
            error => tracing::error!(%error, "a queue of a file cannot enter the kernel"),
        }
    }

    /// Takes at most `budget` completions of commands. How many there were.
    #[inline]
    pub(super) fn reap(&mut self, budget: u32, sink: &mut impl FnMut(&mut Completed)) -> u32 {
        if self.iopoll && self.in_flight > 0 || self.ring.hint() == Hint::TaskWork {
            // Completions wait in the device, in this task, or for room: an enter brings them, and submits by the method.
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
        self.submit();
        found
    }

    /// A command's completion. `None`: it goes on, or it is something else's.
    #[inline]
    fn complete(&mut self, cqe: &Cqe) -> Option<Completed> {
        if cqe.user_data >= WAKE {
            match cqe.user_data {
                WAKE if !cqe.more() => self.backlog.push(WAKE),
                // The first of a round is enough: what is left of it would be too few for another sleep.
                round if round >= WAKE_CQES && self.wake_cqes == Some(round as u32) => self.wake_cqes = None,
                _ => {}
            }
            return None;
        }
        let at = cqe.user_data as u16;
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
        Some(Completed { token: command.token, cid: Cid(at), status, result, posted_at: command.posted_at })
    }

    /// What the kernel's answer to command `at` means.
    #[inline]
    fn update(&mut self, at: u16, result: i32) -> Progress {
        let command = &mut self.commands[usize::from(at)];
        if self.passthrough.is_some() {
            passthrough::update(command, result)
        } else {
            command.update(result, self.kernel_file.zero_methods())
        }
    }

    /// A Flush, or a write with FUA, is over: the next one goes. Its status is what it says of the writes before it.
    #[cold]
    fn durable_done(&mut self, at: u16, status: Status, errno: u32) -> Status {
        if self.durable == Some(at) {
            self.durable = self.durable_waiting.pop_front();
            self.backlog.extend(self.durable.map(u64::from));
        }
        let target = self.kernel_file.target();
        let lost = match self.commands[usize::from(at)].op {
            // One that was cancelled has not asked for the kernel's report.
            Op::Flush => status == ERRNO && errno != CANCELED,
            _ => status == ERRNO && loses_others(errno.cast_signed(), target.uses_page_cache()),
        };
        if lost {
            target.write_back().fail();
            return status;
        }
        if status.is_success() && target.write_back().has_failed() { FLUSH_LOST } else { status }
    }

    /// Submits what was pushed, and sleeps. Whether a notification has ended it: there is something to reap.
    pub(super) fn sleep(&mut self, sleep: SleepFor, timeout: Option<Nanos>) -> bool {
        let (wants, min_wait) = match sleep {
            SleepFor::Completions(n) | SleepFor::Nap(n) => (n, None),
            SleepFor::NapThenFirst(nap, n) => (n, Some(nap)),
        };
        let wait_for = match if wants == 0 { self.in_flight } else { wants.min(self.in_flight) } {
            0 | 1 => 1,
            // A durable write that waits for its turn is not in the kernel, and goes when the one before it is reaped.
            _ if self.iopoll || !self.durable_waiting.is_empty() => 1,
            several => match self.push_wake_cqes(several) {
                Some(most) => most,
                None => {
                    self.submit();
                    return false;
                }
            },
        };
        if self.to_submit > 0 || !self.backlog.is_empty() || self.ring.ready() < wait_for {
            let entered = self.enter(Enter { wait_for, timeout, min_wait, ..Enter::default() });
            if !entered && timeout.is_none() {
                // It cannot sleep now: what it has to reap first is there, or in a moment.
                std::thread::yield_now();
            }
        }
        let notified = self.has_entries() && !matches!(sleep, SleepFor::Nap(_));
        if notified {
            self.counts.notified.add(1);
        }
        notified
    }

    /// Before a sleep for `several` completions: sees to it that the wake-up comes with as many. For how many to sleep; `None`: the wake-up
    /// has come already, and would not come again.
    #[cold]
    fn push_wake_cqes(&mut self, several: u32) -> Option<u32> {
        if self.wake_cqes.is_none() {
            // The poll is of the counter's level: what it holds would end each sleep at once. Wake-ups until now are taken note of hereby.
            if self.wake.drain() > 0 {
                return None;
            }
            if self.sq.room() < MAX_WAKE_CQES + self.backlog.len() as u32 {
                return Some(1);
            }
            self.rounds = self.rounds.wrapping_add(1);
            self.wake_cqes = Some(self.rounds);
            let user_data = WAKE_CQES | u64::from(self.rounds);
            let chain: [Entry; MAX_WAKE_CQES as usize] =
                std::array::from_fn(|n| if n == 0 { Entry::poll(WAKE_FILE, false) } else { Entry::nop() });
            match self.sq.push_chain(chain.map(|entry| entry.user_data(user_data))) {
                true => self.to_submit += MAX_WAKE_CQES,
                false => tracing::debug!("a wake-up will not end a sleep for several completions"),
            }
        }
        Some(several.min(MAX_WAKE_CQES))
    }

    /// Asks the kernel to cancel what was posted `timeout` or longer before `now`, once each. How many commands those are, and when the next
    /// may be late.
    #[cold]
    pub(super) fn cancel_late(&mut self, now: Nanos, timeout: Nanos) -> (u32, Nanos) {
        let (before, mut late, mut next) = (std::mem::replace(&mut self.late_scan_at, now), 0, Nanos::MAX);
        for (at, command) in (0..).zip(self.commands.iter_mut()) {
            if !command.open || command.cancelled {
                continue;
            }
            let since = *command.since.get_or_insert_with(|| believable(command.posted_at, Some(before), now));
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
        // The kernel closes a ring some time after its descriptor; the file is to be free at once.
        if let Err(error) = self.ring.unregister_file(TARGET) {
            tracing::debug!(%error, "a file stays open until its ring has gone");
        }
    }
}

#[cfg(test)]
mod tests;
