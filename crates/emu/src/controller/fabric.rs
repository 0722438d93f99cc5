//! Fabrics controllers: queues created by Connect, cross-controller resets, and the Keep Alive
//! Timer.

use nvme::fabrics::CrossResetEntry;
use nvme::features::fid;
use nvme::{QueueId, Status};
use units::Nanos;

use super::Controller;
use super::life::Life;
use crate::Port;
use crate::identify::CROSS_RESETS;
use crate::logs::ControllerEvent;

impl<P: Port> Controller<P> {
    /// Whether commands are processed (CSTS.RDY).
    pub(crate) fn is_ready(&self) -> bool {
        self.life == Life::Ready
    }

    /// Whether the controller has failed (CSTS.CFS).
    pub(crate) fn is_dead(&self) -> bool {
        self.life == Life::Dead
    }

    /// Creates an I/O queue pair of `entries` entries for Connect. The controller's [`Port`]
    /// provides the memory of its rings at address `addr`.
    ///
    /// # Errors
    /// [`Status::COMMAND_SEQUENCE_ERROR`] before CSTS.RDY is 1, [`Status::INVALID_QUEUE_ID`],
    /// [`Status::INVALID_QUEUE_SIZE`], or [`Status::INTERNAL_ERROR`] if the port cannot provide the
    /// memory.
    pub(crate) fn connect(
        &mut self,
        queue: QueueId,
        entries: u32,
        addr: u64,
    ) -> Result<(), Status> {
        // I/O queues may only be connected after CSTS.RDY is 1, as with Create I/O Submission Queue
        // on PCIe.
        if !self.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if u32::from(queue.0) > self.features.granted().submission()
            || !self.queues.is_free_id(queue, true)
        {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if entries < 2 || entries > self.config.queue_entries {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // Without flow control a host may fill a queue completely. A ring has to leave one entry
        // empty, so it gets one more.
        let made = self
            .new_cq(queue, None, addr, entries + 1)
            .and_then(|()| self.new_sq(queue, queue, addr, entries + 1));
        made.map_err(|_| Status::INTERNAL_ERROR)
    }

    /// Deletes the queue pair and its commands.
    pub(crate) fn disconnect(&mut self, queue: QueueId) {
        self.commands.remove_all(queue);
        self.queues.remove_sq(queue);
        self.queues.remove_cq(queue);
    }

    /// Records in the log that a reset of another controller has begun. `icid`: Impacted Controller
    /// ID; `ciu`: its Controller Instance Uniquifier (Cross-Controller Reset command).
    ///
    /// # Errors
    /// [`Status::CROSS_RESET_LIMIT_EXCEEDED`], [`Status::CROSS_RESET_LOG_FULL`].
    pub(crate) fn begin_cross_reset(&mut self, icid: u16, ciu: u8) -> Result<(), Status> {
        let entries = &mut self.logs.cross_resets;
        if entries.iter().filter(|entry| entry.status == CrossResetEntry::IN_PROGRESS).count()
            >= CROSS_RESETS.into()
        {
            return Err(Status::CROSS_RESET_LIMIT_EXCEEDED);
        }
        if entries.len() == CrossResetEntry::MOST {
            return Err(Status::CROSS_RESET_LOG_FULL);
        }
        let acid = CrossResetEntry::NO_OTHER.into();
        entries.push(CrossResetEntry {
            icid: icid.into(),
            ciu,
            acid,
            // The command was validated, and the reset was initiated.
            flags: 0b11,
            ..CrossResetEntry::default()
        });
        Ok(())
    }

    /// Records that the reset of another controller has succeeded, and raises an event if the host
    /// has enabled it. Returns whether this controller had begun that reset.
    pub(crate) fn end_cross_reset(&mut self, icid: u16) -> bool {
        let waits = |entry: &&mut CrossResetEntry| {
            entry.icid.get() == icid && entry.status == CrossResetEntry::IN_PROGRESS
        };
        let Some(entry) = self.logs.cross_resets.iter_mut().find(waits) else { return false };
        entry.status = CrossResetEntry::SUCCESSFUL;
        if self.features.events().cross_reset() {
            self.events.raise(ControllerEvent::CrossReset);
        }
        true
    }

    /// Sets KATO from Connect, in milliseconds; 0 disables the Keep Alive Timer.
    pub(crate) fn set_keep_alive(&mut self, now: Nanos, kato: u32) {
        self.features.set(
            fid::KEEP_ALIVE_TIMER,
            // KAS is 100 ms; a time-out is rounded up, never down.
            kato.checked_next_multiple_of(100).unwrap_or(kato),
            false,
        );
        self.restart_keep_alive(now);
    }

    /// Whether the Keep Alive Timer has expired.
    pub(crate) fn keep_alive_expired(&self, now: Nanos) -> bool {
        now >= self.keep_alive
    }
}
