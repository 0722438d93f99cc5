//! Asynchronous events: requests that wait in the controller until it has something to say (Base 5.1.2). And what has to be read
//! from it because of them.

use std::collections::VecDeque;

use nvme::admin::{AsyncEvent, GetLogPage, Identify, async_event_request, cns};
use nvme::log::ana::{self, AnaHeader, AnaLog};
use nvme::prp::Dptr;
use nvme::{Nsid, Page, Status};
use units::Nanos;

use crate::{AdminCommand, Inventory, Purpose};

/// Requests kept in the controller, so that no event waits for another to be handled.
const MAX_OUTSTANDING: u32 = 4;

/// Most requests posted within [`RATE_PERIOD`]: each may be answered at once, and costs the reading of a log page.
const RATE_BURST: usize = 8;

/// See [`RATE_BURST`].
const RATE_PERIOD: Nanos = Nanos::from_millis(100);

/// Something to be read from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A log page, by its identifier: what of it one page of memory holds.
    Log(u8),
    /// The same from this byte of it on: what did not fit.
    Rest(u8, u32),
    /// Identify Namespace.
    Namespace(Nsid),
}

/// Tell the numbers of the kinds apart.
const NAMESPACE: u64 = 1 << 40;
const LOG_REST: u64 = 1 << 41;

impl Reading {
    /// As a number for [`Purpose::Own`].
    pub fn to_number(self) -> u64 {
        match self {
            Reading::Log(page) => page.into(),
            Reading::Rest(page, from) => LOG_REST | u64::from(from) << 8 | u64::from(page),
            Reading::Namespace(nsid) => NAMESPACE | u64::from(nsid.0),
        }
    }

    /// What a number says.
    pub fn from_number(number: u64) -> Reading {
        match number {
            _ if number & LOG_REST != 0 => Reading::Rest(number as u8, (number >> 8) as u32),
            _ if number & NAMESPACE != 0 => Reading::Namespace(Nsid(number as u32)),
            _ => Reading::Log(number as u8),
        }
    }

    fn command(self) -> AdminCommand {
        let sqe = match self {
            Reading::Log(page) => {
                GetLogPage { lsp: log_specific_field(page), ..GetLogPage::new(page, read_length(page), Dptr::NONE) }.to_sqe()
            }
            Reading::Rest(page, from) => {
                let first = GetLogPage::new(page, read_length(page), Dptr::NONE);
                GetLogPage { lsp: log_specific_field(page), offset: from.into(), ..first }.to_sqe()
            }
            Reading::Namespace(nsid) => Identify::new(cns::NAMESPACE, nsid, Dptr::NONE).to_sqe(),
        };
        AdminCommand { sqe, page: true }
    }
}

/// The ANA log, as its pieces come. It begins anew with its first: what changes between two of them raises another event, for which all
/// of it is read again.
#[derive(Clone, Debug, Default)]
pub struct AnaPieces {
    bytes: Vec<u8>,
    /// Groups of which all has come, and where they end behind the header: a long log is not looked through again for each of its pieces.
    complete_groups: usize,
    end: usize,
}

impl AnaPieces {
    /// Most bytes of it: 65,535 groups without namespaces, and a piece more.
    const MAX_BYTES: usize = AnaHeader::LEN + ana::AnaGroup::LEN * u16::MAX as usize + PAGE_BYTES;

    /// What `what` has brought, and nothing if it was refused: the log, or, where the controller reads logs from an offset on
    /// (`offsets`, LPA), what to read next.
    pub fn add(&mut self, what: Reading, piece: &[u8], offsets: bool) -> Result<AnaLog, Reading> {
        if let Reading::Log(_) = what {
            self.bytes.clear();
            (self.complete_groups, self.end) = (0, 0);
        }
        self.bytes.extend_from_slice(piece);
        let more = offsets && !piece.is_empty() && self.bytes.len() < AnaPieces::MAX_BYTES;
        if more && !self.is_complete() {
            return Err(Reading::Rest(nvme::log::lid::ANA, self.bytes.len() as u32));
        }
        Ok(AnaLog::from_bytes(&self.bytes).unwrap_or_default())
    }

