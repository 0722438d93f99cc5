//! The command table: maps the CID of a completion back to the token of its command, exactly once.
//!
//! A CID is a generation number above a tag, the index of a command slot. The slot's next command
//! has another generation, so a late or repeated completion of an earlier command is recognised.
//!
//! ```text
//!          15          log2(tags) .. 0
//!    CID  | generation |     tag      |
//! ```
//!
//! A slot has one writer at a time. The thread that took its tag (under the SQ lock) fills it. The
//! thread with the [`Finisher`] (under the CQ lock) ends the command and returns the tag. So no
//! slot needs a locked instruction. Any thread may read without a lock, as
//! [`CommandTable::expired`] does.

use nvme::Cid;
use units::Nanos;

use crate::tags::Tag;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};

/// The commands of one queue pair, by tag.
#[derive(Debug)]
pub(crate) struct CommandTable {
    slots: Box<[CommandSlot]>,
    tag_mask: u16,
    /// Added to a CID for the slot's next generation.
    step: u16,
}

/// The right to end commands. There is one per [`CommandTable`], kept under the CQ lock.
#[derive(Debug)]
pub(crate) struct Finisher(());

/// 32 bytes, so no slot straddles two cache lines.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct CommandSlot {
    /// The CID in bits 15:0, the [`CommandState`] above.
    state: AtomicU32,
    token: AtomicU64,
    posted_at: AtomicU64,
}

/// State of a command slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// The slot has no command.
    Free,
    /// The command was posted and has not completed.
    InFlight,
    /// The command and an Abort for it are in flight: the CID stays reserved until both have
    /// completed.
    Aborting,
    /// The command is still in flight after its Abort has completed.
    Aborted,
    /// The command has completed, but its Abort has not.
    Completed,
}

/// A command in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingCommand {
    /// Its identifier.
    pub cid: Cid,
    /// The token that it was posted with.
    pub token: u64,
    /// When it was posted.
    pub posted_at: Nanos,
}

/// A command in flight for longer than a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The command.
    pub command: OutstandingCommand,
    /// Whether an Abort for it is in flight ([`CommandState::Aborting`]) or has completed
    /// ([`CommandState::Aborted`]).
    pub state: CommandState,
}

/// Why a CID cannot be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionError {
    /// The CID is not in flight. `last`: the current or last CID of its slot.
    Unknown { last: u16 },
    /// The command has completed already; the CID is still reserved for its Abort.
    Duplicate,
}

impl CommandState {
    const fn bits(self, cid: u16) -> u32 {
        (self as u32) << 16 | cid as u32
    }

    fn of(state: u32) -> CommandState {
        match state >> 16 {
            0 => CommandState::Free,
            1 => CommandState::InFlight,
            2 => CommandState::Aborting,
            3 => CommandState::Aborted,
            _ => CommandState::Completed,
        }
    }

    /// Whether the command has not completed.
    pub fn is_in_flight(self) -> bool {
        matches!(self, CommandState::InFlight | CommandState::Aborting | CommandState::Aborted)
    }
}

impl CommandTable {
    /// A table for `tags` commands (1 to 65,535; a queue pair uses at most
    /// [`crate::QueueSizes::MAX_TAGS`], to leave bits for generations).
    pub(crate) fn new(tags: u32) -> (CommandTable, Finisher) {
        // `tags + 1`: no tag is all ones, so no CID is FFFFh, which means "no command" (Base
        // 5.1.12.1.2).
        let tag_mask = ((tags + 1).next_power_of_two() - 1) as u16;
        CommandTable::with_step(tags, tag_mask, tag_mask.wrapping_add(1))
    }

    fn with_step(tags: u32, tag_mask: u16, step: u16) -> (CommandTable, Finisher) {
        let slots = (0..tags)
            .map(|tag| CommandSlot {
                state: AtomicU32::new(CommandState::Free.bits(tag as u16)),
                ..CommandSlot::default()
            })
            .collect();
        (CommandTable { slots, tag_mask, step }, Finisher(()))
    }

    /// Records a command under a tag that the caller has taken. Returns its CID.
    #[inline]
    pub(crate) fn begin(&self, tag: Tag, token: u64, now: Nanos) -> Cid {
        let slot = &self.slots[usize::from(tag.0)];
        // Relaxed: taking the tag was the acquire.
        let cid = self.next_cid(slot.state.load(Relaxed) as u16);
        // Release on each store: a lockless reader that sees one of them also sees that the slot's
        // last command has ended, so its snapshot fails.
        slot.token.store(token, Release);
        slot.posted_at.store(now.0, Release);
        slot.state.store(CommandState::InFlight.bits(cid), Release);
        Cid(cid)
    }

    /// Completes the command `cid` in any state. Returns its tag, which is free then; `None`: an
    /// Abort still reserves the tag.
    pub(crate) fn complete_slow(
        &self,
        _: &mut Finisher,
        cid: Cid,
    ) -> Result<(OutstandingCommand, Option<Tag>), CompletionError> {
        let slot = self.slot(cid).ok_or(CompletionError::Unknown { last: u16::MAX })?;
        let state = slot.state.load(Acquire);
        let ended = match CommandState::of(state) {
            // A stale generation: the completion was posted twice, or after the tag's next command.
            _ if state as u16 != cid.0 => {
                return Err(CompletionError::Unknown { last: state as u16 });
            }
            // This is the last generation, and its command has completed already.
            CommandState::Free => return Err(CompletionError::Unknown { last: state as u16 }),
            CommandState::Completed => return Err(CompletionError::Duplicate),
            CommandState::Aborting => CommandState::Completed,
            CommandState::InFlight | CommandState::Aborted => CommandState::Free,
        };
        slot.state.store(ended.bits(cid.0), Relaxed);
        Ok((slot.command(cid), (ended == CommandState::Free).then_some(self.tag(cid))))
    }

