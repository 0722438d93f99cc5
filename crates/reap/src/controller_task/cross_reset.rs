//! Cross-Controller Reset (TP8028): the task of a lost path asks for it, and that of another path of
//! the subsystem sends it. Once it is complete, the lost controller executes no command any more,
//! and held writes need not wait for its keep-alive to run out.
//!
//! ```text
//!   lost path      want_cross_reset                                            end_fence
//!                        │                                                         ▲
//!   other path     step_cross_reset ─► Cross-Controller Reset ─ IRS = 1 ───────────┤
//!                                          └ IRS = 0: started ─► log page 1Eh: successful
//! ```
//! Whatever else happens, the fence ends when its time is over.

use driver::paths::PathId;
use driver::{AdminCommand, Purpose, Reading};
use nvme::fabrics::{CrossControllerReset, CrossResetEntry};
use nvme::log::lid;
use nvme::{Page, Status};
use units::Nanos;

use super::ControllerTask;

/// Token of the command.
pub(super) const CROSS_RESET: u64 = 1 << 10;

/// The log page is read this long after the command, then after twice that time, and so on.
const FIRST_READ: Nanos = Nanos::from_millis(10);
const MAX_INTERVAL: Nanos = Nanos::from_secs(1);

/// A Cross-Controller Reset that was sent to this path's controller, for a lost path.
pub(super) struct SentReset {
    of: (PathId, CrossControllerReset),
    /// When to read the log page; MAX: nothing to read.
    read_at: Nanos,
    interval: Nanos,
}

impl ControllerTask {
    /// This path is lost, and its connections are closed.
    pub(super) fn want_cross_reset(&self) {
        let Some(path_handle) =
            self.path_handle.as_ref().filter(|_| self.controller.tcp().is_some())
        else {
            return;
        };
        let subsystem = &self.inventory.subsystem;
        let (ciu, cirn) = subsystem.instance;
        path_handle.want_cross_reset(CrossControllerReset {
            ciu,
            icid: subsystem.controller,
            cirn,
        });
        // Steps the tasks of the other paths.
        self.shared.reporter.kick();
    }

    /// Ends the fence of this lost path if another path has reset its controller.
    pub(super) fn end_fence(&mut self) {
        let Some(by) = self.path_handle.as_ref().and_then(|path| path.take_reset_by()) else {
            return;
        };
        self.note(format!(
            "the controller has been reset through path {by} (Cross-Controller Reset): held writes go on"
        ));
        self.path_stopped();
        self.controller.tcp().into_iter().for_each(|tcp| tcp.end_fence());
    }

    /// Sends the resets that lost paths request. Returns when to step again.
    pub(super) fn step_cross_reset(&mut self, now: Nanos) -> Nanos {
        let Some(path_handle) = &self.path_handle else { return Nanos::MAX };
        if self.cross_reset.is_none()
            && self.inventory.subsystem.cross_resets > 0
            && let Some(of) = path_handle.take_cross_reset()
        {
            let command = AdminCommand { sqe: of.1.to_sqe(), needs_page: false };
            if self.admin.post(&self.controller, command, Purpose::Own(CROSS_RESET), now) {
                self.cross_reset =
                    Some(SentReset { of, read_at: Nanos::MAX, interval: FIRST_READ });
            } else {
                path_handle.end_cross_reset(of, false);
            }
        }
        let Some(sent) = &mut self.cross_reset else { return Nanos::MAX };
        if now >= sent.read_at {
            sent.read_at = Nanos::MAX;
            self.events.read(Reading::Log(lid::CROSS_CONTROLLER_RESET));
        }
        sent.read_at
    }

    /// The command has completed.
    pub(super) fn cross_reset_completed(&mut self, status: Status, result: u32) {
        let Some(sent) = &mut self.cross_reset else { return };
        if status.is_success() && result & CrossControllerReset::RESET == 0 {
            // Success alone says that the reset has started.
            sent.read_at = hw::now() + sent.interval;
            let path = sent.of.0;
            return self.note(format!("the reset of the controller of path {path} has started"));
        }
        self.end_cross_reset(status.is_success());
    }

    /// The log of resets has been read; empty: it could not be read.
    pub(super) fn cross_resets_were_read(&mut self, page: &[u8]) {
        let Some(sent) = &mut self.cross_reset else { return };
        let asked = sent.of.1;
        // The number of entries, and the header's other bytes.
        let count = page.first_chunk().map_or(0, |count| u16::from_le_bytes(*count));
        let entries = page.get(8..).unwrap_or_default().chunks_exact(CrossResetEntry::LEN);
        let state = entries
            .take(count.into())
            .filter_map(|bytes| CrossResetEntry::from_page(bytes).ok())
            .find(|entry| (entry.icid.get(), entry.ciu) == (asked.icid, asked.ciu))
            .map(|entry| entry.status);
        if state == Some(CrossResetEntry::IN_PROGRESS) {
            sent.interval = Nanos(sent.interval.0 * 2).min(MAX_INTERVAL);
            sent.read_at = hw::now() + sent.interval;
        } else {
            self.end_cross_reset(state == Some(CrossResetEntry::SUCCESSFUL));
        }
    }

    /// This path is reset or lost itself: another path may send the command.
    pub(super) fn give_back_cross_reset(&mut self) {
        self.end_cross_reset(false);
    }

    fn end_cross_reset(&mut self, done: bool) {
        if let Some((sent, path_handle)) = self.cross_reset.take().zip(self.path_handle.as_ref()) {
            path_handle.end_cross_reset(sent.of, done);
            self.shared.reporter.kick();
        }
    }
}
