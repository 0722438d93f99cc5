//! `posted` over several files: which queues of one thread have a ring in common.

use std::sync::Arc;

use super::soft_queue::SoftQueue;
use crate::error::QueueError;
use crate::link::{Common, UringLane};
use crate::shared::hw_queue::HwQueue;

/// Queues that their thread drives together, and whose requests go over one ring while their mode is `posted`. Without it each posts to
/// its own.
pub(crate) struct Gathering {
    common: Arc<Common>,
    queues: Vec<Arc<HwQueue>>,
}

impl Gathering {
    /// Has `queues` take seats at one ring, where that can be: all of them are files', more than one, of one kind, and the ring that some
    /// of them have serves no other group. `None`: it cannot.
    ///
    /// # Errors
    /// The kernel refuses a ring, or some of them have one with others.
    pub(crate) fn of<'a>(queues: impl Iterator<Item = &'a SoftQueue> + Clone) -> Result<Option<Gathering>, QueueError> {
        let lanes = || queues.clone().map(|queue| queue.hardware().lane.uring());
        let needs: Option<Vec<_>> = lanes().map(|lane| lane.and_then(UringLane::needs)).collect();
        let Some(needs) = needs.filter(|needs| needs.len() > 1) else { return Ok(None) };
        let sum = needs.iter().copied().reduce(|all, one| all.and(one));
        let Some(sum) = sum.filter(|sum| needs.iter().all(|one| one.owned == sum.owned)) else { return Ok(None) };
        let common = match lanes().flatten().find_map(UringLane::common) {
            Some(common) => common.clone(),
            None => Common::new(sum)?,
        };
        if !common.fits(sum) {
            return Ok(None);
        }
        for queue in queues.clone() {
            queue.join(&common)?;
        }
        if !common.begin() {
            return Ok(None);
        }
        let gathering = Gathering { common, queues: queues.clone().map(|queue| queue.hardware().clone()).collect() };
        gathering.gather(true);
        queues.for_each(SoftQueue::settle_in_common);
        Ok(Some(gathering))
    }

    fn gather(&self, gathered: bool) {
        self.queues.iter().filter_map(|queue| queue.lane.uring()).for_each(|lane| lane.gather(gathered));
    }
}

/// From now on each may be another thread's.
impl Drop for Gathering {
    fn drop(&mut self) {
        self.gather(false);
        self.common.end();
    }
}