    /// Reserves the CID of a command for which an Abort is about to be posted. Returns false if the
    /// command has completed.
    pub(crate) fn begin_abort(&self, _: &mut Finisher, command: &OutstandingCommand) -> bool {
        let Some(slot) = self.slot(command.cid) else { return false };
        // Compare time and token too: a CID comes back after 16 generations or more.
        // Acquire: token and time must be those of this state.
        let same = slot.state.load(Acquire) == CommandState::InFlight.bits(command.cid.0)
            && slot.command(command.cid) == *command;
        if same {
            slot.state.store(CommandState::Aborting.bits(command.cid.0), Relaxed);
        }
        same
    }

    /// The Abort for `cid` has completed. Returns the tag if the command had completed before.
    pub(crate) fn end_abort(&self, _: &mut Finisher, cid: Cid) -> Option<Tag> {
        let slot = self.slot(cid)?;
        let state = slot.state.load(Acquire);
        if state == CommandState::Completed.bits(cid.0) {
            slot.state.store(CommandState::Free.bits(cid.0), Relaxed);
            return Some(self.tag(cid));
        }
        // The completion may still come, or never: recovery decides after a grace period.
        if state == CommandState::Aborting.bits(cid.0) {
            slot.state.store(CommandState::Aborted.bits(cid.0), Relaxed);
        }
        None
    }

    /// Appends the commands posted `timeout` or longer before `now`. Takes no lock. A command that
    /// completes during the call may or may not be listed; a listed one was in flight with that
    /// token and time.
    pub(crate) fn expired(&self, now: Nanos, timeout: Nanos, out: &mut Vec<Expired>) {
        for slot in &self.slots {
            if let Some((command, state)) = slot.snapshot()
                && now - command.posted_at >= timeout
            {
                out.push(Expired { command, state });
            }
        }
    }

    /// Ends every command, for a reset. The caller holds both locks and frees every tag.
    /// Generations continue, so a completion of any of these is still recognised as stale.
    pub(crate) fn abandon(&self, _: &mut Finisher, mut each: impl FnMut(OutstandingCommand)) {
        for slot in &self.slots {
            let state = slot.state.load(Acquire);
            // In state `Completed` the caller has the result already.
            if CommandState::of(state).is_in_flight() {
                each(slot.command(Cid(state as u16)));
            }
            slot.state.store(CommandState::Free.bits(state as u16), Relaxed);
        }
    }

    /// State of the slot of `cid`, if its current or last command is `cid`.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn stage(&self, cid: Cid) -> Option<CommandState> {
        let state = self.slot(cid)?.state.load(Acquire);
        (state as u16 == cid.0).then(|| CommandState::of(state))
    }

    fn slot(&self, cid: Cid) -> Option<&CommandSlot> {
        self.slots.get(usize::from(cid.0 & self.tag_mask))
    }

    /// The next generation of the same tag.
    #[inline]
    fn next_cid(&self, last: u16) -> u16 {
        last.wrapping_add(self.step)
    }

    /// The slot and tag of the command `cid`, if it is in flight without an Abort.
    #[inline]
    pub(crate) fn in_flight(&self, cid: Cid) -> Option<(&CommandSlot, Tag)> {
        let tag = self.tag(cid);
        let slot = self.slots.get(usize::from(tag.0))?;
        // Acquire: the entry may name a command whose announcement this thread has not seen yet.
        (slot.state.load(Acquire) == CommandState::InFlight.bits(cid.0)).then_some((slot, tag))
    }

    /// The tag of a command.
    #[inline]
    fn tag(&self, cid: Cid) -> Tag {
        Tag(cid.0 & self.tag_mask)
    }
}

impl CommandSlot {
    /// Token and time of the command in flight.
    #[inline]
    pub(crate) fn token_and_time(&self) -> (u64, Nanos) {
        (self.token.load(Relaxed), Nanos(self.posted_at.load(Relaxed)))
    }

    /// Ends the command in flight. Its tag is free then. Returning the tag is the release, so this
    /// store is relaxed.
    #[inline]
    pub(crate) fn end(&self, cid: Cid, _: &mut Finisher) {
        self.state.store(CommandState::Free.bits(cid.0), Relaxed);
    }

    #[inline]
    fn command(&self, cid: Cid) -> OutstandingCommand {
        OutstandingCommand {
            cid,
            token: self.token.load(Acquire),
            posted_at: Nanos(self.posted_at.load(Acquire)),
        }
    }

    /// The command in flight, read without a lock as by a seqlock: what was read between two equal
    /// states belongs to that state.
    fn snapshot(&self) -> Option<(OutstandingCommand, CommandState)> {
        let state = self.state.load(Acquire);
        let command_state = CommandState::of(state);
        if !command_state.is_in_flight() {
            return None;
        }
        let command = self.command(Cid(state as u16));
        (self.state.load(Relaxed) == state).then_some((command, command_state))
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/command_table_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
