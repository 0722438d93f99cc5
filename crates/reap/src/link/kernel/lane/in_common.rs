//! A lane's part of a ring that it has in common with others: where its thread drives several files in `posted`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use driver::Completed;
use units::Nanos;

use super::state::{CANCEL, State};
use super::{UringLane, add};
use crate::error::QueueError;
use crate::link::kernel::buffers::What;
use crate::link::kernel::command::Command;
use crate::link::kernel::common::{Common, Needs, Seated};
use crate::link::part::Part;
use crate::request::Token;

impl UringLane {
    /// What a ring in common has to be for it. `None`: its ring was made for a mode that has no use for one.
    pub(crate) fn needs(&self) -> Option<Needs> {
        let own = self.polls || self.made_for.is_some();
        let big = self.link.target().passthrough().is_some();
        (!own).then(|| Needs { tags: self.tags, owned: self.owner.is_some(), big })
    }

    /// The ring in common that it has a seat at.
    pub(crate) fn common(&self) -> Option<&Arc<Common>> {
        self.seat.get().map(Seated::common)
    }

    /// Takes a seat at `common`, for good. Whether it has taken one now, and none before.
    ///
    /// # Errors
    /// It has one at another ring, or the kernel refuses its file.
    pub(crate) fn join(&self, common: &Arc<Common>) -> Result<bool, QueueError> {
        let state = self.state();
        match self.seat.get() {
            Some(seat) if Arc::ptr_eq(seat.common(), common) => Ok(false),
            Some(_) => Err(QueueError::Ring("the queue shares a ring with other queues than these".into())),
            None => {
                let refused = |e: std::io::Error| QueueError::Ring(e.to_string());
                let seat = common.sit(self.link.target().file(), state.signal.try_clone().map_err(refused)?)?;
                _ = self.seat.set(seat);
                Ok(true)
            }
        }
    }

    /// Its thread drives it together with the other lanes there (true), or by itself.
    pub(crate) fn gather(&self, gathered: bool) {
        if let Some(seat) = self.seat.get() {
            seat.gather(gathered);
        }
    }

    /// From now on commands are posted there, if it is driven with the others; or on its own ring. What is out stays where it is.
    pub(crate) fn post_in_common(&self, there: bool) {
        if let Some(seat) = self.seat.get() {
            seat.post(there);
        }
    }

    /// Whether commands are posted there.
    #[inline]
    pub(crate) fn posts_in_common(&self) -> bool {
        self.seat.get().is_some_and(Seated::posts)
    }

    /// Whether something of it is out there.
    #[inline]
    pub(crate) fn is_out_in_common(&self) -> bool {
        self.seat.get().is_some_and(|seat| seat.out() > 0)
    }

    /// Whether its completions wait at its seat, so that no notification tells of them any more.
    #[inline]
    pub(crate) fn has_come(&self) -> bool {
        self.seat.get().is_some_and(Seated::has_come)
    }

    /// The ring in common, if a sleep there misses nothing of this lane: it is driven with the others, and all that is out is out there.
    pub(crate) fn sleeps_in_common(&self) -> Option<&Arc<Common>> {
        let seat = self.seat.get().filter(|seat| seat.is_gathered())?;
        (self.in_flight() == seat.out()).then(|| seat.common())
    }

    /// Sleeps there, as [`UringLane::sleeps_in_common`] says that it can, until any lane's completion comes or any bell rings, or for
    /// `timeout`.
    pub(crate) fn wait_in_common(&self, timeout: Option<Nanos>) {
        if let Some(seat) = self.seat.get() {
            seat.sleep(timeout);
        }
    }

    /// After such a sleep, of any lane: whether there is something to take, which is counted as a message. It has looked for all of them.
    pub(crate) fn was_told_in_common(&self) -> bool {
        let told = self.has_come();
        self.seat.get().into_iter().for_each(|seat| seat.set_brought(true));
        self.wakeups.fetch_add(u64::from(told), Relaxed);
        told
    }

    /// Its thread may sleep elsewhere from now on, so that its next look looks at the ring.
    pub(crate) fn looks_in_common(&self) {
        self.seat.get().into_iter().for_each(|seat| seat.set_brought(false));
    }

    /// Posts command `at` there. False: there is no room now.
    #[inline(never)] // The lane of one file has its registers for itself.
    pub(super) fn begin_in_common(
        &self,
        seat: &Seated,
        state: &mut State,
        at: u16,
        part: &Part<'_>,
        what: What,
        (token, now): (Token, Nanos),
    ) -> bool {
        let offset = part.lba * u64::from(self.link.target().facts().lba_bytes);
        let begun = seat.push(at, state.passthrough, |buffers, ring| {
            let rest = what.rest(part, buffers, ring, &self.link);
            Command { in_common: true, ..Command::begun(token.0, now, part, offset, rest) }
        });
        let Some(command) = begun else { return false };
        state.commands[usize::from(at)] = command;
        seat.went();
        add(&self.announced, 1);
        true
    }

    /// Takes completions from there: how many, and whether there was no look at the ring, because a sleep there has just looked. What has
    /// come since waits for the next sleep, which brings it in the system call that it makes anyway.
    #[inline(never)] // As above.
    pub(super) fn reap_in_common(&self, seat: &Seated, state: &mut State, out: &mut [Completed], brings: bool) -> (usize, bool) {
        let brought = brings && seat.was_brought();
        if !brought {
            seat.look(brings);
        }
        let mut found = 0;
        while found < out.len() {
            let Some((at, result)) = seat.take() else { break };
            if let Some(completed) = state.answer(at, result, &self.link) {
                seat.ended();
                out[found] = completed;
                found += 1;
            }
        }
        (found, brought)
    }

    /// Pushes what was left there, and submits.
    #[cold]
    pub(super) fn settle_in_common(&self, seat: &Seated, state: &mut State) {
        while let Some(&left) = state.left_in_common.last() {
            let at = left as u16;
            let command = state.commands[usize::from(at)];
            let pushed = if left >= CANCEL { seat.cancel(at) } else { seat.push(at, state.passthrough, |_, _| command).is_some() };
            if !pushed {
                tracing::debug!("an entry waits for room");
                break;
            }
            state.left_in_common.pop();
        }
        if seat.out() > 0 && seat.submit() > 0 {
            add(&self.submits, 1);
        }
    }
}

#[cfg(test)]
mod tests;
