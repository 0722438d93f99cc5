//! Asynchronous events: requests that wait in the controller until it has something to say (Base 5.1.2).

use driver::{AdminCommand, Inventory, Purpose};
use nvme::Status;
use nvme::admin::{AsyncEvent, GetLogPage, async_event_request};
use nvme::prp::Dptr;

/// Requests kept in the controller, so that no event waits for another to be handled.
const WANTED: u32 = 4;

/// Events that are kept for [`crate::Health`].
const KEPT: usize = 64;

/// What is out, and what an event has left to do.
#[derive(Default)]
pub(crate) struct Events {
    wanted: u32,
    out: u32,
    /// Log pages whose reading allows the controller to send the next event of that kind.
    to_read: Vec<u8>,
    reading: bool,
    told: Vec<String>,
}

impl Events {
    /// For a controller that has just come up.
    pub(crate) fn new(inventory: &Inventory) -> Events {
        let limit = inventory.limits.map_or(1, |limits| limits.async_events);
        Events { wanted: WANTED.min(limit), ..Events::default() }
    }

    /// A reset took everything back.
    pub(crate) fn forget(&mut self) {
        (self.out, self.reading) = (0, false);
        self.to_read.clear();
    }

    /// A request has completed: there is an event, or the controller takes no more of them.
    pub(crate) fn happened(&mut self, status: Status, result: u32) {
        self.out = self.out.saturating_sub(1);
        if !status.is_success() {
            self.wanted = self.out;
            return;
        }
        let event = AsyncEvent::from_bits(result);
        tracing::warn!(kind = event.event_type(), info = event.info(), log = event.lid(), "asynchronous event");
        self.told.push(format!("type {} information {:#04x} (log page {:#04x})", event.event_type(), event.info(), event.lid()));
        self.to_read.push(event.lid());
    }

    /// The log page that was asked for has been read.
    pub(crate) fn log_read(&mut self) {
        self.reading = false;
    }

    /// A log page is to be read although no event told so.
    pub(crate) fn read(&mut self, page: u8) {
        if !self.to_read.contains(&page) {
            self.to_read.push(page);
        }
    }

    /// The next command to post, and what for.
    pub(crate) fn next(&mut self) -> Option<(AdminCommand, Purpose)> {
        if !self.reading
            && let Some(page) = self.to_read.pop()
        {
            self.reading = true;
            let sqe = GetLogPage::new(page, length(page), Dptr::NONE).to_sqe();
            return Some((AdminCommand { sqe, page: true }, Purpose::Own(u64::from(page))));
        }
        (self.out < self.wanted).then(|| {
            self.out += 1;
            (AdminCommand { sqe: async_event_request(), page: false }, Purpose::AsyncEvent)
        })
    }

    /// There was no room for it: it is asked for again later.
    pub(crate) fn not_posted(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Own(page) => {
                self.reading = false;
                self.to_read.push(page as u8);
            }
            _ => self.out = self.out.saturating_sub(1),
        }
    }

    /// Adds the events since the last call to `list`, which keeps the latest.
    pub(crate) fn tell(&mut self, list: &mut Vec<String>) {
        list.append(&mut self.told);
        let surplus = list.len().saturating_sub(KEPT);
        list.drain(..surplus);
    }
}

/// How much of a log page is read: all of the page that the controller writes to, where a part may not be enough.
fn length(page: u8) -> u64 {
    if page == nvme::log::lid::ANA { 4096 } else { 512 }
}
