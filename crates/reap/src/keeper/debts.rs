//! Law 7, as the housekeeping thread keeps it: what others left unsent is sent as the lanes take it. The thread waits for no lane, only
//! for room, and for that among everything else.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use hw::{Interest, Poller};
use units::Nanos;

use crate::shared::hw_queue::HwQueue;

/// The lanes of one controller that owe, and nobody sleeps on.
pub(super) struct Debts {
    /// Readable when one of them takes bytes.
    room: Poller,
    /// Their queues' places.
    left: Vec<usize>,
    events: Vec<u64>,
}

impl Debts {
    /// No debts yet.
    ///
    /// # Errors
    /// The system has no epoll instance left.
    pub(super) fn new() -> io::Result<Debts> {
        Ok(Debts { room: Poller::new()?, left: Vec::new(), events: Vec::new() })
    }

    /// What the housekeeping thread is to have in its poller.
    pub(super) fn room(&self) -> &Poller {
        &self.room
    }

    /// Takes over what was left since the last time, and sends what goes now.
    pub(super) fn settle(&mut self, queues: &[Arc<HwQueue>]) {
        if !self.left.is_empty() {
            // What it has to say is asked for anew below.
            self.report(|debts| debts.room.wait(Some(Nanos::ZERO), &mut debts.events));
        }
        for (n, lane) in queues.iter().enumerate().filter_map(|(n, queue)| Some((n, queue.lane.stream()?))) {
            let known = self.left.contains(&n);
            if !(lane.take_debt() | known) || !lane.habits().housekeeping_sends {
                continue;
            }
            lane.settle();
            let socket = lane.wait_on();
            // Another thread may be sending at this moment, and leave something: so room is asked for even if there is some.
            match (known, lane.debt().owes()) {
                (false, true) => {
                    self.left.push(n);
                    self.report(|debts| debts.room.add_for(socket.as_fd(), n as u64, Interest::WRITE));
                }
                (true, true) => self.report(|debts| debts.room.change(socket.as_fd(), n as u64, Interest::WRITE)),
                (true, false) => {
                    self.left.retain(|&other| other != n);
                    self.report(|debts| debts.room.remove(socket.as_fd()));
                }
                (false, false) => {}
            }
        }
    }

    fn report(&mut self, asks: impl FnOnce(&mut Debts) -> io::Result<()>) {
        if let Err(error) = asks(self) {
            tracing::error!(%error, "the housekeeping thread cannot wait for a socket");
        }
    }
}
