//! The command table: turns the CID of a completion back into the token that the command was posted with, exactly once.
//!
//! A CID is a generation above a tag: the slot's next command has another CID, so a late or repeated completion of the
//! last one is recognised. Who may write a slot: the thread that took its tag (under the SQ lock) fills it; the thread that has
//! the [`Finisher`] (under the CQ lock) ends it and returns the tag. No slot ever needs a locked instruction. Anybody
//! may read: [`CommandTable::expired`] does, without a lock.

use nvme::Cid;
use units::Nanos;

use crate::tags::Tag;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};

/// The commands of one queue pair, by tag.
#[derive(Debug)]
pub(crate) struct CommandTable {
    slots: Box<[Slot]>,
    tag_mask: u16,
    /// From one generation of a slot to the next.
    step: u16,
}

/// The right to end commands; there is one per [`CommandTable`], kept under the CQ lock.
#[derive(Debug)]
pub(crate) struct Finisher(());

/// 32 bytes, so that no slot straddles two cache lines.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct Slot {
    /// The CID in bits 15:0, the [`Stage`] above.
    state: AtomicU32,
    token: AtomicU64,
    posted_at: AtomicU64,
}

/// Where a command slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No command.
    Free,
    /// Posted, and not completed.
    InFlight,
    /// In flight, and an Abort for it too: the CID stays reserved until both have completed.
    Aborting,
    /// In flight although an Abort for it has completed.
    Aborted,
    /// Completed; the Abort for it has not.
    Held,
}

/// A command as it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its identifier.
    pub cid: Cid,
    /// What it was posted with.
    pub token: u64,
    /// When it was posted.
    pub posted_at: Nanos,
}

/// A command that is in flight for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The command.
    pub command: Command,
    /// Whether an Abort for it is in flight ([`Stage::Aborting`]) or has completed ([`Stage::Aborted`]).
    pub stage: Stage,
}

/// Why a CID cannot be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionError {
    /// Not in flight; the slot's present or last CID.
    Unknown { last: u16 },
    /// Completed already, and reserved for its Abort.
    Duplicate,
}

impl Stage {
    const fn bits(self, cid: u16) -> u32 {
        (self as u32) << 16 | cid as u32
    }

    fn of(state: u32) -> Stage {
        match state >> 16 {
            0 => Stage::Free,
            1 => Stage::InFlight,
            2 => Stage::Aborting,
            3 => Stage::Aborted,
            _ => Stage::Held,
        }
    }

    /// Whether the controller still owes the command's completion.
    pub fn is_in_flight(self) -> bool {
        matches!(self, Stage::InFlight | Stage::Aborting | Stage::Aborted)
    }
}

impl CommandTable {
    /// A table for `tags` commands (1 to 65,535; a queue pair has no more than leave room for generations), and the right to end them.
    pub(crate) fn new(tags: u32) -> (CommandTable, Finisher) {
        // No tag is all ones, and so no CID is FFFFh, which stands for "no command" (Base 5.1.12.1.2).
        let tag_mask = ((tags + 1).next_power_of_two() - 1) as u16;
        CommandTable::with_step(tags, tag_mask, tag_mask.wrapping_add(1))
    }

    fn with_step(tags: u32, tag_mask: u16, step: u16) -> (CommandTable, Finisher) {
        let slots = (0..tags).map(|tag| Slot { state: AtomicU32::new(Stage::Free.bits(tag as u16)), ..Slot::default() }).collect();
        (CommandTable { slots, tag_mask, step }, Finisher(()))
    }

    /// Enters a command under a tag that the caller has taken, and names it.
    #[inline]
    pub(crate) fn begin(&self, tag: Tag, token: u64, now: Nanos) -> Cid {
        let slot = &self.slots[usize::from(tag.0)];
        let cid = self.next_cid(slot.state.load(Relaxed) as u16);
        // Release, here too: a reader that sees one of them also sees that the slot's last command has ended.
        slot.token.store(token, Release);
        slot.posted_at.store(now.0, Release);
        slot.state.store(Stage::InFlight.bits(cid), Release);
        Cid(cid)
    }

    /// Ends the command `cid` wherever it stands. Its tag may be returned, unless an Abort still holds it (`None`).
    pub(crate) fn complete_slow(&self, _: &mut Finisher, cid: Cid) -> Result<(Command, Option<Tag>), CompletionError> {
        let slot = self.slot(cid).ok_or(CompletionError::Unknown { last: u16::MAX })?;
        let state = slot.state.load(Acquire);
        let ended = match Stage::of(state) {
            _ if state as u16 != cid.0 => return Err(CompletionError::Unknown { last: state as u16 }),
            Stage::Free => return Err(CompletionError::Unknown { last: state as u16 }),
            Stage::Held => return Err(CompletionError::Duplicate),
            Stage::Aborting => Stage::Held,
            Stage::InFlight | Stage::Aborted => Stage::Free,
        };
        slot.state.store(ended.bits(cid.0), Relaxed);
        Ok((slot.command(cid), (ended == Stage::Free).then_some(self.tag(cid))))
    }