    /// Whether all groups that the header announces have come. They may list namespaces all the same.
    fn is_complete(&mut self) -> bool {
        let Ok(header) = AnaHeader::from_page(&self.bytes) else { return false };
        let groups = usize::from(header.groups);
        let bytes = self.bytes.get(AnaHeader::LEN..).unwrap_or_default();
        while self.complete_groups < groups {
            let Ok(group) = ana::AnaGroup::from_page(bytes.get(self.end..).unwrap_or_default()) else { break };
            let end = self.end.saturating_add(ana::AnaGroup::LEN).saturating_add((group.namespaces as usize).saturating_mul(4));
            if end > bytes.len() {
                break;
            }
            (self.complete_groups, self.end) = (self.complete_groups + 1, end);
        }
        self.complete_groups == groups
    }
}

/// What is outstanding, and what an event has left to do.
#[derive(Clone, Debug, Default)]
pub struct Events {
    wanted: u32,
    outstanding: u32,
    /// In order. The reading of a log page allows the controller to send the next event of that kind.
    to_read: VecDeque<Reading>,
    reading: bool,
    /// When the latest requests for events were posted, the latest first.
    posted: VecDeque<Nanos>,
}

impl Events {
    /// For a controller that has just come up.
    pub fn new(inventory: &Inventory) -> Events {
        let limit = inventory.limits.map_or(1, |limits| limits.async_events);
        Events { wanted: MAX_OUTSTANDING.min(limit), ..Events::default() }
    }

    /// A reset took everything back.
    pub fn forget(&mut self) {
        (self.outstanding, self.reading) = (0, false);
        self.to_read.clear();
    }

    /// A request has completed: the event; `None`: the controller takes no more requests.
    pub fn happened(&mut self, status: Status, result: u32) -> Option<AsyncEvent> {
        self.outstanding = self.outstanding.saturating_sub(1);
        if !status.is_success() {
            self.wanted = self.outstanding;
            return None;
        }
        let event = AsyncEvent::from_bits(result);
        self.read(Reading::Log(event.lid()));
        Some(event)
    }

    /// What was asked for has been read.
    pub fn was_read(&mut self) {
        self.reading = false;
    }

    /// Something is to be read before anything else.
    pub fn read_next(&mut self, what: Reading) {
        self.to_read.push_front(what);
    }

    /// Something is to be read.
    pub fn read(&mut self, what: Reading) {
        if !self.to_read.contains(&what) {
            self.to_read.push_back(what);
        }
    }

    /// The next command to post, and what for: a request for events, or, by its number as [`Purpose::Own`], a [`Reading`].
    pub fn next_command(&mut self, now: Nanos) -> Option<(AdminCommand, Purpose)> {
        if !self.reading
            && let Some(what) = self.to_read.pop_front()
        {
            self.reading = true;
            return Some((what.command(), Purpose::Own(what.to_number())));
        }
        if self.outstanding >= self.wanted || now < self.next_at() {
            return None;
        }
        self.posted.truncate(RATE_BURST - 1);
        self.posted.push_front(now);
        self.outstanding += 1;
        Some((AdminCommand { sqe: async_event_request(), page: false }, Purpose::AsyncEvent))
    }

    /// When there may be another request. A controller that answers each at once would have its host do nothing else.
    fn next_at(&self) -> Nanos {
        self.posted.get(RATE_BURST - 1).map_or(Nanos::ZERO, |&oldest| oldest + RATE_PERIOD)
    }

    /// When a request for events that is held back may be posted; `MAX`: none is.
    pub fn until(&self, now: Nanos) -> Nanos {
        let at = self.next_at();
        if self.outstanding < self.wanted && now < at { at } else { Nanos::MAX }
    }

    /// There was no room for it: it is asked for again later.
    pub fn not_posted(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Own(number) => {
                self.reading = false;
                self.to_read.push_front(Reading::from_number(number));
            }
            _ => self.outstanding = self.outstanding.saturating_sub(1),
        }
    }
}

/// LSP of a log page. Of ANA the groups are read, and not which namespaces they have: Identify Namespace tells that.
fn log_specific_field(page: u8) -> u8 {
    if page == nvme::log::lid::ANA { ana::GROUPS_ONLY } else { 0 }
}

/// How much of a log page is read: all of the page that the controller writes to, where a part may not be enough.
fn read_length(page: u8) -> u64 {
    if matches!(page, nvme::log::lid::ANA | nvme::log::lid::CHANGED_NAMESPACES) { PAGE_BYTES as u64 } else { 512 }
}

/// Bytes of an admin command's page of memory.
const PAGE_BYTES: usize = 4096;

#[cfg(all(test, not(loom)))]
mod tests;
