//! Asynchronous events (Base 5.1.2): keeps Asynchronous Event Requests in flight, and reads the log
//! page that each event names. Reading the page also lets the controller send the next event of
//! that type.

use std::collections::VecDeque;

use nvme::admin::{AsyncEvent, GetLogPage, Identify, async_event_request, cns};
use nvme::fabrics::CrossResetEntry;
use nvme::log::ana::{self, AnaHeader, AnaLog};
use nvme::log::lid;
use nvme::prp::Dptr;
use nvme::{Nsid, Page, Status};
use units::Nanos;

use crate::{AdminCommand, Inventory, Purpose};

/// Requests kept in flight: an event need not wait until the one before it has been handled.
const MAX_OUTSTANDING: u32 = 4;

/// Maximum requests posted within [`RATE_PERIOD`]. A broken controller may complete each of them at
/// once, and each completion causes the read of a log page.
const RATE_BURST: usize = 8;

/// See [`RATE_BURST`].
const RATE_PERIOD: Nanos = Nanos::from_millis(100);

/// A data structure to read from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A log page, by its identifier, from its first byte on.
    Log(u8),
    /// The continuation of a log page, from this byte offset.
    Rest(u8, u32),
    /// Identify Namespace.
    Namespace(Nsid),
}

/// Set in the number of a [`Reading`] that is Identify Namespace; clear for log pages.
const NAMESPACE: u64 = 1 << 40;
const LOG_REST: u64 = 1 << 41;

impl Reading {
    /// Packs the reading into a number for [`Purpose::Own`].
    pub fn to_number(self) -> u64 {
        match self {
            Reading::Log(page) => page.into(),
            Reading::Rest(page, from) => LOG_REST | u64::from(from) << 8 | u64::from(page),
            Reading::Namespace(nsid) => NAMESPACE | u64::from(nsid.0),
        }
    }

    /// Unpacks a number.
    pub fn from_number(number: u64) -> Reading {
        match number {
            _ if number & LOG_REST != 0 => Reading::Rest(number as u8, (number >> 8) as u32),
            _ if number & NAMESPACE != 0 => Reading::Namespace(Nsid(number as u32)),
            _ => Reading::Log(number as u8),
        }
    }

    fn command(self) -> AdminCommand {
        let sqe = match self {
            Reading::Log(page) => GetLogPage {
                lsp: log_specific_field(page),
                ..GetLogPage::new(page, read_length(page), Dptr::NONE)
            }
            .to_sqe(),
            Reading::Rest(page, from) => {
                let first = GetLogPage::new(page, read_length(page), Dptr::NONE);
                GetLogPage { lsp: log_specific_field(page), offset: from.into(), ..first }.to_sqe()
            }
            Reading::Namespace(nsid) => Identify::new(cns::NAMESPACE, nsid, Dptr::NONE).to_sqe(),
        };
        AdminCommand { sqe, needs_page: true }
    }
}

/// Assembles the ANA log page from pieces. The first piece starts again from the beginning. A
/// change between two pieces raises another event, after which the whole log is read again.
#[derive(Clone, Debug, Default)]
pub struct AnaLogReader {
    bytes: Vec<u8>,
    /// Group descriptors received completely, and where they end after the header: earlier groups
    /// are not parsed again for each piece.
    complete_groups: usize,
    end: usize,
}

impl AnaLogReader {
    /// Maximum bytes: 65,535 groups without namespaces, plus one piece. It limits how much memory a
    /// malicious controller can make the host allocate.
    const MAX_BYTES: usize = AnaHeader::LEN + ana::AnaGroup::LEN * u16::MAX as usize + PAGE_BYTES;

    /// Adds the data of `what` (empty if it was rejected). Returns the log if it is complete, or
    /// what to read next. `offsets`: the controller reads logs from an offset (LPA).
    pub fn add(&mut self, what: Reading, piece: &[u8], offsets: bool) -> Result<AnaLog, Reading> {
        if let Reading::Log(_) = what {
            self.bytes.clear();
            (self.complete_groups, self.end) = (0, 0);
        }
        self.bytes.extend_from_slice(piece);
        // An empty piece is an error: what was received is parsed, instead of asking for ever.
        let more = offsets && !piece.is_empty() && self.bytes.len() < AnaLogReader::MAX_BYTES;
        if more && !self.is_complete() {
            return Err(Reading::Rest(lid::ANA, self.bytes.len() as u32));
        }
        Ok(AnaLog::from_bytes(&self.bytes).unwrap_or_default())
    }