    /// Reserves the CID of a command for which an Abort is about to be posted. False: it has completed meanwhile.
    pub(crate) fn begin_abort(&self, _: &mut Finisher, command: &Command) -> bool {
        let Some(slot) = self.slot(command.cid) else { return false };
        // Time and token too: after enough generations a CID comes back.
        let same = slot.state.load(Acquire) == Stage::InFlight.bits(command.cid.0) && slot.command(command.cid) == *command;
        if same {
            slot.state.store(Stage::Aborting.bits(command.cid.0), Relaxed);
        }
        same
    }

    /// The Abort for `cid` has completed. Returns the tag if the command itself had already.
    pub(crate) fn end_abort(&self, _: &mut Finisher, cid: Cid) -> Option<Tag> {
        let slot = self.slot(cid)?;
        let state = slot.state.load(Acquire);
        if state == Stage::Held.bits(cid.0) {
            slot.state.store(Stage::Free.bits(cid.0), Relaxed);
            return Some(self.tag(cid));
        }
        if state == Stage::Aborting.bits(cid.0) {
            slot.state.store(Stage::Aborted.bits(cid.0), Relaxed);
        }
        None
    }

    /// Appends the commands that were posted `timeout` or longer before `now`. Takes no lock: a command that completes
    /// meanwhile may or may not be listed, but a listed one was in flight, with that token and that time.
    pub(crate) fn expired(&self, now: Nanos, timeout: Nanos, out: &mut Vec<Expired>) {
        for slot in &self.slots {
            if let Some((command, stage)) = slot.snapshot()
                && now - command.posted_at >= timeout
            {
                out.push(Expired { command, stage });
            }
        }
    }

    /// Ends every command, for a reset: the caller holds both locks and makes every tag free. Generations go on, so
    /// that an answer to any of these is still recognised as stale.
    pub(crate) fn abandon(&self, _: &mut Finisher, mut each: impl FnMut(Command)) {
        for slot in &self.slots {
            let state = slot.state.load(Acquire);
            if Stage::of(state).is_in_flight() {
                each(slot.command(Cid(state as u16)));
            }
            slot.state.store(Stage::Free.bits(state as u16), Relaxed);
        }
    }

    /// Where the slot of `cid` stands, if its present or last command is `cid`.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn stage(&self, cid: Cid) -> Option<Stage> {
        let state = self.slot(cid)?.state.load(Acquire);
        (state as u16 == cid.0).then(|| Stage::of(state))
    }

    fn slot(&self, cid: Cid) -> Option<&Slot> {
        self.slots.get(usize::from(cid.0 & self.tag_mask))
    }

    /// The next generation of the same tag.
    #[inline]
    fn next_cid(&self, last: u16) -> u16 {
        last.wrapping_add(self.step)
    }

    /// The slot of the command `cid` and its tag, if it is simply in flight.
    #[inline]
    pub(crate) fn in_flight(&self, cid: Cid) -> Option<(&Slot, Tag)> {
        let tag = self.tag(cid);
        let slot = self.slots.get(usize::from(tag.0))?;
        // Acquire: the entry may name a command that this thread has not heard of through the doorbell.
        (slot.state.load(Acquire) == Stage::InFlight.bits(cid.0)).then_some((slot, tag))
    }

    /// The tag of a command.
    #[inline]
    fn tag(&self, cid: Cid) -> Tag {
        Tag(cid.0 & self.tag_mask)
    }
}

impl Slot {
    /// What the command in flight was posted with, and when.
    #[inline]
    pub(crate) fn token_and_time(&self) -> (u64, Nanos) {
        (self.token.load(Relaxed), Nanos(self.posted_at.load(Relaxed)))
    }

    /// Ends the command in flight. Its tag is free then; returning it is the release.
    #[inline]
    pub(crate) fn end(&self, cid: Cid, _: &mut Finisher) {
        self.state.store(Stage::Free.bits(cid.0), Relaxed);
    }

    #[inline]
    fn command(&self, cid: Cid) -> Command {
        Command { cid, token: self.token.load(Acquire), posted_at: Nanos(self.posted_at.load(Acquire)) }
    }

    /// The command in flight, read without a lock: what was read between two equal states belongs to that state.
    fn snapshot(&self) -> Option<(Command, Stage)> {
        let state = self.state.load(Acquire);
        let stage = Stage::of(state);
        if !stage.is_in_flight() {
            return None;
        }
        let command = self.command(Cid(state as u16));
        (self.state.load(Relaxed) == state).then_some((command, stage))
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/command_table_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
