//! One controller brought up by the driver's own sequence, while time passes for it alone.

use driver::{Bringup, BringupAsk, BringupConfig, Inventory, QueuePair, QueueSizes};
use emu::Controller;
use nvme::QueueId;
use units::Nanos;

use super::keeper::Keeper;
use crate::SimError;
use crate::hw_queue::Pair;
use crate::port::{HostBar, Memory, SimPort};

/// What the bring-up of one controller needs and gives.
pub(super) struct Setup<'a> {
    pub(super) now: Nanos,
    pub(super) controller: &'a mut Controller<SimPort>,
    pub(super) keeper: &'a mut Keeper,
    pub(super) bells: &'a HostBar,
    pub(super) pairs: Vec<Pair>,
}

impl Setup<'_> {
    pub(super) fn run(&mut self, config: BringupConfig) -> Result<Inventory, SimError> {
        let memory = self.keeper.memory.clone();
        let mut bringup = Bringup::new(config);
        loop {
            match bringup.step(self.now, self.bells) {
                BringupAsk::Wait { until } => {
                    self.wait(until);
                    let violation = self.keeper.replies(self.bells, |_, reply| bringup.completed(reply));
                    violation.into_iter().for_each(|violation| bringup.violated(violation));
                }
                BringupAsk::Admin(command) => {
                    // Without a tag the reply never comes, and bring-up fails by its own deadline.
                    self.keeper.post(command, driver::Purpose::Sequence, self.now, self.bells);
                }
                BringupAsk::Rings { id, sizes } => {
                    let (sq, cq, pair) = make_pair(&memory, id, sizes)?;
                    self.pairs.push(pair);
                    bringup.rings(sq, cq);
                }
                BringupAsk::ReopenAdmin => unreachable!("asked only of controllers of before version 1.3"),
                BringupAsk::Ready(inventory) => return Ok(*inventory),
                BringupAsk::Failed(error) => return Err(error.into()),
            }
        }
    }

    /// Lets time pass until `until`, or until there is a reply.
    fn wait(&mut self, until: Nanos) {
        loop {
            let step = self.controller.step(self.now);
            if self.keeper.is_called() || self.now >= until {
                return;
            }
            let soon = self.now + Nanos::from_micros(1);
            let own = step.next.unwrap_or(until);
            let next = if step.worked { soon } else { own.max(soon) };
            self.now = next.min(until);
        }
    }
}

/// A queue pair in fresh, zeroed memory, and where it is.
pub(super) fn make_pair(memory: &Memory, id: QueueId, sizes: QueueSizes) -> Result<(u64, u64, Pair), SimError> {
    let alloc = |entries: u32, log2: u8| memory.alloc((entries as usize) << log2).ok_or_else(no_room);
    let (sq_at, cq_at) = (alloc(sizes.sq_entries, nvme::Sqe::SIZE_LOG2)?, alloc(sizes.cq_entries, nvme::Cqe::SIZE_LOG2)?);
    let (sq, cq) = (memory.sq(sq_at, sizes.sq_entries).map_err(unfit)?, memory.cq(cq_at, sizes.cq_entries).map_err(unfit)?);
    Ok((sq_at, cq_at, QueuePair::new(id, sizes, sq, cq).map_err(unfit)?))
}

pub(super) fn no_room() -> SimError {
    SimError::Unfit("rings and buffers do not fit the simulated memory".into())
}

pub(super) fn unfit(error: impl std::error::Error) -> SimError {
    SimError::Unfit(error.to_string())
}
