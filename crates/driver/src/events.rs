//! Asynchronous events: requests that wait in the controller until it has something to say (Base 5.1.2). And what has to be read
//! from it because of them.

use std::collections::VecDeque;

use nvme::admin::{AsyncEvent, GetLogPage, Identify, async_event_request, cns};
use nvme::prp::Dptr;
use nvme::{Nsid, Status};
use units::Nanos;

use crate::{AdminCommand, Inventory, Purpose};

/// Requests kept in the controller, so that no event waits for another to be handled.
const WANTED: u32 = 4;

/// Most requests posted within [`PACE`]: each may be answered at once, and costs the reading of a log page.
const BURST: usize = 8;

/// See [`BURST`].
const PACE: Nanos = Nanos::from_millis(100);

/// Something to be read from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A log page, by its identifier.
    Log(u8),
    /// Identify Namespace.
    Namespace(Nsid),
}

/// Tells the numbers of the two kinds apart.
const NAMESPACE: u64 = 1 << 40;

impl Reading {
    /// As a number for [`Purpose::Own`].
    pub fn to_number(self) -> u64 {
        match self {
            Reading::Log(page) => page.into(),
            Reading::Namespace(nsid) => NAMESPACE | u64::from(nsid.0),
        }
    }

    /// What a number says.
    pub fn from_number(number: u64) -> Reading {
        if number & NAMESPACE == 0 { Reading::Log(number as u8) } else { Reading::Namespace(Nsid(number as u32)) }
    }

    fn command(self) -> AdminCommand {
        let sqe = match self {
            Reading::Log(page) => GetLogPage::new(page, length(page), Dptr::NONE).to_sqe(),
            Reading::Namespace(nsid) => Identify::new(cns::NAMESPACE, nsid, Dptr::NONE).to_sqe(),
        };
        AdminCommand { sqe, page: true }
    }
}

/// What is out, and what an event has left to do.
#[derive(Clone, Debug, Default)]
pub struct Events {
    wanted: u32,
    out: u32,
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
        self.read(Reading::Log(event.lid()));
        Some(event)
    }

    /// What was asked for has been read.
    pub fn was_read(&mut self) {
        self.reading = false;
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
        if self.out >= self.wanted || now < self.next_at() {
            return None;
        }
        self.posted.truncate(BURST - 1);
        self.posted.push_front(now);
        self.out += 1;
        Some((AdminCommand { sqe: async_event_request(), page: false }, Purpose::AsyncEvent))
    }

    /// When there may be another request. A controller that answers each at once would have its host do nothing else.
    fn next_at(&self) -> Nanos {
        self.posted.get(BURST - 1).map_or(Nanos::ZERO, |&oldest| oldest + PACE)
    }

    /// When a request for events that is held back may be posted; `MAX`: none is.
    pub fn until(&self, now: Nanos) -> Nanos {
        let at = self.next_at();
        if self.out < self.wanted && now < at { at } else { Nanos::MAX }
    }

    /// There was no room for it: it is asked for again later.
    pub fn not_posted(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Own(number) => {
                self.reading = false;
                self.to_read.push_front(Reading::from_number(number));
            }
            _ => self.out = self.out.saturating_sub(1),
        }
    }
}

/// How much of a log page is read: all of the page that the controller writes to, where a part may not be enough.
fn length(page: u8) -> u64 {
    if matches!(page, nvme::log::lid::ANA | nvme::log::lid::CHANGED_NAMESPACES) { 4096 } else { 512 }
}

#[cfg(all(test, not(loom)))]
mod tests;
