//! The admin queue, as its one owner uses it: the housekeeping thread.

use driver::{AdminCommand, Completed, Purpose, QueueSizes};
use hw::{DmaBuf, Lent};
use nvme::log::Smart;
use nvme::{Page as _, QueueId};
use units::Nanos;

use crate::error::OpenError;
use crate::transport::{Pair, RingController, Rings};

/// Bytes that an Identify or Get Log Page command returns.
const PAGE: usize = 4096;

/// A page that a command fills, and which command that is while it is out.
enum Page {
    Here(DmaBuf),
    Lent(Lent, Purpose),
    Gone,
}

/// The admin queue pair with its memory.
pub(crate) struct Admin {
    pub pair: Pair,
    rings: Option<Rings>,
    /// Bus addresses of the rings.
    pub addrs: (u64, u64),
    page: Page,
    /// What the last [`Admin::reap`] found.
    pub taken: Vec<Completed>,
}

impl Admin {
    /// Commands in flight on the admin queue: Aborts, event requests, keep-alive, and the sequence at work.
    pub(crate) const SIZES: QueueSizes = QueueSizes { sq_entries: 64, cq_entries: 64, tags: 63 };

    pub(crate) fn new(controller: &RingController, pool_bytes: u64) -> Result<Admin, OpenError> {
        let small = |error| OpenError::no_memory(error, pool_bytes, 0);
        let rings = Rings::new(controller, Admin::SIZES).map_err(small)?;
        let page = controller.pool().alloc(PAGE).map_err(small)?;
        let pair = rings.pair(controller, QueueId::ADMIN, Admin::SIZES).ok_or(OpenError::PoolTooSmall { bytes: pool_bytes, queues: 0 })?;
        Ok(Admin { pair, addrs: rings.addrs(), rings: Some(rings), page: Page::Here(page), taken: Vec::with_capacity(64) })
    }

    /// Posts a command and rings the doorbell. False: there is no tag, or the page is in use; ask again later.
    pub(crate) fn post(&mut self, controller: &RingController, command: AdminCommand, purpose: Purpose, now: Nanos) -> bool {
        let mut sqe = command.sqe;
        if command.page {
            match std::mem::replace(&mut self.page, Page::Gone) {
                Page::Here(buf) => {
                    let lent = buf.lend();
                    sqe.prp1 = lent.addr();
                    self.page = Page::Lent(lent, purpose);
                }
                busy => {
                    self.page = busy;
                    return false;
                }
            }
        }
        let mut sq = self.pair.lock_sq();
        let posted = sq.post(sqe, purpose.to_token(), now).is_ok();
        sq.commit(controller.doorbells());
        drop(sq);
        if !posted && command.page {
            self.take_page_back();
        }
        posted
    }

    /// What the next command with a page finds there. False: the page is in use.
    pub(crate) fn fill(&mut self, data: &[u8]) -> bool {
        match &mut self.page {
            Page::Here(buf) => buf[..data.len()].copy_from_slice(data),
            _ => return false,
        }
        true
    }

    /// Puts what has completed into [`Admin::taken`].
    pub(crate) fn reap(&mut self, controller: &RingController) -> Option<driver::ProtocolViolation> {
        self.taken.clear();
        self.pair.reap(controller.doorbells(), 64, &mut self.taken).violation.map(|violation| *violation)
    }

    /// The page that a command filled, which has completed; empty if it asked for none. Another's stays out: the controller may be
    /// writing to it.
    pub(crate) fn take_page(&mut self, purpose: Purpose) -> &[u8] {
        if !matches!(&self.page, Page::Lent(_, user) if *user == purpose) {
            return &[];
        }
        self.take_page_back();
        match &self.page {
            Page::Here(buf) => buf,
            _ => &[],
        }
    }

    /// Nobody writes to the page: the controller has stopped, or was never told of it.
    pub(crate) fn take_page_back(&mut self) {
        self.page = match std::mem::replace(&mut self.page, Page::Gone) {
            Page::Lent(lent, _) => Page::Here(lent.take_back()),
            here => here,
        };
    }

    /// The controller may still write to the rings, and to the page if it is out: nobody else may ever have that memory.
    pub(crate) fn leak_rings(&mut self) {
        std::mem::forget(self.rings.take());
    }
}

#[cfg(test)]
mod tests;

/// Power cycles, and shutdowns without notice, over a controller's life (Base 5.1.12.1.3). A volatile cache has lost what
/// it held if either has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Power {
    cycles: u128,
    unsafe_shutdowns: u128,
}

impl Power {
    /// What the health log page says; `None`: nothing that can be read.
    pub(super) fn from_page(page: &[u8]) -> Option<Power> {
        let smart = page.get(..Smart::LEN).and_then(|bytes| Smart::from_page(bytes).ok())?;
        Some(Power { cycles: smart.power_cycles.get(), unsafe_shutdowns: smart.unsafe_shutdowns.get() })
    }
}
