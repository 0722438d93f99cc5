//! Lanes whose ring is of another kind than the usual: polled by the kernel, or submitted by a thread of the kernel's.

use std::sync::Arc;

use completion::Mode;
use hw::uring::{Cqe, Enter, Poll, Span};
use nvme::{QueueId, Status};
use units::Op;

use super::UringLane;
use super::state::answered;
use crate::error::QueueError;
use crate::link::kernel::command::{Answer, Command, Rest};
use crate::link::kernel::link::KernelLink;
use crate::wake::Wake;

/// Without entries for so long the thread of an SQPOLL ring sleeps, so that it disturbs no other mode's block in a comparison.
const SQPOLL_IDLE_MS: u32 = 1;

/// Requests at once on the ring beside one that is polled.
const PLAIN_TAGS: u32 = 16;

impl UringLane {
    /// The mode of the kernel's own that its ring was made for.
    #[inline]
    pub(crate) fn made_for(&self) -> Option<Mode> {
        self.made_for
    }

    /// A ring whose device the kernel polls, with one beside it for what cannot be polled. `None`: this device, or the way it is opened,
    /// cannot be polled, as a trial shows.
    pub(crate) fn polled(link: &Arc<KernelLink>, id: QueueId, tags: u32, wake: &Wake, owned: bool) -> Option<UringLane> {
        if !link.may_poll() {
            return None;
        }
        UringLane::on_poll_queue(link, (id, tags), wake, (owned, Poll::Io)).ok()?
    }

    /// A ring for a mode of the kernel's own: one in which the kernel polls, or which a thread of the kernel's submits.
    ///
    /// # Errors
    /// The kernel refuses the ring, or says in a trial that it cannot poll the device.
    pub(crate) fn kernels(
        link: &Arc<KernelLink>,
        (id, tags): (QueueId, u32),
        wake: &Wake,
        owned: bool,
        mode: Mode,
    ) -> Result<UringLane, QueueError> {
        if let Some(why) = link.lacks(mode) {
            return Err(QueueError::Ring(why));
        }
        let poll = match mode {
            Mode::KERNEL_SQPOLL => Poll::Sq { idle_ms: SQPOLL_IDLE_MS },
            Mode::KERNEL_HYBRID_IOPOLL => Poll::HybridIo,
            _ => Poll::Io,
        };
        let mut lane = match poll {
            // Its thread alone submits, however many threads there are.
            Poll::Sq { .. } => UringLane::make(link, (id, tags), wake, (false, poll))?,
            _ => UringLane::on_poll_queue(link, (id, tags), wake, (owned, poll))?
                .ok_or_else(|| QueueError::Ring(format!("`{mode}`: a read in a trial was refused: the kernel cannot poll this device")))?,
        };
        lane.made_for = Some(mode);
        Ok(lane)
    }

    /// A ring whose device the kernel polls, with one beside it. `None`: the kernel says in a trial that it cannot.
    fn on_poll_queue(
        link: &Arc<KernelLink>,
        (id, tags): (QueueId, u32),
        wake: &Wake,
        (owned, poll): (bool, Poll),
    ) -> Result<Option<UringLane>, QueueError> {
        let plain = UringLane::new(link, id, PLAIN_TAGS, wake, owned)?;
        let mut lane = UringLane::make(link, (id, tags), wake, (owned, poll))?;
        let works = lane.tries_to_poll();
        lane.plain = Some(Box::new(plain));
        Ok(works.then_some(lane))
    }

    /// Reads a block, and sees whether the kernel says that it cannot poll for it.
    fn tries_to_poll(&self) -> bool {
        let Ok(buf) = self.link.pool().alloc(self.link.target().facts().lba_bytes as usize) else { return false };
        let lent = buf.lend();
        let mut state = self.state();
        state.commands[0] = Command { op: Op::Read, rest: Rest::Data(Span::of(&lent, 0..lent.len())), ..Command::NONE };
        if !state.push(0) || self.submit(&mut state).is_err() {
            // Lent for good, should the kernel have it after all.
            return false;
        }
        let mut cqe = [Cqe::default(); 1];
        while state.cq.take(&mut cqe) == 0 {
            self.enter(Enter { wait_for: 1, ..Enter::default() });
        }
        drop(lent.take_back());
        let passes = state.passthrough.is_some();
        matches!(answered(passes, &mut state.commands[0], cqe[0].result, self.link.ways()), Answer::Over(Status::SUCCESS, _))
    }
}