    /// Whether all groups of the header have been received. A controller may list namespaces
    /// although groups only were requested.
    fn is_complete(&mut self) -> bool {
        let Ok(header) = AnaHeader::from_page(&self.bytes) else { return false };
        let groups = usize::from(header.groups);
        let bytes = self.bytes.get(AnaHeader::LEN..).unwrap_or_default();
        while self.complete_groups < groups {
            let Ok(group) = ana::AnaGroup::from_page(bytes.get(self.end..).unwrap_or_default())
            else {
                break;
            };
            let end = self
                .end
                .saturating_add(ana::AnaGroup::LEN)
                .saturating_add((group.namespaces as usize).saturating_mul(4));
            if end > bytes.len() {
                break;
            }
            (self.complete_groups, self.end) = (self.complete_groups + 1, end);
        }
        self.complete_groups == groups
    }
}

/// The event requests in flight, and the data to read.
#[derive(Clone, Debug, Default)]
pub struct EventRequests {
    wanted: u32,
    outstanding: u32,
    /// What is still to be read, in order.
    to_read: VecDeque<Reading>,
    reading: bool,
    /// When the latest event requests were posted, the latest first.
    posted: VecDeque<Nanos>,
}

impl EventRequests {
    /// The requests for a controller that has just come up.
    pub fn new(inventory: &Inventory) -> EventRequests {
        let limit = inventory.limits.map_or(1, |limits| limits.async_events);
        EventRequests { wanted: MAX_OUTSTANDING.min(limit), ..EventRequests::default() }
    }

    /// A reset has ended every command.
    pub fn forget(&mut self) {
        // `posted` stays: a reset must not lift the rate limit.
        (self.outstanding, self.reading) = (0, false);
        self.to_read.clear();
    }

    /// An event request has completed. Returns the event; `None`: the controller accepts no more
    /// requests.
    pub fn event_completed(&mut self, status: Status, result: u32) -> Option<AsyncEvent> {
        self.outstanding = self.outstanding.saturating_sub(1);
        if !status.is_success() {
            // Do not repeat a rejected request: the controller supports fewer than it claims.
            self.wanted = self.outstanding;
            return None;
        }
        let event = AsyncEvent::from_bits(result);
        // Reading the log page is what allows the next event of this type.
        self.read(Reading::Log(event.lid()));
        Some(event)
    }

    /// The read in progress has completed.
    pub fn read_completed(&mut self) {
        self.reading = false;
    }

    /// Queues a read before all others.
    pub fn read_next(&mut self, what: Reading) {
        self.to_read.push_front(what);
    }

    /// Queues a read, once.
    pub fn read(&mut self, what: Reading) {
        if !self.to_read.contains(&what) {
            self.to_read.push_back(what);
        }
    }

    /// The next command to post, and its purpose: an event request, or a [`Reading`] by its number
    /// as [`Purpose::Own`].
    pub fn next_command(&mut self, now: Nanos) -> Option<(AdminCommand, Purpose)> {
        // One read at a time: the pieces of a log must arrive in order.
        if !self.reading
            && let Some(what) = self.to_read.pop_front()
        {
            self.reading = true;
            return Some((what.command(), Purpose::Own(what.to_number())));
        }
        if self.outstanding >= self.wanted || now < self.next_at() {
            return None;
        }
        // Only the time of the RATE_BURST-th latest request is needed.
        self.posted.truncate(RATE_BURST - 1);
        self.posted.push_front(now);
        self.outstanding += 1;
        Some((AdminCommand { sqe: async_event_request(), needs_page: false }, Purpose::AsyncEvent))
    }

    /// Earliest time of the next request; see [`RATE_BURST`].
    fn next_at(&self) -> Nanos {
        self.posted.get(RATE_BURST - 1).map_or(Nanos::ZERO, |&oldest| oldest + RATE_PERIOD)
    }

    /// When the next event request may be posted, if the rate limit delays it; `MAX` otherwise.
    pub fn until(&self, now: Nanos) -> Nanos {
        let at = self.next_at();
        if self.outstanding < self.wanted && now < at { at } else { Nanos::MAX }
    }

    /// The command could not be posted; [`EventRequests::next_command`] returns it again.
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

/// LSP of a log page. For ANA, groups only: Identify Namespace reports a namespace's group. Of
/// Cross-Controller Resets, those that are complete are removed, so that none is taken for a later
/// one.
fn log_specific_field(page: u8) -> u8 {
    match page {
        lid::ANA => ana::GROUPS_ONLY,
        lid::CROSS_CONTROLLER_RESET => CrossResetEntry::REMOVE_COMPLETED,
        _ => 0,
    }
}

/// Bytes to read of a log page: a full page where 512 bytes may not be enough.
fn read_length(page: u8) -> u64 {
    if matches!(page, lid::ANA | lid::CHANGED_NAMESPACES | lid::CROSS_CONTROLLER_RESET) {
        PAGE_BYTES as u64
    } else {
        512
    }
}

/// Bytes of an admin command's buffer.
const PAGE_BYTES: usize = 4096;

#[cfg(all(test, not(loom)))]
mod tests;
