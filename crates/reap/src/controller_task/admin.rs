//! The admin queue. Only the housekeeping thread uses it. It has one page of 4 KiB for data, so one
//! command with data is in flight at a time.

use driver::{AdminCommand, Completed, Purpose, QueueSizes};
use hw::{DmaBuf, Lent};
use nvme::log::Smart;
use nvme::{Page as _, QueueId};
use units::Nanos;

use crate::error::OpenError;
use crate::transport::{Pair, RingController, Rings};

/// Bytes that an Identify or Get Log Page command returns.
const PAGE: usize = 4096;

/// The data page.
enum DataPage {
    Free(DmaBuf),
    /// A command with this purpose uses it.
    Lent(Lent, Purpose),
    /// Only while it changes from one to the other.
    Moving,
}

/// The admin queue pair with its memory.
pub(crate) struct Admin {
    pub pair: Pair,
    rings: Option<Rings>,
    /// Bus addresses of the rings.
    pub addrs: (u64, u64),
    page: DataPage,
    /// The completions of the last [`Admin::reap`].
    pub taken: Vec<Completed>,
}

impl Admin {
    /// Enough for Aborts, Asynchronous Event Requests, Keep Alive, a caller's command and that of
    /// the bring-up, recovery or shutdown in progress ([`Purpose::Sequence`]).
    pub(crate) const SIZES: QueueSizes = QueueSizes { sq_entries: 64, cq_entries: 64, tags: 63 };

    pub(crate) fn new(controller: &RingController, pool_bytes: u64) -> Result<Admin, OpenError> {
        let too_small = |error| OpenError::from_alloc(error, pool_bytes, 0);
        let rings = Rings::new(controller, Admin::SIZES).map_err(too_small)?;
        let page = controller.pool().alloc(PAGE).map_err(too_small)?;
        let pair = rings
            .pair(controller, QueueId::ADMIN, Admin::SIZES)
            .ok_or(OpenError::PoolTooSmall { bytes: pool_bytes, queues: 0 })?;
        Ok(Admin {
            pair,
            addrs: rings.addrs(),
            rings: Some(rings),
            page: DataPage::Free(page),
            taken: Vec::with_capacity(64),
        })
    }

    /// Posts a command and rings the doorbell. Returns false if there is no tag, or the page is in
    /// use: try again after a completion.
    pub(crate) fn post(
        &mut self,
        controller: &RingController,
        command: AdminCommand,
        purpose: Purpose,
        now: Nanos,
    ) -> bool {
        let mut sqe = command.sqe;
        if command.needs_page {
            match std::mem::replace(&mut self.page, DataPage::Moving) {
                DataPage::Free(buf) => {
                    let lent = buf.lend();
                    // One aligned page: PRP1 alone describes it.
                    sqe.prp1 = lent.addr();
                    self.page = DataPage::Lent(lent, purpose);
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
        if !posted && command.needs_page {
            // The controller has never seen its address.
            self.reclaim_page();
        }
        posted
    }

    /// Fills the page for the next command that sends data. Returns false if the page is in use.
    pub(crate) fn fill(&mut self, data: &[u8]) -> bool {
        match &mut self.page {
            DataPage::Free(buf) => buf[..data.len()].copy_from_slice(data),
            _ => return false,
        }
        true
    }

    /// Reaps completions into [`Admin::taken`]. Returns a protocol violation.
    pub(crate) fn reap(
        &mut self,
        controller: &RingController,
    ) -> Option<driver::ProtocolViolation> {
        self.taken.clear();
        self.pair
            .reap(controller.doorbells(), 64, &mut self.taken)
            .violation
            .map(|violation| *violation)
    }

    /// The page that a completed command has filled; empty if the command had none.
    pub(crate) fn take_page(&mut self, purpose: Purpose) -> &[u8] {
        // Another command has the page: the controller may be writing to it.
        if !matches!(&self.page, DataPage::Lent(_, user) if *user == purpose) {
            return &[];
        }
        self.reclaim_page();
        match &self.page {
            DataPage::Free(buf) => buf,
            _ => &[],
        }
    }

    /// Takes the page back. Only once the controller does not access it: its command has completed,
    /// the controller has stopped, or it has never got the address.
    pub(crate) fn reclaim_page(&mut self) {
        self.page = match std::mem::replace(&mut self.page, DataPage::Moving) {
            DataPage::Lent(lent, _) => DataPage::Free(lent.take_back()),
            free => free,
        };
    }

    /// Leaks the memory of the rings: the controller may still write to it. The data page needs no
    /// call: while it is lent, dropping it leaks it.
    pub(crate) fn leak_rings(&mut self) {
        std::mem::forget(self.rings.take());
    }
}

/// Power cycles and unsafe shutdowns over a controller's life (Base §5.1.12.1.3). If either has
/// grown, the volatile write cache has lost its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Power {
    cycles: u128,
    unsafe_shutdowns: u128,
}

impl Power {
    /// From the health log page; `None` if it cannot be read.
    pub(super) fn from_page(page: &[u8]) -> Option<Power> {
        let smart = page.get(..Smart::LEN).and_then(|bytes| Smart::from_page(bytes).ok())?;
        Some(Power {
            cycles: smart.power_cycles.get(),
            unsafe_shutdowns: smart.unsafe_shutdowns.get(),
        })
    }
}
