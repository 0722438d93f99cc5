//! Asynchronous events: requests that wait in the controller until it has something to say (Base 5.1.2).

use nvme::Status;
use nvme::admin::{AsyncEvent, GetLogPage, async_event_request};
use nvme::prp::Dptr;

use crate::{AdminCommand, Inventory, Purpose};

/// Requests kept in the controller, so that no event waits for another to be handled.
const WANTED: u32 = 4;

/// What is out, and what an event has left to do.
#[derive(Clone, Debug, Default)]
pub struct Events {
    wanted: u32,
    out: u32,
    /// Log pages whose reading allows the controller to send the next event of that kind.
    to_read: Vec<u8>,
    reading: bool,
}

impl Events {
    /// For a controller that has just come up.
    pub fn new(inventory: &Inventory) -> Events {
        let limit = inventory.limits.map_or(1, |limits| limits.async_events);
        Events { wanted: WANTED.min(limit), ..Events::default() }
    }

    /// A reset took everything back.
    pub fn forget(&mut self) {
        (self.out, self.reading) = (0, false);
        self.to_read.clear();
    }

    /// A request has completed: the event; `None`: the controller takes no more requests.
    pub fn happened(&mut self, status: Status, result: u32) -> Option<AsyncEvent> {
        self.out = self.out.saturating_sub(1);
        if !status.is_success() {
            self.wanted = self.out;
            return None;
        }
        let event = AsyncEvent::from_bits(result);
        self.to_read.push(event.lid());
        Some(event)
    }

    /// The log page that was asked for has been read.
    pub fn log_read(&mut self) {
        self.reading = false;
    }

    /// A log page is to be read although no event told so.
    pub fn read(&mut self, page: u8) {
        if !self.to_read.contains(&page) {
            self.to_read.push(page);
        }
    }

    /// The next command to post, and what for: a request for events, or, by its number as [`Purpose::Own`], a log page to be read.
    pub fn next_command(&mut self) -> Option<(AdminCommand, Purpose)> {
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
    pub fn not_posted(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Own(page) => {
                self.reading = false;
                self.to_read.push(page as u8);
            }
            _ => self.out = self.out.saturating_sub(1),
        }
    }
}

/// How much of a log page is read: all of the page that the controller writes to, where a part may not be enough.
fn length(page: u8) -> u64 {
    if page == nvme::log::lid::ANA { 4096 } else { 512 }
}
