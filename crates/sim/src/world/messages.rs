//! Messages of devices: sent, on their way, and arrived at a CPU or at the thread that sleeps on them.

use super::*;
use crate::path::Message;

impl<P: Bus> World<'_, P> {
    /// A controller has raised these vectors: their messages set out, and what it writes behind them waits as it has to.
    #[inline]
    pub(super) fn send_messages(&mut self, n: usize) {
        if !self.raised.is_empty() {
            self.send_all(n);
        }
        if let Some(&(first, ..)) = self.messages.front() {
            self.calendar.set_by(self.sources.messages, first);
        }
    }

    fn send_all(&mut self, n: usize) {
        let tells = self.scenario.tells(n, self.mode);
        let mut raised = std::mem::take(&mut self.raised);
        for vector in raised.drain(..).filter(|&vector| vector != ADMIN_VECTOR) {
            let now = self.now;
            let (busy, arrives) = if tells {
                (self.signal_cost(), now)
            } else {
                (self.delivery(n, usize::from(vector.0)), self.now + self.scenario.machine.costs.interrupt.message_delay)
            };
            let (shared, arrives) = if tells { (now, arrives) } else { self.send_by_way(n, usize::from(vector.0), arrives) };
            let free_at = (self.devices[n].way_free_at.max(now) + busy).max(shared);
            self.devices[n].way_free_at = free_at;
            // A signal takes effect when most of its system call is over.
            let arrives = if tells { free_at } else { arrives };
            let place = self.messages.partition_point(|(at, ..)| *at <= arrives);
            self.messages.insert(place, (arrives, n as u32, vector));
        }
        self.raised = raised;
    }

    /// When the shared way, if there is one, has taken a message, so that the device's writes go on, and when it arrives; `arrives`: with
    /// nobody in between.
    fn send_by_way(&mut self, n: usize, vector: usize, arrives: Nanos) -> (Nanos, Nanos) {
        let Some(way) = &mut self.way else { return (self.now, arrives) };
        let machine = &self.scenario.machine;
        let Some(route) = self.devices[n].routes.get(vector) else { return (self.now, arrives) };
        let cpu = &mut self.cpus[route.cpu];
        let posted = self.scenario.posts(self.mode);
        // Of those that are on their way the first raises the notification.
        let notifies = !(posted && (cpu.descriptor.is_outstanding() || cpu.posting > 0));
        cpu.posting += u32::from(posted);
        let (from, to) = (self.scenario.devices[n].node, machine.node_of(route.cpu));
        // Vectors of all devices: a controller has at most 2048.
        let entry = (n as u32) << 11 | vector as u32;
        let sent = way.send(self.now, Message { entry, from, to, posted, notifies });
        (sent.accepted, sent.arrives + machine.costs.interrupt.message_delay)
    }

    /// Messages whose time has come.
    pub(super) fn messages_arrive(&mut self) {
        while let Some((_, device, vector)) = self.messages.pop_front_if(|(at, ..)| *at <= self.now) {
            let (device, vector) = (device as usize, usize::from(vector.0));
            if self.scenario.tells(device, self.mode) {
                let more = self.tell(device, vector);
                let free_at = self.devices[device].way_free_at.max(self.now) + more;
                self.devices[device].way_free_at = free_at;
            } else {
                if self.way.is_some()
                    && let Some(route) = self.devices[device].routes.get(vector)
                {
                    let cpu = &mut self.cpus[route.cpu];
                    cpu.posting = cpu.posting.saturating_sub(1);
                }
                self.message(device, vector);
            }
        }
        if let Some(&(first, ..)) = self.messages.front() {
            self.calendar.set(self.sources.messages, first);
        }
    }
}
